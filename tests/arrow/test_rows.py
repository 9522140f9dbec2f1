"""Samples as dicts, in the columns of a schema."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.rows import Encoders, rows_to_batch
from lading._core.features.types import (
    Array,
    Audio,
    ClassLabel,
    Encoded,
    Feature,
    Image,
    Json,
    Sequence,
    Value,
    with_feature,
)
from lading.errors import LadingError, SchemaMismatch, Unrepresentable, UsageError

BINARY, MEDIA = pa.large_binary(), pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NUMBERS = np.array([[1, 2], [3, 4]], "<f4")
MASKED = np.ma.masked_array([1, 2], [False, True])


def stored(kind: pa.DataType, feature: Feature | None, *values: Any) -> pa.Array:
    field = pa.field("x", kind) if feature is None else with_feature(pa.field("x", kind), feature)
    encoders = Encoders(pa.schema([field]))
    batch = rows_to_batch([encoders.row({"x": value}) for value in values], encoders)
    assert (batch.schema.field("x").metadata or {}) == (field.metadata or {})
    return batch.column("x")


@pytest.mark.parametrize(
    "kind, feature, value, expected",
    [
        # Values alone, C order, little-endian, as the feature says.
        (BINARY, Array("float32", (2, 2)), NUMBERS, NUMBERS.tobytes()),
        (BINARY, Array("float32", (None, 2)), [[1, 2], [3, 4]], NUMBERS.tobytes()),
        (pa.list_(pa.list_(pa.float32())), Array("float32", (2, 2)), NUMBERS, [[1, 2], [3, 4]]),
        (pa.fixed_shape_tensor(pa.float32(), [2, 2]), None, NUMBERS, [1, 2, 3, 4]),
        (pa.list_(pa.float32()), None, np.array([1.5, 2]), [1.5, 2]),
        # Lists tell their own shape, and are of the numbers that they are stored as.
        (pa.list_(pa.list_(pa.float32())), Array("float32", (None, None)), NUMBERS, [[1, 2], [3, 4]]),
        (pa.list_(pa.int64()), Array("int64"), [1.0, 2], [1, 2]),
        (pa.list_(pa.float32()), Array(), [16777216, 1.5], [16777216, 1.5]),
        (pa.list_(BINARY), Sequence(Audio()), [b"a", None], [b"a", None]),
        (BINARY, Audio(), bytearray(b"RIFF"), b"RIFF"),
        (MEDIA, Audio(), b"RIFF", {"bytes": b"RIFF", "path": None}),
        # A path that came with a struct is somebody else's: it is kept, and not read.
        (MEDIA, Image(), {"bytes": None, "path": "somewhere/a.png"}, {"bytes": None, "path": "somewhere/a.png"}),
        (pa.string(), Json(), "hello", '"hello"'),
        (BINARY, Json(), {"a": [1, "x"]}, b'{"a": [1, "x"]}'),
        (pa.int16(), ClassLabel(("x", "y")), "y", 1),
        (pa.int8(), None, np.int64(3), 3),
        (pa.float32(), None, 2, 2.0),
        (pa.float32(), None, 16777216, 16777216.0),
        (BINARY, Value("int64"), 7, b"7"),
        (BINARY, Encoded("ndarray:uint8:2"), b"\1\2", b"\1\2"),
        (BINARY, Encoded("ndarray:uint8:2"), np.array([1, 2], np.uint8), b"\1\2"),
        (pa.dictionary(pa.int8(), pa.string()), None, "w", "w"),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), None, {"a": 1}, {"a": 1, "b": None}),
        (pa.map_(pa.string(), pa.int8()), None, [("a", 1)], [("a", 1)]),
    ],
)  # fmt: skip
def test_values_are_stored_as_their_column_says(kind: pa.DataType, feature: Any, value: Any, expected: Any) -> None:
    array = stored(kind, feature, None, value)
    found = array.storage if isinstance(array, pa.ExtensionArray) else array
    [nothing, something] = found.to_pylist()
    assert nothing is None
    assert json.loads(something) == json.loads(expected) if feature == Json() else something == expected


def test_arrays_of_numbers_become_pictures() -> None:
    [found] = stored(BINARY, Image(), np.zeros((3, 4), np.uint8)).to_pylist()
    assert found.startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "kind, feature, value, error",
    [
        (BINARY, Array("float32", (3,)), NUMBERS, Unrepresentable),
        (BINARY, Array("float32", (None, None)), NUMBERS, UsageError),
        (BINARY, Array("float32", (None, 0)), NUMBERS, UsageError),
        (BINARY, Encoded("ndarray:uint8:2"), np.zeros(3, np.uint8), Unrepresentable),
        (BINARY, None, "text", Unrepresentable),
        (pa.int8(), None, 1.5, Unrepresentable),
        (pa.int8(), None, 300, Unrepresentable),
        (pa.float32(), None, 1e300, SchemaMismatch),
        (pa.list_(pa.int8()), None, [300], Unrepresentable),
        (pa.list_(pa.float32()), None, [0.5, 1e300], Unrepresentable),
        (pa.struct([("a", pa.list_(pa.float16()))]), None, {"a": [1e30]}, Unrepresentable),
        (pa.map_(pa.string(), pa.float32()), None, [("k", -1e300)], Unrepresentable),
        (pa.list_(pa.int8()), None, "12", Unrepresentable),
        *((pa.list_(pa.int64()), Array(*told), [1.5, 2.7], Unrepresentable) for told in ((), ("int64",))),
        *((pa.list_(pa.int64()), Array(*told), MASKED, Unrepresentable) for told in ((), ("int64",), ("int64", (2,)))),
        (pa.list_(pa.int32()), Array("int64", (1,)), [1 << 40], Unrepresentable),
        (pa.list_(pa.float32()), Array("int64", (1,)), [16777217], Unrepresentable),
        # The first whole number that 24 bits of a float do not hold.
        (pa.float32(), None, 16777217, Unrepresentable),
        (pa.int8(), ClassLabel(("x", "y")), "z", Unrepresentable),
        (pa.struct([("a", pa.int8())]), None, {"b": 1}, Unrepresentable),
    ],
)  # fmt: skip
def test_values_that_their_column_cannot_hold(
    kind: pa.DataType, feature: Any, value: Any, error: type[LadingError]
) -> None:
    with pytest.raises(error, match="column 'x'"):
        stored(kind, feature, None, value)


def test_infinities_in_lists_are_kept() -> None:
    kind, infinite = pa.list_(pa.list_(pa.float32())), float("inf")
    found = stored(kind, None, [[0.5]], [[infinite], np.array([-infinite, 0.5])])
    assert found.to_pylist() == [[[0.5]], [[infinite], [-infinite, 0.5]]]


def test_what_columns_hold_is_known_after_many_combinations_of_fields() -> None:
    encoders = Encoders(None)
    for field in range(250):
        assert encoders.row({f"f{field}": [field]}) == {f"f{field}": f"[{field}]"}
    with pytest.raises(UsageError, match="column 'f0': the values of one field are of several kinds"):
        encoders.row({"f0": "text"})


class _Name(str):
    """A name that counts how often somebody looks at it."""

    __slots__ = ()
    looks: ClassVar[Counter[str]] = Counter()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        self.looks[self] += 1
        return super().encode(encoding, errors)


def test_fields_that_may_be_null_are_looked_at_once_a_type_whatever_others_are() -> None:
    encoders, names = Encoders(None), [_Name(f"f{i}") for i in range(8)]
    for nulls in (*product((True, False), repeat=8), *product((False, True), repeat=8)):
        sample = {name: None if is_null else 1 for name, is_null in zip(names, nulls, strict=True)}
        assert encoders.row(sample) == sample
    assert _Name.looks == dict.fromkeys(names, 2)


class _Hashed(str):
    """A name that counts how often somebody looks it up."""

    __slots__ = ()
    looked_up: ClassVar[Counter[str]] = Counter()

    def __hash__(self) -> int:
        self.looked_up[str(self)] += 1
        return super().__hash__()


@pytest.mark.parametrize("value", [1, [1]])
def test_plain_fields_are_looked_up_once_a_row_whatever_stands_beside_them(value: Any) -> None:
    encoders = Encoders(None)
    sample = {_Hashed("x"): 1, "y": value}
    encoders.row(sample)
    _Hashed.looked_up.clear()
    assert encoders.row(sample)["y"] == (value if value == 1 else "[1]")
    assert _Hashed.looked_up == {"x": 1}


@pytest.mark.parametrize("names", ["abc", "cab", "bca"])
def test_the_first_field_that_cannot_be_stored_is_told(names: str) -> None:
    encoders = Encoders(None)
    encoders.row({"a": 1, "b": 2, "c": [3]})
    with pytest.raises(UsageError, match=f"column '{names[0]}'"):
        encoders.row(dict.fromkeys(names, object()))


@pytest.mark.parametrize("first", [None, np.datetime64("NaT")])
def test_nulls_tell_no_kind(first: Any) -> None:
    encoders = Encoders(None)
    assert [encoders.row({"x": value}) for value in (first, "text", first)] == [{"x": None}, {"x": "text"}, {"x": None}]
    with pytest.raises(UsageError, match="column 'x': the values of one field are of several kinds"):
        encoders.row({"x": np.datetime64("2020-01-01")})
    assert encoders.row({"x": "text"}) == {"x": "text"}


def test_columns_that_no_schema_names_say_it_themselves() -> None:
    encoders = Encoders(pa.schema([("x", pa.int8())]))
    row = encoders.row({"x": 1, "y": [1]})
    assert rows_to_batch([row], encoders).to_pylist() == [{"x": 1, "y": "[1]"}]
    [none] = rows_to_batch([{}], encoders).to_pylist()
    assert none == {"x": None}


@pytest.mark.parametrize(
    "values, words",
    [
        ([np.timedelta64(999999999, "D")], "row 0 column 'x': a value that Arrow cannot hold"),
        ([1.5, 1 << 70], "row 1 column 'x': a number beyond 64 bits"),
        ([1.5, (1 << 53) + 1], "row 1 column 'x': a value that double cannot hold"),
    ],
)
def test_values_that_no_type_holds_are_told_so(values: list[Any], words: str) -> None:
    encoders = Encoders(None)
    with pytest.raises(Unrepresentable, match=words):
        rows_to_batch([encoders.row({"x": value}) for value in values], encoders)


@pytest.mark.parametrize(
    "name, values, kind, feature, expected",
    [
        ("x", [[], [b"a", None], None, (bytearray(b"b"),)], pa.list_(BINARY), None, [[], [b"a", None], None, [b"b"]]),
        ("image", [[b"a"]], pa.list_(BINARY), Sequence(Image()), [[b"a"]]),
        ("x", [[], [1], [None]], pa.string(), Json(), ["[]", "[1]", "[null]"]),
        ("x", [[None], {}], pa.string(), Json(), ["[null]", "{}"]),
        ("x", [[np.zeros((1, 2, 3), np.int64)]], pa.string(), Json(), ["[[[[0, 0, 0], [0, 0, 0]]]]"]),
        ("x.json", [[]], pa.string(), Json(), ["[]"]),
    ],
)
def test_lists_of_bytes_are_lists_and_others_json(
    name: str, values: list[Any], kind: pa.DataType, feature: Feature | None, expected: list[Any]
) -> None:
    encoders = Encoders(None)
    batch = rows_to_batch([encoders.row({name: value}) for value in values], encoders)
    assert batch.column(0).to_pylist() == expected
    field = pa.field(name, kind)
    assert batch.schema.field(0).equals(with_feature(field, feature) if feature else field, check_metadata=True)


@pytest.mark.parametrize("other", [[1], {"a": 1}, "text", [b"a", 1]])
def test_lists_of_bytes_and_other_values_do_not_go_together(other: Any) -> None:
    encoders = Encoders(None)
    encoders.row({"x": [b"a"]})
    with pytest.raises(LadingError) as caught:
        encoders.row({"x": other})
    assert caught.value.column == "x"


def test_a_batch_of_lists_without_items_is_json_from_then_on() -> None:
    encoders = Encoders(None)
    assert rows_to_batch([encoders.row({"x": []})], encoders).to_pylist() == [{"x": "[]"}]
    with pytest.raises(UsageError, match="expected JSON, found a list of bytes"):
        encoders.row({"x": [b"a"]})
