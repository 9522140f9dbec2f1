"""The comparison of two datasets: the samples and fields that differ are those that were changed, by key."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from starlette.testclient import TestClient

import lading
from lading._core.dataset.opened import opened
from lading._core.dataset.query import Query
from lading._core.view.app import app_of
from lading._core.view.comparison import differences
from lading._core.view.naming import Naming
from lading._core.view.serve import Address, Server
from lading._core.view.view import View
from lading.errors import DataError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNT = 120


def _picture(i: int) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (64 + i, 48), (i, 0, 0)).save(made, "PNG")
    return made.getvalue()


def _sample(i: int) -> dict[str, Any]:
    text = f"The text of sample {i} is not long. " * 3
    return {"__key__": f"{i:03}", "png": _picture(i), "json": {"score": i / 2, "n": [1, 2, i]}, "txt": text}


def _write(path: Path, samples: list[dict[str, Any]], fmt: str = "webdataset") -> str:
    with lading.writer(path, format="webdataset", rows_per_shard=50) as writer:
        for sample in samples:
            writer.write(sample)
    if fmt == "webdataset":
        return str(path)
    lading.convert(path, f"{path}-{fmt}", fmt, progress=False)
    return f"{path}-{fmt}"


@contextmanager
def _compared(one: Any, other: Any) -> Iterator[TestClient]:
    view = View(opened(one), Naming("first", "", "a"), other=View(opened(other), Naming("second", "", "b")))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    try:
        yield client
    finally:
        view.close()


def _state(client: TestClient, query: str = "") -> dict[str, Any]:
    state: dict[str, Any] = client.get(f"/api/compare?wait=30&{query}").json()
    assert (state["running"], state["error"]) == (False, None)
    return state


def _differences(client: TestClient, kind: str, start: int = 0, stop: int = 50) -> list[dict[str, Any]]:
    found = client.get(f"/api/differences?kind={kind}&start={start}&stop={stop}").json()
    differences: list[dict[str, Any]] = found["differences"]
    return differences


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _write(tmp_path_factory.mktemp("compare") / "a", [_sample(i) for i in range(COUNT)])


def _changed() -> list[dict[str, Any]]:
    """The samples with injected changes: 3 and 4 are missing, three differ, one is new; the order is another one."""
    samples = [_sample(i) for i in range(COUNT) if i not in (3, 4)]
    by_key = {sample["__key__"]: sample for sample in samples}
    by_key["010"]["png"] = _picture(200)
    by_key["020"]["json"] = {"score": 10.0, "n": [1, 5, 20], "new": None}
    by_key["030"]["txt"] = by_key["030"]["txt"].replace("not", "rather", 1)
    return [*samples[60:], {**_sample(500), "__key__": "new"}, *samples[:60]]


@pytest.fixture(scope="module", params=["webdataset", "parquet", "mds"])
def changed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _write(tmp_path_factory.mktemp("compare") / "b", _changed(), request.param)


@pytest.mark.cases(3)
def test_the_differences_are_the_injected_ones(one: str, changed: str) -> None:
    with _compared(one, changed) as client:
        assert client.get("/api/dataset").json()["compare"] == "second"
        state = _state(client)
        assert state["counts"] == {
            "a": COUNT,
            "b": COUNT - 1,
            "changed": 3,
            "same": COUNT - 5,
            "only_a": 2,
            "only_b": 1,
        }
        assert (state["by"], state["in_order"]) == ("key", False)
        assert [(each["key"], each["a"]) for each in _differences(client, "only_a")] == [("003", 3), ("004", 4)]
        [new] = _differences(client, "only_b")
        assert (new["key"], new["a"], new["b"]) == ("new", None, 58)
        picture, fields, text = _differences(client, "changed")
        assert [each["key"] for each in (picture, fields, text)] == ["010", "020", "030"]
        assert [[field["name"] for field in each["fields"]] for each in (picture, fields, text)] == [
            ["png"], ["json"], ["txt"],
        ]  # fmt: skip
        values = picture["fields"][0]
        assert (values["a"]["facts"]["width"], values["b"]["facts"]["width"]) == (74, 264)
        assert fields["fields"][0]["changes"] == [
            {"path": "n[1]", "a": "2", "b": "5"}, {"path": "new", "a": None, "b": "null"},
        ]  # fmt: skip
        words = text["fields"][0]["words"]
        assert [part for part in words if part[0] != "same"] == [["a", "not"], ["b", "rather"]]
        assert [each["key"] for each in _differences(client, "changed", 1, 2)] == ["020"]


def test_values_of_both_datasets_are_served(one: str, tmp_path: Path) -> None:
    with _compared(one, _write(tmp_path / "b", _changed())) as client:
        _state(client)
        place = _differences(client, "changed")[0]
        assert client.get(f"/raw?number={place['a']}&column=png").content == _picture(10)
        assert client.get(f"/raw?number=b{place['b']}&column=png").content == _picture(200)
        assert client.get(f"/api/sample?number=b{place['b']}").json()["key"] == "010"


def test_equal_datasets_of_two_formats_are_equal(one: str, tmp_path: Path) -> None:
    lading.convert(one, tmp_path / "out", "parquet", progress=False)
    with _compared(one, str(tmp_path / "out")) as client:
        state = _state(client)
        assert state["counts"] == {"a": COUNT, "b": COUNT, "changed": 0, "same": COUNT, "only_a": 0, "only_b": 0}
        assert state["in_order"]
        assert _differences(client, "changed") == []


def test_a_condition_chooses_what_is_compared(one: str, tmp_path: Path) -> None:
    with _compared(one, _write(tmp_path / "b", _changed())) as client:
        query = "where=json.score+%3C+13"
        state = _state(client, query)
        assert state["counts"] == {"a": 26, "b": 24, "changed": 2, "same": 22, "only_a": 2, "only_b": 0}
        found = client.get(f"/api/differences?kind=changed&start=0&stop=9&{query}").json()["differences"]
        assert [each["key"] for each in found] == ["010", "020"]


def test_samples_without_keys_are_compared_by_number(tmp_path: Path) -> None:
    rows = [{"x": i, "t": f"text {i}"} for i in range(40)]
    lines = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    lines[0].write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows[7] = {"x": -1, "t": "text 7"}
    lines[1].write_text("".join(json.dumps(row) + "\n" for row in rows[:35]))
    with _compared(*map(str, lines)) as client:
        state = _state(client)
        assert (state["by"], state["in_order"]) == ("number", True)
        assert state["counts"] == {"a": 40, "b": 35, "changed": 1, "same": 34, "only_a": 5, "only_b": 0}
        [found] = _differences(client, "changed")
        assert (found["a"], found["b"]) == (7, 7)
        assert [(field["name"], field["a"]["text"], field["b"]["text"]) for field in found["fields"]] == [
            ("x", "7", "-1")
        ]


def _documents(change: bool) -> pa.Table:
    rows = []
    for i in range(30):
        texts = [f"first {i}", f"second words {i}", f"third {i}"]
        if change and i == 11:
            texts = ["first 11", "other words 11"]
        rows += [
            {"sample_id": f"d{i}", "position": p, "modality": "text", "text_content": text, "binary_content": None}
            for p, text in enumerate(texts)
        ]
        picture = _picture(90 if change and i == 20 else i)
        rows.append({"sample_id": f"d{i}", "position": 3, "modality": "image", "text_content": None,
                     "binary_content": picture})  # fmt: skip
    return pa.Table.from_pylist(rows)


def test_items_of_documents_that_differ_are_shown(tmp_path: Path) -> None:
    for name, change, fmt in (("a", False, "webdataset"), ("b", True, "parquet")):
        with lading.writer(tmp_path / name, format=fmt, view="interleaved") as writer:
            writer.write_batch(_documents(change))
    with _compared(str(tmp_path / "a"), str(tmp_path / "b")) as client:
        assert _state(client)["counts"]["changed"] == 2
        text, picture = _differences(client, "changed")
        assert (text["key"], picture["key"]) == ("d11", "d20")
        second, third = text["items"]
        assert second["words"] == [["a", "second"], ["b", "other"], ["same", " words 11"]]
        assert (third["position"], third["only_in"], third["b"]) == (2, "A", None)
        [item] = picture["items"]
        assert (item["a"]["facts"]["width"], item["b"]["facts"]["width"]) == (84, 154)
        for side, number in (("a", "20"), ("b", "b20")):
            query = f"/raw?number={number}&column=items&item={item['at'][side]}"
            assert client.get(query).content == _picture(20 if side == "a" else 90)


def test_keys_that_return_are_paired_by_content_then_in_order(tmp_path: Path) -> None:
    a = [("x", 1), ("x", 2), ("x", 3), ("y", 1)]
    b = [("x", 2), ("x", 9), ("y", 1), ("y", 2)]
    for name, rows in (("a", a), ("b", b)):
        with lading.writer(tmp_path / name, format="parquet") as writer:
            writer.write_batch(pa.table({"__key__": [key for key, _ in rows], "n": [n for _, n in rows]}))
    found = differences(Query.of(str(tmp_path / "a")), Query.of(str(tmp_path / "b")), lambda _: None)
    assert found.changed.tolist() == [[0, 1]]
    assert (found.only_a.tolist(), found.only_b.tolist(), found.same) == ([2], [3], 2)


def test_differences_are_those_of_diff(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in "ab":
        keys = random.permutation(200)[:150]
        with lading.writer(tmp_path / name, format="parquet") as writer:
            values = [int(key) * 10 + int(random.integers(0, 2)) for key in keys]
            writer.write_batch(pa.table({"__key__": [f"k{key}" for key in keys], "n": values}))
    found = differences(Query.of(str(tmp_path / "a")), Query.of(str(tmp_path / "b")), lambda _: None)
    told = lading.diff(tmp_path / "a", tmp_path / "b", any_order=True, max_differences=1000)
    pairs = [
        *found.changed.tolist(),
        *([a, None] for a in found.only_a.tolist()),
        *([None, b] for b in found.only_b.tolist()),
    ]
    assert sorted(map(str, pairs)) == sorted(str([*each["samples"]]) for each in told.differences)


def test_without_another_dataset_the_page_says_what_to_type(one: str) -> None:
    view = View(opened(one), Naming("a", "a", "a"))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    answer = client.get("/api/compare")
    assert answer.status_code == 400
    assert "compare='B'" in answer.json()["error"]
    view.close()


def test_fields_of_large_samples_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading._core.view.shown_differences._MOST_BYTES", 1000)
    paths = [_write(tmp_path / name, [{"__key__": "k", "bin": name.encode() * 1200}]) for name in "ab"]
    with _compared(*paths) as client:
        assert _state(client)["counts"]["changed"] == 1
        [found] = _differences(client, "changed")
        assert "too large to find the fields" in found["error"]


def test_a_dataset_that_cannot_be_opened_is_not_compared(one: str) -> None:
    broken = View(DataError("damaged", file="b.tar"), Naming("b", "", None), Query.of("b.tar"))
    view = View(opened(one), Naming("a", "a", "a"), other=broken)
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    assert client.get("/api/compare").json()["error"] == "b.tar: damaged"
    view.close()


@pytest.mark.soak
def test_datasets_of_python_are_compared(one: str) -> None:
    shown = lading.open(one).where("json.score < 50").show(compare=lading.open(one).select("txt"), browser=False)
    base = shown.url.partition("?")[0]
    with shown, httpx.Client(base_url=base, follow_redirects=True, timeout=60) as client:
        assert client.get(shown.url).status_code == 200
        counts = client.get("/api/compare?wait=30").json()["counts"]
        assert (counts["a"], counts["b"], counts["changed"], counts["only_b"]) == (100, COUNT, 100, 20)
        [found] = client.get("/api/differences?kind=changed&start=5&stop=6").json()["differences"]
        assert [(field["name"], field["b"]) for field in found["fields"]] == [("png", None), ("json", None)]


@pytest.mark.soak
def test_the_page_shows_differences_and_problems(chromium: Browser, one: str, tmp_path: Path) -> None:
    other = _write(tmp_path / "b", _changed())
    view = View(opened(one), Naming("first", "", "a"), other=View(opened(other), Naming("second", "", "b")))
    server = Server(view, Address(port=0))
    server.start()
    base = server.url.partition("?")[0]
    try:
        page = chromium.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.url)  # the first page is the comparison
        page.wait_for_selector(".difference .sidebyside img")
        assert page.locator(".difference").evaluate_all("all => all.map(e => e.dataset.key)") == ["010", "020", "030"]
        assert page.locator("del").all_text_contents() == ["not"]
        assert page.locator("ins").all_text_contents() == ["rather"]
        assert page.locator(".fields tbody th").all_text_contents() == ["n[1]", "new"]
        page.get_by_role("button", name="Only in B 1").click()
        page.wait_for_selector('.difference[data-key="new"]')
        page.goto(f"{base}?page=problems")
        page.wait_for_selector(".verdict.good >> text=No problems")
        page.get_by_role("button", name="Look at all pictures").click()
        page.wait_for_selector(f"text={COUNT} pictures decoded, 0 failed")
        assert problems == []
    finally:
        server.close()
