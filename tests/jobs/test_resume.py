"""A job that died goes on: `resume` gives the bytes of an undisturbed job, and leaves nothing else."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from faults import file_size_limit
from killed import Killer, killer
from lading.errors import DestinationExists, LadingError, UsageError
from lading.storage.stores import Stores, resolve
from object_server import BUCKET, options

_OPTIONS: dict[str, Any] = {"format": "parquet", "shard_size": "400kb"}
_NUMBERS = random.Random(0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars that make several tasks."""
    place = tmp_path_factory.mktemp("data") / "source"
    with lading.writer(place, format="webdataset", shard_size="300kb") as writer:
        for number in range(150):
            writer.write({"txt": str(number), "bin": _NUMBERS.randbytes(15000)})
    return place


@pytest.fixture(scope="module")
def killing() -> Iterator[Killer]:
    with killer() as program:
        yield program


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden or not."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*/records/*.json"))


def test_a_job_killed_at_any_change_of_a_file_goes_on(source: Path, killing: Killer, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    _, changes = killing.convert(str(source), str(tmp_path / "whole" / "out"), **_OPTIONS)
    expected = contents(tmp_path / "whole")
    assert changes > 100
    # Few on the way, and each of the last ones: from the commit to the end.
    for kill_at in (*range(9, changes - 50, 29), *range(changes - 47, changes, 9)):
        place = tmp_path / f"killed-at-{kill_at}"
        place.mkdir()
        status, _ = killing.convert(str(source), str(place / "out"), kill_at, **_OPTIONS)
        assert status == -signal.SIGKILL
        status, _ = killing.convert(str(source), str(place / "out"), resume=True, **_OPTIONS)
        assert (status, contents(place), os.listdir(place)) == (0, expected, ["out"]), kill_at


def noting(notes: Path, breaks_at: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that notes the samples that it sees, and is interrupted at one of them, once."""

    def noted(sample: dict[str, Any]) -> dict[str, Any]:
        with notes.open("a") as lines:
            lines.write(f"{sample['txt']} ")
        if sample["txt"] == breaks_at and notes.with_name("breaks").exists():
            notes.with_name("breaks").unlink()
            raise KeyboardInterrupt
        return {"size": len(sample["bin"])}

    return noted


def no_link(old: str, _: str) -> None:
    """What a file system without hard links answers."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), old)


@pytest.mark.parametrize("links", [True, False])
def test_tasks_with_records_are_not_done_again(
    links: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    notes, results = tmp_path / "notes", tmp_path / "results"
    lading.convert(source, tmp_path / "whole", map=noting(notes, "130"), **_OPTIONS)
    looked_at = Counter(notes.read_text().split()) - Counter(str(number) for number in range(150))  # for the plan
    notes.with_name("breaks").touch()
    with pytest.raises(KeyboardInterrupt) as caught:
        lading.convert(source, results / "out", map=noting(notes, "130"), **_OPTIONS)
    done = len(records(results))
    assert done > 1
    [note] = caught.value.__notes__
    assert note == (
        f"{done} of {done + 1} tasks are kept: go on with --resume, or remove them with 'lading clean {results}/out'."
    )
    assert not (results / "out").exists()
    notes.unlink()
    summary = lading.convert(source, results / "out", map=noting(notes, "130"), resume=True, **_OPTIONS)
    redone = Counter(notes.read_text().split()) - looked_at
    assert sorted(redone, key=int) == [str(number) for number in range(150 - len(redone), 150)]
    assert "130" in redone
    assert len(redone) <= 150 / done
    assert summary.samples == 150
    assert contents(results / "out") == contents(tmp_path / "whole")
    assert os.listdir(results) == ["out"]


def test_workers_die_with_the_job_and_it_goes_on(source: Path, killing: Killer, tmp_path: Path) -> None:
    """The job is killed when it takes the shards of a task: workers have tasks under way then, and hold its lock."""
    options, results = {**_OPTIONS, "verify": True, "workers": 2}, tmp_path / "results"
    results.mkdir()
    lading.convert(source, tmp_path / "whole", **{**options, "workers": 1})
    status, _ = killing.convert(str(source), str(results / "out"), kill_at=12, **options)
    assert status == -signal.SIGKILL
    assert not (results / "out").exists()
    status, _ = killing.convert(str(source), str(results / "out"), resume=True, **options)
    assert (status, contents(results / "out")) == (0, contents(tmp_path / "whole"))
    assert os.listdir(results) == ["out"]


def test_another_plan_is_refused_and_the_error_says_what_differs(source: Path, tmp_path: Path) -> None:
    destination = tmp_path / "results" / "out"

    def interrupted(sample: dict[str, Any]) -> bool:
        if sample["txt"] == "140":
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        lading.convert(source, destination, filter=interrupted, **_OPTIONS)
    before = contents(tmp_path)
    assert records(tmp_path / "results")

    def refused(**more: Any) -> str:
        with pytest.raises(UsageError) as caught:
            lading.convert(source, destination, resume=True, **{**_OPTIONS, **more})
        assert contents(tmp_path) == before
        return str(caught.value)

    text = refused(filter=interrupted, shard_size="300kb")
    assert "shard_size=400kb" in text
    assert "shard_size=300kb" in text
    assert "leave out resume=True" in text

    def interrupted_elsewhere(sample: dict[str, Any]) -> bool:
        return len(sample) > 1

    assert "step 1" in refused(filter=interrupted_elsewhere)
    assert "step 1" in refused()
    shard = min(source.glob("*.tar"))
    times = shard.stat()
    os.utime(shard, (1, 1))
    try:
        assert shard.name in refused(filter=interrupted)
    finally:
        os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Without `resume`, a job begins, and what the other one left is removed.
    lading.convert(source, destination, **_OPTIONS)
    assert os.listdir(tmp_path / "results") == ["out"]


def test_a_job_on_an_object_store_goes_on(source: Path, killing: Killer, server: str) -> None:
    stores = {"storage_options": options(server)}
    place = f"s3://{BUCKET}/resumed"

    def stored(folder: str) -> dict[str, bytes]:
        store, _ = resolve(folder, Stores.of(None, stores["storage_options"]))
        files = {info.path: info.size_bytes for info in store.walk(folder)}
        return {path.removeprefix(folder): bytes(*store.get_ranges(path, [(0, files[path])])) for path in files}

    _, changes = killing.convert(str(source), f"{place}/whole/out", **_OPTIONS, **stores)
    # While a task is done, while shards are copied, and while the rest is removed.
    for kill_at in (changes // 3, changes - 11, changes - 3):
        status, _ = killing.convert(str(source), f"{place}/{kill_at}/out", kill_at, **_OPTIONS, **stores)
        assert status == -signal.SIGKILL
        status, redone = killing.convert(str(source), f"{place}/{kill_at}/out", resume=True, **_OPTIONS, **stores)
        assert (status, stored(f"{place}/{kill_at}")) == (0, stored(f"{place}/whole")), kill_at
        assert redone < changes
    killing.convert(str(source), f"{place}/left/out", changes // 3, **_OPTIONS, **stores)
    lading.clean(f"{place}/left/out", **stores)
    assert not stored(f"{place}/left")


def test_clean_removes_what_dead_jobs_left_and_nothing_else(source: Path, killing: Killer, tmp_path: Path) -> None:
    destination = tmp_path / "out"
    lading.convert(source, destination, **_OPTIONS)
    expected = contents(tmp_path)
    killing.convert(str(source), str(destination), 60, overwrite=True, **_OPTIONS)
    died = contents(tmp_path)
    living = lading.writer(destination, format="jsonl", overwrite=True)  # it sweeps what the dead job left
    assert contents(tmp_path).keys() & (died.keys() - expected.keys()) == set()
    under_way = contents(tmp_path)
    assert lading.clean(destination).removed == {}
    assert contents(tmp_path) == under_way
    living.abort()
    killing.convert(str(source), str(destination), 60, overwrite=True, **_OPTIONS)
    left = contents(tmp_path)
    shown = lading.clean(destination, dry_run=True)
    assert contents(tmp_path) == left
    files = [(tmp_path / name).stat() for name in left.keys() - expected.keys()]
    assert shown.size_bytes == sum({file.st_ino: file.st_size for file in files}.values())  # some have two names
    assert lading.clean(destination).removed == shown.removed
    assert contents(tmp_path) == expected


def test_a_job_that_fails_before_its_first_record_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with file_size_limit(200_000), pytest.raises(LadingError) as caught:
        lading.convert(source, tmp_path / "out", **_OPTIONS)
    assert os.listdir(tmp_path) == []
    assert "--resume" not in str(caught.value)
    # Then there is nothing to go on with, and `resume` begins; a complete dataset is not replaced.
    lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS)
    with pytest.raises(DestinationExists, match="No such job is unfinished: the dataset there may be its result"):
        lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS)
