"""External videos of a stable-datasets cache: files next to the shards, filled in by the reader.

`_core.caches.videos` parses the cells and checks the files.

Source: stable-datasets f38ac71 schema.py (`Video`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import bitmap
from lading._core.caches.videos import ASSETS, ExternalVideo, VideoFolder, external_videos, is_video_cell, stored_videos
from lading._core.features.types import FEATURE_KEY, Feature, Video, decode, feature_of, keeps_files, with_feature
from lading._core.formats.arrow.decode import damage
from lading._core.formats.arrow.rows import Row
from lading._core.formats.arrow.schema import STABLE_KEY
from lading._core.formats.base import ShardFile
from lading._core.storage.base import Buffer
from lading._core.storage.roots import folder_of
from lading.errors import BadReference, DataError, LadingError, StoreError, UsageError, errors_at

__all__ = ["Assets", "filled_schema", "has_assets", "refuse_nested", "with_assets", "wrong_assets"]

_STORAGE_KEY = b"stable_datasets.video.storage"


class Assets:
    """Fill the bytes of columns with external videos.

    Args:
        source: the shard.
        schema: its columns.
        roots: further folders that links may lead to.
    """

    def __init__(self, source: ShardFile, schema: pa.Schema, roots: Sequence[str] = ()) -> None:
        self._path = source.path
        self._files = VideoFolder(source.place_store, folder_of(source.place), source.path, roots)
        self._names = {field.name for field in schema if _is_video(field)}

    def sizes(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the bytes of files that each row would get."""
        total = np.zeros(batch.num_rows, np.int64)
        for name in self._names & set(batch.schema.names):
            with errors_at(column=name):
                videos = self._videos(batch.column(name))
                total += [0 if video is None else self._files.size(video) for video in videos]
        return total

    def count(self, batch: pa.RecordBatch) -> int:
        """Return how many values are files."""
        names = self._names & set(batch.schema.names)
        return sum(video is not None for name in names for video in self._videos(batch.column(name)))

    def filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the bytes of their files, each file read once, as cells that hold their bytes.

        Raises:
            BadReference: a path that leads out of the folder of videos.
            NotFound: a file is missing.
            SidecarMismatch: a file of another size or content than its cell says.
        """
        for at, name in enumerate(batch.schema.names):
            if name in self._names:
                with errors_at(column=name):
                    batch = batch.set_column(at, batch.schema.field(at), self._with_bytes(batch.column(at)))
        return batch

    def row_reader(
        self, batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], Row], features: Sequence[Feature]
    ) -> Row:
        """Return a function from a row to the row with the bytes of its files; each file is read on demand.

        Args:
            batch: a batch whose videos together may exceed memory many times.
            make: returns the function that returns the rows of a batch without videos.
            features: features of the columns.
        """
        names, videos = batch.schema.names, []
        for at, (name, column, feature) in enumerate(zip(names, batch.columns, features, strict=True)):
            if name in self._names:
                parts = column.flatten()
                modes = parts[column.type.get_field_index("mode")]
                in_files = pc.is_in(modes.cast(pa.string()), value_set=pa.array(["path"]))  # which cannot take views
                if in_files.true_count:
                    videos.append((name, column, feature, in_files.to_pylist()))
                    hidden = pc.or_(column.is_null(), in_files)
                    hiding = pa.StructArray.from_arrays(parts, fields=list(column.type), mask=hidden)
                    batch = batch.set_column(at, batch.schema.field(at), hiding)
        get = make(batch)

        def filled(row: int) -> dict[str, Any]:
            sample, found = get(row), {}
            for name, column, feature, in_files in videos:
                if in_files[row]:
                    with errors_at(column=name):
                        found[name] = decode(feature, self._with_bytes(column.slice(row, 1))[0].as_py())
            sample |= found
            return {name: sample[name] for name in names if name in sample} if found else sample

        return filled if videos else get

    def _with_bytes(self, column: pa.StructArray) -> pa.StructArray:
        videos = self._videos(column)
        found = {video: self._files.read(video) for video in dict.fromkeys(videos) if video is not None}
        parts = dict(zip((child.name for child in column.type), column.flatten(), strict=True))
        own = parts["bytes"]
        values = [own[row].as_py() if video is None else found[video] for row, video in enumerate(videos)]
        new = {
            "mode": [mode if video is None else "bytes" for video, mode in _with(videos, parts["mode"])],
            "path": [path if video is None else None for video, path in _with(videos, parts["path"])],
        }
        parts |= {name: pa.array(own_values, parts[name].type) for name, own_values in new.items()}
        parts["bytes"] = _joined(values).cast(own.type)
        children = [parts[child.name] for child in column.type]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())

    def _videos(self, column: pa.StructArray) -> list[ExternalVideo | None]:
        with damage(self._path):
            return external_videos(column)


def _with(videos: list[ExternalVideo | None], part: pa.Array) -> Iterable[tuple[ExternalVideo | None, str | None]]:
    return zip(videos, part.to_pylist(), strict=True)


def _joined(values: list[Buffer | None]) -> pa.LargeBinaryArray:
    """Return values as an array.

    pyarrow 26.0.1 never releases a memory view that `pa.array` was given, nor its bytes.
    """
    sizes = [0 if value is None else len(value) for value in values]
    offsets = np.cumsum([0, *sizes], dtype=np.int64)
    valid = bitmap(np.array([value is not None for value in values], bool))
    data = pa.py_buffer(b"".join(value for value in values if value is not None))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), [valid, pa.py_buffer(offsets), data])


def has_assets(schema: pa.Schema) -> bool:
    """Return whether a column may have external bytes."""
    return any(map(_is_video, schema))


def with_assets(schema: pa.Schema) -> list[str]:
    """Return names of the columns whose values may have external bytes, inside lists and structs too."""
    return [field.name for field in schema if keeps_files(_feature(field))]


def filled_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows with these bytes: their columns are no longer columns of files."""
    for at, field in enumerate(schema):
        if _is_video(field):
            metadata = {**field.metadata, _STORAGE_KEY: b"bytes"} if _STORAGE_KEY in field.metadata else field.metadata
            filled = field.with_metadata(metadata)
            schema = schema.set(at, with_feature(filled, Video()) if FEATURE_KEY in metadata else filled)
    return schema


def refuse_nested(schema: pa.Schema) -> None:
    """Raise UsageError, with the column, if videos inside lists or structs are external."""
    for field in schema:
        feature = feature_of(field)
        if feature.medium != "video" and keeps_files(feature):
            raise UsageError(
                "files of videos inside lists and structs are not read", column=field.name, expected="a column of them",
                found=str(feature),
                advice=f"With --option load_assets=false they are left as names in {ASSETS}, without bytes.",
            )  # fmt: skip


def wrong_assets(source: ShardFile, batch: pa.RecordBatch, first_row: int, *, deep: bool) -> Iterator[LadingError]:
    """Yield the problems of the files of a batch's videos; each file is checked once, and read if `deep`."""
    files = VideoFolder(source.place_store, folder_of(source.place), source.path)
    rows = np.arange(first_row, first_row + len(batch))
    for column, field in zip(batch.columns, batch.schema, strict=True):
        videos: dict[ExternalVideo, int] = {}
        with damage(source.path, column=field.name):
            for row, video in stored_videos(column, _feature(field), rows):
                videos.setdefault(video, row)
        for video, row in videos.items():
            try:
                files.check(video) if deep else files.head(video)
            except (DataError, StoreError) as error:
                yield _error_of_shard(error, source.path).at(row=row, column=field.name)


def _error_of_shard(error: LadingError, shard: str) -> LadingError:
    """Return an error as an error of the shard, with the row."""
    if error.file == shard:
        return error
    return BadReference(f"no video where one should lie: {error.message}", file=shard, found=error.file)


def _feature(field: pa.Field) -> Feature:
    return Video("path") if _is_video(field) else feature_of(field)


def _is_video(field: pa.Field) -> bool:
    return (field.metadata or {}).get(STABLE_KEY) == b"Video" and is_video_cell(field.type)
