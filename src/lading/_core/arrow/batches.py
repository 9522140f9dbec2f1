"""Replace columns of a batch, and copy rows into memory of their own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

__all__ = ["copied", "with_columns"]


def with_columns(batch: pa.RecordBatch, columns: Mapping[int, pa.Array]) -> pa.RecordBatch:
    """Return the batch with columns replaced, by number; fields keep everything except their types.

    All at once: `set_column` rebuilds the batch each time, and 24,000 columns, one by one, took 77 s.
    """
    if not columns:
        return batch
    fields, values = list(batch.schema), batch.columns
    for i, column in columns.items():
        fields[i], values[i] = fields[i].with_type(column.type), column
    return pa.RecordBatch.from_arrays(values, schema=pa.schema(fields, metadata=batch.schema.metadata))


def copied(table: pa.Table) -> pa.Table:
    """Return the rows in memory of their own: a slice of a mapped file keeps that file open.

    Uses Arrow's IPC format, which leaves out invisible bytes and copies dictionaries too; `take` shares those.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
