"""Options are of the types that their dataclass says, wherever they came from: a call, the command line, a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from lading.errors import UsageError

__all__ = ["check_types"]

_NUMBERS = {int: (int, np.integer), float: (int, float, np.integer, np.floating)}


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_types(kind: type, given: Mapping[str, Any]) -> None:
    """Refuse options of other types than the fields of `kind` have; which words are known, `kind` says itself.

    Raises:
        UsageError: names the option.
    """
    hints = _hints(kind)
    for name, value in given.items():
        if not _fits(value, hints[name]):
            found = f"{name}={value!r:.80}"
            if hints[name] is bool:  # a text that says no would be taken for yes
                raise UsageError("neither true nor false", expected="true or false", found=found)
            told = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name])
            raise UsageError("an option of another type", expected=told, found=found)


def _fits(value: Any, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return isinstance(value, str)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is not None and issubclass(kind, Mapping):
        key, held = inner
        return isinstance(value, Mapping) and all(_fits(k, key) and _fits(v, held) for k, v in value.items())
    if kind is not None:  # a text is no list of its letters
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
        return listed and all(_fits(item, inner[0]) for item in value)
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    return isinstance(value, NoneType if hint is None else hint)
