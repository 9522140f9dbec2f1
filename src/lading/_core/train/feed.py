"""What a loader reads from: a dataset, or several in a mixture. Both give an order of samples for each epoch.

Example:
    feed = Feed.of(lading.open("train/*.tar"), shuffle=True, seed=7)
    feed.order(epoch=0).at(np.arange(64))    # numbers of samples in feed.parts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.dataset.layout import Layout
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable
from lading._core.dataset.transform.concat import concatenated
from lading._core.train.mixing import ENDLESS, Proportions, Stop
from lading._core.train.order import LANES, Kind, Order, Shuffle, shuffle_of
from lading._core.train.permutation import derived_key
from lading.errors import UsageError

__all__ = ["USUAL_BYTES", "DatasetFeed", "EpochOrder", "Feed", "Mixture", "MixtureFeed", "Parts", "mix"]

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

    def seen(self, position: int) -> dict[str, int] | None:
        """How often an epoch has given each source before a position; None where there is one source."""


@dataclass(frozen=True, slots=True)
class DatasetFeed:
    """One dataset, shuffled.

    Attributes:
        dataset: the samples.
        layout: how they lie.
        shuffle: how they are shuffled.
        seed: of the shuffle.
        chosen: whether lading chose the shuffle: another store of the same shards has another one.
    """

    dataset: OpenDataset
    layout: Layout
    shuffle: Shuffle
    seed: int
    chosen: bool = False

    @classmethod
    def of(cls, dataset: OpenDataset, shuffle: bool | Kind | Shuffle, seed: int) -> Self:
        """The feed of a dataset. Raises UsageError for an unknown shuffle."""
        layout = dataset.layout
        return cls(dataset, layout, resolved(shuffle, layout), seed, shuffle is True)

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
        }

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states had until 0.1."""
        return self.layout.old_fingerprint

    def resumed(self, shuffle: Any) -> DatasetFeed:
        """The same samples with the shuffle of a state, if lading chose this one."""
        other = self.chosen and shuffle != self.shuffle.as_dict()
        return replace(self, shuffle=shuffle_of(shuffle)) if other else self

    def order(self, epoch: int) -> Order:
        """The order of an epoch."""
        return Order(self.layout.shard_ends, self.shuffle, self.seed, epoch)

    def seen(self, position: int) -> None:
        """None: there is one source."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Datasets to be mixed, made by `lading.mix`; `lading.loader` takes it as a source.

    Attributes:
        datasets: by name.
        proportions: their shares.
        seed: of the shuffles of the datasets.
        stop: when an epoch ends.
    """

    datasets: Mapping[str, OpenDataset]
    proportions: Proportions
    seed: int
    stop: Stop

    def __repr__(self) -> str:
        shares = zip(self.datasets, self.proportions.weights[0].tolist(), strict=True)
        return f"Mixture({', '.join(f'{name} {100 * share:.4g} %' for name, share in shares)}, stop {self.stop})"


_EXAMPLE: Final = 'lading.mix({"a": (ds_a, 0.7), "b": (ds_b, 0.3)})'


@public("lading.mix")
def mix(
    sources: Mapping[str, tuple[Queryable, float]],
    *,
    seed: int = 0,
    stop: Stop = "first",
    schedule: Mapping[int, Mapping[str, float]] | None = None,
) -> Mixture:
    """Mix datasets in exact proportions, for `lading.loader`.

    Among any number of neighbours each dataset has its share, within one sample for each dataset. Each dataset is
    shuffled by itself, and begins again where it has no sample left. The datasets may have different formats, and some
    may be documents with items. A column that a dataset lacks is null in its samples.

    Example:
        both = lading.mix({"web": (web, 0.7), "books": (books, 0.3)}, seed=7)
        loader = lading.loader(both, 64, shuffle=True)
        loader.state_dict()["seen"]    # {"web": 4480, "books": 1920}

    Args:
        sources: each dataset, or what `lading.open` opens, and its weight, by name; weights need not have the sum 1.
        seed: of the shuffles of the datasets.
        stop: when an epoch ends: `first`, before a dataset would begin again; `all`, when every sample was given once,
            but for those of datasets whose weight is 0 before that; `never`.
        schedule: other weights from a position on, which counts the samples of all ranks in the epoch:
            `{1_000_000: {"web": 0.2, "books": 0.8}}`. A name that is left out has the weight 0.

    Raises:
        UsageError: no dataset, an empty one, a weight that is no weight, or a name that is unknown.
    """
    schedule = schedule or {}
    if stop not in ("first", "all", "never"):
        raise UsageError("no such way to end an epoch", expected="first, all or never", found=repr(stop))
    if not isinstance(sources, Mapping) or not sources:
        raise UsageError("no dataset to mix", found=type(sources).__name__, advice=f"Give {_EXAMPLE}.")
    for name, pair in sources.items():
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - a pair
            raise UsageError(f"the source {name!r} is no pair of a dataset and a weight", expected=_EXAMPLE,
                             found=type(pair).__name__)  # fmt: skip
    weights = {name: weight for name, (_, weight) in sources.items()}
    for begin, row in {0: weights, **schedule}.items():
        _refuse_wrong_weights(begin, row, weights)
    datasets = {name: opened(each) for name, (each, _) in sources.items()}
    return Mixture(datasets, Proportions.of(weights, schedule), seed, stop)


class MixtureFeed:
    """A mixture, each dataset of it shuffled.

    Args:
        mixture: the datasets and their shares.
        shuffle: of each dataset.
    """

    def __init__(self, mixture: Mixture, shuffle: bool | Kind | Shuffle) -> None:
        self._mixture, self.seed, self._chosen = mixture, mixture.seed, shuffle is True
        self._layouts = [each.layout for each in mixture.datasets.values()]
        self.remote = any(layout.remote for layout in self._layouts)
        self.reads_units = any(layout.remote and layout.unit_samples > 1 for layout in self._layouts)
        self._shuffles = [resolved(shuffle, layout) for layout in self._layouts]
        for name, layout in zip(mixture.datasets, self._layouts, strict=True):
            if not layout.num_samples:
                raise UsageError(f"the source {name!r} has no samples")
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
        }

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states had until 0.1."""
        return self._fingerprint(each.old_fingerprint for each in self._layouts)

    def _fingerprint(self, of_sources: Iterable[str]) -> str:
        told = "\0".join([self._mixture.stop, *self._mixture.datasets, *of_sources])
        return xxhash.xxh3_64_hexdigest(told.encode())

    def resumed(self, shuffle: Any) -> MixtureFeed:
        """The same samples with the shuffles of a state, if lading chose these."""
        fits = isinstance(shuffle, list) and len(shuffle) == len(self._shuffles)
        if not self._chosen or not fits or shuffle == self.settings["shuffle"]:
            return self
        found = copy(self)
        found._shuffles = [*map(shuffle_of, shuffle)]  # noqa: SLF001 - of the copy
        return found

    def seen(self, position: int) -> dict[str, int]:
        """How often an epoch has given each source before a position."""
        counts = self._mixture.proportions.counts(np.array([position]))[0]
        return dict(zip(self._mixture.datasets, counts.tolist(), strict=True))

    def order(self, epoch: int) -> _MixedOrder:
        """The order of an epoch: each source goes on where the last epoch ended."""
        return _MixedOrder(self, epoch)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers, as of `parts`, of the samples at some positions of an epoch."""
        source, sample = self._mixture.proportions.at(positions)
        sample += epoch * self._of_epoch[source]
        passes, places = np.divmod(sample, self._counts[source])
        found = np.empty(len(positions), np.int64)
        for one, number in {*zip(source.tolist(), passes.tolist(), strict=True)}:
            mine = (source == one) & (passes == number)
            found[mine] = self._firsts[one] + self._order_of(one, number).at(places[mine])
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


def _refuse_wrong_weights(begin: int, row: Mapping[str, float], known: Mapping[str, float]) -> None:
    if type(begin) is not int or begin < 0:
        raise UsageError("a position in the schedule is no position", found=repr(begin))
    unknown = [name for name in row if name not in known]
    if unknown:
        raise UsageError("the schedule names a source that is not mixed", expected=", ".join(known), found=unknown[0])
    wrong = [value for value in row.values() if not isinstance(value, (int, float)) or not 0 <= value < float("inf")]
    if wrong or not sum(row.values()):
        raise UsageError("weights must be numbers of at least 0, and one of them more", found=repr(dict(row)))
