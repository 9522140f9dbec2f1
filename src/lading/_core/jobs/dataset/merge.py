"""Merge: what many writers made in one folder becomes one dataset. No shard is read or moved."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lading._core.arguments import public
from lading._core.dataset.source.source import claimed_by, is_hidden, lists_of_splits
from lading._core.formats.base import ShardFacts
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import all_formats, get_format
from lading._core.manifest import values as mf
from lading._core.manifest.commit import find_destination
from lading._core.manifest.files import load_manifest, save_manifest
from lading._core.manifest.unfinished import refuse_listed
from lading._core.manifest.values import Manifest
from lading._core.result_text import ResultText
from lading._core.storage.base import Store
from lading._core.storage.checksum import file_checksums
from lading._core.storage.stores import Stores
from lading._core.units import count
from lading.errors import DestinationExists, SourceNotFound, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["MergeSummary", "merge"]

_INDEX = "index.json"
_MANIFEST = f"{mf.FOLDER}/{mf.MANIFEST_NAME}"
_RANK = re.compile(rf"{mf.FOLDER}/\d+/{re.escape(mf.MANIFEST_NAME)}")


@dataclass(frozen=True, slots=True)
class MergeSummary(ResultText):
    """What merging did.

    Attributes:
        folder: folder of the dataset.
        parts: number of datasets that became one.
        shards: number of shards.
        samples: number of samples.
        written: files that were written, by their paths below the folder.
    """

    folder: str
    parts: int
    shards: int
    samples: int
    written: tuple[str, ...]


@public("lading.merge")
def merge(
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> MergeSummary:
    """Make one dataset of the parts in a folder: parts of several ranks, or datasets in subfolders.

    Example:
        lading.merge("out")

    Parts are in the order of their ranks, or of the names of their folders. lading's datasets get a manifest and the
    index of their format. MDS datasets of other programs get an `index.json`. No shard is moved. Every shard in the
    folder must belong to a part. Hidden folders are ignored, and so are files of another format.

    Args:
        folder: the folder, a path or URL.
        overwrite: replace a manifest or index of the folder itself.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        limits: limits on the size of manifests and indexes, as for `lading.open`.

    Raises:
        UsageError: the folder holds shards without a part, or splits, which must stay separate; or a dataset that is
            being written.
        SourceNotFound: the folder holds no part of a dataset.
        DestinationExists: the folder itself has a manifest or index.
        SchemaMismatch: the parts differ in format, view or options.
        DataError: a part is broken.
    """
    store, path = find_destination(folder, Stores.of(stores, storage_options) or Stores())
    below = [info.path[len(path) + 1 :] for info in store.walk(path)]
    refuse_listed(store, (f"{path}/{name}" for name in below))
    ranks = sorted(filter(_RANK.fullmatch, below))
    own, indexed = _folders_with(_MANIFEST, below), _folders_with(_INDEX, below)
    _refuse_splits(path, below, own | indexed)
    parts_of_parts = {name for name in own | indexed if _ancestors(name) & (own | indexed)}
    own, indexed = own - parts_of_parts, indexed - parts_of_parts
    _refuse_existing(path, below, overwrite=overwrite)
    if ranks:
        parts = [_part(store, path, "", name.removesuffix(f"/{mf.MANIFEST_NAME}"), limits) for name in ranks]
        return _merge_manifests(store, path, parts, below, set())
    if own and indexed <= own:
        parts = [_part(store, path, f"{name}/", None, limits) for name in sorted(own)]
        return _merge_manifests(store, path, parts, below, own, sorted(own))
    if not indexed:
        found = f"{count(len(below), 'file')} of other kinds" if below else "no file, or no such folder"
        raise SourceNotFound("the folder holds no parts of a dataset", file=path,
                             expected="ranks, or datasets in folders of their own", found=found)  # fmt: skip
    fmt = next(known for known in all_formats() if _INDEX in known.index.names)
    joined = fmt.index.join(store, path, sorted(indexed), limits)
    assert joined is not None, "formats with this index join it"
    _refuse_others(path, below, fmt, joined.files, indexed)
    joined.write()
    return MergeSummary(path, len(indexed), joined.shards, joined.samples, (_INDEX,))


def _folders_with(file: str, below: Sequence[str]) -> set[str]:
    """The folders with such a file that are not hidden; not the one that is merged itself."""
    found = {name.removesuffix(f"/{file}") for name in below if name.endswith(f"/{file}")}
    return {name for name in found if not is_hidden(name.split("/"))}


def _ancestors(name: str) -> set[str]:
    """The folders above a folder: what was merged there has its shards already."""
    words = name.split("/")
    return {"/".join(words[:count]) for count in range(1, len(words))}


def _refuse_existing(path: str, below: Sequence[str], *, overwrite: bool) -> None:
    found = [name for name in (_MANIFEST, _INDEX) if name in below]
    if found and not overwrite:
        raise DestinationExists("the folder has one of its own already", file=path, found=", ".join(found),
                                advice="Replace it with --overwrite.")  # fmt: skip


def _refuse_splits(path: str, below: Sequence[str], folders: AbstractSet[str]) -> None:
    """Raise UsageError for a list that keeps parts in folders below it apart: in the folder itself, or further down."""
    there, around = {*below}, {""}.union(*map(_ancestors, folders))
    places = (posixpath.join(folder, name) for folder in sorted(around) for name in lists_of_splits())
    found = [name for name in places if name in there]
    if found:
        raise UsageError("the folder holds splits, which its list keeps apart", file=path, found=found[0],
                         advice="Delete that list first, if they are to be one dataset.")  # fmt: skip


def _refuse_others(
    path: str, below: Sequence[str], fmt: AnyFormat, merged: Sequence[str], folders: AbstractSet[str]
) -> None:
    """Raise UsageError for shards that are of no part: whoever opens the folder would see them no longer.

    Args:
        path: the folder.
        below: all its files.
        fmt: the format of the parts.
        merged: their files.
        folders: those of parts.
    """
    known, there = {posixpath.normpath(name) for name in merged}, {*below}
    others = [n for n in below if n not in known and not is_hidden(n.split("/")) and _is_lost(n, there, fmt, folders)]
    if others:
        raise UsageError(
            f"the folder holds {count(len(others), 'shard')} of no part", file=path, found=", ".join(others[:5]),
            advice="Take them out of the folder, or make datasets of them that can be merged ('lading convert').",
        )  # fmt: skip


def _is_lost(name: str, below: AbstractSet[str], fmt: AnyFormat, folders: AbstractSet[str]) -> bool:
    """Whether a file of no part is a shard of the parts' format, or of another dataset.

    What else lies with parts is no shard to whoever opens these: a table of what they hold, it may be. A shard with the
    name of such a table has a `.meta` beside it.
    """
    if name.endswith(fmt.index.unlisted):
        stem, ending = posixpath.splitext(name)
        if not below.isdisjoint((f"{name}.meta", f"{stem}.meta{ending}")):
            return True
    other = claimed_by(name)
    if other is None:
        return False
    if name.lower().endswith(fmt.info.extensions):
        return True
    return not _ancestors(name) & folders if "/" in name else any(index in below for index in other.index.names)


def _part(store: Store, path: str, prefix: str, rank_folder: str | None, limits: Limits) -> tuple[Manifest, pa.Table]:
    """A part's manifest, and its shards by their paths below the folder."""
    place = f"{path}/{prefix}".rstrip("/")
    found = load_manifest(store, place, own=rank_folder, limits=limits)
    assert found is not None, "it was listed just now"
    return mf.seen_from(prefix, found)


def _merge_manifests(
    store: Store, path: str, parts: Sequence[tuple[Manifest, pa.Table]], below: Sequence[str],
    folders: AbstractSet[str], names: Sequence[str] | None = None,
) -> MergeSummary:  # fmt: skip
    with errors_at(file=path):
        manifest, shards = mf.merge(parts, names)
    facts = [(row["path"], ShardFacts.of(row)) for row in shards.to_pylist()]
    fmt = get_format(manifest.format)
    _refuse_others(path, below, fmt, [file for name, told in facts for file in _files(fmt, name, told)], folders)
    made = fmt.index.write(store, path, facts, None)
    files = {**manifest.files, **file_checksums(store, path, made)}
    sidecars = tuple(name.removeprefix(f"{path}/") for name in made)
    save_manifest(store, path, replace(manifest, rank=None, sidecars=sidecars, files=files), shards)
    return MergeSummary(path, len(parts), manifest.num_shards, manifest.num_samples, (*sidecars, _MANIFEST))


def _files(fmt: AnyFormat, name: str, facts: ShardFacts) -> list[str]:
    """The files of a shard, by their paths below the folder."""
    return [name, *fmt.index.renamed(facts.entry, name)[1]]
