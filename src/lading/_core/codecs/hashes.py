"""Hashes of files, by the names in the index files of peers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import xxhash

from lading._core.codecs.protocol import Data
from lading.errors import DataError

__all__ = ["Hash", "new_hash"]

_XXHASHES: dict[str, Callable[[], Hash]] = {
    "xxh32": xxhash.xxh32, "xxh64": xxhash.xxh64, "xxh128": xxhash.xxh128,
    "xxh3_64": xxhash.xxh3_64, "xxh3_128": xxhash.xxh3_128,
}  # fmt: skip


class Hash(Protocol):
    """A hash in progress."""

    def update(self, data: Data, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes, as hex digits."""


def new_hash(name: str) -> Hash:
    """Return a new hash: any that Python guarantees except those of variable length, and xxHash's.

    Raises:
        DataError: an unknown hash.

    Source: mosaicml-streaming 0.13.0, base/hashing.py.
    """
    if name in _XXHASHES:
        return _XXHASHES[name]()
    if name not in hashlib.algorithms_guaranteed or name.startswith("shake_"):
        known = sorted({*hashlib.algorithms_guaranteed} - {"shake_128", "shake_256"})
        raise DataError("an unknown hash", expected=", ".join([*known, *_XXHASHES]), found=repr(name))
    return hashlib.new(name, usedforsecurity=False)
