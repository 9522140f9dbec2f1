"""The plan of a job is what the conversion then takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.jobs.do_task import do_task
from lading._core.jobs.job_plan import plan_job
from lading.errors import UsageError


@pytest.fixture
def many(docs: Path, tmp_path: Path) -> Path:
    """The documents in some ten small tars."""
    lading.convert(docs, tmp_path / "in", format="webdataset", shard_size="150kb")
    return tmp_path / "in"


def test_the_plan_is_what_the_conversion_takes(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_job(many, format="parquet", shard_size="300kb", workers=2, rate=1_000_000)
    tasks = list[bytes]()

    def counted(payload: bytes) -> bytes:
        tasks.append(payload)
        return do_task(payload)

    monkeypatch.setattr("lading._core.jobs.executors.do_task", counted)
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


def test_wrong_plans_are_refused(many: Path) -> None:
    with pytest.raises(UsageError, match="order of its source"):
        plan_job(lading.open(many).shuffle(seed=1), format="parquet")
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
