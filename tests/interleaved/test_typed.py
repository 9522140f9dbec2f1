"""Types that the caller gives to some columns: the other columns stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.errors import SchemaMismatch, UsageError
from tars import tar_of

ROWS = pa.table({"__key__": ["a", "b"], "n_words": [1, 2], "text": ["x", "y"], "score": [0.5, 1.5]})
FORMATS = ["parquet", "arrow", "jsonl", "csv", "mds", "webdataset"]


def _source(folder: Path, fmt: str) -> Path:
    pq.write_table(ROWS, folder / "rows.parquet")
    lading.convert(folder / "rows.parquet", folder / "source", format=fmt)
    return folder / "source"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fmt", FORMATS)
def test_only_the_named_column_changes(tmp_path: Path, fmt: str, workers: int) -> None:
    done = lading.convert(
        _source(tmp_path, fmt), tmp_path / "out", format="parquet", schema_overrides={"n_words": pa.float64()},
        verify=True, workers=workers,
    )  # fmt: skip
    assert done.verified
    expected = ROWS.set_column(1, "n_words", ROWS["n_words"].cast(pa.float64()))
    assert pq.read_table(tmp_path / "out" / "shard-000000.parquet").replace_schema_metadata().equals(expected)


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_have_the_type_however_they_are_taken(tmp_path: Path, fmt: str) -> None:
    dataset = lading.open(_source(tmp_path, fmt), schema_overrides={"n_words": pa.string()})
    assert dataset.schema.field("n_words").type == pa.string()
    assert dataset.schema.names == ROWS.column_names
    assert dataset[1] == {"__key__": "b", "n_words": "2", "text": "y", "score": 1.5}
    assert dataset.take([1, 0], ["n_words"]).column("n_words").to_pylist() == ["2", "1"]
    assert [sample["n_words"] for sample in dataset] == ["1", "2"]
    assert dataset.where("n_words == '2'").rename({"n_words": "n"})[0]["n"] == "2"
    assert lading.digest(dataset).ordered == lading.digest(lading.open(dataset.query.source.names, schema_overrides={
        "n_words": pa.large_string()})).ordered  # fmt: skip


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_value_that_does_not_fit_names_file_column_and_row(tmp_path: Path, fmt: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        list(lading.open(_source(tmp_path, fmt), schema_overrides={"text": pa.float64()}).batches())
    assert (caught.value.column, caught.value.row) == ("text", 0)
    assert str(caught.value.file).startswith(str(tmp_path / "source"))


def test_a_column_of_samples_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such column"):
        lading.open(_source(tmp_path, "parquet"), schema_overrides={"n_word": pa.float64()})


def test_members_of_other_programs_become_numbers_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("0.cls", b"7"), ("0.txt", b"t"), ("1.cls", b"8"), ("1.txt", b"\xc3\xa9")))
    types = {"cls": pa.int16(), "txt": pa.string()}
    done = lading.convert(tmp_path / "a.tar", tmp_path / "out", format="parquet", schema_overrides=types, verify=True)
    assert done.verified
    found = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    assert found.select(["cls", "txt"]).to_pydict() == {"cls": [7, 8], "txt": ["t", "é"]}
    assert found.schema.field("cls").type == pa.int16()


def _documents(folder: Path) -> Path:
    documents: list[list[dict[str, Any]]] = [
        [{"id": "a", "zip": 1, "n_words": 3}, {"id": "b", "zip": "00710", "n_words": 4}],
        [{"id": "c", "zip": "x", "n_words": 5.5}],
    ]
    for number, some in enumerate(documents):
        whole = [{"sample_id": d["id"], "texts": ["t"], "images": [None], "lang": "en", **d} for d in some]
        members = [(f"{d['id']}.json", json.dumps(d).encode()) for d in whole]
        (folder / f"{number}.tar").write_bytes(tar_of(*members))
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("target", ["parquet", "webdataset"])
@pytest.mark.parametrize("fmt", ["parquet", "arrow", "mds", "webdataset", "media_archive"])
def test_all_passthrough_columns_of_documents_stay(tmp_path: Path, fmt: str, target: str) -> None:
    (tmp_path / "in").mkdir()
    lading.convert(_documents(tmp_path / "in"), tmp_path / "source", format=fmt)
    types = {"n_words": pa.float64(), "zip": pa.string()}
    done = lading.convert(
        tmp_path / "source", tmp_path / "out", format=target, schema_overrides=types, verify=True, workers=2
    )
    assert done.verified
    with lading.open(tmp_path / "out") as dataset:
        found = pa.Table.from_batches(dataset.batches(shards_per_batch=None))
    assert {*found.column_names} == {*INTERLEAVED_SCHEMA.names, "id", "zip", "n_words", "lang"}
    kept = [row for row in found.to_pylist() if row["modality"] == "metadata"]
    assert [(row["zip"], row["n_words"], row["lang"]) for row in kept] == [
        ("1", 3.0, "en"), ("00710", 4.0, "en"), ("x", 5.5, "en"),
    ]  # fmt: skip
    assert found.schema.field("n_words").type == pa.float64()


def test_files_are_verified_with_their_own_types(tmp_path: Path) -> None:
    source = _source(tmp_path, "parquet")
    with pytest.raises(UsageError, match="types that they have"):
        lading.verify(source, schema_overrides={"n_words": pa.float64()})
    assert lading.verify(lading.open(source, schema_overrides={"n_words": pa.float64()}), deep=True).ok
