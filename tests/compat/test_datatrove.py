"""datatrove's media steps under their own names: one test for each sentence that its documentation says of them."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import IO, Any

import fsspec
import pytest
import zstandard
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

import lading
from lading.compat.datatrove import (
    BaseMediaWriter,
    BinaryReaderThreaded,
    Document,
    LimitedReader,
    Media,
    WarcReaderFast,
    ZstdReader,
    ZstdWriter,
)
from lading.errors import CorruptShard, DataError, MissingFile, StoreError, UsageError
from lading.media import MediaReader
from media import document, frame, medium, pictures, without_bytes


class PlainWriter(BaseMediaWriter):
    """A subclass with `_write` and nothing else that does anything."""

    default_output_filename = "${rank}.bin"
    name = "Plain"

    def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
        offset = file_handler.tell()
        file_handler.write(media["media_bytes"])
        return filename, offset, len(media["media_bytes"])


class PeerZstdWriter(BaseMediaWriter):
    """The `_write` of datatrove's own writer, as its users copy it."""

    default_output_filename = "${rank}.bin.zst"

    def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
        params = zstandard.ZstdCompressionParameters.from_level(
            3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_checksum=0, write_content_size=0
        )
        start, data = file_handler.tell(), media["media_bytes"]
        packer = zstandard.ZstdCompressor(compression_params=params)
        with packer.stream_writer(file_handler, closefd=False, size=len(data)) as out:  # type: ignore[arg-type]
            out.write(data)
        return filename, start, file_handler.tell() - start


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def places(documents: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(one["path"], one["offset"], one["length"]) for doc in documents for one in doc["media"]]


# The media writing framework


def test_names_come_from_templates_with_the_rank_of_the_worker(tmp_path: Path) -> None:
    for rank in (0, 1, 12):
        list(ZstdWriter(tmp_path, "${rank}.bin.zst", max_file_size=-1)([document(b"x")], rank, 13))
    assert list(files(tmp_path)) == ["00000.bin.zst", "00001.bin.zst", "00012.bin.zst"]


@pytest.mark.parametrize(
    "template, name",
    [
        ("${lang}/${rank}.x", "de/00003.x"),
        ("${id}.x", "d.x"),
        ("${quality}-${lang}.x", "good-de.x"),
        ("${rank}-${tag}.x", "00003-a.x"),
    ],
)
def test_names_come_from_metadata_and_tags_of_run(tmp_path: Path, template: str, name: str) -> None:
    given = document(b"x") | {"metadata": {"lang": "de", "tag": "b"}}
    given["media"][0]["metadata"] = {"quality": "good"}
    list(ZstdWriter(tmp_path, template, -1).run([given], 3, 1, tag="a"))
    assert list(files(tmp_path)) == [name]


def test_names_come_from_metadata_and_tags_of_write(tmp_path: Path) -> None:
    with ZstdWriter(tmp_path, "${lang}/${id}-${tag}.x", -1) as writer:
        one = medium(b"x", id="m", metadata={"lang": "de"})
        assert writer.write(one, tag=7) == ("de/m-7.x", 0, len(frame(b"x")))
        with pytest.raises(UsageError, match="found lang"):
            writer.write(medium(b"x"), tag=7)
        with pytest.raises(ValueError, match="leads out"):
            writer.write(medium(b"x"), tag=7, lang="../..")


def test_large_files_are_split_with_a_counter_before_the_name(tmp_path: Path) -> None:
    contents = [bytes([at]) * 6 for at in range(5)]
    written = list(PlainWriter(tmp_path, "a/${rank}.bin", max_file_size=10).run([document(*contents)]))
    assert files(tmp_path) == {
        "a/000_00000.bin": contents[0] + contents[1],
        "a/001_00000.bin": contents[2] + contents[3],
        "a/002_00000.bin": contents[4],
    }
    assert places(written)[2:4] == [("a/001_00000.bin", 0, 6), ("a/001_00000.bin", 6, 6)]


def test_file_offset_and_length_suffice_to_read_a_record_without_an_index(tmp_path: Path) -> None:
    contents = [b"", b"x", *pictures(6)]
    list(ZstdWriter(tmp_path, max_file_size=5000).run([given := document(*contents)]))
    stored = files(tmp_path)
    assert len(stored) > 1
    for (path, offset, length), content in zip(places([given]), contents, strict=True):
        assert stored[path][offset : offset + length] == frame(content)
        record = {"path": path, "offset": offset, "length": length}
        assert ZstdReader(tmp_path).read_media_record(record) == content


def test_the_context_manager_closes_the_files_even_after_an_error(tmp_path: Path) -> None:
    one = medium(b"some bytes")

    def fail() -> None:
        with ZstdWriter(tmp_path) as writer:
            writer.write(one)
            raise KeyError("the user's")

    with pytest.raises(KeyError):
        fail()
    assert ZstdReader(tmp_path).read_media_record(one) == b"some bytes"


def test_documents_that_were_passed_on_can_be_read_after_an_early_end(tmp_path: Path) -> None:
    documents = (document(b"x" * 100, name=str(at)) for at in range(20))
    run = ZstdWriter(tmp_path)(documents, 0, 1)
    passed = [next(run), next(run)]
    run.close()  # type: ignore[attr-defined]
    assert [ZstdReader(tmp_path).read_media_record(doc["media"][0]) for doc in passed] == [b"x" * 100] * 2


_ENDED_BY_A_LATER_STEP = """
import sys
from lading.compat.datatrove import ZstdWriter
documents = [{"id": str(at), "media": [{"id": "m", "media_bytes": bytes([at]) * 99}]} for at in range(9)]
def later_step(data):
    for document in data:
        if document["id"] == "5":
            raise ValueError("of a later step")
later_step(ZstdWriter(sys.argv[1])(documents))
"""


@pytest.mark.mechanism("records at the end of the interpreter")
def test_records_are_there_after_an_error_that_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ENDED_BY_A_LATER_STEP, str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.stderr.endswith("ValueError: of a later step\n")
    [content] = files(tmp_path).values()
    assert content == b"".join(frame(bytes([at]) * 99) for at in range(6))


def test_a_record_that_fails_halfway_leaves_the_others_whole(tmp_path: Path) -> None:
    class Failing(PlainWriter):
        def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
            if media["media_bytes"] == b"bad":
                file_handler.write(b"half")
                raise ValueError("bad")
            return super()._write(media, file_handler, filename)

    with Failing(tmp_path) as writer:
        first = writer.write(medium(b"first"))
        with pytest.raises(ValueError, match="bad"):
            writer.write(medium(b"bad"))
        last = writer.write(medium(b"last"))
    reader = MediaReader(tmp_path, codec="none")
    assert [reader.read_media_record(place._asdict()) for place in (first, last)] == [b"first", b"last"]


def test_the_base_class_defers_the_format_to_write_alone(tmp_path: Path) -> None:
    assert BaseMediaWriter.__abstractmethods__ == {"_write"}
    contents = [b"", b"x", *pictures(4), bytes(1 << 17), bytes(300_000)]
    written = {
        kind: list(kind(tmp_path / kind.__name__, max_file_size=6000).run([document(*contents)], rank=2))  # type: ignore[abstract]
        for kind in (ZstdWriter, PeerZstdWriter)
    }
    assert places(written[ZstdWriter]) == places(written[PeerZstdWriter])
    assert files(tmp_path / "ZstdWriter") == files(tmp_path / "PeerZstdWriter")


@pytest.mark.parametrize("kind", [ZstdWriter, PlainWriter])
def test_all_writers_have_the_same_statistics(tmp_path: Path, kind: type[BaseMediaWriter]) -> None:
    writer = kind(tmp_path)
    list(writer.run([document(b"12345", None, b"1")], rank=1))
    assert (writer.stats["total"].total, writer.stats["media_size"].total) == (2, 6)
    assert writer.stats[f"XXXXX.{'bin.zst' if kind is ZstdWriter else 'bin'}"].total == 2
    assert (writer.stats["media_size"].n, writer.stats["media_size"].mean) == (2, 3)
    assert writer.stats.time_stats.total > 0


@pytest.mark.parametrize("as_objects", [True, False])
def test_the_location_is_stored_on_each_media_and_the_reader_uses_it(tmp_path: Path, as_objects: bool) -> None:
    given: list[Any] = [document(b"1", None, b"22"), document()]
    if as_objects:
        given = [Document(doc["text"], doc["id"], [Media(**one) for one in doc["media"]]) for doc in given]
    written = list(ZstdWriter(tmp_path)(given))
    assert list(map(id, written)) == list(map(id, given))
    first, missing, last = written[0].media if as_objects else map(_Fields, written[0]["media"])
    assert (first.path, first.offset, first.length) == ("000_00000.bin.zst", 0, len(frame(b"1")))
    assert (last.path, last.offset) == ("000_00000.bin.zst", first.length)
    assert (missing.path, missing.offset, missing.length) == (None, None, None)
    with pytest.warns(UserWarning, match="1 media name no path"):
        list(ZstdReader(tmp_path)(written))
    assert [one.media_bytes for one in (first, missing, last)] == [b"1", None, b"22"]


class _Fields:
    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]


def test_media_without_bytes_are_a_value_error(tmp_path: Path) -> None:
    with ZstdWriter(tmp_path) as writer, pytest.raises(ValueError, match="no bytes"):
        writer.write(medium(None))


def test_a_writer_can_run_again_and_loses_no_file(tmp_path: Path) -> None:
    numbered, plain = ZstdWriter(tmp_path / "a"), PlainWriter(tmp_path / "b")
    for content in (b"first", b"second"):
        list(numbered.run([document(content)]))
    assert [zstd_content(body) for body in files(tmp_path / "a").values()] == [b"first", b"second"]
    list(plain.run([document(b"first")]))
    with pytest.raises(UsageError, match="already wrote"):
        list(plain.run([document(b"second")]))
    assert files(tmp_path / "b") == {"00000.bin": b"first"}


def test_full_files_are_there_before_the_writer_is_closed(tmp_path: Path) -> None:
    with PlainWriter(tmp_path, max_file_size=10) as writer:
        for content in (b"1234567890", b"next"):
            writer.write(medium(content))
        assert files(tmp_path)["000_00000.bin"] == b"1234567890"
        assert [*writer.output_mg.get_open_files()] == ["001_00000.bin"]
    assert files(tmp_path) == {"000_00000.bin": b"1234567890", "001_00000.bin": b"next"}


def test_a_file_that_a_subclass_takes_is_there_at_the_end_whoever_closes_it(tmp_path: Path) -> None:
    class Taking(PlainWriter):
        def _on_file_switch(self, _original_name: str, old_filename: str, _new_filename: str) -> None:
            self.output_mg.pop(old_filename)

    contents = [b"1234567890", b"abcdefghij", b"rest"]
    list(Taking(tmp_path, max_file_size=10).run([document(*contents)]))
    assert [*files(tmp_path).values()] == contents


def test_a_file_that_is_replaced_is_named_once(tmp_path: Path) -> None:
    contents = [b"12345678901", b"next", b"12345678901", b"more"]
    list(PlainWriter(tmp_path, max_file_size=10).run([document(*contents)], rank=3))
    with pytest.warns(UserWarning, match=r"000_00003\.bin.*documents that name its records.*\$\{rank\}") as told:
        list(PlainWriter(tmp_path, max_file_size=10).run([document(*contents)], rank=3))
    assert len(told) == 1


def test_tasks_that_write_one_file_at_a_time_are_told(tmp_path: Path) -> None:
    """Neither finds the file of the other when it begins."""
    first, second = (PlainWriter(tmp_path, "all.bin") for _ in range(2))
    for writer, content in ((first, b"1"), (second, b"2")):
        writer.write(medium(content))
    first.close()
    with pytest.warns(UserWarning, match="all.bin: this file is replaced"):
        second.close()
    assert files(tmp_path) == {"all.bin": b"2"}


@pytest.mark.filterwarnings("error")
def test_files_of_other_ranks_are_replaced_by_nobody(tmp_path: Path) -> None:
    for rank in range(3):
        list(ZstdWriter(tmp_path).run([document(b"x")], rank, 3))


def test_the_next_run_of_a_rank_removes_what_a_dead_one_left(tmp_path: Path) -> None:
    dead = ".{}.lading-0123456789abcdef.tmp".format
    living = ZstdWriter(tmp_path)
    living.write(medium(b"of a living process"), rank=4)
    for name in ("000_00003.bin.zst", "007_00003.bin.zst", "000_00004.bin.zst"):
        (tmp_path / dead(name)).write_bytes(b"half")
    for rank in (3, 4):
        list(ZstdWriter(tmp_path).run([document(b"x")], rank, 5))
    assert dead("000_00004.bin.zst") in files(tmp_path)  # as its writer seems to live
    assert not any(name in files(tmp_path) for name in (dead("000_00003.bin.zst"), dead("007_00003.bin.zst")))
    with pytest.warns(UserWarning, match="replaced"):
        living.close()
    assert files(tmp_path)["000_00004.bin.zst"] == frame(b"of a living process")


_KILLED = """
import os, signal, sys
from lading.compat.datatrove import ZstdWriter
writer = ZstdWriter(sys.argv[1])
writer.write({"id": "a", "media_bytes": os.urandom(3 << 20)})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.soak
def test_a_killed_writer_leaves_one_hidden_file_until_the_next_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    [name] = files(tmp_path)
    assert name.startswith(".000_00000.bin.zst.lading-")
    assert lading.clean(tmp_path, dry_run=True).removed == {str(tmp_path / name): (tmp_path / name).stat().st_size}
    list(ZstdWriter(tmp_path).run([document(b"x")]))
    assert files(tmp_path) == {"000_00000.bin.zst": frame(b"x")}


def test_a_subclass_may_change_the_template(tmp_path: Path) -> None:
    writer = PlainWriter(tmp_path)
    writer.output_filename = Template("${lang}.bin")
    list(writer.run([document(b"x") | {"metadata": {"lang": "de"}}]))
    assert files(tmp_path) == {"de.bin": b"x"}


def zstd_content(body: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor(format=zstandard.FORMAT_ZSTD1_MAGICLESS).stream_reader(io.BytesIO(body))
    return bytes(reader.read())


class _WithoutName(BaseMediaWriter):
    def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
        return None  # type: ignore[return-value] # wrong on purpose


def test_options_that_are_none(tmp_path: Path) -> None:
    for options in ({"output_filename": "$"}, {"compression_level": 23}):
        with pytest.raises(UsageError):
            ZstdWriter(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="default_output_filename"):
        _WithoutName(tmp_path)
    with pytest.raises(UsageError, match="wb"):
        PlainWriter(tmp_path, mode="wt")
    with pytest.raises(UsageError, match=r"_WithoutName\._write gave no location"):
        _WithoutName(tmp_path, "x").write(medium(b"x"))
    for folder in (None, ("a",), ("a", 1), 5):
        with pytest.raises(ValueError, match="not a folder"):
            ZstdReader(folder)


def test_a_tag_that_nothing_gives_is_a_key_error(tmp_path: Path) -> None:
    writer = PlainWriter(tmp_path, "${lang}/${rank}.bin")
    with pytest.raises(KeyError, match="expected id, rank, found lang"):
        writer.write(medium(b"x"), rank=1)
    assert not list(tmp_path.iterdir())


def test_a_store_that_fails_publishes_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "000_00000.bin").mkdir()
    with pytest.raises(StoreError):
        list(PlainWriter(tmp_path, max_file_size=100).run([document(b"x")]))


def test_the_size_of_files_is_a_number_or_a_text(tmp_path: Path) -> None:
    writer = ZstdWriter(tmp_path, max_file_size="1kb")
    assert writer.max_file_size == 1024
    list(writer.run([document(*pictures(9))]))
    assert len([*tmp_path.iterdir()]) > 1
    for wrong in ("large", None, 0.5):
        with pytest.raises(UsageError, match="size"):
            ZstdWriter(tmp_path, max_file_size=wrong)  # type: ignore[arg-type] # what is refused


# ZstdReader


def test_signatures_and_names_are_the_peer_s() -> None:
    reader = inspect.signature(ZstdReader).parameters
    assert {name: one.default for name, one in reader.items() if name != "data_folder"} == {
        "block_size": 20 * 1024 * 1024,
        "workers": 1,
        "offset_byte_size": 4,
        "preserve_order": False,
    }
    writer = inspect.signature(ZstdWriter).parameters
    assert [*writer] == ["output_folder", "output_filename", "max_file_size", "compression_level"]
    assert (writer["max_file_size"].default, writer["compression_level"].default) == (5 * 2**30, 3)
    assert [*inspect.signature(LimitedReader).parameters] == ["fp", "max_bytes"]
    assert (ZstdReader.name, ZstdReader.type) == ("📒⚡ Zstd Media Reader (Streaming/Threaded)", "Media Reader")
    assert issubclass(ZstdReader, BinaryReaderThreaded)


@pytest.mark.parametrize("workers, ordered", [(1, False), (4, True), (4, False)])
def test_a_pipeline_reads_individually_compressed_records_in_threads(
    tmp_path: Path, workers: int, ordered: bool
) -> None:
    documents = [document(*pictures(3), name=str(at)) for at in range(40)]
    list(ZstdWriter(tmp_path, max_file_size=50_000).run(documents))
    step = ZstdReader(str(tmp_path), 20 * 1024 * 1024, workers, 4, ordered)
    found = list(step(without_bytes(documents), 0, 1))
    key = (lambda _: 0) if ordered else (lambda doc: int(doc["id"]))
    assert sorted(found, key=key) == documents
    assert step.stats["media_size"].total == 40 * 3 * 5000
    assert list(step(None)) == []


@pytest.mark.parametrize("prefix", [4, 8])
def test_the_version_is_selected_by_whether_the_media_has_a_length(tmp_path: Path, prefix: int) -> None:
    one, two = b"first" * 50, b"second" * 50
    old, new = len(one).to_bytes(prefix, "big") + frame(one), frame(two)
    (tmp_path / "a.zst").write_bytes(b"skipped" + old + new)
    reader = ZstdReader(tmp_path, offset_byte_size=prefix)
    assert reader.read_media_record(medium(path="a.zst", offset=7)) == one
    assert reader.read_media_record(medium(path="a.zst", offset=7 + len(old), length=len(new))) == two
    with pytest.raises(ValueError, match=r"a\.zst") as error:  # peer: ValueError, missing length prefix
        reader.read_media_record(medium(path="a.zst", offset=7 + len(old) + len(new) - 1))
    assert error.value.offset is not None  # type: ignore[attr-defined]
    with pytest.raises(CorruptShard):
        reader.read_media_record(medium(path="a.zst", offset=7 + len(old), length=len(new) - 1))


def test_an_archive_that_does_not_exist_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.zst") as error:
        ZstdReader(tmp_path).read_media_record(medium(path="a.zst", offset=0, length=5))
    assert isinstance(error.value, DataError)
    assert isinstance(pickle.loads(pickle.dumps(error.value)), MissingFile)


@pytest.mark.parametrize("fields", [{"offset": 0}, {"path": "a.zst"}, {}])
def test_content_is_none_if_offset_or_path_is_missing(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="no path or no offset"):
        assert ZstdReader(tmp_path).read_media_record(medium(**fields)) is None


def test_a_subclass_of_a_reader_implements_read_media_record(tmp_path: Path) -> None:
    class Upper(BinaryReaderThreaded):
        def read_media_record(self, media: Any) -> bytes | None:
            return str(media["id"]).upper().encode()

    class Tolerant(ZstdReader):
        def read_media_record(self, media: Any) -> bytes | None:
            try:
                return super().read_media_record(media)
            except ValueError:
                return b"?"

    list(ZstdWriter(tmp_path).run([given := document(b"x", b"y")]))
    given["media"][1]["offset"] = 999
    for kind, found in ((Upper, [b"D-0", b"D-1"]), (Tolerant, [b"x", b"?"])):
        for workers in (1, 3):
            [read] = kind(tmp_path, workers=workers, preserve_order=True).run(without_bytes([given]))  # type: ignore[abstract]
            assert [one["media_bytes"] for one in read["media"]] == found


def test_web_archives(golden: Any) -> None:
    case = golden("datatrove") / "warc-plain"
    records = sorted(case.rglob("*.warc"))
    reader = WarcReaderFast(str(records[0].parent))
    assert reader.read_media_record(medium(path=records[0].name, offset=0)) is not None


class Bytewise(BinaryReaderThreaded):
    """Opens files by the folder of the step, as subclasses of the peer do."""

    def read_media_record(self, media: Any) -> bytes | None:
        with self.data_folder.open(media["path"], "rb", block_size=100) as file:
            file.seek(media["offset"])
            return bytes(file.read(media["length"]))


@pytest.mark.parametrize("installed", [True, False])
def test_subclasses_open_files_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if installed:
        pytest.importorskip("datatrove")
    else:
        for module in [name for name in sys.modules if name.partition(".")[0] == "datatrove"]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "datatrove", None)
    [written] = PlainWriter(tmp_path / "a").run([document(b"one", b"two")])
    folders = [str(tmp_path / "a"), tmp_path / "a", (str(tmp_path / "a"), {}), (str(tmp_path / "a"), LocalFileSystem())]
    for folder in folders:
        for step in (Bytewise(folder), pickle.loads(pickle.dumps(Bytewise(folder)))):  # type: ignore[abstract]
            [read] = step.run(without_bytes([written]))
            assert [one["media_bytes"] for one in read["media"]] == [b"one", b"two"]
        assert PlainWriter(folder).output_folder.exists("00000.bin")


# LimitedReader


def test_a_limited_reader_never_reads_into_the_next_record() -> None:
    limited = LimitedReader(io.BytesIO(b"0123456789"), 6)
    assert isinstance(limited, IO)
    assert [limited.read(4), limited.tell(), limited.read(4), limited.read(), limited.read(1)] == [
        b"0123", 4, b"45", b"", b"",
    ]  # fmt: skip
    assert limited.bytes_read == 6
    assert LimitedReader(fp=io.BytesIO(b"01"), max_bytes=6).read(size=1) == b"0"
    assert LimitedReader(io.BytesIO(b"01"), 6).read() == b"01"
    assert LimitedReader(io.BytesIO(b"0123456789"), 6).read(-1) == b"012345"
    assert LimitedReader(io.BytesIO(b"01"), 0).read() == b""


def test_a_limited_reader_passes_seek_tell_and_close_on() -> None:
    file = io.BytesIO(b"0123456789")
    with LimitedReader(file, 3) as limited:
        assert limited.seek(4) == limited.tell() == 4
        assert limited.seek(offset=-1, whence=2) == 9
        assert limited.readable()
        assert limited.read() == b"9"
        assert not limited.closed
    assert file.closed
    assert limited.closed


def test_a_limited_reader_bounds_a_zstd_stream() -> None:
    one, two = b"first" * 50, b"second" * 50
    file = io.BytesIO(frame(one) + frame(two))
    unpacking = zstandard.ZstdDecompressor(format=zstandard.FORMAT_ZSTD1_MAGICLESS)
    limited = LimitedReader(file, len(frame(one)))
    with unpacking.stream_reader(limited, read_across_frames=False, closefd=False) as stream:
        assert stream.read() == one
    assert file.tell() == len(frame(one))


# Folders and copies


def _folders(path: str) -> Iterator[Any]:
    local = fsspec.filesystem("file")
    yield path
    yield Path(path)
    yield f"file://{path}"
    yield path, {}
    yield path, {"auto_mkdir": True}
    yield path, local
    yield DirFileSystem(path, local)


def test_folders_may_be_paths_pairs_and_folders_of_file_systems(tmp_path: Path) -> None:
    for number, folder in enumerate(_folders(f"{tmp_path}/x")):
        one = medium(b"data")
        with ZstdWriter(folder, f"{number}.zst", -1) as writer:
            writer.write(one)
        assert [ZstdReader(other).read_media_record(one) for other in _folders(f"{tmp_path}/x")] == [b"data"] * 7
    assert list(files(tmp_path / "x")) == [f"{number}.zst" for number in range(7)]


def test_folders_may_be_of_other_file_systems() -> None:
    memory = fsspec.filesystem("memory")
    folders = ["memory://lading/x", ("memory://lading/x", {}), ("lading/x", memory), DirFileSystem("/lading/x", memory)]
    try:
        for number, folder in enumerate(folders):
            one = medium(b"data")
            with ZstdWriter(folder, f"a/{number}.zst", -1) as writer:
                writer.write(one)
            assert memory.cat_file(f"/lading/x/a/{number}.zst") == frame(b"data")
            assert [ZstdReader(other).read_media_record(one) for other in folders] == [b"data"] * 4
    finally:
        memory.rm("/lading", recursive=True)


def test_options_that_no_file_system_knows_are_told() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        ZstdWriter(("nowhere://x/y", {"a": 1})).write(medium(b"x"))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda step: pickle.loads(pickle.dumps(step))])
def test_executors_copy_steps_for_each_task(tmp_path: Path, copied: Any) -> None:
    writer, reader = ZstdWriter(tmp_path), ZstdReader(tmp_path, workers=2)
    documents = [document(b"x", name=str(rank)) for rank in range(2)]
    written = [doc for rank in range(2) for doc in copied(writer)([documents[rank]], rank, 2)]
    assert list(files(tmp_path)) == ["000_00000.bin.zst", "000_00001.bin.zst"]
    for _ in range(2):  # a reader that ran can be copied too
        assert sorted(doc["id"] for doc in copied(reader)(without_bytes(written))) == ["0", "1"]
        list(reader.run(without_bytes(written)))
