"""What the tests with peers share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest

from peers import import_peer


@pytest.fixture(scope="session")
def documents() -> Iterator[str]:
    """Pattern of the two tars of real interleaved documents in the package."""
    with resources.as_file(resources.files("lading._core.data")) as folder:
        yield f"{folder}/*.tar"


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Hugging Face datasets, with a home of its own and no way out."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    return import_peer("datasets")
