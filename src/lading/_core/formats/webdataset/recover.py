"""Recover the whole members and samples of a damaged tar.

A walk goes from header to header. Where no header stands, it goes on at the next valid one: 512 bytes with the magic
`ustar` and their own checksum, at any offset. Members beside damage are checked:

* The member before damage is lost if a header begins in its payload, if its padding is not zero, if nothing lies
  between its payload and the damage, or if both it and the damage end or begin with zeros.
* The member behind damage is lost if its name may have stood in an extension record that is gone.
* A payload that holds whole members up to its end lost bytes, unless it may be a tar: it swallowed these members.
* Members that end with an end of archive before the file does are a tar inside a payload, unless they follow zeros.

A hard link becomes a file with the bytes of its target, so that it is whole without the sample of the target.

A sample beside damage is saved if another sample has the same fields, and no other sample has these and more. Otherwise
it is lost: nothing tells whether it lacks members.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import normpath

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
from lading._core.formats.webdataset.samples import KEY, Rows, Splitter, join_rows, same_sample, split_name
from lading._core.formats.webdataset.scan import scan
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, LadingError, LimitExceeded, errors_at
from lading.limits import DEFAULT_LIMITS

__all__ = ["TarMembers", "find_members", "recover_samples"]

_MAGIC_AT, _MAGIC = 257, b"ustar"
_SIZE, _SUM, _LINK_NAME = slice(124, 136), slice(148, 156), slice(157, 257)
_REGULAR_FILE = ord("0")
_SPACE, _ZERO, _EIGHT = b" 08"
_ASCII = 127
_NAME_BYTES, _PREFIX_AT = 100, 345
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
        gaps: `(start, stop)` of the bytes between members that are not members.
        size_bytes: size of the file.
        copies: by start of a hard link, the bytes before its header, and the header of a file in its place. In `parts`
            its payload is that of its target.
        dangling: by start of a hard link without an earlier member, the name that it leads to; each is a gap.
        joints: starts of the gaps that are zeros between an end of archive and a header.
    """

    parts: Sequence[Headers]
    gaps: Sequence[tuple[int, int]]
    size_bytes: int
    copies: Mapping[int, tuple[int, bytes]] = field(default_factory=dict)
    dangling: Mapping[int, bytes] = field(default_factory=dict)
    joints: Container[int] = ()

    def regular(self) -> Iterator[tuple[list[bytes], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield regular members: names, where they begin, where their payload begins, and its length."""
        for part in self.parts:
            rows = np.flatnonzero(REGULAR[part.kind])
            yield [part.name(row) for row in rows.tolist()], part.start[rows], part.offset[rows], part.length[rows]

    def errors(self, path: str) -> list[LadingError]:
        """Return an error for each gap."""
        return [self._error(start, stop).at(file=path) for start, stop in self.gaps]

    def _error(self, start: int, stop: int) -> CorruptShard:
        if start in self.dangling:
            return CorruptShard("a hard link leads to no earlier member of the tar", offset=start,
                                expected=repr(self.dangling[start]), found="no whole member of that name")  # fmt: skip
        if start in self.joints:
            return members_behind(start, stop)
        return CorruptShard("no members can be read here", offset=start, expected="members",
                            found=f"{stop - start} damaged bytes" if stop > start else "the end")  # fmt: skip

    def beside_gaps(self, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which members, given where they begin, are next to a gap; ascending."""
        return _beside(start, np.array([stop for _, stop in self.gaps], np.int64))

    def laid_out(
        self, start: NDArray[np.int64], stop: NDArray[np.int64], lost: Sequence[LadingError], lost_samples: int
    ) -> Recovered:
        """Return a tar of some members, each from where it begins to where its payload ends."""
        payload: dict[int, tuple[int, int]] = {}
        front = np.zeros(len(start), np.int64)
        for row in np.flatnonzero(np.isin(start, [*self.copies])).tolist():
            front[row] = self.copies[int(start[row])][0] + BLOCK
            payload[row] = self._payload_of[int(start[row])]
        length = stop - start
        for row, (_, size) in payload.items():
            length[row] = front[row] + size
        room = (length + BLOCK - 1) // BLOCK * BLOCK
        target = np.cumsum(room) - room
        offset, place = start, target
        length = np.minimum(np.where(front > 0, front - BLOCK, room), self.size_bytes - start)
        made = [(int(target[row] + front[row]) - BLOCK, self.copies[int(start[row])][1]) for row in payload]
        if payload:
            offset = np.append(offset, [at for at, _ in payload.values()])
            place = np.append(place, [target[row] + front[row] for row in payload])
            length = np.append(length, [size for _, size in payload.values()])
            order = np.argsort(place, kind="stable")
            order = order[length[order] > 0]
            offset, place, length = offset[order], place[order], length[order]
        return Recovered(
            offset, place, length, int(room.sum()) + _END_BYTES, made, lost=lost, lost_samples=lost_samples,
            counted=not self.gaps, lost_from=self.lost_from,
        )  # fmt: skip

    @property
    def _payload_of(self) -> dict[int, tuple[int, int]]:
        """Return place and size of the payload of each hard link, by its start."""
        return {
            start: (int(part.offset[row]), int(part.length[row]))
            for part in self.parts
            for row, start in enumerate(part.start.tolist())
            if start in self.copies
        }

    @property
    def lost_from(self) -> int | None:
        """Offset from which on everything is lost; None if the last gap ends before the file does."""
        return self.gaps[-1][0] if self.gaps and self.gaps[-1][1] >= self.size_bytes else None


def _beside(start: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which members, given where they begin, are next to some places; ascending."""
    at = np.searchsorted(start, places)
    found = np.unique(np.concatenate([at - 1, at]))
    return found[(found >= 0) & (found < len(start))]


def find_members(
    mapped: MappedFile, path: str, *, failed: bool = False, joined: bool = False, in_sample: bool = True
) -> TarMembers:
    """Find the members of a tar. If reading it `failed`, members may be missing behind the last one.

    Args:
        mapped: the file.
        path: its name in errors.
        failed: whether reading the file raised an error.
        joined: whether a header right behind the zeros at an end of archive is no damage.
        in_sample: whether hard links to members of their own sample are files too.

    Raises:
        CorruptShard: the file shrinks meanwhile.
    """
    walker = _Walker(mapped, joined=joined)
    with errors_at(file=path):
        walker.walk(failed=failed)
    found = TarMembers(walker.members(), walker.gaps, walker.size, joints=walker.joints)
    return _with_links(found, mapped, in_sample=in_sample) if any(part.links for part in found.parts) else found


def _with_links(found: TarMembers, mapped: MappedFile, *, in_sample: bool) -> TarMembers:
    """Return the members with hard links as copies of earlier whole members; links without one are gaps."""
    known: dict[bytes, tuple[int, int]] = {}
    copies: dict[int, tuple[int, bytes]] = {}
    dangling: dict[int, bytes] = {}
    parts, gaps = [], [*found.gaps]
    for part in found.parts:
        kind, offset, length, good = (
            part.kind.copy(),
            part.offset.copy(),
            part.length.copy(),
            np.ones(len(part), np.bool_),
        )
        for row, start in enumerate(part.start.tolist()):
            if row in part.links:
                name = normpath(part.links[row])
                header_end, target = int(offset[row]), known.get(name)
                if target is not None and not in_sample and same_sample(normpath(part.name(row)), name):
                    known[normpath(part.name(row))] = target
                    continue
                if target is None:
                    dangling[start], good[row] = part.links[row], False
                    gaps.append((start, header_end))
                    continue
                offset[row], length[row] = target
                kind[row] = _REGULAR_FILE
                header = mapped.read(header_end - BLOCK, BLOCK)
                copies[start] = header_end - BLOCK - start, _as_file(header, target[1])
            if REGULAR[kind[row]] and row not in part.sparse:
                known[normpath(part.name(row))] = int(offset[row]), int(length[row])
        parts.append(_only(replace(part, kind=kind, offset=offset, length=length), good))
    return replace(found, parts=parts, gaps=sorted(gaps), copies=copies, dangling=dangling)


def _as_file(header: bytes, size: int) -> bytes:
    """Return the header of a hard link as that of a file of this size."""
    block = bytearray(header)
    block[_SIZE] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block[TYPE], block[_LINK_NAME], block[_SUM] = _REGULAR_FILE, bytes(100), b" " * 8
    block[_SUM] = b"%06o\0 " % sum(block)
    return bytes(block)


def recover_samples(
    mapped: MappedFile,
    path: str,
    *,
    lower_case: bool,
    unique: bool,
    expected: Sequence[str],
    failed: bool,
    joined: bool = False,
) -> Recovered | None:
    """Return the whole samples of a damaged tar; None if all its members are sound.

    Args:
        mapped: the file.
        path: its name in errors.
        lower_case: whether names of fields are lower-cased.
        unique: whether a sample with two members of one field is an error.
        expected: the fields that a manifest lists; empty if there is none.
        failed: whether reading the file raised an error.
        joined: as for `find_members`.

    Raises:
        LimitExceeded: the tar has too many different fields.
    """
    found = find_members(mapped, path, failed=failed, joined=joined, in_sample=False)
    parts, lost = _with_good_names(found.parts, path)
    splitter = Splitter(lower_case=lower_case)
    with errors_at(file=path):
        rows = join_rows([splitter.split(part) for part in parts])
    sample = np.cumsum(rows.new) - 1
    bad = np.array([error.offset for error in lost], np.int64)  # a bad name may be of a member of a sample next to it
    suspects = np.union1d(found.beside_gaps(rows.start), _beside(rows.start, bad))
    doubtful = _incomplete(rows, sample, suspects, splitter.fields, expected)
    double = _with_double_fields(rows, sample, len(splitter.fields)) if unique else np.zeros(0, np.int64)
    if not found.gaps and not lost and not len(double):
        return None
    alone = sum(not np.isin(sample[_beside(rows.start, bad[[number]])], doubtful).any() for number in range(len(bad)))
    first = np.flatnonzero(rows.new)
    for numbers, message in ((doubtful, "a sample next to damage may lack members"),
                             (double, "a sample has a field twice")):  # fmt: skip
        lost += [
            CorruptShard(message, file=path, offset=int(rows.start[first[number]]), sample=rows.keys[number].as_py())
            for number in numbers.tolist()
        ]
    gone = np.union1d(doubtful, double)
    kept = ~np.isin(sample, gone)
    stop = rows.offset + rows.length
    return found.laid_out(rows.start[kept], stop[kept], [*found.errors(path), *lost], len(gone) + alone)


def _with_good_names(parts: Sequence[Headers], path: str) -> tuple[list[Headers], list[LadingError]]:
    """Return the members but those of samples with a bad name, and an error for each of these samples.

    A name is bad if it is invalid UTF-8, or if its field is called as the column of keys.
    """
    bad: dict[bytes, LadingError] = {}
    for part in parts:
        may_be_bad = (part.names > _ASCII).any(axis=1)
        may_be_bad |= np.count_nonzero(part.names == ord("_"), axis=1) >= KEY.count("_")
        for row in np.flatnonzero(may_be_bad).tolist():
            name = part.name(row)
            both = split_name(name)
            if both is None or (is_utf8(name) and both[1].lower() != KEY.encode()):
                continue
            what = "a field has the name of the key" if is_utf8(name) else "the name of a member is invalid UTF-8"
            error = CorruptShard(what, file=path, offset=int(part.start[row]), found=repr(name))
            bad.setdefault(both[0], error)
    if not bad:
        return [*parts], []
    kept = [np.array([(split_name(part.name(row)) or (None,))[0] not in bad for row in range(len(part))], np.bool_)
            for part in parts]  # fmt: skip
    return [_only(part, rows) for part, rows in zip(parts, kept, strict=True)], [*bad.values()]


def _with_double_fields(rows: Rows, sample: NDArray[np.int64], num_fields: int) -> NDArray[np.int64]:
    """Return the samples that have a field twice, ascending."""
    cell = np.sort(sample * num_fields + rows.field)
    return np.unique(cell[1:][cell[1:] == cell[:-1]] // max(num_fields, 1))


def _incomplete(
    rows: Rows, sample: NDArray[np.int64], beside: NDArray[np.int64], names: Sequence[str], expected: Sequence[str]
) -> NDArray[np.int64]:
    """Return the samples next to damage that may lack members, ascending."""
    suspects = np.unique(sample[beside])
    if not len(suspects):
        return suspects
    bounds = np.append(np.flatnonzero(rows.new), len(rows))
    # Equal sets of fields have equal sums of random numbers, whatever their order.
    weights = np.random.default_rng(0).integers(1, 1 << 62, len(names), np.uint64)
    sums = np.add.reduceat(weights[rows.field], bounds[:-1])
    known = np.full(len(sums), len(suspects) == len(sums) > 1)  # if all are suspects, they are compared with each other
    known[np.setdiff1d(np.arange(len(sums)), suspects)] = True
    _, examples = np.unique(sums[known], return_index=True)
    sets = [_fields(rows, bounds, number) for number in np.flatnonzero(known)[examples].tolist()]
    broken = []
    for number in suspects.tolist():
        own = _fields(rows, bounds, number)
        all_there = bool(expected) and {names[field] for field in own}.issuperset(expected)
        if not all_there and (own not in sets or any(own < other for other in sets)):
            broken.append(number)
    return np.array(broken, np.int64)


def _fields(rows: Rows, bounds: NDArray[np.int64], sample: int) -> frozenset[int]:
    return frozenset(rows.field[bounds[sample] : bounds[sample + 1]].tolist())


class _Walker:
    """A walk over a tar that goes on behind damage.

    Attributes:
        gaps: `(start, stop)` of the bytes between members that are not members.
        joints: starts of the gaps that are zeros between an end of archive and a header.
        size: size of the file.
    """

    def __init__(self, mapped: MappedFile, *, joined: bool) -> None:
        self._mapped, self._joined = mapped, joined
        view = memoryview(mapped.buffer)
        self._data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        self.size = len(self._data)
        self.gaps: list[tuple[int, int]] = []
        self.joints: set[int] = set()
        self._parts: list[Headers] = []
        self._torn: list[int] = []
        self._tries = self._records = 0
        first = self._block(0)
        self._has_magic = not is_header(first) or first[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC
        self._heads = self._find_heads()

    def members(self) -> list[Headers]:
        """Return the members that are whole."""
        torn = np.array(self._torn, np.int64)
        return [_only(part, ~np.isin(part.start, torn)) for part in self._parts] if len(torn) else self._parts

    def walk(self, *, failed: bool) -> None:
        """Find all members. If reading `failed` and the tar has no end of archive, members may be missing there."""
        at = 0
        while at < self.size:
            parts, stop, ended = self._run(at)
            self._parts += parts
            self._records += sum(int(np.count_nonzero(part.offset - part.start > BLOCK)) for part in parts)
            self._note_swallowed(parts)
            if ended and self._next_byte(stop) == self.size:
                self._check_end(stop, failed=failed)
                return
            at = self._go_on(stop, ended=ended)
        if not self.size:
            self.gaps.append((0, 0))

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

    def _last(self) -> tuple[int, int, int] | None:
        """Return where the last member begins, where its payload does, and where that ends."""
        if not self._parts:
            return None
        last = self._parts[-1]
        return int(last.start[-1]), int(last.offset[-1]), int(last.offset[-1] + last.length[-1])

    def _note_swallowed(self, parts: Sequence[Headers]) -> None:
        """Note members as damaged whose payloads hold other members up to their end: bytes are missing before these."""
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
        self._torn += start[ends].tolist()
        self.gaps += zip(start[ends].tolist(), stop[ends].tolist(), strict=True)

    def _go_on(self, stop: int, *, ended: bool) -> int:
        """Note the damage at which the walk stopped; return the header at which it goes on, or the file's size."""
        following = self._next_byte(stop) if ended else stop
        if ended and (following - stop) % BLOCK == 0 and is_header(self._block(following)):
            if self._joined:
                return following
            self.joints.add(stop)
        before = self._last()
        inside, at = self._inside(before, stop) if before is not None else (False, None)
        at = self._find_next(stop, ended=ended) if at is None else at
        torn = before is not None and before[0] not in self._torn and self._is_torn(before, stop, at, inside=inside)
        if before is not None and torn:
            self._torn.append(before[0])
        self.gaps.append((before[0] if before is not None and torn else min(stop, at), at))
        if at < self.size and self._lacks_record(stop, at):
            self._torn.append(at)
        return at

    def _inside(self, before: tuple[int, int, int], stop: int) -> tuple[bool, int | None]:
        """Return whether headers begin in a payload before damage, and the first whose members go on behind it."""
        heads, tried = self._heads_between(before[1], stop).tolist(), before[1]
        is_tar = heads[:1] == [before[1]]
        for at in heads:
            if at < tried or is_tar:
                continue
            self._tries += 1
            if self._tries > _MOST_TRIES:
                break
            parts, _, _ = self._run(at, stop + 1)
            if parts and parts[-1].start[-1] >= stop:
                return True, at
            tried = int(parts[-1].start[-1]) + 1 if parts else self._next_try(at)
        return bool(heads) and not is_tar, None

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

    def _is_torn(self, before: tuple[int, int, int], stop: int, at: int, *, inside: bool) -> bool:
        """Return whether the member before damage is damaged too, or may be. `at` is the next header."""
        _, offset, end = before
        here = self._block(stop)
        if not inside and len(self._heads_between(stop, stop + 1)):
            return False  # the member behind is the damaged one
        if inside or self._data[end:stop].any():
            return True
        ends_in_zeros = offset < end and not self._data[max(end - _TAIL_BYTES, offset) : end].any()
        if not any(here):
            return ends_in_zeros
        moved = at < self.size and (at - stop) % BLOCK > 0
        return (offset < end == stop) or (moved and (at - stop < BLOCK or ends_in_zeros))

    def _lacks_record(self, stop: int, at: int) -> bool:
        """Return whether the member that begins at `at` may have had an extension record before it."""
        header, broken = self._block(at), self._block(stop)
        if EXTENSIONS[header[TYPE]]:
            return False
        if is_header(broken) and bool(EXTENSIONS[broken[TYPE]]):
            return True
        if 0 not in header[:_NAME_BYTES] and header[_PREFIX_AT] == 0:
            return True
        return self._records > 0

    def _check_end(self, stop: int, *, failed: bool) -> None:
        """Note the last member as damaged if the zeros behind it tell that bytes are missing, or that some came in."""
        before, rest = self._last(), self.size - stop
        if failed and rest < BLOCK:
            self.gaps.append((stop, self.size))
        if before is None or before[0] in self._torn:
            return
        start, offset, end = before
        odd = rest % BLOCK > 0 and (self._data[end:stop].any() or (offset < end and self._data[end - 1] == 0))
        neat = rest == _END_BYTES or self.size % _RECORD_BYTES == 0
        ends_in_zeros = offset < end and not self._data[max(end - _TAIL_BYTES, offset) : end].any()
        heads = self._heads_between(offset, stop)
        if odd or (not neat and ends_in_zeros and len(heads) and heads[0] > offset):
            self._torn.append(start)
            self.gaps.append((start, self.size))

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
