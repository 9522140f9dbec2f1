"""Media archives: documents in JSON Lines or Parquet, and the bytes of their media in archives beside them.

    00000.jsonl.gz       {"text": …, "id": …, "media": [{"id", "type", "url", "alt", "path", "offset", "length",
                         "media_bytes", "metadata"}, …], "metadata": {…}}   a line a document; or 00000.parquet
    000_00000.bin.zst    records, one behind the other (`lading.media.records`); `path` names the archive

A sample is a document: the columns of its file, `media` a list of structs, with the bytes of each read from its archive
(`documents.py`). What a line leaves out is empty: text, media, metadata. A document without text
is kept, which the peer's readers pass over.

Since any JSON Lines and any Parquet may hold documents, this format is never recognised by itself: name it.

Source: datatrove 0.10.1, pipeline/media, pipeline/readers/{jsonl,parquet}.py, pipeline/writers/{jsonl,parquet}.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from lading.errors import UsageError
from lading.formats.base import Recoverable, Recovered, ShardFacts, ShardSource, parse_options
from lading.formats.media_archive.documents import BYTES, MEDIA, PLACE, PLAIN_ROWS, by_number, media_lists, media_parts
from lading.formats.media_archive.reader import FAILED, MISSING, MediaArchiveReader, ReadOptions, documents_format
from lading.formats.media_archive.recover import resync_archives
from lading.formats.media_archive.writer import MediaArchiveWriter, WriteOptions
from lading.formats.registry import get_format
from lading.formats.text_lines import open_text
from lading.limits import DEFAULT_LIMITS, Limits
from lading.storage.base import Sink, Store
from lading.storage.roots import folder_of

__all__ = [
    "BYTES",
    "FAILED",
    "FORMAT",
    "MEDIA",
    "MISSING",
    "PLACE",
    "PLAIN_ROWS",
    "MediaArchiveFormat",
    "MediaArchiveReader",
    "MediaArchiveWriter",
    "ReadOptions",
    "WriteOptions",
    "by_number",
    "media_lists",
    "media_parts",
]


@dataclass(frozen=True, slots=True)
class MediaArchiveFormat:
    """Documents and media archives. They have no sidecars and no index of a dataset."""

    name: str = "media_archive"
    extensions: tuple[str, ...] = (".jsonl.gz", ".jsonl", ".jsonl.zst", ".jsonl.bz2", ".jsonl.xz", ".parquet")
    indexes: Mapping[str, str] = field(default_factory=dict, hash=False)
    fixed_schema: bool = True
    holds_bytes_only: bool = True
    names_inside: bool = True
    copy_options: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default=({}, {}), hash=False)
    deep_options: Mapping[str, Any] = field(default_factory=lambda: {"check_digests": True}, hash=False)
    read_options: type | None = ReadOptions
    write_options: type | None = WriteOptions

    def recognise(self, path: str, head: bytes) -> bool:  # noqa: ARG002 - nothing tells them from other files
        """Never: what else is in such files is as good."""
        return False

    def list_shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
        """None: there is no index of a dataset."""

    def open_shard(self, source: ShardSource, options: Mapping[str, Any]) -> MediaArchiveReader:
        """Open a file of documents (`ReadOptions`); archives are opened when a record of theirs is read.

        Raises:
            UsageError: an option that is not known.
            NotFound, StoreError: no such file, or no regular file.
        """
        return MediaArchiveReader(source, parse_options(self.name, ReadOptions, options))

    def folders_named(self, options: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
        """The folder of the media, if one is named; the roots."""
        told = parse_options(self.name, ReadOptions, options)
        return (() if told.media is None else (told.media,)), told.roots

    def create_shard(self, sink: Sink, schema: pa.Schema, options: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002 - of the contract
        """Refused: a shard is two files (`create_shard_of`). Raises UsageError."""
        raise UsageError("a shard of this format is two files", file=sink.path, found="a sink for one")

    def beside(self, name: str, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The archive, called as the documents' file is."""
        return (name.removesuffix(self.extension(options)) + ".bin.zst",)

    def create_shard_of(
        self, sinks: Sequence[Sink], schema: pa.Schema, options: Mapping[str, Any]
    ) -> MediaArchiveWriter:
        """Begin a file of documents and an archive (`WriteOptions`).

        Raises:
            UsageError: an option that is not known.
            SchemaMismatch: a column `media` that holds no media.
            Unrepresentable: rows that are no documents; a column that the file of documents does not hold.
        """
        return MediaArchiveWriter(sinks, schema, parse_options(self.name, WriteOptions, options))

    def recover(
        self,
        source: ShardSource,
        options: Mapping[str, Any],
        *,
        schema: pa.Schema | None = None,  # noqa: ARG002 - contract
        failed: bool = True,
    ) -> Recovered | None:
        """The documents that are whole; archives are left alone. Raises as the documents' own format does."""
        parse_options(self.name, ReadOptions, options)
        documents = get_format(documents_format(source))
        assert isinstance(documents, Recoverable), "both do"
        return documents.recover(source, {}, failed=failed)

    def resync_beside(
        self, source: ShardSource, options: Mapping[str, Any], known: Mapping[str, Recovered]
    ) -> tuple[Mapping[str, tuple[str, Recovered | None]], Callable[[str], Mapping[str, Any]]] | None:
        """The archives, as `recover` finds them. Raises DataError for documents that cannot be read."""
        reader = self.open_shard(source, options)
        try:
            found = resync_archives(reader, known)
        finally:
            reader.close()
        roots = [*reader.options.roots, reader.options.media or folder_of(source.place) or "."]
        return (found, lambda folder: {"media": folder, "roots": roots}) if found else None

    def shard_name(self, number: int) -> str:
        """`shard-000000`."""
        return f"shard-{number:06d}"

    def rows_stand_alone(self, path: str, head: bytes) -> bool:  # noqa: ARG002 - the name tells
        """Whether the documents are lines."""
        return not path.endswith(".parquet")

    def extension(self, options: Mapping[str, Any]) -> str:
        """That of the documents' file."""
        return parse_options(self.name, WriteOptions, options).ending

    def write_sidecars(self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:  # noqa: ARG002 - there are none
        """Nothing: there are no index files."""
        return []

    def alike(self, source: ShardSource, view: str) -> dict[str, Any]:  # noqa: ARG002 - in every view
        """What the documents' file is, and how lines are compressed: JSON does not hold all that Parquet does."""
        if documents_format(source) == "parquet":
            return {"documents": "parquet"}
        return {"compression": open_text(source).entry.wrap or None}


FORMAT = MediaArchiveFormat()
"""The format, as the registry finds it."""
