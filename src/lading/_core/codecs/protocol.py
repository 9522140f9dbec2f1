"""The codec contract, and the one loop that unpacks every kind of stream.

A compressed file is one member after another (gzip members, zstd frames, bz2 and xz streams). A codec unpacks one
member. `StreamDecoder` does the rest: further members, bounded output, the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from lading.errors import CorruptShard, DataError, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "PIECE_BYTES",
    "Codec",
    "Data",
    "Member",
    "MemberPacker",
    "StreamDecoder",
    "StreamEncoder",
    "refuse_lack_of_memory",
    "unpack",
]

Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Bytes in memory, of any type."""

PIECE_BYTES = 1 << 20
"""Largest output of one unpacking step."""

_STEP_BYTES = 64 << 10
_WAITING_BYTES = 64 << 10
"""Input that a compressor holds, on average, when it has returned something."""
_LACKS_OF_MEMORY = ("Allocation error", "Error -4 ")
"""Parts of the messages of libzstd (`ZSTD_error_memory_allocation`) and zlib (`Z_MEM_ERROR`); others raise MemoryError.
"""


class Member(Protocol):
    """Unpacks one member. The interface of `bz2.BZ2Decompressor` and `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool:
        """Return whether the end of the member has been reached."""

    @property
    def needs_input(self) -> bool:
        """Return whether more input is needed for more output."""

    @property
    def unused_data(self) -> bytes:
        """Return the input after the end of the member."""

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        """Take input (it may be empty); return at most `max_length` bytes."""


class MemberPacker(Protocol):
    """Packs one member. The interface of the compressor objects of `zlib`, `bz2`, `lzma` and `zstandard`."""

    def compress(self, data: Data, /) -> bytes:
        """Take input; return the packed bytes that are ready, perhaps none."""

    def flush(self) -> bytes:
        """Return the rest of the member."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A kind of compressed stream.

    Attributes:
        name: its name in files tables and options.
        member: return a decompressor for the next member, within memory limits.
        errors: exceptions of the decompressor for damaged input.
        padding: whether zero bytes between and after members are accepted, as in the codec's own tool.
        packer: return a compressor for a level and, if known, the size of the whole input.
        levels: lowest, usual and highest level.
        limit: name of the limit of the memory for unpacking; empty if that memory is always small.
    """

    name: str
    member: Callable[[Limits], Member]
    errors: tuple[type[Exception], ...]
    padding: bool
    packer: Callable[[int, int | None], MemberPacker]
    levels: tuple[int, int, int]
    limit: str = ""


class StreamDecoder:
    """Unpack a stream of members given in parts. Peak memory: the codec's window and two output pieces.

    Errors have the offset in the unpacked stream, which is also the offset in references.

    Attributes:
        whole_bytes: compressed bytes up to the end of the last complete member.
    """

    def __init__(self, codec: Codec, limits: Limits = DEFAULT_LIMITS) -> None:
        self._codec, self._limits = codec, limits
        self._member: Member | None = None
        self._taken = self._given = self._members = self.whole_bytes = 0

    def feed(self, data: Data) -> Iterator[bytes]:
        """Yield the unpacked bytes of the next part of the stream, in pieces of at most `PIECE_BYTES`.

        Exhaust the iterator before the next call. Unpacking is lazy, so a small input that unpacks to terabytes costs
        nothing until it is consumed.

        Raises:
            CorruptShard: the stream is damaged.
            LimitExceeded: unpacking it needs too large a window (`zstd_window_bytes`, `xz_memory_bytes`).
            MemoryError: the machine has no memory left.
        """
        view = memoryview(data)
        if view.nbytes:
            view = view.cast("B")
        # In small steps: a codec copies the input after a member, which would be quadratic for many small members.
        for start in range(0, view.nbytes, _STEP_BYTES):
            yield from self._step(bytes(view[start : start + _STEP_BYTES]))

    def finish(self) -> None:
        """Mark the end of the input.

        Raises:
            CorruptShard: the stream ends inside a member, or has no member.
        """
        if self._member is not None or not self._members:
            raise CorruptShard(
                f"the {self._codec.name} stream {'ends too early' if self._taken else 'is empty'}",
                offset=self._given,
                found=f"its end after {self._taken} compressed bytes",
            )

    def _step(self, data: bytes) -> Iterator[bytes]:
        self._taken += len(data)
        while data:
            if self._member is None:
                if self._codec.padding and self._members:
                    data = data.lstrip(b"\0")
                    if not data:
                        return
                self._member = self._codec.member(self._limits)
            try:
                yield from self._unpack(self._member, data)
            except self._codec.errors as error:
                refuse_lack_of_memory(error)
                raise self._failed(error) from error
            if not self._member.eof:
                return
            data = self._member.unused_data
            self._member = None
            self._members += 1
            self.whole_bytes = self._taken - len(data)

    def _unpack(self, member: Member, data: bytes) -> Iterator[bytes]:
        piece = member.decompress(data, PIECE_BYTES)
        while True:
            if piece:
                self._given += len(piece)
                yield piece
            if member.eof or member.needs_input:
                return
            piece = member.decompress(b"", PIECE_BYTES)

    def _failed(self, error: Exception) -> DataError:
        found = f"{error}, in its first {self._taken} compressed bytes"
        if self._codec.limit and "memory" in str(error).lower():
            # Messages of liblzma and libzstd for a stream that needs a larger window than allowed.
            return self._limits.exceeded(
                self._codec.limit, f"the {self._codec.name} stream needs too much memory", offset=self._given,
                found=found,
            )  # fmt: skip
        return CorruptShard(f"the {self._codec.name} stream is damaged", offset=self._given, found=found)


def refuse_lack_of_memory(error: Exception) -> None:
    """Raise MemoryError for a library's out-of-memory message, which says nothing about the stream."""
    if any(text in str(error) for text in _LACKS_OF_MEMORY):
        raise MemoryError(str(error)) from error


class StreamEncoder:
    """Pack a stream into one member. Equal input in equal parts gives equal bytes."""

    def __init__(self, packer: MemberPacker) -> None:
        self._packer = packer
        self._taken = self._waiting = self._given = 0

    def feed(self, data: Data) -> bytes:
        """Take the next part; return the packed bytes that are ready, perhaps none."""
        size, packed = memoryview(data).nbytes, self._packer.compress(data)
        self._taken += size
        self._given += len(packed)
        self._waiting = min(size, _WAITING_BYTES) if packed else self._waiting + size
        return packed

    def packed_bytes(self) -> int:
        """Return the size of the packed stream if it ended now, of which a part is an estimate."""
        done = self._taken - self._waiting
        return self._given + int(self._waiting * (min(self._given / done, 1.0) if done > 0 and self._given else 1.0))

    def finish(self) -> bytes:
        """Return the rest of the packed stream."""
        return self._packer.flush()


def unpack(codec: Codec, data: Data, max_bytes: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Unpack a whole stream of at most `max_bytes`. Raises CorruptShard, LimitExceeded."""
    decoder = StreamDecoder(codec, limits)
    pieces, total = [], 0
    for piece in decoder.feed(data):
        total += len(piece)
        if total > max_bytes:
            raise LimitExceeded(
                f"the {codec.name} stream unpacks to too much", expected=f"at most {max_bytes} bytes", found="more"
            )
        pieces.append(piece)
    decoder.finish()
    return b"".join(pieces)
