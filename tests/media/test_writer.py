"""What is written, under which name, and that nothing shows before all of it is there."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from faults import file_size_limit
from lading._core.storage.base import Buffer, Sink
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading.errors import SchemaMismatch, StoreError, UsageError
from lading.media import Location, MediaReader, MediaStats, MediaWriter
from media import document, frame, medium, pictures


@dataclass
class Media:
    """As datatrove's."""

    id: str
    media_bytes: bytes | None = None
    path: str | None = None
    offset: int | None = None
    length: int | None = None


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lading-media")]


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(found.items())}


def test_records_are_the_peer_s_and_told_to_the_media(tmp_path: Path) -> None:
    contents = [b"", b"x", *pictures(4), bytes(300_000), bytes(3 << 17), bytes(1 << 17)]
    media = [medium(data) for data in contents]
    with MediaWriter(tmp_path) as writer:
        told = [writer.write(one) for one in media]
    body = b"".join(frame(data) for data in contents)
    assert files(tmp_path) == {"000_00000.bin.zst": body}
    assert [(one["path"], one["offset"], one["length"]) for one in media] == told
    assert [body[at : at + length] for _, at, length in told] == [frame(data) for data in contents]
    sizes = sum(map(len, contents))
    assert writer.stats == MediaStats(records=len(contents), payload_bytes=sizes, stored_bytes=len(body))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_objects_and_any_bytes(tmp_path: Path, kind: type, codec: str) -> None:
    data = bytearray(b"some bytes")
    media = Media("a", kind(data))
    with MediaWriter(tmp_path, max_file_size=-1, codec=codec) as writer:
        told = writer.write(media)
        data[:] = b"other byte"  # a sink is given them later
    assert (media.path, media.offset, media.length) == told
    assert MediaReader(tmp_path, codec=codec).read_media_record(media) == b"some bytes"


@pytest.mark.parametrize("codec", ["zstd", "none"])
@pytest.mark.parametrize("size", [1000, 3 << 17])
def test_bytes_that_do_not_lie_together(tmp_path: Path, size: int, codec: str) -> None:
    data = b"ab" * size
    media = Media("a", memoryview(data)[::2])  # type: ignore[arg-type] # any bytes are taken
    with MediaWriter(tmp_path, codec=codec) as writer:
        writer.write(media)
    assert MediaReader(tmp_path, codec=codec).read_media_record(media) == b"a" * size


@pytest.mark.parametrize(
    "options, name",
    [
        ({}, "000_00007.bin.zst"),
        ({"max_file_size": -1}, "00007.bin.zst"),
        ({"max_file_size": 0}, "00007.bin.zst"),
        ({"codec": "none"}, "000_00007.bin"),
        ({"output_filename": "${lang}/a.b/${rank}-x.zst"}, "de/a.b/000_00007-x.zst"),
        ({"output_filename": "one", "max_file_size": "1GB"}, "000_one"),
    ],
)
def test_names(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    with MediaWriter(tmp_path, **options) as writer:
        assert writer.write(medium(b"1"), 7, lang="de") == Location(name, 0, writer.stats.stored_bytes)
    assert list(files(tmp_path)) == [name]


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    with MediaWriter(tmp_path, "a/${rank}", max_file_size=10, codec="none") as writer:
        told = [writer.write(medium(b"123456"), rank) for rank in (0, 0, 0, 1, 0)]
    zero, one = "a/000_00000", "a/001_00000"
    assert told == [(zero, 0, 6), (zero, 6, 6), (one, 0, 6), ("a/000_00001", 0, 6), (one, 6, 6)]
    assert {name: len(body) for name, body in files(tmp_path).items()} == {zero: 12, "a/000_00001": 6, one: 12}


@pytest.mark.parametrize("end", ["close", "abort"])
def test_full_files_are_not_held_open(tmp_path: Path, end: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = MediaWriter(tmp_path, max_file_size=1, codec="none")
    for at in range(30):
        writer.write(medium(b"%d" % at))
    assert len(os.listdir("/proc/self/fd")) < before + 10
    assert files(tmp_path).keys() == {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    getattr(writer, end)()
    assert list(files(tmp_path).values()) == ([b"%d" % at for at in range(30)] if end == "close" else [])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_documents_in_order_and_the_same_bytes(tmp_path: Path, workers: int) -> None:
    contents = pictures(60, 60_000)
    documents = [document(*contents[at : at + 3], None, name=str(at)) for at in range(0, 60, 3)]
    documents.append({"id": "empty", "media": None})
    with MediaWriter(tmp_path, max_file_size="1MB", workers=workers) as writer:
        given = list(writer.run(iter(documents), rank=2))
    assert [id(doc) for doc in given] == [id(doc) for doc in documents]
    assert b"".join(files(tmp_path).values()) == b"".join(map(frame, contents))
    assert list(files(tmp_path)) == ["000_00002.bin.zst", "001_00002.bin.zst", "002_00002.bin.zst"]
    assert (writer.stats.documents, writer.stats.records, writer.stats.missing) == (21, 60, 20)


@pytest.mark.parametrize("workers", [1, 3])
def test_names_take_tags_of_run_then_of_metadata_then_the_id(tmp_path: Path, workers: int) -> None:
    documents = [document(b"%d" % at, name=f"d{at}") | {"metadata": {"lang": "de", "split": "x"}} for at in range(3)]
    documents[1]["media"][0]["metadata"] = {"lang": "fr"}
    documents[2]["metadata"] = "not a mapping"
    writer = MediaWriter(tmp_path, "${split}/${lang}/${id}.zst", max_file_size=-1, workers=workers)
    with pytest.raises(UsageError, match="found lang"):
        list(writer.run(documents, split="train"))
    assert files(tmp_path) == {}
    writer = MediaWriter(tmp_path, "${split}/${lang}/${id}.zst", max_file_size=-1, workers=workers)
    list(writer.run(documents[:2], split="train"))
    assert list(files(tmp_path)) == ["train/de/d0.zst", "train/fr/d1.zst"]


@pytest.mark.parametrize("size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("level", [-5, 1, 12])
def test_what_a_frame_holds(tmp_path: Path, size: bool, checksum: bool, level: int) -> None:
    [content] = pictures(1)
    with MediaWriter(tmp_path, compression_level=level, content_size=size, checksum=checksum) as writer:
        told = writer.write(medium(content))
    assert files(tmp_path)[told.path] == frame(content, size=size, checksum=checksum, level=level)


def test_nothing_shows_before_the_end(tmp_path: Path) -> None:
    (tmp_path / "000_00000.bin.zst").write_bytes(b"what was there")
    writer = MediaWriter(tmp_path, max_file_size=100)
    for _ in range(5):
        writer.write(medium(bytes(range(200))))
    shown = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert shown == ["000_00000.bin.zst"]
    assert (tmp_path / shown[0]).read_bytes() == b"what was there"
    facts = writer.close()
    assert threads() == []
    assert [info.path for info in facts] == [str(tmp_path / f"00{at}_00000.bin.zst") for at in range(5)]
    assert writer.close() == facts


def test_a_with_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def give_up() -> None:
        with MediaWriter(tmp_path, max_file_size=1) as writer:
            for _ in range(3):
                writer.write(medium(b"x" * 100))
            raise KeyError("the user's")

    with pytest.raises(KeyError):
        give_up()
    assert files(tmp_path) == {}


@pytest.mark.parametrize("workers", [1, 3])
def test_documents_that_fail_or_are_left_leave_nothing(tmp_path: Path, workers: int) -> None:
    documents = [document(b"x" * 1000, name=str(at)) for at in range(20)]
    for given in MediaWriter(tmp_path, workers=workers).run(documents):
        assert given["media"][0]["length"]
        break
    assert files(tmp_path) == {}
    documents[11]["media"] = "none"
    with pytest.raises(SchemaMismatch, match="sample '11' column 'media'"):
        list(MediaWriter(tmp_path, workers=workers).run(documents))
    assert files(tmp_path) == {}
    assert threads() == []


@pytest.mark.parametrize("records", [1, 2, 20])
def test_a_full_disk(tmp_path: Path, records: int) -> None:
    """What the disk says may come with a later record, and at the end at the latest."""
    writer = MediaWriter(tmp_path, codec="none")

    def fill() -> None:
        with writer:
            for _ in range(records):
                writer.write(medium(bytes(2 << 20)))

    with file_size_limit(1 << 20), pytest.raises(StoreError, match="too large"):
        fill()
    assert list(tmp_path.iterdir()) == []
    assert threads() == []
    with pytest.raises(UsageError, match="given up"):
        writer.write(medium(b"x"))
    with pytest.raises(UsageError, match="given up"):
        writer.close()


class _Failing(WrappedStore):
    """Its sinks fail at the second write."""

    def put_stream(self, path: str) -> Sink:
        sink = MemoryStore.put_stream(MemoryStore(), path)
        written: list[object] = []

        class Failing:
            def __init__(self) -> None:
                self.path, self.tell, self.abort, self.close = path, sink.tell, sink.abort, sink.close

            def write(self, buffers: Sequence[Buffer]) -> None:
                if written:
                    raise StoreError("the store is down", file=path)
                written.append(buffers)

        return Failing()


def test_a_write_that_failed_is_not_forgotten() -> None:
    writer = MediaWriter("mem:x", codec="none", stores=Stores({"mem:": _Failing(MemoryStore())}))

    def go_on() -> None:
        with writer:
            writer.write(medium(bytes(2 << 20)))
            writer.write(medium(bytes(2 << 20)))
            with pytest.raises(StoreError, match="down"):
                writer.write(medium(bytes(2 << 20)))
            with pytest.raises(UsageError, match="given up"):
                writer.write(medium(b"x"))

    with pytest.raises(UsageError, match="given up"):
        go_on()


def test_a_store_that_fails_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "001_00000.bin").mkdir()
    writer = MediaWriter(tmp_path, max_file_size=1, codec="none")
    for _ in range(3):
        writer.write(medium(b"x"))
    with pytest.raises(StoreError):
        writer.close()
    assert list(files(tmp_path)) == ["000_00000.bin"]
    with pytest.raises(UsageError, match="given up"):
        writer.close()
    writer.abort()


def test_no_bytes_is_said_and_harms_nothing(tmp_path: Path) -> None:
    with MediaWriter(tmp_path) as writer:
        for data in (None, "text", 5):
            with pytest.raises(UsageError, match=r"no bytes to write.*on 'm'"):
                writer.write(medium(data))  # type: ignore[arg-type] # wrong on purpose
        writer.write(medium(b"x"))
    assert len(files(tmp_path)) == 1


def test_a_writer_without_records_writes_no_file(tmp_path: Path) -> None:
    with MediaWriter(tmp_path / "new") as writer:
        assert list(writer.run([])) == []
    assert not (tmp_path / "new").exists()
    assert writer.close() == ()
    with pytest.raises(UsageError, match="closed"):
        writer.write(medium(b"x"))


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "gzip"},
        {"compression_level": 23},
        {"workers": 0},
        {"codec": "none", "checksum": True},
        {"output_filename": "$"},
        {"max_file_size": "much"},
    ],
)
def test_options_that_are_none(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        MediaWriter(tmp_path, **options)


@pytest.mark.parametrize("tag", ["en/", "./en", "en/.", ".", "en//us"])
def test_a_file_has_one_name(tmp_path: Path, tag: str) -> None:
    first, other = medium(b"first"), medium(b"other")
    with MediaWriter(tmp_path, "${tag}/x") as writer:
        writer.write(first, tag="en")
        writer.write(other, tag=tag)
    reader = MediaReader(tmp_path)
    assert [reader.read_media_record(one) for one in (first, other)] == [b"first", b"other"]


@pytest.mark.parametrize("template", ["./${rank}.bin.zst", "a//${rank}.zst", "media/${lang}/${rank}.zst"])
def test_names_by_a_detour(tmp_path: Path, template: str) -> None:
    one = medium(b"x")
    with MediaWriter(tmp_path, template) as writer:
        writer.write(one, lang="")
    assert MediaReader(tmp_path).read_media_record(one) == b"x"
    assert {str((tmp_path / name).relative_to(tmp_path)) for name in files(tmp_path)} == {one["path"]}


@pytest.mark.parametrize("tag", ["..", "/etc", "a/../..", "a/../b", "", "x/", "x/.", "s3://b", "\0"])
def test_tags_stay_in_the_folder(tmp_path: Path, tag: str) -> None:
    with MediaWriter(tmp_path / "in", "${tag}" if tag != ".." else "${tag}/x") as writer:
        with pytest.raises(UsageError, match="leads out"):
            writer.write(medium(b"x"), tag=tag)
        with pytest.raises(UsageError, match=r"tag.*rank.*found tag"):
            writer.write(medium(b"x"))
    assert files(tmp_path) == {}


def test_threads_may_write_at_once(tmp_path: Path) -> None:
    contents = pictures(40)
    media = [medium(data) for data in contents]
    with MediaWriter(tmp_path) as writer:
        crew = [threading.Thread(target=lambda own=media[at::4]: [writer.write(one) for one in own]) for at in range(4)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
    reader = MediaReader(tmp_path)
    assert [reader.read_media_record(one) for one in media] == contents
    assert writer.stats.records == 40


def test_into_another_store() -> None:
    store = MemoryStore()
    stores = Stores({"mem:": store})
    one = medium(b"data")
    with MediaWriter("mem:x/media", stores=stores) as writer:
        writer.write(one)
    assert [info.path for info in store.walk("mem:x")] == ["mem:x/media/000_00000.bin.zst"]
    assert MediaReader("mem:x/media", stores=stores).read_media_record(one) == b"data"
