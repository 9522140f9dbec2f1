"""Read a slice of a folder's files as samples. See `_core.formats.files.format`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import FileEntry, RefType, with_files
from lading._core.features.items import KEY, split_rows
from lading._core.features.types import Audio, ClassLabel, Feature, Image, Video, tag_by_extension, with_feature
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFile, ShardReader
from lading._core.formats.files.listing import LABEL, ListingSlice
from lading._core.formats.files.metadata import Metadata, read_metadata
from lading._core.storage.zip_store import ranges_of_files
from lading.errors import DuplicateField, UsageError, errors_at

__all__ = ["FilesReader", "ReadOptions"]

_KINDS: dict[str, Feature] = {"image": Image(), "audio": Audio(), "video": Video()}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How loose files are read.

    Attributes:
        labels: Give the name of each file's folder as the column `label`: `folders`, `none`, or `auto`, which does so
            where files are media of one kind in several folders of one depth, without sidecars, as Hugging Face's
            `imagefolder` does.
        metadata: `join` the columns of `metadata.csv`, `metadata.jsonl` or `metadata.parquet` by `file_name`, or
            `ignore` them.
    """

    labels: Literal["auto", "folders", "none"] = "auto"
    metadata: Literal["join", "ignore"] = "join"

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        for name, value, known in (
            ("labels", self.labels, ("auto", "folders", "none")),
            ("metadata", self.metadata, ("join", "ignore")),
        ):
            if value not in known:
                raise UsageError("no such option", expected=", ".join(known), found=f"{name}={value!r}")


class FilesReader(ShardReader):
    """An open slice of a folder."""

    def __init__(self, source: ShardFile, options: ReadOptions) -> None:
        self._source, self._options, self._entry = source, options, ListingSlice.of(source.entry)
        entry = self._entry
        self._sample, self._field = np.array(entry.sample, np.int64), np.array(entry.field, np.int64)
        self._size = np.array(entry.sizes, np.int64)

    @cached_property
    def _labels(self) -> Sequence[str]:
        """Names of labels; empty if there are none."""
        choice = self._options.labels
        return {"auto": self._entry.labels, "folders": self._entry.folders, "none": ()}[choice]

    @cached_property
    def _metadata(self) -> Metadata | None:
        tables = tuple((path, size, version) for path, size, version in self._entry.metadata)
        if not tables or self._options.metadata == "ignore":
            return None
        store: Any = self._source.store  # a protocol says nothing of hashes
        return read_metadata(store, tables, self._source.limits)

    @cached_property
    def _schema(self) -> pa.Schema:
        entry = self._entry
        fields = [pa.field(KEY, pa.string())]
        for name in entry.columns:
            own = pa.field(name, RefType(), metadata=tag_by_extension(name) or None)
            fields.append(with_feature(own, _KINDS[name]) if name == entry.media else own)
        if self._labels:
            fields.append(with_feature(pa.field(LABEL, pa.int64()), ClassLabel(self._labels)))
        if self._metadata is not None:
            fields += list(self._metadata.columns.schema)
        names = [field.name for field in fields]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise DuplicateField("a column of the metadata, or the label, has the name of another column",
                                     file=entry.root, column=name,
                                     advice="Try --option metadata=ignore or --option labels=none.")  # fmt: skip
        return pa.schema(fields)

    def schema(self) -> pa.Schema:
        """Return `__key__`, a reference column a field, the label, and the columns of the metadata.

        All slices of a folder have the same columns.
        """
        return self._schema

    def num_rows(self) -> int:
        """Return the number of samples."""
        return len(self._entry.keys)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return samples by ordinal, in the given order, as references."""
        return pa.Table.from_batches([self._rows(np.arange(self.num_rows()) if rows is None else rows, scan.columns)])

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all samples in order, as references; no file is opened."""
        sizes = np.bincount(self._sample, self._size, minlength=self.num_rows()).astype(np.int64)
        bounds = split_rows(np.arange(len(sizes)), sizes, max_bytes=scan.max_bytes, max_rows=scan.max_rows)
        for first, stop in pairwise(bounds.tolist()):
            yield self._rows(np.arange(first, stop), scan.columns)

    def _rows(self, rows: NDArray[np.int64], columns: Sequence[str] | None) -> pa.RecordBatch:
        """Return samples by ordinal."""
        entry, schema = self._entry, self._schema
        wanted = [field for field in schema if columns is None or field.name in columns]
        cells = np.full((self.num_rows(), len(entry.columns)), -1)
        cells[self._sample, self._field] = np.arange(len(self._sample))
        cells = cells[rows]
        names = {name: at for at, name in enumerate(entry.columns)}
        asked = [names[field.name] for field in wanted if field.name in names]
        used, which = np.unique(cells[:, asked], return_inverse=True)
        which = which.reshape(len(rows), len(asked))
        empty = int(bool(len(used)) and used[0] < 0)  # −1 is no file
        files = [FileEntry(f"{entry.root}{entry.names[at]}", "", entry.sizes[at], entry.versions[at])
                 for at in used[empty:].tolist()]  # fmt: skip
        places = ranges_of_files(self._source.store, files)
        arrays = []
        for field in wanted:
            if field.name == KEY:
                arrays.append(pa.array([entry.keys[at] for at in rows.tolist()], pa.string()))
            elif field.name in names:
                at = cells[:, names[field.name]]
                place = which[:, asked.index(names[field.name])] - empty
                arrays.append(places.refs(np.where(at >= 0, place, -1)))
            elif field.name == LABEL and self._labels:
                arrays.append(self._label_column(cells))
            else:
                arrays.append(self._more(rows).column(field.name).combine_chunks())
        shown = pa.schema(wanted) if not files else with_files(pa.schema(wanted), places.files)
        if not arrays:
            return pa.record_batch([pa.nulls(len(rows))], ["none"]).select([])
        return pa.RecordBatch.from_arrays(arrays, schema=shown)

    def _label_column(self, cells: NDArray[np.int64]) -> pa.Array:
        """Return the number of the folder of each sample; null in the folder itself."""
        number = {name: at for at, name in enumerate(self._labels)}
        firsts = cells.max(axis=1).tolist()
        folders = [os.path.basename(os.path.dirname(self._entry.names[at])) for at in firsts]
        return pa.array([number.get(folder) for folder in folders], pa.int64())

    def _more(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return the columns of the metadata."""
        assert self._metadata is not None, "such columns are asked for"
        groups: list[list[str]] = [[] for _ in self._entry.keys]
        for sample, name in zip(self._entry.sample, self._entry.names, strict=True):
            groups[sample].append(f"{self._entry.root}{name}")
        with errors_at(file=self._entry.root):
            return self._metadata.of([groups[row] for row in rows.tolist()])
