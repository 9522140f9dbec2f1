"""Give finished files of a store without atomic folders their final names, so that readers never see half of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace as changed
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

import orjson

from lading._core.storage.base import Copies, FileInfo, Store, has_file, name_taken, write_file
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading.errors import StoreError

__all__ = ["MARKER", "CopyingStore", "Finished", "delete_unfinished", "publish_by_copies", "publish_list"]

MARKER: Final = "_lading/committing.json"
"""Of a dataset: the file that is there while its files get their names. It holds the time when this began (`began`),
and the path of the dataset below the destination (`part`)."""
_MANIFEST: Final = "/_lading/manifest.json"


class CopyingStore(Store, Copies, Protocol):
    """A store that gives names by copies."""


class Finished(NamedTuple):
    """A finished file and its final name.

    Attributes:
        file: path, size and version of the file.
        target: its final path.
    """

    file: FileInfo
    target: str


def publish_by_copies(store: CopyingStore, source: str, target: str, *, replace: bool) -> None:
    """Give a file or a folder its final name, file by file (`publish_list`).

    Args:
        store: where both are.
        source: the file or folder.
        target: its new name.
        replace: whether a file or folder of that name may be replaced.

    Raises:
        NotFound: the source does not exist.
        DestinationExists: the target exists, and `replace` is not set.
    """
    old, new = source.rstrip("/"), target.rstrip("/")
    files = [Finished(info, f"{new}/{info.path.removeprefix(old + '/')}") for info in store.walk(old)]
    if files:
        publish_list(store, files, new, replace=replace)
    else:
        file = store.head(old)
        there = next(iter(store.walk(new)), None) is not None
        if not replace and (there or has_file(store, new)):
            raise name_taken(target)
        if there:
            store.delete(new)
        store.copy_all([(file, new)])
    with suppress(StoreError):  # the names are given; whoever built here removes the rest
        store.delete(old)


def publish_list(store: CopyingStore, files: Sequence[Finished], target: str, *, replace: bool) -> None:
    """Give the files of a dataset their final names below a folder, each by one copy, many at once.

    Old manifests are deleted first, and new manifests are copied last. From before the first change until the end, the
    folder and each dataset in it have a `MARKER`. So no reader takes a half-published folder for a dataset. Files of
    the folder that the list lacks are deleted. Without `replace`, files that appear after the check are not noticed.
    The sources stay, for the caller to delete.

    A call that was killed may be repeated with the same list and `replace`, also after some sources were deleted: a
    copy that is there already is not made again.

    Args:
        store: where all files are.
        files: the finished files.
        target: the folder.
        replace: whether a file or folder of that name may be replaced.

    Raises:
        NotFound: a source is missing, and the folder has no copy of it.
        DestinationExists: the target exists, and `replace` is not set.
    """
    new = target.rstrip("/")
    there = {info.path: info for info in store.walk(new)}
    if not replace and (there or has_file(store, new)):
        raise name_taken(target)
    ours = {each.target: each.file for each in files}
    if not there and replace:
        store.delete(new)  # perhaps a file
    markers = _mark(store, new, [*there, *ours], there)
    old = [path for path in there if path.endswith(_MANIFEST) and not _is_copy(there[path], ours.get(path))]
    _for_all(store, store.delete, old)
    there = {path: info for path, info in there.items() if path not in old}
    store.copy_all(_missing(store, [each for each in files if not each.target.endswith(_MANIFEST)], there))
    _for_all(store, store.delete, [path for path in there if path not in ours and path not in markers])
    manifests = [each for each in files if each.target.endswith(_MANIFEST)]
    store.copy_all(_missing(store, manifests, there))
    with suppress(StoreError) if manifests else nullcontext():  # a marker next to a manifest says nothing
        _for_all(store, store.delete, markers)


def _mark(store: Store, folder: str, paths: Iterable[str], there: Mapping[str, FileInfo]) -> list[str]:
    """Put a marker into a folder, and into each dataset in it, that has none; return the markers."""
    datasets = {folder, *(path.removesuffix(_MANIFEST) for path in paths if path.endswith(_MANIFEST))}
    markers = {f"{each}/{MARKER}": each[len(folder) + 1 :] for each in sorted(datasets)}
    began = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def write(marker: str) -> None:
        write_file(store, marker, [orjson.dumps({"began": began, "part": markers[marker]})])

    _for_all(store, write, [marker for marker in markers if marker not in there])
    return list(markers)


def _for_all(store: Store, do: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call a function of the store for each path, many at once."""
    for _ in concurrent_map([partial(do, path) for path in paths], remote=is_remote(store)):
        pass


def delete_unfinished(store: Store, folder: str) -> None:
    """Delete a folder of which a part was published; its markers go last, so a call that was killed may be repeated."""
    paths = [info.path for info in store.walk(folder)]
    for last in (False, True):
        _for_all(store, store.delete, [path for path in paths if path.endswith(f"/{MARKER}") is last])
    store.delete(folder)  # on disk: the folders


def _missing(store: Store, files: Sequence[Finished], there: Mapping[str, FileInfo]) -> list[tuple[FileInfo, str]]:
    """Return the files that must be copied, and their targets."""
    missing = []
    for file, target in files:
        found = there.get(target)
        differs = found is None or found.size_bytes != file.size_bytes
        # A copy of a large file has another etag. Where its source is gone, the copy was made before.
        if differs or (not _is_copy(found, file) and has_file(store, file.path)):
            missing.append((file, target))
    return missing


def _is_copy(found: FileInfo | None, file: FileInfo | None) -> bool:
    """Return whether a file has the size and the etag of another one."""
    return found is not None and file is not None and file.version != "" and found == changed(file, path=found.path)
