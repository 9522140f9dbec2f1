"""A folder of whole copies of remote shards, shared by the processes of a machine, down to a limit.

    CACHEDIR.TAG                      says that lading made the folder: nothing else is ever deleted here
    cache.lock                        held while room is made
    <hash of URL>-<hash of version>.tar         a copy; it appears whole, by a rename
    <hash of URL>-<hash of version>.tar.part    a copy that is being downloaded, as large as it will be
    <hash of URL>-<hash of version>.tar.lock    held by who downloads or deletes the copy; says who, and the URL

Locks are the kernel's: a process that dies holds none. A reader shares the lock of the copy itself while it reads, so
that nobody deletes it meanwhile. The time of the last use is the access time of the copy, set by its readers.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import xxhash

from lading._core.storage.base import Buffer, FileInfo, Store, store_errors, temporary_name, unfinished, without_query
from lading._core.storage.checksum import Checksum
from lading._core.storage.hub import unpinned
from lading._core.storage.local import LocalStore
from lading._core.storage.traffic import note_download, ranges_of
from lading.errors import CorruptShard, NotFound, ShortRead, StoreError, UsageError

__all__ = ["CachedCopy", "ShardCache", "find_cache", "make_cache"]

_TAG: Final = "CACHEDIR.TAG"
_TAG_TEXT: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Copies of remote shards that lading made (https://bford.info/cachedir/).\n"
    "# lading cache, layout 1\n"
)
"""The first line is that of the Cache Directory Tagging Specification: backups leave such folders out."""
_MARK: Final = "# lading cache, layout 1\n"
_ROOM: Final = "cache"
"""Whose lock is held while room is made."""
_COPY: Final = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}(?:\.[0-9A-Za-z]{1,16})?")
_ENDING: Final = re.compile(r"\.[0-9A-Za-z]{1,16}")
_PART, _LOCK = ".part", ".lock"
_REQUEST_BYTES, _REQUESTS = 4 << 20, 4
"""Of a download: bytes of a request, and requests that are sent together. That is what it holds in memory."""
_WAIT_S: Final = 300.0
_LOOK_S: Final = (0.02, 0.5)
"""How long a wait sleeps at first, and at most."""

_held: set[int] = set()
"""Descriptors of the locks that this process holds. A forked child shares them, so it closes its own."""


@dataclass(frozen=True, slots=True)
class CachedCopy:
    """A file in a cache.

    Attributes:
        path: of the copy.
        url: of the shard, without user, password and query; empty if it is unknown.
        size_bytes: of the shard.
        used: time of the last use, in seconds since 1970.
    """

    path: str
    url: str
    size_bytes: int
    used: float


@dataclass(frozen=True, slots=True)
class ShardCache:
    """Copies in a folder of this machine. Holds nothing open; threads, processes and forks may share the folder.

    Attributes:
        folder: where they are. Made by `make_cache`.
        limit_bytes: size of all copies together, at most; None for any.
        wait_s: how long another process may hold a lock without getting on.
    """

    folder: str
    limit_bytes: int | None = None
    wait_s: float = _WAIT_S

    def path(self, url: str, version: str) -> str:
        """Return where the copy of a file is, if there is one."""
        ending = _ENDING.fullmatch(os.path.splitext(without_query(url))[1])
        name = f"{xxhash.xxh3_128_hexdigest(unpinned(url).encode())}-{xxhash.xxh3_64_hexdigest(version.encode())}"
        return os.path.join(self.folder, name + (ending[0] if ending else ""))

    def read(self, url: str, ranges: Sequence[tuple[int, int]], version: str) -> list[Buffer] | None:
        """Return one buffer per range of the copy of this version; None if there is no copy, or a damaged one."""
        path = self.path(url, version)
        with _sharing(path) as shared:
            if not shared:
                return None
            try:
                return LocalStore().get_ranges(path, ranges, str(_time_of(path)))
            except (NotFound, ShortRead, CorruptShard):  # somebody changed it by hand, or the range is wrong
                return None

    def keep(self, store: Store, info: FileInfo, checksum: str = "") -> bool:
        """Have a copy of a file: download the file, or wait until another process has.

        Args:
            store: has the file.
            info: the file, by its full URL, and its version.
            checksum: xxh3 of the file, which a new copy must have; empty if it is unknown.

        Returns: whether there is a copy. There is none of a file that is larger than the limit, and none where the
            limit leaves no room beside copies that are being downloaded or read.

        Raises:
            StoreError: the store failed, or another process does not get on with its download.
            CorruptShard: the store has bytes with another checksum.
            OSError: the folder cannot be written.
        """
        path = self.path(info.path, info.version)
        if _is_whole(path, info.size_bytes):
            return True
        if self.limit_bytes is not None and info.size_bytes > self.limit_bytes:
            return False
        make_cache(self.folder)
        with self._holding(path, info.path, done=lambda: _is_whole(path, info.size_bytes)) as held:
            if not held or _is_whole(path, info.size_bytes):
                return True
            with self._holding(os.path.join(self.folder, _ROOM), ""):
                _remove(path, path + _PART)
                if not self._makes_room(info.size_bytes):
                    return False
                part = _new_file(path + _PART, info.size_bytes)
            try:
                _download(store, info, part, checksum)
                os.utime(part, ns=(time.time_ns(), _time_of(path)))
                os.fsync(part)
                os.rename(path + _PART, path)
                note_download()
            except BaseException:
                _remove(path + _PART)
                raise
            finally:
                os.close(part)
        return True

    def copies(self) -> list[CachedCopy]:
        """Return all copies, the one that was used last at the end."""
        found = []
        for path, size, used in self._files():
            if _COPY.fullmatch(os.path.basename(path)):
                found.append(CachedCopy(path, str(_note(path).get("url", "")), size, used))
        return found

    def prune(self, limit_bytes: int = 0, *, before: float | None = None) -> list[CachedCopy]:
        """Delete copies, the least recently used first; return those that are gone.

        What downloads of dead processes left goes too. Copies that are being downloaded or read stay.

        Args:
            limit_bytes: size of all copies that may stay.
            before: delete copies that were last used before this time, in seconds since 1970, whatever their size.
        """
        with store_errors(self.folder), self._holding(os.path.join(self.folder, _ROOM), ""):
            self._sweep()
            copies, gone = self.copies(), []
            size = sum(copy.size_bytes for copy in copies)
            for copy in copies:
                if (size > limit_bytes if before is None else copy.used < before) and _evicted(copy.path):
                    size -= copy.size_bytes
                    gone.append(copy)
        return gone

    def _makes_room(self, size: int) -> bool:
        """Delete copies until there is room for a file of this size; called with the lock of the folder.

        Nothing is deleted if the copies that nobody reads are too few for that.
        """
        if self.limit_bytes is None:
            return True
        self._sweep()
        files, idle, found = self._files(), list[tuple[str, int]](), 0
        needed = size + sum(each for _, each, _ in files) - self.limit_bytes
        for path, freed, _ in files:
            if found >= needed:
                break
            if not path.endswith(_PART) and _is_idle(path):
                idle.append((path, freed))
                found += freed
        return found >= needed and sum(freed for path, freed in idle if _evicted(path)) >= needed

    def _files(self) -> list[tuple[str, int, float]]:
        """Copies and parts of copies: path, size and time of the last use, the latest at the end."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                if _COPY.fullmatch(entry.name.removesuffix(_PART)):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        found.append((entry.path, status.st_size, status.st_atime_ns / 1e9))
        return sorted(found, key=lambda file: file[2])

    def _sweep(self) -> None:
        """Delete what dead processes left: parts of copies, and locks of copies that are gone."""
        names = {entry.name for entry in os.scandir(self.folder)}
        for name in sorted(names):
            copy = name.removesuffix(_LOCK).removesuffix(_PART)
            if name != copy and _COPY.fullmatch(copy) and (name.endswith(_PART) or copy not in names):
                _evicted(os.path.join(self.folder, copy), but_copy=True)

    @contextmanager
    def _holding(self, path: str, url: str, *, done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold the lock of a path, after those who hold it now; without it if what they do is done meanwhile.

        Raises:
            StoreError: who holds the lock does not get on.
        """
        fd, seen, began = _locked(path), None, time.monotonic()
        sleep, most = _LOOK_S
        while fd is None and not done():
            now = _progress(path)
            if now != seen:
                seen, began = now, time.monotonic()
            elif time.monotonic() - began > self.wait_s:
                raise self._stuck(path, url)
            time.sleep(min(sleep, self.wait_s))
            sleep = min(2 * sleep, most)
            fd = _locked(path)
        try:
            if fd is not None:
                _write_note(fd, url)
            yield fd is not None
        finally:
            if fd is not None:
                _let_go(fd)

    def _stuck(self, path: str, url: str) -> StoreError:
        note = _note(path)
        who = f"process {note.get('pid', '?')} on {note.get('host', '?')}, which holds the lock since "
        return StoreError(
            "another process does not get on with a download" if url else "another process holds the lock of the cache",
            file=url or self.folder, expected=f"an end within {self.wait_s:g} s",
            found=f"{who}{note.get('since', '?')}",
            advice="End that process: its lock ends with it. Or name another cache_dir.",
        )  # fmt: skip


def make_cache(folder: str) -> None:
    """Make a folder for copies, unless it is one.

    Raises:
        UsageError: the folder holds other files.
        StoreError: it cannot be made.
    """
    tag = os.path.join(folder, _TAG)
    if _is_marked(tag):
        return
    with store_errors(folder):
        os.makedirs(folder, exist_ok=True)
        others = [name for name in os.listdir(folder) if not unfinished(name)]
        if others and not _is_marked(tag):
            raise UsageError("the cache folder holds other files", file=folder, found=min(others)[:80],
                             expected="an empty folder, or a cache of lading",
                             advice="Give cache_dir a folder of its own.")  # fmt: skip
        new = temporary_name(tag, ".tmp")
        with open(new, "x", encoding="ascii") as file:
            file.write(_TAG_TEXT)
        os.rename(new, tag)


def find_cache(folder: str) -> ShardCache:
    """Return the cache in a folder. Raises UsageError if there is none."""
    if not _is_marked(os.path.join(folder, _TAG)):
        raise UsageError("not a cache of remote shards", file=folder,
                         advice="Name the folder that cache_dir names.")  # fmt: skip
    return ShardCache(os.path.abspath(folder))


def _is_marked(tag: str) -> bool:
    try:
        with open(tag, encoding="ascii", errors="replace") as file:
            return file.read(len(_TAG_TEXT)).endswith(_MARK)
    except OSError:
        return False


def _is_whole(path: str, size: int) -> bool:
    """Whether there is a copy. One of another size or time was changed by hand, and is downloaded again."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, _time_of(path))


def _time_of(path: str) -> int:
    """Return the time of change that a copy is given, in nanoseconds: whoever writes to it leaves another one."""
    return (1_000_000_000 + xxhash.xxh3_64_intdigest(os.path.basename(path).encode()) % 500_000_000) * 1_000_000_000


def _download(store: Store, info: FileInfo, part: int, checksum: str) -> None:
    """Write all bytes of a version of a file; nobody has others of it. Raises CorruptShard for another checksum."""
    total = Checksum()
    ranges = [(at, min(_REQUEST_BYTES, info.size_bytes - at)) for at in range(0, info.size_bytes, _REQUEST_BYTES)]
    for first in range(0, len(ranges), _REQUESTS):
        asked = ranges[first : first + _REQUESTS]
        for (offset, length), data in zip(asked, ranges_of(store, info.path, asked, info.version), strict=True):
            body = memoryview(data).cast("B")
            if len(body) != length:
                raise ShortRead("the store gave too few bytes", file=info.path, offset=offset, expected=length,
                                found=len(body))  # fmt: skip
            total.update(body)
            written = 0
            while written < length:
                written += os.pwrite(part, body[written:], offset + written)
    if checksum and total.hexdigest() != checksum:
        raise CorruptShard(
            "the file differs from the checksum in the manifest", file=info.path, expected=f"xxh3 {checksum}",
            found=f"xxh3 {total.hexdigest()}", advice="The file was changed or damaged after it was written.",
        )  # fmt: skip


def _new_file(path: str, size: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.truncate(fd, size)  # others see how much room it takes
    except BaseException:
        os.close(fd)
        _remove(path)
        raise
    return fd


def _remove(*paths: str) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _evicted(path: str, *, but_copy: bool = False) -> bool:
    """Delete a copy, its part and its lock, unless somebody reads or downloads it; return whether it is gone."""
    fd = _locked(path)
    if fd is None:
        return False
    try:
        if but_copy and os.path.exists(path):
            _remove(path + _PART)
            return True
        with _sharing(path, fcntl.LOCK_EX) as alone:
            if not alone and os.path.exists(path):
                return False
            _remove(path, path + _PART, path + _LOCK)
        return True
    finally:
        _let_go(fd)


def _is_idle(path: str) -> bool:
    """Return whether nobody reads or downloads a copy."""
    fd = _locked(path)
    if fd is None:
        return False
    try:
        with _sharing(path, fcntl.LOCK_EX) as alone:
            return alone
    finally:
        _let_go(fd)


@contextmanager
def _sharing(path: str, kind: int = fcntl.LOCK_SH) -> Iterator[bool]:
    """Hold the lock of a copy, and note its use; False if there is no copy, or somebody has it for himself."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    _held.add(fd)
    try:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        if kind == fcntl.LOCK_SH:
            with suppress(OSError):  # a copy of another user
                _note_use(fd)
        yield True
    finally:
        _let_go(fd)


def _note_use(fd: int) -> None:
    os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))


def _locked(path: str) -> int | None:
    """Return the descriptor of the lock of a path; None if another process or thread holds it.

    Raises:
        OSError: the folder cannot be written, or its file system has no locks.
    """
    fd = os.open(path + _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:  # else who deleted the copy had it before
            return fd
    except BlockingIOError:
        pass
    except BaseException:
        _let_go(fd)
        raise
    _let_go(fd)
    return None


def _let_go(fd: int) -> None:
    if fd in _held:  # else it is the parent's
        _held.discard(fd)
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that is forked at this moment has it too
        os.close(fd)


def _progress(path: str) -> tuple[object, ...]:
    """What changes while another process downloads, and when another one holds the lock."""
    note = _note(path)
    try:
        status = os.stat(path + _PART)
    except OSError:
        return (note.get("pid"), note.get("since"))
    return (note.get("pid"), note.get("since"), status.st_mtime_ns, status.st_blocks)


def _write_note(fd: int, url: str) -> None:
    """Say who holds a lock. A torn note says nothing."""
    since = datetime.now(UTC).isoformat(timespec="milliseconds")
    note = {"url": url, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(fd, 0)
    os.pwrite(fd, orjson.dumps(note), 0)


def _note(path: str) -> dict[str, Any]:
    try:
        with open(path + _LOCK, "rb") as file:
            found = orjson.loads(file.read(1 << 16))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _close_in_child() -> None:
    """Close the locks of the parent: else they would be held as long as the child lives, also if the parent dies."""
    for fd in [*_held]:
        with suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
