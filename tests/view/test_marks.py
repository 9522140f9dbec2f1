"""Marks of samples: kept by the source, also through kills and of several pages at once, and taken elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.dataset.opened import opened
from lading._core.view.app import app_of
from lading._core.view.marks import Mark, SampleMarks
from lading._core.view.naming import Naming
from lading._core.view.view import View

COUNT = 30


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "lading" / "marks"


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """Samples with keys such as `007`, in tars."""
    with lading.writer(tmp_path / "keyed", format="webdataset", rows_per_shard=8) as writer:
        for i in range(COUNT):
            writer.write({"__key__": f"{i:03}", "txt": f"text {i}", "json": {"n": i}})
    return tmp_path / "keyed"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Samples without keys: two partitions of a table."""
    for part in range(2):
        (tmp_path / f"plain/part={part}").mkdir(parents=True)
        numbers = [*range(part * 15, part * 15 + 15)]
        pq.write_table(pa.table({"n": numbers}), tmp_path / f"plain/part={part}/0.parquet")
    return tmp_path / "plain"


class _Page:
    """What a page asks the server of a dataset, and how it marks."""

    def __init__(self, data: Any) -> None:
        name = str(data)
        self.view = View(opened(data), Naming(name, name, f"lading.open({name!r})"))
        self.client = TestClient(app_of(self.view, "secret"), base_url="http://localhost:8421")
        self.client.get("/?token=secret")

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json() if path.startswith("/api") else answer.content

    def mark(self, sample: str, mark: str = "", label: str = "") -> int:
        answer = self.client.post("/api/mark", params={"id": sample, "mark": mark, "label": label})
        assert answer.status_code == 200, answer.text
        at: int = answer.json()["at"]
        return at

    def numbers(self, field: str = "json.n", **query: Any) -> list[str]:
        self.get("/api/count", wait=20, **query)
        rows = self.get("/api/rows", start=0, stop=60, column=field, **query)["rows"]
        return [row["id"] for row in rows]


@pytest.fixture
def page_of() -> Any:
    pages: list[_Page] = []

    def made(data: Any) -> _Page:
        pages.append(_Page(data))
        return pages[-1]

    yield made
    for page in pages:
        page.view.close()


def test_marks_choose_samples_as_they_were_at_a_moment(keyed: Path, page_of: Callable[[Any], _Page]) -> None:
    page = page_of(keyed)
    page.mark("007", "keep")
    page.mark("003", "drop", "blurred")
    at = page.mark("021", "keep", "blurred")
    later = page.mark("007")
    assert page.numbers(marked=f"keep@{at}") == ["007", "021"]
    assert page.numbers(marked=f"keep@{later}") == ["021"]
    assert page.numbers(marked=f"label:blurred@{at}") == ["003", "021"]
    assert page.numbers(marked=f"any@{at}", sort="json.n:desc") == ["021", "007", "003"]
    assert page.numbers(marked=f"none@{at}", where="json.n < 5") == ["000", "001", "002", "004"]
    assert page.get("/api/marks")["marks"] == [["007", "", ""], ["003", "drop", "blurred"], ["021", "keep", "blurred"]]


def test_marks_stay_with_the_source_and_are_there_for_its_user_alone(
    keyed: Path, home: Path, page_of: Callable[[Any], _Page]
) -> None:
    before = page_of(keyed)
    assert before.get("/api/marks")["marks"] == []
    assert not home.exists()  # who only looks leaves nothing
    before.mark("007", "keep")
    again = page_of(lading.open(str(keyed)).where("json.n > 3"))
    assert again.get("/api/marks")["marks"] == [["007", "keep", ""]]
    [file] = home.iterdir()
    assert file.name.startswith("keyed-")
    assert (file.stat().st_mode & 0o777, home.stat().st_mode & 0o777) == (0o600, 0o700)


def test_two_pages_see_the_marks_of_each_other(keyed: Path, page_of: Callable[[Any], _Page]) -> None:
    one, other = page_of(keyed), page_of(keyed)
    with ThreadPoolExecutor(8) as pool:
        at = [*pool.map(lambda i: (one, other)[i % 2].mark(f"{i:03}", "keep", f"l{i}"), range(COUNT))]
    assert sorted(at) == [*range(1, COUNT + 1)]
    expected = {(f"{i:03}", "keep", f"l{i}") for i in range(COUNT)}
    for page in (one, other):
        assert {tuple(each) for each in page.get("/api/marks")["marks"]} == expected
    last = one.mark("000", "drop")
    assert other.get("/api/marks", since=last - 1)["marks"] == [["000", "drop", ""]]


def test_marks_of_samples_without_keys_belong_to_their_numbers(plain: Path, page_of: Callable[[Any], _Page]) -> None:
    page = page_of(plain)
    assert page.numbers("n", where="n >= 20")[:2] == ["20", "21"]
    assert page.get("/api/ids", where="part == 1", start=0, stop=2) == ["15", "16"]  # the other partition is not read
    at = max(page.mark("3", "keep"), page.mark("22", "keep"))
    assert page.numbers("n", marked=f"keep@{at}") == ["3", "22"]
    assert page.numbers("n", marked=f"keep@{at}", where="part == 1") == ["22"]
    assert page.numbers("n", marked=f"none@{at}", where="n > 20 and n < 24") == ["21", "23"]
    assert page.client.post("/api/mark", params={"id": "x", "mark": "keep"}).status_code == 400


@pytest.mark.parametrize("kind", ["txt", "csv", "parquet"])
def test_saved_marks_take_the_same_samples(
    keyed: Path, tmp_path: Path, kind: str, page_of: Callable[[Any], _Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(keyed)
    page.mark("021", "keep", "cat")
    page.mark("gone", "keep")  # of a sample that the dataset had once
    at = page.mark("007", "keep")
    saved = tmp_path / f"keep.{kind}"
    saved.write_bytes(page.get(f"/marks/{kind}", of=f"keep@{at}"))
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["head", "keyed", "--take", saved.name, "--json"])
    assert said.exit_code == 0, said.output
    assert ("007" in said.output, "021" in said.output, "022" in said.output) == (True, True, False)
    assert lading.open(keyed).take_keys(str(saved))["__key__"].to_pylist() == ["007", "021"]
    assert page.get("/api/count", marked=f"keep@{at}", where="json.n < 9")["command"].endswith(
        "keyed --take keep.txt --where 'json.n < 9'"
    )
    if kind != "txt":
        joined = lading.open(keyed).join(str(saved))
        assert joined.where("mark == 'keep' and label == 'cat'")["__key__"].to_pylist() == ["021"]
        assert joined[6]["mark"] is None


def test_saved_numbers_take_the_same_samples(plain: Path, tmp_path: Path, page_of: Callable[[Any], _Page]) -> None:
    page = page_of(plain)
    at = max(page.mark("22", "keep"), page.mark("3", "keep"))
    (tmp_path / "keep.txt").write_bytes(page.get("/marks/txt", of=f"keep@{at}"))
    assert lading.open(plain).take_keys(tmp_path / "keep.txt")["n"].to_pylist() == [3, 22]
    assert page.get("/api/count", marked=f"keep@{at}")["command"].endswith("plain --take keep.txt")
    behind = page_of(lading.open(plain).where("n > 2"))  # the numbers are those of the source
    assert behind.numbers("n", marked=f"keep@{at}") == ["3", "22"]
    counted = behind.get("/api/count", marked=f"keep@{at}")
    assert (counted["command"], counted["python"]) == (None, None)


def test_a_key_of_two_lines_is_saved_as_parquet_alone(tmp_path: Path, page_of: Callable[[Any], _Page]) -> None:
    pq.write_table(pa.table({"__key__": ["a\nb", "number"], "n": [1, 2]}), tmp_path / "in.parquet")
    page = page_of(tmp_path / "in.parquet")
    at = page.mark("number", "keep")
    assert page.get("/marks/txt", of=f"keep@{at}") == b"__key__\nnumber\n"
    at = page.mark("a\nb", "keep")
    assert "Parquet" in page.client.get("/marks/txt", params={"of": f"keep@{at}"}).json()["error"]
    (tmp_path / "keep.parquet").write_bytes(page.get("/marks/parquet", of=f"keep@{at}"))
    assert len(lading.open(tmp_path / "in.parquet").take_keys(str(tmp_path / "keep.parquet"))) == 2


def test_a_changed_dataset_keeps_its_marks_and_says_so(keyed: Path, page_of: Callable[[Any], _Page]) -> None:
    page_of(keyed).mark("007", "keep")
    with lading.writer(keyed, format="webdataset", overwrite=True) as writer:
        writer.write({"__key__": "007", "txt": "changed", "json": {"n": 7}})
    found = page_of(keyed).get("/api/marks")
    assert found["marks"] == [["007", "keep", ""]]
    assert found["note"] == "1 mark is older than the files. Marks stay with their keys."


def test_marked_samples_are_compared_by_their_keys(keyed: Path, tmp_path: Path) -> None:
    lading.convert(keyed, tmp_path / "other", "parquet", progress=False)
    data, other = opened(lading.open(keyed)), opened(lading.open(tmp_path / "other"))
    view = View(data, Naming("a", "", None), other=View(other, Naming("b", "", None)))
    client = TestClient(app_of(view, "secret"), base_url="http://localhost:8421")
    client.get("/?token=secret")
    at = [client.post("/api/mark", params={"id": key, "mark": "keep"}).json()["at"] for key in ("007", "021")][-1]
    found = client.get("/api/compare", params={"wait": 30, "marked": f"keep@{at}"}).json()
    view.close()
    assert found["counts"] == {"a": 2, "b": 2, "changed": 0, "same": 2, "only_a": 0, "only_b": 0}


def test_rows_in_memory_are_known_by_their_content(page_of: Callable[[Any], _Page]) -> None:
    table = pa.table({"__key__": ["a", "b"], "n": [1, 2]})
    page_of(lading.open(table)).mark("b", "drop")
    assert page_of(lading.open(table)).get("/api/marks")["marks"] == [["b", "drop", ""]]
    assert page_of(lading.open(table.slice(1))).get("/api/marks")["marks"] == []


def test_marks_that_cannot_be_kept_are_an_error(keyed: Path, home: Path, page_of: Callable[[Any], _Page]) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("a file, no folder")
    answer = page_of(keyed).client.post("/api/mark", params={"id": "007", "mark": "keep"})
    assert answer.status_code == 500
    assert "XDG_DATA_HOME" in answer.json()["error"]


@pytest.mark.parametrize(
    "query", [{"mark": "great"}, {"mark": "keep", "label": "two\nlines"}, {"mark": "keep", "label": "x" * 201}]
)
def test_other_marks_are_refused(keyed: Path, query: dict[str, str], page_of: Callable[[Any], _Page]) -> None:
    assert page_of(keyed).client.post("/api/mark", params={"id": "007", **query}).status_code == 400


def test_pages_of_others_mark_nothing(keyed: Path, page_of: Callable[[Any], _Page]) -> None:
    page = page_of(keyed)
    for headers in ({"origin": "http://localhost:9999"}, {"sec-fetch-site": "same-site"}):
        answer = page.client.post("/api/mark", params={"id": "007", "mark": "keep"}, headers=headers)
        assert answer.status_code == 403
    assert page.client.get("/api/mark", params={"id": "007", "mark": "keep"}).status_code in (404, 405)
    assert page.get("/api/marks")["marks"] == []


_MARKS = """
import sys, lading
from lading._core.dataset.opened import opened
from lading._core.view.marks import Mark, Marks
marks = Marks(opened(lading.open(sys.argv[1])))
for i in range(10**9):
    marks.set(f"{i:03}", Mark("keep"))
    print(i, flush=True)
"""


@pytest.mark.soak
def test_a_kill_loses_no_mark(keyed: Path) -> None:
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", _MARKS, str(keyed)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        said += [int(line) for line in process.communicate()[0].split()]
        marks = SampleMarks(opened(lading.open(keyed)))
        known = {name for name, mark, _ in marks.since(0)["marks"] if mark == "keep"}
        assert {f"{i:03}" for i in said} <= known
        marks.set("000", Mark())
