"""The files of a media folder: find, check, open once, read by range.

Paths come from untrusted documents. They may only name files below the media folder, or below folders that the caller
adds (`_core.storage.roots`).
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Sequence

from lading._core.arrow.byte_ranges import as_view
from lading._core.secret_urls import shown
from lading._core.storage.base import Buffer, FileInfo, Mapper, Store, store_errors
from lading._core.storage.concurrent import is_remote
from lading._core.storage.range_reader import RangeReader
from lading._core.storage.roots import Roots, sibling_path
from lading._core.storage.stores import Stores, resolve
from lading.errors import BadReference, CorruptShard, MissingFile, NotFound, StoreError, UsageError

__all__ = ["Archive", "MediaFolder", "outside"]

_MAX_OPEN = 64
_MOST_CHARACTERS = 8192
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")
_OF_THE_PATH = frozenset((errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR))
"""Errors of a store that are the fault of the path, not of the store."""


class Archive:
    """An open file. Threads may share it.

    Attributes:
        name: path or URL, for errors.
        size_bytes: size when it was opened.
    """

    __slots__ = ("_read", "name", "size_bytes")

    def __init__(self, name: str, size_bytes: int, read: Callable[[int, int, int], Buffer]) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._read = read

    def read(self, offset: int, length: int, ahead: int = 0) -> Buffer:
        """Return exactly these bytes; `ahead` is the number of following bytes that will be read next.

        Raises BadReference, before allocation, if they are not all inside the file.
        """
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise outside(self, offset, length)
        return self._read(offset, length, ahead)


def outside(archive: Archive, offset: int, length: int) -> BadReference:
    """Return the error for a record outside its file."""
    return BadReference(
        "the record is outside the file", file=archive.name, offset=offset, expected=f"{length} bytes",
        found=f"a file of {archive.size_bytes} bytes",
        advice="The file was cut or replaced since it was written, or the document is damaged.",
    )  # fmt: skip


class MediaFolder:
    """The archives of one folder; the last 64 that were read stay open.

    Args:
        folder: path or URL.
        block_size: maximum bytes to read at once, when records follow each other, from a store with high latency.
        roots: further folders below which paths may point; they allow absolute paths and URLs.
        stores: store of each URL.
    """

    def __init__(
        self, folder: str | os.PathLike[str], block_size: int, roots: Sequence[str] = (), stores: Stores | None = None
    ) -> None:
        self._folder = shown(os.fspath(folder))
        self._block_size = block_size
        self._stores = stores
        self._roots = Roots([self._folder, *roots], stores)
        self._lock = threading.Lock()
        self._open: dict[str, Archive] = {}
        self._own = threading.local()

    @property
    def is_remote(self) -> bool:
        """Return whether the folder's store has high latency."""
        return is_remote(resolve(self._folder, self._stores)[0])

    def archive(self, path: object) -> Archive:
        """Return the file that a media's path names.

        Raises:
            BadReference: the path is invalid, leads out of the folder, or names no file.
            UsageError: no store serves the folder, or a package for it is not installed (`MissingExtra`).
        """
        found = self._open.get(path) if isinstance(path, str) else None
        if found is not None:
            return found
        name = self._name(path)
        try:
            opened = self._opened(name)
        except StoreError as error:
            if isinstance(error, NotFound) or error.errno in _OF_THE_PATH:
                raise MissingFile("the media's path names no file", file=name, found=error.message,
                                  advice="Name the folder of the archives: --option media=DIR, or data_folder of "
                                  "MediaReader.") from error  # fmt: skip
            raise
        with self._lock:
            while len(self._open) >= _MAX_OPEN:
                del self._open[next(iter(self._open))]
            self._open[str(path)] = opened
        return opened

    def close(self) -> None:
        """Close the open files without waiting: the garbage collector may call it in the middle of `archive`."""
        self._open = {}
        self._own = threading.local()

    def _name(self, path: object) -> str:
        """Return the file's path or URL, if it may be read."""
        if not isinstance(path, str) or not path or len(path) > _MOST_CHARACTERS or _NO_TEXT.search(path):
            raise BadReference("the media's path is not a path", file=self._folder, found=ascii(path)[:80])
        alone = "://" in path or path.startswith("pipe:") or os.path.isabs(path)
        name = shown(path) if alone else sibling_path(self._folder, path)
        try:
            self._roots.check(name)
        except UsageError as error:
            raise BadReference(error.message, file=name, advice=error.advice) from error
        return name

    def _opened(self, name: str) -> Archive:
        store, path = resolve(name, self._stores)
        if isinstance(store, Mapper):
            file = store.open_file(path)
            return Archive(name, file.size_bytes, _whole_reads(name, file.read))
        info = store.head(path)
        return Archive(name, info.size_bytes, _windows(store, info, self._own, self._block_size))


def _whole_reads(name: str, read: Callable[[int, int], bytes]) -> Callable[[int, int, int], bytes]:
    """Loop over reads until all bytes are there."""

    def whole(offset: int, length: int, _ahead: int) -> bytes:
        try:
            data = read(offset, length)
        except OSError:
            with store_errors(name):
                raise
        if len(data) != length:
            raise CorruptShard("the file became shorter while it was open", file=name, offset=offset)
        return data

    return whole


def _windows(store: Store, info: FileInfo, own: threading.local, block_size: int) -> Callable[[int, int, int], Buffer]:
    """Read one file of a store without maps, a request each; with read-ahead if the neighbours are wanted too.

    They are wanted if the caller says so. They are also wanted if a thread continues where its last read ended, or
    before that: a record of unknown length is read with some following bytes. Stores with high latency then read a
    block. Bytes after the record are held, once for each thread.
    """
    file, block = RangeReader(store, info.path, info), block_size if is_remote(store) else 0

    def read(offset: int, length: int, ahead: int) -> Buffer:
        other, reader, last, stop = getattr(own, "window", (None, file, 0, 0))
        if other is not file:
            reader = file.within(0, info.size_bytes)
        more = block if other is file and last < offset <= stop else length + ahead
        found = reader.read_on(offset, length, min(more, block), info.size_bytes)
        own.window = (file, reader, offset, offset + length)
        return as_view(found)

    return read
