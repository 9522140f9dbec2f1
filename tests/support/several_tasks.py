"""A source that is several tasks of a conversion, and the files that jobs leave."""

from __future__ import annotations

import random
from pathlib import Path

import lading

__all__ = ["contents", "write_tars"]


def write_tars(folder: Path, samples: int, shard_size: str) -> Path:
    """Write samples with a number and 15,000 random bytes as tars of this size; return their folder."""
    numbers = random.Random(0)
    with lading.writer(folder, format="webdataset", shard_size=shard_size) as writer:
        for number in range(samples):
            writer.write({"txt": str(number), "bin": numbers.randbytes(15000)})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden or not."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
