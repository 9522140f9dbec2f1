"""A dataset as a table: one schema, and record batches of the columns, rows and fields that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.align import union_schema
from lading._core.arrow.casts import cast
from lading._core.arrow.json_columns import union_json_schemas
from lading._core.arrow.predicates import Predicate
from lading._core.arrow.references import FileEntry, files_of, is_ref
from lading._core.arrow.views import child_fields, is_bytes, is_text, take_rows, with_child_fields
from lading._core.content.conditions import as_where
from lading._core.content.field_paths import FieldPath, Part, parse_field
from lading._core.content.nested import close_to, no_such_field, plain_type
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import no_such_column
from lading._core.dataset.steps.order_steps import Limit
from lading._core.dataset.steps.sequence import has_map
from lading._core.dataset.values.field_values import field_values
from lading._core.features.casts import text_of_bytes
from lading._core.features.items import KEY, lineage_of, without_source
from lading._core.features.json_inside import holds_json_text
from lading._core.features.natural import has_items, is_media, known_feature
from lading._core.formats.base import ShardReader
from lading._core.storage.fetch import Fetcher
from lading._core.tables.json_types import (
    json_documents,
    json_field,
    json_texts,
    json_values,
    narrowed,
)
from lading._core.tables.media_columns import bytes_of, lists_of_media, media_struct, place_fields
from lading.errors import DataError, LadingError, SchemaMismatch, UsageError, errors_at

__all__ = ["JsonAs", "MediaAs", "RowTest", "Table"]

MediaAs: TypeAlias = Literal["reference", "bytes"]
"""How tables show media and other bytes: by their place and facts, or as bytes."""

JsonAs: TypeAlias = Literal["typed", "text"]
"""How tables show JSON: as structs, lists and scalars, or as text."""

_TYPED_SAMPLES = 1000
_FIRST_ROWS, _MOST_ROWS = 64, 8192


@dataclass(frozen=True, slots=True)
class RowTest:
    """Which rows of a table are kept.

    Example: `RowTest.of(pc.field("json", "lang") == "en", ["json.lang"])`

    Attributes:
        columns: the columns, or fields inside columns, that the function looks at.
        keeps: gives True for the rows to keep, of a batch of these columns; structs have the named fields alone.
        expression: is true for the rows to keep, and perhaps for others: files and row groups in which it cannot be
            true are not read. None reads all.
    """

    columns: tuple[str, ...]
    keeps: Callable[[pa.RecordBatch], NDArray[np.bool_]]
    expression: pc.Expression | None = None

    @classmethod
    def of(cls, expression: pc.Expression, columns: Sequence[str]) -> RowTest:
        """Return the test of an expression of pyarrow over a table's own types. Rows of which it is null are left out.

        Args:
            expression: over the columns of the table.
            columns: those that it looks at, such as `json.lang`.
        """
        return cls(tuple(columns), as_where(expression).mask, expression)


_Way: TypeAlias = Literal["json", "json text", "text", "number", "media", "media list", "stored"]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table, whole: its field, and how its values come about."""

    field: pa.Field
    way: _Way

    @property
    def is_fetched(self) -> bool:
        """Whether its values are made of the payload behind references."""
        return self.way in ("json", "json text", "text", "number") or (
            self.way == "media" and not pa.types.is_struct(self.field.type)
        )


class Table:
    """The rows of a dataset as a table: typed columns, a schema that holds for all rows, and streams of them.

    Rows are those of `Dataset.batches`: samples, or items of documents. What nobody asks for is not read.

    Args:
        rows: the dataset.
        media: show media and other bytes by their place and facts, or as bytes.
        json: show JSON by its types, as the first 1,000 samples have them, or as text.

    Attributes:
        media: as given.
        json: as given.
        files: those that the places in all batches so far name.
    """

    def __init__(self, rows: OpenDataset, *, media: MediaAs = "reference", json: JsonAs = "typed") -> None:
        for name, value, known in (("media", media, get_args(MediaAs)), ("json", json, get_args(JsonAs))):
            if value not in known:
                raise UsageError(f"no such value of {name}", expected=" or ".join(map(repr, known)), found=repr(value))
        self._rows, self.media, self.json = rows, media, json
        self._columns: dict[str, _Column] = {}
        self.files: dict[FileEntry, None] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table. Where shards have no footers, this looks at the members of all of them."""
        return self.schema_of(None)

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of some columns, in their order; of all columns for None.

        Args:
            columns: names such as `txt`, `json.lang`, `jpg.width`. A struct of which only fields are named has these
                fields alone.

        Raises:
            UsageError: there is no such column or field.
        """
        return pa.schema(self._fields(columns))

    def reader(
        self, columns: Sequence[str] | None = None, test: RowTest | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Return a stream of the rows; each call begins anew, and reads when batches are asked for.

        The first batches are small, so that a few rows come soon. Peak memory: that of `Dataset.batches`.

        Args:
            columns: as of `schema_of`. Empty: one column that is cheap to read, so that rows can be counted.
            test: which rows are kept. Other columns are read of these rows alone.
            limit: rows, at most.
        """
        wanted = self._fields(self._cheap() if columns is not None and not columns else columns)
        looked = self._fields(test.columns) if test is not None else []
        batches = self._batches(wanted, looked, test, limit) if wanted else iter(())
        return pa.RecordBatchReader.from_batches(pa.schema(wanted), batches)

    @property
    def places(self) -> dict[str, pa.StructType]:
        """The columns of media and other bytes that are shown by their place, of those that were asked for so far."""
        known = self._columns.items()
        return {
            name: each.field.type for name, each in known if each.way == "media" and pa.types.is_struct(each.field.type)
        }

    @property
    def mixed_json(self) -> list[pa.DataType]:
        """The types of JSON columns in which some values are JSON text, of those that were asked for so far."""
        found = [each.field for each in self._columns.values() if each.way == "json"]
        return [field.type for field in found if child_fields(field.type) and holds_json_text(field)]

    # Columns

    def _cheap(self) -> list[str]:
        schema = self._rows.first_schema
        names = [name for name in (KEY, "sample_id") if name in schema.names]
        fixed = [each.name for each in schema if pa.types.is_primitive(each.type)]
        small = [each.name for each in schema if not is_bytes(each.type)]
        return [*names, *fixed, *small, *schema.names][:1]

    def _fields(self, columns: Sequence[str] | None) -> list[pa.Field]:
        """The fields of the table that are asked for."""
        known = self._rows.first_schema.names
        paths = None if columns is None else [parse_field(name, known) for name in columns]
        tops = None if paths is None else list(dict.fromkeys(path.column for path in paths))
        source = self._source(tops)
        for name in tops or ():
            if name not in source.names:
                error = no_such_column(name, source.names)
                error.advice = close_to(name, source.names)
                raise error
        self._know([field for field in source if tops is None or field.name in tops])
        if paths is None:
            return [self._columns[name].field for name in source.names]
        inside: dict[str, list[tuple[Part, ...]]] = {}
        for path in paths:
            inside.setdefault(path.column, []).append(path.path)
        return [_pruned(self._columns[name].field, inside[name], FieldPath(name)) for name in inside]

    def _source(self, names: Sequence[str] | None) -> pa.Schema:
        """The columns of the dataset, among them those that are named; the same type for a column whatever is named."""
        if names is None or "_whole" in vars(self) or not self._declares_types:
            return self._whole
        return self._rows.schema_with(names, whole=True)

    @cached_property
    def _declares_types(self) -> bool:
        """Whether the files say the types of columns; else the values of all shards do, as those of JSON Lines."""
        shards = self._rows.fitting
        first = next(shards.readable(range(len(shards.listing))), None)
        return first is None or first[1].declares_types

    @cached_property
    def _whole(self) -> pa.Schema:
        """The columns of the dataset in all of its shards."""
        rows, shards = self._rows, self._rows.fitting
        if not rows.schema_is_partial or shards.target is not None or has_map(rows.query.steps):
            return rows.schema
        if self._declares_types and any(step.selected for step in rows.query.steps):
            return rows.schema_with(rows.first_schema.names, whole=True)
        found = []
        with shards.passes.during("looking at the shards"):
            for number, view in shards.readable(range(len(shards.listing))):
                with shards.bad.skipping(number, shards.path(number)):
                    found.append((shards.path(number), without_source(view.schema())))
                    _keep_walk(shards, number, view)
        if not found:
            return rows.schema
        is_loose = shards.has_items or not self._declares_types
        schema = union_json_schemas(each for _, each in found) if is_loose else union_schema(found)[0]
        return schema if rows.chosen is None else rows.chosen.schema_from(schema)

    def _know(self, fields: Sequence[pa.Field]) -> None:
        """Find how columns of the source become those of the table."""
        new = {field.name: _way(field, self.json) for field in fields if field.name not in self._columns}
        typed = [name for name, way in new.items() if way == "json"]
        as_json = self._typed(typed) if typed else {}
        for field in fields:
            if field.name in new:
                way = new[field.name]
                made = as_json.get(field.name) or self._field(field, way)
                self._columns[field.name] = _Column(made, way)

    def _field(self, field: pa.Field, way: _Way) -> pa.Field:
        feature = known_feature(field)
        if way in ("json text", "text"):
            return field.with_type(pa.string())
        if way == "number":
            return field.with_type(feature.to_arrow_type())
        if way not in ("media", "media list"):
            return field.with_type(_without_halves(field.type))
        if self.media == "bytes":
            return field.with_type(pa.large_binary() if way == "media" else pa.list_(pa.large_binary()))
        item = feature if way == "media" else (feature.item or feature)
        is_untold = is_media(field.type) and not item.is_media
        any_medium = self._rows.shards.has_items or is_untold
        struct = place_fields(item, any_medium=any_medium)
        return pa.field(field.name, struct if way == "media" else pa.list_(struct), field.nullable)

    def _typed(self, names: Sequence[str]) -> dict[str, pa.Field]:
        """The types of JSON columns, by the first samples."""
        documents: dict[str, list[object]] = {name: [] for name in names}
        self._keep_first_walks()
        rows = 0
        has_key = KEY in self._rows.first_schema.names and KEY not in names
        for batch in self._rows.looked_at(_TYPED_SAMPLES, [*names, KEY] if has_key else names):
            there = [name for name in names if name in batch.schema.names]
            part = batch.slice(0, _TYPED_SAMPLES - rows)
            try:
                part = self._rows.shards.fetcher.materialise(part, there)
                for name in there:
                    with errors_at(column=name):
                        documents[name] += json_documents(json_texts(part.column(name)))
            except LadingError as error:
                raise _placed(error, part, np.arange(rows, rows + part.num_rows)) from None
            rows += part.num_rows
            if rows >= _TYPED_SAMPLES:
                break
        return {name: json_field(name, found) for name, found in documents.items()}

    def _keep_first_walks(self) -> None:
        """Walk over the remote tars of the first samples once, for this look and for the rows."""
        shards, samples = self._rows.fitting, 0
        if shards.fixed_schema or shards.has_items or not len(shards.listing) or not shards.is_remote(0):
            return
        for number, view in shards.readable(range(len(shards.listing))):
            with shards.bad.skipping(number, shards.path(number)):
                _keep_walk(shards, number, view)
                samples += view.num_samples()
            if samples >= _TYPED_SAMPLES:
                return

    # Rows

    def _batches(
        self, wanted: Sequence[pa.Field], looked: Sequence[pa.Field], test: RowTest | None, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        fields = {field.name: field for field in wanted}
        for field in looked:
            whole = self._columns[field.name].field
            fields[field.name] = _union(fields[field.name], field, whole) if field.name in fields else field
        first = [fields[field.name] for field in looked]
        schema, left = pa.schema(wanted), limit
        rows = self._rows
        if test is not None and test.expression is not None:
            rows = self._passing(Predicate(test.expression, pa.schema(looked)), list(fields))
        for part, numbers in self._parts(rows, list(fields), limit if test is None else None):
            made = self._made(part, first, numbers)
            kept = np.arange(part.num_rows)
            if test is not None:
                seen = [narrowed(made[field.name], field) for field in looked]
                kept = np.flatnonzero(test.keeps(pa.record_batch(seen, pa.schema(looked))))
            kept = kept if left is None else kept[:left]
            if not len(kept):
                continue
            chosen = take_rows(part, kept)
            if chosen is not part:
                made = {name: column.take(pa.array(kept)) for name, column in made.items()}
            made |= self._made(chosen, [field for field in wanted if field.name not in made], numbers[kept])
            yield pa.record_batch([narrowed(made[field.name], field) for field in wanted], schema)
            left = None if left is None else left - len(kept)
            if left == 0:
                return

    def _passing(self, predicate: Predicate, names: Sequence[str]) -> OpenDataset:
        """The dataset without shards and parts of shards that no row passes; all of it if the others lack a column."""
        rows = self._rows.passing(predicate)
        return rows if {*names} <= {*rows.schema_with(names).names} else self._rows

    def _parts(
        self, rows: OpenDataset, names: Sequence[str], limit: int | None
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """The rows with payload as references, in parts that grow; and their numbers behind the steps.

        Numbers are −1 where rows before may be left out.
        """
        shards = rows.shards
        if limit is not None and not shards.has_items:
            rows = rows.with_steps(Limit(limit))
        has_key = KEY not in names and KEY in rows.first_schema.names
        size, seen = _FIRST_ROWS, 0
        for batch in rows.batches(columns=[*names, KEY] if has_key else names, lazy=True, max_rows=_MOST_ROWS):
            whole = (
                shards.fetcher.materialise(batch, self._fetched(batch, names), on_error=rows.policy)
                if (rows.policy != "error")
                else batch
            )
            at = 0
            while at < whole.num_rows:
                part = whole.slice(at, size)
                numbers = np.arange(seen, seen + part.num_rows)
                yield part, (numbers if rows.shards.predicate is None else np.full(part.num_rows, -1))
                at, seen, size = at + part.num_rows, seen + part.num_rows, min(2 * size, _MOST_ROWS)

    def _fetched(self, batch: pa.RecordBatch, names: Sequence[str]) -> list[str]:
        there = {*batch.schema.names}
        return [name for name in names if name in there and self._columns[name].is_fetched]

    def _made(
        self, part: pa.RecordBatch, fields: Sequence[pa.Field], numbers: NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        """The columns of the table, of some rows."""
        try:
            names = [field.name for field in fields]
            fetched = self._fetched(part, names)
            part = self._rows.shards.fetcher.materialise(part, fetched) if fetched else part
            self.files |= dict.fromkeys(files_of(part.schema))
            return {field.name: self._column(part, field) for field in fields}
        except LadingError as error:
            raise _placed(error, part, numbers) from None

    def _column(self, part: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name not in part.schema.names or pa.types.is_null(part.schema.field(field.name).type):
            return pa.nulls(part.num_rows, field.type)
        known = self._columns[field.name]
        with errors_at(column=field.name):
            values = _Values(part.column(field.name), field, known.field, part, self._rows.shards.fetcher)
            return _MADE[known.way](values)


def _placed(error: LadingError, part: pa.RecordBatch, numbers: NDArray[np.int64]) -> LadingError:
    """The error with the place of its row: the key of the sample, or its number behind the steps."""
    files = lineage_of(part.schema)
    row, error.row = error.row, None
    if row is not None and KEY in part.schema.names:
        error = error.at(sample=part.column(KEY)[row].as_py())
    elif row is not None and numbers[row] >= 0:
        error.row = int(numbers[row])
    return error.at(file=files[0] if len(files) == 1 else None)


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of a column of the source, and what they become.

    Attributes:
        column: the values; payload that the table shows is there.
        field: of the table, perhaps with some of its fields alone.
        whole: the same with all of its fields.
        batch: the rows.
        fetcher: reads headers of media.
    """

    column: pa.Array
    field: pa.Field
    whole: pa.Field
    batch: pa.RecordBatch
    fetcher: Fetcher


def _json(values: _Values) -> pa.Array:
    """JSON with its types."""
    return json_values(json_texts(values.column), values.field, values.whole)


def _json_text(values: _Values) -> pa.Array:
    texts = json_texts(values.column)
    return texts.cast(values.field.type) if is_text(texts.type) else text_of_bytes(texts, values.field.type)


def _text(values: _Values) -> pa.Array:
    return text_of_bytes(values.column, values.field.type)


def _number(values: _Values) -> pa.Array:
    names = [name for name in (KEY, values.field.name) if name in values.batch.schema.names]
    [numbers] = field_values(values.batch.select(names), [values.field.name], values.fetcher)
    return cast(numbers, values.field.type)


def _media(values: _Values) -> pa.Array:
    if not pa.types.is_struct(values.field.type):
        return bytes_of(values.column, values.field)
    return media_struct(values.column, values.field.type, values.batch.schema, values.fetcher)


def _media_list(values: _Values) -> pa.Array:
    return lists_of_media(values.column, values.field, values.batch.schema, values.fetcher)


def _stored(values: _Values) -> pa.Array:
    column, field = values.column, values.whole
    try:
        return narrowed(column if column.type == field.type else cast(column, field.type), values.field)
    except (DataError, pa.ArrowException) as error:
        advice = f"Give it one type: ds.cast({{{field.name!r}: …}})."
        raise SchemaMismatch("a shard has another type in this column", column=field.name, expected=field.type,
                             found=column.type, advice=advice) from error  # fmt: skip


_MADE: dict[_Way, Callable[[_Values], pa.Array]] = {
    "json": _json,
    "json text": _json_text,
    "text": _text,
    "number": _number,
    "media": _media,
    "media list": _media_list,
    "stored": _stored,
}


def _keep_walk(shards: Shards, number: int, view: ShardReader) -> None:
    """Keep the members that a look at a tar found for the next pass, so that it walks over no header again."""
    if shards.fixed_schema or shards.has_items:
        return
    if not shards.is_remote(number):
        shards.detach(number)
        return
    with suppress(LadingError):  # of members that no index holds; the pass itself reads them
        shards.indexes.hold(number, view.index())


def _without_halves(kind: pa.DataType) -> pa.DataType:
    """The type with floats of 32 bits for those of 16, which DuckDB lacks."""
    if pa.types.is_float16(kind):
        return pa.float32()
    inner = [field.with_type(_without_halves(field.type)) for field in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else kind


def _way(field: pa.Field, json: JsonAs) -> _Way:
    """How values of a column of the source become those of the table."""
    kind, feature = plain_type(field.type), known_feature(field)
    packed = is_ref(kind) or is_bytes(kind)
    if (feature.is_json and (packed or is_text(kind))) or isinstance(field.type, pa.JsonType):
        return "json" if json == "typed" else "json text"
    if packed and feature.is_text:
        return "text"
    if packed and feature.is_scalar:
        return "number"
    if packed or is_media(kind):
        return "media"
    return "media list" if has_items(kind) else "stored"


def _pruned(field: pa.Field, paths: Sequence[tuple[Part, ...]], place: FieldPath) -> pa.Field:
    """A field of a struct with the fields alone that paths name."""
    if () in paths or not pa.types.is_struct(field.type):
        return field
    names = {path[0] for path in paths}
    known = [child.name for child in field.type]
    for name in names:
        if name not in known:
            raise no_such_field(FieldPath(place.column, (*place.path, name)), "this column has", known)
    return field.with_type(pa.struct([
        _pruned(child, [path[1:] for path in paths if path[0] == child.name],
                FieldPath(place.column, (*place.path, child.name)))
        for child in field.type if child.name in names
    ]))  # fmt: skip


def _union(one: pa.Field, other: pa.Field, whole: pa.Field) -> pa.Field:
    """A field of a struct with the fields that either has, in the order of the whole one."""
    if one.type == other.type or not pa.types.is_struct(whole.type):
        return one
    if whole.type in (one.type, other.type):
        return whole
    sides = [{child.name: child for child in side.type} for side in (one, other)]
    children = []
    for child in whole.type:
        found = [side[child.name] for side in sides if child.name in side]
        if found:
            children.append(_union(found[0], found[-1], child))
    return whole.with_type(pa.struct(children))
