"""What is left of a damaged tar: members found again behind a damage, and the samples that are whole.

A walk goes from header to header. Where it meets none, the next one is looked for: any 512 bytes with a valid checksum
in step with the walk, and at any place what has the magic too, since a cut moves all behind it by any number of bytes.
One whose name is gone is none.

The headers of a tar inside a payload are headers as well. Where all members follow each other, one there is taken
only if the walk from it ends with the payload, and its members are of a sample beside: the next one, where the payload
begins with a header, as a tar does that may hold its own sample. Inside the payload before a damage, one is taken only
if the walk from it meets a header behind that, or the end of the file; behind a damage, it is not taken if the walk
from it comes to an end of archive with a header after that, as in a tar that is a member.

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
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise, takewhile

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, LadingError, LimitExceeded, errors_at
from lading.formats.base import Recovered
from lading.formats.webdataset.headers import BLOCK, EXTENSIONS, TYPE, Cursor, Headers, Window, is_header, padded, sizes
from lading.formats.webdataset.samples import Rows, Splitter, join_rows
from lading.formats.webdataset.scan import scan
from lading.limits import DEFAULT_LIMITS
from lading.storage.base import MappedFile

__all__ = ["FoundMembers", "find_members", "laid_out", "resync_samples"]

_FIRST_STEP_BYTES, _STEP_BYTES = 16 << 10, 4 << 20
_MAGIC_AT, _MAGIC = 257, b"ustar"
_NAME_BYTES, _PREFIX_AT = 100, 345
_TAIL_BYTES = 16
_END_BYTES = 2 * BLOCK
_FIRST_REACH = 16
_HEADS_BYTES = 1 << 20
_MOST_HIDDEN_TRIES = 10_000
"""Headers inside payloads from which it is walked: more are looked at of a hostile file alone."""
_MOST_MERGING = 100
"""Payloads with missing blocks that are told by samples beside them: behind each, it is walked anew."""
_MOST_TRIES = 1000
"""Headers that no member comes of, behind which the next one is looked for."""
_SHOWN = 200
_SPACE, _ZERO, _EIGHT = b" 08"
_ASCII = 127
_SUM = slice(148, 156)
_RECORD_BYTES = 20 * BLOCK
"""What GNU tar and Python write at once: their tars are as many bytes, or a multiple."""


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
                         found=f"{gap.stop - gap.start} damaged bytes" if gap.stop > gap.start else "the end")
            for gap in self.gaps
        ]  # fmt: skip

    def beside_gaps(self, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of some members, by where they begin, stand before or behind a gap, ascending."""
        at = np.searchsorted(start, np.array([gap.stop for gap in self.gaps], np.int64))
        found = np.unique(np.concatenate([at - 1, at]))
        return found[(found >= 0) & (found < len(start))]


def find_members(mapped: MappedFile, path: str, *, cut: bool = False) -> FoundMembers:
    """The members of a tar, whatever is between them; of one that was `cut` more may be missing behind the last.

    Raises CorruptShard if the file shrinks meanwhile.
    """
    walker = _Walker(mapped)
    with errors_at(file=path):
        walker.walk(cut=cut)
    return FoundMembers(walker.parts, walker.gaps, walker.size)


def resync_samples(
    mapped: MappedFile, path: str, *, lower_case: bool, usual: Sequence[str] | None = None, cut: bool = False
) -> Recovered | None:
    """The samples of a damaged tar that are whole; None if all members follow each other to the end.

    Args:
        mapped: the file.
        path: what it is called.
        lower_case: whether names of fields are taken in lower case.
        usual: the fields that every sample has, where something beside this tar tells.
        cut: reading the file raised an error, so that members may be missing behind the last one.

    Raises:
        DataError: names of members that cannot be samples.
    """
    found = find_members(mapped, path, cut=cut)
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
) -> Recovered:
    """Some members of a tar, one after another, as a tar: from where each begins to where its payload ends."""
    room = (stop - start + BLOCK - 1) // BLOCK * BLOCK
    target = np.cumsum(room) - room
    length = np.minimum(room, size_bytes - start)
    return Recovered(start, target, length, int(room.sum()) + _END_BYTES, lost=lost, lost_samples=lost_samples)


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
        self._tries = self._hidden_tries = self._merged = 0
        self._members = self._with_record = 0

    def walk(self, *, cut: bool = False) -> None:
        """Find all members; those that are damaged themselves are left out.

        A tar that was `cut` has a gap at its end, unless an end of archive stands there.
        """
        at = 0
        while at < self.size:
            known = len(self.parts)
            stop, ended = self._run(at, self.parts)
            self._count(self.parts[known:])
            passed = self._first_passed(known)
            if passed is not None:
                stop, at = passed
                self._forget(stop)
                self._judge(self._last(), stop, at)
                continue
            before, torn = self._last(), False
            if ended and self._next_byte(stop) == self.size:
                at = self._swallowed(before, stop)
                if at == self.size:
                    self._judge_end(before, stop)
                    if cut and self.size - stop < BLOCK:
                        self.gaps.append(_Gap(stop, self.size))
                    break
            else:
                at, torn = self._find_next(stop, before)
            self._judge(before, stop, at, torn=torn)
        if not self.size:
            self.gaps.append(_Gap(0, 0))
        gone = np.array(self._dropped, np.int64)
        self.parts = [_only(part, ~np.isin(part.start, gone)) for part in self.parts] if len(gone) else self.parts

    def _run(self, at: int, parts: list[Headers], until: int | None = None) -> tuple[int, bool]:
        """The members from a header on; where they stop, and whether that is at an end of archive.

        Members behind `until` are not asked for; a few may be given.
        """
        cursor, base = Cursor(at, reach=_FIRST_REACH), at % BLOCK
        window = Window(self._data[base:], base, self.size, read=self._mapped.read)
        try:
            while not cursor.done and (until is None or cursor.at < until):
                self._mapped.check()
                found, cursor = scan(window, cursor)
                if len(found):
                    parts.append(found)
        except (CorruptShard, LimitExceeded):
            self._mapped.check()
            return cursor.at, False
        return cursor.at, cursor.done

    def _last(self) -> tuple[int, int, int] | None:
        """Where the last member begins, where its payload does, and where that ends."""
        if not self.parts:
            return None
        last = self.parts[-1]
        return int(last.start[-1]), int(last.offset[-1]), int(last.offset[-1] + last.length[-1])

    def _first_passed(self, known: int) -> tuple[int, int] | None:
        """The first header that shows that the members found last are wrong: where they begin to be, and that header.

        Either it has the magic and a header without one lies over it, whose checksum is right by chance. Or it stands
        in a payload, from which whole blocks are missing before it, so that the walks from both come together: this is
        told from a tar that was cut and is a member by what it holds of the sample before it or behind it; one that
        begins with a header may hold some of the sample that it is of.
        """
        if known == len(self.parts):
            return None
        parts = self.parts[known:]
        start, offset = (np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "offset"))
        length = np.concatenate([part.length for part in parts])
        stop = offset + (length + BLOCK - 1) // BLOCK * BLOCK
        first, last = np.searchsorted(self._all_heads(), [start[0] + 1, stop[-1]])
        heads = self._all_heads()[first:last]
        return min(filter(None, [self._overlaid(heads, start, offset), self._merging(heads, parts, offset, stop)]),
                   default=None)  # fmt: skip

    def _overlaid(
        self, heads: NDArray[np.int64], start: NDArray[np.int64], offset: NDArray[np.int64]
    ) -> tuple[int, int] | None:
        """Where the first member begins whose header has no magic and lies over one that has, and the first of them."""
        own = np.union1d(start, offset - BLOCK)
        near = np.searchsorted(own, heads)
        beside = own[np.concatenate([np.maximum(near - 1, 0), np.minimum(near, len(own) - 1)])]
        heads = np.tile(heads, 2)
        away = np.abs(heads - beside)
        rows = np.flatnonzero((away > 0) & (away < BLOCK))
        rows = rows[np.lexsort((heads[rows], beside[rows]))]
        for at, header in zip(heads[rows].tolist(), beside[rows].tolist(), strict=True):
            if bytes(self._data[header + _MAGIC_AT : header + _MAGIC_AT + len(_MAGIC)]) == _MAGIC:
                continue
            found: list[Headers] = []
            self._run(at, found, at + 1)
            if found:
                return int(start[np.searchsorted(start, header, "right") - 1]), at
        return None

    def _merging(
        self, heads: NDArray[np.int64], parts: Sequence[Headers], offset: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> tuple[int, int] | None:
        """Where a member ends in whose payload stand others up to its end, one of a sample beside it; and the first.

        A payload that begins with a header is a tar, whatever samples it holds, unless the last is the next one here.
        Samples of one field each are told by their order.
        """
        member = np.searchsorted(offset, heads, "right") - 1
        inside = (member >= 0) & (heads < stop[member]) & ((stop[member] - heads) % BLOCK == 0)
        heads, member = heads[inside], member[inside]
        size, _ = sizes(self._data[heads[:, None] + np.arange(BLOCK)]) if len(heads) else (heads, None)
        follows = heads + BLOCK + (np.minimum(size, self.size) + BLOCK - 1) // BLOCK * BLOCK
        leading, first = {*stop[member].tolist()}, dict[int, int]()
        for at, following, number in zip(*(part[::-1].tolist() for part in (heads, follows, member)), strict=True):
            if following in leading:
                leading.add(at)
                first[number] = at
        bounds, tars, left = np.cumsum([0, *map(len, parts)]), np.isin(offset, heads), _MOST_MERGING - self._merged
        for number, at in sorted(first.items()):
            own, behind = _name_at(parts, bounds, number), _name_at(parts, bounds, number + 1)
            if tars[number] and _stem(own) == _stem(behind):
                continue
            if left <= 0:
                break
            left -= 1
            run: list[Headers] = []
            self._run(at, run, int(stop[number]))
            found = [part.name(row) for part in run for row in range(len(part)) if part.start[row] < stop[number]]
            if found and (
                _shared(found[-1], behind) > _shared(own, behind)
                or (not tars[number] and (_shared(found[0], own) or _stand_between(found, own, behind)))
            ):
                self._merged += 1
                return int(stop[number]), at
        return None

    def _all_heads(self) -> NDArray[np.int64]:
        """Where headers begin that have the magic, in step or not, ascending; found once."""
        if self._heads is None:
            found = [np.zeros(0, np.int64)]
            for start in range(0, self.size, _HEADS_BYTES):
                self._mapped.check()
                found.append(start + _heads_in(self._data[start : start + _HEADS_BYTES + BLOCK - 1]))
                self._mapped.release(start, min(start + _HEADS_BYTES, self.size))
            self._heads = np.concatenate(found)
        return self._heads

    def _reached(self, at: int) -> set[int]:
        """Where members and their headers begin that are reached from a place: those of a tar that is a member."""
        found: list[Headers] = []
        self._run(at, found)
        return {int(place) for part in found for place in np.concatenate([part.start, part.offset - BLOCK]).tolist()}

    def _count(self, parts: Sequence[Headers], times: int = 1) -> None:
        """Note how many members are there, and how many of them have an extension record."""
        self._members += times * sum(map(len, parts))
        self._with_record += times * sum(int(np.count_nonzero(part.offset - part.start > BLOCK)) for part in parts)

    def _forget(self, start: int) -> None:
        """Forget the members that begin here or later."""
        while self.parts and self.parts[-1].start[-1] >= start:
            last = self.parts.pop()
            self._count([last], -1)
            if last.start[0] < start:
                self.parts.append(_only(last, last.start < start))
                self._count(self.parts[-1:])

    def _swallowed(self, before: tuple[int, int, int] | None, stop: int) -> int:
        """Where a member begins inside the last one, which runs into the zeros at the end; the end if none does.

        None does where as many zeros are left as a writer puts there. A tar that is a member begins with a header, and
        from there its own members are reached.
        """
        rest = self.size - stop
        if rest >= _END_BYTES and (rest == _END_BYTES or self.size % _RECORD_BYTES == 0):
            return self.size
        if before is None or before[2] <= before[1] or self._data[max(before[2] - _TAIL_BYTES, 0) : before[2]].any():
            return self.size
        at, _ = self._hidden(before[1], stop, self._reached(before[1]))
        return self.size if at is None else at

    def _hidden(self, first: int, stop: int, own: AbstractSet[int] = frozenset()) -> tuple[int | None, bool]:
        """The first header in a payload from which a walk comes to another one behind it, or to the end of the file.

        And whether a walk from one that is not its own goes on past the payload, whatever it comes to.
        """
        tried, past = first, False
        for at in self._candidates(first, stop, stop):
            if at < tried or at in own:
                continue
            if self._hidden_tries > _MOST_HIDDEN_TRIES:
                break
            self._hidden_tries += 1
            run: list[Headers] = []
            end, ended = self._run(at, run)
            if run and (run[-1].start[-1] >= stop or (ended and self._next_byte(end) == self.size)):
                return at, True
            past = past or bool(run and end > stop)
            tried = int(run[-1].start[-1]) + 1 if run else max(self._within_reach(at), at + 1)
        return None, past

    def _judge(self, before: tuple[int, int, int] | None, stop: int, at: int, *, torn: bool = False) -> None:
        """Note the gap between a member and the next one, and which of the two are damaged."""
        start = stop
        if before is not None and before[0] not in self._dropped and (torn or self._is_hurt(before, stop, at)):
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
        return self._members > 0 and 2 * self._with_record >= self._members

    def _next_byte(self, at: int) -> int:
        """Place of the first byte from here on that is not zero, or the end."""
        for start, stop in _steps(at, self.size):
            other = self._data[start:stop] != 0
            if other.any():
                return start + int(np.argmax(other))
            self._mapped.release(start, stop)
        return self.size

    def _find_next(self, stop: int, before: tuple[int, int, int] | None) -> tuple[int, bool]:
        """Where the next member begins, the walk having stopped here; the end of the file if there is none.

        And whether the member before may be torn: what may be a header in its payload leads past its end.
        """
        torn = False
        if before is not None:
            hidden, torn = self._hidden(before[1], stop)
            if hidden is not None:
                return hidden, True
        tried = stop
        for at in self._candidates(stop, stop, self.size):
            if at < tried:
                continue
            run: list[Headers] = []
            end, ended = self._run(at, run)
            if run and not (ended and self._goes_on(end)):
                return at, torn
            self._tries += not run
            if self._tries > _MOST_TRIES:
                break
            tried = int(run[-1].start[-1]) + 1 if run else max(self._within_reach(at), at + 1)
        return self.size, torn

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
        """Whether a header follows an end of archive, in step or not, as it does behind a tar that is a member."""
        following = self._next_byte(end)
        at = following - (following - end) % BLOCK
        first, last = np.searchsorted(self._all_heads(), [at, at + BLOCK])
        return bool(first < last) or is_header(bytes(self._data[at : at + BLOCK]))

    def _candidates(self, at: int, phase: int, end: int) -> Iterator[int]:
        """Places from `at` on, up to an end, where a header may begin, ascending."""
        heads = self._all_heads()
        for start, stop in _steps(at, end):
            self._mapped.check()
            first, last = np.searchsorted(heads, [start, stop])
            yield from np.union1d(heads[first:last], self._aligned(start, stop, phase)).tolist()
            self._mapped.release(start, stop)

    def _aligned(self, start: int, stop: int, phase: int) -> NDArray[np.int64]:
        """Blocks in step with the walk that hold their own checksum."""
        first = start + (phase - start) % BLOCK
        count = max(0, min(stop + BLOCK - 1, self.size) - first) // BLOCK
        blocks = self._data[first : first + count * BLOCK].reshape(-1, BLOCK)
        rows = np.flatnonzero(_may_be_sums(blocks[:, _SUM]) & _is_named(blocks[:, 0], blocks[:, TYPE]))
        headers = blocks[rows]
        good = _hold_sums(headers[:, _SUM], headers.sum(axis=1, dtype=np.int64), np.count_nonzero(headers > _ASCII, 1))
        return first + rows[good] * BLOCK


def _steps(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of `[start, end)`, the first ones small: what is looked for is mostly near, and many times."""
    step = _FIRST_STEP_BYTES
    while start < end:
        yield start, min(start + step, end)
        start, step = start + step, min(2 * step, _STEP_BYTES)


def _heads_in(piece: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Where headers begin in some bytes that have the magic and hold their own checksum."""
    count = max(len(piece) - BLOCK + 1, 0)
    likely = piece[_MAGIC_AT : _MAGIC_AT + count] == _MAGIC[0]
    for place in range(1, len(_MAGIC)):
        likely &= piece[_MAGIC_AT + place : _MAGIC_AT + place + count] == _MAGIC[place]
    at = np.flatnonzero(likely)
    at = at[_is_named(piece[at], piece[at + TYPE])]
    at = at[_may_be_sums(piece[at[:, None] + np.arange(_SUM.start, _SUM.stop)])]
    if not len(at):
        return at
    total, high = (
        (sums[at + BLOCK] - sums[at]).astype(np.int64)
        for sums in (np.append(np.uint32(0), np.cumsum(part, dtype=np.uint32)) for part in (piece, piece > _ASCII))
    )
    return at[_hold_sums(piece[at[:, None] + np.arange(_SUM.start, _SUM.stop)], total, high)]


def _is_named(first: NDArray[np.uint8], kind: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which headers have a name, by its first byte, or are records, which may tell one: others have lost theirs."""
    named: NDArray[np.bool_] = (first != 0) | EXTENSIONS[kind]
    return named


def _may_be_sums(stored: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which fields of 8 bytes are digits, blanks and zeros."""
    digits = (stored >= _ZERO) & (stored < _EIGHT) | (stored == _SPACE) | (stored == 0)
    good: NDArray[np.bool_] = digits.all(axis=1) & (stored != 0).any(axis=1)
    return good


def _hold_sums(stored: NDArray[np.uint8], total: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of such fields hold the checksum of their headers, by the sums of all bytes and how many are above 127."""
    number, open_ = np.zeros(len(stored), np.int64), np.ones(len(stored), np.bool_)
    for column in stored.T:
        digit = column >= _ZERO
        number = np.where(open_ & digit, number * 8 + column % 8, number)
        open_ &= column != 0
    expected = total - stored.sum(axis=1, dtype=np.int64) + 8 * _SPACE
    good: NDArray[np.bool_] = (number == expected) | (number == expected - 256 * high)
    return good


def _shared(one: bytes, other: bytes) -> int:
    """With how many parts, between dots, both names begin: the key of a sample, and of a document all of its own."""
    pairs = zip(one.split(b"."), other.split(b"."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _stand_between(names: Sequence[bytes], one: bytes, other: bytes) -> bool:
    """Whether names are like two others, and in order between them: members of one field each in a sorted shard."""
    endings = {name.rpartition(b".")[2] for name in (one, *names, other)}
    return len(endings) == 1 and all(before < behind for before, behind in pairwise([one, *names, other]))


def _stem(name: bytes) -> bytes:
    return name.rpartition(b".")[0]


def _name_at(parts: Sequence[Headers], bounds: NDArray[np.int64], number: int) -> bytes:
    """Name of a member, by its number in some parts and where these begin and end; empty behind them."""
    if number >= bounds[-1]:
        return b""
    place = int(np.searchsorted(bounds, number, "right")) - 1
    return parts[place].name(number - int(bounds[place]))


def _only(part: Headers, kept: NDArray[np.bool_]) -> Headers:
    rows = np.flatnonzero(kept)
    sparse = {new: part.sparse[row] for new, row in enumerate(rows.tolist()) if row in part.sparse}
    return Headers(part.names[rows], part.kind[rows], part.start[rows], part.offset[rows], part.length[rows], sparse)
