"""Statistics of a column as the page draws them: bars and frequent values, each with the condition that chooses it."""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.types import arrow_type
from lading._core.content.field_paths import Part, parse_field
from lading._core.content.summaries import Histogram
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.jobs.stats.values import ColumnStats

__all__ = ["literal", "shown_column", "spelled"]

_CUT_CHARACTERS = 100
"""Statistics hold so much of a text."""
_EXACT = float(1 << 53)
"""Whole numbers from here on are rounded in histograms."""
_EXACT_DIGITS = 15
"""Statistics of decimals are those of floats, which hold so many digits."""
_NUMBERS = ("int", "uint", "halffloat", "float", "double")
_WORDS = ("true", "false", "null", "none", "col")


def shown_column(column: ColumnStats, name: str | None) -> dict[str, Any]:
    """Return what the page draws of the statistics of a column.

    Whole numbers that a browser would round are texts.

    Args:
        column: the statistics.
        name: as conditions spell it; None where no condition is possible.
    """
    found = column.to_dict()
    shown, approximate = column.histogram, {*column.approximate}
    if shown is not None and max(map(abs, shown.edges)) >= _EXACT:
        approximate.add("histogram")
    return {
        **found,
        "min": _exact(found["min"]),
        "max": _exact(found["max"]),
        "histogram": None,
        "approximate": sorted(approximate),
        "bars": [] if shown is None else _bars(name, column, shown),
        "not_finite": _not_finite(column),
        "top": [{**each, "value": _exact(each["value"]), "where": _is_value(name, value)}
                for each, (value, _) in zip(found["top"], column.top, strict=True)],
        "where_null": f"{name} is null" if name and column.nulls else None,
    }  # fmt: skip


def _not_finite(column: ColumnStats) -> int:
    """How many numbers are NaN or infinite: no bar has them."""
    is_number = all(kind.startswith(_NUMBERS) for kind in column.kind.split(", "))
    return column.values - sum(column.histogram.counts) if is_number and column.histogram is not None else 0


def _exact(value: Any) -> Any:
    return str(value) if isinstance(value, int) and abs(value) >= _EXACT else value


def spelled(name: str, columns: Collection[str]) -> str | None:
    """Return the name of a column, a field or a length as conditions spell it; None if they cannot name it.

    Example: `spelled("len(json.a b)", ["json"])`    # len(json['a b'])

    Args:
        name: as statistics spell it.
        columns: names of the dataset's columns.
    """
    if name not in columns and name.startswith("len(") and name.endswith(")"):
        inner = spelled(name[4:-1], columns)
        return inner and f"len({inner})"
    if name not in columns and name.endswith("[]"):
        inner = spelled(name[:-2], columns)
        return inner and f"{inner}[]"
    try:
        path = parse_field(name, columns)
    except UsageError:
        return None
    column = path.column if _is_plain(path.column) and path.column.lower() not in _WORDS else f"col[{path.column!r}]"
    return column + "".join(map(_part, path.path))


def _part(part: Part) -> str:
    return f".{part}" if isinstance(part, str) and _is_plain(part) else f"[{part!r}]"


def _is_plain(name: str) -> bool:
    """Whether Python's grammar, which conditions have, takes a name as it is."""
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name


def literal(value: Any) -> str | None:
    """Return a value as conditions write it; None for values that they cannot write."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    return repr(value) if isinstance(value, (int, str)) else None


def _is_value(name: str | None, value: Any) -> str | None:
    """The condition that a value is this one."""
    written = literal(value)
    if name is None or written is None:
        return None
    if isinstance(value, str) and len(value) >= _CUT_CHARACTERS:
        return None if name.endswith("[]") else f"startswith({name}, {written})"
    return f"{name} == {written}"


def _bars(name: str | None, column: ColumnStats, shown: Histogram) -> list[dict[str, Any]]:
    bounds = _Bounds.of(column, shown)
    return [
        {"count": count, "label": bounds.label(place), "where": None if name is None else bounds.where(name, place)}
        for place, count in enumerate(shown.counts)
    ]


class _Bounds:
    """The bounds of the bars of numbers.

    Args:
        column: the statistics.
        edges: the bounds.
    """

    def __init__(self, column: ColumnStats, edges: list[Any]) -> None:
        self._column, self.edges, self.last = column, edges, len(edges) - 2

    @staticmethod
    def of(column: ColumnStats, shown: Histogram) -> _Bounds:
        """Return the bounds of a histogram, by the kind of its values."""
        kinds = column.kind.split(", ")
        if all(kind.startswith(("int", "uint")) for kind in kinds):
            return _WholeBounds(column, [math.ceil(edge) for edge in shown.edges])
        try:
            kind = arrow_type(column.kind)
        except UsageError:
            return _Bounds(column, [*shown.edges])
        if pa.types.is_temporal(kind):
            return _TimeBounds(column, [*shown.edges], kind)
        is_rounded = pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS
        return (_RoundedBounds if is_rounded else _Bounds)(column, [*shown.edges])

    def label(self, place: int) -> str:
        """Return the range of a bar for people."""
        low, high = self.edges[place], self.edges[place + 1]
        return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"

    def where(self, name: str, place: int) -> str | None:
        """Return the condition that a value is in the range of a bar."""
        low, high = self.edges[place], self.edges[place + 1]
        if low == high:
            return f"{name} == {low!r}"
        return f"{name} >= {low!r} and {name} {'<=' if place == self.last else '<'} {high!r}"


class _RoundedBounds(_Bounds):
    """The bounds of the bars of decimals that floats do not hold: the outermost ones are open."""

    def where(self, name: str, place: int) -> str | None:
        bounds = [f"{name} >= {self.edges[place]!r}"] if place else []
        bounds += [f"{name} < {self.edges[place + 1]!r}"] if place < self.last else []
        return " and ".join(bounds) or f"{name} is not null"


class _WholeBounds(_Bounds):
    """The bounds of the bars of whole numbers: the first one in a bar, and the one behind it."""

    def _range(self, place: int) -> tuple[int, int]:
        """The first and the last number in a bar."""
        low = int(self._column.min) if place == 0 else self.edges[place]
        return low, int(self._column.max) if place == self.last else max(self.edges[place + 1] - 1, low)

    def label(self, place: int) -> str:
        low, high = self._range(place)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    def where(self, name: str, place: int) -> str | None:
        low, high = self._range(place)
        return f"{name} == {low}" if low == high else f"{name} >= {low} and {name} <= {high}"


class _TimeBounds(_Bounds):
    """The bounds of the bars of dates and times: counts of a unit.

    Args:
        column: the statistics.
        edges: the bounds.
        kind: the type of the values.
    """

    def __init__(self, column: ColumnStats, edges: list[float], kind: pa.DataType) -> None:
        super().__init__(column, [math.ceil(edge) for edge in edges])
        self._kind = kind

    def _text(self, place: int) -> str:
        """A bound as text; the outermost ones are the least and the greatest value, exactly."""
        if place == 0:
            return str(self._column.min)
        if place > self.last:
            return str(self._column.max)
        if pa.types.is_duration(self._kind):
            return f"{self.edges[place]} {self._kind.unit}"
        narrow = self._kind.bit_width == pa.int32().bit_width
        count = pa.scalar(self.edges[place], pa.int32() if narrow else pa.int64())
        return str(pc.cast(pc.cast(count, self._kind), pa.string()).as_py())

    def label(self, place: int) -> str:
        return f"{self._text(place)} to {self._text(place + 1)}"

    def where(self, name: str, place: int) -> str | None:
        if not (pa.types.is_timestamp(self._kind) or pa.types.is_date(self._kind)):
            return None
        sign = "<=" if place == self.last else "<"
        return f"{name} >= {self._text(place)!r} and {name} {sign} {self._text(place + 1)!r}"
