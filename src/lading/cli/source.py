"""The dataset that a verb works on: its sources, how they are read, and the rows and columns that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lading.cli.options import one_or_many
from lading.errors import UsageError
from lading.options import RowOptions

if TYPE_CHECKING:
    from lading.dataset.dataset import Dataset

__all__ = ["names_fields", "open_chosen"]


def open_chosen(sources: Sequence[str], reading: Mapping[str, Any], choosing: Mapping[str, Any]) -> Dataset:
    """Open sources with the steps that the options ask for: rows and their order, then columns, then a limit.

    Args:
        sources: as the command line names them.
        reading: arguments of `lading.open`.
        choosing: fields of `RowOptions`.
    """
    from lading.dataset.open import open_dataset

    rows, dataset = RowOptions(**choosing), open_dataset(one_or_many(sources), **reading)
    if rows.take is not None:
        dataset = dataset.take_keys(rows.take)
    dataset = _joined(dataset, rows)
    if rows.where is not None:
        dataset = dataset.where(rows.where, drop=rows.drop)
    names = ("min_side", "max_side", "min_aspect_ratio", "max_aspect_ratio")
    bounds = {name: getattr(rows, name) for name in names if getattr(rows, name) is not None}
    if bounds:
        dataset = dataset.image_bounds(**bounds, drop=rows.drop)
    dataset = _ordered(dataset, rows)
    if rows.columns is not None:
        dataset = dataset.select(*rows.columns)
    if rows.drop_columns is not None:
        dataset = dataset.drop(*rows.drop_columns)
    if rows.rename is not None:
        dataset = dataset.rename(rows.rename)
    return dataset if rows.limit is None else dataset.limit(rows.limit)


def names_fields(columns: Sequence[str] | None) -> bool:
    """Return whether some names may be fields inside columns, such as `json.lang`: `select` makes columns of them."""
    return any("." in name or "[" in name for name in columns or ())


def _ordered(dataset: Dataset, rows: RowOptions) -> Dataset:
    """The dataset with the steps that need all samples."""
    if rows.dedup is not None:
        dataset = dataset.dedup(rows.dedup[0] if len(rows.dedup) == 1 else rows.dedup)
    if rows.sample is not None:
        dataset = dataset.sample(rows.sample, rows.seed)
    if rows.shuffle:
        dataset = dataset.shuffle(rows.seed)
    return dataset if rows.sort is None else _sorted(dataset, rows.sort)


def _sorted(dataset: Dataset, fields: Sequence[str]) -> Dataset:
    """The dataset in the order of fields such as `score`, `score:desc`."""
    parts = [field.rpartition(":") for field in fields]
    named = [(name, way == "desc") if name and way in ("asc", "desc") else (f, False)
             for f, (name, _, way) in zip(fields, parts, strict=True)]  # fmt: skip
    return dataset.sort([name for name, _ in named], descending=[way for _, way in named])


def _joined(dataset: Dataset, rows: RowOptions) -> Dataset:
    if rows.join is not None:
        return dataset.join(rows.join, rows.on or "key", rows.join_how or "left", rows.join_columns)
    if rows.on is not None or rows.join_how is not None or rows.join_columns is not None:
        raise UsageError("no table is given to join", advice="Add --join FILE.")
    return dataset
