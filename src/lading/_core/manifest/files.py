"""Manifest, list of shards and index files of a dataset's folder, in a store.

A dataset of one writer has `_lading/manifest.json`, `_lading/shards.arrow` and `_lading/index-*.arrow`. Many writers
have the same files in `_lading/{rank}/` each, and readers see them as one dataset, in the order of ranks. A manifest
without its list of shards, or the reverse, is not a dataset.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shlex
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from lading._core.arrow.ipc import unpacked_sizes
from lading._core.arrow.references import files_of, is_ref, unpack, with_refs
from lading._core.arrow.views import is_text
from lading._core.features.row_layout import row_layout
from lading._core.formats.registry import get_format
from lading._core.manifest import values as mf
from lading._core.manifest.hugging_face import save_data_files
from lading._core.manifest.unfinished import refuse_listed, refuse_unfinished
from lading._core.manifest.values import Manifest
from lading._core.storage.base import Mapper, Store, native_path, write_file
from lading._core.storage.checksum import Checksum
from lading._core.storage.extents import EXTENTS_SCHEMA, NO_ROWS
from lading._core.storage.stores import is_local
from lading._core.units import count
from lading.errors import (
    CorruptShard,
    DataError,
    LadingError,
    NotFound,
    SidecarMismatch,
    StoreError,
    UnfinishedDataset,
    UsageError,
    errors_at,
    is_damage,
    suppress_damage,
)
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "ShardTables",
    "changed_manifests",
    "files_listed",
    "lading_folder",
    "load_manifest",
    "load_readable",
    "save_manifest",
]

_OPEN_FILES = 64
"""Files of indexes that stay open, without a descriptor: each holds the tables of some hundred shards."""


def lading_folder(rank: int | None) -> str:
    """Return the folder of lading's own files below the dataset's, for a writer."""
    return mf.FOLDER if rank is None else f"{mf.FOLDER}/{rank:05d}"


def save_manifest(store: Store, folder: str, manifest: Manifest, shards: pa.Table) -> None:
    """Write manifest and list of shards below a dataset's folder; the manifest holds the checksum of the list.

    A dataset of one writer also gets the file by which `datasets` finds the shards.
    """
    if manifest.rank is None:
        beside = save_data_files(store, folder, manifest.format, {"train": shards["path"].to_pylist()})
        manifest = replace(manifest, files={**manifest.files, **beside})
    own, listed, total = lading_folder(manifest.rank), mf.write_shards(shards, manifest), Checksum()
    total.update(listed)
    files = {**manifest.files, f"{own}/{mf.SHARDS_NAME}": total.hexdigest()}
    for name, body in ((mf.SHARDS_NAME, listed), (mf.MANIFEST_NAME, mf.to_json(replace(manifest, files=files)))):
        write_file(store, f"{folder}/{own}/{name}", [body])


def load_manifest(
    store: Store, folder: str, *, own: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[Manifest, pa.Table] | None:
    """Return manifest and shards of a dataset's folder; None if there is no manifest.

    Args:
        store: store of the dataset.
        folder: folder of the dataset.
        own: folder of one writer's own files, to load what that writer wrote only.
        limits: limits on the size of each file.

    Raises:
        DataError: a manifest is broken, or of a newer version. LimitExceeded: it is larger than `manifest_bytes`,
            or has more than `index_values`.
        UnfinishedDataset: there is none, because the dataset is being written, or its job died.
    """
    if own is not None:
        return _load_one(store, folder, own, limits)
    with _naming_what_is_there(store, folder):
        return _load_any(store, folder, limits)


@contextmanager
def _naming_what_is_there(store: Store, folder: str) -> Iterator[None]:
    """Let an error name a file that is there, or the folder or URL that was named, and no guess below it."""
    try:
        yield
    except StoreError as error:
        if not is_local(store):
            error.file = folder
        elif error.errno in (errno.EACCES, errno.EPERM) and error.file is not None:
            there = (place for place in (error.file, f"{folder}/{mf.FOLDER}") if os.path.lexists(native_path(place)))
            error.file = next(there, folder)
        raise


def _load_any(store: Store, folder: str, limits: Limits) -> tuple[Manifest, pa.Table] | None:
    single = _load_one(store, folder, mf.FOLDER, limits)
    if single is not None:
        return single
    files = [info.path for info in store.walk(f"{folder}/{mf.FOLDER}")]
    owns, lists = _owns(folder, files, mf.MANIFEST_NAME, mf.SHARDS_NAME)
    parts = [part for own in owns if (part := _load_one(store, folder, own, limits)) is not None]
    if parts:
        return mf.merge(parts)
    refuse_listed(store, files)
    if not files and folder.startswith(("http://", "https://")):  # the server may have no listings
        refuse_unfinished(store, folder)
    if any(own != mf.FOLDER for own in lists):  # of one of many writers, whose manifest comes last
        raise UnfinishedDataset(
            "a writer puts its files here, or has died meanwhile", file=folder, found=f"{lists[0]}/{mf.SHARDS_NAME}",
            expected=mf.MANIFEST_NAME, advice="Wait for its end. If it died, start the same writer again.",
        )  # fmt: skip
    return None


def _own_folders(store: Store, folder: str, *names: str) -> list[list[str]]:
    """Return for each name the folders with such a file below the dataset's: one, or one a writer, by rank."""
    return _owns(folder, [info.path for info in store.walk(f"{folder}/{mf.FOLDER}")], *names)


def _owns(folder: str, paths: Sequence[str], *names: str) -> list[list[str]]:
    """Return what `_own_folders` does, of the paths of lading's own files."""
    files = [path[len(folder) + 1 :] for path in paths]
    found = [[file.removesuffix(f"/{name}") for file in files if file.endswith(f"/{name}")] for name in names]
    return [[mf.FOLDER] if mf.FOLDER in owns else owns for owns in found]


def _load_one(store: Store, folder: str, own: str, limits: Limits) -> tuple[Manifest, pa.Table] | None:
    path = f"{folder}/{own}/{mf.MANIFEST_NAME}"
    try:
        manifest = mf.from_json(_text(store, path, limits), file=path)
    except NotFound:
        return None
    path = f"{folder}/{own}/{mf.SHARDS_NAME}"
    try:
        listed = _mapped(store, path, limits)
    except NotFound as error:
        raise SidecarMismatch("the manifest has no list of shards beside it", file=path) from error
    _check_list(listed, manifest.files.get(f"{own}/{mf.SHARDS_NAME}"), path)
    shards = _read_list(listed, path, limits)
    mf.validate(manifest, shards, file=path)
    return manifest, shards


def changed_manifests(store: Store, folder: str, limits: Limits = DEFAULT_LIMITS) -> list[LadingError]:
    """Return how the manifests of a dataset's folder differ from their copies; unreadable ones are skipped.

    A list of shards without its manifest is reported too: readers of the dataset see files without it. So is a manifest
    that is only a dangling link.
    """
    with _naming_what_is_there(store, folder):
        manifests, lists = _own_folders(store, folder, mf.MANIFEST_NAME, mf.SHARDS_NAME)
    found: list[LadingError] = [_gone(folder, own) for own in lists if own not in manifests]
    for own in manifests:
        path, listed_as = f"{folder}/{own}/{mf.MANIFEST_NAME}", f"{own}/{mf.SHARDS_NAME}"
        with suppress(DataError, StoreError):  # opening the dataset reports this
            try:
                data = _text(store, path, limits)
            except NotFound:
                found.append(_gone(folder, own))
                continue
            found += mf.changes(data, _mapped(store, f"{folder}/{listed_as}", limits), listed_as, file=path)
    return found


def _from_copy(store: Store, folder: str, own: str, limits: Limits) -> tuple[Manifest, pa.Table]:
    """Return manifest and shards of one writer from its list of shards alone. Raises DataError, StoreError."""
    path = f"{folder}/{own}/{mf.SHARDS_NAME}"
    listed = pa.py_buffer(_whole(store, path, limits))
    return mf.kept_manifest(listed, file=path), _read_list(listed, path, limits)


def files_listed(store: Store, folder: str, own: str) -> set[str]:
    """Return the files of all shards in one writer's list, by paths below the dataset's folder; nothing without a list.

    They may be missing: the list is written before them. Names that lead out of the folder, or to lading's own files,
    are left out, because the list may come from others.

    Raises:
        DataError: the list cannot be read.
    """
    try:
        manifest, shards = _from_copy(store, folder, own, DEFAULT_LIMITS)
    except NotFound:
        return set()
    fmt, found = get_format(manifest.format), set()
    for row in shards.to_pylist():
        path = row["path"]
        found.update([path, *(posixpath.join(posixpath.dirname(path), f["name"]) for f in row["beside_xxh3"] or ())])
        if row["entry"]:
            found.update(fmt.index.renamed(row["entry"], path)[1])
    return {name for name in found if not mf.leads_outside(name) and not name.startswith(f"{mf.FOLDER}/")}


def _gone(folder: str, own: str) -> LadingError:
    return SidecarMismatch("the list of shards has no manifest beside it", file=f"{folder}/{own}/{mf.MANIFEST_NAME}",
                           advice=f"'lading salvage {shlex.quote(folder)} DST' uses its copy in the list.")  # fmt: skip


def load_readable(
    store: Store, folder: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[Manifest | None, pa.Table | None, list[LadingError]]:
    """Return manifest and shards as `load_manifest` does, or the readable part of both.

    If a manifest was changed, is damaged or missing, its copy in the list of shards is used. If one list of many
    writers cannot be read, none is returned: the others would not be all shards.

    Returns:
        The two, each None if missing or unreadable; and the errors of unreadable, changed or missing files.

    Raises:
        StoreError: the machine or a store failed.
    """
    try:
        manifest, shards = load_manifest(store, folder, limits=limits) or (None, None)
    except (DataError, StoreError):
        return _load_each(store, folder, limits)
    else:
        changed = changed_manifests(store, folder, limits)
        [owns] = _own_folders(store, folder, mf.SHARDS_NAME) if changed else [[]]
        if owns:
            try:
                manifest, shards = mf.merge([_from_copy(store, folder, own, limits) for own in owns])
            except (DataError, StoreError) as error:
                if not is_damage(error):
                    raise
                changed.append(error)
        return manifest, shards, changed


def _load_each(store: Store, folder: str, limits: Limits) -> tuple[Manifest | None, pa.Table | None, list[LadingError]]:
    """As `load_readable`, for each writer by itself."""
    owns = {mf.FOLDER}
    with suppress(StoreError, UsageError):  # a store that cannot list files
        owns = {own for some in _own_folders(store, folder, mf.MANIFEST_NAME, mf.SHARDS_NAME) for own in some}
    names = [mf.FOLDER] if mf.FOLDER in owns else sorted(owns)
    found = [_load_one_readable(store, folder, own, limits) for own in names]
    errors = [error for _, _, reported in found for error in reported]
    parts = [(manifest, shards) for manifest, shards, _ in found if manifest is not None and shards is not None]
    if len(parts) < len(found):
        return found[0][0] if len(found) == 1 else None, None, errors
    try:
        return *mf.merge(parts), errors
    except DataError as error:
        return None, None, [*errors, error.at(file=f"{folder}/{mf.FOLDER}")]


def _load_one_readable(
    store: Store, folder: str, own: str, limits: Limits
) -> tuple[Manifest | None, pa.Table | None, list[LadingError]]:
    path = f"{folder}/{own}/{mf.MANIFEST_NAME}"
    errors: list[LadingError] = []
    try:
        one = _load_one(store, folder, own, limits)
        if one is not None:
            return *one, []
        errors.append(_gone(folder, own))
    except (DataError, StoreError) as error:
        if not is_damage(error):
            raise
        errors.append(error.at(file=f"{folder}/{own}"))
    with suppress_damage():  # missing, or reported already
        return mf.from_json(_text(store, path, limits), file=path), None, errors
    try:
        return *_from_copy(store, folder, own, limits), errors
    except NotFound:
        return None, None, errors
    except (DataError, StoreError) as error:
        if not is_damage(error):
            raise
        return None, None, [*errors, error]


def _read_list(listed: pa.Buffer, path: str, limits: Limits) -> pa.Table:
    """Return the list of shards, after a check that pyarrow may unpack it.

    Raises:
        DataError: it is invalid.
        LimitExceeded: it unpacks to more than `manifest_bytes`.
    """
    with errors_at(file=path):
        _refuse_large(path, sum(unpacked_sizes(listed)), limits)
    return mf.read_shards(listed, file=path)


def _check_list(listed: pa.Buffer, expected: str | None, path: str) -> None:
    """Check the list of shards against its checksum: all other files are found through it, and the check is cheap."""
    total = Checksum()
    total.update(listed)
    if expected not in (None, total.hexdigest()):
        raise SidecarMismatch("the list of shards differs from its checksum in the manifest", file=path,
                              expected=f"xxh3 {expected}", found=f"xxh3 {total.hexdigest()}",
                              advice="The file was changed or damaged since it was written.")  # fmt: skip


class ShardTables:
    """Tables stored for each shard of a dataset. A file holds those of many shards. Mapped files stay open, else one.

    Args:
        store: store of the dataset.
        folder: folder of the dataset.
        shards: shards, as the manifest lists them.
        limits: limits on the size of each file.
        view: view of the manifest; with `samples`, a shard has as many rows as the list says. None if unknown.

    Attributes:
        folder: the same.
        shards: the same.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        shards: pa.Table,
        limits: Limits = DEFAULT_LIMITS,
        *,
        view: str | None = None,
    ) -> None:
        self.folder, self.shards = folder, shards
        self._store, self._limits, self._view = store, limits, view
        self._files: OrderedDict[str, tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]] = OrderedDict()

    def path(self, shard: int) -> str:
        """Return the path of a shard's own file."""
        return f"{self.folder}/{self.shards['path'][shard].as_py()}"

    @property
    def has_checksums(self) -> bool:
        """Whether any shard has a checksum."""
        return bool(self.shards["xxh3"].null_count < len(self.shards))

    def index(self, shard: int) -> pa.Table | None:
        """Return the references of one shard, as its writer stored them; None if it stored none.

        Raises:
            CorruptShard: the index file is broken.
        """
        return self._load("index", shard, _refuse_no_index)

    def extents(self, shard: int) -> pa.Table | None:
        """Return the extents of one shard's files (`_core.storage.extents`); None if its writer stored none.

        Raises:
            CorruptShard: the file of extents is broken.
        """
        of_samples = self._view is not None and not row_layout(self._view).has_items
        rows = self.shards["num_samples"][shard].as_py() if of_samples else None
        return self._load("extents", shard, partial(_refuse_no_extents, rows=rows))

    def _load(self, what: str, shard: int, refuse: Callable[[pa.Table], None]) -> pa.Table | None:
        name = self.shards[f"{what}_file"][shard].as_py()
        if name is None:
            return None
        path = f"{self.folder}/{name}"
        try:
            whole, file = self._opened(path)
            number = self.shards[f"{what}_batch"][shard].as_py()
            # pyarrow allocates whatever memory a table declares, and others may have made the file.
            _refuse_large(path, sum(unpacked_sizes(whole, number)), self._limits)
            table = pa.Table.from_batches([file.get_batch(number)])
            table.validate(full=True)  # reading an invalid array would crash the process
            table = with_refs(table)
            refuse(table)
        except LadingError as error:
            raise error.at(file=path) from None
        except (pa.ArrowException, OSError, TypeError, ValueError) as error:
            raise CorruptShard(f"the {what} cannot be read ({error})", file=path,
                               advice="'lading salvage' does without it, and writes a new one.") from error  # fmt: skip
        return table

    def _opened(self, path: str) -> tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]:
        """Return a file, and its reader; the last ones are kept, of a store that cannot map only one."""
        found = self._files.pop(path, None)
        if found is None:
            while len(self._files) >= (_OPEN_FILES if isinstance(self._store, Mapper) else 1):
                self._files.popitem(last=False)
            whole = _mapped(self._store, path, self._limits)
            # Without threads: a process that forks may not have any.
            found = whole, pa.ipc.open_file(whole, options=pa.ipc.IpcReadOptions(use_threads=False))
        self._files[path] = found
        return found


def _refuse_no_index(index: pa.Table) -> None:
    """Raise TypeError, ValueError or DataError for an invalid index."""
    files = len(files_of(index.schema)) or 1  # without a table of files: the shard
    for name, column in zip(index.schema.names, index.columns, strict=True):
        kind = column.type
        if not (is_ref(kind) or is_text(kind) or pa.types.is_integer(kind)):
            raise TypeError(f"a column {name!r} of {kind}")
        if is_ref(kind):
            refs = unpack(column)
            wrong = refs.file[refs.valid & ((refs.file < 0) | (refs.file >= files))]
            if len(wrong):
                raise ValueError(f"column {name!r} names file {wrong[0]} of {count(files, 'file')}")


def _refuse_no_extents(extents: pa.Table, rows: int | None) -> None:
    """Raise TypeError or ValueError for an invalid table of extents, with this number of rows if known.

    Rows ascend in a file. Two neighbours may have the same row, of which one file holds several parts. An extent may
    also be missing for rows that take no bytes in it.
    """
    if not extents.schema.equals(EXTENTS_SCHEMA):
        raise TypeError(f"columns {extents.schema.names}")
    file, size, first, last = (extents[name].to_numpy() for name in ("file", "size_bytes", "first_row", "last_row"))
    if (size <= 0).any() or (first < NO_ROWS).any() or (last < first).any() or size.sum(dtype=np.float64) >= 1 << 63:
        raise ValueError("a size or a row that cannot be")
    held = first != NO_ROWS
    if (last[~held] != NO_ROWS).any() or (rows is not None and (last[held] >= rows).any()):
        raise ValueError("a row that the shard does not have")
    file, first, last = file[held], first[held], last[held]
    if ((first[1:] < last[:-1]) & (file[1:] == file[:-1])).any():
        raise ValueError("rows that do not ascend")


def _whole(store: Store, path: str, limits: Limits) -> bytes:
    size = store.head(path).size_bytes
    _refuse_large(path, size, limits)
    [data] = store.get_ranges(path, [(0, size)])
    return bytes(data)


def _text(store: Store, path: str, limits: Limits) -> bytes:
    """Return the text of a manifest."""
    text = _whole(store, path, limits)
    limits.check_values(text, file=path)
    return text


def _mapped(store: Store, path: str, limits: Limits) -> pa.Buffer:
    if not isinstance(store, Mapper):
        return pa.py_buffer(_whole(store, path, limits))
    mapped = store.map(path)
    _refuse_large(path, mapped.size_bytes, limits)
    return mapped.buffer


def _refuse_large(path: str, size: int, limits: Limits) -> None:
    if size > limits.manifest_bytes:
        raise limits.exceeded("manifest_bytes", "a file of lading's own is too large", file=path, found=size)
