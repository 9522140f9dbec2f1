"""From the names of files to open shards: which shards, which format, which view, and what a manifest says of them."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from functools import reduce, wraps
from itertools import takewhile
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.align import refuse_duplicate_names
from lading._core.content.documents import is_documents
from lading._core.dataset.shards.bad_shards import is_bad_shard, naming_salvage
from lading._core.dataset.shards.shards import DETECT_SHARDS, ReadPlan, Shards, hold_few
from lading._core.dataset.source.foreign import files_of_log
from lading._core.dataset.source.hub_names import of_commits
from lading._core.dataset.source.manifest_options import (
    manifest_options,
    members_of,
    stored_roots,
    stored_schema,
    stored_settings,
)
from lading._core.dataset.source.shard_source import ShardSource
from lading._core.dataset.source.source import (
    Asked,
    Listing,
    Source,
    list_kept,
    list_source,
    listed_once,
    named_folders,
    read_head,
    source_names,
    split_source,
    with_partitions,
)
from lading._core.features.natural import has_items, list_of_member
from lading._core.formats.base import ShardFile
from lading._core.formats.format import AnyFormat
from lading._core.formats.hive_partitions import WITHOUT_PARTITIONS
from lading._core.formats.registry import find_format, get_format
from lading._core.manifest import values as mf
from lading._core.manifest.files import load_manifest
from lading._core.manifest.values import Manifest
from lading._core.storage.fetch import Fetcher
from lading._core.storage.roots import absolute_path
from lading._core.storage.stores import Stores, is_local, resolve, resolve_folder, without_query
from lading.errors import (
    DataError,
    DatasetReplaced,
    LadingError,
    SchemaMismatch,
    SourceNotFound,
    StoreError,
    UsageError,
    errors_at,
)
from lading.limits import Limits
from lading.options import InterleavedOptions, ReadOptions

__all__ = [
    "Named",
    "counts_hold",
    "documents_format",
    "has_option",
    "of_split",
    "shards_of",
]

_BY_PATTERN = "Name files by a pattern, as in 'data/*.tar', to take all of them without manifests."
_MOST_NAMES = 3
_MOST_VERSIONS = 1000
"""Shards whose versions are looked at when a dataset is opened: 2 ms on a local disk."""

_Look = TypeVar("_Look", bound=Callable[..., Shards])


def _of_one(look: _Look) -> _Look:
    """Return a function that opens a source, and never finds half of a dataset and half of the one that follows it.

    A source that is replaced meanwhile is looked at once more.
    """

    @wraps(look)
    def opened(source: Source, read: ReadOptions) -> Shards:
        source, read = of_split(listed_once(source), read)
        for again in (True, False):
            place = _place_of(source)
            try:
                shards = look(source, read)
                hold_few(shards)
            except DatasetReplaced:
                if not again:
                    raise
            except LadingError as error:
                # What was found of one may not fit the other in whatever way.
                if _place_of(source) == place:
                    raise
                replaced: LadingError | None = error
            else:
                if not shards.identity.may_change or _place_of(source) == place:
                    return shards
                shards.close()
                replaced = None
        raise DatasetReplaced("another dataset took the place of this one twice while it was opened", file=str(source),
                              advice="Open it again.") from replaced  # fmt: skip

    return cast("_Look", opened)


def of_split(source: Source, read: ReadOptions) -> tuple[Source, ReadOptions]:
    """The folder of the split that is asked for, read as a whole; the source itself if names or lists tell its splits.

    Raises:
        UsageError: the split is not a text.
    """
    place = source if read.config else split_source(source, read.split, read.stores)
    return (source, read) if place is source else (place, replace(read, split=None))


def _place_of(source: Source) -> tuple[int, int, int] | None:
    """What tells a local folder or file from another one that is put in its place; None for other sources.

    The number of a folder comes back once it is removed: the time tells them apart.
    """
    try:
        found = os.stat(source) if isinstance(source, str | os.PathLike) else None
    except (OSError, ValueError):
        return None
    return found and (found.st_dev, found.st_ino, found.st_ctime_ns)


@_of_one
def _open(source: Source, read: ReadOptions) -> Shards:
    """Open shards as `open_dataset` does."""
    read = replace(read, stores=read.stores or Stores())
    stores = cast("Stores", read.stores)
    listing, kept = _listed(source, stores, read)
    manifest = kept[0] if kept else None
    if not len(listing) and manifest is None and not listing.format:
        raise SourceNotFound("the source lists no shard", file=listing.index_file or str(source))
    named = read.format or (manifest.format if manifest else listing.format)
    with errors_at(file=None if read.format else listing.folder or None):
        fmt = get_format(named) if named else _recognise(listing, stores, skip=read.on_bad_shard == "skip")
    if not named and listing.media_of:
        fmt = documents_format(listing, fmt, stores, read.limits)
    if read.hive_partitioning and fmt.info.hive_partitions and manifest is None and listing.index_file is None:
        listing = with_partitions(listing)
    if fmt.loose is None:
        listing = _with_local_versions(listing, stores)
    shards = shards_of(listing, fmt, manifest, kept[1] if kept else None, read=read)
    shards.bad.source = _salvage_source(source, listing, fmt)
    told = read.view or (manifest.view if manifest else _detect_view(shards))
    shards.view, shards.view_is_known = told or "samples", told is not None
    if not counts_hold(shards):
        shards.listing = replace(listing, table=_uncounted(listing.table))
    if told == "samples":  # where nothing tells the view, no sample is there that they would not be for
        _refuse_for_samples(read, fmt)
        _refuse_absent_types(shards)
        _refuse_absent_lists(shards)
    if shards.has_items:
        _refuse_for_items(shards)
    return shards


def _with_local_versions(listing: Listing, stores: Stores) -> Listing:
    """The shards in the versions that they have now, if a manifest or an index lists a few local ones without."""
    if len(listing) > _MOST_VERSIONS or listing.table["version"].null_count < len(listing):
        return listing
    versions = []
    for store, path in (resolve(path, stores) for path in listing.table["path"].to_pylist()):
        if not is_local(store):
            return listing
        versions.append("")
        with suppress(StoreError):  # one that is missing is an error when it is opened
            versions[-1] = store.head(path).version
    return listing.with_versions(versions)


def documents_format(listing: Listing, fmt: AnyFormat, stores: Stores, limits: Limits) -> AnyFormat:
    """The format whose media lie next to the shards, if the first shard holds documents; else the given one."""
    store, path = resolve(str(listing.table["path"][0].as_py()), stores)
    with suppress(DataError, StoreError):
        file = ShardFile(store, path, limits=limits)
        with closing(fmt.open(file, fmt.read_options({}))) as reader:
            schema = reader.first_schema()
        if schema is not None and is_documents(schema):
            return get_format(listing.media_of[0])
    return fmt


def _salvage_source(source: Source, listing: Listing, fmt: AnyFormat) -> str:
    """Return the arguments of `lading salvage` before DST; empty if the names of the source are too many."""
    names = [source] if isinstance(source, str | os.PathLike) else [*source]
    named = shlex.join(os.fspath(name) for name in names) if len(names) <= _MOST_NAMES else ""
    files = files_of_log(listing.index_file) or named
    return files if fmt.info.write_options is not None else f"{files or 'SRC'} --to parquet"


def _detect_view(shards: Shards) -> str | None:
    """The view that the first samples of the first non-empty shard ask for that can be read; None without one."""
    broken: LadingError | None = None
    for number in range(min(len(shards.listing), DETECT_SHARDS)):
        try:
            found = shards.detect_view(number)
        except (DataError, StoreError) as error:
            broken = broken or naming_salvage(error, shards.bad.source)
            continue
        if found is not None:
            return found
    if broken is not None:
        raise broken
    return None


def _types(read: ReadOptions) -> pa.Schema | None:
    """Types that the caller gives to some columns; None where a schema names all columns."""
    if not read.schema_overrides:
        return None
    if read.schema is not None:
        warnings.warn("schema and schema_overrides are both given; schema holds", stacklevel=2)
        return None
    asked = read.schema_overrides
    types = asked if isinstance(asked, pa.Schema) else pa.schema(list(asked.items()))
    refuse_duplicate_names(types)
    return types


def _refuse_absent_types(shards: Shards) -> None:
    """Raise UsageError for a type of a column that no shard has."""
    absent = {*(shards.types or pa.schema([])).names}
    known: dict[str, None] = {}
    for number in range(len(shards.listing)):
        if not absent:
            return
        names = shards.open_shard(number).schema().names
        known |= dict.fromkeys(names)
        absent -= {*names}
    if absent and known:
        raise UsageError("no such column", expected=", ".join(known), found=repr(min(absent)))


def _refuse_absent_lists(shards: Shards) -> None:
    """Raise UsageError for a list of members that no shard has."""
    absent = {*shards.format_options.get("lists", ())}
    known: set[str] = set()
    for number in range(len(shards.listing)):
        if not absent:
            return
        schema = shards.open_shard(number).schema()
        known |= {each for each in map(list_of_member, schema.names) if each is not None}
        known |= {field.name for field in schema if has_items(field.type)}
        absent -= {field.name for field in schema if not pa.types.is_null(field.type)}
    if absent:
        raise UsageError("no such list of members", expected=", ".join(sorted(known)) or "members such as image.0.jpg",
                         found=f"lists={min(absent)!r}")  # fmt: skip


def _refuse_for_samples(read: ReadOptions, fmt: AnyFormat) -> None:
    """Raise UsageError for options of documents where rows are samples."""
    usual, interleaved = InterleavedOptions(), read.interleaved
    given = [] if interleaved is None else [f.name for f in fields(interleaved)]
    changed = [name for name in given if getattr(interleaved, name) != getattr(usual, name)]
    changed += ["fields"] if read.fields is not None else []
    changed += ["regroup"] if read.regroup and not has_option(fmt, "regroup") else []
    if changed:
        raise UsageError(
            "these options apply to interleaved documents only",
            found=f"{', '.join(changed)}, and samples",
            advice="Leave them out, or take rows as items with --view interleaved.",
        )


def _refuse_for_items(shards: Shards) -> None:
    """Raise UsageError for lists of members, and for a schema that lacks what identifies items."""
    lists = shards.format_options.get("lists")
    if lists:
        raise UsageError("lists of members apply to samples, and these are documents", found=f"lists={[*lists]}",
                         advice="Take rows as samples with --view samples.")  # fmt: skip
    target = shards.target
    for name in ("sample_id", "position"):
        if target is not None and name not in target.names:
            raise UsageError("the schema lacks a column that identifies items", column=name)


def shards_of(
    listing: Listing,
    fmt: AnyFormat,
    manifest: Manifest | None,
    kept_shards: pa.Table | None = None,
    *,
    read: ReadOptions,
) -> Shards:
    """The shards of a listing, read as a manifest says; nothing is opened, and no view is looked for.

    Args:
        listing: the shards.
        fmt: their format.
        manifest: what lading wrote next to the shards, if it did.
        kept_shards: the shards as the manifest lists them.
        read: how the shards are read; without a view, as the manifest says, or as samples.
    """
    settings = read.interleaved or stored_settings(manifest)
    if read.fields is not None:
        settings = replace(settings, fields=tuple(read.fields))
    if read.regroup:
        settings = replace(settings, regroup=True)
    stores, options, roots = read.stores or Stores(), read.options or {}, [os.fspath(root) for root in read.roots]
    plan = ReadPlan(
        view=read.view or (manifest.view if manifest else "samples"),
        format_options={
            **({} if read.mmap or not has_option(fmt, "mmap") else {"mmap": False}),
            **({"roots": roots} if roots and has_option(fmt, "roots") else {}),
            **({"regroup": True} if read.regroup and has_option(fmt, "regroup") else {}),
            **({"lists": tuple(read.lists)} if read.lists else {}),
            **manifest_options(manifest, fmt),
            **options,
        },
        interleaved=settings,
        roots=roots,
        target=read.schema,
        types=_types(read),
        members=None if "types" in options else members_of(manifest, fmt, read.view),
        stored_schema=stored_schema(manifest, fmt, read.view, settings),
        on_bad_shard=read.on_bad_shard,
        stored_roots=stored_roots(manifest, listing.own, stores),
    )
    fetcher = Fetcher(stores, mmap=read.mmap, limits=read.limits)
    return Shards(listing, fmt, plan, fetcher=fetcher, stores=stores, manifest=manifest, kept_shards=kept_shards)


def _listed(source: Source, stores: Stores, read: ReadOptions) -> tuple[Listing, tuple[Manifest, pa.Table] | None]:
    """The shards of a source: as a manifest lists them, or those of several datasets; else as they are found.

    Raises:
        UsageError: some shards are of datasets with a manifest that says more than the files, others are not; or such
            datasets lie in folders of partitions.
        SchemaMismatch: such manifests do not agree.
    """
    names, limits = source_names(source, stores), read.limits
    is_one = len(names) == 1
    if is_one and not read.split and not read.config and without_query(names[0]) == names[0]:
        store, path = resolve_folder(names[0].rstrip("/"), stores)
        pattern = not is_local(store) and ("*" in path or "{" in path)  # a server is not asked for such names
        kept = None if pattern else load_manifest(store, path, limits=limits)
        if kept is not None:
            return list_kept(kept[1], path), kept
    format_name = get_format(read.format).name if read.format else ""
    roots = tuple(os.fspath(root) for root in read.roots)
    asked = Asked(
        format_name, read.split or "", read.config or "", missing_too=read.on_bad_shard == "skip", roots=roots
    )
    listing, folders = list_source(source, stores, limits, asked), named_folders(source, stores)
    below = listing.datasets
    if not is_one or len(folders) > 1:  # those that an index lists are not known yet
        below = tuple(each for name in folders for each in (name, *(b for b in below if b.startswith(f"{name}/"))))
    found = [(folder, load_manifest(resolve_folder(folder, stores)[0], folder, limits=limits)) for folder in below]
    parts = [(folder, part) for folder, part in found if part is not None]
    if not parts:
        return listing, None
    mine = [pc.starts_with(listing.table["path"], f"{folder}/") for folder, _ in parts]
    loose = listing.table.filter(pc.invert(reduce(pc.or_, mine)))
    needed = any(_says_more(manifest, listing, stores) for _, (manifest, _) in parts)
    in_partitions = read.hive_partitioning and any("=" in folder[len(listing.folder or "") :] for folder, _ in parts)
    if (len(loose) or in_partitions) and not needed:  # manifests know nothing of the folders that they lie in
        return listing, None
    if in_partitions and any(get_format(manifest.format).info.hive_partitions for _, (manifest, _) in parts):
        raise UsageError(
            "the manifests of datasets in the folders of partitions do not list the columns of these folders",
            file=listing.folder or parts[0][0], found=parts[0][0],
            advice=f"{_BY_PATTERN} {WITHOUT_PARTITIONS}",
        )  # fmt: skip
    if len(loose):
        raise UsageError(
            "some of the shards belong to datasets with a manifest, and others do not", file=loose["path"][0].as_py(),
            expected=f"shards below {', '.join(folder for folder, _ in parts[:5])}", found=f"{len(loose)} others",
            advice=_BY_PATTERN,
        )  # fmt: skip
    try:
        own, kept = _as_one(parts, stores)
    except SchemaMismatch as error:
        if needed:
            error.advice = error.advice or _BY_PATTERN
            raise error.at(file=listing.folder or None) from None
        return listing, None
    return list_kept(kept[1], own, named=listing.folder == own), kept


def _says_more(manifest: Manifest, listing: Listing, stores: Stores) -> bool:
    """Whether rows come back as they were only by what the manifest says, and not by the files alone."""
    if not len(listing):  # nothing but manifests: there is no file that could say anything
        return True
    fmt = _recognise(listing, stores)
    if fmt.name != manifest.format or fmt.info.types != "stored" or manifest_options(manifest, fmt):
        return True
    return bool(stored_settings(manifest).roles) or members_of(manifest, fmt, None) is not None


def _as_one(
    parts: Sequence[tuple[str, tuple[Manifest, pa.Table]]], stores: Stores
) -> tuple[str, tuple[Manifest, pa.Table]]:
    """The folder that datasets share, and what their manifests say together, as seen from there."""
    folders = [folder for folder, _ in parts]
    [store, *others] = {id(store): store for store, _ in (resolve(folder, stores) for folder in folders)}.values()
    if is_local(store) and len({os.path.isabs(folder) for folder in folders}) > 1:
        folders = [os.path.abspath(folder) for folder in folders]
    words = [folder.split("/")[:-1] for folder in folders]
    shared = [same[0] for same in takewhile(lambda some: len({*some}) == 1, zip(*words, strict=False))]
    own = "/".join(shared) if shared else "."
    if others or resolve_folder(own, stores)[0] is not store:
        raise UsageError("datasets in several stores are not read as one", found=", ".join(folders[:5]),
                         advice="Open each by itself.")  # fmt: skip
    inside = [folder[len(own) + 1 :] if shared else folder for folder in folders]
    seen = [mf.seen_from(f"{i}/", part) for i, (_, part) in zip(inside, parts, strict=True)]
    manifest, shards = mf.merge(seen, folders)
    return own, (replace(manifest, sidecars=()), shards)


def counts_hold(shards: Shards) -> bool:
    """Whether what the list of shards says of samples is of these: a peer's index counts the rows of its format.

    Rows that are items, members of documents, or pieces of one sample, are other numbers than samples.
    """
    if shards.format_options.get("regroup"):  # an option only of formats whose samples may lie in pieces
        return False
    return shards.view == ("samples" if shards.manifest is None else shards.manifest.view)


def _uncounted(listed: pa.Table) -> pa.Table:
    """A listing that does not say how many samples shards hold."""
    at = listed.schema.get_field_index("num_samples")
    return listed.set_column(at, listed.schema.field(at), pa.nulls(len(listed), pa.int64()))


def _recognise(listing: Listing, stores: Stores, *, skip: bool = False) -> AnyFormat:
    """The format of the first shard; with `skip`, of the first that can be read."""
    paths = listing.table.column("path")
    for number in range(len(paths) - 1 if skip else 0):
        store, path = resolve(str(paths[number].as_py()), stores)
        try:
            return find_format(path, read_head(store, path))
        except (DataError, StoreError) as error:
            if not is_bad_shard(error):
                raise
    store, path = resolve(str(paths[len(paths) - 1 if skip else 0].as_py()), stores)
    return find_format(path, read_head(store, path))


@dataclass(frozen=True, slots=True)
class Named(ShardSource):
    """Shards that a user names.

    Attributes:
        given: files, folders and patterns, in a form that can be looked through again (`listed_once`).
    """

    given: Source

    @classmethod
    def of(cls, names: Source) -> Named:
        """Return the shards of what `lading.open` is given."""
        return cls(listed_once(names))

    @property
    def names(self) -> Source:
        """The files, folders and patterns, as `lading.open` takes them."""
        return self.given

    def open(self, read: ReadOptions) -> Shards:
        """Open the shards, and find the format and the view. Raises as `lading.open`."""
        return _open(self.given, read)

    def pinned(self, stores: Stores | None) -> Named:
        """Return the same names; those of datasets of the Hub say their commit."""
        return Named(of_commits(self.given, stores))

    def absolute(self, stores: Stores) -> Named:
        """Return the same shards for a process with another current folder."""
        names = [absolute_path(name) for name in source_names(self.given, stores)]
        return Named(names[0] if len(names) == 1 else names)

    def __str__(self) -> str:
        return str(self.given)


def has_option(fmt: AnyFormat, name: str) -> bool:
    """Whether a format is opened with an option of this name."""
    return name in {option.name for option in fields(fmt.info.read_options)}
