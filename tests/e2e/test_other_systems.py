"""The main verbs where the system has nothing that Linux alone has: macOS, as far as Linux can show it.

`tests/support/like_macos` hides the names and files of Linux from each process that a test starts here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from killed import killer
from tars import tar_of

pytestmark = pytest.mark.soak

_ROOT = Path(__file__).parents[2]
_LIKE_MACOS = _ROOT / "tests" / "support" / "like_macos"
_FILES = 300
"""More files than a process may open there."""
_RESUMED = """
import json, sys, lading
from torch.utils.data import DataLoader

def loader(source):
    return lading.loader(source, 50, shuffle="global", workers=2, collate="list")

def keys(batch):
    return [sample["__key__"] for sample in batch]

def main(source):
    whole = [keys(batch) for batch in loader(source)]
    first = loader(source)
    begun = iter(first)
    read = [keys(next(begun)) for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    begun.close()
    again = loader(source)
    again.load_state_dict(state)
    plain = lading.loader(source, 50, collate="list").to_torch()
    spawned = DataLoader(plain, batch_size=None, num_workers=1)  # macOS spawns
    print(json.dumps([whole == read + [keys(batch) for batch in again], len(whole), sum(map(len, spawned))]))

if __name__ == "__main__":
    main(sys.argv[1])
"""
_CACHES = """
import sys, lading
from lading import features

for most in (10, 20):
    rows = ({"n": n, "v": [float(n)] * 3} for n in range(most))
    lading.caches.write_cache(rows, {"n": features.Value("int64"), "v": features.Array("float32", (3,))}, sys.argv[1])
print(len(lading.open(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars of 4 samples, more of them than files may be open."""
    folder, values = tmp_path_factory.mktemp("tars"), np.random.default_rng(1)
    for shard in range(_FILES):
        keys = [f"{4 * shard + number:05}" for number in range(4)]
        members = [(f"{key}.{end}", data) for key in keys for end, data in (("bin", values.bytes(4000)), ("cls", b"3"))]
        (folder / f"{shard:03}.tar").write_bytes(tar_of(*members))
    return folder


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A line for each process that started like on macOS."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [_LIKE_MACOS, _ROOT / "src", _ROOT / "tests/support"])))
    monkeypatch.setenv("LIKE_MACOS", str(tmp_path / "log"))
    return tmp_path / "log"


def _run(*words: str | Path, status: int = 0) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def _lading(*words: str | Path, status: int = 0) -> str:
    return _run("-m", "lading", *words, status=status)


def test_a_folder_is_replaced_in_one_step(source: Path, tmp_path: Path) -> None:
    one, out = source / "000.tar", tmp_path / "out"
    _lading("convert", source / "001.tar", out, "--to", "mds")
    _lading("convert", one, out, "--to", "mds", "--overwrite")
    assert _lading("digest", out) == _lading("digest", one)
    assert sorted(os.listdir(tmp_path)) == ["log", "out"]


def test_a_job_of_workers_that_was_killed_is_resumed(source: Path, tmp_path: Path, log: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    options = {"format": "parquet", "shard_size": "1MB", "verify": True}
    with killer() as program:
        assert program.convert(str(source), str(whole), workers=1, **options)[0] == 0
        killed = program.convert(str(source), str(out), 40, workers=2, **options)
        assert killed[0] == -signal.SIGKILL
        again = program.convert(str(source), str(out), workers=2, resume=True, **options)
        assert again[0] == 0
    assert "lading._core.jobs.engine.worker" in log.read_text()
    written = [{path.name: path.read_bytes() for path in folder.glob("*.parquet")} for folder in (whole, out)]
    assert len(written[0]) > 2
    assert written[0] == written[1]
    _lading("verify", out, "--deep")


def test_what_is_whole_of_a_damaged_shard_is_saved(source: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes((source / "000.tar").read_bytes()[:20_000])
    _lading("salvage", damaged, tmp_path / "saved", status=1)
    (made,) = (tmp_path / "saved").glob("*.tar")
    with tarfile.open(made) as saved:
        # The third is next to the damage: it may lack members.
        assert saved.getnames() == [f"0000{number}.{end}" for number in range(2) for end in ("bin", "cls")]


def test_a_loader_resumes(source: Path, tmp_path: Path, log: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "resumed.py").write_text(_RESUMED)
    found = _run(tmp_path / "resumed.py", source)
    assert json.loads(found.splitlines()[-1]) == [True, _FILES * 4 // 50, _FILES * 4]
    assert "lading._core.train.worker" in log.read_text()


def test_a_cache_replaces_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "caches.py").write_text(_CACHES)
    assert _run(tmp_path / "caches.py", tmp_path / "cache").split() == ["20"]


def test_the_types_of_macos_hold_for_all_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """mypy knows which names of `os`, `errno` and others a system has."""
    monkeypatch.delenv("PYTHONPATH")  # mypy itself is compiled for this system
    command = [sys.executable, "-m", "mypy", "--platform", "darwin", "--cache-dir", os.devnull]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
