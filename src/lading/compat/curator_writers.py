"""Writers of interleaved documents as stages of NeMo Curator's pipelines, with its names.

Source: nemo-curator 1.4.0, stages/interleaved/io/writers, utils/file_utils.py and utils/hash_utils.py.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.align import align_table
from lading._core.arrow.rebatch import joined
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import present
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.items import LINEAGE_KEY, MEANT_NULLS_KEY, lineage_of
from lading._core.formats.registry import get_format
from lading._core.interleaved.references import Follower
from lading._core.interleaved.rows import followed
from lading._core.manifest.commit import check_destination
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.fetch import fetched_parts
from lading._core.storage.base import native_path, store_errors
from lading._core.storage.fetch import Fetcher, write_errors
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import is_local, named_folder, resolve
from lading.compat.curator_readers import without_references
from lading.compat.curator_schema import target_schema, warn_of_both
from lading.compat.curator_stages import FileGroupTask, InterleavedBatch, ProcessingStage, storage_options, stores_of
from lading.errors import BadReference, DestinationExists, MissingField, UsageError, errors_at
from lading.options import OnError

__all__ = ["InterleavedParquetWriterStage", "InterleavedWebdatasetWriterStage"]

Mode: TypeAlias = Literal["ignore", "overwrite", "append", "error"]

_NEEDED = ("sample_id", "position", "modality")
_PART_BYTES = 16 << 20
"""Payload that a writer reads at once."""


@dataclass
class _WriterStage(ProcessingStage[InterleavedBatch, FileGroupTask]):
    """Writes each batch as one file, which appears when it is complete.

    Rows of one document may be anywhere in a batch; the file has them together, in the order of positions. The name of
    the file is made of `source_files` and the task's id, so that a task that runs again replaces its own file.

    Example:
        with InterleavedParquetWriter("curated", on_materialize_error="drop_sample") as writer:
            for batch in InterleavedWebdatasetReader("mint").batches():
                writer.write_batch(batch)

    Attributes:
        path: folder of the files, a path or URL.
        file_extension: extension of the files.
        write_kwargs: `{"storage_options": {…}}`, as fsspec takes them; and options of the format.
        materialize_on_write: read the bytes of images from where `source_ref` says. False leaves them there.
        name: name of the stage.
        mode: of the folder, when the stage is made: `ignore` adds files, `overwrite` deletes a folder of shards and
            refuses one with other files, `error` refuses one that exists. `append` is refused, as the peer's writers
            do.
        append_mode_implemented: whether `append` is taken, as `ignore`.
        on_materialize_error: for rows with an error, of an upstream stage or of the fetch: `error`, `warn`, `drop_row`
            or `drop_sample`.
        schema: columns of all rows: missing columns are nulls, others are dropped.
        schema_overrides: types of some columns; all others are kept. With `schema`, a warning; `schema` holds.
        roots: folders that `source_ref` may point into, besides those of `source_files`.
    """

    path: str
    file_extension: str
    write_kwargs: dict[str, Any] = field(default_factory=dict)
    materialize_on_write: bool = True
    name: str = "base_interleaved_writer"
    mode: Mode = "ignore"
    append_mode_implemented: bool = False
    on_materialize_error: OnError = "error"
    schema: pa.Schema | None = None
    schema_overrides: dict[str, pa.DataType] | None = None
    roots: Sequence[str | os.PathLike[str]] = field(default=(), kw_only=True)
    _format: ClassVar[str] = ""
    _write_options: ClassVar[Mapping[str, str]] = {}
    """Options of the format, by their names in `write_kwargs`."""

    def __post_init__(self) -> None:
        self.path, known = named_folder(os.fspath(self.path)), get_args(OnError)
        # Workers of a pipeline may have another current directory.
        self._folder = self.path if "://" in self.path else os.path.abspath(self.path)
        if self.on_materialize_error not in known:
            raise UsageError("no such policy", expected=f"on_materialize_error={' or '.join(known)}",
                             found=repr(self.on_materialize_error))  # fmt: skip
        if not f".{self.file_extension}".endswith(get_format(self._format).info.extensions):
            endings = ", ".join(ending[1:] for ending in get_format(self._format).info.extensions)
            raise UsageError("no such file_extension", expected=endings, found=repr(self.file_extension))
        warn_of_both(self.schema, self.schema_overrides)
        self.storage_options = storage_options(self.write_kwargs, "write_kwargs", [*self._write_options])
        self._options = {own: self.write_kwargs[n] for n, own in self._write_options.items() if n in self.write_kwargs}
        if "compression" in self._options:
            self._options["compression"] = self._options["compression"] or "none"
        get_format(self._format).write_options(self._options)
        self._names: set[str] = set()
        self._begin()

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return what a task needs."""
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return what a task has then."""
        return ["data"], []

    def _begin(self) -> None:
        """Make the folder ready, as `mode` says."""
        mode = str(self.mode).strip().lower()
        if mode not in get_args(Mode):
            raise UsageError("no such mode", expected="mode=ignore or overwrite or error", found=repr(self.mode))
        if mode == "append" and not self.append_mode_implemented:
            raise UsageError("files are never appended to", found='mode="append"',
                             advice='mode="ignore" adds files to the folder.')  # fmt: skip
        store, folder = resolve(self._folder, stores_of([self._folder], self.storage_options))
        local = is_local(store)
        exists = os.path.lexists(native_path(folder)) if local else next(iter(store.walk(folder)), None) is not None
        if exists and mode == "error":
            raise DestinationExists("the folder exists", file=self.path, found='mode="error"',
                                    advice='mode="overwrite" deletes it, mode="ignore" adds files.')  # fmt: skip
        if exists and mode == "overwrite":
            check_destination(store, folder, overwrite=True)
            store.delete(folder)
        if local:
            with store_errors(folder):
                os.makedirs(native_path(folder), exist_ok=True)

    def process(self, task: InterleavedBatch) -> FileGroupTask:
        """Write the rows of a batch as one file; return its name.

        References are followed into the folders of `source_files`, and below `roots`.

        Example: `InterleavedParquetWriter("curated").process(batch)`

        Raises:
            BadReference: a row has an error, under `on_materialize_error="error"`. It is a RuntimeError.
            Unrepresentable: a modality that the format does not have. It is a ValueError.
        """
        return self._written(task, task.task_id)

    def write_batch(self, rows: Any) -> FileGroupTask:
        """Write rows as one file; return its name. Every call writes a file of its own.

        Example: `writer.write_batch(batch)`

        Args:
            rows: an `InterleavedBatch`, a table or record batch of Arrow, or a DataFrame of pandas. The files of rows
                of Arrow are `lading.source_files` in the schema's metadata.

        Raises:
            BadReference: as `process`.
            Unrepresentable: as `process`.
            MissingField: the rows lack `sample_id`, `position` or `modality`. It is a KeyError.
        """
        task = rows if isinstance(rows, InterleavedBatch) else _task_of(rows, materialize=self.materialize_on_write)
        sources = task._metadata.get("source_files") or []  # noqa: SLF001 - the peer's field
        seeds = (f"{task.task_id}{number or ''}" for number in range(len(self._names) + 1))
        return self._written(task, next(seed for seed in seeds if _hash(sources, seed) not in self._names))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: every file is complete."""

    def _written(self, task: InterleavedBatch, seed: str) -> FileGroupTask:
        told = task._metadata  # noqa: SLF001 - the peer's field
        sources = list(told.get("source_files") or ())
        name = _hash(sources, seed) if sources else uuid.uuid4().hex
        self._names.add(name)
        file = f"{self._folder}/{name}.{self.file_extension}"
        self._write(task.to_pyarrow(), sources, told.get("source_storage_options") or self.storage_options, file)
        return FileGroupTask(
            dataset_name=task.dataset_name, data=[file], _metadata={**told, "format": self.file_extension},
            _stage_perf=task._stage_perf,  # noqa: SLF001 - the peer's field
        )  # fmt: skip

    def _write(self, rows: pa.Table, sources: list[str], source_options: Mapping[str, Any], file: str) -> None:
        with errors_at(file=", ".join(sources) or "the rows"):
            batch = _documents(rows, sources)
        target = target_schema(batch.schema, self.schema, self.schema_overrides)
        paths = [source.rpartition("::split_")[0] or source for source in sources]
        roots = [*map(folder_of, paths), *(os.fspath(root) for root in self.roots)]
        stores = stores_of(roots, source_options).and_for(stores_of([self._folder], self.storage_options).by_prefix)
        with Fetcher(stores) as fetcher, DatasetWriter(
            file, format=self._format, view="interleaved", overwrite=True, options=self._options, on_error=None,
            stores=stores,
        ) as writer:  # fmt: skip
            writer.write_batch(target.empty_table())
            for part in self._with_bytes(batch, Follower(stores, lambda: roots), fetcher, paths):
                writer.write_batch(align_table(part, target))
        self._log_metrics({"rows_in": float(batch.num_rows)})

    def _with_bytes(
        self, batch: pa.RecordBatch, follower: Follower, fetcher: Fetcher, paths: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their bytes, without those that the policy drops."""
        parts: Iterable[pa.RecordBatch] = [batch]
        if self.materialize_on_write:
            parts = followed(batch, follower, fetcher, paths[0] if paths else "", _PART_BYTES)
        for part in parts:
            rows = _checked(part, materialized=self.materialize_on_write)
            with _naming_arguments(rows):
                whole = Batch(rows, "interleaved")
                for one in fetched_parts(whole, fetcher, _PART_BYTES, views=True, on_error=self.on_materialize_error):
                    yield one.rows


def _hash(inputs: Sequence[str], seed: str) -> str:
    """Return the peer's name of a file that is made of these."""
    return hashlib.sha256(f"{'|'.join(sorted(inputs))}|{seed}".encode()).hexdigest()[:12]


def _task_of(rows: Any, *, materialize: bool) -> InterleavedBatch:
    """Return rows of Arrow or pandas as a task. References are read: only record batches hold them."""
    if isinstance(rows, pa.RecordBatch):
        if materialize and any(map(is_ref, rows.schema.types)):
            with Fetcher() as fetcher:
                rows = fetcher.materialise(rows, on_error="warn", earlier=False, on_failure=_leave_to_policy)
        rows = pa.table(without_references(rows))
    elif hasattr(rows, "iloc"):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    elif not isinstance(rows, pa.Table):
        raise UsageError("these are not rows of documents", found=type(rows).__name__,
                         expected="an InterleavedBatch, a table or record batch of Arrow, or a DataFrame")  # fmt: skip
    missing = [name for name in _NEEDED if name not in rows.schema.names]
    if missing:
        raise MissingField("rows of documents lack a column", column=missing[0], expected=", ".join(_NEEDED),
                           found=", ".join(rows.schema.names))  # fmt: skip
    sources = lineage_of(rows.schema)
    return InterleavedBatch(dataset_name="", data=rows, _metadata={"source_files": sources} if sources else {})


def _leave_to_policy(_rows: pa.RecordBatch, _errors: dict[int, str], _first: int) -> None:
    """Do nothing: `materialize_error` has the errors."""


def _documents(rows: pa.Table, sources: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of each document together, in the order of positions; documents as their first rows come.

    They have all reserved columns.
    """
    rows = align_table(rows, target_schema(rows.schema, None, None))
    ids = rows["sample_id"].combine_chunks()
    document = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy(zero_copy_only=False)
    order = np.lexsort([rows["position"].to_numpy(), document])
    if not np.array_equal(order, np.arange(len(order))):
        rows = rows.take(pa.array(order))
    told = {key: value for key, value in (rows.schema.metadata or {}).items() if key == MEANT_NULLS_KEY}
    rows = rows.replace_schema_metadata({**told, LINEAGE_KEY: orjson.dumps(list(sources))})
    return joined(rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)])


def _checked(batch: pa.RecordBatch, *, materialized: bool) -> pa.RecordBatch:
    """Return the rows with an error for each image that has neither bytes nor a source; all other nulls are meant."""
    told = batch.schema.metadata or {}
    if materialized and MEANT_NULLS_KEY not in told:
        image = np.asarray(pc.equal(batch["modality"], "image").to_numpy(zero_copy_only=False), np.bool_)
        missing = np.flatnonzero(image & ~present(batch["binary_content"])).tolist()
        batch = write_errors(batch, dict.fromkeys(missing, "the item has no bytes, and names no source"))
    return batch.replace_schema_metadata({**told, MEANT_NULLS_KEY: b""})


@contextmanager
def _naming_arguments(rows: pa.RecordBatch) -> Iterator[None]:
    """Let errors of rows without bytes name the sample, and the arguments of the writers."""
    try:
        yield
    except BadReference as error:
        if error.row is not None:
            error.at(sample=rows["sample_id"][error.row].as_py())
            error.row = None  # it counts the sorted rows
        error.advice = (
            "If the payload is in another folder, name the folder with roots=. Or choose what happens to such rows: "
            "on_materialize_error='warn', 'drop_row' or 'drop_sample'."
        )
        raise


@dataclass
class InterleavedParquetWriterStage(_WriterStage):
    """Writes batches of items as Parquet files.

    `write_kwargs` take `compression`, `compression_level` and `row_group_size` (rows) too.
    """

    __doc__ += (_WriterStage.__doc__ or "").partition("\n")[2]
    file_extension: str = "parquet"
    name: str = "interleaved_parquet_writer"
    _format: ClassVar[str] = "parquet"
    _write_options: ClassVar[Mapping[str, str]] = {
        "compression": "compression", "compression_level": "compression_level", "row_group_size": "row_group_rows",
    }  # fmt: skip


@dataclass
class InterleavedWebdatasetWriterStage(_WriterStage):
    """Writes batches of items as MINT-1T style tars. Only the modalities `metadata`, `text` and `image` fit.

    Keys of members are the quoted `sample_id`. Read them back with `sample_id_field="sample_id"`.
    """

    __doc__ += (_WriterStage.__doc__ or "").partition("\n")[2]
    file_extension: str = "tar"
    name: str = "interleaved_webdataset_writer"
    _format: ClassVar[str] = "webdataset"
