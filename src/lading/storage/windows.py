"""Read files once and in their order, a window at a time, for functions that process every byte of values.

The places of the values are known here. Where a reader still has to find them, `lading.storage.range_hasher` processes
them during the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.byte_ranges import ByteRanges, ReadsInto, as_file, as_view, is_held, room_for
from lading.storage.fetch_plan import FetchPlan, plan_ranges

__all__ = ["Work", "results_in_windows"]

Work = Callable[[memoryview], bytes]
"""Return a result for a value; the value is valid only during the call."""

_WINDOW_BYTES = 1 << 20
"""Half of a usual second-level cache. Of 20,000 pictures of 100 KB: read into a window of up to 4 MB and hashed there
at 10.6 GB/s, into one of 128 MB at 5, in a map at 6.5, because of page faults."""
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
