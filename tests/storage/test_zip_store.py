"""Zip archives as folders: members as Python's zipfile and Info-ZIP read them, in few requests and bounded memory."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lading
from lading._core.storage.base import Buffer, FileInfo
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading._core.storage.zip_store import ZipStore
from lading.errors import CorruptShard, DuplicateField, LadingError, NotFound, ShortRead, UsageError
from lading.limits import Limits

_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def _zip(files: Mapping[str, bytes], method: int = _DEFLATED, to: io.RawIOBase | None = None) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(to or body, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return body.getvalue()


def _store(body: bytes, path: str = "a.zip") -> ZipStore:
    return ZipStore(MemoryStore({path: body}), path)


def _members(store: ZipStore) -> dict[str, bytes]:
    found = list(store.walk(store.archive))
    return {
        info.path.removeprefix(f"{store.archive}/"): bytes(store.get_ranges(info.path, [(0, info.size_bytes)])[0])
        for info in found
    }


class _Pipe(io.RawIOBase):
    """Where nobody can go back: zipfile writes sizes behind the data."""

    def __init__(self) -> None:
        self.body = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.body += data
        return len(data)


def _piped(method: int) -> Callable[[], bytes]:
    def made() -> bytes:
        pipe = _Pipe()
        _zip(_FILES, method, pipe)
        return bytes(pipe.body)

    return made


def _with_zip64() -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, data in _FILES.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    return body.getvalue()


def _with_comment() -> bytes:
    body = io.BytesIO(_zip(_FILES))
    with zipfile.ZipFile(body, "a") as archive:
        archive.comment = b"not the end: PK\x05\x06" + bytes(18)
    return body.getvalue()


_FILES = {"b/2.bin": b"22" * 500, "a.txt": b"", "b/1.bin": random.Random(1).randbytes(3000), "ü.txt": "é".encode()}


@pytest.mark.parametrize(
    "made",
    [
        lambda: _zip(_FILES, _STORED), lambda: _zip(_FILES), _piped(_STORED), _piped(_DEFLATED), _with_zip64,
        _with_comment, lambda: b"#!/bin/sh\nexit\n" + _zip(_FILES), lambda: _zip({}),
    ],
    ids=["stored", "deflated", "stored-piped", "deflated-piped", "zip64", "comment", "prefix", "empty"],
)  # fmt: skip
def test_members_are_those_that_zipfile_finds(made: Callable[[], bytes]) -> None:
    body = made()
    with zipfile.ZipFile(io.BytesIO(body)) as peer:
        expected = {name: peer.read(name) for name in peer.namelist()}
    found = _members(_store(body))
    assert found == expected
    assert list(found) == sorted(expected)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("zip") is None, reason="Info-ZIP is not installed")
@pytest.mark.parametrize("options", [["-0"], ["-9"], ["-fz"], ["-y"]], ids=lambda given: given[0])
def test_members_are_those_that_info_zip_packed(tmp_path: Path, options: list[str]) -> None:
    folder = tmp_path / "in"
    for name, data in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "link.bin").symlink_to("b/1.bin")
    subprocess.run(["zip", "-q", "-r", *options, "../a.zip", "."], cwd=folder, check=True)
    store = ZipStore(LocalStore(), str(tmp_path / "a.zip"))
    irregular = [info.path for info in store.walk(store.archive) if info.size_bytes < 0]
    assert irregular == ([f"{store.archive}/link.bin"] if options == ["-y"] else [])
    if options != ["-y"]:
        assert _members(store) == {**_FILES, "link.bin": _FILES["b/1.bin"]}


def _renamed(body: bytes, old: bytes, new: bytes, flags: int) -> bytes:
    """Members with another name of the same length in both headers, and other flags."""
    assert len(old) == len(new)
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        begin = body.index(signature)
        body = body[: begin + at] + struct.pack("<H", flags) + body[begin + at + 2 :]
    return body.replace(old, new)


@pytest.mark.parametrize(
    "stored,flags,name",
    [
        ("ü.jpg".encode(), 1 << 11, "ü.jpg"),
        ("ü.jpg".encode(), 0, "ü.jpg"),  # as macOS writes names
        ("ü.jpg".encode("cp437"), 0, "ü.jpg"),
        ("写.jpg".encode("gbk"), 0, "写.jpg".encode("gbk").decode("cp437")),
    ],
    ids=["flag", "utf-8", "cp437", "gbk"],
)
def test_names_are_utf8_or_of_code_page_437(stored: bytes, flags: int, name: str) -> None:
    old = b"x" * (len(stored) - 4) + b".jpg"
    body = _renamed(_zip({old.decode(): b"1"}), old, stored, flags)
    assert list(_members(_store(body))) == [name]


def test_a_name_in_unicode_holds_where_the_other_name_is_unchanged(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("x.jpg")
    name = "写真.jpg".encode()
    info.extra = struct.pack("<HHBI", 0x7075, 5 + len(name), 1, zlib.crc32(b"\xff.jpg")) + name
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr(info, b"1")
    assert list(_members(_store(body.getvalue().replace(b"x.jpg", b"\xff.jpg")))) == ["写真.jpg"]


def test_a_folder_is_part_of_a_path() -> None:
    store = _store(_zip({"a/1": b"1", "a/b/2": b"2", "ab": b"3", "a0": b"4"}))
    assert [info.path for info in store.walk("a.zip/a")] == ["a.zip/a/1", "a.zip/a/b/2"]
    with pytest.raises(NotFound, match=r"a\.zip/c: .*no such member.*begins with a, a0, ab"):
        store.head("a.zip/c")
    with pytest.raises(ShortRead):
        store.get_ranges("a.zip/ab", [(0, 2)])


@pytest.mark.parametrize("method", [_STORED, _DEFLATED])
@pytest.mark.cases(2)
def test_ranges_of_a_large_member_in_any_order(monkeypatch: pytest.MonkeyPatch, method: int) -> None:
    monkeypatch.setattr("lading._core.storage.zip_store._POINT_BYTES", 200_000)
    draw = random.Random(3)
    data = b"".join(draw.choice([draw.randbytes(700), bytes(9000)]) for _ in range(400))
    store = _store(_zip({"x": data}, method))
    for _ in range(200):
        begin = draw.randrange(len(data))
        stop = min(len(data), begin + draw.choice([0, 1, 500, 100_000]))
        assert bytes(store.get_ranges("a.zip/x", [(begin, stop - begin)])[0]) == data[begin:stop]


def _edited(body: bytes, signature: bytes, at: int, value: bytes) -> bytes:
    begin = body.index(signature) + at
    return body[:begin] + value + body[begin + len(value) :]


def _overlapping() -> bytes:
    body = _zip({"a.jpg": b"1" * 50, "b.jpg": b"2" * 50}, _STORED)
    second = body.rindex(b"PK\x01\x02")
    return body[: second + 42] + struct.pack("<I", 40) + body[second + 46 :]


def _twice() -> bytes:
    return _zip({"a.jpg": b"1", "b.jpg": b"2"}).replace(b"b.jpg", b"a.jpg")


@pytest.mark.parametrize(
    "made,kind,text",
    [
        (lambda: _zip(_FILES)[:-40], CorruptShard, "directory at the end of the zip is missing"),
        (lambda: b"<html>" * 99, CorruptShard, "directory at the end of the zip is missing"),
        (_overlapping, CorruptShard, "overlap"),
        (_twice, DuplicateField, r"a\.zip/a\.jpg: two members"),
        (lambda: _zip({"../a.jpg": b"1"}), CorruptShard, "leads out of the zip"),
        (lambda: _zip({"a.jpg": b"1"}, zipfile.ZIP_BZIP2), UsageError, "bzip2"),
        (lambda: _edited(_zip({"a.jpg": b"1"}), b"PK\x01\x02", 8, b"\x01\0"), UsageError, "a.jpg: .*encrypted.*unzip"),
        (lambda: _edited(_zip({"a.jpg": b"1"}), b"PK\x01\x02", 24, b"\xff" * 3), CorruptShard, "more bytes than"),
        (lambda: _edited(_zip({"a.jpg": b"1"}), b"PK\x05\x06", 10, b"\x02"), CorruptShard, "another number of members"),
        (lambda: _edited(_zip({"a.jpg": b"1"}), b"PK\x05\x06", 4, b"\x03"), UsageError, "last part of several.*zip -s"),
    ],
    ids=["cut", "html", "overlap", "twice", "outside", "method", "encrypted", "bomb", "count", "parts"],
)  # fmt: skip
@pytest.mark.cases(10)
def test_an_archive_that_is_not_read_is_refused_when_it_is_listed(
    made: Callable[[], bytes], kind: type[LadingError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        list(_store(made()).walk("a.zip"))


@pytest.mark.parametrize("damage", ["byte", "checksum", "header"])
@pytest.mark.cases(3)
def test_damage_of_a_deflated_member_is_an_error(damage: str) -> None:
    data = random.Random(2).randbytes(50_000).hex().encode()
    body = bytearray(_zip({"a.jpg": data}))
    body[{"byte": 20_000, "checksum": body.index(b"PK\x01\x02") + 16, "header": 0}[damage]] ^= 1
    if damage == "checksum":
        body[14] ^= 1  # of the local header
    store = _store(bytes(body))
    with pytest.raises(CorruptShard, match=r"a\.zip"):
        store.get_ranges("a.zip/a.jpg", [(0, len(data))])
    ds = lading.open("mem://a.zip", stores=Stores({"mem://": MemoryStore({"mem://a.zip": bytes(body)})}))
    with pytest.raises(CorruptShard, match=r"a\.zip"):
        ds.with_decode(False)[0]


def test_a_member_that_unpacks_to_too_much_is_refused() -> None:
    body = _zip({"a.bin": bytes(1 << 20)})
    stores = Stores({"mem://": MemoryStore({"mem://a.zip": body})})
    ds = lading.open("mem://a.zip", format="files", stores=stores, limits=Limits(range_bytes=1 << 19))
    with pytest.raises(LadingError, match="range_bytes"):
        ds[0]


@pytest.mark.parametrize("method", [_STORED, _DEFLATED])
@pytest.mark.cases(2)
def test_an_archive_opens_by_one_read_and_a_sample_is_one_range(method: int) -> None:
    rng = np.random.default_rng(0)
    files = {f"{i:04}.jpg": rng.bytes(3000) for i in range(800)}
    far = MemoryStore({"far://b/a.zip": _zip(files, method)})
    far.request_bytes = 1 << 20  # type: ignore[misc]
    counted = CountingStore(far)
    ds = lading.open("far://b/a.zip", stores=Stores({"far://": counted})).with_decode(False)
    assert len(ds) == len(files)
    assert counted.requests["get_ranges"] == 1
    counted.reset()
    assert ds[123]["jpg"] == files["0123.jpg"]
    assert [len(ranges) for ranges in counted.ranges.values()] == [1]
    assert counted.bytes_read < 3200
    counted.reset()
    assert [sample["jpg"] for sample in ds.samples()] == list(files.values())
    assert counted.requests["get_ranges"] < 20


class _Asked(MemoryStore):
    """Keeps how many ranges each call asked for; ranges of one call are asked for at once."""

    request_bytes = 1 << 20

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.calls: list[int] = []

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        self.calls.append(len(ranges))
        return super().get_ranges(path, ranges, version)


def test_headers_that_tell_where_stored_members_begin_are_read_together() -> None:
    pipe = _Pipe()
    files = {f"{i:04}.jpg": bytes([i % 256]) * 300 for i in range(300)}
    _zip(files, _STORED, pipe)
    store = _Asked({"far://b/a.zip": bytes(pipe.body)})
    ds = lading.open("far://b/a.zip", stores=Stores({"far://": store})).with_decode(False)
    store.calls.clear()
    assert [sample["jpg"] for sample in ds.samples()] == list(files.values())
    assert store.calls[0] == len(files)
    assert len(store.calls) < 10


class _WithoutVersions(MemoryStore):
    """As a web server that tells neither a tag nor a time."""

    def head(self, path: str) -> FileInfo:
        return replace(super().head(path), version="")


def test_a_deflated_member_of_a_server_without_versions_is_unpacked_once() -> None:
    data = random.Random(2).randbytes(3 << 20)
    counted = CountingStore(_WithoutVersions({"a.zip": _zip({"a.bin": data}, _DEFLATED)}))
    store = ZipStore(counted, "a.zip")
    parts = [(at, 1 << 16) for at in range(0, len(data), 1 << 16)]
    assert b"".join(bytes(store.get_ranges("a.zip/a.bin", [part])[0]) for part in parts) == data
    assert counted.bytes_read < 2 * len(data)


def test_an_archive_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(_zip({"a.jpg": b"1"}))
    with pytest.raises(UsageError, match="a zip is read, not written"):
        lading.writer(f"{tmp_path}/a.zip/out", format="parquet").close()


def test_a_replaced_archive_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "a.zip"
    place.write_bytes(_zip({"a.jpg": b"1"}))
    ds = lading.open(place).with_decode(False)
    place.write_bytes(_zip({"a.jpg": b"22"}))
    with pytest.raises(LadingError, match=r"replaced|changed"):
        ds[0]
    assert lading.open(place).with_decode(False)[0]["jpg"] == b"22"


@pytest.mark.soak
def test_a_damaged_archive_gives_data_or_an_error_that_names_it() -> None:
    draw = random.Random(5)
    bodies = [_zip(_FILES, _STORED), _zip(_FILES), _piped(_DEFLATED)(), _with_zip64(), _with_comment()]
    for _ in range(20_000):
        body = bytearray(draw.choice(bodies))
        for _ in range(draw.choice([1, 1, 2, 5])):
            body[draw.randrange(len(body))] = draw.choice([0, 255, draw.randrange(256)])
        del body[draw.choice([len(body), len(body), draw.randrange(len(body))]) :]
        try:
            _members(_store(bytes(body)))
        except LadingError as error:
            assert "a.zip" in str(error)  # noqa: PT017 - whichever error it is
