"""A job that died goes on: `resume` gives the bytes of an undisturbed job, and leaves nothing else."""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lading
from faults import file_size_limit
from killed import Killer, killer
from lading._core.cli.main import app
from lading._core.jobs.convert import schedule
from lading._core.jobs.engine.progress import Progress
from lading._core.storage.stores import Stores, resolve
from lading.errors import DestinationExists, LadingError, UsageError
from object_server import BUCKET, options
from several_tasks import contents, write_tars

_OPTIONS: dict[str, Any] = {"format": "parquet", "shard_size": "400kb"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars that make several tasks."""
    return write_tars(tmp_path_factory.mktemp("data") / "source", 150, "300kb")


@pytest.fixture(scope="module")
def killing() -> Iterator[Killer]:
    with killer() as program:
        yield program


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*/records/*.json"))


@pytest.mark.soak
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


@pytest.mark.cases(1)
@pytest.mark.parametrize("links", [True, False])
def test_tasks_with_records_are_not_done_again(
    links: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    notes, results = tmp_path / "notes", tmp_path / "results"
    lading.convert(source, tmp_path / "whole", map=noting(notes, "130"), **_OPTIONS)
    assert Counter(notes.read_text().split()) == Counter(str(number) for number in range(150))
    notes.with_name("breaks").touch()
    with pytest.raises(KeyboardInterrupt) as caught:
        lading.convert(source, results / "out", map=noting(notes, "130"), **_OPTIONS)
    done = len(records(results))
    assert done > 1
    [note] = caught.value.__notes__
    assert note == (
        f"Kept: {done} of {done + 1} tasks. Go on with --resume, or remove the kept files with "
        f"'lading clean {results}/out'."
    )
    assert not (results / "out").exists()
    notes.unlink()
    summary = lading.convert(source, results / "out", map=noting(notes, "130"), resume=True, **_OPTIONS)
    redone = Counter(notes.read_text().split())  # but for samples that were looked at for the plan
    assert "130" in redone
    assert set(redone.values()) == {1}
    assert all(int(number) >= 150 - 150 / done for number in redone)
    assert (summary.samples, summary.tasks, summary.tasks_before) == (150, done + 1, done)
    assert contents(results / "out") == contents(tmp_path / "whole")
    assert os.listdir(results) == ["out"]


@pytest.mark.soak
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


class Model:
    """What nothing shows the weights of."""


def test_what_cannot_be_told_of_a_function_is_asked(source: Path, tmp_path: Path) -> None:
    model, destination, stops = Model(), tmp_path / "results" / "out", tmp_path / "stops"

    def captioned(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["txt"] == "140" and stops.exists():
            raise KeyboardInterrupt
        return {"caption": type(model).__name__}

    stops.touch()
    with pytest.raises(KeyboardInterrupt):
        lading.convert(source, destination, map=captioned, resume=True, **_OPTIONS)
    stops.unlink()
    before = contents(tmp_path)
    assert records(tmp_path / "results")
    with pytest.raises(UsageError, match=r"test_resume:Model.*add force=True"):
        lading.convert(source, destination, map=captioned, resume=True, **_OPTIONS)
    assert contents(tmp_path) == before
    done = lading.convert(source, destination, map=captioned, resume=True, force=True, **_OPTIONS)
    assert (done.tasks_before > 0, done.samples) == (True, 150)
    with pytest.raises(UsageError, match=r"test_resume:Model"):  # whether it is done is asked too
        lading.convert(source, destination, map=captioned, resume=True, **_OPTIONS)
    with pytest.raises(UsageError, match="force goes with resume"):
        lading.convert(source, destination, map=captioned, force=True, **_OPTIONS)


def stored(folder: str, server: str) -> dict[str, bytes]:
    """Every object below a folder of the server's bucket."""
    store, _ = resolve(folder, Stores.of(None, options(server)))
    files = {info.path: info.size_bytes for info in store.walk(folder)}
    return {path.removeprefix(folder): bytes(*store.get_ranges(path, [(0, files[path])])) for path in files}


@pytest.mark.soak
def test_a_job_on_an_object_store_goes_on(source: Path, killing: Killer, server: str) -> None:
    stores = {"storage_options": options(server)}
    place = f"s3://{BUCKET}/resumed"

    _, changes = killing.convert(str(source), f"{place}/whole/out", **_OPTIONS, **stores)
    # While a task is done, while shards are copied, and while the rest is removed.
    for kill_at in (changes // 3, changes - 11, changes - 3):
        status, _ = killing.convert(str(source), f"{place}/{kill_at}/out", kill_at, **_OPTIONS, **stores)
        assert status == -signal.SIGKILL
        status, redone = killing.convert(str(source), f"{place}/{kill_at}/out", resume=True, **_OPTIONS, **stores)
        assert (status, stored(f"{place}/{kill_at}", server)) == (0, stored(f"{place}/whole", server)), kill_at
        assert redone < changes
    killing.convert(str(source), f"{place}/early/out", 2, **_OPTIONS, **stores)  # before its plan is there
    assert len(stored(f"{place}/early", server)) == 1
    killing.convert(str(source), f"{place}/early/out", resume=True, **_OPTIONS, **stores)
    assert stored(f"{place}/early", server) == stored(f"{place}/whole", server)
    killing.convert(str(source), f"{place}/left/out", changes // 3, **_OPTIONS, **stores)
    lading.clean(f"{place}/left/out", **stores)
    assert not stored(f"{place}/left", server)


@pytest.mark.soak
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


@pytest.mark.soak
def test_a_job_that_fails_before_its_first_record_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with file_size_limit(200_000), pytest.raises(LadingError) as caught:
        lading.convert(source, tmp_path / "out", **_OPTIONS)
    assert os.listdir(tmp_path) == []
    assert "--resume" not in str(caught.value)
    # Then there is nothing to go on with, and `resume` begins; a complete dataset is not written again.
    lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS)
    assert lading.convert(source, tmp_path / "out", resume=True, **_OPTIONS).done_before


@pytest.mark.soak
def test_the_error_for_a_destination_that_is_there_says_what_to_type_next(
    small: Path, killing: Killer, tmp_path: Path
) -> None:
    """A job of one file that was killed before its last change leaves its lock; a job of tasks leaves its journal."""
    _, changes = killing.convert(str(small), str(tmp_path / "out.parquet"), format="parquet")
    (tmp_path / "out.parquet").unlink()
    status, _ = killing.convert(str(small), str(tmp_path / "out.parquet"), changes, format="parquet")
    assert (status, len(os.listdir(tmp_path))) == (-signal.SIGKILL, 2)
    advice = rf"remove the files left beside it with 'lading clean {tmp_path}/out\.parquet'"
    for resume, also in ((True, "No such job is unfinished.*"), (False, "")):
        with pytest.raises(DestinationExists, match=also + advice):
            lading.convert(small, tmp_path / "out.parquet", format="parquet", resume=resume)
    assert len(lading.clean(tmp_path / "out.parquet").removed) == 1
    assert os.listdir(tmp_path) == ["out.parquet"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.jsonl").write_text("{}\n")
    with pytest.raises(KeyboardInterrupt):
        lading.convert(small, tmp_path / "out", overwrite=True, on_progress=stop_behind(40), **_SMALL)
    for resume in (True, False):
        with pytest.raises(DestinationExists, match="repeat the command of that job with"):
            lading.convert(small, tmp_path / "out", resume=resume, **_SMALL)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tars, and beside their folder a file of Parquet with the same samples."""
    place = write_tars(tmp_path_factory.mktemp("data") / "tars", 60, "200kb")
    lading.convert(place, place.with_name("one.parquet"), format="parquet", options={"row_group_bytes": "60kb"})
    return place


_SMALL: dict[str, Any] = {"format": "parquet", "shard_size": "183kb"}
_KINDS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "new order": ("tars", [["where", "txt != '7'"], ["shuffle", 5]], {"format": "webdataset", "ledger": "lost.jsonl"}),
    "duplicates": ("tars", [["dedup", "txt"]], {"format": "mds", "verify": True}),
    "splits": ("tars", [["split", {"train": 0.6, "val": 0.4}]], {}),
    "large file": ("one.parquet", [], {"format": "arrow", "where": "txt != '7'", "ledger": "lost.jsonl"}),
}


_SLOW = ("duplicates", "large file")


@pytest.mark.mechanism("a job that is killed")
@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] if kind in _SLOW else []) for kind in _KINDS]
)
def test_jobs_of_each_kind_go_on(kind: str, small: Path, killing: Killer, tmp_path: Path) -> None:
    name, steps, options = _KINDS[kind]

    def convert(place: Path, kill_at: int = 0, **more: Any) -> tuple[int, int]:
        place.mkdir(exist_ok=True)
        asked = {**_SMALL, **options, **more}
        if "ledger" in asked:
            asked["ledger"] = str(place / asked["ledger"])
        return killing.convert(str(small.with_name(name)), str(place / "out"), kill_at, steps, **asked)

    _, changes = convert(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    assert ("lost.jsonl" in expected) == ("ledger" in options)
    for kill_at in (changes // 2, changes - 14, changes - 4):
        place = tmp_path / f"killed-at-{kill_at}"
        assert convert(place, kill_at)[0] == -signal.SIGKILL
        assert [*place.glob(".*/**/records/*.json")] or kill_at > changes // 2
        status, redone = convert(place, resume=True)
        assert (status, contents(place)) == (0, expected), kill_at
        assert sorted(os.listdir(place)) == sorted(os.listdir(tmp_path / "whole")), kill_at
        assert redone < changes


@pytest.mark.soak
def test_splits_on_an_object_store_go_on(small: Path, killing: Killer, server: str) -> None:
    """What is complete of the first split, lies in the store when the second one is begun."""
    steps, place = [["split", {"train": 0.6, "val": 0.4}]], f"s3://{BUCKET}/splits"
    asked = {**_SMALL, "storage_options": options(server)}
    _, changes = killing.convert(str(small), f"{place}/whole/out", steps=steps, **asked)
    for kill_at in (changes // 2 + 2, changes - 9):
        destination = f"{place}/{kill_at}/out"
        assert killing.convert(str(small), destination, kill_at, steps, **asked)[0] == -signal.SIGKILL
        status, redone = killing.convert(str(small), destination, steps=steps, resume=True, **asked)
        assert (status, stored(f"{place}/{kill_at}", server)) == (0, stored(f"{place}/whole", server)), kill_at
        assert redone < changes


def stop_behind(samples: int) -> Callable[[Progress], None]:
    """Interrupt a job behind so many samples."""

    def stop(told: Progress) -> None:
        if not told.phase and told.samples >= samples:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    "steps",
    [
        lambda ds, at: ds.shuffle(at),
        lambda ds, at: ds.sort("txt", descending=bool(at)),
        lambda ds, at: ds.where(f"txt != '{at}'").shuffle(),
        lambda ds, at: ds.filter(lambda sample: sample["txt"] != str(at)).dedup("txt"),
        lambda ds, at: ds.split({"train": 0.9, "val": 0.1}, seed=at),
    ],
    ids=["shuffle", "sort", "where", "filter", "split"],
)
def test_another_order_is_another_job(
    steps: Callable[[lading.Dataset, int], Any], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "ALONE_BYTES", 0)
    with pytest.raises(KeyboardInterrupt, match=r"Kept: \d"):
        lading.convert(steps(lading.open(small), 0), tmp_path / "out", on_progress=stop_behind(40), **_SMALL)
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"the unfinished job of this destination is another one.*step 1 with"):
        lading.convert(steps(lading.open(small), 1), tmp_path / "out", resume=True, **_SMALL)
    assert contents(tmp_path) == before


@pytest.mark.soak
def test_the_command_says_how_many_tasks_were_done_before(small: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        lading.convert(small, tmp_path / "out", on_progress=stop_behind(40), **_SMALL)
    done = len(records(tmp_path))
    command = ["convert", str(small), str(tmp_path / "out"), "--to", "parquet", "--shard-size", "183kb", "--resume"]
    told = CliRunner().invoke(app, command)
    assert f"resumed  done before: {done} of 5 tasks" in told.output
    assert os.listdir(tmp_path) == ["out"]
