"""Shards have the size on disk that was asked for, and any cut keeps samples, their order and their digest."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import UsageError

_WORDS = [f"word{number * 7919 % 10007}" for number in range(2000)]
_TARGETS = ["webdataset", "parquet", "jsonl", "mds", "arrow"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20 MB of bytes that do not shrink, of many sizes, and of short texts, in six tars."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    with lading.writer(folder / "tars", format="webdataset", rows_per_shard=200) as writer:
        for number in range(1150):
            size = int(rng.lognormal(9.4, 0.8))
            text = " ".join(rng.choice(_WORDS, 12))
            writer.write({"__key__": f"{number:06}", "jpg": b"\xff\xd8\xff" + rng.bytes(size), "txt": text})
    return folder / "tars"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 16 MB of JSON Lines that shrink, in five files."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("texts")
    for number in range(5):
        lines = (
            {"id": number * 4000 + row, "text": " ".join(rng.choice(_WORDS, rng.integers(5, 200))), "score": row / 7}
            for row in range(4000)
        )
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def sizes(folder: Path) -> list[int]:
    return [row["size_bytes"] for row in pa.ipc.open_file(folder / "_lading" / "shards.arrow").read_all().to_pylist()]


@pytest.fixture
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source of 20 MB is, unless a fixture for other tests says otherwise."""
    monkeypatch.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 64 << 20)


_WRITTEN: list[tuple[str, str, dict[str, Any]]] = [
    *(("images", target, {}) for target in ["webdataset", "parquet", "mds", "arrow"]),
    *(("texts", target, {}) for target in ["parquet", "mds", "jsonl", "arrow"]),
    ("texts", "mds", {"compression": "zstd"}),
    ("texts", "jsonl", {"compression": "gzip"}),
    ("texts", "arrow", {"compression": "zstd"}),
    ("texts", "webdataset", {"compression": "gzip"}),
]
"""Sources, formats and options, so that `some_pairs` gives every format both sizes."""


@pytest.mark.soak
@pytest.mark.parametrize("written, size", [*product([*_WRITTEN], [1_000_000, 3_000_000])])
@pytest.mark.usefixtures("one_task")
def test_all_shards_but_the_last_are_within_a_tenth(
    written: tuple[str, str, dict[str, Any]], size: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind, target, options = written
    source = request.getfixturevalue(kind)
    lading.convert(source, tmp_path / "out", format=target, options=options, shard_size=size)
    *most, last = sizes(tmp_path / "out")
    assert most
    assert all(0.9 * size <= each <= 1.1 * size for each in most), most
    assert last <= 1.1 * size


@pytest.mark.soak
@pytest.mark.parametrize("target", ["parquet", "webdataset"])
def test_the_same_bytes_with_any_number_of_workers(target: str, images: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        lading.convert(
            images, tmp_path / str(workers), format=target, shard_size="500KB", workers=workers, where="len(txt) > 0"
        )  # a filter is worth workers

    def written(number: int) -> dict[str, bytes]:
        folder = tmp_path / str(number)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert written(1) == written(3)


@pytest.mark.soak
@pytest.mark.parametrize(
    "target, cut", [*product(_TARGETS, [{"num_shards": 7}, {"rows_per_shard": 300}, {"shard_size": "2MB"}])]
)
def test_a_cut_keeps_samples_and_their_order(target: str, cut: dict[str, Any], texts: Path, tmp_path: Path) -> None:
    source = lading.open(texts).limit(2000)
    source.repartition(**cut).write(tmp_path / "step", format=target)
    source.write(tmp_path / "argument", format=target, **cut)
    with lading.open(tmp_path / "step") as step, lading.open(tmp_path / "argument") as argument:
        counts = [len(shard) for shard in step.shards]
        assert counts == [len(shard) for shard in argument.shards]
        assert step.take(range(2000), ["id"])["id"].to_pylist() == list(range(2000))
        assert lading.digest(step).ordered == lading.digest(source).ordered
    if "num_shards" in cut:
        assert counts == [286] * 5 + [285] * 2
    if "rows_per_shard" in cut:
        assert counts == [300] * 6 + [200]


def test_documents_are_counted_whole(docs: Path, tmp_path: Path) -> None:
    source = lading.open(docs)
    done = source.write(tmp_path / "out", format="parquet", num_shards=3)
    found = [pq.read_table(path)["sample_id"].to_pylist() for path in sorted((tmp_path / "out").glob("*.parquet"))]
    counts = [len(dict.fromkeys(ids)) for ids in found]
    assert (done.shards, sum(counts), max(counts) - min(counts) <= 1) == (3, len(source), True)
    assert all(one[-1] != other[0] for one, other in pairwise(found))


@pytest.mark.soak
def test_cuts_that_cannot_be_are_refused(texts: Path, tmp_path: Path) -> None:
    ds = lading.open(texts).limit(5)
    with pytest.raises(UsageError, match="fewer samples than shards"):
        ds.write(tmp_path / "out", format="parquet", num_shards=6)
    for wrong in ({}, {"num_shards": 2, "shard_size": 5}, {"num_shards": 0}, {"rows_per_shard": -1}):
        with pytest.raises(UsageError):
            ds.repartition(**wrong)
    assert not (tmp_path / "out").exists()
    ds.repartition(num_shards=2).write(tmp_path / "out", format="parquet", rows_per_shard=1)
    assert len(sizes(tmp_path / "out")) == 5
