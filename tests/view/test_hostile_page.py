"""Nothing of the data runs in the browser, and nothing is asked of elsewhere."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import lading
from browser import shown_in
from documents import WIDE, documents
from hostile_media import CASES
from sound_and_video import video_file
from tars import tar_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Request

SCRIPT = "<img src=x onerror=\"window.ran=1\"><script>window.ran=1;fetch('http://evil.example')</script>"
SVG = (
    b"<svg xmlns='http://www.w3.org/2000/svg' onload='parent.ran=1'><script>parent.ran=1;alert(1)</script>"
    b"<image href='http://evil.example/x.png'/><foreignObject><iframe src='javascript:parent.ran=1'/></foreignObject>"
    b"</svg>"
)
URL = "javascript:window.ran=1"
PAGES = ("grid", "list", "sample&number=0", "sample&number=1")


def _samples(path: Path) -> lading.Dataset:
    text = f"{SCRIPT} {URL} \N{RIGHT-TO-LEFT OVERRIDE}gpj.exe\0"
    fields = {"svg": SVG, "html": SCRIPT.encode(), "xml": SVG, "txt": text.encode(), "png": WIDE, "js": b"window.ran=1"}
    fields["json"] = json.dumps({SCRIPT: [SCRIPT, URL], "url": URL, "__proto__": {"x": 1}}).encode()
    members = [
        (f"{name}.{ending}", data) for name in ("<img src=x onerror='ran=1'>", "b") for ending, data in fields.items()
    ]
    path.write_bytes(tar_of(*members))
    return lading.open(path)


def _rows(path: Path) -> lading.Dataset:
    rows = [{SCRIPT: SCRIPT, "constructor": URL, "__proto__": SCRIPT, "a b": [SCRIPT]} for _ in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lading.open(path)


def _documents(path: Path) -> lading.Dataset:
    names = (SCRIPT.replace("/", "-").replace(".", "-"), "b")
    path.write_bytes(documents(*((name, [SCRIPT, WIDE, URL, SVG], {"url": URL}) for name in names)))
    return lading.open(path)


@pytest.mark.soak
@pytest.mark.parametrize("made, name", [(_samples, "in.tar"), (_rows, "in.jsonl"), (_documents, "docs.tar")])
def test_nothing_of_the_data_runs(chromium: Browser, tmp_path: Path, made: object, name: str) -> None:
    dataset = made(tmp_path / name)  # type: ignore[operator]
    with shown_in(chromium, dataset) as tab:
        asked, opened = list[str](), list[object]()

        def note(request: Request) -> None:
            asked.append(request.url)

        def close(dialog: Dialog) -> None:
            opened.append(dialog)
            dialog.dismiss()

        tab.page.on("request", note)
        tab.page.on("dialog", close)
        for page in PAGES:
            tab.open(f"page={page}")
            tab.page.wait_for_timeout(700)
            assert tab.page.evaluate("window.ran") is None
            assert "onerror=" in tab.page.content()  # as text
        links = tab.page.eval_on_selector_all("a[href]", "all => all.map(a => a.protocol)")
        assert set(links) <= {"http:"}
        assert [url for url in asked if not url.startswith((tab.base, "data:"))] == []
        assert opened == []


@pytest.mark.soak
def test_svg_is_a_picture_that_runs_nothing(chromium: Browser, tmp_path: Path) -> None:
    with shown_in(chromium, _samples(tmp_path / "in.tar")) as tab:
        asked = list[str]()
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.open("page=sample&number=1")
        tab.page.get_by_role("button", name="Show as a picture").click()
        tab.until("document.querySelector('section[data-column=svg] img').naturalWidth > 0")
        made = tab.page.evaluate(
            """async () => {
                const image = new Image();
                image.src = "/raw?number=1&column=svg&as=svg";
                await image.decode();
                return image.naturalWidth;
            }"""
        )
        assert made > 0
        assert tab.page.evaluate("window.ran") is None
        with tab.page.expect_download() as download:
            tab.page.evaluate("location.href = '/raw?number=1&column=svg&as=svg'")
        assert download.value.path().read_bytes() == SVG
        assert [url for url in asked if "evil" in url] == []


@pytest.mark.soak
def test_bombs_are_text(chromium: Browser, tmp_path: Path) -> None:
    pictures = [(f"{name.replace('*', '')}.png", made()) for name, (what, made) in CASES.items() if what == "thumbnail"]
    path = tmp_path / "in.tar"
    path.write_bytes(tar_of(*pictures, ("zz.png", WIDE)))
    with shown_in(chromium, lading.open(path)) as tab:
        tab.open("page=grid", "img.thumb")
        tab.until("[...document.images].some(image => image.complete && image.naturalWidth > 0)")
        tab.until("document.querySelectorAll('.tile .error').length >= 4")
        tiles = tab.texts(".tile")
        assert tiles[0] == "not decoded: 30000×30000 png, 57 B900-megapixel-png"
        assert len(tiles) == len(pictures) + 1


@pytest.mark.soak
def test_videos_play_by_ranges_or_are_a_frame(chromium: Browser, tmp_path: Path) -> None:
    arrays = io.BytesIO()
    np.savez(arrays, one=np.zeros((2, 3)), two=np.zeros(4, np.uint8))
    files = [
        ("0.webm", video_file(50, "webm", "libvpx-vp9")),
        ("1.webm", video_file(30, "avi")),
        ("2.npz", arrays.getvalue()),
    ]
    path = tmp_path / "in.tar"
    path.write_bytes(tar_of(*files))
    with shown_in(chromium, lading.open(path)) as tab:
        tab.open("page=sample&number=0", "video")
        tab.until("document.querySelector('video').videoWidth === 64")
        tab.page.evaluate("document.querySelector('video').currentTime = 4")
        tab.until("!document.querySelector('video').seeking")
        tab.open("page=sample&number=1", "figure.video img")
        tab.until("document.querySelector('figure.video img').naturalWidth === 64")
        tab.open("page=sample&number=2")
        tab.until("document.querySelector('main').textContent.includes('float64 2×3')")
        tab.until("document.querySelector('main').textContent.includes('uint8 4')")
