"""What is left of a damaged MDS shard: each sample where its head says, the head made anew.

    uint32 n, uint32 offset[n + 1], JSON of the columns, samples

A sample says the sizes of its values, and they add up to its own. So a table of offsets that is damaged is found again
by walking from sample to sample, and where bytes are missing, the samples before the cut are those that fit where they
should be, and those behind it the ones that fit so many bytes earlier. The last sample that fits before the cut lost
bytes of its values, or may have: unless the sizes of the next one are cut after their first bytes, nothing tells, and
it is lost. Where bytes came in, it is the same, so many bytes later. Of samples whose values are all of one size
nothing can be told in this way, and samples of empty values do not tell: zeros lie anywhere.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import orjson
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError, LadingError, errors_at
from lading.formats.base import Recovered, ShardFile
from lading.formats.mds.index import Column, Entry, parse_config, parse_entry, tells_columns
from lading.limits import Limits
from lading.storage.base import MappedFile

__all__ = ["resync_samples"]

_NUMBER_BYTES = 4
_LOW_BYTE = 0xFF
_JSON_STARTS = re.compile(rb'\{"(?:column_|compression")')
"""How the peer's JSON begins, whose names are sorted; where the count is sound it may begin otherwise."""
_BRACE = re.compile(rb"\}")
_TOO_SHORT = "unexpected end of data"
"""What orjson says of JSON that may go on."""
_MAX_JSON_BYTES = 1 << 20
_DAMAGED_BYTES = 8 << 10
"""Of the JSON, behind which the first sample is looked for at every byte, if its end is not to be found."""
_FAR_BYTES = 64 << 10
"""Behind the beginning, where a sample is looked for from which the others follow to the end, if the first is lost."""
_FIT_SAMPLES = 64 << 10
"""That are looked at together: a few numbers of each lie in memory then."""
_MOST_TRIES = 1000
_MOST_TRIED_BYTES = 256 << 20
"""Of JSON that is read in vain: a second."""
_MOST_STEPS = 2_000_000
"""From sample to sample in vain: a second."""


def resync_samples(mapped: MappedFile, source: ShardFile) -> Recovered | None:
    """The samples that fit their places; None if there is nothing that laying the file out anew would mend.

    Raises:
        DataError: the head is damaged, and nothing says where samples lie.
    """
    with errors_at(file=source.path):
        told = parse_entry(source.entry, source.limits) if source.entry else None
        view = memoryview(mapped.buffer)
        data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        head = _head(data, told, source.limits)
        shift = head.size_bytes - len(data)
        if not shift and not head.damaged:
            return None
        before, behind = _border(data, head, shift)
    return _laid_out(head, shift, before, behind, source.path)


@dataclass(frozen=True, slots=True)
class _Head:
    """Where samples should lie.

    Attributes:
        offset: first byte of each sample, and the end of the last.
        columns: of the shard.
        json: the columns as they stand behind the offsets; zeros where they are damaged, and an index says them.
        damaged: whether any of this is not what the file has.
        lost: samples at the beginning whose places are not known: they take up no bytes here.
    """

    offset: NDArray[np.int64]
    columns: Sequence[Column]
    json: bytes
    damaged: bool
    lost: int = 0

    @property
    def size_bytes(self) -> int:
        """Size that the file should have."""
        return int(self.offset[-1])


def _head(data: NDArray[np.uint8], entry: Entry | None, limits: Limits) -> _Head:
    """The head, as it stands or found again.

    Raises:
        DataError: nothing says what it was.
    """
    stated = int(data[:_NUMBER_BYTES].view("<u4")[0]) if len(data) >= _NUMBER_BYTES else 0
    if entry is not None:
        end = _NUMBER_BYTES * (entry.samples + 2)
        offset = _offsets(data, entry.samples)
        if stated == entry.samples and _is_sound(offset, end) and int(offset[-1]) == entry.raw.size_bytes:
            json = data[end : int(offset[0])].tobytes()
            whole = _Head(offset, entry.config.columns, json, damaged=False)
            if _is_told(json, entry, limits) or _reads_by_its_own(data, whole, limits):
                return whole
            return replace(whole, json=bytes(len(json)), damaged=True)
        return _refound(data, entry, end, limits)
    start, text = _json(data, stated, limits)
    columns = parse_config(orjson.loads(text), limits=limits).columns
    samples = start // _NUMBER_BYTES - 2
    offset = _offsets(data, samples)
    begin = start + len(text)
    if _is_sound(offset, start) and int(offset[0]) == begin:
        return _Head(offset, columns, text, stated != samples)
    walks = _Walks(data, columns, samples, begin)
    if walks.count(begin) != samples:
        raise CorruptShard("the places of samples are damaged, and cannot be found again", offset=_NUMBER_BYTES)
    return _Head(walks.places(begin, samples), columns, text, damaged=True)


def _offsets(data: NDArray[np.uint8], samples: int) -> NDArray[np.int64]:
    """The table of offsets, shorter where the file is."""
    stop = min(_NUMBER_BYTES * (samples + 2), len(data) // _NUMBER_BYTES * _NUMBER_BYTES)
    return data[_NUMBER_BYTES:stop].view("<u4").astype(np.int64)


def _is_sound(offset: NDArray[np.int64], end: int) -> bool:
    return len(offset) > 0 and int(offset[0]) >= end and bool((np.diff(offset) >= 0).all())


def _is_told(text: bytes, entry: Entry, limits: Limits) -> bool:
    """Whether a head's JSON is one, and has no other columns than the index."""
    try:
        told = orjson.loads(text)
        return isinstance(told, dict) and (not tells_columns(told) or parse_config(told, limits=limits) == entry.config)
    except (orjson.JSONDecodeError, DataError):
        return False


def _reads_by_its_own(data: NDArray[np.uint8], head: _Head, limits: Limits) -> bool:
    """Whether a head's JSON has columns of which all samples may be: then nothing tells that the index is right."""
    try:
        own = replace(head, columns=parse_config(orjson.loads(head.json), limits=limits).columns)
    except (orjson.JSONDecodeError, DataError, AttributeError):
        return False
    return bool(_fits(data, own, 0).all())


def _json(data: NDArray[np.uint8], stated: int, limits: Limits) -> tuple[int, bytes]:
    """Where the JSON of the columns begins, and the text itself: where the count says, or wherever there is one."""
    found = (match.start() for match in islice(_JSON_STARTS.finditer(data.data), _MOST_TRIES))
    tried = 0
    for start in chain([_NUMBER_BYTES * (stated + 2)], found):
        for end in _ends(data, start, limits.index_bytes) if start % _NUMBER_BYTES == 0 else ():
            tried += end - start
            if tried > _MOST_TRIED_BYTES:
                break
            text = data[start:end].tobytes()
            try:
                parse_config(orjson.loads(text), limits=limits)
            except orjson.JSONDecodeError as error:
                if str(error).startswith(_TOO_SHORT):
                    continue
                break
            except (DataError, AttributeError):
                break
            return start, text
    raise CorruptShard("the JSON of the columns is damaged, and no index says what it was", offset=0,
                       advice="Open the shard by its index.json, if there is one.")  # fmt: skip


def _ends(data: NDArray[np.uint8], start: int, most: int) -> Iterator[int]:
    """Where an object may end that begins here."""
    ends = _BRACE.finditer(data[start : start + most].data) if data[start : start + 1].tobytes() == b"{" else iter(())
    return (start + match.end() for match in islice(ends, _MOST_TRIES))


def _refound(data: NDArray[np.uint8], entry: Entry, end: int, limits: Limits) -> _Head:
    """The head of a shard whose index says how many samples there are; they are walked from the first one on.

    Raises:
        CorruptShard: no walk comes to the end.
    """
    samples, columns = entry.samples, entry.config.columns
    missing = entry.raw.size_bytes - len(data)
    low = max(end - missing, 0)
    walks = _Walks(data, columns, samples, low + _FAR_BYTES)
    braces = (low + match.end() for match in _BRACE.finditer(data[low : low + _MAX_JSON_BYTES].data))
    for begin in chain(braces, range(low, min(low + _DAMAGED_BYTES, len(data)))):
        if walks.count(begin) == samples:
            room = begin + missing - end
            json = data[begin - room : begin].tobytes() if 0 <= room <= begin else b""
            json = json if _is_told(json, entry, limits) else bytes(max(room, 0))
            return _Head(walks.places(begin, samples) + missing, columns, json, damaged=True)
    for begin in range(low, min(low + _FAR_BYTES, len(data))):
        there = walks.count(begin)
        if 0 < there <= samples:
            found, lost = walks.places(begin, there), samples - there
            offset = np.concatenate([np.full(lost, found[0]), found]) + missing
            return _Head(offset, columns, bytes(max(int(offset[0]) - end, 0)), damaged=True, lost=lost)
    raise CorruptShard("the places of samples are damaged, and cannot be found again", offset=_NUMBER_BYTES)


class _Walks:
    """Walks from sample to sample, to the end of a file. Walks that meet early are one from there on, and taken once.

    Args:
        data: the file.
        columns: of the samples.
        samples: how many there should be.
        near: the place up to which walks begin.
    """

    def __init__(self, data: NDArray[np.uint8], columns: Sequence[Column], samples: int, near: int) -> None:
        self._view, self._samples, self._near = memoryview(data.data), samples, near
        varying = sum(column.size is None for column in columns)
        self._fixed = sum(column.size or 0 for column in columns) + _NUMBER_BYTES * varying
        self._sizes = struct.Struct(f"<{varying}I")
        self._left = 2 * samples + _MOST_STEPS
        self._counts = {len(data): 0}

    def count(self, begin: int) -> int:
        """How many samples lie from here to the end of the file; -1 if they do not end there, or after too many steps.

        Of samples of one size there are as many as there should be, or none.
        """
        if not self._sizes.size:
            return self._samples if begin + self._fixed * self._samples == len(self._view) else -1
        at, steps = begin, 0
        path: list[int] = []
        last = len(self._view) - self._fixed
        while at <= last and at not in self._counts and self._left:
            if at < self._near:
                path.append(at)
            at += self._fixed + sum(self._sizes.unpack_from(self._view, at))
            steps, self._left = steps + 1, self._left - 1
        behind = self._counts.get(at, -1)
        found = steps + behind if behind >= 0 else -1
        self._counts.update((place, max(found - number, -1)) for number, place in enumerate(path))
        return found

    def places(self, begin: int, count: int) -> NDArray[np.int64]:
        """Where so many samples begin, and the last one ends."""
        if not self._sizes.size:
            return begin + self._fixed * np.arange(count + 1, dtype=np.int64)
        found = [begin]
        for _ in range(count):
            found.append(found[-1] + self._fixed + sum(self._sizes.unpack_from(self._view, found[-1])))
        return np.array(found, np.int64)


def _border(data: NDArray[np.uint8], head: _Head, shift: int) -> tuple[int, int]:
    """How many samples lie before the cut, and the number of the first behind it.

    Raises:
        CorruptShard: nothing tells.
    """
    samples = len(head.offset) - 1
    if head.lost:
        return 0, head.lost
    if not shift:
        return samples, samples
    if all(column.size is not None for column in head.columns):
        raise CorruptShard("bytes are missing or came in, and nothing in the samples says where",
                           expected=f"{head.size_bytes} bytes", found=f"{len(data)} bytes")  # fmt: skip
    if head.damaged and int(head.offset[0]) - shift >= 0 and _fits(data, head, shift).all():
        return 0, 0
    before = _leading(_fits(data, head, 0))
    behind = samples - _leading(_fits(data, head, shift)[::-1])
    # Sizes that are all zero are what any zeros are: that they fit does not say that a sample is at its place.
    sized = np.flatnonzero(_value_bytes(head))
    behind = int(np.append(sized, samples)[np.searchsorted(sized, behind)])
    # The sizes of the last one fit: the cut is in its values, unless it is in the sizes of the next one.
    if shift < 0 or not (before < behind and _begins(data, head, before)):
        before = int(np.append(0, sized)[np.searchsorted(sized, before)])
    return before, max(behind, before)


def _begins(data: NDArray[np.uint8], head: _Head, row: int) -> bool:
    """Whether a sample's sizes are cut, but not before the last of them: its first byte is what the others leave.

    False where it is the only one: any byte may be as the first of it.
    """
    varying = sum(column.size is None for column in head.columns)
    if varying == 1:
        return False
    start, last = int(head.offset[row]), int(head.offset[row]) + _NUMBER_BYTES * (varying - 1)
    if last >= len(data):
        return start < len(data)
    fixed = sum(column.size or 0 for column in head.columns) + _NUMBER_BYTES * varying
    others = int(np.frombuffer(data[start:last].tobytes(), "<u4").sum(dtype=np.int64))
    left = int(head.offset[row + 1]) - start - fixed - others
    return left >= 0 and int(data[last]) == left & _LOW_BYTE


def _value_bytes(head: _Head) -> NDArray[np.int64]:
    """Bytes of values whose sizes vary, of each sample."""
    varying = sum(column.size is None for column in head.columns)
    fixed = sum(column.size or 0 for column in head.columns) + _NUMBER_BYTES * varying
    return np.diff(head.offset) - fixed


def _leading(fits: NDArray[np.bool_]) -> int:
    return len(fits) if fits.all() else int(np.argmin(fits))


def _fits(data: NDArray[np.uint8], head: _Head, shift: int) -> NDArray[np.bool_]:
    """Which samples have the sizes that they should have, if they lie so many bytes before their places."""
    varying = sum(column.size is None for column in head.columns)
    fixed = sum(column.size or 0 for column in head.columns) + _NUMBER_BYTES * varying
    # The numbers that begin at every byte of the file, which are not made: only those looked at are.
    numbers = np.ndarray(max(len(data) - _NUMBER_BYTES + 1, 0), "<u4", data, strides=(1,))
    fits = np.zeros(len(head.offset) - 1, np.bool_)
    for first in range(0, len(fits), _FIT_SAMPLES):
        places = head.offset[first : first + _FIT_SAMPLES + 1] - shift
        start, length = places[:-1], np.diff(places)
        # The sizes only: the last sample before a cut may end behind it.
        inside = (start >= 0) & (start + _NUMBER_BYTES * varying <= len(data)) & (length >= _NUMBER_BYTES * varying)
        rows, sizes = np.flatnonzero(inside), np.full(int(inside.sum()), fixed)
        for i in range(varying):
            sizes += numbers[start[rows] + _NUMBER_BYTES * i]
        fits[first + rows] = sizes == length[rows]
    return fits


def _laid_out(head: _Head, shift: int, before: int, behind: int, path: str) -> Recovered:
    """The file as it was: its head made anew, the samples before and behind the cut at their places."""
    count = len(head.offset) - 1
    made = np.concatenate([[count], head.offset]).astype("<u4").tobytes() + head.json
    ends = head.offset
    pieces = [(int(ends[0]), int(ends[0]), int(ends[before] - ends[0])),
              (int(ends[behind]) - shift, int(ends[behind]), int(ends[count] - ends[behind]))]  # fmt: skip
    offset, target, length = np.array([piece for piece in pieces if piece[2]], np.int64).reshape(-1, 3).T
    lost: list[LadingError] = [
        CorruptShard("bytes are missing: the samples around cannot be told apart" if shift > 0 and row == before else
                     f"a sample beside {'missing' if shift > 0 else 'further'} bytes", file=path, row=row,
                     offset=int(ends[row]))
        for row in range(before, behind)
    ]  # fmt: skip
    if head.damaged:
        lost.insert(0, CorruptShard("the head is damaged; it was made anew", file=path, offset=0,
                                    expected=f"the places of {count} samples"))  # fmt: skip
    return Recovered(offset, target, length, head.size_bytes, [(0, made)], np.arange(before, behind), lost)
