"""The shards of a damaged source: by its manifest or index, and where that is damaged too, by the files that are there.

What was passed over is told as findings; what the lists say of shards (sizes, samples) is kept apart from the listing,
so that a shard which is not what they say is read all the same.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lading.dataset.source import (
    LISTING_SCHEMA,
    Listing,
    Source,
    claimed_by,
    expanded,
    is_hidden,
    list_kept,
    list_source,
    listed_once,
    lists_of_splits,
    named_folders,
    path_column,
    read_head,
    several_formats,
    source_names,
)
from lading.errors import DataError, LadingError, SourceNotFound, StoreError, UnknownFormat, UsageError
from lading.formats.base import AnyFormat, ListedShard
from lading.formats.index_json import several_splits
from lading.formats.registry import all_formats, find_format, get_format
from lading.limits import Limits
from lading.manifest import values as mf
from lading.manifest.files import load_readable
from lading.manifest.values import Manifest
from lading.storage.base import Store, has_file, native_path
from lading.storage.stores import Stores, resolve

__all__ = ["FoundShards", "find_shards"]

_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class FoundShards:
    """What there is of a source.

    Attributes:
        listing: the shards, with no more than their paths and entries.
        told: the same shards with all that their list says of them.
        format: their format.
        manifest: what lading wrote beside them, if it can be read.
        kept_shards: the shards as the manifest lists them, if that can be read.
        findings: what cannot, and was passed over; files that are not there.
    """

    listing: Listing
    told: pa.Table
    format: AnyFormat
    manifest: Manifest | None = None
    kept_shards: pa.Table | None = None
    findings: Sequence[LadingError] = field(default_factory=list)


def find_shards(source: Source, stores: Stores, format_name: str | None, limits: Limits) -> FoundShards:
    """The shards of a source, whatever of its lists can be read.

    Raises:
        SourceNotFound: there is no shard.
        StoreError: that is so because of the machine, a store, or the name of a file.
        UnknownFormat: nothing says of which format they are, or a folder holds files of several.
        UsageError: there are several datasets with manifests, or several splits.
    """
    findings: list[LadingError] = []
    source = listed_once(source)
    names = source_names(source, stores)
    manifest, kept, folder = None, None, ""
    if len(names) == 1:
        store, folder = resolve(names[0].rstrip("/"), stores)
        manifest, kept, findings = load_readable(store, folder, limits)
    by_name = format_name or ("" if manifest is None else _known_format(manifest, folder, findings))
    if kept is not None:
        listing = list_kept(kept, folder)
    else:
        listed = _by_lists(source, stores, findings, limits)
        if listed is None or listed.index_file is None:
            listed = _by_files_beside(names, listed, stores, by_name, limits) or listed
        listing = listed or _by_files(names, stores, by_name, findings, limits)
        _refuse_several(source, listing, stores, folder if len(names) == 1 else None)
        if len(names) == 1 and listing.folder is not None:
            _refuse_splits(store, listing.folder, listing)
    if not len(listing):
        for finding in findings:
            if isinstance(finding, (SourceNotFound, StoreError)):
                raise finding
        raise SourceNotFound("the source holds no shard", file=names[0] if names else None)
    named = by_name or listing.format
    fmt = get_format(named) if named else _recognised(listing, stores)
    nothing = pa.nulls(len(listing), pa.int64())
    table = listing.table
    bare = pa.table(
        [table["path"], nothing, nothing, pa.nulls(len(listing), pa.string()), table["entry"]], schema=LISTING_SCHEMA
    )
    plain = replace(listing, table=bare)
    return FoundShards(plain, table, fmt, manifest, kept, findings)


def _refuse_several(source: Source, listing: Listing, stores: Stores, folder: str | None) -> None:
    """Raise UsageError for datasets with manifests of their own: what these say of each would be left aside."""
    own = {*listing.datasets}
    if folder is None:
        walks = ((one, resolve(one, stores)[0].walk(f"{one}/{mf.FOLDER}")) for one in named_folders(source, stores))
        own |= {one for one, files in walks if next(iter(files), None) is not None}
    else:
        own.discard(native_path(folder))
    if own:
        advice = "Salvage each, and convert what is saved together."
        raise UsageError("datasets with manifests of their own are salvaged one by one", file=min(own),
                         found=f"{len(own)} of them", advice=advice)  # fmt: skip


def _refuse_splits(store: Store, folder: str, listing: Listing) -> None:
    """Raise SeveralSplits for shards in several folders beside what may list these as splits, and cannot be read."""
    root = native_path(folder)
    folders = sorted({posixpath.dirname(path)[len(root) :].strip("/") for path in listing.table["path"].to_pylist()})
    if len(folders) > 1:
        for name in lists_of_splits():
            place = posixpath.join(folder, name)
            if has_file(store, place):
                raise several_splits(folder or ".", folders, place)


def _known_format(manifest: Manifest, folder: str, findings: list[LadingError]) -> str:
    """The format that a manifest names; empty, and a finding, if there is none of this name."""
    try:
        return get_format(manifest.format).name
    except UnknownFormat as error:
        findings.append(error.at(file=f"{folder}/{mf.FOLDER}/{mf.MANIFEST_NAME}"))
        return ""


def _by_lists(source: Source, stores: Stores, findings: list[LadingError], limits: Limits) -> Listing | None:
    """The shards as `lading.open` finds them; None where a list is damaged, or a file of it is not there."""
    try:
        return list_source(source, stores, limits)
    except UnknownFormat:
        return None  # files of several formats, one of which the caller may have named
    except SourceNotFound as error:
        findings.append(error)
    except UsageError:
        raise
    except (DataError, StoreError) as error:
        findings.append(error)
    return None


def _by_files_beside(
    names: Sequence[str], listed: Listing | None, stores: Stores, format_name: str, limits: Limits
) -> Listing | None:
    """The shards that files beside them tell of; None where there are none, or of another format.

    Of a folder, or of one whose index is named, all; of other files, those.

    Raises:
        UnknownFormat: other files of the folder, or that are named, are of other formats.
    """
    for fmt in all_formats():
        if not fmt.info.unlisted or format_name not in ("", fmt.name):
            continue
        with suppress(StoreError):
            folder = _named_folder(fmt, names, stores)
            if folder is None:
                paths = None if listed is None else listed.table["path"].to_pylist()
                shards, others = _unlisted_named(fmt, names, paths, stores, limits)
            else:
                shards, others = _unlisted_below(fmt, resolve(names[0], stores)[0], folder, limits)
            if not shards or (not format_name and all(s.num_samples is None and claimed_by(s.path) for s in shards)):
                continue  # a table beside lines is none of them because it is named as they are
            if others if not format_name else others[fmt.name]:
                place = posixpath.dirname(shards[0].path) if folder is None else folder
                raise several_formats(place, others + Counter({fmt.name: len(shards)}))
            rows = [(shard.path, shard.num_samples, None, None, shard.entry) for shard in shards]
            table = pa.table([*zip(*rows, strict=True)], schema=LISTING_SCHEMA)
            return Listing(table, folder=folder, format=fmt.name)
    return None


def _named_folder(fmt: AnyFormat, names: Sequence[str], stores: Stores) -> str | None:
    """The folder that a source is, or whose index it is; None where it names shards that have no index."""
    if len(names) != 1:
        return None
    store, path = resolve(names[0], stores)
    if posixpath.basename(path) in fmt.info.index_names:
        return posixpath.dirname(path)
    folder = path.rstrip("/")
    return folder if next(iter(store.walk(folder)), None) is not None else None


def _unlisted_below(
    fmt: AnyFormat, store: Store, folder: str, limits: Limits
) -> tuple[list[ListedShard], Counter[str]]:
    """Such shards of a format below a folder, and how many files of each format are none of them."""
    shards = [shard for shard in fmt.find_shards(store, folder, limits) if _is_seen(folder, shard.path)]
    known = {_unpacked(fmt, shard.path) for shard in shards}
    return shards, _formats(path for path in _files(store, folder) if shards and _unpacked(fmt, path) not in known)


def _unpacked(fmt: AnyFormat, path: str) -> str:
    """What such a shard of a format would be called if it were not compressed; of other files the path."""
    stem = posixpath.splitext(path)[0]
    return stem if stem.endswith(fmt.info.unlisted) else path


def _unlisted_named(
    fmt: AnyFormat, names: Sequence[str], paths: Sequence[str] | None, stores: Stores, limits: Limits
) -> tuple[list[ListedShard], Counter[str]]:
    """As `_unlisted_below`, of the files of these paths; without them of what is named, some of it gone."""
    named = paths if paths is not None else list(_paths_there(names, stores, limits))
    if not any(name.endswith(fmt.info.unlisted) for name in named):
        return [], Counter()
    places = [resolve(name, stores) for name in named]
    folders = {posixpath.dirname(path): store for store, path in places if path.endswith(fmt.info.unlisted)}
    found = [shard for folder, store in folders.items() for shard in fmt.find_shards(store, folder, limits)]
    known = {_unpacked(fmt, shard.path): shard for shard in found}
    forms = {_unpacked(fmt, path): (store, path) for store, path in places}
    rest = [place for form, place in forms.items() if form not in known]
    there = (path for store, path in rest if known and (paths is not None or has_file(store, path)))
    return [known[form] for form in forms if form in known], _formats(there)


def _paths_there(names: Sequence[str], stores: Stores, limits: Limits) -> Iterator[str]:
    """Paths of the files that a source names, each by itself; where one gives none, its name."""
    for name in (one for pattern in names for one in expanded(pattern, stores)):
        try:
            yield from list_source(name, stores, limits).table["path"].to_pylist()
        except (DataError, StoreError, SourceNotFound, UnknownFormat):
            yield name


def _by_files(
    names: Sequence[str], stores: Stores, format_name: str, findings: list[LadingError], limits: Limits
) -> Listing:
    """The files that are there, without any list: those of the format asked for, or all, if they are of one.

    Raises:
        UnknownFormat: they are of several.
    """
    found: list[str] = []
    folders: list[str] = []
    for name in (one for pattern in names for one in expanded(pattern, stores)):
        try:
            listing = list_source(name, stores, limits)
        except (DataError, StoreError, SourceNotFound, UnknownFormat) as error:
            store, path = resolve(name, stores)
            folder = posixpath.dirname(path) if path.endswith(".json") else path.rstrip("/")
            mine = list(_files(store, folder))
            if not mine and not any(error.file == told.file for told in findings):
                findings.append(error)
            found += mine
            folders.append(folder)
        else:
            found += listing.table["path"].to_pylist()
    formats = _formats({*found})
    if not format_name and len(formats) > 1:
        raise several_formats(folders[0] if folders else names[0], formats)
    chosen = format_name or next(iter(formats), "")
    paths = sorted({path for path in found if not chosen or path.lower().endswith(get_format(chosen).info.extensions)})
    rest = pa.nulls(len(paths), pa.int64()), pa.nulls(len(paths), pa.int64())
    texts = pa.nulls(len(paths), pa.string()), pa.nulls(len(paths), pa.string())
    table = pa.table([path_column(paths), *rest, *texts], schema=LISTING_SCHEMA)
    return Listing(table, folder=folders[0] if len(folders) == 1 == len(names) else None, format=chosen)


def _files(store: Store, folder: str) -> Iterator[str]:
    """Files below a folder that a format claims; hidden ones and lading's own are left out."""
    for info in store.walk(folder):
        if _is_seen(folder, info.path) and claimed_by(info.path):
            yield info.path


def _formats(paths: Iterable[str]) -> Counter[str]:
    """How many files of each format these are, by their names."""
    return Counter(fmt.name for path in paths if (fmt := claimed_by(path)))


def _is_seen(folder: str, path: str) -> bool:
    return not is_hidden(path[len(folder) :].strip("/").split("/"))


def _recognised(listing: Listing, stores: Stores) -> AnyFormat:
    """The format of the first shard that is of one; by the first one's name if none can be read."""
    paths = listing.table["path"].slice(0, _LOOKED_AT).to_pylist()
    for path in paths:
        store, own = resolve(path, stores)
        with suppress(DataError, StoreError, UnknownFormat):
            return find_format(own, read_head(store, own))
    return find_format(paths[0], b"")
