"""Sorted places of keys, in memory and through temporary files, against pandas."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.dataset.order.order_sort import sorted_places
from lading.errors import UsageError

_ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-3, 3)),
        st.one_of(st.none(), st.text(alphabet="aZé\U0001f600z", max_size=2)),
    ),
    max_size=60,
)


@given(_ROWS, st.booleans(), st.booleans(), st.integers(1, 9), st.sampled_from([1, 200, 1 << 20]))
def test_it_is_the_order_of_pandas(
    rows: list[tuple[int | None, str | None]], first: bool, second: bool, size: int, held: int
) -> None:
    batches = [
        [pa.array([row[0] for row in part], pa.int64()), pa.array([row[1] for row in part], pa.string())]
        for part in (rows[i : i + size] for i in range(0, len(rows), size))
    ]
    frame = pd.DataFrame(rows, columns=["a", "b"]).astype({"a": "Int64"})
    expected = frame.sort_values("b", ascending=not second, kind="stable", na_position="last")
    expected = expected.sort_values("a", ascending=not first, kind="stable", na_position="last")
    found = sorted_places(iter(batches), ["a", "b"], [first, second], max_bytes=held)
    assert found.tolist() == expected.index.tolist()


@pytest.mark.soak
@pytest.mark.parametrize("held", [1 << 16, 1 << 30])
def test_many_rows_are_merged_block_by_block(held: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1000, 400_000)
    batches = ([pa.array(part)] for part in np.array_split(values, 40))
    assert np.array_equal(sorted_places(batches, ["a"], [True], max_bytes=held), np.argsort(-values, kind="stable"))


def test_types_that_differ_between_batches_have_a_common_one() -> None:
    batches = [[pa.array([3, 1])], [pa.array([2.5, None])], [pa.array([None, None])], [pa.array([2], pa.int8())]]
    for held in (1, 1 << 20):
        assert sorted_places(iter(batches), ["a"], [False], max_bytes=held).tolist() == [1, 6, 2, 0, 3, 4, 5]


def test_nan_comes_behind_numbers_and_before_nulls() -> None:
    for descending, expected in ((False, [2, 0, 1, 3]), (True, [0, 2, 1, 3])):
        found = sorted_places([[pa.array([2.0, float("nan"), 1.0, None])]], ["a"], [descending])
        assert found.tolist() == expected


def test_values_without_an_order() -> None:
    for batches in ([[pa.array([[1]])]], [[pa.array([1])], [pa.array(["x"])]]):
        with pytest.raises(UsageError, match=r"column 'a'|a: "):
            sorted_places(batches, ["a"], [False])


def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def batches(*, fail: bool) -> Iterator[list[pa.Array]]:
        for i in range(4):
            assert len(list(tmp_path.iterdir())) == (2 if i else 0)  # the folder and its lock
            yield [pa.array([i])]
        if fail:
            raise KeyError

    assert sorted_places(batches(fail=False), ["a"], [True], max_bytes=1).tolist() == [3, 2, 1, 0]
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyError):
        sorted_places(batches(fail=True), ["a"], [True], max_bytes=1)
    assert not list(tmp_path.iterdir())
