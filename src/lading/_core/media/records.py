"""Read the bytes of one record of a media archive.

    version 2   the media has a length:   at `offset`, `length` bytes: one zstd frame
    version 1   it has none:              at `offset`, the *unpacked* length in 4 bytes (or as many as is said),
                                          big-endian; then one zstd frame
    none        not compressed:           at `offset`, `length` bytes

Frames have no magic number; one that has is an ordinary frame: no frame without can begin with its first byte, whose
reserved bit is set. Without magic number, size and checksum nothing in a frame says that it is the right one, so all
that can be checked is: it must end where the record ends, and give what the prefix or its own header says.

Source: datatrove 0.10.1, `pipeline/media/media_readers/zstd.py` and `media_writers/zstd.py`; RFC 8878.
"""

from __future__ import annotations

from dataclasses import dataclass

from lading._core.codecs import decode_range
from lading._core.codecs.zstd_ import MAGIC, decode_sized_frame, frame_end
from lading._core.media.archives import Archive
from lading._core.storage.base import Buffer
from lading.errors import CorruptShard, DataError
from lading.limits import Limits, raised_by

__all__ = ["CODECS", "RecordFormat", "Unpacked"]

CODECS = ("zstd", "none")
"""Compressions of the records of an archive."""

_HEADROOM_BYTES = 1 << 10
_SPARE_SHIFT = 6
"""Honest frames are at most a 64th (and a kilobyte) longer than their content."""
_FIRST_BYTES = 16 << 10
"""Bytes read for a record with its length in a prefix; longer records take a second read."""
_ADVICE = "The archive was cut or edited, or the document's offset and length are not this archive's."

Unpacked = tuple[bytes, int]
"""The bytes of a record, and its stored size in the archive."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How records are read.

    Attributes:
        codec: one of `CODECS`.
        prefix_bytes: size of the length prefix of version 1.
        limits: limits on the unpacked size of a record.
    """

    codec: str
    prefix_bytes: int
    limits: Limits

    def read(self, archive: Archive, offset: int, length: int | None, ahead: int = 0) -> Unpacked:
        """Return a record's bytes; `ahead` as in `Archive.read`. Peak memory: the record, packed and unpacked.

        Raises:
            BadReference: the record is outside the file.
            CorruptShard: it is damaged, cut, or not used completely.
            LimitExceeded: it unpacks to more than `range_bytes`. Raised before allocation.
        """
        try:
            with raised_by("range_bytes"):
                if length is None:
                    return self._read_prefixed(archive, offset)
                self._check(length, length - _spare(length) if self.codec == "zstd" else length)
                return self._unpack(archive.read(offset, length, ahead)), length
        except DataError as error:
            error.offset = offset  # codecs count offsets in unpacked bytes
            error.advice = error.advice or _ADVICE
            raise error.at(file=archive.name) from error.__cause__

    def _unpack(self, data: Buffer) -> bytes:
        codec = "" if self.codec == "none" else "zstd-magicless"
        return decode_range(codec, data, self.limits.range_bytes, self.limits)

    def _check(self, told: int, least: int) -> None:
        if least > self.limits.range_bytes:
            raise self.limits.exceeded("range_bytes", "the record is too long", found=told)

    def _read_prefixed(self, archive: Archive, offset: int) -> Unpacked:
        if self.codec == "none":
            raise CorruptShard("a record that is not compressed needs a length", expected="a length", found="none")
        there = archive.size_bytes - offset
        wanted = self.prefix_bytes + _FIRST_BYTES
        data = memoryview(archive.read(offset, max(min(wanted, there), self.prefix_bytes)))
        size = int.from_bytes(data[: self.prefix_bytes], "big")
        self._check(size, size)
        likely = self.prefix_bytes + size + _spare(size)
        while (frame := _frame_of(data[self.prefix_bytes :])) is None:
            if wanted >= min(there, 4 * likely):
                raise CorruptShard("the zstd frame ends too early", found=f"no end in {len(data)} bytes")
            wanted = max(2 * wanted, likely)
            data = memoryview(archive.read(offset, min(wanted, there)))
        content = decode_sized_frame(frame, size, magicless=frame[:4] != MAGIC)
        return content, self.prefix_bytes + len(frame)


def _frame_of(data: memoryview) -> memoryview | None:
    """Return the frame that begins here; None if it continues after the data."""
    magic = len(MAGIC) if data[:4] == MAGIC else 0
    end = frame_end(data[magic:])
    return None if end is None else data[: magic + end]


def _spare(size: int) -> int:
    return (size >> _SPARE_SHIFT) + _HEADROOM_BYTES
