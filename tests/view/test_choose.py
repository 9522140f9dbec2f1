"""The form that chooses samples, and the statistics, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from PIL import Image

import lading
from browser import Tab, shown_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.soak
COUNT = 90


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> lading.Dataset:
    path = tmp_path_factory.mktemp("choose") / "in"
    with lading.writer(path, format="webdataset", rows_per_shard=40) as writer:
        for i in range(COUNT):
            facts = {"score": i / 2, "lang": ("en", "de", "it's")[i % 3], "deep": {"a b": i % 2}}
            writer.write({"__key__": f"k{i:03}", "jpg": Image.new("RGB", (64 + i, 48)), "json": facts, "txt": "x" * i})
    return lading.open(path)


def _counted(tab: Tab, count: int) -> None:
    tab.until(f"document.getElementById('told').textContent === '{count:,} samples'")


def _keys(tab: Tab) -> list[str]:
    tab.page.wait_for_selector(".tile b")
    return tab.texts(".tile b")


def test_a_condition_is_completed_counted_and_gone_back_from(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        _counted(tab, COUNT)
        box = tab.page.get_by_role("combobox", name="Condition")
        tab.page.keyboard.press("/")
        box.press_sequentially("json.la")
        tab.page.wait_for_selector(".completions li")
        assert tab.texts(".completions:not([hidden]) li > span")[0] == "json.lang"
        box.press("Tab")
        box.press_sequentially(" == ")
        tab.page.wait_for_selector(".completions:not([hidden]) li")
        assert sorted(tab.texts(".completions:not([hidden]) li > span")) == ['"it\'s"', "'de'", "'en'"]
        box.press_sequentially('"i')
        box.press("ArrowDown")
        box.press("Enter")
        assert box.input_value() == 'json.lang == "it\'s"'
        box.press("Enter")
        _counted(tab, COUNT // 3)
        assert _keys(tab)[:2] == ["k002", "k005"]
        tab.page.get_by_role("button", name="More").click()
        python = tab.texts("[data-line=Python]")[0]
        assert eval(python, {"ds": photos})["__key__"].to_pylist() == [f"k{i:03}" for i in range(2, COUNT, 3)]
        with tab.page.context.expect_page() as beside:  # a page in a tab of its own has the same samples
            tab.page.get_by_role("link", name="List").click(modifiers=["Control"])
        beside.value.wait_for_selector("[data-key=k002]")
        beside.value.get_by_text(f"{COUNT // 3} samples", exact=True).wait_for()
        beside.value.close()
        tab.page.go_back()
        _counted(tab, COUNT)
        assert box.input_value() == ""
        tab.page.go_forward()
        _counted(tab, COUNT // 3)
        tab.page.reload()
        _counted(tab, COUNT // 3)
        assert tab.problems == []


def test_a_wrong_condition_is_told_with_its_place(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        _counted(tab, COUNT)
        box = tab.page.get_by_role("combobox", name="Condition")
        for wrong, place in (("json.lang = 'en'", ["= 'en'"]), ("txt > 3", ["txt > 3"]), ("nothing > 3", [])):
            box.fill(wrong)
            box.press("Enter")
            tab.until(f"document.getElementById('wrong').textContent.includes('{wrong.split()[0]}')")
            assert tab.texts("#wrong mark") == place
            assert box.get_attribute("aria-invalid") == "true"
            assert tab.texts("main h2") == ["No samples"]
        tab.page.get_by_role("button", name="Reset").click()
        _counted(tab, COUNT)
        assert (box.input_value(), tab.texts("#wrong")) == ("", [""])


def test_sort_shuffle_and_sample_are_in_the_url(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.page.get_by_role("button", name="More").click()
        tab.page.get_by_label("Sort by").fill("json.score")
        tab.page.get_by_label("Direction").select_option("largest first")
        tab.page.get_by_role("button", name="Apply").click()
        _counted(tab, COUNT)
        tab.until("document.querySelector('.tile b')?.textContent === 'k089'")
        assert "sort=json.score%3Adesc" in tab.page.url
        tab.page.get_by_label("Sample", exact=True).fill("10")
        tab.page.get_by_label("Shuffle").check()
        tab.page.get_by_label("Seed").fill("3")
        tab.page.get_by_role("button", name="Apply").click()
        _counted(tab, 10)
        expected = photos.sample(10, seed=3).shuffle(3)["__key__"].to_pylist()
        tab.until(f"document.querySelector('.tile b')?.textContent === '{expected[0]}'")
        assert _keys(tab) == expected
        tab.page.get_by_role("button", name="shuffled").click()
        tab.until(f"document.querySelector('.tile b')?.textContent === '{min(expected)}'")
        assert tab.problems == []


@pytest.mark.parametrize("jump, key", [("41", "k041"), ("k017", "k017"), ("'k018'", "k018")])
def test_jumps_by_number_and_by_key(chromium: Browser, photos: lading.Dataset, jump: str, key: str) -> None:
    with shown_in(chromium, photos) as tab:
        tab.page.get_by_role("button", name="More").click()
        place = tab.page.get_by_label("Number or key")
        place.fill(jump)
        place.press("Enter")
        tab.page.wait_for_selector("article.sample")
        assert tab.texts("article h2") == [key]
        place.fill("none")
        place.press("Enter")
        tab.until("document.getElementById('wrong').textContent.includes('no sample has this key')")


def test_a_click_on_a_bar_shows_its_samples(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        for what, choose in (
            ("json.score", ".bar >> nth=4"),
            ("json.lang", "li button >> nth=1"),
            ("jpg.width", ".bar >> nth=7"),
        ):
            tab.open("page=statistics", wait_for=".card")
            assert tab.texts(".card h3")[0].split() == ["jpg", "image"]
            chosen = tab.page.locator(f"[data-column='{what}'] {choose}")
            where = chosen.get_attribute("data-where")
            assert where is not None
            chosen.click()
            expected = photos.where(where)["__key__"].to_pylist()
            assert 0 < len(expected) < COUNT
            _counted(tab, len(expected))
            assert _keys(tab)[: len(expected)] == expected
        assert tab.problems == []
