"""Fields of structs and JSON objects that the first shard lacks, and other shards have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import UsageError

_ROWS: list[list[dict[str, Any]]] = [
    [{"id": 0}, {"id": 1}],
    [{"id": 2, "meta": {"a": 1}}, {"id": 3, "meta": None}],
    [{"id": 4, "meta": {"a": 2, "late": "x"}}],
]
"""By shard; the last one has more in its objects than the second."""
_FLAT = [
    {"id": row["id"], "meta.a": (row.get("meta") or {}).get("a"), "meta.late": (row.get("meta") or {}).get("late")}
    for rows in _ROWS
    for row in rows
]


@pytest.fixture(params=["parquet", "arrow", "jsonl", "null.jsonl"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, rows in enumerate(_ROWS):
        file = folder / f"{number}.{request.param}"
        if request.param == "parquet":
            pq.write_table(pa.Table.from_pylist(_same_keys(rows)), file)
        elif request.param == "arrow":
            table = pa.Table.from_pylist(_same_keys(rows))
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            shown = [row if request.param == "jsonl" else {"meta": None, **row} for row in rows]
            file.write_text("".join(json.dumps(row) + "\n" for row in shown))
    return folder


def _same_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row.get(name) for name in rows[0]} for row in rows]


def test_flatten_gives_the_fields_of_all_shards(source: Path, tmp_path: Path) -> None:
    with lading.open(source) as ds:
        flat = ds.flatten("meta")
        assert flat.columns == ["id", "meta.a", "meta.late"]
        assert list(flat) == _FLAT
        assert [flat[number] for number in range(5)] == _FLAT
        assert [row["id"] for row in flat.shuffle(1)] != [0, 1, 2, 3, 4]
        assert sorted(flat.shuffle(1), key=lambda row: row["id"]) == _FLAT
        flat.write(tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == _FLAT


def test_flatten_finds_structs_of_later_shards(source: Path) -> None:
    with lading.open(source) as ds:
        if ds.format == "jsonl":
            pytest.skip("objects of JSON Lines are no structs")
        assert list(ds.flatten()) == _FLAT


def test_select_takes_fields_of_later_shards(source: Path, tmp_path: Path) -> None:
    with lading.open(source) as ds:
        for name in ("meta.a", "meta.late"):
            chosen = ds.select("id", name)
            expected = [{"id": row["id"], name: row[name]} for row in _FLAT]
            assert list(chosen) == expected
            assert [chosen[number] for number in range(5)] == expected
        ds.select("id", "meta.a").write(tmp_path / "out.parquet")
        found = pd.read_parquet(tmp_path / "out.parquet")["meta.a"]
        assert found.dropna().tolist() == [row["meta.a"] for row in _FLAT if row["meta.a"] is not None]
        renamed = ds.rename({"meta": "m"}).select("m.late")
        assert [row["m.late"] for row in renamed] == [row["meta.late"] for row in _FLAT]


def test_a_column_of_later_shards_has_values(source: Path) -> None:
    with lading.open(source) as ds:
        assert ds["meta.a"].to_pylist() == [row["meta.a"] for row in _FLAT]
        assert ds["meta"][4] == {"a": 2, "late": "x"}
        assert "{'a': 1}" in repr(ds["meta"])


def test_samples_are_split_and_joined_by_fields_of_later_shards(source: Path) -> None:
    with lading.open(source) as ds:
        parts = ds.split({"a": 0.5, "b": 0.5}, by="meta.a")
        assert sorted(row["id"] for part in parts.values() for row in part) == [0, 1, 2, 3, 4]
        scores = pa.table({"a": [1, 2], "score": [0.5, 0.25]})
        assert [row["score"] for row in ds.join(scores, on={"meta.a": "a"})] == [None, None, 0.5, None, 0.25]
        assert [row["id"] for row in ds.where("meta.a >= 1")] == [2, 4]
        assert [row["id"] for row in ds.sort("meta.a", descending=True)][:2] == [4, 2]


@pytest.mark.parametrize("name", ["meta.nothing", "nothing.a", "mta"])
def test_a_name_that_no_shard_has(source: Path, name: str) -> None:
    with lading.open(source) as ds:
        with pytest.raises(UsageError, match=r"no such|no sample has"):
            list(ds.select(name))
        with pytest.raises(UsageError, match="no such column"):
            ds.flatten(name)
