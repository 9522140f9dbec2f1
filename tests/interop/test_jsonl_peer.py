"""Python's json, pyarrow and Hugging Face datasets read our JSON Lines, and we read theirs."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyarrow import json as pa_json

import lading

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS: list[dict[str, Any]] = [
    {
        "id": f"doc/{i}",
        "text": 'é\n"q" ' * i,
        "n": i,
        "score": i / 3,
        "ok": i % 2 == 0,
        "meta": {"tags": ["a"] * (i % 3)},
    }
    for i in range(50)
]


def _written(folder: Path, **options: Any) -> Path:
    with lading.writer(folder / "new", format="jsonl", options=options) as writer:
        for row in ROWS:
            writer.write(row)
    [path] = (folder / "new").glob("*.jsonl*")
    return path


def test_python_reads_ours(tmp_path: Path) -> None:
    with gzip.open(_written(tmp_path, compression="gzip"), "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == ROWS


def test_pyarrow_reads_ours(tmp_path: Path) -> None:
    assert pa_json.read_json(_written(tmp_path)).to_pylist() == ROWS


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_datasets_reads_ours(datasets: object, tmp_path: Path, compression: str | None) -> None:
    path = _written(tmp_path, compression=compression)
    rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(rows) == ROWS


def test_we_read_what_datasets_writes(datasets: object, tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        datasets.Dataset.from_list(ROWS).to_json(tmp_path / name)
        with lading.open(tmp_path / name) as ds:
            assert len(ds) == len(ROWS)
            # pandas writes ten digits of a float
            assert [{**ds[i], "score": None} for i in (0, 17, 49)] == [{**ROWS[i], "score": None} for i in (0, 17, 49)]


def test_we_read_what_datatrove_writes(tmp_path: Path) -> None:
    """As pipeline/writers/jsonl.py of datatrove 0.10.1 does: orjson, a line end behind each, gzip."""
    media = {"id": "m", "type": 0, "url": None, "path": "000.bin.zst", "offset": 0, "length": 7, "media_bytes": None}
    documents = [{"text": f"t {i}", "id": f"{i}", "media": [media] * (i % 2), "metadata": {"n": i}} for i in range(9)]
    path = tmp_path / "00000.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for document in documents:
            file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    with lading.open(path) as ds:
        assert (ds.format, ds.view) == ("jsonl", "samples")
        assert list(ds) == documents


def test_pyarrow_and_lading_agree_on_plain_columns(tmp_path: Path) -> None:
    data = b"".join(orjson.dumps({k: row[k] for k in ("id", "text", "n", "score", "ok")}) + b"\n" for row in ROWS)
    (tmp_path / "p.jsonl").write_bytes(data)
    with lading.open(tmp_path / "p.jsonl") as ds:
        found = pa.Table.from_batches(ds.batches()).replace_schema_metadata(None)
    assert found == pa_json.read_json(io.BytesIO(data))
