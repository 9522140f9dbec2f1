"""What only the file system does."""

from __future__ import annotations

import errno
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from faults import file_size_limit
from lading._core.arrow.views import from_ranges
from lading._core.storage.base import Mapper, NativePath, Seals
from lading._core.storage.local import LocalStore, maps_of
from lading.errors import CorruptShard, NotFound, ShortRead, StoreError

STORE = LocalStore()


@pytest.fixture(params=["fifo", "socket", "folder", "device", "link to a fifo"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    path = tmp_path / "odd"
    if request.param == "device":
        yield "/dev/zero", "a character device"
    elif request.param == "folder":
        path.mkdir()
        yield str(path), "a folder"
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            yield str(path), "a socket"
    else:
        os.mkfifo(path)
        link = tmp_path / "link"
        link.symlink_to(path)
        yield str(path if request.param == "fifo" else link), "a pipe"


def test_only_regular_files_are_opened(odd: tuple[str, str]) -> None:
    path, kind = odd
    for call in (STORE.head, STORE.map, lambda path: STORE.get_ranges(path, [(0, 1)])):
        with pytest.raises(StoreError, match=f"expected a regular file, found {kind}") as caught:
            call(path)
        assert caught.value.file == path


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "file:///a\0b"])
def test_paths_that_no_file_can_have(path: str) -> None:
    for call in (STORE.head, STORE.put_stream, STORE.delete, lambda path: list(STORE.walk(path))):
        with pytest.raises(StoreError, match="path"):
            call(path)


def test_a_name_that_is_too_long_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="too long"):
        STORE.head(str(tmp_path / ("x" * 300)))


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = str(tmp_path / ("é" * 127))
    STORE.put_stream(path).close()
    assert STORE.head(path).size_bytes == 0


def test_versions_are_modification_times_in_nanoseconds(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x")
    os.utime(file, ns=(1, 1_700_000_000_123_456_789))
    assert STORE.head(str(file)).version == "1700000000123456789"


def test_relative_paths_and_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    STORE.put_stream("a/b").close()
    STORE.put_stream("c").close()
    assert [info.path for info in STORE.walk("")] == ["a/b", "c"]
    assert [info.path for info in STORE.walk(".")] == ["./a/b", "./c"]
    STORE.publish("a", "d")
    assert [info.path for info in STORE.walk("")] == ["c", "d/b"]


def test_links_are_followed_and_dangling_ones_listed(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    top.mkdir()
    (outside / "x").write_bytes(b"12345")
    (top / "file").symlink_to(outside / "x")
    (top / "folder").symlink_to(outside)
    (top / "gone").symlink_to(tmp_path / "nothing")
    (top / "itself").symlink_to(top / "itself")
    (top / "loop").symlink_to(top)
    os.mkfifo(top / "pipe")
    found = [(info.path.removeprefix(f"{top}/"), info.size_bytes) for info in STORE.walk(str(top))]
    assert found == [("file", 5), ("folder/x", 5), ("gone", -1), ("itself", -1), ("pipe", -1)]
    with pytest.raises(NotFound):
        STORE.head(str(top / "gone"))


@pytest.mark.mechanism("deep folders")
def test_folders_nest_deeper_than_python_calls(tmp_path: Path) -> None:
    deep = str(tmp_path / "x")
    os.mkdir(deep)
    for _ in range(1100):
        deep += "/x"
        os.mkdir(deep)
    Path(deep, "f").write_bytes(b"x")
    assert sys.getrecursionlimit() <= 1100
    assert [info.path for info in STORE.walk(str(tmp_path))] == [f"{deep}/f"]
    subprocess.run(["rm", "-rf", str(tmp_path / "x")], check=True)


def test_deleting_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "x").write_bytes(b"kept")
    top.mkdir()
    (top / "folder").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    STORE.delete(str(top))
    STORE.delete(str(tmp_path / "link"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "x").read_bytes() == b"kept"


def test_publishing_a_folder_where_a_link_leads_to_one(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "disk" / "out" / "old").write_bytes(b"old")
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")
    (tmp_path / "disk" / "new").mkdir()
    (tmp_path / "disk" / "new" / "new").write_bytes(b"new")
    STORE.publish(str(tmp_path / "disk" / "new"), str(tmp_path / "out"))
    assert (tmp_path / "out").is_symlink()
    assert [path.name for path in (tmp_path / "disk" / "out").iterdir()] == ["new"]
    assert not (tmp_path / "disk" / "new").exists()


def test_publishing_over_the_other_kind(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_bytes(b"x")
    STORE.publish(str(tmp_path / "file"), str(tmp_path / "folder"))
    assert (tmp_path / "folder").read_bytes() == b"file"
    (tmp_path / "new").mkdir()
    STORE.publish(str(tmp_path / "new"), str(tmp_path / "folder"))
    assert (tmp_path / "folder").is_dir()


_WATCH = """
import os, sys, time
end, looks = time.monotonic() + 20, 0
print("ready", flush=True)
while not os.path.exists(sys.argv[1] + ".done") and time.monotonic() < end:
    os.stat(sys.argv[1])
    looks += 1
print(looks)
"""


@pytest.mark.mechanism("a reader beside a commit")
def test_there_is_no_moment_without_a_dataset(tmp_path: Path) -> None:
    """Somebody who looks all the time always finds a folder in the dataset's place."""
    out = tmp_path / "out"
    out.mkdir()
    with subprocess.Popen([sys.executable, "-c", _WATCH, str(out)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for number in range(30):
            new = tmp_path / f"new{number}"
            new.mkdir()
            (new / "x").write_bytes(b"%d" % number)
            STORE.publish(str(new), str(out))
        (tmp_path / "out.done").touch()
        assert int(child.stdout.read()) > 0
    assert child.returncode == 0
    assert (out / "x").read_bytes() == b"29"


def test_a_native_library_may_write_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")
    sink = STORE.put_stream(path)
    assert isinstance(sink, NativePath)
    with pa.OSFile(sink.native_path, "wb") as file:
        file.write(b"by itself")
    assert sink.tell() == 9
    assert not os.path.exists(path)
    assert sink.close() == STORE.head(path)
    assert Path(path).read_bytes() == b"by itself"
    assert os.listdir(tmp_path / "a") == ["b"]


def test_unfinished_files_are_hidden_and_not_listed(tmp_path: Path) -> None:
    sink = STORE.put_stream(str(tmp_path / "a"))
    [name] = os.listdir(tmp_path)
    assert name.startswith(".a.lading-")
    assert list(STORE.walk(str(tmp_path))) == []
    sink.abort()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("behind", [False, True])
def test_a_dropped_file_takes_no_place_where_a_native_library_has_it_open(behind: bool, tmp_path: Path) -> None:
    """As after an error of a full disk: pyarrow's file is closed when it is collected."""
    sink = STORE.put_stream(str(tmp_path / "shard"))
    with open(sink.native_path, "wb", buffering=0) as native:
        write = partial(native.write, bytes(100_000))
        if behind:
            sink.later(write)
        else:
            write()
        sink.abort()
        status = os.fstat(native.fileno())
        assert (status.st_nlink, status.st_size, status.st_blocks) == (0, 0, 0)


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        STORE.put_stream(str(tmp_path / "a")).close()
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    sink = STORE.put_stream(path)
    with file_size_limit(10_000), pytest.raises(StoreError, match="file too large") as caught:
        sink.write([bytes(6000)] * 3)
    assert (caught.value.errno, caught.value.file) == (errno.EFBIG, path)
    sink.abort()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    sink = STORE.put_stream(str(tmp_path / "a"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._fd)
    os.close(full)
    with pytest.raises(StoreError, match=r"no space left on device.*free some space"):
        sink.write([b"x"])
    sink.abort()


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        STORE.put_stream(str(tmp_path / "file" / "x"))
    with pytest.raises(NotFound, match="not a folder"):
        STORE.head(str(tmp_path / "file" / "x"))


def test_a_file_cannot_take_the_place_of_a_folder_by_its_sink(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    sink = STORE.put_stream(str(tmp_path / "a"))
    with pytest.raises(StoreError):
        sink.close()
    assert os.listdir(tmp_path) == ["a"]


def test_a_sealed_file_is_out_of_sight_and_holds_no_descriptor(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left open closes now, and not in between
    before = len(os.listdir("/proc/self/fd"))
    path = str(tmp_path / "a")
    for end in ("close", "abort"):
        sink = STORE.put_stream(path)
        sink.write([b"some ", b"bytes"])
        assert isinstance(sink, Seals)
        sink.seal()
        assert len(os.listdir("/proc/self/fd")) == before
        assert list(STORE.walk(str(tmp_path))) == []
        assert sink.tell() == 10
        if end == "close":
            assert sink.close() == STORE.head(path)
            assert (tmp_path / "a").read_bytes() == b"some bytes"
            (tmp_path / "a").unlink()
        for _ in range(2):
            sink.abort()
        assert os.listdir(tmp_path) == []


def test_a_sealed_file_that_has_no_place_is_dropped(tmp_path: Path) -> None:
    sink = STORE.put_stream(str(tmp_path / "a"))
    (tmp_path / "a").mkdir()
    assert isinstance(sink, Seals)
    sink.seal()
    with pytest.raises(StoreError):
        sink.close()
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_mapped_once_while_it_is_the_same_file(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"first")
    other.symlink_to(file)
    held = LocalStore().map(str(file))
    assert STORE.map(str(file)) is held
    assert STORE.map(str(other)).path == str(other)
    with file.open("ab") as out:
        out.write(b", longer")
    longer = STORE.map(str(file))
    assert longer.buffer.to_pybytes() == b"first, longer"
    (tmp_path / "c").write_bytes(b"other, longer")
    os.replace(tmp_path / "c", file)
    assert STORE.map(str(file)).buffer.to_pybytes() == b"other, longer"
    assert longer.buffer.to_pybytes() == b"first, longer"


def test_a_map_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"bytes")
    before = len(os.listdir("/proc/self/fd"))
    held = STORE.map(str(file))
    del held
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.soak
def test_buffers_lead_to_their_maps(tmp_path: Path) -> None:
    store, names = LocalStore(), [tmp_path / str(i) for i in range(200)]
    for i, name in enumerate(names):
        name.write_bytes(bytes([i]) * 5000)
    kept = [store.map(str(name)) for name in names]
    del kept[::2]
    kept += [store.map(str(name)) for name in names[:10:2]]
    gc.collect()
    parts = [mapped.buffer.slice(4000, 1000) for mapped in kept]
    assert [maps_of([part]) for part in parts] == [[mapped] for mapped in kept]
    assert maps_of([*parts[:3], *parts[:3], pa.py_buffer(b"memory")]) == kept[:3]
    status = names[1].stat()
    names[1].write_bytes(bytes(5000))
    os.utime(names[1], ns=(0, status.st_mtime_ns + 1))
    with pytest.raises(CorruptShard, match=r"changed while it was open; expected the time .*Z, found .*Z\."):
        kept[0].check()
    assert store.map(str(names[1])) is not kept[0]


def test_a_map_says_when_its_file_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(10_000))
    assert isinstance(STORE, Mapper)
    mapped = STORE.map(str(file))
    mapped.check()
    os.truncate(file, 5000)
    with pytest.raises(CorruptShard, match="expected 10000 bytes, found 5000 bytes") as caught:
        mapped.check()
    assert caught.value.file == str(file)


@pytest.mark.parametrize("has_preadv", [True, False])
@pytest.mark.parametrize("most", [1, 5, 11])
def test_a_call_of_the_system_may_give_less_than_was_asked_for(
    most: int, has_preadv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux gives 2 GiB at most; macOS refuses more, and old macOS has no `preadv`."""
    pread = os.pread

    def fewer(fd: int, length: int, offset: int) -> bytes:
        return pread(fd, min(length, most), offset)

    def fewer_into(fd: int, targets: Sequence[memoryview], offset: int) -> int:
        left = body = fewer(fd, sum(map(len, targets)), offset)
        for target in targets:
            part, left = left[: len(target)], left[len(target) :]
            target[: len(part)] = part
        return len(body)

    monkeypatch.setattr(os, "pread", fewer)
    if has_preadv:
        monkeypatch.setattr(os, "preadv", fewer_into)
    else:
        monkeypatch.delattr(os, "preadv", raising=False)
    data = bytes(range(100))
    (tmp_path / "a").write_bytes(data)
    mapped = STORE.map(str(tmp_path / "a"))
    assert mapped.read(3, 40) == data[3:43]
    assert mapped.read(90, 40) == data[90:]
    assert list(mapped.read_each([50, 0, 7], [20, 0, 93])) == [data[50:70], b"", data[7:]]
    targets = [memoryview(bytearray(size)) for size in (0, 3, 11, 0, 30, 1, 0)]
    mapped.read_into(targets, 5)
    assert b"".join(targets) == data[5:50]
    with pytest.raises(ShortRead, match="the file became shorter; expected 40, found 10"):
        list(mapped.read_each([90], [40]))
    with pytest.raises(ShortRead, match="@ 100: the file became shorter"):
        mapped.read_into(targets, 90)


def test_a_call_is_asked_for_no_more_than_macos_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, `pread` of more than 2 GiB − 1 is EINVAL."""
    pread, preadv, most = os.pread, os.preadv, 10
    monkeypatch.setattr("lading._core.storage.local._MOST_READ_BYTES", most)

    def strict(fd: int, length: int, offset: int) -> bytes:
        assert length <= most
        return pread(fd, length, offset)

    def strict_into(fd: int, targets: Sequence[memoryview], offset: int) -> int:
        assert sum(map(len, targets)) <= most
        return preadv(fd, targets, offset)

    monkeypatch.setattr(os, "pread", strict)
    monkeypatch.setattr(os, "preadv", strict_into)
    data = bytes(range(100))
    (tmp_path / "a").write_bytes(data)
    mapped = STORE.map(str(tmp_path / "a"))
    assert mapped.read(3, 40) == data[3:43]
    assert list(mapped.read_each([50, 7], [20, 93])) == [data[50:70], data[7:]]
    targets = [memoryview(bytearray(size)) for size in (3, 11, 30)]
    mapped.read_into(targets, 5)
    assert b"".join(targets) == data[5:49]
    assert [bytes(part) for part in STORE.get_ranges(str(tmp_path / "a"), [(0, 100)])] == [data]


def test_released_pages_are_no_longer_resident(tmp_path: Path) -> None:
    file = tmp_path / "a"
    with file.open("wb") as out:
        out.truncate(64 << 20)
    mapped = STORE.map(str(file))
    content = np.frombuffer(mapped.buffer, np.uint8)

    def resident_kb() -> int:
        lines = Path("/proc/self/smaps").read_text().split(f"{file}\n")[1].splitlines()
        return int(next(line for line in lines if line.startswith("Rss:")).split()[1])

    assert not content.any()
    # Not to the page: the system may reclaim some that were not used for a while.
    assert 60 << 10 <= resident_kb() <= 64 << 10
    mapped.release(5000, 32 << 20)
    assert 28 << 10 <= resident_kb() <= (32 << 10) + 8
    mapped.release(0, 64 << 20)
    assert resident_kb() == 0
    assert from_ranges(mapped.buffer, np.array([100]), np.array([20])).to_pylist() == [bytes(20)]


@pytest.mark.soak
def test_nothing_is_left_open(tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "a").write_bytes(b"12345")
    for _ in range(3):
        STORE.head(str(tmp_path / "a"))
        STORE.get_ranges(str(tmp_path / "a"), [(0, 5)])
        STORE.map(str(tmp_path / "a"))
        STORE.put_stream(str(tmp_path / "b")).close()
        STORE.put_stream(str(tmp_path / "c")).abort()
        for bad in ("/dev/null", str(tmp_path)):
            with pytest.raises(StoreError):
                STORE.get_ranges(bad, [(0, 1)])
    assert len(os.listdir("/proc/self/fd")) == before
