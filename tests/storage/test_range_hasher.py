"""Values that are hashed, or kept, while a reader walks over a file."""

from __future__ import annotations

import gc
import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.arrow.references import FileEntry, Refs, make_refs, unpack
from lading._core.storage.local import LocalMap, LocalStore
from lading._core.storage.range_hasher import HashedValues, HashingWalk, RangeHasher
from lading.errors import CorruptShard

BODY = np.random.default_rng(5).bytes(3 << 20)
MB, HEADER = 1 << 20, 512


def ranges_of(*, keep_text: bool = True) -> RangeHasher:
    return RangeHasher(md5, hashlib.md5, 16, short_bytes=64, keep_text=keep_text)


def md5(value: memoryview | bytes) -> bytes:
    return hashlib.md5(value).digest()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[LocalMap, FileEntry]]:
    """Two open files: the body, and the body backwards."""
    folder = tmp_path_factory.mktemp("passed")
    (folder / "a").write_bytes(BODY)
    (folder / "b").write_bytes(BODY[::-1])
    return [opened(folder / name) for name in "ab"]


def opened(path: Path) -> tuple[LocalMap, FileEntry]:
    return LocalStore().map(str(path)), FileEntry(str(path), size_bytes=path.stat().st_size)


def refs_to(values: Sequence[tuple[int, int, int]], **parts: np.ndarray) -> Refs:
    """References to `(file, offset, length)`."""
    file, offset, length = np.array(values, np.int64).reshape(-1, 3).T
    return unpack(make_refs(offset, length, file=file.astype(np.int32), **parts))


def taken(
    walk: HashingWalk, values: Iterable[tuple[int, int, bool]], body: bytes = BODY, *, alone: bool = True
) -> Iterator[tuple[int, int]]:
    """Walk over `(gap, size, whether it is text)` as a reader does, a header before each; gives those in the file.

    Without `alone`, others may walk meanwhile.
    """
    at, near, first = 0, memoryview(b""), 0
    for gap, size, text in values:
        at += gap
        if at + HEADER > len(body):
            return
        if not first <= at <= first + len(near) - HEADER:
            near, first = walk.part(at)
        assert bytes(near[at - first : at - first + HEADER]) == body[at : at + HEADER]
        if walk.take(at + HEADER, size, text=text) or not alone:
            near = near[:0]
        yield at + HEADER, size
        at += HEADER + size


def content(values: HashedValues) -> list[bytes | None]:
    """What is known of each value: its hash, or the value; None for nothing."""
    hashes = iter(values.hashes)
    kept = values.kept.views()
    assert values.known.tolist() == [h or v is not None for h, v in zip(values.hashed, kept, strict=True)]
    found = [
        bytes(next(hashes)) if hashed else None if value is None else bytes(value)
        for hashed, value in zip(values.hashed.tolist(), kept, strict=True)
    ]
    assert next(hashes, None) is None
    return found


_SIZES = st.sampled_from([0, 1, 64, 65, 16 << 10, (16 << 10) + 1, 200_000, MB - HEADER, MB, MB + 1, 2 * MB + 700])
_VALUES = st.lists(st.tuples(st.sampled_from([0, 0, 0, 300, 70_000]), _SIZES, st.booleans()), max_size=20)


@pytest.mark.soak
@given(one=_VALUES, other=_VALUES, keep_text=st.booleans(), by_turns=st.booleans())
def test_what_a_walk_passed_by_is_known(
    files: list[tuple[LocalMap, FileEntry]],
    one: list[tuple[int, int, bool]],
    other: list[tuple[int, int, bool]],
    keep_text: bool,
    by_turns: bool,
) -> None:
    hasher = ranges_of(keep_text=keep_text)
    bodies = [BODY, BODY[::-1]]
    walks = [
        taken(hasher.walk(*file), values, body, alone=not by_turns)
        for file, values, body in zip(files, (one, other), bodies, strict=True)
    ]
    got: tuple[list[tuple[int, int]], ...] = ([], [])
    if by_turns:
        for pair in zip_longest(*walks):
            for mine, value in zip(got, pair, strict=True):
                mine.extend([] if value is None else [value])
    else:
        got = tuple(list(walk) for walk in walks)
    told = [(n, *value) for n, mine in enumerate(got) for value in mine]
    texts = [text for mine, values in zip(got, (one, other), strict=True) for *_, text in values[: len(mine)]]
    expected: list[bytes | None] = []
    for (n, at, size), text in zip(told, texts, strict=True):
        value = bodies[n][at : at + size]
        if at + size > len(BODY) or (text and (size > 16 << 10 or not keep_text)):
            expected.append(None)
        else:
            expected.append(value if text or size <= 64 else md5(value))
    strange = [(0, 5, 77_777), (1, 1 << 50, 3)]
    refs = refs_to([*told, *strange])
    found = hasher.look_up({"c": refs}, [entry for _, entry in files], ())["c"]
    assert content(found) == [*expected, None, None]
    assert not hasher.look_up({"c": refs}, [entry for _, entry in files], ())["c"].known.any()  # it is forgotten


def test_columns_get_what_they_can_use(files: list[tuple[LocalMap, FileEntry]]) -> None:
    file, entry = files[0]
    hasher = ranges_of()
    got = list(taken(hasher.walk(file, entry), [(0, 100, True), (0, 1000, False), (0, 30, False)]))
    mine = [(1, *value) for value in got]
    others = [FileEntry("elsewhere"), entry]
    found = hasher.look_up({"hashes": refs_to(mine), "values": refs_to(mine)}, others, {"values"})
    body = [BODY[at : at + size] for at, size in got]
    assert content(found["hashes"]) == [body[0], md5(body[1]), body[2]]
    assert content(found["values"]) == [body[0], None, body[2]]
    assert found["hashes"].kept.sources is found["values"].kept.sources  # kept once for all


@given(sizes=st.lists(st.sampled_from([0, 10, 64, 65, 5000]), min_size=1, max_size=40), data=st.data())
def test_what_stays_is_known_later(
    files: list[tuple[LocalMap, FileEntry]], sizes: list[int], data: st.DataObject
) -> None:
    """Values are asked for in any order, each once, while the walk goes on."""
    file, entry = files[0]
    hasher = ranges_of()
    walk = taken(hasher.walk(file, entry), [(0, size, False) for size in sizes], alone=False)
    waiting: list[tuple[int, int, int]] = []
    for value in walk:
        waiting.append((0, *value))
        some = (
            data.draw(st.lists(st.sampled_from(waiting), unique=True, max_size=4)) if data.draw(st.booleans()) else []
        )
        found = hasher.look_up({"c": refs_to(some)}, [entry], ())["c"]
        whole = [BODY[at : at + size] for _, at, size in some]
        assert content(found) == [value if len(value) <= 64 else md5(value) for value in whole]
        waiting = [one for one in waiting if one not in some]


def test_much_that_is_kept_goes_before_hashes_do(tmp_path: Path) -> None:
    """Of 20 files, 2 MB each of short values: 24 MB may be held beside the last one's."""
    body = BODY[: 130 * (HEADER + 16_000)]
    hasher, entries, values = ranges_of(), [], [(0, 16_000, n % 13 > 0) for n in range(130)]
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(body)
        file, entry = opened(tmp_path / f"{number}")
        got = list(taken(hasher.walk(file, entry), values, body))
        entries.append(entry)
    refs = refs_to([(number, *value) for number in range(20) for value in got])
    found = hasher.look_up({"c": refs}, entries, ())["c"]
    assert found.hashed.reshape(20, 130).sum(axis=1).tolist() == [10] * 20
    kept = found.kept.there.reshape(20, 130).sum(axis=1)
    assert kept.tolist() == [0] * 6 + [120] * 14
    expected = [
        BODY[at : at + size] if text else md5(BODY[at : at + size])
        for (at, size), (*_, text) in zip(got, values, strict=True)
    ]
    assert content(found)[-130:] == expected


def test_references_that_are_no_plain_ranges(files: list[tuple[LocalMap, FileEntry]]) -> None:
    """The same range, null, packed, one picture of it, or of no file there is."""
    file, entry = files[0]
    hasher = ranges_of()
    [(at, size)] = taken(hasher.walk(file, entry), [(0, 1000, False)])
    parts = {
        "valid": np.array([False, True, True, True, True, True]),
        "codec": np.array([0, 1, 0, 0, 0, 0], np.int8),
        "frame": np.array([-1, -1, 0, -1, -1, -1], np.int32),
    }
    refs = refs_to([(0, at, size)] * 3 + [(7, at, size), (-1, at, size), (0, at, size)], **parts)
    assert hasher.look_up({"c": refs}, [entry], ())["c"].known.tolist() == [False] * 5 + [True]


def test_a_file_is_read_once(files: list[tuple[LocalMap, FileEntry]], monkeypatch: pytest.MonkeyPatch) -> None:
    file, entry = files[0]
    read: list[int] = []
    read_into, read_near = LocalMap.read_into, LocalMap.read

    def into(self: LocalMap, targets: Sequence[memoryview], at: int) -> None:
        read.append(sum(map(len, targets)))
        read_into(self, targets, at)

    def near(self: LocalMap, at: int, size: int) -> bytes:
        read.append(size)
        return read_near(self, at, size)

    monkeypatch.setattr(LocalMap, "read_into", into)
    monkeypatch.setattr(LocalMap, "read", near)
    values = [(0, 300, True), (0, 350_000, False), (0, MB + 5, False), (0, 520_000, False), (0, 700_000, False)]
    walk = ranges_of().walk(file, entry)
    assert len(list(taken(walk, values))) == 5
    assert len(BODY) - MB <= sum(read) <= len(BODY)
    assert len(read) <= 8
    read.clear()
    assert len(list(taken(walk, values))) == 5  # a reader that goes back looks at headers
    assert sum(read) <= 5 * 2048


def test_a_walk_begun_again_knows_nothing_of_the_one_before(tmp_path: Path) -> None:
    path, hasher = tmp_path / "a", ranges_of()
    for body in (BODY[:5000], BODY[5000:10_000]):
        path.write_bytes(body)
        file, entry = opened(path)
        [(at, size)] = taken(hasher.walk(file, entry), [(0, 1000, False)], body)
        found = hasher.look_up({"c": refs_to([(0, at, size)] * 2)}, [entry], ())["c"]
        assert content(found) == [md5(body[512:1512])] * 2


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    file, entry = opened(tmp_path / "a")
    walk = ranges_of().walk(file, entry)
    near, _ = walk.part(0)
    assert len(near) == MB
    with (tmp_path / "a").open("r+b") as cut:
        cut.truncate(MB + 1000)
    with pytest.raises(CorruptShard, match="the file changed"):
        walk.take(MB - 2000, 50_000, text=False)
    assert not ranges_of().walk(file, entry).take(HEADER, 10 * len(BODY), text=False)  # cut: it is left out


def test_files_passed_by_long_ago_are_forgotten_and_none_is_held_open(tmp_path: Path) -> None:
    hasher, entries = ranges_of(), []
    for number in range(100):
        (tmp_path / f"{number}").write_bytes(BODY[:100_000])
        file, entry = opened(tmp_path / f"{number}")
        assert list(taken(hasher.walk(file, entry), [(0, 90_000, False)], BODY[:100_000])) == [(512, 90_000)]
        entries.append(entry)
    del file
    assert not [name for name in os.listdir("/proc/self/fd") if str(tmp_path) in _target(name)]
    refs = refs_to([(number, 512, 90_000) for number in range(100)])
    assert hasher.look_up({"c": refs}, entries, ())["c"].known.tolist() == [False] * 35 + [True] * 65


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def test_all_is_given_back_at_once(tmp_path: Path) -> None:
    """Without the collector of cycles: what is in one stays until somebody makes many objects."""
    (tmp_path / "a").write_bytes(BODY)
    gc.disable()
    try:
        file, entry = opened(tmp_path / "a")
        hasher = ranges_of()
        walk = hasher.walk(file, entry)
        assert list(taken(walk, [(0, 1000, False)])) == [(HEADER, 1000)]
        gone = weakref.ref(file)
        del hasher, walk, file
        assert gone() is None
    finally:
        gc.enable()
