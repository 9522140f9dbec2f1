"""Roots: the folders to which references of untrusted data are limited.

A reference in somebody's table must not read files that its owner could not read: not through `..`, a link, an absolute
path, a URL, or a spelling that a server takes for another place.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lading._core.secret_urls import shown, whole
from lading._core.storage.base import native_path
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import BadReference

__all__ = ["ELSEWHERE", "Roots", "StoredRoots", "absolute_path", "folder_of", "is_inside", "real_place", "sibling_path"]

ELSEWHERE = "If the payload is in another folder, name the folder with --root."
"""Advice where the file of a reference is missing, or is in a folder that references may not name."""

_ON_DISK = ("", "file", "local")
_OTHERWISE_READ = re.compile(r"[\x00-\x1f\x7f\\]|%2e|%2f|%5c|(?:^|[/?#;])\.\.?(?:[/?#;]|$)", re.IGNORECASE)
"""Characters that make servers and their libraries read a URL as another place than it appears to be."""


@dataclass(frozen=True, slots=True)
class StoredRoots:
    """Roots that a manifest keeps: the folders that the writer of a dataset was allowed to refer to.

    A manifest may come from anybody. It opens folders inside the dataset and beside it, but no others, and none through
    a link.

    Attributes:
        trusted: folders inside the dataset's own folder, or inside a folder next to it.
        refused: all other folders.
        moved: former and present place of a folder that moved together with the dataset.
        places: all folders, where they were when the dataset was written.
        given: former place of the folder, and the place that the caller names.
    """

    trusted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    places: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, kept: Iterable[Mapping[str, str]], folder: str, stores: Stores | None = None) -> StoredRoots:
        """Return the roots that `kept_roots` gave, for a dataset that now is at `folder`."""
        own = real_place(folder, stores)
        trusted, refused, moved, places = [], [], [], []
        for root in kept:
            places.append(root["place"])
            beside = root.get("beside")
            named = root["place"] if beside is None else posixpath.normpath(sibling_path(own, beside))
            place = real_place(named, stores)
            if beside is not None and place == named and _is_near(place, own):
                trusted.append(place)
                moved += [] if place == root["place"] else [(root["place"], place)]
            else:
                refused.append(place)
        return cls(tuple(trusted), tuple(refused), tuple(moved), tuple(places))

    def named(self, roots: Sequence[str]) -> StoredRoots:
        """Return the roots where the caller names one folder: that of the payload, if that was one folder and moved.

        Of several folders, files of the same name could be mistaken for each other.

        Args:
            roots: folders that the caller names, as `real_place` returns them.
        """
        if len(self.places) != 1 or len(roots) != 1 or is_inside(self.places[0], roots[0]):
            return self
        return replace(self, given=((self.places[0], roots[0]),))

    def candidates(self, path: str, others: Iterable[str]) -> list[str]:
        """Return where a file may be since its folder moved, together with other places, the likeliest first."""
        moved, given = _moved(path, self.moved), _moved(path, self.given)
        return [*given, *moved, *others] if self.refused else [*moved, *others, *given]


def _moved(path: str, folders: Iterable[tuple[str, str]]) -> list[str]:
    pairs = ((former.rstrip("/"), present.rstrip("/")) for former, present in folders)
    return [present + path[len(former) :] for former, present in pairs if path.startswith(f"{former}/")]


def kept_roots(roots: Iterable[str], folder: str, stores: Stores | None = None) -> list[dict[str, str]]:
    """Return folders as a manifest keeps them: their place, and where they are seen from the dataset, if near it.

    Args:
        roots: paths and URLs; a folder inside another one of them is left out.
        folder: of the dataset.
        stores: store of each URL.
    """
    own, places = real_place(folder, stores), sorted({real_place(root, stores) for root in roots})
    outer = [place for place in places if not any(other != place and is_inside(place, other) for other in places)]
    return [
        {"place": place, **({"beside": posixpath.relpath(place, own)} if _is_near(place, own) else {})}
        for place in outer
    ]


def _is_near(place: str, own: str) -> bool:
    """Whether a folder is inside a dataset's own folder, or in another folder next to that.

    Hidden folders are not, and so is nothing next to a dataset in the user's home folder, or at the top of a store.
    """
    around = folder_of(own)
    if is_inside(place, own) and around != own:
        return True
    private = around == os.path.realpath(os.path.expanduser("~")) or folder_of(around) == around
    beside = is_inside(place, around) and place != around
    return beside and not private and "/." not in place[len(around) :]


class Roots:
    """Folders below which references may point.

    Args:
        folders: paths and URLs.
        stores: store of each URL.
        inside: subfolder of each folder to which references are limited; the target of a link of that name is not
            included.
        others: further folders, used as they are.
    """

    def __init__(
        self, folders: Iterable[str], stores: Stores | None = None, *, inside: str = "", others: Iterable[str] = ()
    ) -> None:
        self._stores = stores
        places = {real_place(folder, stores) for folder in folders}
        self._places = {posixpath.join(place, inside) for place in places} if inside else places
        self._places |= {real_place(folder, stores) for folder in others}

    def hold(self, url: str) -> bool:
        """Return whether a path is below one of the roots."""
        return any(above in self._places for above in _upwards(real_place(url, self._stores)))

    def check(self, url: str) -> None:
        """Raise BadReference for a path below none of the roots, and for an existing path that is not a regular file.

        Raises:
            UsageError: the path is a command, or one URL inside another.
        """
        store, path = resolve(url, self._stores)
        local = is_local(store)
        if not local and _OTHERWISE_READ.search(whole(shown(url))):
            raise BadReference("the reference holds what may lead elsewhere", file=path)
        if not self.hold(url):
            raise BadReference(
                "the reference leads outside the folders that it may name", file=path,
                advice="To allow it, name the folder with --root.",
            )  # fmt: skip
        if local and os.path.lexists(native_path(path)) and not os.path.isfile(native_path(path)):
            raise BadReference("the reference names no regular file", file=path)


def real_place(url: str, stores: Stores | None = None) -> str:
    """Return a path or URL without links, dots and a final slash; a local one as an absolute path.

    Raises:
        UsageError: the path is a command, or one URL inside another.
    """
    store, path = resolve(url or ".", stores)
    if is_local(store):
        return os.path.realpath(native_path(path))
    scheme, mark, rest = path.rpartition("://")
    if scheme in _ON_DISK:  # a store of another type, over the same files
        return os.path.realpath(rest)
    host, _, inside = rest.partition("/")  # dots do not lead from one host to another
    return f"{scheme}{mark}{host}{_plain(inside)}"


def _plain(inside: str) -> str:
    """Return a path of some host, with a leading slash and without dots; dots may not lead above the host."""
    return posixpath.normpath(f"/{inside.lstrip('/')}").rstrip("/")


def is_inside(place: str, folder: str) -> bool:
    """Return whether a place is a folder or is inside it: both as `real_place` returns them."""
    return f"{place}/".startswith(f"{folder.rstrip('/')}/")


def absolute_path(name: str) -> str:
    """Return a path from the current folder as one from `/`; URLs, absolute and empty paths stay."""
    here = os.getcwd()
    if not name or name.startswith("/") or "://" in name or any(sign in here for sign in "*?[{"):
        return name
    return os.path.join(here, name)


def folder_of(path: str) -> str:
    """Return the folder of a file; empty for a file of the current directory."""
    scheme, mark, rest = path.rpartition("://")
    return f"{scheme}{mark}{posixpath.dirname(rest)}"


def sibling_path(folder: str, path: str) -> str:
    """Return the path of a file whose name is relative to a folder; a URL without dots, as `Roots.check` needs it."""
    name = posixpath.join(folder, path)
    scheme, mark, rest = name.rpartition("://")
    if scheme in _ON_DISK or not {".", ".."}.intersection(path.split("/")):
        return name
    host, _, inside = rest.partition("/")
    return f"{scheme}{mark}{host}{_plain(inside)}"


def _upwards(place: str) -> Iterator[str]:
    """Yield a place and all its parents."""
    yield place
    while (above := folder_of(place)) != place:
        yield above
        place = above
