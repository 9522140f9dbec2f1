"""Samples as functions of the user's get them: dicts whose fields are read and decoded when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import files_of, is_ref, unpack
from lading._core.arrow.types import uncut_values
from lading._core.arrow.views import is_bytes
from lading._core.content.media_files import Opening, media_features, open_media
from lading._core.dataset.values.python_values import members_among
from lading._core.features.encode import is_tensor
from lading._core.features.images import encoded_source, is_image, refuse_lost_turn, remember_field
from lading._core.features.items import KEY, lineage_of
from lading._core.features.types import decode, feature_of
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, LadingError, UsageError, errors_at

__all__ = ["FunctionColumns", "FunctionSample", "Values"]

_WINDOW_BYTES, _WINDOW_ROWS = 8 << 20, 256
"""Payload of one column that is read at once, when a function looks at it."""
_UNCHANGING = frozenset((str, int, float, bool, bytes, type(None)))


class Values(Protocol):
    """The values of samples, by field and by the sample's number in a batch.

    Attributes:
        names: the fields that samples may have.
        members: those that a sample may lack.
        opening: how images are opened; None for bytes.
    """

    names: list[str]
    members: Collection[str]
    opening: Opening | None

    def __len__(self) -> int:
        """Number of samples."""

    def has(self, name: object, row: int) -> bool:
        """Whether a sample has a field."""

    def value(self, name: str, row: int) -> Any:
        """The decoded value of a field; None if it is null. Raises KeyError for an unknown field."""

    def stored(self, name: str, row: int) -> Any:
        """The value as it is stored."""

    def is_changed(self, name: str, row: int, value: Any) -> bool:
        """Whether a value that a function looked at is another one now."""

    def place(self, row: int) -> dict[str, Any]:
        """Where a sample is: its row in the batch, its file and its key, as far as they are known."""


class FunctionSample(MutableMapping[str, Any]):
    """A sample as a function gets it: a dict as `ds[i]` gives it, whose fields are read when they are looked at.

    Example:
        def add_length(sample):
            sample["length"] = len(sample["txt"])
            return sample
    """

    __slots__ = ("_columns", "_own", "_read", "_row")

    def __init__(self, columns: Values, row: int) -> None:
        self._columns, self._row = columns, row
        self._read: dict[str, Any] = {}
        self._own: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name in self._read:
            return self._read[name]
        value = self._columns.value(name, self._row)
        if value is None and name in self._columns.members:
            raise KeyError(name)
        self._read[name] = value
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        raise UsageError("fields are not removed from single samples", found=repr(name),
                         advice=f"Leave the column out of the dataset: ds.drop({name!r}).")  # fmt: skip

    def __contains__(self, name: object) -> bool:
        return name in self._own or self._columns.has(name, self._row)

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._columns.names if self._columns.has(name, self._row))
        yield from (name for name in self._own if not self._columns.has(name, self._row))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Sample {', '.join(map(repr, self))}>"

    def row_among(self, columns: Values) -> int | None:
        """Return the row that the sample is made of, if it is of these columns."""
        return self._row if self._columns is columns else None

    def changes(self, made: Any) -> dict[str, Any]:
        """Return the new and changed fields of what a function returned for this sample."""
        if made is self:
            given: Mapping[str, Any] = {**self._read, **self._own}
        elif made is None:
            if self._own:
                raise UsageError("the function changes the sample and returns nothing", found=", ".join(self._own),
                                 advice="Write `return sample` at its end.")  # fmt: skip
            return {}
        elif isinstance(made, Mapping):
            given = made
        else:
            raise UsageError(
                "the function must return a dict of new and changed fields, or None", found=type(made).__name__,
                advice="A function over record batches goes to map_batches.",
            )  # fmt: skip
        return {name: value for name, value in given.items() if self._is_new(name, value)}

    def _is_new(self, name: str, value: Any) -> bool:
        if name in self._read and value is self._read[name]:
            return self._columns.is_changed(name, self._row, value)
        return not self._shows(name, value)

    def _shows(self, name: str, value: Any) -> bool:
        """Whether an image shows what the field holds already. If not, it is to be encoded as the field is."""
        if not (is_image(value) or isinstance(value, np.ndarray) or is_tensor(value)):
            return False
        stored = self._columns.stored(name, self._row) if self._columns.has(name, self._row) else None
        if self._columns.opening == "stored":
            with errors_at(column=name):
                refuse_lost_turn(value, stored)
        if stored is None or not is_image(value):
            return False
        remember_field(value, stored)
        return isinstance(stored, bytes) and encoded_source(value) == stored


class FunctionColumns:
    """The columns of a batch as Python values, read when they are looked at.

    Args:
        batch: the rows.
        fetcher: reads payload.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
        every_member: rows are those of documents: they may lack any field.
        opening: of images; None for bytes.
    """

    def __init__(
        self, batch: pa.RecordBatch, fetcher: Fetcher, *, any_members: bool = False, every_member: bool = False,
        opening: Opening | None = "upright",
    ) -> None:  # fmt: skip
        self.batch, self.names, self._fetcher = batch, batch.schema.names, fetcher
        self.members: Collection[str] = members_among(batch.schema) if any_members else ()
        if every_member:
            self.members = frozenset(self.names)
        self.opening = opening
        self._places = {name: place for place, name in enumerate(self.names)}
        self._lists: dict[str, list[Any]] = {}
        self._windows: dict[str, tuple[int, int, list[Any]]] = {}
        self._ends: dict[str, NDArray[np.int64]] = {}
        self._decoders: dict[str, Callable[[Any], Any] | None] = {}

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def has(self, name: object, row: int) -> bool:
        """Whether the sample of a row has a column: a member that a sample lacks is not there."""
        place = self._places.get(name)
        return place is not None and (name not in self.members or bool(self.batch.column(place)[row].is_valid))

    def value(self, name: str, row: int) -> Any:
        """The decoded value; None if it is null. Raises KeyError for an unknown column."""
        stored = self.stored(name, row)
        if name not in self._decoders:
            self._decoders[name] = _decoder(self.batch.schema.field(name), self.opening)
        decoded = self._decoders[name]
        return stored if stored is None or decoded is None else decoded(stored)

    def stored(self, name: str, row: int) -> Any:
        """The value as it is stored."""
        known = self._lists.get(name)
        if known is not None:
            return known[row]
        column = self.batch.column(self._places[name])
        if is_ref(column.type):
            return self._payload(name, column, row)
        plain = column.storage if isinstance(column.type, pa.ExtensionType) else column
        try:
            self._lists[name] = uncut_values(plain)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise DataError("Python cannot hold this value", column=name, found=str(error)[:200]) from error
        return self._lists[name][row]

    def _payload(self, name: str, column: pa.Array, row: int) -> Any:
        start, stop, values = self._windows.get(name, (0, 0, []))
        if not start <= row < stop:
            self._windows.pop(name, None)
            if name not in self._ends:
                refs = unpack(column)
                self._ends[name] = np.cumsum(np.where(refs.valid, refs.length, 0).clip(0))
            ends = self._ends[name]
            before = int(ends[row - 1]) if row else 0
            most = int(np.searchsorted(ends, before + _WINDOW_BYTES, side="right"))
            start, stop = row, min(max(most, row + 1), row + _WINDOW_ROWS)
            values = list(self._fetcher.values(column.slice(start, stop - start), files_of(self.batch.schema)))
            self._windows[name] = (start, stop, values)
        return values[row - start]

    def is_changed(self, name: str, row: int, value: Any) -> bool:
        """Whether a value that a function looked at is another one now."""
        if type(value) in _UNCHANGING or isinstance(value, bytes):
            return False
        if hasattr(value, "getbands"):
            return encoded_source(value) is None
        fresh = self.value(name, row)
        return not _equal(fresh, value)

    def place(self, row: int) -> dict[str, Any]:
        """Where a row is: its number in the batch, its file and its key, as far as they are known."""
        files = lineage_of(self.batch.schema)
        name = next((name for name in (KEY, "sample_id") if name in self._places), None)
        key = None if name is None else self.stored(name, row)
        known = {"file": files[0] if len(files) == 1 else None, "sample": key, "row": row}
        return {name: value for name, value in known.items() if value is not None}


def _decoder(field: pa.Field, opening: Opening | None) -> Callable[[Any], Any] | None:
    feature = feature_of(field)
    if (feature.is_bytes or feature.is_text or feature.is_value) and not (is_ref(field.type) or is_bytes(field.type)):
        return None
    media = opening is not None and media_features({field.name: feature})

    def decoded(stored: Any) -> Any:
        try:
            value = decode(feature, stored)
            return open_media(feature, value, opening) if opening and media else value
        except LadingError as error:
            raise error.at(column=field.name) from None

    return decoded


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        floats = one.dtype.kind in "fc"
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other, equal_nan=bool(floats))
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if hasattr(one, "getbands"):
        return encoded_source(other) is not None
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN
