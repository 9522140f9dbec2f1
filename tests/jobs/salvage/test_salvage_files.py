"""Files that a salvage makes on its way."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.formats.base import Recovered, ShardFile
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.storage.local import LocalStore

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


@pytest.mark.soak
@pytest.mark.parametrize("known", ["index", "nothing", "index of another tar"])
def test_a_cut_tar_lost_as_many_as_its_index_lists_or_at_least_so_many(known: str, tmp_path: Path) -> None:
    path, starts, end = tmp_path / "in" / "0.tar", [], 0
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        for number in range(40):
            starts.append(tar.offset)
            for extension in ("txt", "jpg"):
                member = tarfile.TarInfo(f"{number:04d}.{extension}")
                member.size = 2000
                tar.addfile(member, io.BytesIO(bytes([number]) * 2000))
        end = tar.offset
    if known != "nothing":  # as Megatron-Energon writes it: the start of each sample, and the end of the last one
        shift = 512 if known != "index" else 0
        np.array([*(start + shift for start in starts), end + shift], "<u8").tofile(f"{path}.idx")
    os.truncate(path, starts[11] + 2560 + 700)
    saved = lading.salvage(tmp_path / "in", tmp_path / "out")
    shown = CliRunner().invoke(app, ["salvage", str(tmp_path / "in"), str(tmp_path / "out"), "--overwrite"]).stdout
    if known == "index":
        assert (saved.samples + saved.lost_samples, saved.counted, list(saved.lost_tails)) == (40, True, [])
        assert f"lost   {saved.lost_samples} samples" in shown
    else:
        assert not saved.counted
        assert "at least 1 sample, and everything after byte" in " ".join(shown.split())
