"""Files of this machine.

A path is a path of the operating system, relative or absolute, or `file://` and an absolute path (no percent-decoding,
as in fsspec). Only regular files are files. A pipe, socket, device or folder is refused before it is opened, because
opening some of them blocks or has effects. Links to files and folders are followed.

A file being written has a hidden name in its own folder; a folder being built has one next to its place
(`_core.storage.staging`). Listings leave both out.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from threading import Lock
from weakref import WeakValueDictionary

import pyarrow as pa

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.storage.appender import Appender
from lading._core.storage.background import Background
from lading._core.storage.base import (
    Buffer,
    FileInfo,
    check_inside,
    check_version,
    final_place,
    name_taken,
    native_path,
    no_file,
    store_errors,
    temporary_name,
    unfinished,
)
from lading._core.storage.checksum import Checksum, add_file
from lading._core.storage.descriptors import Descriptor, Reopened, close_unused
from lading._core.storage.exchange import exchange_names
from lading._core.storage.extents import ExtentSums
from lading._core.storage.lock import lock_file
from lading.errors import CorruptShard, LadingError, NotFound, ShortRead

__all__ = ["LocalFile", "LocalMap", "LocalSink", "LocalStore", "maps_of"]

_MOST_HELD_BYTES = 96 << 20
"""Bytes in memory that may wait to be written while the next are produced."""
_LITTLE_BYTES, _MOST_LITTLE = 4 << 20, 4
"""Bytes in memory of a batch that may wait behind others, and how many such batches may wait. Bytes in files take no
memory. Reader and writer take turns in being the slower one: with one waiting batch, each waits a tenth of the time."""
_MOST_READ_BYTES = (1 << 31) - (1 << 20)
"""Of one call: Linux reads no more, and macOS refuses more."""
_BLOCK_BYTES = 16 << 20
"""Of one call that gives a copy."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_MAP_FAILED = ctypes.c_void_p(-1).value


class LocalStore:
    """The local file system. Holds nothing open; threads may share it, and forks may inherit it."""

    request_bytes = 16 << 10

    def head(self, path: str) -> FileInfo:
        """Return size, and modification time in nanoseconds as the version.

        Raises NotFound, or StoreError if not a file.
        """
        with store_errors(path):
            status = os.stat(native_path(path))
        _require_file(path, status)
        return _info(path, status)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield everything below a folder except folders, by path in code-point order; links to folders are entered.

        A path that is not a regular file, or a dangling link, has `size_bytes` −1. Unfinished files and folders of
        lading are left out, and so is a link to a folder above itself. Nothing is yielded if `prefix` is not a folder.
        """
        root = native_path(prefix) or "."
        with store_errors(prefix):
            try:
                if not stat.S_ISDIR(os.stat(root).st_mode):
                    return
            except (FileNotFoundError, NotADirectoryError):
                return
            lead = prefix if prefix.endswith("/") or not prefix else prefix + "/"
            yield from _walk(root, lead)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one read-only memory view per range. The views share one buffer: keeping one keeps all."""
        with _open_file(path) as (fd, status), store_errors(path):
            if version:
                check_version(path, version, _info(path, status).version)
            check_inside(path, ranges, status.st_size)
            # Into one buffer of pyarrow's pool: reused memory costs no page faults. Four times as fast as bytes objects
            # for batches of 64 MB (8 GB/s against 1.9).
            total = sum(length for _, length in ranges)
            body = memoryview(pa.allocate_buffer(total)).cast("B") if total else memoryview(bytearray())
            answers: list[Buffer] = []
            at = 0
            for offset, length in ranges:
                part = body[at : at + length]
                _fill(path, fd, part, offset)
                answers.append(part.toreadonly())
                at += length
            return answers

    def open_file(self, path: str) -> LocalFile:
        """Return the file, open for reading."""
        with _open_file(path) as (fd, status), store_errors(path):
            return LocalFile(path, status, os.dup(fd))

    def map(self, path: str) -> LocalMap:
        """Return the file as one read-only buffer over its pages. Nothing is read until it is touched.

        If the same file is already mapped under this name, and has not changed, the same map is returned.
        """
        with _open_file(path) as (fd, status), store_errors(path):
            key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            found = _mapped.get(key)
            if found is None:
                buffer = _map_pages(fd, status.st_size) if status.st_size else pa.py_buffer(b"")
                found = _mapped[key] = LocalMap(path, buffer, status, os.dup(fd))
                _note_place(found)
            return found

    def put_stream(self, path: str) -> LocalSink:
        """Return a sink for a new file; missing parent folders are created, and stay if the sink is aborted."""
        return LocalSink(path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Move a file or folder to its final name, in one step, and make that durable.

        An existing folder there, also behind a link, is exchanged for the new one in one step and then deleted. On file
        systems that cannot exchange two names (some network ones), nothing is changed. Without `replace`, existing data
        stays, whenever it appeared; only empty folders and unfinished files are replaced.

        Raises:
            NotFound: no such source.
            DestinationExists: the target exists and must not be replaced.
            StoreError: among others, the file system cannot exchange names.
        """
        old, new = native_path(source.rstrip("/")), final_place(target)
        with store_errors(source):
            folder = stat.S_ISDIR(os.lstat(old).st_mode)
            if folder:
                _sync_folders(old)
        with store_errors(target):
            os.makedirs(os.path.dirname(new) or ".", exist_ok=True)
            if not replace and not _renamed_if_free(old, new, folder=folder):
                replace = folder and os.path.isdir(new) and next(self.walk(new), None) is None
                if not replace:
                    raise name_taken(target)
            if replace and (os.path.isdir(new) or (folder and os.path.lexists(new))):
                exchange_names(old, new)
                self.delete(old)
            elif replace:
                os.replace(old, new)
            for parent in {os.path.dirname(old) or ".", os.path.dirname(new) or "."}:
                _sync_names(parent)

    def delete(self, path: str) -> None:
        """Remove a file, a link (not its target) or a folder with everything below it."""
        name = native_path(path.rstrip("/"))
        with store_errors(path):
            try:
                folder = stat.S_ISDIR(os.lstat(name).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return
            if folder:
                shutil.rmtree(name)
            else:
                os.unlink(name)


class _Mapping:
    """Pages of a file in the address space, without an open descriptor; unmapped when this object is collected."""

    __slots__ = ("address", "size_bytes")

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address, self.size_bytes = address, size_bytes

    def __del__(self, _unmap: Callable[[int, int], int] = _LIBC.munmap) -> None:
        _unmap(self.address, self.size_bytes)


def _map_pages(fd: int, size: int) -> pa.Buffer:
    """Return the pages of a file. Python's own `mmap` would keep a descriptor open for each map."""
    address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address in (None, _MAP_FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pa.foreign_buffer(address, size, _Mapping(address, size))


class LocalFile:
    """A file that is read by `pread`; its descriptor may close between reads (`_core.storage.descriptors`).

    Attributes:
        path: the path as given.
        size_bytes: size when the file was opened.
    """

    __slots__ = ("__weakref__", "_file", "_mtime_ns", "path", "size_bytes")

    def __init__(self, path: str, status: os.stat_result, fd: int) -> None:
        self.path, self.size_bytes, self._mtime_ns = path, status.st_size, status.st_mtime_ns
        self._file = Reopened(fd, partial(_same_file, path, (status.st_dev, status.st_ino)))

    @property
    def version(self) -> str:
        """Its modification time in nanoseconds when it was opened."""
        return str(self._mtime_ns)

    def check(self) -> None:
        """Raise CorruptShard if somebody wrote to the file: its size or its time has changed."""
        opened = self._file.get()
        if opened is None:
            return  # its name is gone, and nobody writes to it by that name
        now = os.fstat(opened.fd)
        if now.st_size == self.size_bytes and now.st_mtime_ns == self._mtime_ns:
            return
        is_cut = now.st_size != self.size_bytes
        raise CorruptShard(
            "the file changed while it was open",
            file=self.path,
            expected=f"{self.size_bytes} bytes" if is_cut else f"the time {_as_time(self._mtime_ns)}",
            found=f"{now.st_size} bytes" if is_cut else _as_time(now.st_mtime_ns),
            advice="Do not write to data that is being read; write a new file, and rename it.",
        )

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range; fewer at the end of the file."""
        opened = self._file.get()
        if opened is None:
            return self._from_map(offset, length)
        data = os.pread(opened.fd, min(length, _MOST_READ_BYTES), offset)
        return data if len(data) == length else _continued(opened, data, offset, length)

    def read_each(self, offset: Sequence[int], length: Sequence[int]) -> Iterator[bytes]:
        """Yield the bytes of many ranges, each on demand: a map is slower, even in the page cache."""
        opened = self._file.get()
        if opened is None:
            found = map(self._from_map, offset, length)
        else:
            found = map(os.pread, repeat(opened.fd), [min(size, _MOST_READ_BYTES) for size in length], offset)
        for data, size, at in zip(found, length, offset, strict=True):
            whole = data if len(data) == size or opened is None else _continued(opened, data, at, size)
            if len(whole) != size:
                self.check()
                raise ShortRead("the file became shorter", file=self.path, offset=at, expected=size, found=len(whole))
            yield whole
        self.check()

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        """Fill the targets, one after another, with the bytes from an offset on by `preadv`."""
        wanted = sum(map(len, targets))
        with store_errors(self.path):
            opened = self._file.get()
            found = 0 if opened is None or wanted > _MOST_READ_BYTES else _read_some(opened.fd, targets, offset)
            if found < wanted:  # more than a call reads, an interruption, or the file became shorter
                self.check()
                for target in targets:
                    if opened is None:
                        _copy(self.path, self._from_map(offset, len(target)), target, offset)
                    else:
                        _fill(self.path, opened.fd, target[found:], offset + found)
                    offset += len(target)
                    found = max(found - len(target), 0)
        self.check()

    def _from_map(self, offset: int, length: int) -> bytes:  # noqa: ARG002 - a map has them
        """Return the bytes of a range of a file whose name belongs to another one now."""
        raise CorruptShard(
            "the file was replaced while it was read", file=self.path, expected="the file that was opened",
            found="another one of its name, or none",
        )  # fmt: skip


class LocalMap(LocalFile):
    """A mapped file. It lives as long as a buffer made of it.

    Attributes:
        buffer: the whole file.
    """

    __slots__ = ("buffer",)

    def __init__(self, path: str, buffer: pa.Buffer, status: os.stat_result, fd: int) -> None:
        super().__init__(path, status, fd)
        self.buffer = buffer

    def _from_map(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range of a file whose name belongs to another one now: only the map has them."""
        return bytes(memoryview(self.buffer)[offset : offset + length])

    def release(self, start: int, stop: int) -> None:
        """Release the whole pages inside `[start, stop)`; the last page of the file counts as whole."""
        page = mmap.PAGESIZE
        first = -(-max(start, 0) // page) * page
        last = self.size_bytes if stop >= self.size_bytes else stop // page * page
        if first < last:
            _LIBC.madvise(self.buffer.address + first, last - first, mmap.MADV_DONTNEED)


def _continued(opened: Descriptor, data: bytes, offset: int, length: int) -> bytes:
    """Return a range after one call gave its beginning: a call reads 2 GiB at most.

    The range is shorter at the end of the file.
    """
    parts, have = [data], len(data)
    while have < length:
        more = os.pread(opened.fd, min(length - have, _MOST_READ_BYTES), offset + have)
        if not more:
            break
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def _same_file(path: str, identity: tuple[int, int]) -> int | None:
    """Open a file again; return None if the path names another file by now, or none."""
    try:
        with _open_file(path) as (fd, _):
            status = os.fstat(fd)
            return os.dup(fd) if (status.st_dev, status.st_ino) == identity else None
    except NotFound:
        return None


_mapped: WeakValueDictionary[tuple[str, int, int, int, int], LocalMap] = WeakValueDictionary()
"""Live maps, by path, device, inode, size and time. Page faults cost as much as copying the pages, so a reader and the
resolver of its references share one map. The map keeps the file's inode, so no other file gets its number."""
_maps_at: WeakValueDictionary[int, LocalMap] = WeakValueDictionary()
"""Live maps, by their address."""
_addresses: list[int] = []
"""Of maps, ascending; some of them may be gone."""
_places_lock = Lock()


def maps_of(buffers: Iterable[pa.Buffer]) -> list[LocalMap]:
    """Return the maps that some buffers are parts of, each once."""
    found: dict[int, LocalMap] = {}
    for buffer in buffers:
        at = bisect_right(_addresses, buffer.address) - 1
        mapped = _maps_at.get(_addresses[at]) if at >= 0 else None
        if mapped is not None and buffer.address < mapped.buffer.address + mapped.size_bytes:
            found[mapped.buffer.address] = mapped
    return [*found.values()]


def _note_place(mapped: LocalMap) -> None:
    global _addresses  # noqa: PLW0603 - readers have one list or the other
    with _places_lock:
        _maps_at[mapped.buffer.address] = mapped
        _addresses = sorted({*_maps_at.keys()}) if len(_addresses) > 2 * len(_maps_at) else _addresses
        at = bisect_left(_addresses, mapped.buffer.address)
        if _addresses[at : at + 1] != [mapped.buffer.address]:
            _addresses.insert(at, mapped.buffer.address)


def _as_time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


class LocalSink:
    """A file being written under a hidden name, locked so that a sweep of `_core.storage.staging` leaves it.

    Attributes:
        path: the final name.
        native_path: the hidden name. A native library may open it and write it in place instead of calling `write`.
        extents: the checksums of the file's extents, if a checksum of the file is taken.
    """

    __slots__ = ("_appender", "_behind", "_failed", "_fd", "_sealed", "_size", "_sum", "extents", "native_path", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._behind: Background | None = None
        self._failed: BaseException | None = None
        self._appender: Appender | None = None
        self._sum: Checksum | None = None
        self._sealed: FileInfo | None = None
        self.extents = ExtentSums()
        with store_errors(path):
            os.makedirs(os.path.dirname(native_path(path)) or ".", exist_ok=True)
            locked = None
            while locked is None:
                self.native_path = temporary_name(native_path(path), ".tmp")
                locked = lock_file(self.native_path, create=True)
        self._fd = locked

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order. Raises StoreError, with advice if the disk is full."""
        self.settle()
        with self._remembering():
            self._append(ByteRanges.of(buffers))

    def write_pieces(self, pieces: ByteRanges) -> None:
        """Append ranges in order; in a thread, if pyarrow may use several.

        If more than 96 MB of memory are waiting, the call waits, so that they are freed before the next batch.
        """
        held = int(pieces.length[~pieces.in_file].sum())
        if self._behind is not None and held <= _LITTLE_BYTES:
            self._wait(but=_MOST_LITTLE - 1)
            self._behind.then(partial(self._append, pieces))
            return
        self.later(partial(self._append, pieces))
        if held > _MOST_HELD_BYTES:
            self.settle()

    def later(self, work: Callable[[], None]) -> None:
        """Run this after all earlier writes are in the file; in a thread, if pyarrow may use several."""
        if self._fd < 0:
            raise ValueError(f"the sink of {self.path} is closed")
        self.settle()
        if pa.cpu_count() == 1:
            with self._remembering():
                work()
            return
        if self._behind is None:
            self._behind = Background("lading-write")
        self._behind.start(work)

    def settle(self) -> None:
        """Wait until all earlier writes are in the file.

        Raises the error of a failed write on every call, because the file has a hole.
        """
        self._wait(but=0)

    def _wait(self, but: int) -> None:
        """Wait for all writes except the last few."""
        if self._failed is not None:
            raise self._failed
        if self._behind is not None:
            with self._remembering():
                self._behind.wait(but)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failed = error
            raise

    def _append(self, pieces: ByteRanges) -> None:
        if self._appender is None:
            self._appender = Appender(None if self._sum is None else self._sum.update)
        with store_errors(self.path):
            self._appender.append(self._fd, pieces)

    def tell(self) -> int:
        """Return the size of the file, also of bytes that a native library wrote."""
        self.settle()
        return self._size if self._fd < 0 else os.fstat(self._fd).st_size

    def take_checksum(self, *, extents: bool) -> None:
        """Take the checksum of all later writes, and those of extents if given."""
        self._sum = Checksum(self.extents if extents else None)

    def checksum(self) -> str:
        """Return the checksum of the file; read the file again if a native library wrote some of it."""
        total, size = self._sum, self.tell()
        if total is None or total.size_bytes not in (0, size):
            total = Checksum()
        if total.size_bytes != size:
            add_file(total, LocalStore(), FileInfo(self.native_path, size))
        self._sum = total
        return total.hexdigest()

    def seal(self) -> None:
        """Make the bytes durable and release memory, file and lock; `close` gives the file its name."""
        self._sealed = self._on_disk()
        self._drop(self._sealed.size_bytes)

    def close(self) -> FileInfo:
        """Make the bytes durable, then rename the file; leave nothing on failure."""
        try:
            info = self._sealed or self._on_disk()
            with store_errors(self.path):
                final = native_path(self.path)
                os.replace(self.native_path, final)
                _sync_names(os.path.dirname(final) or ".")
        except LadingError:
            self.abort()
            raise
        self._sealed = None
        self._drop(info.size_bytes)
        return info

    def abort(self) -> None:
        """Drop the written bytes; their disk space is free at once, even if another process has the file open."""
        if self._fd >= 0 or self._sealed is not None:
            try:
                with store_errors(self.path), suppress(FileNotFoundError):
                    os.unlink(self.native_path)
                    self._empty()
            finally:
                self._sealed = None
                self._drop(0)

    def _empty(self) -> None:
        """Truncate the file, which a native library may keep open until it is collected."""
        self._stop()
        if self._fd >= 0:
            with suppress(OSError):  # then the bytes are freed when the file is closed
                os.ftruncate(self._fd, 0)

    def _on_disk(self) -> FileInfo:
        self.settle()
        with store_errors(self.path):
            os.fsync(self._fd)
            return _info(self.path, os.fstat(self._fd))

    def _stop(self) -> None:
        if self._behind is not None:
            self._behind.stop()
            self._behind = None

    def _drop(self, size: int) -> None:
        self._stop()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size, self._appender = -1, size, None


def _info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, str(status.st_mtime_ns))


def _require_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise no_file(path, kind)


@contextmanager
def _open_file(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Return the descriptor of a regular file, and what the system says of it."""
    name = native_path(path)
    with store_errors(path):
        # Check before opening: opening a device may have effects. Check again after: the name may belong to a pipe by
        # now, and O_NONBLOCK keeps the opening from waiting.
        _require_file(path, os.stat(name))
        fd = _opened(name)
    try:
        status = os.fstat(fd)
        _require_file(path, status)
        yield fd, status
    finally:
        os.close(fd)


def _opened(name: str) -> int:
    """Open a file for reading; if too many are open, after those that nobody uses now are closed."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(name, flags)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    close_unused()
    return os.open(name, flags)


def _copy(path: str, data: bytes, target: memoryview, offset: int) -> None:
    """Fill a target with bytes of its length."""
    if len(data) < len(target):
        raise ShortRead("the range runs past the end of the file", file=path, offset=offset, found=f"{len(data)} bytes",
                        expected=f"{len(target)} bytes")  # fmt: skip
    target[:] = data


def _fill(path: str, fd: int, target: memoryview, offset: int) -> None:
    """Read until the target is full."""
    while target:
        count = _read_some(fd, [target[:_MOST_READ_BYTES]], offset)
        if count == 0:
            raise ShortRead(
                "the file became shorter", file=path, offset=offset, found=f"its end, {len(target)} bytes early"
            )
        target = target[count:]
        offset += count


def _read_some(fd: int, targets: Sequence[memoryview], offset: int) -> int:
    """Fill a beginning of the targets; return its bytes. Old macOS has no `preadv`: there, of the first target."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, targets, offset)
    data = os.pread(fd, min(len(targets[0]), _BLOCK_BYTES), offset)
    targets[0][: len(data)] = data
    return len(data)


def _walk(root: str, lead: str) -> Iterator[FileInfo]:
    """Yield files below `root`, with `lead` before their names. Uses a stack: folders may nest deeper than calls."""
    status = os.stat(root)
    above = [(status.st_dev, status.st_ino)]
    stack = [_entries(root, lead)]
    while stack:
        entry, name = next(stack[-1], (None, ""))
        if entry is None:
            stack.pop()
            above.pop()
        elif not name.endswith("/"):
            yield _entry_info(entry, name)
        else:
            status = entry.stat()
            if (status.st_dev, status.st_ino) not in above:
                above.append((status.st_dev, status.st_ino))
                stack.append(_entries(entry.path, name))


def _entries(folder: str, lead: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Return the entries of one folder and their paths; folders end in `/`, so that they sort like the paths below."""
    with os.scandir(folder) as found:
        named = [(e, lead + e.name + ("/" if _is_folder(e) else "")) for e in found if not unfinished(e.name)]
    return iter(sorted(named, key=lambda pair: pair[1]))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself


def _entry_info(entry: os.DirEntry[str], path: str) -> FileInfo:
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return FileInfo(path, -1)
        raise
    return _info(path, status) if stat.S_ISREG(status.st_mode) else FileInfo(path, -1)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some file systems cannot sync a folder and report EINVAL.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def _sync_names(folder: str) -> None:
    """Make the names in a folder durable; of a folder that is still being built, `publish` does it once for all."""
    if not any(unfinished(part) for part in folder.split("/")):
        _sync_folder(folder)


def _sync_folders(root: str) -> None:
    for folder, _, _ in os.walk(root):
        _sync_folder(folder)


def _renamed_if_free(old: str, new: str, *, folder: bool) -> bool:
    """Rename to a name that is free or an empty folder (if a folder is renamed); return whether it worked."""
    try:
        if folder:
            os.rename(old, new)
        else:
            os.link(old, new)
            os.unlink(old)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True
