"""Numbered samples, for tests of training loops."""

from __future__ import annotations

from pathlib import Path

import lading

__all__ = ["COUNT", "write_numbered"]

COUNT = 53


def write_numbered(folder: Path) -> Path:
    """Write `COUNT` samples with a number and a text, in shards of ten; return their folder."""
    with lading.writer(folder, format="mds", rows_per_shard=10) as writer:
        for i in range(COUNT):
            writer.write({"number": i, "txt": f"text {i}"})
    return folder
