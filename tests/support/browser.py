"""A headless Chromium, and datasets that are served to it.

    def test_the_grid_shows_keys(chromium, ds):
        with shown_in(chromium, ds) as tab:
            tab.open("page=grid")
            assert tab.texts(".tile b") == [...]

`tests/view/conftest.py` has the fixture. Without playwright or a Chromium on PATH, tests that ask for it are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import lading
from lading._core.dataset.opened import opened
from lading._core.view.naming import Naming
from lading._core.view.serve import Address, Server
from lading._core.view.view import View
from skips import NO_BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["Tab", "browser", "shown_in"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_WAIT_MS = 20_000


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of the browser that shows a dataset.

    Attributes:
        page: playwright's.
        base: the page's URL without its query.
        problems: what the browser logged as errors, such as a script that failed, or that the policy refused.
    """

    page: Page
    base: str
    problems: list[str] = field(default_factory=list)

    def open(self, query: str = "", wait_for: str = "main *") -> None:
        """Go to a page of the dataset, and wait until it has an element."""
        self.page.goto(f"{self.base}?{query}")
        self.page.wait_for_selector(wait_for, state="attached")

    def until(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true. Playwright's own way to wait is against the page's policy."""
        end = monotonic() + _WAIT_MS / 1000
        while not self.page.evaluate(expression):
            assert monotonic() < end, f"not true within {_WAIT_MS // 1000} s: {expression}"
            self.page.wait_for_timeout(20)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements."""
        return self.page.locator(selector).all_text_contents()


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium. The test is skipped where it, or playwright, is not installed."""
    driver = pytest.importorskip("playwright.sync_api", reason=f"{NO_BROWSER} (playwright is not installed)")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"{NO_BROWSER} (no Chromium on PATH)")
    with driver.sync_playwright() as started:
        running = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def shown_in(running: Browser, dataset: lading.Dataset, *, width: int = 1200, height: int = 800) -> Iterator[Tab]:
    """Serve a dataset, and open a tab that has its token."""
    server = Server(View(opened(dataset), Naming("test", "", "ds")), Address(port=0))
    server.start()
    context = running.new_context(viewport={"width": width, "height": height})
    try:
        page = context.new_page()
        page.set_default_timeout(_WAIT_MS)
        tab = Tab(page, server.url.partition("?")[0])
        page.on("pageerror", lambda error: tab.problems.append(str(error)))
        page.on("console", lambda said: tab.problems.append(said.text) if said.type == "error" else None)
        page.goto(server.url)
        yield tab
    finally:
        context.close()
        server.close()
