"""A view: how the rows of one shard are taken, as samples or as interleaved items.

In the view `samples` a row is a sample. In the view `interleaved` a row is an item, and the consecutive rows that share
a `sample_id` are a sample; a batch never cuts one.
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

from lading.formats.base import Finding, SampleReader, ShardReader
from lading.options import InterleavedOptions

__all__ = ["View"]


class View(ABC):
    """One open shard taken as a view.

    Attributes:
        picks: the shard's reader, if it may leave values where they lie in a file.
        copies: `read` returns copies, so that nothing keeps the file open.
        has_errors: rows may have errors that an earlier job wrote down.
        holds_items: a row of the shard is an item.
        has_members: rows are made of members of a tar.
    """

    picks: ShardReader | None = None
    copies: bool = False
    has_errors: bool = True
    holds_items: bool = False
    has_members: bool = False

    @cached_property
    def counts(self) -> Counter[str]:
        """What the summary should say of this shard, by a short phrase ("members that no JSON names, dropped")."""
        return Counter()

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The exact schema of all rows, found without reading a payload."""

    @abstractmethod
    def index(self) -> pa.Table | None:
        """What spares looking through the shard again, to be handed back as `ShardFile.index`; None if nothing does.

        Made of references and names, no payload.
        """

    @abstractmethod
    def num_samples(self) -> int:
        """Number of samples, by the cheapest means."""

    @abstractmethod
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
        """All rows in order, whole samples, at most `max_rows` rows and `max_bytes` of payload a batch.

        A sample that is larger comes alone. `schema` names the types to build columns in where the view has a choice
        (values out of JSON). Columns that a batch's rows do not have may be missing. With `views`, payload in memory
        may come as `binary_view`, good for a sink or a consumer at once. With `drifting`, batches may differ in columns
        and types, each as its own rows ask for it, where a schema of all would take a look at all beforehand.
        """

    @abstractmethod
    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of samples by ordinal, in the order asked for."""

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again; see `ShardReader.detach`."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give up files and maps."""

    def declares_types(self) -> bool:
        """Whether the columns' types are the file's own, or were stored, and not what its values happen to be."""
        return True

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems of the order of rows. Reads no payload."""
        return ()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options with what this shard's samples decide for the whole dataset."""
        return options

    @property
    def whole_samples(self) -> SampleReader | None:
        """The shard's reader, if each sample lies in one piece."""
        return None

    def sample_getter(self) -> Callable[[int], dict[str, Any]] | None:
        """Return what gives one row by its number, if that is faster than a table of it."""
        return None
