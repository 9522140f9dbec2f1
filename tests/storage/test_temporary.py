from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lading._core.storage import temporary
from lading._core.storage.temporary import temporary_files_in, temporary_folder, writing
from lading.errors import StoreError, UsageError

HOLD = """
import sys, time
from pathlib import Path
from lading._core.storage.temporary import temporary_folder
with temporary_folder() as folder:
    Path(folder, "rows").write_bytes(bytes(1000))
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(temporary.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_for_one_user_and_is_removed(place: Path) -> None:
    with temporary_folder() as folder:
        assert os.path.dirname(folder) == str(place)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        Path(folder, "rows").write_bytes(b"rows")
    assert not list(place.iterdir())


@pytest.mark.soak
def test_the_folder_of_a_process_that_was_killed_is_removed_and_others_stay(place: Path) -> None:
    """A folder with a similar name, and that of a process that lives."""
    (place / "lading-tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    held = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, env=environment) for _ in range(2)]
    try:
        killed, alive = (process.stdout.readline().decode().strip() for process in held if process.stdout)
        held[0].send_signal(signal.SIGKILL)
        held[0].wait()
        assert os.path.exists(killed)
        with temporary_folder() as folder:
            there = {path.name for path in place.iterdir()}
            kept = {os.path.basename(path) + ending for path in (alive, folder) for ending in ("", ".lock")}
            assert there == {"lading-tmp", *kept}
            assert os.path.getsize(f"{alive}/rows") == 1000
    finally:
        for process in held:
            process.kill()
            process.communicate()


def test_a_folder_that_cannot_be_made_is_an_error(place: Path) -> None:
    place.rmdir()
    place.write_bytes(b"")
    with pytest.raises(StoreError, match=str(place)), temporary_folder():
        pass


def test_an_error_of_writing_says_what_to_do() -> None:
    with pytest.raises(StoreError, match="TMPDIR"), writing("/folder"):
        Path("/proc/none/file").write_bytes(b"")


def test_a_job_names_the_folder(place: Path) -> None:
    own = place / "own"
    with pytest.raises(UsageError, match=r"own: .*temp_dir="), temporary_files_in(own):
        pass
    own.mkdir()
    with temporary_files_in(own), temporary_folder() as folder:
        assert os.path.dirname(folder) == str(own)
    with temporary_files_in(None), temporary_folder() as folder:
        assert os.path.dirname(folder) == str(place)
