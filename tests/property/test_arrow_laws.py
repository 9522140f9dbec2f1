"""Laws of Arrow shards: what is written is read, by lading and by pyarrow, whatever its type and however it is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lading._core.formats.arrow.format import FORMAT
from lading._core.formats.base import Scan, ShardFile
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore

_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=30)),
    (pa.large_string(), st.text(st.characters(codec="utf-8"), max_size=30)),
    (pa.string_view(), st.text(st.characters(codec="utf-8"), max_size=30)),
    (pa.binary(), st.binary(max_size=40)),
    (pa.large_binary(), st.binary(max_size=40)),
    (pa.binary_view(), st.binary(max_size=40)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.timestamp("us"), st.integers(0, 2**40)),
    (pa.null(), st.none()),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "ü"])),
]


@st.composite
def _typed(
    draw: st.DrawFn, leaves: list[tuple[pa.DataType, st.SearchStrategy[Any]]], depth: int = 2
) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and values of it."""
    shape = draw(st.sampled_from(["leaf", "leaf", "list", "large list", "struct", "fixed"] if depth else ["leaf"]))
    if shape == "leaf":
        return draw(st.sampled_from(leaves))
    # Without dictionaries inside: pyarrow makes such as it calls invalid itself, an index 0 into nothing below a null.
    kind, values = draw(_typed(_LEAVES[:-1], depth - 1))
    values = values | st.none()
    if shape == "struct":
        return pa.struct([("a", kind), ("b", pa.int8())]), st.fixed_dictionaries({"a": values, "b": st.just(1)})
    if shape == "fixed":
        return pa.list_(kind, 2), st.lists(values, min_size=2, max_size=2)
    return (pa.list_ if shape == "list" else pa.large_list)(kind), st.lists(values, max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables of up to 30 rows of any types, in chunks."""
    rows = draw(st.integers(0, 30))
    columns = {}
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        kind, values = draw(_typed(_LEAVES))
        drawn = draw(st.lists(values | st.none(), min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, kind)
    table = pa.table(columns)
    return pa.Table.from_batches(table.to_batches(max_chunksize=draw(st.integers(1, 30))), table.schema)


def _written(table: pa.Table, options: dict[str, Any]) -> bytes:
    store = MemoryStore()
    sink = store.put_stream("s.arrow")
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches():
        writer.write(batch)
    facts = writer.close()
    sink.close()
    [data] = store.get_ranges("s.arrow", [(0, facts.size_bytes)])
    return bytes(data)


@given(
    tables(),
    st.sampled_from(["cache", "huggingface"]),
    st.sampled_from(["none", "zstd", "lz4"]),
    st.integers(1, 10),
    st.integers(1, 300),
    st.data(),
)
def test_what_is_written_is_read(
    table: pa.Table, layout: str, compression: str, batch_rows: int, batch_bytes: int, data: st.DataObject
) -> None:
    options = {"layout": layout, "compression": compression, "batch_rows": batch_rows, "batch_bytes": batch_bytes}
    written, expected = _written(table, options), table.to_pylist()
    make = pa.ipc.open_file if layout == "cache" else pa.ipc.open_stream
    assert make(written).read_all().to_pylist() == expected
    mapped = data.draw(st.booleans())
    reader = FORMAT.open(
        ShardFile(CountingStore(MemoryStore({"x": written}), mapped=mapped), "x"), FORMAT.read_options({})
    )
    limit = data.draw(st.integers(1, 40))
    batches = list(reader.batches(Scan(max_rows=limit, max_bytes=1 << 20)))
    assert [row for batch in batches for row in batch.to_pylist()] == expected
    assert all(batch.num_rows <= limit and batch.schema.equals(reader.schema()) for batch in batches)
    order = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20)) if expected else []
    assert reader.read(np.array(order, np.int64)).to_pylist() == [expected[row] for row in order]
    for row in order[:3]:
        found = reader.get_sample(row)
        assert found == expected[row]
