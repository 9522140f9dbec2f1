"""Arrow files and streams as pyarrow writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["arrow_bytes"]


def arrow_bytes(table: pa.Table, make: Any = pa.ipc.new_file, max_rows: int | None = 10, **options: Any) -> bytes:
    """Return a table as `make` writes it, in record batches of at most so many rows; None keeps its own."""
    sink = pa.BufferOutputStream()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=max_rows)
    return bytes(sink.getvalue().to_pybytes())
