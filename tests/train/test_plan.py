"""A plan says what a loader then does: its requests and bytes are counted at the store."""

from __future__ import annotations

import json
import os
import re
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.dataset.layout import Layout
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading._core.train.columns import ColumnMaker, Recipe
from lading._core.train.feed import DatasetFeed, resolved
from lading._core.train.order import Shuffle
from lading._core.train.plan import _planned, plan
from lading._core.train.reading import EpochReader, Reading
from lading._core.train.share import Share
from lading.errors import UnknownArgument, UsageError

_COUNT, _BYTES, _SHARDS = 600, 20_000, 6
_FORMATS = ("webdataset", "mds", "mds-zstd", "arrow", "arrow-zstd", "parquet")


class _Remote(MemoryStore):
    request_bytes = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("plan"), np.random.default_rng(0)
    images = [random.bytes(_BYTES) for _ in range(_COUNT)]
    for name in _FORMATS:
        form, _, compression = name.partition("-")
        options: dict[str, Any] = {"compression": compression} if compression else {}
        if form == "arrow":
            options["batch_bytes"] = 10 * _BYTES
        with lading.writer(folder / name, format=form, rows_per_shard=_COUNT // _SHARDS, options=options) as writer:
            for i, image in enumerate(images):
                writer.write({"__key__": f"{i:04}", "jpg": image, "cls": i})
    (folder / "jsonl").mkdir()
    for shard in range(_SHARDS):
        texts = [image.hex()[:_BYTES] for image in images[shard * 100 : shard * 100 + 100]]
        lines = [json.dumps({"cls": i, "jpg": text}) for i, text in enumerate(texts)]
        (folder / "jsonl" / f"{shard}.jsonl").write_text("\n".join(lines))
    return folder


def _remote(folder: Path) -> tuple[lading.Dataset, CountingStore]:
    names = [os.path.relpath(each, folder) for each in folder.rglob("*") if each.is_file()]
    store = CountingStore(_Remote({f"box://d/{name}": (folder / name).read_bytes() for name in names}))
    return lading.open("box://d", stores=Stores({"box://": store})), store


@pytest.mark.cases(2)
@pytest.mark.parametrize("shuffle", [False, "global", "block"])
@pytest.mark.parametrize("name, ranks", [*product([*_FORMATS, "jsonl"], [(1, 16), (3, 8), (64, 2)])])
def test_requests_and_bytes_are_those_of_the_loader(
    folder: Path, name: str, shuffle: Any, ranks: tuple[int, int]
) -> None:
    world, batch = ranks
    dataset, store = _remote(folder / name)
    len(dataset)
    store.reset()
    made = plan(dataset, batch, world_size=world, shuffle=shuffle)
    if name == "mds-zstd":  # to open a shard is to read it
        dataset, store = _remote(folder / name)
    else:
        assert store.bytes_read < _SHARDS * (256 << 10)
        [*lading.loader(dataset, 50, columns=["cls"])]
        store.reset()
    loader = lading.loader(dataset, batch, shuffle=shuffle, rank=0, world_size=world, columns=["jpg"], decode=False)
    batches = [*loader]
    counted, requests = store.bytes_read, store.requests["get_ranges"]
    assert made.batches == len(loader) == len(batches)
    assert made.rank_samples == sum(
        np.count_nonzero(~b.get("__padding__", np.zeros(len(b["jpg"]), bool))) for b in batches
    )
    assert made.requests is not None
    assert abs(counted - made.read_bytes) <= 0.2 * counted + 4 * _BYTES
    assert abs(requests - made.requests) <= 0.2 * requests + 3


@pytest.mark.parametrize("shuffle", [False, "global", "block"])
@pytest.mark.parametrize("name, epoch_size", [("webdataset", 150), ("parquet", 900), ("jsonl", 900)])
def test_an_epoch_of_any_size_is_planned(folder: Path, name: str, shuffle: Any, epoch_size: int) -> None:
    """What a rank reads of several passes; drawn samples are read as those of a global shuffle."""
    more = {"weights": np.arange(_COUNT)} if shuffle == "global" else {}
    dataset, store = _remote(folder / name)
    made = plan(dataset, 16, world_size=2, shuffle=shuffle, epoch_size=epoch_size, **more)
    options: dict[str, Any] = {"shuffle": shuffle, "epoch_size": epoch_size, "columns": ["jpg"], "decode": False}
    loader = lading.loader(dataset, 16, rank=0, world_size=2, **options, **more)
    store.reset()
    batches = [*loader]
    assert (made.samples, made.batches, made.rank_samples) == (epoch_size, len(batches), epoch_size // 2)
    assert abs(store.bytes_read - made.read_bytes) <= 0.2 * store.bytes_read + 4 * _BYTES


def _order(folder: Path, step: int, **options: Any) -> list[list[int]]:
    return [[int(key) for key in b["__key__"]] for b in lading.loader(folder, step, columns=["__key__"], **options)]


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", [False, "global", "block"])
def test_shards_of_a_batch_are_those_of_the_order(folder: Path, shuffle: Any) -> None:
    made = plan(folder / "webdataset", 50, world_size=2, shuffle=shuffle)
    steps = _order(folder / "webdataset", 100, shuffle=shuffle)
    shards = np.mean([len({number // 100 for number in step[::2]}) for step in steps])
    assert made.shards_a_batch == pytest.approx(shards)


def test_memory_is_at_most_what_is_read_ahead(folder: Path) -> None:
    small, large = (plan(folder / "webdataset", 4, ahead_bytes=size) for size in ("1MB", "1GB"))
    assert small.memory_bytes == 1 << 20 > small.chunk_bytes
    assert large.memory_bytes == large.rank_bytes
    assert small.requests is None


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", ["global", "block"])
def test_a_billion_samples_are_planned_by_some_stretches(folder: Path, shuffle: Any) -> None:
    ends = np.arange(1, 1001) * 1_000_000
    one = {"unit_samples": 1, "read_samples": 1, "batch_samples": 0, "by_reference": False, "kept_bytes": 0}
    layout = Layout(ends, sample_bytes=_BYTES, **one, remote=True, fingerprint="", old_fingerprint="")
    feed = DatasetFeed(lading.open(folder / "parquet"), layout, resolved(shuffle, layout), 0)
    share = Share(10**9, 32, "short", 0, 8)
    reader = EpochReader(feed, share, feed.order(0), ColumnMaker(Recipe()), Reading(), lambda *_: None, 0)
    made = _planned(feed, share, reader)
    assert made.rank_samples == 125_000_000
    if shuffle == "global":  # each sample is a range of its own
        assert made.read_bytes == pytest.approx(made.rank_bytes, rel=0.01)
        assert made.requests == pytest.approx(made.rank_samples, rel=0.01)
        assert made.shards_a_batch == pytest.approx(made.random_shards_a_batch, rel=0.05)
    else:  # a rank reads the 32 blocks of 26 samples of its lane's window, or parts of them
        assert made.read_bytes == pytest.approx(made.rank_bytes, rel=0.2)
        assert made.requests < made.rank_samples / 15
        assert made.shards_a_batch == pytest.approx(32 * (1 - (1 - 1 / 32) ** 32), rel=0.1)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 20, "world_size": 64}, "takes 1,280 samples, and the dataset has 600: use batch_size=9 "),
        ({"batch_size": 1, "world_size": 16, "shuffle": "block"}, "16 ranks share 8 lanes"),
        ({"batch_size": 4, "world_size": 4, "shuffle": "global"}, 'use shuffle="block" (--shuffle block)'),
    ],
)  # fmt: skip
def test_bad_choices_have_advice(folder: Path, options: dict[str, Any], words: str) -> None:
    [said] = plan(folder / "parquet", **options).advice
    assert words in said


def test_good_choices_have_none(folder: Path) -> None:
    assert plan(folder / "webdataset", 4, world_size=4, shuffle=True).advice == ()
    lanes = Shuffle("block", 10, lanes=16)
    assert plan(folder / "webdataset", 1, world_size=16, shuffle=lanes).advice == ()


def test_print_shows_batches_by_size_as_a_table(tmp_path: Path) -> None:
    """Of many buckets, neighbours share a row, which says the smallest and the largest of each side."""
    sides = [(100 + 50 * i, 800 - 50 * i) for i in range(15)]
    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        for width, height in sides:
            writer.write({"png": np.zeros((height, width, 3), np.uint8)})
    made = plan(tmp_path / "a", batch_pixels=1_000_000)
    assert len(made.buckets) > 12
    lines = str(made).splitlines()
    assert "  a rank                  " in lines[3]
    at = next(i for i, line in enumerate(lines) if line.split() == ["sizes", "samples", "a", "batch", "batches"])
    buckets = iter(made.buckets)
    for line in lines[at + 1 :]:
        low, high, samples = re.fullmatch(r"  (\d+ × \d+)(?: – (\d+ × \d+))? +(\d+) .*", line).groups()  # type: ignore[union-attr]
        (left, below), (right, above) = ([*map(int, text.split(" × "))] for text in (low, high or low))
        seen = 0
        while seen < int(samples):
            seen += (bucket := next(buckets)).samples
            assert all(left <= width <= right for width, _ in (bucket.smallest, bucket.largest))
            assert all(below <= height <= above for _, height in (bucket.smallest, bucket.largest))
        assert seen == int(samples)
    assert not [*buckets]


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 1, "world_size": 0}, {"epoch_size": 0}])
def test_wrong_arguments_are_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be a whole number"):
        plan(folder / "parquet", **options)
    mixed = lading.mix({"a": (folder / "parquet", 1)})
    with pytest.raises(UsageError, match=r"a plan is of one dataset; found Mixture.*Plan each dataset by itself"):
        plan(mixed)
    with pytest.raises(UsageError, match="no samples"):
        plan(lading.open(folder / "parquet").where("cls < 0"))


def test_the_arguments_of_loaders_alone_are_answered(folder: Path) -> None:
    known, of_loaders = (signature(function).parameters.keys() for function in (plan, lading.loader))
    alone = of_loaders - known
    assert {"workers", "collate"} < alone
    for name in alone:
        with pytest.raises(UnknownArgument, match=f"no argument {name}. Leave it out: "):
            plan(folder / "parquet", **{name: None})  # type: ignore[arg-type]
