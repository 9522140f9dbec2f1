"""What in an Arrow file or stream will hurt, by the heads of its messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.ipc import ROWS
from lading.formats.arrow.blocks import Blocks
from lading.formats.arrow.places import arrays_of
from lading.formats.base import LayoutFinding
from lading.formats.layout_findings import NEAR_BYTES, large_strings, large_unit

__all__ = ["find_layout_findings", "longest_column"]

_MOST_PACKED = 64
_SIZE_BYTES = 8


def find_layout_findings(blocks: Blocks, schema: pa.Schema) -> list[LayoutFinding]:
    """What will hurt in these blocks, of this schema. Of compressed batches the largest are looked at."""
    rows = blocks.find_all()
    sizes = np.array([block.body_bytes for block in blocks.batches], np.int64)
    largest = np.argsort(-sizes, kind="stable")[:_MOST_PACKED]
    if len(sizes) and _buffer_bytes(blocks, int(largest[0]))[1]:
        sizes[largest] = [int(_buffer_bytes(blocks, number)[0].sum()) for number in largest.tolist()]
    found = large_unit("record batch", sizes, rows)
    for number in np.flatnonzero(sizes > NEAR_BYTES).tolist()[:1]:
        column, size = longest_column(blocks, number, schema)
        found += large_strings(f"record batch {number}", column, size)
    return found


def _buffer_bytes(blocks: Blocks, number: int) -> tuple[NDArray[np.int64], bool]:
    """Bytes of each buffer of a record batch, unpacked, and whether they are packed: their first eight then say it."""
    block = blocks.batches[number]
    [head] = blocks.body.peek_each(np.array([block.offset]), np.array([block.meta_bytes]))
    message = blocks.parse(block, head, ROWS)
    assert message.buffers is not None
    size = message.buffers["length"].astype(np.int64)
    if not message.codec:
        return size, False
    packed = np.flatnonzero(size >= _SIZE_BYTES)
    places = block.offset + block.meta_bytes + message.buffers["offset"][packed].astype(np.int64)
    told = np.frombuffer(b"".join(blocks.body.peek_each(places, np.full(len(packed), _SIZE_BYTES))), "<i8")
    size[packed] = np.where(told < 0, size[packed] - _SIZE_BYTES, told)  # -1: it was not worth packing
    return size, True


def longest_column(blocks: Blocks, number: int, schema: pa.Schema) -> tuple[str, int]:
    """The column of a record batch that has most bytes behind offsets of 32 bits, and how many."""
    sizes, _ = _buffer_bytes(blocks, number)
    found, at = ("", 0), 0
    for field in schema:
        for buffers in arrays_of(field.type):
            if buffers is None:
                return found
            for behind in buffers:
                if behind and at < len(sizes) and int(sizes[at]) > found[1]:
                    found = (field.name, int(sizes[at]))
                at += 1
    return found
