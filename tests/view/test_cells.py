"""What is shown of values, by column and by field inside a column."""

from __future__ import annotations

import io
import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from golden_cases import Golden
from lading._core.dataset.opened import opened
from lading._core.features.types import Array
from lading._core.view.cells import npy_of
from lading._core.view.naming import Naming
from lading._core.view.selection import Selection
from lading._core.view.values import ValuePlace
from lading._core.view.view import View


def _rows(ds: lading.Dataset, *columns: str) -> list[dict[str, Any]]:
    view = View(opened(ds), Naming("", "", ""))
    rows: list[dict[str, Any]] = view.page(Selection(), 0, 60, list(columns))["rows"]
    view.close()
    return rows


def test_fields_inside_columns_are_cells(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for i in range(5):
            value = {"lang": "en", "score": i} if i % 2 else {"lang": None}
            writer.write({"__key__": f"{i}", "jpg": Image.new("RGB", (20 + i, 10)), "json": value})
    ds = lading.open(tmp_path / "in")
    for sample, row in zip(ds, _rows(ds, "json.lang", "json.score", "jpg.width", "jpg.nothing"), strict=True):
        shown = {name: cell.get("text") for name, cell in row["cells"].items()}
        score = sample["json"].get("score")
        assert list(shown) == ["json.lang", "json.score", "jpg.width", "jpg.nothing"]
        assert (shown["json.lang"], shown["json.score"]) == (
            sample["json"]["lang"],
            None if score is None else str(score),
        )
        assert shown["jpg.width"] == str(sample["jpg"].width)
        assert (row["cells"]["jpg.nothing"]["kind"], "width" in shown["jpg.nothing"]) == ("error", True)


def test_a_column_that_is_missing_names_those_that_are_there() -> None:
    [row] = _rows(lading.open([{"a": 1, "b": {"c": 2}}]), "a", "d.c")
    assert row["cells"]["a"]["text"] == "1"
    assert row["cells"]["d.c"] == {"kind": "error", "text": "no such column; expected a, b, found 'd'"}


@pytest.mark.parametrize("metadata", [None, {"huggingface": '{"info": {"features": {"a": {"_type": "Image"}}}}'}])
def test_structs_of_bytes_and_path_are_media(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    """Whether Hugging Face's metadata says so or not."""
    picture = io.BytesIO()
    Image.new("RGB", (7, 5)).save(picture, "png")
    files = [{"bytes": picture.getvalue(), "path": "x.png"}, {"bytes": b"hello", "path": None}, None]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"a": pa.array(files, kind)})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "in.parquet")
    view = View(opened(lading.open(tmp_path / "in.parquet")), Naming("", "", ""))
    cells = [view.sample(Selection(), number)["cells"]["a"] for number in range(3)]
    assert [(cell["kind"], cell.get("length")) for cell in cells] == [
        ("image", len(picture.getvalue())), ("bytes", 5), ("null", None)]  # fmt: skip
    assert view.value(Selection(), ValuePlace(1, "a")).whole() == b"hello"
    assert view.dataset()["columns"][0]["kind"] == "image"
    view.close()


def test_columns_of_bytes_are_what_the_first_samples_have() -> None:
    picture = io.BytesIO()
    Image.new("RGB", (7, 5)).save(picture, "png")
    ds = lading.open(pa.table({"a": [None, picture.getvalue()], "b": [b"x", b"y"], "c": ["t", "t"]}))
    view = View(opened(ds), Naming("", "", ""))
    assert [column["kind"] for column in view.dataset()["columns"]] == ["image", "bytes", "text"]
    view.close()


def test_json_is_shown_as_written(tmp_path: Path) -> None:
    written = '{"id": 12345678901234567890, "x": 1.50, "a": [1e400]}'
    (tmp_path / "in.jsonl").write_text(json.dumps({"meta": written}) + "\n")
    ds = lading.open(tmp_path / "in.jsonl")
    assert _rows(ds, "meta")[0]["cells"]["meta"]["text"] == written


def test_structs_with_values_that_json_lacks_are_described(tmp_path: Path) -> None:
    value = {"x": float("nan"), "b": b"\xff\xfe", "n": 2**62}
    kind = pa.struct({"x": pa.float64(), "b": pa.binary(), "n": pa.int64()})
    pq.write_table(pa.table({"a": pa.array([value], kind)}), tmp_path / "in.parquet")
    text = _rows(lading.open(tmp_path / "in.parquet"), "a")[0]["cells"]["a"]["text"]
    assert text == '{"x": NaN, "b": "<bytes 2 B: ff fe>", "n": 4611686018427387904}'


def test_arrays_without_a_header_become_numpy_files() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    feature = Array("int16", (2, 3))
    made = npy_of(feature, array.tobytes())
    assert np.array_equal(np.load(io.BytesIO(made)), array)
    assert npy_of(feature, made) == made


def test_a_sample_that_cannot_be_read_says_why_in_its_place(golden: Golden) -> None:
    with chdir(golden("interleaved") / "source-refs"):  # its references are relative
        view = View(opened(lading.open(["refs.parquet"])), Naming("", "", ""))
        [row] = view.page(Selection(), 0, 60, ["items"])["rows"]
        view.close()
    assert (row["number"], "cells" in row) == (0, False)
    assert "no such frame in this TIFF file" in row["error"]


def test_long_values_of_tables_have_no_bytes_to_save(tmp_path: Path) -> None:
    pq.write_table(pa.table({"long": [[*range(200)]], "short": [[1]], "text": ["x" * 1_000]}), tmp_path / "in.parquet")
    cells = _rows(lading.open(tmp_path / "in.parquet"), "long", "short", "text")[0]["cells"]
    assert [cells[name].get("facts") for name in cells] == [{"in_table": True}, None, None]
    assert (cells["long"]["length"], cells["text"]["length"]) == (len(str([*range(200)])), 1_000)
