"""Few cases in which every value of a factor meets every value of each other factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

__all__ = ["covering"]


def covering(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return cases, a value for each factor, so that any two values of two factors are together in one of them.

    Each case has a pair that no case before has, and of each other factor the value that adds most such pairs.
    """
    numbers = {name: range(len(values)) for name, values in factors.items()}
    pairs = combinations(numbers, 2)
    missing = {frozenset({(a, i), (b, j)}): None for a, b in pairs for i in numbers[a] for j in numbers[b]}
    cases: list[dict[str, int]] = []
    while missing:
        case = dict(next(iter(missing)))
        for name in (name for name in numbers if name not in case):
            gains = [sum(frozenset({(name, i), each}) in missing for each in case.items()) for i in numbers[name]]
            turn = len(cases) % len(gains)  # of equal values another one in each case
            case[name] = max(numbers[name], key=lambda i: (gains[i], (i - turn) % len(gains)))
        for pair in combinations(case.items(), 2):
            missing.pop(frozenset(pair), None)
        cases.append(case)
    return [{name: values[case[name]] for name, values in factors.items()} for case in cases]
