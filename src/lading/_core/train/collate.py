"""Collate values of samples into the column of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lading._core.train.tensors import torch_here

__all__ = [
    "PYTHON_TYPES",
    "Columns",
    "collated",
    "columns_of",
    "is_array",
    "is_number",
    "put_sample",
    "samples_of",
    "uncollated",
]

Columns = dict[str, Any]
"""Values of samples by column: a list with an entry a sample, or an array with a row a sample."""

_TORCH_KINDS = "biufc"
PYTHON_TYPES = ("int64", "float64", "bool")
"""Types whose values, as Python's, become the same type again."""


def collated(values: Any, *, torch: bool) -> Any:
    """Return the column of a batch: an array or tensor of numbers, or of values of one shape; else the list.

    A None among floats is NaN. Among other values a None leaves the list as it is: no whole number stands for it.

    Args:
        values: an entry a sample.
        torch: make tensors of numbers, also inside the list.
    """
    if isinstance(values, list):
        kinds = {*map(type, values)}
        if (
            all(issubclass(kind, np.ndarray) for kind in kinds)
            and len({(value.shape, value.dtype) for value in values}) == 1
        ):
            values = np.stack(values)
        elif all(map(_is_tensor_type, kinds)) and kinds and len({(value.shape, value.dtype) for value in values}) == 1:
            return torch_here().stack(values)
        elif (numbers := kinds - {type(None)}) and all(map(is_number, numbers)):
            values = _numbers(values, kinds)
    if not torch:
        return values
    return uncollated(values, torch=True) if isinstance(values, list) else _as_tensor(values)


def uncollated(values: list[Any], *, torch: bool) -> list[Any]:
    """Return the column of a batch that is a list in all batches: of arrays, or of tensors."""
    return [_as_tensor(value) for value in values] if torch else values


def _numbers(values: list[Any], kinds: set[type]) -> Any:
    if type(None) in kinds:
        if any(not issubclass(kind, (float, np.floating, type(None))) for kind in kinds):
            return values
        first = next(value for value in values if value is not None)
        values = [np.nan if value is None else value for value in values]
        return np.array(values, getattr(first, "dtype", np.float64))
    if len(kinds) > 1 and kinds & {bool, np.bool_}:
        return values
    try:
        made = np.array(values)
    except OverflowError:
        return values
    floats = any(issubclass(kind, (float, np.floating)) for kind in kinds)
    if made.dtype.kind == "f" and any(type(value) is int and (not floats or float(value) != value) for value in values):
        return values  # floats would cut whole numbers
    return values if made.dtype == object else made


def is_array(kind: type) -> bool:
    """Return whether values of a type are arrays or tensors."""
    return issubclass(kind, np.ndarray) or _is_tensor_type(kind)


def _is_tensor_type(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch" and hasattr(kind, "untyped_storage")


def is_number(kind: type) -> bool:
    """Return whether values of a type are numbers or bools."""
    return issubclass(kind, (bool, int, float, np.number, np.bool_)) and not issubclass(kind, np.timedelta64)


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _TORCH_KINDS:
        return value
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return torch_here().from_numpy(value if value.flags.writeable else value.copy())


def samples_of(columns: Columns) -> list[dict[str, Any]]:
    """Return the samples of a batch, a dict each. Numbers of 64 bits and bools are Python's, other numbers numpy's."""
    lists = [
        values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.name in PYTHON_TYPES
        else list(values)
        for values in columns.values()
    ]  # fmt: skip
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def columns_of(samples: Sequence[Mapping[str, Any]]) -> Columns:
    """Return the columns of samples: lists, with None where a sample lacks a column."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: [sample.get(name) for sample in samples] for name in names}


def put_sample(columns: Columns, count: int, place: int, sample: Columns) -> None:
    """Put a sample in a place of columns, which need not have the same names, nor values of the same shape.

    Args:
        columns: of `count` samples; changed.
        count: number of samples.
        place: the place.
        sample: columns of one sample.
    """
    for name in dict.fromkeys([*columns, *sample]):
        values: Any = columns.setdefault(name, [None] * count)
        value = sample[name][0] if name in sample else None
        if isinstance(values, np.ndarray) and (value is None or np.shape(value) != values.shape[1:]):
            values = columns[name] = list(values)
        values[place] = value
