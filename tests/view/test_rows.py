"""Samples of the page by number: the first ones at once, the others when they are counted; and what ends with them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counted_files import CountedFiles
from lading._core.dataset.opened import opened
from lading._core.view.held_pages import HeldPages
from lading._core.view.naming import Naming
from lading._core.view.rows import SelectedSamples, Turns
from lading._core.view.selection import Selection
from lading._core.view.view import View
from lading.errors import UsageError
from tars import tar_of

COUNT, SIZE = 400, 50_000
PAYLOAD = os.urandom(SIZE)


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "in.tar"
    members = [
        member
        for i in range(COUNT)
        for member in ((f"{i:04}.bin", PAYLOAD), (f"{i:04}.json", json.dumps({"n": i}).encode()))
    ]
    path.write_bytes(tar_of(*members))
    return path


@pytest.fixture
def remote(tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    CountedFiles.begin()
    yield f"counted://{tar}"
    CountedFiles.gate.set()


def _rows(source: str, where: str = "", most_bytes: int = 64 << 20) -> SelectedSamples:
    return SelectedSamples(Selection(where).applied(opened(source)), HeldPages(most_bytes), Turns())


def _view(source: str) -> View:
    return View(opened(source), Naming("data", "data", "lading.open('data')"))


def _keys(rows: SelectedSamples, start: int, stop: int) -> list[str]:
    return [key for batch in rows.page(start, stop).batches for key in batch.column("__key__").to_pylist()]


def test_the_first_samples_come_while_others_are_counted(remote: str) -> None:
    CountedFiles.behind = 10_000_000  # half of the tar
    CountedFiles.gate.clear()
    rows = _rows(remote)
    page = rows.page(0, 24)
    assert (page.is_whole, page.is_last, rows.count) == (True, False, None)
    assert _keys(rows, 3, 5) == ["0003", "0004"]
    CountedFiles.gate.set()
    rows.wait(20)
    assert rows.count == COUNT
    assert _keys(rows, 398, 500) == ["0398", "0399"]
    rows.close()


def test_the_first_that_pass_a_condition_come_while_the_search_goes_on(remote: str) -> None:
    CountedFiles.behind = 17_500_000
    CountedFiles.gate.clear()
    rows = _rows(remote, "json.n == 3 or json.n == 390")
    page = rows.page(0, 24)
    assert [batch.column("__key__").to_pylist() for batch in page.batches] == [["0003"]]
    assert (page.is_whole, page.is_last) == (False, False)
    CountedFiles.gate.set()
    rows.wait(20)
    assert rows.count == 2
    assert _keys(rows, 0, 24) == ["0003", "0390"]
    rows.close()


def test_few_that_pass_a_condition_are_found_and_counted_in_one_pass(remote: str, tar: Path) -> None:
    rows = _rows(remote, "json.n == 7 or json.n == 107 or json.n == 207 or json.n == 307")
    rows.wait(20)
    assert rows.count == 4
    assert _keys(rows, 0, 24) == ["0007", "0107", "0207", "0307"]
    assert rows.data.place_of(2)[1] == 207
    assert CountedFiles.read_bytes < 1.2 * tar.stat().st_size
    rows.close()


def test_to_count_makes_the_index_that_later_runs_use(remote: str) -> None:
    first = _rows(remote)
    first.wait(20)
    first.close()
    CountedFiles.begin()
    again = _rows(remote)
    again.wait(20)
    assert _keys(again, 200, 202) == ["0200", "0201"]
    assert CountedFiles.read_bytes < 1_500_000
    again.close()


def test_what_reads_for_a_selection_ends_with_it(remote: str) -> None:
    before = {*threading.enumerate()}
    view = _view(remote)
    for n in range(50):
        view.count(Selection(f"json.n > {n}"), 0)
    view.close()
    left = [thread for thread in {*threading.enumerate()} - before if "view" in thread.name]
    for thread in left:
        thread.join(20)
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_who_waits_for_a_selection_that_is_closed_gets_an_error(remote: str) -> None:
    CountedFiles.behind = 10_000_000
    CountedFiles.gate.clear()
    rows = _rows(remote)
    threading.Timer(0.3, rows.close).start()
    with pytest.raises(UsageError, match="no longer read"):
        rows.page(COUNT - 1, COUNT)


def test_a_damaged_tar_shows_the_samples_before_the_damage(tar: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    data = bytearray(tar.read_bytes())
    data[10_000_000 - 10_000_000 % 512 :] = b"\xff" * 4096
    broken.write_bytes(data)
    rows = _rows(str(broken))
    rows.wait(20)
    assert rows.error is not None
    page = rows.page(0, 24)
    assert len(page.batches[0]) == 24
    rows.close()


def test_counting_waits_for_what_reads_for_the_page() -> None:
    turns, done = Turns(), threading.Event()

    def count() -> None:
        turns.give_way()
        done.set()

    with turns.reading():
        threading.Thread(target=count).start()
        assert not done.wait(0.1)
    assert done.wait(5)


def test_counting_rests_while_nobody_asks(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading._core.view.rows.REST_S", 0.0)
    rows = _rows(remote)
    time.sleep(1)
    assert rows.count is None
    monkeypatch.setattr("lading._core.view.rows.REST_S", 60.0)
    rows.wait(20)
    assert rows.count == COUNT
    rows.close()


def test_columns_of_later_samples_are_known_when_samples_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    late = ("0200.txt", b"a text")
    path.write_bytes(tar_of(*((f"{i:04}.bin", b"x") for i in range(200)), late))
    view = _view(str(path))
    view.count(Selection(), 20)
    assert [column["name"] for column in view.dataset()["columns"]] == ["__key__", "bin", "txt"]
    view.close()


def test_pages_are_held_up_to_their_bytes(tar: Path) -> None:
    rows = _rows(str(tar), most_bytes=5_000_000)
    pages = rows.pages
    rows.wait(20)
    for start in range(0, COUNT, 20):
        rows.page(start, start + 20, ["bin"])
    assert 4_000_000 < pages.held_bytes <= 5_000_000
    assert pages.find(rows, 0, ["bin"]) is None
    held = pages.find(rows, COUNT - 1, ["bin"])
    assert held is not None
    assert held.column("bin").to_pylist() == [PAYLOAD]
    rows.close()
    assert pages.held_bytes == 0
