"""The page of problems: what is damaged is named, with the sample that is hit and the command that helps."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from starlette.testclient import TestClient

import lading
from golden_cases import Golden, case_names
from lading import features
from lading._core.dataset.opened import opened
from lading._core.dataset.query import Query
from lading._core.view.app import app_of
from lading._core.view.naming import Naming
from lading._core.view.serve import Address, Server
from lading._core.view.view import View
from lading.errors import DataError, StoreError, UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNT, DAMAGED = 150, 77


def _picture(i: int) -> bytes:
    made = io.BytesIO()
    pixels = np.random.default_rng(i).integers(0, 255, (48, 64 + i, 3), np.uint8)
    Image.fromarray(pixels).save(made, "JPEG")
    return made.getvalue()


def _write(path: Path, count: int = COUNT) -> Path:
    with lading.writer(path, format="webdataset", rows_per_shard=40) as writer:
        for i in range(count):
            writer.write({"__key__": f"{i:03}", "jpg": _picture(i), "json": {"score": i / 2}})
    return path


def _flip(path: Path, what: bytes) -> None:
    """Flip bits in the middle of bytes that a folder's tars have once."""
    [file] = [file for file in path.glob("*.tar") if what in file.read_bytes()]
    body = bytearray(file.read_bytes())
    body[body.index(what) + len(what) // 2] ^= 0xFF
    file.write_bytes(body)


@contextmanager
def _served(source: Any) -> Iterator[TestClient]:
    """Serve a dataset; of a path that cannot be opened, the page that says so."""
    try:
        view = View(opened(source), Naming("in", "in", "lading.open('in')"))
    except DataError as error:
        view = View(error, Naming("in", "in", "lading.open('in')"), Query.of(source))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    try:
        yield client
    finally:
        view.close()


def _checked(client: TestClient, depth: str) -> dict[str, Any]:
    client.get(f"/api/problems?start={depth}")
    state: dict[str, Any] = client.get("/api/problems?wait=30").json()
    assert not state["running"]
    return state


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("problems") / "sound")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = _write(tmp_path_factory.mktemp("problems") / "in")
    _flip(path, _picture(DAMAGED))
    return path


def test_a_sound_dataset_has_no_problems(sound: Path) -> None:
    with _served(str(sound)) as client:
        assert client.get("/api/problems").json() == {"depth": None, "running": False}
        for depth in ("quick", "files", "deep"):
            state = _checked(client, depth)
            assert (state["depth"], state["problems"], state["groups"], state["commands"]) == (depth, 0, [], [])
            assert (state["shards"], state["samples"], state["error"]) == (4, COUNT, None)


def test_a_finding_names_the_sample_that_is_hit(damaged: Path) -> None:
    with _served(str(damaged)) as client:
        assert _checked(client, "quick")["groups"] == []
        state = _checked(client, "files")
        [group] = state["groups"]
        [finding] = group["findings"]
        assert (group["error"], group["message"], group["count"]) == (
            "SidecarMismatch", "a row differs from the checksum", 1,
        )  # fmt: skip
        assert finding["sample"] == f"{DAMAGED:03}"
        place = {"file": str(finding["file"]), "row": str(finding["row"])}
        number = client.get("/api/row", params=place).json()["number"]
        assert client.get(f"/api/sample?number={number}").json()["key"] == f"{DAMAGED:03}"
        assert state["commands"] == [
            {"purpose": "to mend it in its place", "command": f"lading repair {damaged}"},
            {"purpose": "to save the intact samples", "command": f"lading salvage {damaged} DST"},
            {"purpose": "to see the sound shards alone", "command": f"lading view {damaged} --on-bad-shard skip"},
        ]


def test_a_row_is_found_behind_steps(damaged: Path) -> None:
    ds = lading.open(damaged).where("json.score >= 20").sort("json.score", descending=True)
    with _served(ds) as client:
        [group] = _checked(client, "files")["groups"]
        place = {"file": group["findings"][0]["file"], "row": group["findings"][0]["row"]}
        assert client.get("/api/row", params=place).json() == {"number": COUNT - 1 - DAMAGED}
        chosen = {**place, "where": "json.score < 39"}
        assert client.get("/api/row", params=chosen).json() == {"number": 0}
        assert client.get("/api/row", params={**place, "where": "json.score < 30"}).json() == {"number": None}
        assert client.get("/api/row", params={**place, "file": "other.tar"}).json() == {"number": None}
        first = {"file": str(damaged / "shard-000000.tar"), "row": "0"}
        assert client.get("/api/row", params=first).json() == {"number": None}


def test_a_row_of_an_item_is_found_in_its_document(tmp_path: Path) -> None:
    texts = [["a"], ["b", "c", "d"], ["e"], ["f", "g"]]
    with lading.writer(tmp_path / "in", format="parquet", view="interleaved") as writer:
        for i, each in enumerate(texts):
            rows = [
                {"sample_id": f"d{i}", "position": p, "modality": "text", "text_content": t} for p, t in enumerate(each)
            ]
            writer.write_batch(pa.Table.from_pylist(rows))
    with _served(str(tmp_path / "in")) as client:
        ends = np.cumsum([len(each) for each in texts[:3]])
        for document, end in enumerate(ends.tolist()):
            place = {"file": str(tmp_path / "in" / "shard-000000.parquet"), "row": str(end - 1)}
            assert client.get("/api/row", params=place).json() == {"number": document}


def test_datasets_one_after_another_are_checked_each(damaged: Path, sound: Path, tmp_path: Path) -> None:
    lading.convert(sound, tmp_path / "out", "parquet", progress=False)
    with _served(lading.concat([lading.open(tmp_path / "out"), lading.open(damaged)])) as client:
        state = _checked(client, "files")
        assert (state["shards"], state["samples"], state["problems"]) == (5, 2 * COUNT, 1)
        assert state["commands"][0]["command"] == f"lading repair {damaged}"
        [finding] = state["groups"][0]["findings"]
        place = {"file": finding["file"], "row": str(finding["row"])}
        assert client.get("/api/row", params=place).json() == {"number": COUNT + DAMAGED}


def test_an_unknown_depth_is_refused(sound: Path) -> None:
    with _served(str(sound)) as client:
        answer = client.get("/api/problems?start=all")
        assert answer.status_code == 400
        assert "no such depth" in answer.json()["error"]


def test_problems_of_the_layout_have_their_command(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="parquet", options={"row_group_bytes": 2000}) as writer:
        for i in range(2000):
            writer.write({"txt": f"{i} " * 100})
    with _served(str(tmp_path / "in")) as client:
        state = _checked(client, "quick")
    told = lading.doctor(tmp_path / "in").findings
    assert told
    assert [each["problem"] for each in state["layout"]] == [each.problem for each in told]
    assert {each["command"].split()[1] for each in state["commands"]} == {"convert"}


@pytest.mark.parametrize("ending", ["tar", "parquet"])
def test_a_dataset_that_cannot_be_opened_has_a_page(tmp_path: Path, sound: Path, ending: str) -> None:
    if ending == "tar":
        body = (sound / "shard-000000.tar").read_bytes()
    else:
        lading.convert(sound, tmp_path / "out", "parquet", progress=False)
        body = next((tmp_path / "out").glob("*.parquet")).read_bytes()
    broken = tmp_path / f"broken.{ending}"
    broken.write_bytes(body[: len(body) // 2])
    with _served(str(broken)) as client:
        told = client.get("/api/dataset").json()["broken"]
        assert str(broken) in told
        state = _checked(client, "quick")
        [group] = state["groups"]
        assert group["error"] == "CorruptShard"
        assert group["message"] in told
        assert state["commands"] == [
            {"purpose": "to save the intact samples", "command": f"lading salvage {broken} DST"}
        ]
        assert client.get("/api/rows?start=0&stop=9").json()["error"] == told


@pytest.mark.soak
def test_the_command_line_shows_what_is_broken(tmp_path: Path, sound: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes((sound / "shard-000000.tar").read_bytes()[:9000])
    words = [sys.executable, "-m", "lading", "view", str(broken), "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            url = re.search(r"http://\S+", program.stdout.readline())
            assert url is not None
            answers = build_opener(HTTPCookieProcessor())
            with answers.open(url[0]), answers.open(url[0].partition("?")[0] + "api/dataset") as answer:
                assert b"broken.tar" in answer.read()
        finally:
            program.terminate()


@pytest.mark.soak
@pytest.mark.parametrize("form", ["members", "lists"])
def test_all_pictures_are_decoded_and_those_that_fail_are_listed(tmp_path: Path, form: str) -> None:
    wrong = {3: b"<html>", 40: _picture(40)[:700], 90: b""}
    pictures = [wrong.get(i, _picture(i)) for i in range(100)]
    if form == "members":
        with lading.writer(tmp_path / "in", format="webdataset", rows_per_shard=30) as writer:
            for i, picture in enumerate(pictures):
                writer.write({"__key__": f"{i:03}", "jpg": picture})
    else:
        field = pa.field("pictures", pa.list_(pa.large_binary()))
        field = features.with_feature(field, features.Sequence(features.Image()))
        with lading.writer(tmp_path / "in", schema=pa.schema([field])) as writer:
            for first in range(0, 100, 4):
                writer.write({"pictures": pictures[first : first + 4]})
    with _served(str(tmp_path / "in")) as client:
        assert client.get("/api/pictures").json() == {"running": False, "decoded": None}
        client.get("/api/pictures?start=1")
        state = client.get("/api/pictures?wait=30").json()
    assert (state["running"], state["decoded"], state["failed"]) == (False, 100, 3)
    found = [(each["number"], each["column"], each["item"]) for each in state["failures"]]
    if form == "members":
        assert found == [(i, "jpg", 0) for i in wrong]
        assert [each["key"] for each in state["failures"]] == [f"{i:03}" for i in wrong]
    else:
        assert found == [(i // 4, "pictures", i % 4) for i in wrong]
    assert all(each["error"] for each in state["failures"])


@pytest.mark.soak
def test_the_page_shows_what_is_damaged_and_the_sample(chromium: Browser, damaged: Path) -> None:
    server = Server(View(opened(str(damaged)), Naming("in", "in", "a")), Address(port=0))
    server.start()
    base, _, token = server.url.partition("?")
    try:
        page = chromium.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{base}?page=problems&{token}")
        page.wait_for_selector(".verdict.good >> text=No problems")
        page.get_by_role("button", name="All files").click()
        page.wait_for_selector("summary >> text=a row differs from the checksum")
        assert f"lading repair {damaged}" in page.locator(".command code").all_text_contents()
        page.get_by_role("button", name="Show the sample").click()
        page.wait_for_selector(f".found a >> text={DAMAGED:03}")
        page.locator(".found a").click()
        page.wait_for_selector(f"h2 >> text={DAMAGED:03}")
        assert wrong == []
    finally:
        server.close()


@pytest.mark.soak
def test_the_page_of_a_dataset_that_cannot_be_opened(chromium: Browser, sound: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes((sound / "shard-000000.tar").read_bytes()[:9000])
    with pytest.raises(DataError) as caught:
        lading.open(broken)
    view = View(caught.value, Naming("broken", "broken.tar", None), Query.of(str(broken)))
    server = Server(view, Address(port=0))
    server.start()
    try:
        page = chromium.new_page()
        page.goto(server.url)
        page.wait_for_selector("text=This dataset cannot be opened")
        page.wait_for_selector(f".command code >> text=lading salvage {broken} DST")
        assert page.locator(".broken .error").all_text_contents() == [str(caught.value)]
    finally:
        server.close()


@pytest.mark.soak
def test_pictures_of_a_condition_and_of_documents(tmp_path: Path) -> None:
    rows = [
        {"sample_id": f"d{i}", "position": p, "modality": "image", "content_type": "image/jpeg", "binary_content": body}
        for i in range(20)
        for p, body in enumerate([_picture(i), b"no picture" if i == 7 else _picture(i + 20)])
    ]
    with lading.writer(tmp_path / "in", format="webdataset", view="interleaved") as writer:
        writer.write_batch(pa.Table.from_pylist(rows))
    with _served(str(tmp_path / "in")) as client:
        client.get("/api/pictures?start=1")
        state = client.get("/api/pictures?wait=30").json()
        assert (state["decoded"], state["failed"]) == (40, 1)
        assert [(each["number"], each["key"], each["item"]) for each in state["failures"]] == [
            (7, "d7", 2)
        ]  # behind the metadata
    with _served(str(_write(tmp_path / "tar", 60))) as client:
        client.get("/api/pictures?where=json.score+>=+20&start=1")
        assert client.get("/api/pictures?where=json.score+>=+20&wait=30").json()["decoded"] == 20
        assert client.get("/api/pictures").json()["decoded"] is None


@pytest.mark.soak
@pytest.mark.parametrize("family", ["hostile-wds", "hostile-interleaved-tar", "hostile-hf-parquet", "hostile-mds"])
def test_broken_golden_files_have_a_page(golden: Golden, family: str) -> None:
    for case in case_names(family):
        folder = golden(family) / case
        files = [str(path) for path in sorted(folder.iterdir()) if path.name != "expected.json"]
        try:
            with _served(files[0] if len(files) == 1 else str(folder)) as client:
                assert client.get("/api/dataset").status_code == 200, case
                for depth in ("quick", "deep"):
                    state = _checked(client, depth)
                    assert state["error"] is None or "groups" not in state, case
        except (UsageError, StoreError):
            continue  # of the command line
