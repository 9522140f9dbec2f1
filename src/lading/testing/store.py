"""What every store must do, as tests: subclass `StoreTests`, say how to reach the files behind the store's back.

class TestMyStore(StoreTests):
    @pytest.fixture
    def store(self) -> Store: ...
    @pytest.fixture
    def root(self) -> str: ...
    def put_raw(self, store, path, data): ...
    def get_raw(self, store, path): ...
    def list_raw(self, store, root): ...
"""

# ruff: noqa: D102, PLR2004 - a test's name is its documentation, and expected values stand where they are compared

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lading._core.storage.base import FileInfo, Mapper, Store
from lading.errors import CorruptShard, DestinationExists, NotFound, ShortRead, StoreError

__all__ = ["StoreTests"]

_DATA = bytes(range(256)) * 5
_NAMES = (
    "with space",
    "é",
    "e\u0301",
    "日本",
    "🎉",
    "100%",
    "%2E",
    "a[1]b",
    "what?",
    "star*",
    "quo'te\"",
    "a#b&c=d",
    ".hidden",
)


class StoreTests:
    """The contract of `_core.storage.base.Store`. Paths are `root` and a name below it."""

    @pytest.fixture
    def store(self) -> Store:
        """The store, fresh or shared."""
        raise NotImplementedError

    @pytest.fixture
    def root(self) -> str:
        """A folder for this test alone, without a slash at its end; it need not be there."""
        raise NotImplementedError

    def put_raw(self, store: Store, path: str, data: bytes) -> None:
        """Make a file, and the folders above it, without the store."""
        raise NotImplementedError

    def get_raw(self, store: Store, path: str) -> bytes | None:
        """The bytes of a file, got without the store; None if it is not there."""
        raise NotImplementedError

    def list_raw(self, store: Store, root: str) -> list[str]:
        """Paths of all files below a folder, hidden ones too, got without the store."""
        raise NotImplementedError

    def test_head_gives_size_and_version(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a.bin", _DATA)
        info = store.head(f"{root}/a.bin")
        assert (info.path, info.size_bytes) == (f"{root}/a.bin", len(_DATA))
        assert store.head(f"{root}/a.bin") == info

    def test_head_sees_that_a_file_was_replaced(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a.bin", _DATA)
        before = store.head(f"{root}/a.bin")
        self.put_raw(store, f"{root}/a.bin", b"shorter")
        assert store.head(f"{root}/a.bin") != before

    def test_what_is_not_there_is_not_found(self, store: Store, root: str) -> None:
        for call in (lambda: store.head(f"{root}/no"), lambda: store.get_ranges(f"{root}/no/no", [(0, 1)])):
            with pytest.raises(NotFound, match="/no") as caught:
                call()
            assert isinstance(caught.value, FileNotFoundError)
            assert caught.value.file is not None

    def test_a_folder_is_no_file(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/folder/a.bin", b"x")
        with pytest.raises(StoreError):
            store.head(f"{root}/folder")

    def test_ranges_come_in_the_order_asked_for(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a.bin", _DATA)
        ranges = [(100, 50), (0, 10), (100, 50), (len(_DATA), 0), (1279, 1), (7, 0), (0, len(_DATA)), (90, 30)]
        answers = store.get_ranges(f"{root}/a.bin", ranges)
        assert [bytes(a) for a in answers] == [_DATA[offset : offset + length] for offset, length in ranges]
        assert store.get_ranges(f"{root}/a.bin", []) == []

    def test_bytes_of_another_version_are_an_error(self, store: Store, root: str) -> None:
        path = f"{root}/a.bin"
        self.put_raw(store, path, _DATA)
        before = store.head(path)
        assert [bytes(data) for data in store.get_ranges(path, [(3, 4), (0, 1)], before.version)] == [
            _DATA[3:7],
            _DATA[:1],
        ]
        [listed] = store.walk(root)
        assert [bytes(data) for data in store.get_ranges(path, [(3, 4)], listed.version)] == [_DATA[3:7]]
        self.put_raw(store, path, _DATA[::-1])
        after = store.head(path)
        with pytest.raises(CorruptShard) as caught:
            store.get_ranges(path, [(3, 4)], before.version)
        assert caught.value.file == path
        assert (before.version in str(caught.value.expected), after.version in str(caught.value.found)) == (True, True)
        assert [bytes(data) for data in store.get_ranges(path, [(3, 4)], after.version)] == [_DATA[::-1][3:7]]

    @pytest.mark.parametrize("bad", [(1279, 2), (1280, 1), (5000, 10), (0, 1 << 40), (-3, 2), (1, -1)])
    def test_a_range_past_the_end_is_never_shorter_data(self, store: Store, root: str, bad: tuple[int, int]) -> None:
        self.put_raw(store, f"{root}/a.bin", _DATA)
        with pytest.raises(ShortRead) as caught:
            store.get_ranges(f"{root}/a.bin", [(0, 4), bad])
        assert caught.value.file == f"{root}/a.bin"
        assert caught.value.offset == bad[0]

    def test_a_file_appears_when_its_sink_closes(self, store: Store, root: str) -> None:
        sink = store.put_stream(f"{root}/deep/er/a.bin")
        assert sink.path == f"{root}/deep/er/a.bin"
        sink.write([b"one", b"two"])
        sink.write([])
        sink.write([b"three"])
        assert sink.tell() == 11
        assert self.get_raw(store, sink.path) is None
        assert list(store.walk(root)) == []
        info = sink.close()
        assert (info.path, info.size_bytes) == (sink.path, 11)
        assert sink.tell() == 11
        assert self.get_raw(store, sink.path) == b"onetwothree"
        assert self.list_raw(store, root) == [sink.path]
        assert store.head(sink.path) == info

    def test_every_kind_of_buffer_is_written_whole(self, store: Store, root: str) -> None:
        words = memoryview(b"\x01\x02\x03\x04").cast("H")
        body = pa.array(["xyz"]).buffers()[2].slice(0, 3)
        sink = store.put_stream(f"{root}/a.bin")
        sink.write([b"bytes", b"", bytearray(b"array"), memoryview(b"view")[1:3], memoryview(b""), words, body])
        sink.close()
        assert self.get_raw(store, f"{root}/a.bin") == b"bytesarrayie\x01\x02\x03\x04xyz"

    def test_a_sink_keeps_no_buffer(self, store: Store, root: str) -> None:
        scratch = bytearray(b"first")
        sink = store.put_stream(f"{root}/a.bin")
        sink.write([scratch])
        scratch[:] = b"WRONG"
        sink.close()
        assert self.get_raw(store, f"{root}/a.bin") == b"first"

    def test_thousands_of_buffers_in_one_write(self, store: Store, root: str) -> None:
        parts = [b"%d," % number for number in range(5000)]
        sink = store.put_stream(f"{root}/a.bin")
        sink.write(parts)
        assert sink.close().size_bytes == sum(map(len, parts))
        assert self.get_raw(store, f"{root}/a.bin") == b"".join(parts)

    def test_an_empty_file(self, store: Store, root: str) -> None:
        assert store.put_stream(f"{root}/a.bin").close().size_bytes == 0
        assert self.get_raw(store, f"{root}/a.bin") == b""
        assert [bytes(b) for b in store.get_ranges(f"{root}/a.bin", [(0, 0)])] == [b""]
        assert [info.size_bytes for info in store.walk(root)] == [0]

    def test_a_new_file_replaces_the_old_one_at_the_end(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a.bin", b"old and longer")
        sink = store.put_stream(f"{root}/a.bin")
        sink.write([b"new"])
        assert self.get_raw(store, f"{root}/a.bin") == b"old and longer"
        sink.close()
        assert self.get_raw(store, f"{root}/a.bin") == b"new"

    def test_an_aborted_file_leaves_nothing(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/old.bin", b"old")
        for name in ("old.bin", "new.bin"):
            sink = store.put_stream(f"{root}/{name}")
            sink.write([_DATA])
            sink.abort()
            sink.abort()
            del sink
        assert self.list_raw(store, root) == [f"{root}/old.bin"]
        assert self.get_raw(store, f"{root}/old.bin") == b"old"

    def test_to_abort_after_closing_does_nothing(self, store: Store, root: str) -> None:
        sink = store.put_stream(f"{root}/a.bin")
        sink.write([b"kept"])
        sink.close()
        sink.abort()
        assert self.get_raw(store, f"{root}/a.bin") == b"kept"

    def test_nasty_names(self, store: Store, root: str) -> None:
        for name in _NAMES:
            sink = store.put_stream(f"{root}/{name}/{name}")
            sink.write([name.encode()])
            assert sink.close().path == f"{root}/{name}/{name}"
        assert [info.path for info in store.walk(root)] == sorted(f"{root}/{name}/{name}" for name in _NAMES)
        for name in _NAMES:
            assert self.get_raw(store, f"{root}/{name}/{name}") == name.encode()
            [data] = store.get_ranges(f"{root}/{name}/{name}", [(0, len(name.encode()))])
            assert bytes(data) == name.encode()
            store.delete(f"{root}/{name}")
        assert self.list_raw(store, root) == []

    def test_walking_goes_by_path_in_code_point_order(self, store: Store, root: str) -> None:
        names = ["a-b/x", "a/b/c", "a/b.c", "a.tar", "a/a", "B", "é", "z/0", "a0", "\U0001f600", "\uffee"]
        for name in names:
            self.put_raw(store, f"{root}/top/{name}", name.encode())
        self.put_raw(store, f"{root}/topmost", b"not below top")
        expected = [(f"{root}/top/{name}", len(name.encode())) for name in sorted(names)]
        for prefix in (f"{root}/top", f"{root}/top/"):
            assert [(info.path, info.size_bytes) for info in store.walk(prefix)] == expected

    def test_walking_gives_what_head_gives(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a/b", b"xyz")
        assert list(store.walk(root)) == [store.head(f"{root}/a/b")]

    def test_walking_where_no_folder_is_gives_nothing(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/file", b"x")
        assert list(store.walk(f"{root}/no")) == []
        assert list(store.walk(f"{root}/file")) == []

    def test_deleting(self, store: Store, root: str) -> None:
        for name in ("a", "ab", "folder/x", "folder/y/z", "folder2/x"):
            self.put_raw(store, f"{root}/{name}", b"x")
        store.delete(f"{root}/a")
        store.delete(f"{root}/folder")
        store.delete(f"{root}/never/there")
        assert self.list_raw(store, root) == [f"{root}/ab", f"{root}/folder2/x"]

    def test_publishing_a_file(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/new", b"new")
        self.put_raw(store, f"{root}/old", b"old")
        store.publish(f"{root}/new", f"{root}/old")
        store.publish(f"{root}/old", f"{root}/in/a/folder")
        assert self.list_raw(store, root) == [f"{root}/in/a/folder"]
        assert self.get_raw(store, f"{root}/in/a/folder") == b"new"

    def test_publishing_a_folder(self, store: Store, root: str) -> None:
        for name in ("shard-0", "_lading/manifest.json", "sub/shard-1"):
            self.put_raw(store, f"{root}/.staged/{name}", name.encode())
        store.publish(f"{root}/.staged", f"{root}/to/out")
        expected = ["_lading/manifest.json", "shard-0", "sub/shard-1"]
        assert self.list_raw(store, root) == [f"{root}/to/out/{name}" for name in expected]

    def test_publishing_a_folder_over_another(self, store: Store, root: str) -> None:
        for name in ("shard-0", "_lading/manifest.json"):
            self.put_raw(store, f"{root}/new/{name}", b"new")
        for name in ("shard-0", "shard-1", "sub/x", "_lading/manifest.json", "_lading/index"):
            self.put_raw(store, f"{root}/out/{name}", b"old")
        store.publish(f"{root}/new", f"{root}/out")
        assert self.list_raw(store, root) == [f"{root}/out/_lading/manifest.json", f"{root}/out/shard-0"]
        assert self.get_raw(store, f"{root}/out/shard-0") == b"new"

    def test_publishing_in_the_place_of_nothing_only(self, store: Store, root: str) -> None:
        for name in ("new/a", "out/b", "file"):
            self.put_raw(store, f"{root}/{name}", name.encode())
        for source in ("new", "new/a"):
            for target in ("out", "file"):
                with pytest.raises(DestinationExists, match=target):
                    store.publish(f"{root}/{source}", f"{root}/{target}", replace=False)
        assert self.list_raw(store, root) == [f"{root}/file", f"{root}/new/a", f"{root}/out/b"]
        assert self.get_raw(store, f"{root}/file") == b"file"
        store.publish(f"{root}/new", f"{root}/in/folder", replace=False)
        store.publish(f"{root}/file", f"{root}/in/file", replace=False)
        assert self.list_raw(store, root) == [f"{root}/in/file", f"{root}/in/folder/a", f"{root}/out/b"]

    def test_publishing_nothing(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/out", b"old")
        with pytest.raises(NotFound):
            store.publish(f"{root}/no", f"{root}/out")
        assert self.get_raw(store, f"{root}/out") == b"old"

    def test_a_mapped_file_holds_its_bytes(self, store: Store, root: str) -> None:
        if not isinstance(store, Mapper):
            pytest.skip("this store does not map files")
        self.put_raw(store, f"{root}/a.bin", _DATA * 20)
        self.put_raw(store, f"{root}/empty", b"")
        mapped, empty = store.map(f"{root}/a.bin"), store.map(f"{root}/empty")
        view = mapped.buffer.slice(100, 50)
        for start, stop in ((0, 10), (0, 25600), (5, 99999), (4096, 8192), (9000, 9000), (8192, 4096)):
            mapped.release(start, stop)
        mapped.check()
        empty.check()
        empty.release(0, 0)
        assert (mapped.size_bytes, empty.size_bytes) == (25600, 0)
        assert mapped.buffer.to_pybytes() == _DATA * 20
        assert mapped.read(200, 100) == (_DATA * 20)[200:300]
        assert list(mapped.read_each([5, 0, 25600], [300, 0, 0])) == [(_DATA * 20)[5:305], b"", b""]
        targets = [memoryview(bytearray(size)) for size in (3, 0, 500)]
        mapped.read_into(targets, 7)
        assert b"".join(targets) == (_DATA * 20)[7:510]
        assert empty.buffer.to_pybytes() == b""
        del mapped
        assert view.to_pybytes() == _DATA[100:150]
        with pytest.raises(NotFound):
            store.map(f"{root}/no")

    def test_threads_may_share_a_store(self, store: Store, root: str) -> None:
        def work(number: int) -> FileInfo:
            sink = store.put_stream(f"{root}/{number}")
            sink.write([bytes([number])] * 100)
            sink.close()
            assert [bytes(b) for b in store.get_ranges(f"{root}/{number}", [(99, 1)])] == [bytes([number])]
            return store.head(f"{root}/{number}")

        with ThreadPoolExecutor(8) as pool:
            assert sorted(i.path for i in pool.map(work, range(16))) == [info.path for info in store.walk(root)]
