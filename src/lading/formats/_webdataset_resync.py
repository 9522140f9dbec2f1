"""What is left of a damaged tar: members found again behind a damage, and the samples that are whole.

A walk goes from header to header. Where it meets none, the next one is looked for: any 512 bytes with a valid checksum
in step with the walk, and at any place what has the magic too, since a cut moves all behind it by any number of bytes.
The headers of a tar inside a payload are headers as well. Inside the payload of a member, one is taken only if the walk
from it goes on past the place where the member ends, and no walk from the beginning of the payload comes to it; behind
a damage, it is not taken if the walk from it comes to an end of archive with a header after that, as in a tar that is a
member.

What a tar does not say is told by these rules:

* A header that the walk comes to in step is none if one with the magic begins inside it: moved by a byte, a header may
  still hold its own checksum. One that begins in a payload's padding shows that bytes are missing before it.
* The member before a damage is lost if the next header lies where its payload or padding should be, if the zeros that
  pad it are not zeros, or if the next header is out of step and less than a header away or behind no padding. If it
  ends in 16 zeros itself, it is lost too where the next header is out of step or zeros stand in its place.
* The last member is lost if the file ends in the middle of a block and the member in a zero, or the zeros that pad it
  are not zeros.
* The member behind is lost if its name may have stood in an extension record that is gone: half of the members or
  more have one and this one has none, a broken one stands before it, or its name fills its field.
* A sample beside a damage is whole if it has the fields that another sample has, away from any damage, and no such
  sample has these and more. Where all samples stand beside damages, they are compared with each other; one that is
  all that is left is whole if it has the fields that samples of the dataset have; it is kept, and told of, where
  nothing says what these are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, LadingError, LimitExceeded, errors_at
from lading.formats._webdataset_rows import Rows, Splitter, join_rows
from lading.formats._webdataset_scan import scan
from lading.formats.protocol import Remains
from lading.limits import DEFAULT_LIMITS
from lading.store.protocol import MappedFile
from lading.tar import BLOCK, EXTENSIONS, TYPE, Cursor, Headers, Window, is_header, padded, sizes, valid

__all__ = ["FoundMembers", "find_members", "laid_out", "resync_samples"]

_STEP_BYTES = 4 << 20
_MAGIC_AT, _MAGIC = 257, b"ustar"
_NAME_BYTES, _PREFIX_AT = 100, 345
_TAIL_BYTES = 16
_END_BYTES = 2 * BLOCK
_FIRST_REACH = 16
_MOST_TRIES = 1000
"""Headers that no member comes of, behind which the next one is looked for."""
_SHOWN = 200
_SPACE, _ZERO, _EIGHT = b" 08"


@dataclass(frozen=True, slots=True)
class _Gap:
    """Bytes between two members that are no members: from the end of one, or inside it, to the next."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FoundMembers:
    """The members of a damaged tar.

    Attributes:
        parts: those that are whole, in file order.
        gaps: `[start, stop)` of what is not, in file order.
        size_bytes: of the file.
    """

    parts: Sequence[Headers]
    gaps: Sequence[_Gap]
    size_bytes: int

    def errors(self, path: str) -> list[LadingError]:
        """What there is to say of the gaps."""
        return [
            CorruptShard("no members can be read here", file=path, offset=gap.start, expected="members",
                         found=f"{gap.stop - gap.start} damaged bytes")
            for gap in self.gaps
        ]  # fmt: skip

    def beside_gaps(self, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of some members, by where they begin, stand before or behind a gap, ascending."""
        at = np.searchsorted(start, np.array([gap.stop for gap in self.gaps], np.int64))
        found = np.unique(np.concatenate([at - 1, at]))
        return found[(found >= 0) & (found < len(start))]


def find_members(mapped: MappedFile, path: str) -> FoundMembers:
    """The members of a tar, whatever is between them. Raises CorruptShard if the file shrinks meanwhile."""
    walker = _Walker(mapped)
    with errors_at(file=path):
        walker.walk()
    return FoundMembers(walker.parts, walker.gaps, walker.size)


def resync_samples(
    mapped: MappedFile, path: str, *, lower_case: bool, usual: Sequence[str] | None = None
) -> Remains | None:
    """The samples of a damaged tar that are whole; None if all members follow each other to the end.

    Args:
        mapped: the file.
        path: what it is called.
        lower_case: whether names of fields are taken in lower case.
        usual: the fields that every sample has, where something beside this tar tells.

    Raises:
        DataError: names of members that cannot be samples.
    """
    found = find_members(mapped, path)
    if not found.gaps:
        return None
    splitter = Splitter(lower_case=lower_case)
    with errors_at(file=path):
        rows = join_rows([splitter.split(part) for part in found.parts])
    beside = found.beside_gaps(rows.start)
    doubts: list[LadingError] = []
    if len(rows.keys) == 1 and len(beside):  # no sample is an example of itself
        there = {splitter.fields[number] for number in rows.field.tolist()}
        broken = np.arange(0 if there.issuperset(usual or ()) else 1)
        if not usual:
            doubts = [CorruptShard("all that is left is a sample, which may lack members", file=path,
                                   offset=int(rows.start[0]), sample=rows.keys[0].as_py(),
                                   found=", ".join(sorted(there))[:_SHOWN])]  # fmt: skip
    else:
        broken = _broken_samples(rows, beside)
    sample = np.cumsum(rows.new) - 1
    kept = ~np.isin(sample, broken)
    first = np.flatnonzero(rows.new)[broken]
    lost: list[LadingError] = [
        CorruptShard("a sample beside damaged bytes may lack members", file=path, offset=int(rows.start[row]),
                     sample=rows.keys[number].as_py(), expected="the fields of other samples")
        for number, row in zip(broken.tolist(), first.tolist(), strict=True)
    ]  # fmt: skip
    stop = rows.offset + rows.length
    return laid_out(rows.start[kept], stop[kept], found.size_bytes, [*found.errors(path), *lost, *doubts], len(broken))


def laid_out(
    start: NDArray[np.int64], stop: NDArray[np.int64], size_bytes: int, lost: Sequence[LadingError], lost_samples: int
) -> Remains:
    """Some members of a tar, one after another, as a tar: from where each begins to where its payload ends."""
    room = (stop - start + BLOCK - 1) // BLOCK * BLOCK
    target = np.cumsum(room) - room
    length = np.minimum(room, size_bytes - start)
    return Remains(start, target, length, int(room.sum()) + _END_BYTES, lost=lost, lost_samples=lost_samples)


def _broken_samples(rows: Rows, beside: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples beside a damage whose fields are not those of whole samples, ascending."""
    sample = np.cumsum(rows.new) - 1
    suspects = np.unique(sample[beside])
    if not len(suspects):
        return suspects
    bounds = np.append(np.flatnonzero(rows.new), len(rows))
    # Equal sets of fields have equal sums of random numbers, whatever their order.
    weights = np.random.default_rng(0).integers(1, 1 << 62, int(rows.field.max()) + 1, np.uint64)
    sums = np.add.reduceat(weights[rows.field], bounds[:-1])
    known = np.ones(len(sums), np.bool_)
    known[suspects] = len(suspects) == len(sums)
    _, examples = np.unique(sums[known], return_index=True)
    sets = [_fields(rows, bounds, number) for number in np.flatnonzero(known)[examples].tolist()]
    broken = [number for number in suspects.tolist() if not _is_whole(_fields(rows, bounds, number), sets)]
    return np.array(broken, np.int64)


def _fields(rows: Rows, bounds: NDArray[np.int64], sample: int) -> frozenset[int]:
    return frozenset(rows.field[bounds[sample] : bounds[sample + 1]].tolist())


def _is_whole(fields: frozenset[int], known: Sequence[frozenset[int]]) -> bool:
    return fields in known and not any(fields < other for other in known)


class _Walker:
    """A walk over a tar that goes on behind what is damaged.

    Attributes:
        parts: the members so far.
        gaps: what lies between some of them.
        size: of the file.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        view = memoryview(mapped.buffer)
        self._data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        self.size = len(self._data)
        self.parts: list[Headers] = []
        self.gaps: list[_Gap] = []
        self._dropped: list[int] = []
        self._heads: NDArray[np.int64] | None = None
        self._tries = 0

    def walk(self) -> None:
        """Find all members; those that are damaged themselves are left out."""
        at = 0
        while at < self.size:
            known = len(self.parts)
            stop, ended = self._run(at, self.parts)
            passed = self._first_passed(known)
            if passed is not None:
                stop, at = passed
                self._forget(stop)
                self._judge(self._last(), stop, at)
                continue
            before = self._last()
            if ended and self._next_byte(stop) == self.size:
                at = self._swallowed(before)
                if at == self.size:
                    self._judge_end(before, stop)
                    break
            else:
                at = self._find_next(stop, before)
            self._judge(before, stop, at)
        if not self.size:
            self.gaps.append(_Gap(0, 0))
        gone = np.array(self._dropped, np.int64)
        self.parts = [_only(part, ~np.isin(part.start, gone)) for part in self.parts] if len(gone) else self.parts

    def _run(self, at: int, parts: list[Headers]) -> tuple[int, bool]:
        """The members from a header on; where they stop, and whether that is at an end of archive."""
        cursor, base = Cursor(at, reach=_FIRST_REACH), at % BLOCK
        window = Window(self._data[base:], base, self.size, read=self._mapped.read)
        try:
            while not cursor.done:
                self._mapped.check()
                found, cursor = scan(window, cursor)
                if len(found):
                    parts.append(found)
        except (CorruptShard, LimitExceeded):
            self._mapped.check()
            self._tries += cursor.at == at
            return cursor.at, False
        return cursor.at, True

    def _last(self) -> tuple[int, int, int] | None:
        """Where the last member begins, where its payload does, and where that ends."""
        if not self.parts:
            return None
        last = self.parts[-1]
        return int(last.start[-1]), int(last.offset[-1]), int(last.offset[-1] + last.length[-1])

    def _first_passed(self, known: int) -> tuple[int, int] | None:
        """The first header that the members found last lie over: where the walk was wrong, and that header.

        In the payload or padding of a member, it shows that bytes are missing there, and the next member that the walk
        met is none. In the header of a member, it shows that this one is none: its checksum is right by chance.

        The headers of a tar that is a member show nothing; but such a tar is whole blocks, or no walk goes on behind.
        """
        if known == len(self.parts):
            return None
        offset = np.concatenate([part.offset for part in self.parts[known:]])
        length = np.concatenate([part.length for part in self.parts[known:]])
        start = np.concatenate([part.start for part in self.parts[known:]])
        stop = offset + (length + BLOCK - 1) // BLOCK * BLOCK
        heads = self._all_heads()
        member = np.searchsorted(offset - BLOCK, heads, "left") - 1
        there = (member >= 0) & (heads < stop[member])
        own: set[int] = set()
        last = -1
        for at, number in zip(heads[there].tolist(), member[there].tolist(), strict=True):
            end = int(offset[number] + length[number])
            if number != last:
                last, own = number, self._reached(int(offset[number]))
                if length[number] % BLOCK and max(own, default=0) >= end:
                    own = set()
            if at not in own and is_header(bytes(self._data[at : at + BLOCK])) and self._run(at, [])[0] > end + BLOCK:
                return int(start[number] if at < offset[number] else stop[number]), at
        return None

    def _all_heads(self) -> NDArray[np.int64]:
        """Places where a header would begin whose magic stands in the file, ascending; found once."""
        if self._heads is None:
            found = [np.zeros(0, np.int64)]
            for start in range(0, self.size, _STEP_BYTES):
                self._mapped.check()
                piece = self._data[start : start + _STEP_BYTES + len(_MAGIC) - 1]
                count = max(len(piece) - len(_MAGIC) + 1, 0)
                likely = piece[:count] == _MAGIC[0]
                for place in range(1, len(_MAGIC)):
                    likely &= piece[place : place + count] == _MAGIC[place]
                found.append(start + np.flatnonzero(likely) - _MAGIC_AT)
                self._mapped.release(start, min(start + _STEP_BYTES, self.size))
            self._heads = np.concatenate(found)
        return self._heads

    def _reached(self, at: int) -> set[int]:
        """Where members and their headers begin that are reached from a place: those of a tar that is a member."""
        found: list[Headers] = []
        self._run(at, found)
        return {int(place) for part in found for place in np.concatenate([part.start, part.offset - BLOCK]).tolist()}

    def _forget(self, start: int) -> None:
        """Forget the members that begin here or later."""
        while self.parts and self.parts[-1].start[0] >= start:
            self.parts.pop()
        if self.parts:
            self.parts[-1] = _only(self.parts[-1], self.parts[-1].start < start)

    def _swallowed(self, before: tuple[int, int, int] | None) -> int:
        """Where a member begins inside the last one, which runs into the zeros at the end; the end if none does.

        A tar that is a member begins with a header, and from there its own members are reached.
        """
        if before is None or before[2] <= before[1] or self._data[max(before[2] - _TAIL_BYTES, 0) : before[2]].any():
            return self.size
        own = self._reached(before[1])
        return next((at for at in self._candidates(before[1], before[1]) if at not in own), self.size)

    def _judge(self, before: tuple[int, int, int] | None, stop: int, at: int) -> None:
        """Note the gap between a member and the next one, and which of the two are damaged."""
        start = stop
        if before is not None and before[0] not in self._dropped and self._is_hurt(before, stop, at):
            self._dropped.append(before[0])
            start = before[0]
        self.gaps.append(_Gap(min(start, at), at))
        if at < self.size and self._lacks_record(stop, at):
            self._dropped.append(at)

    def _judge_end(self, before: tuple[int, int, int] | None, stop: int) -> None:
        """Note the last member as damaged if bytes are missing in it, or were put in: zeros alone come behind it."""
        if before is None or before[0] in self._dropped or (self.size - stop) % BLOCK == 0:
            return
        start, offset, end = before
        if self._data[end:stop].any() or (offset < end and self._data[end - 1] == 0):
            self._dropped.append(start)
            self.gaps.append(_Gap(start, self.size))

    def _is_hurt(self, before: tuple[int, int, int], stop: int, at: int) -> bool:
        """Whether a member is damaged, the next header being missing at `stop` and the next one found at `at`."""
        _, offset, end = before
        if at < stop or self._data[end:stop].any():
            return True
        moved = at < self.size and (at - stop) % BLOCK > 0
        if moved and (at - stop < BLOCK or end == stop):
            return True
        ends_in_zeros = offset < end and not self._data[max(end - _TAIL_BYTES, offset) : end].any()
        return ends_in_zeros and (moved or not self._data[stop : stop + BLOCK].any())

    def _lacks_record(self, stop: int, at: int) -> bool:
        """Whether the member that begins here may have had an extension record before it."""
        header = bytes(self._data[at : at + BLOCK])
        if EXTENSIONS[header[TYPE]]:
            return False
        broken = bytes(self._data[stop : min(stop + BLOCK, at)])
        if is_header(broken) and bool(EXTENSIONS[broken[TYPE]]):
            return True
        if 0 not in header[:_NAME_BYTES] and header[_PREFIX_AT] == 0:
            return True
        with_record = sum(int(np.count_nonzero(part.offset - part.start > BLOCK)) for part in self.parts)
        members = sum(map(len, self.parts))
        return members > 0 and 2 * with_record >= members

    def _next_byte(self, at: int) -> int:
        """Place of the first byte from here on that is not zero, or the end."""
        for start in range(at, self.size, _STEP_BYTES):
            piece = self._data[start : start + _STEP_BYTES]
            if piece.any():
                return start + int(np.argmax(piece != 0))
            self._mapped.release(start, start + len(piece))
        return self.size

    def _find_next(self, stop: int, before: tuple[int, int, int] | None) -> int:
        """Where the next member begins, the walk having stopped here; the end of the file if there is none."""
        first = min(stop, before[1]) if before is not None else stop
        tried = first
        for at in self._candidates(first, stop):
            if at < tried:
                continue
            run: list[Headers] = []
            end, ended = self._run(at, run)
            if run and (end > stop if at < stop else not (ended and self._goes_on(end))):
                return at
            if self._tries > _MOST_TRIES:
                break
            tried = int(run[-1].start[-1]) + 1 if run else max(self._within_reach(at), at + 1)
        return self.size

    def _within_reach(self, at: int) -> int:
        """The first header from here on that a member may be read from: no more extension records stand before it."""
        starts = deque([at], maxlen=DEFAULT_LIMITS.tar_extensions)
        while True:
            header = self._data[at : at + BLOCK]
            if not is_header(header.tobytes()) or not EXTENSIONS[header[TYPE]]:
                return starts[0]
            size, plain = sizes(header[None])
            if not plain[0]:
                return starts[0]
            starts.append(at)
            at += BLOCK + padded(int(size[0]))

    def _goes_on(self, end: int) -> bool:
        """Whether a header follows an end of archive, as it does behind a tar that is a member."""
        following = self._next_byte(end)
        at = following - (following - end) % BLOCK
        return is_header(bytes(self._data[at : at + BLOCK]))

    def _candidates(self, at: int, phase: int) -> Iterator[int]:
        """Places from `at` on where a header may begin, ascending."""
        for start in range(at, self.size, _STEP_BYTES):
            self._mapped.check()
            places = {*self._aligned(start, phase), *self._by_magic(start)}
            yield from sorted(place for place in places if place >= at)
            self._mapped.release(start, min(start + _STEP_BYTES, self.size))

    def _aligned(self, start: int, phase: int) -> Iterator[int]:
        """Blocks in step with the walk that hold their own checksum."""
        first = start + (phase - start) % BLOCK
        stop = min(start + _STEP_BYTES, self.size)
        count = max(0, stop - first) // BLOCK
        blocks = self._data[first : first + count * BLOCK].reshape(-1, BLOCK)
        sums = blocks[:, 148:156]
        digits = (sums >= _ZERO) & (sums < _EIGHT) | (sums == _SPACE) | (sums == 0)
        likely = np.flatnonzero(digits.all(axis=1) & (sums != 0).any(axis=1))
        for row in likely.tolist():
            if valid(blocks[row : row + 1])[0]:
                yield first + row * BLOCK

    def _by_magic(self, start: int) -> Iterator[int]:
        """Places of headers with a magic, whatever the walk was in step with."""
        text = bytes(self._data[start : start + _STEP_BYTES + BLOCK])
        found = text.find(_MAGIC)
        while found >= 0:
            place = start + found - _MAGIC_AT
            if start <= place < start + _STEP_BYTES and is_header(bytes(self._data[place : place + BLOCK])):
                yield place
            found = text.find(_MAGIC, found + 1)


def _only(part: Headers, kept: NDArray[np.bool_]) -> Headers:
    rows = np.flatnonzero(kept)
    sparse = {new: part.sparse[row] for new, row in enumerate(rows.tolist()) if row in part.sparse}
    return Headers(part.names[rows], part.kind[rows], part.start[rows], part.offset[rows], part.length[rows], sparse)
