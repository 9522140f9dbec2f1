"""A task as bytes: who may do it, and how its errors and warnings come back."""

from __future__ import annotations

import pickle
import platform
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import lading
from lading._core.jobs.convert import run
from lading._core.jobs.convert.run import Run
from lading._core.jobs.engine.do_task import do_task, encode_job
from lading._core.jobs.engine.executors import ExecutorPool
from lading._core.jobs.engine.messages import decode_error, decode_message, encode_message
from lading.errors import UsageError

ELSEWHERE = """
import os, pickle, sys
from lading._core.jobs.engine.do_task import do_task
os.chdir("/")
sys.stdout.buffer.write(do_task(*pickle.load(sys.stdin.buffer)))
"""


Payload: TypeAlias = tuple[bytes, bytes]


class _Taken(Exception):
    """The first task of a conversion, and its job, as they would be sent."""


@pytest.fixture
def payload(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """A real conversion and its first task, whose folder is kept."""

    def taken(self: Run, crew: ExecutorPool, tasks: Any, *_: Any) -> None:
        (tmp_path / "built" / "tasks").mkdir(parents=True)
        task = self.sent(str(tmp_path / "built" / "tasks"), tasks[0])
        raise _Taken(encode_job({"conversion": self.spec.encode()}, 1), task.encode())

    def warning(sample: dict[str, Any]) -> dict[str, Any]:
        warnings.warn("a look at each", stacklevel=1)
        return {"n": len(sample)}

    monkeypatch.setattr(run.Run, "by", taken)
    with pytest.raises(_Taken) as caught:
        lading.convert(docs, tmp_path / "out", format="parquet", executor="threads", map=warning)
    job, task = caught.value.args
    return job, task


def changed(data: bytes, **more: Any) -> bytes:
    """The same job or task with other values."""
    told, tables = decode_message(data)
    return encode_message({**told, **more}, tables)


def by_another_process(job: bytes, task: bytes) -> dict[str, Any]:
    """What a process answers that stands in another folder."""
    sent = pickle.dumps((job, task))
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=True)
    return decode_message(done.stdout)[0]


pytestmark = pytest.mark.filterwarnings("ignore:a look at each")


@pytest.mark.soak
def test_an_answer_names_the_folder_of_its_attempt(payload: Payload, tmp_path: Path) -> None:
    job, task = payload
    elsewhere = changed(task, record=f"{tmp_path}/elsewhere/000000.json")
    answers = [decode_message(do_task(job, task))[0], by_another_process(job, elsewhere)]
    folders = [Path(answer["folder"]) for answer in answers]
    assert folders[0] != folders[1]
    first, second = ({p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()} for folder in folders)
    assert first == second != {}
    assert answers[0]["part"] == answers[1]["part"]
    assert {answer["host"] for answer in answers} == {platform.node()}


@pytest.mark.soak
def test_the_first_record_of_a_task_counts_and_a_later_attempt_leaves_nothing(payload: Payload) -> None:
    first, second = decode_message(do_task(*payload))[0], by_another_process(*payload)
    assert (first["folder"], first["part"]) == (second["folder"], second["part"])
    assert [path.name for path in Path(first["folder"]).parent.iterdir()] == [Path(first["folder"]).name]


@pytest.mark.mechanism("a task in another process")
def test_warnings_come_back_from_another_process_and_are_issued_in_this_one(payload: Payload) -> None:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        answer = decode_message(do_task(*payload))[0]
    assert {str(each.message) for each in issued} == {"a look at each"}
    assert answer["warnings"] == []
    assert {each["text"] for each in by_another_process(*payload)["warnings"]} == {"a look at each"}


def test_another_version_refuses_and_names_both_and_the_host(payload: Payload) -> None:
    job, task = payload
    told, _ = decode_message(job)
    answer, _ = decode_message(do_task(changed(job, sender={**told["sender"], "version": "9.8.7"}), task))
    error = decode_error(answer["error"])
    assert isinstance(error, UsageError)
    for part in (platform.node(), "9.8.7", str(told["sender"]["version"])):
        assert part in str(error)


@pytest.mark.soak
@pytest.mark.parametrize("what", ["destination", "source", "new order"])
def test_a_machine_that_does_not_see_a_folder_names_itself(what: str, payload: Payload) -> None:
    job, data = payload
    task, _ = decode_message(data)
    more: dict[str, Any] = {
        "destination": {"folder": "/nowhere/tasks/task-000000"},
        "source": {"shards": [{**task["shards"][0], "path": "/nowhere/a.tar"}]},
        "new order": {"spooled_order": ["/nowhere", 0, 1]},
    }[what]
    answer = by_another_process(job, changed(data, **more))
    error = decode_error(answer["error"])
    assert isinstance(error, UsageError)
    assert str(error).startswith("/nowhere")
    assert f"the host {platform.node()} does not see the {what}" in str(error)
    assert ("TMPDIR" if what == "new order" else "s3://") in str(error)


def test_threads_and_warnings_of_a_process_are_given_back(payload: Payload) -> None:
    job, task = payload
    told, _ = decode_message(job)
    before = pa.cpu_count(), pa.io_thread_count(), warnings.showwarning, list(warnings.filters)
    answer, _ = decode_message(do_task(changed(job, sender={**told["sender"], "process": "another"}), task))
    assert answer["warnings"]
    assert (pa.cpu_count(), pa.io_thread_count(), warnings.showwarning, list(warnings.filters)) == before
