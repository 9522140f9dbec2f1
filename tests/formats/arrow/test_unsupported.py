"""Types that pyarrow does not have, such as integers of 128 bits: an error that calls them so, and not damage.

The files are pyarrow's, with another number in the flatbuffers of the schema (`Int.bitWidth` of
`Schema.fbs`). pyarrow itself says that it does not implement the type.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_files import arrow_bytes
from lading._core.formats.arrow.format import FORMAT as ARROW
from lading._core.formats.base import ShardFile
from lading._core.formats.format import AnyFormat
from lading._core.formats.parquet.format import FORMAT as PARQUET
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, DataError

_TABLE = pa.table({"text": ["a", "b"], "number": pa.array([1, 2], pa.int64())})
_BITS, _OTHER_BITS = (64).to_bytes(4, "little"), [(bits).to_bytes(4, "little") for bits in (128, 256, 24)]


def is_unknown(read: Any, data: bytes) -> bool:
    """Whether pyarrow says that it does not implement a type of these bytes."""
    try:
        read(pa.py_buffer(data))
    except pa.ArrowNotImplementedError:
        return True
    except (pa.ArrowException, OSError):
        pass
    return False


def with_unknown_type(data: bytes, bits: bytes, *readers: Any) -> bytes:
    """The bytes with another width of an integer, in each schema that one of the readers reads."""
    for read in readers:
        places = [at for at in range(len(data) - 4) if data[at : at + 4] == _BITS]
        changed = [data[:at] + bits + data[at + 4 :] for at in places]
        data = next(each for each in changed if is_unknown(read, each))
    return data


def arrow_file(bits: bytes) -> bytes:
    return with_unknown_type(
        arrow_bytes(_TABLE), bits, pa.ipc.open_file, lambda data: pa.ipc.read_schema(data.slice(len(b"ARROW1\0\0")))
    )


def arrow_stream(bits: bytes) -> bytes:
    return with_unknown_type(arrow_bytes(_TABLE, pa.ipc.new_stream), bits, pa.ipc.open_stream)


def parquet_file(bits: bytes) -> bytes:
    """The Arrow schema in the metadata has the type, as polars writes it."""
    schema = with_unknown_type(_TABLE.schema.serialize().to_pybytes(), bits, pa.ipc.read_schema)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _TABLE.schema, store_schema=False) as writer:
        writer.write_table(_TABLE)
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(schema).decode()})
    assert is_unknown(pq.read_schema, sink.getvalue())
    return sink.getvalue()


@pytest.mark.parametrize("bits", _OTHER_BITS, ids=["128", "256", "24"])
@pytest.mark.parametrize(
    "fmt, make",
    [(ARROW, arrow_file), (ARROW, arrow_stream), (PARQUET, parquet_file)],
    ids=["file", "stream", "parquet"],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_a_type_that_pyarrow_does_not_have_is_not_damage(fmt: AnyFormat, make: Any, bits: bytes, mapped: bool) -> None:
    source = ShardFile(MemoryStore({"t.data": make(bits)}), "t.data")
    with pytest.raises(DataError, match=r"t\.data @ \d+: the schema has a type that is not supported") as caught:
        fmt.open(source, fmt.read_options({"mmap": mapped})).read()
    assert not isinstance(caught.value, CorruptShard)
    assert "not implemented" in str(caught.value.found)
    assert "write the column in another type" in (caught.value.advice or "")


@pytest.mark.parametrize("make", [arrow_file, arrow_stream], ids=["file", "stream"])
def test_a_salvage_says_so_too(make: Any) -> None:
    data = make(_OTHER_BITS[0])
    with pytest.raises(DataError, match="the schema has a type that is not supported") as caught:
        ARROW.recover(ShardFile(MemoryStore({"t.arrow": data}), "t.arrow"), ARROW.read_options({}))
    assert not isinstance(caught.value, CorruptShard)
