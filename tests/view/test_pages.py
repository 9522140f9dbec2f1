"""The pages in a browser: what they show is what `ds[i]` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from PIL import Image

import lading
from browser import shown_in

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
def test_the_grid_shows_pictures_and_opens_one(chromium: Browser, photos: lading.Dataset) -> None:
    with shown_in(chromium, photos) as tab:
        tab.until("[...document.images].some((image) => image.naturalWidth > 0)")
        assert tab.texts(".tile b")[:3] == ["000", "001", "002"]
        tab.page.locator("[data-number='2']").click()
        tab.page.wait_for_selector("article.sample")
        assert tab.texts("article h2") == ["002"]
        assert tab.problems == []
