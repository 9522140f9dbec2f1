"""Files read once and in their order, a window at a time, for functions that look at every byte of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.pieces import Pieces, ReadsInto, as_file, as_view, room_for
from lading.ranges import FetchPlan, plan_ranges

__all__ = ["Work", "results_in_windows"]

Work = Callable[[memoryview], bytes]
"""What is made of a value, which is there for the call only."""

_WINDOW_BYTES, _GAP_BYTES = 1 << 20, 32 << 10
"""Half of a usual second-level cache, and a gap that costs as much as a read. Of 20,000 pictures of 100 KB: read into a
window of up to 4 MB and hashed there at 10.6 GB/s, into one of 128 MB at 5, in a map at 6.5, for page faults."""


def results_in_windows(columns: Mapping[str, Pieces], works: Mapping[str, Work]) -> dict[str, pa.Array]:
    """What functions make of the values of columns, as `large_binary`; null where there is no value.

    Takes memory for a window of 1 MB or one longer value, and for the results.

    Args:
        columns: where the values lie, all in open files.
        works: for each column its function.

    Raises:
        StoreError: a file became shorter.
    """
    files = {id(source): as_file(source) for pieces in columns.values() for source in pieces.sources}
    places = {name: np.full(len(pieces.source), -1) for name, pieces in columns.items()}
    made: list[bytes] = []
    for file in files.values():
        mine = [(name, pieces, _rows_in(pieces, file)) for name, pieces in columns.items()]
        offset = np.concatenate([pieces.offset[rows] for _, pieces, rows in mine])
        length = np.concatenate([pieces.length[rows] for _, pieces, rows in mine])
        plan = plan_ranges(offset, length, max_gap_bytes=_GAP_BYTES, max_request_bytes=_WINDOW_BYTES)
        order = np.lexsort((plan.offset_in, plan.request_of))
        turn = np.empty(len(order), np.int64)
        turn[order] = np.arange(len(made), len(made) + len(order))
        ends = np.cumsum([len(rows) for *_, rows in mine])
        for (name, _, rows), turns in zip(mine, np.split(turn, ends[:-1]), strict=True):
            places[name][rows] = turns
        names = [name for name, *_ in mine]
        functions = [works[names[column]] for column in np.searchsorted(ends, order, side="right").tolist()]
        made += _worked(file, plan, order, length, functions)
    values = pa.array(made, pa.large_binary())
    return {name: values.take(pa.array(at, mask=at < 0)) for name, at in places.items()}


def _rows_in(pieces: Pieces, file: ReadsInto) -> NDArray[np.int64]:
    numbers = [number for number, source in enumerate(pieces.sources) if source is file]
    return np.flatnonzero(np.isin(pieces.source, numbers))


def _worked(
    file: ReadsInto, plan: FetchPlan, order: NDArray[np.int64], length: NDArray[np.int64], functions: Sequence[Work]
) -> Iterator[bytes]:
    """What functions make of ranges of a file, in the order of the plan's requests."""
    starts, stops = plan.offset_in[order].tolist(), (plan.offset_in + length)[order].tolist()
    bounds = np.searchsorted(plan.request_of[order], np.arange(len(plan.length) + 1)).tolist()
    window = memoryview(bytearray(min(_WINDOW_BYTES, int(plan.length.max(initial=0)))))
    for (at, size), first, stop in zip(plan.requests, bounds[:-1], bounds[1:], strict=True):
        body = window[:size] if size <= len(window) else as_view(room_for(size))
        file.read_into([body], at)
        mine = slice(first, stop)
        yield from [work(body[i:j]) for work, i, j in zip(functions[mine], starts[mine], stops[mine], strict=True)]
