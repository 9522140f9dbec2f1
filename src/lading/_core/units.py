"""Sizes and parts as people write them ⇄ numbers.

One kilobyte is 1,024 bytes, as in the peers (`"100kb"` = 102,400).
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from numbers import Integral

from lading.errors import UsageError

__all__ = ["count", "format_bytes", "parse_bytes", "parse_part", "spread"]

_UNITS = ("b", "kb", "mb", "gb", "tb", "pb", "eb", "zb", "yb")
_PART = re.compile(r"\s*(\d*\.?\d+)\s*(%?)\s*", re.ASCII)
_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z]*)\s*", re.ASCII)


def parse_bytes(size: int | str) -> int:
    """Bytes of a size such as `"256MB"`, `"1.5gb"`, `"4096"` or `4096`.

    Raises:
        UsageError: it is no size, or a negative one.
    """
    if isinstance(size, (int, Integral)) and not isinstance(size, bool):
        if size < 0:
            raise UsageError("a size cannot be negative", found=str(size)[:80])
        return _no_larger_than_files(int(size))
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = match[2].lower() if match else ""
    if unit and not unit.endswith("b"):
        unit += "b"
    if match is None or (unit and unit not in _UNITS):
        raise UsageError(
            "not a size", expected="a number and b, kb, mb, gb, tb …, such as 256MB", found=repr(size)[:80]
        )
    factor = 1024 ** (_UNITS.index(unit) if unit else 0)
    return _no_larger_than_files(int(Fraction(match[1]) * factor))  # in floats 2**60 + 1 would be another number


def _no_larger_than_files(size: int) -> int:
    if size >= 1 << 63:
        raise UsageError("larger than any file", expected="less than 8 EB", found="more")
    return size


def parse_part(part: float | str) -> float:
    """A part of a whole, above 0 up to 1, such as `"1%"`, `"0.01"` or `0.01`.

    Raises:
        UsageError: it is none.
    """
    match = _PART.fullmatch(str(part))
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value <= 1:
        raise UsageError("not a share", expected="above 0% up to 100%, such as 1% or 0.01", found=repr(part))
    return value


def spread(total: int, part: float) -> list[int]:
    """Which of so many are a part of them: in the middle of each of as many equal spans, one at least."""
    wanted = min(total, max(1, ceil(total * part)))
    return [(2 * i + 1) * total // (2 * wanted) for i in range(wanted)]


def count(number: int, one: str, many: str | None = None) -> str:
    """Return `1 shard`, `1,204 shards`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_bytes(size: int) -> str:
    """A size for people, three digits at most: `"1.4 GB"`, `"512 B"`."""
    value, unit = float(size), 0
    while abs(value) >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - three digits before the unit grows
        value /= 1024
        unit += 1
    digits = 0 if unit == 0 or abs(value) >= 100 else 1  # noqa: PLR2004 - 101 MB, but 9.5 MB
    return f"{value:,.{digits}f} {_UNITS[unit].upper()}"
