"""Laws of the fetch plan, over any ranges and limits."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lading._core.storage.fetch_plan import FetchPlan, plan_ranges

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=30)
GAPS, LIMITS = st.integers(0, 30), st.integers(1, 120)

Ranges: TypeAlias = list[tuple[int, int]]


def plan(ranges: Ranges, gap: int, limit: int) -> FetchPlan:
    both = np.array(ranges, np.int64).reshape(-1, 2)
    return plan_ranges(both[:, 0], both[:, 1], max_gap_bytes=gap, max_request_bytes=limit)


@given(RANGES, GAPS, LIMITS)
def test_every_range_is_found_in_its_answer(ranges: Ranges, gap: int, limit: int) -> None:
    made = plan(ranges, gap, limit)
    file = np.random.default_rng(0).bytes(400)
    answers = [file[offset : offset + length] for offset, length in made.requests]
    for (offset, length), request, at in zip(ranges, made.request_of.tolist(), made.offset_in.tolist(), strict=True):
        assert answers[request][at : at + length] == file[offset : offset + length]


@given(RANGES, GAPS, LIMITS)
def test_no_request_is_longer_than_the_limit_unless_a_range_is(ranges: Ranges, gap: int, limit: int) -> None:
    for request in plan(ranges, gap, limit).requests:
        assert request[1] <= limit or request in ranges


@given(RANGES, GAPS, LIMITS)
def test_nothing_is_read_but_ranges_and_gaps_within_the_limit(ranges: Ranges, gap: int, limit: int) -> None:
    wanted = {byte for offset, length in ranges for byte in range(offset, offset + length)}
    for offset, length in plan(ranges, gap, limit).requests:
        idle = 0
        for byte in range(offset, offset + length):
            idle = 0 if byte in wanted else idle + 1
            assert idle <= gap
        assert length == 0 or {offset, offset + length - 1} <= wanted


@given(RANGES, GAPS, LIMITS)
def test_requests_ascend_and_overlap_only_where_ranges_do(ranges: Ranges, gap: int, limit: int) -> None:
    requests = plan(ranges, gap, limit).requests
    asked = np.zeros(400, int)
    for offset, length in set(ranges):
        asked[offset : offset + length] += 1
    made = np.zeros(400, int)
    for offset, length in requests:
        made[offset : offset + length] += 1
    assert requests == sorted(requests)
    assert (made <= np.maximum(asked, 1)).all()


@given(RANGES, GAPS)
def test_without_a_limit_requests_are_the_fewest(ranges: Ranges, gap: int) -> None:
    requests = plan(ranges, gap, 1 << 40).requests
    assert all(b[0] - (a[0] + a[1]) > gap for a, b in pairwise(requests))


@given(RANGES, GAPS, LIMITS)
def test_order_and_repeats_do_not_change_the_requests(ranges: Ranges, gap: int, limit: int) -> None:
    assert plan(ranges[::-1] + ranges, gap, limit).requests == plan(ranges, gap, limit).requests or not any(
        length for _, length in ranges
    )
