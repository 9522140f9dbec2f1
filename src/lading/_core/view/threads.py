"""Work in threads that the end of the process does not wait for: a store that hangs may hold one for minutes."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

__all__ = ["in_thread"]

_Result = TypeVar("_Result")


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Return what a function returns or raises in a thread of its own. A result that nobody awaits is dropped."""
    loop = get_running_loop()
    made: Future[_Result] = loop.create_future()
    Thread(target=_run, args=(work, loop, made), name="lading-view-answer", daemon=True).start()
    return await made


def _run(work: Callable[[], _Result], loop: AbstractEventLoop, made: Future[_Result]) -> None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - who awaits it gets it
        _tell(loop, made, made.set_exception, error)
    else:
        _tell(loop, made, made.set_result, result)


def _tell(loop: AbstractEventLoop, made: Future[_Result], tell: Callable[..., None], outcome: object) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(lambda: None if made.cancelled() else tell(outcome))
