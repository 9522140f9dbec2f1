"""The shard that shows the view of a dataset stays open until it is read, while descriptors are left."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lading
from lading._core.storage.descriptors import close_unused

_COUNT, _SHARDS = 150, 20


def test_datasets_that_nobody_reads_hold_few_files(tmp_path: Path) -> None:
    for i in range(_SHARDS):  # so many are not opened beforehand
        pq.write_table(pa.table({"x": [i]}), tmp_path / f"{i:02}.parquet")
    close_unused()  # of other tests
    before, (soft, hard) = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 100, hard))
    try:
        opened = [lading.open(tmp_path, mmap=True) for _ in range(_COUNT)]
        assert len(os.listdir("/proc/self/fd")) < before + 100
        assert next(iter(opened[0])) == {"x": 0}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
