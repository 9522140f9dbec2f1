"""Verify: shards that lie among those of a dataset, and that nothing lists."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.storage.base import write_file
from lading._core.storage.stores import resolve
from mds_lines import write_lines

FORMATS = ["webdataset", "parquet", "mds", "jsonl", "csv", "media_archive", "arrow"]


def written(out: Path, fmt: str, **options: object) -> Path:
    with lading.writer(out, format=fmt, shard_size="2kb", **options) as writer:
        for number in range(4):
            writer.write_batch(pa.table({"txt": [hashlib.shake_128(bytes([number])).hexdigest(4000)]}))
    return out


def shards(out: Path) -> list[Path]:
    with lading.open(out) as dataset:
        return [Path(shard.path) for shard in dataset.shards]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_copy_of_a_shard_that_the_manifest_does_not_list_is_told(fmt: str, tmp_path: Path, *, deep: bool) -> None:
    out = written(tmp_path / "out", fmt)
    right = lading.verify(out, deep=deep)
    assert right.ok
    first, *_ = shards(out)
    copy = first.with_name(f"copy-of-{first.name}")
    shutil.copyfile(first, copy)
    found = lading.verify(out, deep=deep)
    [finding] = found.findings
    assert (finding["error"], finding["file"]) == ("SidecarMismatch", str(copy))
    assert f"{out}/_lading" in str(finding["message"])
    assert finding["found"] == f"{first.stat().st_size} bytes"
    assert (found.samples, found.digest) == (right.samples, right.digest)


def lines(out: Path, **options: Any) -> Path:
    write_lines(out, [{"txt": hashlib.shake_128(bytes([n])).hexdigest(1000)} for n in range(9)], **options,
                size_limit=4000)  # fmt: skip
    return out


def test_second_files_of_shards_are_no_strangers(tmp_path: Path) -> None:
    assert lading.verify(lines(tmp_path / "json", kind="json")).ok
    assert lading.verify(lines(tmp_path / "csv", kind="csv", compression="zstd")).ok
    out = written(tmp_path / "out", "mds", options={"compression": "gz"})
    assert lading.verify(out).ok
    shutil.rmtree(out / "_lading")
    assert lading.verify(out).ok


@pytest.mark.parametrize("options", [{"kind": "json"}, {"kind": "csv", "compression": "zstd"}, {"kind": "tsv"}])
def test_lines_of_mds_are_known_by_their_names(options: dict[str, str], tmp_path: Path) -> None:
    out = lines(tmp_path / "out", **options)
    first, *_ = shards(out)
    ending = first.name.removeprefix("shard.00000")
    meta = next(path.name for path in out.iterdir() if path.name.startswith("shard.00000") and ".meta" in path.name)
    shutil.copyfile(first, out / f"shard.00009{ending}")
    shutil.copyfile(out / meta, out / meta.replace("00000", "00009"))
    shutil.copyfile(out / meta, out / meta.replace("00000", "00010"))
    shutil.copyfile(first, out / f"notes{ending}")
    assert [finding["file"] for finding in lading.verify(out).findings] == [str(out / f"shard.00009{ending}")]


def test_archives_of_media_are_known_by_their_names(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "media_archive")
    archive = next(out.glob("*.bin.zst"))
    shutil.copyfile(archive, out / "shard-000009.bin.zst")
    shutil.copyfile(archive, out / "other.bin.zst")
    (out / "shard-000009.txt").write_text("about it")
    assert [finding["file"] for finding in lading.verify(out).findings] == [str(out / "shard-000009.bin.zst")]


def test_shards_of_all_ranks_are_listed(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path / "out", "webdataset", rank=rank)
    assert lading.verify(tmp_path / "out").ok
    (tmp_path / "out" / "more.tar").write_bytes(b"")
    assert [finding["file"] for finding in lading.verify(tmp_path / "out").findings] == [str(tmp_path / "out/more.tar")]


def test_what_is_no_shard_of_the_dataset_s_format_and_folders_is_left_alone(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    [first, *_] = shards(out)
    shutil.copyfile(first, out / ".hidden.tar")
    (out / "README.md").write_text("about these")
    (out / "table.parquet").write_bytes(b"")
    written(out / "val", "webdataset")
    assert lading.verify(out).ok


def test_no_more_are_told_than_asked_for(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    for number in range(9):
        (out / f"more-{number}.tar").write_bytes(b"")
    for most in (1, 3, 9, 20):
        assert len(lading.verify(out, max_findings=most).findings) == min(most, 9)


@pytest.mark.soak
def test_files_beside_a_saved_dataset_that_its_state_does_not_list(golden: Golden, tmp_path: Path) -> None:
    """As datasets leaves them that saved more files there before. What it keeps of `map` there is none of them."""
    out = Path(shutil.copytree(golden("arrow") / "hf-save-to-disk", tmp_path / "set"))
    shutil.copyfile(out / "data-00000-of-00003.arrow", out / "cache-0123456789abcdef.arrow")
    shutil.copyfile(out / "data-00000-of-00003.arrow", out / "cache-0123456789abcdef_00000_of_00002.arrow")
    assert lading.verify(out).ok
    state = json.loads((out / "state.json").read_text())
    assert state["_data_files"].pop() == {"filename": "data-00002-of-00003.arrow"}
    (out / "state.json").write_text(json.dumps(state))
    for source in (out, out / "state.json", os.path.relpath(out), os.path.relpath(out / "state.json")):
        [finding] = lading.verify(source).findings
        assert (Path(str(finding["file"])).name, "state.json" in str(finding["message"])) == (
            "data-00002-of-00003.arrow", True,
        )  # fmt: skip


def test_by_an_index_in_the_working_folder(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Path(shutil.copytree(golden("arrow") / "stable-sharded", tmp_path / "cache"))
    shutil.copyfile(out / "shard-00000.arrow", out / "shard-00002.arrow")
    monkeypatch.chdir(out)
    for source in (".", "_metadata.json", "./_metadata.json"):
        found = lading.verify(source).findings
        assert [Path(str(finding["file"])).name for finding in found] == ["shard-00002.arrow"]


@pytest.mark.parametrize("case", ["text-json-zstd", "text-csv"])
def test_shards_that_an_index_of_mds_does_not_list(case: str, golden: Golden, tmp_path: Path) -> None:
    source = next(path for path in (golden("mds") / case).rglob("index.json")).parent
    out = Path(shutil.copytree(source, tmp_path / "out"))
    assert lading.verify(out).ok
    (out / "shard.99999.mds").write_bytes(b"")
    assert [finding["file"] for finding in lading.verify(out).findings] == [str(out / "shard.99999.mds")]


def test_shards_that_somebody_names_are_all_there_are(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    first, *_ = shards(out)
    shutil.copyfile(first, out / "more.tar")
    assert lading.verify(first).ok
    assert lading.verify(out / "index.json").ok
    shutil.rmtree(out / "_lading")
    (out / "index.json").unlink()
    assert lading.verify(out).samples == 5


def test_in_a_store(tmp_path: Path) -> None:
    out = f"memory://{tmp_path.name}/out"
    with lading.writer(out, format="webdataset") as writer:
        writer.write({"__key__": "a", "txt": "one"})
    assert lading.verify(out).ok
    store, path = resolve(f"{out}/more.tar")
    write_file(store, path, [b"?"])
    assert [finding["file"] for finding in lading.verify(f"{out}/").findings] == [path]
