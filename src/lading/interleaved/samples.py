"""The view `samples`: a row is a sample, as the format gives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.rebatch import HELD_BATCHES, rebatched
from lading.errors import LadingError
from lading.formats.base import LooseReader, PickingReader, RowReader, SampleReader, ShardReader
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
        self.picks = reader if isinstance(reader, PickingReader) else None
        self.counts: Counter[str] = Counter()

    @property
    def whole_samples(self) -> SampleReader | None:
        """The reader, if it has each sample in one piece."""
        return self._reader if isinstance(self._reader, SampleReader) else None

    @property
    def get_sample(self) -> Callable[[int], dict[str, Any]] | None:
        """What gives one row by its number, if the reader has a quicker way than a table of it."""
        reader = self._reader
        if isinstance(reader, RowReader):
            return reader.get_sample
        if not isinstance(reader, SampleReader):
            return None
        decode, read = reader.decode_sample, reader.get_sample_data

        def get(row: int) -> dict[str, Any]:
            try:
                return decode(read(row))
            except LadingError as error:
                raise error.at(row=row) from None

        return get

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
        drifting: bool = False,  # noqa: ARG002 - the schema is known beforehand
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order; `schema` is for files that declare no types, elsewhere a format's types are its own."""
        held = max_bytes // HELD_BATCHES if views else max_bytes
        if schema is not None and isinstance(self._reader, LooseReader) and not self._reader.declares_types:
            batches = self._reader.typed_batches(schema, max_rows=max_rows, max_bytes=held, columns=columns)
        else:
            limits = {"max_rows": max_rows, "max_bytes": held}
            batches = self._reader.batches(**limits, columns=columns, views=views)
        yield from rebatched(batches, max_rows, held, max_bytes) if views else batches
        self.counts.update(self._reader.counts)

    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by ordinal, in the order asked for."""
        return self._reader.read(samples, columns)

    def declares_types(self) -> bool:
        """Whether the columns' types are the file's own, and not what its values happen to be."""
        return not isinstance(self._reader, LooseReader) or self._reader.declares_types

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
