"""Reading WebDataset tars: the peers' own shards, damaged ones, and the rules one by one."""

from __future__ import annotations

import gzip
import io
import os
import select
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise, permutations
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from golden_cases import Golden, View, case_names, load_spec, load_views
from golden_compare import compare_samples
from hostile import Judge
from lading._core.arrow.references import is_ref
from lading._core.features.types import Image, Json, feature_of
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.webdataset import walk as walks
from lading._core.formats.webdataset.format import FORMAT, WebdatasetReader
from lading._core.formats.webdataset.samples import MemberRows, join_rows, split_name, split_names
from lading._core.storage.base import Buffer, Store
from lading._core.storage.fetch import Fetcher
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.recent import RecentBytes
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import (
    CorruptShard,
    DataError,
    DuplicateField,
    LadingError,
    LimitExceeded,
    SidecarMismatch,
    StoreError,
    Unrepresentable,
    UsageError,
)
from lading.limits import DEFAULT_LIMITS, Limits
from tars import energon_index, tar_of

ALL = 1 << 40
WAYS = ("batches", "ranges", "read", "one by one")


def open_tar(
    path: str, store: Store | None = None, limits: Limits = DEFAULT_LIMITS, **options: Any
) -> WebdatasetReader:
    return FORMAT.open(ShardFile(store or LocalStore(), path, limits=limits), FORMAT.read_options(options))


def in_memory(data: bytes, path: str = "t.tar", **options: Any) -> WebdatasetReader:
    return open_tar(path, MemoryStore({path: data}), **options)


def without_nulls(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]


def samples(reader: WebdatasetReader, data: bytes, **limits: int) -> list[dict[str, Any]]:
    """Samples with their values, references looked up in these bytes."""
    found: list[dict[str, Any]] = []
    for batch in reader.batches(Scan(max_rows=limits.get("max_rows", 3), max_bytes=limits.get("max_bytes", ALL))):
        found += [{name: _value(v, data) for name, v in row.items()} for row in without_nulls(batch)]
    return found


def _value(value: Any, data: bytes) -> Any:
    return data[value["offset"] : value["offset"] + value["length"]] if isinstance(value, dict) else value


# The peers' shards


def read_way(path: str, way: str) -> Iterator[pa.RecordBatch]:
    reader = open_tar(path, mmap=way != "ranges")
    count = reader.num_rows()
    if way == "read":
        yield from reader.read().to_batches()
    elif way == "one by one":
        for row in range(count):
            yield from reader.read(np.array([row])).to_batches()
    else:
        yield from reader.batches(Scan(max_rows=2, max_bytes=5000))


def read_view(folder: Path, opened: Mapping[str, Any], way: str) -> Iterator[dict[str, Any]]:
    if "index" in opened:
        index = str(folder / opened["index"])
        listed = FORMAT.index.shards(LocalStore(), index, Path(index).read_bytes()[:1024])
        if listed is None:
            raise DataError("not an index", file=index)
        paths = [shard.path for shard in listed]
    else:
        paths = [str(folder / name) for name in opened["shards"]]
    with Fetcher() as fetcher:
        for path in paths:
            for batch in read_way(path, way):
                yield from without_nulls(fetcher.materialise(batch))


@pytest.mark.filterwarnings("ignore:.* members of a sample do not stand together")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", case_names("wds"))
def test_golden(golden: Golden, case: str, way: str) -> None:
    views: list[View] = load_views(golden("wds") / case)
    for view in views:
        assert compare_samples(view.samples, read_view(view.folder, view.open, way)) == []


def test_golden_duplicate_names_what_it_met(golden: Golden) -> None:
    folder = golden("wds") / "duplicate-keys"
    spec = load_spec(folder)
    reader = open_tar(str(folder / "d.tar"))
    with pytest.raises(DuplicateField) as caught:
        list(reader.batches(Scan(max_rows=1, max_bytes=ALL)))
    assert all(text in str(caught.value) for text in (*spec["error_names_any"], *spec["error_should_mention"]))
    assert (caught.value.offset, caught.value.sample, caught.value.column) == (3584, "b", "txt")


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything of one hostile case, every way."""
    opened = spec["open"]
    streamed = any(name.endswith(".gz") for name in opened.get("shards", ()))
    return chain.from_iterable(read_view(folder, opened, way) for way in (WAYS[::2] if streamed else WAYS))


CHECKED_ABOVE = ("wids-filesize", "wids-md5", "wids-nsamples")
"""Sizes, digests and counts of an index are compared by whoever opens the dataset."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.mark.mechanism("hostile files, read by a watched process")
@pytest.mark.cases(16)
@pytest.mark.parametrize("case", [case for case in case_names("hostile-wds") if case not in CHECKED_ABOVE])
def test_hostile(golden: Golden, judge: Judge, case: str) -> None:
    assert judge(golden("hostile-wds") / case) == []


# Names


@given(
    st.lists(
        st.one_of(
            st.text(st.sampled_from("ab./_\né"), min_size=1, max_size=12),
            st.sampled_from(
                ["__a__", "__a.b__", "__a__/b.c", "__a__b.c", "__index__.json", "d/.h", "d.e/.h", "a.", ".h"]
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_many_names_are_split_as_one_is(names: list[str]) -> None:
    raw = [name.encode() for name in names]
    width = max(map(len, raw)) + 7 & ~7
    matrix = np.frombuffer(b"".join(name.ljust(width, b"\0") for name in raw), np.uint8).reshape(-1, width)
    for name, dot in zip(raw, split_names(matrix).tolist(), strict=True):
        expected = split_name(name)
        assert (None if dot < 0 else (name[:dot], name[dot + 1 :])) == expected


def test_fields_are_in_lower_case_unless_told_otherwise() -> None:
    data = tar_of(("a.JPG", b"1"), ("a.Seg.PNG", b"2"))
    assert samples(in_memory(data), data) == [{"__key__": "a", "jpg": b"1", "seg.png": b"2"}]
    assert samples(in_memory(data, lower_case=False), data) == [{"__key__": "a", "JPG": b"1", "Seg.PNG": b"2"}]


def test_fields_know_what_they_are() -> None:
    data = tar_of(("a.jpg", b"1"), ("a.json", b"{}"))
    schema = in_memory(data).schema()
    assert isinstance(feature_of(schema.field("jpg")), Image)
    assert isinstance(feature_of(schema.field("json")), Json)
    assert next(iter(in_memory(data).batches(Scan(max_rows=1, max_bytes=1)))).schema.equals(schema, check_metadata=True)


def test_what_is_no_sample_is_counted() -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("README", b"0"), ("__meta__", b"0"), ("a.x", b"0"), ("b.x", b"2")):
            info = tarfile.TarInfo(name)
            info.type = kind
            tar.addfile(info)
    reader = in_memory(body.getvalue())
    assert samples(reader, body.getvalue()) == [{"__key__": "a", "x": b""}]
    assert reader.counts == {
        "members skipped: not a regular file": 2,
        "members skipped: no field in the name": 1,
        "members skipped: named __…__": 1,
    }


def test_a_name_that_is_not_utf8() -> None:
    data = tar_of(("ok.x", b"1"), ("caf\udce9.x", b"2"))
    with pytest.raises(CorruptShard, match="UTF-8") as caught:
        in_memory(data).index()
    assert caught.value.offset == 1024
    assert "caf" in str(caught.value)
    field = tar_of(("ok.x", b"1"), ("a.\udce9", b"2"))
    with pytest.raises(CorruptShard, match="UTF-8"):
        in_memory(field).index()


def test_a_field_with_the_name_of_the_key() -> None:
    with pytest.raises(DuplicateField, match="__key__") as caught:
        in_memory(tar_of(("a.x", b""), ("b.__key__", b""))).index()
    assert caught.value.sample == "b"


@pytest.mark.soak
def test_too_many_fields() -> None:
    data = tar_of(*((f"a.{i}", b"") for i in range(10_001)))
    with pytest.raises(LimitExceeded, match="at most 10000"):
        in_memory(data).num_rows()


@pytest.mark.soak
def test_fields_that_differ_from_sample_to_sample() -> None:
    """No table of all rows and all fields is made where it would be nearly empty; batches are smaller instead."""
    data = tar_of(*((f"k{i}.f{i}", b"%d" % i) for i in range(5000)))
    reader = in_memory(data)
    with pytest.raises(LimitExceeded, match="differ too much"):
        reader.index()
    batches = list(reader.batches(Scan(max_rows=1 << 20, max_bytes=ALL)))
    assert sum(batch.num_rows for batch in batches) == 5000
    assert max(batch.num_rows * batch.num_columns for batch in batches) < 1 << 23


# Samples


def test_duplicates_can_be_dropped() -> None:
    data = tar_of(("a.x", b"1"), ("a.X", b"22"), ("a.y", b"3"), ("a.x", b"444"), ("b.x", b"5"))
    for policy, kept in (("keep_first", b"1"), ("keep_last", b"444")):
        reader = in_memory(data, on_duplicate=policy)
        assert samples(reader, data) == [{"__key__": "a", "x": kept, "y": b"3"}, {"__key__": "b", "x": b"5"}]
        assert reader.counts["members dropped as duplicates"] == 2
        assert reader.index().num_rows == 2


def test_keys_that_come_back() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3"), ("b.y", b"4"), ("c.x", b"5"))
    reader = in_memory(data)
    with pytest.warns(UserWarning, match=r"do not stand together.*regroup=True \(--regroup\) joins them"):
        assert [row["__key__"] for row in samples(reader, data)] == ["a", "b", "a", "b", "c"]
    assert reader.counts["samples whose key came before, not adjacent"] == 2
    joined = in_memory(data, regroup=True)
    assert samples(joined, data) == [
        {"__key__": "a", "x": b"1", "y": b"3"},
        {"__key__": "b", "x": b"2", "y": b"4"},
        {"__key__": "c", "x": b"5"},
    ]
    assert joined.num_rows() == joined.index().num_rows == 3
    assert in_memory(tar_of(), regroup=True).read().num_rows == 0


def test_keys_that_come_back_with_the_same_field() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"), ("a.x", b"3"))
    with pytest.raises(DuplicateField):
        in_memory(data, regroup=True).index()


@pytest.mark.soak
def test_batches_never_cut_a_sample() -> None:
    data = tar_of(*((f"{i:04d}.{ext}", bytes(i)) for i in range(600) for ext in ("a", "b", "c")))
    whole = samples(in_memory(data), data, max_rows=ALL)
    assert len(whole) == 600
    for limits in ({"max_rows": 1}, {"max_rows": 7}, {"max_bytes": 1}, {"max_bytes": 5000, "max_rows": 100}):
        assert samples(in_memory(data), data, **limits) == whole
        assert samples(in_memory(data, mmap=False), data, **limits) == whole


def test_columns_that_are_not_there_come_as_nulls() -> None:
    data = tar_of(("a.x", b"1"), ("b.y", b"2"))
    reader = in_memory(data)
    found = list(reader.batches(Scan(["y", "__key__", "z"], max_rows=1, max_bytes=ALL)))
    assert [batch.schema.names for batch in found] == [["__key__", "y", "z"]] * 2
    assert [batch.column("y").null_count for batch in found] == [1, 0]
    assert reader.read(np.array([1]), Scan(["z"])).column("z").null_count == 1


def test_only_payload_that_is_asked_for_counts() -> None:
    data = tar_of(*((f"{i}.{ext}", bytes(1000)) for i in range(10) for ext in ("big", "txt")))
    batches = list(in_memory(data).batches(Scan(["txt"], max_rows=100, max_bytes=4000)))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]


# Ends


def test_a_tar_that_just_stops_is_told_of() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"))
    for cut, closed in ((len(data), True), (2560, True), (2048, False)):
        reader = in_memory(data[:cut])
        assert len(samples(reader, data)) == 2
        assert (reader.counts["tars without an end, perhaps cut between two members"] == 1) is not closed


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_members_behind_a_lone_block_of_zeros_are_told_of(wrap: Callable[[bytes], bytes]) -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"), ("c.x", b"3"))
    for body, told in ((data[:1024] + bytes(512) + data[1536:], 1), (data, 0), (data + data, 0)):
        reader = in_memory(wrap(body))
        for walk in (lambda r: list(r.batches(Scan(max_rows=9, max_bytes=ALL))), lambda r: list(r.members())):
            walk(reader)
            assert reader.counts["tars that end with a lone block of zeros, with more behind it"] == told


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
@pytest.mark.parametrize("policy", ["read", "error"])
def test_a_lone_block_of_zeros_is_an_error_where_all_members_are_wanted(
    wrap: Callable[[bytes], bytes], policy: str
) -> None:
    """GNU tar with --ignore-zeros ends with an error here too: the bytes behind the block are no header."""
    data = tar_of(("a.x", b"1"), ("b.x", b"2"), ("c.x", b"3"))
    body = wrap(data[:1024] + bytes(512) + data[1536:])
    reader = in_memory(body, on_concatenated=policy)
    with pytest.raises(CorruptShard, match="a lone block of zeros ends the tar") as caught:
        list(reader.batches(Scan(max_rows=9, max_bytes=ALL)))
    assert (caught.value.offset, "salvage" in str(caught.value.advice)) == (1024, True)


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_cut_at_every_block(wrap: Callable[[bytes], bytes]) -> None:
    """Where a cut does not show (between two members), the samples before it are all there."""
    data = tar_of(("a.x", b"1"), ("a.y", bytes(600)), ("b.x", bytes(1500)), ("c.x", b""))
    expected = samples(in_memory(data), data)
    for cut in range(0, 6 * 1024, 512):
        reader = in_memory(wrap(data[:cut]))
        if cut not in (1024, 2560, 4608, 5120, 5632):
            with pytest.raises(CorruptShard, match=r"t\.tar"):
                samples(reader, data)
            continue
        found = samples(reader, data)
        last = {name: value for name, value in expected[len(found) - 1].items() if name in found[-1]}
        assert found == [*expected[: len(found) - 1], last]


@pytest.mark.soak
def test_a_file_cut_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*((f"{i:04d}.x", bytes(3000)) for i in range(3000))))
    for mmap in (True, False):
        reader = open_tar(str(path), mmap=mmap)
        batches = reader.batches(Scan(max_rows=10, max_bytes=ALL))
        next(batches)
        with path.open("rb+") as file:
            file.truncate(100_000)
        with pytest.raises(LadingError, match=r"t\.tar"):
            list(batches)
        path.write_bytes(tar_of(*((f"{i:04d}.x", bytes(3000)) for i in range(3000))))


# Compressed tars


def compressed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


@pytest.mark.soak
def test_compressed_values_in_windows_of_any_size() -> None:
    rng = np.random.default_rng(0)
    members = [(f"{i:04d}.{ext}", rng.bytes(int(rng.integers(0, 30_000)))) for i in range(200) for ext in ("a", "b")]
    data = tar_of(*members, ("9999.big", rng.bytes(4 << 20)))
    expected = samples(in_memory(data), data)
    for max_bytes in (1, 100_000, 1 << 21, ALL):
        assert samples(in_memory(compressed(data)), b"", max_rows=64, max_bytes=max_bytes) == expected


@pytest.mark.soak
def test_what_follows_the_end_of_a_compressed_archive() -> None:
    data = tar_of(("a.x", b"1"))
    assert len(samples(in_memory(compressed(data + bytes(10 << 20))), b"")) == 1
    with pytest.raises(LimitExceeded, match="behind the end"):
        samples(in_memory(compressed(data + bytes(70 << 20))), b"")


def test_a_member_too_large_to_hold() -> None:
    data = compressed(tar_of(("a.x", b"1"), ("b.x", bytes(3 << 20))))
    reader = in_memory(data, limits=Limits(tar_member_bytes=2 << 20))
    assert reader.index().num_rows == 2
    with pytest.raises(LimitExceeded, match="too large") as caught:
        list(reader.batches(Scan(max_rows=1, max_bytes=ALL)))
    assert caught.value.offset == 1024


def test_a_sample_too_large_to_hold() -> None:
    """Else a bomb of one key would be held until its end."""
    data = compressed(tar_of(*(("a.x", bytes(1 << 20)) for _ in range(40))))
    reader = in_memory(data, limits=Limits(tar_member_bytes=12 << 20), on_duplicate="keep_first")
    with pytest.raises(LimitExceeded, match="sample of a compressed tar"):
        list(reader.batches(Scan(max_rows=1, max_bytes=ALL)))


def test_the_end_of_a_cut_stream_is_seen_by_its_index() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", bytes(5000)))
    for cut in (1100, 1536, 5000):
        with pytest.raises(CorruptShard, match=r"t\.tar"):
            in_memory(compressed(data[:cut])).index()


def test_a_compressed_index_refers_to_the_stream() -> None:
    data = tar_of(("a.x", b"one"), ("b.x", b"two"))
    store = MemoryStore({"t.tar.gz": compressed(data)})
    reader = open_tar("t.tar.gz", store)
    assert reader.files[0].wrap == "gzip"
    table = reader.read(np.array([1, 0]))
    with Fetcher(Stores({"": store})) as fetcher:
        rows = [row for batch in table.to_batches() for row in fetcher.materialise(batch).column("x").to_pylist()]
    assert rows == [b"two", b"one"]


# Sparse members


@pytest.mark.mechanism("holes by GNU tar")
@pytest.mark.parametrize(
    "way", [["gnu"], ["posix", "--sparse-version=0.0"], ["posix", "--sparse-version=0.1"], ["posix"]]
)
def test_files_with_holes(tmp_path: Path, way: list[str]) -> None:
    body = bytearray(3_000_000)
    for at in range(0, len(body), 300_000):
        body[at : at + 5] = b"%05d" % (at // 1000)
    (tmp_path / "b.bin").write_bytes(b"plain")
    with (tmp_path / "c.bin").open("wb") as file:
        for at in range(0, len(body), 300_000):
            file.seek(at)
            file.write(body[at : at + 5])
        file.truncate(len(body))
    (tmp_path / "c.txt").write_bytes(b"text")
    command = ["tar", "-S", f"--format={way[0]}", *way[1:], "-cf", "t.tar", "b.bin", "c.bin", "c.txt"]
    subprocess.run(command, cwd=tmp_path, check=True)
    path = str(tmp_path / "t.tar")
    assert Path(path).stat().st_size < 1_000_000
    for reader in (open_tar(path), open_tar(path, mmap=False)):
        [batch] = reader.batches(Scan(max_rows=10, max_bytes=ALL))
        assert (batch.schema.field("bin").type, is_ref(batch.schema.field("txt").type)) == (pa.large_binary(), True)
        assert batch.column("bin").to_pylist() == [b"plain", bytes(body)]
        with pytest.raises(Unrepresentable, match="sparse"):
            reader.index()
        [members] = reader.members()
        assert members.sparse.tolist() == [False, True, False]
    packed = in_memory(compressed(Path(path).read_bytes()))
    assert [row["bin"] for row in samples(packed, b"")] == [b"plain", bytes(body)]


@pytest.mark.soak
@pytest.mark.parametrize("way", ["gnu", "posix"])
def test_a_file_that_ends_with_a_hole_is_taken_from_its_tar(tmp_path: Path, way: str) -> None:
    with (tmp_path / "c.bin").open("wb") as file:
        file.seek(5 << 20)
        file.write(b"abc")
        file.truncate(9 << 20)
    (tmp_path / "c.json").write_text("{}")
    subprocess.run(["tar", "-S", f"--format={way}", "-cf", "t.tar", "c.bin", "c.json"], cwd=tmp_path, check=True)
    whole = (tmp_path / "c.bin").read_bytes()
    lading.convert(tmp_path / "t.tar", tmp_path / "out", format="parquet")
    for place in ("t.tar", "out"):
        with lading.open(tmp_path / place) as dataset:
            assert dataset.view == "samples"
            assert [row["bin"] for row in dataset] == [whole]
    with lading.open(tmp_path / "t.tar", view="interleaved") as dataset, pytest.raises(Unrepresentable, match="sparse"):
        len(dataset)


@pytest.mark.soak
def test_holes_without_end(tmp_path: Path) -> None:
    (tmp_path / "c.bin").touch()
    with (tmp_path / "c.bin").open("wb") as file:
        file.truncate(1 << 40)
        file.write(b"x")
    subprocess.run(["tar", "-S", "-cf", "t.tar", "c.bin"], cwd=tmp_path, check=True)
    with pytest.raises(LimitExceeded, match="sparse member is too large"):
        list(open_tar(str(tmp_path / "t.tar")).batches(Scan(max_rows=1, max_bytes=ALL)))


def with_holes(name: str, size_bytes: object, body: bytes) -> bytes:
    """A member in GNU's sparse format 1.0 (GNU tar manual, "Storing Sparse Files"); the body begins with the map."""
    info = tarfile.TarInfo(name)
    info.size = len(body)
    told = {"major": "1", "minor": "0", "name": name, "realsize": f"{size_bytes}"}
    info.pax_headers = {f"GNU.sparse.{key}": value for key, value in told.items()}
    return info.tobuf(tarfile.PAX_FORMAT) + body + bytes(-len(body) % 512)


MILLION = 1_000_000
ONE_PART = b"1\n0\n5\n".ljust(512, b"\0") + b"12345"
"""The map of a file with five bytes and a hole behind them, and these bytes."""
MILLION_BYTES = b"12345" + bytes(MILLION - 5)
END = bytes(1024)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_holes_count_as_what_they_fill_in_a_batch(pack: Callable[[bytes], bytes]) -> None:
    members = [with_holes(f"{i}.bin", MILLION, ONE_PART) + tar_of((f"{i}.txt", b"text"))[:1024] for i in range(5)]
    store = MemoryStore(
        {"t.tar": pack(b"".join([*members[:2], tar_of(("x.txt", b"alone"))[:1024], *members[2:]]) + END)}
    )
    batches = list(open_tar("t.tar", store).batches(Scan(max_rows=10, max_bytes=MILLION * 5 // 2)))
    assert [len(batch) for batch in batches] == [3, 2, 1]
    values = [value for batch in batches for value in batch.column("bin").to_pylist()]
    assert values == [MILLION_BYTES, MILLION_BYTES, None, *[MILLION_BYTES] * 3]
    texts = open_tar("t.tar", store).batches(Scan(["__key__", "txt"], max_rows=10, max_bytes=MILLION * 5 // 2))
    assert [len(batch) for batch in texts] == [6]


def test_the_limit_of_holes_holds_for_what_is_read_of_a_sample() -> None:
    data = b"".join(with_holes(f"a.{field}", MILLION, ONE_PART) for field in ("f", "g", "h")) + END
    reader = open_tar("t.tar", MemoryStore({"t.tar": data}), Limits(tar_sparse_bytes=2 * MILLION))
    with pytest.raises(LimitExceeded, match=r"sparse member is too large.*found 3000000"):
        list(reader.batches(Scan(max_rows=1, max_bytes=ALL)))
    [batch] = reader.batches(Scan(["f", "h"], max_rows=1, max_bytes=ALL))
    assert batch.to_pydict() == {"f": [MILLION_BYTES], "h": [MILLION_BYTES]}


def test_what_is_stored_of_a_sparse_member_has_the_limit_before_it_is_read() -> None:
    store = CountingStore(MemoryStore({"t.tar": with_holes("a.bin", 10, bytes(MILLION)) + END}))
    with pytest.raises(LimitExceeded, match=r"sparse member is too large.*found 1000000"):
        list(
            open_tar("t.tar", store, Limits(tar_sparse_bytes=10_000), mmap=False).batches(
                Scan(max_rows=1, max_bytes=ALL)
            )
        )
    assert store.bytes_read < MILLION / 5


@pytest.mark.parametrize(
    "size, body, message",
    [
        ("many", ONE_PART, "size of a member is not a number"),
        ("-5", ONE_PART, "size of a member is not a number"),
        (4, ONE_PART, "map of a sparse member is broken"),
        (10, b"2\n0\n5\n".ljust(512, b"\0") + b"12345", "map of a sparse member is broken"),
        (1 << 61, ONE_PART, "too large"),
        (10, b"3000\n" + b"0\n" * 6000 + ONE_PART, "map of a sparse member is too long.*tar_map_blocks"),
    ],
)
def test_sparse_members_that_are_refused(size: object, body: bytes, message: str) -> None:
    store = MemoryStore({"t.tar": with_holes("a.bin", size, body) + END})
    reader = open_tar("t.tar", store, Limits(tar_map_blocks=10))
    with pytest.raises((CorruptShard, LimitExceeded), match=message):
        list(reader.batches(Scan(max_rows=1, max_bytes=ALL)))


_STORED = {"major": "1", "minor": "0", "name": "a.bin", "realsize": "10"}
_IN_RECORDS = {"size": "10", "numblocks": "1", "name": "a.bin", "map": "3,5"}


@pytest.mark.parametrize(
    "told, body",
    [(_STORED, b"1\n3\n5\n".ljust(512, b"\0") + b"hello"), (_IN_RECORDS, b"hello")],
    ids=["1.0", "0.1"],
)
def test_records_of_a_sparse_member_come_in_any_order(told: dict[str, str], body: bytes) -> None:
    """GNU tar adds the stored size where it does not fit the header, in any place; pax gives records no order."""
    records = [*((f"GNU.sparse.{key}", value) for key, value in told.items()), ("size", f"{len(body)}")]
    for order in permutations(records):
        info = tarfile.TarInfo("GNUSparseFile.0/a.bin")
        info.pax_headers = dict(order)
        data = info.tobuf(tarfile.PAX_FORMAT) + body + bytes(-len(body) % 512) + tar_of(("b.txt", b"hi"))
        [batch] = open_tar("t.tar", MemoryStore({"t.tar": data})).batches(Scan(max_rows=9, max_bytes=ALL))
        assert batch.column("__key__").to_pylist() == ["a", "b"]
        assert batch.column("bin").to_pylist() == [b"\0\0\0hello\0\0", None]


# The reader


def test_members_come_with_all_names() -> None:
    data = tar_of(("a.x", b"1"), ("README", b"22"), ("__meta__", b""), ("d/é.b.c", b"333"))
    parts = list(in_memory(data).members(max_members=3))
    assert [part.name.to_pylist() for part in parts] == [["a.x", "README", "__meta__"], ["d/é.b.c"]]
    assert parts[1].header_offset.tolist() == [2560]
    assert parts[1].offset.tolist() == [3072]
    assert parts[1].length.tolist() == [3]
    many = tar_of(*((f"{i}.x", b"") for i in range(5000)))
    assert [len(part.name) for part in in_memory(many).members(max_members=2000)] == [2000, 2000, 1000]


def test_keys_that_have_to_be_held_together_have_a_limit() -> None:
    store = MemoryStore({"t.tar": tar_of(*(("k" * 80 + f"{i}.x", b"1") for i in range(100)))})
    limits = Limits(tar_keys_bytes=8000)
    reader = open_tar("t.tar", store, limits)
    assert (reader.num_rows(), sum(map(len, reader.batches(Scan(max_rows=10, max_bytes=ALL))))) == (100, 100)
    with pytest.raises(LimitExceeded, match=r"t\.tar @ .*keys.*at most 8000 bytes"):
        reader.index()
    with pytest.raises(LimitExceeded, match=r"t\.tar @ .*keys.*at most 8000 bytes"):
        list(open_tar("t.tar", store, limits, regroup=True).batches(Scan(max_rows=10, max_bytes=ALL)))


def test_keys_that_no_array_holds_are_refused() -> None:
    """A thousand windows with one and the same array of keys: their memory is its memory."""
    keys = pa.array(["k" * (3 << 20)])
    alone, place = np.ones(1, np.bool_), np.zeros(1, np.int64)
    rows = MemberRows(alone, np.zeros(1, np.int32), place, place, place, {}, keys)
    assert len(join_rows([rows] * 2)) == 2
    with pytest.raises(LimitExceeded, match=r"keys.*at most 2147483647 bytes"):
        join_rows([rows] * 1000)


def test_an_index_given_is_used_instead_of_a_walk() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"))
    index = in_memory(data).index()
    store = CountingStore(MemoryStore({"t.tar": data}))
    reader = FORMAT.open(ShardFile(store, "t.tar", index=index), FORMAT.read_options({}))
    assert (reader.num_rows(), reader.read(np.array([1])).column("__key__").to_pylist()) == (2, ["b"])
    assert store.bytes_read <= 16
    other = pa.table({"name": ["a.x"]})
    reader = FORMAT.open(ShardFile(store, "t.tar", index=other), FORMAT.read_options({}))
    assert reader.num_rows() == 2


@pytest.mark.parametrize("options", [{"on_duplicate": "first"}, {"sidecar": "maybe"}, {"no_such": 1}])
def test_options_that_are_not_known(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        in_memory(tar_of(), **options)
    assert next(iter(options)) in str(caught.value)


def test_compressed_files_are_recognised_by_content() -> None:
    data = tar_of(("a.x", bytes(2000)))
    assert FORMAT.matches("no-ending", data[:1024])
    assert FORMAT.matches("no-ending", compressed(data)[:1024])
    assert not FORMAT.matches("no-ending", compressed(b"text " * 500)[:1024])
    assert not FORMAT.matches("no-ending", compressed(data)[:4] + bytes(1000))
    assert FORMAT.matches("X.TAR.GZ", b"")


# Sidecars


def with_idx(data: bytes, entries: list[int]) -> MemoryStore:
    return MemoryStore({"t.tar": data, "t.tar.idx": np.array(entries, "<u8").tobytes()})


def test_a_sidecar_spares_the_walk() -> None:
    data = tar_of(*((f"{i:03d}.{ext}", bytes(100_000)) for i in range(40) for ext in ("a", "b")))
    starts = in_memory(data).read().column("a").combine_chunks().storage.field("offset").to_numpy() - 512
    store = with_idx(data, [*starts.tolist(), 40 * 2 * (512 + 100_352)])
    counted = CountingStore(store)
    reader = open_tar("t.tar", counted)
    assert reader.num_rows() == 40
    assert without_nulls(reader.read(np.array([3, 3, 39]))) == without_nulls(in_memory(data).read(np.array([3, 3, 39])))
    assert counted.bytes_read < len(data) / 4
    assert len(without_nulls(reader.read())) == 40


@pytest.mark.parametrize(
    "entries",
    [
        [0, 1536, 2048],
        [0, 512, 3072],
        [0, 1024, 2048, 3072],
        [1024, 3072],
        [0, 3072],
        [0, 2048, 10240],
        [0, 2048, 2560],
        [],
    ],
)
def test_sidecars_that_disagree(entries: list[int]) -> None:
    """The tar has samples at 0 and 2048 and ends at 3072."""
    data = tar_of(("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"))
    for read in (
        lambda r: list(r.batches(Scan(max_rows=1, max_bytes=ALL))),
        lambda r: r.index(),
        lambda r: [
            r.num_rows(),
            *(r.read(np.array([i])) for i in range(r.num_rows())),
            list(r.batches(Scan(max_rows=9, max_bytes=ALL))),
        ],
    ):
        with pytest.raises(SidecarMismatch, match=r"t\.tar\.idx.*t\.tar"):
            read(open_tar("t.tar", with_idx(data, entries)))
    assert open_tar("t.tar", with_idx(data, entries), sidecar="ignore").num_rows() == 2


@pytest.mark.parametrize("entries, row", [([0, 512, 2048, 3072], 0), ([0, 1024, 2048, 3072], 0),
                                              ([0, 1024, 2048, 3072], 1), ([0, 2048, 3072, 4096], 1),
                                              ([0, 2048, 3072, 4096], 2)])  # fmt: skip
def test_no_piece_of_a_sample_is_taken_for_one(tmp_path: Path, entries: list[int], row: int) -> None:
    """The tar has samples at 0 and 2048, of two members each, and ends at 4096."""
    (tmp_path / "t.tar").write_bytes(tar_of(("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3"), ("b.y", b"4")))
    (tmp_path / "t.tar.idx").write_bytes(np.array(entries, "<u8").tobytes())
    reader = FORMAT.open(ShardFile(LocalStore(), str(tmp_path / "t.tar")), FORMAT.read_options({}))
    with pytest.raises(SidecarMismatch, match=r"t\.tar\.idx.*t\.tar"):
        reader.read(np.array([row]))


def test_a_few_rows_have_all_columns_once_these_are_known() -> None:
    data = tar_of(("a.x", b"1"), ("b.x", b"2"), ("b.y", b"3"))
    reader = open_tar("t.tar", with_idx(data, [0, 1024, 3072]))
    assert reader.read(np.array([0])).column_names == ["__key__", "x"]
    names = reader.schema().names
    assert names == in_memory(data).read(np.array([0])).column_names == ["__key__", "x", "y"]
    assert reader.read(np.array([0])).column_names == names
    assert reader.read(np.array([0])).column("y").null_count == 1


def test_a_sample_beside_a_damaged_one_is_taken(tmp_path: Path) -> None:
    data = bytearray(tar_of(*((f"{i}.x", b"1") for i in range(5))))
    (tmp_path / "t.tar.idx").write_bytes(energon_index(bytes(data)))
    data[2 * 1024] ^= 1
    (tmp_path / "t.tar").write_bytes(data)
    reader = FORMAT.open(ShardFile(LocalStore(), str(tmp_path / "t.tar")), FORMAT.read_options({}))
    assert reader.read(np.array([3, 1])).column("__key__").to_pylist() == ["3", "1"]
    with pytest.raises(SidecarMismatch, match="checksum"):
        reader.read(np.array([2]))


def test_a_sidecar_costs_a_remote_tar_no_requests_for_neighbours() -> None:
    data = tar_of(*((f"{i:03d}.a", bytes(100_000)) for i in range(40)))
    counted = CountingStore(with_idx(data, np.frombuffer(energon_index(data), "<u8").tolist()))
    reader = FORMAT.open(ShardFile(counted, "t.tar"), FORMAT.read_options({"mmap": False}))
    reader.num_rows()
    before = len(counted.ranges["t.tar"])
    reader.read(np.array([20]))
    assert len(counted.ranges["t.tar"]) == before + 1


class Asked(WrappedStore):
    """A remote store that says which ranges it was asked for, and fails for bytes behind a place."""

    def __init__(self, data: bytes, whole_bytes: int = ALL) -> None:
        super().__init__(MemoryStore({"t.tar": data}), mapped=False)
        self.request_bytes = 1 << 20
        self.ranges: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._whole_bytes = whole_bytes

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        [(offset, length)] = ranges
        self.ranges.put((offset, length))
        if offset + length > self._whole_bytes:
            raise StoreError("the server does not answer", file=path)
        return self.inner.get_ranges(path, ranges, version)

    def runs(self) -> Iterator[int]:
        """Walk over the members, and give the number of those in each window."""
        for found in walks.Walk(walks.open_tar(ShardFile(self, "t.tar", recent=RecentBytes()), mmap=False)):
            yield len(found)


def test_windows_of_a_remote_tar_are_requested_while_one_is_in_use() -> None:
    data = tar_of(*((f"{i:03}.a", bytes(50_000)) for i in range(600)))
    store, asked, used = Asked(data), list[tuple[int, int]](), 0
    # The head, and a window for each run of members. While the second one of 4 MiB is in use, the next one is under
    # way, then the next two, then three.
    for run, count in zip(store.runs(), [2, 3, 4, 5, 6, 7, 9, 11, 13, 13, 13, 13], strict=True):
        asked += [store.ranges.get(timeout=30) for _ in range(count - len(asked))]
        assert store.ranges.empty()
        assert sum(length for _, length in asked) <= 2 * used + (256 << 10)  # also if the walk ends here
        used += run * (512 + 50_176)
    asked.sort()
    assert [length >> 17 for _, length in asked[1:-1]] == [1, 2, 4, 8, 16, *[32] * 6]
    assert all(offset == at + length for (at, length), (offset, _) in pairwise(asked[1:]))
    assert sum(asked[-1]) <= len(data)


@pytest.mark.mechanism("fork in a walk")
def test_a_forked_child_goes_on_with_a_walk_that_has_windows_under_way() -> None:
    store = Asked(tar_of(*((f"{i:03}.a", bytes(50_000)) for i in range(700))))
    runs = store.runs()
    found = sum(islice(runs, 8))
    for _ in range(11):  # the head, a window for each run, and two that are under way
        store.ranges.get(timeout=30)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, b"%d" % sum(runs))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        assert select.select([reading], [], [], 30)[0]
        assert int(os.read(reading, 9)) == sum(runs) == 700 - found
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)


def test_members_before_a_window_that_fails_are_given_first() -> None:
    members = ((f"{i:03}.a", bytes(50_000)) for i in range(300))
    found = list[int]()
    with pytest.raises(StoreError, match="does not answer"):
        found.extend(Asked(tar_of(*members), whole_bytes=9 << 20).runs())
    assert sum(found) == 1 + ((31 << 17) + (4 << 20)) // (50_176 + 512)  # windows of 128 KiB to 2 MiB, and one of 4 MiB


def test_a_member_whose_records_lie_in_two_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_FIRST_WINDOW", 2560)
    monkeypatch.setattr(walks, "_LARGE_WINDOW", 5 << 10)
    members = [(f"{'n' * 200}{i:03}.a", b"%d" % i) for i in range(100)]
    data = tar_of(*members, form=tarfile.PAX_FORMAT)
    store = Asked(data)
    assert sum(store.runs()) == 100
    ranges = sorted(store.ranges.get() for _ in range(store.ranges.qsize()))[1:]
    assert all(offset == at + length for (at, length), (offset, _) in pairwise(ranges))  # nothing is read twice


@pytest.mark.soak
def test_a_sidecar_of_a_tar_with_other_members_around() -> None:
    data = tar_of(("README", b""), ("a.x", b"1"), ("b.x", b"2"), ("LICENSE", b"3"))
    for end in (2560, 3584):
        reader = open_tar("t.tar", with_idx(data, [512, 1536, end]))
        assert (reader.num_rows(), len(samples(reader, data)), reader.index().num_rows) == (2, 2, 2)
