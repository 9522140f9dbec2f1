"""Processes that decode bytes for the page, and what they made: each is ended where it takes too long."""

from __future__ import annotations

import json
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from queue import LifoQueue
from threading import Lock, Timer
from typing import IO, Any

from lading._core.processes.program import Program, how_it_ended

__all__ = ["Drawers", "Drawn"]

_SECONDS = 20.0
_HELD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was made of bytes.

    Attributes:
        facts: such as `mime` of the picture; `error` says why there is none.
        picture: its bytes; empty if there is none.
    """

    facts: dict[str, Any]
    picture: bytes = b""


class Drawers:
    """Processes that decode, started when there is work, and the newest of what they made.

    Args:
        count: of processes.
    """

    def __init__(self, count: int = 2) -> None:
        self._free: LifoQueue[_Drawer | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count, self._lock = count, Lock()
        self._made: OrderedDict[Hashable, Drawn] = OrderedDict()
        self._held_bytes = 0

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
        data = read()
        drawer = self._free.get()
        try:
            drawer = drawer or _Drawer()
            made = drawer.ask(what, size, data)
        finally:
            self._free.put(drawer if drawer is not None and drawer.is_alive else None)
        with self._lock:
            self._made[key] = made
            self._held_bytes += len(made.picture)
            while self._held_bytes > _HELD_BYTES:
                _, oldest = self._made.popitem(last=False)
                self._held_bytes -= len(oldest.picture)
        return made

    def close(self) -> None:
        """End the processes."""
        for _ in range(self._count):
            drawer = self._free.get()
            if drawer is not None:
                drawer.end()


class _Drawer:
    """A process that decodes."""

    def __init__(self) -> None:
        self._program = Program("lading._core.view.drawing", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.end = self._program.end

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._program.is_alive()

    def ask(self, what: str, size: int, data: bytes | memoryview) -> Drawn:
        """Return the answer to a request; of a process that died or was ended, that this is so."""
        late = Timer(_SECONDS, self._program.kill)
        late.start()
        try:
            return self._answer(what, size, data)
        except (OSError, ValueError):
            was_late, ended = late.finished.is_set(), how_it_ended(self._program.end())
            why = f"not decoded within {_SECONDS:.0f} s" if was_late else f"the decoding process ended: {ended}"
            return Drawn({"error": why})
        finally:
            late.cancel()

    def _answer(self, what: str, size: int, data: bytes | memoryview) -> Drawn:
        pipe, answers = self._program.process.stdin, self._program.process.stdout
        assert pipe is not None
        assert answers is not None
        head = json.dumps({"what": what, "size": size, "bytes": len(data)}).encode() + b"\n"
        for part in (head, data):
            _write(pipe, part)
        facts = json.loads(_line(answers))
        return Drawn(facts, _read(answers, facts.pop("bytes")))


def _write(pipe: IO[bytes], data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[pipe.write(left) :]


def _line(answers: IO[bytes]) -> bytes:
    """A line of the answer. Raises ValueError where the process ended."""
    line = answers.readline()
    if not line.endswith(b"\n"):
        raise ValueError("no answer")
    return line


def _read(answers: IO[bytes], count: int) -> bytes:
    parts, left = [], count
    while left:
        part = answers.read(left)
        if not part:
            raise ValueError("no answer")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
