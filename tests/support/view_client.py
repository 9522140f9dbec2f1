"""Clients of `lading view` without a server: requests go to the application at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

import lading
from lading._core.dataset.opened import opened
from lading._core.view.app import app_of
from lading._core.view.naming import Naming
from lading._core.view.view import View

__all__ = ["BASE", "TOKEN", "viewing"]

BASE, TOKEN = "http://localhost:8421", "secret words"


@contextmanager
def viewing(source: Any, **opening: Any) -> Iterator[TestClient]:
    """A client that has the token, for a dataset or the name of one."""
    data = source if isinstance(source, lading.Dataset) else lading.open(source, **opening)
    view = View(opened(data), Naming("data", "data", "lading.open('data')"))
    client = TestClient(app_of(view, TOKEN), base_url=BASE)
    client.get("/", params={"token": TOKEN})
    try:
        yield client
    finally:
        view.close()
