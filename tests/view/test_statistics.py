"""The page's statistics are those of `ds.stats()`; the condition of a bar or value gives as many samples as it says."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import os
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image
from starlette.testclient import TestClient

import lading
from counted_files import CountedFiles
from lading._core.dataset.opened import opened
from lading._core.view.app import app_of
from lading._core.view.bars import spelled
from lading._core.view.naming import Naming
from lading._core.view.statistics import FIRST_SAMPLES
from lading._core.view.view import View
from tars import tar_of

_COUNT = 1_000
_START = dt.datetime(2024, 1, 31, tzinfo=dt.UTC)


def _table() -> lading.Dataset:
    """Columns of many types, with names that conditions must quote, nulls, and numbers beyond what floats hold."""
    numbers = range(_COUNT)
    hours = [dt.timedelta(hours=i) for i in numbers]
    table = pa.table(
        {
            "when": pa.array([_START + by for by in hours], pa.timestamp("us", "UTC")),
            "local": pa.array([_START.replace(tzinfo=None) + by for by in hours], pa.timestamp("ns")),
            "day": pa.array([_START.date() + dt.timedelta(days=i) for i in numbers]),
            "took": pa.array(hours, pa.duration("s")),
            "price": pa.array([decimal.Decimal(i % 700) / 100 for i in numbers], pa.decimal128(10, 2)),
            "ratio": pa.array([i / 7 for i in numbers], pa.float32()),
            "signed": [i * i % 997 / 7 - 40 for i in numbers],
            "far": [1e12 if i == 7 else -1.5 if i == 9 else float(i) for i in numbers],
            "few": [i % 5 for i in numbers],
            "wide": [i * 37 for i in numbers],
            "big": [(1 << 60) + i for i in numbers],
            "exact": pa.array([decimal.Decimal(f"{i}.00000000000000000001") for i in numbers], pa.decimal128(38, 20)),
            "same": [3.25] * _COUNT,
            "flag": [i % 3 == 0 for i in numbers],
            "pairs": pa.array([[("k", i)] for i in numbers], pa.map_(pa.string(), pa.int64())),
            "tags": [["a", "b"][: i % 3] for i in numbers],
            "odd name": pa.array([None if i % 10 == 0 else "x'y\n" * (i % 3) for i in numbers]),
            "col": [f"{'long ' * 30}{i % 2}" for i in numbers],
            "class": pa.array([None if i % 4 == 0 else i % 4 for i in numbers]),
            "in": [{"x y": i, "class": f"c{i % 4}", "ok": i / 4} for i in numbers],
        }
    )
    return lading.open(table).cast({"few": lading.features.ClassLabel(["v", "w", "x", "y", "z"])})


def _pictures(folder: Path) -> lading.Dataset:
    with lading.writer(folder, format="webdataset") as writer:
        for i in range(40):
            name = {"fr": "dé"}.get("fr") if i % 5 else "en"
            writer.write(
                {
                    "__key__": f"{i:03}",
                    "jpg": Image.new("RGB", (16 + i, 20)),
                    "json": {"lang": name, "score": i / 3, "n": i % 4, "deep": {"a b": i % 2 == 0}, "mixed": i or 0.5},
                    "txt": "word " * i,
                }
            )
    return lading.open(folder)


def _client(ds: lading.Dataset) -> TestClient:
    view = View(opened(ds), Naming("some", "some", "ds"))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    return client


def _statistics(client: TestClient, **query: Any) -> dict[str, Any]:
    """The last answer, of all samples."""
    while True:
        answer = client.get("/api/statistics", params={**query, "wait": 30, "seen": 1}).json()
        if answer["stage"] == 2:
            assert answer["error"] is None
            found: dict[str, Any] = answer["statistics"]
            return found


def _counts(client: TestClient, where: str) -> int:
    told = client.get("/api/count", params={"where": where, "wait": 30}).json()
    assert told["error"] is None, where
    return int(told["count"])


@pytest.mark.parametrize("what", ["table", "pictures"])
def test_conditions_choose_as_many_samples_as_bars_and_values_say(what: str, tmp_path: Path) -> None:
    ds = _table() if what == "table" else _pictures(tmp_path)
    client, with_bars, with_values = _client(ds), set(), set()
    columns = _statistics(client)["columns"]
    assert [column["name"] for column in columns if "histogram" in column["approximate"]] == ["local", "big"][
        : len(ds) // 500
    ]
    for column in columns:
        name = column["name"]
        for bar in column["bars"]:
            if bar["where"] is not None:
                if "histogram" not in column["approximate"]:
                    assert len(ds.where(bar["where"])) == bar["count"], (name, bar)
                with_bars.add(name)
        for value in column["top"]:
            if value["where"] is not None and not value["where"].startswith("startswith"):
                assert len(ds.where(value["where"])) == value["count"], (name, value)
                with_values.add(name)
        if column["where_null"] is not None:
            assert _counts(client, column["where_null"]) == column["nulls"]
            with_values.add(f"{name} null")
    if what == "table":
        assert with_bars == {"when", "local", "day", "price", "ratio", "signed", "far", "wide", "big", "exact", "same",
                             "class", "len(tags)", "len(odd name)", "len(col)", "in.x y", "in.ok",
                             "len(in.class)"}  # fmt: skip
        assert with_values >= {"few", "flag", "tags[]", "odd name", "odd name null", "class null", "in.class", "big"}
    else:
        assert with_bars >= {"jpg.width", "json.score", "json.n", "len(txt)", "json.mixed"}
        assert with_values >= {"json.lang", "json.deep.a b", "jpg.format", "txt"}


def test_whole_numbers_that_a_browser_would_round_are_texts() -> None:
    least, most = (1 << 53) - 1, (1 << 64) - 1
    client = _client(lading.open(pa.table({"n": pa.array([least, most, most], pa.uint64())})))
    [column] = _statistics(client)["columns"]
    assert (column["min"], column["max"]) == (least, str(most))
    assert [(each["value"], each["where"]) for each in column["top"]] == [
        (str(most), f"n == {most}"), (least, f"n == {least}")]  # fmt: skip


@pytest.mark.parametrize("count", [100, 40_000])
def test_numbers_that_no_bar_has_are_counted(count: int) -> None:
    values = [float("nan") if i % 10 == 0 else i / 7 for i in range(count)]
    [column] = _statistics(_client(lading.open(pa.table({"n": values}))))["columns"]
    assert column["not_finite"] == count // 10
    assert column["values"] == column["not_finite"] + sum(bar["count"] for bar in column["bars"])


def test_headers_of_media_inside_structs_have_no_condition() -> None:
    """Conditions do not read them: a bar without a condition is no button."""
    file = io.BytesIO()
    Image.new("RGB", (20, 30)).save(file, "png")
    client = _client(lading.open(pa.table({"a": [{"raw": file.getvalue(), "n": 1}]})))
    columns = {column["name"]: column for column in _statistics(client)["columns"]}
    assert [bar["where"] for bar in columns["a.raw.width"]["bars"]] == [None]
    assert [bar["where"] for bar in columns["a.n"]["bars"]] == ["a.n == 1"]
    assert "a.raw.width" not in {each["name"] for each in client.get("/api/fields").json()}


def test_statistics_are_those_of_the_selection(tmp_path: Path) -> None:
    ds = _pictures(tmp_path)
    client = _client(ds)
    query = {"where": "json.lang == 'en'", "sort": "json.score:desc"}
    found, expected = _statistics(client, **query), ds.where("json.lang == 'en'").stats().to_dict()
    assert found["samples"] == expected["samples"] == 8
    for column in found["columns"]:
        same = expected["columns"][column["name"]]
        assert [bar["count"] for bar in column["bars"]] == (same["histogram"] or {"counts": []})["counts"]
        assert [(each["value"], each["count"]) for each in column["top"]] == [
            (each["value"], each["count"]) for each in same["top"]
        ]
        assert {name: column[name] for name in ("kind", "values", "nulls", "min", "max", "mean", "quantiles")} == {
            name: same[name] for name in ("kind", "values", "nulls", "min", "max", "mean", "quantiles")
        }


def test_statistics_of_documents() -> None:
    """A condition on items keeps the documents that have such items: at most so many."""
    client = _client(lading.open(str(files("lading._core.data") / "docs-*.tar")))
    found = _statistics(client)
    assert found["items"]["image"] > 0
    checked = 0
    for column in found["columns"]:
        of_items = column["name"].partition(".")[0] == "items"
        assert all((bar["where"] is None) == of_items for bar in column["bars"])
        bars = [] if of_items else [bar for bar in column["bars"] if bar["count"]]
        for bar in (*bars[:1], *bars[1:][-1:]):
            assert 0 < _counts(client, bar["where"]) <= bar["count"]
            checked += 1
    assert checked


def test_statistics_of_the_first_samples_come_before_those_of_all() -> None:
    ds = lading.open(pa.table({"n": range(FIRST_SAMPLES * 3)}))
    client = _client(ds)
    first = client.get("/api/statistics", params={"wait": 30, "seen": 0}).json()
    assert first["stage"] >= 1
    assert first["statistics"]["samples"] in (FIRST_SAMPLES, FIRST_SAMPLES * 3)
    assert _statistics(client)["samples"] == FIRST_SAMPLES * 3


def test_of_a_remote_dataset_the_first_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    payload = os.urandom(20_000)
    members = [member for i in range(2_500) for member in ((f"{i:04}.bin", payload), (f"{i:04}.txt", f"{i}".encode()))]
    (tmp_path / "in.tar").write_bytes(tar_of(*members))
    CountedFiles.begin()
    client = _client(lading.open(f"counted://{tmp_path}/in.tar"))
    size = (tmp_path / "in.tar").stat().st_size
    fields = client.get("/api/fields").json()
    assert [each["name"] for each in fields] == ["__key__", "bin", "len(bin)", "txt", "len(txt)"]
    assert CountedFiles.read_bytes < 0.4 * size
    CountedFiles.begin()
    told = client.get("/api/statistics", params={"wait": 30, "seen": 1}).json()
    assert (told["stage"], told["is_whole"], told["statistics"]["samples"]) == (2, False, 1_000)
    assert CountedFiles.read_bytes < 0.8 * size
    assert _statistics(client, whole="1")["samples"] == 2_500


def test_errors_are_told() -> None:
    client = _client(_table())
    answer = client.get("/api/statistics", params={"where": "nothing > 3", "wait": 30}).json()
    assert (answer["stage"], answer["statistics"]) == (2, None)
    assert "nothing" in answer["error"]


def test_a_job_ends_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import enumerate as running

    from lading._core.view import statistics

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.05)
        return batch

    monkeypatch.setattr(statistics, "_LEASE_S", 0.5)
    ds = lading.open([{"n": i} for i in range(100)]).map_batches(slow)
    view = View(opened(lading.concat([ds] * 40).map_batches(slow)), Naming("some", "some", "ds"))
    try:
        before = {*running()}
        client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
        client.get("/?token=secret")
        assert client.get("/api/statistics", params={"wait": 0}).json()["stage"] == 0
        [work] = [thread for thread in running() if thread.name == "lading-view-work" and thread not in before]
        work.join(20)
        assert not work.is_alive()
    finally:
        view.close()


def test_fields_name_what_conditions_may(tmp_path: Path) -> None:
    ds = _pictures(tmp_path)
    found = {each["name"]: each for each in _client(ds).get("/api/fields").json()}
    assert {"__key__", "txt", "len(txt)", "json.lang", "json.deep['a b']", "jpg.width", "json.n"} <= {*found}
    assert found["json.lang"]["values"] == ["'dé'", "'en'"]
    for name in found:
        assert ds.where(f"{name} is not null")[:1] is not None


@pytest.mark.parametrize("name, expected", [
    ("score", "score"), ("json.a b", "json['a b']"), ("json.class", "json['class']"), ("seg.png", "col['seg.png']"),
    ("len(txt)", "len(txt)"), ("tags[]", "tags[]"), ("true", "col['true']"), ("json.it's", 'json["it\'s"]'),
    ("len(odd.png.width)", "len(odd.png.width)"), ("json.a[b", None), ("json.ﬁ", "json['ﬁ']"),
])  # fmt: skip
def test_names_are_spelled_as_conditions_have_them(name: str, expected: str | None) -> None:
    assert spelled(name, ["score", "json", "seg.png", "txt", "tags", "true"]) == expected


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return _client(_pictures(tmp_path_factory.mktemp("keyed")))


@pytest.mark.parametrize("query, expected", [
    ({"key": "007"}, 7), ({"key": "007", "sort": "__key__:desc"}, 32),
    ({"key": "010", "where": "json.lang == 'en'"}, 2),
])  # fmt: skip
def test_a_key_is_found_in_the_order_that_is_shown(keyed: TestClient, query: dict[str, str], expected: int) -> None:
    assert keyed.get("/api/find", params=query).json() == {"number": expected}
    asked = {name: value for name, value in query.items() if name != "key"}
    rows = keyed.get("/api/rows", params={**asked, "start": expected, "stop": expected + 1}).json()["rows"]
    assert [row["key"] for row in rows] == [query["key"]]


def test_a_key_that_no_sample_has_is_told(keyed: TestClient) -> None:
    answer = keyed.get("/api/find", params={"key": "7"})
    assert answer.status_code == 400
    assert "no sample has this key" in answer.json()["error"]
    hidden = keyed.get("/api/find", params={"key": "007", "where": "json.lang == 'en'"})
    assert "Leave the condition out" in hidden.json()["error"]
