"""`split=` opens the folder of a split, in every verb alike."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lading
from lading.errors import SeveralSplits, SourceNotFound, UsageError


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    for name, rows in (("train", [1, 2, 3]), ("val", [4])):
        with lading.writer(tmp_path / "set" / name, format="mds") as writer:
            writer.write_batch(pa.table({"n": rows}))
    return tmp_path / "set"


@pytest.mark.parametrize("place", ["set", "set/"])
def test_a_split_is_the_folder_of_its_name(splits: Path, place: str) -> None:
    with lading.open(f"{splits.parent}/{place}", split="train") as dataset:
        assert [row["n"] for row in dataset] == [1, 2, 3]
        assert dataset.shards[0].path == f"{splits}/train/shard.00000.mds"
    with lading.open([splits, splits], split="val") as dataset:
        assert [row["n"] for row in dataset] == [4, 4]


@pytest.mark.parametrize("manifests", [True, False])
def test_the_names_in_the_error_about_splits_are_names_of_splits(splits: Path, manifests: bool) -> None:
    if not manifests:  # as MosaicML leaves its folders
        for folder in splits.iterdir():
            shutil.rmtree(folder / "_lading")
    with pytest.raises(SeveralSplits) as error:
        lading.open(splits)
    assert list(error.value.splits) == ["train", "validation"]
    with lading.open(splits, split="validation") as dataset:
        assert [row["n"] for row in dataset] == [4]
        assert dataset[0] == {"n": 4}


def test_every_verb_takes_a_split(splits: Path, tmp_path: Path) -> None:
    assert lading.info(splits, split="val").samples == 1
    assert lading.verify(splits, split="train").ok
    assert lading.digest(splits, split="val") == lading.digest(splits / "val")
    assert lading.convert(splits, tmp_path / "parquet", format="parquet", split="train", workers=2).samples == 3
    assert lading.salvage(splits, tmp_path / "saved", split="val").samples == 1
    lading.open(splits, split="train")[1:].write(tmp_path / "rest", format="jsonl")
    assert [row["n"] for row in lading.open(tmp_path / "rest")] == [2, 3]


def test_a_split_that_is_not_there_or_not_a_text(splits: Path) -> None:
    with pytest.raises(SourceNotFound, match="set/test"):
        lading.open(splits, split="test")
    with pytest.raises(UsageError, match="text"):
        lading.open(splits, split=3)  # type: ignore[arg-type] # what is refused
