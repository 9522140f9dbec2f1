"""Resolve the `source_ref` texts of a table to references, within allowed folders.

The texts come from the table's author. Their references must not read files that the author could not. They may
therefore name only files below certain folders, the *roots*: those of the opened files, and those that the caller adds.

Source: NeMo Curator 1.4.0, `stages/interleaved/utils/materialization.py`, for the meaning of each form: without a
member the whole file, whatever offset and size say; with a member its range, or the member of that name if there is
none.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.hashing import NameTable
from lading._core.arrow.references import FileEntry, Refs, files_of, is_ref, make_refs, unpack
from lading._core.arrow.views import byte_lengths, join, masked, present, share
from lading._core.codecs import sniff_wrap
from lading._core.features.items import SourceRefs, format_source_ref, lineage_of, parse_source_ref
from lading._core.formats.base import ShardFile
from lading._core.formats.registry import get_format
from lading._core.secret_urls import shown, whole
from lading._core.storage.base import FileInfo, Store, native_path
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.fetch import Fetcher
from lading._core.storage.roots import Roots, StoredRoots, folder_of, is_inside, real_place, sibling_path
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import BadReference, DataError, LadingError, StoreError, UsageError, is_damage
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["Followed", "Follower"]

_MAX_FILES = 4096
_MAX_TARS = 16
_HEAD_BYTES = 16
_MOST_CHARACTERS, _MOST_SHOWN = 8192, 300
_MOST_BYTES = 1 << 40
_OF_THE_PATH = frozenset((errno.EACCES, errno.ENOTDIR))
"""Further errors of a store that are the fault of the path, not of the store."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The places of the bytes of rows.

    Attributes:
        column: references; null if a row is not wanted, names no path or has an error.
        files: the files table of the references.
        errors: why rows have no reference, by row.
    """

    column: pa.ExtensionArray
    files: tuple[FileEntry, ...]
    errors: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Tar:
    """Members of a tar for lookup by name: the last of equal names counts, as in `tarfile`."""

    names: NameTable
    offset: NDArray[np.int64]
    length: NDArray[np.int64]


class Follower:
    """Resolve `source_ref` texts; the last few thousand files and few tars are remembered.

    Args:
        stores: store of each URL.
        roots: called, when the first reference is resolved, for the folders below which references may point.
        mmap: False reads local tars through `pread` when they are scanned.
        limits: limits on the resources of these tars.
        stored: roots that the manifest of the tables keeps.
    """

    def __init__(
        self,
        stores: Stores,
        roots: Callable[[], Iterable[str]],
        *,
        mmap: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        stored: StoredRoots | None = None,
    ) -> None:
        self._stored = stored or StoredRoots()
        self._stores, self._mmap, self._named_roots, self._limits = stores, mmap, roots, limits
        self._file = lru_cache(_MAX_FILES)(self._find)
        self._tar = lru_cache(_MAX_TARS)(self._walk)

    @cached_property
    def _roots(self) -> Roots:
        return Roots(self._named_roots(), self._stores)

    def follow(
        self, source_ref: pa.Array, wanted: NDArray[np.bool_], table: str, *, despite_stores: bool = False
    ) -> Followed:
        """Return references for the wanted rows; null, without an error, if a text names no path.

        A relative path is resolved next to the table first, then in the current directory. Files are checked once. A
        tar whose members are named is scanned once.

        Args:
            source_ref: the texts.
            wanted: rows to resolve.
            table: the file that holds the texts.
            despite_stores: treat failures of a store as errors of its rows.

        Raises:
            StoreError: a store failed, which says nothing about the reference.
            UsageError: the payload is in a folder that the manifest keeps as a root, and that readers must name.
        """
        rows = np.flatnonzero(wanted)
        parts = parse_source_ref(source_ref.take(pa.array(rows)))
        folder = folder_of(table)
        there = np.asarray(parts.member.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        offset, length = np.where(there, parts.offset, -1), np.where(there, parts.length, -1)
        file = np.full(len(rows), -1, np.int32)
        files: list[FileEntry] = []
        errors = {i: text for i, text in enumerate(parts.error.to_pylist()) if text is not None}
        named = list(_by_file(parts, there))
        look = partial(_or_why, self._file) if despite_stores else self._file
        looks = [partial(look, path, folder, inside=inside) for path, inside, _ in named]
        found = concurrent_map(looks, remote=any(self._is_remote(path, folder) for path, *_ in named))
        for (_, inside, mine), entry in zip(named, found, strict=True):
            if isinstance(entry, str):
                failed = dict.fromkeys(mine.tolist(), entry)
            else:
                file[mine] = len(files)
                files.append(entry)
                try:
                    failed = self._place(entry, parts.member, mine, offset, length, inside=inside)
                except StoreError as error:
                    if not despite_stores:
                        raise
                    failed = dict.fromkeys(mine.tolist(), _text(error))
            for row, text in failed.items():
                errors.setdefault(row, text)
        good = file >= 0
        good[list(errors)] = False
        placed = make_refs(offset, length, file=file, frame=parts.frame, valid=good)
        column = placed.take(pa.array(np.cumsum(wanted) - 1, mask=~wanted))
        return Followed(column, tuple(files), {int(rows[i]): text for i, text in errors.items()})

    def _place(
        self,
        entry: FileEntry,
        member: pa.Array,
        rows: NDArray[np.int64],
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
        *,
        inside: bool,
    ) -> dict[int, str]:
        """Write the ranges of one file's rows into `offset` and `length`; return the errors by row."""
        if not inside:
            offset[rows], length[rows] = 0, entry.size_bytes
            return {}
        unknown = rows[(offset[rows] < 0) | (length[rows] <= 0)]
        most = _MOST_BYTES if entry.wrap else entry.size_bytes
        far = rows[length[rows] > most - np.minimum(offset[rows], most)]
        says = "the reference runs past the end of the file; expected"
        past = {row: f"{entry.url} @ {offset[row]}: {says} {length[row]} bytes" for row in far.tolist()}
        return {**past, **(self._look_up(entry, member, unknown, offset, length) if len(unknown) else {})}

    def _look_up(
        self,
        entry: FileEntry,
        member: pa.Array,
        unknown: NDArray[np.int64],
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> dict[int, str]:
        """Write the ranges of members by name; return the rows whose member is missing."""
        tar = self._tar(entry)
        if isinstance(tar, str):
            return dict.fromkeys(unknown.tolist(), tar)
        names = member.take(pa.array(unknown))
        at = tar.names.find(names)
        known = at >= 0
        offset[unknown[known]], length[unknown[known]] = tar.offset[at[known]], tar.length[at[known]]
        return {
            int(row): f"{entry.url}: the tar has no plain member {_short(name)!r}"
            for row, name in zip(unknown[~known].tolist(), names.filter(pa.array(~known)).to_pylist(), strict=True)
        }

    def to_references(self, batch: pa.RecordBatch, fetcher: Fetcher) -> pa.RecordBatch:
        """Return a batch of items with references instead of bytes, wherever `source_ref` leads to the same bytes.

        Paths become absolute, so that the texts are valid wherever the batch is written; members get their ranges. An
        item without source keeps its bytes. So does an item whose source cannot be read, holds other bytes, or is in a
        compressed file. References must equal those of the texts, as the views of tars and of tables give them.

        Memory: sources that cannot be mapped are read, as many bytes as the batch holds.
        """
        column = batch.column("binary_content")
        if is_ref(column.type):
            refs, files = unpack(column), files_of(batch.schema)
            gone = refs.valid
        else:
            [table] = lineage_of(batch.schema) or [""]
            found = self.follow(batch.column("source_ref"), present(column), table, despite_stores=True)
            refs, files = unpack(found.column), found.files
            size = np.array([-1 if entry.wrap else entry.size_bytes for entry in files], np.int64)
            gone = refs.valid & (refs.frame < 0) & (refs.length == byte_lengths(column))
            gone[gone] &= refs.length[gone] <= size[refs.file[gone]] - refs.offset[gone]
            if gone.any():  # an image or a recording edited in place may have the same length
                gone = _same_there(column, replace(refs, valid=gone), files, fetcher)
        parts = parse_source_ref(batch.column("source_ref"))
        urls = pa.array([self._absolute(entry.url) for entry in files], pa.string())
        inside = gone & present(parts.member)
        texts = format_source_ref(
            urls.take(pa.array(np.where(gone, refs.file, 0), mask=~gone)),
            parts.member,
            np.where(inside, refs.offset, -1),
            np.where(inside, refs.length, -1),
            parts.frame,
        )
        source = pc.if_else(pa.array(gone), texts, batch.column("source_ref"))
        rest = pa.nulls(batch.num_rows, pa.large_binary()) if is_ref(column.type) else masked(column, ~gone)
        for name, values in (("source_ref", source), ("binary_content", rest)):
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, batch.schema.field(at).with_type(values.type), values)
        return batch

    def _absolute(self, url: str) -> str:
        store, path = resolve(url, self._stores)
        return os.path.abspath(native_path(path)) if is_local(store) else url

    # Files

    def _is_remote(self, path: str, folder: str) -> bool:
        try:
            return any(is_remote(resolve(candidate, self._stores)[0]) for candidate in _candidates(path, folder))
        except UsageError:
            return False

    def _find(self, path: str, folder: str, *, inside: bool) -> FileEntry | str:
        """Return the file of a path, or the reason why it may not be read; `inside`: decompress it."""
        if "\0" in path or len(path) > _MOST_CHARACTERS:
            return f"{path[:80]!r}: no path"
        path = shown(path)
        whole(path)  # raises UsageError: only who reads can give the secret of a URL
        missing: str | None = None
        for candidate in self._stored.candidates(path, _candidates(path, folder)):
            try:
                store, own = resolve(candidate, self._stores)
                self._roots.check(candidate)
                info = store.head(own)
                wrap = _wrap(store, own, info) if inside else ""
            except (BadReference, UsageError) as error:
                if isinstance(error, BadReference):
                    self._refuse_stored(candidate)
                return missing or _text(error)
            except StoreError as error:
                if not (is_damage(error) or error.errno in _OF_THE_PATH):
                    raise
                missing = missing or _text(error)
            else:
                return FileEntry(candidate, wrap, info.size_bytes, info.version)
        return missing or f"{_short(path)}: no such file"

    def _refuse_stored(self, path: str) -> None:
        """Raise UsageError for a file in a folder that only the manifest names: who reads must name the folder."""
        refused = self._stored.refused
        place = real_place(path, self._stores)
        if any(is_inside(place, root) for root in refused) and not self._roots.hold(path):
            options = " ".join(f"--root {shlex.quote(root)}" for root in refused)
            raise UsageError(
                "the payload is outside the dataset, in folders that only its manifest names", file=path,
                expected="folders that you name, because a manifest may come from anybody", found=", ".join(refused),
                advice=f"If you trust the dataset, add {options}.",
            )  # fmt: skip

    # Tars

    def _walk(self, entry: FileEntry) -> _Tar | str:
        """Return the members of a tar, or the reason why there are none."""
        store, path = resolve(entry.url, self._stores)
        try:
            source = ShardFile(store, path, FileInfo(path, entry.size_bytes, entry.version), limits=self._limits)
            tar = get_format("webdataset")
            options = tar.read_options({**tar.info.presets.ignore_sidecar, "mmap": self._mmap})
            with closing(tar.open(source, options)) as reader:
                assert reader.member_reader is not None, "a tar has members"
                parts = list(reader.member_reader.members())
        except DataError as error:
            return error.problem
        plain = np.concatenate([np.zeros(0, np.bool_), *(~part.sparse for part in parts)])
        names = pa.concat_arrays([pa.array([], pa.string()), *(part.name for part in parts)])
        offset = np.concatenate([np.zeros(0, np.int64), *(part.offset for part in parts)])
        length = np.concatenate([np.zeros(0, np.int64), *(part.length for part in parts)])
        last_first = np.flatnonzero(plain)[::-1]
        return _Tar(NameTable(names.take(pa.array(last_first))), offset[last_first], length[last_first])


def _or_why(find: Callable[..., FileEntry | str], path: str, folder: str, *, inside: bool) -> FileEntry | str:
    """Return the result of `find`, or the reason why a store failed."""
    try:
        return find(path, folder, inside=inside)
    except StoreError as error:
        return _text(error)


def _same_there(column: pa.Array, refs: Refs, files: Sequence[FileEntry], fetcher: Fetcher) -> NDArray[np.bool_]:
    """Return which values equal the bytes of their references; values of unreadable files do not."""
    there = make_refs(refs.offset, refs.length, file=refs.file, valid=refs.valid)
    try:
        return _same(column, fetcher.fetch(there, files)[0])
    except StoreError:
        named = np.unique(refs.file[refs.valid])
        same = np.zeros(len(column), np.bool_)
        for half in np.array_split(named, 2) if len(named) > 1 else ():
            mine = refs.valid & np.isin(refs.file, half)
            same |= _same_there(column, replace(refs, valid=mine), files, fetcher)
        return same


def _same(column: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Return which values of two bytes columns are present and equal."""
    mine = share(column)
    if mine.type != other.type:  # a value of 2 GiB or more cannot be a view
        mine, other = (join(values).cast(pa.large_binary()) for values in (mine, other))
    same = pc.fill_null(pc.equal(mine, other), fill_value=False)
    return np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)


def _text(error: LadingError) -> str:
    """Return the problem of an error, with the path shortened. Rows keep it, for readers of any language."""
    error.file = None if error.file is None else _short(error.file)
    return error.problem


def _short(name: str) -> str:
    return name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…"


def _candidates(path: str, folder: str) -> list[str]:
    """Return the places that a path may mean: next to the table, then from the current directory."""
    if "://" in path or path.startswith("pipe:") or os.path.isabs(path):
        return [path]
    return [sibling_path(folder, path), path] if folder else [path]


def _wrap(store: Store, path: str, info: FileInfo) -> str:
    [head] = store.get_ranges(path, [(0, min(info.size_bytes, _HEAD_BYTES))])
    return sniff_wrap(bytes(head))


def _by_file(parts: SourceRefs, inside: NDArray[np.bool_]) -> Iterable[tuple[str, bool, NDArray[np.int64]]]:
    """Return every path with its rows; rows that name a member are separate from those of the whole file."""
    encoded = parts.path.dictionary_encode()
    number = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    kind = np.where(number >= 0, 2 * number.astype(np.int64) + inside, -1)
    order = np.argsort(kind, kind="stable")
    kinds, first, counts = np.unique(kind[order], return_index=True, return_counts=True)
    for which, start, count in zip(kinds.tolist(), first.tolist(), counts.tolist(), strict=True):
        if which >= 0:
            yield encoded.dictionary[which // 2].as_py(), bool(which % 2), order[start : start + count]
