"""Write media into archives of records, and return the location of each.

Source: datatrove 0.10.1, `pipeline/media/media_writers/base.py` and `zstd.py`: with the defaults, the same bytes under
the same names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import zstandard

from lading._core.arguments import public
from lading._core.media.ahead import Pace, map_ahead
from lading._core.media.documents import Location, MediaStats, SharedCounts, get, media_of, put_location
from lading._core.media.files import ArchiveFiles, Names
from lading._core.media.records import CODECS
from lading._core.storage.base import FileInfo
from lading._core.storage.stores import Stores
from lading._core.units import parse_bytes
from lading.errors import UsageError

__all__ = ["MediaWriter", "RecordPacker", "check_level"]

_ENDINGS = {"zstd": "${rank}.bin.zst", "none": "${rank}.bin"}
_BYTES = (bytes, bytearray, memoryview)
_LEVELS = (-(1 << 17), 22)
_BLOCK_BYTES, _ONE_STEP_BYTES = 128 << 10, 256 << 10
"""Below two blocks, one step gives the bytes of a stream, faster. zstd splits later blocks by all bytes that it
has by then. A stream of whole blocks ends with an empty one."""
_GROUP_BYTES, _DOCUMENT_BYTES = 2 << 20, 16 << 10
"""Media that a thread takes at once, and the weight of a document without media."""


def check_level(level: int) -> None:
    """Raise UsageError for a compression level that zstd does not have."""
    if not _LEVELS[0] <= level <= _LEVELS[1]:
        raise UsageError("zstd has no such level", expected=f"{_LEVELS[0]} to {_LEVELS[1]}", found=level)


@public("lading.media.MediaWriter")
class MediaWriter:
    """Write the media of documents as records of archives.

    All files appear when the writer is closed. A failed `with` leaves nothing, and existing files of the names stay.
    Until then, each name in use takes an open file and about 1 MB. Full files take neither on this machine; on remote
    stores they take the memory of their uploads.

    Args:
        output_folder: path or URL of the folder.
        output_filename: template of names below it, with `${rank}` (five digits) and any tag: one given to `write` or
            `run`, a key of the metadata of media or document, or `id`. Default `${rank}.bin.zst`, without compression
            `${rank}.bin`.
        max_file_size: a file of this size is complete (a number, or text such as `"5GB"`). Names then begin with a
            counter, `000_`. 0 or less: no limit, no counter.
        compression_level: level of zstd.
        codec: `zstd`, or `none` for plain bytes.
        content_size: write the unpacked size into each frame. datatrove reads such frames, and does not write them.
        checksum: write a checksum into each frame, so that damage is seen. datatrove reads such frames too.
        workers: threads that compress in `run`; the bytes are the same with any number.
        stores: store of each URL.

    Raises:
        UsageError: an option has an invalid value.

    Source: datatrove 0.10.1, `pipeline/media/media_writers/zstd.py` (`ZstdWriter`); the first four parameters are its.
    """

    def __init__(  # noqa: PLR0913 - the first four are the peer's, in its order; the others go by keyword
        self,
        output_folder: str | os.PathLike[str],
        output_filename: str | None = None,
        max_file_size: int | str = 5 << 30,
        compression_level: int = 3,
        *,
        codec: str = "zstd",
        content_size: bool = False,
        checksum: bool = False,
        workers: int = 1,
        stores: Stores | None = None,
    ) -> None:
        if codec not in CODECS:
            raise UsageError("no such codec of media archives", expected=" or ".join(CODECS), found=repr(codec))
        check_level(compression_level)
        if workers < 1:
            raise UsageError("workers must be 1 or more", expected="at least one worker", found=workers)
        if codec == "none" and (content_size or checksum):
            raise UsageError("plain records have no frame to hold a size or checksum", found=repr(codec))
        most = parse_bytes(max_file_size) if isinstance(max_file_size, str) else max_file_size
        self._names = Names(output_filename or _ENDINGS[codec], counted=most > 0)
        self._files = ArchiveFiles(os.fspath(output_folder), self._names, most, stores)
        self._packer = RecordPacker(
            compression_level, content_size=content_size, checksum=checksum, plain=codec == "none"
        )
        self._workers = workers
        self._tally = SharedCounts()

    @property
    def stats(self) -> MediaStats:
        """Return the counts of written media."""
        return self._tally.stats()

    def write(self, media: Any, rank: int = 0, **tags: object) -> Location:
        """Write the bytes of one media; set path, offset and length on it and return them.

        Threads may call this at the same time.

        Args:
            media: a mapping or an object with `media_bytes`.
            rank: for the name of the file.
            **tags: for the name of the file, by their names in the template. Further tags come from the `metadata` of
                the media; `id` is its id.

        Raises:
            UsageError: the media has no bytes, a tag is missing or leads outside the folder, or the writer is closed.
            StoreError: the store failed, perhaps over an earlier record; `close` says so at the latest. The writer
                publishes nothing then.
        """
        data = get(media, "media_bytes")
        return self._append(media, self._packer.pack(data, get(media, "id")), self._names.name(rank, tags, media))

    def run(self, documents: Iterable[Any], rank: int = 0, **tags: object) -> Iterator[Any]:
        """Write the media of documents; yield the documents, in order, with path, offset and length on every media.

        Media without bytes are skipped and counted. After the last document, the writer is closed. An error, or an
        early end of the iteration, publishes nothing.

        Tags that the template needs and `tags` lacks come from the `metadata` of the document and of the media; `id` is
        the id of the document.

        Example:
            writer = MediaWriter("media/", "${lang}/${rank}.bin.zst")
            for document in writer.run(documents, rank=3, lang="en"):
                ...

        With several workers, documents are processed in groups of 2 MB, or one by one if larger. At most 2 × `workers`
        groups are pending. Peak memory: these, with their media compressed and not.

        Raises:
            DataError: media do not have the form of media.
            UsageError, StoreError: as `write`.
        """
        with self:
            one_name = self._names.name(rank, tags) if self._names.needed <= tags.keys() else None
            pace = Pace(self._workers, ordered=True, weigh=_weight, group_weight=_GROUP_BYTES)
            for document, packed in map_ahead(self._pack_all, documents, pace):
                for media, frames in packed:
                    self._append(media, frames, one_name or self._names.name(rank, tags, document, media))
                self._tally.document()
                yield document

    def close(self) -> tuple[FileInfo, ...]:
        """Make the files durable and visible; return their facts, in the order of their creation.

        Raises:
            UsageError: a write failed before, or the writer was aborted. Nothing was published.
            StoreError: a store failed. Files that were not visible by then stay so.
        """
        return self._files.close()

    def abort(self) -> None:
        """Drop what was written. Does nothing after `close` or a second time."""
        self._files.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _pack_all(self, document: Any) -> tuple[Any, list[tuple[Any, _Frames]]]:
        """Return a document with its non-empty media, compressed."""
        media = media_of(document)
        there = [one for one in media if get(one, "media_bytes") is not None]
        if len(there) < len(media):
            self._tally.add(missing=len(media) - len(there))
        return document, [(one, self._packer.pack(get(one, "media_bytes"), get(one, "id"))) for one in there]

    def _append(self, media: Any, packed: _Frames, name: str) -> Location:
        payload_bytes, frames = packed
        location = self._files.append(name, frames)
        self._tally.record(payload_bytes, location.length)
        put_location(media, location)
        return location


def _weight(document: Any) -> int:
    """Return the bytes of a document's media, and a constant for the document itself."""
    contents = (get(one, "media_bytes") for one in media_of(document))
    return _DOCUMENT_BYTES + sum(memoryview(data).nbytes for data in contents if isinstance(data, _BYTES))


_Frames = tuple[int, Sequence[bytes]]
"""Bytes of a media, and the parts of the record that holds them."""


class RecordPacker:
    """Pack media bytes into records, with a compressor for each thread."""

    def __init__(self, level: int, *, content_size: bool, checksum: bool, plain: bool) -> None:
        self._plain = plain
        self._params = zstandard.ZstdCompressionParameters.from_level(
            level, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=content_size, write_checksum=checksum
        )
        self._own = threading.local()

    def pack(self, data: object, media_id: object) -> _Frames:
        """Return a record. Raises UsageError if there are no bytes to pack."""
        if not isinstance(data, _BYTES):
            raise UsageError(
                "a media has no bytes to write", expected="media_bytes", found=f"{type(data).__name__} on {media_id!r}"
            )
        view = memoryview(data)
        size = view.nbytes
        if not view.c_contiguous:
            data = view.tobytes()
        if self._plain:
            return size, (bytes(data),)
        if size < _ONE_STEP_BYTES and size % _BLOCK_BYTES:
            return size, (self._compressor().compress(data),)
        # As a stream, as the peer does, with the size given, by which zstd chooses its parameters.
        packing = self._compressor().compressobj(size=size)
        return size, (packing.compress(data), packing.flush())

    def _compressor(self) -> zstandard.ZstdCompressor:
        compressor: zstandard.ZstdCompressor | None = getattr(self._own, "compressor", None)
        if compressor is None:
            compressor = self._own.compressor = zstandard.ZstdCompressor(compression_params=self._params)
        return compressor
