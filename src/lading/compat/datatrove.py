"""Steps of a pipeline of datatrove: readers and writers of datasets in any format, and of media archives.

Each step is called as `step(data, rank, world_size)`, so it stands in a pipeline of datatrove's executors, next to
datatrove's own steps. Media archives are those of `_core.media`, and the same bytes as datatrove's.

    pipeline = [LadingReader("mint/*.tar"), filter, LadingWriter("filtered", format="parquet", view="interleaved")]
    pipeline = [JsonlReader("documents/"), ZstdReader("media/", workers=4), filter, ZstdWriter("filtered/")]

Source: datatrove 0.10.1, `pipeline/base.py`, `pipeline/media`, `io.py`, `utils/stats.py`, `data.py`.
"""

from __future__ import annotations

import inspect
import io
import os
import random
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from glob import has_magic
from importlib import import_module
from itertools import islice
from numbers import Integral
from string import Template
from types import MethodType
from typing import IO, Any, ClassVar, Final, Self, TypeAlias, Unpack

import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem

from lading._core.api.dataset import Dataset
from lading._core.arguments import public, unknown_arguments
from lading._core.arrow.rows import Encoders, rows_to_batch
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.query import Query
from lading._core.dataset.shards.iteration import Batching
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.source import Source
from lading._core.dataset.steps.base import Step
from lading._core.dataset.values.python_values import samples_as_dicts
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.items import INTERLEAVED_SCHEMA, lineage_of
from lading._core.features.row_layout import row_layout
from lading._core.media.ahead import Pace, map_ahead
from lading._core.media.documents import Location, get, media_of, put, put_location
from lading._core.media.files import Names
from lading._core.media.reader import MediaReader, RecordReader
from lading._core.media.warc import WarcReader
from lading._core.media.writer import RecordPacker, check_level
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.stores import Stores
from lading._core.units import parse_peer_bytes
from lading.compat.documents import (
    document_of_items,
    document_of_row,
    items_of_document,
    media_types,
    row_of_document,
)
from lading.compat.output_files import OutputFile, OutputFiles
from lading.errors import LadingError, UsageError, missing_extra
from lading.options import OpeningOptions

__all__ = [
    "BaseMediaWriter",
    "BinaryReaderThreaded",
    "DataFolderLike",
    "Document",
    "LadingReader",
    "LadingWriter",
    "LimitedReader",
    "Media",
    "Metric",
    "PipelineStep",
    "Stats",
    "WarcReaderFast",
    "ZstdReader",
    "ZstdWriter",
]

DataFolderLike: TypeAlias = Any
"""A path or URL; a pair of one and fsspec options; a pair of one and a file system; or a `DataFolder` of datatrove."""

_LOCAL = frozenset(("file", "local"))
_PAIR = 2
_BATCH_ROWS, _BATCH_BYTES = 1000, 16 << 20
"""Samples that are read at once, and items that are written at once."""


@dataclass(slots=True)
class Media:
    """One image, video or sound of a document, and the place of its bytes."""

    id: str
    type: int
    url: str
    alt: str | None = None
    path: str | None = None
    offset: int | None = None
    length: int | None = None
    media_bytes: bytes | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Document:
    """A text with its media. Steps take these, datatrove's documents, and mappings with the same keys."""

    text: str
    id: str
    media: list[Media] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Metric:
    """Sum, number and mean of the values of one statistic."""

    total: float = 0
    n: int = 0
    unit: str = "doc"

    @property
    def mean(self) -> float:
        """Return the mean value; 0 if there is none."""
        return self.total / self.n if self.n else 0.0

    def update(self, value: float, unit: str | None = None) -> None:
        """Add a value."""
        self.total += value
        self.n += 1
        self.unit = unit or self.unit


class _Timing(Metric):
    """Seconds spent in a `with`."""

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.update(time.perf_counter() - self._started)


class Stats:
    """Statistics of a step where datatrove is not installed. With datatrove, steps have its `Stats`.

    Example:
        writer.stats["total"].total  # media written

    Attributes:
        name: name of the step.
        stats: a `Metric` for each label.
        time_stats: seconds of work.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.time_stats = _Timing()
        self.stats: dict[str, Metric] = defaultdict(Metric)

    def __getitem__(self, label: str) -> Metric:
        return self.stats[label]

    def __repr__(self) -> str:
        return f"{self.name}: {dict(self.stats)}"


def _new_stats(name: str) -> Any:
    """Return the statistics of a step: datatrove's executors add only instances of their own class."""
    peer = _peer("utils.stats")
    return Stats(name) if peer is None else peer.Stats(name)


def _peer(name: str) -> Any:
    """Return a module of datatrove; None where datatrove is not installed. Raises MissingExtra if it is broken."""
    try:
        import_module("datatrove")
        return import_module(f"datatrove.{name}")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "datatrove":
            return None
        raise missing_extra(error, "this step is one of datatrove", "datatrove", "") from error


class PipelineStep(ABC):
    """Base of all steps: a name, a type, statistics, and `step(data, rank, world_size)`.

    A step that does not run can be copied and pickled, as executors do for each task.
    """

    name: ClassVar[str] = ""
    type: ClassVar[str] = ""

    def __init__(self) -> None:
        self.stats = _new_stats(repr(self))
        self._engine: Any = None

    @abstractmethod
    def run(self, data: Iterable[Any] | None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of `data` when they are processed."""

    def __call__(self, data: Iterable[Any] | None = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Return what `run` returns."""
        return self.run(data, rank, world_size)

    def stat_update(self, *labels: str, value: float = 1, unit: str | None = None) -> None:
        """Add a value to the statistics of these labels."""
        for label in labels:
            self.stats[label].update(value, unit)

    def update_media_stats(self, media: Any) -> None:
        """Add the bytes of a media to `media_size`."""
        self.stat_update("media_size", value=len(get(media, "media_bytes") or b""), unit="bytes")

    def update_doc_stats(self, document: Any) -> None:
        """Add the length of a document to `doc_len`, and its `token_count`, if its metadata have one."""
        self.stat_update("doc_len", value=len(get(document, "text")))
        tokens = get(document, "metadata").get("token_count")
        if tokens:
            self.stat_update("doc_len_tokens", value=tokens)

    def track_time(self) -> Any:
        """Return a context that adds its duration to `stats.time_stats`."""
        return self.stats.time_stats

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}

    def __repr__(self) -> str:
        return f"{self.type}: {self.name}"


_NOT_OF_READERS: Final = {
    "data_folder": "Give it first, as the source.",
    "compression": "Leave it out: the bytes of a file tell its compression.",
    "batch_size": "Leave it out: batches have 16 MB.",
    "read_metadata": "Choose columns: LadingReader(lading.open(…).select('text', 'id')).",
    "streaming": "Leave it out: samples are read when they are asked for.",
    "dataset": "Give the dataset of Hugging Face's hub first, as 'hf://datasets/NAME'.",
}
"""Arguments of datatrove's readers that shards need not, and their alternative."""


@public("LadingReader", _NOT_OF_READERS)
class LadingReader(PipelineStep):
    """Read samples of any format as documents: the first step of a pipeline, or behind another reader.

    A task reads every `world_size`-th shard, as readers of datatrove read files. Columns and rows that the steps of a
    dataset leave out are not read.

    Example:
        LadingReader("s3://bucket/mint", glob_pattern="*.tar", limit=100)
        LadingReader(lading.open("mint/*.tar").where("json.lang == 'en'"), text_key="txt")

    The text and the id of a document are columns of the sample. Its columns of bytes are media, whose ids are the names
    of the columns; all other columns are metadata. A column `metadata` of objects and a column `media` of lists, as
    datatrove writes them, are those of the document. Of an interleaved sample, the text is that of all its texts with
    an empty line between them, and the items with bytes are media, in order: datatrove's documents have no places of
    texts between media. Documents without text are kept.

    Args:
        source: as `lading.open` takes it, a `DataFolderLike`, or a dataset. Its steps must not count or order samples.
        by_place: refused: arguments after the source are given by name.
        text_key: column with the text. If a chosen column is missing, a warning.
        id_key: column with the id. By default the key of a sample is the id of documents without such a column, and
            else its file, below the source if that is a folder, and its number.
        limit: documents that a task reads at most; −1: all.
        skip: documents at the beginning of each task that are left out.
        adapter: function `(self, data, path, id_in_file)` that returns the fields of a document (`text`, `id`, `media`,
            `metadata`) for a sample, as of datatrove's readers. It may call `self._default_adapter`.
        default_metadata: metadata of documents that lack these keys.
        glob_pattern: pattern of the files below the folder `source`.
        paths_file: file with a path of a shard below the folder `source` on each line.
        recursive: read the folders below too. False is refused: `glob_pattern` says which files are read.
        shuffle_files: read the shards of a task in random order.
        file_progress: show a progress bar of shards.
        doc_progress: show a progress bar of documents.
        add_file_path: put the path of the shard into the metadata, as `file_path`, if there is none.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: a step of the dataset needs all samples; or an argument is wrong, or has no meaning here.
        MissingExtra: a progress bar without tqdm.

    Source: datatrove 0.10.1, `pipeline/readers/base.py` (`BaseDiskReader`): names, meanings and defaults.
    """

    name: ClassVar[str] = "🚢 Lading"
    type: ClassVar[str] = "📖 - READER"

    def __init__(  # noqa: PLR0913 - the arguments of datatrove's readers
        self,
        source: Source | Dataset | DataFolderLike,
        *by_place: object,
        text_key: str = "text",
        id_key: str = "id",
        limit: int = -1,
        skip: int = 0,
        adapter: Callable[..., Mapping[str, Any]] | None = None,
        default_metadata: Mapping[str, Any] | None = None,
        glob_pattern: str | None = None,
        paths_file: Any = None,
        recursive: bool = True,
        shuffle_files: bool = False,
        file_progress: bool = False,
        doc_progress: bool = False,
        add_file_path: bool = True,
        **opening: Unpack[OpeningOptions],
    ) -> None:
        super().__init__()
        if by_place:
            raise UsageError("arguments after the source are given by name", found=f"{by_place!r:.80}",
                             advice="Give limit=, text_key= and so on: readers of datatrove have other orders.",
                             )  # fmt: skip
        if not isinstance(limit, (int, Integral)) or not isinstance(skip, (int, Integral)) or skip < 0:
            raise UsageError("limit and skip are numbers of documents", expected="limit=-1 for all, and skip=0 or more",
                             found=f"limit={limit!r}, skip={skip!r}")  # fmt: skip
        source, self._opening = _with_stores(source, {**opening})
        if not recursive:
            raise UsageError("a folder is read with all folders below it", found="recursive=False",
                             advice="Name the files: glob_pattern='*.parquet'.")  # fmt: skip
        held = Query.held_by(source)
        if held is not None:
            Query.of(held, **self._opening)  # refuses arguments of opening
            for step in held.steps:
                if step.over_numbers:
                    raise UsageError("tasks read shards apart, and this step needs all samples",
                                     found=repr(step)[:200], advice="For a number of documents of each task, give "
                                     "limit=. Else write the dataset first, and read that.")  # fmt: skip
        if not isinstance(source, (str, os.PathLike)) and (glob_pattern, paths_file) != (None, None):
            raise UsageError("glob_pattern and paths_file name files below a folder", found=f"{source!r:.80}",
                             expected="the path or URL of a folder",
                             advice="Give lading.open the files: a pattern, or a list of paths.")  # fmt: skip
        self.text_key, self.id_key, self.limit, self.skip = text_key, id_key, limit, skip
        self.glob_pattern, self.paths_file, self.shuffle_files = glob_pattern, paths_file, shuffle_files
        self.add_file_path, self.default_metadata = add_file_path, default_metadata
        self.file_progress, self.doc_progress = file_progress, doc_progress
        if file_progress or doc_progress:
            _tqdm()
        self._source, self._adapter = source, adapter
        self._types: Mapping[str, int] | None = None

    @property
    def adapter(self) -> Callable[..., Mapping[str, Any]]:
        """The function from a sample to the fields of a document."""
        return self._default_adapter if self._adapter is None else MethodType(self._adapter, self)

    def _default_adapter(self, data: Mapping[str, Any], path: str, id_in_file: int | str) -> dict[str, Any]:
        """Return the fields of the document of a sample."""
        if self._types is None:
            return document_of_items(data)
        return document_of_row(data, self._types, (self.text_key, self.id_key), f"{path}/{id_in_file}")

    def run(self, data: Iterable[Any] | None = None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of `data`, then those of the shards of this task. Raises as reading the source does."""
        yield from data or ()
        query = Query.of(self._files(), **self._opening)
        with query.open_shards() as every, ExitStack() as bars:
            table = every.listing.table
            numbers = [*range(rank, len(table), world_size)]
            if self.shuffle_files:
                random.shuffle(numbers)
            most = None if self.limit < 0 else self.limit
            count_file = _progress(bars, len(numbers), "file", shown=self.file_progress)
            count_document = _progress(bars, most, "doc", shown=self.doc_progress)
            own = table.take(pa.array(numbers, pa.int64()))
            with (
                every.with_listing(own, {}) as shards,
                closing(self._documents(shards, query.steps, count_file)) as documents,
            ):
                for document in islice(documents, self.skip, None if most is None else self.skip + most):
                    count_document()
                    self.stat_update("documents")
                    self.update_doc_stats(document)
                    for each in document.media:
                        self.update_media_stats(each)
                    yield document

    def _files(self) -> Any:
        """Return the source, or the files below it that were asked for."""
        if not isinstance(self._source, (str, os.PathLike)):
            return self._source
        folder = os.fspath(self._source).rstrip("/")
        if self.paths_file is not None:
            return [f"{folder}/{line}" for line in _lines(self.paths_file)]
        if self.glob_pattern:
            return f"{folder}/{self.glob_pattern if has_magic(self.glob_pattern) else f'*{self.glob_pattern}'}"
        return self._source

    def _documents(
        self, shards: Shards, steps: Sequence[Step], count_file: Callable[[], object]
    ) -> Generator[Any, None, None]:
        """Yield the samples of shards behind the steps, as documents."""
        if not len(shards.listing):
            return
        done = Counter[str]()
        below = f"{os.fspath(self._source).rstrip('/')}/" if isinstance(self._source, (str, os.PathLike)) else ""
        for batch in ChosenSamples(shards, steps).batches(Batching(_BATCH_ROWS, _BATCH_BYTES), Outcomes()):
            [file] = lineage_of(batch.schema)
            self._types = None if shards.has_items else media_types(batch.schema)
            if not done:
                self._warn_of_keys(batch.schema.names)
            if file not in done:
                count_file()
                self.stat_update("input_files")
            for sample in samples_as_dicts(shards, pa.Table.from_batches([batch])):
                yield self._document(self.adapter(sample, file.removeprefix(below), done[file]), file)
                done[file] += 1

    def _warn_of_keys(self, columns: Sequence[str]) -> None:
        """Warn if a key that the user chose names no column."""
        chosen = {"text_key": (self.text_key, "text"), "id_key": (self.id_key, "id")}
        for argument, (key, usual) in chosen.items():
            if self._adapter is not None or key in {usual, *columns}:
                continue
            found = "interleaved samples have their own" if self._types is None else f"found {', '.join(columns)}"
            warnings.warn(f"{argument}={key!r} names no column, {found}", stacklevel=2)

    def _document(self, fields: Mapping[str, Any], file: str) -> Any:
        """Return a document of these fields, with the metadata that all documents get."""
        document, media = _document_classes()
        if not isinstance(fields, Mapping) or not {"text", "id"} <= fields.keys():
            raise UsageError("the adapter gave no document", expected="a dict with text and id",
                             found=f"{fields!r:.80}", file=file)  # fmt: skip
        made = document(**fields)
        made.media = [media(**each) if isinstance(each, Mapping) else each for each in made.media]
        made.metadata = {**(self.default_metadata or {}), **made.metadata}
        if self.add_file_path:
            made.metadata.setdefault("file_path", file if "://" in file else os.path.abspath(file))
        return made


def _with_stores(place: Any, more: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a source or destination as a path with its store, if datatrove's users name a file system with it."""
    is_pair = isinstance(place, tuple) and len(place) == _PAIR and not isinstance(place[1], (str, os.PathLike))
    if Query.held_by(place) is not None or not (is_pair or (hasattr(place, "fs") and hasattr(place, "path"))):
        return place, more
    path, stores = _place(place)
    return path, more if stores is None else {"stores": stores, **more}


def _refuse_unknown(writing: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that `LadingWriter` and `lading.writer` lack."""
    parameters = [*inspect.signature(LadingWriter).parameters.values(),
                  *inspect.signature(DatasetWriter).parameters.values()]  # fmt: skip
    known = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    if unknown := [name for name in writing if name not in known]:
        raise unknown_arguments("LadingWriter", unknown, sorted(known), _NOT_OF_WRITERS)


def _lines(file: Any) -> list[str]:
    """Return the lines of a text file, given as datatrove takes it."""
    path, options = file if isinstance(file, tuple) else (file, {})
    fs, place = url_to_fs(path, **options) if isinstance(options, dict) else (options, path)
    with fs.open(os.fspath(place), "rt", compression="infer") as lines:
        return [name for name in map(str.strip, lines) if name]


def _progress(bars: ExitStack, total: int | None, unit: str, *, shown: bool) -> Callable[[], object]:
    """Return a function that counts one more of a progress bar."""
    if not shown:
        return lambda: None
    update: Callable[[], object] = bars.enter_context(_tqdm()(total=total, unit=unit)).update
    return update


def _tqdm() -> Any:
    """Return the class of progress bars. Raises MissingExtra."""
    try:
        return import_module("tqdm").tqdm
    except ImportError as error:
        raise missing_extra(error, "progress bars are those of tqdm", "tqdm", "pip install tqdm") from error


def _document_classes() -> tuple[Any, Any]:
    """Return datatrove's classes of documents and media, or those of the same fields where it is not installed."""
    peer = _peer("data")
    return (Document, Media) if peer is None else (peer.Document, peer.Media)


class LadingWriter(PipelineStep):
    """Write documents as samples of any format, and hand them on.

    Each task writes shards and a manifest of its own, which appear when its documents end without an error.
    `lading.open` reads the folder at once; `lading.merge` makes one dataset of it. A task that datatrove runs again
    replaces what it wrote.

    Example:
        LadingWriter("s3://bucket/filtered", format="mds", text_key="txt", id_key="__key__")

    A document becomes a sample: its text and id, its metadata, and a column for each of its media, named by the id of
    the media. So documents of `LadingReader` come back as they were. Media that have a place in an archive and no bytes
    are written as the column `media`, as datatrove writes them. Documents with any number of media are written with
    `view="interleaved"`: a sample is the metadata, the text, then the media.

    Args:
        destination: folder of the dataset, a `DataFolderLike`.
        format: as for `lading.writer`.
        view: `samples` or `interleaved`.
        text_key: column of the text, for samples.
        id_key: column of the id, for samples. `__key__` names the samples of tars.
        writing: the other arguments of `lading.writer`, such as `shard_size` or `schema`.

    Raises:
        DataError: two fields of a document have one name; or a media has neither bytes nor a place in an archive.
        SchemaMismatch: metadata have a new key behind the first 16 MB, in formats other than tars and JSON Lines. Give
            `schema` with all columns.
        UsageError: an argument that `lading.writer` does not take.
        DestinationExists: a complete dataset is there.
    """

    name: ClassVar[str] = "🚢 Lading"
    type: ClassVar[str] = "💽 - WRITER"

    def __init__(
        self,
        destination: DataFolderLike,
        format: str = "parquet",  # noqa: A002 - the word users know
        view: str = "samples",
        text_key: str = "text",
        id_key: str = "id",
        **writing: Any,
    ) -> None:
        super().__init__()
        _refuse_unknown(writing)
        self._names, self._is_items = (text_key, id_key), row_layout(view).has_items
        self._destination, writing = _with_stores(destination, writing)
        self._writing = {"overwrite": True, **writing, "format": format, "view": view}

    def run(
        self,
        data: Iterable[Any] | None,
        rank: int = 0,
        world_size: int = 1,  # noqa: ARG002 - executors give it
    ) -> Iterator[Any]:
        """Write documents; yield each when it is given to the writer. Raises as `lading.writer` does."""
        with DatasetWriter(self._destination, rank=rank, **self._writing) as writer:
            items = _Items(writer)
            for document in data or ():
                with self.track_time():
                    if self._is_items:
                        items.add(document)
                    else:
                        writer.write(row_of_document(document, self._names))
                self.stat_update("total")
                for media in media_of(document):
                    self.update_media_stats(media)
                yield document
            items.flush()


_NOT_OF_WRITERS: Final = {
    "output_folder": "Give it first, as the destination.",
    "output_filename": "Name shards by name='${rank}-${shard}', without an ending.",
    "compression": "Give it as an option of the format: options={'compression': 'gzip'}.",
    "adapter": "Change documents in a step before.",
    "expand_metadata": "Leave it out: each key of the metadata is a column.",
    "max_file_size": "Give shard_size='5GB'.",
    "save_media_bytes": "Leave it out: bytes are written.",
    "batch_size": "Leave it out: batches have 16 MB.",
    "mode": "Leave it out.",
}
"""Arguments of datatrove's writers that shards need not, and their alternative."""


class _Items:
    """Documents on their way to a writer of items, by the batch."""

    def __init__(self, writer: DatasetWriter) -> None:
        self._writer, self._encoders = writer, Encoders(INTERLEAVED_SCHEMA)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, document: Any) -> None:
        """Append the items of a document."""
        rows = [self._encoders.row(item) for item in items_of_document(document)]
        self._rows += rows
        self._bytes += sum(len(row["binary_content"] or row["text_content"] or "") for row in rows)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the items that were appended."""
        if self._rows:
            self._writer.write_batch(rows_to_batch(self._rows, self._encoders))
        self._rows, self._bytes = [], 0


class BaseMediaWriter(PipelineStep):
    """Base of media writers: names of files, splitting, locations and statistics. A subclass implements `_write`.

    Example:
        class PlainWriter(BaseMediaWriter):
            default_output_filename = "${rank}.bin"

            def _write(self, media, file_handler, filename):
                offset = file_handler.tell()
                file_handler.write(media.media_bytes)
                return filename, offset, len(media.media_bytes)

    A file appears when it is full, and the others when the writer is closed. A `with` or a `run` that ends by an error,
    or early, closes the writer: the records written so far can be read, since documents that name them may be stored
    already. (`lading.media.MediaWriter` publishes nothing after an error.) What a killed process left of files of the
    same name is removed when such a file is begun. A file that is replaced is named in a warning.

    As in datatrove, a subclass may override `_get_output_filename`, `_get_filename_with_file_id`, `_on_file_switch`
    and `write`, and use the attributes.

    Args:
        output_folder: a `DataFolderLike`.
        output_filename: template of names below it, with `${rank}` (five digits) and any tag: one given to `write` or
            `run`, a key of the metadata of media or document, or `id`. Default: `default_output_filename`.
        mode: `wb`.
        max_file_size: a file of this size, in bytes or as a text such as `5GB`, is complete, and names begin with a
            counter, `000_`. 0 or less: no limit, no counter.

    Attributes:
        output_mg: the open files: `self.output_mg.get_file(name)`, `pop(name)`, `get_open_files()`.
        file_id_counter: the counter of each name.

    Raises:
        UsageError: no template, a template with an invalid `$`, or another mode.
    """

    default_output_filename: ClassVar[str | None] = None
    name: ClassVar[str] = "Media writer"
    type: ClassVar[str] = "💽 - MEDIA WRITER"

    def __init__(
        self,
        output_folder: DataFolderLike,
        output_filename: str | None = None,
        mode: str = "wb",
        max_file_size: int | str = -1,
    ) -> None:
        super().__init__()
        template = output_filename or self.default_output_filename
        if template is None:
            raise UsageError("a media writer needs a template of file names", expected="output_filename",
                             advice="Give one, or set default_output_filename in the class.")  # fmt: skip
        if mode != "wb":
            raise UsageError("media are written as bytes", expected="mode='wb'", found=repr(mode))
        self.max_file_size = max_file_size if isinstance(max_file_size, int) else parse_peer_bytes(max_file_size)
        self.file_id_counter = Counter[str]()
        self._names = Names(template, counted=False)
        self._folder = output_folder
        self.output_mg = OutputFiles(*_place(output_folder))

    @property
    def output_filename(self) -> Template:
        """The template of names."""
        return self._names.template

    @output_filename.setter
    def output_filename(self, template: Template) -> None:
        self._names = Names(template.template, counted=False)

    @cached_property
    def output_folder(self) -> Any:
        """The folder as a file system: `self.output_folder.exists(name)`."""
        return _as_file_system(self._folder)

    @abstractmethod
    def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
        """Write one media to the end of a file; return the file's name, the offset and the length of the record.

        Args:
            media: the media.
            file_handler: the file; `tell` is the offset of the record.
            filename: name of the file below the output folder.
        """

    def _get_output_filename(self, media: Any, rank: int | str = 0, **tags: object) -> str:
        """Return the name of the file for a media, without a counter."""
        return self._names.name(rank, tags, media)

    def _get_filename_with_file_id(self, filename: str) -> str:
        """Return a name with its counter before the last part."""
        folder, slash, base = filename.rpartition("/")
        return f"{folder}{slash}{self.file_id_counter[filename]:03d}_{base}"

    def _on_file_switch(self, _original_name: str, old_filename: str, _new_filename: str) -> None:
        """Close a full file before the next one of its name is opened; then the full file is visible."""
        self.output_mg.pop(old_filename).close()

    def write(self, media: Any, rank: int = 0, **tags: object) -> Location:
        """Write one media; set path, offset and length on it and return them.

        Args:
            media: a mapping or an object with `media_bytes`.
            rank: for the name of the file.
            **tags: for the name of the file.

        Raises:
            UsageError: a tag is missing or leads out of the folder, or the media has no bytes.
            StoreError: the store failed.
        """
        with self.output_mg.lock:
            file = self._current_file(self._get_output_filename(media, rank, **tags))
            location = _location(self._write(media, file, file.path), f"{type(self).__name__}._write")
            put_location(media, location)
            self.stat_update(self._get_output_filename(media, "XXXXX", **tags), "total")
            self.update_media_stats(media)
        return location

    def _current_file(self, name: str) -> OutputFile:
        """Return the file for the next record, behind a full file if there is one."""
        if self.max_file_size <= 0:
            return self.output_mg.get_file(name)
        while (current := self._get_filename_with_file_id(name)) in self.output_mg.written:
            self.file_id_counter[name] += 1  # of an earlier run, whose files stay
        file = self.output_mg.get_file(current)
        if file.tell() < self.max_file_size:
            return file
        self.file_id_counter[name] += 1
        following = self._get_filename_with_file_id(name)
        self._on_file_switch(name, current, following)
        return self.output_mg.get_file(following)

    def run(
        self,
        data: Iterable[Any] | None,
        rank: int = 0,
        world_size: int = 1,  # noqa: ARG002 - executors give it
        **tags: object,
    ) -> Iterator[Any]:
        """Write the media of documents; yield the documents with path, offset and length on every media.

        Media without bytes are skipped. Tags that the template needs and `tags` lacks come from the `metadata` of the
        document and of the media; `id` is the id of the document. Raises as `write`.
        """
        is_own = type(self).write is not BaseMediaWriter.write
        with self:
            for document in data or ():
                with self.track_time():
                    for media in media_of(document):
                        if get(media, "media_bytes") is not None:
                            location = self.write(media, rank, **{**self._names.given_by(document, media), **tags})
                            if is_own:
                                put_location(media, _location(location, f"{type(self).__name__}.write"))
                yield document

    def close(self) -> None:
        """Make the files durable and visible. Raises StoreError; then files that were not visible by then stay so."""
        self.output_mg.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(LadingError):  # the first error is the one to raise
                self.close()


def _location(value: object, function: str) -> Location:
    if not isinstance(value, tuple) or len(value) != len(Location._fields):
        raise UsageError(f"{function} gave no location", expected="(filename, offset, length)",
                         found=repr(value)[:80])  # fmt: skip
    return Location(*value)


class ZstdWriter(BaseMediaWriter):
    """Write media as zstd frames, one after the other, as datatrove's `ZstdWriter` does: the same files.

    Example:
        with ZstdWriter("media/") as writer:
            writer.write(media, rank=3)  # ('000_00003.bin.zst', 0, 505)

    Args:
        output_folder: a `DataFolderLike`.
        output_filename: as for `BaseMediaWriter`.
        max_file_size: as for `BaseMediaWriter`; 5 GiB by default.
        compression_level: level of zstd.

    Raises:
        UsageError: an option has an invalid value.
    """

    default_output_filename: ClassVar[str | None] = "${rank}.bin.zst"
    name: ClassVar[str] = "🗜️ - Binary Zstd"

    def __init__(
        self,
        output_folder: DataFolderLike,
        output_filename: str | None = None,
        max_file_size: int | str = 5 << 30,
        compression_level: int = 3,
    ) -> None:
        super().__init__(output_folder, output_filename, mode="wb", max_file_size=max_file_size)
        check_level(compression_level)
        self.compression_level = compression_level

    def _write(self, media: Any, file_handler: io.RawIOBase, filename: str) -> tuple[str, int, int]:
        offset = file_handler.tell()
        _, parts = _packer(self.compression_level).pack(get(media, "media_bytes"), get(media, "id"))
        file_handler.writelines(parts)
        return filename, offset, sum(map(len, parts))


@lru_cache(8)
def _packer(level: int) -> RecordPacker:
    return RecordPacker(level, content_size=False, checksum=False, plain=False)


class BinaryReaderThreaded(PipelineStep):
    """Base of media readers: documents, threads and statistics. A subclass implements `read_media_record`.

    Args:
        data_folder: a `DataFolderLike`, below which the paths of media lie.
        workers: threads.
        preserve_order: yield documents in their order, not as they are ready.

    Attributes:
        thread_local: where `read_media_record` may keep open files and such, for each thread; new for each `run`.
    """

    name: ClassVar[str] = "📒⚡ - Binary Media Reader (Fast/Threaded)"
    type: ClassVar[str] = "Media Reader"

    def __init__(self, data_folder: DataFolderLike, workers: int = 1, preserve_order: bool = False) -> None:
        super().__init__()
        self._folder, self.workers, self.preserve_order = data_folder, workers, preserve_order
        _place(data_folder)

    @cached_property
    def data_folder(self) -> Any:
        """The folder as a file system, for `read_media_record`: `self.data_folder.open(media.path)`."""
        return _as_file_system(self._folder)

    @cached_property
    def thread_local(self) -> threading.local:
        """Return a place for what each thread keeps."""
        return threading.local()

    @abstractmethod
    def read_media_record(self, media: Any) -> bytes | None:
        """Return the bytes of one media; None if it has no path or no offset. Threads may call this together."""

    def run(
        self,
        data: Iterable[Any] | None,
        rank: int = 0,  # noqa: ARG002 - executors give it
        world_size: int = 1,  # noqa: ARG002 - executors give it
    ) -> Iterator[Any]:
        """Yield the documents, the same objects, with `media_bytes` on every media.

        At most 2 × `workers` documents are read ahead.
        """
        self.thread_local = threading.local()
        for document in self._filled(data or ()):
            for media in media_of(document):
                self.update_media_stats(media)
            yield document

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "thread_local"}

    def _filled(self, data: Iterable[Any]) -> Iterator[Any]:
        return map_ahead(self._fill, data, Pace(self.workers, ordered=self.preserve_order))

    def _fill(self, document: Any) -> Any:
        for media in media_of(document):
            put(media, "media_bytes", self.read_media_record(media))
        return document


class _ArchiveReader(BinaryReaderThreaded):
    """A reader of `_core.media` as a step."""

    @abstractmethod
    def _opened(self) -> RecordReader:
        """Return a new reader."""

    def read_media_record(self, media: Any) -> bytes | None:
        """Return the bytes of one media; None, with a warning, if it has no path or no offset.

        Raises:
            BadReference: the path leads out of the folder or to no file, or the range is outside the file.
            CorruptShard: the record is damaged.
            LimitExceeded: the record is too long.
            StoreError: a store failed.
        """
        return self._reader().read_media_record(media)

    def _reader(self) -> RecordReader:
        if self._engine is None:
            self._engine = self._opened()
        reader: RecordReader = self._engine
        return reader

    def _filled(self, data: Iterable[Any]) -> Iterator[Any]:
        reader = self._reader()
        if type(self).read_media_record is not _ArchiveReader.read_media_record:  # a subclass reads in another way
            return super()._filled(data)
        return reader.run(data)


class ZstdReader(_ArchiveReader):
    """Read media from archives of zstd frames, as datatrove's `ZstdReader` does.

    A media with a `length` is read by it (version 2). Without a length, the unpacked size stands before the frame
    (version 1).

    Example:
        for document in ZstdReader("media/", workers=4, preserve_order=True)(documents):
            ...

    Args:
        data_folder: a `DataFolderLike`, below which the paths of media lie.
        block_size: bytes to read at once from a remote store when records follow each other.
        workers: threads.
        offset_byte_size: bytes of the length prefix of version 1.
        preserve_order: yield documents in their order, not as they are ready.

    Raises:
        UsageError: an option has an invalid value.
    """

    name: ClassVar[str] = "📒⚡ Zstd Media Reader (Streaming/Threaded)"

    def __init__(
        self,
        data_folder: DataFolderLike,
        block_size: int = 20 << 20,
        workers: int = 1,
        offset_byte_size: int = 4,
        preserve_order: bool = False,
    ) -> None:
        super().__init__(data_folder, workers, preserve_order)
        self.block_size, self.offset_byte_size = block_size, offset_byte_size
        self._opened().close()  # checks the options

    def _opened(self) -> RecordReader:
        folder, stores = _place(self._folder)
        return MediaReader(
            folder, self.block_size, self.workers, self.offset_byte_size, self.preserve_order, stores=stores
        )


class WarcReaderFast(_ArchiveReader):
    """Read media from web archives, as datatrove's `WarcReaderFast` does. Arguments as for `BinaryReaderThreaded`."""

    name: ClassVar[str] = "🌐 - Warc Reader Fast"

    def _opened(self) -> RecordReader:
        folder, stores = _place(self._folder)
        return WarcReader(folder, self.workers, self.preserve_order, stores=stores)


class LimitedReader(IO[bytes]):
    """A file that gives at most `max_bytes` bytes, so that a reader stops at the end of a record.

    Example:
        LimitedReader(file, 505).read()  # the next 505 bytes

    Args:
        fp: an open file.
        max_bytes: bytes that `read` gives altogether; `seek` does not change the number.

    Attributes:
        bytes_read: bytes given so far.
    """

    def __init__(self, fp: IO[bytes], max_bytes: int) -> None:
        self.fp, self.max_bytes, self.bytes_read = fp, max_bytes, 0

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all up to the limit; nothing at the limit."""
        left = max(self.max_bytes - self.bytes_read, 0)
        data = self.fp.read(left if size is None or size < 0 else min(size, left)) if left else b""
        self.bytes_read += len(data)
        return data

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move in the file; return the new position."""
        return self.fp.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the file."""
        return self.fp.tell()

    def close(self) -> None:
        """Close the file."""
        if hasattr(self.fp, "close"):
            self.fp.close()

    @property
    def closed(self) -> bool:
        """Return whether the file is closed."""
        return self.fp.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(folder: DataFolderLike) -> tuple[str, Stores | None]:
    """Return the path or URL of a folder, and its store if lading would choose another.

    Raises:
        UsageError: the value is not a folder.
    """
    if isinstance(folder, (str, os.PathLike)):
        path = os.fspath(folder)
        if path.startswith("memory://"):  # datatrove means that of fsspec
            return path, _everywhere(FsspecStore(path))
        return path, None
    match folder:
        case (str(path), dict(options)):
            if "://" not in path or path.startswith(("file://", "local://")):
                return path.removeprefix("local://"), None
            return path, _everywhere(FsspecStore(path, options=options))
        case (str(path), fs) if hasattr(fs, "_strip_protocol"):
            pass
        case _ if hasattr(folder, "fs") and hasattr(folder, "path"):
            path, fs = folder.path, folder.fs
        case _:
            raise UsageError(
                "this is not a folder", found=repr(folder)[:80],
                expected="a path, (path, options), (path, file system), or a DataFolder",
            )  # fmt: skip
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else {*fs.protocol}
    if protocols & _LOCAL:
        return fs._strip_protocol(path), None  # noqa: SLF001 - fsspec's own hook for this
    return fs.unstrip_protocol(path), _everywhere(FsspecStore(fs))


def _as_file_system(folder: DataFolderLike) -> Any:
    """Return a folder as datatrove's `DataFolder`, or where datatrove is not installed as a `DirFileSystem`."""
    if hasattr(folder, "fs"):
        return folder
    if isinstance(folder, os.PathLike):
        folder = os.fspath(folder)
    peer = _peer("io")
    if peer is not None:
        return peer.get_datafolder(folder)
    path, given = folder if isinstance(folder, tuple) else (folder, {})
    fs, place = url_to_fs(path, **given) if isinstance(given, dict) else (given, path)
    return DirFileSystem(place, fs)


def _everywhere(store: FsspecStore) -> Stores:
    return Stores({"": store})
