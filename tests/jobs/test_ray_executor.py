"""Conversions on a cluster of Ray, which runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lading
from lading.errors import MissingExtra

ON_RAY = """
import os, signal, sys
import ray, lading
from lading.jobs import tasks
tasks.ALONE_BYTES = 0  # several tasks, as in the process of the test

source, out, marker = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
driver = os.getpid()

def step(sample):
    if os.getpid() != driver and not os.path.exists(marker):
        open(marker, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"seen": 1}

done = lading.open(source, view="samples").map(step).write(out, "parquet", shard_size="150kb", executor="ray")
assert ray.is_initialized()  # who connected disconnects
print(done.shards)
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_the_same_bytes_on_ray_though_a_worker_dies(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "source", format="webdataset", shard_size="150kb")
    marker = tmp_path / "died"
    words = [sys.executable, "-c", ON_RAY, str(tmp_path / "source"), str(tmp_path / "out"), str(marker)]
    home = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(words, env={**os.environ, **home}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 3
    assert marker.exists()
    lading.open(tmp_path / "source", view="samples").map(lambda _: {"seen": 1}).write(
        tmp_path / "alone", "parquet", shard_size="150kb"
    )

    def contents(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".out")] == []


def test_without_ray_the_error_says_what_to_install(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lading\[ray\]'"):
        lading.convert(docs, tmp_path / "out", format="parquet", executor="ray")
    assert not (tmp_path / "out").exists()
