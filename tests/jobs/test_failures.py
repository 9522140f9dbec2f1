"""`max_failures`: tasks fail, the others go on, and the job fails in the end with all of them."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import lading
from lading.errors import DataError, FunctionError

_NUMBERS = random.Random(0)
_TASKS = 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tars of twelve samples, which are five tasks."""
    place = tmp_path_factory.mktemp("data") / "source"
    with lading.writer(place, format="webdataset", shard_size="200kb") as writer:
        for number in range(60):
            writer.write({"txt": str(number), "bin": _NUMBERS.randbytes(15000)})
    return place


def failing(marks: Path, *bad: str) -> Any:
    """A condition that fails for some samples: a file for each try."""

    def keep(sample: dict[str, Any]) -> bool:
        if sample["txt"] in bad:
            (marks / f"{sample['txt']}-{len(os.listdir(marks))}").touch()
            raise ValueError(f"sample {sample['txt']} is bad")
        return True

    return keep


def convert(source: Path, destination: Path, kind: str, keep: Any, **more: Any) -> None:
    with ThreadPoolExecutor(2) if kind == "executor" else nullcontext() as executor:
        lading.convert(source, destination, format="parquet", shard_size="183kb", filter=keep, executor=executor,
                       workers=2 if kind == "workers" else 1, **more)  # fmt: skip


@pytest.mark.parametrize("kind", ["alone", "workers", "executor"])
def test_the_others_go_on_and_all_failures_are_told(kind: str, source: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with pytest.raises(DataError, match="2 tasks failed twice") as caught:
        convert(source, tmp_path / "results" / "out", kind, failing(marks, "17", "44"), max_failures=2)
    assert [part in str(caught.value) for part in ("sample 17 is bad", "sample 44 is bad")] == [True, True]
    assert sorted(name.split("-")[0] for name in os.listdir(marks)) == ["17", "17", "44", "44"]
    [kept] = (tmp_path / "results").glob(".*/records")
    assert len(list(kept.glob("[0-9]*.json"))) == _TASKS - 2
    assert not (tmp_path / "results" / "out").exists()
    assert f"{_TASKS - 2} of {_TASKS} tasks are kept" in caught.value.__notes__[-1]


def test_more_failures_than_allowed_end_the_job(source: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with pytest.raises(FunctionError, match="sample 17 is bad"):
        convert(source, tmp_path / "out", "alone", failing(marks, "17", "44"))
    assert len(os.listdir(marks)) == 1
    with pytest.raises(DataError, match="2 tasks failed twice"):
        convert(source, tmp_path / "out", "alone", failing(marks, "17", "44"), max_failures=1)
    assert len(os.listdir(marks)) == 1 + 4


def test_a_task_that_fails_once_is_done_by_the_second_try(source: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def keep(sample: dict[str, Any]) -> bool:
        mark = marks / sample["txt"]
        if sample["txt"] in ("17", "44") and not mark.exists():
            mark.touch()
            raise ValueError(sample["txt"])
        return True

    convert(source, tmp_path / "results" / "out", "executor", keep, max_failures=1)
    convert(source, tmp_path / "whole", "alone", keep)
    first, second = (
        {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "results" / "out", tmp_path / "whole")
    )
    assert first == second
    assert os.listdir(tmp_path / "results") == ["out"]
