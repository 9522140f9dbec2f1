"""Read files once and in their order: ranges together into memory, or a window at a time for functions of values.

The places of the values are known here. Where a reader still has to find them, `_core.storage.range_hasher` processes
them during the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, ReadsInto, as_file, as_view, is_held, room_for
from lading._core.features.items import split_rows
from lading._core.storage.base import OpenFile
from lading._core.storage.fetch_plan import FetchPlan, plan_ranges

__all__ = ["BUFFER_BYTES", "Work", "read_together", "results_in_windows"]

Work = Callable[[memoryview], bytes]
"""Return a result for a value; the value is valid only during the call."""

_WINDOW_BYTES = 1 << 20
"""Half of a usual second-level cache. Of 20,000 pictures of 100 KB: read into a window of up to 4 MB and hashed there
at 10.6 GB/s, into one of 128 MB at 5, in a map at 6.5, because of page faults."""
BUFFER_BYTES = 16 << 20
"""Memory for one reading. The allocator keeps buffers of up to 32 MiB for reuse; larger ones cost page faults."""
_CALL_BYTES = 8 << 10
"""Ranges with a smaller average size are read as many `bytes`: half the time of a call that fills memory."""
_GAP_BYTES = 32 << 10
"""A gap that costs as much to read as another call."""


def results_in_windows(columns: Mapping[str, ByteRanges], works: Mapping[str, Work]) -> dict[str, pa.Array]:
    """Return the results of functions on the values of columns, as `large_binary`; null where the value is null.

    Memory: a window of 1 MB or one longer value, and the results.

    Args:
        columns: where the values are, in memory or in open files.
        works: the function of each column.

    Raises:
        StoreError: a file became shorter.
    """
    made: list[bytes] = []
    places: dict[str, NDArray[np.int64]] = {}
    files: dict[int, ReadsInto] = {}
    parts: list[ByteRanges] = []
    for name, pieces in columns.items():
        in_file = pieces.in_file
        held = np.flatnonzero(pieces.there & ~in_file)
        places[name] = np.full(len(pieces), -1)
        places[name][held] = np.arange(len(made), len(made) + len(held))
        made += _of_memory(pieces[held]).results(works[name])
        files.update((id(source), as_file(source)) for source in pieces.sources if not is_held(source))
        parts.append(pieces[in_file])
    left = ByteRanges.joined(parts)
    numbers = {key: number for number, key in enumerate(files)}
    file_of = np.array([numbers.get(id(source), -1) for source in left.sources], np.int64)[left.source]
    functions = [works[name] for name, part in zip(columns, parts, strict=True) for _ in range(len(part))]
    turn = np.zeros(len(left), np.int64)
    for number, file in enumerate(files.values()):
        rows = np.flatnonzero(file_of == number)
        offset, length = left.offset[rows], left.length[rows]
        plan = plan_ranges(offset, length, max_gap_bytes=_GAP_BYTES, max_request_bytes=_WINDOW_BYTES)
        order = np.lexsort((plan.offset_in, plan.request_of))
        turn[rows[order]] = np.arange(len(made), len(made) + len(rows))
        made += _worked(file, plan, order, length, [functions[row] for row in rows[order].tolist()])
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    for (name, pieces), (first, stop) in zip(columns.items(), pairwise(ends), strict=True):
        places[name][pieces.in_file] = turn[first:stop]
    values = pa.array(made, pa.large_binary())
    return {name: values.take(pa.array(at, mask=at < 0)) for name, at in places.items()}


def read_together(
    file: OpenFile, plan: FetchPlan, buffer_bytes: int = BUFFER_BYTES
) -> tuple[list[pa.Buffer], NDArray[np.int32], NDArray[np.int64]]:
    """Return the bytes of planned ranges of a file, several requests in one buffer.

    Args:
        file: the file.
        plan: its requests.
        buffer_bytes: bytes of a buffer; a longer request has its own.

    Returns:
        The buffers; for each range, the number of its buffer, and its start there.

    Raises:
        CorruptShard: the file became shorter.
    """
    starts = np.cumsum(plan.length) - plan.length
    bounds = split_rows(np.arange(len(starts)), plan.length, max_bytes=buffer_bytes)
    group = np.searchsorted(bounds, np.arange(len(starts)), side="right") - 1
    begins = starts - starts[bounds[:-1]][group]
    buffers: list[pa.Buffer] = []
    for first, stop in pairwise(bounds.tolist()):
        offset, length = plan.offset[first:stop].tolist(), plan.length[first:stop].tolist()
        if sum(length) < _CALL_BYTES * len(length):
            buffers.append(pa.py_buffer(b"".join(file.read_each(offset, length))))
            continue
        data = room_for(sum(length))
        for begin, place, size in zip(begins[first:stop].tolist(), offset, length, strict=True):
            file.read_into([as_view(data)[begin : begin + size]], place)
        buffers.append(data)
    if not len(starts):
        return [pa.py_buffer(b"")], plan.request_of, plan.offset_in
    return buffers, group[plan.request_of].astype(np.int32), begins[plan.request_of] + plan.offset_in


def _of_memory(pieces: ByteRanges) -> ByteRanges:
    """Return ranges that are all in memory, without the other files of their column."""
    held = [source if is_held(source) else b"" for source in pieces.sources]
    return ByteRanges(held, pieces.source, pieces.offset, pieces.length)


def _worked(
    file: ReadsInto, plan: FetchPlan, order: NDArray[np.int64], length: NDArray[np.int64], functions: Sequence[Work]
) -> Iterator[bytes]:
    """Yield the results for ranges of a file, in the order of the plan's requests."""
    starts, stops = plan.offset_in[order].tolist(), (plan.offset_in + length)[order].tolist()
    bounds = np.searchsorted(plan.request_of[order], np.arange(len(plan.length) + 1)).tolist()
    window = as_view(room_for(min(_WINDOW_BYTES, int(plan.length.max(initial=1)))))
    for (at, size), first, stop in zip(plan.requests, bounds[:-1], bounds[1:], strict=True):
        body = window[:size] if size <= len(window) else as_view(room_for(size))
        file.read_into([body], at)
        mine = slice(first, stop)
        yield from [work(body[i:j]) for work, i, j in zip(functions[mine], starts[mine], stops[mine], strict=True)]
