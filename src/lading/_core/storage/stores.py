"""The store of each URL.

    no scheme, file://      the file system (one store for all)
    memory://               files in memory (one store for the process)
    s3:// gs:// az:// …     obstore where it is installed, else fsspec with the package for the scheme
    https://                the same; lists of files by fsspec
    hf:// …                 the client of Hugging Face
    a.zip/b                 the members of a zip archive, as files below it (`_core.storage.zip_store`)
    pipe:, a::b             refused: data must not run programs, nor open one file through another

Callers may assign other stores to URL prefixes, and options to the stores made here: pass `Stores`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lading._core.secret_urls import KnownSecrets, cleaned, shown
from lading._core.storage.base import Store, native_path, without_query
from lading._core.storage.cached import CachedStore
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.shard_cache import ShardCache, make_cache
from lading._core.storage.store_options import Options, by_prefix, of_url
from lading._core.storage.wrappers import WrappedStore
from lading._core.storage.zip_store import ZipStore, archives_in, zip_store
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.storage.fsspec import FsspecStore
    from lading._core.storage.objects import ObjectStore
    from lading._core.storage.web import WebStore

__all__ = ["Stores", "is_local", "named_folder", "resolve", "resolve_folder", "without_query"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
_LOCAL = LocalStore()
_MEMORY = MemoryStore()
_NONE = Options()
_OF_CACHE = ("cache_dir", "cache_limit")


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores for URLs with a given prefix; the longest prefix wins, and `""` matches every URL.

    Attributes:
        by_prefix: store by prefix of the URL, such as `{"s3://bucket/": RetryingStore(…)}`.
        options: options of the stores of other URLs, by prefix of the URL (`_core.storage.store_options`). They may
            hold secrets, so they are not shown.
        known: tells another process the secrets of URLs.
    """

    by_prefix: Mapping[str, Store] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    known: KnownSecrets | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, stores: Stores | None, storage_options: Mapping[str, Any] | None) -> Stores | None:
        """Return stores with further options, as users give them. Raises UsageError."""
        if not storage_options:
            return stores
        more = by_prefix(storage_options)
        stores = stores or cls()
        merged = {p: {**stores.options.get(p, {}), **more.get(p, {})} for p in {**stores.options, **more}}
        for options in merged.values():
            if "cache_dir" in options:
                make_cache(options["cache_dir"])
        return replace(stores, options=merged)

    @classmethod
    def joined(cls, several: Iterable[Stores | None]) -> Stores:
        """Return the stores of several datasets; for a prefix of two of them, those of the later one."""
        named = [each for each in several if each is not None]
        return cls(
            {prefix: store for each in named for prefix, store in each.by_prefix.items()},
            {prefix: options for each in named for prefix, options in each.options.items()},
        )

    def and_for(self, by_prefix: Mapping[str, Store]) -> Stores:
        """Return these stores and others; for a prefix of both, the others."""
        return replace(self, by_prefix={**self.by_prefix, **by_prefix})

    @property
    def for_workers(self) -> Stores:
        """What another process can have of them: the options, and secrets of URLs."""
        return Stores(options=self.options, known=KnownSecrets())

    def find(self, url: str) -> Store | None:
        """Return the store of this URL; None if no prefix matches."""
        prefixes = [prefix for prefix in self.by_prefix if url.startswith(prefix)]
        return self.by_prefix[max(prefixes, key=len)] if prefixes else None


def resolve(url: str, stores: Stores | None = None) -> tuple[Store, str]:
    """Return the store of a path or URL, and the path by which the store knows the file: a URL without its secrets.

    Equal places give the same store. Nothing is opened, imported or connected before the first use of the store.

    Raises:
        UsageError: the path is a command (`pipe:`), or one URL inside another (`::`).
    """
    url = shown(url)
    for archive in archives_in(url):
        inner, path = _of_files(archive, stores)
        if not is_local(inner) or os.path.isfile(native_path(path)):
            return zip_store(inner, path), url  # type: ignore[arg-type] # stores are equal to themselves alone
    return _of_files(url, stores)


def resolve_folder(name: str, stores: Stores | None = None) -> tuple[Store, str]:
    """Return the store and the path of what a user opens: as `resolve`, but a zip archive is the folder of its members.

    Raises:
        UsageError: as `resolve`; or the archive is a member of another one.
    """
    store, path = resolve(name, stores)
    if not path.rstrip("/").lower().endswith(".zip"):
        return store, path
    if isinstance(store, ZipStore) and path.rstrip("/") != store.archive:
        raise UsageError("a zip inside a zip is not opened", file=path,
                         advice=f"Unpack the outer one: unzip {store.archive} -d FOLDER")  # fmt: skip
    inside, _ = resolve(f"{path.rstrip('/')}/", stores)
    return (inside, path) if isinstance(inside, ZipStore) else (store, path)


def _of_files(url: str, stores: Stores | None) -> tuple[Store, str]:
    """Return the store of a path or URL, whose archives are files."""
    own = stores.find(url) if stores else None
    if own is not None:
        return own if is_local(own) else _with_cache(own, _options_of(url, stores)), url
    if url.startswith("pipe:"):
        raise UsageError("a file cannot be a command", found=repr(cleaned(url)), advice="Name files or URLs instead.")
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1].lower() == "file":
        return _LOCAL, url
    if "::" in url:
        raise UsageError(
            "a URL inside another URL is not opened", found=repr(cleaned(url)), advice="Name files or URLs instead."
        )
    if scheme[1].lower() == "memory":
        return _MEMORY, url
    from lading._core.storage.objects import serves

    host = url[scheme.end() :].partition("/")[0]
    place = f"{scheme[0]}{host}"
    options = _options_of(url, stores)
    kind = scheme[1].lower()
    by_obstore = serves(kind) and options.get("backend") != "fsspec"
    make = _by_obstore if by_obstore else _by_fsspec
    own_options = Options({name: value for name, value in options.items() if name not in _OF_CACHE})
    return _with_cache(make(place, own_options, _environment()), options), url


def named_folder(name: str) -> str:
    """Return the path or URL of a folder to write, without a final slash.

    Raises:
        UsageError: the name is empty (an unset variable, for example), or only slashes or a scheme: the path would be
            another place, such as the current directory.
    """
    path = name.rstrip("/")
    if not path or ("://" in name and "://" not in path):
        raise UsageError("the destination names no folder", found=repr(name), advice="Name one.")
    return path


def is_local(store: Store) -> bool:
    """Return whether a store's files are files of this machine, also through a wrapper."""
    while isinstance(store, WrappedStore):
        store = store.inner
    return isinstance(store, LocalStore)


def _options_of(url: str, stores: Stores | None) -> Options:
    return of_url(stores.options, url) if stores and stores.options else _NONE


def _with_cache(store: Store, options: Options) -> Store:
    """A store, behind local copies of its shards if the options name a folder for them."""
    folder, limit = map(options.get, _OF_CACHE)
    if folder is None:
        if limit is not None:
            raise UsageError("cache_limit is given without a cache", advice="Give cache_dir too.")
        return store
    return _cached(store, ShardCache(folder, limit))  # type: ignore[arg-type] # stores are equal to themselves alone


def _environment() -> frozenset[tuple[str, str]]:
    """The variables that stores look at when they are made: where they changed, a store is made anew."""
    return frozenset((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES))


@lru_cache(maxsize=256)
def _cached(store: Store, cache: ShardCache) -> CachedStore:
    return CachedStore(store, cache)


@lru_cache(maxsize=256)
def _by_obstore(place: str, options: Options, _: frozenset[tuple[str, str]]) -> ObjectStore | WebStore:
    from lading._core.storage.objects import ObjectStore
    from lading._core.storage.web import WebStore

    return WebStore(place, options=options) if place.startswith("http") else ObjectStore(place, options=options)


@lru_cache(maxsize=256)
def _by_fsspec(place: str, options: Options, _: frozenset[tuple[str, str]]) -> FsspecStore:
    from lading._core.storage.fsspec import FsspecStore
    from lading._core.storage.hub import HubStore

    return (HubStore if place.startswith("hf://") else FsspecStore)(place, options=options)
