"""Check the videos of a cache against their cells, whether they are in the shards or in files of their own.

A cell is `struct<mode, path, bytes, extension, media_type, size, checksum>`; in the mode `path` its bytes are the file
`_assets/video/{path}`, which both writers name after its content: `{sha256}{extension}`. A checksum of another
kind is kept and not checked.

Source: stable-datasets f38ac71 schema.py (`Video`).
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import child_fields, is_bytes, is_text, listed_values, slices
from lading._core.features.encode import VIDEO_FIELDS, is_sha256
from lading._core.features.types import Feature, keeps_files
from lading._core.storage.base import Buffer, FileInfo, Store, native_path
from lading._core.storage.roots import Roots, real_place
from lading._core.storage.stores import is_local
from lading.errors import BadReference, SidecarMismatch

__all__ = [
    "ASSETS",
    "ExternalVideo",
    "VideoFolder",
    "broken_videos",
    "external_videos",
    "is_video_cell",
    "stored_videos",
    "wrong_cells",
]

ASSETS = "_assets/video"
"""Folder of a cache for videos in files of their own."""

_TEXTS = ("mode", "path")
_PIECE_BYTES = 8 << 20
_CHANGED = "The file was changed or damaged since it was written; build the cache again (lading.caches.write_cache)."


@dataclass(frozen=True, slots=True)
class ExternalVideo:
    """A video in a file of its own, as its cell describes it.

    Attributes:
        name: name of the file in its folder; empty if the cell names none.
        size_bytes: size of the file, if the cell has it.
        checksum: checksum in the cell; of whatever kind.
    """

    name: str
    size_bytes: int | None = None
    checksum: str | None = None


class VideoFolder:
    """The files of a cache's videos.

    Args:
        store: store of the files.
        cache: folder of the cache.
        shard: the shard whose cells name the files; errors name it.
        roots: further folders that links may lead to; None if the caller cannot name any.

    Attributes:
        shard: as given.
    """

    def __init__(self, store: Store, cache: str, shard: str, roots: Iterable[str] | None = None) -> None:
        self._store, self.shard = store, shard
        self._folder = posixpath.join(cache or ".", ASSETS)
        self._roots = Roots([cache], inside=ASSETS, others=roots or ())
        self._takes_roots = roots is not None
        self._is_real = real_place(self._folder) == posixpath.join(real_place(cache), ASSETS)

    def size(self, video: ExternalVideo) -> int:
        """Return the size of the file from its cell, or by a look at the file. Raises as `head`."""
        return self.head(video).size_bytes if video.size_bytes is None else max(video.size_bytes, 0)

    def head(self, video: ExternalVideo) -> FileInfo:
        """Return the facts of the file.

        Raises:
            BadReference: the name leads out of the folder, or to something other than a regular file.
            NotFound, StoreError: the file is missing, or cannot be inspected.
            SidecarMismatch: the file has another size than its cell says.
        """
        place = self._place(video.name)
        info = self._store.head(place)
        if video.size_bytes not in (None, info.size_bytes):
            raise SidecarMismatch("the file of a video has another size than its row says", file=self.shard,
                                  expected=f"{video.size_bytes} bytes", found=f"{info.size_bytes} bytes in {place}",
                                  advice=_CHANGED)  # fmt: skip
        return info

    def read(self, video: ExternalVideo) -> Buffer:
        """Return the bytes of the file, checked against its name and checksum. Raises as `check`."""
        info = self.head(video)
        [data] = self._store.get_ranges(info.path, [(0, info.size_bytes)], info.version)
        if _digests(video):
            self._compare(video, hashlib.sha256(data).hexdigest(), info)
        return data

    def check(self, video: ExternalVideo) -> None:
        """Read the file in pieces of 8 MB, and check it against its name and checksum where these are SHA-256.

        Raises:
            SidecarMismatch: the bytes differ. Further errors as `head`.
        """
        info = self.head(video)
        if not _digests(video):
            return
        total = hashlib.sha256()
        for at in range(0, info.size_bytes, _PIECE_BYTES):
            [piece] = self._store.get_ranges(info.path, [(at, min(_PIECE_BYTES, info.size_bytes - at))], info.version)
            total.update(piece)
        self._compare(video, total.hexdigest(), info)

    def _compare(self, video: ExternalVideo, found: str, info: FileInfo) -> None:
        for expected in _digests(video):
            if expected != found:
                raise SidecarMismatch("the file of a video differs from its checksum", file=self.shard,
                                      expected=f"sha256 {expected}", found=f"sha256 {found} of {info.path}",
                                      advice=_CHANGED)  # fmt: skip

    def _place(self, name: str) -> str:
        if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
            raise BadReference("not the name of a video of this cache", file=self.shard, found=repr(name)[:200])
        place = f"{self._folder}/{name}"
        if not self._is_plain(place):
            try:
                self._roots.check(place)
            except BadReference as error:
                advice = error.advice if self._takes_roots else None
                raise BadReference(f"not a video of this cache: {error.message}", file=place, advice=advice) from None
        return place

    def _is_plain(self, place: str) -> bool:
        """Return whether neither a file of this machine nor its folder is a link."""
        try:
            return self._is_real and is_local(self._store) and stat.S_ISREG(os.lstat(native_path(place)).st_mode)
        except OSError:
            return False


def is_video_cell(kind: pa.DataType) -> bool:
    """Return whether values are cells of videos."""
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    places = [kind.get_field_index(name) for name in _TEXTS]
    return all(at >= 0 and is_text(kind.field(at).type) for at in places)


def external_videos(column: pa.StructArray) -> list[ExternalVideo | None]:
    """Return the external video of each cell; None for others. Raises ArrowInvalid for invalid UTF-8."""
    # Under a null struct, a field may hold anything: `flatten` makes it null too.
    parts = dict(zip((child.name for child in column.type), column.flatten(), strict=True))
    columns = []
    for name in (*_TEXTS, "size", "checksum"):
        part = parts.get(name, pa.nulls(len(column)))
        part.validate(full=True)
        columns.append(part.to_pylist())
    return [
        ExternalVideo(
            name or "", size if isinstance(size, int) else None, checksum if isinstance(checksum, str) else None
        )
        if mode == "path"
        else None
        for mode, name, size, checksum in zip(*columns, strict=True)
    ]


def stored_videos(column: pa.Array, feature: Feature, rows: NDArray[np.int64]) -> Iterator[tuple[int, ExternalVideo]]:
    """Yield the external videos of a column, inside lists and structs too, each with its row.

    Args:
        column: the values.
        feature: what they are.
        rows: number of each value's row.
    """
    kind = column.type
    if feature.item is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        values, parents = listed_values(column)
        yield from stored_videos(values, feature.item, rows[parents])
    elif feature.children is not None and pa.types.is_struct(kind):
        children = column.flatten()
        for name, inner in feature.children:
            at = kind.get_field_index(name)
            if at >= 0 and keeps_files(inner):
                yield from stored_videos(children[at], inner, rows)
    elif is_video_cell(kind):
        for row, video in zip(rows.tolist(), external_videos(column), strict=True):
            if video is not None:
                yield row, video


def wrong_cells(column: pa.StructArray) -> Iterator[tuple[int, SidecarMismatch]]:
    """Yield cells whose bytes differ from their size or SHA-256: position and problem.

    Args:
        column: of `VIDEO_FIELDS`.
    """
    parts = dict(zip((child.name for child in column.type), column.flatten(), strict=True))
    cells = zip(slices(parts["bytes"]), parts["size"].to_pylist(), parts["checksum"].to_pylist(), strict=True)
    for at, (data, size, checksum) in enumerate(cells):
        if data is None:
            continue
        if size not in (None, len(data)):
            yield at, SidecarMismatch("a video has another size than its cell says",
                                      expected=f"{size} bytes", found=f"{len(data)} bytes")  # fmt: skip
        elif is_sha256(checksum) and checksum.lower() != (found := hashlib.sha256(data).hexdigest()):
            yield at, SidecarMismatch("a video differs from its checksum",
                                      expected=f"sha256 {checksum.lower()}", found=f"sha256 {found}")  # fmt: skip


def broken_videos(batch: pa.RecordBatch, file: str, first: int) -> Iterator[SidecarMismatch]:
    """Yield the `wrong_cells` of each column of videos in a cache's form, inside lists and structs too.

    Args:
        batch: with its bytes.
        file: the shard.
        first: row number of the batch's first row in the shard.
    """
    rows = np.arange(first, first + len(batch))
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for cells, numbers in _cells(column, rows):
            for at, error in wrong_cells(cells):
                yield error.at(file=file, row=int(numbers[at]), column=name)


def _cells(column: pa.Array, rows: NDArray[np.int64]) -> Iterator[tuple[pa.StructArray, NDArray[np.int64]]]:
    """Return the cells of videos in a column, inside the lists and structs of a cache too, and the row of each."""
    kind = column.type
    if _is_cell(kind):
        yield column, rows
    elif not any(_is_cell(inner) for inner in _types_inside(kind)):
        return
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _cells(child, rows)
    else:
        values, parents = listed_values(column)
        yield from _cells(values, rows[parents])


def _types_inside(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Return the types inside structs and lists, at any depth."""
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        for child in child_fields(kind):
            yield child.type
            yield from _types_inside(child.type)


def _is_cell(kind: pa.DataType) -> bool:
    names = {child.name for child in kind} if pa.types.is_struct(kind) else set()
    return names == {*VIDEO_FIELDS} and is_bytes(kind.field("bytes").type)


def _digests(video: ExternalVideo) -> set[str]:
    """Return the expected SHA-256 of the file."""
    texts = (video.name.partition(".")[0], video.checksum or "")
    return {text.lower() for text in texts if is_sha256(text)}
