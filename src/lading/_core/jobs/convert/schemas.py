"""The schemas of a conversion, found in all shards before a byte is written, and checks of the destination."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from lading._core.arrow.align import union_schema
from lading._core.arrow.json_columns import mixed_columns, union_json_schemas
from lading._core.content.media_info import media_info
from lading._core.dataset.shards.iteration import aligned_to
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.manifest_options import manifest_options
from lading._core.dataset.steps.column_steps import Select
from lading._core.features.items import KEY, RESERVED, without_source
from lading._core.features.natural import (
    EXTENSION_KEY,
    in_natural_type,
    is_media,
    is_number,
    known_feature,
    lacks_extension,
    member_name,
    whole_numbers,
)
from lading._core.features.stored_values import is_payload
from lading._core.formats.base import Scan, ShardReader
from lading._core.formats.format import MEDIA_FOLDER, ROOTS, AnyFormat, named_folders
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar import column_name, field_name
from lading._core.interleaved.tar_items import refuse_modalities
from lading._core.interleaved.tar_writer import find_roles
from lading._core.manifest.commit import is_there
from lading._core.storage.roots import folder_of, is_inside, real_place
from lading._core.storage.stores import Stores
from lading.errors import UsageError, errors_at
from lading.options import SchemaPolicy

__all__ = ["Schemas", "as_members", "plan_schemas", "refuse_inside", "take_files_in"]

_SCAN_ROWS = 65_536
_SCAN_BYTES = 64 << 20
_LOOKED_AT_ROWS = 16
_EXTENSIONS = {"jpeg": "jpg", "tiff": "tif"}


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas of a conversion, and all else that depends on the whole source.

    Attributes:
        schema: of the rows before any function changes them; None if the target takes rows as they come.
        roles: which rows each passthrough column of interleaved data belongs to.
        differences: how the shards' schemas differ, as text.
        columns: columns to read where there is no schema; None reads all.
        whole: whether the schema must hold every column of the source, so that another column is an error.
        written: schema of the rows to be written, where it differs from `schema`.
        mapped: of each function that changes rows, the schema of its rows.
    """

    schema: pa.Schema | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    differences: Sequence[str] = ()
    columns: tuple[str, ...] | None = None
    whole: bool = False
    written: pa.Schema | None = None
    mapped: tuple[pa.Schema, ...] = ()

    @property
    def schema_written(self) -> pa.Schema | None:
        """Schema of the rows to be written; None if the target takes rows as they come."""
        return self.schema if self.written is None else self.written


def plan_schemas(
    dataset: Shards,
    target: AnyFormat,
    *,
    columns: Sequence[str] | None = None,
    policy: SchemaPolicy = "union",
    filtered: bool = False,
    looked_at: bool = False,
) -> Schemas:
    """Read the schemas of all shards: footers and headers, the JSON of interleaved tars, no payload.

    Args:
        dataset: the source.
        target: the format to be written.
        columns: columns to keep; None keeps all.
        policy: rule for shards that differ.
        filtered: whether rows may be left out. Then rows that the target cannot hold are no error yet.
        looked_at: whether a condition or a function of the user reads columns.

    Raises:
        SchemaMismatch: shards differ in a way the policy does not cover.
        Unrepresentable: an item that the target's layout has no place for.
        UsageError: a column that no shard has.
    """
    loose = dataset.row_layout.columns_vary and not target.info.fixed_schema and dataset.takes_any_fields
    free = loose and policy == "union"
    if free and columns is None and not filtered:
        return Schemas()
    asked = aligned_to(dataset, None)
    as_it_comes = asked is None and columns is None and policy == "union" and not looked_at
    if as_it_comes and not target.info.fixed_schema and _holds_documents(dataset):
        # Documents become documents: what columns they would make is known only when all have been read.
        return Schemas(roles={column_name(name): role for name, role in dataset.interleaved.roles.items()})
    schema, differences = _found(dataset, policy) if asked is None else (asked, [])
    schema = schema if columns is None else Select(tuple(columns)).schema_after(schema, dataset.view)
    if free and not filtered:
        return Schemas()
    as_rows = dataset.row_layout.is_stored_as_rows(target.info)
    roles = {} if as_rows else _roles(dataset, schema, filtered=filtered)
    return Schemas(_looked_at(dataset, target, schema), roles, differences)


def _looked_at(dataset: Shards, target: AnyFormat, schema: pa.Schema) -> pa.Schema:
    """Return the schema with what the first values of columns show.

    The name of a tar member says that it holds a number (`cls`, `id`), but ids may be texts, and numbers may end with a
    line end: such columns become text. The format of media is in their headers alone: a tar names its members by it,
    and MDS its encodings.
    """
    if not dataset.row_layout.types_by_format:
        return schema
    numbers = [f.name for f in schema if is_payload(f.type) and is_number(known_feature(f))]
    media = [f.name for f in schema if lacks_extension(f)]
    names = [*(numbers if target.info.fixed_schema else ()), *(() if target.info.stores_structs else media)]
    found = dict(_first_values(dataset, names)) if names else {}
    fields = []
    for each in schema:
        values = found.get(each.name)
        if values is not None and each.name in numbers and whole_numbers(values).null_count:
            fields.append(each.with_type(pa.string()))
        else:
            fields.append(each if values is None or each.name in numbers else _with_extension(each, values, schema))
    return pa.schema(fields, metadata=schema.metadata)


def _with_extension(medium: pa.Field, values: pa.Array, schema: pa.Schema) -> pa.Field:
    """Return a field of media with the extension of the first one, if its header is known."""
    first = values[:1]
    if is_media(values.type):
        first = in_natural_type(first, medium.with_type(pa.large_binary()))
    info = media_info(first[0].as_py() or b"") if len(first) else None
    if info is None:
        return medium
    extension = _EXTENSIONS.get(info.format, info.format)
    named = medium.with_metadata({**(medium.metadata or {}), EXTENSION_KEY: extension.encode()})
    return medium if member_name(named) in schema.names else named


def _first_values(dataset: Shards, names: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """Give the first values of columns that are there, nulls left out."""
    for _, view in dataset.readable(range(len(dataset.listing))):
        there = [name for name in names if name in view.schema().names]
        found = view.batches(Scan([KEY, *there], max_rows=_LOOKED_AT_ROWS, max_bytes=_SCAN_BYTES))
        for batch in islice(found, 1 if there else 0):
            rows = dataset.fetcher.materialise(batch.slice(0, _LOOKED_AT_ROWS), columns=there)
            yield from ((name, rows.column(name).drop_null()) for name in there if name in rows.schema.names)
            return


def _found(dataset: Shards, policy: SchemaPolicy) -> tuple[pa.Schema, list[str]]:
    """Return the schema of all shards, and their differences as text."""
    with dataset.passes.during("looking at the shards"):
        schemas = list(_schemas(dataset))
    schemas = schemas or [("the manifest", dataset.schema)]
    if policy == "union" and (_holds_documents(dataset) or _holds_loose_rows(dataset)):
        if dataset.fixed_schema:
            dataset.counts.update(mixed_columns((os.path.basename(path), schema) for path, schema in schemas))
        return union_json_schemas(s for _, s in schemas), []
    return union_schema(schemas, policy)


def _holds_documents(dataset: Shards) -> bool:
    """Whether rows come from JSON documents, so that the values decide the schema."""
    return any(view.has_members for view in _first(dataset))


def _holds_loose_rows(dataset: Shards) -> bool:
    """Whether shards declare no types, so that a column may hold numbers in one shard and text in another."""
    return any(not view.declares_types for view in _first(dataset))


def _first(dataset: Shards) -> Iterator[ShardReader]:
    """Give the first shard that can be read, if there is one."""
    return (view for _, view in islice(dataset.readable(range(len(dataset.listing))), 1))


def _schemas(dataset: Shards) -> Iterator[tuple[str, pa.Schema]]:
    """Give the schema of each shard. Equal schemas share one object, so that thousands of shards need little memory."""
    known: dict[bytes, pa.Schema] = {}
    for number in range(len(dataset.listing)):
        found = None
        dataset.passes.add(number)
        with dataset.bad.skipping(number, dataset.path(number)):
            schema = without_source(dataset.open_shard(number).schema())
            if dataset.has_items:  # to read samples makes no index
                dataset.indexes.hold(number, dataset.open_shard(number).index())
            dataset.detach(number)
            found = schema
        if found is not None:
            yield dataset.path(number), known.setdefault(found.serialize().to_pybytes(), found)


def _roles(dataset: Shards, schema: pa.Schema, *, filtered: bool) -> dict[str, str]:
    """Return the rows that each passthrough column belongs to; checks modalities unless rows are filtered."""
    names = [name for name in schema.names if name not in RESERVED]
    if _holds_documents(dataset):
        roles = dataset.interleaved.roles
        return {name: roles.get(field_name(name), "sample") for name in names}
    wanted = ["sample_id", "modality", *names]

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(len(dataset.listing)):
            with dataset.bad.skipping(number, dataset.path(number)):
                view = dataset.open_shard(number)
                for batch in view.batches(Scan(wanted, schema=schema, max_rows=_SCAN_ROWS, max_bytes=_SCAN_BYTES)):
                    if not filtered:
                        with errors_at(file=dataset.path(number)):
                            refuse_modalities(batch)
                    yield batch

    return find_roles(batches(), names)


def as_members(
    dataset: Shards, target: AnyFormat, options: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any], pa.Schema | None]:
    """Read the source as a copy needs it; return the options of writing, and the schema that tar members stand for."""
    writing = target.info.presets.write_copies
    dataset.read_with(target.info.presets.read_to_copy)
    if target.info.fixed_schema:
        return {**writing, **(options or {})}, None
    members, dataset.members = dataset.members, None
    # Keys that a tar holds only in another spelling go into the copy as they are in the source.
    return {**writing, **manifest_options(dataset.manifest, target), **(options or {})}, members


def take_files_in(dataset: Shards, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Read rows with the bytes of separate files, which a copy would lack; return the options of reading.

    Args:
        dataset: the source.
        options: the caller's options of reading, which come first.
    """
    fmt = get_format(dataset.format)
    whole = fmt.info.presets.read_whole
    dataset.read_with(whole)
    return {**whole, **(options or {})}


def refuse_inside(dataset: Shards, destination: str | os.PathLike[str], stores: Stores) -> None:
    """Refuse a destination that holds files of the source, or lies inside a folder of the source.

    Files of the source are its shards, and the files in folders that the caller named for media and references.
    """
    for source in dataset.sources():
        _refuse_inside(source, os.fspath(destination), stores)


def _refuse_inside(dataset: Shards, path: str, stores: Stores) -> None:
    target, named = real_place(path, stores), dataset.listing.folder
    if named is not None and is_inside(target, real_place(named, stores)):
        raise UsageError("the destination is inside the source", file=path, found=f"the source is {named}")
    folders = {folder_of(shard) for shard in dataset.listing.table.column("path").to_pylist()}
    for folder in folders:
        if is_inside(real_place(folder, stores), target):
            raise UsageError("the destination holds files of the source", file=path, found=f"source files in {folder}")
    options = dataset.read_options
    media, roots = named_folders(options, MEDIA_FOLDER), named_folders(options, ROOTS)
    for folder in (*media, *roots, *dataset.named_roots):
        if is_inside(real_place(folder, stores), target):
            raise UsageError("the destination holds what the source may lead to", file=path, found=f"a root, {folder}")
    for place in [real_place(folder, stores) for folder in media]:
        # Where the source lies in that folder too, beside it is a place as good as any, if nothing is there.
        around = any(is_inside(real_place(folder, stores), place) for folder in folders)
        if is_inside(target, place) and (not around or is_there(path, stores)):
            raise UsageError("the destination is inside the folder of the source's media", file=path, found=place)
