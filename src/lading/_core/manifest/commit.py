"""The commit: a dataset is built in a hidden folder, then gets its name in one step.

The hidden folder has two: the dataset, and the folders of the attempts at tasks. Shards that are taken from an attempt
get a second name in the dataset, a hard link, on disk. Without hard links they are renamed at the commit. An object
store copies them once, to their final names. Attempts stay until the commit, so that a job that dies in between goes
on. What an attempt writes later is in neither, and goes with the hidden folder, or in the next sweep.

A job of several tasks keeps a journal in the hidden folder (`jobs.journal.journal`). A hidden folder with records of
finished tasks is left when its job fails. `Staging.resumed` takes it over. `commit.json` tells that the commit had
begun: what is at the destination then may be the job's own. What tells that it
had ended goes last (`done_place`).

A complete dataset is built in a folder next to its place and exchanged with what was there. One of many writers
(`shared`) builds its files there too, and moves them in one by one, its manifest last; readers follow manifests. The
next writer of the same place removes what a killed process left. Files that it had already moved are removed when the
next writer of its rank commits.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

from lading._core.manifest.builds import COMMIT_NAME, JOB_NAME, PLAN_NAME, RECORDS, done_place, rank_build
from lading._core.manifest.files import files_listed
from lading._core.manifest.replaced import refuse_other_files
from lading._core.manifest.values import FOLDER, MANIFEST_NAME, SHARDS_NAME
from lading._core.storage.base import (
    Copies,
    Store,
    has_file,
    name_taken,
    native_path,
    store_errors,
    write_file,
)
from lading._core.storage.create_file import create_file
from lading._core.storage.moved import MovedStore
from lading._core.storage.publish import MARKER, CopyingStore, Finished, publish_list
from lading._core.storage.roots import is_inside, real_place
from lading._core.storage.staging import StagedFolder, stage_folder, sweep_stale, take_folder
from lading._core.storage.stores import Stores, is_local, named_folder, resolve
from lading.errors import DataError, DestinationExists, LadingError, NotFound, StoreError, UsageError

__all__ = [
    "Staging",
    "can_resume",
    "check_destination",
    "check_shared",
    "find_destination",
    "is_there",
    "part_journal",
    "sweep_unbegun",
]


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


def check_destination(store: Store, destination: str, *, overwrite: bool, again: bool = False) -> None:
    """Refuse a destination that is not empty, unless it may be replaced.

    Args:
        store: store of the destination.
        destination: its path.
        overwrite: replace a dataset that is there.
        again: what is there may be of this job, which died.

    Raises:
        DestinationExists: the folder is not empty; or it is to be replaced, and holds more than a dataset.
        UsageError: the destination is a file, is below a file, or is or holds the current directory.
    """
    _refuse_files(store, destination)
    if is_local(store):
        _refuse_where_we_are(destination)
    if again:
        return
    if overwrite:
        refuse_other_files(store, destination)
        return
    found = next(iter(store.walk(destination)), None)
    if found is not None:
        advice = "Choose another folder, or replace this one with --overwrite."
        try:
            refuse_other_files(store, destination)
        except DestinationExists:
            advice = "Choose another folder: this one holds other files than a dataset."
        raise DestinationExists("the destination is not empty", file=destination,
                                found=found.path[len(destination) :].lstrip("/"), advice=advice)  # fmt: skip


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
_PLANS = b"plan"
"""What that file holds of a job whose next file is its plan; it is empty otherwise."""
_ENDING_S, _LOOK_S = 5.0, 0.05
"""How long workers may take to end when their job was killed, and how often they are looked for."""


def can_resume(store: Store) -> bool:
    """Return whether what a dead process left in a store is there for the next one."""
    return is_local(store) or isinstance(store, Copies)


def _taken_over(root: str, destination: str) -> StagedFolder | None:
    """Return the folder of a dead process. Its workers end with it, which takes a moment."""
    end = time.monotonic() + _ENDING_S
    while (staged := take_folder(root, destination)) is None and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return staged


def sweep_unbegun(store: Store, root: str) -> None:
    """Delete the folder of a job that died between its first file and its plan. On disk, `Staging.begin` does.

    Jobs without a journal have the first file only, until they write shards: nobody knows whether they live.
    """
    if isinstance(store, Copies):
        found = [(info.path, info.size_bytes) for info in store.walk(root)]
        if found == [(f"{root}/{_OWNER}", len(_PLANS))]:
            store.delete(root)


def part_journal(root: str, name: str) -> str:
    """Return the folder of the journal of one of several datasets that are built in a hidden folder."""
    return f"{root}/{_TASKS}/{name}"


class Staging:
    """Files being built for one destination.

    Attributes:
        folder: the folder in which the dataset is built.
        tasks: the folder of the attempts at tasks, each in a folder of its own.
        journal: the folder of the journal of this job, or of this part of it.
        had_begun: whether what is at the destination may be of a job that died: its commit had begun, or this is a part
            of what it built.
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
        self._journals: list[str] = []
        self._is_gone = self._goes_on = False
        self._done: bytes | None = None
        self.journal = self._root if whole is None else self.tasks
        self.had_begun = False

    @classmethod
    def begin(cls, store: Store, destination: str, *, shared: bool, plans: bool = False) -> Self:
        """Return a place to build in, after removing what dead processes left.

        Args:
            store: of the destination.
            destination: its path.
            shared: whether many writers add to the destination.
            plans: whether the next file that is written there is the plan of a journal.
        """
        staged = None
        if is_local(store):
            sweep_stale(destination)
            staged = stage_folder(destination)
            root = staged.path
            os.mkdir(f"{root}/{_DATASET}")
        else:
            _sweep_late(store, destination)
            root = f"{destination}.lading-{secrets.token_hex(8)}"
            write_file(store, f"{root}/{_OWNER}", [_PLANS if plans else b""])
        return cls(store, destination, (root, f"{root}/{_DATASET}", f"{root}/{_TASKS}"), staged, shared=shared)

    @classmethod
    def resumed(cls, store: Store, destination: str, root: str, *, had_ended: bool) -> Self:
        """Return a place to go on in that a dead process has built in. The dataset is empty, attempts are there.

        If its commit had ended, nothing but removing is left to do.

        On a store nobody knows whether the process is dead: two that go on at once do the same. What is in the dataset
        there stays, since the other one may be copying from it. The same job writes the same names again.

        Raises:
            UsageError: the process lives.
            NotFound: the process has ended meanwhile, and removed the place.
        """
        staged = None
        if is_local(store):
            staged = _taken_over(root, destination)
            if staged is None:
                raise UsageError("the job is under way in another process", file=destination, found=root,
                                 advice="Wait for its end, or end it.")  # fmt: skip
            if staged.is_noted() and not had_ended:
                staged.release()
                raise NotFound("the job has ended", file=root)
        elif not had_ended:
            write_file(store, f"{root}/{_OWNER}", [b""])
            if has_file(store, done_place(store, root)) or not has_file(store, f"{root}/{PLAN_NAME}"):
                store.delete(root)
                raise NotFound("the job has ended", file=root)
        staging = cls(store, destination, (root, f"{root}/{_DATASET}", f"{root}/{_TASKS}"), staged)
        staging.had_begun, staging._goes_on = has_file(store, f"{root}/{COMMIT_NAME}"), True
        if had_ended:
            staging._done = b""
            return staging
        if staged is not None:
            store.delete(staging.folder)
            with store_errors(root):
                os.mkdir(staging.folder)
        return staging

    @classmethod
    def for_ranks(cls, store: Store, destination: str, job: str) -> Self:
        """Return the place in which all ranks of a job build. It stays until `lading.finish` or `lading.clean`.

        Args:
            store: of the destination.
            destination: its path.
            job: the hash of the job's plan, 16 hex digits.
        """
        root = rank_build(store, destination, job)
        staging = cls(store, destination, (root, f"{root}/{_DATASET}", f"{root}/{_TASKS}"), None)
        staging._is_gone = True  # for this process: `drop` leaves it to the others
        return staging

    @property
    def destination(self) -> str:
        """The destination of the whole that is built here."""
        return self._destination if self._whole is None else self._whole.destination

    def keep_records(self, journal: str) -> None:
        """Leave what is built for another process, if this one gives up while the journal has records."""
        self._journals.append(journal)
        if self._whole is not None:
            self._whole.keep_records(journal)

    def sweep_attempts(self, kept: Sequence[str]) -> None:
        """Delete attempts of a dead process, but for the folders to be kept. On a store some may be under way."""
        if is_local(self._store) and os.path.isdir(native_path(self.tasks)):
            with store_errors(self.tasks):
                for name in os.listdir(native_path(self.tasks)):
                    if name.startswith("task-") and f"{self.tasks}/{name}" not in kept:
                        self._store.delete(f"{self.tasks}/{name}")

    def begin_commit(self, done: bytes, job: bytes) -> None:
        """Tell the next process that what appears from now on is this job's.

        Args:
            done: what it finds from now on until the rest is removed.
            job: what it finds at the destination later.
        """
        if self._whole is not None:
            return
        write_file(self._store, self.path(f"{FOLDER}/{JOB_NAME}"), [job])
        if self._journals:
            create_file(self._store, f"{self._root}/{COMMIT_NAME}", done)
            self._done = done

    def part(self, name: str) -> Staging:
        """Return a place to build a dataset in a folder of this one, with which it appears."""
        places = self.path(name), self.path(name), part_journal(self._root, name)
        part = Staging(self._store, self.path(name), places, None, whole=self)
        part.had_begun = self._goes_on
        return part

    def adopt(self, source: str, name: str) -> None:
        """Take a finished file of an attempt into the dataset. It stays in the attempt's folder until the commit."""
        if isinstance(self._store, Copies):
            self._places[self.path(name)] = source
            return
        if not is_local(self._store):  # without copies nobody goes on (`can_resume`): the file moves
            self._store.publish(source, self.path(name))
            return
        old, new = native_path(source), native_path(self.path(name))
        with store_errors(source):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            try:
                os.link(old, new)
            except FileNotFoundError:
                raise
            except OSError:  # a file system without hard links: renamed at the commit
                self._places[self.path(name)] = source

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
            DestinationExists: the destination appeared meanwhile, and `overwrite` is not set; or it holds other files.
        """
        if self._whole is not None:
            self._whole.take(self._places)
            self._is_gone = True
            return
        # The process may have changed its directory, and the place is relative to the first one.
        place = self._destination if self._staged is None else self._staged.place
        if is_local(self._store):
            self._rename_adopted()
        try:
            if overwrite and not self._shared and (is_local(self._store) or not self.had_begun):
                refuse_other_files(self._store, place)  # since the job began, somebody may have put them there
            if self._shared:
                self._add_files(place, overwrite=overwrite, apart=apart)
            elif isinstance(self._store, Copies):
                self._copy_files(self._store, place, overwrite=overwrite)
            elif overwrite or not (self.had_begun and self._is_published(place)):
                self._store.publish(self.folder, place, replace=overwrite)
        except LadingError as error:
            if error.file is not None and error.file.startswith(place):
                error.file = self._destination + error.file[len(place) :]
            raise
        self._clean_up()

    def _rename_adopted(self) -> None:
        """Rename files that have no hard links. A job that dies from now on does their tasks again."""
        for path, source in self._places.items():
            with store_errors(source):
                os.makedirs(os.path.dirname(native_path(path)), exist_ok=True)
                os.rename(native_path(source), native_path(path))
        self._places.clear()

    def _clean_up(self) -> None:
        """Remove what was built, behind a commit. A store that fails now takes nothing from the destination."""
        self._is_gone = True
        try:
            if self._done is not None:
                self._note_done(self._done)
            self._remove()
        except StoreError as error:
            warnings.warn(
                f"{self._destination} is complete, but files beside it could not be removed: {error.problem}. "
                f"Run: lading clean {shlex.quote(self._destination)}",
                stacklevel=2,
            )

    def _note_done(self, done: bytes) -> None:
        if self._staged is not None:
            self._staged.note(done)
        else:
            create_file(self._store, done_place(self._store, self._root), done)

    def _is_published(self, place: str) -> bool:
        """Whether the destination has the same files: the process that died had given them their names."""
        mine, theirs = ({i.path[len(at) :]: i for i in self._store.walk(at)} for at in (self.folder, place))
        if {name: info.size_bytes for name, info in mine.items()} != {n: i.size_bytes for n, i in theirs.items()}:
            return False
        manifests = [name for name in mine if os.path.basename(name) == MANIFEST_NAME]
        return all(self._bytes(mine[name].path) == self._bytes(theirs[name].path) for name in manifests)

    def _bytes(self, path: str) -> bytes:
        [data] = self._store.get_ranges(path, [(0, self._store.head(path).size_bytes)])
        return bytes(data)

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
        targets = {target for _, target in files}
        if self.had_begun and not overwrite:
            there = [info.path for info in store.walk(place) if not info.path.endswith(f"/{MARKER}")]
            other = next((path for path in there if path not in targets), None)
            if other is None:  # a manifest is there behind a whole commit: of this job, or of a later one
                other = next((path for path in there if self._is_other_manifest(path, files)), None)
            if other is not None:
                raise name_taken(other)
        publish_list(store, files, place, replace=overwrite or self.had_begun)

    def _is_other_manifest(self, path: str, files: Sequence[Finished]) -> bool:
        """Whether a file at the destination is a manifest of another dataset than of this one."""
        if os.path.basename(path) != MANIFEST_NAME:
            return False
        [mine] = [each.file.path for each in files if each.target == path]
        return self._bytes(mine) != self._bytes(path)

    def commit_file(self, name: str, *, overwrite: bool) -> None:
        """Give the only file that was built the name of the destination, in one step.

        Raises:
            DestinationExists: the destination appeared meanwhile, and `overwrite` is not set.
        """
        place = self._destination if self._staged is None else self._staged.place
        self._store.publish(self.path(name), place, replace=overwrite)
        self._clean_up()

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

    def drop(self) -> None:
        """Give up: remove all that was built, unless another process can go on with it."""
        if self._is_gone:
            return
        if not self._has_records():
            self._remove()
        elif self._staged is not None:
            self._staged.leave()
        elif self._whole is None:
            with suppress(StoreError):  # whatever failed before: only the next sweep looks for this file
                self._store.delete(f"{self._root}/{_OWNER}")

    def forget(self) -> None:
        """Let `drop` remove finished tasks too: they are not what they should be."""
        self._journals.clear()
        if self._whole is not None:
            self._whole.forget()

    def _has_records(self) -> bool:
        """Whether another process can go on: with finished tasks, or with a commit that has begun."""
        if self._journals and self._done is not None:
            return True
        try:
            return any(next(iter(self._store.walk(f"{each}/{RECORDS}")), None) for each in self._journals)
        except StoreError:  # nobody knows: better too much is left than too little
            return True

    def _remove(self) -> None:
        self._is_gone = True
        if self._staged is not None:
            self._staged.release()
            return
        if self._done is not None:
            for name in (_TASKS, RECORDS, _DATASET, PLAN_NAME, COMMIT_NAME):
                self._store.delete(f"{self._root}/{name}")
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
