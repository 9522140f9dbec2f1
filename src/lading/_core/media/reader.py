"""Read the media of documents from archives.

Source: datatrove 0.10.1, `pipeline/media/media_readers/base.py` and `zstd.py`.
"""

from __future__ import annotations

import operator
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self, SupportsIndex, TypeAlias, get_args

from lading._core.arguments import public
from lading._core.media.ahead import Pace, map_ahead
from lading._core.media.archives import Archive, MediaFolder
from lading._core.media.documents import MediaStats, SharedCounts, get, media_of, place_of, put
from lading._core.media.records import CODECS, RecordFormat, Unpacked
from lading._core.storage.stores import Stores
from lading.errors import BadReference, DataError, UsageError
from lading.limits import DEFAULT_LIMITS, Growth, Limits

__all__ = ["MediaReader", "OnError", "RecordReader"]

_GROUP_BYTES, _DOCUMENT_BYTES = 1 << 20, 16 << 10
"""Media that a thread takes at once, and the weight of a document without media. Threads that take documents of 100 KB
one by one wait for each other so long that two are slower than one."""
_CALMING = 0.9
"""Factor by which the expected growth of records shrinks, after each record that grows less."""

OnError: TypeAlias = Literal["error", "warn"]
"""If a record is unavailable: raise; or leave out the bytes, count it and warn."""


class _Report:
    """Collects the warnings of a run for its end."""

    def __init__(self) -> None:
        self._counts = {"missing": 0, "failed": 0}
        self._first: dict[str, str] = {}

    def add(self, kind: str, text: str) -> None:
        self._counts[kind] += 1
        self._first.setdefault(kind, text)

    def warn(self) -> None:
        for kind, why in (("missing", "name no path or no offset"), ("failed", "could not be read")):
            if count := self._counts[kind]:
                warnings.warn(f"{count} media {why} and have no bytes; the first: {self._first[kind]}", stacklevel=3)


class RecordReader(ABC):
    """Base of the readers of all kinds of archives: documents, threads, counts.

    Args:
        data_folder: folder below which the paths of media lie.
        block_size: maximum bytes read ahead.
        workers: threads; one reads in the caller's thread.
        preserve_order: yield documents in their order, not as they are ready.
        on_error: what to do if a record is unavailable.
        roots: further folders that paths may lead to.
        stores: store for URLs with certain beginnings.
        limits: limits on the size of a document's media (`sample_bytes`).
    """

    def __init__(
        self,
        data_folder: str | os.PathLike[str],
        block_size: int,
        workers: int,
        *,
        preserve_order: bool,
        on_error: OnError,
        roots: Sequence[str],
        stores: Stores | None,
        limits: Limits,
    ) -> None:
        if workers < 1:
            raise UsageError("workers must be 1 or more", expected="at least one worker", found=workers)
        if block_size < 1:
            raise UsageError("a block has bytes", expected="at least 1", found=block_size)
        if on_error not in get_args(OnError):
            raise UsageError("no such policy", expected=", ".join(get_args(OnError)), found=repr(on_error))
        self._folder = MediaFolder(data_folder, block_size, roots, stores)
        self._far = self._folder.is_remote
        # With high latency, documents are distributed one by one, so that requests are concurrent.
        group = 1 if self._far else _GROUP_BYTES
        self._pace: Pace[Any] = Pace(workers, ordered=preserve_order, weigh=self._weight, group_weight=group)
        self._growth = float(_GROUP_BYTES)  # unpacked bytes per packed byte; at first anything is expected
        self._on_error = on_error
        self._limits = limits
        self._tally = SharedCounts()

    @abstractmethod
    def _read(self, archive: Archive, offset: int, length: int | None, ahead: int) -> Unpacked:
        """Return the bytes of the record at an offset."""

    @property
    def stats(self) -> MediaStats:
        """Counts of what has been read so far."""
        return self._tally.stats()

    def read_media_record(self, media: Any) -> bytes | None:
        """Return the bytes of one media; None, with a warning, if it has no path or no offset.

        Threads may call this at the same time.

        Args:
            media: a mapping or an object with `path`, `offset` and `length`. It is not changed.

        Raises:
            BadReference: the path leads out of the folder or to no file, or the range is outside the file.
            CorruptShard: the record is damaged.
            LimitExceeded: the record is too long.
            StoreError: a store failed.
        """
        content = self._content(media, 0, Growth(self._limits))
        if content is None:
            self._tally.add(missing=1)
            warnings.warn(f"media {get(media, 'id')!r} names no path or no offset, and has no bytes", stacklevel=2)
        return content

    def run(self, documents: Iterable[Any]) -> Iterator[Any]:
        """Yield the documents, the same objects, with `media_bytes` on every media.

        A media without path or offset keeps the bytes it has. A media without bytes, too, is counted, and a warning
        comes at the end. With several workers, documents are read in groups of 1 MB of media. Larger documents,
        documents of unknown size and those in remote stores are read one by one. At most 2 × `workers` groups wait.

        Example:
            for document in MediaReader("media/", workers=2).run(documents):
                ...

        Peak memory: the media of the waiting documents, and one packed record a thread (for a remote store also one
        block of `block_size` a thread).

        Raises:
            DataError: as `read_media_record`, with the document as `sample`; not with `on_error="warn"`.
            StoreError: a store failed.
        """
        report = _Report()
        for document, failures in map_ahead(self._fill, documents, self._pace):
            for kind, text in failures:
                report.add(kind, text)
            self._tally.document()
            yield document
        report.warn()

    def archive(self, path: object) -> Archive:
        """Return the file of a media's path. Raises BadReference: it leads outside, names no file, or is not a path."""
        return self._folder.archive(path)

    def close(self) -> None:
        """Close open files; they are opened again when needed."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self, document: Any) -> tuple[Any, list[tuple[str, str]]]:
        """Set the bytes of a document's media; return it with the unavailable records."""
        failures: list[tuple[str, str]] = []
        all_media = media_of(document)
        ahead = _bytes_ahead(all_media) if self._far and len(all_media) > 1 else None
        growth = Growth(self._limits)
        for at, media in enumerate(all_media):
            try:
                content = self._content(media, ahead[at] if ahead else 0, growth)
            except DataError as error:
                name = get(document, "id")
                error.at(sample=None if name is None else str(name), column="media")
                if self._on_error == "error":
                    raise
                failures.append(("failed", str(error)))
                put(media, "media_bytes", None)
                continue
            if content is not None:
                put(media, "media_bytes", content)
            elif get(media, "media_bytes") is None:
                self._tally.add(missing=1)
                failures.append(("missing", f"media {get(media, 'id')!r} of document {get(document, 'id')!r}"))
                put(media, "media_bytes", None)
        return document, failures

    def _content(self, media: Any, ahead: int, growth: Growth) -> bytes | None:
        path, offset, length = place_of(media)
        if path is None or offset is None:
            return None
        try:
            archive = self._folder.archive(path)
            if type(offset) is not int or not (length is None or type(length) is int):
                offset, length = _whole_numbers(archive, offset, length)
            content, stored = self._read(archive, offset, length, ahead)
            growth.add((path, offset), len(content), stored, file=archive.name, offset=offset)
        except DataError:
            self._tally.add(failed=1)
            raise
        self._tally.record(len(content), stored)
        self._growth = max(len(content) / max(stored, 1), _CALMING * self._growth)
        return content

    def _weight(self, document: Any) -> int:
        """Return the expected bytes of a document's media, and a constant for the document itself."""
        lengths = [get(one, "length") for one in media_of(document)]
        if not all(type(length) is int for length in lengths):
            return _GROUP_BYTES
        # Lengths come from the documents: a negative one would allow any number of them.
        return _DOCUMENT_BYTES + int(sum(min(max(length, 0), _GROUP_BYTES) for length in lengths) * self._growth)


@public("lading.media.MediaReader")
class MediaReader(RecordReader):
    """Read the media of documents from archives of zstd records (versions 1 and 2) or of plain records.

    Only the bytes of a record are read, never a block for one record alone. datatrove calls this class `ZstdReader`.

    Example:
        data = MediaReader("media/").read_media_record({"path": "000_00003.bin.zst", "offset": 0, "length": 505})

    Args:
        data_folder: folder below which the paths of media lie.
        block_size: bytes to read at once from a remote store when records follow each other.
        workers: threads; one reads in the caller's thread.
        offset_byte_size: bytes of the length prefix of version 1.
        preserve_order: yield documents in their order, not as they are ready.
        codec: `zstd`, or `none` for archives of plain bytes.
        limits: limits on what a record may unpack to (`range_bytes`), and the records of a document (`sample_bytes`).
        on_error: if a record is unavailable: `error`, or `warn` (leave out the bytes and count it).
        roots: further folders that paths may lead to; absolute paths and URLs may lead there only.
        stores: store for URLs with certain beginnings.

    Raises:
        UsageError: an option has an invalid value.

    Source: datatrove 0.10.1, `pipeline/media/media_readers/zstd.py` (`ZstdReader`); the first five parameters are its.
    """

    def __init__(  # noqa: PLR0913 - the first five are the peer's, in its order; the others go by keyword
        self,
        data_folder: str | os.PathLike[str],
        block_size: int = 20 << 20,
        workers: int = 1,
        offset_byte_size: int = 4,
        preserve_order: bool = False,
        *,
        codec: str = "zstd",
        limits: Limits = DEFAULT_LIMITS,
        on_error: OnError = "error",
        roots: Sequence[str] = (),
        stores: Stores | None = None,
    ) -> None:
        super().__init__(
            data_folder,
            block_size,
            workers,
            preserve_order=preserve_order,
            on_error=on_error,
            roots=roots,
            stores=stores,
            limits=limits,
        )
        if codec not in CODECS:
            raise UsageError("no such codec of media archives", expected=" or ".join(CODECS), found=repr(codec))
        if offset_byte_size < 1:
            raise UsageError("a length prefix has bytes", expected="at least 1", found=offset_byte_size)
        self._format = RecordFormat(codec, offset_byte_size, limits)

    def _read(self, archive: Archive, offset: int, length: int | None, ahead: int) -> Unpacked:
        return self._format.read(archive, offset, length, ahead)


def _whole_numbers(archive: Archive, offset: object, length: object) -> tuple[int, int | None]:
    """Return offset and length as integers; numpy's are converted."""
    told = [value for value in (offset, length) if value is not None]
    numbers = [operator.index(one) for one in told if isinstance(one, SupportsIndex) and not isinstance(one, bool)]
    if len(numbers) < len(told):
        raise BadReference(
            "offset and length of a media must be whole numbers",
            file=archive.name,
            expected="integers",
            found=f"{offset!r:.40} and {length!r:.40}",
        )
    return numbers[0], numbers[1] if length is not None else None


def _bytes_ahead(media: Sequence[Any]) -> list[int]:
    """Return for each media the bytes of the adjacent records after it."""
    ahead = [0] * len(media)
    for at in range(len(media) - 2, -1, -1):
        one, after = media[at], media[at + 1]
        places = (get(one, "offset"), get(one, "length"), get(after, "offset"), get(after, "length"))
        if get(one, "path") == get(after, "path") and all(type(place) is int for place in places):
            offset, length, next_offset, next_length = places
            if offset + length == next_offset:
                ahead[at] = next_length + ahead[at + 1]
    return ahead
