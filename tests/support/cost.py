"""Compare the cost of work with that of other work, in processor time: machines and their load differ."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["costs_at_most"]


def costs_at_most(times: float, work: Callable[[], object], other: Callable[[], object]) -> bool:
    """Return whether work costs no more than a multiple of other work, of which the longer of two runs counts.

    Work that costs more has two more runs: a busy machine makes one run slow, but not each.
    """
    limit = times * max(_cpu_s(other), _cpu_s(other))
    return any(_cpu_s(work) <= limit for _ in range(3))


def _cpu_s(work: Callable[[], object]) -> float:
    gc.disable()  # the collector scans memory left by other tests longer than this work takes
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()
