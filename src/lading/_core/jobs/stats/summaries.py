"""Summaries of the columns of a dataset, filled batch by batch, and merged.

Names are those of conditions: `json.lang` is a field of a JSON or struct column, `len(txt)` the characters of a text,
the bytes of binary values or the values of lists, `jpg.width` a fact of a media header. `tags[]` are the texts in
lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import (
    byte_lengths,
    flattened,
    is_bytes,
    is_list,
    is_text,
    listed_items,
    present,
    total_bytes,
    without_runs,
)
from lading._core.content.summaries import Counts, Keys, NumberSummary, mixed
from lading._core.features.items import samples_with
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.features.types import Audio, Feature, Image, Json, Text, Video, feature_of
from lading.errors import DataError

__all__ = ["ITEMS", "Summaries", "Summary", "is_read"]

ITEMS = "items"
"""Name of the number of items of a document; `items.image` is that of its images."""

_MOST_FIELDS, _MOST_LEVELS = 64, 4
_SHOWN_CHARS = 100
_ROWS_A_SHARD = 40

_MEDIA = (Image, Audio, Video)
_MOST_INT = 1 << 63

_Places = NDArray[np.uint64]


@dataclass(slots=True)
class Summary:
    """What is known of the values of one name.

    Attributes:
        kinds: what the values are: `text`, `image`, `int64` …
        values: how many there are.
        filled: documents that have one.
        size_bytes: their stored bytes; None where they have none of their own.
        unreadable: values that are not what their column says: broken images, invalid JSON or UTF-8.
        numbers: of numbers, lengths and times.
        counts: how often each value occurs.
        stored: Arrow type of times, whose numbers are counts of its unit.
        labels: names of classes, by number.
        is_fact: whether values are facts of media headers.
    """

    kinds: dict[str, None] = field(default_factory=dict)
    values: int = 0
    filled: int = 0
    size_bytes: int | None = None
    unreadable: int = 0
    numbers: NumberSummary | None = None
    counts: Counts | None = None
    stored: pa.DataType | None = None
    labels: tuple[str, ...] = ()
    is_fact: bool = False

    def merge(self, other: Summary) -> None:
        """Add the values of another summary."""
        self.kinds |= other.kinds
        self.values += other.values
        self.filled += other.filled
        self.unreadable += other.unreadable
        if other.size_bytes is not None:
            self.size_bytes = (self.size_bytes or 0) + other.size_bytes
        self.stored = self.stored or other.stored
        self.labels = self.labels or other.labels
        self.is_fact = self.is_fact or other.is_fact
        if other.numbers is not None:
            self.numbers = self.numbers or NumberSummary()
            self.numbers.merge(other.numbers)
        if other.counts is not None:
            self.counts = self.counts or Counts()
            self.counts.merge(other.counts)

    def add_numbers(self, values: NDArray[Any], places: _Places) -> None:
        """Add numbers."""
        self.numbers = self.numbers or NumberSummary()
        self.numbers.add(values, places)

    def add_found(self, found: Mapping[str, int]) -> None:
        """Add texts that are counted already."""
        texts = pa.array(list(found), pa.large_string())
        each = np.empty(len(texts), object)
        each[:] = list(found)
        self.values += sum(found.values())
        self.counts = self.counts or Counts()
        self.counts.add(_hash_texts(texts), np.fromiter(found.values(), np.int64, len(found)), each)

    def add_counts(self, values: pa.Array, hash_each: Callable[[pa.Array], _Places]) -> None:
        """Add values to be counted; none is null."""
        found = pc.value_counts(values)
        distinct, counts = found.field("values"), found.field("counts").to_numpy()
        shown = pc.utf8_slice_codeunits(distinct, 0, _SHOWN_CHARS) if is_text(distinct.type) else distinct
        each = np.empty(len(distinct), object)
        each[:] = shown.to_pylist()
        self.counts = self.counts or Counts()
        self.counts.add(hash_each(distinct), counts, each)


def _hash_texts(texts: pa.Array) -> _Places:
    as_bytes = texts.cast(pa.large_binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, as_bytes), np.uint64, len(texts))


def _hash_numbers(values: pa.Array) -> _Places:
    """Hash numbers and truth values; equal numbers have one hash, whatever their type."""
    numbers = np.asarray(values.to_numpy(zero_copy_only=False))
    if numbers.dtype.kind != "f":
        return mixed(numbers.astype(np.int64))
    floats = numbers.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = (np.abs(floats) < _MOST_INT) & (np.trunc(floats) == floats)
        return mixed(np.where(whole, floats.astype(np.int64), floats.view(np.int64)))


@dataclass(slots=True)
class Summaries:
    """Summaries of a part of a dataset.

    Args:
        view: how rows are taken.
        shard: number of the shard, or of the part, from which places of values follow.

    Attributes:
        samples: samples so far.
        rows: rows so far.
        items: items by modality.
        size_bytes: bytes of all columns.
        keys: which keys occur again.
        columns: summaries by name.
        unlisted: fields of JSON objects that are left out, because there are too many.
    """

    view: str
    shard: int = 0
    samples: int = 0
    rows: int = 0
    items: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    keys: Keys = field(default_factory=Keys)
    columns: dict[str, Summary] = field(default_factory=dict)
    unlisted: dict[str, None] = field(default_factory=dict)
    _fields: Counter[str] = field(default_factory=Counter)

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)

    def merge(self, other: Summaries) -> None:
        """Add the summaries of another part, which comes behind this one."""
        self.samples += other.samples
        self.rows += other.rows
        self.items.update(other.items)
        self.size_bytes += other.size_bytes
        self.keys.merge(other.keys)
        for name, summary in other.columns.items():
            self._named(name).merge(summary)
        self.unlisted |= other.unlisted

    def add(self, batch: pa.RecordBatch, add_media: AddMedia) -> None:
        """Add whole samples, whose columns of texts and JSON have their bytes (`is_read`).

        Args:
            batch: the rows.
            add_media: adds the facts of media headers.
        """
        layout, firsts = self.row_layout, self.row_layout.firsts(batch)
        places = mixed(np.arange(self.rows, self.rows + batch.num_rows) + (self.shard << _ROWS_A_SHARD))
        for i, one in enumerate(batch.schema):
            column = batch.column(i)
            size = total_bytes(batch.select([i]))
            self.size_bytes += size
            if one.name == layout.key:
                self._add_keys(layout.keys(batch, firsts))
                continue
            if one.name in layout.uncounted:
                continue
            summary = self._named(one.name)
            summary.size_bytes = (summary.size_bytes or 0) + size
            before = summary.values
            _Column(self, one.name, feature_of(one), batch.schema, add_media).add(column, places)
            if layout.has_items and summary.values > before and len(firsts):
                summary.filled += int(samples_with(present(column), firsts)[firsts].sum())
        if layout.has_items:
            self._add_items(batch, firsts, places)
        self.samples += len(firsts)
        self.rows += batch.num_rows

    def _add_keys(self, column: pa.Array) -> None:
        texts = column.cast(pa.large_string()).drop_null()
        self.keys.add(_hash_texts(texts))

    def _add_items(self, batch: pa.RecordBatch, firsts: NDArray[np.int64], places: _Places) -> None:
        """Count the items of each document, by modality too; the metadata row is no item."""
        if "modality" not in batch.schema.names or not len(firsts):
            return
        modality = batch.column("modality").cast(pa.string())
        found = {entry["values"]: entry["counts"] for entry in pc.value_counts(modality).to_pylist()}
        self.items.update(found)
        is_item = np.asarray(pc.not_equal(modality, "metadata").to_numpy(zero_copy_only=False), np.bool_)
        self._derived(ITEMS).add_numbers(np.add.reduceat(is_item.astype(np.int64), firsts), places[firsts])
        for name in ("text", "image"):
            is_such = np.asarray(pc.equal(modality, name).to_numpy(zero_copy_only=False), np.bool_)
            counts = np.add.reduceat(is_such.astype(np.int64), firsts)
            self._derived(f"{ITEMS}.{name}").add_numbers(counts, places[firsts])

    def _named(self, name: str) -> Summary:
        return self.columns.setdefault(name, Summary())

    def _derived(self, name: str, kind: str = "int64") -> Summary:
        """A summary of numbers that are no column of their own."""
        summary = self._named(name)
        summary.kinds[kind] = None
        return summary

    def field_named(self, column: str, name: str) -> bool:
        """Whether a field in a column gets a summary: the first 64 do."""
        if name in self.columns:
            return True
        if self._fields[column] >= _MOST_FIELDS:
            self.unlisted[column] = None
            return False
        self._fields[column] += 1
        return True


AddMedia = Callable[["Summaries", str, pa.Array, pa.Schema, _Places], None]
"""Adds header facts: summaries, the name of a column, its values, the schema of their batch, their places."""


def is_read(one: pa.Field) -> bool:
    """Whether the bytes of a column of references are read: texts, JSON and numbers; media are not."""
    feature = feature_of(one)
    return is_ref(one.type) and (feature.is_text or feature.is_json or feature.is_value)


@dataclass(frozen=True, slots=True)
class _Column:
    """One column on its way into summaries."""

    summaries: Summaries
    name: str
    feature: Feature
    schema: pa.Schema
    add_media: AddMedia

    def add(self, column: pa.Array, places: _Places) -> None:
        self._add(self.name, column, self.feature, places)

    def _summary(self, name: str, kind: str) -> Summary:
        summary = self.summaries.columns.setdefault(name, Summary())
        summary.kinds[kind] = None
        return summary

    def _add(self, name: str, column: pa.Array, feature: Feature, places: _Places) -> None:
        """Add the values of an Arrow array by their logical type, else by their Arrow type."""
        column = _plain(column)
        kind = column.type
        if pa.types.is_null(kind):
            return
        if feature.is_media and pa.types.is_struct(kind) and "bytes" in kind.names:
            column = flattened(column)[kind.names.index("bytes")]  # as Hugging Face stores media
            kind = column.type
        there = present(column)
        if feature.is_json and (is_text(kind) or is_bytes(kind)):
            self._add_json(name, column, places)
        elif is_text(kind) or ((feature.is_text or feature.is_value) and is_bytes(kind)):
            self._add_texts(name, column, places, feature)
        elif is_ref(kind) or is_bytes(kind):
            summary = self._summary(name, _word(feature))
            summary.values += int(there.sum())
            sizes = _lengths(column)
            self._lengths(name, sizes[there], places[there])
            if feature.is_media or "bytes" in summary.kinds:
                self.add_media(self.summaries, name, column, self.schema, places)
        elif pa.types.is_struct(kind):
            self._add_struct(name, column, there, places)
        elif is_list(kind):
            self._add_lists(name, column, places)
        else:
            self._add_scalars(name, column, feature, places)

    def _add_scalars(self, name: str, column: pa.Array, feature: Feature, places: _Places) -> None:
        kind = column.type
        labels = feature.labels or ()
        summary = self._summary(name, feature.kind if labels else str(kind))
        there = present(column)
        values, places = column.drop_null(), places[there]
        summary.values += len(values)
        if labels:
            summary.labels = labels
            summary.add_counts(values, _hash_numbers)
        elif pa.types.is_boolean(kind):
            summary.add_counts(values, _hash_numbers)
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            summary.add_numbers(values.to_numpy(zero_copy_only=False), places)
            summary.add_counts(values, _hash_numbers)
        elif pa.types.is_decimal(kind):
            summary.add_numbers(values.cast(pa.float64()).to_numpy(), places)
        elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
            summary.stored = kind
            wide = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
            summary.add_numbers(values.cast(wide).cast(pa.int64()).to_numpy(), places)

    def _add_texts(self, name: str, column: pa.Array, places: _Places, feature: Feature) -> None:
        """Add texts, or texts of numbers: the bytes of a tar's `cls`."""
        texts, broken = _as_texts(column)
        if feature.is_value and is_bytes(column.type):
            numbers = _parsed(texts)
            if numbers is not None:
                self._add_scalars(name, numbers, feature, places)
                self._summary(name, str(numbers.type)).unreadable += broken
                return
        summary = self._summary(name, "text")
        summary.unreadable += broken
        there = present(texts)
        values, places = texts.drop_null(), places[there]
        summary.values += len(values) + broken
        summary.add_counts(values, _hash_texts)
        self._lengths(name, pc.utf8_length(values).to_numpy(), places)

    def _lengths(self, name: str, lengths: NDArray[Any], places: _Places) -> None:
        if not len(lengths) or name in self.summaries.row_layout.words:
            return
        self._summary(f"len({name})", "int64").add_numbers(lengths, places)

    def _add_struct(self, name: str, column: pa.Array, there: NDArray[np.bool_], places: _Places) -> None:
        self._summary(name, "struct").values += int(there.sum())
        for child, values in zip(column.type, flattened(column), strict=True):
            inner = f"{name}.{child.name}"
            if self.summaries.field_named(self.name, inner):
                self._add(inner, values, feature_of(child), places)

    def _add_lists(self, name: str, column: pa.Array, places: _Places) -> None:
        there = present(column)
        self._summary(name, "map" if pa.types.is_map(column.type) else "list").values += int(there.sum())
        if pa.types.is_fixed_size_list(column.type):
            self._lengths(name, np.full(int(there.sum()), column.type.list_size), places[there])
            return
        values, ends = listed_items(column)
        self._lengths(name, np.diff(ends)[there], places[there])
        if is_text(values.type):
            self._add_listed(name, values)

    def _add_listed(self, name: str, texts: pa.Array) -> None:
        """Count the texts in lists."""
        summary = self._summary(f"{name}[]", "text")
        values = texts.cast(pa.large_string()).drop_null()
        summary.values += len(values)
        summary.add_counts(values, _hash_texts)

    # JSON

    def _add_json(self, name: str, column: pa.Array, places: _Places) -> None:
        summary = self._summary(name, "json")
        there = present(column)
        texts = column.cast(pa.large_binary()).drop_null().to_pylist()
        parsed = json_text.loads_plain(texts)
        rows = np.flatnonzero(there)
        if parsed is None:
            parsed, kept = [], []
            for row, text in zip(rows.tolist(), texts, strict=True):
                try:
                    parsed.append(json_text.loads(text))
                except DataError:
                    summary.unreadable += 1
                    summary.values += 1
                else:
                    kept.append(row)
            rows = np.array(kept, np.int64)
        self._add_values(name, parsed, places[rows], 0)

    def _add_values(self, name: str, values: Sequence[Any], places: _Places, level: int) -> None:
        """Add values of JSON, each by its own type."""
        by_kind: dict[str, list[int]] = {}
        for place, python_type in enumerate(map(type, values)):
            by_kind.setdefault(_JSON_KINDS.get(python_type, ""), []).append(place)
        if "int" in by_kind and "float" in by_kind:
            by_kind["float"] = sorted([*by_kind.pop("int"), *by_kind["float"]])
        for kind, at in by_kind.items():
            if not kind and not level:
                self._summary(name, "json").values += len(at)
            elif kind:
                mine = values if len(at) == len(values) else [values[i] for i in at]
                self._add_of_kind(name, kind, mine, places[np.array(at, np.int64)], level)

    def _add_of_kind(self, name: str, kind: str, values: Sequence[Any], places: _Places, level: int) -> None:
        if kind == "object":
            self._summary(name, "object" if level else "json").values += len(values)
            if level < _MOST_LEVELS:
                self._add_fields(name, values, places, level)
            return
        if kind == "list":
            self._summary(name, "list").values += len(values)
            self._lengths(name, np.fromiter(map(len, values), np.int64, len(values)), places)
            texts = [text for value in values for text in value if type(text) is str]
            if texts:
                self._add_listed(name, _texts_of(texts))
        elif kind == "text":
            self._add_texts(name, _texts_of(values), places, Text())
        else:
            self._add_scalars(name, _numbers_of(values, kind), Json(), places)

    def _add_fields(self, name: str, objects: Sequence[Mapping[str, Any]], places: _Places, level: int) -> None:
        found: dict[str, tuple[list[int], list[Any]]] = {}
        for at, value in enumerate(objects):
            for key, inner in value.items():
                rows, values = found.setdefault(key, ([], []))
                rows.append(at)
                values.append(inner)
        for key, (rows, values) in found.items():
            inner_name = f"{name}.{key}"
            if self.summaries.field_named(self.name, inner_name):
                self.summaries.columns.setdefault(inner_name, Summary())
                self._add_values(inner_name, values, places[np.array(rows, np.int64)], level + 1)


_JSON_KINDS = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}


def _word(feature: Feature) -> str:
    return "bytes" if feature.is_value else feature.kind


def _plain(column: pa.Array) -> pa.Array:
    """The values without dictionary, run ends and extension types, but for references."""
    while True:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = without_runs(column)
        elif isinstance(column.type, pa.BaseExtensionType) and not is_ref(column.type):
            column = column.storage
        else:
            return column


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    if not is_ref(column.type):
        return byte_lengths(column)
    return np.asarray(column.storage.field("length").fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _as_texts(column: pa.Array) -> tuple[pa.Array, int]:
    """The values as `large_string`, null where they are not valid UTF-8, and the number of those."""
    if is_text(column.type):
        return column.cast(pa.large_string()), 0
    try:
        return column.cast(pa.large_binary()).cast(pa.large_string()), 0
    except pa.ArrowInvalid:
        values = [_decoded(value) for value in column.to_pylist()]
        texts = pa.array(values, pa.large_string())
        return texts, texts.null_count - column.null_count


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _parsed(texts: pa.Array) -> pa.Array | None:
    """Decimal texts as numbers; None if one of them is none."""
    trimmed = pc.utf8_trim_whitespace(texts)
    for kind in (pa.int64(), pa.float64()):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def _texts_of(values: Iterable[str]) -> pa.Array:
    """JSON texts as an Arrow array; lone surrogates, which UTF-8 lacks, become question marks."""
    values = list(values)
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:
        return pa.array([value.encode(errors="replace").decode() for value in values], pa.large_string())


def _numbers_of(values: Sequence[Any], kind: str) -> pa.Array:
    if kind == "bool":
        return pa.array(values, pa.bool_())
    if kind == "int" and all(-_MOST_INT <= value < _MOST_INT for value in values):
        return pa.array(values, pa.int64())
    return pa.array(list(map(_as_float, values)), pa.float64())


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
