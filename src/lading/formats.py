"""The contract of a format: what a package implements to add one, and the registry."""

from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFacts, ShardFile, ShardReader, ShardWriter
from lading._core.formats.dataset_index import DatasetIndex, ListedShard
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, NoOptions, Presets, Written
from lading._core.formats.registry import (
    format_names,
    get_format,
    register,
)
from lading._core.formats.text_lines import (
    open_text,
)
from lading._core.storage.base import Sink, Store

__all__ = [
    "DEFAULT_SCAN",
    "DatasetIndex",
    "Finding",
    "Format",
    "FormatInfo",
    "Level",
    "ListedShard",
    "NoOptions",
    "Presets",
    "Scan",
    "ShardFacts",
    "ShardFile",
    "ShardReader",
    "ShardWriter",
    "Sink",
    "Store",
    "Written",
    "format_names",
    "get_format",
    "open_text",
    "register",
]
