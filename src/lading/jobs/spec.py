"""What every process of a conversion must agree on, as one value that can be sent to worker processes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lading.arrow.references import is_ref, ref_field
from lading.dataset.steps import Function
from lading.jobs.filters import Filters
from lading.jobs.pickled import decode_value, encode_value
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import InterleavedOptions, OnError

__all__ = ["Conversion", "decode_schema", "encode_schema"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the rows of a conversion are read and made, settled before the first of them is read.

    Attributes:
        source_format: format of the source.
        view: how rows are taken.
        source_options: options of the source's format.
        interleaved: names of fields and policies for interleaved data; what the first shard decides is in it.
        members: what the members of the source's tars stand for; None where they are taken as they are.
        stored_schema: of the rows of the source, where their writer kept it.
        index_file: the file that listed the shards, for errors to name.
        columns: columns to keep where there is no schema; None keeps all.
        whole: whether no column of the source may be left out: the schema is what all shards are said to hold.
        schema: of the rows to be written; None if the target takes rows as they come.
        format: format that is written.
        options: its options.
        roles: which rows each passthrough column of interleaved data belongs to.
        max_batch_bytes: payload held at once.
        digests: whether content digests of what is written are taken.
        asked: whether the schema is one that the caller asked for, to which the rows of every shard are cast.
        roots: all folders that references in tables may point into.
        filters: what to keep.
        change: a function over what is kept; None changes nothing.
        written: schema of what it gives, or of the rows; None as `schema`.
        on_error: what becomes of rows whose bytes cannot be had.
        lazy: bytes stay where they are; references to them are written.
        ledger: whether a line is kept of every row that was not.
        checksums: of what checksums are kept.
        limits: on what files of the source may ask for.
    """

    source_format: str
    view: str
    format: str
    max_batch_bytes: int
    source_options: Mapping[str, Any] = field(default_factory=dict)
    interleaved: InterleavedOptions = field(default_factory=InterleavedOptions)
    members: pa.Schema | None = None
    stored_schema: pa.Schema | None = None
    index_file: str | None = None
    columns: tuple[str, ...] | None = None
    whole: bool = False
    schema: pa.Schema | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    digests: bool = False
    asked: bool = False
    roots: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    change: Function | None = None
    written: pa.Schema | None = None
    on_error: OnError = "error"
    lazy: bool = False
    ledger: bool = False
    checksums: str = "samples"
    limits: Limits = DEFAULT_LIMITS

    def encode(self) -> str:
        """Return the conversion as text for worker processes.

        Raises:
            UsageError: a function or an option cannot be sent to them; names it.
        """
        sent = {"filter": self.filters.keep, "map": self.change, "where": self.filters.where}
        return encode_value(self, {**sent, **self.source_options, **self.options})

    @staticmethod
    def decode(text: str) -> Conversion:
        """Return the conversion that `encode` was given."""
        how: Conversion = decode_value(text)
        return how


def encode_schema(schema: pa.Schema | None) -> str | None:
    """A schema as base64 of its Arrow IPC form, and the numbers of its references: others may be called so."""
    if schema is None:
        return None
    references = (str(i) for i, kind in enumerate(schema.types) if is_ref(kind))
    return " ".join([base64.b64encode(schema.serialize()).decode(), *references])


def decode_schema(text: str | None) -> pa.Schema | None:
    """The schema that `encode_schema` gave."""
    if text is None:
        return None
    told, *references = text.split()
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told)))
    for i in map(int, references):
        schema = schema.set(i, ref_field(schema.field(i)))
    return schema
