"""A destination with the ending of a format is one file, and peers open it."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import DestinationExists, UsageError

COUNT = 300


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = range(part * 100, part * 100 + 100)
        table = pa.table({"n": rows, "txt": [f"text {n}" for n in rows], "score": [n / 4 for n in rows]})
        pq.write_table(table, tmp_path / "in" / f"{part}.parquet")
    return tmp_path / "in"


@pytest.mark.parametrize(
    "name, read",
    [
        ("o.parquet", pd.read_parquet),
        ("o.jsonl", lambda path: pd.read_json(path, lines=True)),
        ("o.jsonl.gz", lambda path: pd.read_json(path, lines=True)),
        ("o.ndjson.zst", lambda path: pd.read_json(path, lines=True, compression="zstd")),
        ("o.csv", pd.read_csv),
        ("o.tsv.gz", lambda path: pd.read_csv(path, sep="\t")),
        ("o.arrow", pd.read_feather),
        ("deep/er/o.feather", pd.read_feather),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_peers_open_the_file(name: str, read: Any, workers: int, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "out" / name
    done = lading.convert(source, place, verify=True, workers=workers)
    assert (done.samples, done.shards) == (COUNT, 1)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [place]
    found = read(place)
    assert found["n"].tolist() == list(range(COUNT))
    assert found["txt"].tolist() == [f"text {n}" for n in range(COUNT)]
    assert found["score"].tolist() == [n / 4 for n in range(COUNT)]
    assert len(lading.open(place)) == COUNT


@pytest.mark.parametrize("name, mode", [("o.tar", "r:"), ("o.tar.gz", "r:gz"), ("o.tgz", "r:gz")])
def test_tars(name: str, mode: Any, source: Path, tmp_path: Path) -> None:
    lading.open(source).select("txt").write(tmp_path / name, verify=True)
    with tarfile.open(tmp_path / name, mode) as tar:
        assert [member.name.split(".", 1)[1] for member in tar] == ["txt"] * COUNT


def test_what_only_a_manifest_keeps_is_counted(source: Path, tmp_path: Path) -> None:
    done = lading.convert(source, tmp_path / "o.csv")
    assert any("n, score" in what and number == 2 for what, number in done.counts.items())
    assert not lading.convert(source, tmp_path / "o.parquet").counts


def test_a_file_is_replaced_only_when_asked(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "o.parquet"
    lading.convert(source, place)
    before = place.read_bytes()
    with pytest.raises(DestinationExists):
        lading.convert(source, place, where="n < 5")
    assert place.read_bytes() == before
    lading.convert(source, place, where="n < 5", overwrite=True)
    assert pq.read_table(place)["n"].to_pylist() == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="file of the source"):
        lading.convert(place, place, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "o.parquet"}


def test_a_folder_is_not_replaced_by_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "o.parquet").mkdir()
    with pytest.raises(DestinationExists, match="folder"):
        lading.convert(source, tmp_path / "o.parquet", overwrite=True)
    lading.convert(source, f"{tmp_path}/folder.parquet/", num_shards=2)
    assert len([*(tmp_path / "folder.parquet").glob("*.parquet")]) == 2


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("o.mds", {}, "several files"),
        ("o.parquet", {"format": "jsonl"}, "another format"),
        ("o.parquet", {"num_shards": 2}, "one file holds all rows"),
        ("o.jsonl", {"options": {"compression": "gzip"}}, "compress"),
        ("o.jsonl.gz", {"options": {"compression": "zstd"}}, "another value"),
    ],
)
def test_what_no_file_can_be_is_refused(
    name: str, options: dict[str, Any], message: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        lading.convert(source, tmp_path / name, **options)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_a_writer_of_a_file(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "o.parquet", format="parquet") as writer:
        writer.write({"n": 1})
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == [{"n": 1}]
    with lading.writer(tmp_path / "o.jsonl") as writer:
        writer.write({"n": 1})
    assert (tmp_path / "o.jsonl").read_text() == '{"n":1}\n'
    (tmp_path / "o.jsonl").unlink()
    writer = lading.writer(tmp_path / "p.tar")
    writer.write({"__key__": "a", "txt": "x"})
    writer.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["o.parquet"]
