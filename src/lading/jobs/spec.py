"""What every process of a conversion must agree on, as one value that can be sent as JSON."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from typing import Any

import orjson
import pyarrow as pa

from lading.arrow.references import is_ref, ref_field
from lading.dataset.steps import Function
from lading.errors import UsageError
from lading.jobs.filters import Filters
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import InterleavedOptions, OnError

__all__ = ["Conversion", "decode_interleaved", "decode_schema", "encode_schema", "named_function", "refuse_objects"]


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

    def to_json(self) -> dict[str, Any]:
        """The conversion as JSON-able values.

        Raises:
            UsageError: an option has a value that JSON cannot hold; names it.
        """
        told: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for options in (self.source_options, self.options):
            refuse_objects(options)
        if self.filters.where is not None and not isinstance(self.filters.where, str):
            raise UsageError("an expression cannot be handed to worker processes", found=str(self.filters.where),
                             advice="Write the condition as text, or convert with workers=1.")  # fmt: skip
        filters = {f.name: getattr(self.filters, f.name) for f in fields(self.filters)}
        return {
            **told,
            "interleaved": asdict(self.interleaved),
            "limits": asdict(self.limits),
            "members": encode_schema(self.members),
            "stored_schema": encode_schema(self.stored_schema),
            "schema": encode_schema(self.schema),
            "written": encode_schema(self.written),
            "filters": {**filters, "keep": _name_of(self.filters.keep)},
            "change": _name_of(self.change),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Conversion:
        """The conversion that `to_json` gave."""
        columns, filters = told["columns"], told["filters"]
        return cls(
            **{
                **told,
                "interleaved": decode_interleaved(told["interleaved"]),
                "limits": Limits(**told["limits"]),
                "columns": None if columns is None else tuple(columns),
                "members": decode_schema(told["members"]),
                "stored_schema": decode_schema(told["stored_schema"]),
                "schema": decode_schema(told["schema"]),
                "written": decode_schema(told["written"]),
                "roots": tuple(told["roots"]),
                "filters": Filters(**{**filters, "keep": filters["keep"] and named_function(filters["keep"])}),
                "change": told["change"] and named_function(told["change"]),
            }
        )


def decode_interleaved(told: Mapping[str, Any]) -> InterleavedOptions:
    """The options of which these are the fields, after JSON made lists of tuples."""
    fields_of: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in told.items()}
    return InterleavedOptions(**fields_of)


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


def _name_of(function: Function | None) -> str | None:
    """A function as `module:name`, by which another process finds it.

    Raises:
        UsageError: it is none that can be imported.
    """
    if function is None:
        return None
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module not in (None, "__main__") and getattr(sys.modules.get(module), name, None) is function:
        return f"{module}:{name}"
    raise UsageError(
        "worker processes cannot find this function", found=repr(function),
        expected="a function that stands in a module, by its own name", advice="Work with workers=1.",
    )  # fmt: skip


def named_function(name: str) -> Callable[..., Any]:
    """The function that has this name, `module:name`."""
    module, _, own = name.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), own)
    return function


def refuse_objects(options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option whose value JSON does not hold."""
    for name, value in options.items():
        plain = list(value) if isinstance(value, tuple) else value
        try:
            same = bool(orjson.loads(orjson.dumps(plain)) == plain)
        except (TypeError, ValueError):
            same = False
        if not same:
            raise UsageError(
                "this option cannot be handed to worker processes", found=f"{name}={value!r}"[:200],
                expected="text, numbers and lists of them", advice="Work with workers=1.",
            )  # fmt: skip
