"""Joins: the columns of a table come to the samples with the same key, as pandas merges them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, documents
from lading.errors import SourceNotFound, UsageError

FORMATS = {"webdataset": "20kb", "parquet": "1400b", "mds": "500b", "jsonl": "300b", "arrow": "200b", "csv": "200b"}
"""Formats, and the size that gives several shards."""

COUNT = 40


@pytest.fixture(params=FORMATS)
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lading.Dataset]:
    """Samples of several shards: a key, a number, a text."""
    with lading.writer(tmp_path / "plain", format=request.param, shard_size=FORMATS[request.param]) as writer:
        for at in range(0, COUNT, 5):
            rows = range(at, at + 5)
            writer.write_batch(
                pa.table({"__key__": [f"{i:05}" for i in rows], "n": list(rows), "txt": [f"text {i}" for i in rows]})
            )
    with lading.open(tmp_path / "plain") as dataset:
        yield dataset


@pytest.fixture
def scores() -> pd.DataFrame:
    """Scores of some samples, in another order, and of two that are not there."""
    numbers = np.random.default_rng(3).permutation([*range(0, COUNT, 3), 97, 98])
    return pd.DataFrame({"key": [f"{n:05}" for n in numbers], "score": numbers / 8, "note": [f"w{n}" for n in numbers]})


def _frame(dataset: lading.Dataset | Path) -> pd.DataFrame:
    opened = dataset if isinstance(dataset, lading.Dataset) else lading.open(dataset)
    tables = [pa.Table.from_batches([batch]) for batch in opened.batches()]
    return pa.concat_tables(tables, promote_options="permissive").to_pandas()


def _merged(dataset: lading.Dataset, scores: pd.DataFrame, how: Any) -> pd.DataFrame:
    merged = _frame(dataset).merge(scores, left_on="__key__", right_on="key", how=how, sort=False)
    return merged.drop(columns="key")


def _same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
        return frame.astype(object).where(frame.notna(), None).to_dict("records")

    assert plain(one) == plain(other)


def _written(scores: pd.DataFrame, folder: Path, kind: str) -> Any:
    path = folder / f"scores.{kind}"
    if kind == "parquet":
        scores.to_parquet(path)
    elif kind == "csv":
        scores.to_csv(path, index=False)
    elif kind == "jsonl":
        scores.to_json(path, orient="records", lines=True)
    elif kind == "arrow":
        with pa.ipc.new_file(path, (table := pa.table(scores)).schema) as writer:
            writer.write_table(table)
    return {"pyarrow": pa.table(scores), "pandas": scores, "stream": pa.table(scores).to_reader()}.get(kind, path)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_join_is_a_merge(plain: lading.Dataset, scores: pd.DataFrame, tmp_path: Path, how: Any) -> None:
    joined = plain.join(scores, how=how)
    expected = _merged(plain, scores, how)
    _same(_frame(joined), expected)
    assert joined.columns == [*plain.columns, "score", "note"]
    assert len(joined) == len(expected)
    assert [sample["__key__"] for sample in joined] == list(expected["__key__"])
    last = joined[len(expected) - 1]
    assert {name: last.get(name) for name in joined.columns} == {**last, **_row(expected, -1, last)}
    _same(joined.take([4, 1, 4]).to_pandas(), expected.iloc[[4, 1, 4]])
    assert len(pickle.loads(pickle.dumps(joined))) == len(expected)


def _row(frame: pd.DataFrame, at: int, like: dict[str, Any]) -> dict[str, Any]:
    row = frame.iloc[at].to_dict()
    return {name: None if pd.isna(row[name]) else type(like.get(name, row[name]))(row[name]) for name in row}


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "pyarrow", "pandas", "stream"])
def test_every_kind_of_table_joins(scores: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    pq.write_table(pa.table({"__key__": [f"{i:05}" for i in range(COUNT)]}), tmp_path / "plain.parquet")
    plain = lading.open(tmp_path / "plain.parquet")
    joined = plain.join(_written(scores, tmp_path, kind))
    _same(_frame(joined), _merged(plain, scores, "left"))
    assert pa.types.is_floating(joined.schema.field("score").type)


def test_a_dataset_joins_with_its_steps(plain: lading.Dataset, scores: pd.DataFrame, tmp_path: Path) -> None:
    scores.to_parquet(tmp_path / "scores.parquet")
    other = lading.open(tmp_path / "scores.parquet").where("score > 2").select("key", "score")
    _same(_frame(plain.join(other)), _merged(plain, scores[scores["score"] > 2][["key", "score"]], "left"))


@pytest.mark.soak
@pytest.mark.parametrize("plain, how, workers", [
    ("webdataset", "left", 3), ("parquet", "inner", 3), ("jsonl", "left", 2),
], indirect=["plain"])  # fmt: skip
def test_written_with_any_number_of_workers(
    plain: lading.Dataset, how: Any, workers: int, scores: pd.DataFrame, tmp_path: Path
) -> None:
    scores.to_csv(tmp_path / "scores.csv", index=False)
    joined = plain.join(tmp_path / "scores.csv", how=how)
    expected = _merged(plain, scores, how)
    shards = {}
    for number in (1, workers):
        done = joined.write(tmp_path / f"out{number}", format="parquet", workers=number, shard_size="500b", verify=True)
        files = sorted((tmp_path / f"out{number}").glob("*.parquet"))
        shards[number] = [file.read_bytes() for file in files]
        missing = "samples without a row in scores.csv"
        if how == "left":
            assert done.counts[missing] == COUNT - int(expected["score"].notna().sum())
        else:
            assert done.filtered_rows == COUNT - len(expected) == done.counts[f"{missing}, filtered"]
    assert shards[1] == shards[workers]
    _same(_frame(tmp_path / "out1"), expected)
    assert lading.diff(joined, tmp_path / "out1").equal


@pytest.mark.soak
def test_rows_of_the_table_without_a_sample_are_counted(
    plain: lading.Dataset, scores: pd.DataFrame, tmp_path: Path
) -> None:
    done = plain.join(scores).write(tmp_path / "out.parquet")
    assert done.counts["rows of the table without a sample"] == 2


@pytest.mark.soak
def test_steps_before_and_behind_a_join(plain: lading.Dataset, scores: pd.DataFrame) -> None:
    merged = _merged(plain, scores, "left")
    chosen = plain.join(scores).where("score > 1.5").select("score").rename({"score": "quality"})
    expected = merged[merged["score"] > 1.5][["__key__", "score"]].rename(columns={"score": "quality"})
    _same(_frame(chosen), expected)
    assert len(chosen) == len(expected)
    sliced = plain.join(scores, how="inner")[3:9]
    _same(_frame(sliced), _merged(plain, scores, "inner").iloc[3:9])
    shuffled = plain.shuffle(seed=5)
    _same(_frame(shuffled.join(scores)), _merged(shuffled, scores, "left"))


@pytest.mark.soak
def test_by_a_field_inside_json(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tars", format="webdataset", shard_size="5kb") as writer:
        for i in range(30):
            writer.write({"__key__": f"{i:03}", "json": {"id": i * 7, "lang": "en"}, "txt": f"text {i}"})
    table = pa.table({"id": [7 * i for i in range(0, 30, 4)], "score": [i / 2 for i in range(0, 30, 4)]})
    joined = lading.open(tmp_path / "tars").join(table, on={"json.id": "id"})
    assert [row.get("score") for row in joined] == [i / 2 if i % 4 == 0 else None for i in range(30)]
    pq.write_table(table, tmp_path / "scores.parquet")
    table.to_pandas().to_csv(tmp_path / "scores.csv", index=False)
    for name in ("scores.parquet", "scores.csv"):  # texts of CSV are compared as numbers with numbers
        again = lading.open(tmp_path / "tars").join(tmp_path / name, on={"json.id": "id"}, how="inner")
        assert [row["score"] for row in again] == [i / 2 for i in range(0, 30, 4)]


@pytest.mark.parametrize("target", ["webdataset", "parquet", "media_archive"])
def test_values_of_documents_stand_on_their_metadata_row(tmp_path: Path, target: str) -> None:
    samples = [(name, items, {"lang": "en"}) for name, items, _ in SAMPLES]
    (tmp_path / "docs.tar").write_bytes(documents(*samples))
    ids = [name for name, _, _ in SAMPLES]
    table = pa.table({"key": ids[::2], "score": [i / 4 for i in range(len(ids[::2]))]})
    expected = dict(zip(ids[::2], table["score"].to_pylist(), strict=True))
    joined = lading.open(tmp_path / "docs.tar").join(table)
    assert [(s["sample_id"], s.get("score")) for s in joined] == [(name, expected.get(name)) for name in ids]
    rows = [row for batch in joined.batches() for row in batch.to_pylist()]
    assert {row["position"] for row in rows if row["score"] is not None} == {-1}
    joined.write(tmp_path / "out", format=target, verify=True)
    back = lading.open(tmp_path / "out")
    assert [(s["sample_id"], s.get("score")) for s in back] == [(name, expected.get(name)) for name in ids]
    assert [s["sample_id"] for s in lading.open(tmp_path / "docs.tar").join(table, how="inner")] == ids[::2]


def test_a_large_table_travels_by_a_file(tmp_path: Path) -> None:
    table = pa.table({"key": [f"{i:09}" for i in range(200_000)], "score": np.arange(200_000) / 2})
    pq.write_table(pa.table({"__key__": ["000000007", "no", "000199999"]}), tmp_path / "plain.parquet")
    joined = lading.open(tmp_path / "plain.parquet").join(table)
    sent = pickle.dumps(joined)
    assert len(sent) < 100_000 < table.nbytes
    assert [row.get("score") for row in pickle.loads(sent)] == [3.5, None, 99_999.5]
    del joined
    with pytest.raises(UsageError, match="the table of a join in memory is gone"):
        pickle.loads(sent)


def _refused(plain: lading.Dataset, table: Any, **how: Any) -> str:
    with pytest.raises(UsageError) as caught:
        list(plain.join(table, **how))
    return str(caught.value)


def test_tables_that_do_not_fit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": ["a", "b"], "n": [1, 2], "txt": ["x", "y"]}), tmp_path / "plain.parquet")
    plain = lading.open(tmp_path / "plain.parquet")
    twice = pa.table({"key": ["b", "a", "b", "b", "c", "a"], "score": range(6)})
    found = _refused(plain, twice)
    assert "'b' in rows 0 and 2 and 3; 2 such keys" in found
    assert "no row" in _refused(plain, twice.slice(0, 0))
    (tmp_path / "empty.csv").write_text("key,score\n")
    assert "no row" in _refused(plain, tmp_path / "empty.csv")
    once = twice.slice(0, 2)
    assert "expected key, score, found 'nope'" in _refused(plain, once, on={"key": "nope"})
    assert "found 'wat'" in _refused(plain, once, columns=["wat"])
    assert "no such column" in _refused(plain, once, on={"nope": "key"})
    both = once.append_column("txt", pa.array(["p", "q"]))
    found = _refused(plain, both)
    assert "found txt" in found
    assert "columns=['score']" in found
    assert "different types" in _refused(plain, pa.table({"key": [1, 2], "score": [1, 2]}))
    assert "cannot be keys" in _refused(plain, pa.table({"key": [1.5, 2], "score": [1, 2]}))
    assert "no such join" in _refused(plain, once, how="outer")
    with pytest.raises(SourceNotFound):
        plain.join(tmp_path / "gone.parquet")
    assert "no column with the keys" in _refused(plain, pa.table({"score": [1]}))


def test_null_keys_match_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(r) for r in [{"id": 1}, {"id": None}, {"id": 3}]))
    table = pa.table({"id": pa.array([None, 3, None], pa.int64()), "score": [0, 1, 2]})
    joined = lading.open(tmp_path / "rows.jsonl").join(table, on="id")
    assert [row.get("score") for row in joined] == [None, None, 1]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_table_without_a_key_of_any_sample_is_refused(plain: lading.Dataset, how: Any) -> None:
    table = pa.table({"key": ["a/00000.jpg", "a/00001.jpg"], "score": [1, 2]})
    for dataset in (plain, plain.limit(2), plain.where("n < 0"), plain.rename({"n": "m"}).shuffle(1)):
        found = _refused(dataset, table, how=how)
        assert "'00000', '00001', '00002', found 'a/00000.jpg', 'a/00001.jpg'" in found
        assert "on={'FIELD': 'COLUMN'}" in found
    assert "'n': 0, 1, 2, found 70" in _refused(plain, pa.table({"id": [70], "score": [1]}), on={"n": "id"}, how=how)


@pytest.mark.soak
def test_a_table_with_a_key_of_the_last_sample_joins(plain: lading.Dataset) -> None:
    table = pa.table({"key": [f"{COUNT - 1:05}"], "score": [1]})
    joined = plain.join(pa.table({"key": [f"{COUNT - 2:05}"], "other": [2]})).join(table)
    assert [row.get("score") for row in joined] == [None] * (COUNT - 1) + [1]
    assert joined.counts == {"samples without a row in the table": 2 * (COUNT - 1)}


def test_keys_behind_a_function_are_only_counted(plain: lading.Dataset) -> None:
    joined = plain.map(_with_folder).join(pa.table({"key": ["00000"], "score": [1]}))
    assert [row["score"] for row in joined] == [None] * COUNT


def _with_folder(sample: Any) -> Any:
    return {"__key__": f"a/{sample['__key__']}"}


def test_concatenated_datasets_are_joined_with_a_file(plain: lading.Dataset, tmp_path: Path) -> None:
    pd.DataFrame({"n": range(COUNT), "score": np.arange(COUNT) / 4}).to_csv(tmp_path / "scores.csv", index=False)
    twice = lading.concat([lading.concat([plain]), plain.limit(3)])
    joined = twice.cast({"n": "int64"}).join(tmp_path / "scores.csv", on="n")
    assert [row["score"] for row in joined] == [n / 4 for n in [*range(COUNT), 0, 1, 2]]


def test_whole_floats_of_pandas_are_keys(tmp_path: Path) -> None:
    """A missing id makes floats of all."""
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for number in range(4):
            writer.write({"__key__": f"{number}", "json": {"id": number}})
    table = pd.DataFrame({"id": [1, 2, None], "score": [0.1, 0.2, 0.3]})
    joined = lading.open(tmp_path / "in").join(table, on={"json.id": "id"})
    assert [sample["score"] for sample in joined] == [None, 0.1, 0.2, None]
    for wrong in (0.5, float(2**60)):
        with pytest.raises(UsageError, match=r"column 'id': .* cannot be keys.*Cast them to texts"):
            lading.open(tmp_path / "in").join(pd.DataFrame({"id": [wrong]}), on={"json.id": "id"})
