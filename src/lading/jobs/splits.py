"""Jobs over the splits of a source: several datasets that one index lists."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from lading.dataset.source.source import SPLITS_NAME, Source, source_names
from lading.errors import SeveralSplits, UsageError
from lading.manifest.commit import Staging, check_destination, find_destination
from lading.storage.base import Store
from lading.storage.roots import folder_of, is_inside, real_place
from lading.storage.stores import Stores

__all__ = ["each_split", "folder_of_splits", "refuse_each_other"]

_Done = TypeVar("_Done")


def folder_of_splits(source: Source, error: SeveralSplits, stores: Stores) -> str | None:
    """Return the folder of the splits, if it is the whole source; None if it is one of several sources."""
    names = source_names(source, stores)
    if len(names) != 1 or error.file is None:
        return None
    if error.by_name:
        return names[0].rstrip("/") if real_place(names[0], stores) == real_place(error.file, stores) else None
    folder = folder_of(error.file) or "."
    if posixpath.basename(error.file) == SPLITS_NAME:
        folder = folder_of(folder) or "."
    found = real_place(names[0], stores)
    return folder if found in (real_place(folder, stores), real_place(error.file, stores)) else None


def refuse_each_other(folder: str, destination: str | os.PathLike[str], stores: Stores) -> None:
    """Refuse a destination that holds the folder of the splits, or lies inside it.

    The first would replace the folder, and the second would be read as a split.

    Raises:
        UsageError: the destination is one of both.
    """
    path = os.fspath(destination)
    source, target = (real_place(place, stores) for place in (folder, path))
    if is_inside(source, target) or is_inside(target, source):
        raise UsageError("the destination is inside the source, or contains it", file=path,
                         found=f"the source is {folder}")  # fmt: skip


def each_split(
    splits: Sequence[str],
    destination: str | os.PathLike[str],
    write: Callable[[str, str, Stores], _Done],
    index: Callable[[Store, str], None],
    *,
    stores: Stores,
    overwrite: bool,
    dry_run: bool,
) -> dict[str, _Done]:
    """Write each split, and return the results of `write` by name; the destination appears in one step at the end.

    Args:
        splits: names of the splits.
        destination: folder of the new splits.
        write: writes a dataset; called with its name, its destination, and which store serves which URL.
        index: writes the index of the splits into a folder of a store.
        stores: which store serves which URL.
        overwrite: replace what is at the destination.
        dry_run: nothing is written.

    Raises:
        DestinationExists: the destination holds something. And whatever `write` raises.
    """
    store, path = find_destination(destination, stores)
    check_destination(store, path, overwrite=overwrite)
    if dry_run:
        return {name: write(name, f"{path}/{name}", stores) for name in splits}
    with ExitStack() as held:
        staging = Staging.begin(store, path, shared=False)
        held.callback(staging.drop)  # nothing is left to drop after the commit
        here = stores if stores.find(path) is None else Stores({**stores.by_prefix, staging.folder: store})
        done = {name: write(name, staging.path(name), here) for name in splits}
        index(store, staging.folder)
        staging.commit(overwrite=overwrite)
    return done
