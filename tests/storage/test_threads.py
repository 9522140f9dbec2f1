"""Threads that a process does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from lading._core.storage.threads import Running, Threads


def test_tasks_are_done_in_their_order() -> None:
    done: list[int] = []
    with Threads(1, "test") as threads:
        results = [threads.submit(lambda i=i: done.append(i) or i) for i in range(20)]  # type: ignore[misc, func-returns-value]
        assert [result.result() for result in results] == [*range(20)]
    threads.wait(60)
    assert done == [*range(20)]


def test_an_error_is_raised_by_the_result() -> None:
    with Threads(2, "test") as threads, pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result()


def test_no_more_threads_than_tasks() -> None:
    threads = Threads(16, "of-this-test")
    threads.submit(int).result()
    assert [each.name for each in threading.enumerate() if each.name.startswith("of-this-test")] == ["of-this-test_0"]
    threads.stop()
    threads.wait(60)


def test_tasks_that_have_not_begun_are_cancelled() -> None:
    begun, may_end = threading.Event(), threading.Event()
    threads = Threads(1, "test")
    first = threads.submit(lambda: begun.set() or may_end.wait())  # type: ignore[func-returns-value]
    second = threads.submit(int)
    begun.wait()
    threads.stop()
    late = threads.submit(int)
    may_end.set()
    assert first.result() is True
    for future in (second, late):
        with pytest.raises(CancelledError):
            future.result()
    threads.wait(60)


def test_a_task_whose_pool_was_stopped_ends_before_its_next_function() -> None:
    """A batch of many samples would hold the end of the process, though no function takes long."""
    begun, may_end = threading.Event(), threading.Event()
    called: list[int] = []

    def function(number: int) -> None:
        called.append(number)
        begun.set()
        may_end.wait()

    def task() -> None:
        for number in range(1000):
            with Running(function):
                function(number)

    with Threads(1, "test") as threads:
        result = threads.submit(task)
        begun.wait()
    may_end.set()
    threads.wait(60)
    assert called == [0]
    assert result.exception() is not None


def test_threads_end_with_a_pool_that_nobody_stopped() -> None:
    threads = Threads(1, "of-a-dropped-pool")
    threads.submit(int).result()
    [thread] = [each for each in threading.enumerate() if each.name.startswith("of-a-dropped-pool")]
    del threads
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.soak
def test_the_process_ends_without_them() -> None:
    script = (
        "import threading; from lading._core.storage.threads import Threads\n"
        "threads = Threads(2, 'test')\n"
        "threads.submit(threading.Event().wait)\n"
        "threads.submit(threading.Event().wait)\n"
        "print('end')"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (found.stdout, found.stderr, found.returncode) == ("end\n", "", 0)


@pytest.mark.mechanism("fork beside threads")
def test_a_fork_waits_for_a_task_that_holds_a_lock() -> None:
    """Else the lock would never be free in the child."""
    lock, stop = threading.Lock(), threading.Event()

    def work() -> None:
        for _ in range(1000):
            with lock:
                stop.wait(0.00001)

    with Threads(2, "test") as threads:
        while not stop.is_set():
            tasks = [threads.submit(work) for _ in range(2)]
            for _ in range(5):
                child = os.fork()
                if not child:
                    os._exit(0 if lock.acquire(timeout=20) else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            stop.set()
        assert all(task.result() is None for task in tasks)
