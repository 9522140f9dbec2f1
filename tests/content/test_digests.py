"""Digests of samples, of interleaved samples and of datasets."""

import datetime as dt
import math
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from lading._core.arrow.references import make_refs
from lading._core.arrow.views import from_ranges
from lading._core.content.digests import DatasetDigest, interleaved_digests, sample_digests, undigested
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.features.types import Json, with_feature
from lading.errors import DataError, DuplicateField, Unrepresentable, UsageError


def test_the_form_of_one_sample() -> None:
    table = pa.table({"b": pa.array([7], pa.uint8()), "a": [None], "é": ["x" * 65], "c": [[1.5, None]]})
    form = b"{s\x01bi\x07" + bytes(7) + b"s\x01cl\x02" + bytes(7) + b"f" + np.float64(1.5).tobytes() + b"n"
    form += b"s\x02\xc3\xa9h" + xxhash.xxh3_128(b"x" * 65).digest() + b"}"
    assert sample_digests(table).tobytes() == xxhash.xxh3_128(form).digest()
    assert sample_digests(table.to_batches()[0]).tobytes() == xxhash.xxh3_128(form).digest()


def test_nothing_at_all() -> None:
    assert sample_digests(pa.table({"a": pa.array([], pa.string())})).shape == (0, 16)
    assert sample_digests(pa.table({"a": [None]})).tobytes() == xxhash.xxh3_128(b"{}").digest()


def _digest(value: Any, kind: pa.DataType | None = None) -> bytes:
    return sample_digests(pa.table({"x": pa.array([value], kind)})).tobytes()


def test_what_pyarrow_has_no_kernels_for() -> None:
    views = pa.array(["x" * 20, None, "y"], pa.string_view())
    plain = sample_digests(pa.table({"x": ["x" * 20, "x" * 20, None, "y"]})).tobytes()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 5], pa.int16()), views)
    assert sample_digests(pa.table({"x": runs[1:]})).tobytes() == plain
    words = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 2]), views)
    assert sample_digests(pa.table({"x": words})).tobytes() == plain
    words_in_runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int16()), words[1:])
    assert sample_digests(pa.table({"x": words_in_runs})).tobytes() == plain
    empty = pa.array([[], None], pa.list_(pa.string()))
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"]))
    lists = pa.ListViewArray.from_arrays(pa.array([1, None], pa.int32()), pa.array([0, 0], pa.int32()), json)
    assert sample_digests(pa.table({"x": lists})).tobytes() == sample_digests(pa.table({"x": empty})).tobytes()


DIFFERENT = [
    (None, None),
    (0, pa.int8()),
    (1, pa.int8()),
    ((1 << 64) - 1, pa.uint64()),
    (-1, pa.int64()),
    (0.0, pa.float32()),
    (-0.0, pa.float32()),
    (float("nan"), pa.float32()),
    (False, None),
    (True, None),
    ("", None),
    ("0", None),
    (b"\0", None),
    ([], pa.list_(pa.int8())),
    ([None], pa.list_(pa.int8())),
    ([0], pa.list_(pa.int8())),
    ([[0]], pa.list_(pa.list_(pa.int8()))),
    ({"a": None}, pa.struct([("a", pa.int8())])),
    ({"a": 0}, pa.struct([("a", pa.int8())])),
    ({"b": 0}, pa.struct([("b", pa.int8())])),
    (Decimal(0), pa.decimal128(3, 0)),
    (Decimal("0.0"), pa.decimal128(3, 1)),
    (0, pa.date32()),
    (0, pa.timestamp("s")),
    (0, pa.timestamp("s", "UTC")),
    (0, pa.time32("s")),
    (0, pa.duration("s")),
]


def test_values_that_are_easily_confused() -> None:
    assert len({_digest(*value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(
    "forms",
    [
        [(-5, pa.int8()), (-5, pa.int64())],
        [(5, pa.uint64()), (5, pa.int16())],
        [(0.5, pa.float16()), (0.5, pa.float64())],
        [(float("nan"), pa.float16()), (-float("nan"), pa.float64())],
        [("é", None), ("é".encode(), None)],
        [(b"abc", pa.binary(3)), (b"abc", pa.binary_view())],
        [(dt.date(2020, 2, 2), pa.date32()), (dt.date(2020, 2, 2), pa.date64())],
        [(-1500, pa.timestamp("ms")), (-1_500_000_000, pa.timestamp("ns"))],
        [(86_100, pa.timestamp("s", "UTC")), (86_100_000, pa.timestamp("ms", "Asia/Tokyo"))],
        [(3_000_000_000, pa.duration("ns")), (3, pa.duration("s"))],
        [([1, None], pa.list_(pa.int8())), ([1, None], pa.list_(pa.int16(), 2))],
        [([("k", 1)], pa.map_(pa.string(), pa.int8())), ([{"key": "k", "value": 1}], None)],
        [({"a": 1, "b": None}, None), ({"a": 1}, None)],
    ],
)
def test_how_a_value_is_stored_does_not_show(forms: list[tuple[Any, Any]]) -> None:
    assert len({_digest(*form) for form in forms}) == 1


def _json(text: str | None) -> bytes:
    field = with_feature(pa.field("x", pa.string()), Json())
    return sample_digests(pa.table([pa.array([text], pa.string())], schema=pa.schema([field]))).tobytes()


@pytest.mark.parametrize(
    "text, value, kind",
    [
        ("null", None, None),
        (None, None, None),
        (" 7", 7, pa.int16()),
        ("18446744073709551615", (1 << 64) - 1, pa.uint64()),
        ("7.0", 7.0, pa.float64()),
        ("NaN", float("nan"), pa.float32()),
        ('"\\u00fc"', "ü", None),
        ("true", True, None),
        ('[1, null, {"b": [], "a": "x"}]', None, None),
        ('{"b": 1, "a": null}', {"a": None, "b": 1}, None),
        ("not json", b"not json", None),
    ],
)
def test_json_is_what_it_means(text: str | None, value: Any, kind: Any) -> None:
    if text is not None and text.startswith("["):
        assert _json(text) == _json('[1,null,{"a":"x","b":[]}]')
        assert _json(text) != _json('[1,{"a":"x","b":[]}]')
    else:
        assert _json(text) == _digest(value, kind)


def test_json_in_lists_and_the_like_is_what_it_means() -> None:
    texts, others = (pa.array(told) for told in (['{"b": 1, "a": 2.0}', "7"], ['{"a":2.0,"b":1}', " 7 "]))
    plain = {sample_digests(pa.table({"x": _lists(told)})).tobytes() for told in (texts, others)}
    one, other = (pa.ExtensionArray.from_storage(pa.json_(), told) for told in (texts, others))
    told = [sample_digests(pa.table({"x": _lists(values)})).tobytes() for values in (one, other)]
    assert told[0] == told[1]
    assert told[0] not in plain
    means = pa.array([[{"b": 1, "a": 2.0}], None], pa.list_(pa.struct([("a", pa.float64()), ("b", pa.int8())])))
    assert told[0][:16] == sample_digests(pa.table({"x": means})).tobytes()[:16]
    for many in (_words, _runs):
        assert sample_digests(pa.table({"x": many(one)})).tobytes() == sample_digests(pa.table({"x": other})).tobytes()


def _lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)


def _words(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1]), values)


def _runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), values)


def test_json_without_bottom() -> None:
    deep = "[" * 100 + '{"b": 1, "a": 1.50}' + "]" * 100
    assert _json(deep) == _json(deep.replace('{"b": 1, "a": 1.50}', '{"a":1.5,"b":1}'))
    assert _json(deep) != _json(deep.replace("1.50", "1.51"))


@pytest.mark.parametrize("levels", [101, 200])
@pytest.mark.parametrize("inner", ["1", "NaN"])
def test_json_of_many_levels_is_what_it_means(levels: int, inner: str) -> None:
    text = "[" * levels + inner + "]" * levels
    assert _json(text) == _json(text.replace(inner, f" {inner}\n"))
    assert _json(text) != _digest(text.encode(), pa.binary())


def test_deeper_json_is_its_bytes() -> None:
    text = "[" * 201 + "]" * 201
    assert _json(text) == _digest(text.encode(), pa.binary())
    assert _json(text) != _json(text + " ")


def test_tensors_are_dtype_shape_and_bytes() -> None:
    def tensor(dtype: pa.DataType, shape: list[int], start: int = 0) -> pa.Array:
        kind = pa.fixed_shape_tensor(dtype, shape)
        storage = pa.array([[start, 1, 2, 3], None, [4, 5, 6, 7]], pa.list_(dtype, 4))
        return pa.ExtensionArray.from_storage(kind, storage)

    usual = sample_digests(pa.table({"x": tensor(pa.int16(), [2, 2])}))
    body = np.arange(4, dtype="<i2").tobytes()
    shape = b"l\x02" + bytes(7) + (b"i\x02" + bytes(7)) * 2
    form = b"{s\x01xas\x05int16" + shape + b"s\x08" + body + b"}"
    assert usual[0].tobytes() == xxhash.xxh3_128(form).digest()
    assert usual[1].tobytes() == xxhash.xxh3_128(b"{}").digest()
    sliced = sample_digests(pa.table({"x": tensor(pa.int16(), [2, 2])[1:]}))
    np.testing.assert_array_equal(sliced, usual[1:])
    for other in (tensor(pa.int16(), [4]), tensor(pa.uint16(), [2, 2]), tensor(pa.int16(), [2, 2], 1)):
        assert sample_digests(pa.table({"x": other}))[0].tobytes() != usual[0].tobytes()


def test_bools_in_bytes_are_bools() -> None:
    kind = pa.bool8()
    truths = pa.ExtensionArray.from_storage(kind, pa.array([9, 1, 0, None, -5], pa.int8())[1:])
    plain = pa.array([True, False, None, True])
    assert _digests(truths) == _digests(plain)
    inside = pa.StructArray.from_arrays([truths], ["a"]), pa.StructArray.from_arrays([plain], ["a"])
    assert _digests(inside[0]) == _digests(inside[1])


def _tensors(dtype: pa.DataType, shape: list[int], rows: list[Any], **more: Any) -> pa.Array:
    storage = pa.array(rows, pa.list_(dtype, math.prod(shape)))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(dtype, shape, **more), storage)


def _digests(column: pa.Array) -> list[bytes]:
    return [row.tobytes() for row in sample_digests(pa.table({"x": column}))]


@pytest.mark.parametrize(
    "dtype, one, zero", [(pa.int32(), 1, 0), (pa.float16(), np.float16(1), np.float16(0)), (pa.bool_(), True, False)]
)
def test_a_null_inside_a_tensor_is_no_zero(dtype: pa.DataType, one: Any, zero: Any) -> None:
    gap, full = [one, None, one, one], [one, zero, one, one]
    lists = pa.array([[gap[:2], gap[2:]], None, [[None, None], [None, None]]], pa.list_(pa.list_(dtype)))
    first, *others = _digests(lists)
    [usual] = _digests(_tensors(dtype, [2, 2], [full]))
    assert _digests(_tensors(dtype, [2, 2], [gap, full, None, [None] * 4])) == [first, usual, *others]
    assert _digests(_tensors(dtype, [2, 2], [full, full, gap])[1:]) == [usual, first]
    assert usual != first


def test_tensors_of_bools() -> None:
    form = b"{s\x01xas\x04bool" + b"l\x01" + bytes(7) + b"i\x03" + bytes(7) + b"s\x03\x01\x00\x01}"
    truths = _tensors(pa.bool_(), [3], [[True] * 3, [True, False, True], None])
    assert _digests(truths[1:]) == [xxhash.xxh3_128(form).digest(), xxhash.xxh3_128(b"{}").digest()]


@pytest.mark.parametrize("axes", [[0, 1, 2], [2, 0, 1], [1, 0, 2]])
@pytest.mark.parametrize("gap", [False, True])
def test_tensors_are_what_their_axes_mean(axes: list[int], gap: bool) -> None:
    # Arrow, "Fixed shape tensor": dimension i of what is meant is dimension permutation[i] of what is stored.
    stored = np.arange(48).reshape(2, 2, 3, 4)
    meant = stored.transpose(0, *(axis + 1 for axis in axes))

    def rows(values: np.ndarray) -> list[list[int | None]]:
        return [[None if gap and value == 30 else value for value in row.ravel().tolist()] for row in values]

    permuted = _tensors(pa.int64(), [2, 3, 4], rows(stored), permutation=axes)
    assert _digests(permuted) == _digests(_tensors(pa.int64(), list(meant.shape[1:]), rows(meant)))


@pytest.mark.parametrize(
    "dtype, values",
    [
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("2.00"), None, Decimal(3)]),
        (pa.string(), ["a", "", None, "b"]),
        (pa.timestamp("s"), [0, 1, None, 2]),
        (pa.timestamp("us", "UTC"), [0, 1, None, 2]),
        (pa.time32("s"), [0, 1, None, 2]),
        (pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}, None, {"a": 2}]),
        (pa.list_(pa.int8()), [[1], [], None, [2, 3]]),
    ],
)
def test_tensors_of_what_is_no_number_are_lists(dtype: pa.DataType, values: list[Any]) -> None:
    tensors = _tensors(dtype, [2, 2], [values, None, [values[0]] * 4])
    lists = pa.array([[values[:2], values[2:]], None, [[values[0]] * 2] * 2], pa.list_(pa.list_(dtype)))
    assert _digests(tensors) == _digests(lists)
    assert _digests(_tensors(dtype, [4], [values])) == _digests(pa.array([values], pa.list_(dtype)))


@pytest.mark.soak
def test_of_many_numbers_in_lists_few_have_their_forms_at_once() -> None:
    count, width = 8, 1 << 20
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1, dtype=np.int32) * width), pa.array(np.arange(count * width) % 251, pa.uint8())
    )
    tracemalloc.start()
    try:
        found = sample_digests(pa.table({"a": lists}))
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
    for row, digest in enumerate(found):
        numbers = np.zeros(width, [("tag", "S1"), ("value", "<i8")])
        numbers["tag"], numbers["value"] = b"i", np.arange(row * width, (row + 1) * width) % 251
        form = b"{s\x01al" + width.to_bytes(8, "little") + numbers.tobytes() + b"}"
        assert digest.tobytes() == xxhash.xxh3_128(form).digest()


def test_payloads_are_hashed_where_they_lie() -> None:
    body = pa.py_buffer(np.random.default_rng(0).bytes(1 << 20))
    offset = np.array([0, 100, 5, 1000])
    length = np.array([65, 64, 0, 500_000])
    views = from_ranges(body, offset, length, np.array([True, True, True, True]))
    plain = pa.table({"x": views.cast(pa.large_binary())})
    allocated = pa.total_allocated_bytes()
    found = sample_digests(pa.table({"x": views}))
    assert pa.total_allocated_bytes() - allocated < 10_000
    np.testing.assert_array_equal(found, sample_digests(plain))


_POOLS: list[pa.MemoryPool] = []
"""Pools outlive what was allocated of them."""


def test_of_a_dictionary_the_values_in_use_are_looked_at() -> None:
    values = pa.array([f"{number:099d}" for number in range(20_000)])
    rows = pa.array([7, None, 19_999, 7], pa.int32())
    table = pa.table({"x": pa.DictionaryArray.from_arrays(rows, values)})
    before = pa.default_memory_pool()
    _POOLS.append(pa.proxy_memory_pool(before))
    pa.set_memory_pool(_POOLS[-1])
    try:
        found = sample_digests(table)
    finally:
        pa.set_memory_pool(before)
    assert 0 < _POOLS[-1].max_memory() < 10_000
    np.testing.assert_array_equal(found, sample_digests(pa.table({"x": values.take(rows)})))


@pytest.mark.parametrize(
    "values", [[None] * 5, ["x"] * 5, ["x", "y", "x"], ["x", None, "x"], ["x", "yy", "x"], [7] * 3]
)
def test_rows_that_are_alike_have_the_digests_of_each_alone(values: list[Any]) -> None:
    table = pa.table({"a": values, "b": [True] * len(values)})
    alone = [sample_digests(table.slice(row, 1)) for row in range(len(values))]
    assert sample_digests(table).tolist() == np.concatenate(alone).tolist()
    nulls = sample_digests(pa.table({"a": pa.nulls(len(values), pa.string())})).tolist()
    assert nulls == sample_digests(pa.table({"a": pa.nulls(1, pa.string())})).tolist() * len(values)
    assert sample_digests(table.slice(1)).tolist() == np.concatenate(alone[1:]).tolist()


def test_columns_that_have_no_digest() -> None:
    refs = make_refs(np.array([0]), np.array([1]))
    with pytest.raises(UsageError, match=r"column 'jpg'.*Materialise"):
        sample_digests(pa.table({"jpg": refs}))
    spans = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(Unrepresentable, match="column 'span'"):
        sample_digests(pa.table({"span": spans}))
    either = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])])
    with pytest.raises(Unrepresentable, match="column 'either'"):
        sample_digests(pa.table({"either": either}))
    with pytest.raises(DuplicateField, match="column 'x'"):
        sample_digests(pa.table([[1], [2]], names=["x", "x"]))
    permuted = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
    assert undigested(pa.schema([("t", permuted)])) is None
    assert undigested(pa.schema([("t", permuted), ("span", spans.type)])) == f"span: {spans.type}"


def _items(*rows: dict[str, Any], schema: pa.Schema | None = None) -> pa.Table:
    wide = schema or INTERLEAVED_SCHEMA.append(pa.field("url", pa.string())).append(pa.field("n", pa.int8()))
    usual = {"sample_id": "a", "position": 0, "modality": "text"}
    return pa.Table.from_pylist([{**usual, **row} for row in rows], schema=wide)


META = {"position": -1, "modality": "metadata", "content_type": "application/json", "url": "u"}
TEXT = {"position": 0, "text_content": "hello", "content_type": "text/plain"}
IMAGE = {"position": 1, "modality": "image", "binary_content": b"\xff" * 100, "content_type": "image/jpeg"}
OTHER = {"sample_id": "b", "position": 0, "text_content": "bye"}
BASE = [META, TEXT, IMAGE, OTHER]


def test_the_form_of_an_interleaved_sample() -> None:
    def text(value: bytes) -> bytes:
        return b"s" + bytes([len(value)]) + value

    found = interleaved_digests(_items(META, TEXT))
    one = b"l\x01" + bytes(7)
    row = text(b"content_type") + text(b"text/plain") + text(b"modality") + text(b"text")
    row += text(b"position") + b"i" + bytes(8) + text(b"text_content") + text(b"hello")
    form = text(b"a") + one + b"{" + text(b"url") + text(b"u") + b"}" + one + b"{" + row + b"}"
    assert found.tobytes() == xxhash.xxh3_128(form).digest()


@pytest.mark.parametrize(
    "rows",
    [
        [TEXT, META, IMAGE, OTHER],
        [IMAGE, META, TEXT, OTHER],
        [META, TEXT, {"position": 7}, IMAGE, OTHER],
        [META, TEXT, {**TEXT, "text_content": None, "position": 1}, IMAGE, OTHER],
        [META, {**TEXT, "source_ref": "{}"}, {**IMAGE, "materialize_error": "e"}, OTHER],
        [{**META, "content_type": None, "position": -2}, TEXT, IMAGE, OTHER],
        [META, TEXT, IMAGE, {**META, "sample_id": "b", "url": None}, OTHER],
        [META, TEXT, IMAGE, {**META, "url": None}, OTHER],
    ],
)
def test_what_no_tar_can_tell_does_not_show(rows: list[dict[str, Any]]) -> None:
    np.testing.assert_array_equal(interleaved_digests(_items(*rows)), interleaved_digests(_items(*BASE)))


@pytest.mark.parametrize(
    "rows",
    [
        [{**META, "url": "v"}, TEXT, IMAGE],
        [{**META, "n": 0}, TEXT, IMAGE],
        [{**META, "text_content": ""}, TEXT, IMAGE],
        [TEXT, IMAGE],
        [META, {**TEXT, "url": "u"}, IMAGE],
        [META, {**TEXT, "text_content": ""}, IMAGE],
        [META, {**TEXT, "text_content": None, "n": 1}, TEXT, IMAGE],
        [META, {**TEXT, "content_type": None}, IMAGE],
        [META, {**TEXT, "position": 2}, IMAGE],
        [META, TEXT, {**IMAGE, "binary_content": b"\xff" * 99 + b"\xfe"}],
        [META, TEXT, {**IMAGE, "binary_content": None}],
        [META, TEXT, {**IMAGE, "modality": "audio"}],
        [META, TEXT, IMAGE, {**IMAGE, "binary_content": None, "position": 2}],
        [META, TEXT, IMAGE, TEXT],
        [META, TEXT],
    ],
)
def test_what_must_show(rows: list[dict[str, Any]]) -> None:
    found = interleaved_digests(_items(*rows, OTHER))
    expected = interleaved_digests(_items(*BASE))
    assert found[0].tobytes() != expected[0].tobytes()
    assert found[1].tobytes() == expected[1].tobytes()


def test_text_stands_before_others_and_else_rows_keep_their_order() -> None:
    first, second = {**TEXT, "text_content": "1"}, {**TEXT, "text_content": "2"}
    image = {**IMAGE, "position": 0}
    one = interleaved_digests(_items(first, second, image)).tobytes()
    assert interleaved_digests(_items(image, first, second)).tobytes() == one
    assert interleaved_digests(_items(second, first, image)).tobytes() != one


def test_an_id_that_comes_back_is_another_sample() -> None:
    assert interleaved_digests(_items(TEXT, OTHER, IMAGE)).shape == (3, 16)
    with pytest.raises(DataError, match="row 1 column 'sample_id'"):
        interleaved_digests(pa.table({"sample_id": ["a", None], "position": [0, 0], "modality": ["text"] * 2}))
    assert interleaved_digests(INTERLEAVED_SCHEMA.empty_table()).shape == (0, 16)


def test_many_rows_are_taken_in_parts_between_samples() -> None:
    few = interleaved_digests(_items(*BASE))
    copies = (1 << 16) // 4 + 2  # a part of 65,536 rows would end within a sample but for the rule
    long = pa.concat_tables([_items(TEXT, {**TEXT, "sample_id": "c"}), *[_items(*BASE)] * copies]).combine_chunks()
    found = interleaved_digests(long)
    np.testing.assert_array_equal(found[2:], np.tile(few, (copies, 1)))


def test_the_peers_own_writing_and_reading_loses_nothing(golden: Any) -> None:
    for case in ("parquet-basic", "parquet-large"):
        given, read = (
            pa.ipc.open_file(golden("interleaved") / case / name).read_all()
            for name in ("input.arrow", "expected-default.arrow")
        )
        assert read.schema.field("sample_id").type == pa.large_string()
        np.testing.assert_array_equal(interleaved_digests(read), interleaved_digests(given))


def test_dataset_digests() -> None:
    rows = sample_digests(pa.table({"x": list(range(10))}))
    whole, parts = DatasetDigest(), DatasetDigest()
    whole.update(rows)
    parts.update(rows[:3])
    parts.update(rows[3:3])
    parts.update(rows[3:])
    assert whole == parts
    assert whole.ordered == xxhash.xxh3_128(rows.tobytes()).hexdigest()
    assert whole.unordered == f"{sum(int.from_bytes(row.tobytes(), 'big') for row in rows) % (1 << 128):032x}"
    assert whole.count == 10
    other = DatasetDigest()
    other.update(rows[::-1])
    assert other.unordered == whole.unordered
    assert other.ordered != whole.ordered
    assert other != whole


def test_dataset_digests_merge_and_travel() -> None:
    rows = sample_digests(pa.table({"x": list(range(10))}))
    whole, one, two = DatasetDigest(), DatasetDigest(), DatasetDigest()
    whole.update(rows)
    one.update(rows[:4])
    two.update(rows[4:])
    told = DatasetDigest.from_json(whole.to_json())
    assert told == whole
    assert hash(told) == hash(whole)
    assert repr(told) == repr(whole)
    with pytest.raises(UsageError, match="cannot be updated"):
        told.update(rows)
    merged = DatasetDigest.from_json(one.to_json()).merge(two)
    assert (merged.unordered, merged.count, merged.ordered) == (whole.unordered, 10, None)
    merged.update(rows)
    assert merged.count == 20
    assert DatasetDigest.from_json(merged.to_json()) == merged


_TOLD = {"ordered": None, "unordered": "0" * 32, "count": 1}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"ordered": None, "unordered": "x", "count": 1},
        {"ordered": 5},
        {"unordered": "0" * 32, "count": 1},
        {**_TOLD, "count": -1},
        {**_TOLD, "count": float("inf")},
        {**_TOLD, "count": True},
        {**_TOLD, "unordered": "-5"},
        {**_TOLD, "ordered": [1]},
    ],
)
def test_digests_that_are_none(told: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a dataset digest"):
        DatasetDigest.from_json(told)
