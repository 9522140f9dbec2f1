"""Videos that stable-datasets keeps in files of their own, beside the shards of a cache.

A column of them is `struct<mode, path, bytes, extension, media_type, size, checksum>`; in the mode `path` the bytes are
the file `_assets/video/{path}`.

Source: stable-datasets f38ac71 schema.py (`Video`).
"""

from __future__ import annotations

import posixpath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import BadReference, UsageError, errors_at
from lading.features import Video, feature_of, keeps_files
from lading.formats._arrow_schema import STABLE_KEY
from lading.formats.protocol import ShardSource
from lading.store.roots import Roots, folder_of

__all__ = ["Assets", "has_assets", "refuse_nested"]

_FOLDER = "_assets/video"
_NEEDED = {"mode", "path", "bytes"}


class Assets:
    """Fills the bytes of such columns.

    Args:
        source: the shard.
        schema: its columns.
    """

    def __init__(self, source: ShardSource, schema: pa.Schema) -> None:
        self._store, self._path = source.store, source.path
        folder = posixpath.join(folder_of(source.place) or ".", _FOLDER)
        self._folder, self._roots = folder, Roots([folder])
        self._names = {field.name for field in schema if _is_video(field)}
        self._sizes: dict[str, int] = {}

    def sizes(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Bytes of files that each row would get."""
        total = np.zeros(batch.num_rows, np.int64)
        for name in self._names & set(batch.schema.names):
            with errors_at(column=name):
                total += [0 if path is None else self._size(path) for path in self._paths(batch.column(name))]
        return total

    def count(self, batch: pa.RecordBatch) -> int:
        """How many values are files."""
        names = self._names & set(batch.schema.names)
        return sum(path is not None for name in names for path in self._paths(batch.column(name)))

    def filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the bytes of their files, each file read once.

        Raises:
            BadReference: a path that leads out of the folder of videos. NotFound: a file that is not there.
        """
        for at, name in enumerate(batch.schema.names):
            if name in self._names:
                with errors_at(column=name):
                    batch = batch.set_column(at, batch.schema.field(at), self._with_bytes(batch.column(at)))
        return batch

    def _with_bytes(self, column: pa.StructArray) -> pa.StructArray:
        paths = self._paths(column)
        found = {path: self._read(path) for path in dict.fromkeys(paths) if path is not None}
        own = column.field("bytes")
        values = [found[path] if path is not None else own[row].as_py() for row, path in enumerate(paths)]
        children = [
            pa.array(values, child.type) if child.name == "bytes" else column.field(child.name) for child in column.type
        ]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())

    def _paths(self, column: pa.StructArray) -> list[str | None]:
        """The path of each row whose bytes are a file."""
        modes, paths = column.field("mode").to_pylist(), column.field("path").to_pylist()
        there = column.is_valid().to_pylist()
        return [path if here and mode == "path" else None for mode, path, here in zip(modes, paths, there, strict=True)]

    def _size(self, path: str) -> int:
        if path not in self._sizes:
            self._sizes[path] = self._store.head(self._place(path)).size_bytes
        return self._sizes[path]

    def _read(self, path: str) -> bytes:
        [data] = self._store.get_ranges(self._place(path), [(0, self._size(path))])
        return bytes(data)

    def _place(self, path: str) -> str:
        if "/" in path or "\\" in path or "\0" in path or path in ("", ".", ".."):
            raise BadReference("not the name of a video of this cache", file=self._path, found=repr(path)[:200])
        place = f"{self._folder}/{path}"
        self._roots.check(place)
        return place


def has_assets(schema: pa.Schema) -> bool:
    """Whether a column may have its bytes in files of their own."""
    return any(map(_is_video, schema))


def refuse_nested(schema: pa.Schema) -> None:
    """Raise UsageError, with the column, if videos inside lists or structs have their bytes in files of their own."""
    for field in schema:
        feature = feature_of(field)
        if not isinstance(feature, Video) and keeps_files(feature):
            raise UsageError(
                "files of videos inside lists and structs are not read", column=field.name, expected="a column of them",
                found=str(feature), advice="Leave out load_assets: the paths are names in " + _FOLDER + ".",
            )  # fmt: skip


def _is_video(field: pa.Field) -> bool:
    told = (field.metadata or {}).get(STABLE_KEY) == b"Video"
    return told and bool(pa.types.is_struct(field.type)) and {child.name for child in field.type} >= _NEEDED
