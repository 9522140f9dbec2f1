"""The plan of a job is what the conversion then takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lading
from in_process import by_tasks
from lading._core.cli.main import app
from lading._core.jobs.convert.estimate import plan_job
from lading._core.jobs.engine.do_task import do_task
from lading.errors import FunctionError, UsageError


@pytest.fixture
def many(docs: Path, tmp_path: Path) -> Path:
    """The documents in some ten small tars."""
    lading.convert(docs, tmp_path / "in", format="webdataset", shard_size="150kb")
    return tmp_path / "in"


def test_the_plan_is_what_the_conversion_takes(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_job(many, format="parquet", shard_size="300kb", workers=2, rate=1_000_000)
    tasks = list[bytes]()

    def counted(job: bytes, task: bytes) -> bytes:
        tasks.append(task)
        return do_task(job, task)

    monkeypatch.setattr("lading._core.jobs.engine.executors.do_task", counted)
    done = lading.convert(many, tmp_path / "out", format="parquet", shard_size="300kb", executor="threads")
    size = sum(path.stat().st_size for path in (many).glob("*.tar"))
    assert (plan.source_shards, plan.source_bytes, plan.view) == (done.source_shards, size, "interleaved")
    assert plan.tasks == len(tasks)
    assert plan.shards == pytest.approx(done.shards, abs=1)
    assert plan.size_bytes == pytest.approx(done.size_bytes, rel=0.3)  # tiny shards: footers
    assert plan.seconds == pytest.approx(size / 2e6)
    assert plan.redone_seconds == pytest.approx(plan.task_bytes / 1e6)


@pytest.mark.soak
def test_more_of_the_same_takes_more(many: Path) -> None:
    plan = plan_job(many, format="parquet", workers=256, total_bytes="1TB")
    more = plan_job(many, format="parquet", workers=256, total_bytes="100TB")
    for name in ("tasks", "shards", "size_bytes", "seconds", "puts", "copies", "source_shards"):
        assert getattr(more, name) == pytest.approx(100 * getattr(plan, name), rel=0.01), name
    assert more.memory_bytes == plan.memory_bytes


@pytest.mark.parametrize("size", [100, 3000])
def test_plan_tells_the_size_of_what_functions_made(tmp_path: Path, size: int) -> None:
    """As the file is, in which a job that dies leaves it."""
    with lading.writer(tmp_path / "in", format="parquet", shard_size="1KB") as writer:
        for number in range(2000):
            writer.write({"n": number, "txt": f"text {number}"})
    numbers, dies = lading.open(tmp_path / "in"), [False]

    def made(sample: dict[str, Any]) -> dict[str, Any]:
        if dies[0] and sample["n"] == 1999:
            raise ValueError
        return {"m": f"{sample['n']:0{size}d}", "txt": sample["txt"]}

    def ordered() -> lading.Dataset:
        return numbers.filter(lambda sample: sample["n"] >= 0).map(made).sort("m")

    plan = plan_job(ordered(), format="parquet")
    assert plan.first == ("sort('m')",)
    assert plan.tasks == 1
    dies[0] = True
    with pytest.raises(FunctionError):
        ordered().write(tmp_path / "out", format="parquet")
    left = sum(path.stat().st_size for path in tmp_path.glob(".out.*/function-*"))
    assert plan.spool_bytes == pytest.approx(left, rel=0.2)  # small results: headers
    more = plan_job(ordered(), format="parquet", total_bytes=10 * plan.source_bytes)
    assert more.spool_bytes == pytest.approx(10 * plan.spool_bytes, rel=0.01)


def test_plan_says_what_it_does_not_know(many: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"n": 1}\n{"n": 2}\n')
    made = lading.open(lines).map(lambda sample: {"m": -sample["n"]})
    assert plan_job(made, format="parquet").spool_bytes == 0  # nothing is read again
    assert plan_job(made.sort("n"), format="parquet").spool_bytes is None  # all lines would have to be read
    assert plan_job(lading.open(many).shuffle(seed=1), format="parquet").spool_bytes == 0


@pytest.mark.parametrize("target", ["parquet", "webdataset"])
def test_new_order_takes_the_tasks_that_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    for module in ("estimate", "schedule"):
        monkeypatch.setattr(f"lading._core.jobs.convert.{module}.ALONE_BYTES", 1 << 20)
    with lading.writer(tmp_path / "in", format="webdataset", shard_size="2MB") as writer:
        for number in range(500):
            writer.write({"__key__": f"{number:03d}", "bin": np.random.default_rng(number).bytes(10_000)})
    shuffled, write = lading.open(tmp_path / "in").shuffle(seed=1), {"format": target, "shard_size": "500kb"}
    plan = plan_job(shuffled, **write)
    done = shuffled.write(tmp_path / "out", **write, **by_tasks(2))
    assert plan.shards == pytest.approx(done.shards, abs=1)
    assert plan.size_bytes == pytest.approx(done.size_bytes, rel=0.05)
    assert plan.tasks == pytest.approx(done.tasks, abs=1)
    assert plan.tasks > 5


def test_wrong_plans_are_refused(many: Path) -> None:
    for ordered in (lading.open(many).sample(3), lading.open(many).shuffle(seed=1).dedup()):
        with pytest.raises(UsageError, match="how many samples are left"):
            plan_job(ordered, format="parquet")
    with pytest.raises(UsageError, match=r"no such column.*missing"):
        plan_job(lading.open(many).map(lambda document: {"n": 1}).sort("missing"), format="parquet")
    for wrong in ({"rate": 0}, {"total_bytes": 0}):
        with pytest.raises(UsageError, match="1 byte or more"):
            plan_job(many, format="parquet", **wrong)


@pytest.mark.soak
def test_the_command_line_shows_the_plan(many: Path) -> None:
    args = ["plan", str(many), "--job", "--to", "parquet", "--workers", "64", "--total-bytes", "100TB"]
    shown = CliRunner().invoke(app, [*args, "--json"])
    expected = plan_job(many, format="parquet", workers=64, total_bytes="100TB")
    assert json.loads(shown.output) == json.loads(json.dumps(expected.to_dict()))
    assert f"{expected.tasks:,}" in CliRunner().invoke(app, args).output
    refused = CliRunner().invoke(app, args[:3])
    assert refused.exit_code == 2
    assert "Add --to parquet" in refused.output


def test_the_plan_says_what_many_shards_cost_and_that_functions_take_time(many: Path) -> None:
    def shouted(sample: dict[str, Any]) -> dict[str, Any]:
        return {"title": sample["title"]}

    size = sum(path.stat().st_size for path in many.glob("*.tar"))
    shards = len([*many.glob("*.tar")])
    plan = plan_job(lading.open(many).map(shouted), format="parquet", total_bytes=size * 2500 // shards)
    assert (plan.source_shards, plan.lists, plan.planner_bytes) == (2500, 3, 750_000)
    assert plan.gets >= 2500 * 3
    [function] = plan.functions
    assert "shouted" in function


def test_few_tasks_leave_functions_to_all_workers(many: Path) -> None:
    mapped = lading.open(many).map(lambda sample: {"n": len(sample)})
    assert [plan_job(mapped, format="parquet", workers=workers).calls_first for workers in (1, 2)] == [False, True]
    assert not plan_job(many, format="parquet", workers=2).calls_first
