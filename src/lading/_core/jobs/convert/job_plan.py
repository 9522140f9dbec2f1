"""The plan of a job that converts, as one value that can be sent to worker processes: all of them agree on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lading._core.dataset.shards.shards import ReadPlan
from lading._core.dataset.steps.base import Step
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.jobs.convert.schemas import Schemas
from lading._core.processes.pickled import decode_value, encode_value
from lading._core.storage.stores import Stores
from lading._core.units import parse_bytes
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import WriteOptions

__all__ = ["JobPlan"]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The plan of a job: how rows are read, chosen and written, settled before the first of them is read.

    Attributes:
        source_format: format of the source.
        read: how shards are read; what the first shard decides is in it.
        write: how rows are written.
        steps: which rows are kept, and how they change.
        schemas: of the rows, with roles, which depend on all of the source.
        digests: whether content digests of the written rows are taken.
        index_file: the file that listed the shards, for errors to name.
        limits: on what files of the source may ask for.
        stores: options of object stores; secrets may be among them.
    """

    source_format: str
    read: ReadPlan
    write: WriteOptions
    steps: tuple[Step, ...] = ()
    schemas: Schemas = field(default_factory=Schemas)
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
        """Return the plan as text for worker processes.

        Raises:
            UsageError: a function or an option cannot be sent to them; names it.
        """
        sent: dict[str, object] = {}
        for step in self.steps:
            sent |= step.sent
        return encode_value(self, {**sent, **self.read.format_options, **(self.write.options or {})})

    @staticmethod
    def decode(text: str) -> JobPlan:
        """Return the plan that `encode` was given."""
        spec: JobPlan = decode_value(text)
        return spec
