"""Columns of a batch in the place of others."""

from __future__ import annotations

import pyarrow as pa

from lading.batches import with_columns


def test_columns_come_with_their_types_and_all_else_stays() -> None:
    fields = [pa.field("a", pa.int64(), False, {b"k": b"v"}), pa.field("b", pa.string())]  # noqa: FBT003
    batch = pa.record_batch([[1, 2], ["x", "y"]], schema=pa.schema(fields, metadata={b"file": b"f"}))
    given = with_columns(batch, {0: pa.array([3.0, 4.0])})
    assert given.to_pydict() == {"a": [3.0, 4.0], "b": ["x", "y"]}
    assert given.schema.field(0).equals(pa.field("a", pa.float64(), False, {b"k": b"v"}), check_metadata=True)  # noqa: FBT003
    assert given.schema.metadata == {b"file": b"f"}
    assert batch.to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_rows_of_no_columns_stay() -> None:
    [bare] = pa.table({"none": pa.nulls(3)}).select([]).to_batches()
    assert with_columns(bare, {}).num_rows == 3
