"""Samples in a new order, in memory and through the temporary file, against the plain order of a list."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from in_process import by_tasks
from lading._core.arrow.references import FileEntry, concat, files_of, make_refs, unpack, with_files
from lading._core.dataset.order import spooled_order
from lading._core.dataset.order.numbers import random_order
from lading._core.dataset.order.spooled_order import Spool, SpooledOrder
from lading._core.dataset.transform.traced_batch import Origin
from lading._core.jobs.convert import schedule
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from tars import tar_of


def _unite(parts: Sequence[pa.Table]) -> pa.Table:
    return concat(parts)


def _origin(count: int) -> Origin:
    return Origin(range(count), np.array([count]), ["a"].__getitem__, "samples")


@pytest.mark.soak
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=80), st.integers(0, 99), st.integers(1, 30),
    st.sampled_from([1, 3000, 1 << 20]), st.booleans(),
)  # fmt: skip
def test_ranges_of_places_hold_the_samples_in_order(
    counts: list[int], seed: int, size: int, held: int, to_file: bool
) -> None:
    """Samples of one to three rows, whose references name a file for each batch."""
    rng, count = np.random.default_rng(seed), len(counts)
    places = rng.permutation(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooled_order, "HELD_BYTES", held)
        with Spool(count, "interleaved", _unite, _origin(count), to_file=to_file) as spool:
            for at in range(0, count, size):
                part = range(at, min(at + size, count))
                ids = np.repeat(part, counts[part.start : part.stop])
                schema = pa.schema([("sample_id", pa.string()), ("ref", make_refs(ids, ids).type)])
                schema = with_files(schema, [FileEntry("none"), FileEntry(f"file {at}")])
                columns = [pa.array(ids.astype(str)), make_refs(ids, ids, file=1)]
                starts = np.cumsum(counts[part.start : part.stop]) - counts[part.start : part.stop]
                spool.add(pa.record_batch(columns, schema=schema), starts, places[part.start : part.stop])
            made = spool.finish()
            if to_file:
                made = SpooledOrder.opened(made.folder, "interleaved", _unite)
            assert sum(size for *_, size in made.bounds(40)) >= sum(np.repeat(np.arange(count), counts))
            expected = np.argsort(places)
            for bytes_ in (40, 1 << 20):
                found = []
                for first, stop, _ in made.bounds(bytes_):
                    for batch in made.batches(first, stop, 5, 1 << 20):
                        refs = unpack(batch.column("ref"))
                        files = files_of(batch.schema)
                        assert [files[i].url for i in refs.file.tolist()] == [
                            f"file {number // size * size}" for number in refs.offset.tolist()
                        ]
                        assert batch.column("sample_id").to_pylist() == refs.offset.astype(str).tolist()
                        found += refs.offset.tolist()
                assert found == np.repeat(expected, np.array(counts)[expected]).tolist()


def test_samples_of_one_id_stay_two() -> None:
    with Spool(3, "interleaved", _unite, _origin(3)) as spool:
        batch = pa.record_batch({"sample_id": ["a", "a", "b"], "n": [1, 2, 3]})
        spool.add(batch, np.array([0, 1, 2]), np.array([1, 2, 0]))
        found = [part.column("n").to_pylist() for part in spool.finish().batches(0, 3, 100, 1 << 20)]
    assert found == [[3, 1], [2]]


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", ["parquet", "tar", "tar.gz"])
def test_a_shuffle_through_a_temporary_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_order, "HELD_BYTES", 10_000)
    monkeypatch.setattr(schedule, "ALONE_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "in").mkdir()
    for shard in range(3):
        numbers = range(shard * 200, shard * 200 + 200)
        if kind == "parquet":
            rows = pa.table({"txt": [f"{i:05}" * 20 for i in numbers]})
            pq.write_table(rows, tmp_path / "in" / f"{shard}.parquet", row_group_size=40)
        else:
            data = tar_of(*((f"{i:05}.txt", f"{i:05}".encode() * 20) for i in numbers))
            packed = gzip.compress(data) if kind == "tar.gz" else data
            (tmp_path / "in" / f"{shard}.{kind}").write_bytes(packed)
    expected = np.argsort(np.random.PCG64(1).random_raw(600), kind="stable").tolist()
    with lading.open(tmp_path / "in") as ds:
        chosen = ds.shuffle(1)
        assert [int(sample["txt"][:5]) for sample in chosen] == expected
        for workers in (1, 2):
            to = tmp_path / f"out{workers}"
            chosen.write(to, "webdataset", shard_size="50kb", **by_tasks(workers), verify=True)
            with lading.open(to) as back:
                assert [int(sample["txt"][:5]) for sample in back] == expected
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.soak
def test_references_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """References to 300 files of 60 KB values; `bench/order_cases.py` does the same with ten million."""
    held = 3 << 20
    monkeypatch.setattr(spooled_order, "HELD_BYTES", held)
    count, each = 300_000, 1000
    order = random_order(count, seed=3)
    places = np.empty(count, np.int64)
    places[order] = np.arange(count)
    offset, length = np.arange(each) * 60_000, np.full(each, 60_000)
    before, most, at = pa.total_allocated_bytes(), 0, 0
    with Spool(count, "samples", _unite, _origin(count)) as spool:
        for file in range(count // each):
            schema = with_files(pa.schema([("jpg", make_refs(offset, length).type)]), [FileEntry(f"{file}.tar")])
            batch = pa.record_batch([make_refs(offset, length)], schema=schema)
            spool.add(batch, np.arange(each), places[file * each : file * each + each])
            most = max(most, pa.total_allocated_bytes() - before)
        made = spool.finish()
        tasks = made.bounds(256 << 20)
        assert [stop for _, stop, _ in tasks[:-1]] == [first for first, _, _ in tasks[1:]]
        assert all(size <= 1.01 * (256 << 20) for *_, size in tasks)
        for first, stop, _ in tasks:
            for batch in made.batches(first, stop, 16_384, 128 << 20):
                refs, files = unpack(batch.column("jpg")), files_of(batch.schema)
                numbers = np.array([int(file.url.removesuffix(".tar")) for file in files])[refs.file]
                assert np.array_equal(numbers * each + refs.offset // 60_000, order[at : at + batch.num_rows])
                at += batch.num_rows
                most = max(most, pa.total_allocated_bytes() - before)
    assert at == count
    assert most < 6 * held


@pytest.mark.soak
def test_payload_is_read_once_and_neighbours_together() -> None:
    count, value = 200, 60_000
    files = {
        f"box://in/{shard}.tar": tar_of(*((f"{i:05}.bin", b"%05d" % i * (value // 5)) for i in range(shard, count, 4)))
        for shard in range(4)
    }
    box = CountingStore(MemoryStore(files))
    with lading.open(list(files), stores=Stores({"box://": box})) as ds:
        for name, chosen, most in (("shuffle", ds.shuffle(2), count), ("source", ds.sample(1.0), count // 4)):
            len(ds)  # from here on, headers are known
            box.reset()
            chosen.write(f"box://{name}", "webdataset", max_batch_bytes="16MB")
            ranges = [each for path in files for each in box.ranges[path]]
            payload = [length for _, length in ranges if length >= value]
            assert count * value <= sum(payload) < 1.1 * count * value
            assert len(payload) <= most


def test_row_groups_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_order, "HELD_BYTES", 100_000)
    rng = np.random.default_rng(0)
    pq.write_table(
        pa.table({"data": [rng.bytes(2000) for _ in range(1000)]}), tmp_path / "a.parquet", row_group_size=50
    )
    data = (tmp_path / "a.parquet").read_bytes()
    box = CountingStore(MemoryStore({"box://a.parquet": data}))
    with lading.open("box://a.parquet", stores=Stores({"box://": box})) as ds:
        box.reset()
        ds.shuffle().write("box://out", "parquet")
        read = sum(length for _, length in box.ranges["box://a.parquet"])
        assert read < 1.1 * len(data)


def test_batches_are_the_same_in_memory_and_in_the_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of a written Parquet file end where batches end, whoever writes it."""
    monkeypatch.setattr(spooled_order, "_BUCKET_BYTES", 300)
    ends = []
    for to_file in (False, True):
        with Spool(100, "samples", _unite, _origin(100), to_file=to_file) as spool:
            spool.add(pa.record_batch({"n": np.arange(100)}), np.arange(100), np.arange(100))
            ends.append([batch.num_rows for batch in spool.finish().batches(0, 100, 1000, 1 << 20)])
    assert ends[0] == ends[1]
    assert len(ends[0]) > 1
