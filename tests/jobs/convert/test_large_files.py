"""A large file is cut into tasks: the same rows, reports and errors as in one task, and nothing is read twice."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard, DataError
from lading.testing import CountingStore

_SAMPLES = 300


class Counted(ThreadPoolExecutor):
    """Two threads that count their tasks."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tasks = 0

    def submit(self, *args: Any, **more: Any) -> Any:
        self.tasks += 1
        return super().submit(*args, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def columns(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Some columns of what was written."""
    rows = (row for batch in lading.open(folder).select(*names).batches() for row in batch.to_pylist())
    return [{name: row[name] for name in names} for row in rows]


def facts(summary: Any) -> dict[str, Any]:
    """What a conversion says, without how its output is cut."""
    return {**asdict(summary), **dict.fromkeys(("seconds", "shards", "size_bytes", "tasks"))}


@pytest.fixture
def in_one_task(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What a conversion does that cuts no shard."""
    monkeypatch.setattr("lading._core.jobs.convert.schedule.is_large", lambda *_, **__: False)
    return monkeypatch


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of 3 MB in 30 row groups."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("rows")
    jpg = [b"\xff\xd8\xff" + rng.bytes(int(rng.integers(4_000, 16_000))) for _ in range(_SAMPLES)]
    table = pa.table({"number": range(_SAMPLES), "jpg": jpg, "txt": [f"text {n}" for n in range(_SAMPLES)]})
    pq.write_table(table, folder / "rows.parquet", row_group_size=10)
    return folder / "rows.parquet"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar of 120 interleaved documents, each a text between two images."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("documents")
    with tarfile.open(folder / "documents.tar", "w") as tar:
        for number in range(120):
            images = [f"{number:05}_{at}.jpg" for at in range(2)]
            told = {"texts": [None, f"text {number}", None], "images": [images[0], None, images[1]], "n": number}
            members = {f"{number:05}.json": json.dumps(told).encode()}
            members |= {name: b"\xff\xd8\xff" + rng.bytes(int(rng.integers(5_000, 20_000))) for name in images}
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return folder / "documents.tar"


_OPTIONS: dict[str, dict[str, Any]] = {
    "parquet": {"row_group_bytes": "60kb"},
    "arrow": {"batch_bytes": "60kb"},
    "webdataset": {},
    "mds": {},
    "media_archive": {"documents": "parquet"},
}


def one_file(source: Path, folder: Path, fmt: str, view: str) -> Path:
    """The rows in one file of a format, in many units."""
    lading.convert(source, folder, format=fmt, view=view, num_shards=1, options=_OPTIONS[fmt])
    if fmt == "media_archive":  # a row group has more documents than there are
        [path] = folder.glob("*.parquet")
        pq.write_table(pq.read_table(path), path, row_group_size=5)
        shutil.rmtree(folder / "_lading")
    return folder


_SOURCES = (
    ("parquet", "samples", "webdataset"), ("webdataset", "samples", "parquet"), ("mds", "samples", "arrow"),
    ("arrow", "interleaved", "parquet"), ("media_archive", "interleaved", "parquet"),
    ("arrow", "samples", "parquet"), ("media_archive", "samples", "parquet"),
    ("parquet", "interleaved", "webdataset"), ("mds", "interleaved", "parquet"))  # fmt: skip


@pytest.mark.cases(1)
@pytest.mark.parametrize("start, view, target", _SOURCES)
def test_the_same_bytes_whoever_does_the_tasks(
    start: str, view: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows = request.getfixturevalue("rows" if view == "samples" else "documents")
    source = one_file(rows, tmp_path / "source", start, view)

    def written(name: str, **how: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
        done = lading.convert(source, tmp_path / name, format=target, shard_size="300kb", verify=True, **how)
        return contents(tmp_path / name), {**asdict(done), "seconds": None}

    files, summary = written("alone")
    with Counted() as threads:
        assert written("threads", executor=threads) == (files, summary)
        assert threads.tasks > 3
    if start == "webdataset":
        assert written("workers", **by_tasks(2)) == (files, summary)
    assert (summary["source_shards"], summary["samples"]) == (1, len(lading.open(source)))
    assert summary["digest"] == lading.digest(source).ordered


@pytest.mark.soak
@pytest.mark.parametrize("start", ["parquet", "arrow", "mds"])
def test_the_payload_is_read_once(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides the trial of three pieces, and what each task reads of the head or the footer."""
    # the trial of little data would read all of them
    monkeypatch.setattr("lading._core.jobs.convert.trial._TRIED_BYTES", 1)
    rng, count, each = np.random.default_rng(3), 96, 200_000
    table = pa.table({"number": range(count), "jpg": [rng.bytes(each) for _ in range(count)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=4)
    options = {"parquet": {"row_group_bytes": "800kb"}, "arrow": {"batch_bytes": "800kb"}, "mds": {}}[start]
    lading.convert(tmp_path / "rows.parquet", tmp_path / "source", format=start, num_shards=1, options=options)
    [shard] = (tmp_path / "source").glob(f"shard*.{start}")
    store = CountingStore(LocalStore())
    done = lading.convert(tmp_path / "source", tmp_path / "out", format="parquet", shard_size="3MB",
                          stores=Stores({str(tmp_path / "source"): store}))  # fmt: skip
    assert done.shards > 4
    read = sum(length for path, ranges in store.ranges.items() for _, length in ranges if path == str(shard))
    size = shard.stat().st_size
    assert 0.95 * size < read < 1.05 * size + 3 * 4 * each


@pytest.mark.soak
@pytest.mark.parametrize("start", ["parquet", "arrow", "webdataset", "mds", "media_archive"])
def test_the_ledger_has_the_numbers_of_the_file(
    start: str, rows: Path, tmp_path: Path, in_one_task: pytest.MonkeyPatch
) -> None:
    source = one_file(rows, tmp_path / "source", start, "samples")
    given = lading.open(source)
    if start == "media_archive":  # a tar cannot hold the column
        given = given.drop("media")

    def written(name: str) -> tuple[list[dict[str, Any]], list[Any], dict[str, Any]]:
        done = lading.convert(given, tmp_path / name, format="webdataset", shard_size="300kb", where="number >= 200",
                              ledger=tmp_path / f"{name}.jsonl")  # fmt: skip
        lines = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        return lines, columns(tmp_path / name, "number"), facts(done)

    expected = written("whole")
    assert len(expected[0]) == 200
    in_one_task.undo()
    in_one_task.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 0)
    assert written("cut") == expected


@pytest.mark.soak
def test_rows_without_keys_are_named_by_their_number(rows: Path, tmp_path: Path) -> None:
    done = lading.convert(rows, tmp_path / "out", format="webdataset", shard_size="300kb")
    assert done.shards > 3
    assert columns(tmp_path / "out", "__key__", "number") == [{"__key__": f"{n:09}", "number": n} for n in range(300)]


@pytest.mark.soak
def test_samples_are_never_cut(documents: Path, tmp_path: Path) -> None:
    """Row groups of any size: tasks meet where one of them ends with a sample."""
    items = pa.Table.from_batches(lading.open(documents, view="interleaved").batches())
    counts = []
    for size in (4, 7):
        pq.write_table(items, tmp_path / f"{size}.parquet", row_group_size=size)
        with Counted() as threads:
            lading.convert(tmp_path / f"{size}.parquet", tmp_path / f"{size}", format="parquet", view="interleaved",
                           shard_size="300kb", executor=threads, verify=True)  # fmt: skip
        counts.append(threads.tasks)
    assert min(counts) > 3


def test_ids_are_compared_across_tasks(documents: Path, tmp_path: Path) -> None:
    items = pa.Table.from_batches(lading.open(documents, view="interleaved").batches())
    pq.write_table(pa.concat_tables([items, items.slice(0, 4)]), tmp_path / "again.parquet", row_group_size=8)
    with pytest.raises(DataError, match="not contiguous"):
        lading.convert(tmp_path / "again.parquet", tmp_path / "out", format="parquet", shard_size="300kb")
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_a_damaged_part_is_an_error_that_names_it(rows: Path, tmp_path: Path) -> None:
    data = bytearray(rows.read_bytes())
    group = pq.read_metadata(rows).row_group(20).column(1)
    start = group.data_page_offset
    data[start : start + 16] = b"\xff" * 16
    (tmp_path / "bad.parquet").write_bytes(data)
    with Counted() as threads, pytest.raises(CorruptShard, match=r"bad\.parquet.*row group 20"):
        lading.convert(
            tmp_path / "bad.parquet", tmp_path / "out", format="webdataset", shard_size="300kb", executor=threads
        )
    assert threads.tasks > 3
    assert not (tmp_path / "out").exists()


def tar_of(path: Path, keys: list[str], *, end: bool = True, folder: bool = False) -> None:
    """A tar with a sample of 10 kB a key, perhaps without its end, or with a folder in it."""
    rng, file = np.random.default_rng(2), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for key in keys:
            if folder:
                info = tarfile.TarInfo("folder")
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            info = tarfile.TarInfo(f"{key}.jpg")
            info.size = 10_000
            tar.addfile(info, io.BytesIO(b"\xff\xd8\xff" + rng.bytes(9_997)))
        size = tar.offset
    path.write_bytes(file.getvalue() if end else file.getvalue()[:size])


@pytest.mark.soak
@pytest.mark.parametrize("end, folder", [(True, True), (False, False)])
def test_a_tar_reports_as_one(tmp_path: Path, in_one_task: pytest.MonkeyPatch, *, end: bool, folder: bool) -> None:
    """Keys that return, members that are no samples, a missing end."""
    tar_of(tmp_path / "a.tar", [f"{n:04}" for n in [*range(100), *range(50)]], end=end, folder=folder)
    whole = lading.convert(tmp_path / "a.tar", tmp_path / "whole", format="parquet", shard_size="300kb")
    in_one_task.undo()
    in_one_task.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 0)
    with Counted() as threads:
        done = lading.convert(tmp_path / "a.tar", tmp_path / "cut", format="parquet", shard_size="300kb",
                              executor=threads, verify=True)  # fmt: skip
    assert threads.tasks > 3
    assert {**facts(done), "digest": None, "verified": False} == facts(whole)
    assert done.counts
