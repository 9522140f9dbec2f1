"""Plan fetches: turn ranges into requests. No I/O.

A store gets few large requests rather than many small ones. Equal ranges are fetched once, near ranges together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lading.errors import BadReference

__all__ = ["GAPS_A_REQUEST", "FetchPlan", "plan_ranges"]

GAPS_A_REQUEST = 32
"""Requests of a batch barely wait for each other: up to 32 are under way at once. So a gap pays off only at a fraction
of a lone request's cost."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Requests for one file, and where in their answers each range is.

    Range i of the input is `answers[request_of[i]][offset_in[i] : offset_in[i] + length[i]]`.

    Attributes:
        offset: first byte of every request, ascending.
        length: bytes of every request.
        request_of: for every input range, the request that covers it.
        offset_in: for every input range, its start in the answer of that request.
    """

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    request_of: NDArray[np.int32]
    offset_in: NDArray[np.int64]

    @property
    def requests(self) -> list[tuple[int, int]]:
        """Return the requests as `(offset, length)`, as `Store.get_ranges` takes them."""
        return list(zip(self.offset.tolist(), self.length.tolist(), strict=True))


def plan_ranges(
    offset: NDArray[np.int64], length: NDArray[np.int64], *, max_gap_bytes: int, max_request_bytes: int
) -> FetchPlan:
    """Return requests that cover ranges of one file, given in any order, with repeats and overlaps.

    A range joins the request before it if at most `max_gap_bytes` are between them and the request stays within
    `max_request_bytes`. A single longer range is one request. Requests overlap only where overlapping ranges could not
    be joined. Empty ranges are not fetched: they are empty slices of some request. O(n log n) time and O(n) memory.

    Raises:
        BadReference: a range is negative, or ends past 2⁶³ − 1.
    """
    start = np.ascontiguousarray(offset, np.int64)
    size = np.ascontiguousarray(length, np.int64)
    _check(start, size)
    count = len(start)
    request_of, offset_in = np.zeros(count, np.int32), np.zeros(count, np.int64)
    filled = np.flatnonzero(size > 0)
    if not len(filled):
        return FetchPlan(start[:1], size[:1], request_of, offset_in)
    order = filled[np.lexsort((-size[filled], start[filled]))]
    starts, stops = start[order], start[order] + size[order]
    # A range that ends no later than an earlier one is inside that one. The rest ascend in both start and stop.
    reach = np.maximum.accumulate(stops)
    outer = np.concatenate(([True], stops[1:] > reach[:-1]))
    first = _first_of_requests(starts[outer], stops[outer], max_gap_bytes, max_request_bytes)
    begins = starts[outer][first]
    ends = stops[outer][np.append(first[1:], int(outer.sum())) - 1]
    owner = np.cumsum(outer) - 1
    request = np.searchsorted(first, owner, side="right") - 1
    request_of[order] = request
    offset_in[order] = starts - begins[request]
    return FetchPlan(begins, ends - begins, request_of, offset_in)


def _check(start: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    bad = np.flatnonzero((start < 0) | (size < 0) | (size > np.iinfo(np.int64).max - np.maximum(start, 0)))
    if len(bad):
        row = int(bad[0])
        raise BadReference("not a range of a file", row=row, found=f"{int(size[row])} bytes at {int(start[row])}")


def _first_of_requests(
    starts: NDArray[np.int64], stops: NDArray[np.int64], max_gap_bytes: int, max_request_bytes: int
) -> NDArray[np.int64]:
    """Return which of these ranges, ascending in start and stop, begin a request."""
    apart = starts[1:] - stops[:-1] > max_gap_bytes
    runs = np.concatenate(([0], np.flatnonzero(apart) + 1))
    after = np.append(runs[1:], len(starts))
    too_long = stops[after - 1] - starts[runs] > max_request_bytes
    cuts = [
        cut
        for run, end in zip(runs[too_long].tolist(), after[too_long].tolist(), strict=True)
        for cut in _cuts(starts, stops, run, end, max_request_bytes)
    ]
    return np.union1d(runs, np.array(cuts, np.int64))


def _cuts(
    starts: NDArray[np.int64], stops: NDArray[np.int64], run: int, end: int, max_request_bytes: int
) -> Iterator[int]:
    """Return where to cut a run of near ranges that is too long for one request; one step a request."""
    largest = int(np.iinfo(np.int64).max)
    while True:
        limit = min(int(starts[run]) + max_request_bytes, largest)
        run = max(run + 1, run + int(np.searchsorted(stops[run:end], limit, side="right")))
        if run >= end:
            return
        yield run
