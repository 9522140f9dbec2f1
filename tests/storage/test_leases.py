"""A file that another process changes while a job reads it is an error, and does not end this process (fcntl(2))."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import CorruptShard
from lading.storage.descriptors import close_unused
from lading.storage.leases import guarded_reads
from lading.storage.local import LocalMap, LocalStore

_CUT = "import os, sys; os.truncate(sys.argv[1], 0)"


def _cutting(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", _CUT, str(path)])


def _refused(file: LocalMap) -> CorruptShard | None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            file.check()
        except CorruptShard as error:
            return error
        time.sleep(0.01)
    return None


@pytest.mark.parametrize("reopened", [False, True])
def test_a_process_that_cuts_a_guarded_file_waits(tmp_path: Path, reopened: bool) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"bytes" * 1000)
    earlier = LocalStore().map(str(path))
    with guarded_reads():
        file = LocalStore().map(str(path))
        if reopened:
            close_unused()
            file.check()
        process = _cutting(path)
        error = _refused(file)
        assert error is not None
        assert "another process is changing the file" in str(error)
        assert file.buffer.to_pybytes() == b"bytes" * 1000
        assert process.poll() is None
    process.wait(20)
    assert path.stat().st_size == 0
    with pytest.raises(CorruptShard, match="0 bytes"):
        earlier.check()


def test_a_file_that_is_being_written_is_read_without_a_lease(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"bytes")
    with path.open("r+b") as writing, guarded_reads():
        file = LocalStore().map(str(path))
        file.check()
        writing.truncate(2)
        with pytest.raises(CorruptShard, match="2 bytes"):
            file.check()


def test_maps_outside_of_jobs_hold_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"bytes")
    file = LocalStore().map(str(path))
    with guarded_reads():
        file.check()
    os.truncate(path, 0)
    assert file.size_bytes == 5


_CONVERT = """if True:
    import subprocess, sys, lading
    source, fmt, workers, *files = sys.argv[1:]
    cutting = []

    def cut(progress):
        if not cutting:
            cut = "import os, sys; [os.truncate(path, os.stat(path).st_size // 3) for path in sys.argv[1:]]"
            cutting.append(subprocess.Popen([sys.executable, "-S", "-c", cut, *files]))

    try:
        lading.convert(source, "out", format=fmt, max_batch_bytes="1MB", on_progress=cut, workers=int(workers))
    except lading.LadingError as error:
        print(error)
    cutting[0].wait(20)
    """


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fmt, to", [("webdataset", "mds"), ("mds", "parquet"), ("arrow", "webdataset")])
def test_a_source_that_is_cut_ends_no_job_without_an_error(tmp_path: Path, fmt: str, to: str, workers: int) -> None:
    rng = np.random.default_rng(0)
    rows = {"__key__": [f"{i:04}" for i in range(600)], "jpg": [rng.bytes(30_000) for _ in range(600)]}
    pq.write_table(pa.table(rows), tmp_path / "one.parquet")
    lading.convert(tmp_path / "one.parquet", tmp_path / "source", format=fmt, shard_size="5MB")
    ending = {"webdataset": "tar"}.get(fmt, fmt)
    files = sorted(map(str, (tmp_path / "source").glob(f"*.{ending}")))
    call = [sys.executable, "-c", _CONVERT, str(tmp_path / "source"), to, str(workers), *files]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "source/" in done.stdout or (tmp_path / "out").is_dir()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
