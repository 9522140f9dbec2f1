"""Verify: the list of shards that megatron-energon keeps beside tars, as its version 7.4.1 wrote it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lading
from documents import SAMPLES, documents
from golden_cases import Golden
from tars import energon_index, tar_of


@pytest.fixture
def prepared(golden: Golden, tmp_path: Path) -> Path:
    """Four tars that `energon prepare` looked through, as one dataset: without its splits."""
    folder = Path(shutil.copytree(golden("wds") / "energon", tmp_path / "set"))
    (folder / "expected.json").unlink()
    (folder / ".nv-meta" / "split.yaml").unlink()
    return folder


def info(folder: Path) -> Path:
    return folder / ".nv-meta" / ".info.json"


def changed(folder: Path, change: Callable[[dict[str, int]], object]) -> None:
    told = json.loads(info(folder).read_text())
    change(told["shard_counts"])
    info(folder).write_text(json.dumps(told))


def listed(folder: Path, counts: object) -> None:
    info(folder).parent.mkdir(exist_ok=True)
    info(folder).write_text(json.dumps({"shard_counts": counts}))


def findings(folder: Path, **opening: Any) -> list[tuple[object, ...]]:
    told = lading.verify(folder, **opening).findings
    return [(one["file"], one.get("expected"), one.get("found")) for one in told]


def test_nothing_is_wrong_with_what_energon_wrote(prepared: Path) -> None:
    found = lading.verify(prepared)
    assert (found.findings, found.samples, found.checked) == ([], 20, ["indexes", "keys", "sidecars"])
    assert lading.verify(str(prepared / "*.tar")).checked == ["keys", "sidecars"]


@pytest.mark.parametrize("deep", [False, True])
def test_counts_that_are_not_so_are_told(prepared: Path, *, deep: bool) -> None:
    changed(prepared, lambda counts: counts.update({"train-000003.tar": 3}))
    assert findings(prepared, deep=deep) == [(str(info(prepared)), 2, 3)]


def test_a_shard_that_was_cut_is_told(prepared: Path) -> None:
    """By the list of shards, and by the missing end of the archive; its `.tar.idx` would tell it too."""
    tar = prepared / "train-000001.tar"
    at = int.from_bytes(Path(f"{tar}.idx").read_bytes()[32:40], "little")
    Path(f"{tar}.idx").unlink()
    tar.write_bytes(tar.read_bytes()[:at])
    no_end = (str(tar), "two blocks of zeros", "the end of the file")
    assert findings(prepared) == [no_end, (str(info(prepared)), 4, 6)]


def test_shards_that_are_not_there_or_not_listed_are_told(prepared: Path) -> None:
    gone, more = prepared / "train-000000.tar", prepared / "train-000009.tar"
    gone.rename(more)
    Path(f"{gone}.idx").rename(f"{more}.idx")
    assert findings(prepared) == [(str(info(prepared)), None, str(gone)), (str(info(prepared)), str(more), None)]


def test_tars_without_samples_and_those_of_other_folders_need_not_be_listed(prepared: Path) -> None:
    (prepared / "empty.tar").write_bytes(tar_of(("README", b"no sample")))
    (prepared / "val").mkdir()
    (prepared / "val" / "a.tar").write_bytes(tar_of(("v.txt", b"one")))
    assert findings(prepared) == []
    changed(prepared, lambda counts: counts.update({"val/a.tar": 1}))
    assert findings(prepared) == []
    (prepared / "val" / "b.tar").write_bytes(tar_of(("w.txt", b"one")))
    assert findings(prepared) == [(str(info(prepared)), str(prepared / "val" / "b.tar"), None)]


def test_samples_of_documents_are_counted_as_energon_counts_them(tmp_path: Path) -> None:
    """By keys before the first dot, which are fewer than there are documents here."""
    samples = [(f"page.{number}", ["text"], {}) for number in range(5)]
    (tmp_path / "a.tar").write_bytes(documents(*samples, *SAMPLES))
    count = len(energon_index((tmp_path / "a.tar").read_bytes())) // 8 - 1
    assert count == 1 + len(SAMPLES)
    listed(tmp_path, {"a.tar": count})
    found = lading.verify(tmp_path)
    assert (found.findings, found.samples) == ([], 5 + len(SAMPLES))
    listed(tmp_path, {"a.tar": 5 + len(SAMPLES)})
    assert findings(tmp_path) == [(str(info(tmp_path)), count, 5 + len(SAMPLES))]


def test_samples_in_pieces_are_counted_as_energon_counts_them(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")))
    listed(tmp_path, {"a.tar": 3})
    assert findings(tmp_path, options={"regroup": True}) == []


@pytest.mark.parametrize("deep", [False, True])
def test_beside_a_manifest_it_is_held_against_the_shards_too(tmp_path: Path, *, deep: bool) -> None:
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        for key in "abc":
            writer.write({"__key__": key, "txt": "one"})
    [tar] = (tmp_path / "out").glob("*.tar")
    listed(tmp_path / "out", {tar.name: 3})
    assert findings(tmp_path / "out", deep=deep) == []
    listed(tmp_path / "out", {})
    assert findings(tmp_path / "out", deep=deep) == [(str(info(tmp_path / "out")), str(tar), None)]
    listed(tmp_path / "out", {tar.name: 2, "more.tar": 1})
    told = [(str(info(tmp_path / "out")), None, str(tmp_path / "out" / "more.tar")),
            (str(info(tmp_path / "out")), 3, 2)]  # fmt: skip
    assert findings(tmp_path / "out", deep=deep) == told


@pytest.mark.parametrize(
    "counts", [None, [], {"a.tar": -1}, {"a.tar": "1"}, {"a.tar": True}, {"../a.tar": 1}, {"/a": 1}]
)
def test_a_list_that_is_none_is_told(counts: object, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.x", b"1")))
    listed(tmp_path, counts)
    found = lading.verify(tmp_path)
    assert [finding["file"] for finding in found.findings] == [str(info(tmp_path))]
    assert found.samples == 1
    info(tmp_path).write_text("{")
    assert [finding[0] for finding in findings(tmp_path)] == [str(info(tmp_path))]
