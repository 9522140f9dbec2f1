"""Where a dataset may appear, and that what lies there stays unless it is to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lading
from lading.errors import DestinationExists, UsageError


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


def _texts(folder: Path | str) -> list[str]:
    with lading.open(folder) as dataset:
        return [sample["txt"] for sample in dataset]


@pytest.mark.parametrize("folder", ["out", "memory://writers/out"])
def test_of_two_writers_of_one_place_the_second_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (lading.writer(folder, format="jsonl") for _ in range(2))
    one.write({"txt": "first"})
    other.write({"txt": "second"})
    one.close()
    with pytest.raises(DestinationExists, match=rf"^{folder}: "):
        other.close()
    assert _texts(folder) == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * (folder == "out")


def test_what_a_user_puts_there_meanwhile_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = lading.writer(out, format="jsonl")
    writer.write({"txt": "a"})
    (out / "mine").write_text("kept")
    with pytest.raises(DestinationExists):
        writer.close()
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("mine", "kept")]
    with lading.writer(out, format="jsonl", overwrite=True) as writer:
        writer.write({"txt": "a"})
    assert _texts(out) == ["a"]


@pytest.mark.parametrize("inside", ["", "empty", ".x.lading-0123456789abcdef.tmp"])
def test_a_folder_without_files_is_nothing(inside: str, tmp_path: Path) -> None:
    (tmp_path / "out" / inside).mkdir(parents=True)
    _written(tmp_path / "out", "a")
    assert _texts(tmp_path / "out") == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_rank_may_write_into_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces nothing but files of its own."""
    monkeypatch.chdir(tmp_path)
    with lading.writer(".", format="jsonl", rank=3) as writer:
        writer.write({"txt": "a"})
    with lading.open(tmp_path) as dataset:
        assert [sample["txt"] for sample in dataset] == ["a"]
