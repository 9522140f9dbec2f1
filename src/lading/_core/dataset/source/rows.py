"""Rows in memory, or from a stream, as a source: a file in a temporary folder holds them."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.streams import ArrowStream, is_hugging_face, is_table, kind_of, stream_of
from lading._core.codecs import sniff_wrap, stream_decoder
from lading._core.dataset.source.open import Named
from lading._core.dataset.source.shard_source import ShardSource
from lading._core.dataset.source.source import Source
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.storage.stores import Stores
from lading._core.storage.temporary import temporary_folder, writing
from lading.errors import DataError, DuplicateField, LadingError, SchemaMismatch, SourceNotFound, UsageError
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["Openable", "Rows", "Spooled", "shard_source"]

_HEAD_BYTES = 1 << 20
"""First bytes of standard input: a compressed block of any codec, but the largest of zstd and xz."""
_MOST_ROWS, _MOST_BYTES = 1 << 14, 4 << 20
"""Of a record batch in the file. With 1,000 rows, conditions on narrow rows take ten times as long."""


Rows: TypeAlias = ArrowStream | Mapping[str, Any] | Iterable[Mapping[str, Any]] | Iterable[ArrowStream] | BinaryIO
"""Rows that are no files: a table or a stream of Arrow, a data frame, a `datasets.Dataset`, dicts, a dict of columns,
many tables, or a stream of bytes in any format."""

Openable: TypeAlias = Source | Rows
"""What `lading.open` takes."""


def shard_source(source: Openable, schema: pa.Schema | None = None) -> ShardSource:
    """Return the source of shards that `lading.open` is given: names of files, or rows. Rows are read to their end.

    Args:
        source: names, or rows; `-` is standard input.
        schema: columns and types that the caller gives to all rows.

    Raises:
        UsageError: something else is given; or rows that do not fit each other.
        StoreError: the temporary file cannot be written.
    """
    if isinstance(source, str | os.PathLike):
        return _standard_input() if source == "-" else Named.of(source)
    if is_table(source) or _is_columns(source):
        return Spooled.of_rows(kind_of(source), lambda path: _write_tables(path, [source]))
    if hasattr(source, "read"):
        return _spooled_bytes(source, kind_of(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        return _of_items(source, schema)
    return Named.of(source)  # type: ignore[arg-type] # it refuses what is no name


def _of_items(source: Iterable[Any], schema: pa.Schema | None) -> ShardSource:
    """Names, dicts or tables, as the first item tells."""
    items = iter(source)
    first = next(items, None)
    found: Any = source if first is None or items is not source else chain([first], items)
    if isinstance(first, Mapping):
        return Spooled.of_rows(f"dicts of a {kind_of(source)}", lambda path: _write_samples(path, found, schema))
    if is_table(first):
        return Spooled.of_rows(f"tables of a {kind_of(source)}", lambda path: _write_tables(path, found))
    return Named.of(found)


@dataclass(frozen=True, eq=False)
class Spooled(ShardSource):
    """A file that lives as long as this value does, in the process that made it.

    Attributes:
        path: the file.
        given: what its rows were, for people: `pandas.DataFrame`.
        format: name of its format; empty if its name and its first bytes tell the format.
    """

    path: str
    given: str
    format: str = ""

    @classmethod
    def of(cls, given: str, name: str, write: Callable[[str], None], *, format: str = "") -> Spooled:  # noqa: A002 - the field
        """Return what a function writes into a file of this name, now."""
        with ExitStack() as held:
            folder = held.enter_context(temporary_folder())
            path = os.path.join(folder, name)
            with writing(folder):
                write(path)
            found = cls(path, given, format)
            weakref.finalize(found, _remove, held.pop_all(), os.getpid())
        return found

    @classmethod
    def of_rows(cls, given: str, write: Callable[[str], None]) -> Spooled:
        """Return rows that a function writes into an Arrow file, now."""

        def written(path: str) -> None:
            with _refusing(path):
                write(path)

        return cls.of(given, f"{given}.arrow", written, format="arrow")

    @property
    def names(self) -> str:
        """The file."""
        return self.path

    def open(self, read: ReadOptions) -> Shards:
        """Open the file. Raises as `lading.open`.

        Raises:
            SourceNotFound: the process that made the file has removed it.
            UsageError: options say that the source is files.
        """
        other_format = self.format and read.format != self.format and read.format
        for option, value in (("format", other_format), ("split", read.split), ("config", read.config)):
            if value:
                raise UsageError(f"this source has no {option}", file=self.given, found=f"{option}={value!r}",
                                 advice=f"Leave {option} out.")  # fmt: skip
        if not os.path.exists(self.path):
            raise SourceNotFound("the rows are gone: they live as long as the process that opened them",
                                 file=self.given, advice="Write them to a file first, and open that.")  # fmt: skip
        # Folders of the machine that have a name like `job=3` are no partitions.
        try:
            shards = Named(self.path).open(replace(read, hive_partitioning=False))
        except LadingError as error:
            raise self._named(error) from error.__cause__
        shards.bad.source = None  # the file will be gone when somebody types `lading salvage`
        return shards

    def _named(self, error: LadingError) -> LadingError:
        """The error with what the rows were, in place of the file, and without advice about the file."""
        error.file = self.given if error.file == self.path else error.file
        if "lading salvage" in (error.advice or ""):
            error.advice = "Write the bytes to a file: 'lading salvage FILE DST' saves its intact samples."
        return error

    @property
    def is_temporary(self) -> bool:
        """True: another run has other files."""
        return True

    def absolute(self, stores: Stores) -> Spooled:  # noqa: ARG002 - the file is a local one
        """Return the source itself: its path is absolute."""
        return self

    def __reduce__(self) -> tuple[type[Spooled], tuple[str, str, str]]:
        return Spooled, (self.path, self.given, self.format)

    def __str__(self) -> str:
        return self.given


def _standard_input() -> Spooled:
    """The bytes of standard input as a file. Raises UsageError for a terminal, and for no bytes."""
    stream = None if sys.stdin is None else sys.stdin.buffer
    if stream is None or stream.isatty():
        raise UsageError("nothing comes from standard input", expected="a pipe or a file",
                         advice="Write: PROGRAM | lading … -. A file of this name is ./-.")  # fmt: skip
    return _spooled_bytes(stream, "standard input")


def _spooled_bytes(stream: Any, given: str) -> Spooled:
    """The bytes of a stream as a file. Raises UsageError for a stream without bytes."""
    head = stream.read(_HEAD_BYTES)
    if not head or not isinstance(head, bytes):
        raise UsageError("the stream gives text" if head else "the stream is empty", file=given, expected="bytes",
                         advice="Open it in binary mode." if head else None)  # fmt: skip

    def write(path: str) -> None:
        with open(path, "wb") as file:
            file.write(head)
            copyfileobj(stream, file, _HEAD_BYTES)

    return Spooled.of(given, f"{given.replace(' ', '-')}{'.jsonl' if _is_json(head) else ''}", write)


def _is_columns(source: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether something is a dict of columns, and not of datasets."""
    if not isinstance(source, Mapping) or not source:
        return False
    return not any(hasattr(value, "columns") or is_hugging_face(value) for value in source.values())


def _is_json(head: bytes) -> bool:
    """Whether these first bytes of a file begin a JSON object, or an array of them. They may be compressed."""
    wrap = sniff_wrap(head)
    if wrap:
        with suppress(DataError):
            head = next(stream_decoder(wrap).feed(head), b"")
    return head.lstrip()[:1] in (b"{", b"[")


def _write_tables(path: str, tables: Iterable[ArrowStream | Mapping[str, Any]]) -> None:
    """Write tables as one Arrow stream, in which dictionaries may change, in record batches of bounded size.

    Raises:
        SchemaMismatch: a table has other columns than the first one.
        DuplicateField: several columns have one name.
    """
    streams = map(stream_of, tables)
    first = next(streams)
    repeated = [name for name, number in Counter(first.schema.names).items() if number > 1]
    if repeated:
        raise DuplicateField("several columns have this name", column=repeated[0], found=_columns(first.schema),
                             advice="Give each a name of its own: table.rename_columns([…]).")  # fmt: skip
    with pa.ipc.new_stream(path, first.schema) as writer:
        row = 0
        for stream in chain([first], streams):
            if not stream.schema.equals(first.schema):
                raise SchemaMismatch("a table has other columns than the first one", row=row,
                                     expected=_columns(first.schema), found=_columns(stream.schema),
                                     advice="Cast it first.")  # fmt: skip
            for batch in stream:
                for part in split_samples(batch, np.arange(batch.num_rows), _MOST_ROWS, _MOST_BYTES):
                    writer.write_batch(part)
                row += batch.num_rows


def _write_samples(path: str, samples: Iterable[Mapping[str, Any]], schema: pa.Schema | None) -> None:
    """Write samples as `lading.writer` does. Raises as its `write`; UsageError for something else than a dict."""
    with DatasetWriter(path, schema=schema, checksums="none") as writer:
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise UsageError("a sample is a dict", row=number, found=type(sample).__name__)
            writer.write(sample)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except LadingError as error:
        raise error.at(file=os.path.basename(path)) from error.__cause__
    except pa.ArrowException as error:
        raise UsageError(
            "Arrow cannot hold these rows", file=os.path.basename(path), found=_first_line(error)
        ) from error


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _remove(held: ExitStack, process: int) -> None:
    """Remove the folder; a forked child leaves it to its parent."""
    if os.getpid() == process:
        held.close()
