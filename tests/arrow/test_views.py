"""Views: every function against the plain way, a `bytes` at a time."""

from __future__ import annotations

import decimal
import mmap
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost import costs_at_most
from lading._core.arrow.byte_ranges import bitmap
from lading._core.arrow.references import make_refs
from lading._core.arrow.views import (
    SEGMENT_BYTES,
    byte_lengths,
    compacted,
    filled,
    flattened,
    from_ranges,
    gather,
    join,
    listed_items,
    over,
    reorder,
    row_bytes,
    share,
    shown_bytes,
    slices,
    take,
    take_rows,
    take_values,
    total_bytes,
)

_BODY = bytes(range(256)) * 4
_VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=30)))
_KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]


@st.composite
def _ranges(draw: st.DrawFn) -> list[tuple[int, int] | None]:
    spans = st.integers(0, len(_BODY)).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(0, min(40, len(_BODY) - start)))
    )
    return draw(st.lists(st.one_of(st.none(), spans)))


def _split(ranges: list[tuple[int, int] | None]) -> tuple[Any, Any, Any]:
    offset = np.array([-1 if r is None else r[0] for r in ranges], np.int64)
    length = np.array([-1 if r is None else r[1] for r in ranges], np.int64)
    return offset, length, np.array([r is not None for r in ranges], np.bool_)


@given(_ranges())
def test_views_of_ranges_are_the_bytes_there(ranges: list[tuple[int, int] | None]) -> None:
    column = from_ranges(pa.py_buffer(_BODY), *_split(ranges))
    column.validate(full=True)
    assert column.type == pa.binary_view()
    assert column.to_pylist() == [None if r is None else _BODY[r[0] : r[0] + r[1]] for r in ranges]
    assert byte_lengths(column).tolist() == [0 if r is None else r[1] for r in ranges]


@given(_ranges(), st.integers(0, 2**32 - 1))
def test_views_of_several_buffers(ranges: list[tuple[int, int] | None], seed: int) -> None:
    bodies = [_BODY, _BODY[::-1], b"\x07" * len(_BODY)]
    which = np.random.default_rng(seed).integers(0, 3, len(ranges)).astype(np.int32)
    column = gather([pa.py_buffer(body) for body in bodies], which, *_split(ranges))
    column.validate(full=True)
    expected = [None if r is None else bodies[w][r[0] : r[0] + r[1]] for r, w in zip(ranges, which, strict=True)]
    assert column.to_pylist() == expected


@given(_VALUES)
def test_views_over_bytes_share_them(values: list[bytes | None]) -> None:
    column = over(values)
    column.validate(full=True)
    assert column.type == pa.binary_view()
    assert column.to_pylist() == values
    shared = [buffer.address for buffer in column.buffers()[2:]]
    assert shared == [pa.py_buffer(value).address for value in values if value is not None and len(value) > 12]


@given(_VALUES, st.sampled_from([*_KINDS, pa.string_view(), pa.string(), pa.large_string()]), st.data())
def test_lengths_and_slices(values: list[bytes | None], kind: pa.DataType, data: st.DataObject) -> None:
    text = "string" in str(kind)
    column = pa.array([v.hex() if text and v is not None else v for v in values], kind)
    values = [v.hex().encode() if text and v is not None else v for v in values]
    start = data.draw(st.integers(0, len(values)))
    parts = pa.chunked_array([column.slice(start), column], kind)
    for found, expected in ((column.slice(start), values[start:]), (parts, values[start:] + values)):
        assert byte_lengths(found).tolist() == [len(v or b"") for v in expected]
        assert [None if v is None else bytes(v) for v in slices(found)] == expected


def test_lengths_of_bytes_of_one_size() -> None:
    assert byte_lengths(pa.array([b"abc", None], pa.binary(3))).tolist() == [3, 0]


def test_runs_weigh_what_their_values_do_in_each_row() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int32()), ["four", None, "ab"])
    weights = [4, 4, 0, 2, 2, 2]
    lists = pa.ListArray.from_arrays([0, 3, 3, 6], runs)
    for start in range(7):
        batch = pa.record_batch([runs.slice(start)], ["runs"])
        assert row_bytes(batch).tolist() == weights[start:]
        assert total_bytes(batch) == sum(weights[start:])
    assert row_bytes(pa.record_batch([lists], ["lists"])).tolist() == [8, 0, 6]
    assert row_bytes(pa.record_batch([lists], ["lists"]), 10).tolist() == [48, 10, 46]


@given(_VALUES, st.data())
def test_take_is_python_indexing(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    column, values = pa.array(values, pa.binary_view()).slice(start), values[start:]
    rows = data.draw(st.lists(st.integers(0, len(values) - 1))) if values else []
    taken = take(column, np.array(rows, np.int64))
    taken.validate(full=True)
    assert taken.to_pylist() == [values[row] for row in rows]


@given(_VALUES, st.data())
def test_rows_of_a_batch_with_views(values: list[bytes | None], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(values) - 1)) if values else st.just([]))
    numbers = list(range(len(values)))
    batch = pa.record_batch([pa.array(values, pa.large_binary()).cast(pa.binary_view()), numbers], ["view", "number"])
    taken = take_rows(batch, np.array(rows, np.int64))
    taken.validate(full=True)
    assert taken.to_pydict() == {"view": [values[i] for i in rows], "number": rows}


@pytest.mark.parametrize("rows", [[], [0], [5, 0, 0, 3, 4, 2], [1, 2]])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string_view(), pa.binary_view(), pa.list_(pa.int64())])
def test_rows_of_runs_are_runs(kind: pa.DataType, rows: list[int]) -> None:
    values = pa.array([[1], None, [2]]) if pa.types.is_list(kind) else pa.array([1, None, 2]).cast(pa.string())
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 9], pa.int16()), values.cast(kind)).slice(1, 6)
    taken = take_values(column, np.array(rows, np.int64))
    taken.validate(full=True)
    assert taken.type == column.type
    assert taken.to_pylist() == [column.to_pylist()[row] for row in rows]


def test_rows_without_a_column_are_counted() -> None:
    batch = pa.record_batch([range(5)], ["n"])
    assert take_rows(batch.select([]), np.array([0, 3])).num_rows == 2
    assert take_rows(batch, np.arange(5)) is batch


@given(st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))), st.data())
def test_nulls_filled_from_another_column(pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject) -> None:
    first, second = (
        pa.array([None, *(pair[i] for pair in pairs)], data.draw(st.sampled_from(_KINDS))).slice(1) for i in (0, 1)
    )
    column = filled(first, second)
    column.validate(full=True)
    assert column.to_pylist() == [b if a is None else a for a, b in pairs]


@given(_VALUES, st.sampled_from(_KINDS), st.data())
def test_to_share_and_to_join_keep_the_values(
    values: list[bytes | None], kind: pa.DataType, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values)))
    column = pa.array(values, kind).slice(start)
    assert share(column).type == pa.binary_view()
    assert share(column).to_pylist() == values[start:]
    assert join(share(column)).type == pa.large_binary()
    assert join(share(column)).to_pylist() == values[start:]


def test_to_share_copies_nothing() -> None:
    column = pa.array([b"x" * 100] * 10, pa.large_binary())
    assert share(column).buffers()[2].address == column.buffers()[2].address


def test_to_join_leaves_other_types_alone() -> None:
    column = pa.array(["a"])
    assert join(column) is column
    assert join(column.cast(pa.string_view())).type == pa.large_string()


# Large maps: 3 GiB of address space, of which a few pages are touched.

_MARKS = (0, SEGMENT_BYTES - 10, SEGMENT_BYTES + 20, (3 << 29) - 7, 5 << 29, (3 << 30) - 20)


@pytest.fixture(scope="module")
def large() -> pa.Buffer:
    mapped = mmap.mmap(-1, 3 << 30)
    for at in (*_MARKS, (1 << 31) - 10):
        mapped[at : at + 20] = b"%020d" % at
    return pa.py_buffer(mapped)


@pytest.mark.parametrize("size", [(1 << 30) + (1 << 29) + 13, (1 << 31) - 1, 1 << 31, 3 << 30])
def test_offsets_beyond_31_bits(large: pa.Buffer, size: int) -> None:
    at = [a for a in _MARKS if a + 20 <= size]
    buffer = large.slice(0, size)
    column = from_ranges(buffer, np.array(at), np.full(len(at), 20))
    assert column.to_pylist() == [b"%020d" % a for a in at]
    assert [bytes(part or b"") for part in slices(column)] == [b"%020d" % a for a in at]
    mixed = gather([buffer, pa.py_buffer(_BODY)], np.array([1, 0], np.int32), np.array([0, at[-1]]), np.array([20, 20]))
    assert mixed.to_pylist() == [_BODY[:20], b"%020d" % at[-1]]


def test_values_of_more_than_a_segment_have_one_to_themselves(large: pa.Buffer) -> None:
    start, size = SEGMENT_BYTES - 10, (1 << 30) + 20
    column = from_ranges(large, np.array([start, 0, 5]), np.array([size, 20, 0]))
    assert column.type == pa.binary_view()
    assert byte_lengths(column).tolist() == [size, 20, 0]
    value, small, empty = slices(column)
    assert value is not None
    assert (len(value), bytes(value[:20]), bytes(value[-20:])) == (size, b"%020d" % start, b"%020d" % ((1 << 31) - 10))
    assert (small, empty) == (b"%020d" % 0, b"")


def test_large_columns_are_shared_by_segments(large: pa.Buffer) -> None:
    at = [0, 20, 5 << 29, (5 << 29) + 20]
    ends = pa.py_buffer(np.array(at, np.int64))
    wide = pa.Array.from_buffers(pa.large_binary(), 3, [pa.py_buffer(b"\x05"), ends, large])
    column = share(wide.slice(2))
    assert column.to_pylist() == [b"%020d" % (5 << 29)]
    assert share(wide.slice(1)).is_valid().to_pylist() == [False, True]


# Bytes of rows.


def hiding(texts: list[str], row: int) -> pa.Array:
    """Texts, one of them null, its bytes still there, as Arrow allows."""
    _, ends, data = pa.array(texts).buffers()
    valid = bitmap(np.arange(len(texts)) != row)
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, ends, data])


@pytest.mark.parametrize(
    "column, expected",
    [
        (pa.array(["é", None, ""]), [2, 0, 0]),
        (hiding(["ab", "cde", "f"], 1), [2, 0, 1]),
        (pa.array([b"x" * 40, None], pa.binary_view()), [40, 0]),
        (pa.array([b"abc", None], pa.binary(3)), [3, 3]),
        (pa.array([1, None], pa.int16()), [2, 2]),
        (pa.array([True, False]), [1, 1]),
        (pa.array([None, decimal.Decimal(1)], pa.decimal128(9, 2)), [16, 16]),
        (pa.nulls(2), [0, 0]),
        (pa.array(["a", "bb", None, "a"]).dictionary_encode(), [1, 2, 0, 1]),
        (pa.DictionaryArray.from_arrays(pa.array([127, None, 0], pa.int8()), pa.array(["ab"] * 128)), [2, 0, 2]),
        (pa.array([["a", "bc"], None, [], ["xyz"]]), [3, 0, 0, 3]),
        (pa.array([[1, 2], None, [3]], pa.large_list(pa.int64())), [16, 0, 8]),
        (pa.array([[1, 2], None, [3]], pa.list_view(pa.int64())), [16, 0, 8]),
        (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)), [4, 4, 4]),
        (pa.array([[[1], [2, 3]], [[]], None], pa.list_(pa.list_(pa.int8()))), [3, 0, 0]),
        (pa.array([[[1], None, [2, 3]], [[], [4]], None], pa.list_(pa.large_list(pa.int16()))), [6, 2, 0]),
        (pa.array([[[1], [2, 3]], [], [[4]]], pa.large_list(pa.list_view(pa.int16()))), [6, 0, 2]),
        (pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int8(), 2))), [2, 0, 4]),
        (pa.array([[[1, 2], [3]], None, [[], [4]]], pa.list_(pa.list_(pa.int8()), 2)), [3, 0, 1]),
        (pa.array([[[[1, 2], []]], [[[3]], []]], pa.list_(pa.list_(pa.list_(pa.int8())))), [2, 1]),
        (pa.array([[], [[], []]], pa.list_(pa.list_(pa.int8()))), [0, 0]),
        (pa.array([[None, None], [None]], pa.list_(pa.null())), [0, 0]),
        (pa.array([[("k", "vv")], None], pa.map_(pa.string(), pa.string())), [3, 0]),
        (pa.array([{"bytes": b"xx", "path": "p"}, {"bytes": None, "path": None}]), [3, 0]),
        (pa.array(['{"a": 1}', None], pa.json_()), [8, 0]),
        (make_refs(np.array([0, 5, 9]), np.array([5, -1, 7]), valid=np.array([True, True, False])), [5, 0, 0]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_bytes_of_rows(column: pa.Array, expected: list[int]) -> None:
    for start in range(len(column) + 1):
        for count in (len(column) - start, min(1, len(column) - start)):
            batch = pa.record_batch([column.slice(start, count)], names=["c"])
            assert row_bytes(batch).tolist() == expected[start : start + count]
            assert total_bytes(batch) == sum(expected[start : start + count])


def test_bytes_of_rows_add_up() -> None:
    batch = pa.record_batch({"a": ["x", "yy"], "b": [[1, 2], []], "c": [1.0, 2.0]})
    assert row_bytes(batch).tolist() == [1 + 16 + 8, 2 + 0 + 8]
    assert total_bytes(batch) == 35
    assert row_bytes(batch.select([])).tolist() == [0, 0]
    assert total_bytes(batch.select([])) == 0


@pytest.mark.parametrize("column, expected", [
    (pa.array([1, None], pa.int8()), [1 + 9, 1 + 9]),
    (pa.array([[1, 2], [], None], pa.list_(pa.int8())), [2 + 3 * 9, 9, 9]),
    (pa.array([["abc"], []]), [3 + 2 * 9, 9]),
    (pa.array([[[1, 2], []], [[3]]], pa.list_(pa.list_(pa.int8()))), [2 + 5 * 9, 1 + 3 * 9]),
    (pa.array([[[1, 2], [3, 4]], []], pa.list_(pa.list_(pa.int8(), 2))), [4 + 7 * 9, 9]),
    (pa.array([[{"a": 1, "b": "xy"}]], pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]))), [3 + 4 * 9]),
])  # fmt: skip
def test_what_each_value_takes_besides_is_reckoned_at_any_depth(column: pa.Array, expected: list[int]) -> None:
    assert row_bytes(pa.record_batch([column], ["c"]), 9).tolist() == expected


@pytest.mark.parametrize("kind", [
    pa.list_(pa.uint8()), pa.list_view(pa.uint8()), pa.list_(pa.uint8(), 1 << 17), pa.list_(pa.list_(pa.uint8())),
])  # fmt: skip
def test_nothing_is_made_for_each_number_in_lists(kind: pa.DataType) -> None:
    items = pa.array(np.zeros(1 << 20, np.uint8))
    offsets = pa.array(np.arange(9, dtype=np.int32) << 17)
    lists = pa.FixedSizeListArray.from_arrays(items, 1 << 17)
    if not pa.types.is_fixed_size_list(kind):
        lists = pa.ListArray.from_arrays(offsets, items)
    if pa.types.is_list_view(kind):
        lists = pa.ListViewArray.from_arrays(offsets[:-1], pa.array([1 << 17] * 8, pa.int32()), items)
    if kind == pa.list_(pa.list_(pa.uint8())):
        lists = pa.ListArray.from_arrays(pa.array([0, 4, 4, 8], pa.int32()), lists)
    assert lists.type == kind
    batch = pa.record_batch([lists], ["c"])
    tracemalloc.start()
    try:
        sizes, (found, ends) = row_bytes(batch), listed_items(lists)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert (sizes.sum(), total_bytes(batch), ends[-1]) == (1 << 20, 1 << 20, len(found))


@pytest.mark.parametrize("kept, kind", [(1, pa.large_binary()), (3, pa.binary_view())])
def test_few_views_of_much_are_copied(kept: int, kind: pa.DataType) -> None:
    values = [bytes([i]) * 100 for i in range(4)]
    batch = pa.record_batch({"n": range(4), "b": pa.array(values, pa.binary_view())})
    left = compacted(take_rows(batch, np.arange(kept)), shown_bytes(batch))
    assert shown_bytes(batch) == 400
    assert left.column("b").to_pylist() == values[:kept]
    assert left.column("b").type == kind


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "c"]),
        pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
        pa.array([b"x" * 20_000, None, b""]),
        pa.array([b"x" * 20_000, None, b""], pa.large_binary()),
        pa.array([["a"], None, []], pa.list_(pa.string_view())),
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])),
    ],
    ids=lambda values: str(values.type),
)
def test_rows_of_any_type_in_any_order(values: pa.Array) -> None:
    table = pa.table({"x": pa.chunked_array([values, values.slice(1)]), "n": range(5)}).replace_schema_metadata(
        {"k": "v"}
    )
    rows = np.array([4, 0, 0, 2])
    found = reorder(table, rows)
    expected = table.to_pylist()
    assert found.to_pylist() == [expected[row] for row in rows]
    assert found.schema.equals(table.schema, check_metadata=True)
    assert reorder(table, np.zeros(0, np.int64)).num_rows == 0


@pytest.mark.soak
def test_what_outgrows_32_bit_offsets_becomes_large() -> None:
    """Two GiB and one MiB, of one value again and again."""
    column = pa.array([b"x" * (1 << 20)], pa.binary())
    rows = np.zeros(2049, np.int64)
    found = reorder(pa.table({"x": column}), rows)
    assert found.schema.field("x").type == pa.large_binary()
    assert len(found.column("x")[2048].as_py()) == 1 << 20


def test_fields_of_a_struct_without_rows_are_sound_whatever_they_hold() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int16()), pa.array([1]))
    [lists] = flattened(pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], runs)], ["a"])[:0])
    lists.validate(full=True)
    assert (len(lists), lists.type) == (0, pa.list_(runs.type))


@pytest.mark.parametrize("nulls", [None, pa.array([False, True, False, True])])
def test_fields_of_a_struct_are_as_pyarrow_gives_them(nulls: pa.Array | None) -> None:
    fields = {"n": pa.array([1, None, 3, 4]), "s": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}])}
    column = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=nulls)
    for part in (column, column[1:3], column[4:]):
        assert flattened(part) == part.flatten()


@pytest.mark.parametrize("nulls", [None, pa.array([True, *[False] * 7])])
def test_fields_of_a_struct_cost_what_they_cost_pyarrow(nulls: pa.Array | None) -> None:
    """Ten times as much they cost one by one."""
    column = pa.StructArray.from_arrays([pa.array(range(8))] * 50, [str(i) for i in range(50)], mask=nulls)
    one, other = lambda: [flattened(column) for _ in range(300)], lambda: [column.flatten() for _ in range(300)]
    assert any(costs_at_most(6, one, other) for _ in range(3))


def test_fields_of_structs_keep_their_bytes_beside_run_ends() -> None:
    kind = pa.opaque(pa.binary_view(), "blob", "me")
    values = pa.ExtensionArray.from_storage(kind, pa.array([b"x" * 14, b"y" * 14], pa.binary_view()))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int16()), pa.array([1]))
    column = pa.StructArray.from_arrays([runs, values], ["r", "v"], mask=pa.array([True, False]))
    _, found = flattened(column)
    assert (found.type, found.storage.to_pylist()) == (kind, [None, b"y" * 14])


def test_a_struct_with_a_union_is_measured() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    column = pa.StructArray.from_arrays([pa.array(["abc", "de"]), union], ["t", "u"], mask=pa.array([False, True]))
    number, letters = flattened(column)[1], flattened(column)[0]
    assert (letters.to_pylist(), number.to_pylist()) == (["abc", None], [1, "b"])
    assert row_bytes(pa.record_batch([column], ["s"])).tolist() == [3, 0]
