"""Values of fields inside columns, against Python's `json` and Pillow."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

import lading
from lading._core.content.field_paths import FieldPath, parse_field
from lading._core.dataset.values.field_values import columns_of, field_type, field_values
from lading._core.features.types import Json, with_feature
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, UsageError
from tars import tar_of

META: list[dict[str, Any]] = [
    {"lang": "en", "tags": ["x", "y"], "score": 1, "odd key": {"a": [1, 2]}, "mixed": 1},
    {"lang": "de", "tags": [], "score": 0.5, "mixed": "one"},
    {"tags": ["z"], "score": None, "mixed": None},
]


def _jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for i, meta in enumerate(META):
            members = {"json": json.dumps(meta).encode(), "txt": f"né {i}".encode(), "cls": f"{i}\n".encode()}
            if i != 1:
                members["jpg"] = _jpeg(10 + i, 20)
            for name, data in members.items():
                info = tarfile.TarInfo(f"{i:03}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def _values(batch: pa.RecordBatch, *names: str) -> list[pa.Array]:
    with Fetcher() as fetcher:
        return field_values(batch, names, fetcher)


@pytest.mark.parametrize("lazy", [True, False])
def test_fields_of_a_tar(shard: Path, lazy: bool) -> None:
    [batch] = lading.open(shard).batches(lazy=lazy)
    found = _values(
        batch, "json.lang", "json.tags[0]", "json.score", "json['odd key'].a[-1]", "txt", "cls", "jpg.width"
    )
    assert [column.to_pylist() for column in found] == [
        ["en", "de", None],
        ["x", None, "z"],
        [1.0, 0.5, None],
        [2, None, None],
        ["né 0", "né 1", "né 2"],
        [0, 1, 2],
        [10, None, 12],
    ]
    assert found[0].type == pa.string()
    assert found[2].type == pa.float64()
    assert found[5].type == pa.int64()


def test_values_of_several_kinds_are_json(shard: Path) -> None:
    [batch] = lading.open(shard).batches(lazy=True)
    mixed, tags, whole = _values(batch, "json.mixed", "json.tags", "json")
    assert isinstance(mixed.type, pa.JsonType)
    assert mixed.storage.to_pylist() == ["1", '"one"', None]
    assert tags.to_pylist() == [meta["tags"] for meta in META]
    assert [json.loads(text) for text in whole.storage.to_pylist()] == META


def test_fields_of_structs_lists_maps_and_texts() -> None:
    rows = [{"a": {"b": [1, 2]}, "j": '{"k": [true]}'}, {"a": None, "j": None}, {"a": {"b": []}, "j": "{}"}]
    schema = pa.schema(
        [
            ("a", pa.struct([("b", pa.list_(pa.int64()))])),
            with_feature(pa.field("j", pa.string()), Json()),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )
    batch = pa.RecordBatch.from_pylist([{**row, "m": {"x": i}} for i, row in enumerate(rows)], schema)
    found = _values(batch, "a.b[0]", "a.b[-1]", "j.k[0]", "m.x", "m['y']")
    assert [column.to_pylist() for column in found] == [
        [1, None, None], [2, None, None], [True, None, None], [0, 1, 2], [None] * 3,
    ]  # fmt: skip


def test_types_that_are_known_beforehand(shard: Path) -> None:
    schema = lading.open(shard).schema
    assert field_type(schema.field("jpg"), ["width"]) == pa.int64()
    assert field_type(schema.field("txt")) == pa.large_string()
    assert field_type(schema.field("cls")) == pa.int64()
    assert field_type(schema.field("json"), ["lang"]) is None


def test_columns_of_names() -> None:
    assert columns_of(["json.lang", "json.tags[0]", "txt"]) == ["json", "txt"]
    assert columns_of(["seg.png.width"], pa.schema([("seg.png", pa.binary())])) == ["seg.png"]


@pytest.mark.parametrize("name", ["a", "a.b", "a.b[0].c", "a[-1]", "a['odd key']", "a.b-c"])
def test_names_are_spelled_as_they_are_read(name: str) -> None:
    assert str(parse_field(name)) == name
    assert parse_field(str(parse_field(name))) == parse_field(name)


def test_a_column_with_dots_is_found_first() -> None:
    assert parse_field("a.b.c", ["a", "a.b"]) == FieldPath("a.b", ("c",))
    assert parse_field("a.b", ["a", "a.b"]) == FieldPath("a.b")


@pytest.mark.parametrize("name", ["a.", "a[", "a[x]", "a..b", "a[0"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError, match="not a name"):
        parse_field(name)


@pytest.mark.parametrize(
    "name, message",
    [
        ("jpg.widht", "no such field.*Did you mean width"),
        ("jsn.lang", "the column is not there; there are __key__, json, txt, cls, jpg.*Did you mean json"),
        ("__key__.x", None),
    ],
)
def test_fields_that_a_column_cannot_have(shard: Path, name: str, message: str | None) -> None:
    [batch] = lading.open(shard).batches(lazy=True)
    with pytest.raises((UsageError, DataError), match=message):
        _values(batch, name)


def test_broken_json_names_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for i, data in enumerate([b"{}", b"{,"]):
            info = tarfile.TarInfo(f"{i}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    [batch] = lading.open(path).batches(lazy=True)
    with pytest.raises(DataError, match="sample '1' column 'json': broken JSON"):
        _values(batch, "json.lang")


def test_a_text_that_is_not_json_has_no_fields(tmp_path: Path) -> None:
    path = tmp_path / "1.tar"
    path.write_bytes(tar_of(("1.txt", b"plain words"), ("2.txt", b'{"lang": "en"}')))
    for name in ("txt.width", "txt.lang"):
        with lading.open(path) as dataset, pytest.raises(DataError) as caught:
            list(dataset.where(f"{name} == 3"))
        assert (caught.value.column, caught.value.found) == ("txt", "'plain words'")
        assert "ds.where('len(txt) > 20')" in str(caught.value)
    path.write_bytes(tar_of(("1.txt", b' {"lang": broken'), ("2.txt", b'{"lang": "en"}')))
    with lading.open(path) as dataset, pytest.raises(DataError, match="broken JSON"):
        list(dataset.where("txt.lang == 'en'"))


def test_headers_of_usual_and_unusual_images_say_the_same(tmp_path: Path) -> None:
    kinds = ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"]
    noise = Image.effect_noise((90, 70), 50).convert("RGB")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, kind in enumerate(kinds):
            file = io.BytesIO()
            noise.save(file, kind)
            info = tarfile.TarInfo(f"{i}.img")
            info.size = len(file.getvalue())
            tar.addfile(info, io.BytesIO(file.getvalue()))
    for lazy in (True, False):
        [batch] = lading.open(tmp_path / "a.tar").batches(lazy=lazy)
        found = _values(batch, "img.width", "img.height", "img.format", "img.frames")
        assert [column.to_pylist() for column in found] == [
            [90] * 6, [70] * 6, [kind.lower() for kind in kinds], [1, None, None, 1, 1, 1],
        ]  # fmt: skip
