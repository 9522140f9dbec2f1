"""Jobs killed, interrupted and starved: what was committed stays, what was not is swept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lading


def write_old(folder: Path, fmt: str) -> list[str]:
    keys = [f"old{i:03d}" for i in range(30)]
    with lading.writer(folder, format=fmt) as writer:
        writer.write_batch(pa.table({"__key__": keys, "bin": pa.array([b"x"] * 30, pa.large_binary())}))
    return keys


def keys_of(folder: Path) -> list[str]:
    with lading.open(folder) as dataset:
        return [key for b in dataset.batches(columns=["__key__"]) for key in b.column("__key__").to_pylist()]


_WRITE = """
import os, signal, sys, time
import pyarrow as pa
import lading

def write(place, fmt, tell=lambda text: None, shard_size="64kb"):
    with lading.writer(place, format=fmt, shard_size=shard_size, overwrite=True) as writer:
        for at in range(0, 4000, 50):
            keys = [f"new{i:05d}" for i in range(at, at + 50)]
            values = pa.array([k.encode() * 40 for k in keys], pa.large_binary())
            writer.write_batch(pa.table({"__key__": keys, "bin": values}))
            tell(b".")
    tell(b"committed")

def forked(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return child

def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

def keys_of(place):
    with lading.open(place) as dataset:
        return [key for batch in dataset.batches(columns=["__key__"]) for key in batch["__key__"].to_pylist()]
"""
"""One process starts, and forks those that are killed: to import all this takes longer than the work."""


def run_killing(body: str, *words: object) -> str:
    command = [sys.executable, "-c", _WRITE + body, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


_KILL_WRITERS = """
place, fmt = sys.argv[1:]
old = keys_of(place)
for batches in (0, 1, 7, 30, 79, 80):
    told, tell = os.pipe()
    writer = forked(lambda: write(place, fmt, lambda text: os.write(tell, text)))
    for _ in range(batches):
        os.read(told, 1)
    kill(writer)
    found = keys_of(place)
    assert found in (old, [f"new{i:05d}" for i in range(4000)]), (batches, len(found))
    # The next writer of the same place sweeps what the dead one left.
    with lading.writer(place, format=fmt, overwrite=True) as writer:
        writer.write_batch(pa.table({"__key__": ["a"], "bin": pa.array([b"y"], pa.large_binary())}))
    old = keys_of(place)
    assert old == ["a"]
    assert os.listdir(os.path.dirname(place)) == [os.path.basename(place)]
print("done")
"""


@pytest.mark.cases(1)
@pytest.mark.mechanism("a writer that is killed")
@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_a_killed_writer_leaves_the_old_dataset_or_the_new(fmt: str, tmp_path: Path) -> None:
    write_old(tmp_path / "out", fmt)
    assert run_killing(_KILL_WRITERS, tmp_path / "out", fmt) == "done\n"


_KILL_CONVERSIONS = """
source, out = sys.argv[1:]
write(source, "webdataset", shard_size="1mb")

def convert():
    lading.convert(source, out, format="parquet", overwrite=True)

def forked_took():
    begun = time.monotonic()
    os.waitpid(forked(convert), 0)
    return time.monotonic() - begun

convert()  # what is done once, at the first, is not done by those that are killed
took, left = min(forked_took() for _ in range(2)), 0
for moment in (0.2, 0.5, 0.8):
    lading.writer(out, format="parquet", overwrite=True).close()
    job = forked(convert)
    time.sleep(moment * took)  # wherever this falls, what is asserted below must hold
    kill(job)
    left += len(os.listdir(os.path.dirname(out))) > 2
    assert lading.verify(out).ok
    convert()
    assert lading.diff(source, out).equal
    assert sorted(os.listdir(os.path.dirname(out))) == ["out", "source"]
print(left)
"""


@pytest.mark.soak
def test_a_killed_conversion_can_be_run_again(tmp_path: Path) -> None:
    unfinished = run_killing(_KILL_CONVERSIONS, tmp_path / "source", tmp_path / "out")
    assert int(unfinished) > 0


def test_two_writers_of_one_place_do_not_sweep_each_other(tmp_path: Path) -> None:
    first = lading.writer(tmp_path / "out", overwrite=True)
    second = lading.writer(tmp_path / "out", overwrite=True)
    for name, writer in (("a", first), ("b", second)):
        writer.write({"__key__": name, "txt": name})
        writer.close()
        assert keys_of(tmp_path / "out") == [name]


@pytest.mark.mechanism("a full disk")
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
