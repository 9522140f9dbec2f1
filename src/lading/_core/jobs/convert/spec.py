"""What every process of a conversion must agree on, as one value that can be sent to worker processes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import pyarrow as pa

from lading._core.arrow.references import is_ref, ref_field
from lading._core.dataset.shards.shards import ReadPlan
from lading._core.dataset.steps.base import Step
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.jobs.convert.plan import Plan
from lading._core.processes.pickled import decode_value, encode_value
from lading._core.storage.stores import Stores
from lading._core.units import parse_bytes
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import WriteOptions

__all__ = ["Conversion", "decode_schema", "encode_schema"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How rows are read, chosen and written, settled before the first of them is read.

    Attributes:
        source_format: format of the source.
        read: how shards are read; what the first shard decides is in it.
        write: how rows are written.
        steps: which rows are kept, and how they change.
        plan: schemas and roles, which depend on all of the source.
        digests: whether content digests of the written rows are taken.
        index_file: the file that listed the shards, for errors to name.
        limits: on what files of the source may ask for.
        stores: options of object stores; secrets may be among them.
    """

    source_format: str
    read: ReadPlan
    write: WriteOptions
    steps: tuple[Step, ...] = ()
    plan: Plan = field(default_factory=Plan)
    digests: bool = False
    index_file: str | None = None
    limits: Limits = DEFAULT_LIMITS
    stores: Stores = field(default_factory=Stores)

    @property
    def view(self) -> str:
        """How rows are taken."""
        return self.read.view

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)

    @property
    def max_batch_bytes(self) -> int:
        """Payload held at once."""
        return parse_bytes(self.write.max_batch_bytes)

    def encode(self) -> str:
        """Return the conversion as text for worker processes.

        Raises:
            UsageError: a function or an option cannot be sent to them; names it.
        """
        sent: dict[str, object] = {}
        for step in self.steps:
            sent |= step.sent
        return encode_value(self, {**sent, **self.read.format_options, **(self.write.options or {})})

    @staticmethod
    def decode(text: str) -> Conversion:
        """Return the conversion that `encode` was given."""
        spec: Conversion = decode_value(text)
        return spec


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
