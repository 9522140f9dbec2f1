"""Quotes inside values, escapes, and files without a header: as Python's csv and pyarrow read them."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.formats import text_lines
from lading._core.formats.base import Recovered, Scan, ShardFile
from lading._core.formats.csv.format import FORMAT, CsvReader
from lading._core.formats.csv.reader import UNENDED
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, LadingError, SchemaMismatch, UsageError

_PLAIN = st.text(st.sampled_from('a5" é'), max_size=6).filter(lambda text: not text.startswith('"'))
_QUOTED = st.text(st.sampled_from('a5",\n é'), max_size=6).map(lambda text: '"' + text.replace('"', '""') + '"')
_STEP = st.sampled_from([1, 2, 3, 7, 1 << 20])


def reader(data: bytes, path: str = "t.csv", **options: Any) -> CsvReader:
    return FORMAT.open(ShardFile(MemoryStore({path: data}), path), FORMAT.read_options(options))


def recovered(data: bytes, **options: Any) -> Recovered | None:
    return FORMAT.recover(ShardFile(MemoryStore({"t.csv": data}), "t.csv"), FORMAT.read_options(options))


def rows(data: bytes, step: int = 1 << 20, **options: Any) -> list[list[str]]:
    """All rows, with empty texts for nulls; streamed and read at random, which must agree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "_READ_BYTES", step)
        opened = reader(data, **options)
        schema = opened.schema()
        streamed = pa.Table.from_batches(opened.batches(Scan(max_rows=3, max_bytes=1 << 40)), schema)
        order = np.arange(opened.num_rows())[::-1]
        assert opened.read(order) == streamed.take(pa.array(order))
    return [[value or "" for value in row.values()] for row in streamed.to_pylist()]


def by_csv(data: bytes, **options: Any) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(data.decode(), newline=""), **options) if row]


@given(st.lists(st.tuples(_PLAIN | _QUOTED, _PLAIN | _QUOTED), max_size=9), st.sampled_from(["\n", "\r\n"]), _STEP)
def test_quotes_inside_values_are_read_as_python_reads_them(
    cells: list[tuple[str, str]], line_end: str, step: int
) -> None:
    data = "".join(f"{one},{two}{line_end}" for one, two in [("a", "b"), *cells]).encode()
    assert rows(data, step) == by_csv(data)[1:]
    assert recovered(data) is None


@given(st.text(st.sampled_from('a",\n\\\r'), max_size=30), st.sampled_from([None, "\\"]), st.booleans(), _STEP)
def test_any_text_is_an_error_or_what_python_reads(text: str, escape: str | None, quotes: bool, step: int) -> None:
    """A quote that is never closed, and characters behind a closing quote, are errors in lading alone."""
    data = f"x,y\n{text}\n".encode()
    options = {"quoting": "standard" if quotes else "none", "escape": escape}
    try:
        found = rows(data, step, names=["x", "y"], **options)
    except LadingError:
        return
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    assert found == by_csv(data, escapechar=escape, quoting=quoting)
    assert recovered(data, names=["x", "y"], **options) is None


def test_a_tab_separated_list_of_captions_is_read_as_pyarrow_reads_it() -> None:
    data = b'caption\turl\nat the premiere of "a film"\th\na 5" disk\th\n"in quotes, a tab:\t"\th\n'
    expected = pc.read_csv(io.BytesIO(data), parse_options=pc.ParseOptions(delimiter="\t")).to_pylist()
    opened = reader(data, "t.tsv")
    assert opened.read().to_pylist() == expected
    assert opened.num_rows() == 3


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_quotes_are_plain_characters_on_demand(mark: bytes) -> None:
    data = b'"a,b\n"x,y"\n"",5"\n'
    for step in (1, 2, 5, 1 << 20):
        assert rows(mark + data, step, quoting="none") == by_csv(data, quoting=csv.QUOTE_NONE)[1:]
    assert reader(mark + data, quoting="none").schema().names == ['"a', "b"]
    with pytest.raises(CorruptShard, match=r"never closed.*--option quoting=none|never closed.*options=") as caught:
        rows(mark + b'a,b\n"x,y\n')
    assert "quoting=none" in (caught.value.advice or "")


def test_an_escape_makes_the_next_character_a_part_of_the_value() -> None:
    data = b'a,b\n\\"x\\",1\\,2\n"in \\" and ""\\\\",c\\\nd\n'
    options = pc.ParseOptions(escape_char="\\", newlines_in_values=True)
    expected = [list(row.values()) for row in pc.read_csv(io.BytesIO(data), parse_options=options).to_pylist()]
    for step in (1, 2, 3, 1 << 20):
        assert rows(data, step, escape="\\") == expected
    assert recovered(data, escape="\\") is None
    with pytest.raises(CorruptShard, match="line 2: the last record ends with an escape"):
        rows(b"a,b\n1,2\\", escape="\\")


def test_a_file_without_a_header_has_the_names_of_the_options_or_of_pyarrow() -> None:
    data = b"a cat,h/1\na dog,h/2\n"
    for read, options in (
        (pc.ReadOptions(autogenerate_column_names=True), {"header": "none"}),
        (pc.ReadOptions(autogenerate_column_names=True), {"header": False}),
        (pc.ReadOptions(column_names=["caption", "url"]), {"names": ["caption", "url"]}),
        (pc.ReadOptions(column_names=["caption", "url"]), {"header": "none", "names": ["caption", "url"]}),
        (pc.ReadOptions(column_names=["caption", "url"], skip_rows=1), {"header": "line", "names": ["caption", "url"]}),
    ):
        expected = pc.read_csv(io.BytesIO(data), read_options=read)
        opened = reader(data, **options)
        assert opened.schema().names == expected.column_names
        assert opened.read().to_pylist() == expected.to_pylist()
        assert opened.read(np.array([0])).to_pylist() == expected.slice(0, 1).to_pylist()
        assert opened.num_rows() == expected.num_rows


def test_a_damaged_file_without_a_header_keeps_its_first_record() -> None:
    data = b"1,2\n3\n4,5\n"
    for options in ({"header": "none"}, {"names": ["a", "b"]}):
        found = recovered(data, **options)
        assert found is not None
        kept = [data[at : at + n] for at, n in zip(found.offset, found.length, strict=True)]
        assert (b"".join(kept), found.lost_samples) == (b"1,2\n4,5\n", 1)


def test_files_without_records_and_without_a_header() -> None:
    assert rows(b"", names=["a", "b"]) == []
    assert reader(b"", names=["a", "b"]).schema().names == ["a", "b"]
    assert rows(b"\n\n1,2\n\n", header="none") == [["1", "2"]]
    with pytest.raises(CorruptShard, match=r"t\.csv.*no record says how many columns there are.*'names'"):
        rows(b"", header="none")
    with pytest.raises(
        CorruptShard, match="line 2: too few values; expected 2, as the first record or the option names has"
    ):
        rows(b"1,2\n3\n", names=["a", "b"])
    with pytest.raises(SchemaMismatch, match="another number of columns"):
        rows(b"a,b,c\n", header="line", names=["a", "b"])


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_a_header_alone_is_no_rows(end: bytes) -> None:
    """As in Python's csv and pandas. A text without delimiter and line end would be such a file too: it is an error."""
    opened = reader(b"a,b" + end)
    expected = csv.DictReader(io.StringIO("a,b" + end.decode(), newline=""))
    assert opened.read().to_pylist() == [*expected] == []
    assert opened.schema().names == expected.fieldnames
    assert opened.counts == ({} if end else {UNENDED: 1})
    assert recovered(b"a,b" + end) is None
    if not end:
        with pytest.raises(CorruptShard, match="the last line has no end"):
            rows(b"a,b", unended="error")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"quoting": "all"}, "no such quoting; expected standard or none"),
        ({"header": "no"}, "no such header; expected line or none"),
        ({"escape": '"'}, "no such escape"),
        ({"escape": ","}, "one character cannot be the delimiter and the escape"),
        ({"names": []}, "names must be different texts"),
        ({"names": ["a", "a"]}, "names must be different texts; .*found names="),
        ({"names": "ab"}, "names must be different texts; .*found names='ab'"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows(b"a,b\n", **options)
