"""Sixteen processes read one source at the same time: nothing is written to it, or next to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

import lading
from fault_proxy import fault_proxy
from object_server import BUCKET, environment, options

_PROGRAM = """
import os, sys, traceback
import lading

lading.open, lading.loader, lading.index, lading.verify, lading.digest  # imports once, not in each child
try:
    import pandas  # pyarrow does
except ImportError:
    pass

def read(number, source):
    dataset = lading.open(source)
    assert len(dataset) == 60
    assert sorted(int(row["cls"]) for row in dataset) == list(range(60))
    assert [int(row["cls"]) for row in dataset.where("cls >= 50")] == list(range(50, 60))
    assert int(dataset[number]["cls"]) == number
    if number % 4 == 0:
        assert sum(len(batch["cls"]) for batch in lading.loader(dataset, 8, shuffle=True, seed=number)) == 60
    if number % 4 == 1:
        lading.index(source, progress=False)
    if number % 4 == 2:
        assert not lading.verify(source, deep=True, progress=False).findings
    os.write(1, f"{lading.digest(source)}{os.linesep}".encode())

children = []
for number in range(16):
    child = os.fork()
    if not child:
        try:
            first, *others = sys.argv[1:]
            read(number, first)
            if others:
                read(number, others[number % len(others)])
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def _run(*sources: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *sources], env={**os.environ, **environment},
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Datasets of lading's, and files that others could have written."""
    folder = tmp_path / "source"
    for form in ("webdataset", "mds", "parquet"):
        with lading.writer(folder / form, format=form, rows_per_shard=20) as writer:
            for i in range(60):
                writer.write({"__key__": f"{i:03}", "txt": f"text {i}" * 50, "cls": i})
    (folder / "tars").mkdir()
    for tar in (folder / "webdataset").glob("*.tar"):
        (folder / "tars" / tar.name).write_bytes(tar.read_bytes())
    return folder


def _state(folder: Path) -> dict[Path, object]:
    """Bytes and times of all files and folders: a file that was made and deleted changes the time of its folder."""
    found: dict[Path, object] = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[path] = status.st_mode, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, content
    return found


@pytest.mark.soak
def test_of_this_machine(folder: Path, tmp_path: Path) -> None:
    sources = [str(folder / name) for name in ("tars", "webdataset", "mds", "parquet")]
    before = _state(folder)
    digests = _run(*sources, LADING_CACHE=str(tmp_path / "cache"))
    assert _state(folder) == before
    assert digests == 2 * 16 * [digests[0]]


@pytest.mark.soak
def test_of_an_object_store(folder: Path, tmp_path: Path, server: str) -> None:
    raw = S3Store(BUCKET, client_options={"allow_http": True}, **options(server))
    for tar in (folder / "tars").iterdir():
        obstore.put(raw, f"tars/{tar.name}", tar)
    with fault_proxy(server) as proxy:
        digests = _run(f"s3://{BUCKET}/tars", LADING_CACHE=str(tmp_path / "cache"), **environment(proxy.url))
    assert set(proxy.requests) == {"GET", "HEAD"}
    assert digests == 16 * [digests[0]]
