"""The files of a media writer: their names, the records appended to them, and their publication in one step.

Source: datatrove 0.10.1, `pipeline/media/media_writers/base.py`.
"""

from __future__ import annotations

import posixpath
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from string import Template
from typing import Any

from lading._core.media.documents import Location, get
from lading._core.storage.background import Background
from lading._core.storage.base import FileInfo, Seals, Sink
from lading._core.storage.stores import Stores, resolve
from lading.errors import MissingTag, UsageError

__all__ = ["ArchiveFile", "ArchiveFiles", "Names", "name_inside"]

_RANK_DIGITS = 5
_HELD_BYTES = 1 << 20
"""Small records are passed to a sink together."""
_MOST_WAITING = 4
"""Writes that may wait: compressor and writer take turns in being the slower one."""


class Names:
    """Names of files, by template, with the counter of each.

    Args:
        template: a `string.Template` with `${rank}` and any other tags.
        counted: put a counter before each name.

    Attributes:
        template: the template.
        needed: tags of the template, without `rank`.
    """

    def __init__(self, template: str, *, counted: bool) -> None:
        self.template = Template(template)
        if not self.template.is_valid():
            raise UsageError("the template of file names has a $ that names nothing", found=repr(template))
        self.needed = frozenset(self.template.get_identifiers()) - {"rank"}
        self._counted = counted
        self._used: Counter[str] = Counter()
        self._by_rank: dict[int | str, str] = {}

    def name(self, rank: int | str, tags: Mapping[str, object], *things: Any) -> str:
        """Return the name for a rank and tags.

        Each file has one name, because the name identifies its writer.

        Args:
            rank: rank of the worker; at least five digits.
            tags: values of tags.
            *things: documents and media. Their `metadata` and the `id` of the first give tags that `tags` lacks.

        Raises:
            MissingTag: the template has a tag that nothing gives.
            UsageError: the name leads out of the folder.
        """
        if self.needed:
            return self._named(rank, tags, things)
        name = self._by_rank.get(rank)
        if name is None:
            name = self._by_rank[rank] = self._named(rank, {}, ())
        return name

    def given_by(self, *things: Any) -> dict[str, object]:
        """Return the tags of the template that documents and media give: their `metadata`, and the `id` of the first.

        Of two things that give one tag, the later one counts.
        """
        if not self.needed:
            return {}
        return {name: value for name, value in _given_by(things).items() if name in self.needed}

    def _named(self, rank: int | str, tags: Mapping[str, object], things: tuple[Any, ...]) -> str:
        known: dict[str, object] = dict(tags)
        if things and not self.needed <= known.keys():
            known = _given_by(things) | known
        try:
            name = self.template.substitute({**known, "rank": str(rank).zfill(_RANK_DIGITS)})
        except KeyError as error:
            raise MissingTag(
                "the template of file names has a tag that was not given",
                expected=", ".join(sorted({"rank", *map(str, known)})),
                found=error.args[0],
            ) from None
        return name_inside(name)

    def next_path(self, name: str) -> str:
        """Return the path of the next file of this name: its counter before the last part.

        Raises:
            UsageError: there is no counter, and a file of this name was written before.
        """
        number = self._used[name]
        self._used[name] += 1
        if not self._counted:
            if number:
                raise UsageError("this writer already wrote a file of this name", found=repr(name),
                                 advice="Give max_file_size, which numbers files, or another rank.")  # fmt: skip
            return name
        folder, base = posixpath.split(name)
        return posixpath.join(folder, f"{number:03d}_{base}")


def _given_by(things: tuple[Any, ...]) -> dict[str, object]:
    found: dict[str, object] = {"id": get(things[0], "id")}
    for metadata in (get(thing, "metadata") for thing in things):
        if isinstance(metadata, Mapping):
            found.update(metadata)
    return found


def name_inside(name: str) -> str:
    """Return the name of a file below a folder, without needless parts. Raises UsageError if it leads elsewhere."""
    parts = name.split("/")
    if name.startswith("/") or parts[-1] in {"", "."} or ".." in parts or "://" in name or "\0" in name:
        raise UsageError("the file name leads out of the output folder", found=repr(name))
    return posixpath.normpath(name)


class ArchiveFiles:
    """Files being written. All appear at `close`; threads may append at the same time.

    Until then, each name in use takes an open file and about 1 MB. Full files take neither on this machine; on remote
    stores they take the memory of their uploads.

    Args:
        folder: path or URL of the folder.
        names: names of the files.
        max_file_size: a file of this size is complete; 0 or less: no limit.
        stores: store of each URL.
    """

    def __init__(self, folder: str, names: Names, max_file_size: int, stores: Stores | None) -> None:
        self._folder, self._names, self._max_file_size, self._stores = folder, names, max_file_size, stores
        self._lock = threading.Lock()
        self._files: list[ArchiveFile] = []
        self._current: dict[str, ArchiveFile] = {}
        self._behind = Background("lading-media-write")
        self._end = ""
        self._written: tuple[FileInfo, ...] = ()

    def append(self, name: str, parts: Sequence[bytes]) -> Location:
        """Append one record to the current file of a name; return where it is.

        Raises:
            UsageError: the files are closed or given up.
            StoreError: the store failed, perhaps over an earlier record. Nothing is published then.
        """
        with self._lock:
            file = self._open(name)
            location = Location(file.path, file.size_bytes, sum(map(len, parts)))
            self._append(file, parts, location.length)
        return location

    def close(self) -> tuple[FileInfo, ...]:
        """Make the files durable and visible; return their facts, in the order of their creation.

        Raises:
            UsageError: a write failed before, or the files were aborted. Nothing was published.
            StoreError: a store failed. Files that were not visible by then stay so.
        """
        with self._lock:
            if self._end == "closed":
                return self._written
            self._check_open()
            with ExitStack() as failed:
                failed.callback(self._drop)
                for file in self._files:
                    file.flush()
                self._behind.wait()
                self._written = tuple(file.close() for file in self._files)
                failed.pop_all()
            self._behind.stop()
            self._end = "closed"
            return self._written

    def abort(self) -> None:
        """Drop what was written. Does nothing after `close` or a second time."""
        with self._lock:
            if not self._end:
                self._drop()

    def _append(self, file: ArchiveFile, parts: Sequence[bytes], length: int) -> None:
        try:
            file.append(parts, length)
        except BaseException:
            self._drop()
            raise

    def _open(self, name: str) -> ArchiveFile:
        """Return the file for the next record of a name."""
        self._check_open()
        file = self._current.get(name)
        if file is not None and not 0 < self._max_file_size <= file.size_bytes:
            return file
        with ExitStack() as failed:
            failed.callback(self._drop)
            path = self._names.next_path(name)
            store, place = resolve(posixpath.join(self._folder, path), self._stores)
            self._current[name] = ArchiveFile(path, store.put_stream(place), self._behind)
            self._files.append(self._current[name])
            if file is not None:  # only now: sweeps leave a sealed file while another one of its name has an owner
                file.seal()
            failed.pop_all()
        return self._current[name]

    def _check_open(self) -> None:
        if self._end:
            raise UsageError(f"the media writer is {self._end}", found=self._folder, advice="Make a new one.")

    def _drop(self) -> None:
        self._end = "given up"
        self._behind.stop()
        with ExitStack() as all_of_them:
            for file in self._files:
                all_of_them.callback(file.abort)


class ArchiveFile:
    """A file being written; small records are collected and written together, in the background.

    Attributes:
        path: path of the file below the output folder.
        size_bytes: bytes so far.
    """

    def __init__(self, path: str, sink: Sink, behind: Background) -> None:
        self.path = path
        self.size_bytes = 0
        self._sink, self._behind = sink, behind
        self._held: list[bytes] = []
        self._held_bytes = 0

    def append(self, parts: Sequence[bytes], length: int) -> None:
        """Append the parts of a record. Raises StoreError, perhaps over an earlier record."""
        self._held += parts
        self._held_bytes += length
        self.size_bytes += length
        if self._held_bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Pass the collected records to the background."""
        if self._held:
            self._behind.wait(but=_MOST_WAITING - 1 if self._held_bytes < 2 * _HELD_BYTES else 0)
            self._behind.then(partial(self._sink.write, self._held))
            self._held, self._held_bytes = [], 0

    def seal(self) -> None:
        """Release memory: no more records come."""
        self.flush()
        if isinstance(self._sink, Seals):
            self._behind.then(self._sink.seal)

    def close(self) -> FileInfo:
        """Make the file durable and visible, after `flush` and the end of the background's work."""
        return self._sink.close()

    def abort(self) -> None:
        """Drop the file."""
        self._sink.abort()
