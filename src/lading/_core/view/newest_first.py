"""Turns for work whose newest request matters most: what was scrolled past waits behind what is looked at."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from types import TracebackType

__all__ = ["NewestFirst"]


class NewestFirst:
    """Lets some do their work at once; of those that wait, the one that came last is next.

    Args:
        count: how many work at once.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: list[Future[None]] = []

    async def __aenter__(self) -> None:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
            return
        turn = get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._next()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the turn to the next."""
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.pop().set_result(None)
        else:
            self._free += 1
