"""Where a dataset may appear, and that what lies there stays unless it is to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lading
from lading.errors import UsageError


def _written(folder: Path, *texts: str) -> None:
    with lading.writer(folder, format="jsonl") as writer:
        for text in texts:
            writer.write({"txt": text})


def _into(destination: str) -> None:
    lading.writer(destination, overwrite=True)


def _converted(destination: str) -> None:
    lading.convert("../src", destination, format="parquet", overwrite=True)


def _salvaged(destination: str) -> None:
    lading.salvage("../src", destination, overwrite=True)


def _merged(destination: str) -> None:
    lading.merge(destination, overwrite=True)


@pytest.mark.parametrize("job", [_into, _converted, _salvaged, _merged])
@pytest.mark.parametrize("destination", ["", "/", "file:///", "memory://"])
def test_a_destination_without_a_name_is_refused(
    destination: str, job: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / "src", "a")
    _written(tmp_path / "here", "mine")
    monkeypatch.chdir(tmp_path / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="names no folder"):
        job(destination)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("job", [_into, _converted, _salvaged])
@pytest.mark.parametrize("destination", [".", "..", "file://.", "../../up/here"])
def test_the_current_directory_is_not_replaced(
    destination: str, job: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / "src", "a")
    (tmp_path / "up" / "here").mkdir(parents=True)
    (tmp_path / "up" / "src").symlink_to(tmp_path / "src")
    monkeypatch.chdir(tmp_path / "up" / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="current directory"):
        job(destination)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_rank_may_write_into_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces nothing but files of its own."""
    monkeypatch.chdir(tmp_path)
    with lading.writer(".", format="jsonl", rank=3) as writer:
        writer.write({"txt": "a"})
    with lading.open(tmp_path) as dataset:
        assert [sample["txt"] for sample in dataset] == ["a"]
