"""Datasets whose commit has not ended: a store has some of their files, and no reader may take these for all."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import orjson

from lading._core.manifest.builds import PLAN_NAME, builds_of, rank_builds_of
from lading._core.manifest.values import FOLDER, MANIFEST_NAME
from lading._core.storage.base import Store, has_file
from lading._core.storage.publish import MARKER
from lading.errors import LadingError, StoreError, UnfinishedDataset

__all__ = ["is_unfinished", "refuse_listed", "refuse_unfinished"]

_ENDINGS: Final = (f"/{MARKER}", f"/{FOLDER}/{MANIFEST_NAME}")


def is_unfinished(store: Store, folder: str) -> bool:
    """Return whether the commit of the dataset in a folder has begun and not ended. Mostly one request."""
    return has_file(store, f"{folder}/{MARKER}") and not has_file(store, f"{folder}/{FOLDER}/{MANIFEST_NAME}")


def refuse_unfinished(store: Store, folder: str) -> None:
    """Raise UnfinishedDataset if the commit of the dataset in a folder has not ended. Mostly one request.

    A server that refuses the request, as S3 does for absent files if the bucket must not be listed, has no marker.
    """
    there = False
    with suppress(StoreError):
        there = is_unfinished(store, folder)
    if there:
        raise _error(store, folder)


def refuse_listed(store: Store, paths: Iterable[str]) -> None:
    """Raise UnfinishedDataset if a listing shows a dataset whose commit has not ended. No request without such one.

    Args:
        store: of the files.
        paths: of the files. For each dataset, all of lading's own.
    """
    own = {path for path in paths if path.endswith(_ENDINGS)}
    folders = (path.removesuffix(f"/{MARKER}") for path in sorted(own) if path.endswith(f"/{MARKER}"))
    for folder in folders:
        if f"{folder}/{FOLDER}/{MANIFEST_NAME}" not in own:
            raise _error(store, folder)


def _error(store: Store, folder: str) -> UnfinishedDataset:
    """Return the error for a dataset whose commit has not ended; its advice names what works there."""
    began, part = _marked(store, folder)
    destination = folder.removesuffix(f"/{part}") if part else folder
    since = f", or unfinished since {began}" if began else ", or unfinished"
    return UnfinishedDataset(f"the dataset is being written{since}", file=folder, advice=_advice(store, destination))


def _advice(store: Store, destination: str) -> str:
    """Return what completes or removes an unfinished destination."""
    shown, goes_on = shlex.quote(destination), ""
    if destination.startswith(("http://", "https://")):
        return "Wait for the job that writes it. If that job died, its owner completes it, with --resume."
    with suppress(LadingError):  # folders there may be listed by others only, or not at all
        if rank_builds_of(store, destination):
            goes_on = f"complete it with 'lading finish {shown}', or "
        elif any(has_file(store, f"{root}/{PLAN_NAME}") for root in builds_of(store, destination)):
            goes_on = "repeat its command with --resume, or "
    remove = f"remove its files with 'lading clean {shown}'"
    return f"Wait for the job that writes it. If that job died: {goes_on}{remove}."


def _marked(store: Store, folder: str) -> tuple[str, str]:
    """Return what a marker says: when the commit began, and the path of the dataset below the destination."""
    path = f"{folder}/{MARKER}"
    with suppress(StoreError, ValueError, TypeError, KeyError):
        [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
        told = orjson.loads(bytes(data))
        return str(told["began"]), str(told["part"])
    return "", ""
