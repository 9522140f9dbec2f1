#!/usr/bin/env python3
"""Pictures of the page of `lading view`: the documents that ship with the package → `docs/img/view-*.png`.

    python docs/make_screenshots.py

It needs playwright, and a Chromium on PATH.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import lading

HERE = Path(__file__).parent / "img"
SIZE = {"width": 1120, "height": 700}
COLOURS = 128
"""Of a picture: with these, each takes less than 150 KB."""


def prepare() -> None:
    """The shipped documents in `docs/`, and each of their pictures as a sample in `pictures/`."""
    os.mkdir("docs")
    for file in resources.files("lading._core.data").iterdir():
        if file.name.endswith(".tar"):
            Path("docs", file.name).write_bytes(file.read_bytes())
    with lading.writer("pictures", format="webdataset") as writer:
        for number, sample in enumerate(lading.open("docs").with_decode(decode=False)):
            for picture in _pictures(number, sample):
                writer.write(picture)


def _pictures(number: int, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = str(document["sample_id"]).rpartition("/")[2].partition(".")[0]
    for item in document["items"]:
        if item["modality"] == "image":
            facts = {"page": document["title"], "position": item["position"], "words": document["n_words"]}
            with Image.open(io.BytesIO(item["binary_content"])) as image:
                key = f"{number:02}-{name}-{item['position']:02}"
                yield {"__key__": key, "png": image.convert("RGBA").convert("RGB"), "json": facts}


@contextmanager
def shown(browser: Browser, source: str, scheme: str = "light") -> Iterator[Page]:
    """A tab that shows a dataset."""
    page = lading.open(source).show(browser=False)
    context = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=1.5)  # type: ignore[arg-type]
    try:
        tab = context.new_page()
        tab.goto(page.url)
        yield tab
    finally:
        context.close()
        page.close()


def save(tab: Page, name: str) -> None:
    """Wait until pictures are there, and write what the tab shows."""
    tab.wait_for_load_state("networkidle")
    with Image.open(io.BytesIO(tab.screenshot())) as image:
        small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(HERE / f"view-{name}.png", optimize=True)


def main() -> None:
    """Make them all."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        os.chdir(folder)
        os.environ["XDG_DATA_HOME"] = os.environ["LADING_CACHE"] = folder
        prepare()
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with shown(browser, "pictures") as tab:
            tab.wait_for_selector("[data-row='5']")
            for number, key in ((0, "k"), (2, "d"), (3, "k")):
                tab.focus(f"[data-row='{number}']")
                tab.keyboard.press(key)
                tab.wait_for_selector(f"[data-row='{number}'][data-mark]")
            tab.reload()
            tab.wait_for_selector("[data-row='3'][data-mark]")
            save(tab, "grid")
            tab.goto(tab.url.partition("?")[0] + "?page=statistics")
            tab.wait_for_selector(".card .bar")
            save(tab, "statistics")
        with shown(browser, "docs", "dark") as tab:
            tab.goto(tab.url.partition("?")[0] + "?page=sample&number=2")
            tab.wait_for_selector("article img")
            save(tab, "document")
        browser.close()


if __name__ == "__main__":
    main()
