"""A process that does tasks for another one: `python -m lading._core.jobs.engine.worker`, started by `engine.pool`.

Messages (`_core.jobs.engine.messages`) come on standard input and go to standard output; what else is printed goes to
standard error. First comes the job, a `conversion` or a `reading` (`engine.reading`), then one task after each
time this process says that it is ready. Shards of a conversion are written out of sight, in a folder of each
attempt at a task; only the other process gives them names.

When standard input ends, whoever gave the work is done or dead: this process ends at once, in the middle of whatever
it does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lading._core.jobs.convert.spec import Conversion
from lading._core.jobs.engine.do_task import convert_task
from lading._core.jobs.engine.messages import (
    encode_error,
    encode_warning,
    read_message,
    write_message,
)
from lading._core.jobs.engine.threads import using_threads
from lading._core.processes.child_process import end_with_parent, hand_on_warnings, leave_pandas_out, leave_signals
from lading._core.storage.background import Background

__all__ = ["main"]

_Message = tuple[dict[str, Any], list[pa.Table | None]]
_Do = Callable[[Mapping[str, Any], Sequence[pa.Table | None]], None]


class _Parent:
    """The process at the other end of the pipes. An error that ends the body of a `with` is sent to it."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        self._sending = threading.Lock()
        self._said: SimpleQueue[_Message] = SimpleQueue()
        # All printing goes to standard error: nothing comes between the messages.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        with suppress(OSError):  # there may be no standard error
            os.dup2(2, 1)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self._in, "rb") as pipe:
            while (message := read_message(pipe)) is not None:
                self._said.put(message)
        os._exit(0)

    def hear(self) -> _Message:
        """The next message."""
        return self._said.get()

    def tell(self, **message: Any) -> None:
        """Say something; any thread may."""
        with self._sending:
            write_message(self._out, message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.tell(error=encode_error(error))
        os._exit(0)


def main() -> None:
    """Do tasks until standard input ends."""
    leave_pandas_out()
    end_with_parent()
    leave_signals()
    with _Parent() as parent:
        hand_on_warnings(lambda *warning: parent.tell(warning=encode_warning(*warning)))
        opening, _ = parent.hear()
        closing = Background("lading-close")
        with using_threads(opening["threads"]):
            do = _job(opening, closing, parent.tell)
            parent.tell(ready=True)
            task, tables = parent.hear()
            while task:
                do(task, tables)
                parent.tell(ready=True)
                task, tables = parent.hear()
            closing.wait()
            parent.hear()  # nothing more comes: the end of standard input ends this process


def _job(opening: dict[str, Any], closing: Background, tell: Callable[..., None]) -> _Do:
    """Return the function that does tasks: they are pieces of a conversion, or of a reading."""
    if "reading" in opening:
        from lading._core.jobs.engine.read_task import (
            ReadWorker,  # with all of a dataset: half as much again as a conversion
        )

        return partial(ReadWorker(opening["reading"]).do, tell)
    return partial(convert_task, Conversion.decode(opening["conversion"]), closing, tell)


if __name__ == "__main__":
    main()
