"""Whole samples of item rows that come in several calls: the last sample of a call may go on in the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lading._core.arrow.align import align_table, reconcile_schema, union_schema
from lading._core.arrow.references import concat
from lading._core.arrow.views import is_text, present, take_rows, take_values, total_bytes
from lading._core.features.items import sample_starts
from lading._core.pipeline.seen_ids import SeenIds, long_hashes
from lading.errors import DataError

__all__ = ["OpenSample", "has_ids"]


def has_ids(rows: pa.RecordBatch) -> bool:
    """Return whether each row has a text as its `sample_id`. Other rows are refused where they are written."""
    if rows.schema.get_field_index("sample_id") < 0:  # not there, or there twice
        return False
    ids = rows.column("sample_id")
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    return bool(is_text(kind) and present(ids).all())


class OpenSample:
    """Holds the rows of the last sample until the next one begins. Memory: these rows, and 16 bytes a sample.

    Attributes:
        held_bytes: payload of these rows.
    """

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._id: bytes | None = None
        self._seen = SeenIds()
        self.held_bytes = 0

    @property
    def num_rows(self) -> int:
        """Number of the rows that are held."""
        return sum(part.num_rows for part in self._parts)

    def add(self, rows: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        """Take rows; give rows of whole samples: those of earlier calls first, and not those of the last sample.

        Args:
            rows: one at least, with ids (`has_ids`).
            first_row: number of the first row, for errors.

        Raises:
            DataError: a sample has the id of an earlier one, and is not the sample that was open.
        """
        starts = sample_starts(rows.column("sample_id"))
        ids = take_values(rows.column("sample_id"), starts).cast(pa.large_string()).cast(pa.large_binary())
        goes_on = int(ids[0].as_py() == self._id)
        known = self._seen.distinct(long_hashes(ids[goes_on:]))
        if known < len(ids) - goes_on:
            at = goes_on + known
            name = ids[at].as_py().decode(errors="backslashreplace")
            raise DataError(
                "sample ids are not contiguous: an earlier id appears again", sample=name,
                column="sample_id", row=first_row + int(starts[at]), found=repr(name),
                advice="Sort the rows by sample_id and position, or write such samples into files of their own: "
                "write_batch(…, duplicate_ids='apart').",
            )  # fmt: skip
        last = int(starts[-1])
        stop = last if len(ids) == 1 else int(starts[1])  # of the rows that go on
        if goes_on:
            self._hold(rows, 0, rows.num_rows if len(ids) == 1 else stop)
            if len(ids) == 1:
                return
        ended = self.end()
        if ended is not None:
            yield ended
        first = stop if goes_on else 0
        if last > first:
            yield rows.slice(first, last - first)
        self._hold(rows, last, rows.num_rows)
        self._id = ids[-1].as_py()

    def end(self) -> pa.RecordBatch | None:
        """Return the rows of the open sample, which is whole then; None if there is none."""
        parts, self._parts, self._id, self.held_bytes = self._parts, [], None, 0
        return _joined(parts) if parts else None

    def _hold(self, rows: pa.RecordBatch, first: int, stop: int) -> None:
        """Hold some rows as copies: their batch may be large, and its memory may change."""
        part = take_rows(rows, np.arange(first, stop))
        self._parts.append(part)
        self.held_bytes += total_bytes(part)


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one sample as one batch."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0].schema.remove_metadata()
    if not all(part.schema.remove_metadata().equals(first, check_metadata=True) for part in parts[1:]):
        parts = [align_table(part, reconcile_schema(part.schema)) for part in parts]
        schema, _ = union_schema((f"call {number}", part.schema) for number, part in enumerate(parts, 1))
        parts = [align_table(part, schema) for part in parts]
    [rows] = concat(parts).combine_chunks().to_batches()
    return rows
