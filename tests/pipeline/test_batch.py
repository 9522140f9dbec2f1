"""A batch computes sample starts and sizes once, and slices keep them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.views import row_bytes
from lading._core.features.items import LINEAGE_KEY
from lading._core.pipeline.batch import Batch
from lading.errors import DataError


def items() -> Batch:
    ids, content = ["a", "a", "b", "c", "c", "c"], [b"1", None, b"333", b"", b"55555", b"6"]
    rows = pa.record_batch({"sample_id": ids, "binary_content": pa.array(content, pa.large_binary())})
    return Batch(rows.replace_schema_metadata({LINEAGE_KEY: '["x.tar", "y.tar"]'}), "interleaved")


@pytest.mark.parametrize("known", [True, False])
def test_slices_have_the_starts_and_sizes_of_their_rows(known: bool) -> None:
    batch = items()
    if known:
        assert batch.starts.tolist() == [0, 2, 3]
        assert batch.row_bytes.sum() == batch.size_bytes
    for first, stop in ((0, 2), (2, 6), (0, 6), (3, 3)):
        part = batch.slice(first, stop)
        fresh = Batch(part.rows, part.view)
        assert part.starts.tolist() == fresh.starts.tolist()
        assert part.row_bytes.tolist() == row_bytes(part.rows).tolist()
        assert part.size_bytes == fresh.size_bytes
        assert part.num_samples == fresh.num_samples


def test_values_in_files_count() -> None:
    ranges = ByteRanges([b"0123456789"], np.zeros(6, np.int64), np.arange(6), np.array([1, 0, 3, 0, 4, 1]))
    batch = items().with_rows(items().rows, ranges={"binary_content": ranges})
    assert batch.row_bytes.tolist() == [2, 1, 4, 1, 5, 2]
    part = batch.slice(2, 6)
    assert part.row_bytes.tolist() == [4, 1, 5, 2]
    assert part.ranges["binary_content"].length.tolist() == [3, 0, 4, 1]


def test_errors_name_the_files() -> None:
    with pytest.raises(DataError, match=r"bad \(in rows of x\.tar and 1 other files\)"), items().naming_files():
        raise DataError("bad")
