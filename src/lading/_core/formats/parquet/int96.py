"""96-bit times, as Spark, Hive and Impala write them: a day and its nanoseconds, without a declared unit.

pyarrow converts them to nanoseconds, or to one requested unit for all of a file. It silently wraps values outside the
unit: for nanoseconds everything before 1677 and after 2262, such as the last day of 9999.

Source: parquet-format 2.11.0 `parquet.thrift` (Type.INT96); Spark's `ParquetReadSupport.SPARK_METADATA_KEY`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lading._core.arrow.casts import rebuilt
from lading._core.arrow.views import child_fields
from lading._core.formats.parquet.columns import leaf_arrays
from lading._core.formats.parquet.pages import GroupSpan
from lading._core.formats.parquet.schema import arrow_types_in
from lading._core.spelling import names_value
from lading.errors import Unrepresentable

__all__ = ["COARSEST", "FINEST", "WideTimes", "unit_of"]

COARSEST, FINEST = "s", "ns"
_UNITS = (FINEST, "us", "ms", COARSEST)
_MOST_SECONDS = 2**63 // 10**9
"""Seconds from 1970 that nanoseconds in 64 bits reach."""
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""Key of the schema that Spark stores in a file's metadata. Its times are microseconds."""


def unit_of(metadata: Mapping[bytes, bytes]) -> str:
    """Return the unit for the times of a file: the finest in its Arrow schema, Spark's, or nanoseconds.

    Raises:
        ArrowException, ValueError: the Arrow schema is damaged.
    """
    units = {unit for kind in arrow_types_in(metadata).values() for unit in _units(kind)}
    return next((unit for unit in _UNITS if unit in units), "us" if _SPARK in metadata else FINEST)


def _units(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_dictionary(kind):
        yield from _units(kind.value_type)
    if pa.types.is_timestamp(kind):
        yield kind.unit
    for child in child_fields(kind):
        yield from _units(child.type)


class WideTimes:
    """Check whether a unit holds the times of a run, by their seconds and, for finer digits, their nanoseconds.

    Args:
        readers: by unit: readers of the unit, of seconds, and of nanoseconds.
        unit: the unit.
        run: the row groups.
        leaves: the 96-bit columns.
        path: path of the file, for errors.
    """

    def __init__(
        self, readers: Mapping[str, pq.ParquetReader], unit: str, run: GroupSpan, leaves: Sequence[int], path: str
    ) -> None:
        self._readers, self._unit, self._run, self._leaves, self._path = readers, unit, run, leaves, path
        self._steps: dict[str, Iterator[pa.RecordBatch]] = {}

    def check(self, rows: int) -> None:
        """Check the next rows. Raises Unrepresentable, with the column."""
        for reader in self._readers.values():
            reader.set_batch_size(rows)
        self._steps = self._steps or {
            unit: reader.iter_batches(rows, self._run.groups, self._leaves, use_threads=False)
            for unit, reader in self._readers.items()
        }
        batches = {unit: next(steps) for unit, steps in self._steps.items()}
        mine = batches[self._unit]
        for name, one, seconds, fine in zip(
            mine.schema.names, mine.columns, batches[COARSEST].columns, batches[FINEST].columns, strict=True
        ):
            if not (_in_seconds(one, seconds.type).equals(seconds) and _in_nanoseconds(one, fine.type).equals(fine)):
                unit = _exact_unit(seconds, fine)
                raise Unrepresentable(
                    f"{self._run.name}: times in 96 bits that do not fit", file=self._path, column=name,
                    expected=f"what 64 bits of {self._unit} hold, exactly",
                    advice=f"{f'Read them with --option int96_unit={unit}' if unit else 'No unit holds them all'}, or "
                           f"leave the column out with --drop-columns {names_value([name])}.",
                )  # fmt: skip


def _exact_unit(seconds: pa.Array, fine: pa.Array) -> str | None:
    """Return the finest unit that holds times exactly, by their seconds and, wrapped, their nanoseconds."""
    whole, nanoseconds = (_numbers(column) for column in (seconds, fine))
    part = nanoseconds - whole * 10**9  # wrapped as the nanoseconds are, so the digits below a second are left
    for place, unit in enumerate(_UNITS):
        each = 1000**place
        if not (part % each).any() and (np.abs(whole) < _MOST_SECONDS * each).all():
            return unit
    return None


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    """Return the times in a column, at any depth, as numbers; 0 for a null."""
    found = [leaf.cast(pa.int64()).fill_null(0).to_numpy() for leaf in leaf_arrays(column)
             if pa.types.is_timestamp(leaf.type)]  # fmt: skip
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _in_seconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        # Zones are left out: only the number matters.
        whole = pc.floor_temporal(column.view(pa.timestamp(column.type.unit)), unit="second")
        return whole.cast(pa.timestamp(COARSEST)).view(kind)
    return rebuilt(column, kind, _in_seconds)


def _in_nanoseconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return nanoseconds as pyarrow returns them, wrapped outside 64 bits: the last digits are right."""
    if pa.types.is_timestamp(kind):
        each = pa.scalar(1000 ** _UNITS.index(column.type.unit), pa.int64())
        return pc.multiply(column.view(pa.int64()), each).view(kind)
    return rebuilt(column, kind, _in_nanoseconds)
