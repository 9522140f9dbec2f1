"""Statistics of a dataset as values: what `Dataset.stats` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.content.summaries import Histogram
from lading._core.jobs.stats.summaries import ITEMS, Summaries, Summary
from lading._core.jobs.stats.text import as_html, as_text
from lading._core.json_forms import TopValues

__all__ = ["QUANTILES", "ColumnStats", "Stats", "stats_of"]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Parts of the values, whose bounds are given as quantiles."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a column, of a field inside it, or of a fact of its values. None where there is nothing to say.

    Times are texts, as Arrow writes them; their `std` is None.

    Attributes:
        name: as a condition has it: `score`, `json.lang`, `len(txt)`, `jpg.width`. `tags[]` are the texts in lists.
        kind: what the values are: `image`, `text`, `int64` …; several, if they differ.
        values: how many values there are.
        nulls: samples without one (items of its modality, for columns of documents' items). None for lengths and facts
            of media.
        size_bytes: stored bytes of the column. None for everything inside it.
        unreadable: values that are broken: images without a header, invalid JSON or UTF-8.
        min: the least value.
        max: the greatest value.
        mean: the mean.
        std: the standard deviation (n − 1).
        quantiles: the value below which this part of the values is, by part: `quantiles[0.5]` is the median.
        histogram: how many values are in each of some ranges.
        distinct: how many distinct values there are.
        top: the most frequent values and their counts.
        approximate: which of `quantiles`, `histogram`, `distinct` and `top` are approximate.
    """

    name: str
    kind: str
    values: int
    nulls: int | None = None
    size_bytes: int | None = None
    unreadable: int = 0
    min: Any = None
    max: Any = None
    mean: Any = None
    std: float | None = None
    quantiles: Mapping[float, Any] = field(default_factory=dict)
    histogram: Histogram | None = None
    distinct: int | None = None
    top: TopValues = ()
    approximate: tuple[str, ...] = ()

    @property
    def median(self) -> Any:
        """The value in the middle."""
        return self.quantiles.get(0.5)

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON can hold them; infinite numbers are texts."""
        shown = self.histogram
        return {
            "name": self.name,
            "kind": self.kind,
            "values": self.values,
            "nulls": self.nulls,
            "size_bytes": self.size_bytes,
            "unreadable": self.unreadable,
            **{name: _jsonable(getattr(self, name)) for name in ("min", "max", "mean", "std")},
            "quantiles": {str(part): _jsonable(value) for part, value in self.quantiles.items()},
            "histogram": None if shown is None else {"edges": list(shown.edges), "counts": list(shown.counts)},
            "distinct": self.distinct,
            "top": [{"value": _jsonable(value), "count": count} for value, count in self.top],
            "approximate": list(self.approximate),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Stats:
    """Statistics of a dataset.

    Attributes:
        samples: how many samples there are.
        size_bytes: bytes of all values.
        columns: statistics by name, those of a column before those of what is inside it.
        duplicate_keys: samples whose key came before; None where samples have no keys.
        items: items by modality, for documents.
        notes: what is left out, a sentence each.
        duplicate_keys_approximate: whether `duplicate_keys` is an estimate.

    Example:
        stats = lading.open("photos").stats()
        stats.columns["jpg.width"].median
    """

    samples: int
    size_bytes: int
    columns: Mapping[str, ColumnStats]
    duplicate_keys: int | None = None
    items: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    duplicate_keys_approximate: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON can hold them.

        Example: `json.dumps(ds.stats().to_dict())`
        """
        return {
            "samples": self.samples,
            "size_bytes": self.size_bytes,
            "duplicate_keys": self.duplicate_keys,
            "duplicate_keys_approximate": self.duplicate_keys_approximate,
            "items": dict(self.items),
            "notes": list(self.notes),
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
        }

    def to_table(self) -> pa.Table:
        """Return a row for each column: texts where a column of the table has values of several types.

        Example: `ds.stats().to_table().to_pandas()`
        """
        rows = [column.to_dict() for column in self.columns.values()]
        for row in rows:
            numeric = all(isinstance(row[name], (int, float, type(None))) for name in ("min", "max", "mean"))
            row |= {name: row[name] if numeric else None for name in ("min", "max", "mean")}
            row |= {f"q{int(float(part) * 100):02}": value if numeric else None
                    for part, value in row.pop("quantiles").items()}  # fmt: skip
            row["top"] = [{"value": str(each["value"]), "count": each["count"]} for each in row["top"]]
        return pa.Table.from_pylist(rows, _TABLE)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


_TABLE = pa.schema(
    [
        ("name", pa.string()),
        ("kind", pa.string()),
        ("values", pa.int64()),
        ("nulls", pa.int64()),
        ("size_bytes", pa.int64()),
        ("unreadable", pa.int64()),
        *((name, pa.float64()) for name in ("min", "max", "mean", "std")),
        *((f"q{int(part * 100):02}", pa.float64()) for part in QUANTILES),
        ("distinct", pa.int64()),
        ("top", pa.list_(pa.struct([("value", pa.string()), ("count", pa.int64())]))),
        ("histogram", pa.struct([("edges", pa.list_(pa.float64())), ("counts", pa.list_(pa.int64()))])),
        ("approximate", pa.list_(pa.string())),
    ]
)


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def stats_of(found: Summaries, top: int) -> Stats:
    """Return the statistics that summaries of a whole dataset hold.

    Args:
        found: the summaries.
        top: the number of most frequent values.
    """
    names = _in_order(found.columns)
    columns = {name: _column_stats(found, name, top) for name in names}
    notes = [f"{name}: only the first 64 fields are listed" for name in found.unlisted]
    has_keys = found.keys.seen > 0
    return Stats(
        found.samples, found.size_bytes, columns, found.keys.repeated if has_keys else None, dict(found.items),
        tuple(notes), duplicate_keys_approximate=not found.keys.is_exact,
    )  # fmt: skip


def _in_order(columns: Mapping[str, Summary]) -> list[str]:
    """Names, each followed by its lengths and by what is inside it."""

    def column_of(name: str) -> str:
        inner = name.removeprefix("len(").removesuffix(")") if name.startswith("len(") else name
        while inner not in owners and "." in inner:
            inner = inner.rpartition(".")[0]
        return inner.removesuffix("[]")

    owners = [name for name, summary in columns.items() if summary.size_bytes is not None]
    first = {name: number for number, name in enumerate([ITEMS, *owners])}
    places = {name: place for place, name in enumerate(columns)}
    return sorted(columns, key=lambda name: (first.get(column_of(name), len(first)), name != column_of(name),
                                             places[name]))  # fmt: skip


def _nulls(found: Summaries, name: str) -> int | None:
    summary = found.columns[name]
    inside = name.startswith(("len(", f"{ITEMS}.")) or name.endswith("[]") or name == ITEMS
    if inside or summary.is_fact:
        return None
    if not found.row_layout.has_items:
        return found.rows - summary.values
    slots = {"text_content": "text", "binary_content": "image"}
    if name in slots:
        return max(found.items[slots[name]] - summary.values, 0)
    if name in found.row_layout.words:
        return found.rows - summary.values
    return found.samples - (summary.filled or summary.values)


def _kind(found: Summaries, name: str) -> str:
    """What the values of a column are; bytes that are media are called so."""
    summary = found.columns[name]
    if not _is_media(summary):
        return ", ".join(summary.kinds) or "null"
    seen, heard = (f"{name}.{fact}" in found.columns for fact in ("width", "duration_s"))
    media = "video" if seen and heard else "image" if seen else "audio" if heard else "bytes"
    return ", ".join(dict.fromkeys(media if kind == "bytes" else kind for kind in summary.kinds))


def _is_media(summary: Summary) -> bool:
    """Whether most values of a column of bytes are media: then the others are unreadable, else they are bytes."""
    return "bytes" in summary.kinds and 2 * summary.unreadable < summary.values


def _column_stats(found: Summaries, name: str, top: int) -> ColumnStats:
    summary, nulls = found.columns[name], _nulls(found, name)
    told: dict[str, Any] = {}
    approximate = []
    numbers, counts = summary.numbers, summary.counts
    if numbers is not None and numbers.count:
        quantiles = numbers.quantiles(QUANTILES)
        told = {
            "min": numbers.low, "max": numbers.high, "mean": numbers.mean, "std": numbers.std,
            "quantiles": dict(zip(QUANTILES, quantiles, strict=True)), "histogram": numbers.histogram(),
        }  # fmt: skip
        if not numbers.is_exact:
            approximate += ["quantiles", "histogram"]
        if summary.stored is not None:
            shown = _times(summary.stored)
            told |= {name: shown(told[name]) for name in ("min", "max", "mean")}
            told |= {"std": None, "quantiles": {part: shown(value) for part, value in told["quantiles"].items()}}
    if counts is not None:
        told |= {"distinct": counts.distinct, "top": tuple(_labelled(counts.top(top), summary.labels))}
        approximate += [] if counts.is_exact else ["distinct"]
        approximate += [] if counts.top_is_exact else ["top"]
    unreadable = 0 if "bytes" in summary.kinds and not _is_media(summary) else summary.unreadable
    values = summary.values or (numbers.count if numbers is not None else 0)
    return ColumnStats(
        name, _kind(found, name), values, nulls, summary.size_bytes, unreadable,
        approximate=tuple(approximate), **told,
    )  # fmt: skip


def _labelled(top: list[tuple[Any, int]], labels: tuple[str, ...]) -> list[tuple[Any, int]]:
    return [(labels[value] if isinstance(value, int) and 0 <= value < len(labels) else value, n) for value, n in top]


def _times(kind: pa.DataType) -> Any:
    """A function that gives a count of a type's units as text."""
    narrow = kind.bit_width == pa.int32().bit_width

    def shown(count: float) -> str:
        number = pa.scalar(round(count), pa.int32() if narrow else pa.int64())
        if pa.types.is_duration(kind):
            return f"{number.as_py()} {kind.unit}"
        return str(pc.cast(pc.cast(number, kind), pa.string()).as_py())

    return shown
