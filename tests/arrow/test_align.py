"""Schemas made one, tables made to fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.align import align_table, reconcile_schema, union_schema
from lading._core.arrow.references import FileEntry, RefType, files_of, make_refs, with_files
from lading._core.features.types import (
    FEATURE_KEY,
    ClassLabel,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    feature_of,
    with_feature,
)
from lading.errors import DuplicateField, SchemaMismatch, UsageError


def test_reserved_columns_get_their_types_but_large_ones_stay() -> None:
    found = pa.schema(
        [
            ("sample_id", pa.dictionary(pa.int32(), pa.string())),
            ("position", pa.int64()),
            ("modality", pa.large_string()),
            ("text_content", pa.string_view()),
            ("binary_content", pa.binary()),
            ("source_ref", pa.large_binary()),
            pa.field("score", pa.float32(), metadata={"k": "v"}),
            ("tag", pa.dictionary(pa.int8(), pa.large_string())),
        ],
        metadata={"m": "n"},
    )
    schema = reconcile_schema(found)
    assert schema.types == [
        pa.string(),
        pa.int32(),
        pa.large_string(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.float32(),
        pa.large_string(),
    ]
    assert [f.nullable for f in schema] == [False, False, False, True, True, True, True, True]
    assert schema.metadata == {b"m": b"n"}
    assert schema.field("score").metadata == {b"k": b"v"}
    assert reconcile_schema(schema).equals(schema, check_metadata=True)


def test_references_stay_references() -> None:
    schema = pa.schema([("binary_content", RefType())])
    assert reconcile_schema(schema).types == [RefType()]


def test_the_peers_reconciled_schemas(golden: Any) -> None:
    for case, view in (("parquet-basic", "default"), ("parquet-basic", "hand"), ("tar-basic", "default")):
        expected = pa.ipc.open_file(golden("interleaved") / case / f"expected-{view}.arrow").schema
        assert reconcile_schema(expected).equals(expected)


def test_align_pads_orders_drops_and_casts() -> None:
    table = pa.table({"x": pa.array([1, 2]), "gone": [0, 0], "d": pa.array(["a", None]).dictionary_encode()})
    target = pa.schema([("d", pa.string()), ("new", pa.list_(pa.int8())), ("x", pa.int16())])
    for rows in (table, table.to_batches()[0]):
        aligned = align_table(rows, target)
        assert type(aligned) is type(rows)
        assert aligned.schema == target
        assert aligned.to_pydict() == {"d": ["a", None], "new": [None, None], "x": [1, 2]}


@pytest.mark.parametrize(
    "values, kind, row, says",
    [
        (pa.array([0, 1, 1 << 40, 2]), pa.int32(), 2, "1099511627776"),
        (pa.array([0.0, 0.5]), pa.int64(), 1, "truncated"),
        (pa.array([None, 0.0, 1e300]), pa.float32(), 2, "infinite"),
        (pa.array(["1", "x"]), pa.int8(), 1, "parse"),
        (pa.array([{"a": 1}]), pa.int32(), 0, "struct"),
        (pa.chunked_array([["1"], ["2", "y"]]), pa.int8(), 2, "parse"),
        (pa.array([1.5, np.inf, np.nan, 1e30]), pa.float16(), 3, "infinite"),
        (pa.array([86_400_000, 1], pa.timestamp("ms")), pa.date32(), 1, "another"),
        (pa.array([None, 0], pa.timestamp("ms", "Europe/Berlin")), pa.timestamp("ms"), 1, "zone"),
        (pa.array([{"a": 1, "b": None}, {"a": 1, "b": 2}]), pa.struct([("a", pa.int64())]), 1, "'b'"),
        (pa.array([1, 2]), pa.bool_(), 1, "another"),
        (pa.array([0.12, 0.126]), pa.decimal128(5, 2), 1, "another"),
        (pa.array([2048, 2049]), pa.float16(), 1, "another"),
        (pa.array([[1e30], [1e300]]), pa.list_(pa.float32()), 1, "infinite"),
        (pa.array([[1], [None]]), pa.list_(pa.field("item", pa.int64(), nullable=False)), 1, "null"),
    ],
)
def test_casts_are_checked(values: Any, kind: pa.DataType, row: int, says: str) -> None:
    with pytest.raises(SchemaMismatch, match="column 'x'") as caught:
        align_table(pa.table({"x": values}), pa.schema([("x", kind)]))
    assert caught.value.row == row
    assert says in str(caught.value)


def test_views_of_lists_keep_their_values_as_lists() -> None:
    rows = [["a"], None, [], ["b", "c"]]
    table = pa.table({"tags": pa.array(rows, pa.list_view(pa.string()))})
    assert align_table(table, pa.schema([("tags", pa.list_(pa.string()))])).column("tags").to_pylist() == rows


def test_a_position_that_overflows_is_an_error() -> None:
    table = pa.table({"position": pa.array([-1, 0, 1 << 31])})
    with pytest.raises(SchemaMismatch) as caught:
        align_table(table, reconcile_schema(table.schema))
    assert (caught.value.column, caught.value.row) == ("position", 2)


def test_nulls_where_none_may_be() -> None:
    target = pa.schema([pa.field("position", pa.int32(), nullable=False)])
    with pytest.raises(SchemaMismatch, match="row 1 column 'position'"):
        align_table(pa.table({"position": pa.array([0, None], pa.int64())}), target)
    with pytest.raises(SchemaMismatch, match="column 'position': the column is missing"):
        align_table(pa.table({"x": [1]}), target)
    assert align_table(pa.table({"x": pa.array([], pa.int8())}), target).num_rows == 0


def test_a_column_that_stands_twice() -> None:
    twins = pa.table([[1], [2]], names=["x", "x"])
    with pytest.raises(DuplicateField, match="'x'"):
        align_table(twins, pa.schema([("x", pa.int64())]))
    with pytest.raises(DuplicateField, match="'x'"):
        union_schema([("a", twins.schema)])


def test_references_pass_through() -> None:
    refs = make_refs(np.array([0, 5]), np.array([5, 7]))
    files = (FileEntry("a.tar"),)
    table = pa.table({"jpg": refs, "png": [b"x", None]})
    table = table.cast(with_files(table.schema, files))
    target = pa.schema(
        [with_feature(pa.field("jpg", pa.large_binary()), Image()), ("png", RefType()), ("new", RefType())],
        metadata={"lading.files": "[]", "other": "1"},
    )
    aligned = align_table(table, target)
    assert aligned["jpg"].combine_chunks().equals(refs)
    assert aligned["png"].to_pylist() == [b"x", None]
    assert aligned["new"].null_count == 2
    assert aligned.schema.types == [RefType(), pa.binary(), RefType()]
    assert files_of(aligned.schema) == files
    assert aligned.schema.metadata[b"other"] == b"1"
    assert feature_of(aligned.schema.field("jpg")) == Image()
    with pytest.raises(SchemaMismatch):
        align_table(table, pa.schema([("jpg", pa.int8())]))


@pytest.mark.parametrize(
    "a, b, wider",
    [
        (pa.null(), pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8())])),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        (pa.string_view(), pa.string_view(), pa.string_view()),
        (pa.binary(4), pa.binary(), pa.large_binary()),
        (RefType(), pa.binary(), pa.large_binary()),
        (RefType(), RefType(), RefType()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint16(), pa.uint16()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int64(), pa.int64()),
        (pa.list_(pa.null()), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int16()), pa.large_list(pa.int16())),
        (
            pa.struct([("a", pa.int8())]),
            pa.struct([("b", pa.string()), ("a", pa.int16())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
        ),
        (pa.timestamp("us"), pa.timestamp("us"), pa.timestamp("us")),
    ],
)
def test_types_widen(a: pa.DataType, b: pa.DataType, wider: pa.DataType) -> None:
    for first, second in ((a, b), (b, a)):
        schema, differences = union_schema([("f1", pa.schema([("x", first)])), ("f2", pa.schema([("x", second)]))])
        found = schema.field("x").type
        if pa.types.is_struct(wider):
            assert {child.name: child.type for child in found} == {child.name: child.type for child in wider}
        else:
            assert found == wider
        assert len(differences) == (a != b)


@pytest.mark.parametrize(
    "a, b",
    [
        (pa.int64(), pa.float64()),
        (pa.int8(), pa.uint8()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int8()),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())])),
    ],
)
def test_types_that_nothing_holds(a: pa.DataType, b: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"f1.*f2.*column 'x'|column 'x'.*f1.*f2") as caught:
        union_schema([("f1", pa.schema([("x", a)])), ("f2", pa.schema([("x", b)]))])
    assert str(a) in str(caught.value)
    assert str(b) in str(caught.value)


FILES = [
    ("a", pa.schema([pa.field("k", pa.string(), nullable=False), ("x", pa.int8())], metadata={"m": "1"})),
    ("b", pa.schema([("y", pa.bool_()), pa.field("k", pa.string(), nullable=False)], metadata={"m": "2", "n": "3"})),
    ("c", pa.schema([pa.field("k", pa.string(), nullable=False), ("x", pa.int8())], metadata={"m": "1"})),
]


def test_policies() -> None:
    schema, differences = union_schema(FILES)
    assert schema.names == ["k", "x", "y"]
    assert [f.nullable for f in schema] == [False, True, True]
    assert schema.metadata == {b"m": b"1", b"n": b"3"}
    assert differences == [
        "column 'x' of a: missing in 1 of 3 files, first b: null there",
        "column 'y' of b: missing in 2 of 3 files, first a: null there",
    ]
    schema, differences = union_schema(FILES, "intersect")
    assert schema.names == ["k"]
    assert len(differences) == 2
    with pytest.raises(SchemaMismatch, match="schema_policy='union'"):
        union_schema(FILES, "strict")
    assert union_schema([FILES[0], FILES[2]], "strict") == (FILES[0][1], [])
    with pytest.raises(UsageError, match="'first'"):
        union_schema(FILES, "first")  # type: ignore[arg-type]


def test_what_is_one_files_own_is_left_out() -> None:
    one = with_files(pa.schema([("x", RefType())]), [FileEntry("a.tar")])
    two = with_files(pa.schema([("x", RefType())], metadata={"lading.source_files": "[]"}), [FileEntry("b.tar")])
    assert union_schema([("a.tar", one), ("b.tar", two)], "strict") == (pa.schema([("x", RefType())]), [])


def test_other_features_are_told() -> None:
    a, b = (pa.schema([with_feature(pa.field("x", pa.binary()), feature)]) for feature in (Json(), Image()))
    schema, differences = union_schema([("a", a), ("b", b)])
    assert schema.field("x").metadata[FEATURE_KEY] == a.field("x").metadata[FEATURE_KEY]
    assert differences == ["column 'x': other features; that of a is taken"]


def _named(name: str, kind: pa.DataType, feature: Feature, *, nullable: bool = True) -> pa.Field:
    return with_feature(pa.field(name, kind, nullable), feature)


@pytest.mark.parametrize(
    "within",
    [
        lambda label: _named("x", pa.int64(), label),
        lambda label: _named("x", pa.list_(pa.int64()), Sequence(label)),
        lambda label: _named("x", pa.struct([("y", pa.int64())]), Struct((("y", label),))),
        lambda label: pa.field("x", pa.list_(_named("item", pa.int64(), label))),
        lambda label: pa.field("x", pa.struct([_named("y", pa.int64(), label)])),
        lambda label: pa.field("x", pa.large_list(pa.struct([_named("y", pa.int64(), label)]))),
    ],
)
def test_numbers_that_are_other_labels_are_not_joined(within: Callable[[Feature], pa.Field]) -> None:
    def schema(*names: str) -> pa.Schema:
        return pa.schema([within(ClassLabel(names))])

    union_schema([("a", schema("cat", "dog")), ("b", schema("cat", "dog", "owl"))])
    with pytest.raises(SchemaMismatch, match=r"column 'x.*same label.*expected cat, dog \(a\), found dog, cat \(b\)"):
        union_schema([("a", schema("cat", "dog")), ("b", schema("dog", "cat"))])


def _noted(number: pa.DataType) -> list[pa.Field]:
    return [_named("j", pa.string(), Json(), nullable=False), pa.field("n", number)]


@pytest.mark.parametrize(
    "a, b, wider",
    [
        (
            pa.struct(_noted(pa.int32())),
            pa.struct([*_noted(pa.int64()), ("new", pa.bool_())]),
            pa.struct([*_noted(pa.int64()), ("new", pa.bool_())]),
        ),
        (
            pa.list_(pa.field("item", pa.struct(_noted(pa.int32())), nullable=False)),
            pa.list_(pa.field("item", pa.struct(_noted(pa.int64())), nullable=False)),
            pa.list_(pa.field("item", pa.struct(_noted(pa.int64())), nullable=False)),
        ),
        (
            pa.list_(_named("item", pa.binary(), Image())),
            pa.large_list(_named("item", pa.binary(), Image())),
            pa.large_list(_named("item", pa.binary(), Image())),
        ),
        (
            pa.struct([("j", pa.string())]),
            pa.struct(_noted(pa.int8())[:1]),
            pa.struct([_named("j", pa.string(), Json())]),
        ),
        (
            pa.list_(pa.int8(), 2),
            pa.list_(_named("item", pa.int8(), Json()), 2),
            pa.list_(_named("item", pa.int8(), Json()), 2),
        ),
    ],
)
def test_fields_inside_keep_what_they_say_beside_those_that_widen(
    a: pa.DataType, b: pa.DataType, wider: pa.DataType
) -> None:
    schema, _ = union_schema([("f1", pa.schema([("x", a)])), ("f2", pa.schema([("x", b)]))])
    assert schema.field("x").type.equals(wider, check_metadata=True)


def test_a_field_that_some_structs_lack_may_be_null() -> None:
    one, two = (pa.struct([pa.field(name, pa.int8(), nullable=False) for name in names]) for names in ("a", "ab"))
    schema, _ = union_schema([("1", pa.schema([("x", one)])), ("2", pa.schema([("x", two)]))])
    assert [child.nullable for child in schema.field("x").type] == [False, True]


def test_other_features_inside_are_told() -> None:
    a, b = (pa.schema([("x", pa.list_(_named("item", pa.binary(), f)))]) for f in (Json(), Image()))
    schema, differences = union_schema([("a", a), ("b", b)])
    assert feature_of(schema.field("x")) == Sequence(Json())
    assert differences == ["column 'x': other features; that of a is taken"]
    with pytest.raises(SchemaMismatch, match="other features"):
        union_schema([("a", a), ("b", b)], "strict")


def test_rows_mean_inside_what_their_target_says() -> None:
    column = pa.array([{"j": "[2]", "n": 1}, None], pa.struct([("j", pa.string()), ("n", pa.int32())]))
    told = pa.schema([("x", pa.struct([_named("j", pa.string(), Json()), ("n", pa.int32())]))])
    for rows in (pa.table({"x": column}), pa.record_batch({"x": column})):
        aligned = align_table(rows, told)
        assert aligned.column("x").type.equals(told.field("x").type, check_metadata=True)
        assert aligned.column("x").to_pylist() == column.to_pylist()
        assert align_table(aligned, rows.schema).schema.equals(told, check_metadata=True)


def test_tables_fit_the_union_of_their_schemas() -> None:
    one = pa.table({"x": [{"a": 1, "l": [{"u": 1}]}], "s": ["a"], "n": [None]})
    two = pa.table({"x": [{"b": "t", "l": [{"v": 2.0}]}], "s": pa.array([None], pa.large_string()), "n": [[1]]})
    schema, _ = union_schema([("1", one.schema), ("2", two.schema)])
    joined = pa.concat_tables([align_table(one, schema), align_table(two, schema)])
    assert joined.to_pylist() == [
        {"x": {"a": 1, "b": None, "l": [{"u": 1, "v": None}]}, "s": "a", "n": None},
        {"x": {"a": None, "b": "t", "l": [{"u": None, "v": 2.0}]}, "s": None, "n": [1]},
    ]


def test_a_map_without_entries_has_none_once_its_fields_have_other_metadata() -> None:
    kind = pa.map_(pa.string(), pa.field("value", pa.null(), metadata={"k": "v"}))
    empty = pa.array([[]], pa.map_(pa.string(), pa.null()))
    [found] = align_table(pa.record_batch([empty], ["x"]), pa.schema([("x", kind)])).columns
    assert found.type.equals(kind, check_metadata=True)
    assert (found.to_pylist(), len(found.keys), len(found.items)) == ([[]], 0, 0)
