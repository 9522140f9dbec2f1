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
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import all_formats, find_format, get_format
from lading._core.manifest import values as mf
from lading._core.manifest.files import load_readable
from lading._core.manifest.values import Manifest
from lading._core.storage.base import Store, has_file, native_path
from lading._core.storage.index_json import several_splits
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
        listing = listed or _by_files(names, stores, by_name, findings, limits)
        if not by_name and listing.index_file is None:
            _refuse_lines(listing.table["path"].to_pylist(), stores)
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


def _refuse_lines(paths: Sequence[str], stores: Stores) -> None:
    """Raise UnknownFormat for shards whose lines only a missing index can tell from those of another format."""
    owners = {ending: fmt for fmt in all_formats() for ending in fmt.index.unlisted}
    path = next((path for path in paths if path.endswith(tuple(owners))), None)
    if path is None:
        return
    store, own = resolve(path, stores)
    stem, ending = posixpath.splitext(own)
    meta = next((name for name in (f"{own}.meta", f"{stem}.meta{ending}") if has_file(store, name)), None)
    if meta is not None:
        owner, other = next(fmt for end, fmt in owners.items() if path.endswith(end)), claimed_by(path)
        lines = "" if other is None else f", or read the lines with --from {other.name}"
        names, advice = ", ".join(owner.index.names), f"Restore the index{lines}."
        raise UnknownFormat(f"a shard of {owner.name} without its index", file=path, found=meta, expected=names,
                            advice=advice)  # fmt: skip


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
