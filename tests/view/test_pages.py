"""The pages in a browser: what they show is what `ds[i]` gives."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from PIL import Image

import lading
from browser import Tab, shown_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNT = 150


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> lading.Dataset:
    path = tmp_path_factory.mktemp("pages") / "in"
    with lading.writer(path, format="webdataset", rows_per_shard=40) as writer:
        for i in range(COUNT):
            picture = Image.new("RGB", (64 + i, 48), (i, 0, 0))
            writer.write({"__key__": f"{i:03}", "jpg": picture, "json": {"score": i / 2}, "txt": f"text {i}"})
    return lading.open(path)


@pytest.mark.mechanism("the page in a browser")
def test_the_grid_keeps_its_place_while_samples_are_looked_at(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.until("[...document.images].some((image) => image.naturalWidth > 0)")
        assert tab.texts(".tile b")[:3] == ["000", "001", "002"]
        tab.page.keyboard.press("End")
        tab.until(f"document.activeElement.dataset.number === '{COUNT - 1}'")
        tab.page.keyboard.press("ArrowLeft")
        tab.page.keyboard.press("Enter")
        assert _opened(tab) == "148"
        tab.page.keyboard.press("ArrowRight")
        assert _opened(tab, "149") == "149"
        tab.page.keyboard.press("ArrowRight")  # there is none
        tab.page.keyboard.press("Escape")
        tab.until("document.activeElement.dataset.number === '149'")
        assert tab.page.evaluate("document.querySelector('.grid').scrollTop") > 0
        assert tab.problems == []


def _opened(tab: Tab, key: str = "") -> str:
    wanted = f"[data-key='{key}']" if key else ""
    tab.page.wait_for_selector(f"article.sample{wanted}")
    return tab.texts("article h2")[0]


@pytest.mark.soak
def test_columns_and_fields_inside_them_are_chosen(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.open("page=list&number=5", ".cells:not(.waiting):not(.head)")
        assert tab.texts(".head .name") == ["__key__", "jpg", "json", "txt"]
        tab.page.get_by_text("Columns").click()
        tab.page.locator("[data-name=json]").click()
        tab.page.get_by_label("Field", exact=True).fill("json.score")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector("a.cells [data-column='json.score'] .value")
        assert tab.texts(".head .name") == ["__key__", "jpg", "txt", "json.score"]
        shown = tab.texts("a.cells [data-column='json.score']")[:5]
        assert shown == [str(sample["json"]["score"]) for sample in photos.head(5)]
        tab.page.keyboard.press("Escape")
        for way in ("asc", "desc"):
            tab.page.get_by_role("columnheader", name="json.score").get_by_role("button").click()
            tab.page.wait_for_selector(f"[aria-sort={way}ending]")
        tab.page.wait_for_selector(f"a.cells[data-number='0'][data-key='{COUNT - 1:03}']")
        assert tab.problems == []


@pytest.mark.soak
@pytest.mark.parametrize("page", ["grid", "list", "sample"])
def test_narrow_screens_show_all(chromium: Browser, photos: lading.Dataset, page: str) -> None:
    with shown_in(chromium, photos, width=400, height=700) as tab:
        tab.open(f"page={page}&size=large", "[data-key]")
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 400
        if page != "list":
            assert tab.page.evaluate("document.getElementById('main').scrollWidth") <= 400


@pytest.mark.soak
def test_tiles_do_not_move_when_pictures_come(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        places = "JSON.stringify([...document.querySelectorAll('.tile')].map((tile) => tile.getBoundingClientRect()))"
        tab.page.wait_for_selector(".tile[data-key]")
        before = tab.page.evaluate(places)
        tab.until("[...document.images].every((image) => image.naturalWidth > 0)")
        assert tab.page.evaluate(places) == before


@pytest.mark.soak
def test_a_picture_is_enlarged_and_moved_by_keys(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.open("page=sample&number=3", ".frame")
        tab.page.locator(".frame").focus()
        tab.page.keyboard.press("+")
        assert "scale(1.5)" in str(tab.page.locator(".frame img").get_attribute("style"))
        tab.page.keyboard.press("ArrowRight")  # moves the picture, and shows no other
        assert tab.texts("article h2") == ["003"]
        tab.page.keyboard.press("0")
        assert "scale" not in str(tab.page.locator(".frame img").get_attribute("style"))
        tab.page.keyboard.press("?")
        assert "Escape" in tab.texts("dialog dt")


@pytest.mark.soak
def test_values_are_shown_as_they_are_written(chromium: Browser, tmp_path: Path) -> None:
    meta = '{"id": 12345678901234567890, "x": 1.50, "deep": {"a": {"b": {"c": [null, true, "<b>"]}}}}'
    rows = [{"text": "\u0627\u0644\u0633\u0644\u0627\u0645 <i>\n  line", "meta": meta, "none": None}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with shown_in(chromium, lading.open(tmp_path / "in.jsonl")) as tab:
        tab.open("page=sample&number=0", "article")
        assert tab.texts("[data-column=text] .value") == [rows[0]["text"]]
        assert (
            tab.page.evaluate("getComputedStyle(document.querySelector('[data-column=text] div.text')).direction")
            == "rtl"
        )
        assert tab.texts("[data-column=none] .value") == ["null"]


@pytest.mark.soak
def test_json_folds_and_keeps_its_numbers(chromium: Browser, tmp_path: Path) -> None:
    meta = '{"id": 12345678901234567890, "x": 1.50, "deep": {"a": {"b": {"c": [null, true, "<b>"]}}}}'
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        writer.write({"__key__": "a", "json": meta.encode()})
    with shown_in(chromium, lading.open(tmp_path / "in")) as tab:
        tab.open("page=sample&number=0", ".tree")
        tab.page.get_by_text("Unfold all").click()
        [text] = tab.texts(".tree")
        assert '"id": 12345678901234567890,"x": 1.50' in text
        assert json.loads(text) == json.loads(meta)
        tab.page.get_by_text("Fold all", exact=True).click()
        assert tab.page.locator(".tree details[open]").count() == 0


@pytest.mark.soak
def test_pages_without_samples_say_why(chromium: Browser, photos: lading.Dataset, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="parquet"):
        pass
    with shown_in(chromium, lading.open(tmp_path / "in")) as tab:
        for page in ("grid", "list"):
            tab.open(f"page={page}", ".says")
            assert tab.texts(".says h2") == ["An empty dataset"]
    with shown_in(chromium, photos) as tab:
        tab.open("where=json.score+%3C+0", ".says")
        assert tab.texts(".says h2") == ["No samples"]


@pytest.mark.soak
def test_the_rest_of_a_long_text_is_that_of_its_item(chromium: Browser, tmp_path: Path) -> None:
    long = "x" * 250_000
    texts = {"sample_id": ["a", "a"], "position": pa.array([0, 1], pa.int32()), "modality": ["text", "text"]}
    table = pa.table({**texts, "text_content": ["short", long]})
    with lading.writer(tmp_path / "in", format="parquet", view="interleaved") as writer:
        writer.write_batch(table)
    with shown_in(chromium, lading.open(tmp_path / "in")) as tab:
        tab.open("page=sample&number=0", "article .more a")
        assert (
            tab.page.evaluate("async () => (await (await fetch(document.querySelector('.more a').href)).text())")
            == long
        )
        assert tab.page.text_content("#told") == "1 sample"
        assert tab.problems == []


@pytest.mark.soak
def test_a_tile_shows_what_a_sample_has(chromium: Browser, tmp_path: Path) -> None:
    """Samples of one dataset may have pictures in different columns."""
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for i in range(30):
            writer.write({"__key__": f"{i:02}", ("png" if i % 3 else "jpg"): Image.new("RGB", (20, 20)), "txt": "a"})
    with shown_in(chromium, lading.open(tmp_path / "in")) as tab:
        tab.open("page=grid", ".tile .face img")
        tab.until("document.querySelectorAll('.tile .face img').length >= 18")
        assert tab.texts(".tile .null") == []
        assert tab.problems == []


@pytest.mark.soak
def test_a_server_that_has_ended_is_said(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos.limit(1)) as tab:
        tab.until("document.getElementById('told').textContent === '1 sample'")
        tab.page.route("**/api/sample*", lambda route: route.abort())
        tab.page.keyboard.press("Home")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector("text=the server does not answer: start it again")


@pytest.mark.soak
def test_a_page_without_a_dataset_says_why(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.page.route("**/api/dataset*", lambda route: route.fulfill(status=500, json={"error": "no way"}))
        tab.page.reload()
        tab.page.wait_for_selector("h2:has-text('The dataset cannot be shown')")
        assert tab.texts(".says .error") == ["no way"]


@pytest.mark.soak
def test_the_pictures_of_a_list_fill_a_tile(chromium: Browser) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (30, 20)).save(picture, "png")
    files = [{"bytes": picture.getvalue(), "path": "a.png"}]
    with shown_in(chromium, lading.open(pa.table({"pictures": [files, files * 2, files * 4]}))) as tab:
        tab.open("page=grid", ".pictures.of4 img")
        wide = "(one) => document.querySelector(one).getBoundingClientRect().width"
        [tile, single, half] = [tab.page.evaluate(wide, one) for one in (".face", ".of1 img", ".of2 img")]
        assert single == tile
        assert half == pytest.approx(tile / 2, abs=2)
