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
from lading.arrow.references import FileEntry, concat, files_of, make_refs, unpack, with_files
from lading.dataset import arranged
from lading.dataset.arranged import Arranged, Spool
from tars import tar_of


def _unite(parts: Sequence[pa.Table]) -> pa.Table:
    return concat(parts)


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
        patch.setattr(arranged, "HELD_BYTES", held)
        with Spool(count, "interleaved", _unite, to_file=to_file) as spool:
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
                made = Arranged.opened(made.folder, "interleaved", _unite)
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
    with Spool(3, "interleaved", _unite) as spool:
        batch = pa.record_batch({"sample_id": ["a", "a", "b"], "n": [1, 2, 3]})
        spool.add(batch, np.array([0, 1, 2]), np.array([1, 2, 0]))
        found = [part.column("n").to_pylist() for part in spool.finish().batches(0, 3, 100, 1 << 20)]
    assert found == [[3, 1], [2]]


@pytest.mark.parametrize("kind", ["parquet", "tar", "tar.gz"])
def test_a_shuffle_through_a_temporary_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arranged, "HELD_BYTES", 10_000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "in").mkdir()
    for shard in range(3):
        numbers = range(shard * 500, shard * 500 + 500)
        if kind == "parquet":
            rows = pa.table({"txt": [f"{i:05}" * 20 for i in numbers]})
            pq.write_table(rows, tmp_path / "in" / f"{shard}.parquet", row_group_size=100)
        else:
            data = tar_of(*((f"{i:05}.txt", f"{i:05}".encode() * 20) for i in numbers))
            packed = gzip.compress(data) if kind == "tar.gz" else data
            (tmp_path / "in" / f"{shard}.{kind}").write_bytes(packed)
    expected = np.argsort(np.random.PCG64(1).random_raw(1500), kind="stable").tolist()
    with lading.open(tmp_path / "in") as ds:
        chosen = ds.shuffle(1)
        assert [int(sample["txt"][:5]) for sample in chosen] == expected
        for workers in (1, 2):
            to = tmp_path / f"out{workers}"
            chosen.write(to, "webdataset", shard_size="50kb", workers=workers, verify=True)
            with lading.open(to) as back:
                assert [int(sample["txt"][:5]) for sample in back] == expected
    assert not list((tmp_path / "temporary").iterdir())
