"""What one random sample costs in each format: `python bench/random_access.py`, the table of docs/choose-a-format.md.

300 samples with an image of 60 KB, a caption and a JSON object, in one local shard of each format. The time is the
median of 400 calls of `ds[i]`, best of three rounds, as a ratio to MDS; the size is a ratio to the payload.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import lading

_SAMPLES, _CALLS, _ROUNDS = 300, 400, 3


def _write(folder: str) -> int:
    """A dataset of tars; gives the bytes of its payload."""
    random = np.random.default_rng(0)
    size = 0
    with lading.writer(folder, format="webdataset") as writer:
        for number in range(_SAMPLES):
            image = b"\xff\xd8\xff\xe0" + random.bytes(60_000)
            caption = {"caption": f"photo {number} of a small place at the sea", "lang": "en", "score": number / 7}
            writer.write({"__key__": f"{number:06d}", "jpg": image, "txt": caption["caption"], "json": caption})
            size += len(image) + 100
    return size


def _seconds(folder: str) -> float:
    rows = np.random.default_rng(1).integers(0, _SAMPLES, _CALLS).tolist()
    with lading.open(folder) as ds:
        ds[0]
        return min(statistics.median(_timed(ds, row) for row in rows) for _ in range(_ROUNDS))


def _timed(ds, row: int) -> float:
    begun = time.perf_counter()
    ds[row]
    return time.perf_counter() - begun


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        size = _write(f"{place}/webdataset")
        found = {"webdataset": _seconds(f"{place}/webdataset")}
        for name in ("mds", "arrow", "media_archive", "parquet"):
            lading.convert(f"{place}/webdataset", f"{place}/{name}", format=name)
            found[name] = _seconds(f"{place}/{name}")
        for name, seconds in sorted(found.items(), key=lambda item: item[1]):
            files = sum(path.stat().st_size for path in Path(place, name).glob("*.*"))
            ratio = seconds / found["mds"]
            print(f"{name:14} {seconds * 1e6:7.0f} µs  {ratio:5.0f} × MDS  {files / size:.2f} of payload")


if __name__ == "__main__":
    main()
