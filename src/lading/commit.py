"""How a dataset appears: built out of sight, then given its name in one step.

A whole dataset is built in a folder beside its place and exchanged with what was there. A writer among many (`shared`)
builds its files there too and moves them in one by one, its manifest last; readers go by manifests. What a killed
process left behind is swept by the next writer of the same place.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Self

from lading.errors import DestinationExists, LadingError, NotFound, UsageError
from lading.manifest import MANIFEST_NAME
from lading.store.open import Stores, is_local, resolve
from lading.store.protocol import Store, native_path
from lading.store.roots import lies_in, real_place
from lading.store.staging import StagedFolder, stage_folder, sweep_stale

__all__ = ["Staging", "check_destination", "check_shared", "find_destination", "is_there"]


def is_there(url: str, stores: Stores) -> bool:
    """Whether a file, or a folder with something in it, is at a place; a link too, wherever it leads."""
    store, path = resolve(url, stores)
    if is_local(store):
        return os.path.lexists(native_path(path))
    with suppress(NotFound):
        store.head(path)
        return True
    return next(iter(store.walk(path)), None) is not None


def find_destination(destination: str | os.PathLike[str], stores: Stores) -> tuple[Store, str]:
    """The store of a destination, and its path there without a slash at the end.

    Raises:
        UsageError: an empty name, as of a variable that is not set, or nothing but slashes or a scheme: the path would
            be another place, such as the current directory.
    """
    name = os.fspath(destination)
    path = name.rstrip("/")
    if not path or ("://" in name and "://" not in path):
        raise UsageError("the destination names no folder", found=repr(name), advice="Name one.")
    return resolve(path, stores)


def check_destination(store: Store, destination: str, *, overwrite: bool) -> None:
    """Refuse a destination that holds something, unless it may be replaced.

    Raises:
        DestinationExists: a folder with something in it. UsageError: a file, or a place below one; the current
            directory, or a folder that holds it.
    """
    check_shared(store, destination)
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


def check_shared(store: Store, destination: str) -> None:
    """Refuse a destination that is no folder. Raises UsageError: a file, or a place below one."""
    there = native_path(destination) if is_local(store) else ""
    while there and not os.path.lexists(there):
        there = os.path.dirname(there)
    if there and not os.path.isdir(there):
        below = there != native_path(destination)
        raise UsageError("the destination lies in what is no folder" if below else "the destination is no folder",
                         file=destination, found=there if below else None)  # fmt: skip


def _refuse_where_we_are(destination: str) -> None:
    """A folder that is replaced takes the current directory along, if that is it or lies in it."""
    with suppress(FileNotFoundError):  # no current directory any more: what lies elsewhere may be written
        here = os.getcwd()
        if lies_in(here, real_place(destination)):
            raise UsageError("the destination is the current directory, or holds it", file=destination, found=here,
                             advice="Name a folder in it, or go to another one first.")  # fmt: skip


class Staging:
    """Files being built for one destination."""

    def __init__(
        self, store: Store, destination: str, folder: str, staged: StagedFolder | None, *, shared: bool
    ) -> None:
        self._store, self._destination, self._staged, self._shared = store, destination, staged, shared
        self.folder = folder

    @classmethod
    def begin(cls, store: Store, destination: str, *, shared: bool) -> Self:
        """A place to build in, after sweeping what dead processes left."""
        if is_local(store):
            sweep_stale(destination)
            staged = stage_folder(destination)
            return cls(store, destination, staged.path, staged, shared=shared)
        return cls(store, destination, f"{destination}.lading-{secrets.token_hex(8)}", None, shared=shared)

    @property
    def lock(self) -> int | None:
        """Descriptor of the lock that says that somebody builds here, for processes that help; None if there is none.

        A process that inherits it keeps the place from being swept for as long as it lives.
        """
        return None if self._staged is None else self._staged.lock

    def path(self, name: str) -> str:
        """Where a file of the dataset is built."""
        return f"{self.folder}/{name}"

    def final(self, name: str) -> str:
        """Where a file of the dataset will be."""
        return f"{self._destination}/{name}"

    def commit(self, *, overwrite: bool) -> None:
        """Make everything visible: in one step, or for a shared destination file by file, manifests last.

        Raises:
            DestinationExists: something came to lie at the destination, and `overwrite` is not set.
        """
        if self._shared:
            names = [info.path[len(self.folder) + 1 :] for info in self._store.walk(self.folder)]
            for name in sorted(names, key=lambda n: (os.path.basename(n) == MANIFEST_NAME, n)):
                self._publish(self.path(name), name)
            self._store.delete(self.folder)
        else:
            self._publish(self.folder, replace=overwrite)
        if self._staged is not None:
            self._staged.release()

    def _publish(self, source: str, name: str = "", *, replace: bool = True) -> None:
        """Give a file of this name, or the whole folder, its place, also if the process works in another folder now."""
        told = self.final(name) if name else self._destination
        if self._staged is None:
            self._store.publish(source, told, replace=replace)
            return
        target = os.path.join(self._staged.place, name) if name else self._staged.place
        try:
            self._store.publish(source, target, replace=replace)
        except LadingError as error:
            if error.file == target:
                error.file = told
            raise

    def drop(self) -> None:
        """Remove all that was built."""
        self._store.delete(self.folder)
        if self._staged is not None:
            self._staged.release()
