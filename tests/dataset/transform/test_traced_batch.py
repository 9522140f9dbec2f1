"""Errors of steps name the file, the row in it and the key of the sample, in every format and behind every step."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, MutableMapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import LadingError
from lading.features import Json
from tars import tar_of

SHARDS = {"a": 300, "b": 17_500, "c": 40}
BROKEN = ("b", 17_000)
"""A shard of several batches, and a row behind the first of them."""
TEXT = '{"lang": '


def _texts(shard: str) -> list[str]:
    texts = [f'{{"lang": "l{(row * 7919) % 100}"}}' for row in range(SHARDS[shard])]
    if shard == BROKEN[0]:
        texts[BROKEN[1]] = TEXT
    return texts


def _columns(shard: str, *, keyed: bool) -> dict[str, Sequence[Any]]:
    keys = {"__key__": [f"{shard}{row:05d}" for row in range(SHARDS[shard])]} if keyed else {}
    return {**keys, "txt": [f"{row * 31 % 1009:04d}" for row in range(SHARDS[shard])], "json": _texts(shard)}


def _tar(path: Path, *, keyed: bool) -> None:
    rows = zip(*_columns(path.stem, keyed=True).values(), strict=True)
    members = (
        (f"{key}.{name}", text.encode()) for key, *row in rows for name, text in zip(("txt", "json"), row, strict=True)
    )
    path.write_bytes(tar_of(*members))


def _table(path: Path, *, keyed: bool, kind: pa.DataType) -> pa.Table:
    columns = _columns(path.stem, keyed=keyed)
    texts = pa.array(columns["json"], pa.string())
    if isinstance(kind, pa.JsonType):
        texts = pa.ExtensionArray.from_storage(kind, texts)
    return pa.table({**columns, "json": texts})


def _parquet(path: Path, *, keyed: bool) -> None:
    pq.write_table(_table(path, keyed=keyed, kind=pa.json_()), path, row_group_size=6000)


def _parquet_of_texts(path: Path, *, keyed: bool) -> None:
    pq.write_table(_table(path, keyed=keyed, kind=pa.string()), path, row_group_size=6000)


def _arrow(path: Path, *, keyed: bool) -> None:
    table = _table(path, keyed=keyed, kind=pa.json_())
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=5000)


def _jsonl(path: Path, *, keyed: bool) -> None:
    columns = _columns(path.stem, keyed=keyed)
    rows = zip(*columns.values(), strict=True)
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))


def _csv(path: Path, *, keyed: bool) -> None:
    columns = _columns(path.stem, keyed=keyed)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])


FORMATS: dict[str, tuple[str, Callable[..., None]]] = {
    "webdataset": ("tar", _tar), "parquet": ("parquet", _parquet), "texts": ("parquet", _parquet_of_texts),
    "arrow": ("arrow", _arrow), "jsonl": ("jsonl", _jsonl), "csv": ("csv", _csv),
}  # fmt: skip
_KEYED = [("parquet", True), *((name, name == "webdataset") for name in FORMATS)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    made: dict[tuple[str, bool], Path] = {}

    def source(name: str, keyed: bool) -> Path:
        if (name, keyed) not in made:
            made[name, keyed] = folder = tmp_path_factory.mktemp(name)
            for shard in SHARDS:
                suffix, write = FORMATS[name]
                write(folder / f"{shard}.{suffix}", keyed=keyed)
        return made[name, keyed]

    return source


def _parsed(sample: MutableMapping[str, Any]) -> dict[str, Any]:
    value = sample["json"]
    return {"lang": (json.loads(value) if isinstance(value, str) else value)["lang"]}


STEPS: dict[str, Callable[[lading.Dataset], Any]] = {
    "where": lambda ds: list(ds.where("json.lang == 'l3'").batches()),
    "where, few rows": lambda ds: list(ds.where("json.lang == 'l3'").batches(max_rows=1000)),
    "where, twice": lambda ds: list(ds.where("txt >= '0003'").where("json.lang == 'l3'")),
    "where, counted": lambda ds: len(ds.where("json.lang == 'l3'")),
    "select": lambda ds: list(ds.select("txt", "json.lang").batches()),
    "map": lambda ds: list(ds.map(_parsed).batches()),
    "filter": lambda ds: list(ds.filter(lambda sample: _parsed(sample)["lang"] == "l3").batches()),
    "sort": lambda ds: list(ds.sort("json.lang").batches()),
    "sort behind where": lambda ds: list(ds.where("txt >= '0003'").sort("json.lang").batches()),
    "dedup": lambda ds: list(ds.dedup("json.lang").batches()),
    "join": lambda ds: list(ds.join(pa.table({"json.lang": ["l3"], "x": [1]}), on="json.lang").batches()),
    "shuffle, where": lambda ds: list(ds.shuffle(1).where("json.lang == 'l3'").batches()),
    "sort, map": lambda ds: list(ds.sort("txt").map(_parsed).batches()),
    "map, sort": lambda ds: list(ds.map(_parsed).sort("txt").batches()),
    "where, shuffle, select": lambda ds: list(ds.where("txt >= '0003'").shuffle(2).select("json.lang").batches()),
    "by number": lambda ds: ds.map(_parsed)[SHARDS["a"] + BROKEN[1]],
}  # fmt: skip


def _raised(act: Callable[[], Any]) -> LadingError:
    with pytest.raises(LadingError) as caught:
        act()
    return caught.value


def _check(error: LadingError, source: Path, *, keyed: bool = False) -> None:
    """The error names the one place of the broken text; the key may be missing where the step does not read it."""
    [path] = source.glob(f"{BROKEN[0]}.*")
    assert (error.file, error.row) == (str(path), BROKEN[1])
    assert error.sample in ({None, f"b{BROKEN[1]:05d}"} if keyed else {None})


@pytest.mark.parametrize("step, case", [*product(STEPS, _KEYED)])
def test_an_error_of_a_step_names_file_and_row(
    step: str, case: tuple[str, bool], sources: Callable[[str, bool], Path]
) -> None:
    name, keyed = case
    source = sources(name, keyed)
    error = _raised(lambda: STEPS[step](lading.open(source)))
    _check(error, source, keyed=keyed)
    if keyed and step in ("where", "map", "filter", "sort, map", "shuffle, where"):  # all columns are read
        assert error.sample == f"b{BROKEN[1]:05d}"


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["webdataset", "parquet", "arrow"])
def test_flatten_and_cast_name_file_and_row(name: str, sources: Callable[[str, bool], Path]) -> None:
    keyed = name == "webdataset"
    source = sources(name, keyed)
    for made in (
        lambda: lading.open(source).flatten("json"),
        lambda: lading.open(source).sort("txt").flatten("json"),
        lambda: list(lading.open(source).cast({"json": "string"}).cast({"json": Json()}).batches()),
        lambda: list(lading.open(source).sort("txt").cast({"json": "string"}).cast({"json": Json()}).batches()),
    ):
        _check(_raised(made), source, keyed=keyed)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["webdataset", "parquet"])
def test_conversions_name_file_and_row(
    name: str, workers: int, sources: Callable[[str, bool], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading._core.jobs.convert.schedule._QUICK_BYTES", 0)
    source = sources(name, True)
    for i, made in enumerate((
        lading.open(source).where("json.lang == 'l3'"),
        lading.open(source).shuffle(3).where("json.lang == 'l3'"),
        lading.open(source).where("txt >= '0003'").sort("txt").map(_parsed),
    )):  # fmt: skip
        error = _raised(
            lambda made=made, i=i: made.write(  # type: ignore[misc]
                tmp_path / str(i), format="parquet", workers=workers, shard_size="100kb", max_batch_bytes="1mb"
            )
        )
        _check(error, source, keyed=True)


def test_documents_name_their_file_and_their_id(tmp_path: Path) -> None:
    for shard in ("a", "b"):
        ids = [f"{shard}{i}" for i in range(400)]
        texts = ['{"lang": "en"}'] * 400
        if shard == "b":
            texts[333] = TEXT
        rows = {
            "sample_id": [name for name in ids for _ in range(2)], "position": pa.array([-1, 0] * 400, pa.int32()),
            "modality": ["metadata", "text"] * 400, "content_type": ["application/json", "text/plain"] * 400,
            "text_content": [None, "x"] * 400, "meta": [t for text in texts for t in (text, None)],
        }  # fmt: skip
        pq.write_table(pa.table(rows), tmp_path / f"{shard}.parquet")
    for steps, row in (
        (lambda ds: ds.where("meta.lang == 'en'"), 666),
        (lambda ds: ds.sort("meta.lang"), 666),
        (lambda ds: ds.shuffle(1).where("meta.lang == 'en'"), None),
    ):
        error = _raised(lambda steps=steps: list(steps(lading.open(tmp_path)).batches()))  # type: ignore[misc]
        assert (error.file, error.sample) == (str(tmp_path / "b.parquet"), "b333")
        assert error.row == row


def test_rows_of_a_function_over_batches_have_no_number(tmp_path: Path) -> None:
    pq.write_table(pa.table({"json": ['{"lang": 1}', TEXT, '{"lang": 2}']}), tmp_path / "a.parquet")
    turned = lading.open(tmp_path / "a.parquet").map_batches(lambda batch: batch.take([2, 1, 0]))
    error = _raised(lambda: list(turned.where("json.lang == 1")))
    assert (error.file, error.row) == (str(tmp_path / "a.parquet"), None)


def test_a_value_that_a_function_makes_names_the_row(tmp_path: Path) -> None:
    for shard in ("a", "b"):
        pq.write_table(pa.table({"txt": [f"{i:04d}" for i in range(3000)]}), tmp_path / f"{shard}.parquet")
    for made in (lading.open(tmp_path), lading.open(tmp_path).sort("txt")):
        error = _raised(
            lambda made=made: list(
                made.map(  # type: ignore[misc]
                    lambda sample: {"x": "no" if sample["txt"] == "2999" else 1}
                ).batches(max_rows=500)
            )
        )
        assert (error.file, error.row, error.column) == (str(tmp_path / "a.parquet"), 2999, "x")
