"""A process that decodes bytes for the page, as the server sees it: ended where it takes too long."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Timer
from typing import IO, Any

from lading._core.processes.program import Program, how_it_ended

__all__ = ["Drawer", "Drawn"]

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was made of bytes.

    Attributes:
        facts: such as `mime` of the picture; `error` says why there is none.
        picture: its bytes; empty if there is none.
    """

    facts: dict[str, Any]
    picture: bytes = b""


class Drawer:
    """A process that decodes. It begins at once, and may be asked while it begins.

    Args:
        starter: starts it, in a thread that lives as long as there are drawers: the system ends a process when the
            thread that started it ends, so that none is left when this process is killed.
    """

    def __init__(self, starter: ThreadPoolExecutor) -> None:
        self._started = starter.submit(
            Program, "lading._core.view.drawing", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            environment={"OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._started.result().is_alive()

    def end(self) -> int:
        """End the process; return its exit status."""
        return self._started.result().end()

    def ask(self, what: str, size: int, data: bytes | memoryview) -> Drawn:
        """Return the answer to a request; of a process that died or was ended, that this is so."""
        program = self._started.result()
        late = Timer(_SECONDS, program.kill)
        late.start()
        try:
            return self._answer(program, what, size, data)
        except (OSError, ValueError):
            was_late, ended = late.finished.is_set(), how_it_ended(program.end())
            why = f"not decoded within {_SECONDS:.0f} s" if was_late else f"the decoding process ended: {ended}"
            return Drawn({"error": why})
        finally:
            if late.finished.is_set():  # perhaps behind the answer
                program.end()
            late.cancel()

    def _answer(self, program: Program, what: str, size: int, data: bytes | memoryview) -> Drawn:
        pipe, answers = program.process.stdin, program.process.stdout
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
