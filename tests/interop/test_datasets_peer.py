"""Hugging Face datasets reads what lading writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import lading

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS = [
    {
        "__key__": f"{i:03d}",
        "jpg": b"\xff\xd8\xff" + bytes([i]) * 2000,
        "json": {"i": i, "t": "ü" * i},
        "txt": "text " * i,
    }
    for i in range(20)
]


def _written(folder: Path, fmt: str) -> None:
    with lading.writer(folder, format=fmt) as writer:
        for row in ROWS:
            writer.write(row)


def test_parquet(datasets: object, tmp_path: Path) -> None:
    _written(tmp_path / "new", "parquet")
    files = [str(path) for path in sorted((tmp_path / "new").glob("*.parquet"))]
    rows = list(datasets.Dataset.from_parquet(files, cache_dir=str(tmp_path / "cache")))
    assert [(r["__key__"], r["jpg"], r["txt"]) for r in rows] == [(r["__key__"], r["jpg"], r["txt"]) for r in ROWS]


def test_webdataset(datasets: object, tmp_path: Path) -> None:
    _written(tmp_path / "new", "webdataset")
    files = [str(path) for path in sorted((tmp_path / "new").glob("*.tar"))]
    stream = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    rows = list(stream.cast_column("jpg", datasets.Image(decode=False)))
    assert [(r["__key__"], r["jpg"]["bytes"], r["json"]) for r in rows] == [
        (r["__key__"], r["jpg"], r["json"]) for r in ROWS
    ]
