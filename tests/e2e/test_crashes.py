"""Jobs killed, interrupted and starved: what was committed stays, what was not is swept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lading

WRITE = """
import sys, pyarrow as pa, lading
with lading.writer(sys.argv[1], format=sys.argv[2], shard_size="64kb", overwrite=True) as writer:
    for at in range(0, 4000, 50):
        keys = [f"new{i:05d}" for i in range(at, at + 50)]
        values = pa.array([k.encode() * 40 for k in keys], pa.large_binary())
        writer.write_batch(pa.table({"__key__": keys, "bin": values}))
        print(at, flush=True)
print("committing", flush=True)
"""


def write_old(folder: Path, fmt: str) -> list[str]:
    keys = [f"old{i:03d}" for i in range(30)]
    with lading.writer(folder, format=fmt) as writer:
        writer.write_batch(pa.table({"__key__": keys, "bin": pa.array([b"x"] * 30, pa.large_binary())}))
    return keys


def keys_of(folder: Path) -> list[str]:
    with lading.open(folder) as dataset:
        return [key for b in dataset.batches(columns=["__key__"]) for key in b.column("__key__").to_pylist()]


@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
@pytest.mark.parametrize("lines", [0, 1, 7, 30, 79, 80])
def test_a_killed_writer_leaves_the_old_dataset_or_the_new(fmt: str, lines: int, tmp_path: Path) -> None:
    target = tmp_path / "out"
    old = write_old(target, fmt)
    job = subprocess.Popen([sys.executable, "-c", WRITE, str(target), fmt], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    for _ in range(lines + 1):
        job.stdout.readline()
    job.send_signal(signal.SIGKILL)
    job.wait()
    job.stdout.close()
    found = keys_of(target)
    assert found in (old, [f"new{i:05d}" for i in range(4000)])
    # The next writer of the same place sweeps what the dead one left.
    write_again = lading.writer(target, format=fmt, overwrite=True)
    write_again.write_batch(pa.table({"__key__": ["a"], "bin": pa.array([b"y"], pa.large_binary())}))
    write_again.close()
    assert keys_of(target) == ["a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


CONVERT = "import sys, lading; lading.convert(sys.argv[1], sys.argv[2], format=sys.argv[3], overwrite=True)"


@pytest.mark.parametrize("delay_s", [0.3, 0.5, 0.7, 0.9])
def test_a_killed_conversion_can_be_run_again(delay_s: float, tmp_path: Path) -> None:
    write_old(tmp_path / "source", "webdataset")
    subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path / "source"), "webdataset"], check=True, capture_output=True
    )
    command = [sys.executable, "-c", CONVERT, str(tmp_path / "source"), str(tmp_path / "out"), "parquet"]
    job = subprocess.Popen(command)
    time.sleep(delay_s)  # wherever this falls, what is asserted below must hold
    job.send_signal(signal.SIGKILL)
    job.wait()
    if (tmp_path / "out").exists():
        assert lading.verify(tmp_path / "out").ok
    subprocess.run(command, check=True)
    assert lading.diff(tmp_path / "source", tmp_path / "out").equal
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "source"]


def test_two_writers_of_one_place_do_not_sweep_each_other(tmp_path: Path) -> None:
    first = lading.writer(tmp_path / "out", overwrite=True)
    second = lading.writer(tmp_path / "out", overwrite=True)
    for name, writer in (("a", first), ("b", second)):
        writer.write({"__key__": name, "txt": name})
        writer.close()
        assert keys_of(tmp_path / "out") == [name]


def test_a_full_disk_is_an_error_of_ours_and_leaves_nothing(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: a write is cut short, then refused."""
    body = (
        "import resource, signal, sys, lading\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with lading.writer(sys.argv[1], format=sys.argv[2]) as w:\n"
        "        for i in range(2000): w.write({'__key__': f'{i:05d}', 'bin': __import__('os').urandom(1000)})\n"
        "except lading.LadingError as e:\n"
        "    print(type(e).__name__, e)\n"
        "    sys.exit(e.exit_status)\n"
    )
    for fmt in ("webdataset", "parquet"):
        target = tmp_path / fmt / "out"
        done = subprocess.run(
            [sys.executable, "-c", body, str(target), fmt], capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done.stderr
        assert done.stdout.startswith("StoreError")
        assert "out" in done.stdout
        assert [p for p in (tmp_path / fmt).rglob("*") if p.is_file()] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write_old(tmp_path / "out", "webdataset")
    shard = next((tmp_path / "out").glob("*.tar"))
    shard.chmod(0)
    with pytest.raises(lading.LadingError, match=shard.name):
        keys_of(tmp_path / "out")
