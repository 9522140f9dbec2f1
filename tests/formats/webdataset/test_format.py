"""The WebDataset format against its contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.formats.format import AnyFormat
from lading._core.formats.webdataset.format import FORMAT
from lading.testing.format import FormatTests

_KEY = pa.field("__key__", pa.string())


class TestWebdataset(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    may_end_early: ClassVar[str] = (
        "a tar may end without its blocks of zeros, so a cut between two members does not show"
    )
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"compression": name} for name in ("gzip", "zstd", "bz2", "xz")
    ]

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "number": pa.schema([_KEY, pa.field("number", pa.month_day_nano_interval())]),
            "JPG": pa.schema([_KEY, pa.field("jpg", pa.binary()), pa.field("JPG", pa.binary())]),
            "a/b": pa.schema([_KEY, pa.field("a/b", pa.binary())]),
        }


class TestCompressed(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    options: ClassVar[Mapping[str, Any]] = {"compression": "zstd"}
