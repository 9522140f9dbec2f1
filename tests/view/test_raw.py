"""Bytes of values: each range that a browser asks for is that of the value, of a type that runs nothing."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from counted_files import CountedFiles
from documents import SAMPLES, WIDE, documents
from tars import tar_of
from view_client import viewing

LARGE = np.random.default_rng(0).bytes(1_500_000)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
OTHERS = {
    "svg": SVG, "html": b"<!doctype html><script>alert(1)</script>", "xml": b"<?xml version='1.0'?><a/>",
    "pdf": b"%PDF-1.7\n", "js": b"alert(1)", "txt": b"<script>alert(1)</script>",
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("raw") / "in.tar"
    path.write_bytes(tar_of(("0.bin", LARGE), ("0.png", WIDE), *[(f"0.{name}", data) for name, data in OTHERS.items()]))
    with viewing(str(path)) as client:
        yield client


@pytest.mark.parametrize(
    "asked, expected",
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=10-19", (10, 20)),
        ("bytes=1000-", (1000, 1_500_000)),
        ("bytes=-7", (1_499_993, 1_500_000)),
        ("bytes=-9999999", (0, 1_500_000)),
        ("bytes=1499999-9999999999", (1_499_999, 1_500_000)),
        ("bytes=200000-1300000", (200_000, 1_300_001)),
    ],
)
@pytest.mark.cases(7)
def test_a_range_is_that_of_the_value(client: TestClient, asked: str, expected: tuple[int, int]) -> None:
    answer = client.get("/raw?number=0&column=bin", headers={"range": asked})
    start, stop = expected
    assert (answer.status_code, answer.content) == (206, LARGE[start:stop])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/1500000"
    assert answer.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=9-5",
        "bytes=0-1,5-6",
        "lines=0-1",
        "bytes=" + "9" * 6000,
        "bytes=²-",
    ],
)
@pytest.mark.cases(9)
def test_other_ranges_give_the_whole(client: TestClient, asked: str) -> None:
    answer = client.get("/raw?number=0&column=bin", headers={"range": asked.encode()})
    assert (answer.status_code, answer.content) == (200, LARGE)


@pytest.mark.parametrize("asked", ["bytes=1500000-", "bytes=99999999999-", "bytes=-0"])
@pytest.mark.cases(3)
def test_a_range_behind_the_value_is_refused_with_its_size(client: TestClient, asked: str) -> None:
    answer = client.get("/raw?number=0&column=bin", headers={"range": asked})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */1500000")


def test_a_range_of_another_version_is_the_whole(client: TestClient) -> None:
    head = client.head("/raw?number=0&column=bin")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "1500000")
    tag = head.headers["etag"]
    part = {"range": "bytes=0-9"}
    assert client.get("/raw?number=0&column=bin", headers={**part, "if-range": tag}).status_code == 206
    assert client.get("/raw?number=0&column=bin", headers={**part, "if-range": '"other"'}).status_code == 200
    assert client.get("/raw?number=0&column=bin", headers={"if-none-match": f'"x", W/{tag}'}).status_code == 304
    assert client.head("/raw?number=0&column=bin", headers=part).headers["content-range"] == "bytes 0-9/1500000"


def test_a_file_that_changed_is_an_error_and_no_other_bytes(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(tar_of(("0.bin", LARGE)))
    with viewing(str(path)) as client:
        assert client.get("/raw?number=0&column=bin").content == LARGE
        path.write_bytes(tar_of(("0.bin", LARGE[::-1])) + bytes(10_240))
        answer = client.get("/raw?number=0&column=bin")
        assert answer.status_code == 500
        assert "in.tar" in answer.json()["error"]


@pytest.mark.parametrize("column", [*OTHERS, "bin"])
@pytest.mark.cases(7)
def test_what_could_run_is_bytes(client: TestClient, column: str) -> None:
    answer = client.get(f"/raw?number=0&column={column}")
    assert answer.content == OTHERS.get(column, LARGE)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")


def test_svg_is_a_picture_for_images_alone(client: TestClient) -> None:
    answers = {
        dest: client.get("/raw?number=0&column=svg&as=svg", headers={"sec-fetch-dest": dest})
        for dest in ("image", "document")
    }
    kinds = {dest: answer.headers["content-type"] for dest, answer in answers.items()}
    assert kinds == {"image": "image/svg+xml", "document": "application/octet-stream"}
    assert "sandbox" in answers["image"].headers["content-security-policy"]
    html = client.get("/raw?number=0&column=html&as=svg", headers={"sec-fetch-dest": "image"})
    assert html.headers["content-type"] == "application/octet-stream"


def test_answers_stay_in_the_browser_for_this_run_alone(client: TestClient) -> None:
    run = client.get("/api/dataset").json()["run"]
    assert "max-age" in client.get(f"/raw?number=0&column=png&run={run}").headers["cache-control"]
    assert client.get("/raw?number=0&column=png&run=other").headers["cache-control"] == "no-store"


def test_values_of_tables_lists_and_compressed_files(tmp_path: Path) -> None:
    media = {"bytes": WIDE, "path": "a.png"}
    rows = {"image": [media], "images": [[media, {"bytes": LARGE, "path": "b.png"}]], "text": ["grüße" * 99], "n": [5]}
    rows |= {"none": pa.array([None], pa.binary())}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    with viewing(str(tmp_path / "in.parquet")) as client:
        assert client.get("/raw?number=0&column=image").headers["content-type"] == "image/png"
        assert client.get("/raw?number=0&column=images&item=1").content == LARGE
        part = client.get("/raw?number=0&column=text", headers={"range": "bytes=7-13"})
        assert part.content.decode() == "grüße"
        wrong = {column: client.get(f"/raw?number=0&column={column}") for column in ("n", "none", "other")}
        assert [answer.status_code for answer in wrong.values()] == [400, 400, 400]
        assert "int64" in wrong["n"].json()["error"]
        assert client.get("/raw?number=0&column=images&item=2").status_code == 400
    (tmp_path / "in.tar.gz").write_bytes(gzip.compress(tar_of(("0.bin", LARGE))))
    with viewing(str(tmp_path / "in.tar.gz")) as client:
        answer = client.get("/raw?number=0&column=bin", headers={"range": "bytes=5-1400000"})
        assert answer.content == LARGE[5:1_400_001]


def test_items_of_documents(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(documents(*SAMPLES))
    with viewing(str(tmp_path / "in.tar"), view="interleaved") as client:
        assert client.get("/raw?number=0&item=1").content == b"hello"
        answer = client.get("/raw?number=0&item=2")
        assert (answer.content, answer.headers["content-type"]) == (WIDE, "image/png")
        assert client.get("/raw?number=0&item=4").status_code == 400
        assert client.get("/raw?number=5&item=0").status_code == 400


@pytest.mark.parametrize("asked, size", [("bytes=1000000-1000999", 1_000), ("bytes=-5", 5), ("", 1_500_000)])
@pytest.mark.cases(3)
def test_a_remote_range_reads_that_range_alone(tmp_path: Path, asked: str, size: int) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(("0.bin", LARGE)))
    CountedFiles.begin()
    with viewing(f"counted://{tmp_path}/in.tar") as client:
        client.get("/api/count?wait=30")
        client.get("/api/sample?number=0")
        before = CountedFiles.read_bytes
        for _ in range(2):
            assert client.get("/raw?number=0&column=bin", headers={"range": asked}).content[-5:] == (
                LARGE[1_000_995:1_001_000] if size == 1_000 else LARGE[-5:]
            )
        assert CountedFiles.read_bytes - before <= 2 * size + 1_000
