"""Limits on the sizes and counts in a file, and on its unpacked size.

The caller who opens a file sets its limits: `limits=` of `lading.open` and of every function that takes a source, or
`--max` on the command line. The limits travel with the file, so two sources share no state. An error of a limit names
its field. Bounds of a format or of Arrow itself are not limits of this kind (`docs/limits.md`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

from lading._core.units import parse_bytes
from lading.errors import LimitExceeded, UsageError

__all__ = ["DEFAULT_LIMITS", "Growth", "Limits", "raised_by"]


@dataclass(frozen=True, slots=True, repr=False)
class Limits:
    """The most that files may ask for. Raise one for files that are trusted, lower it for those that are not.

    Attributes:
        arrow_batch_bytes: the unpacked size of a compressed Arrow batch (`read_shard`: file), if over 100 × its size.
        bare_rows: rows of an Arrow or Parquet file (in Arrow also values in lists) beyond those that its bytes can
            hold: nulls.
        document_bytes: the JSON of a document in a tar; it is held in memory, several times over.
        fetch_bytes: a file that is downloaded because a table names its URL.
        fetch_seconds: the time for such a file, with redirects and repeats.
        footer_bytes: the footer of a Parquet or Arrow file.
        image_frames: frames of a TIFF file, if one is requested.
        image_strips: strips or tiles of a frame of a TIFF file.
        index_bytes: a dataset's own index, and other descriptions in or next to a shard.
        index_values: values in an index of JSON beyond one for each 8 bytes, an object counted as four.
        json_fields: different fields among the lines of JSON that are read together, if rows times fields exceed the
            bytes of the lines.
        line_bytes: a line of JSON or a record of CSV; it is held in memory, several times over.
        manifest_bytes: each of lading's own files next to a dataset, and its unpacked size.
        mds_columns: columns of a shard of MDS.
        page_bytes: the unpacked size of a Parquet page, if over 1,000 × its size.
        page_header_bytes: the header of a Parquet page.
        range_bytes: the unpacked size of a compressed range, such as a record of a media archive or a frame of zstd.
        salvage_bytes: the unpacked size of the damaged compressed files of a salvage together, beyond 100 × the size of
            each; they lie on disk.
        sample_bytes: the unpacked size of a sample's records, beyond their size in the file.
        shard_bytes: the unpacked size of a compressed MDS shard; it is held in memory.
        stream_bytes: the unpacked size of a compressed file, if over 1,000 × its size.
        table_columns: columns of a CSV, Parquet or Arrow file; in Parquet, the leaves of nested columns.
        tar_cells: samples times fields of a tar, beyond 64 for each member.
        tar_extension_bytes: an extension record of a tar, such as a long name.
        tar_extensions: extension records before a member of a tar.
        tar_fields: different fields of the samples of a tar.
        tar_keys_bytes: keys of a tar's samples, or names of documents' members, where all are held, as in an index.
        tar_map_blocks: blocks with the map of the holes in a sparse member of a tar.
        tar_member_bytes: a member, or a sample, of a compressed tar; it is held in memory.
        tar_name_bytes: the name of a member of a tar.
        tar_sparse_bytes: the sparse members of a sample of a tar with their holes filled.
        tar_tail_bytes: bytes after the end of a compressed tar.
        warc_header_bytes: the headers of a WARC record, and those of the response in it.
        xz_memory_bytes: memory for unpacking xz; `xz -9` needs 65 MiB.
        zstd_window_bytes: window for unpacking zstd; `zstd --ultra -22` needs 128 MiB.

    Raises:
        UsageError: a limit is no whole number, or negative.
    """

    arrow_batch_bytes: int = 256 << 20
    bare_rows: int = 1 << 20
    document_bytes: int = 64 << 20
    fetch_bytes: int = 100 << 20
    fetch_seconds: int = 60
    footer_bytes: int = 256 << 20
    image_frames: int = 100_000
    image_strips: int = 1_000_000
    index_bytes: int = 256 << 20
    index_values: int = 4 << 20
    json_fields: int = 4096
    line_bytes: int = 64 << 20
    manifest_bytes: int = 1 << 30
    mds_columns: int = 65_536
    page_bytes: int = 72 << 20
    page_header_bytes: int = 16 << 20
    range_bytes: int = 1 << 30
    salvage_bytes: int = 256 << 20
    sample_bytes: int = 1 << 30
    shard_bytes: int = 1 << 30
    stream_bytes: int = 16 << 30
    table_columns: int = 16_384
    tar_cells: int = 1 << 22
    tar_extension_bytes: int = 1 << 20
    tar_extensions: int = 100
    tar_fields: int = 10_000
    tar_keys_bytes: int = 1 << 30
    tar_map_blocks: int = 2048
    tar_member_bytes: int = 1 << 30
    tar_name_bytes: int = 4096
    tar_sparse_bytes: int = 256 << 20
    tar_tail_bytes: int = 64 << 20
    warc_header_bytes: int = 1 << 20
    xz_memory_bytes: int = 256 << 20
    zstd_window_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        """Refuse values that are not limits."""
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise UsageError("not a limit", expected="a whole number, 0 or more", found=f"{field.name}={value!r}")

    def __repr__(self) -> str:
        """The limits that differ from the usual ones: `Limits()`, `Limits(line_bytes=…)`."""
        given = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return f"Limits({', '.join(f'{name}={value}' for name, value, usual in given if value != usual)})"

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Return limits by name, with defaults for the others. Sizes may be texts such as `"4GB"`.

        Raises:
            UsageError: a name or a value is not a limit.
        """
        known = [field.name for field in fields(cls)]
        for name in told:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                advice = f"Did you mean {close[0]}?" if close else None
                raise UsageError("no such limit", expected=", ".join(known), found=repr(name), advice=advice)
        sizes = {n: parse_bytes(v) for n, v in told.items() if n.endswith("_bytes") and isinstance(v, str)}
        return cls(**{**told, **sizes})

    def check_values(self, text: bytes | bytearray | memoryview, **places: Any) -> None:
        """Refuse JSON of an index that takes many times its size as Python objects. Most indexes are far smaller.

        One value for each 8 bytes is always allowed: MDS describes a shard with up to that many.

        Args:
            text: the JSON; commas and brackets in texts are counted too.
            places: as `exceeded` takes them.

        Raises:
            LimitExceeded: the JSON has more than `index_values` further values.
        """
        if 4 * len(text) > self.index_values:
            data = bytes(text)
            found = data.count(b",") + data.count(b"[") + 4 * data.count(b"{")
            if found > self.index_values + len(data) // 8:
                raise self.exceeded("index_values", "an index of too many values", found=found, **places)

    def exceeded(self, name: str, message: str, *, found: object = "more", **known: Any) -> LimitExceeded:
        """Return the error of a file that exceeds a limit; its advice says how to raise the limit.

        Args:
            name: the limit.
            message: the problem, as in every error.
            found: the value in the file.
            known: further parts of the error: places, `expected` if it is more than the limit, further `advice`.
        """
        unit = " bytes" if name.endswith("_bytes") else ""
        advice = f"{known.pop('advice')} {_advice(name)}" if "advice" in known else _advice(name)
        expected = known.pop("expected", f"at most {getattr(self, name)}{unit}")
        return LimitExceeded(message, expected=expected, found=found, advice=advice, **known)


DEFAULT_LIMITS = Limits()
"""The limits of a call without `limits=`."""


class Growth:
    """Counts by how much the records of one sample grow when they are unpacked, since a sample is in memory as a whole.

    A sample may name a record several times; memory holds it once.

    Args:
        limits: holds the limit on the growth, `sample_bytes`.
    """

    __slots__ = ("_bytes", "_known", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: set[Hashable] = set()
        self._bytes = 0

    def add(self, place: Hashable, size_bytes: int, stored_bytes: int, **places: Any) -> None:
        """Count a record.

        Args:
            place: place of the record; records of one place are one.
            size_bytes: its unpacked size.
            stored_bytes: its size in the file.
            places: as `Limits.exceeded` takes them.

        Raises:
            LimitExceeded: the growth exceeds the limit with this record; it is not counted.
        """
        found = self._bytes + size_bytes - (0 if place in self._known else stored_bytes)
        if found > self._limits.sample_bytes:
            raise self._limits.exceeded(
                "sample_bytes", "the records of a sample unpack to too much",
                expected=f"at most {self._limits.sample_bytes} bytes beyond what they take in their files",
                found=f"{found} with this one", **places,
            )  # fmt: skip
        self._known.add(place)
        self._bytes = found


@contextmanager
def raised_by(name: str) -> Iterator[None]:
    """Add the advice to raise this limit to errors of the body that have no advice."""
    try:
        yield
    except LimitExceeded as error:
        error.advice = error.advice or _advice(name)
        raise


def _advice(name: str) -> str:
    return f"If you trust the file, raise the limit: --max {name}=…."
