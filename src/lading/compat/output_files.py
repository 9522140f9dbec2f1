"""The files of a media writer of datatrove, by name: opened when they are needed, visible when they are closed.

Source: datatrove 0.10.1, `io.py` (`OutputFileManager`).
"""

from __future__ import annotations

import io
import os
import posixpath
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from lading._core.media.files import ArchiveFile, name_inside
from lading._core.storage.background import Background
from lading._core.storage.base import Buffer, Store
from lading._core.storage.staging import sweep_files
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import StoreError, UsageError

__all__ = ["OutputFile", "OutputFiles"]


class OutputFiles:
    """Files that a writer writes, by their names below a folder. A copy, or a pickle, begins without files.

    A file appears when it is closed. When a file is opened, the remains of dead processes that wrote files of its name
    are deleted. One warning says that a file is replaced, since documents may name its records.

    Example:
        self.output_mg.get_file("00003.bin").write(b"picture")

    Args:
        folder: path or URL of the folder.
        stores: store of each URL.

    Attributes:
        lock: held while a record is written, so that threads can share a writer.
        written: names of the closed files.
    """

    def __init__(self, folder: str, stores: Stores | None) -> None:
        self.lock = threading.RLock()
        self.written: set[str] = set()
        self._folder, self._stores = folder, stores
        self._by_name: dict[str, OutputFile] = {}
        self._unclosed: list[OutputFile] = []
        self._behind = Background("lading-media-write")
        self._has_failed = self._has_warned = False

    def __reduce__(self) -> Any:
        return OutputFiles, (self._folder, self._stores)

    def get_file(self, filename: str) -> OutputFile:
        """Return the open file of a name, positioned at its end; a new file if there is none.

        Raises:
            UsageError: the name leads out of the folder, this writer closed a file of this name, or a write failed.
            StoreError: the store failed.
        """
        with self.lock:
            file = self._by_name.get(filename)
            if file is None:
                name = name_inside(filename)
                file = self._by_name.get(name) or self._begin(name)
            return file

    def get_open_files(self) -> dict[str, OutputFile]:
        """Return the open files by name."""
        return self._by_name

    def pop(self, filename: str) -> OutputFile:
        """Return the file of a name, for the caller to close; `close` closes it at the latest. Raises as `get_file`."""
        with self.lock:
            file = self.get_file(filename)
            del self._by_name[file.path]
            return file

    def write(self, filename: str, data: Buffer) -> None:
        """Append bytes to the file of a name. Raises as `get_file`."""
        with self.lock:
            self.get_file(filename).write(data)

    def close(self) -> None:
        """Close all files; a later `get_file` begins anew.

        Raises:
            UsageError: a write failed before, and the files that were open then were dropped.
            StoreError: the store failed. Files that were not visible by then stay so.
        """
        with self.lock:
            try:
                self._check()
                with self._dropping():
                    for file in self._unclosed:
                        file.archive.flush()
                    for file in [*self._unclosed]:
                        file.close()
            finally:
                self._has_failed = False
                self._restart()

    def append(self, file: OutputFile, data: bytes) -> None:
        """Append bytes to a file. Raises StoreError; then all open files are dropped."""
        with self.lock:
            try:
                file.archive.append([data], len(data))
            except BaseException:
                self._drop()
                raise

    def end(self, file: OutputFile) -> None:
        """Make a file durable and visible, if it is still open. Raises StoreError; then all open files are dropped."""
        with self.lock:
            if file not in self._unclosed:
                return
            with self._dropping():
                file.archive.flush()
                self._behind.wait()
                self._warn_of_replacement(file.store, file.place)
                file.archive.close()
            self._unclosed.remove(file)
            self.written.add(file.path)
            if self._by_name.get(file.path) is file:
                del self._by_name[file.path]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, name: str) -> OutputFile:
        self._check()
        if name in self.written:
            raise UsageError("this writer already wrote a file of this name", found=repr(name),
                             advice="Give max_file_size, which numbers files, or another rank.")  # fmt: skip
        store, place = resolve(posixpath.join(self._folder, name), self._stores)
        if is_local(store):
            sweep_files(os.path.dirname(place), os.path.basename(place))
        self._warn_of_replacement(store, place)
        with self._dropping():
            archive = ArchiveFile(name, store.put_stream(place), self._behind)
        file = self._by_name[name] = OutputFile(self, archive, store, place)
        self._unclosed.append(file)
        return file

    def _check(self) -> None:
        if self._has_failed:
            raise UsageError("a write of this writer failed, and its open files were dropped", file=self._folder,
                             advice="Close the writer, and write their documents again.")  # fmt: skip

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Drop all open files if the body fails."""
        with ExitStack() as failed:
            failed.callback(self._drop)
            yield
            failed.pop_all()

    def _drop(self) -> None:
        self._has_failed = True
        dropped, self._unclosed = self._unclosed, []
        self._by_name.clear()
        self._restart()
        with ExitStack() as all_of_them:
            for file in dropped:
                all_of_them.callback(file.archive.abort)

    def _restart(self) -> None:
        self._behind.stop()
        self._behind = Background("lading-media-write")

    def _warn_of_replacement(self, store: Store, place: str) -> None:
        """Warn once, if a file is there."""
        if self._has_warned:
            return
        try:
            store.head(place)
        except StoreError:  # no such file; or a failure, which writing meets too
            return
        self._has_warned = True
        warnings.warn(f"{place}: this file is replaced, and documents that name its records will read other bytes. "
                      "Write each run into a folder of its own, and name files by ${rank}.", stacklevel=2)  # fmt: skip


class OutputFile(io.RawIOBase):
    """A file being written: `tell` is its size so far, and `close` makes it durable and visible.

    Attributes:
        path: path of the file below the output folder.
        archive, store, place: where its bytes go.
    """

    def __init__(self, files: OutputFiles, archive: ArchiveFile, store: Store, place: str) -> None:
        self.path, self.archive, self.store, self.place = archive.path, archive, store, place
        self._files = files

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Append bytes; they are copied. Raises StoreError; then all open files of the writer are dropped."""
        copied = bytes(data)
        self._files.append(self, copied)
        return len(copied)

    def tell(self) -> int:
        """Return the size of the file so far."""
        return self.archive.size_bytes

    def close(self) -> None:
        """Make the file durable and visible. Raises StoreError; then all open files of the writer are dropped."""
        self._files.end(self)
        super().close()

    def __del__(self) -> None:
        """Leave a file that nobody closed without its name; `io` would close it."""
