"""What work costs beside other work, in the processor's time: machines are unlike, and what they do is not."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["costs_at_most"]


def costs_at_most(times: float, work: Callable[[], object], other: Callable[[], object]) -> bool:
    """Whether work takes no more than so many times what other work takes, of which the longer of two runs counts."""
    return _cpu_s(work) <= times * max(_cpu_s(other), _cpu_s(other))


def _cpu_s(work: Callable[[], object]) -> float:
    gc.disable()  # what other tests have left in memory is looked through in longer than this work takes
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()
