"""Temporary files of a salvage: unpacked files, and damaged files laid out anew.

They lie in a hidden folder beside the destination, or in the system's folder for temporary files if the destination is
remote. The folder is made with its first file, and removed when the salvage ends; the next salvage removes that of one
that was killed.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from lading._core.codecs import pieces_of_brotli, sniff_wrap, stream_decoder, unpacked_name
from lading._core.dataset.source.source import read_head
from lading._core.formats.base import Recovered, ShardFile
from lading._core.storage.base import Buffer, Sink, Store, aborting, store_errors
from lading._core.storage.local import LocalStore
from lading._core.storage.staging import StagedFolder, stage_folder, sweep_stale
from lading._core.storage.stores import is_local
from lading.errors import CorruptShard, DataError, LadingError, LimitExceeded, StoreError, errors_at, is_damage

__all__ = ["TemporaryFiles", "Unpacked", "is_packed"]

_COPY_BYTES, _GAP_BYTES = 8 << 20, 64 << 10
_MOST_WAITING = 4096
_READ_BYTES = 1 << 20
_STEP_BYTES = 1 << 10
"""Compressed bytes that are unpacked at once: of a step that fails, nothing comes out."""
_BROTLI = "brotli"
_USUAL_RATIO = 100
"""Data of formats that repeat their names and zeros pack to a hundredth of their size."""
_BEGINNINGS = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd", "bz2": b"BZh", "xz": b"\xfd7zXZ\0"}
_TRIED_BYTES = 2 << 20
"""Compressed bytes in which a member or frame must give something: a block of bz2 is 900 KB before compression."""
_MOST_TRIED_BYTES = 64 << 20
"""Bytes of all beginnings that give nothing, beyond the file's size: a hostile file may have one every few bytes."""
_MOST_MORE_BYTES = 64 << 20
"""Bytes beyond twice the size of a damaged file that its new layout may have: its holes are zeros."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The bytes that a damaged compressed file gives.

    Attributes:
        source: the unpacked file.
        lost: an error for each damage.
        lost_from: offset in the compressed file from which on nothing more came out; None if its end did, or the codec
            does not tell.
    """

    source: ShardFile
    lost: Sequence[LadingError]
    lost_from: int | None


class TemporaryFiles:
    """A folder of temporary files; with `with`, it is removed at the end.

    Args:
        store: the store of the destination; None in a process that writes none.
        destination: the folder that is written.
    """

    def __init__(self, store: Store | None = None, destination: str = "") -> None:
        self._destination = destination if store is not None and is_local(store) else None
        self._staged: StagedFolder | None = None
        self._store = LocalStore()
        self._made = 0
        self._excess: dict[str, int] = {}  # of files here: bytes beyond what their sources usually unpack to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._staged is not None:
            self._staged.release()

    @property
    def _place(self) -> str:
        """The place beside which the folder is made."""
        return self._destination or os.path.join(tempfile.gettempdir(), "lading-salvage")

    def _next(self) -> str:
        """Return a new path in the folder."""
        if self._staged is None:
            sweep_stale(self._place)
            self._staged = stage_folder(self._place)
        self._made += 1
        return f"{self._staged.path}/{self._made}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let errors of the body that are of the files made here name the folder in which they lie, and what to do."""
        try:
            with store_errors(self._place):
                yield
        except StoreError as error:
            own = "" if self._staged is None else f"{self._staged.path}/"
            mine = error.file == self._place or bool(own and (error.file or "").startswith(own))
            if mine and not is_damage(error):
                error.message = f"a temporary file cannot be written: {error.message}"
                error.file, error.offset = os.path.dirname(os.path.abspath(self._place)), None
                more = "Damaged shards are unpacked and mended there before they are written."
                more += "" if self._destination else " TMPDIR names another folder."
                error.advice = f"{error.advice or ''} {more}".lstrip()
            raise

    def list_file(self) -> IO[bytes]:
        """Create a file to be written and read again."""
        with self.writing():
            return open(self._next(), "w+b")

    @contextmanager
    def _sink(self, name: str) -> Iterator[Sink]:
        """Write a file of this name in a folder of its own: names tell formats apart."""
        with self.writing(), aborting(self._store.put_stream(f"{self._next()}/{posixpath.basename(name)}")) as sink:
            yield sink
            sink.close()

    def _as_source(self, path: str, source: ShardFile) -> ShardFile:
        info = self._store.head(path)
        return ShardFile(
            self._store, path, info, entry=source.entry, partition=source.partition, limits=source.limits,
            options=source.options, stands_for=source.place, stands_in=source.place_store,
            stores=source.stores,
        )  # fmt: skip

    def are_named_in(self, text: str) -> bool:
        """Return whether a text names a file that was made here."""
        return self._staged is not None and self._staged.path in text

    def drop(self, source: ShardFile) -> None:
        """Remove a file that was made here; leave any other alone."""
        if self._staged is not None and source.path.startswith(f"{self._staged.path}/"):
            self._store.delete(posixpath.dirname(source.path))
            self._excess.pop(source.path, None)

    def fetched(self, source: ShardFile) -> ShardFile:
        """Copy a file from a remote store."""
        size = source.store.head(source.path).size_bytes
        with self._sink(source.path) as sink:
            for part in _read(source, 0, size):
                sink.write([part])
        return self._as_source(sink.path, source)

    def laid_out(self, source: ShardFile, recovered: Recovered) -> ShardFile:
        """Write the recovered parts of a file as a new file; return the file itself if that is all of it.

        Raises:
            LimitExceeded: the new file would be much larger.
        """
        size = source.store.head(source.path).size_bytes
        offset, target, length = _joined(recovered)
        if not recovered.made and recovered.size_bytes == size and length.tolist() == [size] and offset[0] == target[0]:
            return source
        most = 2 * size + _MOST_MORE_BYTES
        if recovered.size_bytes > most:
            raise LimitExceeded("a damaged file asks for a much larger one", file=source.place,
                                expected=f"at most {most} bytes", found=recovered.size_bytes)  # fmt: skip
        made = ((place, memoryview(data)) for place, data in sorted(recovered.made))
        with self._sink(source.path) as sink:
            at, held = 0, 0
            waiting: list[Buffer] = []  # writing each line alone takes ten times as long
            for place, content in _merged(made, _copied(source, offset, target, length)):
                waiting += [*_zeros(place - at), content]
                held, at = held + content.nbytes, place + content.nbytes
                if held > _COPY_BYTES or len(waiting) > _MOST_WAITING:
                    sink.write(waiting)
                    waiting, held = [], 0
            sink.write([*waiting, *_zeros(recovered.size_bytes - at)])
            self._excess[sink.path] = self._excess.get(source.path, 0)
        return self._as_source(sink.path, source)

    def unpacked(self, source: ShardFile) -> Unpacked:
        """Unpack a compressed file up to its damage, and from each member or frame that begins behind it.

        Raises:
            LimitExceeded: much more comes out than data pack to.
        """
        size = source.store.head(source.path).size_bytes
        [head] = source.get_ranges([(0, min(size, _READ_BYTES))])
        name, by_name = _unpacked_name(source.path)
        codec = sniff_wrap(bytes(head)) or by_name
        beginnings = _Beginnings(source, codec, size)
        usual = _USUAL_RATIO * size
        most = usual + source.limits.salvage_bytes - sum(self._excess.values())
        lost: list[LadingError] = []
        at: int | None = 0
        lost_from: int | None = None
        with self._sink(name) as sink:
            while at is not None and at < size:
                stopped = _unpack(source, codec, at, size, sink, most)
                if stopped is None:
                    break
                lost_from = stopped.at
                lost.append(stopped.error.at(file=source.place, offset=lost_from))
                at = beginnings.next(stopped.member + 1)
            self._excess[sink.path] = max(sink.tell() - usual, 0)
        return Unpacked(self._as_source(sink.path, source), lost, lost_from if at is None else None)


def is_packed(source: ShardFile) -> bool:
    """Return whether a file is compressed as a whole, or was before it was damaged, by a codec that may give a part."""
    return bool(sniff_wrap(read_head(source.store, source.path)) or _unpacked_name(source.path)[1])


def _unpacked_name(path: str) -> tuple[str, str]:
    """Return name and codec as `_core.codecs.unpacked_name` does, with brotli, which shards of MDS may have."""
    stem, ending = posixpath.splitext(path)
    return (stem, _BROTLI) if ending == ".br" else unpacked_name(path)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Where unpacking met damage.

    Attributes:
        error: the damage.
        member: offset of the member or frame that is damaged.
        at: offset up to which bytes came out; None if the codec does not tell.
    """

    error: LadingError
    member: int
    at: int | None


def _unpack(source: ShardFile, codec: str, start: int, size: int, sink: Sink, most: int) -> _Stopped | None:
    """Unpack from one place on; return where damage ended it. The file may have `most` bytes.

    Raises:
        LimitExceeded: more comes out.
    """
    decoder = None if codec == _BROTLI else stream_decoder(codec, source.limits)
    at = start
    try:
        if decoder is None:
            [data] = source.get_ranges([(0, size)])
            for piece in pieces_of_brotli(data):
                _write(piece, source, sink, most)
            return None
        for part in _read(source, start, size - start, _READ_BYTES):
            for step in _cut(part):
                for piece in decoder.feed(step):
                    _write(piece, source, sink, most)
                at += step.nbytes
        decoder.finish()
    except CorruptShard as error:
        found = f"{error.message if decoder else error.found} at {error.offset} of what comes out"
        damage = CorruptShard("the compressed file is damaged", found=found)
        return _Stopped(damage, start + decoder.whole_bytes, at) if decoder else _Stopped(damage, start, None)
    return None


def _write(piece: Buffer, source: ShardFile, sink: Sink, most: int) -> None:
    if sink.tell() + memoryview(piece).nbytes > most:
        raise source.limits.exceeded(
            "salvage_bytes", "the damaged file unpacks to much more than its size", file=source.place,
            expected=f"at most {most} bytes: {_USUAL_RATIO} × its size, and what is left of the limit",
        )  # fmt: skip
    sink.write([piece])


class _Beginnings:
    """Finds where members or frames of a damaged file begin. Time: that of reading it, and of a number of tries."""

    def __init__(self, source: ShardFile, codec: str, size: int) -> None:
        self._source, self._codec, self._size = source, codec, size
        self._left = _MOST_TRIED_BYTES + size

    def next(self, start: int) -> int | None:
        """Return the next place where a member or frame begins that gives something; None if there is none."""
        mark = _BEGINNINGS.get(self._codec, b"")
        if not mark:
            return None
        for at in range(start, self._size, _READ_BYTES):
            # A mark may reach over the end, and is to be found once.
            length = min(_READ_BYTES + len(mark) - 1, self._size - at)
            [data] = self._source.get_ranges([(at, length)])
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
        """Return whether something comes out of a beginning; `known` are the bytes there that were read already."""
        decoder, fed = stream_decoder(self._codec, self._source.limits), 0
        behind = place + known.nbytes
        more = min(place + _TRIED_BYTES, self._size) - behind
        try:
            for part in chain([known], _read(self._source, behind, more, _READ_BYTES)):
                for piece in _cut(part):
                    fed += piece.nbytes
                    if any(decoder.feed(piece)):
                        return True
        except DataError:
            pass
        self._left -= fed + (_READ_BYTES if fed > known.nbytes else 0)
        return False


def _cut(part: Buffer) -> Iterator[memoryview]:
    view = memoryview(part)
    return (view[at : at + _STEP_BYTES] for at in range(0, view.nbytes, _STEP_BYTES))


def _merged(
    made: Iterator[tuple[int, memoryview]], copied: Iterator[tuple[int, memoryview]]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of a new file with their places, ascending."""
    waiting = next(made, None)
    for place, part in copied:
        while waiting is not None and waiting[0] <= place:
            yield waiting
            waiting = next(made, None)
        yield place, part
    if waiting is not None:
        yield waiting
    yield from made


def _copied(
    source: ShardFile, offset: NDArray[np.int64], target: NDArray[np.int64], length: NDArray[np.int64]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of some ranges with their places in a new file."""
    for first, stop in _near(offset, length):
        start, size = int(offset[first]), int(offset[stop - 1] + length[stop - 1] - offset[first])
        for done, part in zip(range(0, size, _COPY_BYTES), _read(source, start, size), strict=True):
            view = memoryview(part)
            if stop - first == 1:
                yield int(target[first]) + done, view
                continue
            begins = offset[first:stop] - start
            ends = begins + length[first:stop]
            for place, begin, end in zip(target[first:stop].tolist(), begins.tolist(), ends.tolist(), strict=True):
                yield place, memoryview(bytes(view[begin:end]))  # a slice keeps all that was read in memory


def _near(offset: NDArray[np.int64], length: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield parts of some ranges that are read at once: a single one, or some that lie close to each other."""
    first, ends = 0, offset + length
    apart = np.append(np.flatnonzero((offset[1:] < ends[:-1]) | (offset[1:] - ends[:-1] > _GAP_BYTES)) + 1, len(offset))
    for stop in apart.tolist():
        while first < stop:
            most = int(np.searchsorted(ends[first:stop], offset[first] + _COPY_BYTES, "right"))
            yield first, first + max(most, 1)
            first += max(most, 1)


def _joined(recovered: Recovered) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return offset, target and length of the ranges, with neighbours that stay neighbours as one."""
    there = recovered.length > 0
    offset, target, length = recovered.offset[there], recovered.target[there], recovered.length[there]
    if not len(offset):
        return offset, target, length
    new = np.append(True, (offset[1:] != (offset + length)[:-1]) | (target[1:] != (target + length)[:-1]))
    first = np.flatnonzero(new)
    return offset[first], target[first], np.add.reduceat(length, first)


def _read(source: ShardFile, start: int, size: int, most: int = _COPY_BYTES) -> Iterator[Buffer]:
    with errors_at(file=source.path):
        for at in range(start, start + size, most):
            [data] = source.get_ranges([(at, min(most, start + size - at))])
            yield data


def _zeros(count: int) -> Iterator[Buffer]:
    zeros = memoryview(bytes(min(count, _COPY_BYTES)))
    return (zeros[: min(_COPY_BYTES, count - at)] for at in range(0, count, _COPY_BYTES))
