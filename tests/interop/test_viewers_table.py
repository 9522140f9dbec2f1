"""Each line of the table of viewers in `docs/coming-from.md`: lading's side alone. The others show their own copies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import lading
from doc_tables import Table

if TYPE_CHECKING:
    from lading._core.view.show import ShownDataset

pytestmark = pytest.mark.interop

TABLE = Table("Viewers")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    with lading.writer("photos", format="webdataset") as writer:
        for i in range(10):
            writer.write({"__key__": f"{i:02}", "json": {"score": i / 10}})


@contextmanager
def client(page: ShownDataset) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=page.url.partition("?")[0], follow_redirects=True, timeout=60) as asking:
        assert asking.get(page.url).status_code == 200
        yield asking
    page.close()


def count(asking: httpx.Client, **query: Any) -> int:
    found: int = asking.get("/api/count", params={"wait": 20, **query}).json()["count"]
    return found


@pytest.mark.soak  # it starts a decoding process
@TABLE.line("a repository of the Hub, its viewer", "`fo.Dataset.from_dir(…)`, `fo.launch_app(dataset)`",
            "the Hub's SQL console and filters, `dataset.match(F(\"score\") > 0.5)`")  # fmt: skip
def test_pages_show_what_lies_there() -> None:
    page, ds = lading.open("photos").show(browser=False), lading.open("photos")
    with client(page) as asking:
        assert count(asking) == 10
        assert count(asking, where="json.score > 0.5") == 4
    with client(ds.where("json.score > 0.5").show(browser=False)) as asking:
        assert count(asking) == 4


@pytest.mark.soak  # it starts a decoding process
@TABLE.line("`session.wait()`, `session.close()`")
def test_a_page_is_waited_for_and_closed() -> None:
    page = lading.open("photos").show(browser=False)
    waiting = threading.Thread(target=page.wait)
    waiting.start()
    assert waiting.is_alive()
    page.close()
    waiting.join(20)
    assert not waiting.is_alive()


@pytest.mark.soak  # it starts a decoding process
@TABLE.line('`sample.tags.append("keep")`, tags in the app', '`dataset.match_tags("keep")`',
            '`dataset.count_values("tags")`, labels in code')  # fmt: skip
def test_marks_are_taken_and_joined() -> None:
    ds = lading.open("photos")
    with client(ds.show(browser=False)) as asking:
        for key, label in (("03", "cat"), ("07", "dog"), ("08", "dog")):
            answer = asking.post("/api/mark", params={"id": key, "mark": "keep", "label": label})
            assert answer.status_code == 200
        at = answer.json()["at"]
        assert count(asking, marked=f"keep@{at}") == 3
        for name, kind, of in (("keep.txt", "txt", "keep"), ("marks.csv", "csv", "any")):
            Path(name).write_bytes(asking.get(f"/marks/{kind}", params={"of": f"{of}@{at}"}).content)
    assert ds.take_keys("keep.txt")["__key__"].to_pylist() == ["03", "07", "08"]
    assert dict(ds.join("marks.csv").stats().columns["label"].top) == {"dog": 2, "cat": 1}


def test_each_line_is_run() -> None:
    TABLE.check()
