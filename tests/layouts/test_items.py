"""The view `interleaved` of files whose rows are items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import DataError

ROWS, BAD = 300, 220


@pytest.mark.parametrize("position", [None, 1 << 40])
def test_a_bad_item_is_told_by_its_row_in_the_file(tmp_path: Path, position: Any) -> None:
    """However it is read: by small batches, by large ones, or as one of the samples that were asked for."""
    items = {
        "sample_id": [f"s{i // 2:04d}" for i in range(ROWS)],
        "position": pa.array([position if i == BAD else i % 2 for i in range(ROWS)], pa.int64()),
        "modality": ["text"] * ROWS,
        "text_content": ["t"] * ROWS,
    }
    pq.write_table(pa.table(items), tmp_path / "a.parquet", row_group_size=100)
    dataset = lading.open(tmp_path / "a.parquet", view="interleaved")
    for max_rows in (7, 64, 1000):
        with pytest.raises(DataError, match=r"a\.parquet") as caught:
            list(dataset.batches(max_rows=max_rows))
        assert caught.value.row == BAD
    with pytest.raises(DataError, match=r"a\.parquet") as caught:
        dataset.take([3, BAD // 2, 0])
    assert caught.value.row == BAD
    with pytest.raises(DataError, match=r"a\.parquet") as caught:
        lading.convert(tmp_path / "a.parquet", tmp_path / "out", format="parquet", view="interleaved")
    assert caught.value.row == BAD
