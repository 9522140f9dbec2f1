"""Splits and excludes of megatron-energon, and the files that it needs, as its version 7.4.1 reads and writes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import lading
from golden_cases import Golden
from in_process import by_tasks
from lading.errors import BadReference, DataError, NotFound, SeveralSplits, SourceNotFound, UsageError
from tars import energon_index


@pytest.fixture
def prepared(golden: Golden, tmp_path: Path) -> Path:
    """Four tars that `energon prepare` looked through, with two splits."""
    folder = Path(shutil.copytree(golden("wds") / "energon", tmp_path / "set"))
    (folder / "expected.json").unlink()
    return folder


def keys(source: object, **opening: Any) -> list[str]:
    with lading.open(source, **opening).with_decode(False) as dataset:  # type: ignore[arg-type]
        return [row["__key__"] for row in dataset]


def told(folder: Path, text: str, name: str = "split.yaml") -> None:
    (folder / ".nv-meta" / "split.yaml").unlink(missing_ok=True)
    (folder / ".nv-meta" / name).write_text(text)


def tars(folder: Path, *numbers: int) -> list[str]:
    return [key for number in numbers for key in keys(folder / f"train-00000{number}.tar")]


@pytest.mark.soak
def test_splits_are_those_that_energon_wrote(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(SeveralSplits, match=r"train, val.*split='train'"):
        lading.open(prepared)
    assert keys(prepared, split="train") == tars(prepared, 2, 1)
    assert keys(prepared, split="val") == tars(prepared, 3, 0)
    with lading.open(prepared, split="val").with_decode(False) as dataset:
        assert (len(dataset), len(dataset.shards)) == (8, 2)
    with pytest.raises(SourceNotFound, match="expected train, val"):
        lading.open(prepared, split="test")
    for deep in (False, True):
        found = lading.verify(prepared, split="train", deep=deep)
        assert (found.findings, found.samples, found.checked) == ([], 12, ["indexes", "sidecars"])
    done = lading.convert(prepared, tmp_path / "out", format="parquet", verify=True)
    assert {name: one.samples for name, one in done.splits.items()} == {"train": 12, "val": 8}
    assert lading.salvage(prepared, tmp_path / "saved", split="val").samples == 8


def test_shards_and_samples_are_excluded(prepared: Path, tmp_path: Path) -> None:
    first, second, *_ = tars(prepared, 1)
    told(prepared, f"""\
        split_parts:
          train: [ 'train-{{000000..000001}}.tar', "train-000002.tar" ]  # all but one
        exclude:
        - train-000002.tar
        - train-000001.tar/{second}
    """)  # fmt: skip
    expected = [key for key in tars(prepared, 0, 1) if key != second]
    assert keys(prepared) == keys(prepared, split="train") == expected
    with lading.open(prepared).with_decode(False) as dataset:
        assert (len(dataset), dataset[6]["__key__"], dataset[7]["__key__"]) == (11, first, expected[7])
        assert dataset.by_key(expected[8])["__key__"] == expected[8]
        assert [row["__key__"] for row in dataset.where(f"__key__ != '{first}'")] == [k for k in expected if k != first]
    counts = {
        "shards that split.yaml excludes": 1,
        "samples that split.yaml excludes": 1,
        "shards that split.yaml does not list, left out": 1,
    }
    assert lading.info(prepared).counts == counts
    assert lading.verify(prepared, deep=True).findings == []
    assert lading.convert(prepared, tmp_path / "out", format="webdataset", verify=True, **by_tasks(2)).samples == 11
    assert keys(tmp_path / "out") == expected
    assert lading.salvage(prepared, tmp_path / "saved").samples == 11


def test_a_list_in_json(prepared: Path) -> None:
    told(prepared, json.dumps({"split_parts": {"val": ["train-000003.tar"]}, "exclude": []}), "split.json")
    assert keys(prepared) == tars(prepared, 3)


def test_what_a_list_names_wrongly_is_told(prepared: Path) -> None:
    told(prepared, "split_parts: {train: [gone.tar]}\n")
    with pytest.raises(NotFound, match=r"gone\.tar: no such file, though .*split\.yaml lists it"):
        keys(prepared)
    told(prepared, "split_parts:\n  train:\n  - ../gone.tar\n")
    with pytest.raises(BadReference, match=r"split\.yaml"):
        lading.open(prepared)
    for text in ("split_parts: []\n", "- a\n", "split_parts:\n  train: a.tar\n", "\xff"):
        (prepared / ".nv-meta" / "split.yaml").write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=r"split\.yaml"):
            lading.open(prepared)


def test_the_files_of_energon_are_written_on_request(tmp_path: Path) -> None:
    rows = pa.table({"__key__": [f"k{i}" for i in range(9)], "txt": ["a" * 1000 * i for i in range(9)]})
    with lading.writer(tmp_path / "out", format="webdataset", shard_size=9000, options={"energon": "train"}) as writer:
        writer.write_batch(rows)
    names = sorted(path.name for path in (tmp_path / "out").glob("*.tar"))
    assert len(names) > 1
    for name in names:
        data = (tmp_path / "out" / name).read_bytes()
        assert (tmp_path / "out" / f"{name}.idx").read_bytes() == energon_index(data)
    meta = tmp_path / "out" / ".nv-meta"
    counts = json.loads((meta / ".info.json").read_text())["shard_counts"]
    assert (list(counts), sum(counts.values())) == (names, 9)
    assert yaml.safe_load((meta / "split.yaml").read_bytes()) == {"split_parts": {"train": names}, "exclude": []}
    assert lading.verify(tmp_path / "out", deep=True).ok
    shutil.rmtree(tmp_path / "out" / "_lading")
    assert keys(tmp_path / "out", split="train") == keys(tmp_path / "out") == rows["__key__"].to_pylist()
    assert lading.verify(tmp_path / "out", split="train", deep=True).findings == []
    for options in ({"energon": ""}, {"energon": "train", "compression": "gzip"}):
        with pytest.raises(UsageError, match="plain tars"):
            lading.writer(tmp_path / "more", format="webdataset", options=options)


@pytest.mark.parametrize("text", ["a: [b", "a: !!python/object/apply:os.getcwd []", "[" * 5000, "a: *x", "\x00", "x"])
def test_what_is_no_list_of_splits_is_refused(prepared: Path, text: str) -> None:
    told(prepared, text)
    with pytest.raises(DataError, match=r"split\.yaml"):
        lading.open(prepared, split="train")
