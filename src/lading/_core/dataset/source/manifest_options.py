"""What a manifest says of how its shards are read, where the shards do not say all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lading._core.features.items import RESERVED
from lading._core.features.row_layout import ITEMS, row_layout
from lading._core.formats.format import AnyFormat
from lading._core.interleaved.tar import column_name, field_name
from lading._core.manifest.values import Manifest
from lading._core.storage.roots import StoredRoots
from lading._core.storage.stores import Stores
from lading.options import AUTO, ROLES, InterleavedOptions

__all__ = ["manifest_options", "members_of", "schema_as_read", "stored_roots", "stored_schema", "stored_settings"]


def members_of(manifest: Manifest | None, fmt: AnyFormat, view: str | None) -> pa.Schema | None:
    """What rows were by their manifest, where they are taken as samples, and their shards do not say all of it.

    Raises:
        Unrepresentable: the manifest has a column that members do not hold.
    """
    if manifest is None or not (manifest.options.get("members") == "typed" or _restores(fmt, manifest)):
        return None
    if not row_layout(view or manifest.view).types_by_format or fmt.name != manifest.format:
        return None
    fmt.schema_as_read(manifest.schema, fmt.read_options({}), restored=True)
    return manifest.schema


def _restores(fmt: AnyFormat, manifest: Manifest) -> bool:
    """Whether every manifest of rows says more of them than their shards do."""
    return fmt.info.restores_types and row_layout(manifest.view).types_by_format


def stored_schema(
    manifest: Manifest | None, fmt: AnyFormat, view: str | None, interleaved: InterleavedOptions
) -> pa.Schema | None:
    """The schema that the manifest kept of the rows.

    Of tars of documents without the columns whose fields are now taken for other items than when they were written.
    """
    if manifest is None:
        return None
    if not row_layout(view or manifest.view).is_stored_as_members(fmt.info):
        return manifest.schema
    if (manifest.format, manifest.view) != (fmt.name, ITEMS.view):
        return None
    was, now = stored_settings(manifest).roles, interleaved.roles
    return pa.schema([f for f in manifest.schema if was.get(field_name(f.name)) == now.get(field_name(f.name))])


def schema_as_read(
    schema: pa.Schema, fmt: AnyFormat, view: str, options: Any, interleaved: InterleavedOptions
) -> pa.Schema:
    """The columns of a manifest by the names that batches have; of documents those that are asked for."""
    if row_layout(view).types_by_format:
        return fmt.schema_as_read(schema, options, restored=False)
    if interleaved.fields is None:
        return schema
    if fmt.info.interleaved == "members":  # the columns of fields, in the order of their names
        roles = [name for name in interleaved.roles if column_name(name) in schema.names]
        wanted = [*RESERVED, *(column_name(name) for name in (*interleaved.fields, *roles))]
    else:
        wanted = [name for name in schema.names if name in RESERVED or name in interleaved.fields]
        wanted += [name for name in interleaved.fields if name not in schema.names]
    there = {field.name: field for field in schema}
    return pa.schema([there.get(name, pa.field(name, pa.null())) for name in wanted], metadata=schema.metadata)


def manifest_options(manifest: Manifest | None, fmt: AnyFormat) -> Mapping[str, Any]:
    """Options with which shards are read, as the manifest keeps them: those alone that their format has it keep."""
    kept = None if manifest is None or fmt.name != manifest.format else manifest.options.get("reading")
    return fmt.written(pa.schema([]), fmt.write_options(kept)).read_options if kept else {}


def stored_roots(manifest: Manifest | None, folder: str | None, stores: Stores) -> StoredRoots:
    """The folders that references of a dataset lead to, as its manifest keeps them."""
    kept = [] if manifest is None else manifest.options.get("roots", [])
    return StoredRoots.of(kept, folder, stores) if kept and folder is not None else StoredRoots()


def stored_settings(manifest: Manifest | None) -> InterleavedOptions:
    """Options of interleaved data as the manifest keeps them: which fields belong to which items."""
    kept: dict[str, Any] = manifest.options.get("interleaved", {}) if manifest is not None else {}
    names = [name for name in (f"per_{role}_fields" for role in ROLES) if name in kept]
    lists: dict[str, Any] = {name: tuple(kept[name]) for name in names}
    return InterleavedOptions(sample_id_field=kept.get("sample_id_field", AUTO), **lists)
