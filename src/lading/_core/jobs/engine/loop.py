"""The loop over the tasks of a job: this process begins with them, and workers take over if the rest is worth it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

from lading._core.jobs.engine.executors import ExecutorPool
from lading._core.jobs.engine.progress import Speed
from lading._core.jobs.engine.task import AnyTask, TaskType

__all__ = ["LazyPool", "Work", "do_tasks"]

_Task_contra = TypeVar("_Task_contra", bound=AnyTask, contravariant=True)


class Work(Protocol[_Task_contra]):
    """How the tasks of a job are done."""

    def here(self, tasks: Iterator[_Task_contra], /) -> Iterator[Mapping[str, Any]]:
        """Do tasks in this process, as they come; give answers in their order, of each task one or several."""

    def by(self, pool: ExecutorPool, tasks: Sequence[_Task_contra], /) -> Iterator[Mapping[str, Any]]:
        """Have a pool do tasks; give their answers in order."""


class LazyPool:
    """A pool of workers that starts when the job needs it.

    Args:
        held: ends the pool when it closes.
        start: starts the pool for so many tasks, at most.

    Attributes:
        pool: the pool; None before it starts.
    """

    def __init__(self, held: ExitStack, start: Callable[[int], ExecutorPool]) -> None:
        self.pool: ExecutorPool | None = None
        self._held, self._start = held, start

    def begin(self, tasks: int) -> None:
        """Start the workers, for so many tasks."""
        self.pool = self._held.enter_context(self._start(tasks))

    def begins(self, speed: Speed, tasks: int) -> bool:
        """Return whether workers do the rest. They start if so many tasks, at this speed, are worth it."""
        if self.pool is None and tasks > 1 and speed.is_worth_workers():
            self.begin(tasks)
        return self.pool is not None


def do_tasks(work: Work[TaskType], tasks: Sequence[TaskType], workers: LazyPool | None) -> Generator[Mapping[str, Any]]:
    """Do tasks, and give their answers in order.

    Args:
        work: does them.
        tasks: the tasks, in order.
        workers: do the rest, as soon as the time of the first tasks shows that the rest is worth their start; None has
            all done in this process.
    """
    speed, begun = Speed(sum(task.source_bytes for task in tasks)), 0

    def mine() -> Iterator[TaskType]:
        nonlocal begun
        for task in tasks:
            if workers is not None and workers.begins(speed, len(tasks) - begun):
                return
            begun += 1
            yield task
            speed.add(task.source_bytes)

    yield from work.here(mine())
    if workers is not None and workers.pool is not None and begun < len(tasks):
        yield from work.by(workers.pool, tasks[begun:])
