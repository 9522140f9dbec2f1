"""The item table: schema, names, keys, and the text form of a reference."""

import json
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pytest

from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    content_type_of,
    content_types,
    duplicate_id_bounds,
    extension_of,
    format_source_ref,
    is_interleaved_schema,
    parse_source_ref,
    quote_key,
    sample_starts,
    split_rows,
)
from lading.errors import DataError


@pytest.mark.parametrize(
    "name, kind",
    [
        ("a.jpg", "image/jpeg"),
        ("a.b.JPEG", "image/jpeg"),
        ("d.x/a.tif", "image/tiff"),
        ("d.png/a", "application/octet-stream"),
        ("a.avif", "image/avif"),
        ("a.json", "application/json"),
        ("a.xyz", "application/octet-stream"),
        ("a", "application/octet-stream"),
        (".png", "image/png"),
        ("a.xjpeg", "application/octet-stream"),
        ("a.jpegs", "application/octet-stream"),
        ("a.m\u212av", "video/x-matroska"),
        ("\u00e9\u00e9\u00e9.jpeg", "image/jpeg"),
        ("", "application/octet-stream"),
    ],
)
def test_content_types(name: str, kind: str) -> None:
    assert content_type_of(name) == kind
    types, at = content_types(pa.array(["long name.html", None, name, "b.webp"]))
    assert [types[i] if i >= 0 else None for i in at.tolist()] == ["text/html", None, kind, "image/webp"]


@pytest.mark.parametrize(
    "kind, extension",
    [
        ("image/jpeg", "jpg"),
        ("image/png", "png"),
        ("image/tiff", "tiff"),
        ("image/webp", "webp"),
        ("image/gif", "gif"),
        ("image/bmp", "bmp"),
        ("image/avif", "avif"),
        ("Image/JPG; q=1", "jpg"),
        ("text/plain; charset=utf-8", "txt"),
        ("application/x-unheard-of", "bin"),
        (None, "bin"),
    ],
)
def test_extensions(kind: str | None, extension: str) -> None:
    assert extension_of(kind) == extension


def _schema(**types: pa.DataType) -> pa.Schema:
    usual = {"sample_id": pa.string(), "position": pa.int32(), "modality": pa.string()}
    return pa.schema(list({**usual, **types}.items()))


def test_the_item_schema_is_recognised() -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    assert is_interleaved_schema(INTERLEAVED_SCHEMA)
    assert is_interleaved_schema(_schema(sample_id=text, position=pa.int64(), modality=pa.string_view()))
    assert not is_interleaved_schema(_schema(position=pa.float64()))
    assert not is_interleaved_schema(_schema(sample_id=pa.int64()))
    assert not is_interleaved_schema(_schema().remove(0))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_samples_start_where_the_id_changes(kind: pa.DataType) -> None:
    ids = pa.array(["a", "a", "b", "a", "", ""], pa.string()).cast(kind)
    assert sample_starts(ids).tolist() == [0, 2, 3, 4]
    assert sample_starts(pa.chunked_array([ids[:1], ids[1:1], ids[1:]], kind)).tolist() == [0, 2, 3, 4]
    assert sample_starts(ids[1:3]).tolist() == [0, 1]
    assert sample_starts(ids[:0]).tolist() == []


def test_a_null_id_is_an_error_with_its_row() -> None:
    with pytest.raises(DataError, match=r"row 2 column 'sample_id'"):
        sample_starts(pa.array(["a", "a", None]))


def test_parts_without_two_samples_of_one_id() -> None:
    for ids, bounds in (("aabbc", [0, 5]), ("aabaab", [0, 3, 6]), ("abcabca", [0, 3, 6, 7]), ("abbb", [0, 4])):
        assert duplicate_id_bounds(pa.array([*ids])) == bounds
    assert duplicate_id_bounds(pa.array([*"aba"]).dictionary_encode()) == [0, 2, 3]


def test_splitting_never_cuts_a_sample() -> None:
    starts, sizes = np.array([0, 3, 4, 6]), np.array([1, 1, 1, 9, 2, 2, 5])
    assert split_rows(starts, sizes, max_bytes=12).tolist() == [0, 4, 7]
    assert split_rows(starts, sizes, max_bytes=1).tolist() == [0, 3, 4, 6, 7]
    assert split_rows(starts, sizes, max_bytes=100).tolist() == [0, 7]
    assert split_rows(starts, sizes, max_bytes=100, max_rows=4).tolist() == [0, 4, 7]
    assert split_rows(starts[:0], sizes[:0], max_bytes=1).tolist() == [0]


def test_splitting_is_the_peers(golden: Any) -> None:
    case = golden("interleaved") / "parquet-basic"
    view = next(v for v in json.loads((case / "expected.json").read_text())["views"] if v["name"] == "batches")
    table = pa.ipc.open_file(case / "expected-default.arrow").read_all()
    sizes = np.full(len(table), table.nbytes / len(table))
    bounds = split_rows(sample_starts(table["sample_id"]), sizes, max_bytes=view["open"]["max_batch_bytes"])
    assert np.diff(bounds).tolist() == view["batch_rows"]


IDS = ["plain-1_~", "a/b.c", "ü", "a%2Eb", " ", "", "A.", "\U0001f600"]


def test_keys_are_injective_and_hold_no_dot() -> None:
    keys = quote_key(pa.array(IDS, pa.large_string())).to_pylist()
    assert keys == [quote(text, safe="").replace(".", "%2E") for text in IDS]
    assert len(set(keys)) == len(IDS)
    assert [unquote(key) for key in keys] == IDS
    assert quote_key(pa.array([], pa.string())).to_pylist() == []


NASTY = ["doc-1.json", "é/ü.jpg", 'q"\\', "\t\x7f", "\U0001f600", None, "a", "a"]


def test_source_refs_are_spelled_as_json_dumps_does() -> None:
    count = len(NASTY)
    offset = np.array([9728, 0, -1, 1 << 62, 5, -1, 7, 1])
    length = np.array([305, 0, -1, 1, -1, -1, 8, 2])
    frame = np.array([-1, 0, 7, -1, -1, -1, 2, -1], np.int32)
    for path in ("docs.tar", "ü/d.tar"):
        expected = []
        for i in range(count):
            told: dict[str, Any] = {"path": path, "member": NASTY[i], "byte_offset": None, "byte_size": None}
            told["byte_offset"] = int(offset[i]) if offset[i] >= 0 else None
            told["byte_size"] = int(length[i]) if length[i] >= 0 else None
            expected.append(json.dumps({**told, "frame_index": int(frame[i])} if frame[i] >= 0 else told))
        texts = format_source_ref(path, pa.array(NASTY), offset, length, frame)
        assert texts.to_pylist() == expected
        parts = parse_source_ref(texts)
        assert parts.path.to_pylist() == [path] * count
        assert parts.member.to_pylist() == NASTY
        assert (parts.offset.tolist(), parts.length.tolist()) == (offset.tolist(), length.tolist())
        assert parts.frame.tolist() == frame.tolist()
        assert parts.error.null_count == count


def test_rows_without_a_source() -> None:
    nowhere = '{"path": null, "member": null, "byte_offset": null, "byte_size": null}'
    at = np.array([1, 2])
    texts = format_source_ref(pa.array(["a.tar", "b.tar"]), pa.array(["m", "n"]), at, at, valid=np.array([True, False]))
    assert texts[1].as_py() == nowhere
    parts = parse_source_ref(pa.chunked_array([texts, pa.array(["", None])]))
    assert parts.path.to_pylist() == ["a.tar", None, None, None]
    assert parts.error.null_count == 4
    assert len(format_source_ref("a", pa.array([], pa.string()), at[:0], at[:0])) == 0


def test_the_golden_refs(golden: Any) -> None:
    column = pa.ipc.open_file(golden("interleaved") / "source-refs/input.arrow").read_all()["source_ref"]
    parts = parse_source_ref(column)
    assert parts.error.null_count == len(column)
    for i, text in enumerate(column.to_pylist()):
        told = json.loads(text or "{}")
        assert parts.path[i].as_py() == told.get("path")
        assert parts.member[i].as_py() == told.get("member")
        assert parts.offset[i] == int(told.get("byte_offset", -1) if told.get("byte_offset") is not None else -1)
        assert parts.length[i] == int(told.get("byte_size", -1) if told.get("byte_size") is not None else -1)
        assert parts.frame[i] == told.get("frame_index", -1)


@pytest.mark.parametrize(
    "text, says",
    [
        ("{path", "broken JSON at byte 1"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"path": "m", "frame_index": -1}', "frame_index"),
        ('{"path": "m", "frame_index": 2147483648}', "frame_index"),
        ('{"path": "m", "byte_offset": 1.5}', "byte_offset"),
        ('{"path": "m", "byte_offset": -5}', "byte_offset"),
        ('{"path": "m", "byte_size": true}', "byte_size"),
        ('{"path": "m", "byte_size": 9223372036854775808}', "byte_size"),
        ('{"path": "m", "byte_size": "1e3"}', "byte_size"),
        ('{"path": 5}', "path"),
        ('{"path": "m", "member": {}}', "member"),
        ('{"path": "\\ud800"}', "path"),
    ],
)
def test_hostile_refs_are_errors_of_their_row(text: str, says: str) -> None:
    parts = parse_source_ref(pa.array(['{"path": "a", "byte_offset": "512", "zzz": 1}', text, None]))
    assert parts.error.to_pylist()[::2] == [None, None]
    assert says in parts.error[1].as_py()
    assert parts.path.to_pylist() == ["a", None, None]
    assert parts.offset.tolist() == [512, -1, -1]
