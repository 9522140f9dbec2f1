"""The commit: a dataset is built in a hidden folder, then gets its name in one step.

The hidden folder has two: the dataset, and the folders of the attempts at tasks. Shards that are taken from an attempt
are moved into the dataset where that is a rename. An object store copies them once, to their final names. What an
attempt writes later is in neither, and goes with the hidden folder, or in the next sweep.

A complete dataset is built in a folder next to its place and exchanged with what was there. One of many writers
(`shared`) builds its files there too, and moves them in one by one, its manifest last; readers follow manifests. The
next writer of the same place removes what a killed process left. Files that it had already moved are removed when the
next writer of its rank commits.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from lading.errors import DataError, DestinationExists, LadingError, StoreError, UsageError
from lading.manifest.files import files_listed
from lading.manifest.values import FOLDER, MANIFEST_NAME, SHARDS_NAME
from lading.storage.base import Copies, Store, has_file, native_path, write_file
from lading.storage.moved import MovedStore
from lading.storage.publish import CopyingStore, Finished, publish_list
from lading.storage.roots import is_inside, real_place
from lading.storage.staging import StagedFolder, stage_folder, sweep_stale
from lading.storage.stores import Stores, is_local, named_folder, resolve

__all__ = ["Staging", "check_destination", "check_shared", "find_destination", "is_there"]


def is_there(url: str, stores: Stores) -> bool:
    """Return whether a file, a link, or a folder with files exists at a place."""
    store, path = resolve(url, stores)
    return _is_taken(store, path) or next(iter(store.walk(path)), None) is not None


def _is_taken(store: Store, path: str) -> bool:
    """Return whether a name exists: as a file, or on disk as a folder or a link, wherever it leads."""
    return os.path.lexists(native_path(path)) if is_local(store) else has_file(store, path)


def find_destination(destination: str | os.PathLike[str], stores: Stores) -> tuple[Store, str]:
    """Return the store of a destination, and its path there without a slash at the end.

    Raises:
        UsageError: the destination names no folder (`named_folder`).
    """
    return resolve(named_folder(os.fspath(destination)), stores)


def check_destination(store: Store, destination: str, *, overwrite: bool) -> None:
    """Refuse a destination that is not empty, unless it may be replaced.

    Raises:
        DestinationExists: the folder is not empty.
        UsageError: the destination is a file, is below a file, or is or holds the current directory.
    """
    _refuse_files(store, destination)
    if is_local(store):
        _refuse_where_we_are(destination)
    if overwrite:
        return
    found = next(iter(store.walk(destination)), None)
    if found is not None:
        raise DestinationExists(
            "the destination is not empty", file=destination, found=found.path[len(destination) :].lstrip("/"),
            advice="Choose another folder, or replace this one with --overwrite.",
        )  # fmt: skip


def check_shared(store: Store, destination: str, own: str, *, overwrite: bool) -> None:
    """Refuse a destination where a writer among many would hide its part, or replace other data.

    Args:
        store: store of the destination.
        destination: the folder that many writers share.
        own: folder below it of this writer's own manifest.
        overwrite: replace what this writer wrote earlier.

    Raises:
        DestinationExists: a complete dataset is there, whose manifest all readers use; or this writer's earlier output.
        UsageError: the destination is a file, or is below one.
    """
    _refuse_files(store, destination)
    if has_file(store, f"{destination}/{FOLDER}/{MANIFEST_NAME}"):
        raise DestinationExists(
            "a complete dataset is there: readers would not see what one of many writers adds", file=destination,
            found=f"{FOLDER}/{MANIFEST_NAME}",
            advice="Choose another folder, or delete that file first, and its shards if they are to go.",
        )  # fmt: skip
    if not overwrite and has_file(store, f"{destination}/{own}/{MANIFEST_NAME}"):
        raise DestinationExists("a writer of this rank was there before", file=destination, found=own,
                                advice="Take another rank, or replace what it wrote with overwrite=True.")  # fmt: skip


def _refuse_files(store: Store, destination: str) -> None:
    there = native_path(destination) if is_local(store) else ""
    while there and not os.path.lexists(there):
        there = os.path.dirname(there)
    if there and not os.path.isdir(there):
        below = there != native_path(destination)
        raise UsageError(
            "a part of the destination's path is not a folder" if below else "the destination is not a folder",
            file=destination,
            found=there if below else None,
        )


def _refuse_where_we_are(destination: str) -> None:
    """Refuse a folder that contains the current directory: replacing it would remove the directory."""
    with suppress(FileNotFoundError):  # there is no current directory any more: other folders may be written
        here = os.getcwd()
        if is_inside(here, real_place(destination)):
            raise UsageError("the destination is the current directory, or holds it", file=destination, found=here,
                             advice="Name a folder in it, or go to another one first.")  # fmt: skip


def _taken(file: str, listed: str, *, apart: bool, unread: DataError | None) -> DestinationExists:
    """Return the error for a writer among many whose file name exists, with advice."""
    advice, found = "overwrite=True replaces it.", None
    if not apart:
        advice = "Give this writer its own names, for example with ${rank}."
        if unread is not None:
            found = f"{listed}, by which a writer of this rank told what it left, and which cannot be read"
            advice = f"Delete what that one left by hand. Or: {advice}"
    return DestinationExists("something is there already", file=file, found=found, advice=advice)


_DATASET, _TASKS, _OWNER = "dataset", "tasks", "owner"
"""In a hidden folder: the dataset, the attempts at tasks; and on object stores a file that is there as long as the
build is under way."""


class Staging:
    """Files being built for one destination.

    Attributes:
        folder: the folder in which the dataset is built.
        tasks: the folder of the attempts at tasks, each in a folder of its own.
    """

    def __init__(
        self,
        store: Store,
        destination: str,
        places: tuple[str, str, str],
        staged: StagedFolder | None,
        *,
        shared: bool = False,
        whole: Staging | None = None,
    ) -> None:
        self._store, self._destination, self._staged, self._shared = store, destination, staged, shared
        self._root, self.folder, self.tasks = places
        self._whole = whole
        self._places: dict[str, str] = {}

    @classmethod
    def begin(cls, store: Store, destination: str, *, shared: bool) -> Self:
        """Return a place to build in, after removing what dead processes left."""
        staged = None
        if is_local(store):
            sweep_stale(destination)
            staged = stage_folder(destination)
            root = staged.path
            os.mkdir(f"{root}/{_DATASET}")
        else:
            _sweep_late(store, destination)
            root = f"{destination}.lading-{secrets.token_hex(8)}"
            write_file(store, f"{root}/{_OWNER}", [b""])
        return cls(store, destination, (root, f"{root}/{_DATASET}", f"{root}/{_TASKS}"), staged, shared=shared)

    def part(self, name: str) -> Staging:
        """Return a place to build a dataset in a folder of this one, with which it appears."""
        places = self.path(name), self.path(name), f"{self.tasks}/{name}"
        return Staging(self._store, self.path(name), places, None, whole=self)

    def adopt(self, source: str, name: str) -> None:
        """Take a finished file into the dataset. Where a move is a copy, it stays until the commit."""
        if isinstance(self._store, Copies):
            self._places[self.path(name)] = source
        else:
            self._store.publish(source, self.path(name))

    def end_attempt(self, folder: str) -> None:
        """Delete what is left in the folder of an attempt whose files were taken, if they are no longer there."""
        if not isinstance(self._store, Copies):
            with suppress(StoreError):  # it is written to again: what is there then goes with the tasks' folder
                self._store.delete(folder)

    @property
    def store(self) -> Store:
        """Return the store by which the files of the dataset are read while they are built."""
        return MovedStore(self._store, self._places) if self._places else self._store

    def names(self, below: str) -> list[str]:
        """Return the names of the dataset's files in a folder of it, in code-point order."""
        folder = self.path(below)
        places = [info.path for info in self._store.walk(folder)]
        places += [path for path in self._places if path.startswith(f"{folder}/")]
        return sorted(place[len(self.folder) + 1 :] for place in places)

    @property
    def lock(self) -> int | None:
        """Return the descriptor of the lock of this build, for helper processes; None if there is none.

        A process that inherits it protects the build from sweeps for as long as it lives.
        """
        if self._whole is not None:
            return self._whole.lock
        return None if self._staged is None else self._staged.lock

    def path(self, name: str) -> str:
        """Return where a file of the dataset is built."""
        return f"{self.folder}/{name}"

    def final(self, name: str) -> str:
        """Return where a file of the dataset will be."""
        return f"{self._destination}/{name}"

    def commit(self, *, overwrite: bool, apart: bool = False) -> None:
        """Make everything visible: in one step, or for a shared destination file by file, the manifest last.

        Args:
            overwrite: replace existing data.
            apart: for a shared destination: the names of this writer are unique, so files of these names may be
                replaced.

        Raises:
            DestinationExists: the destination appeared meanwhile, and `overwrite` is not set.
        """
        if self._whole is not None:
            self._whole.take(self._places)
            return
        # The process may have changed its directory, and the place is relative to the first one.
        place = self._destination if self._staged is None else self._staged.place
        try:
            if self._shared:
                self._add_files(place, overwrite=overwrite, apart=apart)
            elif isinstance(self._store, Copies):
                self._copy_files(self._store, place, overwrite=overwrite)
            else:
                self._store.publish(self.folder, place, replace=overwrite)
        except LadingError as error:
            if error.file is not None and error.file.startswith(place):
                error.file = self._destination + error.file[len(place) :]
            raise
        if self._staged is not None:
            self._staged.release()

    def take(self, places: Mapping[str, str]) -> None:
        """Take what a part of this dataset remembers of its files: where they lie until the commit."""
        self._places.update(places)

    def _copy_files(self, store: CopyingStore, place: str, *, overwrite: bool) -> None:
        """Copy all files to their final names. What else attempts wrote is not on the list."""
        found = {info.path: info for info in store.walk(self._root)}
        own = {path: path for path in found if path.startswith(f"{self.folder}/")}
        files = [
            Finished(found.get(source) or store.head(source), f"{place}{path[len(self.folder) :]}")
            for path, source in {**own, **self._places}.items()
        ]
        publish_list(store, files, place, replace=overwrite)
        self.drop()

    def commit_file(self, name: str, *, overwrite: bool) -> None:
        """Give the only file that was built the name of the destination, in one step.

        Raises:
            DestinationExists: the destination appeared meanwhile, and `overwrite` is not set.
        """
        place = self._destination if self._staged is None else self._staged.place
        self._store.publish(self.path(name), place, replace=overwrite)
        self.drop()

    def _add_files(self, place: str, *, overwrite: bool, apart: bool) -> None:
        """Move all files to their places, after the files known to be left by an earlier writer of this rank.

        Lading's own files move first, and the manifest last. The first files without the last therefore show that a
        writer of the same rank died between them, and list what it left.
        """
        store = self._store
        names = [info.path[len(self.folder) + 1 :] for info in self.store.walk(self.folder)]
        names.sort(key=lambda n: (os.path.basename(n) == MANIFEST_NAME, not n.startswith(f"{FOLDER}/"), n))
        own = os.path.dirname(names[-1])
        check_shared(store, place, own, overwrite=overwrite)
        was_here = next(iter(store.walk(f"{place}/{own}")), None) is not None
        unread: DataError | None = None
        try:
            listed = files_listed(store, place, own)
        except DataError as error:  # the list must not be in the way of a name it may hold
            listed, unread = set(), error
        # A list from others may name folders: only files are deleted because of it.
        former = {name for name in listed if has_file(store, f"{place}/{name}")}
        # Each name is looked up by itself: a walk would cover the files of all writers, and fail while they delete.
        asked = () if overwrite and apart else (n for n in names if n not in former and not n.startswith(f"{own}/"))
        taken = next((name for name in asked if _is_taken(store, f"{place}/{name}")), None)
        if taken is not None:
            raise _taken(f"{place}/{taken}", f"{own}/{SHARDS_NAME}", apart=apart, unread=unread) from unread
        # The old manifest is deleted first, so that old and new files are never read as one dataset. The list is
        # deleted last: if this process dies here, the next writer finds the rest by it.
        for name in (f"{own}/{MANIFEST_NAME}", *sorted(former), own) if was_here else ():
            store.delete(f"{place}/{name}")
        moved: list[str] = []
        try:
            for name in names:
                source = self._places.get(self.path(name), self.path(name))
                store.publish(source, f"{place}/{name}", replace=apart)
                moved.append(name)
        except DestinationExists:  # another writer was faster: a later sweep must not treat its files as ours
            for name in moved:
                store.delete(f"{place}/{name}")
            raise
        store.delete(self._root)

    def drop(self) -> None:
        """Remove all that was built."""
        if self._staged is not None:
            self._staged.release()
            return
        self._store.delete(self._root)
        if self._whole is not None:
            self._store.delete(self.tasks)


def _sweep_late(store: Store, destination: str) -> None:
    """Delete what late attempts at tasks wrote for this destination after the end of their jobs.

    The folder of a build that is under way has a file that was written first and says so.
    """
    if not isinstance(store, Copies):
        return
    parent, _, name = destination.rpartition("/")
    with suppress(StoreError):  # folders here may be listed or deleted by others only
        for folder in store.folders(parent):
            token = folder.rpartition("/")[2].removeprefix(f"{name}.lading-")
            if re.fullmatch("[0-9a-f]{16}", token) and not has_file(store, f"{folder}/{_OWNER}"):
                store.delete(folder)
