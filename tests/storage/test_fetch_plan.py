from __future__ import annotations

import numpy as np
import pytest

from lading._core.storage.fetch_plan import FetchPlan, plan_ranges
from lading.errors import BadReference


def plan(ranges: list[tuple[int, int]], *, gap: int = 0, limit: int = 1 << 30) -> FetchPlan:
    offset, length = zip(*ranges, strict=True) if ranges else ((), ())
    return plan_ranges(
        np.array(offset, np.int64), np.array(length, np.int64), max_gap_bytes=gap, max_request_bytes=limit
    )


def test_no_ranges_make_no_requests() -> None:
    made = plan([])
    assert made.requests == []
    assert len(made.request_of) == len(made.offset_in) == 0


def test_equal_ranges_are_fetched_once() -> None:
    made = plan([(100, 10), (5, 3), (100, 10)])
    assert made.requests == [(5, 3), (100, 10)]
    assert made.request_of.tolist() == [1, 0, 1]
    assert made.offset_in.tolist() == [0, 0, 0]


@pytest.mark.parametrize("gap, requests", [(9, [(0, 10), (20, 5)]), (10, [(0, 25)])])
def test_a_gap_up_to_the_limit_is_read_over(gap: int, requests: list[tuple[int, int]]) -> None:
    assert plan([(0, 10), (20, 5)], gap=gap).requests == requests


def test_touching_ranges_join_without_a_gap() -> None:
    made = plan([(10, 5), (0, 10)])
    assert made.requests == [(0, 15)]
    assert made.offset_in.tolist() == [10, 0]


def test_a_run_is_cut_where_a_request_would_grow_too_long() -> None:
    assert plan([(i * 10, 10) for i in range(10)], limit=35).requests == [(0, 30), (30, 30), (60, 30), (90, 10)]


def test_one_range_above_the_limit_is_one_request() -> None:
    made = plan([(0, 5), (5, 100), (105, 5)], limit=20)
    assert made.requests == [(0, 5), (5, 100), (105, 5)]


def test_a_range_inside_another_needs_no_request() -> None:
    made = plan([(0, 100), (10, 5), (99, 1)], limit=50)
    assert made.requests == [(0, 100)]
    assert made.offset_in.tolist() == [0, 10, 99]


def test_overlapping_ranges_join() -> None:
    assert plan([(0, 10), (5, 10)]).requests == [(0, 15)]


def test_overlapping_ranges_that_do_not_fit_are_both_fetched_whole() -> None:
    made = plan([(0, 10), (5, 10)], limit=12)
    assert made.requests == [(0, 10), (5, 10)]
    assert made.request_of.tolist() == [0, 1]


def test_empty_ranges_are_not_fetched() -> None:
    made = plan([(1_000_000, 0), (3, 4)])
    assert made.requests == [(3, 4)]


def test_only_empty_ranges_still_point_at_a_request() -> None:
    made = plan([(7, 0), (9, 0)])
    assert made.requests == [(7, 0)]
    assert made.request_of.tolist() == [0, 0]


@pytest.mark.parametrize("bad", [(-1, 5), (5, -1), (2**63 - 1, 1), (1, 2**63 - 1)])
def test_what_is_no_range_is_an_error_naming_its_row(bad: tuple[int, int]) -> None:
    with pytest.raises(BadReference, match="row 1"):
        plan([(0, 1), bad])


def test_ranges_at_the_end_of_the_number_line() -> None:
    made = plan([(2**63 - 20, 10), (2**63 - 10, 9)], limit=10)
    assert made.requests == [(2**63 - 20, 10), (2**63 - 10, 9)]
