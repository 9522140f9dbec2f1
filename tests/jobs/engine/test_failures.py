"""`max_failures`: tasks fail, the others go on, and the job fails in the end with all of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.jobs.convert.run import _InOrder
from lading._core.jobs.convert.tasks import Task
from lading._core.jobs.engine.messages import DIGESTS_NAME
from lading._core.jobs.engine.progress import Progress
from lading._core.pipeline.cutting import ONE_SHARD
from lading._core.storage.base import Sink
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, FunctionError, StoreError
from several_tasks import contents, write_tars

_TASKS = 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tars of twelve samples, which are five tasks."""
    return write_tars(tmp_path_factory.mktemp("data") / "source", 60, "200kb")


def failing(marks: Path, *bad: str) -> Any:
    """A condition that fails for some samples: a file for each try."""

    def keep(sample: dict[str, Any]) -> bool:
        if sample["txt"] in bad:
            (marks / f"{sample['txt']}-{len(os.listdir(marks))}").touch()
            raise ValueError(f"sample {sample['txt']} is bad")
        return True

    return keep


def convert(source: Path, destination: Path | str, kind: str, keep: Any, **more: Any) -> None:
    with ThreadPoolExecutor(2) if kind == "executor" else nullcontext() as executor:
        lading.convert(source, destination, format="parquet", shard_size="183kb", filter=keep, executor=executor,
                       workers=2 if kind == "workers" else 1, **more)  # fmt: skip


@pytest.mark.parametrize("kind", ["alone", "executor"])
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
    assert f"Kept: {_TASKS - 2} of {_TASKS} tasks." in caught.value.__notes__[-1]


def test_more_failures_than_allowed_end_the_job(source: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with pytest.raises(FunctionError, match="sample 17 is bad"):
        convert(source, tmp_path / "out", "alone", failing(marks, "17", "44"))
    assert len(os.listdir(marks)) == 1
    with pytest.raises(DataError, match="2 tasks failed twice"):
        convert(source, tmp_path / "out", "alone", failing(marks, "17", "44"), max_failures=1)
    assert len(os.listdir(marks)) == 1 + 4


@pytest.mark.soak
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
    assert contents(tmp_path / "results" / "out") == contents(tmp_path / "whole")
    assert os.listdir(tmp_path / "results") == ["out"]


class Refusing(LocalStore):
    """A store that refuses so many times to keep what is written last of a task, with an error of the data."""

    def __init__(self, number: int, times: int) -> None:
        self._task, self._left = f"/task-{number:06d}-", times

    def put_stream(self, path: str) -> Sink:
        if self._task in path and path.endswith(DIGESTS_NAME) and self._left:
            self._left -= 1
            raise DataError("the data cannot be kept")
        return super().put_stream(path)


@pytest.mark.cases(1)
@pytest.mark.parametrize("number", [0, _TASKS - 2, _TASKS - 1])
def test_an_error_at_the_end_of_a_task_is_its_own(number: int, source: Path, tmp_path: Path) -> None:
    """A thread ends the task, while this process could begin with the next one."""

    def written(times: int) -> dict[str, bytes]:
        place = tmp_path / str(times)
        stores = Stores({f"{place}": Refusing(number, times)})
        convert(source, place / "out", "alone", failing(tmp_path), max_failures=1, verify=True, stores=stores)
        assert os.listdir(place) == ["out"]
        return contents(place)

    assert written(1) == written(0)
    with pytest.raises(DataError, match="the data cannot be kept"):
        written(2)
    [kept] = (tmp_path / "2").glob(".*/records")
    assert {int(path.stem) for path in kept.glob("[0-9]*.json")} == set(range(_TASKS)) - {number}
    assert not (tmp_path / "2" / "out").exists()


def test_a_job_never_ends_with_a_task_that_has_no_result() -> None:
    tasks = [Task(number, number, number + 1, 0, ONE_SHARD) for number in range(3)]
    taken: list[int] = []
    results = _InOrder(tasks, {}, lambda task, _: taken.append(task.number))
    for number in (0, 2):
        results.add({"done": number})
    results.take()
    with pytest.raises(StoreError, match="no result of 1 task, the first of them number 1"):
        results.refuse_missing()
    results.add({"done": 1})
    results.take()
    results.refuse_missing()
    assert taken == [0, 1, 2]


def test_rows_are_counted_once_when_a_task_is_tried_again(source: Path, tmp_path: Path) -> None:
    def keep(sample: dict[str, Any]) -> bool:
        if sample["txt"] in ("17", "44") and not (tmp_path / sample["txt"]).exists():
            (tmp_path / sample["txt"]).touch()
            raise ValueError(sample["txt"])
        return True

    told: list[Progress] = []
    convert(source, tmp_path / "out", "alone", keep, max_failures=1, max_batch_bytes="32kb", on_progress=told.append)
    assert max(progress.samples for progress in told) == 60
    assert told[-1].samples == 60
