"""The view `samples`: a row is a sample, as the format gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.rebatch import HELD_BATCHES, rebatched
from lading.formats.base import SampleReader, ShardReader
from lading.interleaved.base import View

__all__ = ["SamplesView"]


class SamplesView(View):
    """A shard whose rows are samples.

    Attributes:
        picks: the reader, if it may leave values where they lie.
        counts: what was left out, and how often.
    """

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader
        self.picks = reader if reader.picks else None
        self.copies = not reader.picks

    @property
    def whole_samples(self) -> SampleReader | None:
        """The reader, if each sample lies in one piece."""
        return self._reader.whole_samples

    def sample_getter(self) -> Callable[[int], dict[str, Any]] | None:
        """Return what gives one row by its number, if the reader has a faster way than a table of it."""
        return self._reader.sample_getter()

    def schema(self) -> pa.Schema:
        """The exact schema of all rows."""
        return self._reader.schema()

    def index(self) -> pa.Table:
        """The reader's index."""
        return self._reader.index()

    def num_samples(self) -> int:
        """Number of rows."""
        return self._reader.num_rows()

    def batches(
        self,
        *,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        views: bool = False,
        drifting: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order; `schema` is for files that declare no types, elsewhere a format's types are its own."""
        held = max_bytes // HELD_BATCHES if views else max_bytes
        batches = self._reader.batches(max_rows=max_rows, max_bytes=held, columns=columns, views=views, schema=schema)
        yield from rebatched(batches, max_rows, held, max_bytes) if views else batches
        self.counts.update(self._reader.counts)

    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by ordinal, in the order asked for."""
        return self._reader.read(samples, columns)

    def declares_types(self) -> bool:
        """Whether the columns' types are the file's own, and not what its values happen to be."""
        return self._reader.declares_types

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again; see `ShardReader.detach`."""
        return self._reader.detach()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
