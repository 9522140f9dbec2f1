"""Freed memory that is kept: page faults of batches of bytes, each of which is freed when the next is there."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from contextlib import suppress

import pytest

from lading._core.arrow.free_memory import no_cycles

_BATCHES = """
import resource, sys
from lading._core.arrow.free_memory import keep_freed

def make(count):
    for number in range(count):
        batch = [bytes([number]) * size for size in range(90_000, 110_000, 312)]

if sys.argv[1] == "keep":
    keep_freed(6_400_000)
make(10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
make(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = 20 * 6_400_000 // 4096


@pytest.mark.soak
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rule is glibc's")
def test_the_memory_of_a_batch_is_kept_for_the_next_ones() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", _BATCHES, how], check=True, capture_output=True).stdout)
        for how in ("keep", "leave")
    }
    assert faults["keep"] < _PAGES // 5
    assert faults["leave"] > _PAGES // 4, "glibc has another rule now: keep_freed may be needless"


@pytest.mark.parametrize("was_on", [True, False])
def test_python_looks_for_cycles_afterwards_as_before(was_on: bool) -> None:
    before, found = gc.isenabled(), []
    try:
        (gc.enable if was_on else gc.disable)()
        with suppress(ValueError), no_cycles():
            found.append(gc.isenabled())
            raise ValueError
        found.append(gc.isenabled())
    finally:
        (gc.enable if before else gc.disable)()
    assert found == [False, was_on]
