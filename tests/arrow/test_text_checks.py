"""Values that are none, such as invalid UTF-8, are told by their row; what no row shows is not looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.text_checks import check_names, holds_text, is_checked, refuse_bad_values
from lading.errors import Unrepresentable

_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def _texts(values: list[bytes | None], kind: pa.DataType = pa.string()) -> pa.Array:  # noqa: B008 - types are values
    stored = pa.array(values, _AS_BYTES[kind])
    return pa.Array.from_buffers(kind, len(stored), stored.buffers())


_BAD = [b"fine", None, "ü".encode(), b"x" * 20 + b"\xff", b"\xfe"]
_WRAPPED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "text": lambda texts: texts,
    "list": lambda texts: pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], texts),
    "list view": lambda texts: pa.LargeListViewArray.from_arrays([0, 1, 2, 3, 4], [1] * 5, texts),
    "fixed list": lambda texts: pa.FixedSizeListArray.from_arrays(texts, 1),
    "struct": lambda texts: pa.StructArray.from_arrays([texts], ["a"]),
    "map": lambda texts: pa.MapArray.from_arrays([0, 1, 2, 3, 4, 5], pa.array(list("abcde")), texts),
    "dictionary": lambda texts: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int8()), texts),
    "run ends": lambda texts: pa.Array.from_buffers(
        pa.run_end_encoded(pa.int16(), texts.type), 5, [None], children=[pa.array([1, 2, 3, 4, 5], pa.int16()), texts]
    ),
    "JSON": lambda texts: pa.ExtensionArray.from_storage(pa.json_(texts.type), texts),
    "deep": lambda texts: pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], texts)], ["a"]),
}


@pytest.mark.parametrize("kind", _AS_BYTES, ids=str)
@pytest.mark.parametrize("name", _WRAPPED)
def test_the_first_row_is_named(name: str, kind: pa.DataType) -> None:
    column = _WRAPPED[name](_texts(_BAD, kind))
    assert holds_text(column.type)
    for first in (0, 2):
        with pytest.raises(Unrepresentable, match=r"column 'c': invalid UTF-8 in a text") as caught:
            refuse_bad_values(pa.record_batch({"n": pa.nulls(5 - first), "c": column[first:]}))
        assert caught.value.row == 3 - first
        assert caught.value.found == repr(b"x" * 20 + b"\xff")
    refuse_bad_values(pa.record_batch({"c": _WRAPPED[name](_texts([b"a", None, b"c", b"", "ü".encode()], kind))}))
    if name != "dictionary":  # which has all of its values in every slice
        refuse_bad_values(pa.record_batch({"c": column[:3]}))


@pytest.mark.parametrize("kind", [pa.string(), pa.json_(), pa.dictionary(pa.int8(), pa.float16())], ids=str)
def test_lists_that_are_all_null(kind: pa.DataType) -> None:
    inside = pa.struct([("a", kind), ("b", pa.string())])
    for lists in (pa.list_(inside), pa.large_list(inside), pa.list_(inside, 2), pa.list_view(inside)):
        refuse_bad_values(pa.record_batch({"c": pa.nulls(2, lists)}))


def test_rows_count_through_chunks() -> None:
    table = pa.table({"c": pa.chunked_array([_texts([b"a", b"b"]), _texts([b"c", b"\xff"])])})
    with pytest.raises(Unrepresentable, match="row 3 column 'c'"):
        refuse_bad_values(table)


def test_what_no_row_shows() -> None:
    under_null = pa.StructArray.from_arrays([_texts(_BAD)], ["a"], mask=pa.array([False, False, False, True, True]))
    between = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), _texts(_BAD))
    for column in (under_null, between, pa.array([b"\xff"], pa.binary())):
        refuse_bad_values(pa.record_batch({"c": column}))


def test_a_text_that_only_the_dictionary_has_is_of_no_row() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3, np.int8)), _texts([b"a", b"\xff"]))
    with pytest.raises(Unrepresentable, match=r"^column 'c'"):
        refuse_bad_values(pa.record_batch({"c": column}))


_TOO_MUCH = {
    pa.decimal32(3, 0): (pa.int32(), 1000),
    pa.decimal64(3, 1): (pa.int64(), -1000),
    pa.date64(): (pa.int64(), 86_400_001),
    pa.time32("s"): (pa.int32(), 86_400),
    pa.time32("ms"): (pa.int32(), -1),
    pa.time64("us"): (pa.int64(), 86_400_000_000),
    pa.time64("ns"): (pa.int64(), 86_400_000_000_000),
}


@pytest.mark.parametrize("name", ["text", "list view", "struct", "map", "dictionary", "run ends"])
@pytest.mark.parametrize("kind", _TOO_MUCH, ids=str)
def test_numbers_that_their_type_does_not_allow(kind: pa.DataType, name: str) -> None:
    """By the Arrow format: digits of a decimal, days in milliseconds, times of less than a day."""
    width, number = _TOO_MUCH[kind]
    column = _WRAPPED[name](pa.array([0, None, 0, number, 0], width).view(kind))
    rows = pa.record_batch({"c": column})
    if pa.types.is_time(kind):
        refuse_bad_values(rows)
    test = pa.types.is_time if pa.types.is_time(kind) else is_checked
    with pytest.raises(Unrepresentable, match=r"row 3 column 'c': a value that .* does not allow"):
        refuse_bad_values(rows, test)
    if name != "dictionary":  # which has all of its values in every slice
        refuse_bad_values(rows.slice(0, 3), test)


@pytest.mark.parametrize("kind", [
    pa.struct([("abcdef", pa.int8())]),
    pa.list_(pa.field("abcdef", pa.int8())),
    pa.dictionary(pa.int8(), pa.struct([("abcdef", pa.int8())])),
    pa.map_(pa.string(), pa.struct([("abcdef", pa.int8())])),
    pa.int8(),
], ids=str)  # fmt: skip
def test_names_that_are_no_text(kind: pa.DataType) -> None:
    name = "plain" if kind != pa.int8() else "abcdef"
    message = pa.schema([(name, kind)]).serialize().to_pybytes()
    check_names(pa.ipc.read_schema(pa.py_buffer(message)))
    damaged = pa.ipc.read_schema(pa.py_buffer(message.replace(b"abcdef", b"abc\xffef")))
    with pytest.raises(UnicodeDecodeError):
        check_names(damaged)
