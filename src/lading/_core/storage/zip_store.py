"""A zip archive as a folder: `photos.zip/train/1.jpg` is its member `train/1.jpg`.

Read-only; nothing is unpacked to disk.
Stored members are ranges of the archive. Deflated ones are unpacked as they are read: a value at once
(`lading._core.codecs.zip_`), a shard piece by piece, with points in it from which reading can begin.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import RLock
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import CODECS, FileEntry, make_refs
from lading._core.codecs.zip_ import DEFLATED, LOCAL_HEADER_BYTES, begin_of_data
from lading._core.storage.base import Buffer, FileInfo, Sink, Store, check_inside, check_version
from lading._core.storage.zip_directory import ZipDirectory, read_directory
from lading.errors import CorruptShard, DataError, LadingError, NotFound, UsageError, errors_at

__all__ = ["FileRanges", "ZipStore", "archives_in", "damaged_files", "ranges_of_files", "zip_store"]

_ARCHIVE: Final = re.compile(r"\.zip(?=/)", re.IGNORECASE)
_AHEAD_BYTES = 1 << 20
"""Most of the end of a remote archive that is read for its directory at once."""
_MOST_HEADER_BYTES = LOCAL_HEADER_BYTES + 2 * 0xFFFF
_MOST_DESCRIPTOR_BYTES = 24
_READ_BYTES, _STEP_BYTES, _PIECE_BYTES = 1 << 20, 16 << 10, 1 << 20
_POINT_BYTES, _MOST_POINTS = 4 << 20, 256
_MOST_OPEN = 4
"""Deflated members that are read at once: each holds its points, of 40 KB, and a piece of its bytes."""


def archives_in(path: str) -> Iterator[str]:
    """Yield the folders in a path whose names end in `.zip`, the outermost first; none for a pattern."""
    for found in _ARCHIVE.finditer(path):
        archive = path[: found.end()]
        if "*" in archive or "?" in archive:
            return
        yield archive


@lru_cache(maxsize=64)
def zip_store(inner: Any, archive: str) -> ZipStore:
    """Return the store of an archive of another store; the same one again for some time. Nothing is read."""
    return ZipStore(inner, archive)


class ZipStore:
    """The members of one archive, as files below its name. Threads may share it.

    Args:
        inner: the store of the archive.
        archive: its path there.
    """

    def __init__(self, inner: Store, archive: str) -> None:
        self.inner, self.archive = inner, archive
        self.request_bytes = inner.request_bytes
        self._lock = RLock()
        self._directory: ZipDirectory | None = None
        self._inflated: dict[int, _Inflated] = {}

    def directory(self, version: str | None = None) -> ZipDirectory:
        """Return the members of the archive as it is now, or as it was in the version that is held."""
        with self._lock:
            held = self._directory
            if held is not None and version == held.version:
                return held
            info = self.inner.head(self.archive)
            if held is None or (held.version, held.size_bytes) != (info.version, info.size_bytes) or not info.version:
                read = partial(self._read, version=info.version)
                ahead = min(self.request_bytes, _AHEAD_BYTES)
                held = read_directory(self.archive, info.size_bytes, info.version, read, ahead)
                self._directory, self._inflated = held, {}
            return held

    def _read(self, offset: int, length: int, version: str) -> bytes:
        return bytes(self.inner.get_ranges(self.archive, [(offset, length)], version)[0])

    def head(self, path: str) -> FileInfo:
        """Return size and version: that of the archive. Raises NotFound."""
        found = self.directory()
        return self._info(found, self._number(found, path))

    def _info(self, found: ZipDirectory, number: int) -> FileInfo:
        return FileInfo(f"{self.archive}/{found.names[number]}", int(found.size[number]), found.version)

    def _number(self, found: ZipDirectory, path: str) -> int:
        number = found.find(path[len(self.archive) + 1 :])
        if number < 0:
            tops = list(dict.fromkeys(name.partition("/")[0] for name in found.names[:_MANY]))
            shown = ", ".join(tops[:_FEW]) + (" …" if len(tops) > _FEW else "")
            raise NotFound("the zip has no such member", file=path, advice=f"It begins with {shown}." if tops else None)
        return number

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield the members below a folder, by path; nothing if there is none."""
        found = self.directory()
        folder = prefix[len(self.archive) + 1 :].rstrip("/")
        yield from (self._info(found, number) for number in found.below(f"{folder}/" if folder else ""))

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return the bytes of ranges of a member, as stores do."""
        found = self.directory(version)
        check_version(self.archive, version, found.version)
        number = self._number(found, path)
        check_inside(path, ranges, int(found.size[number]))
        with errors_at(file=path):
            if found.method[number] == DEFLATED:
                member = self._member(found, number)
                return [member.read(offset, length) for offset, length in ranges]
            begin = self._begin(found, number)
            moved = [(begin + offset, length) for offset, length in ranges]
            return self.inner.get_ranges(self.archive, moved, found.version)

    def _begins(self, found: ZipDirectory, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the data of members begins; the headers that tell it are asked for together."""
        unknown = numbers[found.data[numbers] < 0]
        headers = self.inner.get_ranges(
            self.archive, [(int(at), LOCAL_HEADER_BYTES) for at in found.header[unknown]], found.version
        )
        for number, header in zip(unknown.tolist(), headers, strict=True):
            with errors_at(file=f"{self.archive}/{found.names[number]}"):
                begin = begin_of_data(header, int(found.method[number]))
            found.data[number] = found.header[number] + begin
        return found.data[numbers]

    def _begin(self, found: ZipDirectory, number: int) -> int:
        return int(self._begins(found, np.array([number]))[0])

    def _member(self, found: ZipDirectory, number: int) -> _Inflated:
        with self._lock:
            member = self._inflated.pop(number, None)
            if member is None:
                begin, packed = self._begin(found, number), int(found.packed[number])
                read = partial(self._read, version=found.version)
                member = _Inflated(read, begin, packed, int(found.size[number]), int(found.crc[number]))
            while len(self._inflated) >= _MOST_OPEN:
                self._inflated.pop(next(iter(self._inflated)))
            self._inflated[number] = member
            return member

    def ranges(self, paths: Sequence[str], version: str) -> FileRanges:
        """Return where whole members are in the archive; a deflated one with its record."""
        found = self.directory(version)
        check_version(self.archive, version, found.version)
        number = np.array([self._number(found, path) for path in paths], np.int64)
        deflated = found.method[number] == DEFLATED
        offset, length = found.header[number], found.packed[number]
        offset[~deflated] = self._begins(found, number[~deflated])
        record = np.minimum(found.room[number], length + _MOST_HEADER_BYTES + _MOST_DESCRIPTOR_BYTES)
        codec = np.where(deflated, CODECS.index("zip"), 0).astype(np.int8)
        entry = FileEntry(self.archive, "", found.size_bytes, found.version)
        return FileRanges([entry], np.zeros(len(paths), np.int32), offset, np.where(deflated, record, length), codec)

    def check(self, path: str) -> None:
        """Read a member, and compare its header and its checksum with the directory. Raises CorruptShard."""
        found = self.directory()
        number = self._number(found, path)
        at, known, size, checksum = int(found.header[number]), int(found.data[number]), int(found.size[number]), 0
        with errors_at(file=path):
            header = self._read(at, LOCAL_HEADER_BYTES, found.version)
            begin = at + begin_of_data(header, int(found.method[number]))
            if known not in (-1, begin):
                raise CorruptShard("the member does not begin where the directory of the zip says", offset=at,
                                   expected=known, found=begin)  # fmt: skip
            for offset in range(0, size, _READ_BYTES):
                part = (offset, min(_READ_BYTES, size - offset))
                checksum = zlib.crc32(self.get_ranges(path, [part], found.version)[0], checksum)
            if checksum != found.crc[number]:
                raise CorruptShard("the checksum of the member differs", found=f"CRC-32 {checksum:08x}",
                                   expected=f"CRC-32 {found.crc[number]:08x}")  # fmt: skip

    def put_stream(self, path: str) -> Sink:
        """Refuse to write."""
        self._refuse(path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:  # noqa: ARG002 - as stores have it
        """Refuse to write."""
        self._refuse(target)

    def delete(self, path: str) -> None:
        """Refuse to delete."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise UsageError("a zip is read, not written", file=path, advice="Name another destination.")


_FEW, _MANY = 5, 10_000


@dataclass(frozen=True, slots=True)
class FileRanges:
    """Where the bytes of whole files are.

    Attributes:
        files: the files that hold them.
        file: number of the file that holds each of them.
        offset, length, codec: as in references.
    """

    files: Sequence[FileEntry]
    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    codec: NDArray[np.int8]

    def refs(self, number: NDArray[np.int64]) -> pa.ExtensionArray:
        """Return references to files by number; a null for −1."""
        valid, at = number >= 0, np.maximum(number, 0)
        if not len(self.file):
            return make_refs(at, at, valid=valid)
        return make_refs(self.offset[at], self.length[at], file=self.file[at], codec=self.codec[at], valid=valid)


def ranges_of_files(store: Store, files: Sequence[FileEntry]) -> FileRanges:
    """Return where the bytes of files of one store are: each is a file of its own, or a range of an archive."""
    if isinstance(store, ZipStore) and files:
        return store.ranges([file.url for file in files], files[0].version)
    count = len(files)
    sizes = np.array([file.size_bytes for file in files], np.int64)
    return FileRanges(files, np.arange(count, dtype=np.int32), np.zeros(count, np.int64), sizes,
                      np.zeros(count, np.int8))  # fmt: skip


def damaged_files(store: Store, paths: Sequence[str]) -> Iterator[LadingError]:
    """Yield the errors of files whose bytes do not have the checksum that their archive keeps of them."""
    if not isinstance(store, ZipStore):
        return
    for path in paths:
        try:
            store.check(path)
        except DataError as error:
            yield error


class _Inflated:
    """Random reads in a deflated member. Reading goes forward from the nearest point that was passed before.

    A point is a copy of the decompressor. Peak memory: 256 points of 40 KB, two pieces of 1 MiB, and what is asked for.
    """

    def __init__(self, read: Callable[[int, int], bytes], begin: int, packed: int, size: int, crc: int) -> None:
        self._read, self._begin, self._packed, self._size, self._crc = read, begin, packed, size, crc
        self._every = max(_POINT_BYTES, size // _MOST_POINTS)
        self._lock = RLock()
        self._points = [_Point(0, 0, zlib.decompressobj(-zlib.MAX_WBITS), 0)]
        self._at = self._points[0].copy()
        self._piece = self._window = b""
        """What was unpacked last; what was read last."""
        self._window_begin = 0

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range inside the member.

        Raises:
            CorruptShard: the stream is damaged, or is not as long as the directory says.
        """
        with self._lock:
            near = self._points[bisect_right(self._points, offset, key=lambda point: point.out) - 1]
            if offset < self._at.out - len(self._piece) or near.out > self._at.out:
                self._at, self._piece = near.copy(), b""
            parts = []
            while length:
                if offset >= self._at.out:
                    self._next()
                first = self._at.out - len(self._piece)
                part = self._piece[offset - first : offset - first + length]
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self) -> None:
        """Unpack the next piece."""
        at = self._at
        try:
            piece = at.member.decompress(at.member.unconsumed_tail or self._take(at), _PIECE_BYTES)
        except zlib.error as error:
            raise CorruptShard("the deflate stream is damaged", offset=at.out, found=str(error)) from error
        at.out, at.crc = at.out + len(piece), zlib.crc32(piece, at.crc)
        tail = at.member.unconsumed_tail
        ended = at.member.eof or not (piece or tail or at.taken < self._packed)
        if at.out > self._size or (ended and at.out != self._size):
            raise CorruptShard("the member unpacks to another size than the directory says", offset=at.out,
                               expected=f"{self._size} bytes", found=f"{at.out} bytes")  # fmt: skip
        if at.out == self._size and at.crc != self._crc:
            raise CorruptShard("the checksum of the member differs", expected=f"CRC-32 {self._crc:08x}",
                               found=f"{at.crc:08x}")  # fmt: skip
        self._piece = piece
        if at.out >= self._points[-1].out + self._every and not (tail or ended):
            self._points.append(at.copy())

    def _take(self, at: _Point) -> bytes:
        """Return the next bytes of the stream: few, because a decompressor holds those that it has not unpacked."""
        begin = at.taken - self._window_begin
        if not 0 <= begin < len(self._window):
            size = min(_READ_BYTES, self._packed - at.taken)
            self._window, self._window_begin, begin = self._read(self._begin + at.taken, size), at.taken, 0
        data = self._window[begin : begin + _STEP_BYTES]
        at.taken += len(data)
        return data


@dataclass(slots=True)
class _Point:
    """A place in a deflate stream.

    Attributes:
        out: bytes that were unpacked before it.
        taken: bytes of the stream that the decompressor was given.
        member: the decompressor.
        crc: CRC-32 of the bytes before it.
    """

    out: int
    taken: int
    member: Any
    crc: int

    def copy(self) -> _Point:
        """Return a place from which another may go on."""
        return _Point(self.out, self.taken, self.member.copy(), self.crc)
