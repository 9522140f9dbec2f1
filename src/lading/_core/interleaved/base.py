"""What readers of items have in common (`_core.formats.base.ShardReader`)."""

from __future__ import annotations

from lading._core.formats.base import ShardReader

__all__ = ["documents_at_once"]


def documents_at_once(reader: ShardReader, count: int) -> tuple[int, int, int]:
    """Return `ShardReader.samples_at_once` of a shard of this number of documents, by the rows read at once."""
    rows = reader.rows_at_once()
    return (1 if rows == 1 else -(-rows * count // max(reader.num_rows(), 1))), 0, 0
