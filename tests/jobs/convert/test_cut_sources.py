"""A source that another process truncates or empties while a job reads it is an error, and ends no process."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading

_JOB = """if True:
    import os, sys, lading
    job, source, share, workers, *files = sys.argv[1:]
    left = list(files)

    def cut(progress):
        while left and not progress.phase:
            path = left.pop()
            os.truncate(path, int(os.stat(path).st_size * float(share)))

    opening = {"workers": int(workers), "on_progress": cut}
    try:
        if job == "verify":
            print(lading.verify(source, **opening).findings)
        else:
            lading.convert(source, "out", format=job, max_batch_bytes="1MB", **opening)
    except lading.LadingError as error:
        print(type(error).__name__, error)
    assert not left
    """


def _source(folder: Path, fmt: str, value_bytes: int) -> list[str]:
    """Write shards of 5 MB, and return their files."""
    rng, count = np.random.default_rng(0), 18_000_000 // value_bytes
    rows = {"__key__": [f"{i:06}" for i in range(count)], "jpg": [rng.bytes(value_bytes) for _ in range(count)]}
    pq.write_table(pa.table(rows), folder / "one.parquet")
    lading.convert(folder / "one.parquet", folder / "source", format=fmt, shard_size="5MB")
    ending = {"webdataset": "tar"}.get(fmt, fmt)
    return sorted(map(str, (folder / "source").glob(f"*.{ending}")))


def _run(folder: Path, job: str, share: float, workers: int, files: list[str]) -> str:
    call = [sys.executable, "-c", _JOB, job, str(folder / "source"), str(share), str(workers), *files]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


_JOBS = {"webdataset": "mds", "mds": "parquet", "arrow": "webdataset"}


@pytest.mark.mechanism("memory of a job of many tasks")
@pytest.mark.cases(1)
@pytest.mark.parametrize("fmt, case", [*product(_JOBS, [(0, 1), (0, 2), (0.3, 2), (0.3, 1)])])
def test_a_source_of_large_values(tmp_path: Path, fmt: str, case: tuple[float, int]) -> None:
    job, (share, workers) = _JOBS[fmt], case
    files = _source(tmp_path, fmt, 30_000)
    said = _run(tmp_path, job, share, workers, files)
    assert said.startswith(("CorruptShard", "BadReference")), said
    assert "bytes" in said
    assert str(tmp_path / "source") in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "source"]


@pytest.mark.soak
@pytest.mark.parametrize("fmt, job", [("webdataset", "arrow"), ("mds", "webdataset"), ("arrow", "mds")])
def test_a_source_of_small_values(tmp_path: Path, fmt: str, job: str) -> None:
    files = _source(tmp_path, fmt, 600)
    said = _run(tmp_path, job, 0.3, 1, files)
    assert said.startswith(("CorruptShard", "BadReference")), said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.parquet", "source"]


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "arrow"])
def test_a_source_that_is_verified(tmp_path: Path, fmt: str) -> None:
    files = _source(tmp_path, fmt, 30_000)
    said = _run(tmp_path, "verify", 0.3, 1, files)
    assert "CorruptShard" in said or "SidecarMismatch" in said, said
