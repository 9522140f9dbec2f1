"""What hurts in shards of several formats: rows that are read many at once, and strings with offsets of 32 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.formats.base import LayoutFinding
from lading.units import format_bytes

__all__ = ["NEAR_BYTES", "large_strings", "large_unit"]

LARGE_UNIT_BYTES = 512 << 20
"""A unit of rows above this hurts: readers hold one for each worker, and eight of them are the memory of a small
machine. It is also what `lading convert` holds of payload, and five times the row groups of the Hugging Face hub."""

LIMIT_BYTES = 1 << 31
"""What offsets of 32 bits reach."""

NEAR_BYTES = LIMIT_BYTES // 2
"""Half of that: two such arrays do not go into one."""


def large_unit(unit: str, size_bytes: NDArray[np.int64], num_rows: NDArray[np.int64]) -> list[LayoutFinding]:
    """The largest unit that rows are read in, if it is too large; a single row cannot be cut.

    Args:
        unit: what the format calls it.
        size_bytes: of each unit, unpacked.
        num_rows: of each.
    """
    sizes = np.where(num_rows > 1, size_bytes, 0)
    at = int(sizes.argmax()) if len(sizes) else 0
    if not len(sizes) or sizes[at] <= LARGE_UNIT_BYTES:
        return []
    size = int(sizes[at])
    measured = f"{unit} {at} unpacks to {format_bytes(size)}, more than {format_bytes(LARGE_UNIT_BYTES)}"
    why = f"Most readers hold a whole {unit} in memory, each worker its own, and for a single row, too."
    return [LayoutFinding(f"large {unit}", measured, why, size)]


def large_strings(place: str, column: str, size_bytes: int) -> list[LayoutFinding]:
    """That the values which a column has in one unit of rows are near the limit of their type, if they are.

    Args:
        place: the unit, with its number.
        column: name of a column of `string` or `binary`.
        size_bytes: all its values there.
    """
    if size_bytes <= NEAR_BYTES:
        return []
    measured = f"{place}, column {column!r}: {format_bytes(size_bytes)} of the {format_bytes(LIMIT_BYTES)} that fit"
    why = "Offsets of 32 bits end at 2 GB: to join, sort or nest such columns fails, or wraps around."
    return [LayoutFinding("32-bit strings near their limit", measured, why, size_bytes)]
