"""A number of every sample: as it was written, NaN where there is none, read once, and again when a file changes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from documents import SAMPLES, documents
from lading._core.dataset.opened import opened
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading._core.train.sample_numbers import numbers_of_samples
from lading.errors import UsageError

_COUNT = 250


def _numbers(source: Any, name: str) -> list[float | None]:
    found = numbers_of_samples(((0, opened(source)),), name)
    return [None if np.isnan(number) else number for number in found.tolist()]


def _write(folder: Path, fmt: str, scores: list[Any]) -> Path:
    with lading.writer(folder, format=fmt, rows_per_shard=100) as writer:
        for i, score in enumerate(scores):
            writer.write({"__key__": f"{i:03}", "json": {"score": score, "text": f"{score}"}, "cls": i % 7})
    return folder


@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "jsonl"])
def test_numbers_are_those_that_were_written(tmp_path: Path, fmt: str) -> None:
    scores = [None if i % 11 == 3 else i if i % 2 else i / 4 for i in range(_COUNT)]
    source = _write(tmp_path / fmt, fmt, scores)
    for _ in range(2):  # read, and then from the cache
        assert _numbers(source, "json.score") == scores
        assert _numbers(source, "cls") == [i % 7 for i in range(_COUNT)]
    some = lading.open(source).where("cls < 3").shuffle(1)[5:60]
    assert _numbers(some, "json.score") == [None if each is None else float(each) for each in some["json.score"]]
    both = lading.concat([lading.open(source), some])
    assert _numbers(both, "cls") == [i % 7 for i in range(_COUNT)] + list(some["cls"])


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    source = _write(tmp_path / "tars", "webdataset", [1] * 10)
    assert _numbers(source, "json.score") == [1] * 10
    [shard] = source.glob("*.tar")
    before = shard.stat().st_mtime_ns
    shard.write_bytes(shard.read_bytes().replace(b'"score": 1', b'"score": 2'))
    os.utime(shard, ns=(before, before))
    assert _numbers(source, "json.score") == [1] * 10
    os.utime(shard, ns=(before, before + 10**9))
    assert _numbers(source, "json.score") == [2] * 10


def test_ranks_of_a_machine_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are threads here; each opens the dataset for itself."""
    source = _write(tmp_path / "tars", "webdataset", [*range(_COUNT)])
    store = CountingStore(MemoryStore({f"box://d/{path.name}": path.read_bytes() for path in source.glob("*.tar")}))
    read = []
    for count in (1, 4):
        monkeypatch.setenv("LADING_CACHE", str(tmp_path / f"of {count}"))
        ranks = [opened("box://d", stores=Stores({"box://": store})) for _ in range(count)]
        assert [len(rank) for rank in ranks] == [_COUNT] * count
        store.reset()
        with ThreadPoolExecutor(count) as threads:
            found = threads.map(lambda rank: numbers_of_samples(((0, rank),), "json.score").tolist(), ranks)
            assert [*found] == [[*range(_COUNT)]] * count
        read.append(store.bytes_read)
    assert read[0] == read[1] > 0
    assert not [*(tmp_path / "of 4").glob("*.lock")]


def test_functions_decide_anew(tmp_path: Path) -> None:
    source, factor = _write(tmp_path / "a", "parquet", [*range(20)]), [2]
    made = lading.open(source).map(lambda sample: {"__key__": sample["__key__"], "x": sample["cls"] * factor[0]})
    for factor[0] in (2, 3):
        assert _numbers(made.limit(20), "x") == [i % 7 * factor[0] for i in range(20)]


def test_what_is_no_number_is_named(tmp_path: Path) -> None:
    source = _write(tmp_path / "tars", "webdataset", [*range(20)])
    words = r"shard-000000.tar row 0 sample '000' column 'json.text': the value is no number; .* found '0'"
    with pytest.raises(UsageError, match=words):
        _numbers(source, "json.text")
    with pytest.raises(UsageError, match=r"no sample has this field.*json\.score"):
        _numbers(source, "json.sccore")


def test_a_document_has_one_number(tmp_path: Path) -> None:
    (tmp_path / "docs.tar").write_bytes(documents(*SAMPLES))
    scores = [fields.get("score") for _, _, fields in SAMPLES]
    assert _numbers(tmp_path / "docs.tar", "score") == scores
    images = [sum(isinstance(item, bytes) for item in items) for _, items, _ in SAMPLES]
    assert _numbers(tmp_path / "docs.tar", "items.image") == images
