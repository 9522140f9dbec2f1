"""Functions that several processes call before the only task of a small source: each once, and for the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from in_process import InProcess, by_tasks
from lading._core.jobs.convert import call_ahead
from lading._core.jobs.engine import progress
from lading.errors import DestinationExists, FunctionError
from several_tasks import contents

COUNT, CALLS, FAILS, KILLS = 24, "LADING_TEST_CALLS", "LADING_TEST_FAILS", "LADING_TEST_KILLS"
FORMATS = ["webdataset", "parquet", "mds", "arrow", "jsonl"]


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All functions count as slow, from the first sample on."""
    monkeypatch.setattr(progress, "_WORTH_S", -1e9)
    monkeypatch.setattr(call_ahead, "_PARTS", 4)
    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))


def write_source(folder: Path, *, format: str = "webdataset", shard_size: str = "2KB") -> str:  # noqa: A002
    numbers = random.Random(0)
    with lading.writer(folder, format=format, shard_size=shard_size) as writer:
        for number in range(COUNT):
            text = f"text {number} " + "x" * numbers.randrange(300)
            writer.write({"__key__": f"{number:03d}", "txt": text, "bin": numbers.randbytes(100)})
    return str(folder)


def called(sample: Any) -> int:
    """Note the call in a file, which all processes share; raise for the sample that is named."""
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{sample['__key__']} {os.getpid()}\n")
    if os.environ.get(FAILS) == sample["__key__"]:
        raise ValueError(sample["__key__"])
    return int(sample["__key__"])


def calls() -> Counter[str]:
    """The calls by key so far, which are forgotten."""
    found = Path(os.environ[CALLS]).read_text().splitlines() if os.path.exists(os.environ[CALLS]) else []
    Path(os.environ[CALLS]).unlink(missing_ok=True)
    return Counter(line.split()[0] for line in found)


def made(sample: Any) -> dict[str, Any]:
    number = called(sample)
    return {"n": number, "txt": sample["txt"].upper()} if number % 3 else {"n": number, "bin": b"y" * number}


def killing(sample: Any) -> dict[str, Any]:
    """Kill the whole job at the call that is named: the job is the parent of its workers."""
    number = called(sample)
    if KILLS in os.environ and Path(os.environ[CALLS]).read_text().count("\n") >= int(os.environ[KILLS]):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)  # this process ends with its parent
    return {"n": number}


def chosen(sample: Any) -> bool:
    return called(sample) % 4 > 0


def broken(sample: Any) -> dict[str, Any]:
    if called(sample) % 7 == 3:
        raise ValueError(sample["__key__"])
    return {"n": 1}


class Counting(InProcess):
    """Counts the tasks."""

    tasks = 0

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        self.tasks += 1
        return super().submit(*args, **kwargs)


STEPS: dict[str, Any] = {
    "map": lambda ds: ds.map(made),
    "where, map": lambda ds: ds.where("len(txt) > 50").map(made),
    "filter": lambda ds: ds.filter(chosen),
    "map, drop samples": lambda ds: ds.map(broken, on_error="drop_sample"),
    "map, where": lambda ds: ds.map(made).where("n > 11"),
    "map, shuffle": lambda ds: ds.map(made).shuffle(seed=1),
    "shuffle, map": lambda ds: ds.shuffle(seed=1).map(made),
    "map, sample": lambda ds: ds.map(made).sample(20, seed=1),
    "filter, sort": lambda ds: ds.filter(chosen).sort("txt"),
}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["shards", "one shard"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.cases(9)
def test_bytes_and_counts_are_those_of_one_process(tmp_path: Path, steps: str, source: str, target: str) -> None:
    folder = write_source(tmp_path / "in", shard_size="2KB" if source == "shards" else "1GB")
    did, seen = [], []
    for workers in (1, 2):
        how = {"format": target, "options": {"bytes": "base64"} if target == "jsonl" else None}
        did.append(
            lading.convert(STEPS[steps](lading.open(folder)), tmp_path / f"{workers}", **how, **by_tasks(workers))
        )
        seen.append(calls())
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert seen[0] == seen[1]
    assert set(seen[1].values()) == {1}
    same = ("samples", "rows", "shards", "size_bytes", "filtered_rows", "filtered", "lost_rows", "lost", "counts")
    assert [getattr(did[0], name) for name in same] == [getattr(did[1], name) for name in same]
    assert not [name for name in os.listdir(tmp_path) if ".lading-" in name]


@pytest.mark.parametrize("ends", ["resume", "clean"])
@pytest.mark.cases(2)
def test_finished_parts_are_kept_and_the_error_names_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    source = lading.open(write_source(tmp_path / "in")).map(made)
    monkeypatch.setenv(FAILS, "017")
    with pytest.raises(FunctionError) as caught:
        source.write(tmp_path / "out", format="parquet", **by_tasks(2))
    assert caught.value.sample == "017"
    assert any("--resume" in note for note in caught.value.__notes__)
    before = calls()
    monkeypatch.delenv(FAILS)
    if ends == "clean":
        assert lading.clean(tmp_path / "out").size_bytes > 0
    else:
        source.write(tmp_path / "out", format="parquet", resume=True)  # with other workers
        again = calls()
        assert set(again.values()) == {1}
        assert set(before) | set(again) == {f"{number:03d}" for number in range(COUNT)}
        assert {"017"} <= set(before) & set(again) <= {f"{number:03d}" for number in range(15, 18)}  # of one part
        source.write(tmp_path / "other", format="parquet")
        assert contents(tmp_path / "out") == contents(tmp_path / "other")
    assert not [name for name in os.listdir(tmp_path) if ".lading-" in name]


def test_fast_functions_are_called_where_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_WORTH_S", 1e9)
    monkeypatch.setattr(call_ahead, "_LOOK_S", -1)
    executor = Counting()
    lading.open(write_source(tmp_path / "in")).map(made).write(tmp_path / "out", format="parquet", executor=executor)
    assert set(calls().values()) == {1}
    assert executor.tasks == 1


@pytest.mark.parametrize("steps", ["map", "map, shuffle", "shuffle, map"])
@pytest.mark.cases(3)
def test_workers_share_the_calls(tmp_path: Path, steps: str) -> None:
    executor = Counting()
    STEPS[steps](lading.open(write_source(tmp_path / "in"))).write(
        tmp_path / "out", format="parquet", executor=executor
    )
    assert executor.tasks > 4
    assert set(calls().values()) == {1}


@pytest.mark.parametrize("order", ["", "before", "behind"])
@pytest.mark.cases(3)
def test_parts_that_one_process_does_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """The first process does all parts, and the task reads all samples again."""
    monkeypatch.setattr(progress, "_WORTH_S", 1e9)
    monkeypatch.setattr(call_ahead, "_LOOK_S", 1e9)
    names = pa.table({"name": [f"{number:03d}" for number in range(0, COUNT + 2, 2)]})
    source = lading.open(write_source(tmp_path / "in"))
    source = source.shuffle(seed=1) if order == "before" else source
    source = source.join(names, {"key": "name"}).map(made)
    source = source.shuffle(seed=1) if order == "behind" else source
    did = [source.write(tmp_path / f"{workers}", format="parquet", **by_tasks(workers)) for workers in (1, 2)]
    assert [each.counts["samples without a row in the table"] for each in did] == [COUNT // 2] * 2
    assert set(calls().values()) == {2}


@pytest.mark.soak
@pytest.mark.parametrize("at", [3, 9, 17])
def test_killed_processes_go_on_with_the_other_samples(tmp_path: Path, at: int) -> None:
    """With worker programs, of which one kills the job at a call; finished chunks are not made again."""
    folder = write_source(tmp_path / "in")
    program = (
        "import sys, lading, test_call_ahead\n"
        "from lading._core.jobs.engine import progress\n"
        "progress._WORTH_S = -1e9\n"
        "lading.open(sys.argv[1]).map(test_call_ahead.killing)"
        ".write(sys.argv[2], format='parquet', workers=2, resume=len(sys.argv) > 3)\n"
    )
    here = {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, "-c", program, folder, str(tmp_path / "out")]
    killed = subprocess.run(command, env={**os.environ, **here, KILLS: str(at)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    before = calls()
    subprocess.run([*command, "resume"], env={**os.environ, **here}, check=True)
    again = calls()
    assert set(again.values()) == {1}
    assert set(before) | set(again) == {f"{number:03d}" for number in range(COUNT)}
    assert len(set(before) & set(again)) <= 4  # the samples of the parts in which the workers died
    lading.open(folder).map(killing).write(tmp_path / "other", format="parquet")
    found = [contents(tmp_path / name) for name in ("out", "other")]
    for files in found:  # the name of a function is another one in the program
        del files["_lading/job.json"]
    assert found[0] == found[1]
    assert not [name for name in os.listdir(tmp_path) if ".lading-" in name]


def test_a_job_that_has_ended_is_not_begun_again(tmp_path: Path) -> None:
    source, out = lading.open(write_source(tmp_path / "in")).map(made), tmp_path / "out"
    source.write(out, format="parquet", **by_tasks(2))
    before, _ = contents(out), calls()
    assert source.write(out, format="parquet", resume=True, **by_tasks(2)).done_before
    assert set(calls()) == {"000"}  # tells the types
    assert not [name for name in os.listdir(tmp_path) if ".lading-" in name]
    with pytest.raises(DestinationExists):  # another job
        source.map(made).write(out, format="parquet", resume=True, **by_tasks(2))
    assert set(calls()) == {"000"}
    assert contents(out) == before
