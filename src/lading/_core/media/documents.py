"""Documents and their media, as mappings or as objects; locations of records; counts.

Source: datatrove 0.10.1, `data.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

from lading.errors import SchemaMismatch

__all__ = ["Location", "MediaStats", "SharedCounts", "get", "media_of", "place_of", "put", "put_location"]


class Location(NamedTuple):
    """Location of a record: path below the media folder, first byte, stored bytes."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class MediaStats:
    """Counts of what has been read or written so far; every media counts once.

    Attributes:
        documents: documents handed on.
        records: media whose bytes were read or written.
        payload_bytes: their bytes.
        stored_bytes: bytes of their records in the archives.
        missing: media without a path or offset to read from, or without bytes to write.
        failed: media whose record was unavailable.
    """

    documents: int = 0
    records: int = 0
    payload_bytes: int = 0
    stored_bytes: int = 0
    missing: int = 0
    failed: int = 0


class SharedCounts:
    """Counts that several threads add to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """Add to counts, by the names of `MediaStats`."""
        with self._lock:
            self._counts.update(counts)

    def record(self, payload_bytes: int, stored_bytes: int) -> None:
        """Add one record."""
        with self._lock:
            counts = self._counts
            counts["records"] += 1
            counts["payload_bytes"] += payload_bytes
            counts["stored_bytes"] += stored_bytes

    def document(self) -> None:
        """Add one document."""
        with self._lock:
            self._counts["documents"] += 1

    def stats(self) -> MediaStats:
        """Return the current counts."""
        with self._lock:
            return MediaStats(**self._counts)


def get(thing: Any, name: str) -> Any:
    """Return a field of a mapping or an object; None if it is missing."""
    if type(thing) is dict or isinstance(thing, Mapping):  # the first is much faster to check
        return thing.get(name)
    return getattr(thing, name, None)


def place_of(media: Any) -> tuple[Any, Any, Any]:
    """Return path, offset and length of a media; None for each that is missing."""
    if type(media) is dict:
        return media.get("path"), media.get("offset"), media.get("length")
    return get(media, "path"), get(media, "offset"), get(media, "length")


def put(thing: Any, name: str, value: object) -> None:
    """Set a field of a mapping or an object."""
    if type(thing) is dict or isinstance(thing, Mapping):
        thing[name] = value  # type: ignore[index] # a mapping that cannot be changed says so itself
    else:
        setattr(thing, name, value)


def put_location(media: Any, location: Location) -> None:
    """Set path, offset and length of a media."""
    for name, value in location._asdict().items():
        put(media, name, value)


def media_of(document: Any) -> Sequence[Any]:
    """Return the media of a document; nothing if the field is null or missing.

    Raises:
        SchemaMismatch: `media` is not a list, or an entry is not a media.
    """
    media = get(document, "media")
    if media is None:
        return ()
    if type(media) is not list and (not isinstance(media, Sequence) or isinstance(media, (str, bytes))):
        raise _misfit(document, "a list", media)
    for one in media:
        if type(one) is not dict and not isinstance(one, Mapping) and not hasattr(one, "path"):
            raise _misfit(document, "mappings, or objects with path, offset, length and media_bytes", one)
    return media


def _misfit(document: Any, expected: str, found: object) -> SchemaMismatch:
    name = get(document, "id")
    return SchemaMismatch(
        "the document's media do not have the form of media",
        sample=None if name is None else str(name),
        column="media",
        expected=expected,
        found=type(found).__name__,
    )
