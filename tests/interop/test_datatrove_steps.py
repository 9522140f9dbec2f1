"""lading's media steps in a pipeline of datatrove's own executor, next to datatrove's steps."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.compat.datatrove import LadingReader, LadingWriter, ZstdReader, ZstdWriter
from lading.errors import SchemaMismatch
from media import pictures
from peers import import_peer

data = import_peer("datatrove.data")
executors = import_peer("datatrove.executor")
folders = import_peer("datatrove.io")
jsonl_readers = import_peer("datatrove.pipeline.readers.jsonl")
jsonl_writers = import_peer("datatrove.pipeline.writers.jsonl")
parquet_readers = import_peer("datatrove.pipeline.readers.parquet")
parquet_writers = import_peer("datatrove.pipeline.writers.parquet")
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


def _switching(base: type[Any]) -> type[Any]:
    """A writer that overrides everything that its base class lets it override."""

    class Own(base):
        default_output_filename = "${rank}.bin"
        name = "own"

        def __init__(self, folder: str, **options: Any) -> None:
            super().__init__(folder, **options)
            self.seen: list[Any] = [self.output_filename.template, self.output_mg.get_open_files(), self.max_file_size]

        def _get_output_filename(self, media: Any, rank: int | str = 0, **tags: Any) -> str:
            return f"type{media.type}/{super()._get_output_filename(media, rank, **tags)}"

        def _on_file_switch(self, original_name: str, old_filename: str, new_filename: str) -> None:
            super()._on_file_switch(original_name, old_filename, new_filename)
            size = self.output_folder.size(old_filename)
            self.seen.append((original_name, old_filename, new_filename, size, self.file_id_counter[original_name]))

        def write(self, media: Any, rank: int = 0, **tags: Any) -> Any:
            media.metadata["written by"] = rank
            self.seen.append(sorted(self.output_mg.get_open_files()))
            return super().write(media, rank, **tags)

        def _write(self, media: Any, file_handler: Any, filename: str) -> tuple[str, int, int]:
            offset = file_handler.tell()
            file_handler.write(media.media_bytes)
            self.output_mg.write("sizes.txt", f"{filename} {offset}\n".encode())
            return filename, offset, file_handler.tell() - offset

    return Own


@pytest.mark.parametrize("max_file_size", [-1, 8000])
def test_overrides_count_in_run_as_under_the_peer_s_base(tmp_path: Path, max_file_size: int) -> None:
    bases = import_peer("datatrove.pipeline.media.media_writers.base")
    from lading.compat.datatrove import BaseMediaWriter

    found = []
    for base in (bases.BaseMediaWriter, BaseMediaWriter):
        folder = tmp_path / base.__module__
        writer = _switching(base)(str(folder), max_file_size=max_file_size)
        made = list(writer.run(documents(None, 7, 8), 7, 8))
        media = [dataclasses.asdict(one) for document in made for one in document.media]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        found.append((writer.seen, media, files, sorted(writer.stats.stats)))
    assert found[1] == found[0]
    assert any(isinstance(each, tuple) for each in found[0][0]) == (max_file_size > 0)


def test_threads_of_a_reader_have_places_of_their_own(tmp_path: Path) -> None:
    """The way in which datatrove's readers hold files open, under either base class."""
    bases = import_peer("datatrove.pipeline.media.media_readers.base")
    from lading.compat.datatrove import BinaryReaderThreaded

    def read_media_record(self: Any, media: Any) -> bytes:
        if not hasattr(self.thread_local, "current_fp"):
            self.thread_local.current_fp = self.data_folder.open(media.path, "rb")
            opened.append(threading.get_ident())
        self.thread_local.current_fp.seek(media.offset)
        return bytes(self.thread_local.current_fp.read(media.length))

    (tmp_path / "a.bin").write_bytes(bytes(range(200)))
    for base in (bases.BinaryReaderThreaded, BinaryReaderThreaded):
        opened: list[int] = []
        reader = type("Own", (base,), {"read_media_record": read_media_record})(str(tmp_path), 3, preserve_order=True)
        for _ in range(2):
            given = [
                data.Document("", "", [data.Media("", 0, "", path="a.bin", offset=at, length=2)]) for at in range(99)
            ]
            read = [document.media[0].media_bytes for document in copy.deepcopy(reader).run(given)]
            assert read == [bytes([at, at + 1]) for at in range(99)]
        assert len(opened) <= 2 * 3


READ = [
    {},
    {"limit": 3},
    {"skip": 3},
    {"limit": 2, "skip": 4},
    {"limit": 0},
    {"glob_pattern": "*.jsonl.gz"},
    {"glob_pattern": ".jsonl.gz"},
    {"glob_pattern": "sub/*"},
    {"text_key": "id", "id_key": "text"},
    {"default_metadata": {"lang": "unknown", "source": "crawl"}},
    {"add_file_path": False},
    {"shuffle_files": True, "limit": 7},
    {"file_progress": True, "doc_progress": True},
    {"adapter": lambda self, data, path, number: {
        "text": data.pop(self.text_key).upper(), "id": f"{path}:{number}", "metadata": data,
    }},
    {"adapter": lambda self, data, path, number: {**self._default_adapter(data, path, number), "id": "x"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents that datatrove's writers wrote: JSON Lines and Parquet, five files in two folders."""
    folder = tmp_path_factory.mktemp("stored")
    for kind, writer in (("jsonl", jsonl_writers.JsonlWriter), ("parquet", parquet_writers.ParquetWriter)):
        for rank in range(5):
            below = folder / kind / ("sub" if rank % 2 else "")
            list(writer(str(below)).run(iter(_stored(rank)), rank, 5))
    return folder


def _stored(rank: int) -> list[Any]:
    return [
        data.Document(
            text=f"text {number}", id=f"{rank}-{number}", metadata={"lang": "de", "n": number},
            media=[data.Media("m", 0, "u", "alt", f"{rank}.bin", number, 5, None, {"w": 1})],
        )
        for number in range(6)
    ]  # fmt: skip


@pytest.mark.cases(30)
@pytest.mark.parametrize("options", READ, ids=[" ".join(each) or "none" for each in READ])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_arguments_of_readers_mean_what_they_mean_to_the_peer(stored: Path, kind: str, options: dict[str, Any]) -> None:
    if kind == "parquet":
        options = {name: str(value).replace("jsonl.gz", "parquet") if name == "glob_pattern" else value
                   for name, value in options.items() if name != "add_file_path"}  # fmt: skip
    peer = {"jsonl": jsonl_readers.JsonlReader, "parquet": parquet_readers.ParquetReader}[kind]
    for world_size in (1, 2, 7):
        for rank in range(world_size):
            random.seed(rank)
            theirs = peer(str(stored / kind), **options)
            expected = list(theirs.run(iter(_stored(9)[:1]), rank, world_size))
            random.seed(rank)
            ours = LadingReader(str(stored / kind), **options)
            assert list(ours.run(iter(_stored(9)[:1]), rank, world_size)) == expected
            for label in ("documents", "doc_len"):
                assert ours.stats[label].total == theirs.stats[label].total


def test_a_file_names_the_shards_to_read(stored: Path, tmp_path: Path) -> None:
    names = sorted(str(path.relative_to(stored / "jsonl")) for path in (stored / "jsonl").rglob("*.gz"))[::-1]
    for name, opened in (("names.txt", open), ("names.txt.gz", gzip.open)):
        with opened(tmp_path / name, "wt") as file:
            file.write("\n".join(names[:3]))
        for rank in range(2):
            path = str(tmp_path / name)
            expected = list(jsonl_readers.JsonlReader(str(stored / "jsonl"), path).run(None, rank, 2))
            for given in (path, (path, {}), tmp_path / name):
                found = list(LadingReader(str(stored / "jsonl"), paths_file=given).run(None, rank, 2))
                assert found == expected != []


def test_metadata_keys_that_appear_late_are_lines_to_either(tmp_path: Path) -> None:
    """As the peer's: JSON Lines take them, Parquet does not."""
    given = [
        data.Document("x" * 1000, str(at), [], {"late": at} if at > 1999 else {"lang": "de"}) for at in range(3000)
    ]
    list(LadingWriter(tmp_path / "ours", format="jsonl").run(copy.deepcopy(given)))
    list(jsonl_writers.JsonlWriter(str(tmp_path / "theirs"), expand_metadata=True).run(copy.deepcopy(given)))
    found = []
    for folder in ("ours", "theirs"):
        read = jsonl_readers.JsonlReader(str(tmp_path / folder), add_file_path=False, glob_pattern="*.jsonl*").run()
        found.append([(each.id, each.text, {key: value for key, value in each.metadata.items() if value is not None})
                      for each in read])  # fmt: skip
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="schema"):
        list(parquet_writers.ParquetWriter(str(tmp_path / "p"), expand_metadata=True).run(copy.deepcopy(given)))
    with pytest.raises(SchemaMismatch, match=r"column 'late'.*Give the writer schema= with all columns"):
        list(LadingWriter(tmp_path / "q", format="parquet").run(given))


@pytest.mark.soak
def test_datasets_stand_between_steps_of_the_peer(tmp_path: Path) -> None:
    """The peer's documents, written in a format of lading's and read again, are the same documents to the peer."""
    made, target = str(tmp_path / "made"), str(tmp_path / "dataset")
    run([documents, jsonl_writers.JsonlWriter(made, save_media_bytes=False)], tmp_path / "a")
    run([documents, LadingWriter(target, "webdataset", view="interleaved")], tmp_path / "b", workers=2)
    run([LadingReader(target, add_file_path=False), jsonl_writers.JsonlWriter(str(tmp_path / "back"))], tmp_path / "c")
    found = {}
    for name in ("made", "back"):
        lines: dict[str, Any] = {}
        run([jsonl_readers.JsonlReader(str(tmp_path / name), add_file_path=False), Kept(lines)], tmp_path / f"d{name}")
        found[name] = lines
    assert found["back"] == found["made"] != {}


@pytest.mark.soak
def test_a_job_as_users_write_it_gives_the_same_with_the_parts_of_either(tmp_path: Path) -> None:
    """Documents with media are stored apart, read again and passed on: counts, bytes and rows."""
    parquet = import_peer("pyarrow.parquet")
    theirs = peer_writers.ZstdWriter, jsonl_writers.JsonlWriter, jsonl_readers.JsonlReader, peer_readers.ZstdReader
    found = []
    for writer, lines, reader, media_reader in (theirs, (ZstdWriter, json_lines, LadingReader, ZstdReader)):
        place = tmp_path / writer.__module__
        media, docs, out = (str(place / name) for name in ("media", "docs", "out"))
        first = run([documents, writer(media, max_file_size=12_000), without_bytes, lines(docs)], place / "first")
        second = run([
            reader(docs, limit=1, add_file_path=False),
            media_reader(media, workers=2),
            parquet_writers.ParquetWriter(out, expand_metadata=True, save_media_bytes=True),
        ], place / "second")  # fmt: skip
        archives = {path.name: path.read_bytes() for path in Path(media).iterdir()}
        rows = [parquet.read_table(path).to_pylist() for path in sorted(Path(out).iterdir())]
        counts = first.stats[0]["media_size"].total, second.stats[0]["documents"].total
        found.append((archives, rows, counts, second.stats[1]["media_size"].n))
    assert found[1] == found[0]
    assert found[0][2:] == ((24 * 5000, 2), 12)


def json_lines(folder: str) -> LadingWriter:
    return LadingWriter(folder, format="jsonl")


def without_bytes(documents: Any, _rank: int, _world_size: int) -> Iterator[Any]:
    for document in documents:
        for media in document.media:
            media.media_bytes, media.metadata = None, {"number": int(media.id)}
        yield document


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
