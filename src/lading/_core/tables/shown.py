"""Rows of a table for people, and as JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.units import count, format_bytes
from lading._core.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_json", "rows_table", "rows_text"]

_MOST_CHARACTERS = 200
_LEAST_WIDTH, _GAP = 8, 2


def rows_table(rows: pa.Table, width: int) -> Table:
    """Return rows as a table of rich: a row a line, long values and wide columns shortened, numbers on the right.

    Args:
        rows: the rows.
        width: of the screen. Columns that do not fit are named below the others as one: `+ 3 columns`.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[_text(value) for value in column.to_pylist()] for column in rows.columns]
    heads = [visible(name) for name in rows.schema.names]
    widths = _widths([max(map(len, (head, *column))) for head, column in zip(heads, cells, strict=True)], width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for field, head, wide in zip(rows.schema, heads, widths, strict=False):
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(head, justify="right" if is_number else "left", width=wide, no_wrap=True)
    left_out = len(heads) - len(widths)
    if left_out:
        table.add_column(f"+ {count(left_out, 'column')}", no_wrap=True)
    for row in zip(*cells[: len(widths)], strict=True):
        table.add_row(*(Text(value, "dim" if value == _NULL else "") for value in row))
    return table


def rows_text(rows: pa.Table, width: int) -> str:
    """Return rows as text, as `rows_table` shows them."""
    from rich.console import Console

    screen = Console(file=StringIO(), width=width, color_system=None, highlight=False, emoji=False)
    with screen.capture() as shown:
        screen.print(rows_table(rows, width))
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def _widths(wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths of the first columns, as many as fit; wide columns share what narrow ones leave."""
    fitting = len(wanted)
    while fitting > 1 and sum(min(each, _LEAST_WIDTH) + _GAP for each in wanted[:fitting]) > width:
        fitting -= 1
    found, left = [0] * fitting, width - (fitting - 1) * _GAP - (0 if fitting == len(wanted) else _LEAST_WIDTH * 2)
    for done, place in enumerate(sorted(range(fitting), key=lambda place: wanted[place])):
        found[place] = max(min(wanted[place], left // (fitting - done)), 1)
        left -= found[place]
    return found


_NULL = "null"


def _text(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        return format_bytes(len(value))
    text = json_text.dumps(as_json(value, full=False)) if isinstance(value, (dict, list, bool)) else str(value)
    return visible(" ".join(text[:_MOST_CHARACTERS].split()))


def as_json(value: Any, *, full: bool = True) -> Any:
    """Return a value of a row as JSON has it: dates and the like as text, NaN and infinities as their names.

    Bytes are a text in base64; without `full` their number.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if full else f"{len(value)} bytes"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): as_json(each, full=full) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each, full=full) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
