"""What is left of a Parquet file that bytes were cut from or came into: its column chunks, each where the footer says.

The footer says where each chunk lies, and so where it would begin itself. If it begins earlier, so many bytes are
missing, and all chunks behind the cut lie so much earlier; if later, so many came in, and they lie so much later. Which
these are, the heads of their first pages tell. The row group at that place is lost, whatever of it might still decode,
and so is one of which it is not told on which side it lies.

Without a footer nothing says what the pages are of. One that further bytes follow is looked for before the end.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from lading.errors import CorruptShard, LadingError
from lading.formats.base import Recovered
from lading.formats.parquet.footer import MAGIC, chunk_facts, read_footer
from lading.formats.parquet.input import Input
from lading.formats.parquet.thrift import structs_of_list

__all__ = ["resync_groups"]

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_INDEXES, _BLOOM = ((4, 5), (6, 7)), (14, 15)
_PAGE_KINDS = (0, 4, 6)
"""First field of a page's head, an int32 in zigzag: a data page, a dictionary page, a data page of version 2."""
_INT32_FIELD = 0x15
"""The head of an int32 that is field 1."""
_LOOKED_BACK_BYTES = 1 << 20
"""How far before the end of the file a footer is looked for that other bytes follow."""
_MOST_TRIES = 100
_ENDING_BYTES = 8


def resync_groups(file: Input) -> Recovered | None:
    """The file with its chunks at their places, or without what follows it; None where nothing is out of place.

    Raises:
        CorruptShard: the footer is damaged, or nothing says where bytes are missing.
    """
    stop = _stop(file)
    if stop < file.size_bytes:
        begin, further = np.zeros(1, np.int64), file.size_bytes - stop
        error = CorruptShard("bytes follow the end of the file", file=file.path, offset=stop, found=f"{further} bytes")
        return Recovered(begin, begin, np.array([stop]), stop, lost=[error])
    footer = read_footer(file, inside=False)
    shift = _end(file, footer.start, footer.length) - footer.start
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
    return Recovered(
        np.array([0, cut]), np.array([0, cut + shift]), np.array([min(cut, cut + shift), file.size_bytes - cut]),
        file.size_bytes + shift,
        lost_rows=np.concatenate([np.zeros(0, np.int64), *rows]), lost=lost,
    )  # fmt: skip


def _stop(file: Input) -> int:
    """Where the file ends that a footer makes of it: behind the last magic before which one stands in its place.

    The footer of a file that is a value stands elsewhere than it says. All that are tried are not larger than one may
    be; each begins with its version, an int32.
    """
    start = max(file.size_bytes - _LOOKED_BACK_BYTES, 0)
    text = file.read_at(start, file.size_bytes - start)
    left = file.limits.footer_bytes
    magics = [] if text.endswith(MAGIC) else [found.start() for found in re.finditer(MAGIC, text)][-_MOST_TRIES:]
    for at in reversed(magics):
        place = max(start + at + len(MAGIC) - _ENDING_BYTES, 0)
        length = int.from_bytes(file.read_at(place, 4), "little")
        begin = place - length
        if not (len(MAGIC) < begin < place and length <= left and file.read_at(begin, 1)[0] == _INT32_FIELD):
            continue
        left -= length
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            if _end(file, begin, length) == begin:
                return place + _ENDING_BYTES
    return file.size_bytes


def _end(file: Input, start: int, length: int) -> int:
    """Where all ends that the footer in this place tells of: it stands behind that.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: it is none.
    """
    end = len(MAGIC)
    for group in structs_of_list(file.read_at(start, length), _ROW_GROUPS):
        for chunk in group[_COLUMNS]:
            told: dict[int, Any] = chunk[_META_DATA]
            places = [*((chunk.get(at), chunk.get(size)) for at, size in _INDEXES), tuple(map(told.get, _BLOOM))]
            places.append(chunk_facts(told)[:2])
            end = max([end, *(at + size for at, size in places if isinstance(at, int) and isinstance(size, int))])
    return end


def _is_page(file: Input, at: int) -> bool:
    """Whether the head of a page begins here."""
    head = file.read_at(at, 3) if 0 <= at <= file.size_bytes - 3 else b"\0\0\0"
    return head[0] == _INT32_FIELD and head[1] in _PAGE_KINDS and head[2] == _INT32_FIELD
