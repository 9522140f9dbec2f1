"""Recover the row groups of a damaged Parquet file.

The footer tells where each column chunk lies, and so where it should begin itself. If it begins elsewhere, bytes are
missing from the file or came into it. Then the row groups before that place are whole, up to the one in which the place
may lie. All others are lost.

Nothing can be read without a footer. If further bytes follow the footer, it is looked for in the last MB.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from lading._core.formats.base import Recovered
from lading._core.formats.parquet.footer import MAGIC, chunk_facts, read_footer
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.thrift import structs_of_list
from lading.errors import CorruptShard, LadingError

__all__ = ["recover_groups"]

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_INDEXES, _BLOOM = ((4, 5), (6, 7)), (14, 15)
_PAGE_KINDS = (0, 4, 6)
"""First field of the head of a page, an int32 in zigzag: data page, dictionary page, data page of version 2."""
_INT32_FIELD = 0x15
"""The head of an int32 that is field 1."""
_LOOKED_BACK_BYTES = 1 << 20
_MOST_TRIES = 100
_ENDING_BYTES = 8


def recover_groups(file: Input) -> Recovered:
    """Return the file, with the rows of lost row groups, or without the bytes that follow it.

    Raises:
        CorruptShard: there is no footer, or it is damaged.
    """
    begin, stop = np.zeros(1, np.int64), _stop(file)
    if stop < file.size_bytes:
        error = CorruptShard("bytes follow the end of the file", file=file.path, offset=stop,
                             found=f"{file.size_bytes - stop} bytes")  # fmt: skip
        return Recovered(begin, begin, np.array([stop]), stop, lost=[error])
    footer = read_footer(file, inside=False)
    whole = Recovered(begin, begin, np.array([stop]), stop, unit_rows=footer.num_rows)
    shift = _end(file, footer.start, footer.length) - footer.start
    if not shift:
        return whole
    good = 0
    for starts in footer.chunks[:, :, 0].tolist():
        if not all(_is_page(file, at) and not _is_page(file, at - shift) for at in starts):
            break
        good += 1
    good = max(good - 1, 0)
    ends = np.cumsum(footer.num_rows)
    what = f"{shift} bytes are missing from the file" if shift > 0 else f"{-shift} bytes came into the file"
    lost: list[LadingError] = [
        CorruptShard(f"row group {group}: {what} here or before", file=file.path,
                     offset=int(footer.chunks[group, :, 0].min(initial=0)), row=int(ends[group] - num_rows),
                     expected=f"{num_rows} rows")
        for group, num_rows in enumerate(footer.num_rows.tolist()) if group >= good
    ]  # fmt: skip
    first = int(footer.num_rows[:good].sum())
    rows = np.arange(first, int(footer.num_rows.sum()))
    return replace(whole, lost_rows=rows, lost=lost, breaks=np.array([first]))


def _stop(file: Input) -> int:
    """Return where the file ends: behind the last magic before which a footer stands in its place.

    The footer of a file that is a value stands elsewhere than it says. All footers that are tried are together not
    larger than one may be.
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
    """Return where everything ends that the footer in this place lists: it should begin there.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: it is not a footer.
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
    """Return whether the head of a page begins here."""
    head = file.read_at(at, 3) if 0 <= at <= file.size_bytes - 3 else b"\0\0\0"
    return head[0] == _INT32_FIELD and head[1] in _PAGE_KINDS and head[2] == _INT32_FIELD
