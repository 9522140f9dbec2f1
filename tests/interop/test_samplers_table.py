"""Each line of the table of samplers in `docs/coming-from.md`: those of PyTorch and Transformers next to lading's.

Lhotse and Energon are not among the pinned peers. Lhotse's side was run by hand with 1.33.0: 500 cuts of 1 to 20
seconds, each in one of 113 batches of 60 seconds at most, without their padding.
"""

from __future__ import annotations

import io
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lading
from doc_tables import Table
from peers import import_peer

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, WeightedRandomSampler  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TABLE = Table("Samplers")
COUNT = 600
LENGTHS = np.random.default_rng(0).integers(1, 200, COUNT)


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> lading.Dataset:
    path = tmp_path_factory.mktemp("samplers") / "in"
    with lading.writer(path, format="webdataset") as writer:
        for i in range(COUNT):
            writer.write({"__key__": f"{i:03}", "json": {"score": i % 3}, "txt": "x" * int(LENGTHS[i])})
    return lading.open(path)


def numbers(batches: Any) -> list[int]:
    return [int(key) for batch in batches for key in batch["__key__"]]


def padding(batches: list[list[int]]) -> float:
    sizes = [LENGTHS[batch] for batch in batches]
    return 1 - sum(size.sum() for size in sizes) / sum(size.max() * len(size) for size in sizes)


@TABLE.line("PyTorch `WeightedRandomSampler(weights, 1000)`")
def test_weights(ds: lading.Dataset) -> None:
    theirs = [*WeightedRandomSampler([i % 3 for i in range(COUNT)], 1000)]
    mine = numbers(lading.loader(ds, 8, weights="json.score", epoch_size=1000))
    for found in (theirs, mine):
        of = Counter(i % 3 for i in found)
        assert (len(found), of[0]) == (1000, 0)
        assert of[1] == pytest.approx(1000 / 3, abs=75)  # five standard deviations


@TABLE.line("PyTorch `RandomSampler(ds, num_samples=1000)`")
def test_epochs_of_another_size(ds: lading.Dataset) -> None:
    theirs = Counter(RandomSampler(ds, num_samples=1000))
    mine = Counter(numbers(lading.loader(ds, 8, shuffle=True, epoch_size=1000)))
    assert sum(theirs.values()) == sum(mine.values()) == 1000
    assert {*theirs.values()} == {*mine.values()} == {1, 2}


@TABLE.line("PyTorch `DistributedSampler(ds)`, `sampler.set_epoch(3)`")
def test_ranks_share_an_epoch(ds: lading.Dataset) -> None:
    samplers = [DistributedSampler(ds, 2, rank) for rank in range(2)]
    loaders = [lading.loader(ds, 8, shuffle=True, rank=rank, world_size=2) for rank in range(2)]
    for sampler, loader in zip(samplers, loaders, strict=True):
        sampler.set_epoch(3)
        loader.set_epoch(3)
    theirs, mine = [*map(list, samplers)], [*map(numbers, loaders)]
    for ranks in (theirs, mine):
        assert ([*map(len, ranks)], sorted(ranks[0] + ranks[1])) == ([300, 300], [*range(COUNT)])


@TABLE.line('Transformers `TrainingArguments(train_sampling_strategy="group_by_length")`')
def test_samples_of_similar_length_make_a_batch(ds: lading.Dataset) -> None:
    sampler = import_peer("transformers.trainer_pt_utils").LengthGroupedSampler
    theirs = [*sampler(8, lengths=LENGTHS.tolist())]
    batches = [[int(key) for key in batch["__key__"]] for batch in
               lading.loader(ds, 8, bucket_by="len(txt)", shuffle=True)]  # fmt: skip
    assert sorted(theirs) == sorted(chain(*batches)) == [*range(COUNT)]
    at_random = np.random.default_rng(1).permutation(COUNT)
    for found in ([theirs[i : i + 8] for i in range(0, COUNT, 8)], batches):
        assert padding(found) < padding([[*at_random[i : i + 8]] for i in range(0, COUNT, 8)])


@TABLE.line("Lhotse `DynamicBucketingSampler(cuts, max_duration=20)`")
def test_batches_of_so_many_seconds(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    seconds = np.random.default_rng(2).uniform(0.2, 4, 30)
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for i, length in enumerate(seconds):
            held = io.BytesIO()
            soundfile.write(held, np.zeros(round(8000 * length)), 8000, format="FLAC")
            writer.write({"__key__": f"{i:02}", "flac": held.getvalue()})
    loader = lading.loader(tmp_path / "in", batch_tokens=20, bucket_by="flac.duration_s", shuffle=True, decode=False)
    batches = [[int(key) for key in batch["__key__"]] for batch in loader]
    assert sorted(chain(*batches)) == [*range(30)]
    assert max(len(batch) * seconds[batch].max() for batch in batches) <= 20 + 1e-3


@TABLE.line("Energon `blend` with `weight: 0.7`", "Energon `blend_epochized` with `repetitions: 2`")
def test_mixtures(ds: lading.Dataset) -> None:
    a, b = ds[:400], ds[400:]
    blend = lading.mix({"a": (a, 0.7), "b": (b, 0.3)})
    assert sum(number < 400 for number in numbers([next(iter(lading.loader(blend, 10, shuffle=True)))])) == 7
    times = Counter(numbers(lading.loader(lading.mix({"a": a, "b": b}, repeats={"a": 2}), 10, shuffle=True)))
    assert times == {i: 2 if i < 400 else 1 for i in range(COUNT)}


@TABLE.line("aspect buckets of diffusion trainers")
def test_aspect_buckets(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for i in range(24):
            writer.write({"png": Image.new("RGB", [(90, 60), (60, 90), (80, 80)][i % 3])})
    sizes = lading.train.aspect_buckets(512 * 512)
    shapes = Counter[tuple[int, int]]()
    for batch in lading.loader(tmp_path / "in", 8, image_size=sizes, shuffle=True):
        shapes[batch["png"].shape[1:3]] += len(batch["png"])
    assert {*shapes} <= {*sizes}
    assert [*shapes.values()] == [8, 8, 8]


@TABLE.line("a sampler of one's own")
def test_a_sampler_of_ones_own(ds: lading.Dataset) -> None:
    keys = [key for batch in DataLoader(ds, batch_size=8, sampler=[*range(9)]) for key in batch["__key__"]]
    assert keys == [f"{i:03}" for i in range(9)]


def test_each_line_is_run() -> None:
    TABLE.check()
