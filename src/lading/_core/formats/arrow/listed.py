"""Compare the footer of an Arrow file, which rules, with the messages before it, which readers of streams follow.

Messages that the footer lists are not looked at. So a file whose blocks are without gaps costs no read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lading._core.arrow.ipc import CONTINUED, DICTIONARY, MOST_START_BYTES, ROWS, SCHEMA, Message, start_of_file
from lading._core.formats.arrow.blocks import Block, Blocks, next_message
from lading._core.formats.findings import Finding
from lading.errors import CorruptShard

__all__ = ["check_footer", "schema_at_head", "unlisted_messages"]

_ALIGNED = _PREFIX = 8
_ADVICE = "Rows are read as the footer says, as pyarrow does. A reader of streams reads others."


def unlisted_messages(blocks: Blocks) -> Iterator[tuple[Block, Message]]:
    """Yield the messages of dictionaries and rows in a file that its footer does not list, by their places."""
    listed = np.array([block[:3] for block in (*blocks.dictionaries, *blocks.batches)], np.int64).reshape(-1, 3)
    begin = np.sort(listed[:, 0])
    end = np.maximum.accumulate(listed.sum(axis=1)[np.argsort(listed[:, 0], kind="stable")])
    starts = np.append(_start(blocks), end + -end % _ALIGNED)
    stops = np.append(begin, blocks.schema_offset)
    for gap in np.flatnonzero(stops - starts > _PREFIX).tolist():
        yield from _messages(blocks, int(starts[gap]), int(stops[gap]))


def _messages(blocks: Blocks, at: int, stop: int) -> Iterator[tuple[Block, Message]]:
    """Yield the messages that follow each other in a range; nothing for other bytes."""
    while stop - at > _PREFIX:
        try:
            block, message, _ = next_message(blocks.body, at, unended=False)
        except CorruptShard:
            return
        if block is None or message is None or at + block.size_bytes > stop:
            return
        if message.kind in (DICTIONARY, ROWS):
            yield block, message
        elif message.kind != SCHEMA:
            return
        at += block.size_bytes + -block.size_bytes % _ALIGNED


def _start(blocks: Blocks) -> int:
    return start_of_file(blocks.body.peek(0, min(MOST_START_BYTES, blocks.body.size_bytes)))


def schema_at_head(data: bytes) -> pa.Schema | None:
    """Return the schema of the bytes before the first listed message; None if they are no schema.

    Polars 2.1 writes the head of the message without its prefix.
    """
    framed = data if data.startswith(CONTINUED) else CONTINUED + len(data).to_bytes(4, "little") + data
    for message in (data, framed):
        try:
            return pa.ipc.read_schema(pa.py_buffer(message))
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
    return None


def check_footer(blocks: Blocks, schema: pa.Schema) -> Iterator[Finding]:
    """Yield where the messages of a file differ from its footer: the schema, messages not listed, their order."""
    if blocks.is_stream:
        return
    path, start = blocks.body.path, _start(blocks)
    first = min((block.offset for block in (*blocks.dictionaries, *blocks.batches)), default=blocks.schema_offset)
    head = blocks.body.peek(start, max(first - start, 0))
    found = schema_at_head(head)
    if found is None and head.strip(b"\0\xff"):
        yield _finding("the file has bytes before its record batches that are no schema", path, start,
                       expected="the schema of the footer, or nothing", found=f"{len(head)} bytes")  # fmt: skip
    elif found is not None and not found.equals(schema, check_metadata=True):
        yield _finding("the schema before the record batches differs from that of the footer", path, start,
                       expected=_spelled(schema), found=_spelled(found))  # fmt: skip
    unlisted = list(unlisted_messages(blocks))
    if unlisted:
        rows = sum(message.rows for _, message in unlisted if message.kind == ROWS)
        yield _finding("the footer does not list all messages of the file", path, unlisted[0][0].offset,
                       found=f"{len(unlisted)} more, with {rows} rows")  # fmt: skip
    offsets = [block.offset for block in blocks.batches]
    if any(a >= b for a, b in pairwise(offsets)):
        twice = len({*offsets}) < len(offsets)
        yield _finding(f"the footer lists record batches {'more than once' if twice else 'in another order'}", path,
                       blocks.schema_offset, expected="each once, in the order of the file")  # fmt: skip


def _finding(message: str, path: str, offset: int, *, expected: str | None = None, found: str | None = None) -> Finding:
    return Finding.of(CorruptShard(message, file=path, offset=offset, expected=expected, found=found, advice=_ADVICE))


def _spelled(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)[:500]
