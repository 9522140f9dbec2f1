"""What functions make of values that are read a window at a time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.errors import ShortRead
from lading.pieces import Pieces, is_held
from lading.store.local import LocalMap, LocalStore
from lading.store.windows import PassedRanges, results_in_windows

BODY = np.random.default_rng(3).bytes(3 << 20)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[LocalMap]:
    """Two open files: the body, and the body backwards."""
    folder = tmp_path_factory.mktemp("windows")
    (folder / "a").write_bytes(BODY)
    (folder / "b").write_bytes(BODY[::-1])
    return [LocalStore().map(str(folder / name)) for name in "ab"]


def pieces(files: list[LocalMap], rows: list[tuple[int, int, int] | None]) -> Pieces:
    source, offset, length = np.array([row or (-1, 0, 0) for row in rows], np.int64).reshape(-1, 3).T
    return Pieces(files, source, offset, length)


_ROWS = st.lists(
    st.none()
    | st.tuples(
        st.integers(0, 1),
        st.integers(0, len(BODY) - 1),
        st.sampled_from([0, 1, 65, 5_000, 200_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]),
    ).map(lambda row: (row[0], row[1], min(row[2], len(BODY) - row[1])))
)


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
        "large": Pieces([file], none, starts + 512, none + 60_000),
        "small": Pieces([file], none, starts + 61_000, none + 100),
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
    with pytest.raises(ShortRead, match="the file became shorter"):
        results_in_windows({"x": pieces([file], [(0, 500, 1000)])}, {"x": bytes})


_RANGES = st.lists(
    st.tuples(
        st.integers(0, 70_000),
        st.sampled_from([0, 1, 65, 16 << 10, (16 << 10) + 1, 200_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]),
    ),
    max_size=20,
)


def walked(passed: PassedRanges, file: LocalMap, gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Walk over ranges that lie so far apart as a reader does, and give those that lie in the file."""
    passing, at, found = passed.walk(file), 0, []
    for gap, length in gaps:
        at += gap
        if at + length > len(BODY):
            break
        part, first = passing.part(at, length)
        if length <= 1 << 20:
            assert bytes(part[at - first : at - first + length]) == bytes(file.buffer[at : at + length])
        passing.passed.append((at, length))
        found.append((at, length))
        at += length
    return found


def content(file: LocalMap, hashes: np.ndarray, known: np.ndarray, others: Pieces) -> list[bytes]:
    """What is known of each piece: the hash, the bytes that were kept, or what lies in the file."""
    values = results_in_windows({"": others}, {"": bytes})[""].to_pylist()
    return [bytes(hashes[row]) if known[row] else value for row, value in enumerate(values)]


@given(one=_RANGES, other=_RANGES, worked=st.booleans())
def test_ranges_are_worked_on_as_a_walk_passes_by(
    files: list[LocalMap], one: list[tuple[int, int]], other: list[tuple[int, int]], worked: bool
) -> None:
    passed = PassedRanges(lambda value: hashlib.md5(value).digest(), 16)
    for file, gaps in zip(files, (one, other), strict=True):
        ranges = walked(passed, file, gaps)
        mine = pieces([file], [(0, at, length) for at, length in ranges] + [None, (0, 5, 77_777)])
        hashes, known, others = passed.look_up(mine, worked=worked)
        bodies = [bytes(file.buffer[at : at + length]) for at, length in [*ranges, (0, 0), (5, 77_777)]]
        long = [worked and 16 << 10 < length <= 1 << 20 for _, length in ranges]
        assert known.tolist()[: len(ranges)] == long
        assert not known[len(ranges) :].any() or (5, 77_777) in ranges
        kept = [length <= 16 << 10 for _, length in ranges]
        assert [is_held(others.sources[n]) for n in others.source[: len(ranges)][np.array(kept, bool)]] == [True] * sum(
            kept
        )
        found = content(file, hashes, known, others)
        expected = [
            hashlib.md5(body).digest() if is_known else body for body, is_known in zip(bodies, known, strict=True)
        ]
        assert found == [*expected[: len(ranges)], None, expected[-1]]


def test_two_walks_that_take_turns(files: list[LocalMap]) -> None:
    passed = PassedRanges(lambda value: hashlib.md5(value).digest(), 16)
    walks = [passed.walk(file) for file in files]
    for at in range(0, 2 << 20, 100_000):
        for file, walk in zip(files, walks, strict=True):
            part, first = walk.part(at, 100_000)
            assert bytes(part[at - first : at - first + 100_000]) == bytes(file.buffer[at : at + 100_000])
            walk.passed.append((at, 100_000))
    for file in files:
        mine = pieces([file], [(0, at, 100_000) for at in range(0, 2 << 20, 100_000)])
        hashes, known, _ = passed.look_up(mine, worked=True)
        assert known.all()
        expected = [hashlib.md5(file.buffer[at : at + 100_000]).digest() for at in range(0, 2 << 20, 100_000)]
        assert [bytes(row) for row in hashes] == expected


def test_a_walk_that_goes_back_and_one_that_begins_again(files: list[LocalMap]) -> None:
    passed = PassedRanges(lambda value: hashlib.md5(value).digest(), 16)
    for _ in range(2):
        walk = passed.walk(files[0])
        for at in [0, 50_000, 100_000, 50_000, 100_000, 150_000]:
            walk.part(at, 50_000)
            walk.passed.append((at, 50_000))
        mine = pieces(files[:1], [(0, at, 50_000) for at in (100_000, 0, 150_000, 50_000)])
        hashes, known, _ = passed.look_up(mine, worked=True)
        assert known.all()
        assert bytes(hashes[0]) == hashlib.md5(files[0].buffer[100_000:150_000]).digest()


def test_files_passed_by_long_ago_are_let_go(tmp_path: Path) -> None:
    passed = PassedRanges(lambda value: hashlib.md5(value).digest(), 16)
    store, held = LocalStore(), []
    for number in range(100):
        (tmp_path / f"{number}").write_bytes(BODY[:100_000])
        file = store.map(str(tmp_path / f"{number}"))
        held = [*held[:1], file]
        walk = passed.walk(file)
        walk.part(0, 100_000)
        walk.passed.append((0, 100_000))
    open_files = [name for name in os.listdir("/proc/self/fd") if str(tmp_path) in _target(name)]
    assert len(open_files) <= 2 * 66  # a map takes two
    _, known, _ = passed.look_up(pieces(held, [(0, 0, 100_000), (1, 0, 100_000)]), worked=True)
    assert known.tolist() == [False, True]


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
