"""Times in 96 bits, as Spark, Hive and Impala write them: a day and the nanoseconds of it, in no unit that is told.

pyarrow makes nanoseconds of them, or another unit that is asked for, of all of a file. What the unit does not hold it
wraps without a word: in nanoseconds that is all before 1677 and behind 2262, such as the last day of 9999.

Source: parquet-format 2.11.0 `parquet.thrift` (Type.INT96); Spark's `ParquetReadSupport.SPARK_METADATA_KEY`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lading.casts import rebuilt
from lading.errors import Unrepresentable
from lading.formats._parquet_pages import Run
from lading.formats._parquet_schema import told_types
from lading.views import child_fields

__all__ = ["COARSEST", "WideTimes", "unit_of"]

COARSEST = "s"
_UNITS = ("ns", "us", "ms", COARSEST)
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""Key of the schema that Spark puts into a file's metadata. Its times are microseconds."""


def unit_of(metadata: Mapping[bytes, bytes]) -> str:
    """The unit for the times of a file: the finest that its Arrow schema tells, Spark's, or nanoseconds.

    Raises:
        ArrowException, ValueError: the Arrow schema is damaged.
    """
    told = {unit for kind in told_types(metadata).values() for unit in _units(kind)}
    return next((unit for unit in _UNITS if unit in told), "us" if _SPARK in metadata else "ns")


def _units(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_dictionary(kind):
        yield from _units(kind.value_type)
    if pa.types.is_timestamp(kind):
        yield kind.unit
    for child in child_fields(kind):
        yield from _units(child.type)


class WideTimes:
    """Looks whether a unit holds the times of a run, by what they are in seconds.

    Args:
        readers: one that gives the unit, and one that gives seconds.
        unit: the unit.
        run: the row groups.
        leaves: the columns of 96 bits.
        path: of the file, for errors.
    """

    def __init__(
        self, readers: Sequence[pq.ParquetReader], unit: str, run: Run, leaves: Sequence[int], path: str
    ) -> None:
        self._readers, self._unit, self._run, self._leaves, self._path = readers, unit, run, leaves, path
        self._steps: list[Iterator[pa.RecordBatch]] = []

    def check(self, rows: int) -> None:
        """Look at the next rows. Raises Unrepresentable, with the column."""
        for reader in self._readers:
            reader.set_batch_size(rows)
        self._steps = self._steps or [
            reader.iter_batches(rows, self._run.groups, self._leaves, use_threads=False) for reader in self._readers
        ]
        fine, seconds = map(next, self._steps)
        for name, one, other in zip(fine.schema.names, fine.columns, seconds.columns, strict=True):
            if not _in_seconds(one, other.type).equals(other):
                raise Unrepresentable(
                    f"{self._run.name}: times in 96 bits that do not fit", file=self._path, column=name,
                    expected=f"what 64 bits of {self._unit} hold",
                    advice="Leave the column out with --columns, or write it anew: pyarrow gives microseconds with "
                    "coerce_int96_timestamp_unit='us'.",
                )  # fmt: skip


def _in_seconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        # Zones are left out: what counts is the number.
        whole = pc.floor_temporal(column.view(pa.timestamp(column.type.unit)), unit="second")
        return whole.cast(pa.timestamp(COARSEST)).view(kind)
    return rebuilt(column, kind, _in_seconds)
