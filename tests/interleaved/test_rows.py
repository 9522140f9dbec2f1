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


@pytest.mark.soak
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


@pytest.mark.soak
@pytest.mark.parametrize("column", ["binary_content", "thumb"])
@pytest.mark.parametrize("sizes", [(100, 100_000), (100_000, 100), (None, 100_000), (100_000, 10, None, 90_000)])
def test_a_sample_in_batches_of_small_and_of_large_values_is_whole(
    tmp_path: Path, column: str, sizes: tuple[int | None, ...]
) -> None:
    """Of a mapped file large values are references, small ones views; one column cannot be both."""
    values = pa.array([None if size is None else b"v" * size for size in sizes], pa.large_binary())
    ids = ["one", *["two"] * len(sizes), "three"]
    held = pa.chunked_array([[None], values, [None]], pa.large_binary()).combine_chunks()
    rows = pa.table(
        {
            "sample_id": ids,
            "position": pa.array(range(len(ids)), pa.int32()),
            "modality": ["image"] * len(ids),
            "content_type": ["image/png"] * len(ids),
            "binary_content": pa.nulls(len(ids), pa.large_binary()),
            "thumb": pa.nulls(len(ids), pa.large_binary()),
        }
    )
    rows = rows.set_column(rows.schema.get_field_index(column), column, held)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1)
    pq.write_table(rows, tmp_path / "a.parquet")
    assert lading.digest(tmp_path / "a.arrow") == lading.digest(tmp_path / "a.parquet")
    assert not lading.verify(tmp_path / "a.arrow", deep=True).findings
    lading.convert(tmp_path / "a.arrow", tmp_path / "out", format="parquet", verify=True)
    [written] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(written).select(rows.schema.names).to_pylist() == rows.to_pylist()
