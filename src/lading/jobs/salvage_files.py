"""Files that a salvage makes on its way: what came out of a compressed file, and damaged files laid out anew.

They lie in a hidden folder beside the destination, or in the system's folder for temporary files where the destination
is no folder of this machine; it goes when the salvage ends, and what a killed one left goes with the next.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from lading.codecs import pieces_of_brotli, sniff_wrap, stream_decoder, unpacked_name
from lading.dataset.source import read_head
from lading.errors import CorruptShard, DataError, LadingError, LimitExceeded, errors_at
from lading.formats.base import Recovered, ShardFile
from lading.storage.base import Buffer, Mapper, Sink, Store, aborting, store_errors
from lading.storage.local import LocalStore
from lading.storage.staging import StagedFolder, stage_folder, sweep_stale
from lading.storage.stores import is_local
from lading.storage.unwrap import plausible_bytes

__all__ = ["TemporaryFiles", "is_packed"]

_COPY_BYTES, _GAP_BYTES = 8 << 20, 64 << 10
_MOST_WAITING = 4096
_READ_BYTES = 1 << 20
_SEARCH_BYTES = 1 << 20
_FED_BYTES = 1 << 10
"""Unpacked at once: where that fails, nothing comes out of all of it."""
_LARGE_BYTES = 64 << 10
_FAST = {"gzip", "zstd", "xz"}
"""Unpacked so much faster in large steps that to do it twice, up to a damage, costs no more; bz2 is not."""
_BROTLI = "brotli"
_BEGINNINGS = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd", "bz2": b"BZh", "xz": b"\xfd7zXZ\0"}
_TRIED_BYTES = 2 << 20
"""Of a beginning, until something comes out: of bz2 that is a whole block, 900 KB and what packing added."""
_MOST_TRIED_BYTES = 64 << 20
"""Of all beginnings in a file of which nothing comes out, beyond its size: there may be one every few bytes."""
_MOST_MORE_BYTES = 64 << 20
"""More than twice its size that a damaged file may be laid out to: holes that it tells of are zeros."""


class TemporaryFiles:
    """A folder for files that are made on the way; with `with`, it is gone at the end.

    Args:
        store: where the destination is.
        destination: the folder that is written.
    """

    def __init__(self, store: Store, destination: str) -> None:
        place = destination if is_local(store) else os.path.join(tempfile.gettempdir(), "lading-salvage")
        sweep_stale(place)
        self._staged: StagedFolder = stage_folder(place)
        self._store = LocalStore()
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staged.release()

    def list_file(self) -> IO[bytes]:
        """A new file to be written and read again."""
        self._made += 1
        path = f"{self._staged.path}/{self._made}"
        with store_errors(path):
            return open(path, "w+b")

    def _sink(self, name: str) -> Sink:
        """A new file of this name, in a folder of its own: names tell formats apart."""
        self._made += 1
        return self._store.put_stream(f"{self._staged.path}/{self._made}/{posixpath.basename(name)}")

    def _as_source(self, path: str, source: ShardFile) -> ShardFile:
        info = self._store.head(path)
        return ShardFile(
            self._store, path, info, entry=source.entry, limits=source.limits, options=source.options,
            stands_for=source.place, stands_in=source.place_store, stores=source.stores,
        )  # fmt: skip

    def drop(self, source: ShardFile) -> None:
        """Remove a file that was made here and is needed no more."""
        if source.path.startswith(f"{self._staged.path}/"):
            self._store.delete(posixpath.dirname(source.path))

    def fetched(self, source: ShardFile) -> ShardFile:
        """A copy of a file that lies on a store far away."""
        size = source.store.head(source.path).size_bytes
        with aborting(self._sink(source.path)) as sink:
            for part in _read(source, 0, size):
                sink.write([part])
            sink.close()
        return self._as_source(sink.path, source)

    def laid_out(self, source: ShardFile, remains: Recovered) -> ShardFile:
        """What is left of a file, as a file of its own.

        Raises:
            LimitExceeded: it would be much larger than the file.
        """
        most = 2 * source.store.head(source.path).size_bytes + _MOST_MORE_BYTES
        if remains.size_bytes > most:
            raise LimitExceeded("what a damaged file says would make a much larger one", file=source.place,
                                expected=f"at most {most} bytes", found=remains.size_bytes)  # fmt: skip
        with aborting(self._sink(source.path)) as sink:
            at, held = 0, 0
            waiting: list[Buffer] = []  # to write each line of a file by itself takes ten times as long
            for place, content in _byte_ranges(source, remains):
                waiting += [*_zeros(place - at), content]
                size = memoryview(content).nbytes
                held, at = held + size, place + size
                if held > _COPY_BYTES or len(waiting) > _MOST_WAITING:
                    sink.write(waiting)
                    waiting, held = [], 0
            sink.write([*waiting, *_zeros(remains.size_bytes - at)])
            sink.close()
        return replace(self._as_source(sink.path, source), options={**source.options, **remains.options})

    def laid_out_beside(self, store: Store, files: Mapping[str, tuple[str, Recovered | None]]) -> str:
        """A folder with files by their paths: laid out anew, or as they are, by links where they are near."""
        self._made += 1
        folder = f"{self._staged.path}/{self._made}"
        for path, (lies, remains) in files.items():
            place = posixpath.normpath(posixpath.join(folder, path))
            if not place.startswith(f"{folder}/"):
                continue
            with store_errors(place):
                os.makedirs(posixpath.dirname(place), exist_ok=True)
                if remains is None and is_local(store):
                    os.symlink(os.path.abspath(lies), place)
                    continue
            source = ShardFile(store, lies)
            made = self.laid_out(source, remains or _whole(source))
            self._store.publish(made.path, place)
        return folder

    def unwrapped(self, source: ShardFile) -> tuple[ShardFile, list[LadingError]]:
        """What comes out of a compressed file up to its damage, and behind it where a member or frame begins."""
        size = source.store.head(source.path).size_bytes
        [head] = source.store.get_ranges(source.path, [(0, min(size, _READ_BYTES))])
        name, told = _unpacked_name(source.path)
        wrap = sniff_wrap(bytes(head)) or told
        beginnings = _Beginnings(source, wrap, size)
        lost: list[LadingError] = []
        with aborting(self._sink(name)) as sink:
            at: int | None = 0
            if wrap == _BROTLI:  # which has one beginning
                error, at = _unwrap_brotli(source, size, sink), None
                lost += [error.at(file=source.place)] if error is not None else []
            while at is not None and at < size:
                error, whole = _unwrap(source, wrap, at, size, sink)
                if error is None:
                    break
                lost.append(error.at(file=source.place, offset=at + whole))
                at = beginnings.next(at + whole + 1)
            sink.close()
        return self._as_source(sink.path, source), lost


def is_packed(source: ShardFile) -> bool:
    """Whether a file is compressed as a whole, or was before it was damaged, by a codec that may give a part of it."""
    return bool(sniff_wrap(read_head(source.store, source.path)) or _unpacked_name(source.path)[1])


def _unpacked_name(path: str) -> tuple[str, str]:
    """As `lading.codecs.unpacked_name` tells it, and for brotli too, which shards of MDS may be packed with."""
    stem, ending = posixpath.splitext(path)
    return (stem, _BROTLI) if ending == ".br" else unpacked_name(path)


def _unwrap_brotli(source: ShardFile, size: int, sink: Sink) -> LadingError | None:
    """Unpack a file up to its damage; give the error there.

    Raises:
        LimitExceeded: much more comes out than data pack to.
    """
    most = plausible_bytes(size, source.limits)
    [data] = source.store.get_ranges(source.path, [(0, size)])
    try:
        for piece in pieces_of_brotli(data):
            if sink.tell() > most:
                raise source.limits.exceeded("stream_bytes", "the file unpacks to too much", file=source.path)
            sink.write([piece])
    except CorruptShard as error:
        found = f"{error.found} at {error.offset} of what comes out"
        return CorruptShard("the compressed file is damaged", found=found)
    return None


def _unwrap(source: ShardFile, wrap: str, start: int, size: int, sink: Sink) -> tuple[LadingError | None, int]:
    """Unpack what begins somewhere; the error where it ends too early, and the bytes of whole members before it.

    Of a step that fails nothing comes out. So where a large one does, all is unpacked again with that one in small
    ones; files far away are not read twice.

    Raises:
        LimitExceeded: much more comes out than data pack to.
    """
    most, begun = plausible_bytes(size, source.limits), sink.tell()
    large = size if wrap in _FAST and isinstance(source.store, Mapper) else start
    while True:
        decoder = stream_decoder(wrap, source.limits)
        written, at = sink.tell() - begun, start
        try:
            for step in _steps(source, start, size, large):
                for piece in decoder.feed(step):
                    if sink.tell() > most:
                        raise source.limits.exceeded("stream_bytes", "the file unpacks to too much", file=source.path)
                    if len(piece) > written:
                        sink.write([memoryview(piece)[written:]])
                    written = max(written - len(piece), 0)
                at += step.nbytes
            decoder.finish()
        except CorruptShard as error:
            if at < large:
                large = at
                continue
            found = f"{error.message} at {error.offset} of what comes out"
            return CorruptShard("the compressed file is damaged", found=found), decoder.whole_bytes
        return None, 0


def _steps(source: ShardFile, start: int, size: int, large: int) -> Iterator[memoryview]:
    """A file from one place on, as it is to be fed: in large steps up to another place, in small ones behind it."""
    at = start
    for part in _read(source, start, size - start, _READ_BYTES):
        for step in _cut(part, _LARGE_BYTES):
            yield from [step] if at < large else _cut(step, _FED_BYTES)
            at += step.nbytes


class _Beginnings:
    """Finds where members or frames of a damaged file begin. Time: that of reading it, and of a number of tries."""

    def __init__(self, source: ShardFile, wrap: str, size: int) -> None:
        self._source, self._wrap, self._size = source, wrap, size
        self._left = _MOST_TRIED_BYTES + size

    def next(self, start: int) -> int | None:
        """The next place where something begins that can be unpacked; None if there is none."""
        mark = _BEGINNINGS.get(self._wrap, b"")
        if not mark:
            return None
        for at in range(start, self._size, _SEARCH_BYTES):
            # A mark may reach over the end, and is to be found once.
            [data] = self._source.store.get_ranges(
                self._source.path, [(at, min(_SEARCH_BYTES + len(mark) - 1, self._size - at))]
            )
            text = bytes(data)
            found = text.find(mark)
            while found >= 0:
                if self._left <= 0:
                    return None
                if self._begins(at + found, memoryview(text)[found:]):
                    return at + found
                found = text.find(mark, found + 1)
        return None

    def _begins(self, place: int, known: memoryview) -> bool:
        """Whether something comes out of a beginning; of the file, these bytes are there already."""
        decoder, fed = stream_decoder(self._wrap, self._source.limits), 0
        behind = place + known.nbytes
        more = min(place + _TRIED_BYTES, self._size) - behind
        try:
            for part in chain([known], _read(self._source, behind, more, _READ_BYTES)):
                for piece in _cut(part, _FED_BYTES):
                    fed += piece.nbytes
                    if any(decoder.feed(piece)):
                        return True
        except DataError:
            pass
        self._left -= fed + (_READ_BYTES if fed > known.nbytes else 0)
        return False


def _cut(part: Buffer, size: int) -> Iterator[memoryview]:
    view = memoryview(part)
    return (view[at : at + size] for at in range(0, view.nbytes, size))


def _byte_ranges(source: ShardFile, remains: Recovered) -> Iterator[tuple[int, Buffer]]:
    """Bytes of the file to be made and their places, ascending."""
    made = sorted(remains.made)
    at = 0
    for place, part in _kept(source, *_joined(remains)):
        while at < len(made) and made[at][0] <= place:
            yield made[at]
            at += 1
        yield place, part
    yield from made[at:]


def _kept(
    source: ShardFile, offset: NDArray[np.int64], target: NDArray[np.int64], length: NDArray[np.int64]
) -> Iterator[tuple[int, Buffer]]:
    """What some ranges hold, and their places in the file to be made."""
    for first, stop in _near(offset, length):
        start, size = int(offset[first]), int(offset[stop - 1] + length[stop - 1] - offset[first])
        for done, part in zip(range(0, size, _COPY_BYTES), _read(source, start, size), strict=True):
            if stop - first == 1:
                yield int(target[first]) + done, part
                continue
            view, begins = memoryview(part), offset[first:stop] - start
            ends = begins + length[first:stop]
            for place, begin, end in zip(target[first:stop].tolist(), begins.tolist(), ends.tolist(), strict=True):
                yield place, bytes(view[begin:end])  # a view keeps all that was read in memory


def _near(offset: NDArray[np.int64], length: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Parts of some ranges that are read at once: one by itself, or some that lie close to each other."""
    first, ends = 0, offset + length
    apart = np.append(np.flatnonzero((offset[1:] < ends[:-1]) | (offset[1:] - ends[:-1] > _GAP_BYTES)) + 1, len(offset))
    for stop in apart.tolist():
        while first < stop:
            most = int(np.searchsorted(ends[first:stop], offset[first] + _COPY_BYTES, "right"))
            yield first, first + max(most, 1)
            first += max(most, 1)


def _whole(source: ShardFile) -> Recovered:
    """All of a file, as it is."""
    size = source.store.head(source.path).size_bytes
    begin = np.zeros(1, np.int64)
    return Recovered(begin, begin, np.array([size]), size)


def _joined(remains: Recovered) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The ranges, neighbours that stay neighbours as one, in the order of their targets."""
    there = remains.length > 0
    offset, target, length = remains.offset[there], remains.target[there], remains.length[there]
    if not len(offset):
        return offset, target, length
    new = np.append(True, (offset[1:] != (offset + length)[:-1]) | (target[1:] != (target + length)[:-1]))
    first = np.flatnonzero(new)
    return offset[first], target[first], np.add.reduceat(length, first)


def _read(source: ShardFile, start: int, size: int, most: int = _COPY_BYTES) -> Iterator[Buffer]:
    with errors_at(file=source.path):
        for at in range(start, start + size, most):
            [data] = source.store.get_ranges(source.path, [(at, min(most, start + size - at))])
            yield data


def _zeros(count: int) -> Iterator[Buffer]:
    zeros = memoryview(bytes(min(count, _COPY_BYTES)))
    return (zeros[: min(_COPY_BYTES, count - at)] for at in range(0, count, _COPY_BYTES))
