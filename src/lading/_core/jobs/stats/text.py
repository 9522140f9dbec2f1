"""Statistics as a table of text, and as HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from lading._core.content.summaries import Histogram
from lading._core.storage.fetch import ERROR_COLUMN
from lading._core.units import count, format_bytes

if TYPE_CHECKING:
    from lading._core.jobs.stats.values import ColumnStats, Stats

__all__ = ["as_html", "as_text"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_HEADINGS = ("column", "kind", "size", "nulls", "distinct", "min", "median", "mean", "max", "distribution")
_LEFT = {"column", "kind", "distribution"}
_SPARE = ("mean", "kind", "size", "distinct", "median")
"""Columns that are left out where there is no room, in this order."""

_NAME_CHARS, _VALUE_CHARS, _LEAST_CHARS = 32, 24, 20
_WHOLE, _LONG, _FEW = 1e6, 1e15, 1e-3
_WIDTH = 120
_BAR, _HEIGHT, _FEW_VALUES = 5, 18, 100


def as_text(stats: Stats, width: int = _WIDTH) -> str:
    """Return counts, and a line for each name: bounds, mean, and a histogram or the most frequent values."""
    rows = [_HEADINGS, *(_cells(column) for column in _listed(stats))]
    wide = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS) - 1)]
    used = [i for i, size in enumerate(wide) if i == 0 or any(row[i] for row in rows[1:])]
    for name in _SPARE:  # a narrow terminal shows fewer columns, not broken lines
        if _room(width, used, wide) < _LEAST_CHARS:
            used = [i for i in used if _HEADINGS[i] != name]
    room = max(_room(width, used, wide), _LEAST_CHARS)
    lines = [_line(row, used, wide, room) for row in rows]
    return "\n".join([_title(stats), "", *lines, *_notes(stats)])


def _room(width: int, used: Sequence[int], wide: Sequence[int]) -> int:
    """Characters that are left for the last column."""
    return width - sum(wide[i] + 2 for i in used)


def _listed(stats: Stats) -> list[ColumnStats]:
    """The columns that are shown: not the lengths of texts of few values, such as languages.

    Errors of documents' payload are shown if there are any.
    """
    few = {name for name, column in stats.columns.items() if _is_few(column)}
    shown = (column for name, column in stats.columns.items() if name[4:-1] not in few or not name.startswith("len("))
    return [column for column in shown if column.values or column.name != ERROR_COLUMN]


def _is_few(column: ColumnStats) -> bool:
    return column.distinct is not None and column.distinct <= min(_FEW_VALUES, column.values // 2)


def _line(row: Sequence[str], used: Sequence[int], wide: Sequence[int], room: int) -> str:
    cells = [row[i].ljust(wide[i]) if _HEADINGS[i] in _LEFT else row[i].rjust(wide[i]) for i in used]
    last = row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…"
    return "  ".join([*cells, last]).rstrip()


def _title(stats: Stats) -> str:
    parts = [count(stats.samples, "sample"), format_bytes(stats.size_bytes)]
    if stats.items:
        parts.append(", ".join(f"{number:,} {_visible(name)}" for name, number in stats.items.items()))
    if stats.duplicate_keys is not None:
        about = "~" if stats.duplicate_keys_approximate else ""
        parts.append(f"{about}{count(stats.duplicate_keys, 'duplicate key')}")
    return ", ".join(parts)


def _notes(stats: Stats) -> list[str]:
    told = [_visible(note) for note in stats.notes]
    shown = _listed(stats)
    if any({"quantiles", "distinct"}.intersection(column.approximate) for column in shown):
        told.append("~ approximate; quantiles and histograms are those of a sample of 16,384 values")
    if any("top" in column.approximate and column.histogram is None and _top(column) for column in shown):
        told.append("≥ at least: there are more than 4,096 distinct values")
    return ["", *told] if told else []


def _cells(column: ColumnStats) -> tuple[str, ...]:
    about = "~" if "quantiles" in column.approximate else ""
    many = "~" if "distinct" in column.approximate else ""
    median = _number(column.median)
    return (
        _short(_visible(column.name), _NAME_CHARS),
        _short(_visible(column.kind), _VALUE_CHARS),
        "" if column.size_bytes is None else format_bytes(column.size_bytes),
        "" if column.nulls is None else f"{column.nulls:,}",
        "" if column.distinct is None else f"{many}{column.distinct:,}",
        _number(column.min),
        f"{about}{median}" if median else "",
        _number(column.mean),
        _number(column.max),
        _distribution(column),
    )


def _number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < _LONG else f"{value:.3g}"
    if not isinstance(value, float):
        return _short(_visible(str(value)), _VALUE_CHARS)
    if not math.isfinite(value) or (value and not _FEW <= abs(value) < _WHOLE):
        return f"{value:,.0f}" if _WHOLE <= abs(value) < _LONG else f"{value:.3g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _distribution(column: ColumnStats) -> str:
    broken = f"{column.unreadable:,} unreadable" if column.unreadable else ""
    shown = _bars(column.histogram) if column.histogram is not None else _top(column)
    return ", ".join(filter(None, (broken, shown)))


def _bars(shown: Histogram) -> str:
    """A histogram as block characters: empty ranges are spaces."""
    most = max(shown.counts)
    if not most or len(shown.counts) == 1:
        return ""
    return "".join(_BLOCKS[(number * (len(_BLOCKS) - 1)) // most] if number else " " for number in shown.counts)


def _top(column: ColumnStats) -> str:
    """The most frequent values with their share; nothing where all values differ."""
    if not column.top or not column.values or column.top[0][1] <= 1 < column.values:
        return ""
    about = "≥" if "top" in column.approximate else ""
    return ", ".join(
        f"{_short(_visible(str(value)), _VALUE_CHARS)} {about}{_share(number / column.values)}"
        for value, number in column.top
    )


def _share(part: float) -> str:
    percent = 100 * part
    return f"{percent:.0f}%" if percent >= 1 else f"{percent:.1g}%" if percent else "0%"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _visible(text: str) -> str:
    """The text on one line; characters that a terminal would obey or hide are spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def as_html(stats: Stats) -> str:
    """Return the same as a table, with small drawings of the histograms."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in _HEADINGS)
    rows = "".join(f"<tr>{_html_cells(column)}</tr>" for column in _listed(stats))
    notes = "".join(f"<div>{escape(note)}</div>" for note in _notes(stats) if note)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div><b>{escape(_title(stats))}</b>{table}{notes}</div>"


def _html_cells(column: ColumnStats) -> str:
    *cells, last = _cells(column)
    drawn = _svg(column.histogram) if column.histogram is not None else escape(last)
    if column.histogram is not None and column.unreadable:
        drawn += escape(f" {column.unreadable:,} unreadable")
    styles = ["left" if name in _LEFT else "right" for name in _HEADINGS]
    told = zip(styles, [*map(escape, cells), drawn], strict=True)
    return "".join(f"<td style='text-align:{style}'>{cell}</td>" for style, cell in told)


def _svg(shown: Histogram) -> str:
    most = max(shown.counts) or 1
    bars = []
    for i, number in enumerate(shown.counts):
        height = max(round(_HEIGHT * number / most), 1) if number else 0
        low, high = shown.edges[i], shown.edges[i + 1]
        title = f"{low:.6g} to {high:.6g}: {number:,}"
        bars.append(f"<rect x='{i * _BAR}' y='{_HEIGHT - height}' width='{_BAR - 1}' height='{height}'>"
                    f"<title>{title}</title></rect>")  # fmt: skip
    width = _BAR * len(shown.counts)
    return f"<svg width='{width}' height='{_HEIGHT}' fill='currentColor'>{''.join(bars)}</svg>"
