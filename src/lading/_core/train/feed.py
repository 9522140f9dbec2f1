"""What a loader reads from: a dataset, or several in a mixture. Both give an order of samples for each epoch.

Example:
    feed = Feed.of(lading.open("train/*.tar"), shuffle=True, seed=7)
    feed.order(epoch=0).at(np.arange(64))    # numbers of samples in feed.parts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading._core.dataset.layout import Layout
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.transform.concat import concatenated
from lading._core.train.epochs import DrawnOrder, PassesOrder, Weights, places_of_passes
from lading._core.train.mixing import ENDLESS
from lading._core.train.mixture import Mixture, no_samples
from lading._core.train.order import LANES, Kind, Order, Shuffle, shuffle_of
from lading._core.train.permutation import derived_key
from lading._core.train.rest import Rest, RestOrder
from lading.errors import UsageError

__all__ = ["USUAL_BYTES", "DatasetFeed", "EpochOrder", "Feed", "MixtureFeed", "Parts"]

USUAL_BYTES: Final = 64 << 10
"""Of a sample, where no list says the sizes of files."""

_BLOCK_BYTES: Final = 512 << 10
_ROUND_BYTES: Final = 128 << 20
_MOST_WINDOW: Final = 32


Parts: TypeAlias = tuple[tuple[int, OpenDataset], ...]
"""Datasets whose samples are numbered one after another, and the number of the first sample of each."""


class EpochOrder(Protocol):
    """The order of one epoch.

    Attributes:
        num_samples: positions of the epoch.
        reads_rounds: whether samples up to `round_end` should be read at once.
    """

    num_samples: int

    @property
    def reads_rounds(self) -> bool:
        """Whether samples up to `round_end` should be read at once."""

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions."""

    def round_end(self, position: int) -> int:
        """Where the round of a position ends."""


class Feed(Protocol):
    """Samples, and their order in each epoch.

    Attributes:
        parts: the samples: datasets of samples or of documents, and the number of the first sample of each.
        sample_bytes: of a sample in its file, on average.
        remote: whether files are in a store of high latency.
        seed: of the user.
        reads_units: whether several samples are read from such a store to read one.
    """

    @property
    def parts(self) -> Parts:
        """Datasets of samples or of documents, and the number of the first sample of each."""

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in its file, on average."""

    @property
    def remote(self) -> bool:
        """Whether files are in a store of high latency."""

    @property
    def seed(self) -> int:
        """Of the user."""

    @property
    def reads_units(self) -> bool:
        """Whether several samples are read from a remote store to read one."""

    @property
    def settings(self) -> dict[str, Any]:
        """What decides about the order, as a state keeps it."""

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states of the same order had until 0.1."""

    def resumed(self, shuffle: Any) -> Feed:
        """The same samples with the shuffle of a state, where `shuffle=True` left the shuffle to lading."""

    def order(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""

    def seen(self, epoch: int, position: int) -> dict[str, int] | None:
        """How often each source was given before a position of an epoch; None where there is one source."""


@dataclass(frozen=True, slots=True)
class DatasetFeed:
    """One dataset, shuffled.

    Attributes:
        dataset: the samples.
        layout: how they lie.
        shuffle: how they are shuffled.
        seed: of the shuffle.
        chosen: whether lading chose the shuffle: another store of the same shards has another one.
        epoch_size: samples of an epoch; None for all samples.
        weights: by which samples are drawn; None for each sample once in a pass.
        steps: number of the dataset's steps that decide about the samples: those behind them add columns.
        rest: what is left of an epoch whose data changed, if one is.
    """

    dataset: OpenDataset
    layout: Layout
    shuffle: Shuffle
    seed: int
    chosen: bool = False
    epoch_size: int | None = None
    weights: Weights | None = None
    steps: int = 0
    rest: Rest | None = None

    @classmethod
    def of(
        cls, dataset: OpenDataset, shuffle: bool | Kind | Shuffle, seed: int, epoch_size: int | None = None,
        weights: Weights | None = None,
    ) -> Self:  # fmt: skip
        """The feed of a dataset. Raises UsageError for an unknown shuffle, or a shuffle in blocks with weights."""
        layout, steps = dataset.layout, len(dataset.query.steps)
        if weights is None:
            return cls(dataset, layout, resolved(shuffle, layout), seed, shuffle is True, epoch_size, steps=steps)
        if shuffle not in (True, False, "global", Shuffle("global")):
            raise UsageError("samples that are drawn by weights come in any order", expected="shuffle=True",
                             found=f"shuffle={shuffle!r} with weights", advice="Leave weights or the shuffle out."
                             )  # fmt: skip
        return cls(dataset, layout, Shuffle("global"), seed, epoch_size=epoch_size, weights=weights, steps=steps)

    @property
    def parts(self) -> Parts:
        """The dataset."""
        return ((0, self.dataset),)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in its file, on average."""
        return self.layout.sample_bytes or USUAL_BYTES

    @property
    def remote(self) -> bool:
        """Whether files are in a store of high latency."""
        return self.layout.remote

    @property
    def reads_units(self) -> bool:
        """Whether several samples are read from a remote store to read one."""
        return self.layout.remote and self.layout.unit_samples > 1

    @property
    def settings(self) -> dict[str, Any]:
        """What decides about the order."""
        return {
            "num_samples": self.layout.num_samples,
            "seed": self.seed,
            "shuffle": self.shuffle.as_dict(),
            "fingerprint": self.layout.fingerprint,
            **({} if self.epoch_size is None else {"epoch_size": self.epoch_size}),
            **({} if self.weights is None else {"weights": self.weights.fingerprint}),
        }

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states had until 0.1."""
        return self.layout.old_fingerprint

    def resumed(self, shuffle: Any) -> DatasetFeed:
        """The same samples with the shuffle of a state, if lading chose this one."""
        other = self.chosen and shuffle != self.shuffle.as_dict()
        return replace(self, shuffle=shuffle_of(shuffle), rest=None) if other else self

    @property
    def dataset_of_layout(self) -> OpenDataset:
        """The dataset without the steps that add columns for the loader."""
        query = self.dataset.query
        if len(query.steps) == self.steps:
            return self.dataset
        return OpenDataset(query.replace(steps=query.steps[: self.steps]), self.dataset.shards)

    def order(self, epoch: int) -> EpochOrder:
        """The order of an epoch, or of what is left of it."""
        if self.rest is not None and self.rest.epoch == epoch:
            return RestOrder(self.whole_order(epoch), self.rest.left)
        if self.weights is not None:
            return DrawnOrder(self.weights, self.seed, epoch, self.epoch_size or self.layout.num_samples)
        if self.epoch_size is not None:
            return PassesOrder(self.whole_order, epoch, self.epoch_size)
        return self.whole_order(epoch)

    def whole_order(self, number: int) -> Order:
        """The order of all samples in a pass over them; without `epoch_size` that is an epoch."""
        return Order(self.layout.shard_ends, self.shuffle, self.seed, number)

    def seen(self, epoch: int, position: int) -> None:
        """None: there is one source."""


class MixtureFeed:
    """A mixture, each dataset of it shuffled.

    Args:
        mixture: the datasets and their shares.
        shuffle: of each dataset.
        epoch_size: samples of an epoch, in which the mixture goes on where the last epoch ended; None where the mixture
            says when an epoch ends.

    Raises:
        UsageError: a dataset is empty, or an epoch of another size is asked for than the mixture says.
    """

    def __init__(self, mixture: Mixture, shuffle: bool | Kind | Shuffle, epoch_size: int | None = None) -> None:
        ends = "repeats" if mixture.of_epoch else 'stop="all"' if mixture.stop == "all" else None
        if epoch_size is not None and ends is not None:
            raise UsageError("the mixture says when an epoch ends", found=f"epoch_size={epoch_size} with {ends}",
                             advice=f"Leave epoch_size out, or {ends} of lading.mix.")  # fmt: skip
        self._mixture, self.seed, self._chosen = mixture, mixture.seed, shuffle is True
        self._epoch_size = epoch_size
        self._layouts = [each.layout for each in mixture.datasets.values()]
        self.remote = any(layout.remote for layout in self._layouts)
        self.reads_units = any(layout.remote and layout.unit_samples > 1 for layout in self._layouts)
        self._shuffles = [resolved(shuffle, layout) for layout in self._layouts]
        for name, layout in zip(mixture.datasets, self._layouts, strict=True):
            if not layout.num_samples:
                raise no_samples(name)
        counts, sizes = (
            np.array([getattr(layout, name) for layout in self._layouts]) for name in ("num_samples", "sample_bytes")
        )
        self._counts, self._firsts = counts, np.zeros(len(counts), np.int64)
        self.parts = tuple(self._numbered([*mixture.datasets.values()]))
        self.sample_bytes = int(np.average(np.where(sizes, sizes, USUAL_BYTES), weights=mixture.proportions.weights[0]))

    def _numbered(self, datasets: Sequence[OpenDataset]) -> Iterator[tuple[int, OpenDataset]]:
        """Number the samples of all datasets: those of datasets of samples, then documents."""
        begin = 0
        for view in ("samples", "interleaved"):
            mine = [i for i, each in enumerate(datasets) if each.view == view]
            ends = begin + np.cumsum(self._counts[mine])
            self._firsts[mine] = ends - self._counts[mine]
            if mine:
                yield begin, OpenDataset.of(concatenated([datasets[i] for i in mine]))
                begin = int(ends[-1])

    @cached_property
    def num_positions(self) -> int:
        """Positions of an epoch."""
        proportions, sources = self._mixture.proportions, range(len(self._counts))
        if self._epoch_size is not None:
            return self._epoch_size
        if self._mixture.of_epoch is not None:
            return sum(self._mixture.of_epoch)
        if self._mixture.stop == "never":
            return ENDLESS
        if self._mixture.stop == "all":
            ends = [proportions.position(i, int(self._counts[i])) for i in sources]
            return max(end for end in ends if end < ENDLESS)
        return min(proportions.position(i, int(self._counts[i]) + 1) - 1 for i in sources)

    @cached_property
    def _of_epoch(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._mixture.proportions.counts(np.array([self.num_positions]))[0]
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """What decides about the order, but for the weights: a state keeps how often each source was seen."""
        return {
            "num_samples": int(self._counts.sum()),
            "seed": self.seed,
            "shuffle": [shuffle.as_dict() for shuffle in self._shuffles],
            "fingerprint": self._fingerprint(each.fingerprint for each in self._layouts),
            **({} if self._epoch_size is None else {"epoch_size": self._epoch_size}),
        }

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states had until 0.1."""
        return self._fingerprint(each.old_fingerprint for each in self._layouts)

    def _fingerprint(self, of_sources: Iterable[str]) -> str:
        mixture = self._mixture
        ends = mixture.stop if mixture.of_epoch is None else f"repeats {mixture.of_epoch}"
        told = "\0".join(["never" if self._epoch_size else ends, *mixture.datasets, *of_sources])
        return xxhash.xxh3_64_hexdigest(told.encode())

    def resumed(self, shuffle: Any) -> MixtureFeed:
        """The same samples with the shuffles of a state, if lading chose these."""
        fits = isinstance(shuffle, list) and len(shuffle) == len(self._shuffles)
        if not self._chosen or not fits or shuffle == self.settings["shuffle"]:
            return self
        found = copy(self)
        found._shuffles = [*map(shuffle_of, shuffle)]  # noqa: SLF001 - of the copy
        return found

    def seen(self, epoch: int, position: int) -> dict[str, int]:
        """How often each source was given before a position: of the epoch, or of all epochs with `epoch_size`."""
        counts = self._mixture.proportions.counts(np.array([self._begin(epoch) + position]))[0]
        return dict(zip(self._mixture.datasets, counts.tolist(), strict=True))

    def _begin(self, epoch: int) -> int:
        """The position of the mixture at which an epoch begins."""
        return epoch * (self._epoch_size or 0)

    def order(self, epoch: int) -> _MixedOrder:
        """The order of an epoch: each source goes on where the last epoch ended."""
        return _MixedOrder(self, epoch)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers, as of `parts`, of the samples at some positions of an epoch."""
        source, sample = self._mixture.proportions.at(positions + self._begin(epoch))
        if self._epoch_size is None:
            sample += epoch * self._of_epoch[source]
        passes, places = np.divmod(sample, self._counts[source])
        found = self._firsts[source]
        for one in np.unique(source).tolist():
            mine = source == one
            found[mine] += places_of_passes(passes[mine], places[mine], partial(self._order_of, one))
        return found

    def _order_of(self, source: int, number: int) -> Order:
        name = [*self._mixture.datasets][source]
        seed = derived_key(self.seed, "source", name)
        return Order(self._layouts[source].shard_ends, self._shuffles[source], seed, number)


class _MixedOrder:
    """The order of one epoch of a mixture. What is read at once goes by bytes: rounds of sources end apart."""

    reads_rounds = False

    def __init__(self, feed: MixtureFeed, epoch: int) -> None:
        self._feed, self._epoch = feed, epoch
        self.num_samples = feed.num_positions

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._feed.numbers(self._epoch, positions)

    def round_end(self, position: int) -> int:
        return max(position, self.num_samples)


def resolved(shuffle: bool | Kind | Shuffle, layout: Layout) -> Shuffle:
    """The shuffle with its block, which depends on nothing but the data."""
    if isinstance(shuffle, Shuffle):
        return shuffle
    if shuffle is False:
        return Shuffle("none")
    usual: Kind = "block" if layout.remote or layout.unit_samples > 1 else "global"
    kind = usual if shuffle is True else shuffle
    if kind != "block":
        return Shuffle(kind)
    sample_bytes = layout.sample_bytes or USUAL_BYTES
    # Blocks of whole units: one that two blocks share would be read twice. Large row groups are cut by their pages.
    fits = layout.unit_samples * sample_bytes <= _ROUND_BYTES // LANES
    unit = layout.unit_samples if fits else layout.read_samples
    block = max(_BLOCK_BYTES // (sample_bytes * unit), 1) * unit
    window = _ROUND_BYTES // (LANES * block * sample_bytes)
    return Shuffle("block", block, min(max(window, 1), _MOST_WINDOW))
