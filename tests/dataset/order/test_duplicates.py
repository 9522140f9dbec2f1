"""Equal hashes among many, with and without temporary files."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from lading._core.dataset.order.duplicates import DuplicateFinder


def _found(hashes: np.ndarray, held_bytes: int, *, keep_last: bool = False) -> tuple[np.ndarray, np.ndarray, int]:
    places = np.arange(len(hashes), dtype=np.int64)
    with DuplicateFinder(held_bytes) as finder:
        for first in range(0, len(hashes), 10_000):
            some = slice(first, first + 10_000)
            finder.add(hashes[some], places[some])
        tracemalloc.start()
        dropped, kept = finder.duplicates(keep_last=keep_last)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return dropped, kept, peak


@pytest.fixture
def hashes() -> np.ndarray:
    """400,000 hashes, a third of which come again."""
    rng = np.random.default_rng(4)
    distinct = rng.integers(0, 256, (280_000, 16), np.uint8)
    return distinct[rng.integers(0, len(distinct), 400_000)]


@pytest.mark.soak
@pytest.mark.parametrize("keep_last", [False, True])
def test_files_give_the_answer_of_memory(
    hashes: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_last: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = hashes.view("V16").ravel()
    seen: dict[bytes, int] = {}
    order = range(len(names)) if not keep_last else range(len(names) - 1, -1, -1)
    texts = [name.tobytes() for name in names]
    for i in order:
        seen.setdefault(texts[i], i)
    expected = {i: seen[text] for i, text in enumerate(texts) if seen[text] != i}
    in_memory = _found(hashes, 1 << 30, keep_last=keep_last)
    in_files = _found(hashes, 1 << 20, keep_last=keep_last)
    for dropped, kept, _ in (in_memory, in_files):
        assert dict(zip(dropped.tolist(), kept.tolist(), strict=True)) == expected
        assert (np.diff(dropped) > 0).all()
    # A 256th of 10 MB is sorted at once; the answer takes 16 bytes a duplicate, thrice while it is put together.
    assert in_files[2] < in_memory[2] / 2
    assert in_files[2] < 16 * len(expected) * 3 + (4 << 20)
    assert os.listdir(tmp_path) == []


def test_no_hashes() -> None:
    dropped, kept, _ = _found(np.zeros((0, 16), np.uint8), 1 << 20)
    assert len(dropped) == len(kept) == 0
