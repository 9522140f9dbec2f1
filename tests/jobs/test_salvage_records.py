"""Salvage of media archives in which records moved: each sample that is kept has the bytes that it had."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import lading
from lading.errors import DataError
from lading.jobs.salvage import salvage
from lading.store.memory import MemoryStore
from lading.store.open import Stores

_ROWS, _BYTES = 60, 300
_FRAMED_BYTES = _BYTES + 5
"""A record of so many bytes that do not pack, as zstd frames it."""


def bytes_of_samples(sizes: str) -> dict[str, bytes]:
    """Values of one size, of one size for the most part, or of any."""
    random = Random(sizes)

    def size(number: int) -> int:
        return _BYTES if sizes == "one" or (sizes == "mostly one" and number % 10) else random.randrange(50, 500)

    return {f"{number:05d}": random.randbytes(size(number)) for number in range(_ROWS)}


def written(out: Path, values: dict[str, bytes]) -> Path:
    """A media archive of these; gives the file that holds them."""
    with lading.writer(out, format="media_archive") as writer:
        writer.write_batch(pa.table({"__key__": [*values], "bin": [*values.values()]}))
    [archive] = out.glob("*.bin.zst")
    return archive


def changed(body: bytes, by_bytes: int) -> bytes:
    """With so many bytes less, or more, from a third of it on."""
    at = len(body) // 3 + 37
    return body[:at] + (body[at - by_bytes :] if by_bytes < 0 else Random(0).randbytes(by_bytes) + body[at:])


def saved(out: Path) -> dict[str, bytes]:
    with lading.open(out) as dataset:
        return {sample["__key__"]: sample["bin"] for sample in dataset}


def saved_bare(out: Path) -> dict[str, bytes]:
    """Where nothing says that the one medium of a document is a field."""
    with lading.open(out, format="media_archive") as dataset:
        return {sample["__key__"]: sample["media"][0]["media_bytes"] for sample in dataset}


def test_records_are_as_long_as_the_cuts_that_are_tried(tmp_path: Path) -> None:
    assert written(tmp_path / "source", bytes_of_samples("one")).stat().st_size == _ROWS * _FRAMED_BYTES


@pytest.mark.parametrize("by_bytes", [-_FRAMED_BYTES, -70, 70, _FRAMED_BYTES])
@pytest.mark.parametrize("sizes", ["one", "mostly one", "any"])
def test_what_is_kept_is_what_it_was(sizes: str, by_bytes: int, tmp_path: Path) -> None:
    source, values = tmp_path / "source", bytes_of_samples(sizes)
    archive = written(source, values)
    archive.write_bytes(changed(archive.read_bytes(), by_bytes))
    result = salvage(source, tmp_path / "out")
    kept = saved(tmp_path / "out")
    assert kept.items() <= values.items()
    assert _ROWS - 3 <= len(kept) == _ROWS - result.lost_samples < _ROWS

    shutil.rmtree(source / "_lading")  # now nothing but where a record lies says whose it is
    if sizes == "one" and abs(by_bytes) == _FRAMED_BYTES:
        with pytest.raises(DataError, match="not one sample is left"):
            salvage(source, tmp_path / "bare", source_format="media_archive")
        return
    result = salvage(source, tmp_path / "bare", source_format="media_archive")
    kept = saved_bare(tmp_path / "bare")
    assert kept.items() <= values.items()
    assert len(kept) == _ROWS - result.lost_samples < _ROWS
    if sizes == "any" or abs(by_bytes) != _FRAMED_BYTES:
        assert len(kept) >= _ROWS - 4


@pytest.mark.parametrize("by_bytes", [-_FRAMED_BYTES, _FRAMED_BYTES])
def test_archives_of_another_store_are_copied_to_be_read(by_bytes: int, tmp_path: Path) -> None:
    values = bytes_of_samples("one")
    archive = written(tmp_path / "source", values)
    archive.write_bytes(changed(archive.read_bytes(), by_bytes))
    files = {
        f"memory://far/{path.relative_to(tmp_path / 'source')}": path.read_bytes()
        for path in (tmp_path / "source").rglob("*")
        if path.is_file()
    }
    salvage("memory://far", tmp_path / "out", stores=Stores({"memory://far": MemoryStore(files)}))
    kept = saved(tmp_path / "out")
    assert kept.items() <= values.items()
    assert len(kept) >= _ROWS - 3
