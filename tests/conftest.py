"""Fixtures that every test may ask for."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from golden_cases import ARCHIVES, Golden


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """`golden("wds")`: the folder of a family's cases, unpacked once a session. Copy a case before changing it."""
    unpacked: dict[str, Path] = {}

    def family(name: str) -> Path:
        if name not in unpacked:
            folder = tmp_path_factory.mktemp(f"golden-{name}")
            with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")
            unpacked[name] = folder
        return unpacked[name]

    return family
