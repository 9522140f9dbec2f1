"""Jobs on a cluster of Dask: one cluster for all, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lading
from lading._core.jobs.engine.dask_executor import DaskExecutor
from lading.errors import MissingExtra, StoreError, UsageError

ON_DASK = """
import json, os, signal, sys
from distributed import Client, LocalCluster
import lading
from lading._core.jobs.convert import tasks
tasks.ALONE_BYTES = 0  # several tasks, as in the process of the test

folder = sys.argv[1]
source, marker = f"{folder}/source", f"{folder}/died"
driver = os.getpid()

def step(sample):
    if os.getpid() != driver and not os.path.exists(marker):
        open(marker, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"seen": 1}

if __name__ == "__main__":
    told = {}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address
        ds = lading.open(source, view="samples").map(step)
        made = ds.write(f"{folder}/out", "parquet", shard_size="150kb", executor="dask", address=address)
        told["shards"] = made.shards
        told["digest"] = lading.digest(f"{folder}/out", executor="dask", address=address).ordered
        with Client(cluster) as client:
            told["found"] = lading.verify(f"{folder}/out", executor="dask").ok
            told["client"] = client.status
    print(json.dumps(told))
"""


@pytest.mark.soak
def test_the_same_bytes_on_dask_though_a_worker_dies(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    lading.convert(docs, tmp_path / "source", format="webdataset", shard_size="150kb")
    (tmp_path / "program.py").write_text(ON_DASK)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py"), str(tmp_path)], check=False,
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (tmp_path / "died").exists()

    alone = lading.open(tmp_path / "source", view="samples").map(lambda _: {"seen": 1})
    assert alone.write(tmp_path / "alone", "parquet", shard_size="150kb").shards == told["shards"] > 2
    files = {p.name: p.read_bytes() for p in (tmp_path / "alone").glob("*.parquet")}
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.parquet")} == files
    assert told["digest"] == lading.digest(tmp_path / "alone").ordered
    assert told["found"]
    assert told["client"] == "running"  # whoever connected disconnects
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.soak
def test_without_dask_or_an_address_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(UsageError, match="address='tcp://HOST:8786'"):
        DaskExecutor()
    for wrong in ("127.0.0.1", "nonsense", "http://10.0.0.1:8786"):
        with pytest.raises(StoreError, match=r"such as tcp://10\.0\.0\.1:8786"):
            DaskExecutor(wrong)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lading\[dask\]'"):
        DaskExecutor()
