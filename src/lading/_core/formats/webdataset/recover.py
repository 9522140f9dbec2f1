"""Recover the whole members and samples of a damaged tar.

A walk goes from header to header. Where no header stands, it goes on at the next valid one: 512 bytes with the magic
`ustar` and their own checksum, at any offset. What lies between is a gap. So are:

* a member whose payload holds whole members up to its end, unless it may be a tar: bytes are missing before these;
* the zeros between an end of archive and a header;
* a hard link in a tar with other damage: its target may be lost;
* a member whose name cannot be one of a field.

Members that end with an end of archive before the file does are a tar inside a payload, unless they follow zeros.

The samples next to a gap are lost: that of the member before it, which may be torn, and that of the member behind it.
In a tar with long names or extension records, that of the next member is lost too: the name of the member behind the
gap may have stood in a record that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.text_checks import is_utf8
from lading._core.formats.base import FoundMembers, Recovered
from lading._core.formats.webdataset.headers import (
    BLOCK,
    EXTENSIONS,
    REGULAR,
    TYPE,
    Cursor,
    Headers,
    Window,
    is_header,
    members_behind,
    sizes,
)
from lading._core.formats.webdataset.samples import KEY, MemberRows, Splitter, join_rows, split_name
from lading._core.formats.webdataset.scan import scan
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, LadingError, LimitExceeded, errors_at
from lading.limits import DEFAULT_LIMITS

__all__ = ["TarMembers", "find_members", "recover_samples"]

_MAGIC_AT, _MAGIC = 257, b"ustar"
_SUM = slice(148, 156)
_SPACE, _ZERO, _EIGHT = b" 08"
_ASCII = 127
_NAME_BYTES = 100
"""Length of a name in a header; a longer one is in an extension record."""
_TAIL_BYTES = 16
"""Zeros at the end of a payload that may be damage."""
_END_BYTES = 2 * BLOCK
_RECORD_BYTES = 20 * BLOCK
"""GNU tar and Python write tars whose size is a multiple of this."""
_SEARCH_BYTES = 4 << 20
_HEADERS_AT_ONCE = 2048
_FIRST_REACH = 16
_MOST_TRIES = 10_000
"""Headers from which a walk is tried: only hostile files have more."""


@dataclass(frozen=True)
class TarMembers(FoundMembers):
    """The whole members of a damaged tar.

    Attributes:
        parts: the members, in file order.
        gaps: `(start, stop)` of the bytes that are no members, ascending.
        size_bytes: size of the file.
        has_records: whether names may stand in extension records.
        joints: starts of the gaps that are zeros between an end of archive and a header.
        reasons: what is wrong with gaps that are whole members, by their starts.
    """

    parts: Sequence[Headers]
    gaps: Sequence[tuple[int, int]]
    size_bytes: int
    has_records: bool
    joints: Container[int]
    reasons: Mapping[int, str] = field(default_factory=dict)

    def regular(self) -> Iterator[tuple[list[bytes], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield regular members: names, where they begin, where their payload begins, and its length."""
        for part in self.parts:
            rows = np.flatnonzero(REGULAR[part.kind])
            yield [part.name(row) for row in rows.tolist()], part.start[rows], part.offset[rows], part.length[rows]

    def errors(self, path: str) -> list[LadingError]:
        """Return an error for each gap."""
        return [
            members_behind(start, stop).at(file=path) if start in self.joints else
            CorruptShard(self.reasons.get(start, "no members can be read here"), file=path, offset=start,
                         expected="members", found=f"{stop - start} damaged bytes" if stop > start else "the end")
            for start, stop in self.gaps
        ]  # fmt: skip

    def beside_gaps(self, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which members, given where they begin, are next to a gap; ascending."""
        at = np.searchsorted(start, np.array([stop for _, stop in self.gaps], np.int64))
        found = np.unique(np.concatenate([at - 1, at, *([at + 1] if self.has_records else [])]))
        return found[(found >= 0) & (found < len(start))]

    def laid_out(
        self, start: NDArray[np.int64], stop: NDArray[np.int64], lost: Sequence[LadingError], lost_samples: int
    ) -> Recovered:
        """Return a tar of some members, each from where it begins to where its payload ends."""
        room = (stop - start + BLOCK - 1) // BLOCK * BLOCK
        lost_from = self.gaps[-1][0] if self.gaps and self.gaps[-1][1] >= self.size_bytes else None
        return Recovered(
            start, np.cumsum(room) - room, np.minimum(room, self.size_bytes - start), int(room.sum()) + _END_BYTES,
            lost=lost, lost_samples=lost_samples, counted=not self.gaps, lost_from=lost_from,
        )  # fmt: skip


def find_members(mapped: MappedFile, path: str, *, failed: bool = False, joined: bool = False) -> TarMembers:
    """Find the members of a tar. If reading it `failed`, members may be missing behind the last one.

    Args:
        mapped: the file.
        path: its name in errors.
        failed: whether reading the file raised an error.
        joined: whether a header right behind the zeros at an end of archive is no damage.

    Raises:
        CorruptShard: the file shrinks meanwhile.
    """
    walker = _Walker(mapped, joined=joined)
    with errors_at(file=path):
        walker.walk(failed=failed)
    found = TarMembers(walker.parts, sorted(walker.gaps), walker.size, walker.has_records(), walker.joints)
    if (failed or walker.gaps) and any(part.links for part in found.parts):
        links = [np.isin(np.arange(len(part)), [*part.links]) for part in found.parts]
        return _without(found, links, "the target of a hard link may be lost")
    return found


def _without(found: TarMembers, bad: Sequence[NDArray[np.bool_]], why: str) -> TarMembers:
    """Return the members but some, which are gaps, for each part."""
    gaps, reasons = [*found.gaps], {**found.reasons}
    for part, rows in zip(found.parts, bad, strict=True):
        gaps += zip(part.start[rows].tolist(), (part.offset + part.length)[rows].tolist(), strict=True)
        reasons |= dict.fromkeys(part.start[rows].tolist(), why)
    parts = [_only(part, ~rows) for part, rows in zip(found.parts, bad, strict=True)]
    return replace(found, parts=parts, gaps=sorted(gaps), reasons=reasons)


def recover_samples(
    mapped: MappedFile, path: str, *, lower_case: bool, unique: bool, failed: bool, joined: bool = False
) -> Recovered | None:
    """Return the whole samples of a damaged tar; None if all its members are sound.

    Args:
        mapped: the file.
        path: its name in errors.
        lower_case: whether names of fields are lower-cased.
        unique: whether a sample with two members of one field is an error.
        failed: whether reading the file raised an error.
        joined: as for `find_members`.

    Raises:
        LimitExceeded: the tar has too many different fields.
    """
    found = find_members(mapped, path, failed=failed, joined=joined)
    bad = [_have_bad_names(part) for part in found.parts]
    if any(rows.any() for rows in bad):
        found = _without(found, bad, "the name of a member is invalid UTF-8, or its field is called as the key")
    splitter = Splitter(lower_case=lower_case)
    with errors_at(file=path):
        rows = join_rows([splitter.split(part) for part in found.parts])
    sample = np.cumsum(rows.new) - 1
    doubtful = np.unique(sample[found.beside_gaps(rows.start)])
    double = _with_double_fields(rows, sample, len(splitter.fields)) if unique else np.zeros(0, np.int64)
    if not found.gaps and not len(double):
        return None
    first = np.flatnonzero(rows.new)
    lost = found.errors(path)
    for numbers, message in ((doubtful, "a sample next to damage may lack members"),
                             (double, "a sample has a field twice")):  # fmt: skip
        lost += [
            CorruptShard(message, file=path, offset=int(rows.start[first[number]]), sample=rows.keys[number].as_py())
            for number in numbers.tolist()
        ]
    gone = np.union1d(doubtful, double)
    kept = ~np.isin(sample, gone)
    return found.laid_out(rows.start[kept], (rows.offset + rows.length)[kept], lost, len(gone))


def _have_bad_names(part: Headers) -> NDArray[np.bool_]:
    """Return which members have a name of invalid UTF-8, or a field that is called as the column of keys."""
    bad = np.zeros(len(part), np.bool_)
    may_be_bad = (part.names > _ASCII).any(axis=1)
    may_be_bad |= np.count_nonzero(part.names == ord("_"), axis=1) >= KEY.count("_")
    for row in np.flatnonzero(may_be_bad).tolist():
        name = part.name(row)
        both = split_name(name)
        bad[row] = both is not None and (not is_utf8(name) or both[1].lower() == KEY.encode())
    return bad


def _with_double_fields(rows: MemberRows, sample: NDArray[np.int64], num_fields: int) -> NDArray[np.int64]:
    """Return the samples that have a field twice, ascending."""
    cell = np.sort(sample * num_fields + rows.field)
    return np.unique(cell[1:][cell[1:] == cell[:-1]] // max(num_fields, 1))


class _Walker:
    """A walk over a tar that goes on behind damage.

    Attributes:
        parts: the members.
        gaps: `(start, stop)` of the bytes that are no whole members.
        joints: starts of the gaps that are zeros between an end of archive and a header.
        size: size of the file.
    """

    def __init__(self, mapped: MappedFile, *, joined: bool) -> None:
        self._mapped, self._joined = mapped, joined
        view = memoryview(mapped.buffer)
        self._data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        self.size = len(self._data)
        self.parts: list[Headers] = []
        self.gaps: list[tuple[int, int]] = []
        self.joints: set[int] = set()
        self._tries = 0
        first = self._block(0)
        self._has_magic = not is_header(first) or first[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC
        self._heads = self._find_heads()

    def walk(self, *, failed: bool) -> None:
        """Find all members. If reading `failed` and the tar has no end of archive, members may be missing there."""
        at = 0
        while at < self.size:
            parts, stop, ended = self._run(at)
            self.parts += parts
            self._note_swallowed(parts)
            if ended and self._next_byte(stop) == self.size:
                self._check_end(stop, failed=failed)
                return
            at = self._go_on(stop, ended=ended)
        if not self.size:
            self.gaps.append((0, 0))

    def has_records(self) -> bool:
        """Return whether there are extension records, or names that may be the beginnings of longer ones."""
        lengths = ((part.names != 0).sum(axis=1).max(initial=0) for part in self.parts)
        return bool(EXTENSIONS[self._data[self._heads + TYPE]].any()) or max(lengths, default=0) >= _NAME_BYTES

    def _block(self, at: int) -> bytes:
        return self._data[at : at + BLOCK].tobytes()

    def _run(self, at: int, until: int | None = None) -> tuple[list[Headers], int, bool]:
        """Return the members that follow each other from `at` on, where they stop, and whether the archive ends there.

        Members behind `until` are not asked for; a few may be given.
        """
        parts: list[Headers] = []
        cursor, base = Cursor(at, reach=_FIRST_REACH), at % BLOCK
        window = Window.over(self._mapped, self.size, base=base)
        try:
            while not cursor.done and (until is None or cursor.at < until):
                self._mapped.check()
                found, cursor = scan(window, cursor)
                good = self._with_magic(found)
                if good < len(found):
                    parts += [_only(found, np.arange(len(found)) < good)] if good else []
                    return parts, int(found.start[good]), False
                parts += [found] if good else []
        except (CorruptShard, LimitExceeded):
            self._mapped.check()
            return parts, cursor.at, False
        return parts, cursor.at, cursor.done

    def _with_magic(self, found: Headers) -> int:
        """Return how many members come before the first without the magic: moved by a byte, a header keeps its sum."""
        if not self._has_magic or not len(found):
            return len(found)
        at = found.offset - BLOCK + _MAGIC_AT
        good = (self._data[at[:, None] + np.arange(len(_MAGIC))] == np.frombuffer(_MAGIC, np.uint8)).all(axis=1)
        good[list(found.sparse)] = True  # blocks with the map of its holes stand between
        return len(good) if good.all() else int(np.argmin(good))

    def _note_swallowed(self, parts: Sequence[Headers]) -> None:
        """Note members as gaps whose payloads hold other members up to their end: bytes are missing before these."""
        if not parts:
            return
        start, offset, length = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "offset", "length")
        )
        stop = offset + (length + BLOCK - 1) // BLOCK * BLOCK
        heads = self._heads_between(int(offset[0]), int(stop[-1]))
        member = np.searchsorted(offset, heads, "right") - 1
        inside = (heads < stop[member]) & ((heads - offset[member]) % BLOCK == 0)
        if not inside.any():
            return
        heads, member = heads[inside], member[inside]
        size, _ = sizes(self._data[heads[:, None] + np.arange(BLOCK)])
        follows = heads + BLOCK + (np.minimum(size, self.size) + BLOCK - 1) // BLOCK * BLOCK
        may_be_tar = np.isin(offset, heads) & (length % BLOCK == 0)
        ends = np.unique(member[(follows == stop[member]) & ~may_be_tar[member]])
        self.gaps += zip(start[ends].tolist(), stop[ends].tolist(), strict=True)

    def _go_on(self, stop: int, *, ended: bool) -> int:
        """Note a gap; return the header at which the walk goes on, or the file's size."""
        following = self._next_byte(stop) if ended else stop
        if ended and (following - stop) % BLOCK == 0 and is_header(self._block(following)):
            if self._joined:
                return following
            self.joints.add(stop)
        at = self._find_next(stop, ended=ended)
        self.gaps.append((min(stop, at), at))
        return at

    def _heads_between(self, first: int, stop: int) -> NDArray[np.int64]:
        begin, end = np.searchsorted(self._heads, [first, stop])
        return self._heads[begin:end]

    def _find_next(self, stop: int, *, ended: bool) -> int:
        """Return the next header behind damage from which members can be read, or the file's size."""
        following = self._next_byte(stop) if ended else stop
        tried = stop
        for at in self._heads_between(stop, self.size).tolist():
            if at < tried:
                continue
            self._tries += 1
            if self._tries > _MOST_TRIES:
                break
            parts, end, closed = self._run(at)
            is_joined = ended and at == following and (at - stop) % BLOCK == 0
            if parts and (is_joined or not (closed and self._goes_on(end))):
                return int(at)
            tried = end if parts else self._next_try(at)
        return self.size

    def _next_try(self, at: int) -> int:
        """Return from where on a walk may find a member, if one from `at` on found none.

        Of too many extension records one after another, those before the last ones lead to the same end.
        """
        run, most = [at], DEFAULT_LIMITS.tar_extensions
        while is_header(header := self._block(run[-1])) and EXTENSIONS[header[TYPE]]:
            [size], [good] = sizes(np.frombuffer(header, np.uint8)[None])
            if not good:
                break
            run.append(run[-1] + BLOCK + (int(size) + BLOCK - 1) // BLOCK * BLOCK)
        return run[-1 - most] if len(run) > most + 1 else at + 1

    def _goes_on(self, end: int) -> bool:
        """Return whether a header follows the zeros at an end of archive, as behind a tar in a payload."""
        following = self._next_byte(end)
        place = np.searchsorted(self._heads, following - (following - end) % BLOCK)
        return bool(place < len(self._heads) and self._heads[place] <= following)

    def _check_end(self, stop: int, *, failed: bool) -> None:
        """Note a gap if the zeros behind the last member tell that bytes are missing, or that some came in."""
        rest = self.size - stop
        if failed and rest < BLOCK:
            self.gaps.append((stop, self.size))
        if not self.parts:
            return
        last = self.parts[-1]
        offset, end = int(last.offset[-1]), int(last.offset[-1] + last.length[-1])
        odd = rest % BLOCK > 0 and (self._data[end:stop].any() or (offset < end and self._data[end - 1] == 0))
        neat = rest == _END_BYTES or self.size % _RECORD_BYTES == 0
        ends_in_zeros = offset < end and not self._data[max(end - _TAIL_BYTES, offset) : end].any()
        heads = self._heads_between(offset, stop)
        if odd or (not neat and ends_in_zeros and len(heads) and heads[0] > offset):
            self.gaps.append((stop, self.size))

    def _next_byte(self, at: int) -> int:
        """Return the place of the first byte from here on that is not zero, or the file's size."""
        for start in range(at, self.size, _SEARCH_BYTES):
            other = self._data[start : start + _SEARCH_BYTES] != 0
            if other.any():
                return start + int(other.argmax())
            self._mapped.release(start, min(start + _SEARCH_BYTES, self.size))
        return self.size

    def _find_heads(self) -> NDArray[np.int64]:
        """Return where valid headers with the magic begin, at any offset, ascending."""
        found = [np.zeros(0, np.int64)]
        for start in range(0, self.size, _SEARCH_BYTES):
            self._mapped.check()
            piece = self._data.data[start + _MAGIC_AT : start + _MAGIC_AT + _SEARCH_BYTES + len(_MAGIC) - 1]
            hits = [match.start() for match in re.finditer(_MAGIC, piece)]
            at = start + np.array([hit for hit in hits if start + hit + BLOCK <= self.size], np.int64)
            for first in range(0, len(at), _HEADERS_AT_ONCE):
                some = at[first : first + _HEADERS_AT_ONCE]
                found.append(some[_are_headers(self._data[some[:, None] + np.arange(BLOCK)])])
            self._mapped.release(start, min(start + _SEARCH_BYTES, self.size))
        return np.concatenate(found)


def _are_headers(blocks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which blocks hold their own checksum and have a name; extension records may name the next member."""
    stored = blocks[:, _SUM]
    digits = ((stored >= _ZERO) & (stored < _EIGHT)) | (stored == _SPACE) | (stored == 0)
    number, open_ = np.zeros(len(blocks), np.int64), np.ones(len(blocks), np.bool_)
    for column in stored.T:
        number = np.where(open_ & (column >= _ZERO), number * 8 + column % 8, number)
        open_ &= column != 0
    total = blocks.sum(axis=1, dtype=np.int64) - stored.sum(axis=1, dtype=np.int64) + len(stored.T) * _SPACE
    high = np.count_nonzero(blocks > _ASCII, axis=1)  # old tars sum signed bytes
    named = (blocks[:, 0] != 0) | EXTENSIONS[blocks[:, TYPE]]
    good: NDArray[np.bool_] = digits.all(axis=1) & (stored != 0).any(axis=1) & named
    good &= (number == total) | (number == total - 256 * high)
    return good


def _only(part: Headers, kept: NDArray[np.bool_]) -> Headers:
    rows = np.flatnonzero(kept)
    sparse = {new: part.sparse[row] for new, row in enumerate(rows.tolist()) if row in part.sparse}
    links = {new: part.links[row] for new, row in enumerate(rows.tolist()) if row in part.links}
    return Headers(
        part.names[rows], part.kind[rows], part.start[rows], part.offset[rows], part.length[rows], sparse, links
    )
