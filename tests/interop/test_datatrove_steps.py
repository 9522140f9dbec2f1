"""lading's media steps in a pipeline of datatrove's own executor, next to datatrove's steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.compat.datatrove import LadingReader, LadingWriter, ZstdReader, ZstdWriter
from media import pictures
from peers import import_peer

data = import_peer("datatrove.data")
executors = import_peer("datatrove.executor")
folders = import_peer("datatrove.io")
jsonl_readers = import_peer("datatrove.pipeline.readers.jsonl")
jsonl_writers = import_peer("datatrove.pipeline.writers.jsonl")
peer_readers = import_peer("datatrove.pipeline.media.media_readers.zstd")
peer_writers = import_peer("datatrove.pipeline.media.media_writers.zstd")
stats = import_peer("datatrove.utils.stats")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

CONTENTS = pictures(6)


def documents(_data: Any, rank: int, _world_size: int) -> Iterator[Any]:
    """Two documents a task."""
    for number in range(2):
        media = [data.Media(id=str(at), type=0, url="", media_bytes=content) for at, content in enumerate(CONTENTS)]
        yield data.Document(text="text", id=f"{rank}-{number}", media=media, metadata={"lang": "de"})


class Collected:
    """A step of one's own; tasks of one process share it."""

    def __init__(self, found: dict[str, list[bytes]]) -> None:
        self.found = found

    def __call__(self, documents: Any, _rank: int, _world_size: int) -> Iterator[Any]:
        for document in documents:
            self.found[document.id] = [media.media_bytes for media in document.media]
            yield document

    def __deepcopy__(self, _memo: object) -> Collected:
        return self


def run(steps: list[Any], logs: Path, workers: int = 1) -> Any:
    return executors.LocalPipelineExecutor(steps, tasks=2, workers=workers, logging_dir=str(logs)).run()


@pytest.mark.mechanism("datatrove's executor")
@pytest.mark.cases(1)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["path", "pair", "folder"])
def test_steps_stand_in_a_pipeline_of_the_local_executor(tmp_path: Path, workers: int, kind: str) -> None:
    media = {
        "path": str(tmp_path / "media"),
        "pair": (str(tmp_path / "media"), {}),
        "folder": folders.DataFolder(str(tmp_path / "media")),
    }[kind]
    writer = ZstdWriter(media, max_file_size=12_000)
    told = run([documents, writer, jsonl_writers.JsonlWriter(str(tmp_path / "docs"))], tmp_path / "logs", workers)
    assert isinstance(told.stats[0], stats.Stats)
    assert told.stats[0]["total"].total == told.stats[0]["media_size"].n == 24
    names = sorted(path.name for path in (tmp_path / "media").iterdir())
    assert {name[4:] for name in names} == {"00000.bin.zst", "00001.bin.zst"}
    for reader in (ZstdReader(media, workers=2), peer_readers.ZstdReader(media, workers=2)):
        found: dict[str, list[bytes]] = {}
        steps = [jsonl_readers.JsonlReader(str(tmp_path / "docs")), reader, Collected(found)]
        run(steps, tmp_path / type(reader).__module__)
        assert found == dict.fromkeys(("0-0", "0-1", "1-0", "1-1"), CONTENTS)
    merged = stats.PipelineStats.from_json(import_peer("json").loads((tmp_path / "logs/stats.json").read_text()))
    assert merged.stats[0].name == "💽 - MEDIA WRITER: 🗜️ - Binary Zstd"


@pytest.mark.parametrize("max_file_size", [-1, 1, 12_000, 5 << 30])
def test_the_files_are_those_of_the_peer_s_step(tmp_path: Path, max_file_size: int) -> None:
    for kind in (ZstdWriter, peer_writers.ZstdWriter):
        folder = str(tmp_path / kind.__module__)
        told = [
            (media.path, media.offset, media.length)
            for rank in range(2)
            for document in kind(folder, "a/${rank}.x", max_file_size)(documents(None, rank, 2), rank, 2)
            for media in document.media
        ]
        files = {path.name: path.read_bytes() for path in (Path(folder) / "a").iterdir()}
        if kind is ZstdWriter:
            expected = told, files
    assert (told, files) == expected


def test_limited_readers_read_as_the_peer_s_does() -> None:
    io = import_peer("io")
    from lading.compat.datatrove import LimitedReader

    for limit in (0, 3, 10, 20):
        for sizes in ((-1,), (2, 2, -1), (5, 0, 5), (100, 1)):
            ours, theirs = (
                kind(io.BytesIO(b"0123456789"), limit) for kind in (LimitedReader, peer_readers.LimitedReader)
            )
            assert [ours.read(size) for size in sizes] == [theirs.read(size) for size in sizes]
            assert (ours.tell(), ours.bytes_read) == (theirs.tell(), theirs.bytes_read)


def test_a_writer_of_the_peer_s_users_runs_on_either_base(tmp_path: Path) -> None:
    """One `_write`, under datatrove's base class and under lading's."""
    bases = import_peer("datatrove.pipeline.media.media_writers.base")
    from lading.compat.datatrove import BaseMediaWriter

    def _write(self: Any, media: Any, file_handler: Any, filename: str) -> tuple[str, int, int]:
        offset = file_handler.tell()
        file_handler.write(media.media_bytes)
        self.stat_update("written")
        return filename, offset, file_handler.tell() - offset

    files = {}
    for base in (bases.BaseMediaWriter, BaseMediaWriter):
        kind = type("Own", (base,), {"_write": _write, "default_output_filename": "${rank}.bin", "name": "own"})
        writer = kind(str(tmp_path / base.__module__), max_file_size=8000)
        list(writer.run(documents(None, 7, 8), 7, 8))
        files[base] = {path.name: path.read_bytes() for path in (tmp_path / base.__module__).iterdir()}
        assert writer.stats["written"].total == writer.stats["media_size"].n == 12
    assert files[BaseMediaWriter] == files[bases.BaseMediaWriter]
    assert len(files[BaseMediaWriter]) > 3


@pytest.mark.soak
def test_datasets_stand_between_steps_of_the_peer(tmp_path: Path) -> None:
    """The peer's documents, written in a format of lading's and read again, are the same documents to the peer."""
    made, target = str(tmp_path / "made"), str(tmp_path / "dataset")
    run([documents, jsonl_writers.JsonlWriter(made, save_media_bytes=False)], tmp_path / "a")
    run([documents, LadingWriter(target, "webdataset", view="interleaved")], tmp_path / "b", workers=2)
    run([LadingReader(target), jsonl_writers.JsonlWriter(str(tmp_path / "back"))], tmp_path / "c")
    found = {}
    for name in ("made", "back"):
        lines: dict[str, Any] = {}
        run([jsonl_readers.JsonlReader(str(tmp_path / name), add_file_path=False), Kept(lines)], tmp_path / f"d{name}")
        found[name] = lines
    assert found["back"] == found["made"] != {}


class Kept:
    """A step that keeps what documents hold; tasks of one process share it."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def __call__(self, documents: Any, _rank: int, _world_size: int) -> Iterator[Any]:
        for document in documents:
            media = [(each.id, each.type, each.url) for each in document.media]
            self.found[document.id] = document.text, document.metadata, media
            yield document

    def __deepcopy__(self, _memo: object) -> Kept:
        return self
