"""Worker programs as an executor."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from typing import Any

import pytest

from lading._core.jobs.engine import programs
from lading._core.jobs.engine.messages import encode_message
from lading._core.jobs.engine.programs import ProgramDied, WorkerPrograms


@pytest.mark.soak
def test_of_a_process_that_died_the_task_that_read_is_lost_first() -> None:
    """It names the files that may have become shorter. Those of the task before it are read, and close."""
    lost: list[Future[Any]] = []
    job = encode_message({"conversion": "", "threads": 1})
    workers = WorkerPrograms(1, None, print)
    try:
        _wait_for_one_that_is_ready(workers)
        [worker] = workers._workers
        os.kill(worker.program.process.pid, signal.SIGSTOP)
        calls = [programs._Call(job, b"", Future()) for _ in range(2)]
        for call in calls:
            call.future.add_done_callback(lost.append)
        worker.calls = dict(enumerate(calls))
        os.kill(worker.program.process.pid, signal.SIGBUS)
        os.kill(worker.program.process.pid, signal.SIGCONT)
        errors = [call.future.exception(60) for call in calls]
    finally:
        workers.shutdown()
    assert [isinstance(error, ProgramDied) and error.is_final for error in errors] == [True, True]
    assert lost == [call.future for call in reversed(calls)]


def _wait_for_one_that_is_ready(workers: WorkerPrograms) -> None:
    until = time.monotonic() + 60
    while not workers._ready and time.monotonic() < until:
        time.sleep(0.01)
