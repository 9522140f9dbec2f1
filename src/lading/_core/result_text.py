"""Results of jobs as text: `print(result)`, and what a notebook shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, Protocol

from lading._core.units import format_bytes
from lading._core.visible import visible

__all__ = ["ResultText", "shown_fact"]

_LINES: Final = 10
"""Of a list, so many entries are shown."""
_WIDTH: Final = 120
_SHORT: Final = 40
"""Entries with fewer characters share a line."""


class _Printer(Protocol):
    def text(self, text: str) -> None:
        """Print a text."""


class ResultText:
    """A dataclass whose `str` is short text: a line for each fact that is there, and the first entries of lists.

    `repr` has everything on one line.
    """

    __slots__ = ()

    def __str__(self) -> str:
        ok = getattr(self, "ok", None)
        lines = [type(self).__name__ if ok is None else f"{type(self).__name__}: {'ok' if ok else 'not ok'}"]
        for each in fields(self):  # type: ignore[arg-type] # subclasses are dataclasses
            value = getattr(self, each.name)
            is_fact = each.default is MISSING and each.default_factory is MISSING
            if value is not None and (value or is_fact):
                name = each.name.removesuffix("_bytes").replace("_", " ")
                lines += [shown_fact("" if i else name, line) for i, line in enumerate(_lines(each.name, value))]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:  # noqa: ARG002 - as IPython calls it
        printer.text(str(self))


def shown_fact(name: str, text: str) -> str:
    """Return a fact as a line."""
    return f"  {name:<23} {text}"


def _lines(name: str, value: Any) -> list[str]:
    """Return a value as lines."""
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, (int, float)):
        shown = format_bytes(int(value)) if name.endswith("_bytes") else f"{value:,}"
        return [f"{value:.2f} s" if name == "seconds" else shown]
    if isinstance(value, Mapping):
        value = [(f"{key}:", _one(each)) for key, each in value.items()]
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [_one(value)]
    if all(isinstance(each, (str, int)) and len(str(each)) < _SHORT for each in value):
        return [", ".join(map(_one, value)) or "none"]
    more = len(value) - _LINES
    return [*map(_one, value[:_LINES]), *([f"… and {more:,} more"] if more > 0 else [])]


def _one(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):  # such as an error
        places = (f"{key} {each}" for key, each in value.items() if key not in ("file", "message", "error", "advice"))
        said = [*([value["message"]] if "message" in value else []), *places]
        text = ": ".join([*([str(value["file"])] if "file" in value else []), ", ".join(said)])
    elif isinstance(value, tuple):
        text = "  ".join(str(each) for each in value if each != "")
    else:
        text = f"{value:,}" if type(value) is int else str(value)
    shown = visible(text)
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 1]}…"
