"""Python's csv, pyarrow and Hugging Face datasets read our CSV, and we read theirs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv as pa_csv

import lading

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS: list[dict[str, Any]] = [
    {"id": f"doc/{i}", "text": 'é,\n"q" ' * (i + 1), "code": f"{i:03}", "n": i} for i in range(50)
]
TEXTS = [{**row, "n": str(row["n"])} for row in ROWS]
TYPES = {"n": "int64"}


def _written(folder: Path, **options: Any) -> Path:
    with lading.writer(folder / "new", format="csv", options=options) as writer:
        for row in ROWS:
            writer.write(row)
    [path] = [path for path in (folder / "new").glob("shard*") if path.is_file()]
    return path


def _read(path: Path, **options: Any) -> list[dict[str, Any]]:
    with lading.open(path, options=options) as ds:
        assert ds.format == "csv"
        assert len(ds) == len(ROWS)
        assert ds[17] == list(ds)[17]
        return list(ds)


def test_python_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    with _written(tmp_path).open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file, strict=True)) == TEXTS
    with (tmp_path / "theirs.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(ROWS)
    assert _read(tmp_path / "theirs.tsv", types=TYPES) == ROWS


def test_pyarrow_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([*ROWS, {"id": "nulls", "text": "", "code": None, "n": None}])
    lading_file = tmp_path / "ours" / "shard-000000.csv"
    with lading.writer(tmp_path / "ours", format="csv") as writer:
        writer.write_batch(table)
    exact = pa_csv.ConvertOptions(
        column_types=table.schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    assert pa_csv.read_csv(lading_file, convert_options=exact, parse_options=parse) == table
    pa_csv.write_csv(table, tmp_path / "theirs.csv")
    with lading.open(tmp_path / "theirs.csv", options={"types": TYPES}) as ds:
        assert pa.Table.from_batches(ds.batches()).replace_schema_metadata(None) == table


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_datasets_reads_ours(datasets: object, tmp_path: Path, compression: str | None) -> None:
    path = str(_written(tmp_path, compression=compression))
    cache = str(tmp_path / "cache")
    texts = datasets.Features({name: datasets.Value("string") for name in ROWS[0]})
    found = datasets.load_dataset("csv", data_files=path, split="train", cache_dir=cache, features=texts)
    assert list(found) == TEXTS


def test_we_read_what_datasets_writes(datasets: object, tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).to_csv(tmp_path / "theirs.csv.gz")
    assert _read(tmp_path / "theirs.csv.gz", types=TYPES) == ROWS


def test_text_of_a_table_goes_to_csv_and_back_with_one_digest(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(TEXTS)
    with lading.writer(tmp_path / "parquet", format="parquet") as writer:
        writer.write_batch(table)
    lading.convert(tmp_path / "parquet", tmp_path / "csv", format="csv", verify=True)
    lading.convert(tmp_path / "csv", tmp_path / "jsonl", format="jsonl", verify=True)
    assert lading.diff(tmp_path / "parquet", tmp_path / "jsonl").equal
    assert lading.verify(tmp_path / "csv").ok
