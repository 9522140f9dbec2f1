"""Read and write options of Parquet shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lading.errors import UsageError

__all__ = ["WITH_LEVELS", "ReadOptions", "WriteOptions"]

_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
WITH_LEVELS = ("gzip", "brotli", "zstd")
"""Codecs that have levels."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a Parquet shard is read.

    Attributes:
        filter: Keep only rows for which this pyarrow expression is true. Row groups that its statistics exclude are not
            read. Columns of the filter are read before the others, even if nobody asks for them.
        row_groups: Read only these row groups, in this order.
        mmap: Read through a memory map, where the store has one.
        views: Give payload as `binary_view` that owns its bytes, for a sink or `materialise` at once. Filters do not
            take views.
        media: `stored`; or `bytes`: media that Hugging Face stores as a struct of bytes and path, and videos of a
            cache, come as bytes alone.
        int96_unit: Unit of 96-bit times: `ns`, `us`, `ms` or `s`. By default that of the file's Arrow schema,
            microseconds for files of Spark, else nanoseconds, which end in 2262. A finer value is an error.
    """

    filter: pc.Expression | None = None
    row_groups: Sequence[int] | None = None
    mmap: bool = False
    views: bool = False
    media: str = "stored"
    int96_unit: Literal["ns", "us", "ms", "s"] | None = None

    def __post_init__(self) -> None:
        """Refuse unknown units."""
        if self.int96_unit not in (None, "ns", "us", "ms", "s"):
            raise UsageError("no such unit", expected="ns, us, ms or s", found=f"int96_unit={self.int96_unit!r}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a Parquet shard is written.

    Attributes:
        row_group_bytes: Bytes of values in a row group, before encoding; at least one row, at most 1 GiB.
        row_group_rows: Rows in a row group at most. By default its bytes alone decide.
        page_bytes: Bytes of values in a page. A larger value has its own page.
        compression: Codec: `none`, `snappy`, `gzip`, `brotli`, `lz4` or `zstd`; or a codec by column, where other
            columns use `zstd`.
        compression_level: Level of codecs that have levels. By default that of the codec.
        media_compression: Codec of payload columns. By default `compression`, or none if a trial saves less than a
            tenth.
        huggingface: By default, media are written as Hugging Face's datasets stores them, a struct of bytes and path,
            with features in the metadata: datasets opens images as images, and labels with their names. `true` writes
            all columns in the types of datasets, so that arrays are arrays and JSON is parsed. `false` writes media as
            bytes alone.
    """

    row_group_bytes: int | str = 64 << 20
    row_group_rows: int | None = None
    page_bytes: int | str = 1 << 20
    compression: str | Mapping[str, str] = "zstd"
    compression_level: int | None = None
    media_compression: str | None = None
    huggingface: bool | None = None

    def __post_init__(self) -> None:
        """Refuse unknown codecs and levels."""
        codecs = self.compression.values() if isinstance(self.compression, Mapping) else [self.compression]
        for codec in [*codecs, self.media_compression or "none"]:
            if codec not in _CODECS:
                raise UsageError("no such compression", expected=", ".join(_CODECS), found=repr(codec))
            if self.compression_level is not None and codec in WITH_LEVELS:
                _check_level(codec, self.compression_level)


def _check_level(codec: str, level: int) -> None:
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if type(level) is not int or not least <= level <= most:
        raise UsageError(f"no such level of {codec}", expected=f"{least} to {most}", found=repr(level))
