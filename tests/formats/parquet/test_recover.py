"""Footers that are looked for before the end of a Parquet file."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading._core.formats.base import ShardFile
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.recover import recover_groups
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard
from lading.limits import Limits


class _Counted(Input):
    read_bytes = 0

    def read_at(self, offset: int, length: int) -> bytes:
        found = super().read_at(offset, length)
        self.read_bytes += len(found)
        return found


def _input(body: bytes) -> _Counted:
    source = ShardFile(MemoryStore({"a.parquet": body}), "a.parquet", limits=Limits(footer_bytes=1 << 20))
    return _Counted(source, pa.BufferReader(body), None, None)


@pytest.mark.parametrize("size", [3 << 19, 100 << 10], ids=["too large for one", "too large together"])
@pytest.mark.parametrize("begin", [b"\x15\0", b"\0\0"])
def test_endings_that_lead_to_no_footer_do_not_cost_their_lengths(begin: bytes, size: int) -> None:
    """A hundred may stand behind each other, and each may say that all before it is its footer."""
    body = b"PAR1\0" + begin + bytes(size)
    for _ in range(100):
        body += struct.pack("<I", len(body) - 5) + b"PAR1"
    file = _input(body + b"end")
    with pytest.raises(CorruptShard):
        recover_groups(file)
    assert file.read_bytes <= (2 << 20) + 1000


def test_a_footer_behind_endings_that_are_none_is_found() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": range(100)}), sink)
    body = sink.getvalue()
    more = b"".join(struct.pack("<I", at) + b"PAR1" for at in (5, 1 << 30, len(body))) + b"end"
    found = recover_groups(_input(body + more))
    assert found is not None
    assert found.size_bytes == len(body)


def test_a_footer_of_lists_in_lists_is_none() -> None:
    foot = b"\x15\x02" + b"\x19" * 5000  # an int32, and a list of one list of one list ...
    with pytest.raises(CorruptShard, match="no Parquet file"):
        recover_groups(_input(b"PAR1\0" + foot + struct.pack("<I", len(foot)) + b"PAR1" + b"end"))
