#!/usr/bin/env python3
"""How random the order of samples is: lading's shuffles beside those of its peers.

    python bench/shuffle_quality.py [--samples 2000000] [--shards 2000] [--batch 256]

The dataset is sorted by class, and a shard has one class. Each way gives the numbers of the samples in the order in
which one process would be given them.

- correlation: of position and number of the sample; 0 is random.
- moved: median distance of a sample from its place in the source, in parts of the dataset; 1 − √½ ≈ 0.293 is random.
- neighbours: samples whose next sample of the source is in their batch too; (batch − 1) / samples is random.
- near: of samples that follow each other in the source, those that are within 256 positions of each other.
- classes: different classes in a batch, on average.
- shards: shards that a batch is read from, on average.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from lading._core.train.order import Order, Shuffle

NEAR = 256
BUFFER = 1000


def of_lading(kind: str, ends: np.ndarray, **sizes: int) -> np.ndarray:
    return Order(ends, Shuffle(kind, **sizes), seed=7, epoch=0).at(np.arange(ends[-1]))


def of_webdataset(ends: np.ndarray) -> np.ndarray:
    """`WebDataset(urls, shardshuffle=True).shuffle(1000)`, with numbers in the place of samples."""
    from webdataset import filters

    begins = np.concatenate(([0], ends[:-1]))
    shards = list(zip(begins.tolist(), ends.tolist(), strict=True))
    random.Random(7).shuffle(shards)
    numbers: Iterator[int] = (number for begin, end in shards for number in range(begin, end))
    return np.fromiter(filters.shuffle(BUFFER, rng=random.Random(7))(numbers), np.int64)


def of_datasets(ends: np.ndarray) -> np.ndarray:
    """`IterableDataset.shuffle(buffer_size=1000)`: shards in a random order, and a buffer."""
    import datasets

    def samples(shards: list[tuple[int, int]]) -> Iterator[dict[str, int]]:
        for begin, end in shards:
            yield from ({"number": number} for number in range(begin, end))

    shards = list(zip(np.concatenate(([0], ends[:-1])).tolist(), ends.tolist(), strict=True))
    found = datasets.IterableDataset.from_generator(samples, gen_kwargs={"shards": shards})
    return np.fromiter((row["number"] for row in found.shuffle(seed=7, buffer_size=BUFFER)), np.int64)


def of_mosaicml(name: str, ends: np.ndarray) -> np.ndarray:
    from peers_here import mosaicml_streaming

    mosaicml_streaming()
    from streaming.base.shuffle import get_shuffle

    return get_shuffle(name, np.diff(ends, prepend=0), 1, 7, 0, 1 << 18)


def quality(order: np.ndarray, ends: np.ndarray, classes: np.ndarray, batch: int) -> list[float]:
    count = len(order)
    assert np.array_equal(np.sort(order), np.arange(count)), "each sample once"
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    whole = order[: count // batch * batch].reshape(-1, batch)
    distinct = [
        float(np.mean([len(np.unique(row)) for row in of[whole]]))
        for of in (classes, np.searchsorted(ends, np.arange(count), "right"))
    ]
    return [
        float(np.corrcoef(np.arange(count), order)[0, 1]),
        float(np.median(np.abs(place - np.arange(count))) / count),
        float(np.count_nonzero(np.diff(np.sort(whole)) == 1) / whole.size),
        float(np.mean(np.abs(np.diff(place)) <= NEAR)),
        *distinct,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args()
    ends = np.arange(1, given.shards + 1) * given.samples // given.shards
    classes = np.arange(given.samples) * given.shards // given.samples
    ways: dict[str, Callable[[], np.ndarray]] = {
        "lading, none": lambda: of_lading("none", ends),
        "lading, global": lambda: of_lading("global", ends),
        "lading, 256 blocks of 16": lambda: of_lading("block", ends, block=16, window=32),
        "lading, 256 blocks of 200": lambda: of_lading("block", ends, block=200, window=32),
        "lading, 64 blocks of 1,000 (a shard)": lambda: of_lading("block", ends, block=1000, window=8),
        "webdataset, shards and 1,000": lambda: of_webdataset(ends),
        "datasets, shards and 1,000": lambda: of_datasets(ends),
        "streaming, py1e": lambda: of_mosaicml("py1e", ends),
        "streaming, py1br": lambda: of_mosaicml("py1br", ends),
        "streaming, py1s": lambda: of_mosaicml("py1s", ends),
    }
    print("| order | correlation | moved | neighbours | near | classes a batch | shards a batch |")
    print("|---|---|---|---|---|---|---|")
    for name, way in ways.items():
        correlation, moved, neighbours, near, per_batch, shards = quality(way(), ends, classes, given.batch)
        shown = f"{correlation:+.3f} | {moved:.3f} | {neighbours:.2%} | {near:.2%} | {per_batch:.1f} | {shards:.1f}"
        print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
