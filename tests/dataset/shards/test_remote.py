"""Bytes and requests of reading a remote store: a filter reads headers and small values, then the samples it keeps.

The store counts its requests, and says of itself that a request is slow.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from documents import documents
from lading._core.arrow.references import files_of, with_files
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import BadReference, CorruptShard
from lading.testing import CountingStore
from tars import tar_of

COUNT, KEPT, IMAGE_BYTES = 100, range(7, 100, 20), 325_000
CONDITIONS = ["json.lang == 'en'", "jpg.width >= 256", "len(txt) > 100"]


def _jpeg(width: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 96)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def samples() -> list[dict[str, bytes]]:
    """Samples of an image padded with noise, a small JSON and a text; the conditions are true for every twentieth."""
    random, heads = np.random.default_rng(0), {False: _jpeg(128), True: _jpeg(512)}
    found = []
    for i in range(COUNT):
        kept = i in KEPT
        noise = random.integers(0, 256, IMAGE_BYTES - len(heads[kept]), np.uint8).tobytes()
        document = json.dumps({"lang": "en" if kept else "de"}).encode()
        found.append({"jpg": heads[kept] + noise, "json": document, "txt": b"x" * (200 if kept else 20)})
    return found


@pytest.fixture(scope="module")
def foreign(samples: list[dict[str, bytes]]) -> bytes:
    """A tar of Python's."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for i, sample in enumerate(samples):
            for ending, value in sample.items():
                member = tarfile.TarInfo(f"{i:04}.{ending}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    return file.getvalue()


@pytest.fixture
def store(foreign: bytes) -> MemoryStore:
    """The files."""
    return MemoryStore({"far://foreign/d.tar": foreign})


@pytest.fixture
def far(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """A remote store with the tar, and lading's copy of it."""
    monkeypatch.setenv("LADING_CACHE", str(tmp_path))
    counting = CountingStore(store)
    counting.request_bytes = FsspecStore.request_bytes
    _open(counting, "foreign").write("far://own", format="webdataset", progress=False)
    counting.reset()
    return counting


def _tar(store: MemoryStore) -> str:
    """Path of the tar that lading wrote."""
    [path] = [info.path for info in store.walk("far://own") if info.path.endswith(".tar")]
    return path


def _open(store: CountingStore, folder: str) -> lading.Dataset:
    return lading.open(f"far://{folder}", stores=Stores({"far://": store}))


def _values(dataset: lading.Dataset, *names: str) -> list[tuple[Any, ...]]:
    return [row for batch in dataset.batches() for row in zip(*(batch[n].to_pylist() for n in names), strict=True)]


def _size(store: CountingStore, folder: str) -> int:
    return sum(info.size_bytes for info in store.inner.walk(f"far://{folder}"))


@pytest.mark.soak
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_a_written_tar_reads_a_tenth(
    far: CountingStore, samples: list[dict[str, bytes]], condition: str
) -> None:
    found = _values(_open(far, "own").where(condition), "__key__", "jpg", "json", "txt")
    assert found == [(f"{i:04}", *samples[i].values()) for i in KEPT]
    assert far.bytes_read <= _size(far, "own") / 10
    assert far.requests["get_ranges"] <= COUNT + len(KEPT) + 10  # one for each value in the condition


def test_all_of_a_written_tar_is_read_once_in_few_requests(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    assert _values(_open(far, "own"), "jpg", "json", "txt") == [tuple(sample.values()) for sample in samples]
    assert far.bytes_read <= 1.01 * _size(far, "own")
    assert far.requests["get_ranges"] <= 10


def test_values_are_read_with_the_payload_next_to_them(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    stores = Stores({"far://": far})
    with lading.writer("far://typed", format="webdataset", stores=stores) as writer:
        for i, sample in enumerate(samples):
            writer.write({"__key__": f"{i:04}", "jpg": sample["jpg"], "json": {"number": i}})
    far.reset()
    found = _values(_open(far, "typed"), "jpg", "json")
    assert [(jpg, json.loads(text)) for jpg, text in found] == [
        (sample["jpg"], {"number": i}) for i, sample in enumerate(samples)
    ]
    assert far.bytes_read <= 1.01 * _size(far, "typed")
    assert far.requests["get_ranges"] <= 10
    far.reset()
    _open(far, "typed").write("far://rows", format="parquet", progress=False)
    assert sum(len(ranges) for path, ranges in far.ranges.items() if path.startswith("far://typed/")) <= 15


def test_samples_at_random_take_a_request_each(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    numbers = np.random.default_rng(1).permutation(COUNT)[:60].tolist()
    found = _open(far, "own").with_decode(False).take(numbers)
    assert found["jpg"].to_pylist() == [samples[number]["jpg"] for number in numbers]
    assert far.requests["get_ranges"] <= 66  # of the manifest and its files, too
    assert sum(map(len, far.ranges.values())) <= 66
    assert far.bytes_read <= 1.05 * 60 / COUNT * _size(far, "own")


def test_writing_filtered_samples_reads_a_tenth(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    _open(far, "own").where(CONDITIONS[1]).write("far://kept", format="parquet", progress=False)
    assert far.bytes_read <= _size(far, "own") / 10
    assert _values(_open(far, "kept"), "txt") == [(samples[i]["txt"].decode(),) for i in KEPT]


def test_an_index_in_the_cache_serves_a_foreign_tar(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    lading.index(_open(far, "foreign"), progress=False)
    far.reset()
    dataset = _open(far, "foreign")
    opened = far.bytes_read  # a look at the first samples
    assert _values(dataset.where(CONDITIONS[0]), "__key__", "jpg") == [(f"{i:04}", samples[i]["jpg"]) for i in KEPT]
    assert far.bytes_read - opened <= _size(far, "foreign") / 10


@pytest.mark.soak
@pytest.mark.parametrize("condition", [*CONDITIONS, None])
@pytest.mark.parametrize("max_bytes", [1 << 20, 256 << 20])
def test_a_tar_without_an_index_is_read_once(
    far: CountingStore, samples: list[dict[str, bytes]], condition: str | None, max_bytes: int
) -> None:
    dataset = _open(far, "foreign")
    opened = far.bytes_read  # a look at the first samples
    chosen = dataset if condition is None else dataset.where(condition)
    found = [value for batch in chosen.batches(max_bytes=max_bytes) for value in batch["jpg"].to_pylist()]
    assert found == [sample["jpg"] for i, sample in enumerate(samples) if condition is None or i in KEPT]
    assert far.bytes_read - opened <= 1.05 * _size(far, "foreign")  # windows are small at first
    assert far.requests["get_ranges"] <= 50


def test_converting_a_tar_without_an_index_reads_payload_once(far: CountingStore) -> None:
    dataset = _open(far, "foreign")
    dataset.write("far://copy", format="webdataset", progress=False)
    assert far.bytes_read <= 1.3 * _size(far, "foreign")  # with two looks at the first samples, 8 MB each at most


@pytest.mark.soak
@pytest.mark.parametrize("size", [3_000, 40_000, 2_500_000])
@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_digest_and_diff_read_each_byte_once(far: CountingStore, store: MemoryStore, size: int, view: str) -> None:
    noise = np.random.default_rng(0).bytes(size)
    samples = [(f"{i:04}", [f"{i}", noise, None, noise[1:]], {}) for i in range(max(4, min(400, 12_000_000 // size)))]
    store.put("far://docs/a.tar", documents(*samples))
    stores = Stores({"far://": far})
    far.reset()
    once = lading.digest("far://docs", view=view, stores=stores, progress=False)
    assert once.count == len(samples)
    assert far.bytes_read <= 1.05 * _size(far, "docs")
    far.reset()
    sides = [{"view": view, "stores": stores}] * 2
    assert lading.diff("far://docs", "far://docs", options=sides, progress=False).equal
    assert far.bytes_read <= 2 * 1.05 * _size(far, "docs")


@pytest.mark.soak
@pytest.mark.parametrize("name", ["webdataset", "mds"])
def test_verify_reads_what_was_written_once(far: CountingStore, name: str) -> None:
    _open(far, "foreign").write("far://checked", format=name, verify=True, progress=False)
    read = sum(size for path, ranges in far.ranges.items() if "foreign" not in path for _, size in ranges)
    assert read <= 1.05 * _size(far, "checked")


def test_shards_before_one_are_not_read_again(far: CountingStore, store: MemoryStore, foreign: bytes) -> None:
    for i in range(3):
        store.put(f"far://shards/{i}.tar", foreign)
    stores = Stores({"far://": far})
    assert lading.digest("far://shards", view="samples", stores=stores, progress=False).count == 3 * COUNT
    assert far.bytes_read <= 1.05 * _size(far, "shards")


def test_an_index_of_large_members_reads_headers(far: CountingStore, store: MemoryStore) -> None:
    noise = bytes(3 << 20)
    store.put(
        "far://large/a.tar", tar_of(*((f"{i}.{e}", v) for i in range(8) for e, v in (("mp4", noise), ("txt", b"x"))))
    )
    with lading.open("far://large", view="samples", stores=Stores({"far://": far})) as dataset:
        far.reset()
        assert len(dataset) == 8
    assert far.bytes_read <= _size(far, "large") / 50
    assert far.requests["get_ranges"] <= 8 + 4


@pytest.mark.soak
def test_members_larger_than_a_request_are_passed(far: CountingStore, store: MemoryStore) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for i in range(12):
            member = tarfile.TarInfo(f"{i}.mp4")
            member.size = 6 << 20
            tar.addfile(member, io.BytesIO(bytes([i]) * member.size))
    store.put("far://large/d.tar", file.getvalue())
    dataset = _open(far, "large")
    far.reset()
    assert len(next(dataset.batches(lazy=True))["mp4"]) == 12
    assert far.bytes_read <= _size(far, "large") / 10
    far.reset()
    values = [value for batch in dataset.batches(max_bytes="10MB") for value in batch["mp4"].to_pylist()]
    assert values == [bytes([i]) * (6 << 20) for i in range(12)]
    assert far.bytes_read <= 1.1 * _size(far, "large")


def test_a_filter_of_concatenated_tars_reads_a_tenth(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    both = lading.concat([_open(far, "own"), _open(far, "own")])
    assert _values(both.where(CONDITIONS[0]), "jpg") == 2 * [(samples[i]["jpg"],) for i in KEPT]
    assert far.bytes_read <= 2 * _size(far, "own") / 10


def test_columns_and_small_batches_of_an_indexed_tar(far: CountingStore, samples: list[dict[str, bytes]]) -> None:
    batches = list(_open(far, "own").batches(max_rows=30, columns=["txt", "__key__"]))
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    assert [text for batch in batches for text in batch["txt"].to_pylist()] == [sample["txt"] for sample in samples]
    assert all(batch.schema.names == ["txt", "__key__"] for batch in batches)
    assert far.bytes_read <= _size(far, "own") / 10


def test_a_digest_walks_over_the_headers_that_an_index_skips(far: CountingStore, store: MemoryStore) -> None:
    shard = _tar(store)
    data = bytearray(store.get_ranges(shard, [(0, store.head(shard).size_bytes)])[0])
    data[148:156] = b"badsum\0 "  # the checksum of the first header
    store.put(shard, bytes(data))
    with pytest.raises(CorruptShard):
        lading.digest("far://own", stores=Stores({"far://": far}), progress=False)


def test_an_error_in_a_later_column_names_its_own_row(far: CountingStore, store: MemoryStore) -> None:
    batch = next(_open(far, "own").batches(lazy=True, columns=["json", "txt"]))
    store.put(_tar(store), bytes(batch["txt"][COUNT - 1].as_py()["offset"]))  # the last text is cut off
    unpinned = [replace(file, version="") for file in files_of(batch.schema)]
    batch = pa.RecordBatch.from_arrays(batch.columns, schema=with_files(batch.schema, unpinned))
    with pytest.raises(BadReference) as raised:
        lading.features.materialise(batch, stores=Stores({"far://": far}))
    assert (raised.value.row, raised.value.column) == (COUNT - 1, "txt")


def test_bytes_of_a_file_that_was_replaced_are_an_error(far: CountingStore, store: MemoryStore) -> None:
    batch = next(_open(far, "own").batches(lazy=True, columns=["json", "txt"]))
    [whole] = store.get_ranges(_tar(store), [(0, store.head(_tar(store)).size_bytes)])
    store.put(_tar(store), bytes(whole))
    with pytest.raises(CorruptShard, match="replaced") as raised:
        lading.features.materialise(batch, stores=Stores({"far://": far}))
    assert raised.value.file == _tar(store)


def _written(store: CountingStore, name: str, **options: Any) -> int:
    """Write the samples in a format; return the bytes of its shards."""
    _open(store, "foreign").write(f"far://{name}", format=name, options=options, progress=False)
    store.reset()
    return _size(store, name)


def _as_rows(samples: list[dict[str, bytes]], numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    """Samples as formats with columns have them."""
    return [(samples[i]["jpg"], samples[i]["json"].decode(), samples[i]["txt"].decode()) for i in numbers]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mds", "arrow"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_of_another_format_reads_a_tenth(
    far: CountingStore, samples: list[dict[str, bytes]], name: str, condition: str
) -> None:
    size = _written(far, name)
    dataset = _open(far, name).where(condition)
    assert _values(dataset, "jpg", "json", "txt") == _as_rows(samples, KEPT)
    assert far.bytes_read <= size / 10
    assert far.requests["get_ranges"] <= 2 * COUNT + len(KEPT) + 10


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mds", "arrow"])
def test_writing_filtered_samples_of_another_format_reads_a_tenth(
    far: CountingStore, samples: list[dict[str, bytes]], name: str
) -> None:
    size = _written(far, name)
    _open(far, name).where(CONDITIONS[0]).write("far://kept", format="webdataset", progress=False)
    assert far.bytes_read <= size / 10
    assert _values(_open(far, "kept"), "jpg", "json", "txt") == _as_rows(samples, KEPT)


@pytest.mark.parametrize("name", ["mds", "arrow"])
def test_columns_without_payload_of_another_format(
    far: CountingStore, samples: list[dict[str, bytes]], name: str
) -> None:
    size = _written(far, name)
    found = [text for batch in _open(far, name).batches(columns=["txt"]) for text in batch["txt"].to_pylist()]
    assert found == [sample["txt"].decode() for sample in samples]
    assert far.bytes_read <= size / 10


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mds", "arrow"])
def test_all_of_another_format_is_read_once_in_few_requests(
    far: CountingStore, samples: list[dict[str, bytes]], name: str
) -> None:
    size = _written(far, name)
    assert _values(_open(far, name), "jpg", "json", "txt") == _as_rows(samples, range(COUNT))
    assert far.bytes_read <= 1.01 * size
    assert far.requests["get_ranges"] <= 15


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_stream_of_pyarrow(
    far: CountingStore, store: MemoryStore, samples: list[dict[str, bytes]], compression: str | None
) -> None:
    columns = {name: [sample[name] for sample in samples] for name in ("jpg", "json", "txt")}
    table, file = pa.table(columns | {"n": range(COUNT)}), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=3)
    store.put("far://stream/a.arrow", file.getvalue())
    assert _values(_open(far, "stream").where("n in (7, 27, 47, 67, 87)"), "jpg", "n") == [
        (samples[i]["jpg"], i) for i in KEPT
    ]
    messages = -(-COUNT // 3)
    if compression is None:
        assert far.bytes_read <= len(file.getvalue()) / 10
        assert far.requests["get_ranges"] <= 1.5 * messages + len(KEPT)
    far.reset()
    assert _values(_open(far, "stream"), "txt", "n") == [(sample["txt"], i) for i, sample in enumerate(samples)]
    assert far.bytes_read <= 1.01 * len(file.getvalue())
    assert far.requests["get_ranges"] <= 20


@pytest.mark.soak
@pytest.mark.parametrize("condition", [CONDITIONS[0], CONDITIONS[2]])
def test_a_filter_of_parquet_reads_the_pages_of_kept_samples(
    far: CountingStore, samples: list[dict[str, bytes]], condition: str
) -> None:
    size = _written(far, "parquet", page_bytes="300KB")  # an image a page
    assert _values(_open(far, "parquet").where(condition), "jpg", "json", "txt") == _as_rows(samples, KEPT)
    assert far.bytes_read <= size / 10
    assert far.requests["get_ranges"] <= len(KEPT) + 10
    far.reset()
    assert _values(_open(far, "parquet").where(CONDITIONS[1]), "txt") == [(samples[i]["txt"].decode(),) for i in KEPT]
    assert far.bytes_read <= 1.01 * size  # the condition looks at the images, which are read once


def _put_parquet(store: MemoryStore, table: pa.Table, **options: Any) -> int:
    """Write a table with pyarrow; return the bytes of the file."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    store.put("far://parquet/a.parquet", file.getvalue())
    return len(file.getvalue())


@pytest.mark.soak
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_pyarrow_are_left_out(
    far: CountingStore, store: MemoryStore, *, nullable: bool, compression: str, version: str
) -> None:
    random, rows = np.random.default_rng(0), 120
    values = [None if nullable and i % 5 == 0 else random.bytes(100_000) for i in range(rows)]
    texts = [value and value.hex()[:50_000] for value in values]
    schema = pa.schema([("n", pa.int64()), pa.field("b", pa.binary(), nullable), pa.field("t", pa.string(), nullable)])
    table = pa.table([range(rows), values, texts], schema)
    size = _put_parquet(
        store, table, row_group_size=50, write_page_index=True, write_batch_size=1, data_page_size=1,
        data_page_version=version, compression=compression, use_dictionary=["t"], dictionary_pagesize_limit=200_000,
    )  # fmt: skip
    wanted = [5, 6, 7, 49, 50, 119]
    dataset = _open(far, "parquet").where(f"n in {tuple(wanted)}")
    assert _values(dataset, "n", "b", "t") == [(i, values[i], texts[i]) for i in wanted]
    assert far.bytes_read <= size / 5
    assert _values(dataset.select("t"), "t") == [(texts[i],) for i in wanted]


def test_row_groups_of_pyarrow_without_a_kept_row_are_left_out(
    far: CountingStore, store: MemoryStore, samples: list[dict[str, bytes]]
) -> None:
    columns = {name: [sample[name] for sample in samples] for name in ("jpg", "json")}
    size = _put_parquet(store, pa.table(columns | {"n": range(COUNT)}), row_group_size=10, use_dictionary=False)
    assert _values(_open(far, "parquet").where("n >= 91 and n < 95"), "n", "jpg") == [
        (i, samples[i]["jpg"]) for i in range(91, 95)
    ]
    assert far.bytes_read <= 0.11 * size
    far.reset()
    _open(far, "parquet").where("n in (3, 52)").write("far://kept", format="parquet", progress=False)
    assert far.bytes_read <= 0.22 * size
    assert _values(_open(far, "kept"), "n", "json") == [(i, samples[i]["json"]) for i in (3, 52)]


def test_a_ledger_names_rows_that_were_left_unread(far: CountingStore, store: MemoryStore, tmp_path: Path) -> None:
    keys, rows = [f"{i:04}-{'k' * 2000}" for i in range(200)], range(200)
    table = pa.table({"__key__": keys, "n": rows, "b": [bytes(20_000)] * len(rows)})
    size = _put_parquet(store, table, write_page_index=True, write_batch_size=1, data_page_size=1, use_dictionary=False,
                        compression="none")  # fmt: skip
    ledger = tmp_path / "ledger.jsonl"
    _open(far, "parquet").where("n == 7").write("far://kept", format="parquet", ledger=ledger, progress=False)
    assert far.bytes_read <= size / 7  # the keys are read
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [line["__key__"] for line in lines] == [key for i, key in enumerate(keys) if i != 7]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mds", "arrow"])
def test_samples_of_a_batch_are_read_at_once(far: CountingStore, name: str) -> None:
    _open(far, "own").select("__key__", "txt").write("far://texts", format=name, progress=False)
    dataset, numbers = _open(far, "texts"), [*range(0, COUNT, 3)]
    expected = [dataset[i] for i in numbers]
    far.reset()
    assert dataset.__getitems__(numbers) == expected
    assert far.requests["get_ranges"] <= 2
