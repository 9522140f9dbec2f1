from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from lading.formats.parquet import FORMAT
from lading.formats.protocol import Format
from lading.ref import RefType
from lading.testing.format import FormatTests


class TestParquet(FormatTests):
    fmt: ClassVar[Format] = FORMAT
    index_has_rows: ClassVar[bool] = False
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"row_group_bytes": 1},
        {"row_group_bytes": "1kb", "page_bytes": "100b"},
        {"compression": "gzip", "compression_level": 1, "media_compression": "snappy"},
        {"compression": {"__key__": "brotli"}},
        {"compression": "none"},
    )

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "no_fields": pa.schema([("a", pa.int8()), ("no_fields", pa.struct([]))]),
            "interval": pa.schema([("interval", pa.month_day_nano_interval())]),
            "twice": pa.schema([("twice", pa.int8()), ("twice", pa.int16())]),
            "refs": pa.schema([("refs", RefType())]),
        }
