"""Lists of pictures in MDS: the lists that were written come back, and what is no picture is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading.errors import Unrepresentable


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (5, 4)).save(file, kind)
    return file.getvalue()


JPEG, PNG = picture("JPEG"), picture("PNG")


def source(folder: Path, kind: pa.DataType, rows: list[Any]) -> Path:
    pq.write_table(pa.table({"images": pa.array(rows, kind)}), folder / "in.parquet")
    return folder / "in.parquet"


@pytest.mark.parametrize("encoding", [None, "list[png]", "jpeg_array"])
@pytest.mark.parametrize("kind", [pa.list_(pa.binary()), pa.large_list(pa.large_binary())])
def test_lists_come_back(kind: pa.DataType, encoding: str | None, tmp_path: Path) -> None:
    rows = [[JPEG, PNG], None, [], [PNG]]
    options = {"nulls": "mask", "columns": encoding and {"images": encoding}}
    given = source(tmp_path, kind, rows)
    lading.convert(given, tmp_path / "out", format="mds", options=options)
    assert lading.diff(given, tmp_path / "out").equal
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert [row["images"] for row in dataset] == rows
        assert [dataset[number]["images"] for number in (3, 1, 0)] == [rows[3], rows[1], rows[0]]


@pytest.mark.parametrize(
    "item, message", [(None, "nulls in lists of pictures"), (b"no picture", "an item that is none")]
)
def test_items_that_are_no_pictures_are_refused(item: bytes | None, message: str, tmp_path: Path) -> None:
    given = source(tmp_path, pa.list_(pa.binary()), [[JPEG], [PNG, item]])
    with pytest.raises(Unrepresentable, match=message) as caught:
        lading.convert(given, tmp_path / "out", format="mds")
    assert (caught.value.row, caught.value.column) == (1, "images")
    assert "map=" in str(caught.value)
