"""One column of a cache: encode its values, measure them, and build an array.

With a given type, pyarrow silently changes some values (1.5 to 1, a time to a day, a text to a list of letters). So
pyarrow gets only values of the types that the column holds. Other values are encoded first: times, days and decimals
always, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lading._core.arrow.casts import decoded
from lading._core.arrow.types import array_of_values
from lading._core.arrow.views import is_text
from lading._core.features.casts import cast_column, cast_labels
from lading._core.features.types import (
    Array,
    Audio,
    Bytes,
    ClassLabel,
    Feature,
    Image,
    Sequence,
    Struct,
    Text,
    Value,
    Video,
    encode,
    python_types,
)
from lading.errors import LadingError, SchemaMismatch, Unrepresentable, WrongType

__all__ = ["Column", "Stored", "Values", "place_of", "stored_column"]

Values: TypeAlias = list[Any]

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, Unrepresentable)
_READY: dict[type, frozenset[type]] = {
    **dict.fromkeys((Image, Audio, Bytes), frozenset((bytes, type(None)))),
    ClassLabel: frozenset((int, type(None))),
    Text: frozenset((str, type(None))),
}
"""Types of values that are stored unchanged."""
_LISTS = frozenset((list, tuple, type(None)))
_COSTLY = (Image, Audio, Video, Array)


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in its stored form, among others that are yet to be encoded."""

    value: Any


class Column:
    """Encode and measure the values of one column.

    Attributes:
        costly: whether encoding in threads pays off.
        changing: whether its values may be mutable objects, or files that disappear.
        ready: types of values that are stored unchanged, whatever they hold.
        text: whether it holds texts, which pyarrow also accepts as bytes.
    """

    def __init__(self, name: str, feature: Feature, assets: str | None) -> None:
        self.name, self._feature, self._assets = name, feature, assets
        self.text = isinstance(feature, Text)
        self.costly = _is_costly(feature)
        blobs = isinstance(feature, Value) and "binary" in feature.dtype
        self.changing = blobs or not isinstance(feature, (Text, ClassLabel, Value))
        self.ready = _READY.get(Bytes if blobs else type(feature), frozenset((type(None),)))
        self._weigh = _weigher(feature)
        self._codes = feature.numbers if isinstance(feature, ClassLabel) else {}

    def encoded(self, values: Values, keys: Values, first_row: int) -> Values:
        """Return the values in their stored form. Raises as `encode`."""
        if self.text or _is_ready(self._feature, values):
            return values  # pyarrow accepts only texts as texts
        rows = enumerate(zip(values, keys, strict=True), first_row)
        return [self.encode(value, row, key) for row, (value, key) in rows]

    def encode(self, value: Any, row: int, key: Any) -> Any:
        """Return one value in its stored form. Raises as `_core.features.encode`, with row, key and column."""
        if type(value) is Stored:
            return value.value
        if self._codes and type(value) is str and value in self._codes:
            return self._codes[value]
        if self.text and isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)  # has the same weight whether it was encoded here or goes to pyarrow unchanged
        try:
            return encode(self._feature, value, assets=self._assets)
        except LadingError as error:
            raise error.at(column=self.name, **place_of(row, key)) from None

    def weight(self, values: Values) -> int:
        """Return the approximate bytes of encoded values."""
        if self._weigh is None:
            return 0
        try:
            return sum(map(self._weigh, values))
        except TypeError:
            return sum(self.weights(values))

    def weights(self, values: Values) -> list[int]:
        """Return the weight of each value; `weight` is their sum."""
        weigh = self._weigh
        return [0] * len(values) if weigh is None else [_weight(weigh, value) for value in values]

    def array(self, values: Values, kind: pa.DataType, keys: Values, first_row: int) -> pa.Array:
        """Return the column as an array, its values checked by pyarrow.

        Raises:
            Unrepresentable: a value does not fit; with its place.
        """
        try:
            return _array(values, kind)
        except _REFUSED as error:
            for at, value in enumerate(values):
                try:
                    _array([value], kind)
                except _REFUSED as refused:
                    place = place_of(first_row + at, keys[at])
                    refusal = WrongType if isinstance(refused, TypeError) else Unrepresentable
                    raise refusal(f"a value that {kind} cannot hold", column=self.name, **place,
                                  found=f"{value!r:.80} ({refused})") from refused  # fmt: skip
            raise Unrepresentable("these values cannot stand in one batch", column=self.name, found=str(error),
                                  advice="Make batches smaller.", row=first_row) from error  # fmt: skip


def place_of(row: int, key: Any) -> dict[str, Any]:
    """Return the place of a value, for errors."""
    return {"row": row} if key is None else {"row": row, "sample": str(key)}


def _is_ready(feature: Feature, values: Values) -> bool:
    """Return whether all values are stored unchanged."""
    types = set(map(type, values))
    if isinstance(feature, Sequence):  # pyarrow would make a list of letters of a text
        inner = feature.feature
        return types <= _LISTS and isinstance(inner, (Value, Text)) and _is_ready(
            inner, list(chain.from_iterable(filter(None, values)))
        )  # fmt: skip
    if isinstance(feature, Value):
        return bool(known := python_types(feature.dtype)) and types <= {*known, type(None)}
    return types <= _READY.get(type(feature), frozenset())


def _array(values: Values, kind: pa.DataType) -> pa.Array:
    """Return the values as an array of this type. Raises one of `_REFUSED`."""
    if kind == pa.large_binary() and None not in values:
        return _joined(values)
    array = array_of_values(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise OverflowError("more than 2 GB of text in one batch")
    return array


def _joined(values: list[bytes]) -> pa.Array:
    """Return bytes as an array. pyarrow copies them in parts into memory that it enlarges, at half the speed."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), parts)


def _is_costly(feature: Feature) -> bool:
    if isinstance(feature, Struct):
        return any(_is_costly(inner) for _, inner in feature.fields)
    return isinstance(feature, _COSTLY) or (isinstance(feature, Sequence) and _is_costly(feature.feature))


def _weight(weigh: Callable[[Any], int], value: Any) -> int:
    try:
        return weigh(value)
    except TypeError:  # null, or a value that is reported when the array is made
        return 0


def _weigher(feature: Feature) -> Callable[[Any], int] | None:
    match feature:
        case ClassLabel():
            return None
        case Value(dtype):
            return len if python_types(dtype) in ((str,), (bytes,)) else None
        case Sequence(inner):
            weigh = _weigher(inner)
            return _weigh_numbers if weigh is None else partial(_weigh_list, weigh)
        case Text() | Image() | Audio() | Bytes():
            return len
    return _weigh_any


def _weigh_numbers(value: Any) -> int:
    return 8 * len(value)


def _weigh_list(weigh: Callable[[Any], int], value: Any) -> int:
    return sum(weigh(item) for item in value if item is not None)


def _weigh_any(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_weigh_any, value.values()))
    return sum(map(_weigh_any, value)) if isinstance(value, list) else len(value) if hasattr(value, "__len__") else 8


def stored_column(column: Any, field: pa.Field, feature: Feature) -> Any:
    """Return a column in the type of the cache, if that loses nothing. Raises Unrepresentable."""
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if isinstance(feature, ClassLabel) and is_text(plain):
        texts = decoded(column) if pa.types.is_dictionary(column.type) else column
        numbers, unknown = cast_labels(texts, feature, field.type)
        if unknown is not None:
            feature.str2int(texts[unknown].as_py())
        return numbers
    try:
        return cast_column(column, field, exact=True)
    except SchemaMismatch as error:
        raise Unrepresentable(error.message, expected=error.expected, found=error.found) from error
