"""Progress of jobs that read the source before their own work: each pass is a phase with counts of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.jobs.engine.progress import Progress
from lading._core.jobs.stats.stats import dataset_stats

COUNT, SHARDS = 40, 4
NEW_ORDER, SCHEMAS = "reading for the new order", "looking at the shards"


@pytest.fixture(params=["webdataset", "parquet", "jsonl"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Four shards of ten samples, three of which equal an earlier one; no manifest tells their counts."""
    with lading.writer(tmp_path / "in", format=request.param, rows_per_shard=COUNT // SHARDS) as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"k{number:02}", "txt": f"text {min(number, 36)}", "cls": number % 7})
    ending = {"webdataset": "tar"}.get(request.param, request.param)
    assert len([*(tmp_path / "in").glob(f"*.{ending}")]) == SHARDS
    return str(tmp_path / "in" / f"*.{ending}")


def phases(told: list[Progress]) -> dict[str, list[Progress]]:
    """The reports of each phase, in the order of the phases; each comes once."""
    found = [(name, list(group)) for name, group in groupby(told, lambda done: done.phase)]
    assert len({name for name, _ in found}) == len(found)
    for _, reports in found:
        for one, next_one in pairwise(reports):
            assert (one.shards_done, one.samples) <= (next_one.shards_done, next_one.samples)
        assert {done.num_shards for done in reports} == {SHARDS}
    return dict(found)


@pytest.mark.soak
@pytest.mark.parametrize(
    "steps, reads",
    [
        (lambda ds: ds.shuffle(seed=1), {NEW_ORDER: COUNT}),
        (lambda ds: ds.sort("cls"), {"reading the values to sort by": COUNT, NEW_ORDER: COUNT}),
        (lambda ds: ds.dedup(by="txt"), {"looking for duplicates": COUNT, NEW_ORDER: COUNT}),
        (lambda ds: ds.dedup(by="content"), {"looking for duplicates": COUNT, NEW_ORDER: COUNT}),
        (lambda ds: ds.take_keys(["k33", "k02"]), {"looking for the keys": COUNT, NEW_ORDER: 20}),
        (lambda ds: ds.where("cls > 2").shuffle(seed=1), {"choosing samples": COUNT, NEW_ORDER: COUNT}),
    ],
)
def test_every_sample_that_is_read_beforehand_is_reported(
    source: str, tmp_path: Path, steps: Callable[[Any], Any], reads: dict[str, int]
) -> None:
    told: list[Progress] = []
    done = steps(lading.open(source)).write(tmp_path / "out", format="parquet", on_progress=told.append)
    found = phases(told)
    assert [name for name in found if name in reads] == [*reads]
    assert [*found][-1] == ""
    for name, samples in reads.items():
        begin, last = found[name][0], found[name][-1]
        assert (begin.shards_done, begin.samples) == (0, 0)
        assert (last.shards_done, last.samples) == (SHARDS, samples)
        assert len(found[name]) > SHARDS
    assert found[""][-1] == Progress(SHARDS, SHARDS, done.samples, done.payload_bytes)
    assert told[0].phase == SCHEMAS


def test_few_samples_of_large_shards_are_reported(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="parquet", rows_per_shard=100) as writer:
        for number in range(400):
            writer.write({"n": number})
    told: list[Progress] = []
    lading.open(tmp_path / "in").sample(0.02, seed=3).write(tmp_path / "out.parquet", on_progress=told.append)
    assert phases(told)[NEW_ORDER][-1].samples == 8


@pytest.mark.soak
def test_what_is_written_is_reported_again_where_it_is_read_back(source: str, tmp_path: Path) -> None:
    told: list[Progress] = []
    lading.open(source).shuffle(seed=2).write(
        tmp_path / "out", format="webdataset", rows_per_shard=10, verify=True, on_progress=told.append
    )
    found = phases(told)
    assert [*found][-2:] == ["", "reading back"]
    assert found["reading back"][-1].samples == COUNT


@pytest.mark.parametrize("job", [lading.digest, dataset_stats, lambda ds, **more: lading.diff(ds, ds, **more)])
def test_other_jobs_report_the_passes_before_them(source: str, job: Callable[..., Any]) -> None:
    told: list[Progress] = []
    job(lading.open(source).dedup(by="txt"), on_progress=told.append)
    assert [done.samples for done in told if done.phase == "looking for duplicates"][SHARDS] > 0
    assert told[0].phase
