"""Writing CSV: what Python's csv and lading read back, spelling, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.features.types import Json, Text, with_feature
from lading._core.formats.base import ShardFile
from lading._core.formats.csv.format import FORMAT
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable, UsageError
from lading.limits import DEFAULT_LIMITS


def write(table: pa.Table, *, batch_rows: int = 3, path: str = "t.csv", **options: Any) -> bytes:
    store = MemoryStore()
    sink = store.put_stream(path)
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    facts = writer.close()
    assert (facts.num_samples, facts.size_bytes) == (table.num_rows, sink.close().size_bytes)
    [data] = store.get_ranges(path, [(0, facts.size_bytes)])
    return bytes(data)


def read(data: bytes, **options: Any) -> pa.Table:
    return FORMAT.open(ShardFile(MemoryStore({"t.csv": data}), "t.csv"), FORMAT.read_options(options)).read()


_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(',"\n\r\t\ufeff'), max_size=6)


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(_TEXT.filter(bool), min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, 7))
    cell = st.none() | _TEXT
    columns = [pa.array(draw(st.lists(cell, min_size=rows, max_size=rows)), pa.string()) for _ in names]
    return pa.table(columns, names=names)


@given(_tables(), st.sampled_from([",", "\t", ";", "|"]))
def test_any_text_comes_back_and_python_reads_it(table: pa.Table, delimiter: str) -> None:
    data = write(table, delimiter=delimiter)
    assert read(data, delimiter=delimiter) == table
    by_python = list(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=delimiter, strict=True))
    expected = [[cell or "" for cell in row.values()] for row in table.to_pylist()]
    # Python gives no cell at all for a line of one null.
    assert [row or [""] for row in by_python] == [table.column_names, *expected]


def test_quotes_stand_where_they_must_only() -> None:
    table = pa.table({"a": ["x", 'q"', "c,", "l\nf", "", None, " s "], "n": [1, 2, 3, 4, 5, None, 7]})
    assert write(table) == b'a,n\nx,1\n"q""",2\n"c,",3\n"l\nf",4\n"",5\n,\n s ,7\n'
    assert write(table.select(["n"])) == b"n\n1\n2\n3\n4\n5\n\n7\n"
    assert write(table.slice(0, 0), delimiter="\t") == b"a\tn\n"


def test_numbers_come_back_in_the_types_asked_for() -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, -5], pa.int8()),
            "u": pa.array([2**64 - 1, 0, None], pa.uint64()),
            "f": pa.array([0.1, None, float("inf")], pa.float32()),
            "d": [0.1, 1e16, float("nan")],
            "b": [True, False, None],
            "c": pa.array(["x", None, "x"]).dictionary_encode(),
        }
    )
    data = write(table)
    types = {"i": "int8", "u": "uint64", "f": "float", "d": "double", "b": "bool"}
    found = read(data, types=types)
    assert str(found.to_pydict()) == str(table.to_pydict())
    assert read(data).column("d").to_pylist() == ["0.1", "1e+16", "NaN"]


def test_bytes_are_text_where_their_feature_says_so() -> None:
    for feature in (Text(), Json()):
        field = with_feature(pa.field("t", pa.large_binary()), feature)
        table = pa.table([pa.array(["é".encode(), None, b""], pa.large_binary())], schema=pa.schema([field]))
        assert write(table) == 't\né\n\n""\n'.encode()
        bad = pa.table([pa.array([b"x"] * 4 + [b"\xff"], pa.large_binary())], schema=pa.schema([field]))
        with pytest.raises(Unrepresentable, match=r"t\.csv row 4 column 't': invalid UTF-8"):
            write(bad)


def test_json_of_arrow_goes_as_its_text() -> None:
    values = pa.array(['{"a": 1}', None, "[]"], pa.json_())
    numbers = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0]), values)
    table = pa.table({"j": values, "d": numbers})
    assert write(table) == b'j,d\n"{""a"": 1}",[]\n,\n[],"{""a"": 1}"\n'


@pytest.mark.parametrize("names", [["a", ""], []])
def test_names_that_no_header_can_have(names: list[str]) -> None:
    with pytest.raises(Unrepresentable, match=r"header has each name once|at least one column"):
        write(pa.table([pa.array(["x"])] * len(names), names=names))


@pytest.mark.soak
def test_endings_and_compression() -> None:
    assert FORMAT.endings(FORMAT.write_options({}))[0] == ".csv"
    assert FORMAT.endings(FORMAT.write_options({"delimiter": "\t", "compression": "gzip"}))[0] == ".tsv.gz"
    assert FORMAT.endings(FORMAT.write_options({"delimiter": "tab"}))[0] == ".tsv"
    assert write(pa.table({"a": ["1"], "b": ["2"]}), delimiter="tab") == b"a\tb\n1\t2\n"
    table = pa.table({"a": ["x" * 100] * 1000})
    assert gzip.decompress(write(table, compression="gzip")) == write(table)
    for options in ({"compression": "lz4"}, {"delimiter": "\n"}):
        with pytest.raises(UsageError, match="no such"):
            write(table, **options)


def test_the_bytes_of_items_are_refused_with_a_way_that_leads_out() -> None:
    """Their column is reserved: `--columns` alone leaves the column where it is."""
    with pytest.raises(Unrepresentable, match="'binary_content': CSV cannot hold bytes") as refused:
        write(INTERLEAVED_SCHEMA.empty_table())
    assert (
        "--to parquet, --to webdataset or --to media_archive. Or convert rows as they are, with --view samples"
        in str(refused.value.advice)
    )
    with pytest.raises(Unrepresentable, match="CSV cannot hold bytes"):
        write(pa.table({"binary_content": [b"x"]}))


@pytest.mark.soak
def test_records_that_readers_refuse_are_not_written() -> None:
    table = pa.table({"n": [1, 2], "t": pa.array(["a", "b" * DEFAULT_LIMITS.line_bytes], pa.large_string())})
    with pytest.raises(Unrepresentable, match=r"t.csv row 1: a line longer than readers accept; .*such as parquet"):
        write(table)
