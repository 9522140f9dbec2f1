"""Values that shrink so much that readers would refuse their pages as bombs: they are stored as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.format import FORMAT
from lading._core.storage.base import Store
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore

_GIANT = 96 << 20


@pytest.mark.soak
@pytest.mark.parametrize(
    "compression, place, native",
    [
        *((compression, 1, True) for compression in ("zstd", "gzip", "brotli", "snappy", "lz4")),
        ("zstd", 0, True),
        ("zstd", 3, True),
        ("zstd", 2, False),
    ],
)
def test_pages_that_expand_too_much_are_stored_as_they_are(
    compression: str, place: int, native: bool, tmp_path: Path
) -> None:
    values = [b"x" * 5000, b"y" * 3000, b"z" * 4000, b""]
    values[place] = bytes(_GIANT)
    table = pa.table({"t": ["a", "a", "b", "a"], "v": pa.array(values, pa.large_binary()), "n": range(4)})
    store: Store = LocalStore() if native else MemoryStore()
    path = str(tmp_path / "a.parquet") if native else "a.parquet"
    sink = store.put_stream(path)
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options({"compression": compression}))
    for batch in table.to_batches(1):
        writer.write(batch)
    facts = writer.close()
    sink.close()
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    assert facts.size_bytes == len(data)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.num_rows == 4
    assert b"ARROW:schema" in metadata.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert all(group.column(i).has_offset_index for group in groups for i in range(3))
    assert pq.read_table(pa.BufferReader(data)).equals(table)
    reader = FORMAT.open(ShardFile(store, path), FORMAT.read_options({}))
    for views in (False, True):
        batches = reader.batches(Scan(max_rows=9, max_bytes=8 << 20, views=views))
        found = [row for batch in batches for row in batch.to_pylist()]
        assert found == table.to_pylist()
    recovered = FORMAT.recover(ShardFile(store, path), FORMAT.read_options({}))
    assert recovered is not None
    assert not recovered.lost


@pytest.mark.soak
def test_large_lists_and_texts_that_expand_too_much(tmp_path: Path) -> None:
    table = pa.table(
        {
            "l": pa.array([[1.0], np.zeros(_GIANT // 8)], pa.large_list(pa.float64())),
            "t": pa.array(["a" * 2000, "b" * _GIANT], pa.large_string()),
        }
    )
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])
    with lading.open(tmp_path / "out") as dataset:
        assert pa.Table.from_batches(dataset.batches()).equals(table)
    assert lading.verify(tmp_path / "out", deep=True).ok
