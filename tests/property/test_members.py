"""Rows of any type into tars and back: nothing is lost, and content digests agree."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import lading
from lading._core.arrow.views import is_bytes, is_text
from lading._core.content.digests import DatasetDigest, sample_digests
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.types import Array, with_feature
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, Unrepresentable

_NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/\0"), max_size=4).filter(
    lambda name: name.lower() not in ("__key__", "__url__", "__local_path__")
)
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def _counts(kind: pa.DataType) -> st.SearchStrategy[int]:
    """Counts of the unit of a date or time: all that its integer holds, and those that people write."""
    bits = kind.bit_width
    usual = st.integers(0, 86_399) | st.sampled_from([-719_163, -719_162, 2_932_896, 2_932_897, 86_400])
    return usual | st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_UNITS = ("s", "ms", "us", "ns")
_TIMES = [
    *(
        pa.timestamp(unit, zone)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "+05:30")
    ),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
]
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_DECIMALS = [pa.decimal32(7, 2), pa.decimal64(9, 0), pa.decimal128(38, 10), pa.decimal256(60, 30), pa.decimal128(5, -2)]
_PLAIN = [
    pa.bool_(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    pa.binary(3), pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.float32()), pa.json_(),
]  # fmt: skip
_TENSORS = [
    pa.fixed_shape_tensor(pa.float32(), (2, 3)), pa.fixed_shape_tensor(pa.uint8(), (4,)),
    pa.fixed_shape_tensor(pa.float16(), (2, 1)), pa.fixed_shape_tensor(pa.int64(), (0, 2)),
]  # fmt: skip
_INSIDE = [pa.bool_(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string()]


def _integers(kind: pa.DataType) -> st.SearchStrategy[int]:
    info = np.iinfo(kind.to_pandas_dtype())
    return st.integers(int(info.min), int(info.max)) | st.sampled_from([int(info.min), int(info.max)])


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale)))


def _lists_of(kind: pa.DataType) -> st.SearchStrategy[list[Any]]:
    fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    return st.lists(st.none() | _values(kind.value_type), min_size=fixed or 0, max_size=fixed or 3)


_MAKERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], st.SearchStrategy[Any]]]] = [
    (pa.types.is_null, lambda _: st.none()),
    (pa.types.is_boolean, lambda _: st.booleans()),
    (pa.types.is_dictionary, lambda kind: _values(kind.value_type)),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, lambda kind: st.floats(width=kind.bit_width)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_fixed_size_binary, lambda kind: st.binary(min_size=kind.byte_width, max_size=kind.byte_width)),
    (is_bytes, lambda _: st.binary(max_size=20)),
    (is_text, lambda _: _TEXTS),
    (lambda kind: isinstance(kind, pa.JsonType), lambda _: st.sampled_from(["1", "null", '{"a": [1.0, "é"]}', '"x"'])),
    (
        pa.types.is_struct,
        lambda kind: st.fixed_dictionaries({child.name: st.none() | _values(child.type) for child in kind}),
    ),
    (pa.types.is_nested, _lists_of),
]


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values of a type."""
    return next(make(kind) for test, make in _MAKERS if test(kind))


def _column(draw: st.DrawFn, kind: pa.DataType, count: int) -> pa.Array:
    if kind in _TIMES:
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        counts = draw(_lists(_counts(pa.date32() if kind == pa.date64() else kind), count))
        if kind == pa.date64():
            counts = [None if days is None else days * 86_400_000 for days in counts]
        return pa.array(counts, whole).view(kind)
    if isinstance(kind, pa.FixedShapeTensorType):
        size = kind.storage_type.list_size
        items = st.lists(_values(kind.value_type), min_size=size, max_size=size)
        rows = [None if row is None else np.array(row, kind.value_type.to_pandas_dtype())
                for row in draw(_lists(items, count))]  # fmt: skip
        return pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))
    values = draw(_lists(_values(kind), count))
    if pa.types.is_float16(kind):
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, kind.storage_type).cast(kind) if isinstance(kind, pa.JsonType) else pa.array(values, kind)


def _lists(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, min_size=count, max_size=count)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.lists(_TEXTS, max_size=3, unique=True)
    fields = names.flatmap(lambda found: st.tuples(*(st.tuples(st.just(name), inner) for name in found)))
    lists = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2)]
    return fields.map(pa.struct) | st.tuples(st.sampled_from(lists), inner).map(lambda made: made[0](made[1]))


_KINDS = st.sampled_from([*_TIMES, *_INTEGERS, *_FLOATS, *_DECIMALS, *_PLAIN, *_TENSORS]) | _nested(
    st.recursive(st.sampled_from(_INSIDE), _nested, max_leaves=3)
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows of columns of any type, with at least one value each; perhaps with keys."""
    count = draw(st.integers(1, 6))
    names = draw(st.lists(_NAMES, min_size=1, max_size=5, unique_by=str.lower))
    columns = {name: _column(draw, draw(_KINDS), count) for name in names}
    if draw(st.booleans()):
        columns["__key__"] = pa.array([f"k{i}" for i in range(count)])
    empty = all(column.null_count for name, column in columns.items() if name != "__key__")
    if empty:
        assume("filled" not in names)
        columns["filled"] = pa.array(range(count))
    return pa.table(columns)


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Equal, where NaN equals NaN: by the digests of both, which know −0.0 from 0.0."""
    pairs = [pa.table([column], names=["x"]) for column in (one, other)]
    return bool((sample_digests(pairs[0]) == sample_digests(pairs[1])).all())


def _came_back(kind: pa.DataType) -> pa.DataType:
    """The type of what is read, by docs/formats/webdataset.md."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return pa.large_string() if kind == pa.string_view() else kind


@given(tables(), st.sampled_from([None, "zstd"]), st.integers(1, 6))
def test_rows_come_back_from_tars(rows: pa.Table, compression: str | None, batch_rows: int) -> None:
    stores = Stores({"memory://x": MemoryStore()})
    with DatasetWriter("memory://x/out", options={"compression": compression}, stores=stores) as writer:
        for batch in rows.to_batches(max_chunksize=batch_rows):
            writer.write_batch(batch)
    with lading.open("memory://x/out", stores=stores) as ds:
        found = [pa.Table.from_batches(ds.batches(max_rows=batch_rows)), ds.take(range(len(rows)))]
        assert [table.column_names for table in found] == [rows.column_names] * 2
        odd_times = any(
            pa.types.is_time(kind) for kind in rows.schema.types
        )  # outside of a day Arrow calls them invalid
        kinds = [_came_back(kind) for kind in rows.schema.types]
        assert ds.schema.types == kinds
        for table in found:
            assert table.schema.types == kinds
            table.validate(full=not odd_times)
            for name in rows.column_names:
                assert _same(table[name], rows[name]), name
                assert table[name].is_valid().equals(rows[name].is_valid()), name
        assert (sample_digests(found[0]) == sample_digests(rows)).all()
        _check_single_samples(ds)
    assert lading.digest("memory://x/out", stores=stores).ordered == _digest(rows)


def _check_single_samples(ds: lading.Dataset) -> None:
    """Samples by number are those of iteration, unless Python cannot hold one."""
    ds = ds.with_decode(False)
    try:
        samples = list(ds)
    except DataError:
        return
    for i, sample in enumerate(samples):
        assert repr(ds[i]) == repr(sample)


_REFUSED = {"media"}
"""A column that would have to hold the media of documents."""


@pytest.mark.soak
@example(pa.table({"a": pa.array(["null", "1", None], pa.json_())}), "jsonl", 2)
@given(tables(), st.sampled_from(["jsonl", "parquet"]), st.integers(1, 6))
def test_rows_come_back_from_media_archives(rows: pa.Table, documents: str, batch_rows: int) -> None:
    """Those that the file of documents holds; all others are refused before anything is written."""
    assume(not _REFUSED & {*rows.column_names})
    stores = Stores({"memory://x": MemoryStore()})
    options = {"documents": documents}
    try:
        with DatasetWriter("memory://x/out", format="media_archive", options=options, stores=stores) as writer:
            for batch in rows.to_batches(max_chunksize=batch_rows):
                writer.write_batch(batch)
    except Unrepresentable:
        assert not list(stores.by_prefix["memory://x"].walk("memory://x"))
        return
    with lading.open("memory://x/out", stores=stores) as ds:
        for table in (pa.Table.from_batches(ds.batches(max_rows=batch_rows)), ds.take(range(len(rows)))):
            assert table.column_names == rows.column_names
            for name in rows.column_names:
                assert _same(table[name], rows[name]), name
                assert table[name].is_valid().equals(_valid(rows[name], documents)), name
    assert lading.digest("memory://x/out", stores=stores).ordered == _digest(rows)


def _valid(column: pa.ChunkedArray, documents: str) -> pa.ChunkedArray:
    """What is not null in documents of a kind: JSON Lines cannot tell the JSON value null from none."""
    if documents != "jsonl" or not isinstance(column.type, pa.JsonType):
        return column.is_valid()
    texts = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string())
    return pc.fill_null(pc.not_equal(texts, "null"), fill_value=False)


def _digest(rows: pa.Table) -> str | None:
    whole = DatasetDigest()
    whole.update(sample_digests(rows))
    return whole.ordered


@pytest.mark.soak
@given(st.sampled_from(["uint8", "float32", "bool"]), st.lists(st.none() | st.integers(0, 200), min_size=1, max_size=5))
def test_bytes_of_arrays_come_back(dtype: str, numbers: list[int | None]) -> None:
    arrays = [None if n is None else np.full((2, 3), n).astype(dtype).tobytes() for n in numbers]
    field = with_feature(pa.field("a", pa.large_binary()), Array(dtype, (2, 3)))
    rows = pa.table([arrays, list(range(len(arrays)))], pa.schema([field, pa.field("n", pa.int64())]))
    stores = Stores({"memory://x": MemoryStore()})
    with DatasetWriter("memory://x/out", stores=stores) as writer:
        writer.write_batch(rows)
    with lading.open("memory://x/out", stores=stores) as ds:
        assert ds.take(range(len(rows))).to_pylist() == rows.to_pylist()
        assert [sample["a"].tobytes() for sample in ds if sample["a"] is not None] == [
            a for a in arrays if a is not None
        ]
