"""What in an Arrow file or stream will hurt, by the heads of its messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats._arrow_blocks import Blocks
from lading.formats.protocol import Symptom
from lading.formats.symptoms import NEAR_BYTES, large_strings, large_unit
from lading.ipc import ROWS

__all__ = ["find_symptoms", "longest_column"]

_MOST_PACKED = 64
_SIZE_BYTES = 8


def find_symptoms(blocks: Blocks, schema: pa.Schema) -> list[Symptom]:
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
        for role in _buffers_of(field.type):
            if role is None:
                return found
            if role and at < len(sizes) and int(sizes[at]) > found[1]:
                found = (field.name, int(sizes[at]))
            at += 1
    return found


def _buffers_of(kind: pa.DataType) -> Iterator[bool | None]:
    """The buffers of a column in their order: whether each has values behind offsets of 32 bits.

    None where their number is not known from the type alone; who asks can go no further.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from _buffers_of(kind.storage_type)
    elif types.is_string(kind) or types.is_binary(kind):
        yield from (False, False, True)
    elif types.is_large_string(kind) or types.is_large_binary(kind):
        yield from (False, False, False)
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        yield False
        yield from _of_children(kind)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        yield from (False, False)
        yield from _of_children(kind)
    elif types.is_null(kind):
        return
    elif any(
        test(kind) for test in (types.is_primitive, types.is_decimal, types.is_fixed_size_binary, types.is_dictionary)
    ):
        yield from (False, False)
    else:
        yield None


def _of_children(kind: pa.DataType) -> Iterator[bool | None]:
    for i in range(kind.num_fields):
        yield from _buffers_of(kind.field(i).type)
