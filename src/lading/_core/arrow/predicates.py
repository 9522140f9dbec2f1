"""Which rows may pass an expression, by facts that are known before they are read: statistics, values of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Predicate"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """An expression of pyarrow. Rows for which it is false or null are dropped.

    Attributes:
        expression: over columns of the schema.
        schema: the columns, with the types that the expression is made for.
    """

    expression: pc.Expression
    schema: pa.Schema

    def possible(self, known: Sequence[pc.Expression | None]) -> set[int]:
        """Return the numbers of the groups of rows in which a row may pass.

        Args:
            known: for each group, what is true of all of its rows, over columns of the schema; None if nothing is.

        Raises:
            ArrowInvalid: the expression, or a fact, does not fit the schema.
        """
        from pyarrow import dataset, fs

        # Fragments of a dataset that is never read: only the known facts of their rows matter.
        parquet, nowhere = dataset.ParquetFileFormat(), fs.LocalFileSystem()
        fragments = [
            parquet.make_fragment(str(group), nowhere, partition_expression=facts) for group, facts in enumerate(known)
        ]
        whole = dataset.FileSystemDataset(fragments, self.schema, parquet, nowhere)
        return {int(fragment.path) for fragment in whole.get_fragments(filter=self.expression)}
