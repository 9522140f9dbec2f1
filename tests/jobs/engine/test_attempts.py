"""What a late attempt at a task writes is never in a dataset, and does not stay next to it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

import lading
from in_process import by_tasks
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.jobs.engine import progress
from lading._core.manifest.commit import Staging
from lading._core.storage.base import FileInfo, Store, write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.objects import ObjectStore
from lading._core.storage.stores import _by_obstore, resolve
from object_server import BUCKET, environment, options

_OPTIONS: dict[str, Any] = {"format": "parquet", "shard_size": "300kb"}


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of the object server, which this process and its workers find by their environment."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    _by_obstore.cache_clear()
    yield f"s3://{BUCKET}/{secrets.token_hex(4)}"
    _by_obstore.cache_clear()


@pytest.fixture
def source(docs: Path, tmp_path: Path) -> Path:
    lading.convert(docs, tmp_path / "source", format="webdataset", shard_size="150kb")
    return tmp_path / "source"


def contents(folder: str) -> dict[str, bytes]:
    """Every file below a folder, hidden or not, by its name there."""
    if "://" not in folder:
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    store, _ = resolve(folder)
    found = {}
    for info in store.walk(folder):
        [data] = store.get_ranges(info.path, [(0, info.size_bytes)])
        found[info.path.removeprefix(f"{folder}/")] = bytes(data)
    return found


@pytest.fixture(params=["disk", "server"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on disk, and on the object server."""
    if request.param == "server":
        return str(request.getfixturevalue("bucket"))
    (tmp_path / "results").mkdir()
    return str(tmp_path / "results")


class _Late:
    """Attempts at tasks that write again, when the job has the results of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wrote: list[tuple[str, str]] = []
        self._staging: Staging | None = None
        begin = Staging.begin.__func__  # type: ignore[attr-defined] # a classmethod

        def begun(cls: type[Staging], store: Store, destination: str, **how: bool) -> Staging:
            self._staging = begin(cls, store, destination, **how)
            self._store = store
            return self._staging

        monkeypatch.setattr(Staging, "begin", classmethod(begun))

    def write(self, when: str) -> None:
        """Write a shard in a folder of its own, and more into a folder whose shards were taken."""
        assert self._staging is not None
        for name in (f"task-000001-{secrets.token_hex(8)}/000000.parquet", "task-000000-taken/000009.parquet"):
            place = f"{self._staging.tasks}/{name}"
            write_file(self._store, place, [b"late"])
            self.wrote.append((when, place))


def _before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, happens: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def replaced(self: Any, *args: Any, **more: Any) -> Any:
        happens()
        return original(self, *args, **more)

    monkeypatch.setattr(owner, name, replaced)


def _next_run(place: str) -> None:
    with lading.writer(place, format="jsonl", overwrite=True) as writer:
        writer.write({"number": 1})


@pytest.mark.soak
def test_a_late_attempt_is_not_published_and_is_swept(
    source: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lading.convert(source, f"{folder}/alone", workers=1, verify=True, **_OPTIONS)
    expected = contents(f"{folder}/alone")
    with monkeypatch.context() as patched:
        late = _Late(patched)
        _before(patched, DatasetWriter, "finish", lambda: late.write("after adoption"))
        _before(patched, Staging, "commit", lambda: late.write("before the commit"))
        store, _ = resolve(folder)
        verb = "publish" if isinstance(store, LocalStore) else "copy_all"
        _before(patched, type(store), verb, lambda: late.write("while publishing"))
        lading.convert(source, f"{folder}/out", workers=2, verify=True, **_OPTIONS)
        late.write("after publishing")
    assert {when for when, _ in late.wrote} == {
        "after adoption", "before the commit", "while publishing", "after publishing",
    }  # fmt: skip
    assert contents(f"{folder}/out") == expected
    assert lading.verify(f"{folder}/out").ok
    left = {name.partition("/")[0] for name in contents(folder)} - {"alone", "out"}
    assert len(left) == 1
    _next_run(f"{folder}/out")
    assert {name.partition("/")[0] for name in contents(folder)} == {"alone", "out"}


@pytest.mark.soak
def test_the_folder_of_a_build_under_way_is_not_swept(folder: str) -> None:
    writers = [lading.writer(f"{folder}/out", format="jsonl", overwrite=True) for _ in range(3)]
    for number, writer in enumerate(writers):
        writer.write({"number": number})
        writer.close()
        assert [row["number"] for row in lading.open(f"{folder}/out")] == [number]
    assert {name.partition("/")[0] for name in contents(folder)} == {"out"}


@pytest.mark.soak
def test_a_dataset_on_an_object_server_is_the_same_and_copied_once(
    source: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_WORTH_S", 0)  # workers read back too
    copied: list[tuple[FileInfo, str]] = []
    copy_all = ObjectStore.copy_all

    def counted(self: ObjectStore, copies: list[tuple[FileInfo, str]]) -> None:
        copied.extend(copies)
        copy_all(self, copies)

    monkeypatch.setattr(ObjectStore, "copy_all", counted)
    expected = lading.convert(source, tmp_path / "out", **_OPTIONS, verify=True)
    for workers in (2, 3):
        copied.clear()
        done = lading.convert(source, f"{bucket}/out", **_OPTIONS, verify=True, workers=workers, overwrite=workers == 3)
        assert (done.digest, done.shards) == (expected.digest, expected.shards)
        found = contents(f"{bucket}/out")
        assert found == contents(str(tmp_path / "out"))
        if workers == 2:
            first = list(copied)
    assert copied == []  # the same bytes were there
    assert sorted(target for _, target in first) == sorted(f"{bucket}/out/{name}" for name in found)
    assert first[-1][1] == f"{bucket}/out/_lading/manifest.json"
    shards = [file.path for file, target in first if target.endswith(".parquet")]
    assert len({shard.split("/")[-2] for shard in shards}) > 1
    assert all("/tasks/task-0" in shard for shard in shards)


def test_the_index_of_a_peer_names_the_shards_as_they_are_called(docs: Path, bucket: str, tmp_path: Path) -> None:
    """It is written while the shards are in the folders of attempts, and looks into one."""
    options = {"layout": "huggingface"}
    for place, workers in ((str(tmp_path / "out"), 1), (f"{bucket}/out", 2)):
        lading.convert(docs, place, format="arrow", shard_size="150kb", options=options, **by_tasks(workers))
    assert contents(f"{bucket}/out") == contents(str(tmp_path / "out"))


@pytest.mark.soak
def test_splits_appear_in_one_step_with_late_attempts_at_their_tasks(
    source: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = lading.open(source).split({"train": 0.5, "test": 0.5}, seed=1)
    lading.convert(parts, f"{folder}/alone", **_OPTIONS)
    expected = contents(f"{folder}/alone")
    with monkeypatch.context() as patched:
        late = _Late(patched)
        _before(patched, Staging, "commit", lambda: late.write("before the commit"))
        lading.convert(parts, f"{folder}/out", workers=2, **_OPTIONS)
        late.write("after publishing")
    assert contents(f"{folder}/out") == expected
    _next_run(f"{folder}/out")
    assert {name.partition("/")[0] for name in contents(folder)} == {"alone", "out"}


def test_what_a_killed_job_left_on_an_object_server_is_in_nobodys_way(bucket: str, server: str) -> None:
    """Nobody knows whether it still runs."""
    store = S3Store(BUCKET, client_options={"allow_http": True}, **options(server))
    left = f"out.lading-{'0' * 16}"
    for name in ("owner", "dataset/000000.jsonl", "tasks/task-000000-x/000000.jsonl"):
        obstore.put(store, f"{bucket}/{left}/{name}".removeprefix(f"s3://{BUCKET}/"), b"half")
    with lading.writer(f"{bucket}/out", format="jsonl") as writer:
        writer.write({"number": 1})
    assert [row["number"] for row in lading.open(f"{bucket}/out")] == [1]
    assert {name.partition("/")[0] for name in contents(bucket)} == {"out", left}
