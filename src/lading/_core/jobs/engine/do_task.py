"""One task of a job as a function of bytes, `do_task`: any process does it, on any machine that sees the data.

A worker process (`_core.jobs.engine.worker`) begins a job once, and does its tasks as `do_task` does: the same task
gives the same shards whoever does it.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from lading._core.jobs.engine.hosts import refuse_other_version
from lading._core.jobs.engine.messages import (
    decode_message,
    encode_error,
    encode_message,
    encode_warning,
)
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.threads import using_threads
from lading._core.manifest.values import own_version
from lading._core.processes.child_process import hand_on_warnings
from lading._core.storage.background import Background

__all__ = ["begin_job", "do_task", "encode_job"]

DoTask: TypeAlias = Callable[
    [
        Mapping[str, Any], Sequence[pa.Table | None], Background, Callable[[Tally], None],
        Callable[[Mapping[str, Any]], None],
    ],
    None,
]  # fmt: skip

_TOKEN = secrets.token_hex(8)


def encode_job(job: Mapping[str, Any], threads: int) -> bytes:
    """Return a job as `do_task` takes it.

    Args:
        job: the conversion, its calls of functions, or the reading, under its name; a reading with the name of its run.
        threads: threads that each task may use in another process.
    """
    sender = {"version": own_version(), "process": _this_process(), "host": platform.node()}
    return encode_message({**job, "threads": threads, "sender": sender})


def do_task(job: bytes, task: bytes) -> bytes:
    """Do a task of a job, and return its answer (`_core.jobs.engine.messages`).

    A task of a conversion writes its shards into a folder of this attempt. A task of a reading writes nothing.

    An error is part of the answer, as `encode_error` gives it. So whatever a caller sees raised was no error of the
    task: its process died, or it could not be reached.

    In another process than the sender's, warnings go into the answer, and pyarrow uses the task's threads.
    """
    host, warned = platform.node(), list[dict[str, Any]]()
    try:
        told, _ = decode_message(job)
        sender = told["sender"]
        refuse_other_version(sender["version"], sender["host"])
        if sender["process"] == _this_process():
            answer = _done(told, task)
        else:
            if "reading" not in told:
                from lading._core.jobs.convert.convert_task import refuse_unseen_folders

                refuse_unseen_folders(decode_message(task)[0], sender["host"])
            with _HELPER.doing(told["threads"], warned):
                answer = _done(told, task)
    except Exception as error:  # noqa: BLE001 - the sender raises it
        answer = {"error": encode_error(error)}
    return encode_message({**answer, "host": host, "warnings": warned})


def _this_process() -> str:
    """Return a name that no other process has, on any machine; a forked child has another number."""
    return f"{_TOKEN}-{os.getpid()}"


def _done(job: Mapping[str, Any], task: bytes) -> dict[str, Any]:
    """Do a task, and wait until its files are on disk; return its answer."""
    answer: dict[str, Any] = {}
    closing = Background("lading-close")
    try:
        begin_job(job)(*decode_message(task), closing, lambda _: None, answer.update)
        closing.wait()
    finally:
        closing.stop()
    return answer


def begin_job(job: Mapping[str, Any]) -> DoTask:
    """Return the function that does tasks of a job in this process.

    It is called with a task and its tables; a `Background`, in which files may still close when it returns; a function
    that is given counts on the way; and one that is given the answer, when all files are on disk.
    """
    if "reading" in job:
        from lading._core.jobs.engine.read_workers import (
            read_task,  # with all of a dataset: half as much again as a conversion
        )

        return partial(read_task, job["run"], job["reading"])
    from lading._core.jobs.convert.convert_task import call_task, convert_task
    from lading._core.jobs.convert.job_plan import JobPlan

    if "calls" in job:
        return partial(call_task, JobPlan.decode(job["calls"]))
    return partial(convert_task, JobPlan.decode(job["conversion"]))


class _Helper:
    """Tasks that run in a process for another one: they share pyarrow's threads and the warnings of this process.

    What was set before is set again when the last of them ends.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._set = ExitStack()
        self._taking: list[list[dict[str, Any]]] = []

    @contextmanager
    def doing(self, threads: int, warned: list[dict[str, Any]]) -> Iterator[None]:
        """Let pyarrow use these threads, and take the warnings that are issued meanwhile."""
        with self._changing:
            if not self._taking:
                self._set.enter_context(using_threads(threads))
                self._set.enter_context(warnings.catch_warnings())
                hand_on_warnings(self._take)
            self._taking.append(warned)
        try:
            yield
        finally:
            with self._changing:
                self._taking = [each for each in self._taking if each is not warned]
                if not self._taking:
                    self._set.close()

    def _take(self, message: Warning | str, category: type[Warning], filename: str, lineno: int) -> None:
        for warned in list(self._taking):  # whose warning it is, nobody knows; the sender repeats each once
            warned.append(encode_warning(message, category, filename, lineno))


_HELPER = _Helper()
