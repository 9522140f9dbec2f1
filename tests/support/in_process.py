"""An executor that does each task in this process: tests of jobs need no others, because a task is bytes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

__all__ = ["InProcess", "by_tasks"]


class InProcess(Executor):
    """Does a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            future.set_exception(error)
        return future


def by_tasks(workers: int) -> dict[str, Any]:
    """Return arguments of a job: one process, or for more workers an executor that takes tasks as workers do."""
    return {"workers": 1} if workers == 1 else {"executor": InProcess()}
