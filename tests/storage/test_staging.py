"""Folders being built, and what dead builders leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lading._core.storage.base import temporary_name, unfinished
from lading._core.storage.local import LocalStore
from lading._core.storage.lock import lock_file
from lading._core.storage.staging import stage_folder, sweep_files, sweep_stale
from lading.errors import StoreError, UsageError

_BUILDER = """
import sys, time
from lading._core.storage.local import LocalStore
from lading._core.storage.staging import stage_folder
staged = stage_folder(sys.argv[1])
sink = LocalStore().put_stream(staged.path + "/shard")
sink.write([b"half"])
other = LocalStore().put_stream(sys.argv[1])
other.write([b"half"])
print(staged.path, flush=True)
time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_built_beside_its_place_and_published(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "out"
    with stage_folder(str(target)) as staged:
        assert Path(staged.path).parent == tmp_path / "sub"
        Path(staged.path, "x").write_bytes(b"new")
        assert list(LocalStore().walk(str(tmp_path))) == []
        LocalStore().publish(staged.path, str(target))
    assert names(tmp_path / "sub") == ["out"]
    assert (target / "x").read_bytes() == b"new"


def test_a_folder_that_is_not_published_goes(tmp_path: Path) -> None:
    with stage_folder(str(tmp_path / "out")) as staged:
        Path(staged.path, "x").write_bytes(b"new")
    assert names(tmp_path) == []
    staged.release()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no file system without new files")
def test_a_place_that_takes_no_files_is_an_error() -> None:
    for build in (stage_folder, LocalStore().put_stream):
        with pytest.raises(StoreError, match="/proc: the folder cannot be written, or was removed"):
            build("/proc/x")


def test_a_folder_that_is_gone_takes_no_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="gone"):
        lock_file(str(tmp_path / "gone" / "x.lock"), create=True)
    assert lock_file(str(tmp_path / "gone" / "x.lock"), create=False) is None


@pytest.mark.parametrize("here", [False, True])
def test_a_place_whose_name_is_no_utf8_is_refused(here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "b\udcff"
    if here:
        odd.mkdir()
        monkeypatch.chdir(odd)
    with pytest.raises(UsageError, match=r"b\\udcff.*invalid UTF-8"):
        stage_folder("out" if here else str(odd))
    assert [path for path in tmp_path.rglob("*") if path != odd] == []


def test_what_is_replaced_goes_too(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(b"old")
    with stage_folder(str(tmp_path / "out")) as staged:
        LocalStore().publish(staged.path, str(tmp_path / "out"))
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == []


def test_a_folder_is_staged_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "disk" / "data").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "data")
    with stage_folder(str(tmp_path / "out")) as staged:
        assert Path(staged.path).parent == tmp_path / "disk"


def test_what_has_an_owner_is_not_swept(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    sink = LocalStore().put_stream(target)
    with stage_folder(target) as staged:
        assert sweep_stale(target) == []
        assert Path(staged.path).is_dir()
        assert len(names(tmp_path)) == 3
    sink.abort()


@pytest.mark.mechanism("leftovers of a builder that was killed")
def test_what_a_killed_builder_left_is_swept(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    with subprocess.Popen([sys.executable, "-c", _BUILDER, target], stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        left = builder.stdout.readline().strip()
        assert sweep_stale(target) == []
        builder.send_signal(signal.SIGKILL)
    assert len(names(tmp_path)) == 3
    with stage_folder(target) as mine:
        gone = sweep_stale(target)
        assert left in gone
        assert len(gone) == 2
        assert names(tmp_path) == sorted([Path(mine.path).name, Path(mine.path).name + ".lock"])


def test_only_what_belongs_to_the_target_is_swept(tmp_path: Path) -> None:
    kept = [".out2.lading-0123456789abcdef.tmp", ".out.tmp", "out.lading-0123456789abcdef.tmp", ".out.lading-12.tmp"]
    for name in [*kept, ".out.lading-0123456789abcdef.tmp"]:
        (tmp_path / name).write_bytes(b"x")
    assert sweep_stale(str(tmp_path / "out")) == [str(tmp_path / ".out.lading-0123456789abcdef.tmp")]
    assert names(tmp_path) == sorted(kept)


def test_an_old_dataset_on_its_way_out_is_swept(tmp_path: Path) -> None:
    """Killed between the exchange and the deletion: the old dataset lies under the temporary name."""
    left = temporary_name(str(tmp_path / "out"))
    os.makedirs(f"{left}/sub")
    Path(left, "sub", "x").write_bytes(b"old")
    Path(left + ".lock").touch()
    assert sweep_stale(str(tmp_path / "out")) == [left]
    assert names(tmp_path) == []


def test_what_a_late_attempt_wrote_is_swept(tmp_path: Path) -> None:
    """It made the folder of a build anew that had ended: no lock file is next to it."""
    target = str(tmp_path / "out")
    with stage_folder(target) as staged:
        left = staged.path
    LocalStore().put_stream(f"{left}/tasks/task-000000-x/000000.parquet").close()
    with stage_folder(target) as mine:
        assert sweep_stale(target) == [left]
        assert Path(mine.path).is_dir()
    assert names(tmp_path) == []


def test_sweeping_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep_stale(str(tmp_path / "no" / "such" / "place")) == []
    monkeypatch.chdir(tmp_path)
    assert sweep_stale("out") == []


def test_names_of_unfinished_things() -> None:
    for path, ending in (("/a/b.tar", ".tmp"), ("b", ""), ("s3://bucket/x", ".tmp"), ("/a/out/", ".lock")):
        name = temporary_name(path, ending).rpartition("/")[2]
        assert unfinished(name)
        assert temporary_name(path, ending) != temporary_name(path, ending)
    for name in ("shard-000000.tar", ".hidden", ".x.tmp", ".x.lading-123.tmp", "x.lading-0123456789abcdef.tmp"):
        assert not unfinished(name)


def test_long_names_are_swept_too(tmp_path: Path) -> None:
    target = str(tmp_path / ("é" * 127))
    left = temporary_name(target, ".tmp")
    Path(left).touch()
    assert sweep_stale(target) == [left]


@pytest.mark.mechanism("locks of staging that are inherited")
def test_whoever_inherits_the_lock_keeps_the_folder(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    staged = stage_folder(target)
    helper = subprocess.Popen(["sleep", "60"], pass_fds=[staged.lock])
    os.close(staged.lock)  # as if this process had died
    assert sweep_stale(target) == []
    helper.kill()
    helper.wait()
    assert sweep_stale(target) == [staged.path]


def test_files_of_dead_writers_go_and_those_that_may_be_of_a_living_one_stay(tmp_path: Path) -> None:
    """A full file has no lock until it gets its name: another file of its name, with any counter, speaks for it."""
    store = LocalStore()
    full, current = (store.put_stream(str(tmp_path / name)) for name in ("000_00003.bin", "001_00003.bin"))
    full.seal()
    for name in ("002_00004.bin", "000_00004.bin", "other.bin"):
        dead = store.put_stream(str(tmp_path / name))
        dead.seal()
    everything = names(tmp_path)
    gone = sweep_files(str(tmp_path), "000_00004.bin", dry_run=True)
    assert [os.path.basename(path).partition(".lading-")[0] for path in gone] == [".000_00004.bin", ".002_00004.bin"]
    assert sweep_files(str(tmp_path), "00003.bin") == sweep_files(str(tmp_path / "absent")) == []
    assert names(tmp_path) == everything
    sweep_files(str(tmp_path), "005_00004.bin")
    sweep_files(str(tmp_path))
    for sink in (full, current):
        sink.close()
    assert names(tmp_path) == ["000_00003.bin", "001_00003.bin"]
