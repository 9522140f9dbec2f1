"""What is left of a Parquet file that bytes were cut from or came into: its column chunks, each where the footer says.

The footer says where each chunk lies, and so where it would begin itself. If it begins earlier, so many bytes are
missing, and all chunks behind the cut lie so much earlier; if later, so many came in, and they lie so much later. Which
these are, the heads of their first pages tell. The row group at that place is lost, whatever of it might still decode,
and so is one of which it is not told on which side it lies.

Without a footer nothing says what the pages are of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, LadingError
from lading.formats._parquet_footer import Footer, read_footer
from lading.formats._parquet_input import Input
from lading.formats._parquet_thrift import structs_of_list
from lading.formats.protocol import Remains

__all__ = ["resync_groups"]

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_INDEXES, _BLOOM = ((4, 5), (6, 7)), (14, 15)
_PAGE_KINDS = (0, 4, 6)
"""First field of a page's head, an int32 in zigzag: a data page, a dictionary page, a data page of version 2."""
_INT32_FIELD = 0x15


def resync_groups(file: Input) -> Remains | None:
    """The file with its chunks at their places; None where they are at their places already.

    Raises:
        CorruptShard: the footer is damaged, or nothing says where bytes are missing.
    """
    footer = read_footer(file, inside=False)
    shift = _end(file, footer) - footer.start
    if not shift:
        return None
    start = footer.chunks[:, :, 0].reshape(-1)
    order = np.argsort(start, kind="stable")
    here = np.array([_is_page(file, at) for at in start[order].tolist()], np.bool_)
    moved_too = np.array([_is_page(file, at - shift) for at in start[order].tolist()], np.bool_)
    moved = np.flatnonzero(moved_too & ~here)
    first = int(moved[0]) if len(moved) else len(order)
    kept = np.flatnonzero(here[:first] & ~moved_too[:first])
    last = int(kept[-1]) if len(kept) else 0
    cut = int(start[order[first]]) - shift if first < len(order) else footer.start
    groups = np.unique(order[last:first] // max(footer.chunks.shape[1], 1))
    ends = np.cumsum(footer.num_rows)
    rows = [np.arange(ends[group] - footer.num_rows[group], ends[group]) for group in groups.tolist()]
    what = f"{shift} bytes of the file are missing here" if shift > 0 else f"{-shift} bytes came into the file here"
    lost: list[LadingError] = [
        CorruptShard(f"row group {group}: {what}", file=file.path,
                     offset=int(footer.chunks[group, :, 0].min()), expected=f"{int(footer.num_rows[group])} rows")
        for group in groups.tolist()
    ]  # fmt: skip
    return Remains(
        np.array([0, cut]), np.array([0, cut + shift]), np.array([min(cut, cut + shift), file.size_bytes - cut]),
        file.size_bytes + shift,
        lost_rows=np.concatenate([np.zeros(0, np.int64), *rows]), lost=lost,
    )  # fmt: skip


def _end(file: Input, footer: Footer) -> int:
    """Where all that the footer tells of ends: it stands behind that."""
    chunks: NDArray[np.int64] = footer.chunks[:, :, 0] + footer.chunks[:, :, 1]
    end = int(chunks.max(initial=len(b"PAR1")))
    for group in structs_of_list(file.read_at(footer.start, footer.length), _ROW_GROUPS):
        for chunk in group[_COLUMNS]:
            told: dict[int, Any] = chunk.get(_META_DATA, {})
            places = [*((chunk.get(at), chunk.get(size)) for at, size in _INDEXES), tuple(map(told.get, _BLOOM))]
            end = max([end, *(at + size for at, size in places if isinstance(at, int) and isinstance(size, int))])
    return end


def _is_page(file: Input, at: int) -> bool:
    """Whether the head of a page begins here."""
    head = file.read_at(at, 3) if 0 <= at <= file.size_bytes - 3 else b"\0\0\0"
    return head[0] == _INT32_FIELD and head[1] in _PAGE_KINDS and head[2] == _INT32_FIELD
