"""Shuffle, sample, sort and take, in every format: each equals the plain computation over a list of samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, documents, picture
from lading._core.jobs.convert import schedule
from lading.errors import SourceNotFound, UsageError
from tars import tar_of

COUNT = 300
FORMATS = {
    "webdataset": "60kb", "parquet": "9kb", "mds": "8kb", "jsonl": "9kb", "arrow": "9kb", "csv": "9kb",
    "interleaved": "90kb",
}  # fmt: skip
"""Formats, and the size that gives a few shards."""
SOURCES = (*FORMATS, "files")

_Rows = list[dict[str, Any]]


def _values(seed: int = 0) -> _Rows:
    rng = np.random.default_rng(seed)
    return [
        {
            "key": f"{i:04}", "n": int(rng.integers(0, 20)), "score": float(np.round(rng.random(), 2)),
            "lang": "ad éz😀"[int(rng.integers(0, 6))], "body": f"{i} " + "x" * int(rng.integers(0, 90)),
        }
        for i in range(COUNT)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def source_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`source_in("mds")`: the values as samples of several shards. Each is written once."""

    @cache
    def written(name: str) -> Path:
        folder, rows = tmp_path_factory.mktemp("order") / "source", _values()
        if name == "files":
            folder.mkdir()
            for row in rows:
                (folder / f"{row['key']}.png").write_bytes(picture(4, 4))
            lines = ({"file_name": f"{row['key']}.png", **row} for row in rows)
            (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return folder
        if name == "interleaved":
            folder.mkdir()
            fields = ("n", "score", "lang", "body")
            for start in range(0, COUNT, 90):
                made = [
                    (f"{row['key']}", SAMPLES[i % len(SAMPLES)][1], {field: row[field] for field in fields})
                    for i, row in enumerate(rows[start : start + 90])
                ]
                (folder / f"{start:03}.tar").write_bytes(documents(*made))
            return folder
        key = "__key__" if name != "csv" else "key"
        with lading.writer(folder, format=name, shard_size=FORMATS[name]) as writer:
            for at in range(0, COUNT, 17):
                table = pa.Table.from_pylist([{key: row["key"], **row} for row in rows[at : at + 17]])
                writer.write_batch(table if name == "csv" else table.drop_columns(["key"]))
        return folder

    return written


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, source_in: Callable[[str], Path]) -> Path:
    """The values in a format. The tests only read them."""
    return source_in(request.param)


def _keys(dataset: lading.Dataset) -> list[str]:
    name = "sample_id" if dataset.view == "interleaved" else "key" if "key" in dataset.columns else "__key__"
    found: list[str] = []
    for batch in dataset.batches(max_rows=64):
        for each in batch.column(name).to_pylist():
            if dataset.view != "interleaved" or not found or found[-1] != each:
                found.append(each)
    return found


def _order(count: int, seed: int) -> list[int]:
    """The order that the docstring of `shuffle` gives."""
    order: list[int] = np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").tolist()
    return order


def _shuffled(rows: _Rows, seed: int) -> _Rows:
    return [rows[i] for i in _order(len(rows), seed)]


def _sampled(rows: _Rows, count: int, seed: int) -> _Rows:
    return [rows[i] for i in sorted(_order(len(rows), seed)[:count])]


CASES: dict[str, tuple[Callable[[lading.Dataset], lading.Dataset], Callable[[_Rows], _Rows]]] = {
    "shuffle": (lambda ds: ds.shuffle(), lambda rows: _shuffled(rows, 0)),
    "shuffle with a seed": (lambda ds: ds.shuffle(seed=12), lambda rows: _shuffled(rows, 12)),
    "a fraction": (lambda ds: ds.sample(0.1), lambda rows: _sampled(rows, COUNT // 10, 0)),
    "a number": (lambda ds: ds.sample(7, seed=3), lambda rows: _sampled(rows, 7, 3)),
    "all": (lambda ds: ds.sample(1.0), lambda rows: rows),
    "sort": (lambda ds: ds.sort("n"), lambda rows: sorted(rows, key=lambda row: row["n"])),
    "sort down": (
        lambda ds: ds.sort("score", descending=True), lambda rows: sorted(rows, key=lambda row: -row["score"]),
    ),
    "sort by text and number": (
        lambda ds: ds.sort(["lang", "n"], descending=[False, True]),
        lambda rows: sorted(rows, key=lambda row: (row["lang"], -row["n"])),
    ),
    "between conditions": (
        lambda ds: ds.where("n > 3").shuffle(2).where("n < 15"),
        lambda rows: [row for row in _shuffled([r for r in rows if r["n"] > 3], 2) if row["n"] < 15],
    ),
    "sample of a shuffle, sorted": (
        lambda ds: ds.shuffle(1).sample(0.5, 4).sort("n"),
        lambda rows: sorted(_sampled(_shuffled(rows, 1), COUNT // 2, 4), key=lambda row: row["n"]),
    ),
    "first of a shuffle": (lambda ds: ds.shuffle(9).limit(20), lambda rows: _shuffled(rows, 9)[:20]),
    "slice of a sort": (
        lambda ds: ds.sort("n")[10:-10:7], lambda rows: sorted(rows, key=lambda row: row["n"])[10:-10:7],
    ),
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("chain, plain", CASES.values(), ids=CASES.keys())
def test_it_is_the_plain_computation(
    chain: Callable[[lading.Dataset], lading.Dataset], plain: Callable[[_Rows], _Rows], source: Path
) -> None:
    expected = [row["key"] for row in plain(_values())]
    with lading.open(source) as ds:
        chosen = chain(ds)
        assert _keys(chosen) == expected
        assert len(chosen) == len(expected)


@pytest.mark.soak
@pytest.mark.parametrize("source, name", [*product(SOURCES, CASES)], indirect=["source"])
def test_the_plain_computation_is_written(source: Path, name: str, tmp_path: Path) -> None:
    chain, plain = CASES[name]
    expected = [row["key"] for row in plain(_values())]
    with lading.open(source) as ds:
        chosen = chain(ds)
        chosen.write(tmp_path / "out", "parquet", shard_size="20kb")
        with lading.open(tmp_path / "out") as back:
            assert _keys(back) == expected
        assert lading.digest(tmp_path / "out").ordered == lading.digest(chosen).ordered


@pytest.mark.soak
@pytest.mark.parametrize("source, name, workers", [
    ("webdataset", "shuffle", 3), ("parquet", "between conditions", 3),
    ("jsonl", "between conditions", 2), ("interleaved", "shuffle", 2),
], indirect=["source"])  # fmt: skip
def test_any_number_of_workers_writes_the_same_bytes(
    source: Path, name: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "ALONE_BYTES", 0)

    def files(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}

    chain, _ = CASES[name]
    with lading.open(source) as ds:
        to = "webdataset" if ds.view == "interleaved" else ds.format
        size = "20kb" if to == "webdataset" else "3kb"
        for number in (1, workers):
            # Workers start at once where a conversion is verified.
            chain(ds).write(tmp_path / f"{number}", to, shard_size=size, workers=number, verify=True)
    one = files(tmp_path / "1")
    assert one == files(tmp_path / f"{workers}")
    assert len(one) > 1


def test_keys_come_in_the_order_of_the_list(source: Path, tmp_path: Path) -> None:
    wanted = ["0290", "0003", "0017", "0003"]
    with lading.open(source) as ds:
        by = "key" if ds.format == "csv" else None
        assert _keys(ds.take_keys(wanted[:3], by=by)) == wanted[:3]
        assert len(ds.take_keys(wanted, by=by)) == 4
        with pytest.raises(UsageError, match=r"2 of 3 keys are not in the dataset.*'none', 'x'"):
            len(ds.take_keys(["none", "0003", "x"], by=by))
        skipping = ds.take_keys(["none", "0003", "x"], by=by, missing="skip")
        assert _keys(skipping) == ["0003"]
        assert ds.take_keys([], by=by).head() == []


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Forty samples with keys in two tars; key 5 is there twice."""
    with lading.writer(tmp_path / "tars", format="webdataset", shard_size="20kb") as writer:
        writer.write_batch(pa.table({"__key__": [f"{i:02}" for i in range(20)], "txt": ["a"] * 20}))
    with lading.writer(tmp_path / "more", format="webdataset") as writer:
        writer.write_batch(pa.table({"__key__": [f"{i:02}" for i in (5, *range(20, 40))], "txt": ["b"] * 21}))
    (tmp_path / "tars" / "z.tar").write_bytes(next((tmp_path / "more").glob("*.tar")).read_bytes())
    (tmp_path / "both").mkdir()
    for i, path in enumerate([*(tmp_path / "tars").glob("*.tar")]):
        path.rename(tmp_path / "both" / f"{i}{path.name}")
    return tmp_path / "both"


def test_files_of_keys(tars: Path, tmp_path: Path) -> None:
    wanted = ["30", "05", "01"]
    (tmp_path / "keys.txt").write_text("30\n05\n\n01\n")
    (tmp_path / "named.txt").write_text("__key__\r\n30\r\n05\r\n01\r\n")
    pyarrow.csv.write_csv(pa.table({"why": [1, 2, 3], "key": wanted}), tmp_path / "keys.csv")
    pq.write_table(pa.table({"anything": wanted}), tmp_path / "keys.parquet")
    with lading.open(tars) as ds:
        for path in ("keys.txt", "named.txt", "keys.csv", "keys.parquet"):
            assert _keys(ds.take_keys(tmp_path / path)) == ["30", "05", "05", "01"]
        (tmp_path / "numbers.txt").write_text("number\n3\n0\n3\n")
        pq.write_table(pa.table({"rows": [3, 0, 3]}), tmp_path / "numbers.parquet")
        for path in ("numbers.txt", "numbers.parquet"):
            assert _keys(ds.take_keys(tmp_path / path)) == [_keys(ds)[i] for i in (3, 0, 3)]


def test_files_that_list_no_keys(tars: Path, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "odd.txt").write_text("number\n1\nx\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "plain.txt").write_text("3\n7\n")
    with lading.open(tars) as ds:
        for path, expected in (("two.csv", "a, b"), ("odd.txt", "'x'"), ("bytes", "one key a line")):
            with pytest.raises(UsageError, match=expected):
                ds.take_keys(tmp_path / path)
        with pytest.raises(SourceNotFound):
            ds.take_keys(tmp_path / "none")
        with pytest.raises(UsageError) as caught:
            len(ds.take_keys(tmp_path / "plain.txt"))
        assert "'number' as the first line" in str(caught.value.advice)


def test_numbers_of_samples_without_keys(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(9), "id": range(100, 109)}), tmp_path / "rows.parquet")
    (tmp_path / "plain.txt").write_text("3\n7\n")
    with lading.open(tmp_path / "rows.parquet") as ds:
        assert [row["n"] for row in ds.take_keys(tmp_path / "plain.txt")] == [3, 7]
        assert [row["n"] for row in ds.take_keys([107, 100], by="id")] == [7, 0]
        with pytest.raises(UsageError, match="have no keys"):
            len(ds.take_keys(["a"]))


@pytest.mark.parametrize("wrong, told", [
    (lambda ds: ds.sample(0.0), "above 0"), (lambda ds: ds.sample(1.5), "at most 1.0"),
    (lambda ds: ds.sample(2.0), "write 2"), (lambda ds: ds.sample(-1), "at least one"),
    (lambda ds: ds.sample(float("nan")), "above 0"), (lambda ds: ds.sample("1x"), "such as 10%, 0.01"),
    (lambda ds: ds.shuffle(-1), "seed"),
    (lambda ds: ds.shuffle("a"), "seed"), (lambda ds: ds.sort([]), "no column"),
    (lambda ds: ds.sort(["a", "b"], descending=[True]), "2 truth values"),
    (lambda ds: ds.take_keys([1.5]), "texts"), (lambda ds: ds.take_keys(["a"], missing="x"), "error or skip"),
    (lambda ds: len(ds.sample(41 + 1)), "at most 41"), (lambda ds: len(ds.sample(0.001)), "leaves no sample"),
    (lambda ds: len(ds.sort("zz")), "no such column"), (lambda ds: len(ds.take_keys(["a"], by="zz")), "no such column"),
])  # fmt: skip
def test_steps_that_cannot_be(wrong: Callable[[lading.Dataset], object], told: str, tars: Path) -> None:
    with lading.open(tars) as ds, pytest.raises(UsageError, match=told):
        wrong(ds)


@pytest.mark.soak
def test_another_seed_is_another_order_and_the_same_seed_the_same(source: Path) -> None:
    with lading.open(source) as ds:
        orders = [_keys(ds.shuffle(seed)) for seed in (0, 1)]
        assert orders[0] != orders[1]
        assert sorted(orders[0]) == sorted(orders[1]) == [row["key"] for row in _values()]
        assert orders[0] == _keys(ds.shuffle(0))
        assert _keys(ds.sample(30, 8)) == sorted(_keys(ds.shuffle(8)[:30]))


def test_behind_a_function_that_changes_the_number_of_samples(source: Path) -> None:
    with lading.open(source) as ds:
        if ds.view == "interleaved":
            return
        for chain in (lambda each: each.shuffle(), lambda each: each.sort("n"), lambda each: each.sample(3)):
            with pytest.raises(UsageError, match="number of samples"):
                next(chain(ds.map_batches(lambda batch: batch.slice(1))).batches())


def test_fields_inside_columns(tmp_path: Path) -> None:
    sizes, scores = [(40, 9), (10, 3), (20, 8), (30, 7)], [0.5, None, -1, 2]
    members = []
    for i, (size, score) in enumerate(zip(sizes, scores, strict=True)):
        members += [(f"{i}.png", picture(*size)), (f"{i}.json", json.dumps({"a": {"score": score}}).encode())]
        members += [(f"{i}.txt", "zyéa"[i].encode())]
    (tmp_path / "images.tar").write_bytes(tar_of(*members))
    with lading.open(tmp_path / "images.tar") as ds:
        for by, expected in (("png.width", "1230"), ("json.a.score", "2031"), ("txt", "3102")):
            assert "".join(_keys(ds.sort(by))) == expected
            ds.sort(by).write(tmp_path / by, "parquet")
            with lading.open(tmp_path / by) as back:
                assert "".join(_keys(back)) == expected
        with pytest.raises(UsageError, match="no order"):
            len(ds.sort("json.a"))
        with pytest.raises(UsageError, match="no order"):
            len(ds.sort("png"))


def test_nulls_and_lists(tmp_path: Path) -> None:
    lines = [{"a": 2}, {"a": None, "b": [1]}, {"a": 1.5}, {"b": [2]}, {"a": 0}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with lading.open(tmp_path / "rows.jsonl") as ds:
        assert [row.get("a") for row in ds.sort("a").select("a")] == [0, 1.5, 2, None, None]
        assert [row.get("a") for row in ds.sort("a", descending=True).select("a")] == [2, 1.5, 0, None, None]
        with pytest.raises(UsageError, match="no order"):
            len(ds.sort("b"))
