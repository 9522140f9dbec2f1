"""A format and its facts: one class with its data, which opens and creates shards.

`Format` has defaults for all but a few methods, and `FormatInfo` holds facts as data, so callers ask no format what it
is. docs/write-a-format.md shows a whole format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import pyarrow as pa

from lading._core.features.stored_values import rows_schema
from lading._core.formats.base import FoundMembers, ShardFile, ShardReader, ShardWriter
from lading._core.formats.dataset_index import DatasetIndex, LooseFiles
from lading._core.formats.findings import Finding, Level
from lading._core.storage.base import Sink
from lading.errors import LadingError, UsageError
from lading.options import check_types

__all__ = ["AnyFormat", "Format", "FormatInfo", "Layout", "NoOptions", "Written", "parse_options"]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a format that has none."""


Layout: TypeAlias = Literal["rows", "members", "packed", "documents"]


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """Facts about a format.

    Attributes:
        name: what users type (`--to parquet`).
        extensions: file name endings, lower-case, with the dot. Writers use the first one.
        when_named: further endings of its shards in a folder, if the format is named; other files have them too.
        read_options: dataclass of the options of reading; its docstring describes each.
        write_options: dataclass of the options of writing. `row_group_bytes` in it is how much payload a writer holds
            back; a conversion keeps it to a quarter of its batches.
        copy_options: options of reading and of writing under which a copy within this format keeps details that other
            formats lack (the case and order of member names).
        deep_options: options of reading under which a reader also runs checks that are too slow for every read.
        whole_options: options of reading under which rows come with the bytes of files next to the shard.
        without_sidecar: options of reading under which the index file next to a shard is ignored.
        beside: regular expression of the names of files that hold the media of shards, if other formats claim the
            endings of these shards too. A folder with both, and with documents in its first shard, is of this format.
        leftovers: regular expression of the names of files that a peer leaves next to shards, such as sidecars. Those
            with an ending of shards are left out where shards are listed.
        interleaved: how a sample of items is laid out: `rows` (a row an item), `members` (files in a tar), `packed` (a
            row a sample) or `documents` (a row a sample, its media in a list).
        fixed_schema: all rows of a shard have the same columns; otherwise each sample may have fields of its own.
        stores_structs: values may be structs; otherwise media are stored as their bytes.
        keeps_types: files store the types of their columns; otherwise the manifest stores them.
        self_contained: items hold their bytes. No `source_ref` leads to these bytes, nor from items to bytes elsewhere.
        opens_at_once: opening a shard reads only its end, and an open shard stays readable when it is replaced.
        restores_types: rows are restored exactly only with the columns of the manifest, in every dataset.
        files_name_each_other: the files of a shard contain each other's names, so they cannot be renamed.
        hive_partitions: folders such as `year=2023` above a shard stand for columns of its rows.
        untyped: columns are text unless an option of reading gives their types.
        may_end_early: damage may look like the end of a shard, so that reading a damaged shard raises no error.
    """

    name: str
    extensions: tuple[str, ...]
    when_named: tuple[str, ...] = ()
    read_options: type = NoOptions
    write_options: type = NoOptions
    copy_options: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    deep_options: Mapping[str, Any] = field(default_factory=dict)
    whole_options: Mapping[str, Any] = field(default_factory=dict)
    without_sidecar: Mapping[str, Any] = field(default_factory=dict)
    beside: str = ""
    leftovers: str = ""
    interleaved: Layout = "rows"
    fixed_schema: bool = True
    stores_structs: bool = False
    keeps_types: bool = True
    self_contained: bool = False
    opens_at_once: bool = False
    restores_types: bool = False
    files_name_each_other: bool = False
    hive_partitions: bool = False
    untyped: bool = False
    may_end_early: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a reader must know of written rows, and what is lost.

    Attributes:
        read_options: options that a reader needs and that the files do not store; the manifest stores them.
        reduced_columns: columns that are read back incompletely.
        needs_schema: these rows are restored exactly only with their columns, which the manifest stores. A format with
            `keeps_types=False` needs no mention.
        asked_fields: columns that the options declare, as samples are to be encoded for them; None if there are none.
    """

    read_options: Mapping[str, Any] = field(default_factory=dict)
    reduced_columns: Sequence[str] = ()
    needs_schema: bool = False
    asked_fields: pa.Schema | None = None


R = TypeVar("R")


W = TypeVar("W")


class Format(ABC, Generic[R, W]):
    """A shard format. `R` and `W` are the dataclasses of its options of reading and of writing.

    A read-only format defines `info` and `open`. See `docs/write-a-format.md`.
    """

    info: ClassVar[FormatInfo]
    index: ClassVar[DatasetIndex] = DatasetIndex()
    """A peer's own index of a dataset."""
    loose: ClassVar[LooseFiles | None] = None
    """How loose files become shards, if a shard is a list of files."""
    late_columns: ClassVar[bool] = False
    """With a fixed schema, later rows may still bring a column, which earlier rows of the file lack."""

    @property
    def name(self) -> str:
        """Return the name that users type."""
        return self.info.name

    def read_options(self, given: Mapping[str, Any]) -> R:
        """Check options of reading. Raises UsageError for an unknown one or a wrong type."""
        made: R = parse_options(self.name, self.info.read_options, given)
        return made

    def write_options(self, given: Mapping[str, Any]) -> W:
        """Check options of writing. Raises UsageError for an unknown one or a wrong type."""
        made: W = parse_options(self.name, self.info.write_options, given)
        return made

    def options_for(self, file: ShardFile, options: R) -> R:
        """Return the options of reading with those of this shard alone."""
        return replace(options, **file.options) if file.options else options  # type: ignore[type-var] # a dataclass

    def matches(self, path: str, head: bytes) -> bool:
        """Whether a file with this name and these first bytes (up to 1,024) is a shard. By default the name decides."""
        return path.lower().endswith(self.info.extensions)

    # Reading

    @abstractmethod
    def open(self, file: ShardFile, options: R) -> ShardReader:
        """Open one shard."""

    def media_folders(self, options: R) -> tuple[Sequence[str], Sequence[str]]:
        """Return the folders that hold media of shards, and further folders that shards may lead to."""
        return (), ()

    def restored_schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the schema in which rows are read back that were written with these columns (`as_written`).

        Raises:
            Unrepresentable: a column that the format cannot hold.
        """
        return rows_schema(rows)

    def names_read(self, schema: pa.Schema, options: R) -> pa.Schema:
        """Return the columns of a manifest by the names that a reader gives them."""
        return schema

    def find_members(self, file: ShardFile, *, failed: bool) -> FoundMembers:
        """Find the members of a damaged archive, for layouts other than one sample a key.

        Args:
            file: the archive, unpacked, on a store that can map.
            failed: whether reading it raised an error. Otherwise members may be missing at its end alone.

        Raises:
            UsageError: the format is no archive of members.
        """
        raise UsageError(f"the format {self.name} has no members", file=file.path)

    # Writing

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: W) -> ShardWriter:
        """Begin one shard of rows of this schema, in a sink for each of its files, the shard's own first.

        Raises:
            Unrepresentable: a column that the format cannot hold.
            UsageError: the format is read-only.
        """
        raise self.read_only_error()

    @property
    def is_written(self) -> bool:
        """Whether the format can be written."""
        return type(self).create is not Format.create

    def read_only_error(self) -> UsageError:
        """Return the error that the format cannot be written."""
        return UsageError(f"the format {self.name} is read-only", advice="Name another format with --to.")

    def written(self, schema: pa.Schema, options: W) -> Written:
        """Return what a reader must know of rows of this schema that are written with these options."""
        return Written()

    def schema_read(self, schema: pa.Schema, options: W) -> pa.Schema:
        """Return the schema with the types in which rows are read back that are written with these options."""
        return schema

    def keeps_type(self, field: pa.Field) -> bool:
        """Return whether a file gives a column this type without a manifest."""
        return self.info.keeps_types

    def options_like(self, source: ShardFile, view: str) -> Mapping[str, Any]:
        """Return options of writing under which a copy is like this shard, where no batch tells (its compression)."""
        return {}

    def shard_name(self, number: int) -> str:
        """Return the name of a shard, without its ending, unless a user gives another."""
        return f"shard-{number:06d}"

    def extension(self, options: W) -> str:
        """Return the ending of a shard's file name under these options, such as `.tar.gz`."""
        if not self.info.extensions:
            raise self.read_only_error()
        return self.info.extensions[0]

    def extra_files(self, name: str, options: W) -> Sequence[str]:
        """Return the names of a shard's further files, for a shard of this name (with or without folders)."""
        return ()

    # Checks

    def check(self, file: ShardFile, options: R, level: Level) -> Iterator[Finding]:
        """Yield problems of a shard, and of the files next to it, that reading its rows does not raise.

        Raises:
            DataError, StoreError: the shard cannot be read.
        """
        yield from ()

    def count_as_listed(self, file: ShardFile, options: R) -> int | None:
        """Return the number of samples as the writers of `DatasetIndex.other_names` count them; None if nothing does.

        Raises:
            DataError, StoreError: the shard cannot be read.
        """
        return None

    def sidecar(self, file: ShardFile, options: R) -> str | None:
        """Return the path of the sample index next to a shard, if it exists and these options use it."""
        return None

    def cut_off(self, file: ShardFile, options: R) -> int:
        """Return how many samples a shard lost at its end: its sidecar lists them after all of the shard's."""
        return 0

    def listed_samples(self, file: ShardFile, options: R) -> int | None:
        """Return how many samples the sidecar of a damaged shard lists; None without one, or for another shard's."""
        return None

    def compressed_copy(self, file: ShardFile) -> str | None:
        """Return the path of the same shard with other compression, if it exists. Raises DataError, StoreError."""
        return None


AnyFormat: TypeAlias = Format[Any, Any]


_Options = TypeVar("_Options")


def parse_options(format_name: str, kind: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Options of a format (`kind` is a dataclass) by name. Raises UsageError for one not known, or of another type."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type] # that it is a dataclass, no type can say
    for name in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"no such option of the format {format_name}", expected=names, found=repr(name),
                             advice=getattr(kind, "INSTEAD", {}).get(name))  # fmt: skip
    try:
        made = kind(**given)
    except LadingError:
        raise
    except (TypeError, ValueError, AttributeError):  # from a look at what is of another type
        check_types(kind, given)
        raise
    check_types(kind, given)
    return made
