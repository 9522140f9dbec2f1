"""What users name as a source → the shards it stands for.

A source is a file, a folder, a zip archive of files, a glob (`mint/*.tar`), a brace pattern
(`shard-{000000..000123}.tar`), a `::`-joined list, a list of any of these, or a dataset's own index file (wids JSON).
`${WDS_NAME}` is filled in from the environment, for names that begin with `WDS_` only. `pipe:` commands are refused:
data must not run programs. A text that names a file or folder of this machine as it stands is that, whatever signs are
in it.

In globs `**` stands for any number of folders. What begins with a dot, and lading's own `_lading`, is only meant where
the pattern names it. So are tables whose names begin with `_`, below a folder or a `**`.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.free_memory import no_cycles
from lading._core.arrow.streams import kind_of
from lading._core.dataset.source.foreign import (
    COMPANIONS,
    UNFINISHED,
    MarkedTables,
    companions_of,
    is_about_folder,
    refuse_labels_apart,
    revisions_of,
)
from lading._core.dataset.source.hub_configs import CARD, HubConfig, choose_config, read_configs
from lading._core.dataset.source.split_names import splits_of_names
from lading._core.formats.dataset_index import ListedShard, LooseFiles, SplitList
from lading._core.formats.format import AnyFormat
from lading._core.formats.hive_partitions import partitions_of
from lading._core.formats.registry import all_formats, get_format
from lading._core.manifest.unfinished import refuse_listed, refuse_unfinished
from lading._core.manifest.values import FOLDER, MANIFEST_NAME
from lading._core.secret_urls import cleaned, shown
from lading._core.storage.base import FileInfo, Store, file_infos, has_file, native_path, write_file
from lading._core.storage.braces import expand_braces
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.index_json import load_index, refuse_pointer, several_splits
from lading._core.storage.local import LocalStore
from lading._core.storage.publish import MARKER
from lading._core.storage.roots import is_inside
from lading._core.storage.stores import Stores, is_local, resolve, resolve_folder, without_query
from lading._core.storage.zip_store import ZipStore
from lading._core.units import count
from lading.errors import DataError, NotFound, SeveralSplits, SourceNotFound, StoreError, UnknownFormat, UsageError
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "HEAD_BYTES",
    "LISTING_SCHEMA",
    "SPLITS_NAME",
    "Asked",
    "Listing",
    "Source",
    "claimed_by",
    "expanded",
    "is_hidden",
    "list_kept",
    "list_source",
    "listed_once",
    "lists_of_splits",
    "named_folders",
    "path_column",
    "read_head",
    "several_formats",
    "source_names",
    "split_source",
    "with_partitions",
    "write_splits",
]

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""What users name shards by: a file, folder, glob, brace pattern, `::`-joined list, list of these, or an index file."""

SPLITS_NAME = "splits.json"
"""Of lading's own file in a folder of several datasets: `{"splits": [names]}`, in their order."""

HEAD_BYTES = 1024
"""First bytes of a file that formats recognise it by."""

LISTING_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("num_samples", pa.int64()),
        pa.field("size_bytes", pa.int64()),
        pa.field("hashes", pa.string()),
        pa.field("entry", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("version", pa.string()),
        pa.field("alone", pa.bool_()),
    ]
)
"""A row a shard; `hashes` is a JSON object of hex digests by algorithm; `partition` and `alone` are as in `ShardFile`;
`version` is that of the file when it was listed. Null where the lister does not say."""

_MOST = 1 << 50
"""Of samples, and of bytes, that an index may say of a shard: sums over all shards must be numbers, too."""
_VARIABLE = re.compile(r"\$\{(WDS_[A-Za-z0-9_]*)\}")
_GLOB = re.compile(r"[*?\[]")
_EXPANDED = re.compile(r"::|[{$]")
_DEEP = "**"
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(?:@[\w./-]+)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user says of the shards of a folder.

    Attributes:
        format: name of their format; empty if it is not said.
        split: name of their split; empty for a folder of one dataset.
        config: name of their config, of those in the folder's README.md; empty for the default.
        missing_too: whether named files that are missing count as shards.
        roots: folders that links of loose files may lead to, besides the folder itself.
    """

    format: str = ""
    split: str = ""
    config: str = ""
    missing_too: bool = False
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The shards of a source, in order, as columns: no object per shard is kept.

    Attributes:
        table: rows of `LISTING_SCHEMA`.
        index_file: the file that listed them (wids JSON), if one did.
        folder: the folder that was named, if exactly one was.
        format: name of the format whose index listed them; empty if none did.
        own: the folder from which a manifest names its files, if one lists the shards: that folder, or one that the
            folders of several datasets share.
        datasets: of shards that no index lists, the folders below which lading wrote them, and kept a manifest.
        split_list: a peer's list of splits, if it names the shards.
        left_out: counts of files that are no shards of the dataset, by a short phrase.
        media_of: formats of which files with media lie in the folder that was named.
    """

    table: pa.Table
    index_file: str | None = None
    folder: str | None = None
    format: str = ""
    own: str | None = None
    datasets: tuple[str, ...] = ()
    split_list: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    media_of: tuple[str, ...] = ()
    _columns: Mapping[str, pa.Array] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns = zip(self.table.column_names, self.table.columns, strict=True)
        whole = {name: each.chunk(0) if each.num_chunks == 1 else each.combine_chunks() for name, each in columns}
        object.__setattr__(self, "_columns", whole)

    def value(self, name: str, shard: int) -> Any:
        """A value of the table for a shard, as Python's: a fifth of the time that `table` itself takes."""
        return self._columns[name][shard].as_py()

    @property
    def named_by(self) -> str | None:
        """The list of a peer that names the shards."""
        return self.index_file or self.split_list

    def with_versions(self, versions: Sequence[str]) -> Listing:
        """The same shards, which must have these versions when they are opened; empty ones are unknown."""
        place = self.table.schema.get_field_index("version")
        column = pa.array([version or None for version in versions], pa.string())
        return replace(self, table=self.table.set_column(place, LISTING_SCHEMA.field(place), column))

    def __len__(self) -> int:
        return int(self.table.num_rows)


def read_head(store: Store, path: str, info: FileInfo | None = None) -> bytes:
    """The first bytes of a file, `HEAD_BYTES` at most. Raises NotFound."""
    size = (info or store.head(path)).size_bytes
    [data] = store.get_ranges(path, [(0, min(size, HEAD_BYTES))])
    return bytes(data)


def list_kept(shards: pa.Table, own: str, *, named: bool = True) -> Listing:
    """The shards that a manifest lists, by the folder from which it names them; `named` if that is the source."""
    paths = pc.binary_join_element_wise(f"{own}/", shards["path"], "")
    hashes = pa.nulls(len(shards), pa.string())
    columns = [paths, shards["num_samples"], shards["size_bytes"], hashes, shards["entry"], hashes, hashes]
    alone = pa.nulls(len(shards), pa.bool_())
    return Listing(pa.table([*columns, alone], schema=LISTING_SCHEMA), folder=own if named else None, own=own)


def list_source(
    source: Source,
    stores: Stores,
    limits: Limits = DEFAULT_LIMITS,
    asked: Asked = Asked(),
) -> Listing:
    """The shards that a source stands for.

    Globs and folders give files in code-point order of their paths; lists and braces keep their own order. Local
    globs and folders are listed once; no shard is opened. With `missing_too`, shards that are named and not there are
    listed.

    Raises:
        SourceNotFound: a file is not there, or a pattern or folder gives no shard.
        UsageError: no text or path, a `pipe:` command, an unset variable, a brace pattern of more than ten million
            names.
        LimitExceeded: a dataset's own index is too large.
    """
    names = source_names(source, stores)
    if not names:
        raise SourceNotFound("the list of sources is empty")
    found: list[Listing | ListedShard] = [*(_named_together(names, stores, asked) or ())]
    found = found or [one for pattern in names for one in _list_pattern(pattern, stores, limits, asked)]
    return _together(found)


def _together(found: Sequence[Listing | ListedShard]) -> Listing:
    """Return several listings and shards as one listing, in their order."""
    if len(found) == 1 and isinstance(found[0], Listing):
        return found[0]
    # A table of one shard takes as long as one of a thousand.
    tables: list[pa.Table] = []
    for _, group in groupby(found, key=type):
        members = list(group)
        shards = [one for one in members if isinstance(one, ListedShard)]
        tables += [_table(shards)] if shards else [one.table for one in members if isinstance(one, Listing)]
    listings = [one for one in found if isinstance(one, Listing)]
    datasets = tuple(folder for one in listings for folder in one.datasets)
    left_out = sum((Counter(one.left_out) for one in listings), Counter[str]())
    formats = {one.format for one in listings} if len(listings) == len(found) else set[str]()
    return Listing(pa.concat_tables(tables), format=formats.pop() if len(formats) == 1 else "", datasets=datasets,
                   left_out=left_out)  # fmt: skip


def with_partitions(listing: Listing) -> Listing:
    """The listing with the partitions in the names of folders: of those below the folder that was named, if one was.

    Raises:
        DataError: the value of a partition is invalid UTF-8.
    """
    table = listing.table
    below = 0 if listing.folder is None else len(listing.folder.rstrip("/")) + 1
    partitions = partitions_of(pc.utf8_slice_codeunits(table["path"], below))
    if partitions is None:
        return listing
    at = table.schema.get_field_index("partition")
    return replace(listing, table=table.set_column(at, table.schema.field(at), partitions))


def listed_once(source: Source) -> Source:
    """A source that can be looked through again: a generator's items as a list, and URLs without their secrets."""
    if isinstance(source, str):
        names = source.split("::")
        hidden = [shown(name) for name in names]
        return source if hidden == names else hidden[0] if len(hidden) == 1 else hidden
    if isinstance(source, Iterable) and not isinstance(source, bytes | os.PathLike):
        return _texts(source)
    return source


def source_names(source: Source, stores: Stores) -> list[str]:
    """What a source lists: the parts of a `::`-joined list, or its items. Raises UsageError for what is no name."""
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, os.PathLike)):
        return _texts(source)
    name = _text(source)
    return [name] if _is_there(name, stores) else name.split("::")


def split_source(source: Source, split: str | None, stores: Stores | None) -> Source:
    """The source that a split is: the folder of its name in each folder of the source.

    It is the source itself if there is no such folder, or if a peer's list says which files are of the split.

    Raises:
        UsageError: the split is not a text.
    """
    if not split:
        return source
    if not isinstance(split, str):
        raise UsageError("a split is named by a text", expected="the name of a folder", found=repr(split)[:80])
    stores = stores or Stores()
    folders = [name.rstrip("/") for name in source_names(source, stores)]
    names = [f"{folder}/{split}" for folder in folders]
    if any(_tells_splits(folder, stores) for folder in folders) or not all(_is_named_folder(n, stores) for n in names):
        return source
    if any(_lists_configs(folder, split, stores) for folder in folders):
        return source
    return names[0] if len(names) == 1 else names


def _is_named_folder(name: str, stores: Stores) -> bool:
    store, path = resolve_folder(name, stores)
    return os.path.isdir(native_path(path)) if is_local(store) else _holds_files(store, path)


def _tells_splits(folder: str, stores: Stores) -> bool:
    """Whether a folder holds a list which says what files its splits have."""
    store, path = resolve_folder(folder, stores)
    lists = (f"{path}/{name}" for known in all_formats() for name in known.index.split_lists if "/" in name)
    return any(has_file(store, place) for place in lists)


def _lists_configs(folder: str, split: str, stores: Stores) -> bool:
    """Whether the README.md of a folder lists configs, which say what files a split has; not where lading wrote it."""
    store, path = resolve_folder(folder, stores)
    if has_file(store, f"{path}/{split}/{FOLDER}/{MANIFEST_NAME}"):
        return False
    card = _path_in(store, path, CARD)
    if is_local(store) and not os.path.isfile(native_path(card)):
        return False
    try:
        info = store.head(card)
        [data] = store.get_ranges(card, [(0, min(info.size_bytes, DEFAULT_LIMITS.index_bytes))])
    except NotFound:
        return False
    return bool(read_configs(bytes(data), card))


def _texts(names: Iterable[object]) -> list[str]:
    if isinstance(names, Mapping) or any(hasattr(names, each) for each in ("columns", "features")):
        raise _not_named(names)  # a table, or a dataset of another library
    return [_text(name) for name in names]


def _text(name: object) -> str:
    try:
        text = os.fspath(name)  # type: ignore[call-overload] # what is no path is told
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise _not_named(name)
    return shown(text)


def _not_named(value: object) -> UsageError:
    """Return the error of something that is neither the name of files nor rows."""
    advice = None
    if isinstance(value, Mapping):
        name = next(iter(value), "train")
        advice = f"Open one of its values: [{name!r}]."
    elif hasattr(value, "collect"):
        advice = "Collect its rows first: .collect()."
    return UsageError("no source of samples", expected="names of files, a table or data frame, or dicts",
                      found=kind_of(value), advice=advice)  # fmt: skip


def _is_there(name: str, stores: Stores) -> bool:
    """Whether signs that would be expanded are part of the name of a file or folder of this machine."""
    if not _EXPANDED.search(name):
        return False
    with suppress(UsageError):
        store, path = resolve(name, stores)
        return is_local(store) and os.path.lexists(native_path(path))
    return False


def named_folders(source: Source, stores: Stores) -> list[str]:
    """The paths that a source names and that no format claims for shards, in order; no globs."""
    names = (name.rstrip("/") for name in source_names(source, stores))
    # Most patterns say by their ending that all they name is shards: millions, it may be.
    found = (one for name in names if _may_be_folder(name) for one in expanded(name, stores))
    places = [resolve_folder(name, stores) for name in found if _may_be_folder(name)]
    return [native_path(path) if is_local(store) else path for store, path in places]


def _may_be_folder(name: str) -> bool:
    return claimed_by(name) is None and without_query(name) == name and not _GLOB.search(name)


def expanded(pattern: str, stores: Stores) -> Iterator[str]:
    """The names that a pattern with braces and variables stands for; of what is there as it stands, that."""
    return iter([pattern]) if _is_there(pattern, stores) else expand_braces(_fill_variables(pattern))


def _fill_variables(pattern: str) -> str:
    if pattern.startswith("pipe:"):
        raise UsageError(
            "a source cannot be a command", found=repr(cleaned(pattern)), advice="Name files or URLs instead."
        )

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise UsageError(f"the environment variable {match[1]} is not set", found=repr(pattern))
        return os.environ[match[1]]

    return _VARIABLE.sub(value, pattern)


def _list_pattern(pattern: str, stores: Stores, limits: Limits, asked: Asked) -> Iterator[Listing | ListedShard]:
    """A file, folder or glob, or what a brace pattern names. Files of a remote store are looked at together."""
    names = expanded(pattern, stores)
    first = next(names)
    rest = [] if is_local(resolve(first, stores)[0]) else [*names]
    if rest and not _GLOB.search(without_query(pattern)):
        _refuse_unfinished_folders([first, *rest], stores)
        together = _look_together([first, *rest], stores)
        if together is not None:
            yield from together
            return
    for name in chain([first], rest, names):
        yield _list_one(name, stores, limits, asked)


def _refuse_unfinished_folders(names: Sequence[str], stores: Stores) -> None:
    """Raise UnfinishedDataset if the commit of a dataset has not ended that holds some of these files."""
    places = [resolve(name, stores) for name in names if claimed_by(name) is not None]
    folders = {without_query(path).rpartition("/")[0]: store for store, path in places}
    looks = [partial(refuse_unfinished, store, folder) for folder, store in folders.items()]
    for _ in concurrent_map(looks, remote=True):
        pass


def _named_together(names: Sequence[str], stores: Stores, asked: Asked) -> list[ListedShard] | None:
    """Several shards of one remote store that are named without patterns; else None."""
    if len(names) == 1 or asked.split or asked.config or is_local(resolve(names[0], stores)[0]):
        return None
    # A JSON file may be the index of a format.
    if any(_EXPANDED.search(name) or _GLOB.search(name) or name.endswith(".json") for name in names):
        return None
    return _look_together(names, stores)


def _look_together(names: Sequence[str], stores: Stores) -> list[ListedShard] | None:
    """The files of these names, if they are shards of one store; else None."""
    places = [resolve(name, stores) for name in names]
    store = places[0][0]
    if all(own is store and claimed_by(path) is not None for own, path in places):
        with suppress(StoreError):  # folders with a shard's ending, perhaps, or one is missing: told one by one
            infos = file_infos(store, [path for _, path in places])
            return [*_shards_of(store, infos)]
    return None


def _list_one(name: str, stores: Stores, limits: Limits, asked: Asked) -> Listing | ListedShard:
    store, path = resolve_folder(name, stores)
    path = native_path(path) if isinstance(store, LocalStore) else path
    if _GLOB.search(without_query(path)) and not (is_local(store) and os.path.lexists(path)):
        return _list_glob(store, name, path, stores, limits, asked)
    inside: list[FileInfo] | None = None
    if not is_local(store) and claimed_by(path) is None and without_query(path) == path:
        inside = [*store.walk(path)]
    is_archive = isinstance(store, ZipStore) and path == store.archive
    if inside or is_archive or (os.path.isdir(path) if is_local(store) else path.endswith("/")):
        return _list_folder(store, path, stores, limits, asked, inside)
    try:
        info = store.head(path)
    except StoreError as error:
        if not is_local(store) and _holds_files(store, path):  # a folder with a shard's ending
            return _list_folder(store, path, stores, limits, asked)
        if not isinstance(error, NotFound):
            raise
        if asked.missing_too and claimed_by(path) is not None:
            return ListedShard(path)
        known = is_local(store) or isinstance(store, ZipStore)
        what = "no such file or folder" if known else "the bucket or path does not exist"
        advice = error.advice or (_on_hub(name) if is_local(store) else None)
        raise SourceNotFound(what, file=name, found=None if name else repr(name), advice=advice) from error
    _refuse_split(name, asked)
    listing = _listed_in_json(store, path, info, limits) if path.endswith(".json") else None
    return ListedShard(path, size_bytes=info.size_bytes, version=info.version) if listing is None else listing


def _on_hub(name: str) -> str | None:
    """What to write if a name that is not there is one of the Hub; such a name alone never opens a repository."""
    if _HUB_NAME.fullmatch(name) is None or claimed_by(name) is not None or os.path.lexists(name.partition("/")[0]):
        return None
    return f"For a dataset of Hugging Face's Hub, write hf://datasets/{name}."


def _list_glob(store: Store, name: str, path: str, stores: Stores, limits: Limits, asked: Asked) -> Listing:
    """The files that a glob means."""
    infos, seen = _match(store, path)
    for folder in [path.removesuffix(f"/{MARKER}") for path in seen if path.endswith(f"/{MARKER}")]:
        if not infos or any(info.path.startswith(f"{folder}/") for info in infos):
            refuse_listed(store, (path for path in seen if path.startswith(f"{folder}/{FOLDER}/")))
    if not infos:
        advice = "A bracket that is part of a name is written [[]." if "[" in path else None
        raise SourceNotFound("no file matches the pattern", file=name, advice=advice)
    if all(map(_is_archive, infos)):
        return _list_archives(infos, stores, limits, asked)
    _refuse_split(name, asked)
    loose = get_format(asked.format).loose if asked.format else None
    if loose is not None:
        fixed = path[: path.rfind("/", 0, _GLOB.search(path).start()) + 1]  # type: ignore[union-attr] # it matched
        return _list_loose(store, fixed, loose, infos, asked.roots)
    infos, aside = _seen_by(path, infos, asked.format)
    if not infos:
        raise SourceNotFound("the pattern matches only files whose names begin with _", file=name,
                             found=count(aside, "file"), advice="Name the files, or write the _.")  # fmt: skip
    infos, left_out = _of_format(name, infos, asked.format)
    left_out = {**left_out, **({_ASIDE: aside} if aside else {})}
    return Listing(_table(_shards_of(store, infos, seen)), left_out=left_out)


def _is_archive(info: FileInfo) -> bool:
    return info.path.lower().endswith(".zip")


def _listed_by_archives(found: _Found, stores: Stores, limits: Limits, asked: Asked) -> Listing | None:
    """The shards in the zip archives of a folder, if it holds no shards, and no loose files of its own."""
    archives = [info for info in found.files if _is_archive(info)]
    if not archives or any(claimed_by(info.path) is not None for info in found.files):
        return None
    if _loose_files(found, replace(asked, format="")) is not None:
        return None
    listing = _list_archives(archives, stores, limits, asked)
    others = {"files next to zip archives, left out": len(found.files) - len(archives)}
    return replace(listing, left_out={**listing.left_out, **_counted(others)})


def _list_archives(infos: Sequence[FileInfo], stores: Stores, limits: Limits, asked: Asked) -> Listing:
    """The shards in zip archives, one archive after another: of one split, if their names tell splits."""
    named = splits_of_names([os.path.basename(info.path) for info in infos])
    if asked.split in named or len(named) > 1:
        numbers = _split_of(os.path.dirname(infos[0].path), named, asked.split)
        infos, asked = [infos[number] for number in numbers], replace(asked, split="")
    return _together([_list_one(info.path, stores, limits, asked) for info in infos])


def _listed_in_json(store: Store, path: str, info: FileInfo, limits: Limits) -> Listing | None:
    """The shards that a JSON file lists, if it is the index of a format."""
    head = read_head(store, path, info)
    refuse_pointer(head, path)
    for candidate in all_formats():
        if path.endswith(tuple(f"/{name}" for name in candidate.index.other_names)):
            continue
        listed = candidate.index.shards(store, path, head, limits)
        if listed is not None:
            return Listing(_table(listed, path), index_file=path, format=candidate.name)
    return None


def _holds_files(store: Store, folder: str) -> bool:
    return next(iter(store.walk(folder + "/")), None) is not None


def _match(store: Store, pattern: str) -> tuple[list[FileInfo], Collection[str]]:
    """The files that a glob means, by path, and all names that were seen.

    On this machine, folders that it does not lead to are not looked into.
    """
    parts = pattern.split("/")
    if is_local(store) and _DEEP not in parts:
        paths = [path for path in sorted(glob.glob(pattern)) if FOLDER in parts or FOLDER not in path.split("/")]
        return [store.head(path) for path in paths if not os.path.isdir(path)], ()
    fixed = next(i for i, part in enumerate(parts) if _GLOB.search(part))
    folder = "".join(f"{part}/" for part in parts[:fixed])
    found = [*store.walk(folder)]
    fitting = [info for info in found if _fits(parts[fixed:], info.path[len(folder) :].split("/"))]
    return fitting, {info.path for info in found}


def _seen_by(pattern: str, infos: list[FileInfo], named: str) -> tuple[list[FileInfo], int]:
    """The files that are meant by a pattern with `**`, and how many tables are not; see `_is_aside`."""
    parts = pattern.split("/")
    if _DEEP not in parts:
        return infos, 0
    fixed = next(i for i, part in enumerate(parts) if _GLOB.search(part))
    below = sum(len(part) + 1 for part in parts[:fixed])
    tables, far = _table_endings(named), ((info, info.path[below:].split("/")) for info in infos)
    meant = [info for info, names in far if not _is_aside(names, tables) or _fits(parts[fixed:], names, shy=True)]
    return meant, len(infos) - len(meant)


def _shards_of(store: Store, infos: Iterable[FileInfo], names: Container[str] | None = None) -> Iterator[ListedShard]:
    """Files as shards. Of a remote store, a listing says what else would take a request for each.

    Args:
        store: their store.
        infos: the files.
        names: all names in their folders, if these were listed.
    """
    far = is_remote(store)
    for info in infos:
        alone = far and names is not None and f"{info.path}.idx" not in names
        yield ListedShard(info.path, size_bytes=info.size_bytes, version=info.version, alone=alone)


def _fits(parts: Sequence[str], names: Sequence[str], *, shy: bool = False) -> bool:
    """Whether the parts of a pattern stand for these names, each in the one before.

    With `shy`, a name that begins with `_` is only meant by a part that does.
    """
    reached = _past_deep({0}, parts)
    for name in names:
        open_parts = [i for i in reached if i < len(parts) and _means(parts[i], name)]
        if shy and _is_shy(name):
            open_parts = [i for i in open_parts if parts[i].startswith("_")]
        reached = _past_deep({i if parts[i] == _DEEP else i + 1 for i in open_parts}, parts)
    return len(parts) in reached


def _past_deep(reached: set[int], parts: Sequence[str]) -> set[int]:
    """How many parts may be behind: `**` may also stand for nothing."""
    for i, part in enumerate(parts):
        if part == _DEEP and i in reached:
            reached.add(i + 1)
    return reached


def _means(part: str, name: str) -> bool:
    if name == FOLDER or name.startswith(".") != part.startswith("."):
        return part == name
    return fnmatchcase(name, part)


def _list_folder(
    store: Store,
    folder: str,
    stores: Stores,
    limits: Limits,
    asked: Asked,
    inside: Sequence[FileInfo] | None = None,
) -> Listing:
    """Shards below a folder: files with an ending that a format claims; hidden ones and `_lading` are left out.

    Args:
        store: its store.
        folder: the folder.
        stores: stores of the archives in it.
        limits: limits on what the files may ask for.
        asked: what the user says of the shards.
        inside: its files, if they were listed already.
    """
    root = folder.rstrip("/") or "/"
    there = None if inside is None else {info.path for info in inside}
    listed = None if asked.split or asked.config else _listed_by_index(store, root, limits, asked, there)
    if listed is not None:
        return listed
    found = _look_through(store, root, limits, inside, asked.format)
    listed = _listed_by_log(store, root, limits, asked, found)
    config = None if listed is not None else _config_of(store, root, found, limits, asked)
    if config is not None:
        listed = _list_config(store, root, config, found, asked)
    if listed is not None:
        return listed
    head_of = partial(read_head, store)
    if not asked.format or get_format(asked.format).loose is None:
        found.tables.refuse(head_of)
    listed = _listed_without_shards(store, root, stores, limits, found, asked)
    if listed is not None:
        return listed
    seen = [info for info in found.files if info.path not in found.aside]
    infos, left_out = _of_format(folder, seen, asked.format)
    left_out = {**left_out, **_counted_aside(found)}
    datasets = tuple(found.datasets)
    known = claimed_by(infos[0].path) if infos else None
    if not infos and not datasets and not asked.format:
        known, infos = _alone(seen)
        left_out = {
            **left_out,
            **_counted({"files about the folder, left out": len(seen) - len(infos) if infos else 0}),
        }
    if not infos and datasets:  # of formats that write no file without samples
        return Listing(_table([]), folder=root, datasets=datasets)
    if not infos:
        raise _no_shard(folder, seen, asked.format, aside=len(found.aside))
    fmt = get_format(asked.format) if asked.format else known
    assert fmt is not None, "the files are claimed"
    infos, leftovers = _without_leftovers(fmt, infos)
    left_out = {**left_out, **leftovers}
    by_list = _listed_by_splits(store, root, fmt, found, infos, limits)
    if by_list is not None:
        path, splits = by_list
        table = _table(_split_of(root, splits.shards, asked.split), path)
        left_out = {**left_out, **splits.left_out}
        return Listing(table, folder=root, format=fmt.name, split_list=path, left_out=left_out)
    _refuse_several_caches(root, fmt, found, infos)
    listing = Listing(
        _table([]), folder=root, datasets=datasets, left_out=left_out, media_of=_media_of(fmt, found.files)
    )
    return _listed_by_names(store, listing, fmt, found, infos, limits, asked)


def _alone(files: Sequence[FileInfo]) -> tuple[AnyFormat | None, list[FileInfo]]:
    """The format of files that are alone in a folder, of formats whose endings mean something else next to others."""
    infos = [info for info in files if not is_about_folder(os.path.basename(info.path))]
    for known in all_formats():
        if infos and not known.info.extensions and len(_ending_in(infos, known.info.when_named)) == len(infos):
            return known, infos
    return None, []


def _listed_without_shards(
    store: Store, root: str, stores: Stores, limits: Limits, found: _Found, asked: Asked
) -> Listing | None:
    """The loose files of a folder, or what its zip archives hold; None if it has shards."""
    about = companions_of([info.path for info in found.files])
    files = replace(found, files=[info for info in found.files if info.path not in about]) if about else found
    listing = _listed_by_archives(files, stores, limits, asked)
    loose = _loose_files(files, asked) if listing is None else None
    if loose is not None:
        if not asked.format:
            _refuse_labels_apart(store, root, loose, files)
        listing = _list_folder_of_files(store, root, loose, files, asked)
    if listing is None:
        return None
    return replace(listing, left_out={**listing.left_out, **_counted({COMPANIONS: len(about)})})


def _listed_by_log(store: Store, root: str, limits: Limits, asked: Asked, found: _Found) -> Listing | None:
    """What the log of a table lists, if the folder is one whose log lading reads, and no other format is named.

    Raises:
        SourceNotFound: a split is asked for.
        UsageError: a config is asked for.
    """
    log, name = found.tables.logs.get(root, ("", ""))
    if not log or asked.format not in ("", name):
        return None
    if asked.split:
        _split_of(root, dict[str, pa.Table](), asked.split)
    _refuse_split(root, asked)
    fmt = get_format(name)
    shards = {one.path: one for one in fmt.index.shards(store, log, read_head(store, log), limits) or ()}
    for there in _shards_of(store, [info for info in found.files if info.path in shards]):
        shards[there.path] = replace(shards[there.path], size_bytes=there.size_bytes, version=there.version)
    others = sum(claimed_by(info.path) is fmt and info.path not in shards for info in found.files)
    left_out = _counted({"files of other versions of the table, left out": others})
    return Listing(_table([*shards.values()], log), index_file=log, folder=root, format=name, left_out=left_out)


def _listed_by_names(
    store: Store, listing: Listing, fmt: AnyFormat, found: _Found, infos: list[FileInfo], limits: Limits, asked: Asked
) -> Listing:
    """The listing of a folder with its shards: those of the split that is asked for, if names of files tell splits."""
    root, left_out, datasets = listing.folder or "", listing.left_out, listing.datasets
    named = splits_of_names([info.path[len(root) :].strip("/") for info in infos])
    if asked.split or len(named) > 1:
        numbers = _split_of(root, named, asked.split)
        others = len(infos) - len({number for each in named.values() for number in each})
        left_out = {**left_out, **({"files of no split, left out": others} if others else {})}
        infos = [infos[number] for number in numbers]
        datasets = ()
        folders = {os.path.dirname(info.path) for info in infos} - {root}
        listed = _listed_by_index(store, folders.pop(), limits, asked) if len(folders) == 1 else None
        if listed is not None:  # the split is a folder with an index of its own
            return listed
    _refuse_without_index(store, root, fmt.name, infos)
    table = _table(_shards_of(store, infos, {info.path for info in found.files}))
    return replace(listing, table=table, datasets=datasets, left_out=left_out)


def _config_of(store: Store, root: str, found: _Found, limits: Limits, asked: Asked) -> HubConfig | None:
    """The config that is meant of those that the README.md of a repository lists; None for other folders.

    It is not read where lading wrote a dataset: the manifest says what belongs to it.

    Raises:
        UsageError: there are several configs, and none is chosen; or a config is asked for, and none is listed.
    """
    configs: list[HubConfig] = []
    if found.card is not None and not found.datasets:
        size = found.card.size_bytes
        if size > limits.index_bytes:
            raise limits.exceeded("index_bytes", "the README is too large", file=found.card.path, found=size)
        [data] = store.get_ranges(found.card.path, [(0, size)])
        configs = read_configs(bytes(data), found.card.path)
    if not configs and asked.config:
        raise UsageError("no configs are listed", file=_path_in(store, root, CARD), found=f"config={asked.config!r}",
                         expected="a README.md with configs in its YAML, next to files that lading did not write",
                         advice="Name the folder or the files of the config instead.")  # fmt: skip
    return choose_config(configs, asked.config, _path_in(store, root, CARD)) if configs else None


def _list_config(store: Store, root: str, config: HubConfig, found: _Found, asked: Asked) -> Listing:
    """The shards or loose files of a config, of the split that is asked for; others below the folder are left out.

    Raises:
        SourceNotFound: no file matches a pattern of the config, or there is no such split.
        SeveralSplits: it has several splits, and none is asked for.
    """
    card = _path_in(store, root, CARD)
    inside = {info.path[len(root) :].strip("/"): info for info in found.files if info.path != card}
    below = f"{config.folder}/" if config.folder else ""
    tables = [name for name, info in inside.items() if claimed_by(name) is not None and info.path not in found.aside]
    own = [info for name, info in inside.items() if name.startswith(below)]
    seen = tables if _loose_files(replace(found, files=own), asked) is None else [*inside]
    mine = [name for name in seen if name.startswith(below)]
    if config.splits:
        splits = {
            split: _matching(patterns, list(inside), card if asked.split in ("", split) else "")
            for split, patterns in config.splits.items()
        }
    else:
        by_name = splits_of_names([name[len(below) :] for name in mine])
        splits = {split: [mine[number] for number in numbers] for split, numbers in by_name.items()}
    names = _split_of(root, splits, asked.split) if splits or asked.split else mine
    if not names:
        raise SourceNotFound("the config has no shards", file=card, found=config.name)
    chosen = [inside[name] for name in names]
    of_config = {*chain.from_iterable(splits.values())} if config.splits else {*mine}
    outside = {f"files outside the config {config.name!r}, left out": len({*seen} - of_config)}
    told = {f"options of the config, not applied: {', '.join(config.ignored)}": len(config.ignored)}
    loose = _loose_files(replace(found, files=chosen), asked)
    if loose is not None:
        tops = {name[: max(name.find("/"), 0)] for name in names}
        folder = "/".join([root.rstrip("/"), *(filter(None, tops) if len(tops) == 1 else ()), ""])
        listing = _list_loose(store, folder, loose, chosen, asked.roots)
        return replace(listing, folder=root, left_out={**listing.left_out, **_counted({**told, **outside})})
    if asked.format:
        endings = (*get_format(asked.format).info.extensions, *get_format(asked.format).info.when_named)
        chosen = [info for info in chosen if claimed_by(info.path) is None or _ending_in([info], endings)]
        if not chosen:
            raise _no_shard(root, [inside[name] for name in names], asked.format)
    found_infos, left_out = _of_format(_path_in(store, root, _DEEP), chosen, asked.format)
    infos = _known(found_infos)
    others = {"files of other formats, left out": len(found_infos) - len(infos)}
    left_out = {**left_out, **_counted({**others, **told, **_counted_aside(found), **outside})}
    table = _table(_shards_of(store, infos, {info.path for info in found.files}))
    return Listing(table, folder=root, left_out=left_out)


def _counted(told: Mapping[str, int]) -> dict[str, int]:
    return {what: number for what, number in told.items() if number}


def _known(infos: list[FileInfo]) -> list[FileInfo]:
    """Those of the files that a format claims; else those that it takes if it is named; else all."""
    endings = tuple(ending for known in all_formats() for ending in known.info.when_named)
    return [info for info in infos if claimed_by(info.path) is not None] or _ending_in(infos, endings) or infos


def _matching(patterns: Sequence[str], names: Sequence[str], card: str) -> list[str]:
    """The names that patterns stand for, in their order. Raises SourceNotFound for a pattern of a card without any."""
    found: dict[str, None] = {}
    for pattern in patterns:
        parts = pattern.split("/")
        fitting = [name for name in names if name == pattern or _fits(parts, name.split("/"))]
        if not fitting and card:
            raise SourceNotFound("no file matches a pattern of the config", file=card, expected=pattern,
                                 advice="Download these files too, or choose another --config or --split.")  # fmt: skip
        found |= dict.fromkeys(fitting)
    return list(found)


def _loose_files(found: _Found, asked: Asked) -> LooseFiles | None:
    """How loose files are read, if their format is asked for; or if nothing else is in a folder that has media."""
    if asked.format:
        return get_format(asked.format).loose
    for loose in (known.loose for known in all_formats()):
        if loose is not None and not found.datasets and loose.claims(found.files):
            tables = (info for info in found.files if info.path not in found.aside)
            others = (info for info in tables if os.path.basename(info.path) not in loose.described_by)
            return None if any(claimed_by(info.path) is not None for info in others) else loose
    return None


def _refuse_labels_apart(store: Store, root: str, loose: LooseFiles, found: _Found) -> None:
    """Raise UsageError for images whose labels lie apart from them, without a table that lading reads with them."""
    names = [info.path[len(root) :].lstrip("/") for info in found.files if info.size_bytes >= 0]
    if not any(os.path.basename(name) in loose.described_by for name in names):
        refuse_labels_apart(names, root, lambda name: read_head(store, _path_in(store, root, name)), loose.format)


def _list_folder_of_files(store: Store, root: str, loose: LooseFiles, found: _Found, asked: Asked) -> Listing:
    """Loose files below a folder; of one split, if all of them lie in folders that are named like splits."""
    inside, files, left_out = root.rstrip("/") + "/", found.files, Counter[str]()
    left_out.update({"hidden files, left out": found.hidden} if found.hidden else {})
    below = len(inside)
    tops = [info.path[below : max(info.path.find("/", below), below)] for info in files]  # empty for a file itself
    distinct = list(dict.fromkeys(tops))
    named = {split: {distinct[i] for i in each} for split, each in splits_of_names([f"{t}/" for t in distinct]).items()}
    if {top for each in named.values() for top in each} == {*distinct} and (asked.split or len(named) > 1):
        folders = _split_of(root, named, asked.split)
        files = [info for info, top in zip(files, tops, strict=True) if top in folders]
        inside += f"{min(folders)}/" if len(folders) == 1 else ""
    elif asked.split:
        _split_of(root, dict[str, set[str]](), asked.split)
    listing = _list_loose(store, inside, loose, files, asked.roots)
    if not len(listing):
        raise _no_shard(root, found.files, "")
    return replace(listing, folder=root, left_out=left_out + Counter(listing.left_out))


def _list_loose(
    store: Store, inside: str, loose: LooseFiles, files: Sequence[FileInfo], roots: Sequence[str]
) -> Listing:
    """Loose files as shards. On this machine, links that lead out of their folder, and not to a root, are left out.

    Args:
        store: the store of the files.
        inside: what all paths begin with: a folder with its final slash, or nothing.
        loose: makes them shards.
        files: the files, by path.
        roots: folders that links may lead to.
    """
    near = _near_files(inside, files, roots) if is_local(store) else files
    shards, left_out = loose.shards(inside, near)
    far = len(files) - len(near)
    return Listing(_table(shards), format=loose.format, left_out={
        **left_out, **({"links to other folders, left out (--root allows a folder)": far} if far else {}),
    })  # fmt: skip


def _near_files(inside: str, files: Sequence[FileInfo], roots: Sequence[str]) -> list[FileInfo]:
    """The files whose real places are inside their folder or a root."""
    allowed = [os.path.realpath(place) for place in (inside or ".", *roots)]
    folders: dict[str, bool] = {}

    def holds(place: str) -> bool:
        return any(is_inside(place, folder) for folder in allowed)

    def is_near(path: str) -> bool:
        if os.path.islink(path):
            return holds(os.path.realpath(path))
        folder = os.path.dirname(path)
        if folder not in folders:
            folders[folder] = holds(os.path.realpath(folder))
        return folders[folder]

    return [info for info in files if is_near(info.path)]


def _no_shard(folder: str, files: Sequence[FileInfo], named: str, *, aside: int = 0) -> SourceNotFound:
    known = [get_format(named)] if named else list(all_formats())
    endings = dict.fromkeys(ending for each in known for ending in each.info.extensions)
    packed = [ending for ending in endings if any(ending.startswith(f"{other}.") for other in endings)]
    plain = ", ".join(ending for ending in endings if ending not in packed)
    others = Counter(
        os.path.splitext(info.path)[1] or "without an ending" if (claimed := claimed_by(info.path)) is None
        else claimed.name for info in files
    )  # fmt: skip
    meant = [] if named else [each.info.name for each in known if _ending_in(files, each.info.when_named)]
    advice = f"If they hold rows, name the format: --from {meant[0]}. " if meant else ""
    advice += f"To read {count(aside, 'file')} whose names begin with _, name the files. " if aside else ""
    loose = next((each.info.name for each in known if each.loose is not None), "") if files and not named else ""
    advice += f"If each is a field of a sample, read them as loose files: --from {loose}." if loose else ""
    return SourceNotFound(f"the folder holds no shard{named and f' of the format {named}'}", file=folder,
                          expected=f"files ending in {plain}{', perhaps compressed' if packed else ''}",
                          found=", ".join(f"{count} {name}" for name, count in others.most_common(_FEW)) or None,
                          advice=advice.strip() or None)  # fmt: skip


@dataclass(slots=True)
class _Found:
    """What lies below a folder: files that are not hidden, folders with a manifest, lists of splits, and tables."""

    files: list[FileInfo] = field(default_factory=list)
    datasets: dict[str, None] = field(default_factory=dict)
    split_lists: set[str] = field(default_factory=set)
    hidden: int = 0
    tables: MarkedTables = field(default_factory=MarkedTables)
    card: FileInfo | None = None
    aside: set[str] = field(default_factory=set)
    aside_hidden: int = 0


def _path_in(store: Store, folder: str, name: str) -> str:
    """The path of a file in a folder. A remote `far:` is the root of a store without buckets: `far://`."""
    folder = folder.rstrip("/")
    is_root = folder.endswith(":") and "/" not in folder and not is_local(store)
    return f"{folder}{'//' if is_root else '/'}{name}"


def _look_through(store: Store, root: str, limits: Limits, inside: Sequence[FileInfo] | None, named: str) -> _Found:
    """Look at the files of a folder.

    Raises:
        SeveralSplits: it holds lading's own list of splits.
        UnfinishedDataset: it holds a dataset whose commit has not ended.
    """
    found, lists = _Found(), tuple(f"/{name}" for known in all_formats() for name in known.index.split_lists)
    tables, inside = _table_endings(named), [*store.walk(root)] if inside is None else inside
    refuse_listed(store, (info.path for info in inside))
    for info in inside:
        parts = info.path[len(root) :].strip("/").split("/")
        if FOLDER in parts and parts[-1] == MANIFEST_NAME:
            found.datasets["/".join([root.rstrip("/"), *parts[: parts.index(FOLDER)]])] = None
        if parts == [FOLDER, SPLITS_NAME]:
            raise _several_splits(store, info.path, root, limits)
        if parts == [CARD] and info.size_bytes >= 0:
            found.card = info
        if info.path.endswith(lists):
            found.split_lists.add(info.path)
        if info.size_bytes >= 0:
            found.tables.look_at(info.path, parts)
        if is_hidden(parts):
            found.hidden += 1
            found.aside_hidden += FOLDER not in parts and info.path.lower().endswith(tables)
        else:
            found.files.append(info)
            if _is_aside(parts, tables):
                found.aside.add(info.path)
    if found.aside:  # those of a manifest or a list stay
        own = (*found.datasets, *map(os.path.dirname, found.split_lists))
        found.aside -= {path for path in found.aside if _holds_any(own, path)}
    return found


def _holds_any(folders: Iterable[str], path: str) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _counted_aside(found: _Found) -> dict[str, int]:
    number = len(found.aside) + found.aside_hidden
    return {_ASIDE: number} if number else {}


def _of_format(place: str, infos: list[FileInfo], named: str) -> tuple[list[FileInfo], dict[str, int]]:
    """The files of the named format, or of the only one that is there, and counts of other shards.

    Of files that a pattern gives, those without any format stay, unless one is named.

    Raises:
        UnknownFormat: the files are of several formats, and none is named.
    """
    claims: dict[str, list[FileInfo]] = {}
    mine = _of_named(infos, named)
    about = companions_of([info.path for info in infos]) - {info.path for info in mine}
    infos = [info for info in infos if info.path not in about]
    left_out = _counted({COMPANIONS: len(about)})
    for info in infos:
        claimed = claimed_by(info.path)
        claims.setdefault("" if claimed is None else claimed.name, []).append(info)
    unclaimed = claims.pop("", [])
    pattern = bool(_GLOB.search(place))
    if not named:
        if len(claims) > 1:
            tables = companions_of([info.path for info in infos], sure=False)
            described = [name for name, files in claims.items() if not tables.issuperset(info.path for info in files)]
            counts = {name: len(files) for name, files in claims.items()}
            raise several_formats(place, counts, described[0] if len(described) == 1 else "")
        return (infos if pattern else [info for files in claims.values() for info in files]), left_out
    if not mine and pattern:  # files of that format, by other names
        return infos, {}
    others = len({i.path for i in infos} - {i.path for i in mine} - (set() if pattern else {i.path for i in unclaimed}))
    return mine, {**left_out, **_counted({"files of other formats, left out": others})}


def _of_named(infos: Iterable[FileInfo], named: str) -> list[FileInfo]:
    """The files with an ending of the named format; none if no format is named."""
    facts = get_format(named).info if named else None
    return [] if facts is None else _ending_in(infos, facts.extensions) or _ending_in(infos, facts.when_named)


def _ending_in(infos: Iterable[FileInfo], endings: tuple[str, ...]) -> list[FileInfo]:
    return [info for info in infos if without_query(info.path).lower().endswith(endings)]


def _without_leftovers(fmt: AnyFormat, infos: list[FileInfo]) -> tuple[list[FileInfo], dict[str, int]]:
    """The files without those that a peer leaves next to shards of the same folder, such as caches of `map()`."""
    leftover = re.compile(fmt.info.leftovers)
    names = [(os.path.dirname(info.path), bool(leftover.fullmatch(os.path.basename(info.path)))) for info in infos]
    with_shards = {folder for folder, left in names if not left}
    kept = [info for info, (folder, left) in zip(infos, names, strict=True) if not left or folder not in with_shards]
    left_out = len(infos) - len(kept)
    return kept, {"caches of other programs, left out": left_out} if left_out else {}


def _listed_by_splits(
    store: Store, root: str, fmt: AnyFormat, found: _Found, infos: Sequence[FileInfo], limits: Limits
) -> tuple[str, SplitList] | None:
    """The list of splits in a folder, or in the one folder that holds all of its shards, and what it says."""
    folders = {os.path.dirname(info.path) for info in infos}
    places = [root.rstrip("/"), *(folders if len(folders) == 1 else ())]
    for path in (_path_in(store, place, name) for place in dict.fromkeys(places) for name in fmt.index.split_lists):
        if path in found.split_lists:
            splits = fmt.index.splits(store, path, infos, limits)
            return None if splits is None else (path, splits)
    return None


def _refuse_several_caches(root: str, fmt: AnyFormat, found: _Found, infos: Sequence[FileInfo]) -> None:
    """Raise UsageError for several datasets of a peer below a folder: rows of one name of a split would be mixed.

    They are folders with a list of splits of their own, and revisions of repositories in the cache of the hub. Saved
    datasets, which have an index, are known by that.
    """
    names, folders = {info.path for info in found.files}, {os.path.dirname(info.path) for info in infos}
    listed = {path[: -len(name) - 1] for path in found.split_lists for name in fmt.index.split_lists
              if path.endswith(f"/{name}")}  # fmt: skip
    listed = {place for place in listed if names.isdisjoint(f"{place}/{name}" for name in fmt.index.names)}
    for places in (
        revisions_of(folders),
        {place for place in listed if any(_holds_any([place], f"{f}/") for f in folders)},
    ):
        if len(places) > 1:
            several = sorted(places)
            more = f" and {len(several) - _FEW} more" if len(several) > _FEW else ""
            raise UsageError("the folder holds several datasets", file=root, expected="one of them",
                             found=", ".join(several[:_FEW]) + more,
                             advice=f"Open one by its folder: {several[0]}")  # fmt: skip


def _media_of(fmt: AnyFormat, files: Sequence[FileInfo]) -> tuple[str, ...]:
    """The formats that have files with media among these, and endings of shards like this format."""
    candidates = [known for known in all_formats() if known.info.beside]
    alike = [known for known in candidates if {*known.info.extensions} & {*fmt.info.extensions} and known is not fmt]
    names = [os.path.basename(info.path) for info in files] if alike else []
    return tuple(known.name for known in alike if any(re.fullmatch(known.info.beside, name) for name in names))


_Shards = TypeVar("_Shards")


def _split_of(root: str, splits: Mapping[str, _Shards], asked: str) -> _Shards:
    """The shards of the split that is asked for; of the only one, if none is.

    Raises:
        SeveralSplits: there are several, and none is asked for.
        SourceNotFound: there is no such split.
    """
    if not asked and len(splits) > 1:
        raise several_splits(root, list(splits), by_name=True)
    if not asked:
        return next(iter(splits.values()))
    if asked not in splits:
        advice = None if splits else "The names of its files tell no splits: read all of them, without --split."
        raise SourceNotFound("no such split", file=f"{root.rstrip('/')}/{asked}", expected=", ".join(splits) or None,
                             advice=advice)  # fmt: skip
    return splits[asked]


def _refuse_split(name: str, asked: Asked) -> None:
    for word, given in (("split", asked.split), ("config", asked.config)):
        if given:
            raise UsageError(f"a {word} is part of a folder", file=name, found=f"{word}={given!r}",
                             advice="Name the folder.")  # fmt: skip


def write_splits(store: Store, folder: str, splits: Sequence[str]) -> None:
    """Write, into a folder with datasets in folders of these names, that it is several; see `SeveralSplits`."""
    write_file(store, f"{folder}/{FOLDER}/{SPLITS_NAME}", [orjson.dumps({"splits": list(splits)})])


def lists_of_splits() -> list[str]:
    """Names of the files, below a folder of several datasets, that may keep these apart."""
    return [
        f"{FOLDER}/{SPLITS_NAME}",
        *(known.index.splits_name for known in all_formats() if known.index.splits_name),
    ]


def _several_splits(store: Store, path: str, root: str, limits: Limits) -> SeveralSplits:
    """The error that a folder holds the datasets which its own list tells. Raises DataError if that is none."""
    told = load_index(store, path, limits)
    splits = told.get("splits") if isinstance(told, dict) else None
    if not isinstance(splits, list) or not splits or not all(map(_is_plain, splits)) or len({*splits}) < len(splits):
        raise DataError("not a list of splits", file=path, column="splits",
                        expected="names of folders beside it, each once", found=repr(splits)[:80])  # fmt: skip
    return several_splits(root, splits, path)


def _is_plain(name: object) -> bool:
    """Whether it is the name of a folder below another one."""
    if not isinstance(name, str) or "\\" in name or "\0" in name or "://" in name:
        return False
    return not {"", ".", ".."}.intersection(name.split("/"))


def several_formats(folder: str, files: Mapping[str, int], described: str = "") -> UnknownFormat:
    """The error that a folder holds so many files of each of several formats: some would be left out in silence.

    Args:
        folder: its path.
        files: the number of files, by format.
        described: the format of the samples, if the other files have the names of tables about them.
    """
    found = ", ".join(f"{count} {name}" for name, count in sorted(files.items()))
    names = " or ".join(f"--from {name}" for name in sorted(files, key=lambda name: (-files[name], name)))
    advice = f"Name one of them: {names}."
    if described:
        advice = f"The tables have the names of the shards, as img2dataset writes them: --from {described}."
    return UnknownFormat("the folder holds shards of several formats", file=folder, found=found,
                         advice=f"{advice} The files of the others are left out then.")  # fmt: skip


def _listed_by_index(
    store: Store, root: str, limits: Limits, asked: Asked, there: Container[str] | None = None
) -> Listing | None:
    """What the index in a folder lists, if one that the format knows is there; of any format if none is named.

    Args:
        store: its store.
        root: the folder.
        limits: limits on what the index may ask for.
        asked: what the user says of the shards.
        there: the files of the folder, if they were listed.
    """
    formats = [get_format(asked.format)] if asked.format else list(all_formats())
    for name in sorted({name for known in formats for name in known.index.names}):
        path = _path_in(store, root, name)
        if there is not None and path not in there:
            continue
        try:
            head = read_head(store, path)
        except NotFound:
            continue
        refuse_pointer(head, path)
        with no_cycles():
            for known in formats:
                listed = known.index.shards(store, path, head, limits) if name in known.index.names else None
                if listed is not None:
                    return Listing(_table(listed, path), index_file=path, format=known.name)
    return None


def _refuse_without_index(store: Store, root: str, name: str, infos: Sequence[FileInfo]) -> None:
    """Raise SourceNotFound for a folder of shards that are no dataset without an index in it.

    Raises:
        DataError: a file of the index's name is there, and is none.
    """
    for needed, pattern in get_format(name).index.names.items():
        mine = [info for info in infos if re.fullmatch(pattern, os.path.basename(info.path))]
        if mine:
            path = _path_in(store, root, needed)
            with suppress(NotFound):
                store.head(path)
                raise DataError(f"{needed} has no list of shards", file=path,
                                expected=f"a list of {count(len(mine), 'shard')} of the format {name}",
                                advice="Write it again, or name the shards themselves to do without one.")  # fmt: skip
            folders = sorted({os.path.dirname(info.path) for info in mine} - {root})
            raise SourceNotFound(
                f"the folder holds {count(len(mine), 'shard')} of the format {name}, and no readable index",
                file=path, found=", ".join(folders[:5]) or "shards only",
                advice="Open a folder with an index, or name the shards themselves to do without one.",
            )  # fmt: skip


_FEW = 5
"""Kinds of files that an error names, at most."""

_OF_PROGRAMS = {"_temporary", "_delta_log", "__MACOSX"}
"""Folders of programs' own files: unfinished output of Spark, logs of Delta tables, attributes of macOS."""


def is_hidden(parts: Sequence[str]) -> bool:
    """Whether a path below a folder, cut at its slashes, is not meant where that folder is named."""
    own = any(part.startswith((".", FOLDER)) or part in _OF_PROGRAMS for part in parts)
    return own or any(part.endswith(UNFINISHED) for part in parts[:-1])


_ASIDE = "files with names that begin with _ or ., left out"


def _table_endings(named: str) -> tuple[str, ...]:
    """Endings of the formats of tables that Spark and pyarrow write into folders; all endings of the named format."""
    tables = [known.info for known in all_formats() if known.info.hive_partitions]
    more = get_format(named).info.when_named if named and get_format(named).info.hive_partitions else ()
    return (*chain.from_iterable(info.extensions for info in tables), *more)


def _is_aside(parts: Sequence[str], endings: tuple[str, ...]) -> bool:
    """Whether a file is a table that is not meant where its folder is named: Spark and pyarrow leave it out.

    A name on its path begins with `_`, and is no partition. Names that begin with a dot are hidden in every format.

    Args:
        parts: its path below that folder, cut at slashes.
        endings: those of tables (`_table_endings`).
    """
    return any(map(_is_shy, parts)) and without_query(parts[-1]).lower().endswith(endings)


def _is_shy(name: str) -> bool:
    return name.startswith("_") and "=" not in name


def claimed_by(path: str) -> AnyFormat | None:
    """The format of which a file with this name is a shard, by its ending."""
    name = without_query(path).lower()
    return next((known for known in all_formats() if name.endswith(known.info.extensions)), None)


def path_column(paths: list[str]) -> pa.Array:
    """Paths as a column of a listing. Raises StoreError for one that is no text."""
    try:
        return pa.array(paths, pa.string())
    except UnicodeEncodeError as error:
        raise StoreError("the name of a file is invalid UTF-8", file=ascii(error.object), advice="Rename it.") from None


def _counts(counts: list[int | None], index: str | None) -> pa.Array:
    """Raises DataError for one that no shard has."""
    most = max((count for count in counts if count is not None), default=0)
    if most > _MOST:
        raise DataError(
            "not a count of a shard's samples or bytes", file=index, expected=f"at most {_MOST}", found=most
        )
    return pa.array(counts, pa.int64())


def _table(shards: Sequence[ListedShard] | Iterator[ListedShard], index: str | None = None) -> pa.Table:
    rows = list(shards)
    return pa.table(
        [
            path_column([shown(s.path) for s in rows]),
            _counts([s.num_samples for s in rows], index),
            _counts([s.size_bytes for s in rows], index),
            pa.array([orjson.dumps(dict(s.hashes)).decode() if s.hashes else None for s in rows], pa.string()),
            pa.array([s.entry or None for s in rows], pa.string()),
            pa.array([s.partition or None for s in rows], pa.string()),
            pa.array([s.version or None for s in rows], pa.string()),
            pa.array([s.alone or None for s in rows], pa.bool_()),
        ],
        schema=LISTING_SCHEMA,
    )
