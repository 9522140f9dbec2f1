"""Check that a pipeline goes on, after a stop, at the next batch."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal

import numpy as np

__all__ = ["assert_exact_resume"]

_SHOWN: Final = 80


def assert_exact_resume(
    make_loader: Callable[[], Any],
    *,
    stops: Iterable[int] | None = None,
    num_stops: int = 5,
    num_batches: int | None = None,
    seed: int = 0,
    through: Literal["pickle", "json"] = "pickle",
) -> None:
    """Check that a loader, stopped anywhere and made anew, gives the batches of an undisturbed run.

    The loader is anything with iteration, `state_dict` and `load_state_dict`: of lading, a `StatefulDataLoader`, a
    pipeline of your own. For each stop the loader is made, gives so many batches, and its state is stored. Another one
    is made from the state, and its batches are compared value by value: arrays, tensors, tables, images, dicts, lists.

    Example:
        from lading.testing import assert_exact_resume

        assert_exact_resume(lambda: lading.loader("train", 64, shuffle=True, seed=7))

    Args:
        make_loader: makes a new loader, as a new process would.
        stops: numbers of batches after which to stop; by default 0, 1, the last two, and random ones.
        num_stops: number of random stops.
        num_batches: number of batches to look at, over any number of epochs; by default two epochs.
        seed: of the random stops.
        through: how the state is stored. `json` holds for fewer states.

    Memory: the batches that are looked at, twice.

    Raises:
        AssertionError: two new loaders differ; or a resumed one does. The text names the stop, the batch and the value.
    """
    expected = [*_batches(make_loader(), num_batches)]
    again = [*_batches(make_loader(), len(expected))]
    _compare(expected, again, "two new loaders give different batches, so that no resume can be exact")
    for stop in _stops(stops, num_stops, seed, len(expected)):
        loader = make_loader()
        before = [*_batches(loader, stop)] if stop else []
        _compare(expected[:stop], before, "another new loader gives different batches")
        state = _stored(loader.state_dict(), through)
        resumed = make_loader()
        resumed.load_state_dict(state)
        rest = [*_batches(resumed, len(expected) - stop)]
        _compare(expected, rest, f"stopped after {stop} batches and resumed", stop)


def _batches(loader: Any, count: int | None, epochs: int = 2) -> Iterator[Any]:
    """The first batches of a loader, epoch after epoch, or those of some epochs. Two empty epochs end them too."""
    given, before, loops = 0, (-2, -1), 0
    while before != (given, given) and (count is not None or loops < epochs):
        before, loops = (before[1], given), loops + 1
        for batch in loader:
            given += 1
            yield batch
            if given == count:
                return


def _stops(stops: Iterable[int] | None, num_stops: int, seed: int, count: int) -> list[int]:
    if stops is None:
        drawn = random.Random(seed).sample(range(count), min(num_stops, count))  # noqa: S311 - a reproducible choice
        found = {0, 1, count // 2, count - 1, *drawn}
    else:
        found = {*stops}
    wrong = [stop for stop in found if stop < 0 or (stops is not None and stop >= count)]
    if wrong or not count:
        raise ValueError(f"stops must be from 0 to {count - 1}, the batches that are looked at: {wrong}")
    return sorted(stop for stop in found if stop < count)


def _stored(state: Any, through: str) -> Any:
    if through == "pickle":
        return pickle.loads(pickle.dumps(state))  # noqa: S301 - what was made here
    try:
        return json.loads(json.dumps(state))
    except TypeError as error:
        raise AssertionError(f"JSON cannot hold the state: {error}") from error


def _compare(expected: Sequence[Any], found: Sequence[Any], when: str, first: int = 0) -> None:
    """Compare batches from a number on. Raises AssertionError, which names the first that differs, and how."""
    for number, batch in enumerate(found, first):
        difference = _difference(expected[number], batch, "")
        if difference:
            same = [i for i, each in enumerate(expected) if not _difference(each, batch, "")]
            hint = "" if not same else f"; {_place(same, number)}"
            raise AssertionError(f"{when}: batch {number} differs{difference}{hint}")
    if first + len(found) < len(expected):
        missing = len(expected) - first - len(found)
        raise AssertionError(f"{when}: the loader ends after {len(found)} batches; {missing} are missing")


def _place(same: list[int], number: int) -> str:
    nearest = min(same, key=lambda i: abs(i - number))
    what = f"{nearest - number} before it were lost" if nearest > number else "the loader gives it again"
    return f"it is batch {nearest} of the undisturbed run: {what}"


def _difference(expected: Any, found: Any, path: str) -> str:
    """What differs first, with its place; nothing if the two are equal."""
    if type(expected) is not type(found):
        return _said(path, type(expected).__name__, type(found).__name__)
    inside = _inside(expected)
    if inside is not None:
        others = _inside(found) or {}
        if [*inside] != [*others]:
            return _said(path, _names(expected, inside), _names(found, others))
        each = (_difference(inside[name], others[name], f"{path}[{name!r}]") for name in inside)
        return next(filter(None, each), "")
    if hasattr(expected, "shape") and hasattr(expected, "dtype"):
        return _difference_of_arrays(expected, found, path)
    if hasattr(expected, "tobytes") and hasattr(expected, "mode"):  # an image of Pillow's
        a, b = ((each.mode, each.size, each.tobytes()) for each in (expected, found))
        return "" if a == b else _said(path, a[:2] if a[:2] != b[:2] else "other pixels", b[:2])
    equal = expected.equals(found) if hasattr(expected, "equals") else expected == found
    same = bool(equal) or (expected != expected and found != found)  # noqa: PLR0124 - it is NaN
    return "" if same else _said(path, _shown(expected), _shown(found))


def _inside(value: Any) -> dict[Any, Any] | None:
    """The values inside of one, by name or number; None for a value without."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None


def _names(value: Any, inside: dict[Any, Any]) -> str:
    return _shown([*inside]) if isinstance(value, Mapping) else f"{len(inside)} values"


def _difference_of_arrays(expected: Any, found: Any, path: str) -> str:
    kinds = [f"{each.dtype} {tuple(each.shape)}" for each in (expected, found)]
    if kinds[0] != kinds[1]:
        return _said(path, *kinds)
    a, b = (np.asarray(each.detach().cpu() if hasattr(each, "detach") else each) for each in (expected, found))
    same = a == b
    if a.dtype.kind in "fc":
        same = same | (np.isnan(a) & np.isnan(b))
    if np.all(same):
        return ""
    at = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0])
    return _said(path + (f"[{', '.join(map(str, at))}]" if at else ""), _shown(a[at]), _shown(b[at]))


def _said(path: str, expected: object, found: object) -> str:
    return f"{' at ' + path if path else ''}: expected {expected}, found {found}"


def _shown(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
