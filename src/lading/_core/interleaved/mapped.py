"""A view of the rows of another view with other columns or types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.base import DEFAULT_SCAN, Change, Scan
from lading._core.formats.findings import Finding
from lading._core.interleaved.base import View
from lading._core.interleaved.image_lists import ImageLists
from lading.errors import errors_at
from lading.options import InterleavedOptions

__all__ = ["MappedView"]


class MappedView(View):
    """The rows of a view, changed. What concerns samples and the file comes from the view.

    Values come from `read` and `batches` alone: what gives values in another way has the columns of the file.

    Args:
        view: the shard.
        change: the columns and types of rows.
    """

    def __init__(self, view: View, change: Change) -> None:
        self._view, self._change = view, change
        self.copies, self.has_errors = view.copies, view.has_errors
        self.holds_items = view.holds_items
        self.has_members = view.has_members and not change.declares_types

    # Rows

    def schema(self) -> pa.Schema:
        """Return the schema of changed rows."""
        return self._change.schema_after(self._view.schema)

    def declares_types(self) -> bool:
        """Return whether the change, or the view, knows types before it reads values."""
        return self._change.declares_types or self._view.declares_types()

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, changed."""
        first = 0
        for batch in self._view.batches(self._needed(scan)):
            with errors_at(file=self._change.path, first_row=first):
                changed = self._change.apply(batch, scan.columns, np.arange(first, first + len(batch)))
            yield changed
            first += len(batch)

    def read(self, samples: NDArray[np.int64], scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, changed."""
        with errors_at(file=self._change.path, first_row=None):
            found = self._view.read(samples, Scan(self._needed(scan).columns))
            return self._change.apply(found, scan.columns, samples)

    def _needed(self, scan: Scan) -> Scan:
        needed = self._change.needed(scan, self._view.schema)
        return replace(scan, columns=[]) if needed is None else needed

    # Samples

    @property
    def counts(self) -> Counter[str]:
        """Counts of the shard."""
        return self._view.counts

    def num_samples(self) -> int:
        """Return the number of samples."""
        return self._view.num_samples()

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows or behind it, and the row where."""
        return self._view.samples_from(rows)

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many samples of the shard are read to read one (`View.samples_at_once`)."""
        return self._view.samples_at_once()

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems in the order of rows."""
        return self._view.layout_findings()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options completed with what the shard decides."""
        return self._view.settled(options)

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image."""
        return self._view.image_lists()

    # The file

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch."""
        return self._view.read_share

    @property
    def held_bytes(self) -> int | None:
        """Return the memory that the open shard takes between two reads."""
        return self._view.held_bytes

    def index(self) -> pa.Table | None:
        """Return the index of the shard."""
        return self._view.index()

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again."""
        return self._view.detach()

    def close(self) -> None:
        """Close files and maps."""
        self._view.close()
