"""The store contract: where files live, in few verbs.

Local disk, memory, S3 or whatever fsspec opens are one shape: stateless reads by range, on a *batch* of ranges, since
that is where concurrency lives; writes that show nothing until they are published. Behaviour (counting, retries,
length checks) comes from stores wrapped around stores (`lading.storage.wrappers`). Optional abilities are protocols of
their own, asked for with `isinstance`. No store starts a thread or a runtime before it is used, so that a process may
fork after it was made.

What stores have in common stands at the end: names of unfinished files, errors of the system, ranges that cannot be.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

import pyarrow as pa

from lading.arrow.byte_ranges import Buffer, ByteRanges, ReadsInto
from lading.errors import DestinationExists, LadingError, NotFound, ShortRead, StoreError
from lading.storage.extents import ExtentSums

__all__ = [
    "Buffer",
    "FileInfo",
    "MappedFile",
    "Mapper",
    "NativePath",
    "Seals",
    "Sink",
    "Store",
    "SummedSink",
    "TakesChecksum",
    "WritesBehind",
    "aborting",
    "check_inside",
    "extents_of",
    "final_place",
    "has_file",
    "look_at",
    "name_taken",
    "native_path",
    "store_errors",
    "temporary_name",
    "unfinished",
    "write_file",
    "writes_behind",
]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a store knows of a file without opening it.

    Attributes:
        path: as the store names it.
        size_bytes: its size; −1 in a listing for what is no regular file and cannot be read (a dangling link, a pipe).
        version: etag, or modification time in nanoseconds; empty if the store has neither.
    """

    path: str
    size_bytes: int
    version: str = ""


class Sink(Protocol):
    """A file being written. Nothing is visible under its path before `close`, and nothing is left after `abort`."""

    path: str

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order, all of them or an error. A sink keeps no buffer after the call."""

    def tell(self) -> int:
        """Bytes written so far."""

    def close(self) -> FileInfo:
        """Make the file durable and visible under `path`, replacing what was there; give its facts.

        May be called in another thread than `write` was.
        """

    def abort(self) -> None:
        """Drop what was written. Does nothing after `close` or a second time."""


class Store(Protocol):
    """Files by path. Paths are the store's own: a local path, an object key with its scheme.

    Attributes:
        request_bytes: how many bytes take as long to come as one request takes to be answered. Who can do with fewer
            requests by reading more goes by it.
    """

    request_bytes: int

    def head(self, path: str) -> FileInfo:
        """Size and version. Raises NotFound."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Every file below a folder, at any depth, by path in code-point order; nothing if the folder is not there.

        Unfinished files are left out.
        """

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer per `(offset, length)` in bytes, each of exactly that length, in the order asked for.

        Raises NotFound; ShortRead if a range ends past the end of the file.
        """

    def put_stream(self, path: str) -> Sink:
        """A sink for a new file; parent folders come by themselves."""

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Give a finished file or folder its final name, replacing a file or folder of that name.

        Atomic where the store can (`lading.storage.local`); elsewhere file by file, `_lading/manifest.json` last.

        Raises:
            DestinationExists: `replace` is not set, and a file, or a folder with files in it, has that name.
        """

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all below it; nothing happens if it is not there."""


class MappedFile(ReadsInto, Protocol):
    """A file in the address space. Closing is by dropping every buffer made of it."""

    size_bytes: int
    buffer: pa.Buffer

    def check(self) -> None:
        """Raise CorruptShard if the file's size has changed since it was mapped: a touch would kill the process."""

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of a small range, without touching the map: a fault brings 64 KiB into memory and costs more.

        Fewer only at the end of the file.
        """

    def read_each(self, offset: Sequence[int], length: Sequence[int]) -> Iterator[bytes]:
        """Bytes of many ranges, one after another and each only when it is asked for, without touching the map.

        Raises ShortRead for a range past the end.
        """

    def release(self, start: int, stop: int) -> None:
        """Give the pages of `[start, stop)` back; they are read again if touched again."""


@runtime_checkable
class Mapper(Protocol):
    """A store that can map its files."""

    def map(self, path: str) -> MappedFile:
        """The file as one buffer. Raises NotFound."""


@runtime_checkable
class NativePath(Protocol):
    """A sink whose file a native library may write by itself, at `native_path`, before `close` publishes it."""

    native_path: str


@runtime_checkable
class WritesBehind(Protocol):
    """A sink that may write after the call, while its owner reads and builds what comes next; and from file to file.

    What fails then is raised by what is asked of the sink next, but for a few bytes more to be written, and again by
    whatever is asked later. `write`, `tell` and `close` wait for what was given before.
    """

    def write_pieces(self, pieces: ByteRanges) -> None:
        """Append pieces in order. What they lie in stays as it is until `settle`."""

    def later(self, work: Callable[[], None]) -> None:
        """Have a native library write the file at `native_path`, when all that was given before is in it."""

    def settle(self) -> None:
        """Wait until all that was given is in the file."""


def writes_behind(sink: Sink) -> TypeGuard[WritesBehind]:
    """Whether a sink has that ability itself: one that hands on whatever it lacks would be gone round."""
    return isinstance(sink, WritesBehind) and not hasattr(type(sink), "__getattr__")


@runtime_checkable
class Seals(Protocol):
    """A sink that holds next to nothing between its last bytes and `close`, where many files are published at once."""

    def seal(self) -> None:
        """Make the file durable, under no name yet; only `close` or `abort` comes next. May be called in a thread."""


@runtime_checkable
class TakesChecksum(Protocol):
    """A sink that takes the checksum (`lading.storage.checksum`) of its file while the bytes go by.

    Attributes:
        extents: takes those of its extents too, where whoever writes it tells of them.
    """

    extents: ExtentSums

    def take_checksum(self, *, extents: bool) -> None:
        """Do so, and perhaps take those of extents. Called before anything is written."""

    def checksum(self) -> str:
        """Of all that is in the file. Called when all was given, before `close`, and perhaps in another thread.

        What a native library wrote by itself is read again.
        """


class SummedSink(Sink, TakesChecksum, Protocol):
    """A sink that takes a checksum."""


def extents_of(sink: Sink) -> ExtentSums:
    """What is to be told where rows end in the file of a sink: nobody asks it, if the sink takes no checksum."""
    return sink.extents if isinstance(sink, TakesChecksum) else ExtentSums()


_FEW_FILES = 16
_FILE_SCHEME = "file://"
_UNFINISHED = re.compile(r"\..*\.lading-[0-9a-f]{16}(\.tmp|\.lock)?", re.DOTALL)


def native_path(path: str) -> str:
    """A path as the operating system takes it: without `file://`.

    Raises:
        StoreError: no file can have this name (it holds a NUL, or is no text).
    """
    name = path[len(_FILE_SCHEME) :] if path[: len(_FILE_SCHEME)].lower() == _FILE_SCHEME else path
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise StoreError("the path is no valid text", file=ascii(path)) from error
    if b"\0" in encoded:
        raise StoreError("a path cannot hold a NUL", file=ascii(path))
    return name


def final_place(target: str) -> str:
    """Where a folder of this name is to lie: behind the link, if the name is a link to a folder."""
    name = native_path(target.rstrip("/"))
    return os.path.realpath(name) if os.path.islink(name) and os.path.isdir(name) else name


def temporary_name(path: str, ending: str = "") -> str:
    """A new hidden name beside a path: `.{name}.lading-{16 hex digits}{ending}`.

    Long names are cut, since file systems take no more than 255 bytes.
    """
    folder, slash, name = path.rstrip("/").rpartition("/")
    short = name.encode(errors="surrogateescape")[:200].decode(errors="ignore")
    return f"{folder}{slash}.{short}.lading-{secrets.token_hex(8)}{ending}"


def unfinished(name: str) -> bool:
    """Whether a base name is that of a file or folder still being written, or left by a process that died."""
    return _UNFINISHED.fullmatch(name) is not None


_ADVICE = {
    errno.EACCES: "Check the permissions of the file and of the folders above it.",
    errno.EPERM: "Check the permissions of the file and of the folders above it.",
    errno.EROFS: "The place is read-only: write somewhere else.",
    errno.ENOSPC: "The disk is full: free some space, or write somewhere else.",
    errno.EDQUOT: "The quota is used up: free some space, or write somewhere else.",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n), or use fewer workers.",
    errno.ENFILE: "Too many files are open on this machine.",
}


@contextmanager
def store_errors(path: str, *others: type[Exception]) -> Iterator[None]:
    """Errors of the operating system, and of the classes named, as lading's own about this path.

    `errno` is kept, and the original is the cause. Lading's own errors pass.

    Raises:
        NotFound: for FileNotFoundError, and where a part of the path is a file.
        StoreError: for everything else.
    """
    foreign: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except LadingError:
        raise
    except FileNotFoundError as error:
        raise NotFound("no such file", file=path) from error
    except NotADirectoryError as error:
        raise NotFound("a part of the path is no folder", file=path) from error
    except foreign as error:
        number = getattr(error, "errno", None)
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        failed = StoreError(told[:1].lower() + told[1:].rstrip("."), file=path, advice=_ADVICE.get(number or 0))
        failed.errno = number
        raise failed from error


def name_taken(path: str) -> DestinationExists:
    """The error of what may not replace what has its name."""
    return DestinationExists("something lies there", file=path,
                             advice="Choose another place, or replace what is there with --overwrite.")  # fmt: skip


_AnySink = TypeVar("_AnySink", bound=Sink)


@contextmanager
def aborting(sink: _AnySink) -> Iterator[_AnySink]:
    """Drop what a sink holds if the body fails."""
    with ExitStack() as failed:
        failed.callback(sink.abort)
        yield sink
        failed.pop_all()


def write_file(store: Store, path: str, buffers: Sequence[Buffer]) -> FileInfo:
    """A whole file at once; nothing is left of it on failure."""
    with aborting(store.put_stream(path)) as sink:
        sink.write(buffers)
        return sink.close()


def look_at(store: Store, paths: Sequence[str]) -> Iterator[FileInfo]:
    """Facts of files, in order: a look at each, or of many in one folder one listing of it.

    A look is a request to a remote store, and a listing gives a thousand files for one.

    Raises:
        NotFound: one is not there.
    """
    known: dict[str, FileInfo] = {}
    wanted = set(paths)
    for folder, count in Counter(path[: path.rfind("/") + 1] for path in paths).items():
        if count > _FEW_FILES:
            with suppress(StoreError):  # some servers show their files and no lists of them
                known |= {info.path: info for info in store.walk(folder) if info.path in wanted}
    for path in paths:
        info = known.get(path)
        yield store.head(path) if info is None or info.size_bytes < 0 else info


def has_file(store: Store, path: str) -> bool:
    """Whether a file is there."""
    with suppress(NotFound):
        store.head(path)
        return True
    return False


def check_inside(path: str, ranges: Sequence[tuple[int, int]], size_bytes: int) -> None:
    """Raise ShortRead unless every `(offset, length)` lies inside a file of this size.

    For stores to call before they set memory aside: a range may come out of a damaged index.
    """
    for offset, length in ranges:
        if offset < 0 or length < 0 or offset + length > size_bytes:
            raise ShortRead(
                "the range runs past the end of the file",
                file=path,
                offset=offset,
                expected=f"{length} bytes",
                found=f"a file of {size_bytes} bytes",
                advice="The file was cut or replaced since its index was made, or the index is damaged.",
            )
