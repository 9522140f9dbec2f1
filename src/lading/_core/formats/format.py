"""A format and its facts: one class with its data, which opens and creates shards.

`Format` has defaults for all but a few methods, and `FormatInfo` holds facts as data, so callers ask no format what it
is. docs/write-a-format.md shows a whole format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import pyarrow as pa

from lading._core.features.stored_values import rows_schema
from lading._core.formats.base import FoundMembers, ShardFile, ShardReader, ShardWriter
from lading._core.formats.dataset_index import DatasetIndex, LooseFiles
from lading._core.formats.findings import Finding, Level
from lading._core.storage.base import Sink
from lading.errors import LadingError, UsageError
from lading.options import check_types

__all__ = [
    "MEDIA_FOLDER",
    "ROOTS",
    "AnyFormat",
    "Format",
    "FormatInfo",
    "Layout",
    "NoOptions",
    "Presets",
    "Written",
    "file_names",
    "named_folders",
    "parse_options",
]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a format that has none."""


Layout: TypeAlias = Literal["rows", "members", "packed", "documents"]


@dataclass(frozen=True, slots=True)
class Presets:
    """Options of a format for special purposes; empty where it has none.

    Attributes:
        read_to_copy, write_copies: options of reading and of writing under which a copy within this format keeps
            details that other formats lack (the case and order of member names).
        write_changed: options of writing under which nothing is a copy: members get other names.
        write_alone: options of writing for shards that are read without lading's manifest.
        read_deep: options of reading under which a reader also runs checks that are too slow for every read.
        read_whole: options of reading under which rows come with the bytes of files next to the shard.
        write_piped: options of writing for readers of a pipe, who cannot go back.
        ignore_sidecar: options of reading under which the index file next to a shard is ignored.
    """

    read_to_copy: Mapping[str, Any] = field(default_factory=dict)
    write_copies: Mapping[str, Any] = field(default_factory=dict)
    write_changed: Mapping[str, Any] = field(default_factory=dict)
    write_alone: Mapping[str, Any] = field(default_factory=dict)
    read_deep: Mapping[str, Any] = field(default_factory=dict)
    read_whole: Mapping[str, Any] = field(default_factory=dict)
    write_piped: Mapping[str, Any] = field(default_factory=dict)
    ignore_sidecar: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """Facts about a format.

    Attributes:
        name: what users type (`--to parquet`).
        extensions: file name endings, lower-case, with the dot. Writers use the first one.
        when_named: further endings of its shards in a folder, if the format is named; other files have them too. Of a
            format without `extensions`, files with these endings are shards too where they are alone in a folder.
        read_options: dataclass of the options of reading; its docstring describes each.
        write_options: dataclass of the options of writing; None for a read-only format. `row_group_bytes` in it is how
            much payload a writer holds back; a conversion keeps it to a quarter of its batches.
        presets: options for special purposes.
        shard_name: pattern of the names of shards, by number, without an ending, unless a user gives another.
        beside: regular expression of the names of files that hold the media of shards, if other formats claim the
            endings of these shards too. A folder with both, and with documents in its first shard, is of this format.
        leftovers: regular expression of the names of files that a peer leaves next to shards, such as sidecars. Those
            with an ending of shards are left out where shards are listed.
        interleaved: how a sample of items is laid out: `rows` (a row an item), `members` (files in a tar), `packed` (a
            row a sample) or `documents` (a row a sample, its media in a list).
        fixed_schema: all rows of a shard have the same columns; otherwise each sample may have fields of its own.
        stores_structs: values may be structs; otherwise media are stored as their bytes.
        types: the types of columns are `stored` in files; `inferred` from values, as in JSON; or all are `text` unless
            an option of reading gives others. Types that files do not store, the manifest does.
        self_contained: items hold their bytes. No `source_ref` leads to these bytes, nor from items to bytes elsewhere.
        opens_at_once: opening a shard reads only its end, and an open shard stays readable when it is replaced.
        restores_types: rows are restored exactly only with the columns of the manifest, in every dataset.
        files_name_each_other: the files of a shard contain each other's names, so they cannot be renamed.
        hive_partitions: folders such as `year=2023` above a shard stand for columns of its rows.
        may_end_early: damage may look like the end of a shard, so that reading a damaged shard raises no error.
    """

    name: str
    extensions: tuple[str, ...]
    when_named: tuple[str, ...] = ()
    read_options: type = NoOptions
    write_options: type | None = None
    presets: Presets = Presets()
    shard_name: str = "shard-{:06d}"
    beside: str = ""
    leftovers: str = ""
    interleaved: Layout = "rows"
    fixed_schema: bool = True
    stores_structs: bool = False
    types: Literal["stored", "inferred", "text"] = "stored"
    self_contained: bool = False
    opens_at_once: bool = False
    restores_types: bool = False
    files_name_each_other: bool = False
    hive_partitions: bool = False
    may_end_early: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a reader must know of written rows, and what is lost.

    Attributes:
        read_options: options that a reader needs and that the files do not store; the manifest stores them.
        reduced_columns: columns that are read back incompletely.
        needs_schema: these rows are restored exactly only with their columns, which the manifest stores.
        asked_fields: columns that the options declare, as samples are to be encoded for them; None if there are none.
        lost_types: columns whose exact types a file does not keep without a manifest.
        schema: returns the columns with the types in which they are read back; None if their types stay.
        extensions: of formats whose rows are members: the ending that the members of a column get, by its name.
        note: what readers of the format make less of than lading, and the option that changes it; empty for nothing.
    """

    read_options: Mapping[str, Any] = field(default_factory=dict)
    reduced_columns: Sequence[str] = ()
    needs_schema: bool = False
    asked_fields: pa.Schema | None = None
    lost_types: Sequence[str] = ()
    schema: Callable[[], pa.Schema] | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Heads:
    """What the heads of a local shard say of it.

    Attributes:
        count_rows: returns the number of rows, with these options of reading; None if the shard must be opened for it.
            Raises as `Format.open`.
    """

    count_rows: Callable[[ShardFile, Any], int | None]


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
    heads: ClassVar[Heads | None] = None
    """What the heads of a shard say, if opening the shard takes much longer."""
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
        """Check options of writing.

        Raises:
            UsageError: an unknown option or a wrong type; or the format is read-only.
        """
        if self.info.write_options is None:
            raise self._read_only()
        made: W = parse_options(self.name, self.info.write_options, given)
        return made

    def _read_only(self) -> UsageError:
        """Return the error that the format cannot be written."""
        if self.loose is not None:
            return UsageError(
                "loose files are no shards", advice="Name another format with --to; lading export writes files."
            )
        return UsageError(f"the format {self.name} is read-only", advice="Name another format with --to.")

    def matches(self, path: str, head: bytes) -> bool:
        """Whether a file with this name and these first bytes (up to 1,024) is a shard. By default the name decides."""
        return path.lower().endswith(self.info.extensions)

    # Reading

    @abstractmethod
    def open(self, file: ShardFile, options: R) -> ShardReader:
        """Open one shard."""

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
        raise self._read_only()

    def written(self, schema: pa.Schema, options: W) -> Written:
        """Return what a reader must know of rows of this schema that are written with these options."""
        return Written()

    def schema_as_read(self, schema: pa.Schema, options: R, *, restored: bool) -> pa.Schema:
        """Return the columns that a reader gives, by those that the manifest keeps of the rows.

        Args:
            schema: the columns as they were written.
            options: how the shards are read.
            restored: whether the rows are read as they were written (`ShardReader.as_written`), not as they are stored.

        Raises:
            Unrepresentable: rows are restored, and have a column that the format cannot hold.
        """
        return rows_schema(schema) if restored else schema

    def options_like(self, source: ShardFile, view: str) -> Mapping[str, Any]:
        """Return options of writing under which a copy is like this shard, where no batch tells (its compression)."""
        return {}

    def endings(self, options: W) -> Sequence[str]:
        """Return the endings of the names of a shard's files under these options, its own first, such as `.tar.gz`."""
        return self.info.extensions[:1]

    def checks(self, file: ShardFile, options: R, level: Level) -> Iterator[Finding]:
        """Yield what is to be said of a shard and of the files next to it, and what reading its rows does not raise.

        `verify` asks for problems, `doctor` for the layout, `salvage` for what was lost.

        Raises:
            DataError, StoreError: the shard cannot be read.
        """
        yield from ()


AnyFormat: TypeAlias = Format[Any, Any]


MEDIA_FOLDER, ROOTS = {"names": "media"}, {"names": "roots"}
"""Metadata of options of reading that name folders: of the media of shards; and further ones that shards lead to."""


def named_folders(options: Any, kind: Mapping[str, str]) -> list[str]:
    """Return the folders that options of reading name, those of a kind: `MEDIA_FOLDER` or `ROOTS`."""
    given = (getattr(options, f.name) or () for f in fields(options) if f.metadata == kind)
    return [folder for each in given for folder in ((each,) if isinstance(each, str) else each)]


def file_names(path: str, endings: Sequence[str]) -> list[str]:
    """Return the names of a shard's files, its own first, by the shard's own name and `Format.endings`."""
    return [path, *(path.removesuffix(endings[0]) + ending for ending in endings[1:])]


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
