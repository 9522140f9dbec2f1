"""Files that a salvage makes on its way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from lading.formats.base import Recovered, ShardFile
from lading.jobs.salvage_files import TemporaryFiles
from lading.storage.local import LocalStore

_POOLS: list[pa.MemoryPool] = []
"""What came from a pool may be given back to it long after, when it must still be there."""


def test_of_what_is_read_to_lay_a_file_out_no_more_is_held_than_what_is_kept(tmp_path: Path) -> None:
    count, step = 1000, 60 << 10
    with (tmp_path / "a.bin").open("wb") as file:
        for number in range(count):
            file.seek(number * step)
            file.write(b"%03d" % number)
    target, length = np.arange(count) * 3, np.full(count, 3)
    with TemporaryFiles(LocalStore(), str(tmp_path / "out")) as workshop:
        source = ShardFile(LocalStore(), str(tmp_path / "a.bin"))
        own = pa.default_memory_pool()
        _POOLS.append(pa.proxy_memory_pool(own))
        pa.set_memory_pool(_POOLS[-1])  # what is read lies in pyarrow's memory
        try:
            made = workshop.laid_out(source, Recovered(np.arange(count) * step, target, length, 3 * count))
        finally:
            pa.set_memory_pool(own)
        assert Path(made.path).read_bytes() == b"".join(b"%03d" % number for number in range(count))
    assert 0 < _POOLS[-1].max_memory() <= 24 << 20
