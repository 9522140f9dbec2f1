"""Each line of the table of LitData in `docs/coming-from.md`: lading's side alone.

litdata needs boto3, which is not among the pinned peers. Its side was run by hand with litdata 0.2.76: 48 of 50 samples
with `drop_last`, shares that are drawn, splits of 45 and 5, five blocks of 33 of 197 tokens, and files as bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from doc_tables import Table

pytestmark = pytest.mark.interop

TABLE = Table("LitData")

COUNT = 50
SAMPLES = [{"number": i, "txt": "word " * (i % 7 + 1)} for i in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples in Arrow shards."""
    path = tmp_path_factory.mktemp("samples") / "out"
    with lading.writer(path, format="arrow", shard_size="64MB") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    return path


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["number"]]


@TABLE.line('`optimize(fn, inputs, output_dir, chunk_bytes="64MB")`')
def test_data_are_read_as_they_lie(folder: Path, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="arrow", shard_size="1KB") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert len([*(tmp_path / "out").glob("*.arrow")]) > 1 == len([*folder.glob("*.arrow")])
    for name in ("webdataset", "parquet", "mds"):
        lading.convert(folder, tmp_path / name, format=name)
        assert numbers(lading.loader(tmp_path / name, 8, columns=["number"])) == [*range(COUNT)]


@TABLE.line('`StreamingDataset("s3://…", shuffle=True)` with `StreamingDataLoader(ds, batch_size=64)`',
            "`loader.state_dict()`, `loader.load_state_dict(state)`")  # fmt: skip
def test_loaders_and_their_states(folder: Path) -> None:
    loader = lading.loader(folder, 8, shuffle=True, seed=3)
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) == sorted(second) == [*range(COUNT)] != first != second
    loop = iter(lading.loader(folder, 8, shuffle=True, seed=3))
    loader.set_epoch(0)
    loop = iter(loader)
    begun = numbers([next(loop), next(loop)])
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = lading.loader(folder, 8, shuffle=True, seed=3)
    resumed.load_state_dict(state)
    assert begun + numbers(resumed) == first


@TABLE.line("`StreamingDataset(…, transform=fn)`", "`StreamingDataset(…, seed=42, drop_last=True)`",
            "`max_cache_size`, `max_pre_download`")  # fmt: skip
def test_options_of_loaders(folder: Path) -> None:
    found = lading.loader(folder, 8, transform=lambda sample: {**sample, "number": sample["number"] + 100})
    assert numbers(found) == [*range(100, 100 + COUNT)]
    orders = [numbers(lading.loader(folder, 8, shuffle=True, seed=seed, last="drop")) for seed in (42, 42, 43)]
    assert [*map(len, orders)] == [48] * 3
    assert orders[0] == orders[1] != orders[2]
    assert numbers(lading.loader(folder, 8, ahead_bytes=1)) == [*range(COUNT)]


@TABLE.line("`CombinedStreamingDataset([a, b], weights=[0.7, 0.3])`")
def test_mixtures(folder: Path) -> None:
    ds = lading.open(folder)
    a, b = ds[:35], ds[35:]
    batches = [*lading.loader(lading.mix({"a": (a, 0.7), "b": (b, 0.3)}), 10, shuffle=True)]
    assert [sum(number < 35 for number in batch["number"]) for batch in batches] == [7] * 5
    assert sorted(numbers(batches)) == [*range(COUNT)]


@TABLE.line("`TokensLoader(block_size=2049)`")
def test_tokens(folder: Path) -> None:
    def tokenizer(text: str) -> list[int]:
        return [7] * len(text.split())

    loader = lading.loader(folder, 8, columns=["txt"])
    blocks = [row for batch in lading.pack(loader, 33, tokenizer=tokenizer) for row in np.asarray(batch["input_ids"])]
    assert {len(block) for block in blocks} == {33}
    assert (blocks[-1] == 0).any()  # LitData leaves the last tokens out
    assert Counter(int(token) for block in blocks for token in block)[7] == sum(i % 7 + 1 for i in range(COUNT))


@TABLE.line("`train_test_split(ds, [0.9, 0.1])`")
def test_splits(folder: Path) -> None:
    parts = lading.open(folder).split({"train": 0.9, "test": 0.1}, seed=42)
    assert {name: len(part) for name, part in parts.items()} == {"train": 45, "test": 5}
    assert sorted(sample["number"] for part in parts.values() for sample in part) == [*range(COUNT)]


@TABLE.line('`StreamingRawDataset("folder")`')
def test_files(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "folder" / f"{i}.bin").write_bytes(bytes([i]) * 5)
    with lading.open(tmp_path / "folder", format="files") as ds:
        assert [sample["bin"] for sample in ds] == [bytes([i]) * 5 for i in range(3)]


def test_each_line_is_run() -> None:
    TABLE.check()
