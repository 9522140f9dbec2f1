"""Values as members of tars: the text or file of each type, as docs/formats/webdataset.md lists them."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading._core.features.types import Array, with_feature
from lading._core.formats.webdataset.values import decode_column, encoder_of, payload_of, restored_schema
from lading.errors import DataError, Unrepresentable

TEXTS: list[tuple[pa.DataType, Any, bytes]] = [
    (pa.bool_(), True, b"true"),
    (pa.bool_(), False, b"false"),
    (pa.int8(), -128, b"-128"),
    (pa.uint64(), (1 << 64) - 1, b"18446744073709551615"),
    (pa.float64(), 0.1, b"0.1"),
    (pa.float64(), 1.0, b"1"),
    (pa.float64(), -0.0, b"-0"),
    (pa.float64(), 1e22, b"1e+22"),
    (pa.float64(), 5e-324, b"5e-324"),
    (pa.float64(), float("inf"), b"inf"),
    (pa.float64(), float("-inf"), b"-inf"),
    (pa.float32(), float(np.float32(0.1)), b"0.10000000149011612"),
    (pa.float16(), np.float16(0.1), b"0.0999755859375"),
    (pa.string(), "größer", "größer".encode()),
    (pa.string(), "", b""),
    (pa.binary(), b"\xff\0", b"\xff\0"),
    (pa.binary(2), b"\xff\0", b"\xff\0"),
    (pa.decimal128(10, 3), Decimal("1.500"), b"1.500"),
    (pa.date32(), dt.date(2026, 11, 21), b"2026-11-21"),
    (pa.date64(), dt.date(1, 1, 1), b"0001-01-01"),
    (pa.time32("s"), dt.time(23, 59, 59), b"23:59:59"),
    (pa.time64("us"), dt.time(1, 2, 3, 4), b"01:02:03.000004"),
    (pa.timestamp("s"), dt.datetime(2026, 11, 21, 1, 2, 3), b"2026-11-21T01:02:03"),  # noqa: DTZ001 - has no zone
    (pa.timestamp("ms", "Europe/Berlin"), dt.datetime(2026, 11, 21, tzinfo=dt.UTC), b"2026-11-21T00:00:00.000Z"),
    (pa.duration("ms"), dt.timedelta(seconds=-1.5), b"-1500ms"),
    (pa.list_(pa.float32()), [1.5, None, -0.0], b"[1.5, null, -0.0]"),
    (pa.struct([("é", pa.int8()), ("b", pa.string())]), {"é": 1, "b": None}, '{"é": 1, "b": null}'.encode()),
    (pa.json_(), '{"a":1}', b'{"a":1}'),
    (pa.dictionary(pa.int8(), pa.int64()), 7, b"7"),
]


def members_of(field: pa.Field, column: pa.Array) -> pa.Array:
    return encoder_of(field)(column).cast(pa.large_binary())


def decoded(field: pa.Field, members: list[bytes | None]) -> pa.Array:
    [field] = restored_schema(pa.schema([field]))
    keys = pa.array([f"k{i}" for i in range(len(members))])
    return decode_column(field, pa.array(members, pa.large_binary()), keys, "t.tar")


@pytest.mark.parametrize("kind, value, member", TEXTS, ids=lambda item: str(item)[:30])
def test_what_a_value_becomes(kind: pa.DataType, value: Any, member: bytes) -> None:
    field = pa.field("x", kind)
    is_json = isinstance(kind, pa.JsonType)
    column = pa.array([None, value], pa.string()).cast(kind) if is_json else pa.array([None, value], kind)
    assert members_of(field, column).to_pylist() == [None, member]
    assert members_of(field, column[1:]).to_pylist() == [member]
    assert decoded(field, [None, member]).to_pylist() == [None, value]


@pytest.mark.parametrize("kind, value, member", TEXTS, ids=lambda item: str(item)[:30])
def test_python_reads_the_same_from_the_text(kind: pa.DataType, value: Any, member: bytes) -> None:
    """What somebody without lading does with a member."""
    types, text = pa.types, member.decode("latin-1")
    if types.is_floating(kind):
        assert float(text) == value or np.isnan(value)
    elif types.is_integer(kind):
        assert int(text) == value
    elif types.is_decimal(kind):
        assert Decimal(text) == value
    elif types.is_timestamp(kind):
        assert dt.datetime.fromisoformat(text) == value
    elif types.is_date(kind):
        assert dt.date.fromisoformat(text) == value
    elif types.is_time(kind):
        assert dt.time.fromisoformat(text) == value
    elif types.is_nested(kind):
        assert json.loads(member) == value


@pytest.mark.parametrize(
    "kind, count, member",
    [
        (pa.timestamp("s"), -62_135_596_801, b"-62135596801s"),
        (pa.timestamp("s"), -62_135_596_800, b"0001-01-01T00:00:00"),
        (pa.timestamp("us", "UTC"), 253_402_300_800_000_000, b"253402300800000000us"),
        (pa.timestamp("ns"), -(1 << 63), b"-9223372036854775808ns"),
        (pa.date32(), 2_932_897, b"2932897d"),
        (pa.date64(), 1, b"1ms"),
        (pa.time32("ms"), 86_400_000, b"86400000ms"),
        (pa.time64("ns"), -1, b"-1ns"),
    ],
    ids=str,
)
def test_times_that_iso_8601_does_not_have(kind: pa.DataType, count: int, member: bytes) -> None:
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    column = pa.array([count, None], whole).view(kind)
    assert members_of(pa.field("x", kind), column).to_pylist() == [member, None]
    assert decoded(pa.field("x", kind), [member, None]).view(whole).to_pylist() == [count, None]


def test_nan_and_columns_without_values() -> None:
    found = decoded(pa.field("x", pa.float32()), [b"nan", None])
    assert np.isnan(found[0].as_py())
    assert found[1].as_py() is None
    assert members_of(pa.field("x", pa.null()), pa.nulls(2)).to_pylist() == [None, None]
    assert decoded(pa.field("x", pa.null()), [None, None]).equals(pa.nulls(2))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float16"])
def test_arrays_are_npy_files(dtype: str) -> None:
    arrays = np.arange(12).reshape(2, 2, 3).astype(dtype)
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(arrays.dtype), (2, 3))
    rows = [arrays[0].reshape(-1), None, arrays[1].reshape(-1)]
    column = pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))
    for part, expected in ((column, [arrays[0], None, arrays[1]]), (column[2:], [arrays[1]])):
        members = members_of(pa.field("x", kind), part).to_pylist()
        for member, array in zip(members, expected, strict=True):
            assert (member is None) == (array is None)
            if array is not None:
                found = np.load(io.BytesIO(member), allow_pickle=False)
                assert found.dtype == array.dtype
                assert np.array_equal(found, array)
        assert decoded(pa.field("x", kind), members).equals(part)
    # As numpy itself writes them, and with another header than ours: in Fortran's order.
    others = [_npy(arrays[0]), None, _npy(np.asfortranarray(arrays[1]))]
    assert decoded(pa.field("x", kind), others).equals(column)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_bytes_of_arrays_are_npy_files_and_ranges_of_them_on_the_way_back() -> None:
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    field = with_feature(pa.field("x", pa.large_binary()), Array("float32", (2, 3)))
    members = members_of(field, pa.array([array.tobytes(), None], pa.large_binary()))
    assert np.array_equal(np.load(io.BytesIO(members[0].as_py())), array)
    keys = pa.array(["a", "b"])
    assert payload_of(field, members, keys, "t.tar").to_pylist() == [array.tobytes(), None]
    with pytest.raises(DataError, match=r"t\.tar sample 'b' column 'x'"):
        payload_of(field, pa.array([None, b"short"], pa.large_binary()), keys, "t.tar")
    with pytest.raises(Unrepresentable, match="24 bytes"):
        members_of(field, pa.array([b"short"], pa.large_binary()))


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.list_(pa.binary()),
        pa.list_(pa.timestamp("s")),
        pa.map_(pa.string(), pa.int8()),
        pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())]),
        pa.struct([("a", pa.list_(pa.decimal128(3, 1)))]),
        pa.fixed_shape_tensor(pa.bool_(), (2,)),
        pa.fixed_shape_tensor(pa.int8(), (2, 3), permutation=[1, 0]),
        pa.sparse_union([pa.field("a", pa.int8())]),
    ],
    ids=str,
)
def test_types_without_an_exact_form(kind: pa.DataType) -> None:
    with pytest.raises(Unrepresentable, match="the_column"):
        encoder_of(pa.field("the_column", kind))


def test_an_array_with_a_null_in_it() -> None:
    kind = pa.fixed_shape_tensor(pa.int8(), (2,))
    column = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2], None, [3, None]], kind.storage_type))
    with pytest.raises(Unrepresentable, match="null in it") as caught:
        members_of(pa.field("x", kind), column)
    assert (caught.value.column, caught.value.row) == ("x", 2)


@pytest.mark.parametrize(
    "kind, bad",
    [
        (pa.int64(), b"1.5"),
        (pa.int64(), b""),
        (pa.int8(), b"300"),
        (pa.uint8(), b"-1"),
        (pa.float64(), b"one"),
        (pa.float32(), b"0.1"),
        (pa.float16(), b"100000"),
        (pa.bool_(), b"yes"),
        (pa.string(), b"\xff"),
        (pa.int64(), b"\xff"),
        (pa.null(), b""),
        (pa.binary(2), b"abc"),
        (pa.date32(), b"21.11.2026"),
        (pa.date32(), b"5ms"),
        (pa.timestamp("s"), b"2026-11-21T00:00:00.5"),
        (pa.timestamp("s", "UTC"), b"2026-11-21T00:00:00"),
        (pa.time32("s"), b"24:00:01"),
        (pa.time32("s"), b"99999999999s"),
        (pa.duration("s"), b"5"),
        (pa.decimal128(4, 2), b"1.234"),
        (pa.decimal128(4, 2), b"123.45"),
        (pa.list_(pa.int8()), b"[1"),
        (pa.list_(pa.int8()), b"[300]"),
        (pa.list_(pa.int8()), b'["x"]'),
        (pa.list_(pa.int8()), b"7"),
        (pa.list_(pa.int8(), 2), b"[1]"),
        (pa.struct([("a", pa.int8())]), b'{"a": 1, "b": 2}'),
        (pa.list_(pa.struct([("a", pa.int8())])), b'[{"b": 2}]'),
        (pa.list_(pa.struct([("a", pa.int8())])), b"[1]"),
        (pa.list_(pa.string()), b'{"a": 1}'),
        (pa.list_(pa.string()), b'"ab"'),
        (pa.struct([("a", pa.int8())]), b'[["a", 1]]'),
        (pa.fixed_shape_tensor(pa.int8(), (2,)), b"\x93NUMPY"),
        (pa.fixed_shape_tensor(pa.int8(), (2,)), _npy(np.zeros(3, np.int8))),
        (pa.fixed_shape_tensor(pa.int8(), (2,)), _npy(np.zeros(2, np.int16))),
    ],
    ids=str,
)
def test_members_that_do_not_hold_what_their_column_does(kind: pa.DataType, bad: bytes) -> None:
    with pytest.raises(DataError, match=r"t\.tar sample 'k3' column 'x'"):
        decoded(pa.field("x", kind), [None, None, None, bad, None])


def test_a_member_is_missing_where_none_may_be() -> None:
    with pytest.raises(DataError, match=r"t\.tar sample 'k1' column 'x': a member is missing"):
        decoded(pa.field("x", pa.int8(), nullable=False), [b"1", None])


def test_what_comes_back_is_told_beforehand() -> None:
    inner = pa.dictionary(pa.int8(), pa.string())
    given = [inner, pa.binary(), pa.binary_view(), pa.string_view(), pa.list_(inner), pa.struct([("a", inner)]),
             pa.list_(inner, 2), pa.int8()]  # fmt: skip
    found = restored_schema(pa.schema([pa.field(str(i), kind) for i, kind in enumerate(given)], metadata={"a": "b"}))
    assert found.types == [
        pa.string(), pa.large_binary(), pa.large_binary(), pa.large_string(), pa.list_(pa.string()),
        pa.struct([("a", pa.string())]), pa.list_(pa.string(), 2), pa.int8(),
    ]  # fmt: skip
    assert found.metadata == {b"a": b"b"}
