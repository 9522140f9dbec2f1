"""What the tests with peers share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import pytest


@pytest.fixture(scope="session")
def documents() -> Iterator[str]:
    """Pattern of the two tars of real interleaved documents in the package."""
    with resources.as_file(resources.files("lading.data")) as folder:
        yield f"{folder}/*.tar"
