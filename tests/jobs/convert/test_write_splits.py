"""Splits of a dataset are written into one folder, in one step, and are opened by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import DestinationExists, UsageError

COUNT = 50


@pytest.fixture
def plain(tmp_path: Path) -> lading.Dataset:
    table = pa.table({"__key__": [f"{i:03}" for i in range(COUNT)], "url": [f"u{i // 4}" for i in range(COUNT)]})
    pq.write_table(table, tmp_path / "plain.parquet")
    return lading.open(tmp_path / "plain.parquet")


def _keys(dataset: lading.Dataset) -> list[str]:
    return [sample["__key__"] for sample in dataset]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet", "jsonl", "mds", "arrow"])
@pytest.mark.parametrize("by", [None, "url"])
def test_splits_are_written_together(plain: lading.Dataset, tmp_path: Path, target: str, by: str | None) -> None:
    parts = plain.split({"train": 0.6, "val": 0.4}, by=by)
    done = lading.convert(parts, tmp_path / "out", format=target, verify=True)
    assert done.verified
    assert done.samples == COUNT
    assert {name: one.samples for name, one in done.splits.items()} == {n: len(part) for n, part in parts.items()}
    for name, part in parts.items():
        assert _keys(lading.open(tmp_path / "out", split=name)) == _keys(part)
    with pytest.raises(DestinationExists):
        lading.convert(parts, tmp_path / "out", format=target)


def test_nothing_is_left_of_splits_that_fail(plain: lading.Dataset, tmp_path: Path) -> None:
    empty = plain.split({"train": 0.999, "val": 0.001})
    with pytest.raises(UsageError, match="the split 'val' would be empty"):
        lading.convert(empty, tmp_path / "out", format="parquet")
    parts = plain.split({"train": 0.6, "val": 0.4})
    with pytest.raises(UsageError, match="the name of a split becomes a folder"):
        lading.convert({"../up": parts["val"]}, tmp_path / "out", format="parquet")
    with pytest.raises(UsageError, match="of one split"):
        lading.convert(parts, tmp_path / "out", format="parquet", ledger=tmp_path / "ledger")
    with pytest.raises(UsageError, match="several splits need a folder"):
        lading.convert(parts, tmp_path / "out.parquet")
    with pytest.raises(UsageError, match="destination"):
        lading.convert(parts, tmp_path, format="parquet", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["plain.parquet"]
    assert lading.convert(parts, tmp_path / "out", format="parquet", dry_run=True).samples == COUNT
    assert [path.name for path in tmp_path.iterdir()] == ["plain.parquet"]


@pytest.mark.parametrize("target", ["webdataset", "parquet", "jsonl", "mds", "arrow", "csv"])
def test_a_split_that_no_group_is_in_is_written_with_a_warning(
    plain: lading.Dataset, tmp_path: Path, target: str
) -> None:
    parts = plain.split({"train": 0.999999, "val": 0.000001}, by="url")
    with pytest.warns(UserWarning, match="the split 'val' is empty: no group is in it.*--seed"):
        done = lading.convert(parts, tmp_path / "out", format=target)
    assert {name: one.samples for name, one in done.splits.items()} == {"train": COUNT, "val": 0}
    assert [len(lading.open(tmp_path / "out", split=name)) for name in parts] == [COUNT, 0]
    with pytest.warns(UserWarning, match="the split 'val' is empty"):
        parts["val"].write(tmp_path / "val", format=target)
