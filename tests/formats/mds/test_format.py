"""MDS shards: the kit. What the peer wrote is in `test_mds_golden.py`, what it reads and writes in `tests/interop`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.arrow.references import RefType
from lading._core.formats.format import AnyFormat
from lading._core.formats.mds.format import FORMAT
from lading.testing.format import FormatTests


class TestMds(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    holds_nulls: ClassVar[bool] = False
    index_has_rows: ClassVar[bool] = False
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"compression": "zstd:7"},
        {"compression": "br:3", "hashes": ["sha1", "xxh64"]},
        {"compression": "gz"},
        {"compression": "bz2:1"},
        {"compression": "snappy"},
        {"size_limit": None, "columns": {"__key__": "str"}},
    )

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "list": pa.schema([("a", pa.int8()), ("list", pa.list_(pa.date32()))]),
            "time": pa.schema([("time", pa.timestamp("us"))]),
            "twice": pa.schema([("twice", pa.int8()), ("twice", pa.int16())]),
            "refs": pa.schema([("refs", RefType())]),
        }
