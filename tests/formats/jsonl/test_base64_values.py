"""Bytes in JSON Lines: base64 for every reader, and bytes again by the manifest."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.formats.base import ShardFile
from lading._core.formats.jsonl.format import FORMAT, ReadOptions
from lading._core.storage.fetch import Fetcher
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, Unrepresentable

BYTES = [[b"\xff\xd8", b""], [], None, [None, b"\x00"]]
STRUCTS = [
    [{"bytes": b"\xff\xd8", "path": "a\n.jpg"}, {"bytes": b"", "path": None}],
    [],
    None,
    [None, {"bytes": None, "path": "far.jpg"}],
]
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TURNED = pa.struct([("path", pa.large_string()), ("bytes", pa.large_binary())])


def source(folder: Path, column: pa.Array) -> Path:
    pq.write_table(pa.table({"images": column, "text": list("abcd")}), folder / "in.parquet")
    return folder / "in.parquet"


def encoded(value: Any) -> Any:
    """The value as Python's json and base64 write it."""
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, dict):
        return {name: encoded(item) for name, item in value.items()}
    return b64encode(value).decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    "kind, rows",
    [
        (pa.list_(pa.binary()), BYTES),
        (pa.large_list(pa.large_binary()), BYTES),
        (pa.list_(MEDIA), STRUCTS),
        (pa.large_list(TURNED), STRUCTS),
    ],
)
def test_lists_come_back(kind: pa.DataType, rows: list[Any], compression: str | None, tmp_path: Path) -> None:
    given, out = source(tmp_path, pa.array(rows, kind)), tmp_path / "out"
    lading.convert(given, out, format="jsonl", options={"compression": compression}, verify=True)
    lading.convert(out, tmp_path / "back", format="parquet")
    assert lading.diff(given, tmp_path / "back").equal
    assert lading.verify(out, deep=True).ok
    with lading.open(out).with_decode(False) as dataset:
        assert [dataset[i]["images"] for i in (3, 1, 2, 0)] == [rows[3], rows[1], rows[2], rows[0]]
        assert [row["text"] for row in dataset.where("len(images) == 2")] == ["a", "d"]
    if compression is None:
        [file] = out.glob("*.jsonl")
        assert [json.loads(line)["images"] for line in file.read_text().splitlines()] == encoded(rows)


def test_single_media_are_refused_or_keep_their_paths(tmp_path: Path) -> None:
    rows = [{"bytes": b"\xff\xd8", "path": "a.jpg"}, None, {"bytes": None, "path": "b"}, {"bytes": b"", "path": None}]
    given, out = source(tmp_path, pa.array(rows, MEDIA)), tmp_path / "out"
    with pytest.raises(Unrepresentable, match=r"column 'images': JSON cannot hold bytes.*'bytes': 'base64'"):
        lading.convert(given, out, format="jsonl")
    lading.convert(given, out, format="jsonl", options={"bytes": "base64"}, verify=True)
    assert [row["images"] for row in lading.open(out)] == rows
    [file] = out.glob("*.jsonl")
    assert [json.loads(line)["images"] for line in file.read_text().splitlines()] == encoded(rows)


def refused(kind: pa.DataType, line: str) -> DataError:
    """The error of a second line."""
    schema = pa.schema([pa.field("images", kind)])
    store = MemoryStore({"a.jsonl": b'{"images": null}\n' + line.encode()})
    reader = FORMAT.open(ShardFile(store, "a.jsonl"), ReadOptions()).as_written(schema, Fetcher(Stores()))
    assert reader is not None
    with pytest.raises(DataError) as caught:
        list(reader.batches())
    assert (caught.value.file, caught.value.column) == ("a.jsonl", "images")
    with pytest.raises(DataError, match=re.escape(caught.value.message)):
        reader.read(np.array([1]))
    return caught.value


@pytest.mark.parametrize("wrong", ['"*"', '"/9g"', '"/9g=\\n"', "7", '["/9g="]', '"é"', "{}"])
def test_what_is_not_base64_names_the_line(wrong: str) -> None:
    assert refused(pa.binary(), f'{{"images": {wrong}}}').message == "line 2: a value is not base64"
    assert refused(pa.list_(MEDIA), f'{{"images": [{{"bytes": {wrong}}}]}}').message == "line 2: a value is not base64"


@pytest.mark.parametrize("wrong", ["7", '"/9g="', '{"a": 1}', '[[{"bytes": "AA=="}]]', '[{"bytes": null, "size": 1}]'])
def test_values_of_another_shape_are_refused(wrong: str) -> None:
    error = refused(pa.list_(MEDIA), f'{{"images": {wrong}}}')
    assert error.message == "a value does not fit the type of its column"
