"""The view `samples`: a row is a sample, as the format gives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.rebatch import HELD_BATCHES, rebatched
from lading._core.formats.base import DEFAULT_SCAN, SampleReader, Scan, ShardReader
from lading._core.interleaved.base import View

__all__ = ["SamplesView"]


class SamplesView(View):
    """A shard whose rows are samples.

    Args:
        reader: its reader.
        remote: whether it is in a store of high latency.

    Attributes:
        column_reader: the reader, if it can leave values in a file.
        counts: counts of omitted data.
    """

    def __init__(self, reader: ShardReader, *, remote: bool = False) -> None:
        self._reader, self._remote = reader, remote
        self.column_reader = reader if reader.slices_columns else None
        self.copies = not reader.slices_columns

    @property
    def counts(self) -> Counter[str]:
        """What the reader reported, by a short phrase."""
        return self._reader.counts

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch."""
        return self._reader.read_share

    @property
    def held_bytes(self) -> int | None:
        """Return the memory that the reader takes between two reads."""
        return self._reader.held_bytes

    @property
    def whole_samples(self) -> SampleReader | None:
        """Return the reader, if each sample is contiguous in the file."""
        return self._reader.whole_samples

    def sample_getter(self) -> Callable[[int], dict[str, Any] | None] | None:
        """Return a function from a row number to one row, if the reader has a faster way than a table."""
        return self._reader.sample_getter()

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many rows are read to read one, how many if most are wanted, and what is kept of both."""
        return self._reader.rows_at_once(), self._reader.rows_of_batch(), self._reader.kept_bytes

    def schema(self) -> pa.Schema:
        """Return the exact schema of all rows."""
        return self._reader.schema()

    def index(self) -> pa.Table:
        """Return the reader's index."""
        return self._reader.index()

    def num_samples(self) -> int:
        """Return the number of rows."""
        return self._reader.num_rows()

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; `schema` is for files that declare no types, other formats have their own."""
        if not scan.views:
            return self._reader.batches(scan)
        held = scan.max_bytes // HELD_BATCHES
        batches = self._reader.batches(replace(scan, max_bytes=held))
        # Payload of a remote shard may be held since the walk over its headers: a batch waits for no more than that.
        return rebatched(batches, scan.max_rows, held, held if self._remote else scan.max_bytes)

    def read(self, samples: NDArray[np.int64], scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal, in the given order."""
        return self._reader.read(samples, scan)

    def declares_types(self) -> bool:
        """Return whether the column types come from the file, not from the values."""
        return self._reader.declares_types

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again; see `ShardReader.detach`."""
        return self._reader.detach()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
