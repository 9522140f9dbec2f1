"""What is left of a damaged MDS shard: each sample where its head says, the head made anew.

    uint32 n, uint32 offset[n + 1], JSON of the columns, samples

A sample says the sizes of its values, and they add up to its own. So a table of offsets that is damaged is found again
by walking from sample to sample, and where bytes are missing, the samples before the cut are those that fit where they
should be, and those behind it the ones that fit so many bytes earlier. The last sample that fits before the cut lost
bytes of its values, or may have: unless the sizes of the next one are cut after their first bytes, nothing tells, and
it is lost. Where bytes came in, it is the same, so many bytes
later. Of samples whose values are all of one size nothing can be told in this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError, LadingError, errors_at
from lading.formats._mds_index import Column, Entry, parse_config, parse_entry
from lading.formats.protocol import Remains
from lading.store.protocol import MappedFile

__all__ = ["resync_samples"]

_NUMBER_BYTES = 4
_JSON_STARTS = b'{"'
_BRACE, _LOW_BYTE = ord("}"), 0xFF
_MAX_HEAD_BYTES = 1 << 30
_MAX_JSON_BYTES = 1 << 20
_DAMAGED_BYTES = 8 << 10
"""Of the JSON, behind which the first sample is looked for at every byte, if its end is not to be found."""
_FAR_BYTES = 64 << 10
"""Behind the beginning, where a sample is looked for from which the others follow to the end, if the first is lost."""
_MOST_TRIES = 1000


def resync_samples(mapped: MappedFile, path: str, entry: str) -> Remains | None:
    """The samples that fit their places; None if there is nothing that laying the file out anew would mend.

    Raises:
        DataError: the head is damaged, and nothing says where samples lie.
    """
    with errors_at(file=path):
        told = parse_entry(entry) if entry else None
        view = memoryview(mapped.buffer)
        data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        head = _head(data, told)
        shift = head.size_bytes - len(data)
        if not shift and not head.damaged:
            return None
        before, behind = _border(data, head, shift)
    return _laid_out(head, shift, before, behind, path)


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


def _head(data: NDArray[np.uint8], entry: Entry | None) -> _Head:
    """The head, as it stands or found again.

    Raises:
        DataError: nothing says what it was.
    """
    stated = int(data[:_NUMBER_BYTES].view("<u4")[0]) if len(data) >= _NUMBER_BYTES else 0
    if entry is not None:
        samples, columns, size = entry.samples, entry.config.columns, entry.raw.size_bytes
        end = _NUMBER_BYTES * (samples + 2)
        offset = _offsets(data, samples)
        if stated == samples and _is_sound(offset, end) and int(offset[-1]) == size:
            json = data[end : int(offset[0])].tobytes()
            return _Head(offset, columns, json, not _is_json(json))
        return _refound(data, samples, columns, size, end)
    start, text = _json(data, stated)
    columns = parse_config(orjson.loads(text)).columns
    samples = start // _NUMBER_BYTES - 2
    offset = _offsets(data, samples)
    begin = start + len(text)
    if _is_sound(offset, start) and int(offset[0]) == begin:
        return _Head(offset, columns, text, stated != samples)
    found = _walked(data, begin, columns, samples)
    if found is None:
        raise CorruptShard("the places of samples are damaged, and cannot be found again", offset=_NUMBER_BYTES)
    return _Head(found, columns, text, damaged=True)


def _offsets(data: NDArray[np.uint8], samples: int) -> NDArray[np.int64]:
    """The table of offsets, shorter where the file is."""
    stop = min(_NUMBER_BYTES * (samples + 2), len(data) // _NUMBER_BYTES * _NUMBER_BYTES)
    return data[_NUMBER_BYTES:stop].view("<u4").astype(np.int64)


def _is_sound(offset: NDArray[np.int64], end: int) -> bool:
    return len(offset) > 0 and int(offset[0]) >= end and bool((np.diff(offset) >= 0).all())


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _json(data: NDArray[np.uint8], stated: int) -> tuple[int, bytes]:
    """Where the JSON of the columns begins, and the text itself: where the count says, or wherever there is one."""
    text = data[:_MAX_HEAD_BYTES].tobytes()
    starts = [_NUMBER_BYTES * (stated + 2)]
    at = text.find(_JSON_STARTS)
    while at >= 0 and len(starts) < _MOST_TRIES:
        starts.append(at)
        at = text.find(_JSON_STARTS, at + 1)
    for start in starts:
        end = _object_end(text, start) if start % _NUMBER_BYTES == 0 else 0
        if end:
            return start, text[start:end]
    raise CorruptShard("the JSON of the columns is damaged, and no index says what it was", offset=0,
                       advice="Open the shard by its index.json, if there is one.")  # fmt: skip


def _object_end(text: bytes, start: int) -> int:
    """Where a description of columns that begins here ends; 0 if none does."""
    end = start
    for _ in range(_MOST_TRIES):
        end = text.find(b"}", end) + 1
        if not end:
            return 0
        try:
            parse_config(orjson.loads(text[start:end]))
        except (orjson.JSONDecodeError, DataError, AttributeError):
            continue
        return end
    return 0


def _refound(data: NDArray[np.uint8], samples: int, columns: Sequence[Column], size_bytes: int, end: int) -> _Head:
    """The head of a shard whose index says how many samples there are; they are walked from the first one on.

    Raises:
        CorruptShard: the walk does not come to the end.
    """
    missing = size_bytes - len(data)
    low = max(end - missing, 0)
    text = data[low : low + _MAX_JSON_BYTES].tobytes()
    braces = [low + at + 1 for at, byte in enumerate(text) if byte == _BRACE]
    for begin in [*braces, *range(low, min(low + _DAMAGED_BYTES, len(data)))]:
        found = _walked(data, begin, columns, samples)
        if found is not None:
            room = begin + missing - end
            json = data[begin - room : begin].tobytes() if 0 <= room <= begin else b""
            return _Head(found + missing, columns, json if _is_json(json) else bytes(max(room, 0)), damaged=True)
    for begin in range(low, min(low + _FAR_BYTES, len(data))):
        found = _walked(data, begin, columns, samples, fewer=True)
        if found is not None:
            lost = samples + 1 - len(found)
            offset = np.concatenate([np.full(lost, found[0]), found]) + missing
            return _Head(offset, columns, bytes(max(int(offset[0]) - end, 0)), damaged=True, lost=lost)
    raise CorruptShard("the places of samples are damaged, and cannot be found again", offset=_NUMBER_BYTES)


def _walked(
    data: NDArray[np.uint8], begin: int, columns: Sequence[Column], samples: int, *, fewer: bool = False
) -> NDArray[np.int64] | None:
    """Where samples lie, from the first one on; None if so many (or `fewer`) do not end where the file does."""
    varying = sum(column.size is None for column in columns)
    fixed = sum(column.size or 0 for column in columns) + _NUMBER_BYTES * varying
    if not varying:
        offset = begin + fixed * np.arange(samples + 1, dtype=np.int64)
        return offset if int(offset[-1]) == len(data) else None
    at, found = begin, [begin]
    for _ in range(samples):
        sizes = data[at : at + _NUMBER_BYTES * varying]
        if len(sizes) < _NUMBER_BYTES * varying:
            return None
        at += fixed + int(np.frombuffer(sizes.tobytes(), "<u4").sum(dtype=np.int64))
        if at > len(data):
            return None
        found.append(at)
        if fewer and at == len(data):
            break
    return np.array(found, np.int64) if at == len(data) else None


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
    if int(head.offset[0]) - shift >= 0 and _fits(data, head, shift).all():
        return 0, 0
    before = _leading(_fits(data, head, 0))
    behind = samples - _leading(_fits(data, head, shift)[::-1])
    # The sizes of the last one fit: the cut is in its values, unless it is in the sizes of the next one.
    if shift < 0 or not (before < behind and _begins(data, head, before)):
        before = max(before - 1, 0)
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


def _leading(fits: NDArray[np.bool_]) -> int:
    return len(fits) if fits.all() else int(np.argmin(fits))


def _fits(data: NDArray[np.uint8], head: _Head, shift: int) -> NDArray[np.bool_]:
    """Which samples have the sizes that they should have, if they lie so many bytes before their places."""
    start, stop = head.offset[:-1] - shift, head.offset[1:] - shift
    varying = sum(column.size is None for column in head.columns)
    fixed = sum(column.size or 0 for column in head.columns) + _NUMBER_BYTES * varying
    # The sizes only: the last sample before a cut may end behind it.
    inside = (start >= 0) & (start + _NUMBER_BYTES * varying <= len(data)) & (stop - start >= _NUMBER_BYTES * varying)
    at = np.where(inside, start, 0)[:, None] + np.arange(_NUMBER_BYTES * varying)
    sizes = data[np.minimum(at, len(data) - 1)].view("<u4").astype(np.int64).sum(axis=1)
    fits: NDArray[np.bool_] = inside & (fixed + sizes == stop - start)
    return fits


def _laid_out(head: _Head, shift: int, before: int, behind: int, path: str) -> Remains:
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
    return Remains(offset, target, length, head.size_bytes, [(0, made)], np.arange(before, behind), lost)
