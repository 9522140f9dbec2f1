"""Reading JSON Lines: values as Python's json has them, exact types, lines that are bad, random access, bounds."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import traceback
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cost import costs_at_most
from lading._core.features.types import Json, decode, feature_of
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.jsonl import reader as reader_module
from lading._core.formats.jsonl.format import FORMAT, JsonlReader
from lading._core.formats.text_lines import open_text
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import (
    CorruptShard,
    DuplicateField,
    LadingError,
    LimitExceeded,
    SchemaMismatch,
    UsageError,
)
from lading.limits import DEFAULT_LIMITS, Limits

_ALL = 1 << 40
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(['":', '\\":', '"', "\\", "a\u2028b", "\x00", "\ud800", "1", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_DOCUMENTS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=5), max_size=12)


def reader(data: bytes, path: str = "d.jsonl", limits: Limits = DEFAULT_LIMITS, **options: Any) -> JsonlReader:
    return FORMAT.open(source_of(data, path, limits), FORMAT.read_options(options))


def source_of(data: bytes, path: str = "d.jsonl", limits: Limits = DEFAULT_LIMITS) -> ShardFile:
    return ShardFile(MemoryStore({path: data}), path, limits=limits)


@given(
    st.lists(st.sampled_from([b"", b" ", b"\t\r", b"\r", b"  {}", b"{} \r", b"{}", b" \t{}", b'{"a": 1}']), min_size=1),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_lines_with_something_in_them_are_found_wherever_blanks_stand(lines: list[bytes], mark: bytes) -> None:
    opened = reader(mark + b"\n".join(lines) + b"\n")
    full = [number for number, line in enumerate(lines, 1) if line.strip(b" \t\r")]
    assert opened.num_rows() == len(full)
    assert opened.counts["blank lines, skipped"] == len(lines) - len(full)
    if full:
        assert opened.index().column("first_line")[0].as_py() == full[0]
        assert opened.index().column("offset")[0].as_py() == len(mark) + sum(
            len(line) + 1 for line in lines[: full[0] - 1]
        )


def test_of_very_short_lines_few_are_read_at_once() -> None:
    for line, most in ((b"{}\n", 1 << 20), (b'{"a": "a longer one"}\n', 4 << 20)):
        data = line * ((8 << 20) // len(line))
        sizes = [len(piece) for piece in open_text(source_of(data)).pieces()]
        assert sum(sizes) == len(data)
        assert max(sizes) == most


def test_the_error_of_a_long_line_keeps_nothing_of_it() -> None:
    with pytest.raises(LimitExceeded) as caught:
        reader(b" " * (12 << 20), limits=Limits(line_bytes=8 << 20)).num_rows()
    frames = traceback.walk_tb(caught.value.__traceback__)
    assert not any(frame.f_locals.get("begun") for frame, _ in frames)


def decoded(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as `ds[i]` gives them, less nulls."""
    features = {field.name: feature_of(field) for field in table.schema}
    return [
        {name: decode(features[name], value) for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]


def everything(data: bytes, **options: Any) -> list[dict[str, Any]]:
    opened = reader(data, **options)
    rows = [row for batch in opened.batches(Scan(max_rows=3, max_bytes=_ALL)) for row in decoded(batch)]
    assert decoded(opened.read()) == rows
    return rows


def lines(*texts: str | bytes, end: bytes = b"\n") -> bytes:
    return b"".join((text.encode() if isinstance(text, str) else text) + end for text in texts)


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without nulls, as Python's json spells them: 1 and 1.0 differ, NaN is equal to NaN."""
    return [json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True) for row in rows]


@pytest.mark.soak
@given(_DOCUMENTS, st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")]), st.booleans(), st.booleans())
def test_any_documents_come_back_as_python_reads_them(
    documents: list[dict[str, Any]], separators: tuple[str, str], ascii_only: bool, windows: bool
) -> None:
    texts = [json.dumps(d, separators=separators, ensure_ascii=ascii_only) for d in documents]
    data = lines(*(t.encode("utf-8", "surrogatepass") for t in texts), end=b"\r\n" if windows else b"\n")
    opened = reader(data)
    streamed = [row for batch in opened.batches(Scan(max_rows=5, max_bytes=_ALL)) for row in decoded(batch)]
    expected = canonical([json.loads(text) for text in texts])
    assert canonical(streamed) == expected
    assert opened.num_rows() == len(documents)
    order = np.arange(len(documents))[::-2]
    assert canonical(decoded(opened.read(order))) == [expected[i] for i in order]


@pytest.mark.parametrize(
    "values, kind, is_json",
    [
        (["1", "-9223372036854775808", "null"], pa.int64(), False),
        (["1", "1.0"], pa.string(), True),
        (["1.5", "-0.0", "1e300", "NaN", "Infinity"], pa.float64(), False),
        (["9223372036854775807", "9223372036854775808"], pa.string(), True),
        (["true", "false"], pa.bool_(), False),
        (["true", "1"], pa.string(), True),
        (['"1"', '"é"'], pa.string(), False),
        (['"1"', "1"], pa.string(), True),
        (["[1]", "[2]"], pa.string(), True),
        (['{"a":1}', "null"], pa.string(), True),
        (['"\\ud800"', '"x"'], pa.string(), True),
        (["null", "null"], pa.null(), False),
    ],
)
def test_a_column_has_the_type_that_holds_all_values(values: list[str], kind: pa.DataType, is_json: bool) -> None:
    opened = reader(lines(*(f'{{"x": {value}}}' for value in values)))
    [field] = opened.schema()
    assert (field.type, isinstance(feature_of(field), Json)) == (kind, is_json)
    found = [row.get("x") for row in decoded(opened.read())]
    assert json.dumps(found) == json.dumps([json.loads(value) for value in values])


def test_columns_stand_in_the_order_in_which_they_appear() -> None:
    assert reader(lines('{"b": 1, "a": 2}', '{"c": 3, "a": 4}')).schema().names == ["b", "a", "c"]


def test_blank_lines_are_skipped_and_counted_and_a_mark_at_the_beginning_is_let_pass() -> None:
    data = b'\xef\xbb\xbf\n{"a": 1}\n\n \t\r\n{"a": 2}\n\n'
    opened = reader(data)
    assert [row for batch in opened.batches(Scan(max_rows=9, max_bytes=_ALL)) for row in decoded(batch)] == [
        {"a": 1},
        {"a": 2},
    ]
    assert opened.counts == {"blank lines, skipped": 4}
    with pytest.raises(CorruptShard, match="line 7"):
        reader(data + b"{").schema()


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"\r\n\r\n"])
def test_a_file_without_documents(data: bytes) -> None:
    opened = reader(data)
    assert (opened.num_rows(), len(opened.schema()), opened.first_schema()) == (0, 0, None)
    assert opened.read().num_rows == 0


@pytest.mark.parametrize("inner", ['"x"', "NaN"])
def test_documents_of_many_levels(inner: str) -> None:
    text = '{"a": ' * 199 + inner + "}" * 199
    assert reader(lines(f'{{"id": {text}}}', "{}")).read()["id"].to_pylist() == [text, None]


def test_documents_without_fields_are_rows() -> None:
    assert [batch.num_rows for batch in reader(lines("{}", "{}")).batches(Scan(max_rows=9, max_bytes=_ALL))] == [2]
    assert everything(lines("{}", '{"a": 1}')) == [{}, {"a": 1}]


GOOD = '{"id": "é", "n": 1}'


@pytest.mark.parametrize(
    "bad, error, message",
    [
        (b'{"a": 1', CorruptShard, r"line 3: broken JSON .*expected one JSON object a line, found b'\{"),
        (b'{"a": tru}', CorruptShard, "line 3: broken JSON"),
        (b'{"a": 1} {"a": 2}', CorruptShard, "line 3: broken JSON .* Extra data"),
        (b'{"a": "\xff"}', CorruptShard, "line 3: broken JSON at byte 7 .*invalid UTF-8"),
        (b"[1]", CorruptShard, "line 3: no JSON object"),
        (b"null", CorruptShard, "line 3: no JSON object"),
        (b'{"a": 1, "a": 2}', DuplicateField, "line 3: an object holds a name twice.*found 'a'"),
        (b'{"x": [{"b": {"c": 1, "d": 2, "c" : 1}}]}', DuplicateField, "line 3: .*found 'c'"),
        (b'{"\\u0061": 1, "a": "\\":"}', DuplicateField, "line 3: "),
        (b'{"\\ud800": 1}', CorruptShard, "line 3: a name that is not valid Unicode"),
        (b'{"a": ' + b"9" * 5000 + b"}", CorruptShard, "line 3: JSON holds a number that cannot be read"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", CorruptShard, "line 3: JSON is nested too deeply"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, CorruptShard, "line 3: JSON is nested too deeply"),
        (b"{}\x00", CorruptShard, "line 3: broken JSON"),
    ],
)
def test_a_bad_line_is_an_error_that_names_it(bad: bytes, error: type[LadingError], message: str) -> None:
    data = lines(GOOD, "", bad, GOOD)
    with pytest.raises(error, match=message) as caught:
        reader(data).read()
    start = len(lines(GOOD, ""))
    assert caught.value.file == "d.jsonl"
    assert caught.value.offset is not None
    assert start <= caught.value.offset <= start + len(bad)


def test_the_place_of_broken_json_is_told_by_the_byte() -> None:
    with pytest.raises(CorruptShard, match=r"d\.jsonl @ 25: line 2: ") as caught:
        reader(lines('{"a": "é"}', '{"a": "éé" 1}')).schema()
    assert caught.value.offset == len('{"a": "é"}\n'.encode()) + len('{"a": "éé" '.encode())


def test_every_cut_of_a_small_file_is_an_error_or_its_first_rows() -> None:
    texts = ['{"a": 1, "t": "é"}', '{"a": {"b": [1, 2]}}', '{"t": "\\u00e9"}']
    data = lines(*texts)
    whole = [json.loads(text) for text in texts]
    for size in range(len(data)):
        try:
            rows = everything(data[:size])
        except LadingError as error:
            assert "d.jsonl" in str(error)  # noqa: PT017 - a cut may also be no error
        else:
            assert rows == whole[: len(rows)]
            assert data[:size].rstrip(b"\n") == b"\n".join(text.encode() for text in texts[: len(rows)])


@given(st.data())
def test_flipped_bytes_are_an_error_or_data(data: st.DataObject) -> None:
    good = bytearray(lines('{"a": 1, "t": "é"}', '{"a": {"b": [1, 2]}}', '{"t": "\\u00e9"}'))
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=3)):
        good[at] = data.draw(st.integers(0, 255))
    try:
        everything(bytes(good))
    except LadingError as error:
        assert "d.jsonl" in str(error)  # noqa: PT017 - most flips are data


_PACK = {
    "d.jsonl.gz": gzip.compress,
    "d.jsonl.zst": zstandard.ZstdCompressor().compress,
    "d.jsonl.bz2": bz2.compress,
    "d.ndjson.xz": lzma.compress,
    "gzip-by-another-name.jsonl": gzip.compress,
}


@pytest.mark.soak
@pytest.mark.parametrize("path", _PACK)
def test_compressed_files_are_told_by_content(path: str) -> None:
    data = lines(*(json.dumps({"n": i, "text": "x" * (i % 50)}) for i in range(40_000)))
    packed = _PACK[path](data)
    opened = reader(packed, path)
    assert opened.num_rows() == 40_000
    assert opened.read(np.array([39_999, 0, 20_000])).column("n").to_pylist() == [39_999, 0, 20_000]
    for cut in (0, len(packed) // 2, len(packed) - 1):
        if cut or not path.endswith(".jsonl"):
            with pytest.raises(LadingError, match=path):
                reader(packed[:cut], path).schema()


@pytest.mark.soak
def test_lines_longer_than_a_read_and_lines_that_are_too_long() -> None:
    long = json.dumps({"a": "x" * (9 << 20)})
    assert [len(row["a"]) for row in everything(lines('{"a": ""}', long, '{"a": "y"}'))] == [0, 9 << 20, 1]
    for limit in (1 << 20, 5 << 20, 100):
        with pytest.raises(LimitExceeded, match=r"line 2 is too long.*line_bytes"):
            reader(lines('{"a": ""}', long), limits=Limits(line_bytes=limit)).schema()
    bomb = gzip.compress(b'{"a": "' + b"x" * (200 << 20))
    with pytest.raises(LimitExceeded, match="line 1 is too long; expected at most 67108864 bytes"):
        reader(bomb, "d.jsonl.gz").schema()


@pytest.mark.soak
def test_documents_with_names_of_their_own_each() -> None:
    few = [{f"n{i * 7 + k}": k for k in range(7)} for i in range(100)]
    assert everything(lines(*map(json.dumps, few))) == few
    many = lines(*(json.dumps({f"n{i}": 1}) for i in range(5000)))
    with pytest.raises(LimitExceeded, match="too many fields; expected at most 4096"):
        reader(many).schema()


@pytest.mark.soak
def test_random_access_reads_what_lies_around_the_rows() -> None:
    data = lines(*(json.dumps({"n": i, "text": "x" * 1000}) for i in range(20_000)))
    store = CountingStore(MemoryStore({"d.jsonl": data}), mapped=False)
    source = ShardFile(store, "d.jsonl")
    index = FORMAT.open(source, FORMAT.read_options({})).index()
    again = FORMAT.open(ShardFile(store, "d.jsonl", index=index), FORMAT.read_options({}))
    before = store.bytes_read
    assert again.read(np.array([19_999, 5, 5]), Scan(["n"])).column("n").to_pylist() == [19_999, 5, 5]
    assert again.schema() == reader(data).schema()
    assert store.bytes_read - before < 600_000
    with pytest.raises(UsageError, match="no such row; expected 0 to 19999, found 20000"):
        again.read(np.array([3, 20_000]))


@pytest.mark.soak
def test_rows_of_a_compressed_file_that_are_read_in_order_unpack_it_once() -> None:
    chance = np.random.default_rng(0)
    data = gzip.compress(lines(*(json.dumps({"n": i, "text": chance.bytes(600).hex()}) for i in range(20_000))), 1)
    store = CountingStore(MemoryStore({"d.jsonl.gz": data}), mapped=False)
    opened = FORMAT.open(ShardFile(store, "d.jsonl.gz"), FORMAT.read_options({}))
    assert opened.num_rows() == 20_000
    before = store.bytes_read
    for first in range(0, 20_000, 1000):
        found = opened.read(np.arange(first, first + 1000, 2), Scan(["n"]))
        assert found.column("n").to_pylist() == [*range(first, first + 1000, 2)]
    assert store.bytes_read - before < 1.1 * len(data)
    assert opened.read(np.array([7]), Scan(["n"])).column("n").to_pylist() == [7]


def test_an_index_of_other_lines_is_an_error() -> None:
    index = reader(lines('{"a": 1}', '{"a": 2}')).index()
    store = MemoryStore({"d.jsonl": b'{"a": 1}\n        \n'})
    opened = FORMAT.open(ShardFile(store, "d.jsonl", index=index), FORMAT.read_options({}))
    with pytest.raises(CorruptShard, match="not the one that was looked at"):
        opened.read(np.array([0]))


def test_a_file_that_changes_while_it_is_read() -> None:
    store = MemoryStore({"d.jsonl": b'{"a": 1}\n'})
    source = ShardFile(store, "d.jsonl", index=reader(b'{"a": 1}\n').index())
    sink = store.put_stream("d.jsonl")
    sink.write([b'{"b": 1}\n'])
    sink.close()
    with pytest.raises(SchemaMismatch, match=r"d\.jsonl column 'b': a line has a field that"):
        list(FORMAT.open(source, FORMAT.read_options({})).batches(Scan(max_rows=9, max_bytes=_ALL)))
    for rows in (None, np.array([0])):
        with pytest.raises(SchemaMismatch, match="was not said to have"):
            FORMAT.open(source, FORMAT.read_options({})).read(rows)


def test_rows_come_in_the_types_asked_for() -> None:
    opened = reader(lines('{"a": 1}', '{"a": 2, "b": "x"}'))
    assert not opened.declares_types
    wanted = pa.schema([reader(lines('{"a": [1]}')).schema().field("a"), pa.field("c", pa.int64())])
    [batch] = opened.batches(Scan(["a", "c"], schema=wanted, max_rows=9, max_bytes=_ALL))
    assert batch.schema == wanted
    assert batch.to_pydict() == {"a": ["1", "2"], "c": [None, None]}
    with pytest.raises(SchemaMismatch, match=r"d\.jsonl column 'b'"):
        list(opened.batches(Scan(["b"], schema=pa.schema([("b", pa.int64())]), max_rows=9, max_bytes=_ALL)))
    with pytest.raises(SchemaMismatch, match=r"d\.jsonl column 'b': a line has a field"):
        list(opened.batches(Scan(schema=wanted, max_rows=9, max_bytes=_ALL)))


def test_the_first_rows_tell_a_schema_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_FIRST_ROWS", 2)
    opened = reader(lines('{"a": 1}', '{"a": 2}', '{"a": "text"}'))
    assert opened.first_schema() == pa.schema([("a", pa.int64())])


def kept(data: bytes) -> bytes:
    """What a salvage keeps of a file."""
    found = FORMAT.recover(source_of(data), FORMAT.read_options({}))
    if found is None:
        return data
    return b"".join(data[at : at + size] for at, size in zip(found.offset, found.length, strict=True))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@given(
    st.lists(st.sampled_from(["{", "}", '"', "\\", "[1, ", "a", ": ", '{"b": [', '{"t": "te', "{}"]), max_size=8),
    st.dictionaries(_NAMES, _VALUES, max_size=3),
    st.sampled_from(["", " ", "\t\r", "}"]),
)
def test_a_document_at_the_end_of_a_bad_line_is_kept(before: list[str], document: dict[str, Any], end: str) -> None:
    line = "".join(before) + json.dumps(document) + end
    begins = (at for at, character in enumerate(line) if character == "{" and _is_object(line[at:]))
    whole = line[next(begins, len(line)) :]
    assert kept(lines("{}", line, "{}")) == lines("{}", *[whole][: len(whole)], "{}")


@pytest.mark.soak
@pytest.mark.parametrize("end", [b"", b" ", b"\r"])
def test_of_a_document_that_the_end_of_the_file_cuts_no_part_is_a_document(end: bytes) -> None:
    documents = [{"id": f"d{n}", "media": [{"id": f"m{n}{at}", "more": [{}]} for at in range(3)]} for n in range(2)]
    first, last = (json.dumps(document).encode() for document in documents)
    for size in range(1, len(last)):
        assert kept(first + b"\n" + last[:size] + end) == first + b"\n", size
    assert kept(first + last + end) == last + end  # only the line end between them is gone


@pytest.mark.soak
def test_what_a_bad_line_costs_goes_by_its_length() -> None:
    """A few times what it takes to read it once; when a thousand of its objects were tried, a hundred times."""
    begin = '{"a": [' + "{}, " * 600_000
    found: list[bytes] = []
    assert costs_at_most(30, lambda: found.append(kept(lines(begin, '{"a": 2}'))), lambda: json.loads(begin + "{}]}"))
    assert found == [lines('{"a": 2}')]


@pytest.mark.soak
def test_what_many_bad_lines_cost_goes_by_what_good_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ten times as much; by halves alone, with an error and its frames for each, hundreds of times."""
    monkeypatch.setattr(reader_module, "MAX_TOLD", 7)
    bad, good = lines("{}", *["x"] * 6000, '{"a": 1}'), lines(*['{"a": 1}'] * 6000)
    assert costs_at_most(30, lambda: kept(bad), lambda: kept(good))
    found = FORMAT.recover(source_of(bad), FORMAT.read_options({}))
    assert found is not None
    assert found.lost_samples == 6000
    assert [(error.message[:7], error.offset) for error in found.lost] == [
        (f"line {n + 2}:", 3 + 2 * n) for n in range(7)
    ]
    assert not any(error.__traceback__ or error.__context__ for error in found.lost)
    assert kept(bad) == lines("{}", '{"a": 1}')


def test_every_bad_line_among_many_is_found() -> None:
    bad = ["{x}", "[1]", "x", '{"a": 1, "a": 2}', '{"a": }', '"}"']
    good = ['{"a": "}{"}', ' {"b": [NaN]}\t', "{}"]
    for step in (1, 5, 40):
        mixed = [line for n in range(60) for line in (bad[n % 6], *(good * step)[:step])]
        assert kept(lines(*mixed)) == lines(*[line for line in mixed if line not in bad])
