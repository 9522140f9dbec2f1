r"""JSON Lines: a JSON object a line, a line a sample.

    {"id":"a/0","text":"one\ntwo","score":0.5,"tags":["x","y"]}      UTF-8, lines end with LF or CR LF
    {"id":"a/1","text":null,"score":1.0,"tags":[]}

Plain, or compressed as a whole (gzip, zstd, bz2, xz, told by content). There is no header: the columns, and the types
that hold all of their values exactly, are known when all lines have been looked at, which takes one pass of its own
(`lading.arrow.json_columns`: a field that mixes types, holds lists or objects, or integers beyond 64 bits, is JSON
text). An absent field is a null. Blank lines are skipped, and counted; a byte order mark at the beginning is let pass.

A file that ends after a whole line is whole, with a line end or without: one that was cut between two lines looks the
same.

pyarrow 26's own JSON reader is not used: it makes floats of `1` beside `1.0` and of integers beyond 64 bits, and times
of texts that look like some; takes two objects on a line; and refuses a field of several types.

Written compactly, without spaces, as orjson and pandas (so datatrove and Hugging Face datasets) do, every column in
every line, numbers as Python's `json` spells them: `NaN` and `Infinity` are, though RFC 8259 has none.

Source: https://jsonlines.org, RFC 8259; datatrove 0.10.1 pipeline/writers/jsonl.py, datasets 5.2.0 io/json.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lading.codecs import ENDINGS
from lading.formats.base import Recovered, ShardFacts, ShardSource, parse_options
from lading.formats.jsonl.reader import JsonlReader, ReadOptions
from lading.formats.jsonl.writer import JsonlWriter, WriteOptions, becomes_base64, check_schema
from lading.formats.text_lines import open_text
from lading.limits import DEFAULT_LIMITS, Limits
from lading.storage.base import Sink, Store

__all__ = ["FORMAT", "JsonlFormat", "JsonlReader", "JsonlWriter", "ReadOptions", "WriteOptions"]


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """JSON Lines. They have no sidecars and no index of a dataset."""

    name: str = "jsonl"
    extensions: tuple[str, ...] = tuple(
        name + packed for packed in ("", *ENDINGS.values()) for name in (".jsonl", ".ndjson")
    )
    indexes: Mapping[str, str] = field(default_factory=dict, hash=False)
    fixed_schema: bool = True
    loses_types: bool = True
    copy_options: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default=({}, {}), hash=False)
    read_options: type | None = ReadOptions
    write_options: type | None = WriteOptions

    def recognise(self, path: str, head: bytes) -> bool:  # noqa: ARG002 - any text may begin as JSON does
        """By the name alone."""
        return path.lower().endswith(self.extensions)

    def list_shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
        """None: there is no index of a dataset."""

    def open_shard(self, source: ShardSource, options: Mapping[str, Any]) -> JsonlReader:
        """Open a file (`ReadOptions`); reads its first bytes.

        Raises:
            UsageError: an option that is not known.
            NotFound, StoreError: no such file, or no regular file.
        """
        parse_options(self.name, ReadOptions, options)
        return JsonlReader(open_text(source))

    def create_shard(self, sink: Sink, schema: pa.Schema, options: Mapping[str, Any]) -> JsonlWriter:
        """Begin a file (`WriteOptions`).

        Raises:
            UsageError: an option that is not known.
            Unrepresentable: a column that JSON does not hold exactly.
        """
        check_schema(schema)
        return JsonlWriter(sink, schema, parse_options(self.name, WriteOptions, options))

    def recover(
        self,
        source: ShardSource,
        options: Mapping[str, Any],
        *,
        schema: pa.Schema | None = None,  # noqa: ARG002 - contract
        failed: bool = True,
    ) -> Recovered | None:
        """The lines that are documents. Raises LimitExceeded for a line that is too long."""
        if not failed:
            return None
        return self.open_shard(source, options).resync()

    def turned_to_text(self, schema: pa.Schema, options: Mapping[str, Any]) -> list[str]:
        """With `bytes=base64` the columns of bytes."""
        told = parse_options(self.name, WriteOptions, options)
        return [field.name for field in schema if becomes_base64(field)] if told.bytes == "base64" else []

    def shard_name(self, number: int) -> str:
        """`shard-000000`."""
        return f"shard-{number:06d}"

    def rows_stand_alone(self, path: str, head: bytes) -> bool:  # noqa: ARG002 - in every file
        """Yes."""
        return True

    def extension(self, options: Mapping[str, Any]) -> str:
        """`.jsonl`, and the ending of the compression."""
        return ".jsonl" + ENDINGS.get(parse_options(self.name, WriteOptions, options).compression or "", "")

    def write_sidecars(self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:  # noqa: ARG002 - there are none
        """Nothing: there are no index files."""
        return []

    def alike(self, source: ShardSource, view: str) -> dict[str, Any]:  # noqa: ARG002 - in every view
        """The compression."""
        wrap = open_text(source).entry.wrap
        return {"compression": wrap} if wrap else {}


FORMAT = JsonlFormat()
"""The format, as the registry finds it."""
