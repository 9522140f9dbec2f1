"""Work in threads: it ends where it is stopped, and where nobody asks any more."""

from __future__ import annotations

import time

from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.view.work import PageWork
from lading.errors import DataError


def _endless(report: OnProgress) -> None:
    for done in range(1_000_000):
        report(Progress(done, 1_000_000, done, 0))
        time.sleep(0.001)


def test_work_that_is_stopped_ends_and_says_so() -> None:
    work = PageWork(_endless)
    assert work.state()["running"]
    work.stop()
    work.wait(10)
    state = work.state()
    assert (state["running"], state["stopped"], work.result) == (False, True, None)
    assert state["progress"]["all_shards"] == 1_000_000


def test_work_ends_where_nobody_asks_any_more() -> None:
    work = PageWork(_endless, lease_s=0.2)
    while work.is_running:
        time.sleep(0.01)
    assert work.state()["stopped"]


def test_the_result_and_the_error_of_work() -> None:
    def fail(_: OnProgress) -> None:
        raise DataError("broken", file="a.tar")

    done, failed = PageWork(lambda _: 7), PageWork(fail)
    done.wait(10)
    failed.wait(10)
    assert done.result == 7
    assert failed.state() == {"running": False, "stopped": False, "error": "a.tar: broken", "progress": None}


def test_a_mistake_in_work_is_an_error_too() -> None:
    work = PageWork(lambda _: 1 // 0)
    work.wait(10)
    assert work.error is not None
    assert "internal error: ZeroDivisionError" in work.error
    assert not work.is_running
