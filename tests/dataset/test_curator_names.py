"""The words of NeMo Curator's readers and writers on `open`, `batches` and `write`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA, RESERVED, lineage_of
from lading.errors import BadReference, UsageError


def _table(samples: int = 4, **changes: Any) -> pa.Table:
    """Documents of metadata, a text and an image of 1,000 bytes; with two passthrough columns."""
    rows = []
    for i in range(samples):
        common = {"sample_id": f"d{i}", "url": f"u{i}", "license": "cc"}
        rows += [
            {**common, "position": -1, "modality": "metadata"},
            {**common, "position": 0, "modality": "text", "text_content": "x"},
            {**common, "position": 1, "modality": "image", "binary_content": b"\x89PNG" + bytes(996)},
        ]
    for row, more in changes.items():
        rows[int(row.removeprefix("row_"))] |= more
    return pa.Table.from_pylist(rows, pa.schema([*INTERLEAVED_SCHEMA, ("url", pa.string()), ("license", pa.string())]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(_table(), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The image of d1 has the error of an upstream stage; the bytes of that of d2 lie nowhere."""
    table = _table(row_5={"binary_content": None, "materialize_error": "404"},
                   row_8={"binary_content": None, "source_ref": '{"path": "gone.jpg"}'})  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("where", ["open", "batches"])
def test_fields_keep_columns_alongside_the_reserved_ones(path: Path, where: str) -> None:
    how: dict[str, Any] = {"fields": ("url",)}
    with lading.open(path, **(how if where == "open" else {})) as dataset:
        [batch] = dataset.batches(**(how if where == "batches" else {}))
    assert batch.schema.names == [*RESERVED, "url"]
    assert batch["url"].to_pylist() == [f"u{i // 3}" for i in range(12)]


@pytest.mark.parametrize("where", ["open", "batches"])
@pytest.mark.filterwarnings("ignore")
def test_missing_columns_are_filled_with_nulls(path: Path, where: str) -> None:
    how: dict[str, Any] = {"fields": ["crawl_date"]}
    with lading.open(path, **(how if where == "open" else {})) as dataset:
        [batch] = dataset.batches(**(how if where == "batches" else {}))
    assert batch.schema.names == [*RESERVED, "crawl_date"]
    assert batch["crawl_date"].null_count == 12


def test_fields_survive_a_conversion_and_nothing_is_dropped_without_them(path: Path, tmp_path: Path) -> None:
    lading.convert(path, tmp_path / "some", format="parquet", fields=["url"])
    lading.open(path, fields=["url"]).write(tmp_path / "same", format="parquet")
    lading.convert(path, tmp_path / "all", format="mds")
    assert lading.open(tmp_path / "some").columns == lading.open(tmp_path / "same").columns == [*RESERVED, "url"]
    assert {"url", "license"} <= {*lading.open(tmp_path / "all").columns}


def test_fields_may_not_name_reserved_columns_or_be_one_text(path: Path) -> None:
    with pytest.raises(ValueError, match="reserved"):
        lading.open(path, fields=["sample_id"])
    with pytest.raises(ValueError, match="list of names"):
        lading.open(path, fields="url")
    pq.write_table(pa.table({"n": [1]}), path)
    with pytest.raises(UsageError, match="interleaved"):
        lading.open(path, fields=["n"])


@pytest.mark.parametrize("where", ["open", "batches"])
@pytest.mark.parametrize("size, batches", [(512 << 20, 1), ("2500b", 2), (1100, 4), (1, 4)])
def test_large_files_split_into_batches_by_accumulated_size(
    path: Path, where: str, size: int | str, batches: int
) -> None:
    how: dict[str, Any] = {"max_batch_bytes": size}
    with lading.open(path, **(how if where == "open" else {})) as dataset:
        found = list(dataset.batches(**(how if where == "batches" else {})))
    assert len(found) == batches
    assert pa.Table.from_batches(found).num_rows == 12
    for batch in found:  # a sample is never cut, and the lineage is kept
        assert batch.num_rows % 3 == 0
        assert lineage_of(batch.schema) == [str(path)]


@pytest.mark.parametrize("size", [-1, "much"])
def test_a_size_that_is_none(path: Path, size: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        list(lading.open(path).batches(max_batch_bytes=size))


_POLICIES = {"warn": 12, "drop_row": 10, "drop_sample": 6}


@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize("where", ["open", "batches", "write", "convert"])
def test_a_policy_covers_upstream_errors_and_those_of_the_fetch(
    broken: Path, tmp_path: Path, policy: str, where: str
) -> None:
    how: dict[str, Any] = {"on_materialize_error": policy}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if where == "convert":
            lading.convert(broken, tmp_path / "out", format="parquet", **how)
            table = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
        elif where == "write":
            lading.open(broken, **how).write(tmp_path / "out", format="parquet")
            table = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
        else:
            with lading.open(broken, **(how if where == "open" else {})) as dataset:
                table = pa.Table.from_batches(dataset.batches(**(how if where == "batches" else {})))
    assert table.num_rows == _POLICIES[policy]
    errors = [error for error in table["materialize_error"].to_pylist() if error]
    assert len(errors) == (2 if policy == "warn" else 0)
    ids = {*table["sample_id"].to_pylist()}
    assert ids == ({"d0", "d3"} if policy == "drop_sample" else {"d0", "d1", "d2", "d3"})


def test_the_default_raises_what_the_peer_raises(broken: Path, tmp_path: Path) -> None:
    for how in ({}, {"on_materialize_error": "error"}):
        with pytest.raises(RuntimeError, match="404") as caught:
            list(lading.open(broken, **how).batches())
        assert isinstance(caught.value, BadReference)
    with pytest.raises(RuntimeError, match="on_error='warn'"):
        lading.open(broken).write(tmp_path / "out", format="parquet")
    # What a call says goes before what the dataset was opened with.
    dataset = lading.open(broken, on_materialize_error="drop_row")
    assert sum(batch.num_rows for batch in dataset.batches()) == 10
    with pytest.raises(RuntimeError):
        list(dataset.batches(on_materialize_error="error"))
    with pytest.raises(RuntimeError):
        dataset.write(tmp_path / "out", format="parquet", on_materialize_error="error")
    with pytest.raises(ValueError, match="policy"):
        lading.open(broken, on_materialize_error="ignore")  # type: ignore[arg-type] # what is refused
