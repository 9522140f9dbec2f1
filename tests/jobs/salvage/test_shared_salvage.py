"""Salvage by workers and by executors: the same as by one process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from counted_files import CountedFiles
from damage import break_header, damaged, some_rows
from lading._core.jobs.engine import progress, reading
from lading._core.jobs.engine.executors import ExecutorPool, worker_programs
from lading.errors import UsageError
from tars import tar_of


@pytest.fixture(autouse=True)
def _each_shard_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TASK_SHARDS", 1)


def own(source: Path, fmt: str = "webdataset", shard_size: str = "60kb") -> None:
    with lading.writer(source, format=fmt, shard_size=shard_size) as writer:
        writer.write_batch(some_rows(fmt))


def shards(source: Path, ending: str) -> list[Path]:
    found = sorted(path for path in source.iterdir() if path.name.endswith(ending))
    assert len(found) > 2
    return found


def with_checksums(source: Path) -> None:
    """One tar differs from its checksum, another one is cut, and one is gone."""
    own(source)
    first, second, third, *_ = shards(source, ".tar")
    first.write_bytes(damaged(first.read_bytes(), 5000, "zeroed"))
    second.write_bytes(second.read_bytes()[:9000])
    third.unlink()


def with_a_damaged_manifest(source: Path) -> None:
    """Neither the manifest nor the list of shards can be read, and one shard lost a line end."""
    own(source, "jsonl", "9kb")
    for name in ("manifest.json", "shards.arrow"):
        (source / "_lading" / name).write_bytes(b"gone")
    some = shards(source, ".jsonl")[1]
    some.write_bytes(damaged(some.read_bytes(), 3000, "flipped"))


def documents(source: Path) -> None:
    """Tars of documents, one with a damaged header, one that lacks an image, one without its end."""
    source.mkdir()
    for shard in range(4):
        members: list[tuple[str, bytes]] = []
        for number in range(6):
            key = f"doc{shard}.{number}"
            document = {"texts": [f"text {number}" * 30, None], "images": [None, f"{key}.1.jpg"]}
            members += [(f"{key}.json", json.dumps(document).encode()), (f"{key}.1.jpg", b"\xff\xd8" + bytes(999))]
        (source / f"{shard}.tar").write_bytes(tar_of(*(members[:-1] if shard == 2 else members)))
    break_header(source / "1.tar")
    (source / "3.tar").write_bytes((source / "3.tar").read_bytes()[:8192])


def with_a_wrong_index(source: Path) -> None:
    """MDS: the index lists too many samples of one shard, and another shard is gone."""
    own(source, "mds")
    shutil.rmtree(source / "_lading")
    index = json.loads((source / "index.json").read_text())
    index["shards"][0]["samples"] += 1
    (source / "index.json").write_text(json.dumps(index))
    shards(source, ".mds")[1].unlink()


def arrow(source: Path) -> None:
    """Arrow files, one of which is cut behind a record batch."""
    source.mkdir()
    table = pa.table({"n": range(90), "text": ["some text"] * 90})
    for shard in range(3):
        with pa.ipc.new_stream(str(source / f"{shard}.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
    whole = (source / "1.arrow").read_bytes()
    (source / "1.arrow").write_bytes(whole[:-8])  # the mark of the end
    (source / "2.arrow").write_bytes(damaged(whole, 1000, "cut"))


def salvaged(source: Path, out: Path, **how: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    result = lading.salvage(source, out, **how)
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    assert [path.name for path in out.parent.iterdir() if "tmp" in path.name] == []
    shutil.rmtree(out)
    return {**asdict(result), "seconds": 0}, files


@pytest.mark.parametrize("make", [with_checksums, with_a_damaged_manifest, documents, with_a_wrong_index, arrow])
def test_threads_save_the_same_as_one_process(make: Callable[[Path], None], tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    make(source)
    alone = salvaged(source, out, workers=1)
    assert alone[0]["lost"]
    assert "_lading/lost.jsonl" in alone[1]
    with ThreadPoolExecutor(2) as executor:
        assert salvaged(source, out, executor=executor) == alone


@pytest.mark.soak
def test_worker_processes_save_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out, begun = tmp_path / "source", tmp_path / "out", list[int]()
    with_checksums(source)

    def watched(count: int, **how: Any) -> ExecutorPool:
        begun.append(count)
        return worker_programs(count, **how)

    monkeypatch.setattr(reading, "worker_programs", watched)
    monkeypatch.setattr(progress, "_WORTH_S", 0)
    assert salvaged(source, out, workers=2) == salvaged(source, out, workers=1)
    assert begun == [2]


@pytest.mark.soak
def test_only_damaged_shards_are_searched_again(tmp_path: Path) -> None:
    own(tmp_path / "source", "jsonl", "9kb")
    shutil.rmtree(tmp_path / "source" / "_lading")
    hurt = shards(tmp_path / "source", ".jsonl")[1]
    hurt.write_bytes(damaged(hurt.read_bytes(), 3000, "flipped"))
    read = []
    for how in ({"workers": 1}, {"executor": "threads"}):
        CountedFiles.begin()
        found = lading.salvage(f"counted://{tmp_path}/source", tmp_path / "out", overwrite=True, **how)
        assert [entry["file"] for entry in found.lost] == [f"counted://{hurt}"] * found.lost_entries
        assert found.lost_entries
        read.append(CountedFiles.read_bytes)
    total = sum(path.stat().st_size for path in (tmp_path / "source").iterdir())
    assert read[0] > 2 * total - 2048
    assert hurt.stat().st_size / 2 < read[1] - read[0] < 4 * hurt.stat().st_size


def test_what_other_processes_cannot_read_is_refused() -> None:
    with lading.writer("memory://shared-salvage", format="jsonl") as writer:
        writer.write({"n": 1})
    for how in ({"workers": 2}, {"executor": "threads"}):
        with pytest.raises(UsageError, match=r"in memory.*workers=1"):
            lading.salvage("memory://shared-salvage", "memory://shared-salvage-out", **how)
    assert lading.salvage("memory://shared-salvage", "memory://shared-salvage-out").samples == 1
