"""The lines of the table of datatrove in `docs/coming-from.md`: both cells run, and give the same."""

from __future__ import annotations

import base64
import copy
import gzip
import io
import random
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import lading
import lading.media
from doc_tables import Table
from lading.compat import datatrove
from lading.compat.datatrove import LadingReader, LadingWriter
from lading.errors import SchemaMismatch, UsageError
from lading.limits import DEFAULT_LIMITS
from lading.media import MediaReader, MediaStats, MediaWriter
from peers import import_peer

data = import_peer("datatrove.data")
executors = import_peer("datatrove.executor")
folders = import_peer("datatrove.io")
bases = import_peer("datatrove.pipeline.media.media_writers.base")
media_readers = import_peer("datatrove.pipeline.media.media_readers.zstd")
media_writers = import_peer("datatrove.pipeline.media.media_writers.zstd")
reader_bases = import_peer("datatrove.pipeline.media.media_readers.base")
warc = import_peer("datatrove.pipeline.media.media_readers.warc")
readers = import_peer("datatrove.pipeline.readers")
writers = import_peer("datatrove.pipeline.writers")
stats = import_peer("datatrove.utils.stats")

TABLE = Table("datatrove")
pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::ResourceWarning")]
BARE: Any = {"add_file_path": False}


def documents(count: int = 6, *, size: int = 0) -> list[Any]:
    """Documents with one media each, of `size` bytes if that is not 0."""
    return [
        data.Document(
            text=f"text {at}", id=f"id {at}", metadata={"n": at, "lang": "de"},
            media=[data.Media("m", 0, "u", media_bytes=bytes([at]) * size)] if size else [],
        )
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of each of the peer's kinds, in two folders."""
    place = tmp_path_factory.mktemp("docs")
    for kind, writer in (("jsonl", writers.JsonlWriter), ("parquet", writers.ParquetWriter)):
        for rank in range(3):
            list(writer(str(place / kind / ("sub" if rank == 1 else ""))).run(documents(), rank, 3))
    return place


def equal(folder: Path, *, world_size: int = 2, **options: Any) -> list[Any]:
    """Read a folder by both libraries, task by task; return the documents, which are equal."""
    found: list[list[Any]] = []
    for kind in (readers.JsonlReader, LadingReader):
        random.seed(1)
        tasks = [list(kind(str(folder), **options).run(None, rank, world_size)) for rank in range(world_size)]
        found.append([document for task in tasks for document in task])
    assert found[1] == found[0]
    return found[1]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@TABLE.line('`JsonlReader("docs")`, `ParquetReader("docs")`')
def test_readers(docs: Path) -> None:
    assert len(equal(docs / "jsonl")) == 18
    theirs = list(readers.ParquetReader(str(docs / "parquet")).run())
    assert list(LadingReader(str(docs / "parquet")).run()) == theirs
    chosen = lading.open(docs / "parquet").where("metadata.n > 3")
    assert [each.metadata["n"] for each in LadingReader(chosen).run()] == [4, 5] * 3


@TABLE.line("`limit=`, `skip=`, `shuffle_files=` of readers")
def test_limits(docs: Path) -> None:
    assert len(equal(docs / "jsonl", limit=4, skip=3, shuffle_files=True)) == 7


@TABLE.line("`text_key=`, `id_key=`, `default_metadata=`, `add_file_path=`")
def test_keys(docs: Path) -> None:
    found = equal(docs / "jsonl", text_key="id", id_key="text", default_metadata={"n": -1, "source": "web"})
    assert found[0].metadata["file_path"] == str(docs / "jsonl" / "00000.jsonl.gz")
    assert "file_path" not in equal(docs / "jsonl", add_file_path=False)[0].metadata


@TABLE.line("`adapter=`")
def test_adapters(docs: Path) -> None:
    def adapter(self: Any, data: dict[str, Any], path: str, id_in_file: int) -> dict[str, Any]:
        made = self._default_adapter(data, path, id_in_file)
        return {**made, "id": f"{path} {id_in_file}", "metadata": {"upper": made["text"].upper()}}

    assert equal(docs / "jsonl", adapter=adapter)[0].id == "00000.jsonl.gz 0"


@TABLE.line('`JsonlReader("docs", "paths.txt")`: arguments by place')
def test_arguments_by_place(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "paths.txt").write_text("00000.jsonl.gz\n")
    folder, paths = str(docs / "jsonl"), str(tmp_path / "paths.txt")
    theirs = [*readers.JsonlReader(folder, paths).run()]
    assert [*LadingReader(folder, paths_file=paths).run()] == theirs
    with pytest.raises(UsageError, match="by name"):
        LadingReader(folder, paths)


@TABLE.line("`glob_pattern=`, `paths_file=`")
def test_chosen_files(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("sub/00001.jsonl.gz\n00000.jsonl.gz\n")
    assert len(equal(docs / "jsonl", paths_file=str(tmp_path / "names"))) == 12
    assert len(equal(docs / "jsonl", glob_pattern="*.gz")) == 12
    names = [f"{docs}/jsonl/{name}" for name in ("00000.jsonl.gz", "00002.jsonl.gz")]
    by_pattern = [list(LadingReader(source).run()) for source in (f"{docs}/jsonl/*.gz", names)]
    assert by_pattern == [list(readers.JsonlReader(str(docs / "jsonl"), glob_pattern="*.gz").run())] * 2


@TABLE.line("`file_progress=`, `doc_progress=`")
def test_progress(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    equal(docs / "jsonl", file_progress=True, doc_progress=True, limit=2, world_size=1)
    assert capsys.readouterr().err.count("2/2") >= 2


@TABLE.line("`recursive=False`, `compression=`, `batch_size=`, `read_metadata=`")
def test_refused_arguments(docs: Path) -> None:
    readers.JsonlReader(str(docs / "jsonl"), recursive=False, compression="gzip")
    readers.ParquetReader(str(docs / "parquet"), batch_size=9, read_metadata=False)
    for given in ({"recursive": False}, {"compression": "gzip"}, {"batch_size": 9}, {"read_metadata": False}):
        with pytest.raises(UsageError) as refused:
            LadingReader(str(docs / "jsonl"), **given)
        assert refused.value.advice


@TABLE.line("documents without text are left out")
def test_documents_without_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "", "id": "a"}\n{"text": "b", "id": "b"}\n')
    assert [each.id for each in readers.JsonlReader(str(tmp_path)).run()] == ["b"]
    assert [each.id for each in LadingReader(str(tmp_path)).run()] == ["a", "b"]


@TABLE.line("a metadata key that a document lacks")
def test_absent_keys(tmp_path: Path) -> None:
    given = [data.Document(f"t{at}", str(at), metadata={"k": 1} if at else {"l": 1}) for at in range(2)]
    schema = import_peer("pyarrow").schema([("text", "string"), ("id", "string"), ("k", "int64"), ("l", "int64")])
    list(writers.ParquetWriter(str(tmp_path / "p"), expand_metadata=True, schema=schema).run(copy.deepcopy(given)))
    list(writers.JsonlWriter(str(tmp_path / "j"), expand_metadata=True).run(given))
    expected = [{"k": None, "l": 1}, {"k": 1, "l": None}]
    theirs = readers.ParquetReader(str(tmp_path / "p")).run()
    assert [{key: each.metadata[key] for key in "kl"} for each in theirs] == expected
    for folder in "pj":
        assert [each.metadata for each in LadingReader(str(tmp_path / folder), **BARE).run()] == expected


@TABLE.line('`JsonlWriter("out", expand_metadata=True)`')
def test_json_lines(tmp_path: Path) -> None:
    list(LadingWriter(tmp_path / "a", format="jsonl", options={"compression": "gzip"}).run(documents(), 0, 1))
    list(writers.JsonlWriter(str(tmp_path / "b"), expand_metadata=True).run(documents(), 0, 1))
    ours, theirs = ([*(tmp_path / name).glob("*.gz")] for name in "ab")
    lines = [gzip.decompress(found[0].read_bytes()).splitlines() for found in (ours, theirs)]
    loads = import_peer("orjson").loads
    assert [loads(line) for line in lines[0]] == [loads(line) for line in lines[1]]
    assert list(readers.JsonlReader(str(tmp_path / "a"), glob_pattern="*.gz", **BARE).run()) == documents()


@TABLE.line("bytes of media in `JsonlWriter`: left out")
def test_bytes_in_json_lines(tmp_path: Path) -> None:
    list(writers.JsonlWriter(str(tmp_path / "a"), compression=None).run(documents(size=3)))
    for sample in lading.open(tmp_path / "a"):
        assert sample["media"][0]["media_bytes"] is None
    with pytest.raises(ValueError, match="base64"):
        list(LadingWriter(tmp_path / "b", format="jsonl").run(documents(size=3)))
    list(LadingWriter(tmp_path / "c", format="jsonl", options={"bytes": "base64"}).run(documents(size=3)))
    [file] = (tmp_path / "c").glob("*.jsonl")
    lines = [import_peer("orjson").loads(line) for line in file.read_bytes().splitlines()]
    assert [base64.b64decode(line["m"]) for line in lines] == [bytes([at]) * 3 for at in range(6)]
    assert [sample["m"] for sample in lading.open(tmp_path / "c")] == [bytes([at]) * 3 for at in range(6)]


@TABLE.line('`ParquetWriter("out", expand_metadata=True)`')
def test_parquet(tmp_path: Path) -> None:
    parquet = import_peer("pyarrow.parquet")
    list(LadingWriter(tmp_path / "a", format="parquet").run(documents(), 0, 1))
    list(writers.ParquetWriter(str(tmp_path / "b"), expand_metadata=True).run(documents(), 0, 1))
    rows = [parquet.read_table(next((tmp_path / name).glob("*.parquet"))).to_pylist() for name in "ab"]
    assert rows[0] == rows[1]
    nested = [data.Document("a", "0", metadata={"m": {"x": 1}})]
    list(LadingWriter(tmp_path / "c", format="parquet").run(nested))
    [row] = parquet.read_table(next((tmp_path / "c").glob("*.parquet"))).to_pylist()
    assert import_peer("json").loads(row["m"]) == {"x": 1}


@TABLE.line("a metadata key that first comes late")
def test_late_keys(tmp_path: Path) -> None:
    given = [data.Document("t", str(at), metadata={"late": at} if at == 1500 else {}) for at in range(1501)]
    schema = import_peer("pyarrow").schema([("id", "string"), ("text", "string"), ("late", "int64")])
    list(writers.JsonlWriter(str(tmp_path / "a"), expand_metadata=True).run(copy.deepcopy(given)))
    list(LadingWriter(tmp_path / "b", format="jsonl").run(copy.deepcopy(given)))
    list(LadingWriter(tmp_path / "c", format="parquet", schema=schema).run(copy.deepcopy(given)))
    for name in "abc":
        assert [*lading.open(tmp_path / name)][-1] == {"id": "1500", "text": "t", "late": 1500}
    list(writers.ParquetWriter(str(tmp_path / "d"), expand_metadata=True).run(copy.deepcopy(given)))
    assert lading.open(tmp_path / "d").columns == ["text", "id"]
    with pytest.raises(ValueError, match="schema"):
        list(
            writers.ParquetWriter(str(tmp_path / "d"), expand_metadata=True, batch_size=1500).run(copy.deepcopy(given))
        )
    with pytest.raises(SchemaMismatch, match="schema="):
        list(LadingWriter(tmp_path / "e", format="parquet").run(given))


@TABLE.line("`output_filename=`, `max_file_size=` of document writers")
def test_names_of_files(tmp_path: Path) -> None:
    list(writers.JsonlWriter(str(tmp_path / "a"), "x-${rank}.jsonl", None, max_file_size=100).run(documents(), 3, 4))
    list(LadingWriter(tmp_path / "b", format="jsonl", name="x-${rank}-${shard}", shard_size=100).run(documents(), 3, 4))
    for name, first in (("a", "000_x-00003.jsonl"), ("b", "x-00003-000000.jsonl")):
        found = sorted(path.name for path in (tmp_path / name).glob("*.jsonl"))
        assert found[0] == first
        assert len(found) > 1
    LadingWriter(tmp_path / "b", shard_size="5GB")


@TABLE.line("media with `path`, `offset`, `length` in documents")
def test_places_of_media(tmp_path: Path) -> None:
    given = documents(size=9)
    list(media_writers.ZstdWriter(str(tmp_path / "media")).run(given))
    for media in (media for document in given for media in document.media):
        media.media_bytes = None
    list(LadingWriter(tmp_path / "a", format="jsonl").run(copy.deepcopy(given)))
    list(writers.JsonlWriter(str(tmp_path / "b")).run(copy.deepcopy(given)))
    for name in "ab":
        for reader in (readers.JsonlReader, LadingReader):
            back = reader(str(tmp_path / name), glob_pattern="*.jsonl*", **BARE).run()
            found = list(media_readers.ZstdReader(str(tmp_path / "media"), preserve_order=True).run(back))
            assert [each.media[0].media_bytes for each in found] == [bytes([at]) * 9 for at in range(6)]
    list(LadingWriter(tmp_path / "c", format="parquet").run(copy.deepcopy(given)))
    assert list(LadingReader(tmp_path / "c", **BARE).run()) == given


@TABLE.line("`ZstdWriter(output_folder, output_filename, max_file_size, compression_level)`")
def test_zstd_writer(tmp_path: Path) -> None:
    found = []
    for at, kind in enumerate((media_writers.ZstdWriter, datatrove.ZstdWriter, lading.media.MediaWriter)):
        writer = kind(str(tmp_path / str(at)), "x/${rank}.z", 40, 5)
        found.append(([*writer.run(documents(size=5000), 3)], files(tmp_path / str(at))))
    assert found[0] == found[1] == found[2]
    with MediaWriter(tmp_path / "more", workers=2, content_size=True, checksum=True):
        pass


@TABLE.line("`ZstdReader(data_folder, block_size, workers, offset_byte_size, preserve_order)`")
def test_zstd_reader(tmp_path: Path) -> None:
    given = documents(size=500)
    list(media_writers.ZstdWriter(str(tmp_path)).run(given))
    for kind in (media_readers.ZstdReader, datatrove.ZstdReader, lading.media.MediaReader):
        stripped = copy.deepcopy(given)
        for document in stripped:
            document.media[0].media_bytes = None
        assert [*kind(str(tmp_path), 1 << 20, 2, 4, True).run(stripped)] == given
    MediaReader(tmp_path, on_error="warn", roots=[str(tmp_path)], limits=DEFAULT_LIMITS).close()


@TABLE.line("`WarcReaderFast`, `LimitedReader(fp, max_bytes)`, `Media`, `Document`")
def test_other_names(tmp_path: Path) -> None:
    warcio = import_peer("warcio.warcwriter")
    with (tmp_path / "a.warc").open("wb") as file:
        writer = warcio.WARCWriter(file, gzip=False)
        writer.write_record(writer.create_warc_record("http://x", "resource", payload=io.BytesIO(b"page")))
    for reader in (warc.WarcReaderFast, datatrove.WarcReaderFast, lading.media.WarcReader):
        media = data.Media("m", 0, "", path="a.warc", offset=0)
        assert reader(str(tmp_path)).read_media_record(media) == b"page"
    for kinds in (data, datatrove):
        document = kinds.Document("t", "i", [kinds.Media("m", 0, "u")])
        assert (document.metadata, document.media[0].media_bytes) == ({}, None)
    for limited in (media_readers.LimitedReader, datatrove.LimitedReader):
        assert limited(io.BytesIO(b"0123"), 3).read() == b"012"


def own_writer(base: Any) -> Any:
    """A writer of one's own, on either base class."""

    class Own(base):
        default_output_filename = "${rank}.bin"

        def _get_output_filename(self, media: Any, rank: int | str = 0, **tags: Any) -> str:
            return "own-" + super()._get_output_filename(media, rank, **tags)

        def _get_filename_with_file_id(self, filename: str) -> str:
            return f"{filename}.{self.file_id_counter[filename]}"

        def _on_file_switch(self, original: str, old: str, new: str) -> None:
            super()._on_file_switch(original, old, new)
            self.seen = (*getattr(self, "seen", ()), (original, old, new, self.output_folder.size(old)))

        def write(self, media: Any, rank: int = 0, **tags: Any) -> Any:
            media.alt = self.output_filename.template
            return super().write(media, rank, **tags)

        def _write(self, media: Any, file_handler: Any, filename: str) -> tuple[str, int, int]:
            assert self.output_mg.get_file(filename) is file_handler
            offset = file_handler.tell()
            file_handler.write(media.media_bytes)
            return filename, offset, len(media.media_bytes)

    return Own


@TABLE.line("`BaseMediaWriter` with `_write`")
@TABLE.line("`self.output_mg`, `self.file_id_counter`, `self.output_filename`, `self.max_file_size`")
def test_own_writers(tmp_path: Path) -> None:
    """`_get_output_filename`, `_get_filename_with_file_id`, `_on_file_switch` and `write` are overridden."""
    found = []
    for at, base in enumerate((bases.BaseMediaWriter, datatrove.BaseMediaWriter)):
        writer = own_writer(base)(str(tmp_path / str(at)), max_file_size=20)
        made = [*writer.run(documents(size=9), 3, 4)]
        found.append((made, files(tmp_path / str(at)), writer.seen, writer.file_id_counter, writer.max_file_size))
    assert found[1] == found[0]
    assert len(found[0][2]) == 1


@TABLE.line("`BinaryReaderThreaded` with `read_media_record`, `self.thread_local`")
@TABLE.line("folders as `str`, `(path, options)`, `(path, file system)`, `DataFolder`")
def test_own_readers_and_folders(tmp_path: Path) -> None:
    def read_media_record(self: Any, media: Any) -> bytes:
        if not hasattr(self.thread_local, "file"):
            self.thread_local.file = self.data_folder.open(media.path, "rb")
        self.thread_local.file.seek(media.offset)
        return bytes(self.thread_local.file.read(media.length))

    (tmp_path / "a").write_bytes(bytes(range(50)))
    path, local = str(tmp_path), fsspec.filesystem("file")
    for folder in (path, (path, {}), (path, local), folders.DataFolder(path)):
        for base in (reader_bases.BinaryReaderThreaded, datatrove.BinaryReaderThreaded):
            reader = type("Own", (base,), {"read_media_record": read_media_record})(folder, 2, preserve_order=True)
            given = [data.Document("", "", [data.Media("", 0, "", None, "a", at, 1)]) for at in range(50)]
            assert [each.media[0].media_bytes for each in reader.run(given)] == [bytes([at]) for at in range(50)]
    memory = fsspec.filesystem("memory")
    remote = ("/table", memory), folders.DataFolder("/table", memory)
    for place in ((path, {}), (path, local), folders.DataFolder(path), *remote):
        list(LadingWriter(place, format="jsonl").run(documents()))
        for reader in (readers.JsonlReader, LadingReader):
            assert list(reader(place, glob_pattern="*.jsonl", **BARE).run()) == documents()


@TABLE.line("`writer.write(media, rank, **tags)`")
def test_write(tmp_path: Path) -> None:
    for kind in (media_writers.ZstdWriter, datatrove.ZstdWriter):
        media = data.Media("m", 0, "", media_bytes=b"x" * 99)
        with kind(str(tmp_path / kind.__module__), "${lang}/${rank}.z") as writer:
            assert writer.write(media, 3, lang="de") == ("de/000_00003.z", 0, 13)
    assert (media.path, media.offset, media.length) == ("de/000_00003.z", 0, 13)


@TABLE.line("`writer.run(data, rank, world_size)`, `step(data, rank, world_size)`")
@TABLE.line("`${rank}`, `${tag}` in `output_filename`")
def test_run_and_tags(tmp_path: Path) -> None:
    """The peer takes tags in `write` alone; lading in `run` too, and from `metadata` and `id`."""
    for kind in (media_writers.ZstdWriter, datatrove.ZstdWriter):
        for step in (kind(str(tmp_path)), kind(str(tmp_path)).run):
            with warnings.catch_warnings(action="ignore"):
                assert [each.media[0].path for each in step(documents(1, size=9), 3, 8)] == ["000_00003.bin.zst"]
    writer = datatrove.ZstdWriter(str(tmp_path), "${lang}-${id}-${tag}", -1)
    assert [each.media[0].path for each in writer.run(documents(1, size=9), tag="a")] == ["de-id 0-a"]


@TABLE.line("`reader.read_media_record(media)`")
def test_read_media_record(tmp_path: Path) -> None:
    with media_writers.ZstdWriter(str(tmp_path)) as writer:
        place = writer.write(data.Media("m", 0, "", media_bytes=b"content"))
    path, offset, length = place
    media = data.Media("m", 0, "", path=path, offset=offset, length=length)
    theirs = media_readers.ZstdReader(str(tmp_path))
    theirs.thread_local = threading.local()
    for given in (media, {"id": "m", "path": path, "offset": offset, "length": length}):
        assert datatrove.ZstdReader(str(tmp_path)).read_media_record(given) == theirs.read_media_record(media)


@TABLE.line("a file is visible while it is written")
def test_when_files_are_visible(tmp_path: Path) -> None:
    """At the end of `with` or `run` at the latest."""
    seen = []
    for kind in (media_writers.ZstdWriter, datatrove.ZstdWriter):
        with kind(str(tmp_path / kind.__module__), max_file_size=10) as writer:
            for _ in range(2):
                writer.write(data.Media("m", 0, "", media_bytes=random.randbytes(99)))
            seen.append(sorted(name for name in files(tmp_path / kind.__module__) if not name.startswith(".")))
        assert len(files(tmp_path / kind.__module__)) == 2
    assert seen == [["000_00000.bin.zst", "001_00000.bin.zst"], ["000_00000.bin.zst"]]


@TABLE.line("files when an error ends a `with` or `run`")
def test_after_an_error(tmp_path: Path) -> None:
    def fail(writer: Any) -> None:
        with writer:
            writer.write(data.Media("m", 0, "", media_bytes=b"x"))
            raise KeyError

    left = []
    for at, kind in enumerate((media_writers.ZstdWriter, datatrove.ZstdWriter, MediaWriter)):
        with pytest.raises(KeyError):
            fail(kind(str(tmp_path / str(at))))
        left.append(files(tmp_path / str(at)))
    assert left[0] == left[1] != {}
    assert left[2] == {}


@TABLE.line("a killed task")
def test_remains(tmp_path: Path) -> None:
    """`lading.clean("media")`; a real kill is in `tests/compat/test_datatrove.py`."""
    dead = tmp_path / ".000_00000.bin.zst.lading-0123456789abcdef.tmp"
    for end in (lambda: lading.clean(tmp_path), lambda: list(datatrove.ZstdWriter(tmp_path).run(documents(1, size=9)))):
        dead.write_bytes(b"half")
        end()
        assert not dead.exists()
    list(media_writers.ZstdWriter(str(tmp_path)).run(documents(1, size=9)))  # its files are never hidden
    assert [*files(tmp_path)] == ["000_00000.bin.zst"]


@TABLE.line("a second run, or a template without `${rank}`, replaces files")
def test_replaced_files(tmp_path: Path) -> None:
    found = []
    for kind in (media_writers.ZstdWriter, datatrove.ZstdWriter):
        with warnings.catch_warnings(record=True, action="always") as told:
            for rank in range(2):
                list(kind(str(tmp_path), "all.z", -1).run(documents(rank + 1, size=9), rank, 2))
        found.append((files(tmp_path), [each.category for each in told if each.category is UserWarning]))
        (tmp_path / "all.z").unlink()
    assert found[0][0] == found[1][0]
    assert [categories for _, categories in found] == [[], [UserWarning]]


@TABLE.line("`ValueError` for media without bytes, or a missing length prefix; `KeyError` for a missing tag")
def test_errors(tmp_path: Path) -> None:
    (tmp_path / "a.z").write_bytes(b"x")
    for at, (writing, reading) in enumerate(((media_writers, media_readers), (datatrove, datatrove))):
        with writing.ZstdWriter(str(tmp_path / str(at)), "${tag}") as writer:
            with pytest.raises(ValueError, match="no"):
                writer.write(data.Media("m", 0, ""), tag="t")
            with pytest.raises(KeyError, match="tag"):
                writer.write(data.Media("m", 0, "", media_bytes=b"x"))
        given = data.Document("", "", [data.Media("m", 0, "", path="a.z", offset=0)])
        with pytest.raises(ValueError, match=r"prefix|a\.z"):
            list(reading.ZstdReader(str(tmp_path)).run([given]))


@TABLE.line("`JsonlReader(folder)` then `ZstdReader(folder)`", "`JsonlWriter` and `ZstdWriter`")
def test_media_archives(tmp_path: Path) -> None:
    archive = str(tmp_path / "a")
    steps = [media_writers.ZstdWriter(archive), writers.JsonlWriter(archive)]
    made: Iterator[Any] = iter(documents(size=99))
    for step in steps:
        made = step.run(made)
    list(made)
    ds = lading.open(archive, format="media_archive")
    ds.write(tmp_path / "out", format="media_archive")
    for folder in (archive, str(tmp_path / "out")):
        read = readers.JsonlReader(folder, glob_pattern="*.jsonl*")
        read = media_readers.ZstdReader(folder, preserve_order=True).run(read.run())
        assert [(each.id, each.media[0].media_bytes) for each in read] == [
            (f"id {at}", bytes([at]) * 99) for at in range(6)
        ]
    assert [row["media"][0]["media_bytes"] for row in lading.open(archive, format="media_archive", view="samples")] == [
        bytes([at]) * 99 for at in range(6)
    ]


@TABLE.line("`step.stats`")
def test_statistics(tmp_path: Path) -> None:
    found = []
    for kind in (media_writers.ZstdWriter, datatrove.ZstdWriter):
        step = kind(str(tmp_path / kind.__module__))
        list(step.run(documents(size=99)))
        assert isinstance(step.stats, stats.Stats)
        found.append((step.stats["media_size"].total, step.stats["XXXXX.bin.zst"].total))
    assert found[0] == found[1] == (594, 6)
    for engine in (MediaWriter(tmp_path / "own"), MediaReader(tmp_path)):
        assert isinstance(engine.stats, MediaStats)
        engine.close()


@pytest.mark.soak
@TABLE.line("`skip_completed=True`, completion files")
def test_completions(docs: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the second run finds all tasks completed
        steps = [LadingReader(str(docs / "jsonl"), **BARE), LadingWriter(tmp_path / "out", format="jsonl")]
        executors.LocalPipelineExecutor(steps, tasks=2, logging_dir=str(tmp_path / "logs"), skip_completed=True).run()
    assert sorted(path.name for path in (tmp_path / "logs/completions").iterdir()) == ["00000", "00001"]
    assert len(lading.open(tmp_path / "out")) == 18


def test_each_line_is_run() -> None:
    TABLE.check()
