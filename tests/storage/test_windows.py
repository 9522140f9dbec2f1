"""What functions make of values that are read a window at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.storage.local import LocalMap, LocalStore
from lading._core.storage.windows import results_in_windows
from lading.errors import CorruptShard

BODY = np.random.default_rng(3).bytes(3 << 20)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[LocalMap]:
    """Two open files: the body, and the body backwards."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "a").write_bytes(BODY)
    (folder / "b").write_bytes(BODY[::-1])
    return [LocalStore().map(str(folder / name)) for name in "ab"]


def pieces(files: list[LocalMap], rows: list[tuple[int, int, int] | None]) -> ByteRanges:
    source, offset, length = np.array([row or (-1, 0, 0) for row in rows], np.int64).reshape(-1, 3).T
    return ByteRanges(files, source, offset, length)


_ROWS = st.lists(
    st.none()
    | st.tuples(
        st.integers(0, 1),
        st.integers(0, len(BODY) - 1),
        st.sampled_from([0, 1, 65, 5_000, 200_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]),
    ).map(lambda row: (row[0], row[1], min(row[2], len(BODY) - row[1])))
)


@pytest.mark.soak
@given(one=_ROWS, other=_ROWS)
def test_each_function_gets_the_bytes_of_its_column(
    files: list[LocalMap],
    one: list[tuple[int, int, int] | None],
    other: list[tuple[int, int, int] | None],
) -> None:
    columns = {"one": pieces(files, one), "other": pieces(files[::-1], other)}
    found = results_in_windows(columns, {"one": bytes, "other": lambda value: b"%d" % len(value) + bytes(value[:9])})
    bodies = [BODY, BODY[::-1]]
    expected = [None if row is None else bodies[row[0]][row[1] : row[1] + row[2]] for row in one]
    assert found["one"].type == pa.large_binary()
    assert found["one"].to_pylist() == expected
    values = [None if row is None else bodies[1 - row[0]][row[1] : row[1] + row[2]] for row in other]
    assert found["other"].to_pylist() == [None if v is None else b"%d" % len(v) + v[:9] for v in values]


def test_values_in_memory_and_in_files(files: list[LocalMap]) -> None:
    """One buffer for several columns, one column in several buffers and a file."""
    sources = [b"abcdef", files[0], b"xyz"]
    source, offset, length = np.array([[0, 1, 2, -1, 0, 1], [1, 70_000, 0, 0, 3, 5], [2, 3, 3, 0, 0, 4]])
    one = ByteRanges(sources, source, offset, length)
    other = ByteRanges(sources[::-1], np.array([2, 1]), np.array([4, 9]), np.array([2, 1]))
    found = results_in_windows({"one": one, "other": other}, {"one": bytes, "other": bytes})
    assert found["one"].to_pylist() == [b"bc", BODY[70_000:70_003], b"xyz", None, b"", BODY[5:9]]
    assert found["other"].to_pylist() == [b"ef", BODY[9:10]]
    assert results_in_windows({}, {}) == {}


def test_files_are_read_in_their_order_and_once(tmp_path: Path) -> None:
    """Two columns of neighbours, in the reverse order: as many reads as the file has windows."""
    (tmp_path / "a").write_bytes(BODY)
    asked: list[tuple[int, int]] = []

    class Told:
        """The file, and what it is asked for."""

        def __init__(self, file: LocalMap) -> None:
            self.file = file

        def read_into(self, targets: list[memoryview], offset: int) -> None:
            asked.append((offset, sum(map(len, targets))))
            self.file.read_into(targets, offset)

    file = Told(LocalStore().map(str(tmp_path / "a")))
    starts = np.arange(0, 3 << 20, 64 << 10)[::-1]
    none = np.zeros(len(starts), np.int64)
    columns = {
        "large": ByteRanges([file], none, starts + 512, none + 60_000),
        "small": ByteRanges([file], none, starts + 61_000, none + 100),
    }
    found = results_in_windows(columns, {"large": lambda value: bytes(value[:3]), "small": bytes})
    assert found["large"].to_pylist() == [BODY[at + 512 : at + 515] for at in starts.tolist()]
    assert found["small"].to_pylist() == [BODY[at + 61_000 : at + 61_100] for at in starts.tolist()]
    assert asked == sorted(asked)
    assert len(asked) == 3
    assert sum(size for _, size in asked) <= len(BODY)


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    file = LocalStore().map(str(tmp_path / "a"))
    with (tmp_path / "a").open("r+b") as cut:
        cut.truncate(1000)
    with pytest.raises(CorruptShard, match="the file changed"):
        results_in_windows({"x": pieces([file], [(0, 500, 1000)])}, {"x": bytes})
