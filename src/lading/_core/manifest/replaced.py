"""What `--overwrite` may replace: a dataset, or what an export wrote, and never a folder of something else.

The folder has a mark of lading's, or it holds nothing but shards of one format, the peer's files next to them, and
files of lading's. Names alone tell. No link is followed out of the folder.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import chain

from lading._core.formats.dataset_index import DatasetIndex
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import all_formats
from lading._core.manifest.hugging_face import DATA_FILES_NAME
from lading._core.manifest.values import FOLDER, MANIFEST_NAME
from lading._core.storage.base import Store, has_file, native_path, store_errors, unfinished
from lading._core.storage.stores import is_local
from lading._core.units import count
from lading.errors import DestinationExists

__all__ = ["EXPORT_MARK", "refuse_other_files"]

EXPORT_MARK = ".lading-export.json"
"""File by which a folder of loose files that `export` wrote is known. It is no folder: readers of images in folders
take each folder for a class."""

_MARKS = (f"{FOLDER}/{MANIFEST_NAME}", EXPORT_MARK)
_OWN = re.compile(rf"(?:.*/)?(?:{FOLDER}/.*|{re.escape(DATA_FILES_NAME)})", re.DOTALL)
_OWN_MARK = re.compile(rf"{FOLDER}/(?:\d+/{re.escape(MANIFEST_NAME)}|splits\.json)")
_MANIFEST_BELOW = re.compile(rf"(.+)/{FOLDER}/(?:\d+/)?{re.escape(MANIFEST_NAME)}", re.DOTALL)
_MOST_SHOWN = 5


@dataclass(slots=True)
class _Names:
    """Some names: the first ones, and how many there are."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, name: str) -> None:
        """Count a name."""
        self.count += 1
        if len(self.first) < _MOST_SHOWN:
            self.first.append(name)

    def text(self, what: str) -> str:
        """Return the count and the first names."""
        more = ", …" if self.count > len(self.first) else ""
        return f"{count(self.count, what)}: {', '.join(self.first)}{more}"


class _Known:
    """The files of one format in a folder, by their names.

    Args:
        fmt: the format.
        lists: names of lists of shards, of all formats.

    Attributes:
        splits_name: name of the format's list of splits.
        shards: number of shards, and of files that belong to one.
        others: files that are not of the format.
    """

    def __init__(self, fmt: AnyFormat, lists: Container[str]) -> None:
        info = fmt.info
        beside = "|".join(filter(None, (info.beside, info.leftovers))) or "(?!)"
        self._beside = re.compile(f"(?:.*/)?(?:{beside})", re.DOTALL)
        self._endings, self._own_lists, self._lists = info.extensions, _lists_of(fmt.index), lists
        self.splits_name, self.shards, self.others = fmt.index.splits_name, 0, _Names()

    def look_at(self, name: str) -> None:
        """Count a file."""
        base = posixpath.basename(name)
        if name.lower().endswith(self._endings) or self._beside.fullmatch(name):
            self.shards += base not in self._lists
        elif base not in self._own_lists:
            self.others.add(name)


def _lists_of(index: DatasetIndex) -> set[str]:
    lists = (*index.names, index.splits_name, *index.split_lists, *index.other_names)
    return {posixpath.basename(name) for name in lists if name}


def refuse_other_files(store: Store, folder: str) -> None:
    """Refuse to replace a folder that is no dataset.

    Raises:
        DestinationExists: the folder holds other files, or several datasets. The error lists the first ones.
    """
    if any(has_file(store, f"{folder}/{mark}") for mark in _MARKS):
        return
    formats = [fmt for fmt in all_formats() if fmt.info.extensions]
    lists = {name for fmt in formats for name in _lists_of(fmt.index)}
    known = [_Known(fmt, lists) for fmt in formats]
    below, foreign = _Names(), _Names()
    is_whole = False
    for name in _names(store, folder):
        is_whole = is_whole or bool(_OWN_MARK.fullmatch(name)) or any(name == one.splits_name for one in known)
        if _OWN.fullmatch(name):
            manifest = _MANIFEST_BELOW.fullmatch(name)
            if manifest:
                below.add(manifest[1])
            continue
        foreign.add(name)
        for one in known:
            one.look_at(name)
    nearest = min(known, key=lambda one: (not one.shards, one.others.count))
    others = nearest.others if nearest.shards else foreign
    if others.count:
        raise _refused(
            folder, "only a dataset is replaced, and the folder holds other files", others.text("other file")
        )
    if below.count and not is_whole:
        raise _refused(folder, "only one dataset is replaced, and the folder holds several", below.text("dataset"))


def _refused(folder: str, what: str, found: str) -> DestinationExists:
    return DestinationExists(what, file=folder, found=found, advice="Choose another destination, or remove the folder "
                             "yourself if nothing in it is needed.")  # fmt: skip


def _names(store: Store, folder: str) -> Iterator[str]:
    """Yield the paths, below a folder, of its files and links."""
    if not is_local(store):
        yield from (info.path[len(folder) :].lstrip("/") for info in store.walk(folder))
        return
    root = native_path(folder)

    def fail(error: OSError) -> None:
        if os.path.lexists(root):
            raise error

    with store_errors(folder):
        for place, folders, files in os.walk(root, onerror=fail):
            folders[:] = sorted(name for name in folders if not unfinished(name))
            links = (name for name in folders if os.path.islink(os.path.join(place, name)))
            for name in sorted(chain(files, links)):
                if not unfinished(name):
                    yield os.path.relpath(os.path.join(place, name), root)
