"""Groups without columns, as Go's `struct{}` is written: pyarrow leaves them out, and reads the other columns.

The files are pyarrow's, with such groups put into the schema of the footer (parquet-format 2.11.0, SchemaElement in the
compact protocol of Thrift).
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.findings import Level
from lading._core.formats.parquet.format import FORMAT, ParquetReader
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable

_EMPTY = b"\x35\x02\x18\x01e\x15\x00\x00"  # an optional group named e with 0 children
_NESTED = b"\x35\x02\x18\x05outer\x15\x02\x00" + _EMPTY
_ROOT = b"\x18\x06schema\x15"
_TABLE = pa.table({"id": [1, 2], "x": [10, 20], "s": [{"y": "a"}, {"y": "b"}], "b": [b"ppp", b"qqq"]})


def file_with(groups: list[bytes], before: bytes, parent: bytes = _ROOT) -> bytes:
    """A file with groups before the schema element that begins with some bytes; they are children of `parent`."""
    sink = io.BytesIO()
    pq.write_table(_TABLE, sink, store_schema=False)
    data = sink.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    footer = bytearray(data[-8 - size : -8])
    count = footer.index(parent) + len(parent)
    footer[count] += 2 * len(groups)  # a zigzag number
    footer[3] += 16 * b"".join(groups).count(b"\x18")  # the size of a list of structs, in the upper half of a byte
    at = footer.index(before)
    footer[at:at] = b"".join(groups)
    return data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def reader(data: bytes, **options: Any) -> ParquetReader:
    return FORMAT.open(ShardFile(MemoryStore({"t.parquet": data}), "t.parquet"), FORMAT.read_options(options))


@pytest.mark.parametrize(
    "groups", [[_EMPTY], [_NESTED], [_EMPTY, _EMPTY.replace(b"e", b"f")]], ids=["one", "nested", "two"]
)
@pytest.mark.parametrize(
    "before", [b"\x15\x04\x25\x02\x18\x02id", b"\x15\x04\x25\x02\x18\x01x", b"\x15\x0c\x25\x02\x18\x01b"]
)
def test_a_group_without_columns_is_left_out_as_by_pyarrow(groups: list[bytes], before: bytes) -> None:
    data = file_with(groups, before)
    with pq.ParquetFile(io.BytesIO(data)) as file:  # the dataset of `pq.read_table` gives them as nulls
        expected = file.read()
    assert expected.to_pylist() == _TABLE.to_pylist()
    opened = reader(data)
    assert opened.schema().names == expected.column_names
    assert opened.read().to_pylist() == expected.to_pylist()
    assert opened.read(np.array([1])).to_pylist() == expected.slice(1).to_pylist()
    found = [row for batch in opened.batches(Scan(["b", "x"])) for row in batch.to_pylist()]
    assert found == expected.select(["b", "x"]).to_pylist()
    assert reader(data, filter=pc.field("x") == 20).read().to_pylist() == expected.slice(1).to_pylist()
    source = ShardFile(MemoryStore({"t.parquet": data}), "t.parquet")
    assert [*FORMAT.checks(source, FORMAT.read_options({}), Level.QUICK)] == []


def test_a_column_with_such_a_group_inside_is_an_error_and_the_others_are_read() -> None:
    """pyarrow refuses to read it: Parquet non-leaf node has no children."""
    data = file_with([_EMPTY], b"\x15\x0c\x25\x02\x18\x01y", b"\x18\x01s\x15")
    with pytest.raises(pa.ArrowInvalid, match="has no children"):
        pq.read_table(io.BytesIO(data))
    opened = reader(data)
    message = (
        r"t\.parquet.*column 's': pyarrow does not read a column with a group without columns inside; .*'id', 'x', 'b'"
    )
    with pytest.raises(Unrepresentable, match=message):
        opened.read()
    rest = ["id", "x", "b"]
    assert opened.read(scan=Scan(rest)).to_pylist() == _TABLE.select(rest).to_pylist()
