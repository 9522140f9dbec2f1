"""Views: the rows of one shard as samples or as interleaved items.

In the view `samples`, a row is a sample. In the view `interleaved`, a row is an item, and consecutive rows that share a
`sample_id` are a sample. A batch never cuts a sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.base import DEFAULT_SCAN, SampleReader, Scan, ShardReader
from lading._core.formats.findings import Finding
from lading._core.interleaved.image_lists import FIRST_DOCUMENTS, ImageLists, may_hold_lists
from lading.options import InterleavedOptions

__all__ = ["View", "documents_at_once"]


class View(ABC):
    """One open shard, read as a view.

    Attributes:
        column_reader: the shard's reader, if it can leave values in a file.
        copies: `read` returns copies, so that its rows do not keep the file open.
        has_errors: rows may have errors that an earlier job recorded.
        holds_items: a row of the shard is an item.
        has_members: rows are made of members of a tar.
    """

    column_reader: ShardReader | None = None
    copies: bool = False
    has_errors: bool = True
    holds_items: bool = False
    has_members: bool = False

    @cached_property
    def counts(self) -> Counter[str]:
        """Return counts for the summary of this shard, by a short phrase ("members that no JSON names, dropped")."""
        return Counter()

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch; see `ShardReader.read_share`."""
        return None

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the exact schema of all rows, without reading a payload."""

    @abstractmethod
    def index(self) -> pa.Table | None:
        """Return an index for `ShardFile.index` that saves another scan of the shard; None if there is none.

        It holds references and names, no payload.
        """

    @abstractmethod
    def num_samples(self) -> int:
        """Return the number of samples, by the cheapest means."""

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows of the file or behind it, and the row where.

        The rows are ascending. The number of rows is the place behind the last sample.
        """
        return rows, rows

    @abstractmethod
    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order: whole samples, at most `max_rows` rows and `max_bytes` of payload a batch.

        A larger sample is a batch of its own. `schema` names column types where the view has a choice (JSON values).
        Columns that a batch's rows do not have may be missing.
        """

    @abstractmethod
    def read(self, samples: NDArray[np.int64], scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, in the given order. Only `columns` of `scan` count."""

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again; see `ShardReader.detach`."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close files and maps."""

    def declares_types(self) -> bool:
        """Return whether the column types come from the file or a stored schema, not from the values."""
        return True

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems in the order of rows. Reads no payload."""
        return ()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options completed with what this shard decides for the whole dataset."""
        return options

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image, by the first documents of the shard; of items only."""
        found, counts = ImageLists(), Counter(self.counts)
        names = [field.name for field in self.schema() if may_hold_lists(field)]
        scan = Scan(["sample_id", "position", "modality", *names], max_rows=FIRST_DOCUMENTS)
        for batch in self.batches(scan) if names else ():
            found.add_rows(batch, names)
            if found.is_full:
                break
        self.counts.clear()  # these documents are read again
        self.counts.update(counts)
        return found

    @property
    def held_bytes(self) -> int | None:
        """Return the memory that the open shard takes between two reads; see `ShardReader.held_bytes`."""
        return None

    @property
    def whole_samples(self) -> SampleReader | None:
        """Return the shard's reader, if each sample is contiguous in the file."""
        return None

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many samples are read to read one, how many if most are wanted, and what is kept of both.

        See `rows_at_once`, `rows_of_batch` and `kept_bytes` of `ShardReader`.
        """
        return 1, 0, 0

    def sample_getter(self) -> Callable[[int], dict[str, Any] | None] | None:
        """Return a function from a row number to one row, if that is faster than reading a table."""
        return None


def documents_at_once(reader: ShardReader, count: int) -> tuple[int, int, int]:
    """Return `View.samples_at_once` of a shard of so many documents: how many the rows have that are read at once."""
    rows = reader.rows_at_once()
    return (1 if rows == 1 else -(-rows * count // max(reader.num_rows(), 1))), 0, 0
