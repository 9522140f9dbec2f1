"""Sizes and parts as people write them ⇄ numbers.

KB and KiB both are 1,024 bytes, as in MosaicML Streaming (`"100kb"` = 102,400) and the AWS command line. datasets
counts 1,000 bytes for KB: `max_shard_size="500MB"` there is `477MB` here.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from numbers import Integral

from lading.errors import UsageError

__all__ = [
    "count", "format_bytes", "format_seconds", "parse_bytes", "parse_part", "parse_peer_bytes", "parse_sample",
    "spread",
    "whole_number",
]  # fmt: skip

_UNITS = ("b", "kb", "mb", "gb", "tb", "pb", "eb", "zb", "yb")
_UNIT = re.compile(r"(?:([kmgtpezy])i?)?b?")
_MOST_DIGITS = 18
_PART = re.compile(r"\s*(\d*\.?\d+)\s*(%?)\s*", re.ASCII)
_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z]*)\s*", re.ASCII)


def parse_bytes(size: int | str) -> int:
    """Bytes of a size such as `"256MB"`, `"256MiB"`, `"1.5gb"`, `"100b"` or `4096`.

    Raises:
        UsageError: it is no size, a negative one, or a text without a unit.
    """
    if isinstance(size, (int, Integral)) and not isinstance(size, bool):
        if size < 0:
            raise UsageError("a size cannot be negative", found=str(size)[:80])
        return _no_larger_than_files(int(size))
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = _UNIT.fullmatch(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError("not a size", expected="a number and B, KB, MB, GB, TB …, such as 256MB",
                         found=repr(size)[:80])  # fmt: skip
    number = Fraction(match[1])
    if not match[2] and number:
        raise UsageError("a size without a unit", expected=f"such as {match[1][:20]}MB", found=repr(size)[:80],
                         advice=f"For bytes write {match[1][:20]}B.")  # fmt: skip
    factor = 1024 ** _UNITS.index(f"{unit[1] or ''}b")
    return _no_larger_than_files(int(number * factor))  # in floats 2**60 + 1 would be another number


def parse_peer_bytes(size: int | str) -> int:
    """Bytes of a size as peers write it: as `parse_bytes`, but a text without a unit counts bytes.

    Raises:
        UsageError: it is no size.
    """
    return parse_bytes(f"{size}b" if isinstance(size, str) and size.strip().isdecimal() else size)


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


def whole_number(text: str) -> int | None:
    """Return the number of a text of up to 18 digits, such as `"12"`; None for other texts."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def parse_sample(text: str) -> int | float:
    """A number of samples such as `"1000"` (int), or a fraction of them such as `"10%"` or `"0.1"` (float).

    Raises:
        UsageError: it is neither.
    """
    match = _PART.fullmatch(text)
    if match is None or (match[1].isdecimal() and len(match[1]) > _MOST_DIGITS):
        raise UsageError("a sample is a fraction or a number of samples", expected="such as 10%, 0.01 or 1000",
                         found=repr(text)[:80])  # fmt: skip
    if match[2]:
        return float(match[1]) / 100
    return int(match[1]) if match[1].isdecimal() else float(match[1])


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


def format_seconds(seconds: float) -> str:
    """A time for people, in the largest unit of which there are two: `"2.5 hours"`, `"0.3 seconds"`."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} seconds"  # noqa: PLR2004 - 12 seconds, but 1.2 seconds
