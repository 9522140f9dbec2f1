"""Layout findings of several formats: large units of rows, and 32-bit strings near their limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.findings import Finding
from lading._core.units import format_bytes

__all__ = ["NEAR_BYTES", "large_strings", "large_unit"]

LARGE_UNIT_BYTES = 512 << 20
"""Each worker holds one unit of rows. Eight units of this size fill the memory of a small machine. `lading convert`
holds as much payload; row groups on the Hugging Face hub are a fifth of it."""

LIMIT_BYTES = 1 << 31
"""The largest value of a 32-bit offset."""

NEAR_BYTES = LIMIT_BYTES // 2
"""Two arrays of this size cannot be joined."""


def large_unit(unit: str, size_bytes: NDArray[np.int64], num_rows: NDArray[np.int64]) -> list[Finding]:
    """Return the largest unit of several rows, if it is too large.

    Args:
        unit: the format's name for it.
        size_bytes: uncompressed size of each unit.
        num_rows: rows of each unit.
    """
    sizes = np.where(num_rows > 1, size_bytes, 0)
    at = int(sizes.argmax()) if len(sizes) else 0
    if not len(sizes) or sizes[at] <= LARGE_UNIT_BYTES:
        return []
    size = int(sizes[at])
    measured = f"{unit} {at}: {format_bytes(size)} uncompressed, at most {format_bytes(LARGE_UNIT_BYTES)}"
    why = f"Most readers hold a whole {unit} in memory in each worker, even to read a single row."
    return [Finding(f"large {unit}", measured=measured, why=why, weight=size, fix="copy")]


def large_strings(place: str, column: str, size_bytes: int) -> list[Finding]:
    """Return that a column of `string` or `binary` is near the limit of its type, if it is.

    Args:
        place: the unit of rows, with its number.
        column: name of the column.
        size_bytes: size of all its values in that unit.
    """
    if size_bytes <= NEAR_BYTES:
        return []
    measured = f"{place}, column {column!r}: {format_bytes(size_bytes)}, the type holds {format_bytes(LIMIT_BYTES)}"
    why = "32-bit offsets end at 2 GB: joining, sorting or nesting such columns fails or wraps around."
    return [Finding("32-bit strings near their limit", measured=measured, why=why, weight=size_bytes, fix="copy")]
