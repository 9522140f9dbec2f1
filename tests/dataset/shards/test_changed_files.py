"""Shards that others change while lading reads them: an error that names the file, never bytes of two versions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import lading
from lading.errors import CorruptShard, DatasetReplaced

_FORMATS = ["webdataset", "parquet", "arrow", "mds", "jsonl", "csv"]
_LETTERS = "abcdefgh"


def written(folder: Path, fmt: str, letters: str, *, manifest: bool = True, size: int = 90) -> Path:
    """A dataset whose shards have the same sizes, whichever way the letters are ordered."""
    with lading.writer(folder, format=fmt, rows_per_shard=4) as writer:
        for letter in letters:
            writer.write({"__key__": letter, "txt": letter * size})
    if not manifest:
        shutil.rmtree(folder / "_lading")
    return folder


def shards_of(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.name.startswith("shard"))


@pytest.mark.cases(12)
@pytest.mark.parametrize("size", [90, 20_000])
@pytest.mark.parametrize("fmt", _FORMATS)
def test_a_sample_of_a_file_that_was_written_to_is_an_error(tmp_path: Path, fmt: str, size: int) -> None:
    ds = lading.open(written(tmp_path / "a", fmt, _LETTERS, size=size))
    assert [sample["txt"] for sample in map(ds.__getitem__, range(len(ds)))] == [letter * size for letter in _LETTERS]
    others = shards_of(written(tmp_path / "b", fmt, _LETTERS[::-1], size=size))
    for old, new in zip(shards_of(tmp_path / "a"), others, strict=True):
        with old.open("r+b") as file:  # the same inode
            file.write(new.read_bytes())
            file.truncate()
    for number in range(len(ds)):
        with pytest.raises((CorruptShard, DatasetReplaced), match="shard") as error:
            ds[number]
        assert error.value.file in map(str, shards_of(tmp_path / "a"))
        with pytest.raises((CorruptShard, DatasetReplaced), match="shard"):
            ds.take([number])


@pytest.mark.cases(4)
@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "arrow", "mds"])
@pytest.mark.parametrize("manifest", [True, False])
def test_shards_that_are_replaced_while_they_are_converted_are_an_error(
    tmp_path: Path, fmt: str, *, manifest: bool
) -> None:
    source = written(tmp_path / "a", fmt, _LETTERS, manifest=manifest)
    other = written(tmp_path / "b", fmt, _LETTERS[::-1], manifest=manifest)
    seen: list[str] = []

    def replace_all(sample: Any) -> Any:
        seen.append(sample["__key__"])
        if len(seen) == len(_LETTERS):  # behind the look at the first samples
            for new in shards_of(other):
                os.replace(new, source / new.name)
        return sample

    with pytest.raises((CorruptShard, DatasetReplaced), match="was replaced"):
        lading.open(source).map(replace_all).write(tmp_path / "out", "jsonl")
    assert not (tmp_path / "out").exists()


def test_a_shard_that_is_replaced_before_it_is_opened_is_an_error(tmp_path: Path) -> None:
    source, other = written(tmp_path / "a", "parquet", _LETTERS), written(tmp_path / "b", "parquet", _LETTERS[::-1])
    ds = lading.open(source)
    for new in shards_of(other):
        os.replace(new, source / new.name)
    with pytest.raises(DatasetReplaced, match="replaced or changed since the dataset was opened"):
        ds[len(ds) - 1]


def test_a_loose_file_that_grew_is_an_error(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("old")
        (tmp_path / f"{number}.jpg").write_bytes(b"\xff\xd8")
    ds = lading.open(tmp_path).with_decode(False)
    assert ds[4]["txt"] == "old"
    (tmp_path / "4.txt").write_text("a longer caption")
    for read in (lambda: ds[4], lambda: list(ds.batches()), lambda: ds.take([4])):
        with pytest.raises(CorruptShard, match=r"4\.txt.*replaced"):
            read()
