"""Reading CSV: cells as Python's csv has them, types, records that are bad, random access, bounds."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost import costs_at_most
from lading._core.formats import text_lines
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.csv import recover
from lading._core.formats.csv.format import FORMAT, CsvReader
from lading._core.formats.csv.reader import OTHER_DELIMITER, UNENDED
from lading._core.formats.findings import Level
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import CorruptShard, DuplicateField, LadingError, LimitExceeded, SchemaMismatch, UsageError
from lading.limits import DEFAULT_LIMITS, Limits

_ALL = 1 << 40
_CELL = st.text(st.sampled_from('a,;"\n\té日🎉 0\ufeff'), max_size=8)


def reader(data: bytes, path: str = "t.csv", limits: Limits = DEFAULT_LIMITS, **options: Any) -> CsvReader:
    return FORMAT.open(ShardFile(MemoryStore({path: data}), path, limits=limits), FORMAT.read_options(options))


def rows(data: bytes, path: str = "t.csv", **options: Any) -> list[list[Any]]:
    """All rows, streamed, read whole, and read at random, which must agree."""
    opened = reader(data, path, **options)
    schema = opened.schema()
    streamed = pa.Table.from_batches(opened.batches(Scan(max_rows=3, max_bytes=_ALL)), schema)
    assert opened.read() == streamed
    order = np.arange(opened.num_rows())[::-1]
    assert opened.read(order) == streamed.take(pa.array(order))
    return [list(row) for row in zip(*(column.to_pylist() for column in streamed.columns), strict=True)]


def counts(data: bytes) -> dict[str, int]:
    opened = reader(data)
    opened.read()
    return opened.counts


@pytest.mark.soak
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), max_size=8)),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from([1, 2, 3, 7, 1 << 20]),
)
def test_what_python_writes_is_read(
    cells: list[list[str]], quoting: int, line_end: str, delimiter: str, step: int
) -> None:
    if line_end == "\r":  # Python quotes the line end of the file, and forgets the other one
        cells = [[cell.replace("\n", "\r") for cell in row] for row in cells]
    width = len(cells[0]) if cells else 2
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=quoting, lineterminator=line_end, delimiter=delimiter)
    writer.writerows([[f"c{i}" for i in range(width)], *cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "_READ_BYTES", step)
        found = rows(text.getvalue().encode(), delimiter=delimiter)
    missing = "" if quoting == csv.QUOTE_ALL or width == 1 else None
    assert found == [[cell or missing for cell in row] for row in cells]


def test_nothing_is_null_and_quotes_around_nothing_are_text() -> None:
    assert rows(b'a,b\n,""\n"",\nx,"x"\n') == [[None, ""], ["", None], ["x", "x"]]
    assert rows(b'a\n\n""\nx\n') == [[None], [""], ["x"]]


def test_text_stays_what_it_is() -> None:
    assert rows(b"a,b\n007, 1.50 \nNULL,NaN\n") == [["007", " 1.50 "], ["NULL", "NaN"]]


def test_a_mark_at_the_beginning_and_blank_lines_are_let_pass() -> None:
    data = b'\xef\xbb\xbf"a",b\r\n\r\n1,2\r\n\r\n'
    opened = reader(data)
    assert [batch.to_pydict() for batch in opened.batches(Scan(max_rows=9, max_bytes=_ALL))] == [
        {"a": ["1"], "b": ["2"]}
    ]
    assert opened.counts == {"blank lines, skipped": 2}
    assert rows(data) == [["1", "2"]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_lines_for_a_whole_block_are_skipped_and_counted(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(text_lines, "_READ_BYTES", 64)
    opened = reader((f"a,b{end}1,2{end}" + end * 1000 + f"3,4{end}").encode())
    assert opened.read().to_pydict() == {"a": ["1", "3"], "b": ["2", "4"]}
    assert opened.counts == {"blank lines, skipped": 1000}
    assert int(opened.index().column("first_line")[-1].as_py()) == 1003


def test_blank_lines_of_one_column_are_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "_READ_BYTES", 64)
    assert reader(b"a\n" + b"\n" * 1000).num_rows() == 1000


def test_carriage_returns_alone_are_no_blank_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "_READ_BYTES", 64)
    with pytest.raises(CorruptShard, match="a carriage return without a line feed"):
        reader(b"a,b\n" + b"1,2\n" * 30 + b"\r\r\n" * 100).num_rows()


def test_tabs_by_name() -> None:
    for path in ("t.tsv", "T.TSV.GZ"):
        data = b"a\tb\n1,5\t2\n"
        assert rows(gzip.compress(data) if "GZ" in path else data, path) == [["1,5", "2"]]
    assert rows(b"a,b\n1,2\n", "t.tsv", delimiter=",") == [["1", "2"]]


def test_types_are_cast_exactly() -> None:
    types = {"n": "int64", "x": "double", "ok": "bool", "d": "date32"}
    opened = reader(b"n,x,ok,d,t\n7,0.1,true,2020-02-29,7\n,,,,\n-9223372036854775808,NaN,false,,\n", types=types)
    kinds = [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string()]
    assert opened.schema() == pa.schema(list(zip(["n", "x", "ok", "d", "t"], kinds, strict=True)))
    assert opened.read(np.array([0, 1])).to_pylist()[0]["x"] == 0.1
    assert opened.read().column("n").to_pylist() == [7, None, -(1 << 63)]


@pytest.mark.parametrize("value", ["1.0", "9223372036854775808", "x", '""', " 1"])
def test_a_value_that_does_not_fit_is_told_by_its_line(value: str) -> None:
    data = f'n,t\n1,"two\nlines"\n{value},x\n'.encode()
    with pytest.raises(SchemaMismatch, match=r"t\.csv column 'n': line 4: a value does not fit .*expected int64"):
        reader(data, types={"n": "int64"}).read()


@pytest.mark.parametrize(
    "kind, value",
    [
        ("float16", "65520"),
        ("float16", "7e4"),
        ("float16", "2049"),
        ("float", "16777217"),
        ("float", "-3.5e38"),
        ("double", "1e400"),
        ("double", "-9007199254740993"),
        ("double", "1" + "0" * 400),
        ("double", "0" * 5000 + "9007199254740993"),
    ],
)
def test_a_number_that_a_float_does_not_hold_is_told_by_its_line(kind: str, value: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"t\.csv column 'x': line 3: a value does not fit the type"):
        reader(f"x,t\n0.1,x\n{value},x\n".encode(), types={"x": kind}).read()


def test_floats_are_the_nearest_of_fractions_and_whole_numbers_themselves() -> None:
    texts = ["", "0.1", "2048", "2050", "4096", "3000.4", "inf", "-Infinity", "nan"]
    data = "x,t\n{},\n".format(",\n".join(texts)).encode()
    [*found, nan] = reader(data, types={"x": "float16"}).read().column("x").to_pylist()
    assert math.isnan(nan)
    # Between 1/16 and 1/8 there are steps of 1/16384, between 2048 and 4096 such of 2.
    assert found == [None, 1638 / 16384, 2048, 2050, 4096, 3000, math.inf, -math.inf]


def test_whole_numbers_in_the_digits_of_a_float_are_the_float() -> None:
    assert pa.array([1234567936.0], pa.float32()).cast(pa.string()).to_pylist() == ["1234568000"]
    assert rows(b"x\n1234568000\n-1234568000\n", types={"x": "float"}) == [[1234567936.0], [-1234567936.0]]
    javascript = b"x\n1152921504606847000\n1152921504606846976\n100000000000000000000\n"
    assert rows(javascript, types={"x": "double"}) == [[2.0**60], [2.0**60], [1e20]]


GOOD = 'a,b\n"two\nlines",2\n'


@pytest.mark.parametrize(
    "bad, message",
    [
        ("1\n", "line 4: too few values; expected 2, as the header has, found 1, the first '1'"),
        ("1,2,3\n", "line 4: too many values; expected 2, as the header has, found 3"),
        ('""\n', "line 4: too few values"),
        ("1,2\n\n3,4,\n", "line 6: too many values"),
        ('"x"y,2\n', "line 4: a quote inside a quoted value"),
        ('"x" ,2\n', "line 4: a quote inside a quoted value"),
        ('"x\n\n"y"",2\n', "line 6: a quote inside a quoted value"),
        ('1,"x\n1,2\n', "line 4: a quote in this record is never closed"),
        ("1", "line 4: too few values; .*The file ends within this line"),
        ("1,2,3", "line 4: too many values; .*name another one"),
        ("1\r2,3\n", "line 4: a carriage return without a line feed"),
        ("1,2\r\r\n", "line 4: a carriage return without a line feed"),
    ],
)
def test_a_bad_record_is_an_error_that_names_its_line(bad: str, message: str) -> None:
    with pytest.raises(CorruptShard, match=message) as caught:
        rows((GOOD + bad).encode())
    assert caught.value.file == "t.csv"
    assert caught.value.offset is not None
    assert len(GOOD) <= caught.value.offset <= len(GOOD + bad)


def test_bytes_that_are_no_utf8_are_told_by_line_and_byte() -> None:
    with pytest.raises(CorruptShard, match=r"t\.csv @ 21: line 4: invalid UTF-8") as caught:
        rows(GOOD.encode() + b"ok,\xff\n")
    assert (caught.value.advice or "").endswith("iconv -f WINDOWS-1252 -t UTF-8 t.csv > t.utf-8.csv")


def test_a_name_that_several_columns_have() -> None:
    found = reader(b"a,b,a,c\n1,x,2,u\n3,y,4,v\n")
    assert found.schema().names == ["a", "b", "c"]
    assert found.num_rows() == 2
    assert found.read(scan=Scan(["c", "b"])).to_pylist() == [{"c": "u", "b": "x"}, {"c": "v", "b": "y"}]
    assert found.read(np.array([1]), Scan(["b"])).to_pylist() == [{"b": "y"}]
    for columns in (None, ["b", "a"]):
        with pytest.raises(DuplicateField, match=r"column 'a': .*columns 1 and 3 of 4. .*ds.select\('b', 'c'\)"):
            found.read(scan=Scan(columns))


@pytest.mark.parametrize(
    "data, error, message",
    [
        (b"", CorruptShard, "no header"),
        (b"\xef\xbb\xbf", CorruptShard, "the header has one name and no line end"),
        (b"a", CorruptShard, "line 1: the header has one name and no line end, and no record follows; .*echo >> t.csv"),
        (b"\n1\n", CorruptShard, "line 1: no column has a name"),
        (b",,\n1,2,3\n", CorruptShard, "line 1: no column has a name"),
    ],
)
def test_a_bad_header(data: bytes, error: type[LadingError], message: str) -> None:
    for look in (CsvReader.schema, CsvReader.num_rows, CsvReader.read):
        with pytest.raises(error, match=message):
            look(reader(data))  # type: ignore[operator]


@pytest.mark.parametrize(
    "header, names",
    [
        (",a,b", ["Unnamed: 0", "a", "b"]),  # DataFrame.to_csv() of pandas: its row numbers have no name
        ("a,b,", ["a", "b", "Unnamed: 2"]),
        ("a,,", ["a", "Unnamed: 1", "Unnamed: 2"]),
        (",Unnamed: 0,a", ["Unnamed: 0.1", "Unnamed: 0", "a"]),  # written by pandas, read, and written again
    ],
)
def test_columns_without_a_name_are_called_as_in_pandas(header: str, names: list[str]) -> None:
    """The names are those of `pandas.read_csv` in pandas 3.1, so also those of Hugging Face datasets."""
    opened = reader(f"{header}\n1,2,3\n".encode())
    assert opened.schema().names == names
    assert opened.read().to_pylist() == [dict(zip(names, "123", strict=True))]
    assert opened.read(np.array([0]), Scan(names[:1])).to_pylist() == [{names[0]: "1"}]


def test_a_header_with_another_delimiter_is_told_with_the_option() -> None:
    """As spreadsheets in Europe write CSV."""
    for data, fault in (
        ("a;b\n1;2\n1,5;3\n", "line 3: too many values"),
        ('a;b\n"1"x;2\n', "line 2: a quote inside a quoted value"),
    ):
        with pytest.raises(CorruptShard, match=fault) as caught:
            rows(data.encode())
        assert "--option 'delimiter=;'" in (caught.value.advice or "")
        assert "options={'delimiter': ';'}" in str(caught.value)
    with pytest.raises(CorruptShard, match="line 2: too many values") as caught:
        rows(b"a\tb\n1,5\t2\n")
    assert "--option delimiter=tab" in (caught.value.advice or "")
    assert rows(b"a;b\n1,5;2\n", delimiter=";") == [["1,5", "2"]]
    opened = reader(b"a|b\n1|2\n")
    assert opened.read().to_pylist() == [{"a|b": "1|2"}]
    assert opened.counts == {OTHER_DELIMITER: 1}
    assert counts(b"a;b,c\n1,2\n") == {}


def test_a_last_line_without_an_end_is_read_and_counted() -> None:
    """As Python's csv, pandas, duckdb and pyarrow read it: a quarter of real files has none."""
    for data in (b'a,b\n1,"2"', b"a,b\n1,2", b"a,b\r\n1,2", b"a,b\n1,2\r", "\ufeffa,b\n1,2".encode(), b"a,b\r1,2"):
        opened = reader(data)
        assert opened.read().to_pylist() == [{"a": "1", "b": "2"}]
        assert opened.counts == {UNENDED: 1}
        with pytest.raises(CorruptShard, match=r"line 2: the last line has no end; .*echo >> t\.csv"):
            rows(data, unended="error")
    opened = reader(b"a,b\n1,2\n")
    assert opened.num_rows() == 1
    assert not opened.counts
    with pytest.raises(CorruptShard, match="never closed"):
        rows(b'a,b\n1,"2')


def test_a_last_line_without_an_end_is_a_finding() -> None:
    def findings(data: bytes, counts: dict[str, int]) -> list[str]:
        source = ShardFile(MemoryStore({"t.csv": data}), "t.csv", reported=counts)
        return [finding.problem for finding in FORMAT.checks(source, FORMAT.read_options({}), Level.QUICK)]

    assert findings(b"a,b\n1,2", {}) == []
    assert findings(b"a,b\n1,2\n", {UNENDED: 1}) == []  # the count is another shard's
    [found] = findings(b"a,b\n1,2", {UNENDED: 1})
    assert found.startswith("the last line has no end")


@pytest.mark.parametrize("step", [1, 2, 3, 1 << 20])
def test_carriage_returns_alone_end_lines(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python's csv with newline="" reads them; the row, and what is random access to it, are the same."""
    monkeypatch.setattr(text_lines, "_READ_BYTES", step)
    data = b'a,b\r1,"x\r\ny"\r\r"2\n",\r3,"z"""\r'
    expected = [row for row in csv.reader(io.StringIO(data.decode(), newline="")) if row]
    opened = reader(data)
    found = opened.read().to_pylist()
    assert [list(found[0]), *([value or "" for value in row.values()] for row in found)] == expected
    assert opened.counts == {"blank lines, skipped": 1}
    assert opened.read(np.array([2, 0])).to_pylist() == [found[2], found[0]]
    assert remains(data) == (data, 0)


def test_a_quote_that_is_never_closed_where_cr_ends_lines() -> None:
    for data in (b'a,b\r1,"2\r', b'a,b\r1,2\r3,"\r4"",5\r'):
        with pytest.raises(CorruptShard, match="a quote in this record is never closed"):
            rows(data)
    assert remains(b'a,b\r1,2\r3,"\r')[0] == b"a,b\r1,2\r"


def test_one_line_end_of_another_kind_is_told_by_its_line() -> None:
    with pytest.raises(CorruptShard, match=r"t\.csv @ 11: line 3: a line feed, where CR ends other lines"):
        rows(b"a,b\r1,2\r3,4\n5,6\r")
    assert remains(b"a,b\r1,2\r3,4\n5,6\r7,8\r") == (b"a,b\r1,2\r7,8\r", 1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"delimiter": ",,"}, "no such delimiter"),
        ({"delimiter": '"'}, "no such delimiter"),
        ({"delimiter": "é"}, "no such delimiter"),
        ({"unended": "yes"}, "no such policy"),
        ({"types": ["a"]}, "types must map column names to types; .*found types=\\['a'\\]"),
        ({"types": "int64"}, "types must map column names to types"),
        ({"types": {"a": ["int64"]}}, "types must map column names to types"),
        ({"types": {"a": "decimal"}}, "a text cannot be read as this type; .*found 'decimal'"),
        ({"types": {"c": "int64"}}, "types names a missing column; expected a, b, found 'c'"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows(b"a,b\n", **options)


def test_every_cut_is_an_error_or_the_first_rows() -> None:
    data = 'a,b\r\n"x\n""é""",\r\n1,""\r\n'.encode()
    whole = rows(data)
    for size in range(len(data)):
        try:
            found = rows(data[:size])
        except LadingError as error:
            assert "t.csv" in str(error)  # noqa: PT017 - a cut may also be no error
        else:
            ended = data[:size].endswith((b"\r", b"\n"))  # otherwise the last value may be cut, which is counted
            known = len(found) if ended else max(len(found) - 1, 0)
            assert found[:known] == whole[:known]
            assert ended or UNENDED in counts(data[:size])


@given(st.binary(max_size=40), st.integers(1, 9))
def test_any_bytes_are_an_error_or_data(noise: bytes, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "_READ_BYTES", step)
        try:
            rows(b"a,b\n" + noise)
        except LadingError as error:
            assert "t.csv" in str(error)  # noqa: PT017 - some are data


@pytest.mark.soak
def test_long_records_and_records_that_are_too_long() -> None:
    long = '"' + "x,\n" * (3 << 20) + '"'
    data = f'a,b\n1,2\n{long},3\n""","\n'.encode()
    with pytest.raises(CorruptShard, match="line 3145732: "):
        rows(data)
    [_, [found, three]] = rows(data[:-6])
    assert (len(found), three) == (9 << 20, "3")
    for limit in (1 << 20, 5 << 20, 9 << 20):
        with pytest.raises(LimitExceeded, match=r"line 3 is too long.*line_bytes"):
            reader(data, limits=Limits(line_bytes=limit)).num_rows()
    bomb = gzip.compress(b'a,b\n"' + b"x" * (100 << 20))
    with pytest.raises(LimitExceeded, match="line 2 is too long; expected at most 67108864 bytes"):
        reader(bomb, "t.csv.gz").num_rows()


def test_long_records_of_too_many_values_are_refused_before_all_of_them_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_lines, "_READ_BYTES", 64)
    limits = Limits(table_columns=100)
    data = b"a,b\n1,2\n" + b'"' + b",\n" * 500 + b'",3\n'
    assert reader(data, limits=limits).num_rows() == 2
    store = CountingStore(MemoryStore({"t.csv": data + b"," * 5000 + b"\n"}), mapped=False)
    opened = FORMAT.open(ShardFile(store, "t.csv", limits=limits), FORMAT.read_options({}))
    with pytest.raises(
        LimitExceeded, match=r"line 504: too many values; expected at most 100, .*table_columns"
    ) as caught:
        opened.num_rows()
    assert caught.value.offset == len(data)
    assert store.bytes_read < len(data) + 300


def test_times_with_a_zone_and_decimals_are_read_as_what_they_are() -> None:
    types = {"when": "timestamp[us, tz=UTC]", "price": "decimal128(10, 2)"}
    table = reader(b"when,price\n2020-01-02 03:04:05Z,1.25\n", types=types).read()
    assert table.schema.types == [pa.timestamp("us", "UTC"), pa.decimal128(10, 2)]
    assert table.to_pylist() == [{"when": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "price": Decimal("1.25")}]


def test_random_access_reads_what_lies_around_the_rows() -> None:
    data = b"n,text\n" + b"".join(b'%d,"%s"\n' % (i, b"x\n" * 500) for i in range(20_000))
    store = CountingStore(MemoryStore({"t.csv": data}), mapped=False)
    index = FORMAT.open(ShardFile(store, "t.csv"), FORMAT.read_options({})).index()
    again = FORMAT.open(ShardFile(store, "t.csv", index=index), FORMAT.read_options({"types": {"n": "int32"}}))
    again.schema()
    before = store.bytes_read
    assert again.read(np.array([19_999, 5, 5]), Scan(["n"])).column("n").to_pylist() == [19_999, 5, 5]
    assert store.bytes_read - before < 600_000
    with pytest.raises(UsageError, match="no such row; expected 0 to 19999, found -1"):
        again.read(np.array([3, -1]))


def test_an_index_of_other_rows_is_an_error() -> None:
    index = reader(b"a\n1\n2\n").index()
    for data in (b'a\n"\n"\n', b'a\n1\n"\n'):
        opened = FORMAT.open(ShardFile(MemoryStore({"t.csv": data}), "t.csv", index=index), FORMAT.read_options({}))
        with pytest.raises(CorruptShard, match=r"t\.csv @ 2: the file is not the one that was looked at"):
            opened.read(np.array([0]))


def remains(data: bytes, limits: Limits = DEFAULT_LIMITS, **options: Any) -> tuple[bytes, int]:
    """What a salvage keeps of a file, and how many lines it loses."""
    source = ShardFile(MemoryStore({"t.csv": data}), "t.csv", limits=limits)
    found = FORMAT.recover(source, FORMAT.read_options(options))
    if found is None:
        return data, 0
    return b"".join(
        data[at : at + size] for at, size in zip(found.offset, found.length, strict=True)
    ), found.lost_samples


_GOOD_RECORDS = [b"1,2\n", b'"a ""b""\nc",\n', b'"",x\r\n']
_BAD_LINES = [b"1\n", b"1,2,3\n", b'"5" disk,1\n', b"a\rb,c\n", b"\xff,1\n", b'"x"y",2\n']


@given(
    st.lists(st.sampled_from([*_GOOD_RECORDS, b"\n"]) | st.sampled_from(_BAD_LINES), max_size=30), st.integers(20, 70)
)
def test_bad_lines_are_lost_alone(parts: list[bytes], at_once: int) -> None:
    kept = [part for part in parts if part not in _BAD_LINES]
    lost = len(parts) - len(kept)
    limits = Limits(line_bytes=at_once)
    assert remains(b"a,b\n" + b"".join(parts), limits) == (b"a,b\n" + b"".join(kept), lost)


@pytest.mark.soak
def test_what_bad_lines_cost_goes_by_what_lies_between_them() -> None:
    """A few times what it takes without them; where all the window was read again for each, two hundred times."""
    good = b'1,"two\nlines"\n' * 500
    whole = b"a,b\n" + good * 200
    for bad in (b"1,2,3\n", b'"5" disk,3\n'):
        damaged = b"a,b\n" + (good + bad) * 200
        assert remains(damaged) == (whole, 200)
        assert costs_at_most(30, lambda: remains(damaged), lambda: remains(whole))  # noqa: B023 - called at once


@pytest.mark.cases(3)
@pytest.mark.parametrize("bad", [b'1,"x"y\n', b'1,"x\n', b"1,\xff\n", b"1\n", b'"1\n",2,3\n'])
def test_what_many_bad_lines_cost_goes_by_how_many_they_are(monkeypatch: pytest.MonkeyPatch, bad: bytes) -> None:
    """Some ten times what a line of JSON costs; where a window was read for each line, a hundred times."""
    monkeypatch.setattr(recover, "MAX_TOLD", 7)
    count = 4000
    lines = bad.count(b"\n") * count
    damaged = b"a,b\n1,2\n" + bad * count
    assert remains(damaged) == (b"a,b\n1,2\n", lines)
    json_lines = [b'{"a": "1", "b": "2"}'] * lines
    assert costs_at_most(30, lambda: remains(damaged), lambda: [*map(json.loads, json_lines)])
    source = ShardFile(MemoryStore({"t.csv": damaged}), "t.csv")
    found = FORMAT.recover(source, FORMAT.read_options({}))
    assert found is not None
    assert [error.message[:7] for error in found.lost] == [f"line {n}:" for n in range(3, 10)]
    assert 8 <= (found.lost[0].offset or 0) < 8 + len(bad)
    assert not any(error.__traceback__ or error.__context__ for error in found.lost)


@pytest.mark.parametrize(
    "record, what, found",
    [
        (b'c,"two\nlines",x\n', "not as many values as the file has columns", 3),
        (b'"two\nli,nes"\n', "not as many values as the file has columns", 1),
        (b'"two\nlines"', "the last line has no end", None),
        (b'c,"two\nlines"x\n', "a quote in this record is never closed, or where none may be", None),
        (b'c,"two\n', "a quote in this record is never closed, or where none may be", None),
    ],
)
def test_what_is_wrong_with_a_record_of_several_lines_is_told_of_all_of_it(
    record: bytes, what: str, found: int | None
) -> None:
    source = ShardFile(MemoryStore({"t.csv": b"a,b\n1,2\n" + record}), "t.csv")
    remains = FORMAT.recover(source, FORMAT.read_options({}))
    assert remains is not None
    error = remains.lost[0]
    assert (error.message, error.offset, error.found) == (f"line 3: {what}", 8, found)


def test_a_line_as_long_as_the_file_is_lost_by_its_limit_in_little_memory() -> None:
    """It was copied whole to say what is wrong with it, and looked through at once: 3 GB of a file of 49 KB in zstd."""
    data = b"a,b\n1,2\n" + b"x" * (64 << 20)
    source = ShardFile(MemoryStore({"t.csv": data}), "t.csv", limits=Limits(line_bytes=1 << 20))
    tracemalloc.start()
    try:
        found = FORMAT.recover(source, FORMAT.read_options({}))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert found is not None
    assert (found.offset.tolist(), found.length.tolist(), found.lost_samples) == ([0, 4], [4, 4], 1)
    [error] = found.lost
    assert isinstance(error, LimitExceeded)
    assert (error.message, error.offset) == ("line 3 is too long", 8)
    assert "--max line_bytes=" in str(error)
    assert error.__traceback__ is None


@pytest.mark.parametrize("data", [b"\n" * (16 << 20), b'"a,b\n' + b"1,2\n" * (4 << 20)], ids=["ends", "quote"])
def test_the_end_of_a_header_is_looked_for_in_little_memory(data: bytes) -> None:
    source = ShardFile(MemoryStore({"t.csv": data}), "t.csv")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptShard, match="the header is damaged"):
            FORMAT.recover(source, FORMAT.read_options({}))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


_ODD = [b'"', b"\r", b"\n", b",", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"ab"]


@given(st.lists(st.sampled_from(_ODD), max_size=9))
def test_what_is_kept_of_any_line_is_what_is_read(parts: list[bytes]) -> None:
    data = b"a,b\n" + b"".join(parts).replace(b"\n", b"") + b"\n"
    try:
        reader(data).read()
        expected = data
    except LadingError:
        expected = b"a,b\n"
    assert remains(data)[0] == expected


def test_a_last_line_without_an_end_is_kept_unless_it_is_an_error() -> None:
    data = b'a,b\n1,2\n3,"4"'
    assert remains(data) == (data, 0)
    assert remains(data, unended="error") == (data[:8], 1)
    assert remains(data[:-1]) == (data[:8], 1)
