"""The canonical form against a second, plain reading of its definition; and that only content shows in it."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lading._core.content.digests import DatasetDigest, sample_digests
from lading._core.features.types import Json, with_feature

_EPOCH = dt.date(1970, 1, 1)


class Array(tuple[str, tuple[int, ...], bytes]):
    """A dense array for `form`: dtype, shape, values."""

    __slots__ = ()


def form(value: Any) -> bytes:  # noqa: C901, PLR0911, PLR0912 - one case a type
    """The form of a Python value, as the definition says it."""
    match value:
        case None:
            return b"n"
        case bool():
            return b"T" if value else b"F"
        case int():
            wide = not -(1 << 63) <= value < 1 << 63
            return b"I" + form(str(value)) if wide else b"i" + value.to_bytes(8, "little", signed=True)
        case float():
            return b"f" + (bytes.fromhex("000000000000f87f") if math.isnan(value) else struct.pack("<d", value))
        case str():
            return form(value.encode("utf-8", "surrogatepass"))
        case bytes():
            return b"s%c" % len(value) + value if len(value) <= 64 else b"h" + xxhash.xxh3_128(value).digest()
        case Array():
            return b"a" + form(value[0]) + form(list(value[1])) + form(value[2])
        case list():
            return b"l" + len(value).to_bytes(8, "little") + b"".join(map(form, value))
        case dict():
            fields = sorted((k.encode("utf-8", "surrogatepass"), v) for k, v in value.items() if v is not None)
            return b"{" + b"".join(form(k) + form(v) for k, v in fields) + b"}"
        case Decimal():
            return b"d" + form(str(value))
        case dt.datetime():
            origin = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo and dt.UTC)
            return _time(b"z" if value.tzinfo else b"t", value - origin)
        case dt.date():
            return b"Dd" + (value - _EPOCH).days.to_bytes(8, "little", signed=True)
        case dt.time():
            return _time(b"o", dt.datetime.combine(_EPOCH, value) - dt.datetime.combine(_EPOCH, dt.time()))
        case dt.timedelta():
            return _time(b"u", value)
    raise TypeError(type(value))


def _time(tag: bytes, value: dt.timedelta) -> bytes:
    seconds = Fraction(value // dt.timedelta(microseconds=1), 1_000_000)
    for unit, parts in ((b"s", 1), (b"m", 1000), (b"u", 1_000_000)):
        if (seconds * parts).denominator == 1:
            return tag + unit + int(seconds * parts).to_bytes(8, "little", signed=True)
    raise AssertionError


def digest(sample: dict[str, Any]) -> bytes:
    return xxhash.xxh3_128(form(sample)).digest()


_names = st.text(st.characters(exclude_categories=("Cs",)), max_size=3)
_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ["x" * 64, "x" * 65, "ü" * 33]
)
_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 - naive on purpose
_KINDS: list[tuple[st.SearchStrategy[Any], list[pa.DataType]]] = [
    (st.integers(-128, 127), [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.dictionary(pa.int8(), pa.int64())]),
    (st.integers(0, (1 << 64) - 1), [pa.uint64()]),
    (st.floats(width=16), [pa.float16(), pa.float32(), pa.float64()]),
    (st.booleans(), [pa.bool_()]),
    (_texts, [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]),
    (st.binary(max_size=70), [pa.binary(), pa.large_binary(), pa.binary_view()]),
    (st.binary(min_size=3, max_size=3), [pa.binary(3), pa.binary(), pa.dictionary(pa.int32(), pa.binary())]),
    (st.decimals(-999, 999, places=2), [pa.decimal128(5, 2), pa.decimal256(40, 2), pa.decimal64(9, 2)]),
    (st.dates(), [pa.date32(), pa.date64()]),
    (_moments, [pa.timestamp("us")]),
    (_moments.map(lambda d: d.replace(microsecond=0)), [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")]),
    (
        _moments.map(lambda d: d.replace(tzinfo=dt.UTC)),
        [pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="+05:30")],
    ),
    (st.times(), [pa.time64("us")]),
    (st.times().map(lambda t: t.replace(microsecond=5000)), [pa.time32("ms"), pa.time64("us")]),
    (st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)), [pa.duration("us")]),
    (st.none(), [pa.null(), pa.int8(), pa.list_(pa.string()), pa.struct([("a", pa.int8())])]),
]


def _nested(kinds: list[tuple[st.SearchStrategy[Any], pa.DataType]]) -> st.SearchStrategy[Any]:
    values, kind = zip(*kinds, strict=True)
    struct_type = pa.struct([(f"f{i}", k) for i, k in enumerate(kind)])
    structs = st.fixed_dictionaries({f"f{i}": st.none() | v for i, v in enumerate(values)})
    lists = st.lists(st.none() | values[0], max_size=3)
    pairs = st.lists(st.none() | values[0], min_size=2, max_size=2)
    return st.sampled_from(
        [
            (structs, struct_type),
            (lists, pa.list_(kind[0])),
            (lists, pa.large_list(kind[0])),
            (lists, pa.list_view(kind[0])),
            (lists, pa.large_list_view(kind[0])),
            (pairs, pa.list_(kind[0], 2)),
            (st.lists(structs, max_size=2), pa.list_(struct_type)),
        ]
    )


_flat = st.sampled_from(_KINDS).flatmap(lambda kind: st.tuples(st.just(kind[0]), st.sampled_from(kind[1])))
_types = _flat | st.lists(_flat, min_size=1, max_size=3).flatmap(_nested)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[dict[str, Any]]]:
    """A table, and its samples as they went in."""
    count = draw(st.integers(0, 5))
    names = draw(st.lists(_names, max_size=4, unique=True))
    columns, samples = [], [dict[str, Any]() for _ in range(count)]
    for name in names:
        values, kind = draw(_types)
        column = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns.append(pa.array(column, kind))
        for sample, value in zip(samples, column, strict=True):
            sample[name] = value
    return pa.table(columns, names=names) if names else pa.table({"": pa.nulls(count)}), samples


@given(tables())
def test_the_batched_form_is_the_definitions(case: tuple[pa.Table, list[dict[str, Any]]]) -> None:
    table, samples = case
    assert [d.tobytes() for d in sample_digests(table)] == [digest(sample) for sample in samples]


@pytest.mark.soak
@given(tables(), st.data())
def test_only_content_shows(case: tuple[pa.Table, list[dict[str, Any]]], data: st.DataObject) -> None:
    table, _ = case
    expected = sample_digests(table)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=3)))
    pieces = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(table)], strict=True)]
    shuffled = data.draw(st.permutations(table.schema.names))
    np.testing.assert_array_equal(sample_digests(pa.concat_tables(pieces)), expected)
    np.testing.assert_array_equal(np.concatenate([sample_digests(piece) for piece in pieces]), expected)
    np.testing.assert_array_equal(sample_digests(table.select(shuffled)), expected)
    absent = table.append_column("not there", pa.nulls(len(table), pa.large_list(pa.float32())))
    np.testing.assert_array_equal(sample_digests(absent), expected)


@st.composite
def dictionaries(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    """A slice of a dictionary column, and its values; the dictionary may be longer or shorter than the slice."""
    values, kind = draw(_types.filter(lambda drawn: not pa.types.is_dictionary(drawn[1])))
    held = draw(st.lists(st.none() | values, min_size=1, max_size=8))
    rows = draw(st.lists(st.none() | st.integers(0, len(held) - 1), max_size=12))
    index = draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int64(), pa.uint64()]))
    first, stop = sorted(draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    column = pa.DictionaryArray.from_arrays(pa.array(rows, index), pa.array(held, kind))
    return column[first:stop], [None if row is None else held[row] for row in rows[first:stop]]


@given(dictionaries())
def test_of_a_dictionary_only_the_values_of_the_rows_show(case: tuple[pa.Array, list[Any]]) -> None:
    column, values = case
    found = sample_digests(pa.table({"x": column}))
    assert [d.tobytes() for d in found] == [digest({"x": value}) for value in values]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 80), 1 << 80) | st.floats() | _texts | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(_json, max_size=4), st.none() | st.integers(1, 2), st.booleans())
def test_json_is_the_value_it_means(values: list[Any], indent: int | None, ascii_only: bool) -> None:
    texts = [json.dumps(v, indent=indent, ensure_ascii=ascii_only) for v in values]
    column = pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.large_binary())
    table = pa.table([column], schema=pa.schema([with_feature(pa.field("j", pa.large_binary()), Json())]))
    assert [d.tobytes() for d in sample_digests(table)] == [digest({"j": value}) for value in values]


_alike = st.sampled_from(
    [
        st.booleans(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(-(1 << 80), 1 << 80),
        st.floats(),
        _texts,
        _texts | st.just("\ud800"),
        st.lists(st.none() | st.integers(-9, 9), max_size=3),
        st.lists(st.lists(_texts, max_size=2), max_size=3),
        st.fixed_dictionaries({}, optional={"a": st.floats() | st.none(), "é": _texts, "b": st.just({})}),
        st.dictionaries(_names | st.just("\ud800"), st.integers(-9, 9), max_size=3),
        st.fixed_dictionaries({"in": st.lists(st.fixed_dictionaries({"x": _json}), max_size=2), "z": st.none()}),
        _json,
    ]
).flatmap(lambda values: st.lists(st.none() | values, min_size=1, max_size=5))


@given(_alike, st.integers(64, 70))
def test_many_json_values_are_the_values_they_mean(few: list[Any], count: int) -> None:
    values = (few * count)[:count]
    column = pa.array([json.dumps(v).encode() for v in values], pa.large_binary())
    table = pa.table([column], schema=pa.schema([with_feature(pa.field("j", pa.large_binary()), Json())]))
    expected = {id(value): digest({"j": value}) for value in few}
    assert [d.tobytes() for d in sample_digests(table)] == [expected[id(value)] for value in values]


@pytest.mark.soak
@given(tables(), tables())
def test_other_content_has_another_digest(
    one: tuple[pa.Table, list[dict[str, Any]]], two: tuple[pa.Table, list[dict[str, Any]]]
) -> None:
    forms = [[form(sample) for sample in samples] for _, samples in (one, two)]
    digests = [DatasetDigest(), DatasetDigest()]
    for digest_, (table, _) in zip(digests, (one, two), strict=True):
        digest_.update(sample_digests(table))
    assert (digests[0].ordered == digests[1].ordered) == (forms[0] == forms[1])
    assert (digests[0].unordered == digests[1].unordered) == (sorted(forms[0]) == sorted(forms[1]))
