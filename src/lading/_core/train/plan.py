"""Say what a loader will do, before it reads payload: `lading plan`.

Example:
    plan("s3://bucket/train/*.tar", batch_size=32, world_size=64, shuffle="block").advice
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import public, whole_number
from lading._core.dataset.layout import Layout
from lading._core.dataset.query import Queryable
from lading._core.json_forms import InJson, ShuffleJson
from lading._core.result_text import ResultText, shown_fact
from lading._core.storage.fetch import FEWER
from lading._core.train.buckets import LEFT_OUT, Buckets, SizedOrder
from lading._core.train.columns import ColumnMaker, Recipe
from lading._core.train.feed import USUAL_BYTES, DatasetFeed, EpochOrder
from lading._core.train.images import ImageSize
from lading._core.train.metrics import Metrics
from lading._core.train.mixture import Mixture
from lading._core.train.order import Shuffle
from lading._core.train.reading import EpochReader, Reading
from lading._core.train.share import Last, Share, SizedShare
from lading._core.train.sizes import Length, Sizing, TooLarge
from lading._core.train.sources import feed_of_dataset
from lading._core.train.weights import GivenWeights
from lading._core.units import count, format_bytes, parse_bytes
from lading.errors import UsageError
from lading.options import OpeningOptions

__all__ = ["Plan", "PlannedBucket", "plan"]

_ALL_SAMPLES: Final = 1 << 20
"""Of a rank, up to which every chunk is looked at; beyond, some of them."""
_LOOKS: Final = 8
_SETTLED: Final = {True: 2, False: 16}
"""Chunks after which their size is that of most, with rounds and without: the first ones are small."""
_GAP_BYTES: Final = 32 << 10
_REQUEST_BYTES: Final = 64 << 20
_MUCH: Final = 1.5
_MUCH_LEFT: Final = 0.01
"""Share of the samples that `last="drop"` leaves out."""
_WELL_FILLED: Final = 0.5
"""Share of the samples that a batch by size may have."""
_SHOWN_BUCKETS: Final = 12
_MOST_OF: Final = 0.9
"""Share of the rows of record batches for which the reader of Arrow files reads all of them."""
_LEAST_KEPT: Final = 8
"""Of compressed shards, as a dataset keeps them open."""


_OF_LOADERS: Final = {
    "columns": "Leave it out: the plan counts the bytes of whole samples.",
    "rank": "Leave it out: the plan is that of rank 0.",
    "workers": "Leave it out: the plan is that of one process.",
    **dict.fromkeys(
        ("batch_transform", "collate", "decode", "fit", "log_every", "max_skipped", "missing", "on_changed", "on_error",
         "on_metrics", "threads", "timeout", "transform"),
        "Leave it out: what is read does not depend on it.",
    ),
}  # fmt: skip
"""Arguments of `lading.loader` alone."""


@dataclass(frozen=True, slots=True)
class PlannedBucket:
    """Samples of similar size.

    Attributes:
        smallest: the size of the smallest one: its length, or its width and height; of images with several sizes,
            width and height after the resize.
        largest: that of the largest one.
        samples: number of the samples.
        batch_samples: samples of a batch.
        batches: full batches of them in an epoch; what is left makes the last batches, perhaps of several buckets.
    """

    smallest: tuple[float, ...]
    largest: tuple[float, ...]
    samples: int
    batch_samples: int
    batches: int


@dataclass(frozen=True, slots=True)
class Plan(ResultText):
    """What a loader will do in an epoch. Bytes are those of files.

    Attributes:
        samples: number of samples of the epoch.
        shuffle: how the samples are shuffled, with the size of a block.
        batches: number of batches of each rank.
        rank_samples: number of samples of each rank, without padding; one more or less for some ranks.
        rank_bytes: bytes of these samples, by the average of the files.
        read_bytes: bytes that a rank reads for these samples: pages, record batches and files that are read as a whole,
            gaps between ranges. What readers keep is not read again.
        requests: number of requests of a rank to a remote store, without those that open shards; None for local files.
        chunk_bytes: bytes of the largest number of samples that are read at once.
        shards_at_once: number of shards that such a read touches, at most.
        memory_bytes: bytes of payload that is read ahead, at most, before it is decoded.
        shards_a_batch: number of different shards in a batch of a rank, on average.
        random_shards_a_batch: this number for an order in which everything is equally likely.
        advice: what to change, and what to type.
        padding: share of the padded batches of the epoch that is padding; None where batches are not made by size.
        random_padding: this share for batches of neighbours in the order, of as many samples on average.
        left_out: number of samples that are larger than a batch, and in none.
        buckets: samples of similar size, the smallest first, where batches are made by size.
    """

    samples: int
    shuffle: Annotated[Shuffle, InJson(ShuffleJson)]
    batches: int
    rank_samples: int
    rank_bytes: int
    read_bytes: int
    requests: int | None
    chunk_bytes: int
    shards_at_once: int
    memory_bytes: int
    shards_a_batch: float
    random_shards_a_batch: float
    advice: tuple[str, ...]
    padding: float | None = None
    random_padding: float | None = None
    left_out: int = 0
    buckets: tuple[PlannedBucket, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        buckets = [{name: getattr(each, name) for name in each.__slots__} for each in self.buckets]
        return {**found, "shuffle": self.shuffle.as_dict(), "advice": list(self.advice), "buckets": buckets}

    def __str__(self) -> str:
        lines = [shown_fact(*fact) for fact in self.facts()]
        if self.buckets:
            lines += [
                f"  {sizes:<23} {samples:>9}{most:>15}{full:>9}" for sizes, samples, most, full in self.bucket_rows()
            ]
        return "\n".join(["Plan", *lines])

    def facts(self) -> Iterator[tuple[str, str]]:
        """The plan as names and texts."""
        shuffle = self.shuffle
        blocks = f", blocks of {count(shuffle.block, 'sample')}, window {shuffle.window}, lanes {shuffle.lanes}"
        yield "shuffle", shuffle.kind + (blocks if shuffle.kind == "block" else "")
        yield "epoch", count(self.samples, "sample")
        yield "a rank", f"{count(self.batches, 'batch', 'batches')}, {count(self.rank_samples, 'sample')}"
        own = f"{format_bytes(self.read_bytes)} for samples of {format_bytes(self.rank_bytes)}"
        yield "reads", own + ("" if self.requests is None else f", in at least {self.requests:,} requests a column")
        yield "at once", f"{format_bytes(self.chunk_bytes)}, from {count(self.shards_at_once, 'shard')}"
        yield "memory", f"{format_bytes(self.memory_bytes)} read ahead, before it is decoded"
        yield "shards", f"{self.shards_a_batch:.1f} in a batch (random order: {self.random_shards_a_batch:.1f})"
        if self.padding is not None and self.random_padding is not None:
            yield "padding", f"{100 * self.padding:.1f} % (batches of neighbours: {100 * self.random_padding:.1f} %)"
        if self.left_out:
            yield "left out", f"{count(self.left_out, 'sample')} larger than a batch"
        yield from (("advice", text) for text in self.advice)

    def bucket_rows(self) -> list[tuple[str, str, str, str]]:
        """The table of the buckets, its head first; of many, some neighbours in one row."""
        found, size = [("sizes", "samples", "a batch", "batches")], -(-len(self.buckets) // _SHOWN_BUCKETS)
        for begin in range(0, len(self.buckets), size or 1):
            mine = self.buckets[begin : begin + size]
            most = [each.batch_samples for each in mine]
            found.append((
                _range(
                    _sides(map(min, zip(*(each.smallest for each in mine), strict=True))),
                    _sides(map(max, zip(*(each.largest for each in mine), strict=True))),
                ),
                f"{sum(each.samples for each in mine):,}",
                _range(f"{max(most):,}", f"{min(most):,}"),
                f"{sum(each.batches for each in mine):,}",
            ))  # fmt: skip
        return found

    def beside(self, metrics: Metrics) -> str:
        """Return a table of the plan beside what a loop did, for the samples that the loop was given.

        The plan counts bytes of files. The loop counts those of the columns that it reads, and all that it asked a
        remote store for, with what opening shards takes.

        Example: `print(lading.train.plan(source, 64).beside(loader.metrics))`

        Raises:
            UsageError: the loop was given no sample, or these are no metrics.
        """
        if not isinstance(metrics, Metrics):
            raise UsageError("a plan stands beside the metrics of a loader", found=repr(metrics),
                             advice="Write plan.beside(loader.metrics).")  # fmt: skip
        if not metrics.samples:
            raise UsageError("the loop was given no batch yet", advice="Loop over the loader before.")
        part = metrics.samples / self.rank_samples
        rows = [
            ("", "plan", "measured"),
            ("samples", f"{self.rank_samples:,} an epoch", f"{metrics.samples:,}"),
            ("bytes of samples", format_bytes(round(part * self.rank_bytes)), format_bytes(metrics.payload_bytes)),
        ]
        if metrics.read_bytes is not None:
            rows.append(("bytes read", format_bytes(round(part * self.read_bytes)), format_bytes(metrics.read_bytes)))
        if metrics.requests is not None and self.requests is not None:
            rows.append(("requests", f"{round(part * self.requests):,}", f"{metrics.requests:,}"))
        return "\n".join(f"{name:<18}{planned:>18}{measured:>18}" for name, planned, measured in rows)


def _sides(sides: Iterable[float]) -> str:
    return " × ".join(f"{side:,.4g}" if side % 1 else f"{side:,.0f}" for side in sides)


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} – {high}"


@public("lading.train.plan", _OF_LOADERS)
def plan(  # noqa: PLR0913 - the arguments of the loader that decide about batches and reads
    source: Queryable | Mixture,
    batch_size: int | None = None,
    *,
    batch_tokens: int | None = None,
    batch_pixels: int | None = None,
    bucket_by: str | None = None,
    length: Length | None = None,
    max_padding: float | None = None,
    too_large: TooLarge = "error",
    image_size: ImageSize = None,
    world_size: int = 1,
    shuffle: bool | Literal["global", "block"] | Shuffle = True,
    seed: int = 0,
    epoch_size: int | None = None,
    weights: GivenWeights | None = None,
    last: Last = "short",
    ahead_bytes: int | str = "256MB",
    **opening: Unpack[OpeningOptions],
) -> Plan:
    """Say what `lading.loader` with these arguments will do in an epoch, without reading payload.

    It follows the order of rank 0: all of it up to a million samples, else some spans. Conditions before it take a
    pass over the columns that they look at.

    Example: `plan("train/*.tar", 32, world_size=64).memory_bytes`

    Args:
        source: a dataset, or what `lading.open` opens. A mixture is refused: plan its datasets.
        batch_size: samples a batch, by default 1.
        batch_tokens: padded tokens of a batch, as `lading.loader` takes them. For batches by size, the sizes of all
            samples are read once, and kept in the cache folder.
        batch_pixels: padded pixels of a batch.
        bucket_by: the size of a sample.
        length: the tokens of a sample.
        max_padding: share of a batch that is padding, at most.
        too_large: what is done with samples above the bound.
        image_size: several sizes, for batches by the shape of images; one size changes nothing.
        world_size: number of ranks.
        shuffle: as `lading.loader` takes it.
        seed: of the shuffle.
        epoch_size: samples of an epoch, as `lading.loader` takes it.
        weights: by which samples are drawn, as `lading.loader` takes them; a column is read.
        last: what is done with the last step, as `lading.loader` takes it.
        ahead_bytes: what is read ahead, at most.
        opening: the other arguments of `lading.open`, for a source that is named.

    Raises:
        UsageError: an argument is wrong, the dataset has no samples, or steps whose samples are not known by number.
    """
    world_size, seed = whole_number("world_size", world_size, 1), whole_number("seed", seed)
    epoch_size = None if epoch_size is None else whole_number("epoch_size", epoch_size, 1)
    sizing = Sizing(batch_size, batch_tokens, batch_pixels, bucket_by, length, max_padding, too_large, image_size)
    if isinstance(source, Mixture):
        raise UsageError("a plan is of one dataset", found=repr(source),
                         advice="Plan each dataset by itself. print(loader) shows what an epoch takes of each."
                         )  # fmt: skip
    feed = feed_of_dataset(source, opening, shuffle, seed, epoch_size, weights)
    if not feed.layout.num_samples:
        raise UsageError("the dataset has no samples to plan for")
    order: EpochOrder = feed.order(0)
    share, sized = Share(order.num_samples, sizing.batch_size or 1, last, 0, world_size), dict[str, Any]()
    if sizing.by_size:
        sides, whole = sizing.sides(feed.parts), order
        buckets = sizing.buckets(sides)
        order = in_batches = SizedOrder(whole, buckets)
        share = SizedShare.of(share, in_batches.batches)
        sized = _sized(whole, in_batches, buckets, sides)
    reading = Reading(ahead_bytes=parse_bytes(ahead_bytes))
    reader = EpochReader(feed, share, order, ColumnMaker(Recipe()), reading, lambda *_: None, 0)
    return _planned(feed, share, reader, **sized)


def _sized(whole: EpochOrder, order: SizedOrder, buckets: Buckets, sides: NDArray[np.float64]) -> dict[str, Any]:
    """Return what a plan says of batches by size."""
    numbers = whole.at(np.arange(whole.num_samples))
    at_random = numbers[buckets.of[numbers] != LEFT_OUT]
    samples = np.bincount(buckets.of[at_random], minlength=len(buckets.most))
    average = -(-len(at_random) // max(len(order.batches), 1)) or 1
    paddings = {
        "padding": _padding(sides[order.at(np.arange(order.num_samples))], order.batches.begins),
        "random_padding": _padding(sides[at_random], np.arange(0, len(at_random), average)),
    }
    planned = (
        PlannedBucket(tuple(low.tolist()), tuple(high.tolist()), int(count), int(most), int(count // most))
        for low, high, count, most in zip(buckets.lows, buckets.highs, samples, buckets.most, strict=True)
    )
    return {
        **({} if buckets.resolutions else paddings),
        "left_out": len(numbers) - len(at_random),
        "buckets": tuple(planned),
    }


def _padding(sides: NDArray[np.float64], begins: NDArray[np.int64]) -> float:
    """Return the share of batches that is padding, of samples with some sides, in the order of the batches."""
    if not len(begins):
        return 0.0
    highs = np.stack([np.maximum.reduceat(side, begins) for side in sides.T], 1).prod(axis=1)
    padded = (highs * np.diff(begins, append=len(sides))).sum()
    return float(1 - sides.prod(axis=1).sum() / padded) if padded else 0.0


def _planned(feed: DatasetFeed, share: Share, reader: EpochReader, **sized: Any) -> Plan:
    layout, order = feed.layout, reader.order
    kept = _Kept(layout)
    reads = [_read_of(steps, order, share, layout, kept) for steps in _chunks(reader, order, share)]
    looked, of_rank = sum(read.samples for read in reads), _rank_samples(share)
    times = of_rank / looked if looked else 0.0
    size = feed.sample_bytes
    largest = max((read.samples for read in reads), default=0) * size
    most_read = max((read.bytes for read in reads), default=0)
    found: dict[str, Any] = {
        "samples": share.num_samples,
        "shuffle": feed.shuffle,
        "batches": share.num_batches(),
        "rank_samples": of_rank,
        "rank_bytes": of_rank * size,
        "read_bytes": round(sum(read.bytes for read in reads) * times),
        "requests": round(sum(read.requests for read in reads) * times) if layout.remote else None,
        "chunk_bytes": largest,
        "shards_at_once": max((read.shards for read in reads), default=0),
        "memory_bytes": min(max(reader.reading.ahead_bytes, largest), of_rank * size) + max(most_read - largest, 0),
        **_shards_a_batch(order, share, layout),
    }
    advice = [*_advice(found, feed, share, reader.reading), *_advice_on_sizes(share)]
    return Plan(**found, **sized, advice=tuple(advice))


def _rank_samples(share: Share) -> int:
    return -(-share.after(0, share.num_batches()) // share.world_size)


def _chunks(reader: EpochReader, order: EpochOrder, share: Share) -> Iterator[list[NDArray[np.int64]]]:
    """The positions of batches that rank 0 reads at once: all, or some of each of several spans."""
    if _rank_samples(share) <= _ALL_SAMPLES:
        yield from (chunk.steps for chunk in reader.chunks(0))
        return
    settled = _SETTLED[order.reads_rounds]
    for look in range(_LOOKS):
        begin = share.after(0, share.num_batches() * look // _LOOKS)
        steps: list[NDArray[np.int64]] = []
        for number, chunk in enumerate(reader.chunks(begin)):
            steps = chunk.steps
            if number == settled:
                break
        if steps:
            yield steps


@dataclass(frozen=True, slots=True)
class _Read:
    """What is read at once.

    Attributes:
        samples: that were asked for.
        bytes: that are read for them.
        requests: by which they are read from a remote store, at least.
        shards: that they are in.
    """

    samples: int
    bytes: int
    requests: int
    shards: int


class _Kept:
    """The units that readers keep and do not read again, the least recently used first."""

    def __init__(self, layout: Layout) -> None:
        size = layout.read_samples * (layout.sample_bytes or USUAL_BYTES)
        least = (
            _LEAST_KEPT
            if layout.kept_bytes and layout.read_samples >= int(np.diff(layout.shard_ends, prepend=0).max())
            else 0
        )
        self._most = max(layout.kept_bytes // size, least) if layout.remote and layout.read_samples > 1 else 0
        self._units: OrderedDict[int, None] = OrderedDict()

    def missing(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the units that begin with these samples are read, and kept from then on."""
        if not self._most:
            return np.ones(len(starts), np.bool_)
        keys = starts.tolist()
        found = np.array([key not in self._units for key in keys], np.bool_)
        for key in keys:
            self._units[key] = None
            self._units.move_to_end(key)
        while len(self._units) > self._most:
            self._units.popitem(last=False)
        return found


def _read_of(steps: Sequence[NDArray[np.int64]], order: EpochOrder, share: Share, layout: Layout, kept: _Kept) -> _Read:
    positions = np.concatenate(steps)
    positions = positions[positions < share.num_samples]
    numbers = np.unique(order.at(positions))
    ends, size = layout.shard_ends, layout.sample_bytes or USUAL_BYTES
    shard = np.searchsorted(ends, numbers, "right")
    begins = np.concatenate(([0], ends[:-1]))[shard]
    unit = np.full(len(numbers), layout.read_samples)
    if layout.batch_samples:  # rows of record batches, but of shards with most of them the whole batches
        batch = begins + (numbers - begins) // layout.batch_samples * layout.batch_samples
        touched, first = np.unique(batch, return_index=True)
        rows = np.minimum(touched + layout.batch_samples, ends[shard[first]]) - touched
        whole = np.bincount(shard) >= _MOST_OF * np.bincount(shard[first], rows)
        unit[whole[shard]] = layout.batch_samples
    starts, new = np.unique(begins + (numbers - begins) // unit * unit, return_index=True)
    stops, in_shard = np.minimum(starts + unit[new], ends[shard[new]]), shard[new]
    read = kept.missing(starts)
    starts, stops, in_shard = starts[read], stops[read], in_shard[read]
    gaps, jumps = starts[1:] - stops[:-1], np.diff(in_shard) > 0
    apart = np.ones(len(starts), bool)
    apart[1:] = jumps | (gaps > (_GAP_BYTES // size if layout.remote else 0))
    if layout.by_reference and len(starts):
        wide = apart.copy()
        wide[1:] = jumps | (gaps > 2 * _GAP_BYTES // size)
        few = FEWER * np.bincount(in_shard[wide]) <= np.bincount(in_shard[apart])  # as `storage.fetch` asks a file
        apart = np.where(few[in_shard], wide, apart)
    begin = np.flatnonzero(apart)
    end = np.append(begin[1:], len(starts)) - 1 if len(begin) else begin
    sizes = (stops[end] - starts[begin]) * size
    return _Read(len(positions), int(sizes.sum()), int(np.ceil(sizes / _REQUEST_BYTES).sum()), len(np.unique(shard)))


def _shards_a_batch(order: EpochOrder, share: Share, layout: Layout) -> dict[str, float]:
    """Return how many shards are in a batch on average, and how many if every order were equally likely."""
    count, ends = layout.num_samples, layout.shard_ends
    whole = replace(share, last="drop").num_batches() or min(share.num_batches(), 1)  # without the rest of the epoch
    shards, sizes = [], []
    for step in np.unique(np.linspace(0, whole - 1, 16).astype(np.int64)).tolist() if whole else []:
        [positions] = share.positions(share.after(0, step), 1)
        batch = order.at(positions[positions < share.num_samples])
        shards.append(len(np.unique(np.searchsorted(ends, batch, "right"))))
        sizes.append(len(batch))
    of_shards = np.diff(ends, prepend=0) / count
    expected = np.mean([np.sum(1 - (1 - of_shards) ** size) for size in sizes or [0]])
    return {"shards_a_batch": float(np.mean(shards or [0])), "random_shards_a_batch": float(expected)}


def _advice(found: dict[str, Any], feed: DatasetFeed, share: Share, reading: Reading) -> Iterator[str]:
    """What to change, and what to type."""
    shuffle, times = feed.shuffle, found["read_bytes"] / max(found["rank_bytes"], 1)
    many = shuffle.kind == "block" and share.world_size > shuffle.lanes
    if isinstance(share, SizedShare) and share.world_size > len(share.batches):
        yield (
            f"a step of all ranks takes {share.world_size:,} batches, and an epoch has {len(share.batches):,}: use "
            "smaller batches, or fewer ranks"
        )
        return
    if not isinstance(share, SizedShare) and share.step_samples > share.num_samples:
        fits = max(share.num_samples // share.world_size, 1)
        whole = "the dataset" if feed.epoch_size is None else "an epoch"
        yield (
            f"a step of all ranks takes {share.step_samples:,} samples, and {whole} has {share.num_samples:,}: use "
            f"batch_size={fits} (--batch-size {fits}), or fewer ranks"
        )
        return
    if many:
        yield (
            f"{share.world_size} ranks share {shuffle.lanes} lanes, so several ranks read each block: use "
            f'shuffle=Shuffle("block", {shuffle.block}, lanes={share.world_size}) (--shuffle block --lanes '
            f"{share.world_size})"
        )
    elif times > _MUCH and shuffle.kind != "block" and feed.weights is None:
        yield (
            f"a rank reads {times:.1f} × the bytes of its samples, because neighbours are read together: use "
            'shuffle="block" (--shuffle block)'
        )
    elif times > _MUCH and isinstance(share, SizedShare) and feed.remote:
        yield (
            f"a rank reads {times:.1f} × the bytes of its samples, because batches by size hold samples of all blocks "
            "of a round: bound texts by batch_tokens=, keep shards on the local disk with cache_dir=, or write tars, "
            "whose samples are byte ranges"
        )
    if found["chunk_bytes"] > reading.ahead_bytes:
        at_once = format_bytes(found["chunk_bytes"])
        yield (
            f"a rank reads {at_once} at once, more than ahead_bytes, because rows that are read together are many: "
            'write smaller row groups, or shuffle with fewer blocks: Shuffle("block", …, window=2)'
        )


def _advice_on_sizes(share: Share) -> Iterator[str]:
    """What to change about batches by size, and what to type."""
    if not isinstance(share, SizedShare) or share.world_size > len(share.batches):
        return
    batches = share.batches
    more = "fewer sizes in image_size" if batches.resolutions else "a larger max_padding (--max-padding)"
    filled = float(np.mean((batches.ends - batches.begins) / batches.most))
    if share.left_out > _MUCH_LEFT * batches.num_samples:
        yield (
            f'last="drop" leaves out {share.left_out:,} of {count(batches.num_samples, "sample")}, of the same sizes '
            f'in each epoch: use last="short", {more}, or smaller batches'
        )
    elif filled < _WELL_FILLED:
        yield (
            f"a batch has {100 * filled:.0f} % of the samples that it may have, on average, because few samples are of "
            f"each size: use {more}, or smaller batches"
        )
