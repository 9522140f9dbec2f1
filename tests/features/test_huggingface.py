"""Columns as Hugging Face's datasets has them. What the peer makes of them is in `tests/interop`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.arrow.casts import unregistered_type
from lading._core.features.encode import VIDEO_FIELDS
from lading._core.features.huggingface import (
    huggingface_batch,
    huggingface_features,
    huggingface_schema,
    may_hold,
    media_advice,
    media_schema,
    schema_of_features,
    unwrapped,
    unwrapped_schema,
)
from lading._core.features.types import (
    Array,
    Audio,
    ClassLabel,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    Video,
    feature_of,
    with_feature,
)
from lading.errors import BadReference, DataError, Unrepresentable, UsageError
from registered import NamedType

MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.mark.parametrize(
    "kind, told",
    [
        (pa.int8(), {"dtype": "int8", "_type": "Value"}),
        (pa.float64(), {"dtype": "float64", "_type": "Value"}),
        (pa.float16(), {"dtype": "float16", "_type": "Value"}),
        (pa.bool_(), {"dtype": "bool", "_type": "Value"}),
        (pa.large_string(), {"dtype": "large_string", "_type": "Value"}),
        (pa.date32(), {"dtype": "date32", "_type": "Value"}),
        (pa.timestamp("us", "UTC"), {"dtype": "timestamp[us, tz=UTC]", "_type": "Value"}),
        (pa.decimal128(5, 2), {"dtype": "decimal128(5, 2)", "_type": "Value"}),
        (pa.binary(3), {"dtype": "fixed_size_binary[3]", "_type": "Value"}),
        (pa.json_(), {"_type": "Json"}),
        (pa.list_(pa.int8()), {"feature": {"dtype": "int8", "_type": "Value"}, "_type": "List"}),
        (pa.list_(pa.int8(), 2), {"feature": {"dtype": "int8", "_type": "Value"}, "length": 2, "_type": "List"}),
        (pa.large_list(pa.int8()), {"feature": {"dtype": "int8", "_type": "Value"}, "_type": "LargeList"}),
        (pa.struct([("a", pa.string())]), {"a": {"dtype": "string", "_type": "Value"}}),
    ],
    ids=str,
)
def test_types_stay(kind: pa.DataType, told: dict[str, Any]) -> None:
    schema = huggingface_schema(pa.schema([("x", kind)]))
    assert unregistered_type(schema.field("x").type) == kind  # datasets may have been imported
    assert huggingface_features(schema) == {"x": told}
    assert schema_of_features({"x": told}).field("x").type == kind


# Expected types are those of `Features.arrow_schema` in datasets 5.2.0; `tests/interop` asks it.


@pytest.mark.parametrize(
    "told, kind",
    [
        ({"names": ["a"], "_type": "ClassLabel"}, pa.int64()),
        ({"_type": "Audio"}, MEDIA),
        ([{"dtype": "bool", "_type": "Value"}], pa.list_(pa.bool_())),
        ({"feature": {"dtype": "int8", "_type": "Value"}, "length": -1, "_type": "Sequence"}, pa.list_(pa.int8())),
        (
            {"feature": {"x": {"dtype": "int32", "_type": "Value"}}, "length": 2, "_type": "Sequence"},
            pa.struct([("x", pa.list_(pa.int32(), 2))]),
        ),
        (
            {"a": {"dtype": "string", "_type": "Value"}, "_type": {"_type": "Json"}},
            pa.struct([("a", pa.string()), ("_type", pa.json_())]),
        ),
        ({"shape": [None, 3], "dtype": "float32", "_type": "Array2D"}, pa.list_(pa.list_(pa.float32()))),
        ({"languages": ["en", "de"], "_type": "Translation"}, pa.struct([("de", pa.string()), ("en", pa.string())])),
    ],
    ids=str,
)
def test_columns_of_features_alone(told: Any, kind: pa.DataType) -> None:
    schema = schema_of_features({"x": told})
    assert unregistered_type(schema.field("x").type) == kind  # datasets may have been imported
    assert huggingface_features(schema) == {"x": told}


_DEEP: dict[str, Any] = {"dtype": "int8", "_type": "Value"}
for _ in range(900):
    _DEEP = {"feature": _DEEP, "_type": "List"}


@pytest.mark.parametrize(
    "told",
    [
        1,
        [],
        {"_type": "Hologram"},
        {"_type": "Value"},
        {"dtype": "number", "_type": "Value"},
        {"dtype": ["int8"], "_type": "Value"},
        {"a": None},
        {"dtype": "x", "shape": [1, 2], "_type": "Array2D"},
        {"languages": [1], "_type": "Translation"},
        _DEEP,
    ],
)
def test_features_that_are_none(told: Any) -> None:
    with pytest.raises(DataError, match=r"^column 'x': .*feature"):
        schema_of_features({"x": told})


@pytest.mark.parametrize(
    "kind",
    [pa.map_(pa.string(), pa.int8()), pa.month_day_nano_interval(), pa.fixed_shape_tensor(pa.int8(), [2])],
    ids=str,
)
def test_types_that_it_does_not_have(kind: pa.DataType) -> None:
    with pytest.raises(Unrepresentable, match="column 'x': datasets cannot hold this type"):
        huggingface_schema(pa.schema([("a", pa.int8()), ("x", kind)]))
    with pytest.raises(Unrepresentable, match="column 'x'"):
        huggingface_schema(pa.schema([("x", pa.list_(kind))]))


def test_media_labels_and_dictionaries() -> None:
    inner = with_feature(pa.field("image", pa.large_binary()), Image())
    fields = [
        with_feature(pa.field("sound", pa.binary()), Audio()),
        with_feature(pa.field("label", pa.uint8()), ClassLabel(("a",))),
        with_feature(pa.field("images", pa.large_list(pa.binary())), Sequence(Image())),
        pa.field("both", pa.struct([inner, pa.field("n", pa.int8())])),
        with_feature(pa.field("fixed", pa.list_(pa.binary(), 1)), Sequence(Image())),
        pa.field("word", pa.dictionary(pa.int8(), pa.string())),
    ]
    rows = [
        {
            "sound": b"1",
            "label": 0,
            "images": [b"x", None],
            "both": {"image": b"y", "n": 1},
            "fixed": [b"f"],
            "word": "w",
        },
        {"sound": None, "label": None, "images": None, "both": None, "fixed": None, "word": None},
        {"sound": b"", "label": 0, "images": [], "both": {"image": None, "n": None}, "fixed": [None], "word": "v"},
    ]
    table = pa.Table.from_pylist([*rows, *rows], schema=pa.schema(fields))
    schema = huggingface_schema(table.schema)
    assert [field.type for field in schema] == [
        MEDIA, pa.int64(), pa.large_list(MEDIA), pa.struct([("image", MEDIA), ("n", pa.int8())]), pa.list_(MEDIA, 1),
        pa.string(),
    ]  # fmt: skip
    assert huggingface_features(schema) == {
        "sound": {"_type": "Audio"},
        "label": {"names": ["a"], "_type": "ClassLabel"},
        "images": {"feature": {"_type": "Image"}, "_type": "LargeList"},
        "both": {"image": {"_type": "Image"}, "n": {"dtype": "int8", "_type": "Value"}},
        "fixed": {"feature": {"_type": "Image"}, "length": 1, "_type": "List"},
        "word": {"dtype": "string", "_type": "Value"},
    }
    [batch] = table.combine_chunks().to_batches()
    for part, expected in ((batch, [*rows, *rows]), (batch.slice(1, 3), [*rows[1:], rows[0]])):
        found = huggingface_batch(part, schema)
        found.validate(full=True)
        assert found.schema.types == schema.types
        assert found.to_pylist() == [_wrapped(row) for row in expected]


def _wrapped(row: dict[str, Any]) -> dict[str, Any]:
    def media(value: bytes | None) -> dict[str, Any] | None:
        return None if value is None else {"bytes": value, "path": None}

    both = row["both"]
    return {
        "sound": media(row["sound"]),
        "label": row["label"],
        "images": None if row["images"] is None else [media(value) for value in row["images"]],
        "both": None if both is None else {"image": media(both["image"]), "n": both["n"]},
        "fixed": None if row["fixed"] is None else [media(value) for value in row["fixed"]],
        "word": row["word"],
    }


def test_what_was_told_before_stays_where_the_type_does() -> None:
    told = {
        "sound": {"sampling_rate": 8000, "_type": "Audio"},
        "gone": {},
        "arr": {"shape": [1, 2], "_type": "Array2D"},
    }
    fields = [with_feature(pa.field("sound", MEDIA), Audio()), pa.field("arr", pa.list_(pa.list_(pa.int8())))]
    schema = pa.schema(fields, {"huggingface": json.dumps({"info": {"features": told}}), "own": "kept"})
    found = huggingface_schema(schema)
    assert huggingface_features(found) == {"sound": told["sound"], "arr": told["arr"]}
    assert found.metadata[b"own"] == b"kept"
    assert found.types == schema.types


_LARGE_MEDIA = pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])
_TEXTS = pa.list_(pa.large_string())
_SOUND = {"sampling_rate": 8000, "decode": False, "_type": "Audio"}
_ONE, _BOTH = {"dtype": "int8", "_type": "Value"}, {"languages": ["de", "en"]}


@pytest.mark.parametrize(
    "kind, told, expected",
    [
        (pa.large_list(pa.int8()), {"feature": _ONE, "_type": "List"}, pa.list_(pa.int8())),
        (pa.list_(pa.int8()), {"feature": _ONE, "_type": "LargeList"}, pa.large_list(pa.int8())),
        (_LARGE_MEDIA, {"decode": False, "_type": "Pdf"}, MEDIA),
        (pa.large_list(_LARGE_MEDIA), {"feature": {"_type": "Pdf"}, "_type": "List"}, pa.list_(MEDIA)),
        (pa.struct([("a", _LARGE_MEDIA)]), {"a": {"_type": "Pdf"}}, pa.struct([("a", MEDIA)])),
        (pa.struct([("de", pa.large_string()), ("en", pa.string())]), {**_BOTH, "_type": "Translation"},
         pa.struct([("de", pa.string()), ("en", pa.string())])),
        (pa.struct([("language", pa.large_list(pa.large_string())), ("translation", _TEXTS)]),
         {**_BOTH, "num_languages": 2, "_type": "TranslationVariableLanguages"},
         pa.struct([("language", pa.list_(pa.string())), ("translation", pa.list_(pa.string()))])),
    ],
)  # fmt: skip
def test_columns_are_stored_as_the_features_told_of_them_are(
    kind: pa.DataType, told: Any, expected: pa.DataType
) -> None:
    """As `Features.arrow_schema` of datasets 5.2.0 has them: it refuses a folder that tells of other types."""
    schema = pa.schema([("x", kind)], {"huggingface": json.dumps({"info": {"features": {"x": told}}})})
    found = huggingface_schema(schema)
    assert found.field("x").type == expected
    assert huggingface_features(found) == {"x": told}


@pytest.mark.parametrize("kind", [pa.list_(pa.list_(pa.int8())), pa.large_list(pa.list_(pa.int8()))])
def test_lists_that_were_told_to_be_arrays_are(kind: pa.DataType) -> None:
    told = {"shape": [1, 2], "dtype": "int8", "_type": "Array2D"}
    field = pa.field("x", kind, metadata={"ARROW:extension:name": "told before", "own": "1"})
    schema = pa.schema([field], {"huggingface": json.dumps({"info": {"features": {"x": told}}})})
    stored = huggingface_schema(schema)
    assert stored.field("x").type.extension_name == "datasets.features.features.Array2DExtensionType"
    assert stored.field("x").type.storage_type == pa.list_(pa.list_(pa.int8()))
    assert stored.field("x").metadata == {b"own": b"1"}
    assert huggingface_features(stored) == {"x": told}
    found = huggingface_batch(pa.record_batch([pa.array([[[1, 2]], None], kind)], schema), stored)
    assert found.column(0).storage.to_pylist() == [[[1, 2]], None]


@pytest.mark.parametrize(
    "kind, told, expected",
    [
        (pa.list_(pa.int8()), {"feature": _ONE, "length": 2, "_type": "List"}, {"feature": _ONE, "_type": "List"}),
        (pa.uint64(), {"names": ["a"], "_type": "ClassLabel"}, {"dtype": "uint64", "_type": "Value"}),
        (pa.int8(), {"_type": "Pdf"}, _ONE),
        (pa.struct([("a", pa.int8())]), {"a": _ONE, "gone": _ONE}, {"a": _ONE}),
    ],
)
def test_what_was_told_and_is_not_true_goes(kind: pa.DataType, told: Any, expected: Any) -> None:
    found = huggingface_schema(
        pa.schema([("x", kind)], {"huggingface": json.dumps({"info": {"features": {"x": told}}})})
    )
    assert found.field("x").type == kind
    assert huggingface_features(found) == {"x": expected}


def test_features_that_somebody_registered_stay() -> None:
    told = {"feature": {"fps": 30, "_type": "VideoFrame"}, "_type": "List"}
    kind = pa.list_(pa.struct([("path", pa.string()), ("timestamp", pa.float32())]))
    found = huggingface_schema(
        pa.schema([("x", kind)], {"huggingface": json.dumps({"info": {"features": {"x": told}}})})
    )
    assert found.field("x").type == kind
    assert huggingface_features(found) == {"x": told}


@pytest.mark.parametrize(
    "kind, feature, told",
    [
        (pa.large_binary(), Audio(), _SOUND),
        (pa.large_binary(), Image(), {"mode": "RGB", "decode": False, "_type": "Image"}),
        (pa.list_(pa.large_binary()), Sequence(Audio()), {"feature": _SOUND, "_type": "LargeList"}),
        (pa.struct([("a", pa.large_binary()), ("n", pa.int8())]), Struct((("a", Audio()),)), {"a": _SOUND, "n": _ONE}),
        (pa.int16(), ClassLabel(("a",)), {"names": ["a"], "id": "own", "_type": "ClassLabel"}),
    ],
)
def test_what_was_told_of_media_stays_where_they_are_bytes(kind: pa.DataType, feature: Feature, told: Any) -> None:
    metadata = {"huggingface": json.dumps({"info": {"features": {"x": told}}})}
    schema = huggingface_schema(pa.schema([with_feature(pa.field("x", kind), feature)], metadata))
    assert huggingface_features(schema) == {"x": told}


def test_metadata_that_are_no_json() -> None:
    with pytest.raises(DataError):
        huggingface_features(pa.schema([], {"huggingface": "{"}))


def test_bytes_come_back() -> None:
    field = with_feature(pa.field("image", pa.large_binary(), metadata={"own": "1"}), Image())
    schema = huggingface_schema(pa.schema([field]))
    back = unwrapped_schema(schema, media="stored")
    assert back.field("image").equals(field, check_metadata=True)
    assert feature_of(back.field("image")) == Image()
    column = pa.array([{"bytes": b"x", "path": "p"}, None, {"bytes": None, "path": None}], MEDIA)
    assert unwrapped(column, pa.large_binary()).to_pylist() == [b"x", None, None]
    assert unwrapped(column.slice(1), pa.large_binary()).to_pylist() == [None, None]
    masked = pa.StructArray.from_arrays(
        [pa.array([b"x"]), pa.array([None], pa.string())], fields=list(MEDIA), mask=pa.array([True])
    )
    assert unwrapped(masked, pa.large_binary()).to_pylist() == [None]
    with pytest.raises(BadReference, match=r"found a\.png.*'media': 'stored'.*save_to_disk"):
        unwrapped(pa.array([None, {"bytes": None, "path": "a.png"}], MEDIA), pa.large_binary())


_IN_LARGE_LIST = pa.large_list(pa.struct([("image", pa.large_binary()), ("n", pa.int8())]))


@pytest.mark.parametrize(
    "kind, feature, values",
    [
        (pa.list_(pa.large_binary()), Sequence(Image()), [[b"a", None], None, [], [b""]]),
        (pa.list_(pa.large_binary(), 2), Sequence(Image()), [[b"a", None], None]),
        (pa.struct([("image", pa.large_binary()), ("n", pa.int8())]), Struct((("image", Image()),)),
         [{"image": b"a", "n": 1}, None, {"image": None, "n": None}]),
        (_IN_LARGE_LIST, Sequence(Struct((("image", Image()),))), [[{"image": b"a", "n": 1}, None], None, []]),
        (pa.struct([("s", pa.list_(pa.large_binary()))]), Struct((("s", Sequence(Audio())),)),
         [{"s": [b"a"]}, {"s": None}, None]),
    ],
)  # fmt: skip
def test_media_inside_lists_and_structs_come_back(kind: pa.DataType, feature: Feature, values: list[Any]) -> None:
    field = with_feature(pa.field("x", kind), feature)
    schema = huggingface_schema(pa.schema([field]))
    batch = pa.record_batch([pa.array(values, kind)], schema=pa.schema([field]))
    stored = huggingface_batch(batch, schema).column(0)
    assert "struct<bytes: binary, path: string>" in str(stored.type)
    back = unwrapped_schema(schema, media="stored").field("x")
    assert back.equals(field, check_metadata=True)
    for start in range(len(values)):
        assert unwrapped(stored.slice(start), back.type).to_pylist() == values[start:]


def test_structs_of_others_stay_inside_lists() -> None:
    kind = pa.list_(MEDIA)
    field = with_feature(pa.field("x", kind), Sequence(Image()))
    assert huggingface_schema(pa.schema([field])).field("x").type == kind
    assert unwrapped_schema(pa.schema([field]), media="stored").field("x").type == kind


def test_media_of_others_are_bytes_where_that_is_asked_for() -> None:
    schema = pa.schema([with_feature(pa.field("image", MEDIA), Image()), pa.field("other", MEDIA)])
    assert unwrapped_schema(schema, media="stored") == schema
    assert unwrapped_schema(schema, media="bytes").types == [pa.large_binary(), MEDIA]
    with pytest.raises(UsageError, match="found 'pixels'"):
        unwrapped_schema(schema, media="pixels")


@pytest.mark.parametrize("name", ["mds", "webdataset"])
@pytest.mark.parametrize("source", ["arrow", "jsonl"])
def test_a_format_without_structs_says_how_to_write_the_bytes_of_media(name: str, source: str, tmp_path: Path) -> None:
    with lading.writer(
        tmp_path / "in", format=source, options={"bytes": "base64"} if source == "jsonl" else {}
    ) as writer:
        writer.write_batch(pa.table({"image": pa.array([{"bytes": b"GIF89a", "path": "a.gif"}], MEDIA)}))
    with pytest.raises(Unrepresentable) as refused:
        lading.convert(tmp_path / "in", tmp_path / "out", format=name)
    advised = re.search(r"ds(\.map\(.*?\}\))", refused.value.advice or "")
    assert advised is not None
    eval(f"ds{advised[1]}", {"ds": lading.open(tmp_path / "in")}).write(tmp_path / "out", format=name)
    assert lading.open(tmp_path / "out").with_decode(False)[0]["image"] == b"GIF89a"
    assert media_advice("x", pa.struct([("bytes", pa.int64())])) is None
    video = pa.struct([("bytes", pa.binary()), ("path", pa.string()), ("size", pa.int64())])
    assert "--option media=bytes" in (media_advice("x", video) or "")


def _stored(values: list[Any], feature: Feature, kind: pa.DataType | None = None) -> pa.Array:
    """A column as it is written for datasets."""
    kind = kind or pa.large_binary()
    schema = pa.schema([with_feature(pa.field("x", kind), feature)])
    return huggingface_batch(pa.record_batch([pa.array(values, kind)], schema=schema), huggingface_schema(schema))[0]


@pytest.mark.parametrize(
    "feature",
    [
        Array(), Array("int8"), Array("int8", ()), Array("int8", (1,) * 6), Array("int8", (2, None)),
        Array("int8", (0,)), Array("int8", (2, 0)), Array("complex64", (2,)), Array("int8", (1 << 31,)),
    ],
)  # fmt: skip
def test_arrays_that_datasets_has_no_feature_for_stay_bytes(feature: Feature) -> None:
    assert _stored([b"a", None], feature).equals(pa.array([b"a", None], pa.large_binary()))


@pytest.mark.parametrize("feature", [Array("int16", (3,)), Array("int16", (1, 3)), Array("int16", (None, 3))])
def test_arrays_of_another_size_than_their_shape_says(feature: Feature) -> None:
    with pytest.raises(Unrepresentable, match=r"row 2 column 'x'.*another size.*found 5 bytes"):
        _stored([bytes(6), None, bytes(5)], feature)
    inside = pa.list_(pa.large_binary())
    with pytest.raises(Unrepresentable, match=r"^column 'x'.*another size"):
        _stored([[bytes(6)], [bytes(5)]], Sequence(feature), inside)


def test_arrays_come_back_from_slices() -> None:
    values = [bytes(range(6)), None, bytes(6), b"abcdef"]
    for feature in (Array("int8", (6,)), Array("int8", (None,)), Array("int8", (2, 3)), Array("int16", (None, 3))):
        stored = _stored(values, feature)
        for column in (stored, getattr(stored, "storage", stored)):  # with and without datasets
            for start in range(4):
                assert unwrapped(column.slice(start), pa.large_binary()).to_pylist() == values[start:]


@pytest.mark.parametrize(
    "values", [[[[1], [2, 3]]], [[[1], None]], [[[1, None]]], [[[1, 2]], [[1], [2]]]], ids=str
)  # fmt: skip
def test_lists_that_are_no_array_are_not_bytes(values: list[Any]) -> None:
    with pytest.raises(DataError, match=r"not an array|nulls among"):
        unwrapped(pa.array(values, pa.list_(pa.list_(pa.int8()))), pa.large_binary())


def test_marks_of_what_was_changed_since_are_passed_over() -> None:
    for kind in (pa.int8(), pa.list_(pa.string()), pa.list_(pa.int8(), 0), pa.struct([("a", pa.int8())])):
        schema = pa.schema([pa.field("x", kind, metadata={"lading.wrapped": "bytes"})])
        assert unwrapped_schema(schema, media="stored") == pa.schema([("x", kind)])


def test_labels_of_one_name_are_refused_wherever_they_are() -> None:
    twins = ClassLabel(("crane", "bulbul", "crane"))
    field = with_feature(pa.field("x", pa.int64()), twins)
    inside = with_feature(pa.field("x", pa.list_(pa.int64())), Sequence(twins))
    told = {"x": {"names": list(twins.names), "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": told}})}
    for schema in (pa.schema([field]), pa.schema([inside]), pa.schema([field], metadata=metadata)):
        with pytest.raises(Unrepresentable, match=r"^column 'x'.*expected each name once, found 'crane' 2 times"):
            huggingface_schema(schema)
    plain = with_feature(pa.field("x", pa.uint64()), twins)  # which is no label there
    assert huggingface_schema(pa.schema([plain])).field("x").type == pa.uint64()


def test_json_that_is_no_text() -> None:
    with pytest.raises(Unrepresentable, match=r"row 1 column 'x'.*invalid UTF-8"):
        _stored([b"[1]", b"\xff", None], Json())
    assert _stored(["[1]", None], Json(), pa.dictionary(pa.int8(), pa.string())).storage.to_pylist() == ["[1]", None]


def test_structs_of_videos() -> None:
    kind = pa.struct([(n, {"bytes": pa.large_binary(), "size": pa.int64()}.get(n, pa.string())) for n in VIDEO_FIELDS])
    here, there = {"mode": "bytes", "bytes": b"a"}, {"mode": "path", "path": "a.mp4"}
    assert _stored([here, None], Video(), kind).to_pylist() == [{"bytes": b"a", "path": None}, None]
    with pytest.raises(BadReference, match=r"row 1 column 'x'.*found a\.mp4.*'load_assets': True"):
        _stored([here, there], Video("path"), kind)
    field = with_feature(pa.field("x", kind, metadata={"stable_datasets.feature": "Video", "own": "1"}), Video("path"))
    given = unwrapped_schema(pa.schema([field]), media="bytes").field("x")
    bare = with_feature(pa.field("x", pa.large_binary(), metadata={"own": "1"}), Video())
    assert given.equals(bare, check_metadata=True)
    assert unwrapped(pa.array([here, None], kind), given.type).to_pylist() == [b"a", None]
    with pytest.raises(BadReference, match=r"found a\.mp4.*'load_assets': True"):
        unwrapped(pa.array([there], kind), given.type)
    more = pa.struct([*kind, ("frames", pa.int64())])  # nothing is left out but what is known
    assert unwrapped_schema(pa.schema([with_feature(pa.field("x", more), Video())]), media="bytes").types == [more]


def test_features_inside_structs_do_not_need_their_fields_metadata() -> None:
    kind = pa.struct([("image", pa.binary()), ("n", pa.int8())])
    field = with_feature(pa.field("x", kind), Struct((("image", Image()),)))
    assert huggingface_schema(pa.schema([field])).field("x").type == pa.struct([("image", MEDIA), ("n", pa.int8())])


VALUE = {"dtype": "int8", "_type": "Value"}


@pytest.mark.parametrize(
    "kind, told, expected",
    [
        (pa.float64(), {"dtype": "double", "_type": "Value"}, True),
        (pa.bool_(), {"dtype": "bool_", "_type": "Value"}, True),
        (pa.dictionary(pa.int8(), pa.string()), {"dtype": "string", "_type": "Value"}, True),
        (pa.timestamp("us", "UTC"), {"dtype": "timestamp[us, tz=UTC]", "_type": "Value"}, True),
        (pa.timestamp("us", "UTC"), {"dtype": "timestamp[us]", "_type": "Value"}, False),
        (pa.string(), {"dtype": "large_string", "_type": "Value"}, False),
        (pa.string_view(), {"dtype": "string_view", "_type": "Value"}, True),
        (pa.int8(), {"names": ["a"], "_type": "ClassLabel"}, False),
        (MEDIA, {"_type": "Image"}, True),
        (pa.int8(), {"_type": "Image"}, False),
        (pa.string(), {"_type": "Audio"}, True),
        (pa.int8(), {"_type": "Whatever"}, True),
        (pa.list_(pa.int8()), [VALUE], True),
        (pa.list_(pa.int16()), [VALUE], False),
        (pa.list_(pa.int8()), {"feature": VALUE, "length": -1, "id": None, "_type": "Sequence"}, True),
        (pa.list_(pa.int8(), 2), {"feature": VALUE, "length": 2, "_type": "Sequence"}, True),
        (pa.list_(pa.int8(), 2), {"feature": VALUE, "length": -1, "_type": "Sequence"}, False),
        (pa.struct([("a", pa.list_(pa.int8()))]), {"feature": {"a": VALUE}, "length": -1, "_type": "Sequence"}, True),
        (pa.struct([("a", pa.int8())]), {"feature": {"a": VALUE}, "length": -1, "_type": "Sequence"}, False),
        (pa.list_(pa.struct([("a", pa.int8())])), {"feature": {"a": VALUE}, "_type": "List"}, True),
        (pa.struct([("_type", pa.int8())]), {"_type": VALUE}, True),
        (pa.int8(), {"a": VALUE}, False),
        (pa.list_(pa.int8()), VALUE, False),
        (pa.month_day_nano_interval(), VALUE, True),
        (pa.int8(), None, True),
        (pa.int8(), "int8", True),
        (pa.int8(), {"dtype": ["int8"], "_type": "Value"}, False),
    ],
)
def test_types_that_a_feature_may_have(kind: pa.DataType, told: object, *, expected: bool) -> None:
    assert may_hold(kind, told) is expected


def test_features_that_no_column_has_are_damage() -> None:
    told = '{"_type": "Value", "dtype": "int64", "id": 1180591620717411303424}'
    metadata = {"huggingface": f'{{"info": {{"features": {{"x": {told}}}}}}}'}
    with pytest.raises(DataError, match="features of Hugging Face that no column has"):
        huggingface_schema(pa.schema([("x", pa.int64())], metadata=metadata))


def test_arrays_of_datasets_keep_their_feature_beside_media() -> None:
    """Where `datasets` is imported, its arrays are an extension type, of which pyarrow alone knows no shape."""
    spec = {"shape": [2, 3], "dtype": "float32", "_type": "Array2D"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"a": spec, "image": {"_type": "Image"}}}})}
    image = pa.field("image", pa.binary(), metadata={"lading.feature": '{"kind": "image"}'})
    found = media_schema(pa.schema([pa.field("a", NamedType(pa.list_(pa.list_(pa.float32())))), image], metadata))
    assert json.loads(found.metadata[b"huggingface"])["info"]["features"]["a"] == spec
