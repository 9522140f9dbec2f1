"""What stands for values that samples lack, so that a column has one type in all batches.

A list holds None, and floats hold NaN. No value of another array says that it is missing. So there the user chooses:
an error, which is the default; to leave the sample out; a list in all batches; or a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.train.collate import PYTHON_TYPES, is_array, is_number
from lading.errors import DataError, LadingError, UsageError

__all__ = [
    "KEEP",
    "Failed",
    "Lacking",
    "Missing",
    "MissingValue",
    "choice_of",
    "in_array",
    "in_list",
    "in_values",
    "is_list",
    "refuse_wrong_missing",
]

Missing: TypeAlias = Any
"""`error`, `skip`, `list` or a value, for all columns that cannot hold a missing value; or a dict of them by column."""

Failed: TypeAlias = dict[int, LadingError]
"""Errors of samples, by place."""

_POLICIES: Final = ("error", "skip", "list")
KEEP: Final = object()
"""The choice for a column that holds missing values: None in its list, or NaN in its array."""


class MissingValue(DataError):
    """A sample lacks a value, and the user said to leave such samples out."""


class Lacking(NamedTuple):
    """The values of a column that is an array in all batches.

    Attributes:
        values: a row a sample; of any value where one is missing, but NaN among floats.
        missing: which are missing, by sample, or by the items of each; None for none.
        holds: whether NaN stands for those that are missing.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    holds: bool = False


def choice_of(missing: Missing, name: str, *, holds: bool) -> Any:
    """What the user chose for a column: a policy, a value, or `KEEP` where it holds missing values."""
    if isinstance(missing, Mapping):
        if name in missing:
            return missing[name]
        missing = "error"
    return KEEP if holds else missing


def is_list(choice: Any) -> bool:
    """Whether a column is a list in all batches."""
    return isinstance(choice, str) and choice == "list"


def in_array(name: str, found: Lacking, choice: Any, failed: Failed) -> Any:
    """The values of a column, by the choice for it: the array, or a list with None.

    Raises:
        UsageError: the array cannot hold the value that was chosen.
    """
    values, missing = found.values, found.missing
    if is_list(choice):
        return _as_list(values, missing)
    if missing is None or choice is KEEP:
        return values
    if _fails(choice):
        for i in np.flatnonzero(missing.reshape(len(values), -1).any(axis=1)).tolist():
            failed.setdefault(i, _error(name, choice, values))
    elif missing.any():
        values[missing] = np.broadcast_to(_held(name, choice, values.dtype, values.shape[1:]), values.shape)[missing]
    return values


def in_list(name: str, values: list[Any], choice: Any, failed: Failed) -> None:
    """Put into a list what the user chose for None; errors of samples if it is an error, or to leave them out."""
    if choice is KEEP or is_list(choice):
        return
    for i in [i for i, value in enumerate(values) if value is None and i not in failed]:
        if _fails(choice):
            failed[i] = _error(name, choice, None)
        else:
            values[i] = choice


def in_values(name: str, values: list[Any], missing: Missing, failed: Failed) -> bool:
    """The same for values that functions made, whose types say whether they become an array.

    Returns:
        Whether the column is a list in all batches.
    """
    there = [value for value in values if value is not None]
    kinds = {*map(type, there)}
    stacks = bool(kinds) and (all(map(is_number, kinds)) or all(map(is_array, kinds)))
    floats = stacks and all(issubclass(kind, (float, np.floating)) for kind in kinds)
    choice = choice_of(missing, name, holds=floats or not stacks)
    if is_list(choice):
        return stacks
    if len(there) < len(values):
        fills = stacks and choice is not KEEP and not _fails(choice)
        in_list(name, values, _like(name, choice, there[0]) if fills else choice, failed)
    return False


def refuse_wrong_missing(missing: Missing, *, arrays: bool, tables: bool) -> None:
    """Raise UsageError for a choice that is none, or without effect.

    Args:
        missing: what the user chose.
        arrays: whether batches have arrays: lists of samples hold None.
        tables: whether batches are tables, which hold nulls.
    """
    if isinstance(missing, Mapping) and not tables:
        if any(choice is None for choice in missing.values()):
            raise UsageError("None does not stand for a missing value", found=f"missing={missing!r}",
                             expected='error, skip, list or a value, such as {"label": -1}')  # fmt: skip
        return
    if missing is None or (isinstance(missing, str) and missing not in _POLICIES):
        raise UsageError("no such way to treat missing values", found=repr(missing),
                         expected='error, skip, list, a number, or a dict by column such as {"label": -1}')  # fmt: skip
    if not arrays and not (isinstance(missing, str) and missing == "error"):
        raise UsageError(
            "samples and tables hold missing values: missing= needs columns of arrays", found=f"missing={missing!r}",
            expected="collate numpy or torch",
            advice=None if tables else 'Or name columns of the samples: missing={"label": "skip"}.',
        )  # fmt: skip


def _fails(choice: Any) -> bool:
    return isinstance(choice, str) and choice in ("error", "skip")


def _error(name: str, choice: str, values: NDArray[Any] | None) -> LadingError:
    """The error of a sample without a value, with what to type instead."""
    if choice == "skip":
        return MissingValue("the sample has no value", column=name)
    value = "0" if values is not None and (values.ndim > 1 or values.dtype.kind in "ub") else "-1"
    return UsageError(
        "the sample has no value, and a column has one type in all batches", column=name,
        advice=f'Say what is done: missing="skip" leaves such samples out, missing={{{name!r}: {value}}} puts this '
        f'value there, missing={{{name!r}: "list"}} makes the column a list in all batches. Or leave the column out: '
        "columns=[…].",
    )  # fmt: skip


def _held(name: str, value: Any, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """A value as an array of this type and shape. Raises UsageError if that would change it."""
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore", over="ignore"):
            held: NDArray[Any] = np.broadcast_to(given.astype(dtype), shape)
        if np.array_equal(held, np.broadcast_to(given, shape), equal_nan=held.dtype.kind == "f"):
            return held
    except (ValueError, TypeError, OverflowError):
        pass
    wanted = f"a number of {dtype.name}" + (f", or an array of the shape {tuple(shape)}" if shape else "")
    raise UsageError("the column cannot hold the value of missing=", column=name, found=repr(value)[:80],
                     expected=wanted, advice=f"Give this column a value of its own: missing={{{name!r}: 0}}."
                     )  # fmt: skip


def _like(name: str, value: Any, other: Any) -> Any:
    """A value in the type and shape of another one of the column."""
    if is_number(type(other)):
        held = _held(name, value, np.asarray(other).dtype, ())[()]
        return held if isinstance(other, np.generic) else held.item()
    if isinstance(other, np.ndarray):
        return _held(name, value, other.dtype, other.shape).copy()
    return other.new_tensor(value).expand(other.shape).clone()


def _as_list(values: NDArray[Any], missing: NDArray[np.bool_] | None) -> list[Any]:
    """The rows of an array, with None where they are missing; of lists that lack single numbers, lists."""
    rows: list[Any] = values.tolist() if values.ndim == 1 and values.dtype.name in PYTHON_TYPES else [*values]
    if missing is not None:
        for i in np.flatnonzero(missing.reshape(len(rows), -1).any(axis=1)).tolist():
            pairs = zip(rows[i], missing[i], strict=True) if not missing[i].all() else ()
            rows[i] = [None if lacks else value.item() for value, lacks in pairs] or None
    return rows
