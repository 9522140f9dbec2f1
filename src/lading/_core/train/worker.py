"""A process that makes batches for a loader: `python -m lading._core.train.worker`, started by `_core.train.processes`.

The socket is the inherited descriptor that the first argument names. First comes the loader, then one epoch after the
other, and leave to send more batches. When the socket ends, or the process of the second argument has ended, this
process ends at once, in the middle of whatever it does.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from io import TextIOWrapper
from queue import SimpleQueue
from typing import Any, Final

from lading._core.processes.child_process import hand_on_warnings, leave_pandas_out, leave_signals
from lading._core.processes.pickled import from_bytes
from lading._core.processes.shared_files import receive_value, send_value
from lading._core.train.metrics import LoopCounts
from lading._core.train.processes import ADVICE, Epoch, Failed, Made, More, Warned
from lading._core.train.skipped import SkippedSample
from lading.errors import UsageError

__all__ = ["main"]

_LOOK_MS: Final = 1000


class _Parent:
    """The process at the other end of the socket, to which a thread listens."""

    def __init__(self, fd: int, process: int) -> None:
        self._socket, self._process = socket.socket(fileno=fd), process
        self._orders: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        leave = threading.Semaphore(0)
        while os.getppid() == self._process:
            if not ready.poll(_LOOK_MS):
                continue
            try:
                order = receive_value(self._socket)
            except (EOFError, OSError):
                break
            if isinstance(order, More):
                leave.release()
            elif isinstance(order, Epoch):
                leave = threading.Semaphore(order.ahead)
                self._orders.put((order, leave))
            else:
                self._orders.put(order)
        os._exit(0)

    def order(self) -> Any:
        """The next order."""
        return self._orders.get()

    def send(self, value: Made | Failed) -> None:
        """Send a batch or an error."""
        try:
            send_value(self._socket, value)
        except OSError:
            os._exit(0)  # nobody listens
        except Exception as error:
            raise UsageError(
                "a worker process cannot send this batch", found=f"{type(error).__name__}: {error}"[:200],
                expected="values that cloudpickle can pickle", advice=f"Return such values. {ADVICE}",
            ) from error  # fmt: skip


def main() -> None:
    """Make batches until the socket ends."""
    leave_pandas_out()
    leave_signals()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # this process may end at any time
    parent = _Parent(int(sys.argv[1]), int(sys.argv[2]))
    try:
        _work(parent, _noted_warnings())
    except BaseException as error:  # noqa: BLE001 - the other process raises it
        parent.send(Failed.of(error))
    parent.order()  # nothing more comes: the end of the socket ends this process


def _noted_warnings() -> deque[Warned]:
    """From now on, warnings are noted and not shown."""
    noted: deque[Warned] = deque()
    hand_on_warnings(lambda message, *place: noted.append(Warned(str(message), *place)))
    return noted


def _work(parent: _Parent, noted: deque[Warned]) -> None:
    loader = from_bytes(parent.order(), ADVICE)
    skipped: list[SkippedSample] = []
    done = LoopCounts()

    def note(samples: Sequence[SkippedSample], counts: LoopCounts) -> None:
        nonlocal done
        skipped[:], done = samples, counts

    while True:
        epoch, leave = parent.order()
        for batch in loader.reader(epoch.number, epoch.every, note).batches(epoch.position):
            leave.acquire()
            parent.send(Made(batch, [*skipped], done, [noted.popleft() for _ in range(len(noted))]))
            del batch


if __name__ == "__main__":
    main()
