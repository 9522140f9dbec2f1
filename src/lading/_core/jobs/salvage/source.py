"""Find the shards of a damaged source: by its manifest or index, or by its files if these cannot be read.

Lists that cannot be read are reported as findings. The sizes and counts that lists give are kept apart from the shards:
a shard that contradicts its list is read all the same.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lading._core.dataset.source.foreign import refuse_log
from lading._core.dataset.source.open import documents_format
from lading._core.dataset.source.source import (
    LISTING_SCHEMA,
    Asked,
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
    with_partitions,
)
from lading._core.formats.dataset_index import ListedShard
from lading._core.formats.format import AnyFormat
from lading._core.formats.index_json import several_splits
from lading._core.formats.registry import all_formats, find_format, get_format
from lading._core.manifest import values as mf
from lading._core.manifest.files import load_readable
from lading._core.manifest.values import Manifest
from lading._core.storage.base import Store, has_file, native_path
from lading._core.storage.stores import Stores, resolve
from lading.errors import (
    DataError,
    LadingError,
    SourceNotFound,
    StoreError,
    UnknownFormat,
    UsageError,
    is_damage,
    suppress_damage,
)
from lading.limits import Limits
from lading.options import ReadOptions

__all__ = ["FoundShards", "find_shards"]

_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class FoundShards:
    """The shards of a damaged source.

    Attributes:
        listing: the shards, with their paths and entries only.
        told: the same shards with everything that their list gives.
        format: their format.
        manifest: their manifest, if it can be read.
        kept_shards: the shards as the manifest lists them, if that list can be read.
        findings: errors of lists that were ignored, and of missing files.
    """

    listing: Listing
    told: pa.Table
    format: AnyFormat
    manifest: Manifest | None = None
    kept_shards: pa.Table | None = None
    findings: Sequence[LadingError] = field(default_factory=list)


def find_shards(source: Source, stores: Stores, read: ReadOptions) -> FoundShards:
    """Return the shards of a source, by those of its lists that can be read.

    Raises:
        SourceNotFound: there is no shard.
        StoreError: no shard can be found because of the machine, a store, or a file name.
        UnknownFormat: the format is unknown, or a folder holds files of several formats.
        UsageError: there are several datasets with manifests, or several splits.
    """
    findings: list[LadingError] = []
    source, format_name, limits = listed_once(source), read.format, read.limits
    names = source_names(source, stores)
    manifest, kept, folder = None, None, ""
    if len(names) == 1:
        store, folder = resolve(names[0].rstrip("/"), stores)
        manifest, kept, findings = load_readable(store, folder, limits)
    by_name = format_name or ("" if manifest is None else _known_format(manifest, folder, findings))
    if kept is not None:
        listing = list_kept(kept, folder)
    else:
        asked = Asked(get_format(by_name).name if by_name else "", read.split or "", read.config or "")
        listed = _by_lists(source, stores, findings, limits, asked)
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
    if not by_name and listing.media_of:
        fmt = documents_format(listing, fmt, stores, limits)
    refuse_log(listing.index_file)
    if read.hive_partitioning and fmt.info.hive_partitions and manifest is None and listing.index_file is None:
        listing = with_partitions(listing)
    nothing, table = pa.nulls(len(listing), pa.int64()), listing.table
    hashes = pa.nulls(len(listing), pa.string())
    alone = pa.nulls(len(listing), pa.bool_())
    bare = pa.table(
        [table["path"], nothing, nothing, hashes, table["entry"], table["partition"], hashes, alone],
        schema=LISTING_SCHEMA,
    )
    plain = replace(listing, table=bare)
    return FoundShards(plain, table, fmt, manifest, kept, findings)


def _refuse_several(source: Source, listing: Listing, stores: Stores, folder: str | None) -> None:
    """Raise UsageError for datasets with manifests of their own: these would be ignored."""
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
    """Raise SeveralSplits for shards in several folders next to a list of splits that cannot be read."""
    root = native_path(folder)
    folders = sorted({posixpath.dirname(path)[len(root) :].strip("/") for path in listing.table["path"].to_pylist()})
    if len(folders) > 1:
        for name in lists_of_splits():
            place = posixpath.join(folder, name)
            if has_file(store, place):
                raise several_splits(folder or ".", folders, place)


def _known_format(manifest: Manifest, folder: str, findings: list[LadingError]) -> str:
    """Return the format that a manifest names; empty, and a finding, if it is unknown."""
    try:
        return get_format(manifest.format).name
    except UnknownFormat as error:
        findings.append(error.at(file=f"{folder}/{mf.FOLDER}/{mf.MANIFEST_NAME}"))
        return ""


def _by_lists(
    source: Source, stores: Stores, findings: list[LadingError], limits: Limits, asked: Asked
) -> Listing | None:
    """Return the shards as `lading.open` finds them; None if a list is damaged, or a listed file is missing."""
    try:
        return list_source(source, stores, limits, asked)
    except UnknownFormat:
        return None  # files of several formats, one of which the caller may have named
    except SourceNotFound as error:
        findings.append(error)
    except UsageError:
        raise
    except (DataError, StoreError) as error:
        refuse_log(error.file)
        if not is_damage(error):
            raise
        findings.append(error)
    return None


def _by_files_beside(
    names: Sequence[str], listed: Listing | None, stores: Stores, format_name: str, limits: Limits
) -> Listing | None:
    """Return the shards that the files next to them describe; None if there are none, or of another format.

    For a folder or its index these are all shards below it, otherwise the named ones.

    Raises:
        UnknownFormat: other files of the folder, or named ones, have other formats.
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
            rows = [{"path": shard.path, "num_samples": shard.num_samples, "entry": shard.entry} for shard in shards]
            table = pa.Table.from_pylist(rows, LISTING_SCHEMA)
            return Listing(table, folder=folder, format=fmt.name)
    return None


def _named_folder(fmt: AnyFormat, names: Sequence[str], stores: Stores) -> str | None:
    """Return the folder that a source is, or whose index it is; None if it names shards without an index."""
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
    """Return such shards of a format below a folder, and the number of other files of each format."""
    shards = [shard for shard in fmt.find_shards(store, folder, limits) if _is_seen(folder, shard.path)]
    known = {_unpacked(fmt, shard.path) for shard in shards}
    return shards, _formats(path for path in _files(store, folder) if shards and _unpacked(fmt, path) not in known)


def _unpacked(fmt: AnyFormat, path: str) -> str:
    """Return the path of such a shard without the ending of its compression; other paths stay."""
    stem = posixpath.splitext(path)[0]
    return stem if stem.endswith(fmt.info.unlisted) else path


def _unlisted_named(
    fmt: AnyFormat, names: Sequence[str], paths: Sequence[str] | None, stores: Stores, limits: Limits
) -> tuple[list[ListedShard], Counter[str]]:
    """Return the same as `_unlisted_below` for files with these paths; without paths, for those that are named."""
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
    """Yield the paths of the files that a source names, each name alone; the name itself if it gives none."""
    for name in (one for pattern in names for one in expanded(pattern, stores)):
        try:
            yield from list_source(name, stores, limits).table["path"].to_pylist()
        except (DataError, StoreError, SourceNotFound, UnknownFormat):
            yield name


def _by_files(
    names: Sequence[str], stores: Stores, format_name: str, findings: list[LadingError], limits: Limits
) -> Listing:
    """Return existing files without any list: those of the named format, or all if they have one format.

    Raises:
        UnknownFormat: they have several formats.
    """
    found: list[str] = []
    folders: list[str] = []
    media: list[str] = []
    for name in (one for pattern in names for one in expanded(pattern, stores)):
        try:
            listing = list_source(name, stores, limits)
        except (DataError, StoreError, SourceNotFound, UnknownFormat) as error:
            if isinstance(error, StoreError) and not is_damage(error):
                raise
            store, path = resolve(name, stores)
            folder = posixpath.dirname(path) if path.endswith(".json") else path.rstrip("/")
            mine = list(_files(store, folder))
            if not mine and not any(error.file == told.file for told in findings):
                findings.append(error)
            found += mine
            folders.append(folder)
        else:
            found += listing.table["path"].to_pylist()
            media += listing.media_of
    formats = _formats({*found})
    if not format_name and len(formats) > 1:
        raise several_formats(folders[0] if folders else names[0], formats)
    chosen = format_name or next(iter(formats), "")
    paths = sorted({path for path in found if not chosen or path.lower().endswith(get_format(chosen).info.extensions)})
    rest = [pa.nulls(len(paths), each.type) for each in [*LISTING_SCHEMA][1:]]
    table = pa.table([path_column(paths), *rest], schema=LISTING_SCHEMA)
    return Listing(
        table, folder=folders[0] if len(folders) == 1 == len(names) else None, format=chosen, media_of=tuple(media)
    )


def _files(store: Store, folder: str) -> Iterator[str]:
    """Yield the files below a folder that a format claims, without hidden ones and lading's own."""
    for info in store.walk(folder):
        if _is_seen(folder, info.path) and claimed_by(info.path):
            yield info.path


def _formats(paths: Iterable[str]) -> Counter[str]:
    """Return the number of files of each format, by their names."""
    return Counter(fmt.name for path in paths if (fmt := claimed_by(path)))


def _is_seen(folder: str, path: str) -> bool:
    return not is_hidden(path[len(folder) :].strip("/").split("/"))


def _recognised(listing: Listing, stores: Stores) -> AnyFormat:
    """Return the format of the first shard that is recognised; by the first name if none can be read."""
    paths = listing.table["path"].slice(0, _LOOKED_AT).to_pylist()
    for path in paths:
        store, own = resolve(path, stores)
        with suppress(UnknownFormat), suppress_damage():
            return find_format(own, read_head(store, own))
    return find_format(paths[0], b"")
