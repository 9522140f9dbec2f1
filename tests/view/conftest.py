"""The browser of the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Chromium, for the tests of one file: playwright holds an event loop, which other tests may not meet."""
    with browser() as running:
        yield running
