"""What a process that another one watches tells it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_mb", "say"]


def say(answer: dict[str, object]) -> None:
    """Give an answer: a line of JSON."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def forget_peak() -> None:
    """Let the peak of memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> int:
    """The most memory that was resident since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
