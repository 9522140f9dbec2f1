"""Hash values of a file while a reader walks over the headers between them: every byte is read once.

`RangeHasher` gives a reader windows of 1 MB to look for headers in, and hashes the values inside; it stores short
values. Callers that need hashes of values look them up by their references, and read the values that are unknown.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, as_view, room_for
from lading._core.arrow.references import FileEntry, Refs
from lading._core.storage.base import OpenFile

__all__ = ["HashedValues", "Hasher", "HashingWalk", "RangeHasher"]

_WINDOW_BYTES = 1 << 20
"""As large as in `_core.storage.windows`, for the same reason."""
_HEADER_BYTES, _NEAR_BYTES = 512, 2 << 10
"""Bytes read for a header when values are skipped: often enough for the next header too."""
_TEXT_BYTES = 16 << 10
"""Longest value that is stored as it is, if a caller needs its bytes."""
_MOST_KEPT_BYTES, _MOST_VALUES = 16 << 20, 1 << 20
"""Bytes of stored values of one file."""
_MOST_FILES, _MOST_BYTES = 64, 24 << 20
"""Number of files known next to the current one, and the bytes held for them."""
_OFFSET_BITS = 48
"""Values are looked up by file and offset as one number; beyond 256 TiB they are read."""


class Hasher(Protocol):
    """A hash of bytes that arrive in parts, with the interface of `hashlib` and xxhash."""

    def update(self, data: memoryview, /) -> object:
        """Add bytes."""

    def digest(self) -> bytes:
        """Return the hash of all bytes."""


@dataclass(frozen=True, slots=True)
class HashedValues:
    """The known values of a column.

    Attributes:
        hashed: which values have a hash.
        hashes: their hashes, `(values, bytes of a hash)`.
        kept: the stored values, in memory; the others are missing.
    """

    hashed: NDArray[np.bool_]
    hashes: NDArray[np.uint8]
    kept: ByteRanges

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return which values have a hash or are stored."""
        known: NDArray[np.bool_] = self.hashed | self.kept.there
        return known


class RangeHasher:
    """Hashes of values in files that a reader walks over from front to back; short values are stored as they are.

    Memory: a window of 1 MB, up to 56 MB for the current file until it is looked up, and 24 MB for up to 64 earlier
    files. No file is held open.

    Args:
        hash_value: return the hash of complete bytes.
        hasher: begin the same hash for bytes that arrive in parts.
        hash_bytes: length of a hash.
        short_bytes: values up to this length are stored, and not hashed.
        keep_text: store values of up to 16 KB that a walk marks as text; other text is skipped.
    """

    def __init__(
        self,
        hash_value: Callable[[memoryview], bytes],
        hasher: Callable[[], Hasher],
        hash_bytes: int,
        *,
        short_bytes: int,
        keep_text: bool,
    ) -> None:
        self._hash_value, self._hasher, self._hash_bytes = hash_value, hasher, hash_bytes
        self._most_kept_bytes = (short_bytes, _TEXT_BYTES if keep_text else -1)
        self._window = _Window()
        self._records: OrderedDict[FileEntry, _Record] = OrderedDict()

    def walk(self, file: OpenFile, entry: FileEntry) -> HashingWalk:
        """Begin a walk over a file; the results of an earlier walk over it are dropped."""
        self._records.pop(entry, None)
        while len(self._records) > _MOST_FILES:
            self._records.popitem(last=False)
        held = sum(record.nbytes for record in self._records.values())
        for record in self._records.values():  # the oldest first: it holds the most
            if held > _MOST_BYTES:
                held -= len(record.kept)
                record.forget_kept()
        record = self._records[entry] = _Record(self._hash_bytes)
        return HashingWalk(file, self._window, record, self._hash_value, self._hasher, self._most_kept_bytes)

    def look_up(
        self, columns: Mapping[str, Refs], files: Sequence[FileEntry], texts: Collection[str]
    ) -> dict[str, HashedValues]:
        """Return the known values of columns, and forget them.

        Args:
            columns: references to the values.
            files: their files table.
            texts: names of the columns that need the bytes, not hashes.
        """
        entries = [entry for entry in dict.fromkeys(files) if entry in self._records]
        records = [self._records[entry] for entry in entries]
        place_of = {entry: number for number, entry in enumerate(entries)}
        number_of = np.array([*(place_of.get(entry, -1) for entry in files), -1], np.int64)
        known = _Known.of(records, self._hash_bytes)
        memory = [bytes(record.kept) for record in records]
        used = np.zeros(len(known.key), np.bool_)
        found: dict[str, HashedValues] = {}
        for name, refs in columns.items():
            plain = refs.valid & (refs.codec == 0) & (refs.frame < 0) & (refs.file >= 0) & (refs.file < len(files))
            file = number_of[np.where(plain, refs.file, -1)]
            rows, at = known.find(file, refs.offset, refs.length)
            used[at] = True
            is_hash = known.place[at] >= 0
            hashed, kept = np.zeros(len(file), np.bool_), rows[~is_hash]
            hashed[rows[is_hash]] = name not in texts
            source, offset = np.full(len(file), -1), np.zeros(len(file), np.int64)
            source[kept], offset[kept] = file[kept], ~known.place[at[~is_hash]]
            pieces = ByteRanges(memory, source, offset, np.where(source < 0, 0, refs.length))
            found[name] = HashedValues(hashed, known.hashes[known.place[at[hashed[rows]]]], pieces)
        for record, (first, stop) in zip(records, pairwise(known.bounds), strict=True):
            record.forget(used[first:stop])
        return found


class _Window:
    """Memory that walks share, one at a time.

    Attributes:
        memory: 1 MB.
        turn: number of the walk that uses it.
    """

    __slots__ = ("memory", "turn")

    def __init__(self) -> None:
        self.memory = as_view(room_for(_WINDOW_BYTES))
        self.turn = 0


class HashingWalk:
    """A walk over a file, through a window that moves along."""

    __slots__ = ("_base", "_file", "_hash_value", "_hasher", "_most_kept_bytes", "_part", "_record", "_turn", "_window")

    def __init__(
        self,
        file: OpenFile,
        window: _Window,
        record: _Record,
        hash_value: Callable[[memoryview], bytes],
        hasher: Callable[[], Hasher],
        most_kept_bytes: tuple[int, int],
    ) -> None:
        self._file, self._window, self._record = file, window, record
        self._hash_value, self._hasher, self._most_kept_bytes = hash_value, hasher, most_kept_bytes
        self._turn, self._base, self._part = -1, 0, window.memory[:0]

    def part(self, at: int) -> tuple[memoryview, int]:
        """Return a part of the file that holds the header at `at`, if the file is long enough, and the part's start.

        The part is valid until `take` says otherwise, and until the next part of this or another walk.

        Raises:
            ShortRead: the file became shorter.
        """
        here = self._base + len(self._part)
        if self._turn != self._window.turn or not self._base <= at <= here - _HEADER_BYTES:
            if not self._base <= at < here + _HEADER_BYTES:
                # Values were skipped, and will be again: read only a header of each.
                return memoryview(self._file.read(at, _NEAR_BYTES)), at
            self._read(at)
        return self._part, self._base

    def take(self, at: int, size: int, *, text: bool) -> bool:
        """Process a value; return whether the current part is no longer valid.

        A value that an earlier walk processed, or that is cut, is skipped.

        Raises:
            ShortRead: the file became shorter.
        """
        record, base = self._record, self._base
        if at < record.known_bytes or at + size > self._file.size_bytes:
            return False
        if size <= self._most_kept_bytes[text]:
            if record.has_room:
                record.keep(at, self._value(at, size))
        elif not text and record.has_place:
            record.add(at, size, self._hash(at, size))
        return self._base != base

    def _value(self, at: int, size: int) -> memoryview:
        if self._turn != self._window.turn or not self._base <= at <= self._base + len(self._part) - size:
            self._read(at)
        return self._part[at - self._base : at - self._base + size]

    def _hash(self, at: int, size: int) -> bytes:
        if size <= _WINDOW_BYTES:
            return self._hash_value(self._value(at, size))
        hasher, stop = self._hasher(), at + size
        while at < stop:
            here = self._base + len(self._part)
            value = self._value(at, min(stop, here) - at if here > at else 1)
            hasher.update(value)
            at += len(value)
        return hasher.digest()

    def _read(self, at: int) -> None:
        """Move the window to `at`; bytes that are in memory already are not read again."""
        window, size = self._window, min(_WINDOW_BYTES, self._file.size_bytes - at)
        if self._turn != window.turn:
            window.turn += 1
            self._turn, self._part = window.turn, window.memory[:0]
        there = self._part[at - self._base :] if at >= self._base else self._part[:0]
        have = len(there)
        window.memory[:have] = there
        self._file.read_into([window.memory[have:size]], at + have)
        self._part, self._base = window.memory[:size], at


@dataclass(frozen=True, slots=True)
class _Table:
    """The known values of a file.

    Attributes:
        offset: of each value, ascending.
        length: of each.
        place: of each, a row of the hashes, or if it is stored, the complement of its place there.
        hashes: one row each.
    """

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    place: NDArray[np.int64]
    hashes: NDArray[np.uint8]


class _Record:
    """The known values of a file during a walk.

    Attributes:
        known_bytes: values that begin before this offset were processed.
        kept: the short values, one after another.
    """

    __slots__ = ("_gone", "_hash_bytes", "_hashes", "_length", "_offset", "_place", "_table", "kept", "known_bytes")

    def __init__(self, hash_bytes: int) -> None:
        self._hash_bytes = hash_bytes
        # No object for each: a tar may have a million.
        self._offset, self._length, self._place = array("q"), array("q"), array("q")
        self._hashes, self.kept = bytearray(), bytearray()
        self.known_bytes = 0
        self._gone = np.zeros(0, np.bool_)
        self._table: _Table | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory in use."""
        return len(self._hashes) + len(self.kept) + 3 * self._offset.itemsize * len(self._offset)

    @property
    def has_place(self) -> bool:
        """Return whether one more value fits."""
        return len(self._offset) < _MOST_VALUES

    @property
    def has_room(self) -> bool:
        """Return whether one more short value fits."""
        return len(self._offset) < _MOST_VALUES and len(self.kept) < _MOST_KEPT_BYTES

    def add(self, at: int, size: int, made: bytes) -> None:
        """Add a value by its hash."""
        self._tell(at, size, len(self._hashes) // self._hash_bytes)
        self._hashes += made

    def keep(self, at: int, value: memoryview) -> None:
        """Store a value as it is."""
        self._tell(at, len(value), ~len(self.kept))
        self.kept += value

    def _tell(self, at: int, size: int, place: int) -> None:
        self._offset.append(at)
        self._length.append(size)
        self._place.append(place)
        self.known_bytes, self._table = at + 1, None

    def table(self) -> _Table:
        """Return the values as arrays, rebuilt only after additions."""
        if self._table is None:
            offset, length, place = (np.array(part, np.int64) for part in (self._offset, self._length, self._place))
            hashes = np.frombuffer(bytes(self._hashes), np.uint8).reshape(-1, self._hash_bytes)
            self._table = _Table(offset, length, place, hashes)
        return self._table

    def forget(self, mine: NDArray[np.bool_]) -> None:
        """Forget values: at once, or later, when enough are dropped that moving the others pays off."""
        gone = mine.copy()
        gone[: len(self._gone)] |= self._gone
        self._gone = gone
        if 2 * np.count_nonzero(gone) >= len(gone) or 2 * len(self.kept) >= _MOST_KEPT_BYTES:
            self._keep_only(~gone)

    def forget_kept(self) -> None:
        """Forget the short values."""
        if self.kept:
            self._keep_only(self.table().place >= 0)

    def _keep_only(self, mine: NDArray[np.bool_]) -> None:
        table = self.table()
        offset, length, place = table.offset[mine], table.length[mine], table.place[mine]
        is_hash = place >= 0
        self._hashes = bytearray(table.hashes[place[is_hash]].tobytes())
        starts, sizes = ~place[~is_hash], length[~is_hash]
        kept = memoryview(self.kept)
        self.kept = bytearray().join(kept[i : i + n] for i, n in zip(starts.tolist(), sizes.tolist(), strict=True))
        place[is_hash] = np.arange(np.count_nonzero(is_hash))
        place[~is_hash] = ~(np.cumsum(sizes) - sizes)
        self._offset, self._length, self._place = (array("q", numbers.tobytes()) for numbers in (offset, length, place))
        self._gone, self._table = np.zeros(0, np.bool_), None


def _one(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join all parts after the first, which is empty; return a single part unchanged. There may be a million values."""
    return parts[1] if len(parts) == 2 else np.concatenate(parts)  # noqa: PLR2004 - the first, and one


@dataclass(frozen=True, slots=True)
class _Known:
    """The known values of several files, by file and offset.

    Attributes:
        key: file and offset of each value, ascending.
        length: of each.
        place: of each, a row of the hashes; if it is stored, the complement of its place in its file's values.
        hashes: of all files.
        bounds: the values of file i are `bounds[i]:bounds[i + 1]`.
    """

    key: NDArray[np.int64]
    length: NDArray[np.int64]
    place: NDArray[np.int64]
    hashes: NDArray[np.uint8]
    bounds: list[int]

    @classmethod
    def of(cls, records: Sequence[_Record], hash_bytes: int) -> _Known:
        """Collect the values of these files."""
        keys, lengths, places = ([np.zeros(0, np.int64)] for _ in range(3))
        hashes = [np.zeros((0, hash_bytes), np.uint8)]
        rows = 0
        for number, record in enumerate(records):
            table = record.table()
            keys.append((number << _OFFSET_BITS) + table.offset if number else table.offset)
            lengths.append(table.length)
            places.append(np.where(table.place < 0, table.place, table.place + rows) if rows else table.place)
            hashes.append(table.hashes)
            rows += len(hashes[-1])
        bounds = np.cumsum([len(key) for key in keys]).tolist()
        return cls(_one(keys), _one(lengths), _one(places), _one(hashes), bounds)

    def find(
        self, file: NDArray[np.int64], offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of these ranges are known, and the number of each of them. A negative file is never known."""
        if not len(self.key):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        key = (file << _OFFSET_BITS) + offset
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        good = (file >= 0) & (self.key[at] == key) & (self.length[at] == length) & (offset >> _OFFSET_BITS == 0)
        rows = np.flatnonzero(good)
        return rows, at[rows]
