"""Records come back whole or as an error with their place; cost and memory are bounded; paths stay in the folder."""

from __future__ import annotations

import os
import struct
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import (
    BadReference,
    CorruptShard,
    DataError,
    LadingError,
    LimitExceeded,
    MissingExtra,
    SchemaMismatch,
    StoreError,
    UsageError,
)
from lading.limits import Limits
from lading.media import MediaReader, MediaWriter
from media import document, frame, medium, pictures, without_bytes

_CONTENTS = [
    *pictures(5, 700),
    b"",
    b"x",
    bytes(200_000),
    bytes(3 << 17),
    *pictures(2, 100_000),
    *pictures(2, 16 << 10),
]


def archive(folder: Path, *records: bytes, name: str = "a.zst") -> list[dict[str, Any]]:
    """A file of these records, and the media that lie there."""
    media, at = [], 0
    for number, record in enumerate(records):
        media.append(medium(path=name, offset=at, length=len(record), id=f"m{number}"))
        at += len(record)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(records))
    return media


def version_1(data: bytes, prefix: int = 4) -> bytes:
    return len(data).to_bytes(prefix, "big") + frame(data)


@pytest.mark.parametrize("magic", [False, True])
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_of_every_kind(tmp_path: Path, magic: bool, size: bool, checksum: bool) -> None:
    media = archive(tmp_path, *(frame(data, magic=magic, size=size, checksum=checksum) for data in _CONTENTS))
    reader = MediaReader(tmp_path)
    assert [reader.read_media_record(one) for one in media] == _CONTENTS
    assert reader.stats.records == len(_CONTENTS)


@pytest.mark.parametrize("prefix", [1, 2, 4, 8])
@pytest.mark.parametrize("magic", [False, True])
def test_version_1(tmp_path: Path, prefix: int, magic: bool) -> None:
    contents = [data for data in _CONTENTS if len(data) < 1 << 8 * prefix]
    media = archive(tmp_path, *(len(data).to_bytes(prefix, "big") + frame(data, magic=magic) for data in contents))
    reader = MediaReader(tmp_path, offset_byte_size=prefix)
    assert [reader.read_media_record({**one, "length": None}) for one in media] == contents
    assert reader.stats.stored_bytes == (tmp_path / "a.zst").stat().st_size


def test_a_frame_of_version_1_may_be_longer_than_what_it_holds(tmp_path: Path) -> None:
    """Two thousand blocks of one byte each: four times as long as what they hold."""
    blocks = b"".join((1 << 3 | (at == 1999)).to_bytes(3, "little") + b"x" for at in range(2000))
    archive(tmp_path, struct.pack(">I", 2000) + b"\x00\x58" + blocks, b"what follows" * 1000)
    assert MediaReader(tmp_path).read_media_record(medium(path="a.zst", offset=0)) == b"x" * 2000


def test_plain_records(tmp_path: Path) -> None:
    media = archive(tmp_path, *_CONTENTS)
    reader = MediaReader(tmp_path, codec="none", limits=Limits(range_bytes=3 << 17))
    assert [reader.read_media_record(one) for one in media] == _CONTENTS
    with pytest.raises(CorruptShard, match="needs a length"):
        reader.read_media_record({**media[0], "length": None})
    with pytest.raises(LimitExceeded, match="range_bytes"):
        MediaReader(tmp_path, codec="none", limits=Limits(range_bytes=100)).read_media_record(media[0])


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ordered", [True, False])
def test_documents(tmp_path: Path, workers: int, ordered: bool) -> None:
    contents = pictures(60)
    written = [document(*contents[at : at + 3], name=str(at)) for at in range(0, 60, 3)]
    with MediaWriter(tmp_path) as writer:
        list(writer.run(written))
    blank = [{"id": "nothing", "media": None}, {"id": "less"}, *without_bytes(written)]
    with MediaReader(tmp_path, 20 << 20, workers, 4, ordered) as reader:
        found = list(reader.run(iter(blank)))
    if ordered:
        assert [id(doc) for doc in found] == [id(doc) for doc in blank]
    assert sorted(map(id, found)) == sorted(map(id, blank))
    assert blank[2:] == written
    assert (reader.stats.documents, reader.stats.records, reader.stats.missing) == (22, 60, 0)
    assert reader.stats.payload_bytes == sum(map(len, contents))


def test_objects_as_datatrove_s(tmp_path: Path) -> None:
    archive(tmp_path, frame(b"data"))
    media = SimpleNamespace(id="m", path="a.zst", offset=np.int64(0), length=np.int32(9), media_bytes=None)
    doc = SimpleNamespace(id="d", text="", media=[media], metadata={})
    assert list(MediaReader(tmp_path).run([doc])) == [doc]
    assert media.media_bytes == b"data"


@pytest.mark.parametrize("workers", [1, 2])
def test_without_path_or_offset(tmp_path: Path, workers: int) -> None:
    [there] = archive(tmp_path, frame(b"data"))
    inline = medium(b"inline")
    doc = {"id": "d", "media": [{**there, "path": None}, {**there, "offset": None}, inline, there, {"path": None}]}
    reader = MediaReader(tmp_path, workers=workers)
    with pytest.warns(UserWarning, match="3 media name no path or no offset.*'m0' of document 'd'"):
        list(reader.run([doc]))
    assert [one["media_bytes"] for one in doc["media"]] == [None, None, b"inline", b"data", None]
    assert (reader.stats.missing, reader.stats.records) == (3, 1)
    with pytest.warns(UserWarning, match="'m0' names no path"):
        assert reader.read_media_record({**there, "path": None}) is None


def damaged(body: bytes) -> list[bytes]:
    cut = [body[:size] for size in range(len(body))]
    return [*cut, body + b"\0", body + body, body + frame(b"other")]


@pytest.mark.cases(3)
@pytest.mark.parametrize("content", [b"", b"x", pictures(2, 300)[0], pictures(2, 300)[1]], ids=["none", "x", "c", "r"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_record_that_is_cut_or_goes_on_is_an_error(tmp_path: Path, content: bytes, version: int) -> None:
    whole = frame(content) if version == 2 else version_1(content)
    good = archive(tmp_path, frame(b"first"), name="good.zst")[0]
    for at, body in enumerate(damaged(whole)):
        if version == 1 and body.startswith(whole):
            continue  # what follows is another record
        [media] = archive(tmp_path, body, name=f"{at}.zst")
        for length in (None,) if version == 1 else (len(body),):
            reader = MediaReader(tmp_path)
            assert reader.read_media_record(good) == b"first"
            with pytest.raises((CorruptShard, BadReference)) as caught:
                reader.read_media_record({**media, "length": length})
            assert caught.value.file == str(tmp_path / f"{at}.zst")
            assert caught.value.offset == 0
            assert reader.stats.failed == 1
            assert reader.read_media_record(good) == b"first"  # the decompressor is as before


@pytest.mark.soak
@pytest.mark.parametrize("version", [1, 2])
def test_an_archive_cut_at_every_byte(tmp_path: Path, version: int) -> None:
    contents = pictures(6, 60)
    media = archive(tmp_path, *(frame(data) if version == 2 else version_1(data) for data in contents))
    body, ends = (tmp_path / "a.zst").read_bytes(), [one["offset"] + one["length"] for one in media]
    if version == 1:
        media = [{**one, "length": None} for one in media]
    for size in range(len(body)):
        (tmp_path / "a.zst").write_bytes(body[:size])
        reader = MediaReader(tmp_path)
        for one, end, content in zip(media, ends, contents, strict=True):
            if end <= size:
                assert reader.read_media_record(one) == content
            else:
                with pytest.raises(DataError, match=r"a\.zst @"):
                    reader.read_media_record(one)


@pytest.mark.parametrize("size", [16 << 10, 100_000, (1 << 17) - 1, 1 << 17, (1 << 17) + 1])
def test_what_does_not_compress_is_checked_as_all_else(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    whole = frame(content)
    for at, body in enumerate(
        (whole[:-1], whole[:18], whole + b"\0", whole + whole, bytes([whole[0] | 8]) + whole[1:])
    ):
        [media] = archive(tmp_path, body, name=f"{at}.zst")
        with pytest.raises(CorruptShard, match=f"{at}.zst @ 0"):
            MediaReader(tmp_path).read_media_record(media)
    [media] = archive(tmp_path, whole)
    assert MediaReader(tmp_path, limits=Limits(range_bytes=size)).read_media_record(media) == content
    with pytest.raises(LimitExceeded):
        MediaReader(tmp_path, limits=Limits(range_bytes=size - 1)).read_media_record(media)


@pytest.mark.soak
def test_flipped_bits_are_found_or_change_no_length(tmp_path: Path) -> None:
    """With a checksum every one is found; without, one in the content itself cannot be."""
    content = pictures(2, 120)[1]
    for checksum in (True, False):
        whole = frame(content, checksum=checksum, size=True)
        for bit in range(8 * len(whole)):
            body = bytearray(whole)
            body[bit // 8] ^= 1 << bit % 8
            [media] = archive(tmp_path, bytes(body), name=f"{checksum}{bit}.zst")
            try:
                found = MediaReader(tmp_path).read_media_record(media)
            except DataError:
                continue
            # Bit 4 of the header means nothing (RFC 8878, 3.1.1.1.1.3).
            assert found == content if checksum or bit == 4 else len(found or b"") == len(content)


@pytest.mark.parametrize("told", [0, 1, 99, 101, 1000, 1 << 29, (1 << 32) - 1])
def test_prefixes_that_lie(tmp_path: Path, told: int) -> None:
    archive(tmp_path, struct.pack(">I", told) + frame(pictures(2, 100)[0]))
    with pytest.raises((CorruptShard, LimitExceeded), match=r"a\.zst @ 0"):
        MediaReader(tmp_path).read_media_record(medium(path="a.zst", offset=0))


def test_the_cap(tmp_path: Path) -> None:
    bomb = b"\x00\x58" + struct.pack("<I", (128 << 10) << 3 | 1 << 1) * 300 + struct.pack("<I", 1 << 3 | 3)
    media = archive(tmp_path, frame(bytes(1000)), frame(bytes(1001)), frame(bytes(1001), size=True), bomb)
    reader = MediaReader(tmp_path, limits=Limits(range_bytes=1000))
    assert reader.read_media_record(media[0]) == bytes(1000)
    for one in media[1:]:
        with pytest.raises(LimitExceeded, match="--max range_bytes="):
            reader.read_media_record(one)
    with pytest.raises(LimitExceeded):
        reader.read_media_record({**media[0], "length": 5000})
    assert MediaReader(tmp_path, limits=Limits(range_bytes=38 << 20)).read_media_record(media[3]) == bytes(
        300 * (128 << 10) + 1
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_what_the_records_of_a_document_come_to(tmp_path: Path, workers: int) -> None:
    """Each document has the limit for itself; with `warn` the records that fit have their bytes."""
    media = archive(tmp_path, frame(bytes(1000)), frame(bytes(3000)))
    limits = Limits(sample_bytes=4000)
    few = [{"id": f"{i}", "media": [dict(one) for one in media]} for i in range(5)]
    many = {"id": "many", "media": [dict(media[at]) for at in (0, 1, 1, 0)]}
    with MediaReader(tmp_path, workers=workers, preserve_order=True, limits=limits) as reader:
        assert [len(one["media_bytes"]) for doc in reader.run(few) for one in doc["media"]] == [1000, 3000] * 5
        with pytest.raises(LimitExceeded, match="sample_bytes") as caught:
            list(reader.run([many]))
    assert (caught.value.sample, caught.value.offset) == ("many", media[1]["offset"])
    with (
        MediaReader(tmp_path, workers=workers, limits=limits, on_error="warn") as reader,
        pytest.warns(UserWarning, match="2 media could not be read"),
    ):
        [found] = reader.run([{**many, "media": [dict(one) for one in many["media"]]}])
    assert [one["media_bytes"] and len(one["media_bytes"]) for one in found["media"]] == [1000, 3000, None, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1},
        {"length": -1},
        {"offset": 1 << 70},
        {"length": 1 << 20},
        {"offset": 12.0},
        {"offset": True},
        {"length": "13"},
        {"path": 5},
        {"path": ""},
        {"path": "no.zst"},
        {"path": "a.zst/x"},
        {"path": "."},
        {"path": "sub"},
        {"path": "pipe"},
        {"path": "\0"},
        {"path": "\ud800"},
        {"path": "x" * 300},
        {"path": "x" * 10_000},
        {"path": "pipe:cat /etc/passwd"},
        {"path": "zip://a::file://b"},
        {"path": "/etc/passwd"},
        {"path": "../beside.zst"},
        {"path": "sub/../../beside.zst"},
        {"path": "link.zst"},
        {"path": "s3://bucket/key"},
        {"path": "http://127.0.0.1:9/x"},
    ],
)
def test_places_that_are_none(tmp_path: Path, fields: dict[str, Any]) -> None:
    archive(tmp_path, frame(b"secret"), name="beside.zst")
    folder = tmp_path / "media"
    [media] = archive(folder, frame(b"data"))
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link.zst").symlink_to(tmp_path / "beside.zst")
    with pytest.raises(BadReference):
        MediaReader(folder).read_media_record({**media, **fields})


def test_roots_that_the_caller_adds(tmp_path: Path) -> None:
    [media] = archive(tmp_path / "other", frame(b"data"), name="b.zst")
    (tmp_path / "media").mkdir()
    reader = MediaReader(tmp_path / "media", roots=[str(tmp_path / "other")])
    for path in (str(tmp_path / "other/b.zst"), "../other/b.zst", f"file://{tmp_path}/other/b.zst"):
        assert reader.read_media_record({**media, "path": path}) == b"data"


@pytest.mark.parametrize("folder, error, told", [
    ("s3://bucket/m", MissingExtra, r"pip install 'lading\[s3\]'"),
    ("nosuch://bucket/m", UsageError, "no store serves nosuch://"),
])  # fmt: skip
@pytest.mark.parametrize("on_error", ["error", "warn"])
def test_a_folder_that_nothing_here_reads_is_no_fault_of_the_documents(
    folder: str, error: type[UsageError], told: str, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("obstore", "s3fs"):
        monkeypatch.setitem(sys.modules, package, None)
    reader = MediaReader(folder, on_error=on_error)
    with pytest.raises(error, match=told):
        list(reader.run([{"id": "d", "media": [medium(path="a.zst", offset=0, length=3)]}]))
    assert reader.stats.failed == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_name_the_document_or_are_counted(tmp_path: Path, workers: int) -> None:
    media = archive(tmp_path, *(frame(bytes([at])) for at in range(6)))
    documents: list[dict[str, Any]] = [{"id": f"d{at}", "media": [one]} for at, one in enumerate(media)]
    media[3]["offset"] = 1 << 30
    found: list[Any] = []
    reader = MediaReader(tmp_path, workers=workers, preserve_order=True)
    with pytest.raises(BadReference, match=r"a\.zst @ 1073741824 sample 'd3' column 'media'"):
        found.extend(doc["id"] for doc in reader.run(documents))
    assert found == ["d0", "d1", "d2"]
    reader = MediaReader(tmp_path, workers=workers, preserve_order=True, on_error="warn")
    with pytest.warns(UserWarning, match=r"1 media could not be read.*a\.zst @ 1073741824 sample 'd3'"):
        assert [doc["id"] for doc in reader.run(documents)] == [f"d{at}" for at in range(6)]
    assert [one["media_bytes"] for one in media] == [b"\0", b"\1", b"\2", None, b"\4", b"\5"]
    assert (reader.stats.records, reader.stats.failed, reader.stats.documents) == (5, 1, 6)


@pytest.mark.parametrize("media", ["text", 5, {"path": "a"}, [5], ["a.zst"], [None]])
def test_documents_of_another_form(tmp_path: Path, media: Any) -> None:
    for workers in (1, 2):
        with pytest.raises(SchemaMismatch, match="sample 'd' column 'media'"):
            list(MediaReader(tmp_path, workers=workers).run([{"id": "d", "media": media}]))


class _Failing(WrappedStore):
    def get_ranges(self, path: str, ranges: Any, version: str = "") -> Any:
        raise StoreError("the store is down", file=path, found=ranges)


def test_a_store_that_fails_is_not_the_data_s_fault(tmp_path: Path) -> None:
    [media] = archive(tmp_path, frame(b"data"))
    stores = Stores({"": _Failing(LocalStore(), mapped=False)})
    reader = MediaReader(tmp_path, on_error="warn", stores=stores)
    with pytest.raises(StoreError, match="down"):
        list(reader.run([{"id": "d", "media": [media]}]))


def _far_store(files: dict[str, bytes]) -> CountingStore:
    store = CountingStore(MemoryStore(files))
    store.request_bytes = 1 << 20
    return store


def _far(count: int, size: int) -> tuple[CountingStore, list[dict[str, Any]], list[bytes]]:
    contents = [bytes([at]) * size for at in range(count)]
    media = [medium(path="a", offset=at * size, length=size) for at in range(count)]
    return _far_store({"far:m/a": b"".join(contents)}), media, contents


def test_records_that_follow_each_other_come_in_few_requests() -> None:
    store, media, contents = _far(100, 1000)
    reader = MediaReader("far:m", 20_000, codec="none", stores=Stores({"far:": store}))
    assert [doc["media"][0]["media_bytes"] for doc in reader.run([{"media": [one]} for one in media])] == contents
    assert store.requests["get_ranges"] == 6
    assert store.bytes_read == 100_000
    assert max(length for _, length in store.ranges["far:m/a"]) == 20_000


def test_only_what_is_wanted_is_read() -> None:
    store, media, contents = _far(100, 1000)
    reader = MediaReader("far:m", 20_000, codec="none", stores=Stores({"far:": store}))
    wanted = [70, 3, 50, 4, 90, 20]
    assert [reader.read_media_record(media[at]) for at in wanted] == [contents[at] for at in wanted]
    assert store.bytes_read == 6000
    store.reset()
    [doc] = reader.run([{"id": "d", "media": media[10:14] + media[30:31]}])
    assert [one["media_bytes"] for one in doc["media"]] == contents[10:14] + contents[30:31]
    assert store.ranges["far:m/a"] == [(10_000, 4000), (30_000, 1000)]


def test_records_without_a_length_in_few_requests() -> None:
    contents = [bytes([at]) * 100 + os.urandom(900) for at in range(100)]
    records = [version_1(data) for data in contents]
    store = _far_store({"far:m/a": b"".join(records)})
    media = [medium(path="a", offset=sum(map(len, records[:at]))) for at in range(100)]
    reader = MediaReader("far:m", 40_000, stores=Stores({"far:": store}))
    assert [doc["media"][0]["media_bytes"] for doc in reader.run([{"media": [one]} for one in media])] == contents
    assert store.requests["get_ranges"] <= 7
    store.reset()
    assert [reader.read_media_record(media[at]) for at in (80, 5, 50)] == [contents[at] for at in (80, 5, 50)]
    assert store.requests["get_ranges"] <= 3
    assert store.bytes_read <= 3 * 20_000


def test_a_local_record_is_read_alone(tmp_path: Path) -> None:
    media = archive(tmp_path, *map(frame, pictures(20)))
    store = CountingStore(LocalStore())
    reader = MediaReader(tmp_path, stores=Stores({"": store}))
    list(reader.run([{"media": media[4:7]}, {"media": media[7:8]}]))
    assert store.ranges[str(tmp_path / "a.zst")] == [(one["offset"], one["length"]) for one in media[4:8]]


def test_many_archives_and_threads(tmp_path: Path) -> None:
    media = [archive(tmp_path, frame(bytes([at])), name=f"{at}.zst")[0] for at in range(100)]
    with MediaReader(tmp_path, workers=4, preserve_order=True) as reader:
        documents = [{"media": [one]} for one in media * 3]
        found = [doc["media"][0]["media_bytes"] for doc in reader.run(documents)]
        assert found == [bytes([at]) for at in range(100)] * 3
        assert len(reader._folder._open) <= 64
        held = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) < held
    assert reader.read_media_record(media[5]) == b"\5"


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    contents = pictures(40)
    media = archive(tmp_path, *map(frame, contents))
    reader, found = MediaReader(tmp_path), {}

    def read(at: int) -> None:
        found.update({number: reader.read_media_record(media[number]) for number in range(at, 40, 4)})

    crew = [threading.Thread(target=read, args=(at,)) for at in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert [found[at] for at in range(40)] == contents
    assert reader.stats.records == 40


def test_a_file_that_becomes_shorter(tmp_path: Path) -> None:
    media = archive(tmp_path, frame(b"one"), frame(b"two"))
    reader = MediaReader(tmp_path)
    assert reader.read_media_record(media[0]) == b"one"
    os.truncate(tmp_path / "a.zst", media[1]["offset"] + 5)
    with pytest.raises(CorruptShard, match="became shorter"):
        reader.read_media_record(media[1])


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"block_size": 0},
        {"offset_byte_size": 0},
        {"codec": "lz4"},
        {"on_error": "drop_row"},
    ],
)
def test_options_that_are_none(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        MediaReader(tmp_path, **options)


def test_no_warning_without_reason(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(MediaReader(tmp_path / "not there").run([{"id": "d", "media": []}])) == [{"id": "d", "media": []}]


def test_errors_are_lading_s_for_any_bytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for at in range(300):
        [media] = archive(tmp_path, noise.bytes(int(noise.integers(1, 200))), name=f"{at}.zst")
        for length in (media["length"], None):
            with suppress(LadingError):
                MediaReader(tmp_path).read_media_record({**media, "length": length})


@pytest.mark.parametrize("length", [-(10**15), 10**400])
def test_lengths_that_lie_change_no_group(tmp_path: Path, length: int) -> None:
    """A negative one made room for every document that follows."""
    taken: list[int] = []

    def documents() -> Iterator[dict[str, Any]]:
        yield {"id": "lies", "media": [medium(length=length)]}
        for number in range(100_000):
            taken.append(number)
            yield {"id": str(number), "media": []}

    assert next(MediaReader(tmp_path, workers=2).run(documents()))["id"] == "lies"
    assert len(taken) < 50_000
