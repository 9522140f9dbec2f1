"""Arrow shards: the kit, types, layouts, options, limits. Expected values come from pyarrow's own reader and writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from lading.formats.arrow import FORMAT
from lading.formats.protocol import Format
from lading.ref import RefType
from lading.testing.format import FormatTests


class TestArrow(FormatTests):
    fmt: ClassVar[Format] = FORMAT
    index_has_rows: ClassVar[bool] = False
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"compression": "zstd"},
        {"compression": "zstd", "compression_level": 19},
        {"compression": "lz4"},
        {"batch_rows": 2},
        {"batch_bytes": 1},
    )

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "twice": pa.schema([("twice", pa.int8()), ("twice", pa.int16())]),
            "refs": pa.schema([("refs", RefType())]),
        }


class TestStreams(TestArrow):
    options: ClassVar[Mapping[str, Any]] = {"layout": "huggingface", "batch_rows": 7}

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            **super().cannot_hold(),
            "map": pa.schema([("a", pa.int8()), ("map", pa.map_(pa.string(), pa.int8()))]),
        }
