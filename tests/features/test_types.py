"""Features: kept in fields, told by names and peers, decoded one value at a time."""

import io
import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cost import costs_at_most
from lading._core.arrow.references import RefType
from lading._core.features.encode import npy_bytes
from lading._core.features.huggingface import from_huggingface
from lading._core.features.types import (
    FEATURE_KEY,
    Array,
    Audio,
    Bytes,
    ClassLabel,
    Encoded,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    Text,
    Value,
    Video,
    decode,
    encode,
    feature_from,
    feature_of,
    fingerprint,
    tag_by_extension,
    with_feature,
)
from lading.errors import DataError, Unrepresentable, UsageError

FEATURES = [
    Bytes(),
    Text(),
    Json(),
    Image(),
    Image("JPEG"),
    Audio(),
    Video(),
    Video("path"),
    Array(),
    Array("float32", (2, None)),
    ClassLabel(("cat", "ünicorn")),
    Value("timestamp[us]"),
    Sequence(Sequence(Image())),
]


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_travels_in_its_field(feature: Feature) -> None:
    field = pa.field("x", pa.large_binary(), nullable=False, metadata={"own": "1"})
    tagged = with_feature(field, feature)
    assert feature_of(tagged) == feature
    assert tagged.metadata[b"own"] == b"1"
    assert not tagged.nullable
    sink = pa.schema([tagged]).serialize()
    assert feature_of(pa.ipc.read_schema(sink).field("x")) == feature


@pytest.mark.parametrize(
    "kind, feature",
    [
        (pa.string(), Text()),
        (pa.dictionary(pa.int8(), pa.large_string()), Text()),
        (pa.string_view(), Text()),
        (pa.binary(5), Bytes()),
        (RefType(), Bytes()),
        (pa.int16(), Value("int16")),
        (pa.large_list(pa.string()), Sequence(Text())),
        (pa.list_(pa.float32(), 3), Sequence(Value("float"))),
        (pa.struct([("a", pa.large_string())]), Value("struct<a: string>")),
        (pa.fixed_shape_tensor(pa.float32(), [2, 3]), Array("float32", (2, 3))),
        (pa.fixed_shape_tensor(pa.float16(), [2]), Array("float16", (2,))),
        (pa.fixed_shape_tensor(pa.bool_(), [2]), Array("bool", (2,))),
        (pa.fixed_shape_tensor(pa.timestamp("us", "UTC"), [2]), Sequence(Value("timestamp[us, tz=UTC]"))),
        (pa.fixed_shape_tensor(pa.time32("s"), [2]), Sequence(Value("time32[s]"))),
        (pa.fixed_shape_tensor(pa.date32(), [2]), Sequence(Value("date32[day]"))),
        (pa.fixed_shape_tensor(pa.large_string(), [2]), Sequence(Text())),
        (pa.fixed_shape_tensor(pa.dictionary(pa.int8(), pa.string()), [2]), Sequence(Text())),
        (pa.fixed_shape_tensor(pa.struct([("a", pa.int8())]), [1]), Sequence(Value("struct<a: int8>"))),
        (pa.fixed_shape_tensor(pa.month_day_nano_interval(), [1]), Sequence(Value("month_day_nano_interval"))),
        (pa.json_(), Json()),
        (pa.dictionary(pa.int8(), pa.json_()), Json()),
        (pa.list_(pa.json_()), Sequence(Json())),
        (pa.struct([("a", pa.json_()), ("b", pa.int8())]), Struct((("a", Json()), ("b", Value("int8"))))),
        (pa.null(), Value("null")),
    ],
)
def test_an_untagged_field_has_the_feature_of_its_type(kind: pa.DataType, feature: Feature) -> None:
    assert feature_of(pa.field("x", kind)) == feature


def _array(dtype: str, shape: str) -> bytes:
    return b'{"kind": "array", "dtype": %s, "shape": %s}' % (dtype.encode(), shape.encode())


@pytest.mark.parametrize(
    "told",
    [
        *(b"{}", b"[1]", b"5", b"null", b'"text"', b"x", b'{"kind": "hologram"}', b'{"kind": ["text"]}'),
        b'{"kind": "array"}',
        *(_array(f'"{dtype}"', "[1]") for dtype in ("O", "object", "nope", "", "V1000000000000", "U2", "S2", "f4,f4")),
        *(_array(f'"{dtype}"', "[1]") for dtype in ("(1,2", "1" * 5000)),
        *(_array(dtype, "[1]") for dtype in ("5", '["f4"]', '[["a", "f4"]]')),
        *(_array('"int8"', shape) for shape in ("[-1]", "[true]", "[1.0]", "[18446744073709551616]", "3", '"ab"')),
        _array('"int8"', str([1] * 71)),
        b'{"kind": "value", "dtype": 5}',
        b'{"kind": "encoded", "encoding": ["x"]}',
        b'{"kind": "class_label", "names": "ab"}',
        b'{"kind": "class_label", "names": [1]}',
        b'{"kind": "image", "encode_format": 3}',
        b'{"kind": "struct", "fields": [[1, {"kind": "text"}]]}',
        b'{"kind": "sequence", "feature": ' * 900 + b'{"kind": "text"}' + b"}" * 900,
        b'{"kind": "sequence", "feature": ' * 65 + b'{"kind": "text"}' + b"}" * 65,
    ],
)
def test_an_unknown_feature_is_an_error_that_names_its_column(told: bytes) -> None:
    with pytest.raises(DataError, match=r"column 'x'.*does not know"):
        feature_of(pa.field("x", pa.binary(), metadata={b"lading.feature": told}))


@pytest.mark.parametrize(
    "feature, value",
    [
        (Sequence(Text()), b"ab"),
        (Sequence(Text()), 5),
        (Struct((("a", Text()),)), b"ab"),
        (Array("int8", (1,)), "text"),
        (Array("int8", (0, 1 << 62, 4)), b""),
        (Array("int8"), npy_bytes(np.array([1.5]))),
        (Array(None, (2, 2)), npy_bytes(np.ones(3))),
        (Array(None, (2,)), npy_bytes(np.ones((2, 1)))),
    ],
)
def test_a_value_that_is_not_what_its_column_says_is_an_error(feature: Feature, value: Any) -> None:
    with pytest.raises(DataError):
        decode(feature, value)


@pytest.mark.parametrize("dtype", ["f4", "<f4", ">f4", "single", np.float32, np.dtype(">f4")])
def test_an_array_has_one_name_of_its_dtype(dtype: Any) -> None:
    feature = Array("float32", (2,))
    assert Array(dtype, (2,)) == feature
    assert feature_from({"kind": "array", "dtype": np.dtype(dtype).str, "shape": [2]}) == feature
    schemas = [pa.schema([with_feature(pa.field("x", pa.binary()), each)]) for each in (feature, Array(dtype, (2,)))]
    assert fingerprint(schemas[0]) == fingerprint(schemas[1]) == "21ba2ca2b610bd37"


def test_a_manifest_that_told_another_name_of_a_dtype_still_holds() -> None:
    told = {FEATURE_KEY: b'{"dtype":"f4","kind":"array","shape":[2]}'}
    schema = pa.schema([pa.field("x", pa.binary(), metadata=told)])
    assert feature_of(schema[0]) == Array("float32", (2,))
    assert fingerprint(schema) == "5025dfe7b2a8b591"


@pytest.mark.parametrize("dtype", ["nope", "f4, (", "(1,2", "U5", "f4,i4", "object", "\0\0"])
def test_what_is_no_dtype_of_numbers_stays_as_it_is_told(dtype: str) -> None:
    assert Array(dtype).dtype == dtype


def test_arrays_in_npy_files_have_what_their_column_says() -> None:
    swapped = np.array([[1.5, 2.5]], ">f4")
    assert decode(Array("float32"), npy_bytes(swapped)).tolist() == [[1.5, 2.5]]
    assert decode(Array(None, (None, 2)), npy_bytes(swapped)).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize(
    "kind, told",
    [
        (pa.int64(), {"_type": "ClassLabel", "names": ["\ud800"]}),
        (pa.list_(pa.list_(pa.int64())), {"_type": "Array2D", "dtype": "int64", "shape": [1 << 64, 2]}),
        (pa.list_(pa.list_(pa.int64())), {"_type": "Array2D", "dtype": ["int64"], "shape": [1, 2]}),
    ],
)
def test_what_hugging_face_could_not_mean_is_left_to_the_type(kind: pa.DataType, told: dict[str, Any]) -> None:
    text = json.dumps({"info": {"features": {"x": told}}})
    schema = pa.schema([("x", kind)], metadata={b"huggingface": text.encode()})
    assert from_huggingface(schema) == schema


@pytest.mark.parametrize(
    "name, feature",
    [
        ("jpg", Image()),
        ("seg.PNG", Image()),
        ("json", Json()),
        ("c.txt", Text()),
        ("cls", Value("int64")),
        ("npy", Array()),
        ("wav", Audio()),
        ("mp4", Video()),
        ("pyd", None),
        ("json.gz", None),
        ("", None),
    ],
)
def test_names_tell_by_their_last_extension(name: str, feature: Feature | None) -> None:
    metadata = tag_by_extension(name)
    assert (feature_of(pa.field(name, pa.binary(), metadata=metadata)) if metadata else None) == feature


def test_fingerprint_shows_names_types_and_features_only() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int32())), ("c", pa.struct([("s", pa.string())]))])
    same = pa.schema(
        [
            pa.field("c", pa.struct([("s", pa.dictionary(pa.int32(), pa.large_string()))]), nullable=False),
            pa.field("b", pa.large_list(pa.field("other", pa.int32()))),
            pa.field("a", pa.string_view(), metadata={"k": "v"}),
        ],
        metadata={"x": "y"},
    )
    assert fingerprint(schema) == fingerprint(same)
    assert len(fingerprint(schema)) == 16
    a = schema.field("a")
    for other in (a.with_name("z"), a.with_type(pa.int64()), a.with_type(pa.binary()), with_feature(a, Json())):
        assert fingerprint(schema.set(0, other)) != fingerprint(schema)


def test_a_reference_column_counts_as_bytes() -> None:
    tag = tag_by_extension("txt")
    fetched, referred = (pa.schema([pa.field("txt", t, metadata=tag)]) for t in (pa.large_binary(), RefType()))
    assert fingerprint(fetched) == fingerprint(referred)


# As datasets 5.2.0 writes it (`Dataset.to_parquet`), with the Arrow types that go with it.
HUGGINGFACE = """{"info": {"features": {"image": {"_type": "Image"}, "audio": {"sampling_rate": 8000, "_type": "Audio"},
"label": {"names": ["cat", "dog", "\\u00fcnicorn"], "_type": "ClassLabel"}, "tokens": {"feature": {"dtype": "int32",
"_type": "Value"}, "_type": "List"}, "obj": {"a": {"dtype": "string", "_type": "Value"}, "b": {"feature": {"dtype":
"float64", "_type": "Value"}, "_type": "List"}}, "boxes": {"feature": {"x": {"dtype": "float32", "_type": "Value"}, "c":
{"names": ["u", "v"], "_type": "ClassLabel"}}, "_type": "List"}, "arr": {"shape": [2, 3], "dtype": "int16", "_type":
"Array2D"}, "imgs": {"feature": {"_type": "Image"}, "_type": "List"}, "old": [{"_type": "Image"}], "big": {"dtype":
"large_string", "_type": "Value"}, "bin": {"dtype": "binary", "_type": "Value"}, "fixed": {"feature": {"dtype":
"float32", "_type": "Value"}, "length": 2, "_type": "List"}}}}"""
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def test_hugging_face_features() -> None:
    found = pa.schema(
        [
            ("image", MEDIA),
            ("audio", MEDIA),
            ("label", pa.int64()),
            ("tokens", pa.list_(pa.int32())),
            ("obj", pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))])),
            ("boxes", pa.list_(pa.struct([("x", pa.float32()), ("c", pa.int64())]))),
            ("arr", pa.list_(pa.list_(pa.int16()))),
            ("imgs", pa.list_(MEDIA)),
            ("old", pa.list_(MEDIA)),
            ("big", pa.large_string()),
            ("bin", pa.binary()),
            ("fixed", pa.list_(pa.float32(), 2)),
        ],
        metadata={"huggingface": HUGGINGFACE, "other": "kept"},
    )
    schema = from_huggingface(found)
    assert {f.name: feature_of(f) for f in schema} == {
        "image": Image(),
        "audio": Audio(),
        "label": ClassLabel(("cat", "dog", "ünicorn")),
        "tokens": Sequence(Value("int32")),
        "obj": Value("struct<a: string, b: list<item: double>>"),
        "boxes": Sequence(Struct((("c", ClassLabel(("u", "v"))),))),
        "arr": Array("int16", (2, 3)),
        "imgs": Sequence(Image()),
        "old": Sequence(Image()),
        "big": Text(),
        "bin": Bytes(),
        "fixed": Sequence(Value("float")),
    }
    assert schema.metadata == found.metadata
    assert schema.types == found.types


def test_hugging_face_features_of_many_columns_cost_what_their_fields_do() -> None:
    told = {f"c{i}": {"_type": "ClassLabel", "names": ["a"]} for i in range(2000)}
    fields = [pa.field(name, pa.int64()) for name in told]
    schema = pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": told}})})

    def tag_each() -> None:
        for field in fields:
            feature_of(with_feature(field, ClassLabel(("a",))))

    assert costs_at_most(10, lambda: from_huggingface(schema), tag_each)


@pytest.mark.parametrize("told", [None, {}, {"info": []}, {"info": {"features": {"x": {"_type": []}, "y": 3}}}])
def test_hugging_face_metadata_that_say_nothing(told: Any) -> None:
    schema = pa.schema([("x", pa.int8())], metadata={"huggingface": json.dumps(told)})
    assert from_huggingface(schema).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    "feature, stored, value",
    [
        (Text(), "ü", "ü"),
        (Text(), "ü".encode(), "ü"),
        (Json(), b'{"a": 18446744073709551616}', {"a": 1 << 64}),
        (Value("int64"), b"-7\n", -7),
        (Value("double"), b"1e3", 1000.0),
        (Value("int64"), 5, 5),
        (Value("string"), b"x", b"x"),
        (ClassLabel(("a", "b")), 1, 1),
        (Image(), b"\x89PNG", b"\x89PNG"),
        (Image(), {"bytes": b"x", "path": "p"}, b"x"),
        (Image(), {"bytes": None, "path": "p"}, {"bytes": None, "path": "p"}),
        (Sequence(Text()), [b"a", None], ["a", None]),
        (Array(), None, None),
    ],
)
def test_decode(feature: Feature, stored: Any, value: Any) -> None:
    assert decode(feature, stored) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.zeros((0, 4), np.float16),
        np.array(3),
        np.array([("ü", 1)], [("näme", "U3"), ("n", "<i8")]),
    ],
)
def test_npy_files(array: np.ndarray[Any, Any]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(3, 0))
    found = decode(Array(), file.getvalue())
    assert found.dtype == array.dtype
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)
    plain = io.BytesIO()
    np.save(plain, np.arange(3, dtype="u2"))
    assert decode(Array(), memoryview(plain.getvalue())).tolist() == [0, 1, 2]


def _npy(header: str, body: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", b"12345678"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': 3}"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1e999,)}"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': '1'}", b"12345678"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': {1}}", b"12345678"),
        _npy("{'descr': '|S0', 'fortran_order': False, 'shape': (3000000, 3000000)}"),
        _npy("{'descr': '|S0', 'fortran_order': False, 'shape': (3,)}"),
        _npy("{'descr': '|V0', 'fortran_order': False, 'shape': (3,)}"),
        _npy("{'descr': [], 'fortran_order': False, 'shape': (3,)}"),
        _npy("{'descr': 'banana', 'fortran_order': False, 'shape': ()}"),
        _npy("__import__('os').system('true')"),
        _npy("(" * 5000),
        _npy("[]"),
    ],
)
def test_broken_npy_files(data: bytes) -> None:
    with pytest.raises(DataError):
        decode(Array(), data)


def test_nothing_is_unpickled() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match="does not unpickle"):
        decode(Array(), file.getvalue())
    assert decode(Bytes(), pickle.dumps(1)) == pickle.dumps(1)


def test_raw_arrays_are_little_endian() -> None:
    assert decode(Array("uint16", (1, 2)), b"\x01\x00\x00\x01").tolist() == [[1, 256]]
    assert decode(Array("uint8", (None, 2)), b"abcd").shape == (2, 2)
    assert decode(Array("int16", (2, 2)), [[1, 2], [3, 4]]).dtype == np.int16
    assert decode(Array("int16", (2, 2)), [1, 2, 3, 4]).tolist() == [[1, 2], [3, 4]]
    for shape in ((3,), (None, 3), (None, None)):
        with pytest.raises(DataError, match="another size"):
            decode(Array("uint8", shape), b"abcd")


@pytest.mark.parametrize(
    "shape, stored, found",
    [
        ((None, 3), [], (0, 3)),
        ((None, 3), [[1, 2, 3]], (1, 3)),
        ((None, 3, 4), [], (0, 3, 4)),
        ((2, None, 3), [[], []], (2, 0, 3)),
        ((None, None), [], (0, 0)),
        ((None,), [], (0,)),
        ((2, None, 3), [[]], (1, 0)),  # what is no such array stays as it is
        ((2, 3), [], (0,)),
    ],
)
def test_lists_without_items_are_arrays_of_all_their_dimensions(
    shape: tuple[int | None, ...], stored: list[Any], found: tuple[int, ...]
) -> None:
    array = decode(Array("int8", shape), stored)
    assert (array.shape, array.dtype) == (found, np.int8)


@pytest.mark.parametrize("feature, stored", [(Text(), b"a\xff"), (Value("int64"), b"x"), (Json(), b"{")])
def test_values_that_are_not_what_they_should_be(feature: Feature, stored: bytes) -> None:
    with pytest.raises(DataError):
        decode(feature, stored)


@pytest.mark.parametrize(
    "feature, value, stored",
    [
        (Text(), "ü", "ü"),
        (Text(), "ü".encode(), "ü"),
        (Json(), {"a": [1, None]}, '{"a": [1, null]}'),
        (Json(), "text", '"text"'),
        (Json(), b'{"a":1}', '{"a":1}'),
        (Value("int32"), np.int64(3), 3),
        (ClassLabel(("cat", "dog")), "dog", 1),
        (ClassLabel(("cat", "dog")), np.int8(-1), -1),
        (Bytes(), bytearray(b"x"), b"x"),
        (Audio(), b"x", b"x"),
        (Image(), b"x", b"x"),
        (Array("uint8", (2,)), [1, 2], b"\1\2"),
        (Sequence(ClassLabel(("cat", "dog"))), ("dog", None), [1, None]),
        (Sequence(Value("int64")), np.arange(3), [0, 1, 2]),
        (Struct((("a", Text()), ("b", Sequence(Json())))), {"a": b"x", "b": [1]}, {"a": "x", "b": ["1"]}),
        (Value("timestamp[us]"), np.datetime64("2020-01-01"), np.datetime64("2020-01-01")),
        (Value("float32"), np.ma.masked, None),
        (Value("bool"), np.ma.array([True], mask=[True])[0], None),
        (Value("timestamp[us]"), np.ma.array(np.datetime64(1, "us"), mask=True), None),
        (ClassLabel(("cat", "dog")), np.ma.array(1, mask=True), None),
        (Sequence(Value("int8")), [np.ma.masked, np.ma.array(1)], [None, 1]),
        (Struct((("a", Value("int8")),)), {"a": np.ma.masked}, {"a": None}),
    ],
)
def test_values_are_encoded(feature: Feature, value: Any, stored: Any) -> None:
    assert encode(feature, value) == stored
    assert encode(feature, None) is None


def test_what_is_encoded_is_decoded_again() -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4)
    for feature in (Array(), Array("float32"), Array("float32", (3, 4)), Array("float32", (None, 4))):
        assert np.array_equal(decode(feature, encode(feature, array)), array)
    for value in ("1", 1, 1.5, [None, {"ü": "x"}], float("inf"), 10**30):
        assert decode(Json(), encode(Json(), value)) == value
    assert decode(Video(), encode(Video(), b"film")) == b"film"


@pytest.mark.parametrize(
    "feature, value",
    [
        (Text(), 3),
        (Json(), {1, 2}),
        (Json(), {1: "a", "1": "b"}),
        (ClassLabel(("cat",)), "dog"),
        (ClassLabel(("cat",)), 0.5),
        (ClassLabel(("cat",)), True),
        (Bytes(), "text"),
        (Audio(), 3),
        (Array("uint8", (2,)), [1, 2, 3]),
        (Sequence(Text()), "text"),
        (Sequence(Text()), {"a": 1}),
        (Sequence(Text()), 3),
        (Struct((("a", Text()),)), {"b": "x"}),
        (Struct((("a", Text()),)), "x"),
    ],
)
def test_values_that_a_feature_cannot_hold_are_refused(feature: Feature, value: Any) -> None:
    with pytest.raises(Unrepresentable):
        encode(feature, value)


def test_a_broken_text_is_bad_data() -> None:
    for feature in (Text(), Json()):
        with pytest.raises(DataError):
            encode(feature, b"\xff")


def test_values_of_mds_are_checked_and_videos_in_files_need_a_folder() -> None:
    with pytest.raises(DataError, match="ends too early"):
        encode(Encoded("pil"), b"x")
    with pytest.raises(UsageError, match="assets"):
        encode(Video("path"), b"x")


_NESTED = Struct((("a", Sequence(Text())), ("b.jpg", Image()), ("c", Struct((("d", ClassLabel(["x"])),)))))


def test_values_at_the_bottom_of_lists_and_structs() -> None:
    value = {"a": ["t", None], "b.jpg": b"i", "c": {"d": 0}}
    assert [*_NESTED.leaves()] == [Text(), Image(), ClassLabel(["x"])]
    assert [*_NESTED.leaf_values(value, "")] == [
        ("a", Text(), "t"),
        ("b.jpg", Image(), b"i"),
        ("d", ClassLabel(["x"]), 0),
    ]
    assert [*_NESTED.leaf_values({"a": 5}, "z")] == [("a", Sequence(Text()), 5)]  # which decoding refuses
    changed = _NESTED.changed(value, lambda leaf, inside: (type(leaf).__name__, inside))
    assert changed == {
        "a": [("Text", "t"), ("Text", None)], "b.jpg": ("Image", b"i"), "c": {"d": ("ClassLabel", 0)},
    }  # fmt: skip
    assert _NESTED.changed(None, lambda leaf, inside: 1) is None


def test_features_that_no_column_has() -> None:
    for feature in (Video("elsewhere"), Sequence(Array("object")), Struct((("a", Text()), ("a", Text())))):
        with pytest.raises(UsageError):
            feature.check()
    with pytest.raises(UsageError, match="not a feature"):
        Sequence(5).check()  # type: ignore[arg-type] # wrong on purpose
