"""JSON Lines against the contract of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.arrow.references import RefType
from lading._core.formats.format import AnyFormat
from lading._core.formats.jsonl.format import FORMAT
from lading.testing.format import FormatTests


class TestJsonl(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    holds_bytes: ClassVar[bool] = False
    index_has_rows: ClassVar[bool] = False
    may_end_early: ClassVar[str] = "nothing in the file says how many lines there are"
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"compression": name} for name in ("gzip", "zstd", "bz2", "xz")
    ]

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            name: pa.schema([pa.field("__key__", pa.string()), pa.field(name, kind)])
            for name, kind in {
                "bytes": pa.large_binary(),
                "fixed": pa.binary(3),
                "inside": pa.list_(pa.struct([("b", pa.binary())])),
                "decimal": pa.decimal128(10, 2),
                "date": pa.date32(),
                "time": pa.timestamp("us"),
                "map": pa.map_(pa.string(), pa.int8()),
                "twice": pa.struct([("a", pa.int8()), ("a", pa.int8())]),
                "refs": RefType(),
            }.items()
        } | {"again": pa.schema([("again", pa.int8()), ("again", pa.int8())])}


class TestCompressed(TestJsonl):
    options: ClassVar[Mapping[str, Any]] = {"compression": "zstd"}
    may_end_early: ClassVar[str] = ""
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = ()
