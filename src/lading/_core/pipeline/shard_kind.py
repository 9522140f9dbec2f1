"""The properties that all shards of a dataset share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.formats.format import AnyFormat, file_names
from lading._core.interleaved.tar_writer import Roles

__all__ = ["CHECKSUMS", "OnDuplicateId", "ShardKind"]

OnDuplicateId: TypeAlias = Literal["error", "apart"]
"""What to do with a sample whose id an earlier sample of the shard has: raise an error, or begin another shard. In a
tar, the rule applies to neighbours with the same key."""

CHECKSUMS = ("samples", "files", "none")
"""Which checksums are kept: of files and their extents, of files, or of lading's own files only."""

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class ShardKind:
    """The properties that all shards of a dataset share.

    Attributes:
        format: their format.
        view: `samples` or `interleaved`.
        options: options of the format.
        roles: for interleaved data: which rows each passthrough column belongs to.
        checksums: which checksums are kept, one of `CHECKSUMS`.
    """

    format: AnyFormat
    view: str
    options: Any
    roles: Roles
    checksums: str = "samples"

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)

    @property
    def takes_members(self) -> bool:
        """Whether rows become members of tars: each row has a key, and the manifest keeps the columns' types.

        Members that come from another tar (`fields="given"`) keep the types that they had there.
        """
        return self.takes_keys and self.format.written(_NO_COLUMNS, self.options).needs_schema

    @property
    def takes_keys(self) -> bool:
        """Whether rows become members of tars, whose readers join neighbours of one key to one sample."""
        return self.format.info.interleaved == "members" and not self.row_layout.has_items

    def file_names(self, path: str) -> list[str]:
        """Return the files of a shard, its own first."""
        return file_names(path, self.format.endings(self.options))

    def restores(self, schema: pa.Schema) -> bool:
        """Whether rows of this schema are read back unchanged only with the types that the manifest keeps."""
        if not self.row_layout.types_by_format:
            return False
        return self.format.written(schema, self.options).needs_schema
