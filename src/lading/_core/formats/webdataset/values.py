"""Convert columns of any type to members of a tar, which hold only bytes, and back.

    text, bytes       unchanged
    bool              `true`, `false`
    whole numbers     decimal text
    floats            the shortest text that gives the same binary64: `0.1`, `1e+22`, `-0`, `nan`, `-inf`
    decimal           its text, with all digits of its scale
    date, time        ISO 8601: `2026-11-21`, `23:59:59.000`
    date and time     ISO 8601, in UTC where the zone is known: `2026-11-21T12:00:00.000000Z`
    duration          a count and its unit: `1500ms`
    list, struct      JSON; lists of media as in `_core.content.media_lists`
    array             a `.npy` file; so are bytes that are the values of arrays of one type and shape

A date or a time that ISO 8601 cannot represent with four digits or 24 hours is a count and its unit too
(`-62135596801s`), from 1970 on. A null has no member. Only the column's type gives a text its meaning: the type is in
the manifest.

Source: numpy lib/format.py for `.npy`; ISO 8601-1:2019, 5.2.2 and 5.3 for dates and times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.byte_ranges import bitmap
from lading._core.arrow.casts import decoded, decoded_type, first_refused
from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.older import numpy_type
from lading._core.arrow.references import Refs, is_ref, make_refs, unpack
from lading._core.arrow.views import (
    byte_lengths,
    from_ranges,
    is_bytes,
    is_text,
    join,
    places,
    present,
    slices,
    with_gaps,
    without_runs,
)
from lading._core.features.casts import json_texts
from lading._core.features.huggingface import media_advice
from lading._core.features.json_inside import with_texts_inside
from lading._core.features.natural import EXTENSION_KEY, is_number, without_extension
from lading._core.features.stored_values import is_payload, npy_head, npy_header, restored_type
from lading._core.features.types import FEATURE_KEY, Array, decode, feature_of, tag_by_extension
from lading.errors import DataError, Unrepresentable

__all__ = [
    "Encoder",
    "decode_column",
    "encoder_of",
    "payload_of",
    "restored_schema",
]

Encoder: TypeAlias = Callable[[pa.Array], pa.Array]
"""Returns the text or bytes of the members of a column, null where it is null."""

_TEXT, _BYTES = pa.large_string(), pa.large_binary()
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Days from 1970 to the first day of year 1, and to the last day of year 9999."""

_FIRST_NS = -((1 << 63) // 10**9) * 10**9


def restored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which rows are read back from a tar: no dictionaries, bytes as large_binary.

    Metadata stay. Bytes without a feature get that of a tar member of their name. JSON and numbers are an exception,
    because they have another digest: they need an explicit feature.
    """
    return pa.schema(
        [without_extension(_tagged(field).with_type(restored_type(field.type))) for field in schema],
        metadata=schema.metadata,
    )


def _tagged(field: pa.Field) -> pa.Field:
    if FEATURE_KEY in (field.metadata or {}) or not is_payload(field.type):
        return field
    tagged = field.with_metadata({**(field.metadata or {}), **tag_by_extension(field.name)})
    feature = feature_of(tagged)
    return field if feature.is_json or is_number(feature) else tagged


# Columns → members


def encoder_of(field: pa.Field) -> Encoder:
    """Return the function from values of a field to members.

    Raises:
        Unrepresentable: its type has no exact form as text or bytes; names the column.
    """
    kind = field.type
    if is_ref(kind):
        raise Unrepresentable("a member holds bytes, not a reference", column=field.name, found=kind,
                              advice="Read the bytes first.")  # fmt: skip
    if isinstance(kind, pa.FixedShapeTensorType):
        return _npy_encoder(field)
    for test, inner, unwrap in _WRAPPED:
        if test(kind):
            return _after(unwrap, encoder_of(inner(field)))
    head = npy_head(field)
    if head is not None:
        return _head_encoder(field, *head)
    if pa.types.is_floating(kind) and (field.metadata or {}).get(EXTENSION_KEY) == b"json":
        return _json_float_texts
    found = next((encode for test, encode in _ENCODERS if test(kind)), None)
    if found is None:
        raise Unrepresentable("neither bytes nor text hold the values of this column exactly", column=field.name,
                              found=kind, advice=media_advice(field.name, kind))  # fmt: skip
    return found


_WRAPPED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.Field], Encoder], ...] = (
    (pa.types.is_dictionary, lambda field: field.with_type(decoded_type(field.type)), decoded),
    (pa.types.is_run_end_encoded, lambda field: field.with_type(field.type.value_type), without_runs),
    (
        lambda kind: isinstance(kind, pa.BaseExtensionType),
        lambda field: pa.field(field.name, field.type.storage_type),
        lambda column: column.storage,
    ),
)
"""Types that wrap another: how to recognise them, the wrapped field, and the wrapped values."""


def _after(unwrap: Encoder, encode: Encoder) -> Encoder:
    return lambda column: encode(unwrap(column))


def _texts(column: pa.Array) -> pa.Array:
    return column.cast(_TEXT)


def _float_texts(column: pa.Array) -> pa.Array:
    return column.cast(pa.float64()).cast(_TEXT)


def _json_float_texts(column: pa.Array) -> pa.Array:
    """Return floats as Python's json writes them: `1.0`, `NaN`, `Infinity`."""
    texts = _float_texts(column)
    texts = pc.replace_substring_regex(texts, "^(-?[0-9]+)$", r"\1.0")
    return pc.replace_substring(pc.replace_substring(texts, "nan", "NaN"), "inf", "Infinity")


def _time_texts(column: pa.Array) -> pa.Array:
    kind = column.type
    counts = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004 - the two widths of times
    counted = pc.binary_join_element_wise(counts.cast(_TEXT), pa.scalar(_unit(kind), _TEXT), pa.scalar("", _TEXT))
    plain = _is_plain(kind, np.asarray(counts.fill_null(0).to_numpy(), np.int64))
    if not plain.any():
        return counted
    if pa.types.is_timestamp(kind):
        column = column.view(pa.timestamp(kind.unit))
    texts = pc.if_else(pa.array(plain), column, pa.scalar(None, column.type)).cast(_TEXT)
    if pa.types.is_timestamp(kind):
        zone = pa.scalar("Z" if kind.tz is not None else "", _TEXT)
        texts = pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), zone, pa.scalar("", _TEXT))
    return pc.coalesce(texts, counted)


def _unit(kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return "d" if pa.types.is_date32(kind) else "ms"
    return str(kind.unit)


def _is_plain(kind: pa.DataType, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which counts are a date or a time that ISO 8601 can represent."""
    if pa.types.is_duration(kind):
        return np.zeros(len(counts), np.bool_)
    unit = _unit(kind)
    day = 1 if unit == "d" else _DAY_S * _PER_SECOND[unit]
    if pa.types.is_time(kind):
        return (counts >= 0) & (counts < day)
    days = counts // day
    # Arrow cannot parse the first second in the range of nanosecond counts.
    plain = (days >= _FIRST_DAY) & (days <= _LAST_DAY) & (counts >= _FIRST_NS if unit == "ns" else True)
    return plain & (counts == days * day) if pa.types.is_date(kind) else plain


def _head_encoder(field: pa.Field, head: bytes, size: int) -> Encoder:
    def encode(column: pa.Array) -> pa.Array:
        wrong = np.flatnonzero((byte_lengths(column) != size) & present(column))
        if len(wrong):
            row = int(wrong[0])
            raise Unrepresentable("an array of another size than its shape says", column=field.name, row=row,
                                  expected=f"{size} bytes", found=len(column[row].as_py()))  # fmt: skip
        return pc.binary_join_element_wise(pa.scalar(head, _BYTES), column.cast(_BYTES), pa.scalar(b"", _BYTES))

    return encode


def _npy_encoder(field: pa.Field) -> Encoder:
    kind = field.type
    axes = list(kind.permutation or [])
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)) or axes != sorted(axes):
        raise Unrepresentable("a .npy file cannot hold arrays of this kind", column=field.name, found=kind,
                              expected="numbers, axes in their order")  # fmt: skip
    head, dtype, size = _tensor_head(kind)
    itemsize = dtype.itemsize

    def encode(column: pa.Array) -> pa.Array:
        there, width = present(column), kind.storage_type.list_size
        stored = column.storage
        items = stored.values[stored.offset * width : (stored.offset + len(stored)) * width]
        gaps = with_gaps(column)
        if gaps.any():
            raise Unrepresentable("an array with a null in it", column=field.name, row=int(np.argmax(gaps)), found=kind)
        files = np.empty((len(column), len(head) + size), np.uint8)
        files[:, : len(head)] = np.frombuffer(head, np.uint8)
        if len(items):
            values = np.frombuffer(items.buffers()[1], np.uint8, len(items) * itemsize, items.offset * itemsize)
            files[:, len(head) :] = values.reshape(len(column), size)
        ends = np.arange(len(column) + 1, dtype=np.int64) * files.shape[1]
        return pa.Array.from_buffers(_BYTES, len(column), [bitmap(there), pa.py_buffer(ends), pa.py_buffer(files)])

    return encode


def _tensor_head(kind: pa.FixedShapeTensorType) -> tuple[bytes, np.dtype[Any], int]:
    """Return the `.npy` header of such an array, the type of its values, and their length."""
    dtype = numpy_type(kind.value_type).newbyteorder("<")
    return npy_header(dtype, tuple(kind.shape)), dtype, math.prod(kind.shape) * dtype.itemsize


_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], Encoder], ...] = (
    (lambda kind: is_text(kind) or is_bytes(kind), lambda column: column),
    (is_nested_json, json_texts),
    (pa.types.is_null, lambda column: pa.nulls(len(column), _BYTES)),
    (pa.types.is_floating, _float_texts),
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind), _texts),
    (lambda kind: pa.types.is_temporal(kind) and not pa.types.is_interval(kind), _time_texts),
    (pa.types.is_fixed_size_binary, lambda column: column.cast(_BYTES)),
)


# Members → columns


def decode_column(field: pa.Field, members: pa.Array, keys: pa.Array, path: str) -> pa.Array:
    """Return the column that members represent.

    Args:
        field: name and type of the column, as in `restored_schema`.
        members: their bytes (`large_binary`), null for a missing member.
        keys: keys of the samples, for errors.
        path: path of the tar, for errors.

    Raises:
        DataError: a member does not hold a value of this type, or a required one is missing; names file, sample,
            column.
    """
    try:
        column = _decoded(field.type, members)
    except _MISFITS:
        row = first_refused(members, lambda part: _decoded(field.type, part), _MISFITS)
        raise DataError(
            "a member does not hold what its column does", file=path, sample=keys[row].as_py(), column=field.name,
            expected=str(field.type), found=_shown(members[row].as_py()),
        ) from None  # fmt: skip
    if not field.nullable and column.null_count:
        row = int(np.argmin(present(column)))
        raise DataError("a member is missing where none may be", file=path, sample=keys[row].as_py(),
                        column=field.name, expected=str(field.type))  # fmt: skip
    return column


def payload_of(field: pa.Field, members: pa.Array, keys: pa.Array, path: str) -> pa.Array:
    """Return the payload of members: all of each, or the bytes after a `.npy` header (`npy_head`).

    Args:
        field: name and type of the column.
        members: references, or their bytes.
        keys: keys of the samples, for errors.
        path: path of the tar, for errors.

    Raises:
        DataError: a member has another length than these arrays; names file, sample, column.
    """
    known = npy_head(field)
    if known is None:
        return members
    head, size = len(known[0]), known[1]
    lazy = is_ref(members.type)
    found = unpack(members) if lazy else places(members)
    there = found.valid if isinstance(found, Refs) else found.there
    wrong = np.flatnonzero((found.length != head + size) & there)
    if len(wrong):
        row = int(wrong[0])
        raise DataError("a member does not hold what its column does", file=path, sample=keys[row].as_py(),
                        column=field.name, expected=f"a .npy file of {head + size} bytes",
                        found=f"{found.length[row]} bytes")  # fmt: skip
    if isinstance(found, Refs):
        return make_refs(found.offset + head * there, found.length - head * there, file=found.file, valid=there)
    return join(from_ranges(members.buffers()[2], found.offset + head * there, found.length - head * there, there))


_MISFITS = (DataError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError)
_SHOWN = 40


def _shown(value: bytes | None) -> str:
    return repr(value) if value is None or len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def _decoded(kind: pa.DataType, members: pa.Array) -> pa.Array:
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(kind, members)
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_decoded(kind.storage_type, members))
    decode = next((decode for test, decode in _DECODERS if test(kind)), None)
    return members.cast(_TEXT).cast(kind) if decode is None else decode(kind, members)


def _nothing(_kind: pa.DataType, members: pa.Array) -> pa.Array:
    if members.null_count < len(members):
        raise DataError("a member of a column without values")
    return pa.nulls(len(members))


def _floats(kind: pa.DataType, members: pa.Array) -> pa.Array:
    wide = members.cast(_TEXT).cast(pa.float64())
    if kind == wide.type:
        return wide
    narrow = wide.cast(kind)
    before, after = (np.asarray(a.cast(pa.float64()).fill_null(0).to_numpy()) for a in (wide, narrow))
    if not np.array_equal(before, after, equal_nan=True):
        raise DataError("a number that this type does not hold")
    return narrow


def _times(kind: pa.DataType, members: pa.Array) -> pa.Array:
    unit, texts = _unit(kind), members.cast(_TEXT)
    is_counted = pc.match_substring_regex(texts, f"^-?[0-9]+{unit}$")
    none = pa.scalar(None, _TEXT)
    counted, plain = pc.if_else(is_counted, texts, none), pc.if_else(is_counted, none, texts)
    counts = pc.utf8_slice_codeunits(counted, 0, -len(unit)).cast(pa.int64())
    if plain.null_count < len(plain):
        counts = pc.coalesce(counts, _plain_counts(kind, plain))
    return counts.cast(pa.int32()).view(kind) if kind.bit_width == 32 else counts.view(kind)  # noqa: PLR2004 - bits


def _plain_counts(kind: pa.DataType, texts: pa.Array) -> pa.Array:
    """Return dates and times of ISO 8601 as counts of their unit."""
    if pa.types.is_duration(kind):
        raise DataError("not a count and a unit")
    if pa.types.is_date(kind):
        return texts.cast(kind).view(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(pa.int64())
    if pa.types.is_time(kind):
        # Arrow 26 cannot parse times of day.
        texts = pc.binary_join_element_wise(pa.scalar("1970-01-01T", _TEXT), texts, pa.scalar("", _TEXT))
        return texts.cast(pa.timestamp(kind.unit)).view(pa.int64())
    zone = None if kind.tz is None else "UTC"
    return texts.cast(pa.timestamp(kind.unit, zone)).view(pa.int64())


def _from_json(kind: pa.DataType, members: pa.Array) -> pa.Array:
    texts = members.to_pylist()
    there = [text for text in texts if text is not None]
    plain = json_text.loads_plain(there)
    values = iter(map(json_text.loads, there) if plain is None else plain)
    found = [None if text is None else next(values) for text in texts]
    for value in found:
        _check_shape(kind, value)
    return pa.array(with_texts_inside(found, pa.field("", kind)), kind)


_DECODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.Array], pa.Array]], ...] = (
    (lambda kind: is_bytes(kind) or pa.types.is_fixed_size_binary(kind), lambda kind, members: members.cast(kind)),
    (pa.types.is_null, _nothing),
    (pa.types.is_nested, _from_json),
    (pa.types.is_temporal, _times),
    (pa.types.is_floating, _floats),
)


def _check_shape(kind: pa.DataType, value: Any) -> None:
    """Raise DataError for JSON that Arrow would change: it turns objects into lists, and drops names."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        children = {child.name: child.type for child in kind}
        if not value.keys() <= children.keys():
            raise DataError("a name that the struct does not have")
        for name, item in value.items():
            if pa.types.is_nested(children[name]):
                _check_shape(children[name], item)
    elif not pa.types.is_struct(kind) and isinstance(value, list):
        for item in value if pa.types.is_nested(kind.value_type) else ():
            _check_shape(kind.value_type, item)
    elif value is not None:
        raise DataError("neither the list nor the object that its type says")


def _tensors(kind: pa.FixedShapeTensorType, members: pa.Array) -> pa.Array:
    head, dtype, size = _tensor_head(kind)
    there, files = present(members), members.drop_null()
    found = _plain_files(files, head, size)
    if found is None:  # the same arrays, written by another program
        found = np.stack([_array_bytes(kind, dtype, file) for file in slices(files)])
    values = np.zeros((len(members), size), np.uint8)
    values[there] = found
    items = pa.Array.from_buffers(kind.value_type, values.size // dtype.itemsize, [None, pa.py_buffer(values)])
    return kind.wrap_array(pa.Array.from_buffers(kind.storage_type, len(members), [bitmap(there)], children=[items]))


def _plain_files(files: pa.Array, head: bytes, size: int) -> NDArray[np.uint8] | None:
    """Return the values of files that all begin with this header and have this length; None if one differs."""
    if not len(files):
        return np.zeros((0, size), np.uint8)
    if (byte_lengths(files) != len(head) + size).any():
        return None
    _, ends, data = files.buffers()
    start = int(np.frombuffer(ends, np.int64)[files.offset])
    whole = np.frombuffer(data, np.uint8, len(files) * (len(head) + size), start).reshape(len(files), -1)
    return whole[:, len(head) :] if (whole[:, : len(head)] == np.frombuffer(head, np.uint8)).all() else None


def _array_bytes(kind: pa.FixedShapeTensorType, dtype: np.dtype[Any], file: memoryview | None) -> NDArray[np.uint8]:
    array = decode(Array(), file)
    if array.shape != tuple(kind.shape) or array.dtype != dtype:
        raise DataError("an array of another type or shape", found=f"{array.shape} of {array.dtype}")
    return np.frombuffer(np.ascontiguousarray(array, dtype).tobytes(), np.uint8)
