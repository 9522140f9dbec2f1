"""One column of a cache: encode its values, measure them, and build an array.

With a given type, pyarrow silently changes some values (1.5 to 1, a time to a day, a text to a list of letters). So
pyarrow gets only values of the types that the column holds. Other values are encoded first: times, days and decimals
always, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lading._core.arrow.casts import decoded
from lading._core.arrow.views import is_text
from lading._core.features.casts import cast_column, cast_labels
from lading._core.features.types import Feature, encode
from lading.errors import LadingError, SchemaMismatch, Unrepresentable

__all__ = ["CacheColumn", "Stored", "Values", "place_of", "stored_column"]

Values: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in its stored form, among others that are yet to be encoded."""

    value: Any


class CacheColumn:
    """Encode and measure the values of one column.

    Attributes:
        costly: whether encoding in threads pays off.
        changing: whether its values may be mutable objects, or files that disappear.
        ready: types of values that are stored unchanged, whatever they hold.
        text: whether it holds texts, which pyarrow also accepts as bytes.
    """

    def __init__(self, name: str, feature: Feature, assets: str | None) -> None:
        self.name, self._feature, self._assets = name, feature, assets
        self.text = feature.is_text
        self.costly = any(leaf.is_costly for leaf in feature.leaves())
        self.changing = feature.may_change
        self.ready = feature.unchanged
        self._weigh = feature.weigher()
        self._codes = {label: number for number, label in reversed([*enumerate(feature.labels or ())])}

    def encoded(self, values: Values, keys: Values, first_row: int) -> Values:
        """Return the values in their stored form. Raises as `encode`."""
        if self.text or self._feature.stores_unchanged(values):
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


def place_of(row: int, key: Any) -> dict[str, Any]:
    """Return the place of a value, for errors."""
    return {"row": row} if key is None else {"row": row, "sample": str(key)}


def _weight(weigh: Callable[[Any], int], value: Any) -> int:
    try:
        return weigh(value)
    except TypeError:  # null, or a value that is reported when the array is made
        return 0


def stored_column(column: Any, field: pa.Field, feature: Feature) -> Any:
    """Return a column in the type of the cache, if that loses nothing. Raises Unrepresentable."""
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if feature.labels is not None and is_text(plain):
        texts = decoded(column) if pa.types.is_dictionary(column.type) else column
        numbers, unknown = cast_labels(texts, feature.labels, field.type)
        if unknown is not None:
            encode(feature, texts[unknown].as_py())  # which says what the labels are
        return numbers
    try:
        return cast_column(column, field, exact=True)
    except SchemaMismatch as error:
        raise Unrepresentable(error.message, expected=error.expected, found=error.found) from error
