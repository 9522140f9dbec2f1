"""The store contract: files behind few operations.

Local disk, memory, S3 and every fsspec backend share one shape. Reads are stateless and take a *batch* of ranges,
because a batch allows concurrency. Writes stay invisible until they are published. Counting, retries and length checks
are stores that wrap other stores (`_core.storage.wrappers`). Optional abilities are separate protocols, tested with
`isinstance`. No store starts a thread or a runtime before its first use, so a process may fork after it made a store.

Shared helpers are at the end: names of unfinished files, errors of the system, checks of ranges.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

import pyarrow as pa

from lading._core.arrow.byte_ranges import Buffer, ByteRanges, ReadsInto
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.extents import ExtentSums
from lading.errors import CorruptShard, DestinationExists, LadingError, NotFound, ShortRead, StoreError

__all__ = [
    "Buffer",
    "Copies",
    "Creates",
    "FileInfo",
    "MappedFile",
    "Mapper",
    "NativePath",
    "OpenFile",
    "Seals",
    "Sink",
    "Store",
    "SummedSink",
    "TakesChecksum",
    "WritesBehind",
    "aborting",
    "check_inside",
    "check_version",
    "extents_of",
    "file_infos",
    "final_place",
    "has_file",
    "name_taken",
    "native_path",
    "no_file",
    "store_errors",
    "temporary_name",
    "unfinished",
    "without_query",
    "write_file",
    "writes_behind",
]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Facts of a file that a store knows without opening it.

    Attributes:
        path: the path as the store names it.
        size_bytes: size of the file; −1 in a listing for a path that is not a regular file (a dangling link, a pipe).
        version: etag, or modification time in nanoseconds; empty if the store has neither.
    """

    path: str
    size_bytes: int
    version: str = ""


class Sink(Protocol):
    """A file being written. It is invisible under its path before `close`, and `abort` leaves nothing."""

    path: str

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order: all of them, or raise an error. A sink keeps no buffer after the call."""

    def tell(self) -> int:
        """Return the number of bytes written so far."""

    def close(self) -> FileInfo:
        """Make the file durable and visible under `path`, replacing an existing file; return its facts.

        May be called in another thread than `write` was.
        """

    def abort(self) -> None:
        """Drop the written bytes. Does nothing after `close` or on a second call."""


class Store(Protocol):
    """Files by path. Each store has its own paths: a local path, or an object key with its scheme.

    Attributes:
        request_bytes: number of bytes whose transfer takes as long as the latency of one request. Callers use it to
            decide whether to read a gap or to make another request.
    """

    request_bytes: int

    def head(self, path: str) -> FileInfo:
        """Return size and version. Raises NotFound."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield every file below a folder, at any depth, by path in code-point order; nothing if the folder is missing.

        Unfinished files are left out.
        """

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one buffer of exactly `length` bytes per `(offset, length)`, in the given order.

        With a `version` (`FileInfo.version`), all bytes are of that version.

        Raises NotFound; ShortRead if a range ends past the end of the file; CorruptShard if the file has another
        version now.
        """

    def put_stream(self, path: str) -> Sink:
        """Return a sink for a new file; missing parent folders are created."""

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Give a finished file or folder its final name, replacing a file or folder of that name.

        Atomic where the store supports it (`_core.storage.local`). Other stores publish file by file,
        `_lading/manifest.json` last.

        Raises:
            DestinationExists: `replace` is not set, and a file, or a folder with files in it, has that name.
        """

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with everything below it; do nothing if it is missing."""


class OpenFile(ReadsInto, Protocol):
    """A file of this machine that is read by place. A change of its size is an error of the next read.

    Attributes:
        size_bytes: size when it was opened.
    """

    size_bytes: int

    @property
    def version(self) -> str:
        """Return the version when it was opened, as `FileInfo.version`."""

    def check(self) -> None:
        """Raise CorruptShard if the file's size has changed since it was opened."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of a small range. The result is shorter only at the end of the file."""

    def read_each(self, offset: Sequence[int], length: Sequence[int]) -> Iterator[bytes]:
        """Yield the bytes of many ranges, each read on demand.

        Raises CorruptShard, at the end, if the file was written to; ShortRead for a range past the end.
        """


class MappedFile(OpenFile, Protocol):
    """A file in the address space. It is closed when every buffer made of it is dropped.

    Its methods read, and do not touch the map: a page fault reads 64 KiB and costs more. Call `check` before touching
    the map: touching lost pages kills a process.
    """

    buffer: pa.Buffer

    def release(self, start: int, stop: int) -> None:
        """Release the pages of `[start, stop)`; they are read again when they are touched again."""


@runtime_checkable
class Mapper(Protocol):
    """A store whose files can be kept open: for reading, or as maps."""

    def open_file(self, path: str) -> OpenFile:
        """Return the file, open for reading. Nothing of it is mapped. Raises NotFound."""

    def map(self, path: str) -> MappedFile:
        """Return the file as one buffer. Raises NotFound."""


@runtime_checkable
class Copies(Protocol):
    """A store that gives names file by file, in most cases by copies: an object store.

    What is built there is copied once, when it gets its final name.
    """

    def copy_all(self, copies: Sequence[tuple[FileInfo, str]]) -> None:
        """Copy files, each to another path, many at once. A store may rename them instead.

        Raises NotFound.
        """

    def folders(self, parent: str) -> list[str]:
        """Return the paths of the folders in a folder; none if that is missing."""


@runtime_checkable
class Creates(Protocol):
    """A store that can refuse to replace a file."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a file, whole and durable, unless one of this name exists; return whether this call wrote it."""


@runtime_checkable
class NativePath(Protocol):
    """A sink whose file a native library may write itself, at `native_path`, before `close` publishes it."""

    native_path: str


@runtime_checkable
class WritesBehind(Protocol):
    """A sink that may write in the background, also from file to file, while its owner reads and builds the next batch.

    If a background write fails, a later call raises the error, and so does every call after that one; small writes may
    succeed before. `write`, `tell` and `close` wait for earlier writes.
    """

    def write_pieces(self, pieces: ByteRanges) -> None:
        """Append ranges in order. Their source memory and files must stay unchanged until `settle`."""

    def later(self, work: Callable[[], None]) -> None:
        """Let a native library write the file at `native_path`, after all earlier writes."""

    def settle(self) -> None:
        """Wait until all earlier writes are in the file."""


def writes_behind(sink: Sink) -> TypeGuard[WritesBehind]:
    """Return whether a sink itself writes in the background; a wrapper that only forwards would be bypassed."""
    return isinstance(sink, WritesBehind) and not hasattr(type(sink), "__getattr__")


@runtime_checkable
class Seals(Protocol):
    """A sink that holds almost no resources between its last bytes and `close`, for publishing many files at once."""

    def seal(self) -> None:
        """Make the file durable without its final name. Only `close` or `abort` may follow.

        May be called in a thread.
        """


@runtime_checkable
class TakesChecksum(Protocol):
    """A sink that takes the checksum (`_core.storage.checksum`) of its file while the bytes pass.

    Attributes:
        extents: takes the checksums of extents too, if the writer marks the ends of rows.
    """

    extents: ExtentSums

    def take_checksum(self, *, extents: bool) -> None:
        """Take the checksum, and those of extents if given. Called before the first write."""

    def checksum(self) -> str:
        """Return the checksum of the whole file. Called after the last write, before `close`, in any thread.

        Bytes that a native library wrote itself are read again.
        """


class SummedSink(Sink, TakesChecksum, Protocol):
    """A sink that takes a checksum."""


def extents_of(sink: Sink) -> ExtentSums:
    """Return the object to mark ends of rows in the file of a sink; one that nobody reads if it takes no checksum."""
    return sink.extents if isinstance(sink, TakesChecksum) else ExtentSums()


_FEW_FILES = 16
_FILE_SCHEME = "file://"
_UNFINISHED = re.compile(r"\..*\.lading-[0-9a-f]{16}(\.tmp|\.lock)?", re.DOTALL)


def native_path(path: str) -> str:
    """Return a path as the operating system accepts it: without `file://`.

    Raises:
        StoreError: no file can have this name (it holds a NUL, or is not valid text).
    """
    name = path[len(_FILE_SCHEME) :] if path[: len(_FILE_SCHEME)].lower() == _FILE_SCHEME else path
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise StoreError("the path is not valid text", file=ascii(path)) from error
    if b"\0" in encoded:
        raise StoreError("a path cannot hold a NUL", file=ascii(path))
    return name


def without_query(path: str) -> str:
    """Return a web URL without its query (`?` and what follows); other paths unchanged."""
    return path.partition("?")[0] if path.startswith(("http://", "https://")) else path


def final_place(target: str) -> str:
    """Return the final place of a folder: the target of the link, if the name is a link to a folder."""
    name = native_path(target.rstrip("/"))
    return os.path.realpath(name) if os.path.islink(name) and os.path.isdir(name) else name


def temporary_name(path: str, ending: str = "") -> str:
    """Return a new hidden name next to a path: `.{name}.lading-{16 hex digits}{ending}`.

    Long names are cut, because file systems accept at most 255 bytes.
    """
    folder, slash, name = path.rstrip("/").rpartition("/")
    short = name.encode(errors="surrogateescape")[:200].decode(errors="ignore")
    return f"{folder}{slash}.{short}.lading-{secrets.token_hex(8)}{ending}"


def unfinished(name: str) -> bool:
    """Return whether a base name belongs to an unfinished file or folder, perhaps of a process that died."""
    return _UNFINISHED.fullmatch(name) is not None


_ADVICE = {
    errno.EACCES: "Check the permissions of the file and of the folders above it.",
    errno.EPERM: "Check the permissions of the file and of the folders above it.",
    errno.EROFS: "The place is read-only: write somewhere else.",
    errno.ENOSPC: "The disk is full: free some space, or write somewhere else.",
    errno.EDQUOT: "The quota is used up: free some space, or write somewhere else.",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n), or use fewer workers.",
    errno.ENFILE: "Too many files are open on this machine.",
    errno.EFBIG: "Files may not be that large here: raise the limit (ulimit -f), or write somewhere else.",
    errno.EIO: "The disk failed there. A copy made with ddrescue has the parts that can be read.",
}


def store_errors(path: str, *others: type[Exception]) -> AbstractContextManager[None]:
    """Convert errors of the operating system, and of the given classes, into lading's own errors about this path.

    `errno` is kept, and the original is the cause. Lading's own errors pass.

    Raises:
        NotFound: for FileNotFoundError, and where a part of the path is a file.
        StoreError: for everything else.
    """
    return _StoreErrors(path, others)


class _StoreErrors(AbstractContextManager[None]):
    """What `store_errors` does: a generator would take three times as long, and files are opened by the thousand."""

    __slots__ = ("_others", "_path")

    def __init__(self, path: str, others: tuple[type[Exception], ...]) -> None:
        self._path, self._others = path, others

    def __enter__(self) -> None:
        """Nothing is done before an error."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None or isinstance(error, LadingError):
            return
        if isinstance(error, FileNotFoundError):
            raise NotFound("no such file", file=self._path) from error
        if isinstance(error, NotADirectoryError):
            raise NotFound("a part of the path is not a folder", file=self._path) from error
        if isinstance(error, (OSError, *self._others)):
            raise _failed(self._path, error) from error


def _failed(path: str, error: BaseException) -> StoreError:
    number = getattr(error, "errno", None)
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, PermissionError):  # pyarrow's text repeats the path
        message = os.strerror(errno.EACCES)
    failed = StoreError(message[:1].lower() + message[1:].rstrip("."), file=path, advice=_ADVICE.get(number or 0))
    failed.errno = number
    return failed


def no_file(path: str, found: str) -> StoreError:
    """Return the error for something else in the place of a file, such as a folder or a pipe."""
    error = StoreError("not a file", file=path, expected="a regular file", found=found)
    error.errno = errno.EISDIR if "folder" in found or "director" in found else errno.ENXIO
    return error


def name_taken(path: str) -> DestinationExists:
    """Return the error for a name that exists and must not be replaced."""
    return DestinationExists("something is there already", file=path,
                             advice="Choose another place, or replace what is there with --overwrite.")  # fmt: skip


_AnySink = TypeVar("_AnySink", bound=Sink)


@contextmanager
def aborting(sink: _AnySink) -> Iterator[_AnySink]:
    """Abort a sink if the body fails."""
    with ExitStack() as failed:
        failed.callback(sink.abort)
        yield sink
        failed.pop_all()


def write_file(store: Store, path: str, buffers: Sequence[Buffer]) -> FileInfo:
    """Write a whole file at once; leave nothing on failure."""
    with aborting(store.put_stream(path)) as sink:
        sink.write(buffers)
        return sink.close()


def file_infos(store: Store, paths: Sequence[str]) -> Iterator[FileInfo]:
    """Return facts of files, in order: one request a file, 16 at once, or one listing for many files of one folder.

    On a remote store, one listing returns a thousand files for the cost of one request.

    Raises:
        NotFound: one file is missing.
    """
    known: dict[str, FileInfo] = {}
    wanted = set(paths)
    for folder, count in Counter(path[: path.rfind("/") + 1] for path in paths).items():
        if count > _FEW_FILES:
            with suppress(StoreError):  # some servers serve files and no listings
                known |= {info.path: info for info in store.walk(folder) if info.path in wanted}
    known = {path: info for path, info in known.items() if info.size_bytes >= 0}
    unknown = [path for path in paths if path not in known]
    heads = concurrent_map([partial(store.head, path) for path in unknown], remote=is_remote(store))
    for path in paths:
        yield known[path] if path in known else next(heads)


def has_file(store: Store, path: str) -> bool:
    """Return whether a file exists."""
    with suppress(NotFound):
        store.head(path)
        return True
    return False


def check_version(path: str, expected: str, found: str) -> None:
    """Raise CorruptShard if a file has another version than was asked for; every version is right if that is empty."""
    if expected and found != expected:
        raise CorruptShard(
            "the file was replaced after it was opened",
            file=path,
            expected=f"version {expected}",
            found=f"version {found}" if found else "no version",
            advice="Open the dataset again. Do not write to data that is being read: write new files.",
        )


def check_inside(path: str, ranges: Sequence[tuple[int, int]], size_bytes: int) -> None:
    """Raise ShortRead unless every `(offset, length)` is inside a file of this size.

    Stores call it before they allocate memory: a range may come from a damaged index.
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
