"""Jobs call functions once a sample, also when they are resumed; what they write is what they write without a spool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lading
from dying_store import DyingStore, Killed
from in_process import by_tasks
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import FunctionError, StoreError, UsageError
from object_server import BUCKET, options
from several_tasks import contents

Change = Callable[[lading.Dataset], Any]
COUNT, CALLS, FAILS = 60, "LADING_TEST_CALLS", "LADING_TEST_FAILS"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    with lading.writer(tmp_path / "in", format="parquet", shard_size="1KB") as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"{number:03d}", "n": number * 7 % COUNT, "txt": f"text {number}"})
    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))
    return str(tmp_path / "in")


def _see(sample: Any) -> int:
    """Note the call in a file, which all processes share; fail, or kill the process, at the call that is named."""
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{sample['__key__']}\n")
        calls = file.tell() // 4
    how, _, at = os.environ.get(FAILS, "").partition(" ")
    if how and calls == int(at):
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(calls)
    return int(sample["__key__"])


def made(sample: Any) -> dict[str, Any]:
    number = _see(sample)
    return {"m": number * 11 % 17, "txt": f"new {number}"} if number % 3 else {"m": number * 11 % 17}


def behind(sample: Any) -> dict[str, Any]:
    return {"k": _see(sample) % 5}


def named(_: Any, name: str) -> dict[str, Any]:
    return {"part": name}


def chosen(sample: Any) -> bool:
    return _see(sample) % 3 > 0


def calls() -> Counter[str]:
    """The calls by key so far, which are forgotten."""
    found = Counter(Path(os.environ[CALLS]).read_text().split()) if os.path.exists(os.environ[CALLS]) else Counter()
    Path(os.environ[CALLS]).unlink(missing_ok=True)
    return found


def left(tmp_path: Path) -> list[str]:
    """What is left beside destinations."""
    return [name for name in os.listdir(tmp_path) if ".lading-" in name]


STEPS: dict[str, Callable[[bool], Change]] = {
    "map": lambda spool: lambda ds: ds.map(made, spool=spool),
    "filter": lambda spool: lambda ds: ds.filter(chosen, spool=spool),
    "map, sort": lambda spool: lambda ds: ds.map(made, spool=spool).sort("m"),
    "filter, shuffle": lambda spool: lambda ds: ds.filter(chosen, spool=spool).shuffle(seed=1),
    "map, sort, map": lambda spool: lambda ds: ds.map(made, spool=spool).sort("m").map(behind, spool=spool),
    "map, split": lambda spool: lambda ds: ds.map(made, spool=spool).split({"a": 0.5, "b": 0.5}),
    "map, split by": lambda spool: lambda ds: ds.map(made, spool=spool).split({"a": 0.5, "b": 0.5}, by="n"),
}
MOST = {"map, sort, map": 2}
HOW: dict[str, dict[str, Any]] = {
    "as it is": {},
    "verified": {"verify": True},
    "by tasks": by_tasks(2),
    "into shards of a number": {"num_shards": 3},
    "into small shards": {"shard_size": "1KB"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.cases(len(HOW))
def test_function_is_called_once_a_sample(folder: str, tmp_path: Path, steps: str, how: str) -> None:
    for spool in (True, False):
        lading.convert(STEPS[steps](spool)(lading.open(folder)), tmp_path / str(spool), format="webdataset", **HOW[how])
        if spool and (steps, how) != ("map, split by", "by tasks"):  # each worker of each split calls it
            assert set(calls().values()) == {MOST.get(steps, 1)}
    assert contents(tmp_path / "True") == contents(tmp_path / "False")
    assert not left(tmp_path)


@pytest.mark.parametrize("steps", ["map, sort", "filter, shuffle", "map, split"])
@pytest.mark.cases(3)
def test_resumed_job_calls_for_the_other_samples_only(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: str
) -> None:
    write = {"format": "webdataset"}
    monkeypatch.setenv(FAILS, "raise 45")
    with pytest.raises(FunctionError) as caught:
        lading.convert(STEPS[steps](True)(lading.open(folder)), tmp_path / "out", **write)
    assert any("--resume" in note for note in caught.value.__notes__)
    before = calls()
    assert sum(before.values()) == 45
    monkeypatch.delenv(FAILS)
    lading.convert(STEPS[steps](True)(lading.open(folder)), tmp_path / "out", resume=True, **write)
    again = calls()
    repeated = [key for key in again if key in before]
    assert set(again.values()) == {1}
    assert set(before) | set(again) == {f"{number:03d}" for number in range(COUNT)}
    assert len(repeated) <= 17  # the samples of the shard in which the job died
    lading.convert(STEPS[steps](False)(lading.open(folder)), tmp_path / "other", **write)
    assert contents(tmp_path / "out") == contents(tmp_path / "other")
    assert not left(tmp_path)


def test_what_another_function_made_is_not_taken(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAILS, "raise 45")
    with pytest.raises(FunctionError):
        lading.open(folder).map(made).sort("m").write(tmp_path / "out", format="webdataset")
    monkeypatch.delenv(FAILS)
    with pytest.raises(UsageError, match="another one"):
        lading.open(folder).map(behind).sort("k").write(tmp_path / "out", format="webdataset", resume=True)
    calls()
    lading.open(folder).map(made).sort("m").write(tmp_path / "out", format="webdataset")
    assert set(calls().values()) == {1}
    assert not left(tmp_path)


@pytest.mark.parametrize("how", ["into shards of a number", "by tasks"])
@pytest.mark.cases(2)
def test_parts_take_only_what_functions_in_common_made(folder: str, tmp_path: Path, how: str) -> None:
    """Parts may hold the same samples, and go through other functions behind those in common."""
    whole = lading.open(folder).map(made)
    parts = {name: whole.map(partial(named, name=name)).sort("m") for name in ("a", "b", "c")}
    lading.convert(parts, tmp_path / "out", format="parquet", **HOW[how])
    for name in parts:
        found = list(lading.open(tmp_path / "out", split=name))
        assert [sample["part"] for sample in found] == [name] * COUNT
    assert set(calls().values()) == {1}


def test_clean_removes_what_functions_made(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAILS, "raise 45")
    with pytest.raises(FunctionError):
        lading.open(folder).map(made).sort("m").write(tmp_path / "out", format="webdataset")
    assert left(tmp_path)
    assert lading.clean(tmp_path / "out").size_bytes > 0
    assert not left(tmp_path)


def rows(place: str, splits: Sequence[str | None] = (None,), **how: Any) -> list[Any]:
    return [sample for split in splits for sample in lading.open(place, split=split, **how)]


@pytest.mark.parametrize("to", ["memory://job-spool/out", "memory://job-spool/out.parquet", "out", "out.parquet"])
@pytest.mark.parametrize("steps", ["map, sort", "filter, shuffle", "map, split"])
@pytest.mark.cases(12)
def test_temporary_folder_keeps_what_functions_made(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: str, to: str
) -> None:
    """For remote destinations and for one file too; of the same job, and not of another destination."""
    if steps == "map, split":
        to = to.removesuffix(".parquet")
    stores, temporary = Stores({"memory://job-spool": MemoryStore()}), tmp_path / "temporary"
    write: dict[str, Any] = {"format": "parquet"}
    temporary.mkdir()
    place = to if "://" in to else str(tmp_path / to)
    monkeypatch.setenv(FAILS, "raise 45")
    with pytest.raises(FunctionError) as caught:
        lading.convert(STEPS[steps](True)(lading.open(folder, stores=stores)), place, temp_dir=temporary, **write)
    assert any("--resume" in note and str(temporary) in note for note in caught.value.__notes__)
    before = calls()
    assert sum(before.values()) == 45
    assert not left(tmp_path)
    assert [path.stat().st_mode & 0o77 for path in temporary.iterdir() if path.is_dir()] == [0]
    monkeypatch.delenv(FAILS)
    other = {"temp_dir": temporary, "resume": True, **write}
    lading.convert(STEPS[steps](True)(lading.open(folder, stores=stores)), tmp_path / "other", **other)
    assert sum(calls().values()) == COUNT
    lading.convert(
        STEPS[steps](True)(lading.open(folder, stores=stores)), place, temp_dir=temporary, resume=True, **write
    )
    again = calls()
    assert set(again.values()) == {1}
    assert set(before) | set(again) == {f"{number:03d}" for number in range(COUNT)}
    assert len(set(before) & set(again)) <= 17  # the samples of the shard in which the job died
    splits = ("a", "b") if steps == "map, split" else (None,)
    assert rows(place, splits, stores=stores) == rows(str(tmp_path / "other"), splits)
    assert not list(temporary.iterdir())


def test_job_that_is_not_resumed_removes_what_the_last_one_left(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores({"memory://job-spool": MemoryStore()})
    made_first = lading.open(folder, stores=stores).map(made).sort("m")
    write: dict[str, Any] = {"format": "parquet", "temp_dir": tmp_path}
    there = set(os.listdir(tmp_path))
    monkeypatch.setenv(FAILS, "raise 45")
    with pytest.raises(FunctionError):
        lading.convert(made_first, "memory://job-spool/out", **write)
    monkeypatch.delenv(FAILS)
    changed = lading.open(folder, stores=stores).map(behind).sort("k")
    with pytest.raises(UsageError, match="another one"):
        lading.convert(changed, "memory://job-spool/out", resume=True, **write)
    calls()
    lading.convert(changed, "memory://job-spool/out", **write)
    assert sum(calls().values()) == COUNT
    assert set(os.listdir(tmp_path)) - {"calls"} == there


def test_new_orders_lie_in_the_temporary_folder(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in TMPDIR: here that is missing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    write: dict[str, Any] = {"format": "webdataset", **by_tasks(2)}
    with pytest.raises(StoreError, match="missing"):
        lading.open(folder).shuffle(seed=1).write(tmp_path / "out", **write)
    own = tmp_path / "own"
    own.mkdir()
    assert lading.open(folder).shuffle(seed=1).write(tmp_path / "out", temp_dir=own, **write).samples == COUNT
    assert not list(own.iterdir())


def test_job_that_died_in_its_commit_calls_no_function_again(
    folder: str, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DyingStore(f"s3://{BUCKET}", options=options(server))
    stores, write = Stores({f"s3://{BUCKET}": store}), {"format": "parquet", "shard_size": "1KB", "temp_dir": tmp_path}
    monkeypatch.setattr(store, "dies_at", "shard-000001.parquet")
    for resume in (False, True):
        ordered = lading.open(folder, stores=stores).map(made).sort("m")
        with pytest.raises(Killed):
            lading.convert(ordered, f"s3://{BUCKET}/out", resume=resume, **write)
        assert sum(calls().values()) == (0 if resume else COUNT)
    monkeypatch.setattr(store, "dies_at", "nothing")
    ordered = lading.open(folder, stores=stores).map(made).sort("m")
    lading.convert(ordered, f"s3://{BUCKET}/out", resume=True, **write)
    assert not calls()
    assert not left(tmp_path)
    ordered.write(tmp_path / "other", format="parquet", shard_size="1KB")
    assert rows(f"s3://{BUCKET}/out", stores=stores) == rows(str(tmp_path / "other"))


@pytest.mark.soak
@pytest.mark.parametrize("remote", [False, True])
def test_killed_job_goes_on_with_what_functions_made(folder: str, tmp_path: Path, *, remote: bool) -> None:
    program = (
        "import sys, lading, test_job_spool\n"
        "lading.open(sys.argv[1]).map(test_job_spool.made).sort('m')"
        ".write(sys.argv[2], format='webdataset', temp_dir=sys.argv[3] or None, resume=len(sys.argv) > 4)\n"
    )
    here = {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    to = ["memory://job-spool/out", str(tmp_path)] if remote else [str(tmp_path / "out"), ""]
    command = [sys.executable, "-c", program, folder, *to]
    killed = subprocess.run(command, env={**os.environ, **here, FAILS: "kill 45"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    before = calls()
    subprocess.run([*command, "resume"], env={**os.environ, **here}, check=True)
    again = calls()
    assert set(again.values()) == {1}
    assert sum(again.values()) < COUNT
    assert set(before) | set(again) == {f"{number:03d}" for number in range(COUNT)}
    assert not left(tmp_path)
