"""Rows that readers refuse by default are refused by the writer, too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lading._core.formats.arrow.format import FORMAT
from lading._core.formats.base import Scan, ShardFile
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable
from lading.limits import DEFAULT_LIMITS


def _written(table: pa.Table, **options: Any) -> int:
    """Return the number of rows that are read back."""
    store = MemoryStore()
    sink = store.put_stream("a.arrow")
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches():
        writer.write(batch)
    writer.close()
    sink.close()
    reader = FORMAT.open(ShardFile(store, "a.arrow"), FORMAT.read_options({}))
    return sum(batch.num_rows for batch in reader.batches(Scan(max_rows=1 << 20, max_bytes=1 << 30)))


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_values_that_expand_more_than_readers_accept(compression: str) -> None:
    table = pa.table({"v": pa.array([bytes(DEFAULT_LIMITS.arrow_batch_bytes + 1)], pa.large_binary())})
    with pytest.raises(Unrepresentable, match=r"row 0: a record batch that expands more.*Write it without compression"):
        _written(table, compression=compression)
    assert _written(table) == 1


@pytest.mark.soak
@pytest.mark.parametrize("batch_bytes", ["1MB", "1GB"])
def test_batches_of_many_values_are_read_back(batch_bytes: str) -> None:
    value = bytes(1 << 20)
    table = pa.table({"v": pa.array([value] * 300, pa.large_binary())})
    assert _written(table, compression="zstd", batch_bytes=batch_bytes) == 300


def test_rows_of_nothing() -> None:
    assert _written(pa.table({"n": pa.nulls(1 << 20)}), batch_rows=1 << 18) == 1 << 20
    with pytest.raises(Unrepresentable, match="more rows without bytes than readers accept"):
        _written(pa.table({"n": pa.nulls((1 << 20) + 1)}), batch_rows=1 << 18)
