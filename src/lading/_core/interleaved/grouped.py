"""The rows of each sample brought together, for tables of items whose samples lie in pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.hashing import hash_strings
from lading._core.arrow.views import is_text, is_view, join
from lading._core.formats.base import Scan, ShardReader
from lading._core.formats.mapped import selected_rows

__all__ = ["grouped"]

_ROWS = 65_536


def grouped(reader: ShardReader) -> ShardReader:
    """Return a reader that has the rows of each `sample_id` together, in the order of positions.

    Samples come in the order of their first rows. Reads the columns `sample_id` and `position` once. Peak memory: about
    50 bytes a row. Batches read their rows by number, as many as their limit of bytes allows, so a shard whose rows are
    in no order is read once for each such part.

    The reader itself is returned if its rows are in this order, and if they are not items.
    """
    order = _order(reader)
    return reader if order is None else selected_rows(reader, order, window_rows=_ROWS)


def _order(reader: ShardReader) -> NDArray[np.int64] | None:
    """Return the numbers of the rows in the order of samples and positions; None if that changes nothing."""
    names = ["sample_id", "position"]
    hashes, positions = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    if not {*names} <= {*reader.schema().names}:
        return None
    for batch in reader.batches(Scan(names)):
        ids, position = batch.column("sample_id"), batch.column("position")
        if ids.null_count or not pa.types.is_integer(position.type) or not _is_name(ids.type):
            return None  # the view says what is wrong
        plain = ids if is_text(ids.type) and not is_view(ids.type) else join(ids).cast(pa.large_string())
        hashes.append(hash_strings(plain))
        positions.append(np.asarray(pc.fill_null(position.cast(pa.int64(), safe=False), 0), np.int64))
    _, first, sample = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    order = np.lexsort((np.concatenate(positions), first[sample]))
    return None if np.array_equal(order, np.arange(len(order))) else order


def _is_name(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)
