"""JSON arrays in `.json` files: against Python's json."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lading
from cost import costs_at_most
from lading._core.formats import text_lines
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.jsonl.format import FORMAT, JsonlReader
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, DataError, LadingError, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

_ALL = 1 << 40
_TEXT = st.text(st.sampled_from('ab"\\,[]{}\n\té '), max_size=8)
_ROW = st.fixed_dictionaries({"t": _TEXT}, optional={"n": st.integers(-9, 9), "l": st.lists(_TEXT, max_size=3)})


def reader(data: bytes, path: str = "t.json", limits: Limits = DEFAULT_LIMITS) -> JsonlReader:
    return FORMAT.open(ShardFile(MemoryStore({path: data}), path, limits=limits), FORMAT.read_options({}))


def rows(data: bytes, path: str = "t.json") -> list[dict[str, Any]]:
    """All rows, streamed, read whole, and read one by one, which must agree."""
    opened = reader(data, path)
    schema = opened.schema()
    streamed = pa.Table.from_batches(opened.batches(Scan(max_rows=3, max_bytes=_ALL)), schema)
    assert opened.read() == streamed
    indexed = FORMAT.open(ShardFile(MemoryStore({path: data}), path, index=opened.index()), FORMAT.read_options({}))
    for again in (opened, indexed):
        for row in range(len(streamed)):
            assert again.read(pa.array([row]).to_numpy()) == streamed.slice(row, 1)
    return streamed.to_pylist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.lists(_ROW, max_size=6),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["", "\ufeff", " \n"]),
    st.sampled_from(["", "\n", "\r\n \n"]),
    st.booleans(),
    st.sampled_from([1, 2, 7, 1 << 20]),
)
def test_what_python_writes_is_read(
    documents: list[dict[str, Any]], indent: Any, before: str, after: str, plain: bool, step: int
) -> None:
    text = before + json.dumps(documents, indent=indent, ensure_ascii=plain) + after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "_READ_BYTES", step)
        found = rows(text.encode())
    texts = [{k: json.loads(v) if k == "l" and v is not None else v for k, v in row.items()} for row in found]
    names = dict.fromkeys(name for document in documents for name in document)
    assert texts == [{name: document.get(name) for name in names} for document in documents]


def test_an_object_a_line_in_a_json_file(tmp_path: Path) -> None:
    assert rows(b'{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]
    assert rows(b'{"a": {"b": [1]}}') == [{"a": '{"b": [1]}'}]
    assert rows(b'[{"a": 1}]', "t.jsonl") == [{"a": 1}]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'[{"a": 1},\n {"a": 2}]'))
    with lading.open(path) as dataset:
        assert list(dataset) == [{"a": 1}, {"a": 2}]
        assert dataset[1] == {"a": 2}
    assert lading.verify(path).ok
    (tmp_path / "u.json").write_bytes(b'[{"a": 1},\n {"a": 2}]')
    done = lading.convert(tmp_path / "u.json", tmp_path / "out", format="parquet", verify=True)
    assert (done.samples, done.digest) == (2, lading.digest(path).ordered)


@pytest.mark.parametrize(
    "data, message",
    [
        (b'[{"a": 1}, 2]', r"line 1: no JSON object; expected an array of JSON objects, found b'2'"),
        (b'[{"a": 1},\n{"a" 2}]', r"t\.json @ 16: line 2: "),
        (b'[{"a": 1},\n{"a": 2}] x', r"line 2: "),
        (b'[{"a": 1}][{"a": 1}]', r"line 1: "),
        (b'[{"a": 1},, {"a": 1}]', r"line 1: "),
        (b'[{"a": 1},\n{"a": 2}', r"t\.json @ 19: the array has no end: the file was cut"),
        (b'[{"a": 1},\n{"a": [1]', r"the array has no end"),
        (b"[", r"the array has no end"),
    ],
)
def test_a_bad_array(data: bytes, message: str) -> None:
    with pytest.raises(CorruptShard, match=message):
        rows(data)


def test_rows_before_the_end_of_a_cut_array_are_given() -> None:
    data = json.dumps([{"a": n} for n in range(9)], indent=1).encode()
    for size in range(len(data) - 1, 20, -1):
        opened = reader(data[:size])
        with pytest.raises(LadingError, match=r"t\.json"):
            opened.schema()
        found = []
        with pytest.raises(CorruptShard, match="the array has no end"):
            found += list(opened.batches(Scan(schema=pa.schema([("a", pa.int64())]), max_rows=99, max_bytes=_ALL)))


def test_salvage_of_a_damaged_array(tmp_path: Path) -> None:
    documents = [{"a": n, "t": "x,]}" * n} for n in range(9)]
    whole = json.dumps(documents, indent=1).encode()
    path = tmp_path / "t.json"
    for damaged, lost in (
        (whole.replace(b'"a": 4,', b'"a": \xff,'), 4),
        (whole.replace(b'"a": 0,', b'"a" 0 ,'), 0),
        (whole[: len(whole) - 5], 8),
    ):
        path.write_bytes(damaged)
        saved = lading.salvage(path, tmp_path / f"out-{lost}", format="jsonl")
        assert saved.samples == 8
        with lading.open(tmp_path / f"out-{lost}") as dataset:
            assert list(dataset) == [document for document in documents if document["a"] != lost]


def test_an_object_with_the_rows_under_a_key_is_refused_with_a_command_that_helps(tmp_path: Path) -> None:
    document = {"info": {"year": 2020}, "all images": [{"id": 1}, {"id": 2}], "x": []}
    for indent in (None, 2):
        path = tmp_path / "my data.json"
        path.write_text(json.dumps(document, indent=indent))
        for look in (lading.info, lading.digest, lading.verify):
            with pytest.raises(
                DataError, match=r"one JSON object.*lists of rows 'all images' \(2\)\. .*jq -c"
            ) as caught:
                look(path)
        assert not isinstance(caught.value, CorruptShard)
        assert f"jq -c '.[\"all images\"][]' '{path}' > '{tmp_path}/my data.jsonl'" in (caught.value.advice or "")
    path.write_text('{\n "a": 1\n}\n')
    with pytest.raises(DataError, match=r"found an object over several lines.*jq -c \. "):
        lading.info(path)


_COCO = {
    "info": {"year": 2017}, "licenses": [{"id": 1}], "images": [{"id": 7, "file_name": "7.jpg"}, {"id": 8}],
    "annotations": [{"id": n, "image_id": 7} for n in range(3)], "categories": [{"id": 1}],
}  # fmt: skip


_ONE_OBJECT = pytest.mark.parametrize("document, found, commands", [
    (_COCO, "layout of COCO.*'licenses' (1), 'images' (2), 'annotations' (3), 'categories' (1)",
     {"t.jsonl": _COCO["annotations"],
      "metadata.jsonl": [{"id": 7, "file_name": "7.jpg", "annotations": _COCO["annotations"]},
                         {"id": 8, "annotations": []}]}),
    ({'a,": [': [{"x": "},{"}], "b\u00e9": [{"y": {"z": [{}]}}, {}]}, "'a,\": [' (1), 'b\u00e9' (2)",
     {"t.jsonl": [{"y": {"z": [{}]}}, {}]}),
    ({f"v_{n}": {"n": n} for n in range(101)}, "an object of 101 objects, keyed by 'v_0', 'v_1'",
     {"t.jsonl": [{"_key": f"v_{n}", "n": n} for n in range(101)]}),
    ({f"v_{n}": "text" for n in range(101)}, "an object of 101 texts, keyed by 'v_0'",
     {"t.jsonl": [{"key": f"v_{n}", "value": "text"} for n in range(101)]}),
])  # fmt: skip


@pytest.mark.cases(4)
@_ONE_OBJECT
def test_one_object_is_told_with_what_it_holds(document: Any, found: str, commands: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=".*".join(map(re.escape, found.split(".*")))) as caught:
        reader(json.dumps(document).encode()).schema()
    assert all(f" t.json > {target}" in (caught.value.advice or "") for target in commands)


def test_few_members_of_one_kind_are_a_row() -> None:
    assert reader(json.dumps({f"v_{n}": {"n": n} for n in range(20)}).encode()).num_rows() == 1


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@_ONE_OBJECT
def test_commands_that_make_rows_of_one_object_do(
    document: Any, found: str, commands: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.json").write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        lading.info("t.json")
    advice = caught.value.advice or ""
    for target, expected in commands.items():
        [command] = [text for text in re.findall(r"jq -c '[^']*' t\.json > \S+", advice) if text.endswith(f" {target}")]
        subprocess.run(command, shell=True, check=True)
        assert [json.loads(line) for line in Path(target).read_text().splitlines()] == expected


def test_one_object_that_is_longer_than_a_line_may_be_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "_READ_BYTES", 4096)
    data = json.dumps({"info": {}, "licenses": [], "images": [{"id": n} for n in range(9000)]}).encode()
    with pytest.raises(DataError, match=r"layout of COCO.*'images' \(at least \d,\d+\)"):
        reader(data, limits=Limits(line_bytes=50_000)).schema()
    with pytest.raises(LimitExceeded, match="line 1 is too long"):
        reader(json.dumps({"a": "x" * 90_000}).encode(), limits=Limits(line_bytes=50_000)).schema()


@pytest.mark.soak
def test_memory_and_time_are_those_of_lines() -> None:
    documents = [{"id": n, "text": "word " * 20, "tags": ["a", "b"]} for n in range(30_000)]
    lines = "\n".join(map(json.dumps, documents)).encode()
    array = json.dumps(documents).encode()
    assert costs_at_most(4, lambda: reader(array).schema(), lambda: reader(lines).schema())
    with pytest.raises(LimitExceeded, match="line 1 is too long"):
        reader(b'[{"a": "' + b"x" * (9 << 20) + b'"}, {}]', limits=Limits(line_bytes=1 << 20)).schema()


@pytest.mark.parametrize(
    "name, data, command",
    [
        ("t.json", b"[1, 2]", "jq -c '.[] | {value: .}' t.json > t.jsonl"),
        ("t.jsonl", b'{"a": 1}{"a": 2}\n', "jq -c . t.jsonl > t.lines.jsonl"),
        ("t.jsonl", b'{\n "a": 1\n}\n', "jq -c . t.jsonl > t.lines.jsonl"),
        ("t.jsonl", b'{"a": 1,\n "b": 2}\n', "jq -c . t.jsonl > t.lines.jsonl"),
        ("t.jsonl", '{"a": "é"}\n'.encode("latin-1"), "iconv -f WINDOWS-1252 -t UTF-8 t.jsonl > t.utf-8.jsonl"),
    ],
)
def test_json_in_another_form_is_told_with_the_command_that_changes_it(name: str, data: bytes, command: str) -> None:
    with pytest.raises(CorruptShard) as caught:
        reader(data, name).schema()
    assert (caught.value.advice or "").endswith(command)
