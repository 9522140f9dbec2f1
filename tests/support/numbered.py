"""Numbered samples, for tests of training loops, and for tests of which files are a dataset."""

from __future__ import annotations

from pathlib import Path

import lading

__all__ = ["COUNT", "read_numbers", "write_numbered"]

COUNT = 53


def write_numbered(folder: Path) -> Path:
    """Write `COUNT` samples with a number and a text, in shards of ten; return their folder."""
    with lading.writer(folder, format="mds", rows_per_shard=10) as writer:
        for i in range(COUNT):
            writer.write({"number": i, "txt": f"text {i}"})
    return folder


def read_numbers(source: object, **opening: object) -> list[int]:
    """Return the values of the column `n`: they tell which files were opened."""
    with lading.open(source, **opening) as dataset:  # type: ignore[arg-type]
        return [row["n"] for row in dataset]
