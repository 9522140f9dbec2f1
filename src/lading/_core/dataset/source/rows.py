"""Rows in memory, or from a stream, as a source: an Arrow file in a temporary folder holds them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.streams import ArrowStream, is_table, kind_of, stream_of
from lading._core.dataset.source.open import Named
from lading._core.dataset.source.shard_source import ShardSource
from lading._core.dataset.source.source import Source
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.storage.stores import Stores
from lading._core.storage.temporary import temporary_folder, writing
from lading.errors import LadingError, SchemaMismatch, SourceNotFound, UsageError
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["Openable", "Rows", "Spooled", "shard_source"]

_MOST_ROWS, _MOST_BYTES = 1000, 1 << 20
"""Of a record batch in the file: as `lading.writer` writes Arrow."""


Rows: TypeAlias = ArrowStream | Iterable[Mapping[str, Any]] | Iterable[ArrowStream]
"""Rows that are no files: a table or a stream of Arrow, a data frame, a `datasets.Dataset`, dicts, or many tables."""

Openable: TypeAlias = Source | Rows
"""What `lading.open` takes."""


def shard_source(source: Openable, schema: pa.Schema | None = None) -> ShardSource:
    """Return the source of shards that `lading.open` is given: names of files, or rows. Rows are read to their end.

    Args:
        source: names, or rows.
        schema: columns and types that the caller gives to all rows.

    Raises:
        UsageError: something else is given; or rows that do not fit each other.
        StoreError: the temporary file cannot be written.
    """
    if isinstance(source, str | os.PathLike):
        return Named.of(source)
    name = kind_of(source)
    if is_table(source):
        return Spooled.of(name, lambda path: _write_tables(path, [source]))
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
        return Named.of(source)  # type: ignore[arg-type] # it refuses what is no name
    items = iter(source)
    first = next(items, None)
    found: Any = source if first is None or items is not source else chain([first], items)
    if isinstance(first, Mapping):
        return Spooled.of(f"dicts of a {name}", lambda path: _write_samples(path, found, schema))
    if is_table(first):
        return Spooled.of(f"tables of a {name}", lambda path: _write_tables(path, found))
    return Named.of(found)


@dataclass(frozen=True, eq=False)
class Spooled(ShardSource):
    """Rows in an Arrow file that lives as long as this value does, in the process that made it.

    Attributes:
        path: the file.
        given: what the rows were, for people: `pandas.DataFrame`.
    """

    path: str
    given: str

    @classmethod
    def of(cls, given: str, write: Callable[[str], None]) -> Spooled:
        """Return rows that a function writes into a file, now."""
        with ExitStack() as held:
            path = os.path.join(held.enter_context(temporary_folder()), f"{given}.arrow")
            with writing(os.path.dirname(path)), _refusing(path):
                write(path)
            found = cls(path, given)
            weakref.finalize(found, _remove, held.pop_all(), os.getpid())
        return found

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
        for option, value in (("format", read.format), ("split", read.split), ("config", read.config)):
            if value and (option, value) != ("format", "arrow"):
                raise UsageError(f"rows in memory have no {option}", file=self.given, found=f"{option}={value!r}",
                                 advice=f"Leave {option} out.")  # fmt: skip
        if not os.path.exists(self.path):
            raise SourceNotFound("the rows are gone: they live as long as the process that opened them",
                                 file=self.given,
                                 advice="Write them first: lading.open(…).write('rows.parquet').")  # fmt: skip
        # Folders of the machine that have a name like `job=3` are no partitions.
        return Named(self.path).open(replace(read, hive_partitioning=False))

    def absolute(self, stores: Stores) -> Spooled:  # noqa: ARG002 - the file is a local one
        """Return the source itself: its path is absolute."""
        return self

    def __reduce__(self) -> tuple[type[Spooled], tuple[str, str]]:
        return Spooled, (self.path, self.given)

    def __str__(self) -> str:
        return self.given


def _write_tables(path: str, tables: Iterable[ArrowStream]) -> None:
    """Write tables as one Arrow stream, in which dictionaries may change, in record batches of bounded size.

    Raises:
        SchemaMismatch: a table has other columns than the first one.
    """
    streams = map(stream_of, tables)
    first = next(streams)
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
