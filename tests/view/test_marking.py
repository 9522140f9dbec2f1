"""Marks in a browser: keys and clicks give them, all pages show them, and the panel chooses by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lading
from browser import shown_in
from lading._core.dataset.opened import opened
from lading._core.view.marks import Mark, SampleMarks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNT = 40


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


@pytest.fixture
def keyed(tmp_path: Path) -> lading.Dataset:
    with lading.writer(tmp_path / "keyed", format="webdataset") as writer:
        for i in range(COUNT):
            writer.write({"__key__": f"{i:03}", "txt": f"text {i}"})
    return lading.open(tmp_path / "keyed")


def _marks(ds: lading.Dataset) -> dict[str, tuple[str, str]]:
    return {name: (mark, label) for name, mark, label in SampleMarks(opened(ds)).since(0)["marks"]}


@pytest.mark.mechanism("marks of the page in a browser")
def test_keys_mark_samples_on_all_pages(chromium: Browser, keyed: lading.Dataset) -> None:
    with shown_in(chromium, keyed) as tab:
        press, locate = tab.page.keyboard.press, tab.page.locator
        tab.page.wait_for_selector("[data-id='002']")
        locate("[data-id='002']").focus()
        press("k")
        tab.page.wait_for_selector(".tile[data-id='002'][data-mark=keep]")
        press("Shift+D")
        tab.page.wait_for_selector(".tile[data-id='002'][data-mark=drop]")
        tab.until("document.activeElement.dataset.id === '003'")
        press("l")
        tab.page.wait_for_selector("dialog input")
        tab.page.keyboard.type("a cat")
        press("Enter")
        tab.page.wait_for_selector(".tile[data-id='003'][data-label='a cat']")
        tab.until("document.querySelector('.marks summary').textContent === 'Marks 1 drop 1 label'")
        press("u")
        tab.page.wait_for_selector(".tile[data-id='003']:not([data-label])")
        press("u")
        tab.page.wait_for_selector(".tile[data-id='002'][data-mark=keep]")

        tab.open("page=list", "[data-id='002'][data-mark=keep]")
        tab.open("page=sample&number=2", "article[data-mark=keep]")
        assert locate(".marking [aria-pressed=true]").all_text_contents() == ["Keep"]
        press("Shift+K")  # takes the mark away, and goes on
        tab.page.wait_for_selector("article[data-id='003']")
        locate(".marking [data-does=drop]").click()
        tab.page.wait_for_selector("article[data-mark=drop]")
        assert tab.problems == []
    assert _marks(keyed) == {"002": ("", ""), "003": ("drop", "")}


@pytest.mark.soak
def test_clicks_mark_and_the_panel_chooses_and_saves(chromium: Browser, keyed: lading.Dataset, tmp_path: Path) -> None:
    with shown_in(chromium, keyed) as tab:
        locate = tab.page.locator
        tab.page.wait_for_selector("[data-id='002']")
        locate(".marks summary").click()
        locate(".marks label", has_text="keeps").click()
        locate("#title").click()  # closes the panel
        for key in ("005", "001"):
            locate(f"[data-id='{key}']").click()
            tab.page.wait_for_selector(f"[data-id='{key}'][data-mark=keep]")
        locate(".marks summary").click()
        with tab.page.expect_download() as saving:
            locate(".kinds a[href*='keep'][href*='txt']").click()
        assert saving.value.suggested_filename == "keep.txt"
        assert Path(saving.value.path()).read_text().split() == ["__key__", "001", "005"]
        SampleMarks(opened(keyed)).set("001", Mark("keep", "a cat"))
        tab.page.wait_for_selector("[data-show='label:a cat']", timeout=15_000)
        assert tab.texts("[data-show]") == ["all samples", "not marked", "marked", "keep", "drop", "a cat"]
        locate("[data-show=keep]").click()
        tab.until("document.querySelector('#told').textContent === '2 samples'")
        tab.until("document.querySelectorAll('.tile b').length === 2")
        assert tab.texts(".tile b") == ["001", "005"]
        SampleMarks(opened(keyed)).set("007", Mark("keep"))  # by somebody else
        locate("text=Marks have changed: show again").click(timeout=15_000)
        tab.until("document.querySelector('#told').textContent === '3 samples'")
        assert tab.problems == []


@pytest.mark.soak
def test_samples_without_keys_are_marked_behind_a_condition(chromium: Browser) -> None:
    ds = lading.open(pa.table({"n": [*range(COUNT)]}))
    with shown_in(chromium, ds) as tab:
        tab.open("page=list&where=n >= 30", "[data-row='2'][data-id='32']")
        tab.page.locator("[data-id='32']").focus()
        tab.page.keyboard.press("d")
        tab.page.wait_for_selector("[data-id='32'][data-mark=drop]")
        assert tab.problems == []
    assert _marks(ds) == {"32": ("drop", "")}


@pytest.mark.soak
def test_files_of_keys_are_saved_or_the_page_says_why_not(chromium: Browser, keyed: lading.Dataset) -> None:
    SampleMarks(opened(keyed)).set("007", Mark("keep"))
    SampleMarks(opened(keyed)).set("no sample", Mark("drop"))
    with shown_in(chromium, keyed) as tab:
        tab.page.locator(".marks summary").click()
        with tab.page.expect_download() as saved:
            tab.page.locator("a[href*='/marks/txt?of=keep']").click()
        assert saved.value.suggested_filename == "keep.txt"
        assert Path(saved.value.path()).read_text() == "__key__\n007\n"
        assert tab.problems == []
        tab.page.locator("a[href*='/marks/csv?of=drop']").click()
        tab.page.wait_for_selector(".said.error:has-text('no sample of the dataset has this mark')")
