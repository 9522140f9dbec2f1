"""The names of MosaicML Streaming: shards, local copies, the writer, and datasets for training.

    with MDSWriter(out="set", columns={"text": "str"}) as out:
        out.write({"text": "a"})
    dataset = StreamingDataset(local="set", shuffle=True, batch_size=32)    # needs PyTorch

Source: mosaicml-streaming 0.13.0, base/format, base/stream.py, base/dataset.py and base/local.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lading.compat.local_copy import LocalCopy
from lading.compat.mds_shards import (
    CSVReader,
    JSONReader,
    MDSReader,
    MDSShard,
    TSVReader,
    XSVReader,
    reader_from_json,
)
from lading.compat.mds_writer import MDSWriter
from lading.compat.reader import FileInfo, Reader

if TYPE_CHECKING:
    from lading.compat.streaming_dataset import Stream, StreamingDataset

__all__ = [
    "CSVReader",
    "FileInfo",
    "JSONReader",
    "LocalCopy",
    "MDSReader",
    "MDSShard",
    "MDSWriter",
    "Reader",
    "Stream",
    "StreamingDataset",
    "TSVReader",
    "XSVReader",
    "reader_from_json",
]


def __getattr__(name: str) -> Any:
    """Load what needs PyTorch when it is asked for."""
    if name not in ("Stream", "StreamingDataset"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("lading.compat.streaming_dataset"), name)
