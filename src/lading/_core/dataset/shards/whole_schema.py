"""The columns of a whole source, as all of its footers say them, where that is cheap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lading._core.arrow.align import union_schema
from lading._core.features.items import without_source
from lading._core.storage.concurrent import concurrent_map
from lading.errors import DataError, SchemaMismatch, StoreError

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["MOST_FOOTERS", "WholeSchema", "whole_schema"]

MOST_FOOTERS = 1000
"""Footers that are read for the columns of a source, at most."""


@dataclass(frozen=True, slots=True)
class WholeSchema:
    """The columns of a source.

    Attributes:
        schema: the columns.
        is_partial: whether other shards than the first may hold more columns, or other types.
        differing: columns whose types in some shards no type holds, with these types; `schema` has the first type.
    """

    schema: pa.Schema
    is_partial: bool = False
    differing: Sequence[str] = ()


def whole_schema(shards: Shards) -> WholeSchema:
    """Return the columns of a source: of the manifest or the caller, else of all footers, else of the first shard.

    All footers are read where shards have one (Parquet, Arrow, MDS) and are at most `MOST_FOOTERS`; of remote shards,
    16 at once. A shard that cannot be opened is left out: reading its rows raises the error.
    """
    first = shards.schema
    if shards.schema_is_told or len(shards.listing) < 2:  # noqa: PLR2004 - one shard is the whole
        return WholeSchema(first)
    if len(shards.listing) > MOST_FOOTERS or not shards.has_footers:
        return WholeSchema(first, is_partial=True)
    calls = [partial(_opened, shards, number) for number in range(len(shards.listing))]
    found = [*concurrent_map(calls, remote=shards.is_remote(0))]
    known = [(shards.path(number), schema) for number, schema in enumerate(found) if schema is not None]
    if not known:
        return WholeSchema(first, is_partial=True)
    schema, differing = _united(known)
    schema = shards.with_types(schema.with_metadata(first.metadata))
    return WholeSchema(schema, is_partial=len(known) < len(found), differing=differing)


def _opened(shards: Shards, number: int) -> pa.Schema | None:
    try:
        return without_source(shards.open_shard(number).schema())
    except (DataError, StoreError):
        return None


def _united(schemas: Sequence[tuple[str, pa.Schema]]) -> tuple[pa.Schema, list[str]]:
    """Return the columns of all schemas, and those whose types no type holds."""
    names = dict.fromkeys(name for _, schema in schemas for name in schema.names)
    fields, differing = [], []
    for name in names:
        own = [(file, pa.schema([schema.field(name)])) for file, schema in schemas if name in schema.names]
        try:
            field = union_schema(own)[0].field(0)
        except SchemaMismatch:
            field = own[0][1].field(0)
            differing.append(f"{name} ({', '.join(_distinct(schema.field(0) for _, schema in own))})")
        fields.append(field if len(own) == len(schemas) else field.with_nullable(nullable=True))
    return pa.schema(fields), differing


def _distinct(fields: Iterable[pa.Field]) -> list[str]:
    return list(dict.fromkeys(str(field.type) for field in fields))
