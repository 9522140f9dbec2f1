"""The dataset that a verb works on: its sources, how they are read, and the rows and columns that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lading._core.cli.functions import named_function
from lading._core.cli.options import one_or_many
from lading.errors import LadingError, UsageError
from lading.options import RowOptions

if TYPE_CHECKING:
    from lading._core.api.dataset import Dataset

__all__ = ["are_mixed", "names_fields", "open_chosen", "open_sources"]


def open_chosen(
    sources: Sequence[str],
    reading: Mapping[str, Any],
    choosing: Mapping[str, Any],
    *,
    on_error: str = "error",
    splits: bool = False,
) -> Dataset:
    """Open sources with the steps that the options ask for: rows and their order, then columns, then a limit.

    Args:
        sources: as the command line names them.
        reading: arguments of `lading.open`.
        choosing: fields of `RowOptions`.
        on_error: the policy of the job; `drop_sample` is that of functions too.
        splits: whether the caller splits the dataset by `seed`.

    Raises:
        UsageError: an option does not fit the dataset, or has no effect without another option.
    """
    from lading._core.dataset.steps.functions import OnFunctionError

    of_functions: OnFunctionError = "drop_sample" if on_error == "drop_sample" else "error"

    rows = RowOptions(**choosing)
    if rows.seed and not rows.shuffle and rows.sample is None and not splits:
        raise UsageError("no option uses the seed", found=f"--seed {rows.seed}",
                         advice="Add --shuffle, --sample or --split-into, or leave --seed out.")  # fmt: skip
    dataset = open_sources(sources, reading)
    if rows.take is not None:
        dataset = dataset.take_keys(rows.take)
    dataset = _joined(dataset, rows)
    if rows.where is not None:
        dataset = dataset.where(rows.where, drop=rows.drop)
    dataset = _within_bounds(dataset, rows)
    if rows.filter is not None:
        dataset = dataset.filter(named_function("--filter", rows.filter), on_error=of_functions)
    dataset = _ordered(dataset, rows)
    if rows.map is not None:
        dataset = dataset.map(named_function("--map", rows.map), on_error=of_functions)
    dataset = _with_columns(dataset, rows)
    return dataset if rows.limit is None else dataset.limit(rows.limit)


def _within_bounds(dataset: Dataset, rows: RowOptions) -> Dataset:
    names = ("min_side", "max_side", "min_aspect_ratio", "max_aspect_ratio")
    bounds = {name: getattr(rows, name) for name in names if getattr(rows, name) is not None}
    return dataset.image_bounds(**bounds, drop=rows.drop) if bounds else dataset


def _with_columns(dataset: Dataset, rows: RowOptions) -> Dataset:
    if rows.flatten is not None:
        dataset = dataset.flatten(*rows.flatten)
    if rows.cast is not None:
        dataset = dataset.cast(rows.cast)
    if rows.columns is not None:
        dataset = dataset.select(*rows.columns)
    if rows.drop_columns is not None:
        dataset = dataset.drop(*rows.drop_columns)
    return dataset if rows.rename is None else dataset.rename(rows.rename)


def open_sources(sources: Sequence[str], reading: Mapping[str, Any]) -> Dataset:
    """Open sources as one dataset; those of several formats one after another."""
    from lading._core.api.opening import concat, open_dataset

    if are_mixed(sources, reading):
        each = {**reading, "schema_overrides": None}
        types = reading.get("schema_overrides")
        return concat([open_dataset(source, **each) for source in sources], types=types)
    return open_dataset(one_or_many(sources), **reading)


def are_mixed(sources: Sequence[str], reading: Mapping[str, Any]) -> bool:
    """Return whether sources have several formats; False where a source cannot be opened by itself."""
    from lading._core.api.opening import open_dataset

    if len(sources) == 1 or reading.get("format") is not None:
        return False
    try:
        each = {**reading, "schema_overrides": None}
        return len({open_dataset(source, **each).format for source in sources}) > 1
    except LadingError:
        return False


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
        return dataset.join(
            rows.join, "key" if rows.on is None else rows.on, rows.join_how or "left", rows.join_columns
        )
    if rows.on is not None or rows.join_how is not None or rows.join_columns is not None:
        raise UsageError("no table is given to join", advice="Add --join FILE.")
    return dataset
