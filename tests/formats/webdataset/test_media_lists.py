"""Lists of media in tars: every way of reading gives the lists that were written."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading.arrow import json_text
from lading.errors import DataError, LimitExceeded, Unrepresentable
from lading.formats.webdataset.media_lists import folded
from lading.storage.memory import MemoryStore
from lading.storage.stores import Stores
from tars import tar_of


def picture(kind: str, colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (5, 4), colour).save(file, kind)
    return file.getvalue()


JPEG, PNG = picture("JPEG", "red"), picture("PNG", "blue")
BYTES = [[JPEG, PNG], [], None, [b"not a picture", None, JPEG]]
STRUCTS = [None if row is None else [b and {"bytes": b, "path": f"{i}"} for i, b in enumerate(row)] for row in BYTES]
STRUCTS[1] = [{"bytes": None, "path": "far.jpg"}]
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TURNED = pa.struct([("path", pa.large_string()), ("bytes", pa.large_binary())])


def source(folder: Path, kind: pa.DataType, rows: list[Any]) -> Path:
    table = pa.table({"id": [f"{i}" for i in range(len(rows))], "images": pa.array(rows, kind)})
    pq.write_table(table, folder / "in.parquet")
    return folder / "in.parquet"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    "kind, rows",
    [
        (pa.list_(pa.binary()), BYTES),
        (pa.large_list(pa.large_binary()), BYTES),
        (pa.list_(MEDIA), STRUCTS),
        (pa.large_list(TURNED), STRUCTS),
        (pa.list_(pa.binary()), [None, None]),
    ],
)
def test_lists_come_back(kind: pa.DataType, rows: list[Any], compression: str | None, tmp_path: Path) -> None:
    given = source(tmp_path, kind, rows)
    lading.convert(given, tmp_path / "out", format="webdataset", options={"compression": compression})
    assert lading.diff(given, tmp_path / "out").equal
    assert lading.verify(tmp_path / "out").ok
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert [sample["images"] for sample in dataset] == rows
        assert [dataset[i]["images"] for i in (1, 0, -1)] == [rows[1], rows[0], rows[-1]]
        assert [batch.schema.names for batch in dataset.drop("images").batches()] == [["id"]]


def test_names_of_members(tmp_path: Path) -> None:
    lading.convert(source(tmp_path, pa.list_(MEDIA), STRUCTS), tmp_path / "out", format="webdataset")
    [tar] = (tmp_path / "out").glob("*.tar")
    with tarfile.open(tar) as members:
        names = [name.partition(".")[2] for name in members.getnames()]
    assert names == [
        "id", "images.0.jpg", "images.1.png", "images.json", "id", "images.json", "id",
        "id", "images.0.bin", "images.2.jpg", "images.json",
    ]  # fmt: skip


def test_lists_in_a_store(tmp_path: Path) -> None:
    stores = Stores({"box://": MemoryStore()})
    given = source(tmp_path, pa.list_(pa.binary()), BYTES)
    lading.convert(given, "box://out", format="webdataset", stores=stores)
    with lading.open("box://out", stores=stores).with_decode(False) as dataset:
        assert [sample["images"] for sample in dataset] == BYTES
        assert dataset[3]["images"] == BYTES[3]


def test_a_column_with_the_name_of_the_list_is_refused(tmp_path: Path) -> None:
    table = pa.table({"images": pa.array(BYTES, pa.list_(pa.binary())), "images.json": ["{}"] * len(BYTES)})
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match=r"images\.json"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    table = pa.table({"images": pa.array(BYTES, pa.list_(pa.binary())), "images.0.jpg": ["{}"] * len(BYTES)})
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match=r"images\.0\.jpg"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")


@pytest.mark.parametrize(
    "listed, message",
    [
        ("{", "not valid JSON"),
        ("3", "not a list of items"),
        ('["images.1.jpg"]', "no member"),
        ("[7]", "no member"),
        ('[["images.0.jpg"]]', "no member"),
    ],
)
def test_broken_lists_name_the_sample(listed: str, message: str) -> None:
    field = pa.field("images", pa.list_(pa.binary()))
    items = {"images.0.jpg": pa.array([JPEG], pa.large_binary())}
    with pytest.raises(DataError, match=message) as caught:
        folded(field, pa.array([listed.encode()], pa.large_binary()), items, pa.array(["a"]), "a.tar")
    assert (caught.value.file, caught.value.sample, caught.value.column) == ("a.tar", "a", "images")


def test_plain_tars_keep_their_columns(tmp_path: Path) -> None:
    listed = json_text.dumps(["images.0.jpg"]).encode()
    (tmp_path / "a.tar").write_bytes(tar_of(("a.images.0.jpg", JPEG), ("a.images.json", listed)))
    assert lading.open(tmp_path / "a.tar").schema.names == ["__key__", "images.0.jpg", "images.json"]


def test_lists_that_would_make_the_index_nearly_empty_are_refused(tmp_path: Path) -> None:
    rows = [[b"x"]] * 5000 + [[b"x"] * 2000]
    with pytest.raises(LimitExceeded, match="tar_cells"):
        lading.convert(source(tmp_path, pa.list_(pa.binary()), rows), tmp_path / "out", format="webdataset")
