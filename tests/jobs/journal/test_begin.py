"""A job that is asked for again when it has ended does nothing, and says so; another job's dataset stays."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lading
from dying_store import DyingStore, Killed
from lading._core.cli.main import app
from lading._core.jobs.engine.progress import Progress
from lading._core.manifest.commit import Staging
from lading._core.storage.memory import MemoryStore
from lading._core.storage.objects import ObjectStore
from lading._core.storage.stores import Stores, resolve
from lading.errors import DestinationExists, UnfinishedDataset, UsageError
from object_server import BUCKET, options
from several_tasks import contents, write_tars

_OPTIONS: dict[str, Any] = {"format": "parquet", "shard_size": "183kb"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tars, which are five tasks."""
    return write_tars(tmp_path_factory.mktemp("data") / "source", 60, "200kb")


@pytest.mark.parametrize("more", [{}, {"num_shards": 2, "shard_size": None}], ids=["tasks", "one task"])
def test_a_job_that_has_ended_is_done_before(more: dict[str, Any], source: Path, tmp_path: Path) -> None:
    asked = {**_OPTIONS, **more}
    first = lading.convert(source, tmp_path / "out", **asked)
    before = contents(tmp_path)
    for same in ({"workers": 2, "max_failures": 3}, {"overwrite": True}):
        again = lading.convert(source, tmp_path / "out", resume=True, **asked, **same)
        assert again.done_before
        facts = ("format", "view", "samples", "shards", "size_bytes", "payload_bytes")
        assert [getattr(again, name) for name in facts] == [getattr(first, name) for name in facts]
    with pytest.warns(UserWarning, match="nothing was read back"):
        assert lading.convert(source, tmp_path / "out", resume=True, verify=True, **asked).done_before
    with pytest.raises(DestinationExists, match="Another job wrote it"):
        lading.convert(source, tmp_path / "out", resume=True, where="txt != '7'", **asked)
    with pytest.raises(DestinationExists):
        lading.convert(source, tmp_path / "out", **asked)
    assert contents(tmp_path) == before


def test_what_a_destination_keeps_of_its_job_is_a_hash_that_nothing_else_includes(source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", **_OPTIONS)
    kept = tmp_path / "out" / "_lading" / "job.json"
    [(name, digest)] = json.loads(kept.read_bytes()).items()
    assert (name, len(bytes.fromhex(digest))) == ("sha256", hashlib.sha256().digest_size)
    assert "job.json" not in (tmp_path / "out" / "_lading" / "manifest.json").read_text()
    whole = lading.digest(tmp_path / "out")
    kept.unlink()
    assert lading.verify(tmp_path / "out").ok
    assert lading.digest(tmp_path / "out") == whole
    with pytest.raises(DestinationExists, match="does not tell which job wrote it"):
        lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS)


def test_splits_that_are_all_there_are_done_before(source: Path, tmp_path: Path) -> None:
    def parts(seed: int = 0) -> dict[str, lading.Dataset]:
        return lading.open(source).split({"train": 0.6, "val": 0.4}, seed=seed)

    first = lading.convert(parts(), tmp_path / "out", resume=True, **_OPTIONS)
    before = contents(tmp_path)
    again = lading.convert(parts(), tmp_path / "out", resume=True, **_OPTIONS)
    assert again.done_before
    assert {n: one.samples for n, one in again.splits.items()} == {n: one.samples for n, one in first.splits.items()}
    with pytest.raises(DestinationExists):
        lading.convert(parts(1), tmp_path / "out", resume=True, **_OPTIONS)
    assert contents(tmp_path) == before


def test_a_ledger_that_was_brought_out_stays(source: Path, tmp_path: Path) -> None:
    asked = {**_OPTIONS, "ledger": tmp_path / "lost.jsonl", "where": "txt != '7'", "resume": True}
    lading.convert(source, tmp_path / "out", **asked)
    before = contents(tmp_path)
    assert lading.convert(source, tmp_path / "out", **asked).done_before
    assert contents(tmp_path) == before
    with pytest.raises(DestinationExists, match=r"lost\.jsonl: the file for the ledger is there"):
        lading.convert(source, tmp_path / "out", overwrite=True, **{**asked, "where": "txt != '8'"})
    assert contents(tmp_path) == before


def test_finish_may_be_repeated_after_the_end(source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", rank=0, world_size=1, **_OPTIONS)
    first = lading.finish(tmp_path / "out")
    before = contents(tmp_path)
    told = CliRunner().invoke(app, ["finish", str(tmp_path / "out")])
    assert told.exit_code == 0
    assert "is complete: 60 samples in 5 shards of parquet" in " ".join(told.output.split())
    assert lading.finish(tmp_path / "out").samples == first.samples
    # The plan of the ranks is that of one process.
    assert lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS).done_before
    assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(UsageError, match="no ranks have written"):
        lading.finish(tmp_path / "out")


def _interrupted(told: Progress) -> None:
    if not told.phase and told.samples >= 30:
        raise KeyboardInterrupt


@pytest.mark.parametrize("ends", ["whole", "dropped"])
def test_a_job_that_ends_while_another_waits_for_it(
    ends: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waits finds the dataset, or begins; and leaves no lock."""
    with pytest.raises(KeyboardInterrupt):
        lading.convert(source, tmp_path / "out", on_progress=_interrupted, **_OPTIONS)
    [hidden] = tmp_path.glob(".out.lading-*/")
    living = Staging.resumed(*resolve(str(tmp_path / "out")), str(hidden), had_ended=False)

    def end(_: float) -> None:
        if ends == "whole":
            lading.convert(source, tmp_path / "other", **_OPTIONS)
            os.rename(tmp_path / "other", tmp_path / "out")
        living.drop()

    monkeypatch.setattr("lading._core.manifest.commit.time.sleep", end)
    done = lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS)
    assert (done.done_before, done.samples) == (ends == "whole", 60)
    assert os.listdir(tmp_path) == ["out"]


def test_verify_is_no_other_job_also_for_tasks_that_took_no_digests(source: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        lading.convert(source, tmp_path / "out", on_progress=_interrupted, **_OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        lading.convert(source, tmp_path / "out", on_progress=_interrupted, verify=True, resume=True, **_OPTIONS)
    done = lading.convert(source, tmp_path / "out", verify=True, resume=True, **_OPTIONS)
    assert (done.verified, done.digest) == (True, lading.digest(source).ordered)
    assert done.tasks_before > 0


@pytest.fixture(scope="module")
def dying(server: str) -> Iterator[DyingStore]:
    return DyingStore(f"s3://{BUCKET}", options=options(server))


def _stored(store: ObjectStore, folder: str) -> dict[str, bytes]:
    files = {info.path: info.size_bytes for info in store.walk(folder)}
    return {path.removeprefix(folder): bytes(*store.get_ranges(path, [(0, files[path])])) for path in files}


_ONE_TASK: dict[str, dict[str, Any]] = {
    "one": {"shard_size": "183kb"},
    "counted": {"num_shards": 3},
    "limit": {"limit": 50, "shard_size": "183kb"},
}


@pytest.mark.parametrize("kind", _ONE_TASK)
def test_a_job_of_one_task_goes_on_after_a_death_in_its_commit(
    kind: str, dying: DyingStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 1 << 40)
    asked = {"format": "parquet", "stores": Stores({f"s3://{BUCKET}": dying}), **_ONE_TASK[kind]}
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    lading.convert(source, f"{root}/whole/out", **asked)
    monkeypatch.setattr(dying, "dies_at", "shard-000001.parquet")
    with pytest.raises(Killed, match="Go on with --resume"):
        lading.convert(source, f"{root}/died/out", **asked)
    with pytest.raises(UnfinishedDataset, match="with resume=True"):
        lading.open(f"{root}/died/out", stores=asked["stores"])
    monkeypatch.setattr(dying, "dies_at", "nothing")
    seen = list[int]()
    done = lading.convert(source, f"{root}/died/out", resume=True, on_progress=_counting(seen), **asked)
    assert done.samples == asked.get("limit", 60)
    assert max(seen, default=0) in (0, done.samples)
    assert _stored(dying, f"{root}/died") == _stored(dying, f"{root}/whole")
    assert lading.convert(source, f"{root}/died/out", resume=True, **asked).done_before


def _counting(seen: list[int]) -> Callable[[Progress], None]:
    return lambda told: seen.append(told.samples)


def test_clean_removes_a_destination_that_is_unfinished_and_no_other(
    dying: DyingStore, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, stores = f"s3://{BUCKET}/{secrets.token_hex(8)}", Stores({f"s3://{BUCKET}": dying})
    lading.convert(source, f"{root}/out", stores=stores, **_OPTIONS)
    whole = _stored(dying, root)
    for dies_at in ("shard-000001.parquet", "manifest.json"):
        monkeypatch.setattr(dying, "dies_at", dies_at)
        with pytest.raises(Killed):
            lading.convert(source, f"{root}/out", stores=stores, overwrite=True, where="txt != '7'", **_OPTIONS)
        monkeypatch.setattr(dying, "dies_at", "nothing")
        shown = lading.clean(f"{root}/out", dry_run=True, stores=stores)
        assert f"{root}/out" in shown.removed
        assert lading.clean(f"{root}/out", stores=stores).removed == shown.removed
        assert _stored(dying, root) == {}
    lading.convert(source, f"{root}/out", stores=stores, **_OPTIONS)
    assert lading.clean(f"{root}/out", stores=stores).removed == {}
    assert _stored(dying, root) == whole


def test_what_appears_in_one_step_has_no_marker(source: Path) -> None:
    memory = MemoryStore()
    lading.convert(source, "box://out", stores=Stores({"box://": memory}), **_OPTIONS)
    assert not [info.path for info in memory.walk("box://") if "committing" in info.path]
