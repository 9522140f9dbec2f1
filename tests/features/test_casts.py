"""One cast of columns: by type, by the meaning of the values, or exactly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lading._core.arrow.casts import first_refused
from lading._core.arrow.references import RefType
from lading._core.features.casts import cast_column, cast_labels, text_of_bytes
from lading._core.features.types import Json, with_feature
from lading.errors import SchemaMismatch, Unrepresentable


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_the_first_refused_row(rows: int) -> None:
    for bad in range(rows):
        column = pa.array(["1"] * bad + ["x"] * (rows - bad))
        assert first_refused(column, lambda part: part.cast(pa.int64())) == bad
        with pytest.raises(SchemaMismatch, match=f"row {bad} column 'n'"):
            cast_column(column, pa.field("n", pa.int64()))
        with pytest.raises(SchemaMismatch, match=f"row {bad} column 'n'"):
            cast_column(pa.chunked_array([column]), pa.field("n", pa.int64()))


def test_payload_is_shared_unless_the_type_must_be_exact() -> None:
    refs, views = pa.nulls(1, RefType()), pa.array([b"a"], pa.binary_view())
    field = pa.field("b", pa.large_binary())
    assert cast_column(refs, field) is refs
    assert cast_column(refs, pa.field("t", pa.string())) is refs
    assert cast_column(views, field) is views
    assert cast_column(views, field, exact=True).type == pa.large_binary()


@pytest.mark.parametrize(
    "column, kind, expected",
    [
        (pa.array([b"12", None]), pa.int64(), [12, None]),
        (pa.array([b"caf\xc3\xa9"]), pa.string(), ["café"]),
        (pa.array([[1, 2], None]), pa.string(), ["[1, 2]", None]),
        (pa.array([{"a": 1}]), pa.large_string(), ['{"a": 1}']),
    ],
)
def test_what_values_mean_counts_where_their_field_is_given(
    column: pa.Array, kind: pa.DataType, expected: list[Any]
) -> None:
    found = cast_column(column, pa.field("x", kind), before=pa.field("x", column.type))
    assert (found.type, found.to_pylist()) == (kind, expected)


def test_json_becomes_the_text_of_its_strings() -> None:
    column = pa.array(['"a"', '{"b": "c"}', "null"])
    before, field = with_feature(pa.field("x", column.type), Json()), pa.field("x", pa.string())
    assert cast_column(column, field, before=before).to_pylist() == ["a", '{"b": "c"}', None]
    assert cast_column(column, field) is column


@pytest.mark.parametrize(
    "column, kind",
    [
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.timestamp("s")),
        (pa.array([True]), pa.int64()),
        (pa.array([[1]]), pa.list_(pa.string())),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
    ],
)
def test_an_exact_cast_keeps_the_kind_of_values(column: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="column 'x': a column of another type"):
        cast_column(column, pa.field("x", kind), exact=True)


def test_an_exact_cast_of_dictionaries_and_widths() -> None:
    codes = pa.array([1, 2, 1]).dictionary_encode()
    for column in (codes, pa.chunked_array([codes])):
        assert cast_column(column, pa.field("x", pa.int16()), exact=True).to_pylist() == [1, 2, 1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_labels(kind: pa.DataType) -> None:
    names = pa.array(["b", None, "a"], kind)
    numbers, unknown = cast_labels(names, ("a", "b"), pa.int64())
    assert (numbers.type, numbers.to_pylist(), unknown) == (pa.int64(), [1, None, 0], None)
    assert cast_labels(pa.array(["a", None, "c", "d"], kind), ("a", "b"), pa.int64())[1] == 2


def test_invalid_utf8_has_a_row() -> None:
    assert text_of_bytes(pa.array([b"a", None], pa.binary_view()), pa.string()).to_pylist() == ["a", None]
    with pytest.raises(Unrepresentable, match="row 2: invalid UTF-8"):
        text_of_bytes(pa.array([b"a", None, b"\xff"]), pa.string())
