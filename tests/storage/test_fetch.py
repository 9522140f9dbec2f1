"""References to bytes: from several stores in one batch, with errors tied to rows."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pytest

from cost import costs_at_most
from lading._core.arrow.byte_ranges import as_file
from lading._core.arrow.references import CODECS, FileEntry, files_of, make_refs, unpack, with_files
from lading._core.content.image import extract_frame
from lading._core.storage.base import Buffer, Store
from lading._core.storage.fetch import Fetcher, OnError, materialise
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.windows import results_in_windows
from lading._core.storage.wrappers import WrappedStore
from lading.errors import BadReference, CorruptShard
from lading.limits import Limits
from lading.testing import CountingStore

BODY = bytes(range(256)) * 40


def batch(rows: list[tuple[int, int, int] | None], files: list[FileEntry]) -> pa.RecordBatch:
    """A batch of references `(file, offset, length)`, with the columns that policies look at."""
    there = [row or (0, 0, 0) for row in rows]
    file, offset, length = (np.array(part, np.int64) for part in zip(*there, strict=True))
    refs = make_refs(offset, length, file=file.astype(np.int32), valid=np.array([r is not None for r in rows]))
    ids = [f"s{i // 2}" for i in range(len(rows))]
    columns = {"sample_id": pa.array(ids), "image": refs, "materialize_error": pa.nulls(len(rows), pa.string())}
    return pa.record_batch(list(columns.values()), schema=with_files(pa.schema(
        [pa.field(n, c.type) for n, c in columns.items()]), files))  # fmt: skip


def packed_batch(bodies: list[bytes | None], path: Path) -> pa.RecordBatch:
    """References to each of these as a gzip member of its own, in one file; two a sample."""
    members = [b"" if body is None else gzip.compress(body) for body in bodies]
    path.write_bytes(b"".join(members))
    lengths = np.array([len(member) for member in members])
    valid = np.array([body is not None for body in bodies])
    refs = make_refs(np.cumsum(lengths) - lengths, lengths, codec=CODECS.index("gzip"), valid=valid)
    plain = batch([None] * len(bodies), [FileEntry(str(path))])
    return plain.set_column(1, "image", refs)


@pytest.mark.parametrize("views", [False, True])
def test_what_ranges_unpack_to_is_given_in_parts_of_whole_samples(views: bool, tmp_path: Path) -> None:
    sizes = [100, 50_000, 10, 10, 30_000, 30_000, None, None, 200_000, 5, 7, None]
    bodies = [None if size is None else bytes([row]) * size for row, size in enumerate(sizes)]
    whole = packed_batch(bodies, tmp_path / "packed")
    with Fetcher() as fetcher:
        parts = list(fetcher.materialise_parts(whole, np.arange(0, 12, 2), 50_000, views=views))
        assert [len(part) for part in parts] == [2, 6, 2, 2]  # 50,100; 20, 60,000 and nulls; 200,005; the rest
        assert [value for part in parts for value in part.column("image").to_pylist()] == bodies
        assert pa.concat_batches([part.select(["sample_id"]) for part in parts]).equals(whole.select(["sample_id"]))
        assert [len(part) for part in fetcher.materialise_parts(whole, None, 1)] == [12]


def test_an_error_that_came_with_a_row_names_it_in_the_whole_batch(tmp_path: Path) -> None:
    whole = packed_batch([bytes([row]) * 50_000 for row in range(8)], tmp_path / "packed")
    whole = whole.set_column(2, "materialize_error", pa.array([None] * 7 + ["lost"]))
    with Fetcher() as fetcher, pytest.raises(BadReference, match="lost") as caught:
        list(fetcher.materialise_parts(whole, np.arange(0, 8, 2), 50_000))
    assert caught.value.row == 7


def test_policies_hold_in_each_part(tmp_path: Path) -> None:
    """Rows are told by their number in the part that they are of."""
    bodies: list[bytes | None] = [bytes([row]) * 50_000 for row in range(8)]
    whole = packed_batch(bodies, tmp_path / "packed")
    body = bytearray((tmp_path / "packed").read_bytes())
    at = int(unpack(whole["image"]).offset[5])
    body[at : at + 2] = b"no"
    (tmp_path / "packed").write_bytes(body)
    told: list[tuple[list[str], list[int]]] = []

    def note(part: pa.RecordBatch, errors: Mapping[int, str], _: int) -> None:
        told.append((part.column("sample_id").to_pylist(), list(errors)))

    def kept(on_error: OnError) -> list[bytes | None]:
        with Fetcher() as fetcher:
            parts = fetcher.materialise_parts(whole, np.arange(0, 8, 2), 80_000, None, on_error, on_failure=note)
            return [value for part in parts for value in part.column("image").to_pylist()]

    assert kept("warn") == [*bodies[:5], None, *bodies[6:]]
    assert kept("drop_row") == [*bodies[:5], *bodies[6:]]
    assert kept("drop_sample") == [*bodies[:4], *bodies[6:]]
    assert told == [(["s2", "s2", "s3", "s3"], [1])] * 3
    with pytest.raises(CorruptShard):
        kept("error")


@pytest.fixture
def places(tmp_path: Path) -> tuple[list[FileEntry], Stores]:
    (tmp_path / "a.bin").write_bytes(BODY)
    (tmp_path / "c.gz").write_bytes(gzip.compress(BODY))
    stores = Stores({"box://": MemoryStore({"box://b": BODY[::-1]})})
    files = [FileEntry(str(tmp_path / "a.bin")), FileEntry("box://b"), FileEntry(str(tmp_path / "c.gz"), "gzip")]
    return files, stores


def test_one_batch_over_several_stores(places: tuple[list[FileEntry], Stores]) -> None:
    files, stores = places
    rows = [(0, 5, 300), (1, 0, 3), None, (2, 100, 50), (0, 5, 300), (1, 10, 0), (2, 0, 10), (0, 0, -1)]
    got = materialise(batch(rows, files), stores=stores).column("image")
    flipped = BODY[::-1]
    assert got.type == pa.large_binary()
    assert got.to_pylist() == [BODY[5:305], flipped[:3], None, BODY[100:150], BODY[5:305], b"", BODY[:10], BODY]


def test_ranges_of_files_of_this_machine(tmp_path: Path) -> None:
    body = BODY * 5
    (tmp_path / "a.bin").write_bytes(body)
    (tmp_path / "b.bin").write_bytes(body[::-1])
    files = [FileEntry(str(tmp_path / name)) for name in ("a.bin", "b.bin")]
    with Fetcher() as fetcher:
        some = batch([(1, 5, 20_000), None, (0, 3, -1), (0, 0, 0)], files)
        for wanted in ([True] * 4, [False, True, True, True]):
            left = fetcher.pieces_to_read(some, {"image": np.array(wanted)})
            made = results_in_windows(left, {"image": bytes})["image"]
            assert made.to_pylist() == [body[::-1][5:20_005] if wanted[0] else None, None, body[3:], b""]
        found = fetcher.file_ranges(some)["image"]
        assert found.there.tolist() == found.in_file.tolist() == [True, False, True, True]
        there = found[found.there]
        assert [*zip(there.offset.tolist(), there.length.tolist(), strict=True)] == [
            (5, 20_000), (3, len(body) - 3), (0, 0)]  # fmt: skip
        assert found.length[1] == 0
        target = memoryview(bytearray(20_000))
        as_file(found.sources[found.source[0]]).read_into([target], 5)
        assert target == body[::-1][5:20_005]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("rows", [
    [(0, 0, 9000), (0, 100, 99_999)],  # past the end
    [(0, 0, 9000), (7, 0, 9000)],  # no such file in the table
    [(0, 0, 9000), (2, 0, 9000)],  # compressed
    [(0, 0, 9000), (3, 0, 9000)],  # not there
    [(0, 0, 10), (0, 10, 10)],  # small
])  # fmt: skip
def test_other_references_are_no_ranges(
    rows: list[tuple[int, int, int] | None], mmap: bool, places: tuple[list[FileEntry], Stores]
) -> None:
    files, stores = places
    with Fetcher(stores, mmap=mmap) as fetcher:
        other = batch(rows, [*files, FileEntry(f"{files[0].url}.gone")])
        assert fetcher.file_ranges(other) == {}
        assert fetcher.pieces_to_read(other, {"image": np.ones(len(rows), np.bool_)}) == {}
        none_left = fetcher.pieces_to_read(other, {"image": np.zeros(len(rows), np.bool_)})
        assert [pieces.there.tolist() for pieces in none_left.values()] == [[False] * len(rows)]


@pytest.mark.parametrize("most", [3, None])
def test_heads_of_several_files_in_the_order_of_rows(most: int | None, places: tuple[list[FileEntry], Stores]) -> None:
    files, stores = places
    rows = [(1, 0, 4), (0, 7, 300), None, (1, 9, 2), (0, 0, 1)]
    flipped = BODY[::-1]
    with Fetcher(stores) as fetcher:
        heads = fetcher.heads(batch(rows, files).column("image"), files, most)
        found = [None if head is None else bytes(head) for head in heads]
        assert found == [flipped[:4][:most], BODY[7:307][:most], None, flipped[9:11], BODY[:1]]
        assert list(fetcher.values(batch(rows, files).column("image"), files)) == [
            flipped[:4], BODY[7:307], None, flipped[9:11], BODY[:1]]  # fmt: skip


def test_heads_of_whole_files_ask_for_no_more(places: tuple[list[FileEntry], Stores]) -> None:
    """Of a file that a reference names without a range the size is known only when its store was asked."""
    counting = CountingStore(MemoryStore({f"box://{name}": BODY for name in "abc"}))
    files = [FileEntry("box://a"), FileEntry("box://b", size_bytes=len(BODY)), FileEntry("box://c")]
    rows = [(0, 0, -1), (1, 0, -1), (2, len(BODY) - 5, -1), (2, 7, 300), (0, len(BODY), -1), (1, len(BODY) + 1, -1)]
    with Fetcher(Stores({"box://": counting})) as fetcher:
        heads = fetcher.heads(batch(rows, files).column("image"), files, 16)
        assert [None if head is None else bytes(head) for head in heads] == [
            BODY[:16], BODY[:16], BODY[-5:], BODY[7:23], b"", None]  # fmt: skip
        asked = [each for ranges in counting.ranges.values() for each in ranges]
        assert sum(stop - start for start, stop in asked) < 1_000
        [whole] = fetcher.heads(batch([(0, 3, -1)], files).column("image"), files, None)
        assert whole == BODY[3:]


@pytest.mark.soak
@pytest.mark.parametrize("most", [16, None])
def test_heads_of_packed_ranges_are_unpacked_a_few_at_a_time(most: int | None, tmp_path: Path) -> None:
    """However many there are: each has the limit for itself, and they are not in memory together."""
    bodies = [None if row == 5 else bytes([row]) * (4 << 20) for row in range(40)]
    whole = packed_batch(bodies, tmp_path / "packed")
    with Fetcher(limits=Limits(sample_bytes=4 << 20)) as fetcher:
        tracemalloc.start()
        heads = fetcher.heads(whole.column("image"), files_of(whole.schema), most)
        assert [None if head is None else (len(head), head[0]) for head in heads] == [
            None if row == 5 else (most or 4 << 20, row) for row in range(40)]  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 80 << 20


def test_values_of_samples_have_the_limit_of_each(tmp_path: Path) -> None:
    whole = packed_batch([bytes(30_000)] * 6, tmp_path / "packed")
    column, files = whole.column("image"), files_of(whole.schema)
    with Fetcher(limits=Limits(sample_bytes=60_000)) as fetcher:
        assert fetcher.fetch(column, files)[1] == {}
        assert fetcher.fetch(column, files, np.array([0, 2, 4]))[1] == {}
        found, errors = fetcher.fetch(column, files, np.array([0, 3]))
    assert list(errors) == [2, 5]
    assert [value is None for value in found.to_pylist()] == [False, False, True] * 2


def test_identical_ranges_are_read_once_and_neighbours_together() -> None:
    counting = CountingStore(MemoryStore({"box://b": BODY}))
    rows = [(0, 0, 10), (0, 0, 10), (0, 10, 10), (0, 25, 5)]
    got = materialise(batch(rows, [FileEntry("box://b")]), stores=Stores({"box://": counting}))
    assert got.column("image").to_pylist() == [BODY[:10], BODY[:10], BODY[10:20], BODY[25:30]]
    assert counting.ranges["box://b"] == [(0, 30)]


@pytest.mark.parametrize("between, requests, part", [([48], 3, 1), ([48, 200], 200, 0.01), ([20, 200], 100, 0.2)])
def test_ranges_of_a_far_store_are_read_together_where_that_saves_many_requests(
    between: list[int], requests: int, part: float
) -> None:
    """Gaps of 32 KB are read at any rate, of up to 64 KB only where few requests are left; 8 MB are one request."""
    at = np.cumsum([0, *((between * 200)[:199])]) << 10
    body = bytes(int(at[-1]) + 100)
    far = CountingStore(MemoryStore({"box://b": body}))
    far.request_bytes = 1 << 20
    rows = [(0, int(offset), 100) for offset in at]
    got = materialise(batch(rows, [FileEntry("box://b")]), stores=Stores({"box://": far}))
    assert got.column("image").to_pylist() == [bytes(100)] * 200
    assert abs(far.requests["get_ranges"] - requests) <= 1
    assert far.bytes_read <= part * len(body) + 200 * 100


class Distant(WrappedStore):
    """A store that answers no one before three have asked."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.request_bytes = 1 << 20
        self._together = Barrier(3, timeout=30)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        self._together.wait()
        return self.inner.get_ranges(path, ranges, version)


def test_files_of_a_far_store_are_asked_for_at_once() -> None:
    store = Distant(MemoryStore({f"box://{i}": BODY[i:] for i in range(3)}))
    files = [FileEntry(f"box://{i}", size_bytes=len(BODY) - i) for i in range(3)]
    got = materialise(batch([(2, 0, 4), (0, 0, 4), (1, 9, 4)], files), stores=Stores({"box://": store}))
    assert got.column("image").to_pylist() == [BODY[2:6], BODY[:4], BODY[10:14]]


@pytest.mark.parametrize("mmap", [True, False])
def test_a_range_outside_its_file_is_an_error_of_its_row(mmap: bool, places: tuple[list[FileEntry], Stores]) -> None:
    files, stores = places
    for bad in ((0, len(BODY), 1), (0, -1, 5), (0, 3, 1 << 60), (2, len(BODY), 1), (9, 0, 1)):
        with Fetcher(stores, mmap=mmap) as fetcher, pytest.raises(BadReference) as caught:
            fetcher.materialise(batch([(0, 0, 1), bad], files))
        assert caught.value.column == "image"


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("entry", [FileEntry("gone.bin"), FileEntry("gone.gz", "gzip"), FileEntry("box://gone")])
def test_a_reference_to_a_file_that_is_not_there(
    entry: FileEntry, mmap: bool, places: tuple[list[FileEntry], Stores]
) -> None:
    files, stores = places
    with Fetcher(stores, mmap=mmap) as fetcher, pytest.raises(BadReference, match=r"gone.*names no file") as caught:
        fetcher.materialise(batch([(0, 0, 1), (3, 0, 1)], [*files, entry]))
    assert caught.value.column == "image"


@pytest.mark.parametrize("policy, left", [("warn", 4), ("drop_row", 3), ("drop_sample", 2)])
def test_policies(policy: OnError, left: int, places: tuple[list[FileEntry], Stores]) -> None:
    files, stores = places
    rows = [(0, 0, 3), (1, 99_999_999, 1), (2, 0, 3), (0, 3, 3)]
    with Fetcher(stores) as fetcher:
        if policy == "warn":
            with pytest.warns(UserWarning, match="1 row has no bytes"):
                got = fetcher.materialise(batch(rows, files), on_error=policy)
            assert got.column("image").to_pylist()[1] is None
            assert "past the end" in got.column("materialize_error")[1].as_py()
        else:
            got = fetcher.materialise(batch(rows, files), on_error=policy)
            assert None not in got.column("image").to_pylist()
        assert got.num_rows == left


def test_errors_that_are_written_down_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    (tmp_path / "a.tiff").write_bytes(b"II*\0" + b"\xff" * 20)
    refs = make_refs(np.zeros(3, np.int64), np.full(3, 24), frame=np.zeros(3, np.int32))
    given = batch([None] * 3, [FileEntry(str(tmp_path / "a.tiff"))]).set_column(1, "image", refs)
    with Fetcher() as fetcher, pytest.warns(UserWarning, match="rows? ha(s|ve) no bytes"):
        parts = [fetcher.materialise(part, on_error="warn") for part in (given, given.slice(2))]
    told = [text for part in parts for text in part.column("materialize_error").to_pylist()]
    assert len(told) == 4
    assert len({*told}) == 1


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_that_was_cut_since_it_was_listed_loses_its_rows_alone(mapped: bool) -> None:
    stores = Stores({"box://": WrappedStore(MemoryStore({"box://a": b"0123456789", "box://b": b"abc"}), mapped=mapped)})
    given = batch([(0, 0, 5), (0, 15, 5), (0, 8, 4), (1, 0, 3)], [FileEntry("box://a", "", 20), FileEntry("box://b")])
    with Fetcher(stores) as fetcher:
        with pytest.raises(BadReference, match="past the end"):
            fetcher.materialise(given)
        got = fetcher.materialise(given, on_error="drop_row")
    assert got.column("image").to_pylist() == [b"01234", b"abc"]


def test_errors_that_came_with_the_rows_count_too(places: tuple[list[FileEntry], Stores]) -> None:
    files, stores = places
    given = batch([(0, 0, 3), (0, 3, 3)], files)
    given = given.set_column(2, "materialize_error", pa.array([None, "lost upstream"]))
    with Fetcher(stores) as fetcher:
        with pytest.raises(BadReference, match="lost upstream"):
            fetcher.materialise(given)
        assert fetcher.materialise(given, on_error="drop_row").num_rows == 1


@pytest.mark.soak
def test_compressed_files_read_before_are_let_go() -> None:
    size = 16 << 20
    box = MemoryStore({f"box://{i}": gzip.compress(bytes(size), 1) for i in range(6)})
    tracemalloc.start()
    try:
        with Fetcher(Stores({"box://": box})) as fetcher:
            for i in range(6):
                one = batch([(0, size - 10, 10)], [FileEntry(f"box://{i}", "gzip")])
                assert fetcher.materialise(one).column("image").to_pylist() == [bytes(10)]
            assert tracemalloc.get_traced_memory()[0] < 3 * size
    finally:
        tracemalloc.stop()


def test_a_file_cut_while_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY)
    given = batch([(0, 0, 5000)], [FileEntry(str(path))])
    with Fetcher() as fetcher:
        fetcher.materialise(given)
        path.write_bytes(BODY[:100])
        with pytest.raises(CorruptShard, match="changed"):
            fetcher.materialise(given)
    with Fetcher(mmap=False) as fetcher, pytest.raises(BadReference):
        fetcher.materialise(given)


def test_released_pages_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY * 100)
    rows = [(0, i * 5000, 5000) for i in range(200)]
    with Fetcher(Stores({"": LocalStore()})) as fetcher:
        views = fetcher.materialise(batch(rows, [FileEntry(str(path))]), views=True)
        assert pa.types.is_binary_view(views.column("image").type)
        before = views.column("image").to_pylist()
        fetcher.release()
        assert views.column("image").to_pylist() == before


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_items_that_lack_their_bytes_are_found_by_modalities_of_any_type_of_text(kind: pa.DataType) -> None:
    modality = pa.array(["text", "image", "image"]).cast(kind)
    items = pa.record_batch({"modality": modality, "binary_content": pa.array([None, None, b"x"], pa.binary())})
    with Fetcher() as fetcher:
        found = fetcher.materialise(items, on_error="drop_row")
    assert found.column("binary_content").to_pylist() == [None, b"x"]


def tiff_of_tiny_pages(count: int) -> bytes:
    """A TIFF whose pages are a grey pixel each, by TIFF 6.0: a header, directories of four entries, the pixels."""
    size = 2 + 4 * 12 + 4
    pixels = 8 + count * size
    pages = [
        struct.pack("<H", 4)
        + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in
                   ((256, 1), (257, 1), (273, pixels + page), (279, 1)))
        + struct.pack("<I", 8 + (page + 1) * size if page + 1 < count else 0)
        for page in range(count)
    ]  # fmt: skip
    return b"".join([b"II*\0", struct.pack("<I", 8), *pages, bytes(page % 256 for page in range(count))])


def frames_of(path: Path, count: int, pages: int) -> pa.RecordBatch:
    """References to so many frames of a TIFF with so many pages."""
    path.write_bytes(tiff_of_tiny_pages(pages))
    whole = np.zeros(count, np.int64)
    refs = make_refs(whole, whole + path.stat().st_size, frame=np.arange(count, dtype=np.int32) % pages)
    return batch([None] * count, [FileEntry(str(path))]).set_column(1, "image", refs)


def test_frames_of_one_file_are_those_that_each_is_by_itself(tmp_path: Path) -> None:
    wanted = frames_of(tmp_path / "a.tiff", 6, 3)
    data = (tmp_path / "a.tiff").read_bytes()
    with Fetcher() as fetcher:
        found = fetcher.materialise(wanted).column("image").to_pylist()
    assert found == [extract_frame(data, page) for page in (0, 1, 2, 0, 1, 2)]
    assert len({*found}) == 3


@pytest.mark.soak
def test_a_frame_costs_no_more_in_a_file_of_many(tmp_path: Path) -> None:
    many, few = frames_of(tmp_path / "many.tiff", 1500, 1500), frames_of(tmp_path / "few.tiff", 1500, 2)
    with Fetcher() as fetcher:
        assert costs_at_most(3, lambda: fetcher.materialise(many), lambda: fetcher.materialise(few))


@pytest.mark.soak
def test_what_is_wrong_with_a_file_of_frames_is_found_once_and_told_of_each(tmp_path: Path) -> None:
    broken, few = frames_of(tmp_path / "broken.tiff", 1500, 1500), frames_of(tmp_path / "few.tiff", 1500, 2)
    body = bytearray((tmp_path / "broken.tiff").read_bytes())
    last = 8 + 1500 * 54 - 4
    body[last : last + 4] = b"\xff" * 4
    (tmp_path / "broken.tiff").write_bytes(body)
    told: list[list[int]] = []
    with Fetcher() as fetcher:

        def read() -> None:
            fetcher.materialise(broken, on_error="warn", on_failure=lambda _, errors, __: told.append(list(errors)))

        assert costs_at_most(3, read, lambda: fetcher.materialise(few))
    assert told == [list(range(1500))]
