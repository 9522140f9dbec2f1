"""The columns of the rows that a writer takes: one schema for all of them, or all columns seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lading._core.arrow.align import align_table, union_schema
from lading._core.arrow.batches import with_columns
from lading._core.arrow.json_columns import wider_column
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import LIST_TYPES, child_fields, is_bytes, is_text, plain_type
from lading._core.features.items import KEY, RESERVED, without_source
from lading._core.features.natural import (
    EXTENSION_KEY,
    has_natural_type,
    in_natural_type,
    natural_schema,
    with_extensions,
)
from lading._core.features.stored_values import npy_head
from lading._core.features.types import (
    FEATURE_KEY,
    Feature,
    feature_of,
)
from lading._core.pipeline.shard_kind import ShardKind
from lading.errors import SchemaMismatch

__all__ = ["WrittenColumns", "written_schema"]

_TYPE = re.compile(r"(?:large_|fixed_size_)?([a-z]+)(?:_view)?\d*(?:\[\w+(, tz=.+)?\])?")
_NUMBERS = ("int", "uint", "halffloat", "float", "double")


class WrittenColumns:
    """The columns of the rows that a writer takes.

    Args:
        kind: of the shards.
        schema: columns of all rows. Without it, formats with a fixed schema take the columns of the first batch, and
            others any.

    Attributes:
        schema: columns of all rows, or of the first batch; None before.
        seen: all columns seen, for formats that do not fix them.
        without_rows: columns of the first batch that had no rows; None before. Later rows may have other columns.
    """

    def __init__(self, kind: ShardKind, schema: pa.Schema | None) -> None:
        self._kind, self._is_given = kind, schema is not None
        self._takes_any = not kind.format.info.fixed_schema and (schema is None or kind.row_layout.columns_vary)
        self.schema = None if schema is None else self.written(schema)
        self.seen: dict[str, pa.Field] = {}
        self.without_rows: pa.Schema | None = None
        self._fits: pa.Schema | None = None
        """Columns of the last batch, if they needed no change."""
        self._converted: tuple[pa.Schema, dict[str, pa.Field]] | None = None

    def target(self, columns: pa.Schema) -> pa.Schema | None:
        """Return the schema to which rows with these columns must be aligned; None if they fit as they are.

        Raises:
            SchemaMismatch: another column, or values of another kind, than the dataset has.
        """
        own = columns.remove_metadata()
        if self._fits is not None and own.equals(self._fits, check_metadata=True):
            return None
        if self.schema is None:
            self.schema = self.written(columns)
        if self._takes_any:
            self.see(self.written(columns))
            self._fits = own
            return None
        if self._kind.format.late_columns and not self._is_given:
            self.schema = self._with_late(columns, self.schema)
        self._refuse_misfits(columns, self.schema)
        # Bytes stay as they come, references and views too: to cast them would copy the payload. What becomes text or
        # numbers is cast after it was read.
        kinds = {f.name: f.type for f in columns}
        target = [
            f.with_type(kinds[f.name]) if f.name in kinds and _stays(f, kinds[f.name]) else f for f in self.schema
        ]
        if columns.equals(pa.schema(target)):
            self._fits = own
            return None
        return pa.schema(target, metadata=self.schema.metadata)

    def written(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema in which rows with these columns are written: the natural types of their features."""
        schema, info = written_schema(columns), self._kind.format.info
        if not self._kind.row_layout.types_by_format:
            return schema
        return self.with_extensions(natural_schema(schema, typed=info.fixed_schema, nested=info.stores_structs))

    def with_extensions(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema with the extensions that the options of tars ask for."""
        extensions = self._kind.format.written(columns, self._kind.options).extensions
        return with_extensions(columns, extensions) if extensions else columns

    def converted(self, columns: pa.Schema) -> dict[str, pa.Field]:
        """Return the fields of columns that `in_natural_types` converts, by name."""
        if self._converted is None or not self._converted[0].equals(columns):
            target = self.written(columns) if self.schema is None or self._takes_any else self.schema
            pairs = [(target.field(field.name), field.type) for field in columns if field.name in target.names]
            self._converted = columns, {field.name: field for field, given in pairs if has_natural_type(field, given)}
        return self._converted[1]

    def in_natural_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows without references in the types in which they are written.

        Raises:
            Unrepresentable: a value that the natural type of its feature does not hold; names column and row.
        """
        wanted = self.converted(batch.schema)
        made = {batch.schema.get_field_index(name): in_natural_type(batch.column(name), field)
                for name, field in wanted.items()}  # fmt: skip
        return with_columns(batch, made) if made else batch

    def align(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """Return the batch with the columns of `target`.

        Raises:
            SchemaMismatch: a value does not fit.
        """
        try:
            return align_table(batch, target)
        except SchemaMismatch as error:
            if not self._is_given:
                error.advice = error.advice or "The first rows said what columns hold: say it with schema= instead."
            raise

    def _with_late(self, columns: pa.Schema, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the columns that it lacks at its end; earlier rows have nulls there."""
        late = [field.with_nullable(True) for field in self.written(columns) if field.name not in schema.names]  # noqa: FBT003 - pyarrow takes it by position
        return pa.schema([*schema, *late], metadata=schema.metadata) if late else schema

    def _refuse_misfits(self, columns: pa.Schema, schema: pa.Schema) -> None:
        """Raise SchemaMismatch for columns that the schema lacks, or whose values are of another kind there."""
        names = {*schema.names}
        extra = [name for name in columns.names if name not in names]
        if extra:
            raise SchemaMismatch(
                "rows hold a column that the schema of this writer does not", column=extra[0],
                expected=", ".join(schema.names), advice="Give the writer schema= with all columns.",
            )  # fmt: skip
        for written in self.written(columns):
            known = schema.field(written.name)
            self._refuse_other_meaning(known, written)
            if not (self._is_given or _hold_one_kind(known.type, written.type)):
                raise SchemaMismatch(
                    "the values differ in kind from those of the first rows", column=known.name, expected=known.type,
                    found=written.type, advice="Cast them, or say with schema= what the column holds.",
                )  # fmt: skip

    def see(self, columns: pa.Schema) -> None:
        """Add these columns to those seen.

        Raises:
            SchemaMismatch: in the view `samples`: no type holds all values of a column, or some rows have keys and
                others have none.
        """
        if not self._kind.row_layout.has_items:
            self._see_members(columns)
            return
        for written in columns:
            known = self.seen.setdefault(written.name, written)
            if written.name not in RESERVED and known is not written:
                self.seen[written.name] = wider_column(known, written)

    def _see_members(self, columns: pa.Schema) -> None:
        begun = bool(self.seen) and bool(len(columns))
        if begun and (KEY in self.seen) != (KEY in columns.names):
            raise SchemaMismatch("some rows have keys and others have none", column=KEY)
        lacking = self.seen.keys() ^ {*columns.names} if begun else ()
        for written in columns:
            known = self.seen.setdefault(written.name, written)
            if not known.equals(written, check_metadata=True):
                self._refuse_other_meaning(known, written)
                self.seen[written.name] = _wider_member(known, written)
        for known in [self.seen[name] for name in lacking if not self.seen[name].nullable]:
            self.seen[known.name] = known.with_nullable(True)  # noqa: FBT003 - pyarrow takes it by position

    def _refuse_other_meaning(self, known: pa.Field, written: pa.Field) -> None:
        """Raise SchemaMismatch for a column whose values would be read in another way: as JSON, arrays or labels.

        A column without a feature takes the feature of the caller's schema. Media and labels fit to every feature,
        since they do not change how values are read. For plain values the column's type gives width and unit.
        """
        told = [(field.metadata or {}).get(FEATURE_KEY) for field in (known, written)]
        if told[0] == told[1] or pa.types.is_null(known.type) or pa.types.is_null(written.type):
            return
        expected, found = feature_of(known), feature_of(written)
        if None in told and (self._is_given or _reads_alike(expected if told[0] else found)):
            return
        if expected.is_media and found.is_media:
            return
        if not _are_alike(expected, known.type, found, written.type):
            raise SchemaMismatch("rows of one column mean different things", column=known.name,
                                 expected=f"{expected!s:.200}", found=f"{found!s:.200}",
                                 advice="Write them as columns of other names, or as values of one kind.")  # fmt: skip


def written_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows in a file: bytes in place of references, plain types in place of views."""
    fields = [f.with_type(pa.large_binary() if is_ref(f.type) else plain_type(f.type)) for f in schema]
    return without_source(pa.schema(fields, metadata=schema.metadata))


def _stays(field: pa.Field, given: pa.DataType) -> bool:
    """Whether values of a type are not cast before they are read and written."""
    return (is_bytes(field.type) and (is_ref(given) or is_bytes(given))) or has_natural_type(field, given)


def _reads_alike(feature: Feature) -> bool:
    """Whether a feature does not change how values are read."""
    return feature.is_media or feature.labels is not None


def _are_alike(one: Feature, kind: pa.DataType, other: Feature, second: pa.DataType) -> bool:
    """Whether the first feature reads values of the other feature, stored in the second type, unchanged.

    A column of nulls fits to every feature. After a column of nulls, plain values and text may follow.
    """
    kind, second = _unwrapped(kind), _unwrapped(second)
    if one == other or pa.types.is_null(second):
        return True
    if pa.types.is_null(kind) and (other.is_value or other.is_text):
        return True
    if one.type_name is not None and other.type_name is not None:
        names = (one.type_name, str(kind)), (other.type_name, str(second))
        said = all(_class_of(name) == _class_of(found) for name, found in names)
        return said and _differ_in_width(kind, second)
    if one.item is not None and other.item is not None and _all_are(LIST_TYPES, kind, second):
        return _are_alike(one.item, kind.value_type, other.item, second.value_type)
    if one.children is not None and other.children is not None and _all_are(pa.StructType, kind, second):
        own, others = ({child.name: child.type for child in struct} for struct in (kind, second))
        return len(one.children) == len(other.children) and all(
            name == named and _are_alike(inner, own.get(name, pa.null()), found, others.get(name, pa.null()))
            for (name, inner), (named, found) in zip(one.children, other.children, strict=True)
        )
    return False


def _all_are(types: Any, *kinds: pa.DataType) -> bool:
    return all(isinstance(kind, types) for kind in kinds)


def _class_of(name: str) -> tuple[str, str | None]:
    """Return the class of a type's values, without width, unit and layout, and the zone of times."""
    found = _TYPE.match(name)
    word, zone = found.groups() if found else (name, None)
    return "number" if word in _NUMBERS else word, zone


def _hold_one_kind(kind: pa.DataType, second: pa.DataType) -> bool:
    """Whether values of the second type may be cast to the first: not text to numbers, or numbers to times.

    Text and bytes are one kind, and so are times of all zones.
    """

    def kind_of(name: str) -> object:
        word, zone = _class_of(name)
        return "string" if word == "binary" else word, zone is not None

    return _differ_in_width(kind, second, kind_of)


def _differ_in_width(kind: pa.DataType, second: pa.DataType, class_of: Callable[[str], object] = _class_of) -> bool:
    """Whether two types differ at most in width, unit, layout and nulls, at any depth."""
    kind, second = _unwrapped(kind), _unwrapped(second)
    if pa.types.is_null(kind) or pa.types.is_null(second):
        return True
    if class_of(str(kind)) != class_of(str(second)):
        return False
    if pa.types.is_struct(kind):
        pairs = [(child, second.field(child.name)) for child in kind if second.get_field_index(child.name) >= 0]
    else:
        pairs = list(zip(child_fields(kind), child_fields(second), strict=True))
    return all(_differ_in_width(child.type, found.type, class_of) for child, found in pairs)


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values in a dictionary or in runs, or the storage type of an extension."""
    if isinstance(kind, pa.BaseExtensionType):
        return _unwrapped(kind.storage_type)
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return _unwrapped(kind.value_type) if wrapped else kind


def _refuse_other_ending(known: pa.Field, written: pa.Field) -> None:
    """Raise SchemaMismatch if the members of a column would have two names: a reader takes one of them."""
    expected, found = ((field.metadata or {}).get(EXTENSION_KEY, b"").decode() for field in (known, written))
    if expected != found:
        raise SchemaMismatch("values of one column need several endings", column=known.name, expected=expected or None,
                             found=f"{found or 'no ending'}, of {written.type}",
                             advice="Name the types of all columns: schema=pa.schema([…]).")  # fmt: skip


def _wider_member(known: pa.Field, written: pa.Field) -> pa.Field:
    """Return a field whose type holds the values of both: as members, text and bytes are one kind."""
    if npy_head(known) != npy_head(written):
        raise SchemaMismatch("arrays of several types or shapes", column=known.name)
    if pa.types.is_null(known.type):
        known = known.with_metadata(written.metadata)
    elif not pa.types.is_null(written.type):
        _refuse_other_ending(known, written)
    known = known.with_nullable(known.nullable or written.nullable)
    if known.type == written.type:
        return known
    if all(is_text(field.type) or is_bytes(field.type) for field in (known, written)):
        texts = is_text(known.type) and is_text(written.type)
        return known.with_type(pa.large_string() if texts else pa.large_binary())
    [field], _ = union_schema([("rows before", pa.schema([known])), ("these rows", pa.schema([written]))])
    return field
