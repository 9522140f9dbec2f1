"""Write samples as loose files: a file a field, named by the sample's key."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import orjson
import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes, is_text, plain_type, slices
from lading._core.content.media_info import media_info
from lading._core.content.media_lists import naming_lists, refuse_taken_names, with_items
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable
from lading._core.dataset.source.source import is_hidden
from lading._core.features.items import KEY, split_rows
from lading._core.features.natural import has_items
from lading._core.features.row_layout import row_layout
from lading._core.features.types import (
    Feature,
    Text,
    decode,
    feature_of,
    feature_of_extension,
    with_feature,
)
from lading._core.formats.base import Members, ShardFile
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.convert import convert
from lading._core.jobs.convert.schemas import refuse_inside
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.manifest.commit import Staging, check_destination, find_destination
from lading._core.manifest.replaced import EXPORT_MARK
from lading._core.result_text import ResultText
from lading._core.storage.base import Store, native_path, store_errors, write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import is_local, resolve
from lading.errors import Unrepresentable, errors_at
from lading.options import OpeningOptions

__all__ = ["ExportSummary", "export"]

_ROWS, _BYTES = 256, 64 << 20
_COPIED_BYTES = 8 << 20
_NAME_BYTES = 255
_EXTENSIONS = {"jpeg": "jpg", "tiff": "tif"}
"""Usual extensions of formats that go by another name."""
_NAMES_OF_COLUMNS = {"image", "img", "text", "id", "index", "inx"}
"""Names that are extensions to webdataset, and names of columns to everybody else."""
_NUMBER = "Or number the samples: --drop-columns __key__."


@dataclass(frozen=True, slots=True)
class ExportSummary(ResultText):
    """What an export wrote.

    Attributes:
        samples: number of samples.
        files: number of files.
        size_bytes: bytes of the files.
        seconds: wall-clock time.
        counts: number of rows that were dropped, renamed …, by a short phrase.
    """

    samples: int
    files: int
    size_bytes: int
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)


@public("ds.export")
def export(
    source: Queryable,
    destination: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> ExportSummary:
    """Write samples as loose files; see `Dataset.export`. `opening` are the other arguments of `lading.open`."""
    began = time.perf_counter()
    dataset = opened(source, **opening)
    stores = dataset.query.stores
    store, path = find_destination(destination, stores)
    check_destination(store, path, overwrite=overwrite)
    with dataset.query.open_shards() as shards:
        refuse_inside(shards, destination, stores)
    staging = Staging.begin(store, path, shared=False)
    try:
        folder = _Folder(store, staging.folder)
        put = _put_documents if row_layout(dataset.view).has_items else _put_samples
        with shown_progress("exporting", on_progress, progress=progress) as report:
            samples = put(dataset, folder, staging, report)
        write_file(store, staging.path(EXPORT_MARK), [orjson.dumps({"files": folder.files})])
        staging.commit(overwrite=overwrite)
    except BaseException:
        staging.drop()
        raise
    counts = Counter(dataset.counts) + folder.counts
    return ExportSummary(samples, folder.files, folder.size_bytes, time.perf_counter() - began, dict(counts))


class _Folder:
    """A folder that files are written into: nothing outside, and no file twice."""

    def __init__(self, store: Store, root: str) -> None:
        self._store, self._root, self._local = store, root, is_local(store)
        self._made: set[str] = set()
        self._written: set[str] = set()
        self.files = self.size_bytes = 0
        self.counts: Counter[str] = Counter()

    def put(self, name: str, parts: Sequence[Any]) -> None:
        """Write a file. Raises Unrepresentable for a name that is unsafe or taken."""
        _check_name(name)
        place = f"{self._root}/{name}"
        self.files += 1
        self.size_bytes += sum(map(len, parts))
        if not self._local:
            if name in self._written:
                raise _taken(name)
            self._written.add(name)
            write_file(self._store, place, parts)
            return
        with store_errors(name):
            try:
                folder = os.path.dirname(native_path(place))
                if folder not in self._made:
                    os.makedirs(folder, exist_ok=True)
                    self._made.add(folder)
                with open(native_path(place), "xb", buffering=0) as file:
                    for part in parts:
                        left = memoryview(part).cast("B")
                        while len(left):
                            left = left[file.write(left) or 0 :]
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise _taken(name) from None


def _check_name(name: str) -> None:
    parts = name.split("/")
    problem = None
    if not {"", ".", ".."}.isdisjoint(parts):
        problem = "the name of a file leads elsewhere"
    elif "\0" in name or "\\" in name:
        problem = "the name of a file has a character that it may not have"
    elif is_hidden(parts):
        problem = "the name of a file would be hidden"
    elif max(len(part.encode("utf-8", "surrogatepass")) for part in parts) > _NAME_BYTES:
        problem = f"the name of a file is longer than {_NAME_BYTES} bytes"
    if problem is not None:
        raise Unrepresentable(problem, found=repr(name)[:80], advice=f"Rename the key or the column. {_NUMBER}")


def _taken(name: str) -> Unrepresentable:
    return Unrepresentable(
        "two files have one name, or one is the folder of the other", found=repr(name)[:80],
        advice=f"Keys must differ, on some disks not in case alone. {_NUMBER}",
    )  # fmt: skip


# Samples


def _put_samples(dataset: OpenDataset, folder: _Folder, _staging: Staging, on_progress: OnProgress | None) -> int:
    done = payload = 0
    for rows in dataset.batches(max_rows=_ROWS, max_bytes=_BYTES, views=True):
        refuse_taken_names(rows.schema)
        batch, lists = with_items(rows), any(has_items(field.type) for field in rows.schema)
        named = batch.column(KEY).to_pylist() if KEY in batch.schema.names else [None] * batch.num_rows
        keys = [f"{done + row:09d}" if key is None else str(key) for row, key in enumerate(named)]
        columns = _columns(batch, lists=lists)
        more = f"{'columns.' if 'json' in batch.schema.names else ''}json"
        texts = _json_texts(batch, [*columns, KEY])
        for row, key in enumerate(keys):
            with errors_at(sample=key), naming_lists(rows.schema):
                before = folder.files
                if "." in key.rpartition("/")[2]:
                    folder.counts["keys with dots: read back, they end at their first dot"] += 1
                for name, files in columns.items():
                    for field_name, data in files(row):
                        with errors_at(column=name):
                            _check_field(field_name)
                            folder.put(f"{key}.{field_name}", [data])
                if texts is not None:
                    folder.put(f"{key}.{more}", [texts[row]])
                elif folder.files == before:
                    folder.put(f"{key}.json", [b"{}"])
        done, payload = done + batch.num_rows, folder.size_bytes
        if on_progress is not None:
            on_progress(Progress(0, len(dataset.shards.listing), done, payload))
    return done


def _check_field(name: str) -> None:
    if "/" in name or not name:
        raise Unrepresentable("the name of a column is no extension of a file", found=repr(name)[:80],
                              advice="Give it another name with --rename.")  # fmt: skip


def _columns(batch: pa.RecordBatch, *, lists: bool) -> dict[str, Callable[[int], Iterator[tuple[str, Any]]]]:
    """Return, by column, functions that give the extension and the bytes of a row's file; none for a null.

    Args:
        batch: the rows, with a column a member of each list.
        lists: whether there are lists, perhaps without an item in these rows.
    """
    fields = [field for field in batch.schema if field.name != KEY and _is_file(field)]
    media = [field.name for field in fields if _is_named_by_header(field)]
    named = [feature_of_extension(field.name) for field in fields if field.name not in media]
    others = lists or any(each is not None and each.is_media for each in named)
    alone = len(media) == 1 and not others
    made: dict[str, Callable[[int], Iterator[tuple[str, Any]]]] = {}
    for each in fields:
        values = _bytes_of(batch.column(each.name), feature_of(each))
        made[each.name] = _files(each.name, values, by_header=each.name in media, alone=alone)
    return made


def _files(
    name: str, values: Sequence[Any], *, by_header: bool, alone: bool
) -> Callable[[int], Iterator[tuple[str, Any]]]:
    def of_row(row: int) -> Iterator[tuple[str, Any]]:
        data = values[row]
        if data is None:
            return
        info = media_info(data) if by_header else None
        if info is None:
            yield name, data
            return
        ending = _EXTENSIONS.get(info.format, info.format)
        yield (ending if alone else f"{name}.{ending}"), data

    return of_row


def _is_file(field: pa.Field) -> bool:
    """Whether values are files of their own: bytes, media, and text or JSON under the name of an extension."""
    kind, feature = plain_type(field.type), feature_of(field)
    if feature.is_media:
        return is_ref(kind) or is_bytes(kind) or (pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)
    if is_ref(kind) or is_bytes(kind):
        return True
    known = feature_of_extension(field.name) if field.name not in _NAMES_OF_COLUMNS else None
    if is_text(kind) or isinstance(kind, pa.JsonType):
        return known is not None and (known.is_text or known.is_json)
    return field.name == "cls" and bool(pa.types.is_integer(kind))


def _is_named_by_header(field: pa.Field) -> bool:
    own = field.name not in _NAMES_OF_COLUMNS and feature_of_extension(field.name) is not None
    return feature_of(field).is_media and not own


def _bytes_of(column: pa.Array, feature: Feature) -> Sequence[Any]:
    """Return the bytes of each value; None where null."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_bytes(column.type):
        return slices(column)
    if pa.types.is_integer(column.type):
        return [None if value is None else b"%d" % value for value in column.to_pylist()]
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_struct(column.type):
        return [decode(feature, value) for value in column.to_pylist()]
    return [None if value is None else value.encode() for value in column.to_pylist()]


def _json_texts(batch: pa.RecordBatch, without: Sequence[str]) -> list[bytes] | None:
    """Return the JSON object of the other columns of each row; None if there are no such columns."""
    rest = batch.drop_columns([name for name in batch.schema.names if name in without])
    if not rest.num_columns:
        return None
    rest = _with_label_names(rest.replace_schema_metadata())
    fmt, store = get_format("jsonl"), MemoryStore()
    sink = store.put_stream("memory://rows.jsonl")
    with errors_at(file=None):
        try:
            writer = fmt.create([sink], rest.schema, fmt.write_options({}))
            writer.write(rest)
        except Unrepresentable as error:
            error.file, error.row = None, None
            error.advice = f"Leave the column out: --drop-columns {error.column}."
            raise
    writer.close()
    size = sink.close().size_bytes
    [data] = store.get_ranges("memory://rows.jsonl", [(0, size)])
    return bytes(data).splitlines()


def _with_label_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with labels as their names, where all have one."""
    for at, each in enumerate(batch.schema):
        feature = feature_of(each)
        if feature.labels is None:
            continue
        numbers = batch.column(at).to_pylist()
        if all(number is None or 0 <= number < len(feature.labels) for number in numbers):
            names = [None if number is None else feature.labels[number] for number in numbers]
            batch = batch.set_column(at, with_feature(pa.field(each.name, pa.string()), Text()), pa.array(names))
    return batch


# Documents


def _put_documents(dataset: OpenDataset, folder: _Folder, staging: Staging, on_progress: OnProgress | None) -> int:
    """Write documents as the members of an interleaved tar, which is written first, and removed in the end."""
    place = staging.path(".lading-tars")
    done = convert(dataset, place, format="webdataset", on_progress=on_progress)
    stores = dataset.query.stores
    store, inside = resolve(place, stores)
    fmt = get_format("webdataset")
    for info in store.walk(inside):
        if info.path.endswith(".tar"):
            with closing(fmt.open(ShardFile(store, info.path, info), fmt.read_options({"mmap": False}))) as reader:
                assert reader.member_reader is not None, "a tar has members"
                for members in reader.member_reader.members():
                    _copy(folder, store, info.path, members)
    store.delete(inside)
    return done.samples


def _copy(folder: _Folder, store: Store, tar: str, members: Members) -> None:
    names, sizes = members.name.to_pylist(), members.length
    bounds = split_rows(np.arange(len(names)), sizes, max_bytes=_COPIED_BYTES).tolist()
    for first, stop in pairwise(bounds):
        ranges = list(zip(members.offset[first:stop].tolist(), sizes[first:stop].tolist(), strict=True))
        for name, data in zip(names[first:stop], store.get_ranges(tar, ranges), strict=True):
            folder.put(name, [data])
