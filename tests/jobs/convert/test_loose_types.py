"""Files that declare no types: shards that found different ones become one dataset, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading._core.dataset.values.python_values import samples_as_dicts
from lading._core.features.types import Json, feature_of

SHARDS: list[list[dict[str, Any]]] = [
    [{"__key__": "a", "x": 1, "same": "s"}, {"__key__": "b", "x": None}],
    [{"__key__": "c", "x": "1", "same": "t"}],
    [{"__key__": "d", "x": 1.0, "late": [1, {"k": None}]}, {"__key__": "e", "same": "null"}],
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, rows in enumerate(SHARDS):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_shards_of_different_types_become_one_table(source: Path, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "out"
    lading.convert(source, out, format="parquet", **by_tasks(workers), shard_size="30b", verify=True)
    assert lading.diff(source, out).equal
    schema = pq.read_schema(next(out.glob("*.parquet")))
    assert [isinstance(feature_of(schema.field(name)), Json) for name in ("x", "same", "late")] == [True, False, True]
    with lading.open(out) as ds:
        found = [json.dumps({k: v for k, v in row.items() if v is not None}) for row in ds]
    expected = [{k: v for k, v in row.items() if v is not None} for rows in SHARDS for row in rows]
    order = ("__key__", "x", "same", "late")
    assert found == [json.dumps({k: row[k] for k in order if k in row}) for row in expected]


def test_they_go_on_to_lines_and_to_tars_with_one_digest(source: Path, tmp_path: Path) -> None:
    for fmt, before in (("jsonl", source), ("parquet", tmp_path / "jsonl")):
        lading.convert(before, tmp_path / fmt, format=fmt, verify=True)
    assert lading.diff(source, tmp_path / "parquet").equal
    [lines] = (tmp_path / "jsonl").glob("*.jsonl")
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [
        {name: row.get(name) for name in ("__key__", "x", "same", "late")} for rows in SHARDS for row in rows
    ]


def test_opening_looks_at_the_first_rows_only(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n' * 20 + "{")
    with lading.open(tmp_path / "bad.jsonl", mmap=False) as ds:
        assert (ds.format, ds.view) == ("jsonl", "samples")
        with pytest.raises(lading.LadingError, match="line 21"):
            len(ds)


def test_samples_at_random(source: Path) -> None:
    with lading.open(source) as ds:
        assert len(ds) == 5
        assert [ds[i] for i in (4, 0, 2)] == [
            {"__key__": "e", "x": None, "late": None, "same": "null"},
            SHARDS[0][0],
            SHARDS[1][0],
        ]
        assert ds.by_key("d") == {"__key__": "d", "x": 1.0, "late": [1, {"k": None}], "same": None}


def test_rows_of_several_shards_at_once(source: Path) -> None:
    with lading.open(source) as ds:
        taken = ds.take([4, 2, 0, 1, 2])
        assert isinstance(feature_of(taken.schema.field("x")), Json)
        assert taken.column("x").to_pylist() == [None, '"1"', "1", None, '"1"']
        assert taken.column("same").to_pylist() == ["null", "t", "s", None, "t"]
    with lading.open(source) as ds:
        assert _rows(ds, ds.batches(shards_per_batch=None)) == list(ds)


def _rows(dataset: lading.Dataset, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in samples_as_dicts(dataset._rows.shards, pa.Table.from_batches([batch]))]


def test_text_and_json_of_two_shards_stay_apart(tmp_path: Path) -> None:
    values = [["null", "[1]"], [[1], "null"]]
    for number, shard in enumerate(values):
        lines = "".join(json.dumps({"x": value}) + "\n" for value in shard)
        (tmp_path / f"{number}.jsonl").write_text(lines)
    with lading.open(tmp_path) as ds:
        rows = _rows(ds, ds.batches(shards_per_batch=None))
        assert [row["x"] for row in rows] == ["null", "[1]", [1], "null"]
        assert [row["x"] for row in samples_as_dicts(ds._rows.shards, ds.take([3, 2, 1, 0]))] == [
            "null",
            [1],
            "[1]",
            "null",
        ]


def test_items_without_bytes_are_interleaved(tmp_path: Path) -> None:
    rows = [
        {"sample_id": "a", "position": i, "modality": "text", "content_type": "text/plain", "text_content": f"t{i}"}
        for i in range(2)
    ]
    (tmp_path / "i.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with lading.open(tmp_path / "i.jsonl") as ds:
        assert ds.view == "interleaved"
        assert [item["text_content"] for item in ds[0]["items"]] == ["t0", "t1"]
    lading.convert(tmp_path / "i.jsonl", tmp_path / "out", format="parquet", verify=True)


@pytest.mark.parametrize("target", ["parquet", "webdataset", "mds"])
@pytest.mark.parametrize("values", [[1, None], [None, 1], [1, 1.5, None], [1.5, "1", 1]], ids=repr)
def test_items_of_different_types_become_one_dataset_too(values: list[Any], target: str, tmp_path: Path) -> None:
    """A shard of nothing, which tells no columns, is one of them."""
    (tmp_path / "in").mkdir()
    for number, value in enumerate(values):
        common = {"sample_id": f"s{number}", "modality": "text"}
        rows = [
            {**common, "position": -1, "modality": "metadata", "x": value},
            {**common, "position": 0, "text_content": "t"},
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows if value is not None)
        (tmp_path / "in" / f"{number}.jsonl").write_text(lines)
    expected = [value for value in values if value is not None]
    done = lading.convert(tmp_path / "in", tmp_path / "out", format=target, verify=True)
    assert (done.view, done.samples) == ("interleaved", len(expected))
    assert lading.diff(tmp_path / "in", tmp_path / "out").equal
    for source in (tmp_path / "in", tmp_path / "out"):
        with lading.open(source) as dataset:
            found = [sample["x"] for sample in dataset]
            assert list(map(repr, found)) == list(map(repr, expected))
            assert [dataset[i]["x"] for i in range(len(dataset))] == found
            assert len(dataset.take([*range(len(dataset))])) == 2 * len(found)
