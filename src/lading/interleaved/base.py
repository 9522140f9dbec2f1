"""A view: how the rows of one shard are taken, as samples or as interleaved items.

In the view `samples` a row is a sample. In the view `interleaved` a row is an item, and the consecutive rows that share
a `sample_id` are a sample; a batch never cuts one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats.base import Finding

__all__ = ["LooseView", "View"]


class View(Protocol):
    """One open shard taken as a view.

    Attributes:
        counts: what the summary should tell of this shard, by a short phrase ("members no JSON names, dropped").
    """

    counts: Counter[str]

    def schema(self) -> pa.Schema:
        """The exact schema of all rows, found without reading a payload."""

    def index(self) -> pa.Table | None:
        """What spares looking through the shard again, to be handed back as `ShardFile.index`; None if nothing does.

        Made of references and names, no payload.
        """

    def num_samples(self) -> int:
        """Number of samples, by the cheapest means."""

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

    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of samples by ordinal, in the order asked for."""

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems of the order of rows. Reads no payload."""
        return ()

    def close(self) -> None:
        """Give up files and maps."""


@runtime_checkable
class LooseView(Protocol):
    """A view whose types may be what values happen to be."""

    def declares_types(self) -> bool:
        """Whether the columns' types are the file's own, or were kept."""
