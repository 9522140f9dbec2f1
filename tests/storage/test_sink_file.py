"""Sinks as files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from lading._core.storage.base import Buffer, Sink
from lading._core.storage.memory import MemoryStore
from lading._core.storage.sink_file import GatheringFile, SinkFile


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [60_000, 60_000, 5], [70_000, 1, 70_000], [1, 70_000, 1]])
def test_gathered_bytes_are_those_given_in_their_order(sizes: list[int]) -> None:
    store, parts = MemoryStore(), [bytes([i]) * size for i, size in enumerate(sizes)]
    sink = store.put_stream("f")
    file, told = GatheringFile(sink), 0
    for part in parts:
        assert file.write(pa.py_buffer(part)) == len(part)
        told += len(part)
        assert file.tell() == told
    file.settle()
    assert sink.tell() == told
    sink.close()
    assert bytes(store.get_ranges("f", [(0, told)])[0]) == b"".join(parts)


def test_a_batch_of_many_columns_is_few_writes() -> None:
    batch = pa.record_batch({f"c{i}": [i] for i in range(2000)})
    store, written = MemoryStore(), []
    for kind in (SinkFile, GatheringFile):
        writes = _Writes(store.put_stream(kind.__name__))
        file = kind(writes)  # type: ignore[arg-type] # of a sink, what is called here
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        if isinstance(file, GatheringFile):
            file.settle()
        writes.sink.close()
        written.append(writes.count)
        [data] = store.get_ranges(kind.__name__, [(0, store.head(kind.__name__).size_bytes)])
        assert pa.ipc.open_file(pa.py_buffer(data)).read_all() == pa.Table.from_batches([batch])
    assert written[0] > 2000
    assert written[1] < 20


class _Writes:
    """A sink that counts."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.count = sink, 0
        self.tell = sink.tell

    def write(self, parts: Sequence[Buffer]) -> None:
        self.count += 1
        self.sink.write(parts)
