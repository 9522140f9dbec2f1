"""A process that does tasks for another one: `python -m lading._core.jobs.engine.worker` (`engine.programs`).

Frames (`_core.jobs.engine.messages`) come on standard input and go to standard output; what else is printed goes to
standard error. This process says when it is ready for a task. Then comes the task, behind it the job if that is
another one than before. Shards of a conversion are written out of sight, in a folder of each attempt at a task; only
the other process gives them names. The next task begins while the files of the last one close.

When standard input ends, whoever gave the work is done or dead: this process ends at once, in the middle of whatever
it does.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from lading._core.jobs.engine.do_task import begin_job
from lading._core.jobs.engine.messages import (
    decode_message,
    encode_error,
    encode_message,
    encode_warning,
    read_frame,
    write_frame,
)
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.threads import using_threads
from lading._core.processes.child_process import end_with_parent, hand_on_warnings, leave_pandas_out, leave_signals
from lading._core.storage.background import Background

__all__ = ["main"]


class _Parent:
    """The process at the other end of the pipes."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        self._sending = threading.Lock()
        self._said: SimpleQueue[tuple[dict[str, Any], list[bytes]]] = SimpleQueue()
        # All printing goes to standard error: nothing comes between the frames.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        with suppress(OSError):  # there may be no standard error
            os.dup2(2, 1)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self._in, "rb") as pipe:
            while (frame := read_frame(pipe)) is not None:
                self._said.put(frame)
        os._exit(0)

    def hear(self) -> tuple[dict[str, Any], list[bytes]]:
        """The next frame."""
        return self._said.get()

    def tell(self, told: Mapping[str, Any], *bodies: bytes) -> None:
        """Say something; any thread may. If nobody listens, this process ends."""
        with self._sending:
            try:
                write_frame(self._out, told, *bodies)
            except BrokenPipeError:
                os._exit(0)


class _Worker:
    """Does tasks one after another.

    Args:
        parent: where they come from.
    """

    def __init__(self, parent: _Parent) -> None:
        self._parent, self._warned = parent, deque[dict[str, Any]]()
        self._ends = threading.Thread()
        hand_on_warnings(lambda *warning: self._warned.append(encode_warning(*warning)))

    def work(self) -> None:
        """Do tasks until standard input ends."""
        with ExitStack() as threads:
            while True:
                self._parent.tell({"ready": True})
                told, (task, *job) = self._parent.hear()
                closing, reply = Background("lading-close"), partial(self._reply, told["at"])
                try:
                    for sent in job:
                        opening, _ = decode_message(sent)
                        threads.close()
                        threads.enter_context(using_threads(opening["threads"]))
                        do = begin_job(opening)
                    message, tables = decode_message(task)
                    do(message, tables, closing, partial(self._count, message["number"]), reply)
                except BaseException as error:  # noqa: BLE001 - the other process raises it
                    closing.stop()
                    reply({"error": encode_error(error)})
                else:
                    self._end(closing, reply)

    def _end(self, closing: Background, reply: Callable[[Mapping[str, Any]], None]) -> None:
        """Let files close while the next task begins, but not while the one after that does."""
        if self._ends.ident is not None:
            self._ends.join()
        self._ends = threading.Thread(target=_close, args=(closing, reply), name="lading-end", daemon=True)
        self._ends.start()

    def _count(self, number: int, tally: Tally) -> None:
        self._parent.tell({"counted": number, "tally": tally.as_list()})

    def _reply(self, at: int, answer: Mapping[str, Any]) -> None:
        warned = [self._warned.popleft() for _ in range(len(self._warned))]
        self._parent.tell({"at": at}, encode_message({**answer, "warnings": warned}))


def _close(closing: Background, reply: Callable[[Mapping[str, Any]], None]) -> None:
    """Wait until the files of a task are on disk, which answers; or answer with the error."""
    try:
        closing.wait()
    except BaseException as error:  # noqa: BLE001 - the other process raises it
        reply({"error": encode_error(error)})
    finally:
        closing.stop()


def main() -> None:
    """Do tasks until standard input ends."""
    leave_pandas_out()
    end_with_parent()
    leave_signals()
    parent = _Parent()
    import_module("lading._core.jobs.convert.convert_task")  # while the other process plans
    _Worker(parent).work()


if __name__ == "__main__":
    main()
