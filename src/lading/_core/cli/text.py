"""Text that is safe and short: data never control the terminal."""

from __future__ import annotations

import io
import re
from itertools import islice
from typing import TYPE_CHECKING

from lading._core.units import count
from lading._core.visible import ESCAPED, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

__all__ = ["ESCAPED", "Excerpt", "by_outcome", "columns", "count", "facts", "plain", "visible", "whole_lines"]

_LINES_AT_ONCE = 4096
_SPACES = re.compile(r"\s+")
_ASCII = {"…": "...", "·": "-", "×": "x", "¶": "P", "─": "-", "–": "-", "—": "-", "→": "->", "’": "'", "✓": "ok"}


def _spelled(character: str) -> str:
    return ascii(character)[1:-1]


def plain(text: str) -> str:
    """Return the text in ASCII: lading's own signs as similar characters, others spelled out."""
    return "".join(_ASCII.get(c) or (c if c.isascii() else _spelled(c)) for c in text)


class Excerpt:
    """The beginning of a text, on a bounded number of lines.

    Args:
        text: any text; runs of white space become one space.
        style: a rich style.
        max_lines: most lines; 0 for the whole text with its own line breaks.
    """

    def __init__(self, text: str, style: str = "", *, max_lines: int = 2) -> None:
        self._text, self._style, self._max_lines = text, style, max_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width = max(options.max_width, 1)
        if not self._max_lines:
            for line in self._text.splitlines():
                yield Text(visible(line), self._style)
            return
        room = width * (self._max_lines + 1)
        lines = Text(visible(_SPACES.sub(" ", self._text[: 4 * room]).strip()[:room]), self._style).wrap(console, width)
        shown = list(lines)[: self._max_lines]
        if len(lines) > len(shown) or len(self._text) > 4 * room:
            shown[-1].truncate(width - 1)
            shown[-1].append("…")
        yield Text("\n").join(shown)


class _Whole:
    """Lines as they are, without wrapping."""

    no_wrap = True

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        yield Segment(self._text)


def whole_lines(text: str, indent: str) -> Iterator[RenderableType]:
    """Yield a text of any length with its own line breaks, safe to print, some thousand lines at a time."""
    lines = (indent + visible(line.rstrip("\n")) for line in io.StringIO(text, newline=None))
    while some := list(islice(lines, _LINES_AT_ONCE)):
        yield _Whole("\n".join(some) + "\n")


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Return names and their values in two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


_FILTERED = ("filtered", "filtered with their samples")
_LOST = ("dropped", "dropped with their samples", "kept without payload")
"""Outcomes of rows, as the counts of a job name them behind the reason."""


def by_outcome(counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the counts of a job as lines: of rows that are `filtered`, of rows that are `lost`, and others."""
    lines: dict[str, list[str]] = {"filtered": [], "lost": [], "warning": []}
    for what, number in counts.items():
        reason, _, outcome = what.rpartition(", ")
        if outcome in _FILTERED:
            lines["filtered"].append(f"{count(number, 'row')}: {reason}{outcome.removeprefix('filtered')}")
        elif outcome in _LOST:
            lines["lost"].append(f"{count(number, 'row')}: {reason}, {outcome}")
        else:
            lines["warning"].append(f"{number:,} {what}")
    return lines


def columns(heads: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """Return a table without rules: column heads, and rows below them."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
