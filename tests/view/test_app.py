"""The server of `lading view`: what it answers is what `ds[i]` gives, and only to who has the token."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from PIL import Image
from starlette.testclient import TestClient

import lading
from lading._core.dataset.opened import opened
from lading._core.view.app import app_of
from lading._core.view.naming import Naming
from lading._core.view.serve import Address
from lading._core.view.view import View

COUNT = 150


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> lading.Dataset:
    path = tmp_path_factory.mktemp("view") / "in"
    with lading.writer(path, format="webdataset", rows_per_shard=40) as writer:
        for i in range(COUNT):
            picture = Image.new("RGB", (64 + i, 48), (i, 0, 0))
            writer.write({"__key__": f"{i:03}", "jpg": picture, "json": {"score": i / 2}, "txt": f"text {i} " * i})
    return lading.open(path)


@pytest.fixture(scope="module")
def client(ds: lading.Dataset) -> Iterator[TestClient]:
    view = View(opened(ds), Naming("photos", "photos", "lading.open('photos')"))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    yield client
    view.close()


def test_rows_are_the_samples(ds: lading.Dataset, client: TestClient) -> None:
    rows = [
        row
        for start in range(0, COUNT, 60)
        for row in client.get(f"/api/rows?start={start}&stop={start + 60}").json()["rows"]
    ]
    assert [row["key"] for row in rows] == ds["__key__"].to_pylist()
    for row, sample in zip(rows, ds, strict=True):
        cells = row["cells"]
        assert (cells["jpg"]["facts"]["width"], cells["jpg"]["kind"]) == (sample["jpg"].width, "image")
        assert sample["txt"].startswith(cells["txt"]["text"])
        assert cells["txt"].get("length", len(sample["txt"])) == len(sample["txt"])


def test_a_condition_chooses_samples_and_is_named(client: TestClient) -> None:
    query = {"where": "json.score >= 70", "sort": "json.score:desc", "wait": 30}
    counted = client.get("/api/count", params=query).json()
    assert counted == {
        "count": 10, "error": None, "is_wrong": False,
        "command": "lading head photos --where 'json.score >= 70' --sort json.score:desc",
        "python": "lading.open('photos').where('json.score >= 70').sort('json.score', descending=True)",
    }  # fmt: skip
    rows = client.get("/api/rows", params={**query, "start": 0, "stop": 60}).json()["rows"]
    assert [row["key"] for row in rows] == [f"{i:03}" for i in range(149, 139, -1)]


def test_bytes_are_those_of_the_sample_with_the_type_of_their_header(ds: lading.Dataset, client: TestClient) -> None:
    stored = ds.with_decode(False)[7]["jpg"]
    whole = client.get("/raw?number=7&column=jpg")
    assert (whole.content, whole.headers["content-type"]) == (stored, "image/jpeg")
    part = client.get("/raw?number=7&column=jpg", headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, stored[10:20])
    text = client.get("/raw?number=7&column=txt")
    assert (text.text, text.headers["content-type"]) == (ds[7]["txt"], "application/octet-stream")


@pytest.mark.soak
def test_a_thumbnail_shows_the_picture(client: TestClient) -> None:
    with Image.open(io.BytesIO(client.get("/picture/thumbnail?number=140&column=jpg&size=51").content)) as image:
        assert image.size == (51, 12)
        assert image.getpixel((25, 6)) == pytest.approx((140, 0, 0), abs=3)


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/api/dataset", "/raw?number=0&column=jpg"])
def test_nothing_is_answered_without_the_token_or_under_another_name(client: TestClient, path: str) -> None:
    stranger = TestClient(client.app, base_url="http://localhost:8421")
    assert stranger.get(path).status_code == 403
    assert stranger.get("/?token=guess").status_code == 403
    assert client.get(path, headers={"host": "evil.example:8421"}).status_code == 403
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_errors_are_those_of_lading(client: TestClient) -> None:
    answer = client.get("/api/rows?where=nonsense+==+1&start=0&stop=9")
    assert answer.status_code == 400
    assert "nonsense" in answer.json()["error"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "gpu-box"])
def test_others_reach_the_server_with_a_chosen_token_alone(host: str) -> None:
    with pytest.raises(lading.errors.UsageError, match="needs a token"):
        Address(host)
    assert not Address(host, token="words").is_own


@pytest.mark.parametrize(
    "host, url",
    [
        ("127.0.0.1", "http://127.0.0.1:9/"),
        ("localhost", "http://localhost:9/"),
        ("::1", "http://[::1]:9/"),
        ("0.0.0.0", "http://127.0.0.1:9/"),
        ("::", "http://[::1]:9/"),
        ("gpu-box", "http://gpu-box:9/"),
    ],
)
def test_the_url_is_one_that_opens_here(host: str, url: str) -> None:
    assert Address(host, token="words").url(9) == url
