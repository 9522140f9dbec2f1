"""Columns of a batch in the place of others, and rows in memory of their own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lading._core.arrow.batches import copied, with_columns


def test_columns_come_with_their_types_and_all_else_stays() -> None:
    fields = [pa.field("a", pa.int64(), False, {b"k": b"v"}), pa.field("b", pa.string())]
    batch = pa.record_batch([[1, 2], ["x", "y"]], schema=pa.schema(fields, metadata={b"file": b"f"}))
    given = with_columns(batch, {0: pa.array([3.0, 4.0])})
    assert given.to_pydict() == {"a": [3.0, 4.0], "b": ["x", "y"]}
    assert given.schema.field(0).equals(pa.field("a", pa.float64(), False, {b"k": b"v"}), check_metadata=True)
    assert given.schema.metadata == {b"file": b"f"}
    assert batch.to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_rows_of_no_columns_stay() -> None:
    [bare] = pa.table({"none": pa.nulls(3)}).select([]).to_batches()
    assert with_columns(bare, {}).num_rows == 3


_RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 7], pa.int32()), pa.array(["x", None, "y"]))
_WORDS = pa.array(["a", None, "b", "a"]).dictionary_encode()


def _places(column: pa.Array) -> list[tuple[int, int]]:
    """Where the buffers of a column begin and end, those of its dictionary too."""
    inside = [column.dictionary] if pa.types.is_dictionary(column.type) else []
    found = [b for array in (column, *inside) for b in array.buffers() if b is not None]
    return [(b.address, b.address + b.size) for b in found]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1, 2], None, [3], []], pa.list_(pa.int8())),
        pa.array([[1, 2], None, [3], []], pa.list_view(pa.int8())),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([{"a": "x"}, None, {"a": None}]),
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        pa.array([1, None, 3], pa.decimal128(5, 2)),
        pa.array(["long enough for no view to hold", None, "b"], pa.string_view()),
        pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), _WORDS),
        pa.ListArray.from_arrays(pa.array([0, 1, 3, 7], pa.int32()), _RUNS),
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None, "2"])),
        _WORDS,
        _RUNS,
        pa.nulls(3),
    ],
    ids=lambda column: str(column.type)[:30],
)
def test_copied_rows_lie_in_memory_of_their_own(column: Any) -> None:
    for some in (column, column.slice(1), column.slice(1, 1), column.slice(0, 0)):
        table = pa.table({"c": pa.chunked_array([some, column.slice(0, 1)])}, metadata={"file": "f"})
        found = copied(table)
        found.validate(full=True)
        assert found.schema.equals(table.schema, check_metadata=True)
        assert found.to_pylist() == table.to_pylist()
        there = _places(column)
        for chunk in found.column("c").chunks:
            assert not any(a < d and c < b for a, b in _places(chunk) for c, d in there)
