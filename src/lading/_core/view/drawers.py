"""Processes that decode bytes for the page, and what they made: each is ended where it takes too long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from queue import LifoQueue
from threading import Lock

from lading._core.processes.cores import usable_cores
from lading._core.view.drawer import Drawer, Drawn

__all__ = ["Drawers"]

_HELD_BYTES, _FACTS_BYTES = 64 << 20, 4 << 10
_FEWEST, _MOST = 2, 4


class Drawers:
    """Processes that decode, started when there is work, and the newest of what they made.

    Args:
        count: of processes; by default one a core, from 2 to 4.
    """

    def __init__(self, count: int | None = None) -> None:
        count = count or max(_FEWEST, min(usable_cores(), _MOST))
        self._free: LifoQueue[Drawer | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._lock = Lock()
        self._alive: set[Drawer] = set()
        self._starter = ThreadPoolExecutor(1, "lading-view-starter")
        self._made: OrderedDict[Hashable, Drawn] = OrderedDict()
        self._held_bytes = 0

    def start(self) -> None:
        """Start a process before there is work: the first picture need not wait for it."""
        if (drawer := self._free.get()) is None:
            drawer = self._new()
        self._free.put(drawer)

    def _new(self) -> Drawer:
        drawer = Drawer(self._starter)
        self._alive.add(drawer)
        return drawer

    def draw(self, what: str, size: int, key: Hashable, read: Callable[[], bytes | memoryview]) -> Drawn:
        """Return what a process makes of bytes; the same as before for a key that was asked for.

        Args:
            what: a name of `drawing.ANSWERS`.
            size: pixels of the picture's longer side, or parts of a waveform.
            key: of the value, in all datasets that are shown.
            read: gives the bytes.
        """
        key = (what, size, key)
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = self.ask(what, size, read())
        with self._lock:
            before = self._made.pop(key, None)  # of another thread, meanwhile
            self._made[key] = made
            self._held_bytes += _size(made) - (0 if before is None else _size(before))
            while self._held_bytes > _HELD_BYTES:
                self._held_bytes -= _size(self._made.popitem(last=False)[1])
        return made

    def ask(self, what: str, size: int, data: bytes | memoryview) -> Drawn:
        """Return what a process makes of bytes, and keep nothing; arguments as of `draw`."""
        drawer = self._free.get()
        try:
            drawer = drawer or self._new()
            return drawer.ask(what, size, data)
        finally:
            if drawer is not None and not drawer.is_alive:
                self._alive.discard(drawer)
                drawer = None
            self._free.put(drawer)

    def close(self) -> None:
        """End the processes, also those that decode."""
        self._starter.shutdown()
        for drawer in [*self._alive]:
            drawer.end()


def _size(made: Drawn) -> int:
    return len(made.picture) + _FACTS_BYTES
