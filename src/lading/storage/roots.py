"""Which files untrusted data may name: those below certain folders, the roots.

A reference that stands in somebody's table must not read what its owner could not: not through `..`, a link, an
absolute path, a URL, or a spelling that a server takes for another place.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator

from lading.errors import BadReference
from lading.storage.base import native_path
from lading.storage.stores import Stores, is_local, resolve

__all__ = ["Roots", "beside", "folder_of", "lies_in", "real_place"]

_ON_DISK = ("", "file", "local")
_OTHERWISE_READ = re.compile(r"[\x00-\x1f\x7f\\]|%2e|%2f|%5c|(?:^|[/?#;])\.\.?(?:[/?#;]|$)", re.IGNORECASE)
"""What makes servers and their libraries take a URL for another one than it seems to be."""


class Roots:
    """Folders below which references may point.

    Args:
        folders: paths and URLs.
        stores: which store serves which URL.
        inside: the folder in each of them that is meant; what it is a link to is none of it.
        others: further folders, meant as they are.
    """

    def __init__(
        self, folders: Iterable[str], stores: Stores | None = None, *, inside: str = "", others: Iterable[str] = ()
    ) -> None:
        self._stores = stores
        places = {real_place(folder, stores) for folder in folders}
        self._places = {posixpath.join(place, inside) for place in places} if inside else places
        self._places |= {real_place(folder, stores) for folder in others}

    def check(self, url: str) -> None:
        """Raise BadReference for what lies below none of the roots, and for what is there and no regular file.

        Raises:
            UsageError: a command, or one URL inside another.
        """
        store, path = resolve(url, self._stores)
        local = is_local(store)
        if not local and _OTHERWISE_READ.search(url):
            raise BadReference("the reference holds what may lead elsewhere", file=url)
        if not any(above in self._places for above in _upwards(real_place(url, self._stores))):
            raise BadReference(
                "the reference leads outside the folders that it may name", file=url,
                advice="If that is meant, name the folder with --root (roots= in Python).",
            )  # fmt: skip
        if local and os.path.lexists(native_path(path)) and not os.path.isfile(native_path(path)):
            raise BadReference("the reference names no regular file", file=url)


def real_place(url: str, stores: Stores | None = None) -> str:
    """A path or URL without links, dots and a slash at its end; one on this machine as an absolute path.

    Raises:
        UsageError: a command, or one URL inside another.
    """
    store, path = resolve(url or ".", stores)
    if is_local(store):
        return os.path.realpath(native_path(path))
    scheme, mark, rest = path.rpartition("://")
    if scheme in _ON_DISK:  # a store of another kind, over the same files
        return os.path.realpath(rest)
    host, _, inside = rest.partition("/")  # no dots lead from one host to another
    return f"{scheme}{mark}{host}{_plain(inside)}"


def _plain(inside: str) -> str:
    """A path on some host, with a slash before it and without dots, none of which lead above the host."""
    return posixpath.normpath(f"/{inside.lstrip('/')}").rstrip("/")


def lies_in(place: str, folder: str) -> bool:
    """Whether a place is a folder, or lies in it: both as `real_place` gives them."""
    return f"{place}/".startswith(f"{folder.rstrip('/')}/")


def folder_of(path: str) -> str:
    """The folder that a file lies in; empty for one of the current directory."""
    scheme, mark, rest = path.rpartition("://")
    return f"{scheme}{mark}{posixpath.dirname(rest)}"


def beside(folder: str, path: str) -> str:
    """The path of a file that is named as seen from a folder; of a URL without dots, as `Roots.check` wants it."""
    name = posixpath.join(folder, path)
    scheme, mark, rest = name.rpartition("://")
    if scheme in _ON_DISK or not {".", ".."}.intersection(path.split("/")):
        return name
    host, _, inside = rest.partition("/")
    return f"{scheme}{mark}{host}{_plain(inside)}"


def _upwards(place: str) -> Iterator[str]:
    """A place and all that it lies in."""
    yield place
    while (above := folder_of(place)) != place:
        yield above
        place = above
