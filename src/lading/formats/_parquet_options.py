"""What one may ask for of a Parquet shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

__all__ = ["ReadOptions", "WriteOptions"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a Parquet shard is read.

    Attributes:
        filter: only rows for which this pyarrow expression is true; row groups whose statistics exclude it are not
            read. Its columns are read too, whether asked for or not, and before the others.
        row_groups: only these row groups, in this order, as if the shard held no others.
        mmap: read through a memory map, where the store has one.
        views: give payload as `binary_view` that own their bytes, where the file's Arrow schema says so or the file has
            none. For a sink or `materialise` at once: views cross no filter, take or process.
        media: `stored`, or `bytes` to have media that Hugging Face keeps as a struct of bytes and path as bytes alone,
            and videos that stable-datasets keeps in a struct, too.
    """

    filter: pc.Expression | None = None
    row_groups: Sequence[int] | None = None
    mmap: bool = False
    views: bool = False
    media: str = "stored"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a Parquet shard is written.

    Attributes:
        row_group_bytes: bytes of values in a row group, before encoding; at least one row, at most 1 GiB.
        page_bytes: bytes of values in a page; a larger value has a page to itself.
        compression: a codec (`none`, `snappy`, `gzip`, `brotli`, `lz4`, `zstd`), or one by column, else zstd.
        compression_level: of the codecs that have levels.
        media_compression: codec of payload columns; None: none where a trial does not shrink them by a tenth, else that
            of `compression`.
        huggingface: columns in the types that Hugging Face's datasets has, and its features in the file's metadata, so
            that it opens images as images and labels with their names.
    """

    row_group_bytes: int | str = 64 << 20
    page_bytes: int | str = 1 << 20
    compression: str | Mapping[str, str] = "zstd"
    compression_level: int | None = None
    media_compression: str | None = None
    huggingface: bool = False
