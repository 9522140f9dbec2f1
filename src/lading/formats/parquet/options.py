"""What one may ask for of a Parquet shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow.compute as pc

from lading.errors import UsageError

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
        int96_unit: of times in 96 bits, where neither an Arrow schema nor Spark tells one: `ns` (which is what is taken
            if nothing is given, and ends in 2262), `us`, `ms` or `s`. A time that is finer is an error.
    """

    filter: pc.Expression | None = None
    row_groups: Sequence[int] | None = None
    mmap: bool = False
    views: bool = False
    media: str = "stored"
    int96_unit: Literal["ns", "us", "ms", "s"] | None = None

    def __post_init__(self) -> None:
        """Refuse units that there are not."""
        if self.int96_unit not in (None, "ns", "us", "ms", "s"):
            raise UsageError("no such unit", expected="ns, us, ms or s", found=f"int96_unit={self.int96_unit!r}")


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
