"""Names of fields inside columns: `json.lang`, `meta.tags[0]`, `meta['odd key']`, `jpg.width`.

A name is a column, then parts: `.name`, `['any name']` or `[number]`. A number counts from 0, and from the end if it is
negative. A column whose own name holds dots, such as `seg.png`, is found where the columns are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lading.errors import UsageError

__all__ = ["FieldPath", "Part", "Use", "Wanted", "parse_field"]

Part: TypeAlias = str | int
"""A name in an object, or a number in a list."""

Use: TypeAlias = Literal["any", "text", "number", "bool", "length", "list", "presence"]
"""How a value is used. JSON values of another kind are null then; of the last two, only length or presence is told."""

_COLUMN = re.compile(r"[^.\[]+")
_PART = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<number>-?\d{1,9})\]|\[(?P<quoted>'[^'\\]*'|\"[^\"\\]*\")\]")
_PLAIN_NAME = re.compile(r"[^.\[\]'\"\s]+")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A column, and the way to a field inside it.

    Attributes:
        column: name of the column.
        path: names and numbers from the column to the field; empty for the column itself.
    """

    column: str
    path: tuple[Part, ...] = ()

    def __str__(self) -> str:
        return self.column + "".join(map(_spelled, self.path))

    def among(self, columns: Collection[str]) -> FieldPath:
        """Return the same field where a column has a longer part of its name: `seg.png.width` in a column `seg.png`."""
        for count in range(len(self.path), 0, -1):
            name = str(FieldPath(self.column, self.path[:count]))
            if name in columns:
                return FieldPath(name, self.path[count:])
        return self


@dataclass(frozen=True, slots=True)
class Wanted:
    """A field whose values are wanted, and how they are used."""

    field: FieldPath
    use: Use = "any"


def _spelled(part: Part) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _PLAIN_NAME.fullmatch(part) else f"[{part!r}]"


def parse_field(name: str, columns: Collection[str] = ()) -> FieldPath:
    """Return the column and the field that a name means.

    A column of exactly this name comes first, then the longest column name that begins the name.

    Example:
        parse_field("meta.tags[0]")  # FieldPath("meta", ("tags", 0))

    Args:
        name: the name.
        columns: names of columns, where they are known.

    Raises:
        UsageError: the name is no path.
    """
    if name in columns:
        return FieldPath(name)
    begins = [column for column in columns if name.startswith((f"{column}.", f"{column}["))]
    if begins:
        column = max(begins, key=len)
    else:
        found = _COLUMN.match(name)
        column = name if found is None else found[0]
    parts, at = list[Part](), len(column)
    while at < len(name):
        found = _PART.match(name, at)
        if found is None:
            raise UsageError("not a name of a column or of a field inside it", found=repr(name),
                             expected="a name such as json.lang, meta.tags[0] or meta['any name']")  # fmt: skip
        part, number, quoted = found.groups()
        parts.append(part if part is not None else int(number) if number is not None else ast.literal_eval(quoted))
        at = found.end()
    return FieldPath(column, tuple(parts))
