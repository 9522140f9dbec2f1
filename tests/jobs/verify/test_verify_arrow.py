"""Verify: the indexes of folders of Arrow shards, held against these."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.features.types import Text, Value
from lading.caches import write_cache
from lading.errors import DataError

_Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def saved(golden: Golden, tmp_path: Path) -> Path:
    """What datasets 5.2.0 saved: three files, and what it tells of them."""
    return Path(shutil.copytree(golden("arrow") / "hf-save-to-disk", tmp_path / "saved"))


def changed(path: Path, change: _Change) -> None:
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def findings(folder: Path) -> list[tuple[object, ...]]:
    told = lading.verify(folder).findings
    return [(Path(str(one["file"])).name, one.get("column"), one.get("expected"), one.get("found")) for one in told]


@pytest.mark.parametrize("case", [
    "hf-save-to-disk", "hf-selected", "hf-dataset-dict/train", "hf-dataset-dict/test", "stable-empty", "stable-lz4",
    "stable-sharded", "stable-single", "stable-video-bytes", "stable-video-path", "stable-zstd",
])  # fmt: skip
def test_nothing_is_wrong_with_what_the_peers_wrote(case: str, golden: Golden) -> None:
    assert lading.verify(golden("arrow") / case).findings == []


def test_features_of_another_type_than_the_files_have_are_told(saved: Path) -> None:
    """datasets: "External features info don't match the dataset"."""
    changed(saved / "dataset_info.json", lambda told: told["features"]["ts"].update(dtype="timestamp[ms]"))
    [(file, column, expected, found)] = findings(saved)
    assert (file, column, expected) == ("dataset_info.json", "ts", "timestamp[us]")
    assert json.loads(str(found)) == {"_type": "Value", "dtype": "timestamp[ms]"}


@pytest.mark.parametrize("linked", [False, True])
def test_a_saved_dataset_that_its_writer_does_not_open_is_told(saved: Path, *, linked: bool) -> None:
    """datasets.load_from_disk: FileNotFoundError."""
    (saved / "dataset_info.json").unlink()
    if linked:
        (saved / "dataset_info.json").symlink_to("nowhere")
    assert [one[0] for one in findings(saved)] == ["dataset_info.json"]


def test_a_split_that_its_writer_does_not_open_is_told(golden: Golden, tmp_path: Path) -> None:
    folder = shutil.copytree(golden("arrow") / "hf-dataset-dict", tmp_path / "set")
    (folder / "dataset_dict.json").write_text('{"splits": ["test"]}')
    shutil.rmtree(folder / "train")
    assert lading.verify(folder).ok
    (folder / "test" / "dataset_info.json").unlink()
    assert [one["file"] for one in lading.verify(folder).findings] == [str(folder / "test" / "dataset_info.json")]


def test_features_of_other_columns_than_the_files_have_are_told(saved: Path) -> None:
    def rename(told: dict[str, Any]) -> None:
        told["features"] = {"other" if name == first else name: kind for name, kind in told["features"].items()}

    schema = pa.ipc.open_stream(next(iter(sorted(saved.glob("*.arrow"))))).schema
    first = schema.names[0]
    changed(saved / "dataset_info.json", rename)
    told = findings(saved)
    assert [one[:2] for one in told] == [("dataset_info.json", first), ("dataset_info.json", "other")]
    assert told[0][2] == str(schema.field(first).type)


def test_what_is_told_of_a_saved_dataset_and_cannot_be_read_is_told(saved: Path) -> None:
    (saved / "dataset_info.json").write_text("{")
    assert [one[0] for one in findings(saved)] == ["dataset_info.json"]
    (saved / "dataset_info.json").write_text('{"features": null}')
    assert findings(saved) == []


@pytest.mark.parametrize("depth", [10, 250, 300, 900, 2000])
@pytest.mark.parametrize("own", [False, True])
def test_features_that_lie_too_deep_in_each_other_are_told(depth: int, tmp_path: Path, *, own: bool) -> None:
    schema = pa.schema([("n", pa.int64())], metadata={"huggingface": '{"info": {"features": {}}}'} if own else None)
    with pa.ipc.new_stream(tmp_path / "data-00000-of-00001.arrow", schema) as writer:
        writer.write_table(pa.table({"n": [1]}, schema=schema))
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    (tmp_path / "dataset_info.json").write_text(f'{{"features": {{"n": {"[" * depth}1{"]" * depth}}}}}')
    if own or depth <= 200:
        assert [one[0] for one in findings(tmp_path)] == ["dataset_info.json"]
    else:  # a file without features of its own cannot be read without these
        with pytest.raises(DataError, match=r"dataset_info\.json"):
            lading.verify(tmp_path)


def test_features_beside_the_only_split_are_held_against_it(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("arrow") / "hf-dataset-dict", tmp_path / "set"))
    shutil.rmtree(folder / "test")
    changed(folder / "dataset_dict.json", lambda told: told.update(splits=["train"]))
    assert lading.verify(folder).ok
    changed(folder / "train" / "dataset_info.json", lambda told: told["features"].update(more={"_type": "Value"}))
    assert [one[:2] for one in findings(folder)] == [("dataset_info.json", "more")]


@pytest.mark.soak
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_is_listed_and_not_there_is_told_and_the_others_are_read(saved: Path, number: int) -> None:
    whole = lading.verify(saved).samples
    path = sorted(saved.glob("*.arrow"))[number]
    rows = pa.ipc.open_stream(path).read_all().num_rows
    path.unlink()
    found = lading.verify(saved)
    assert [finding["file"] for finding in found.findings] == [str(path)]
    assert found.samples == whole - rows


@pytest.mark.parametrize("damage", [b"", b"?" * 600])
def test_a_first_file_that_is_damaged_is_told_and_the_others_are_read(saved: Path, damage: bytes) -> None:
    first, *others = sorted(saved.glob("*.arrow"))
    first.write_bytes(damage)
    found = lading.verify(saved)
    assert [finding["file"] for finding in found.findings] == [str(first)]
    assert found.samples == sum(pa.ipc.open_stream(path).read_all().num_rows for path in others)


def test_a_cache_of_other_rows_than_its_index_tells_is_told(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("arrow") / "stable-sharded", tmp_path / "cache"))
    assert json.loads((folder / "_metadata.json").read_text())["shard_row_counts"] == [6, 4]
    changed(folder / "_metadata.json", lambda told: told.update(shard_row_counts=[5, 5]))
    told = lading.verify(folder).findings
    assert {Path(str(finding["file"])).name for finding in told} == {"shard-00000.arrow", "shard-00001.arrow"}


def test_a_cache_of_other_columns_than_its_index_tells_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    write_cache([{"n": 1, "t": "a"}], {"n": Value("int64"), "t": Text()}, folder)
    assert lading.verify(folder).ok

    def another(told: dict[str, Any]) -> None:
        [pair] = [pair for pair in told["lading"]["features"] if pair[0] == "n"]
        pair[1]["dtype"] = "int8"

    changed(folder / "_metadata.json", another)
    assert findings(folder) == [("_metadata.json", "n", "int64", "int8")]
