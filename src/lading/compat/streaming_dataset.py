"""`StreamingDataset` and `Stream` of MosaicML Streaming, over local copies and lading's order of samples.

The peer's `StreamingDataLoader` takes and gives states of such a dataset: where the peer is installed, the class is a
virtual subclass of the peer's.

Source: mosaicml-streaming 0.13.0, base/dataset.py, base/stream.py and base/dataloader.py.
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from inspect import signature
from itertools import accumulate
from math import ceil
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import unknown_arguments
from lading._core.dataset.shards.shard import items_at
from lading._core.storage.stores import Stores
from lading._core.train.order import Order, Shuffle
from lading._core.train.permutation import Permutation, derived_key
from lading._core.train.ranks import rank_and_world_size
from lading._core.train.share import Share
from lading.compat.local_copy import LocalCopy
from lading.errors import UsageError, missing_extra

try:
    from torch.utils.data import IterableDataset

    from lading._core.train.torch_dataset import Loops, loop_of_worker
except ImportError as error:
    raise missing_extra(error, "this needs PyTorch", "torch", "Install it: pip install torch.") from error

__all__ = ["Stream", "StreamingDataset"]

_SHUFFLED: Final = 1 << 18
"""Samples that are shuffled together, as in the peer on 16 nodes and more."""
_SHUFFLES: Final = {"py1e": "block", "naive": "global"}
_NOT_DONE: Final[Mapping[str, tuple[Any, str]]] = {
    "download_retry": (2, 'requests are repeated for some time: storage_options={"retry_s": 180}'),
    "cache_limit": (None, "lading.loader(remote, cache_dir=…, cache_limit=…) keeps to a limit"),
    "sampling_granularity": (1, "samples of a partial repeat are drawn one by one"),
    "partition_algo": ("relaxed", "the order knows no nodes: a step takes the next samples"),
    "batching_method": ("random", "lading.mix has exact proportions in every batch"),
    "stream_name": ("stream", "give streams=[Stream(…)]"),
    "stream_config": (None, "give streams=[Stream(…)]"),
}  # fmt: skip
"""Arguments of the peer that must have their default, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A dataset of MDS and its share of an epoch.

    Example: `StreamingDataset(streams=[Stream(local="a", proportion=0.7), Stream(local="b", proportion=0.3)], …)`

    Attributes:
        remote: folder or URL of the dataset; None if its files are in `local`.
        local: folder that shards are fetched to. Without it, a remote that is a local folder is read in place.
        split: subfolder of the split, if any.
        proportion: share of the epoch, relative to the other streams, which must have one too.
        repeat: how many times an epoch has each sample, such as 1.5 or 0.1.
        choose: number of samples of an epoch.
        download_timeout: seconds that a store may be silent.
        validate_hash: as for `lading.compat.mosaicml.LocalCopy`.
        keep_zip: as for `lading.compat.mosaicml.LocalCopy`.

    Raises:
        UsageError: two of `proportion`, `repeat` and `choose`, or a negative one; or there is no folder.
    """

    remote: str | os.PathLike[str] | None = None
    local: str | os.PathLike[str] | None = None
    split: str | None = None
    proportion: float | None = None
    repeat: float | None = None
    choose: int | None = None
    download_retry: int | None = None
    download_timeout: float | None = None
    validate_hash: str | None = None
    keep_zip: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        weights = {name: getattr(self, name) for name in ("proportion", "repeat", "choose")}
        given = {name: value for name, value in weights.items() if value is not None}
        if len(given) > 1 or any(value < 0 for value in given.values()):
            raise UsageError("a stream has one weight, not negative", expected="proportion, repeat or choose",
                             found=str(given))  # fmt: skip
        if self.remote is None and self.local is None:
            raise UsageError("a stream needs local=, remote= or both")

    def opened(self, *, allow_pickle: bool, storage_options: Mapping[str, Any]) -> LocalCopy:
        """Return its local copy; its index is fetched if it is missing."""
        remote, local = self.remote, self.local
        if local is None:
            if "://" in str(remote):
                raise UsageError("shards are kept in a folder", found=f"remote={str(remote)!r}",
                                 advice='Say where: local="cache".')  # fmt: skip
            remote, local = None, str(remote)
        timeout = {} if self.download_timeout is None else {"timeout_s": self.download_timeout}
        copy = LocalCopy(local, self.split or None, remote=remote, keep_zip=bool(self.keep_zip),
                         validate_hash=self.validate_hash, allow_pickle=allow_pickle,
                         stores=Stores.of(None, {**timeout, **storage_options}))  # fmt: skip
        for shard in copy.shards:
            shard.validate(allow_pickle)
        if not len(copy):
            raise UsageError("a stream has no samples", file=os.path.join(local, self.split or ""))
        return copy


class StreamingDataset(IterableDataset[dict[str, Any]]):
    """Samples of MDS for training: by number, or in an order of each epoch, shared by ranks and worker processes.

    The order is lading's: a function of the data, the seed, the epoch and the shuffle. It is not the peer's order.

    Example:
        dataset = StreamingDataset(remote="s3://bucket/set", local="cache", shuffle=True, batch_size=32)
        for batch in DataLoader(dataset, batch_size=32, num_workers=8): ...

    Args:
        streams: the datasets, or one as `remote`, `local`, `split`, which are else defaults of all.
        remote, local, split: as for `Stream`.
        download_timeout, validate_hash, keep_zip: as for `Stream`, for streams without their own.
        epoch_size: samples of an epoch, for streams with proportions or without weights; a number, or a text such as
            `10k` (thousand), `1.5m` (million), `2b`, `1t`.
        predownload: samples of each worker whose shards are fetched ahead of use; by default 8 batches.
        sampling_method: `balanced` draws other samples of a stream in each epoch, `fixed` the same.
        num_canonical_nodes: any number: lading's order knows no nodes, and is the same for all numbers.
        batch_size: that of the `DataLoader`; samples of one rank.
        shuffle: whether the order is random.
        shuffle_algo: `py1e` shuffles blocks of neighbours, `naive` all samples.
        shuffle_seed: of the order.
        shuffle_block_size: number of samples that `py1e` shuffles together. Without `shuffle` nothing is shuffled.
        allow_unsafe_types: read pickles, which runs their code. By default columns of them are refused.
        replication: so many neighbouring ranks get the same samples.
        storage_options: as `lading.open` takes them; the peer has none.
        more: other arguments of the peer, with their defaults.

    Attributes:
        streams, batch_size, shuffle, shuffle_algo, shuffle_seed, replication, num_canonical_nodes: the arguments.
        length: samples of an epoch for one rank, as `len`.
        shards: those of all streams.
        num_samples: of all streams, by number.
        epoch_size: samples of an epoch.

    Raises:
        UsageError: an argument is wrong, or one that lading does not do; the message says what to do instead.
        SourceNotFound: an index is missing.
    """

    def __init__(  # noqa: PLR0913 - one argument a decision of the user, by keyword
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | os.PathLike[str] | None = None,
        local: str | os.PathLike[str] | None = None,
        split: str | None = None,
        download_timeout: float | None = None,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        num_canonical_nodes: int | None = None,
        sampling_method: str = "balanced",
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "py1e",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        allow_unsafe_types: bool = False,
        replication: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        _register()
        _refuse_not_done(more)
        if bool(streams) == (remote is not None or local is not None):
            raise UsageError("give either streams=, or remote=, local= or both")
        if sampling_method not in ("balanced", "fixed"):
            raise UsageError("no such sampling", expected="balanced or fixed", found=repr(sampling_method))
        _refuse_counts(1, num_canonical_nodes=num_canonical_nodes, batch_size=batch_size,
                       shuffle_block_size=shuffle_block_size, replication=replication)  # fmt: skip
        _refuse_counts(0, predownload=predownload)
        self.num_canonical_nodes = num_canonical_nodes
        self.batch_size, self.shuffle, self.shuffle_algo, self.shuffle_seed = (
            batch_size, shuffle, shuffle_algo, shuffle_seed)  # fmt: skip
        self.replication, self._predownload, self._fixed = replication, predownload, sampling_method == "fixed"
        self._shuffle = _shuffle(shuffle_algo, shuffle_block_size) if shuffle else Shuffle("none")
        usual = {"split": split, "download_timeout": download_timeout, "validate_hash": validate_hash,
                 "keep_zip": keep_zip}  # fmt: skip
        self.streams = [_with_defaults(each, usual) for each in streams or [Stream(remote=remote, local=local)]]
        options = dict(storage_options or {})
        self._copies = [each.opened(allow_pickle=allow_unsafe_types, storage_options=options) for each in self.streams]
        self.shards = [shard for copy in self._copies for shard in copy.shards]
        self._ends = np.cumsum([shard.samples for shard in self.shards])
        self._copy_ends = list(accumulate(map(len, self._copies)))
        self.num_samples = self._copy_ends[-1]
        self._chosen = _chosen(self.streams, [len(copy) for copy in self._copies], _samples(epoch_size), shuffle_seed)
        self.epoch_size = sum(self._chosen)
        rank, world_size = rank_and_world_size()
        self._rank, self._world_size = _replicated(rank, world_size, replication)
        self._loops = Loops(0, 0)

    @property
    def size(self) -> int:
        """Number of samples of all streams: those that have a number."""
        return self.num_samples

    @property
    def length(self) -> int:
        """Samples of an epoch for one rank."""
        return ceil(self.epoch_size / self._world_size)

    def __len__(self) -> int:
        """Samples of an epoch for one rank."""
        return self.length

    def __getitem__(self, index: Any) -> Any:
        """Return samples by their numbers, as `lading.compat.mosaicml.LocalCopy`."""
        return items_at(range(self.num_samples), index, self.get_item)

    def get_item(self, sample_id: int) -> dict[str, Any]:
        """Return one sample; its shard is fetched if it is missing."""
        number = bisect_right(self._copy_ends, sample_id)
        copy = self._copies[number]
        return copy.get_item(sample_id - self._copy_ends[number] + len(copy))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the samples of this rank and worker, of the next epoch or of what is left of it."""
        worker, workers, mark = loop_of_worker()
        share = self._share(workers)
        epoch, position = self._loops.begin(worker, mark)
        for numbers in self._fetched_ahead(self._batches(share, epoch, self._share(1).after(position, worker))):
            yield from map(self.get_item, numbers.tolist())

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        """Return the state after so many samples of all ranks; the peer's `StreamingDataLoader` calls this.

        Args:
            num_samples: samples of the epoch that all ranks have used.
            from_beginning: whether they are counted from the begin of the epoch, not from where it was resumed.
        """
        epoch, position = self._loops.last()
        done = num_samples if from_beginning else position + num_samples
        return {"epoch": epoch, "sample_in_epoch": min(done, self.epoch_size), "num_canonical_nodes": None,
                "shuffle_seed": self.shuffle_seed, "order": self._order_facts()}  # fmt: skip

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        """Make the next loop go on where the state was made, with any number of ranks and workers.

        Raises:
            UsageError: it is the state of another order of samples, such as the peer's own.
        """
        mine = {"shuffle_seed": self.shuffle_seed, "order": self._order_facts()}
        for name, value in mine.items():
            if obj.get(name) != value:
                raise UsageError("the state belongs to another order of samples", expected=f"{name} {value}",
                                 found=str(obj.get(name)), advice="Give the same data, seed and shuffle. A state of "
                                 "the peer's own dataset goes on there.")  # fmt: skip
        self._loops.resume(obj["epoch"], obj["sample_in_epoch"])

    def _order_facts(self) -> dict[str, Any]:
        return {"num_samples": self.num_samples, "chosen": self._chosen, "shuffle": self._shuffle.as_dict()}

    def _share(self, workers: int) -> Share:
        if self.batch_size is None:
            raise UsageError("samples are shared among workers by batches", found="batch_size=None",
                             advice="Give batch_size=, that of the DataLoader.")  # fmt: skip
        return Share(self.epoch_size, self.batch_size, "short", self._rank, self._world_size, every=workers)

    def _batches(self, share: Share, epoch: int, position: int) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the samples of each batch, from a position on."""
        drawn = self._drawn(0 if self._fixed else epoch)
        ends = self._ends if drawn is None else _ends_of_shards(drawn, self._ends)
        order = Order(ends, self._shuffle, self.shuffle_seed, epoch)
        for step in range(share.num_batches(position)):
            [positions] = share.positions(share.after(position, step), 1)
            numbers = order.at(positions % share.num_samples)
            yield numbers if drawn is None else drawn[numbers]

    def _drawn(self, epoch: int) -> NDArray[np.int64] | None:
        """Return the samples of an epoch, in the order of the streams; None for each once."""
        sizes = [len(copy) for copy in self._copies]
        if self._chosen == sizes:
            return None
        found = []
        for number, (count, size, end) in enumerate(zip(self._chosen, sizes, self._copy_ends, strict=True)):
            whole, part = divmod(count, size)
            some = Permutation(size, derived_key(self.shuffle_seed, epoch, "stream", number)).at(np.arange(part))
            found += [np.tile(np.arange(size), whole) + end - size, np.sort(some) + end - size]
        return np.concatenate(found)

    def _fetched_ahead(self, batches: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
        """Yield batches whose shards are there, while a thread fetches those of the next ones."""
        if all(copy.remote.url is None for copy in self._copies):
            yield from batches
            return
        ahead = 8 if self._predownload is None else ceil(self._predownload / self._share(1).batch_size)
        with ThreadPoolExecutor(1, "lading-predownload") as thread:
            waiting: deque[tuple[NDArray[np.int64], Future[None]]] = deque()

            def fetched() -> NDArray[np.int64]:
                numbers, done = waiting.popleft()
                done.result()
                return numbers

            try:
                for numbers in batches:
                    waiting.append((numbers, thread.submit(self._fetch, numbers)))
                    if len(waiting) > ahead:
                        yield fetched()
                while waiting:
                    yield fetched()
            finally:
                thread.shutdown(cancel_futures=True)

    def _fetch(self, numbers: NDArray[np.int64]) -> None:
        for shard in np.unique(np.searchsorted(self._ends, numbers, "right")).tolist():
            self.shards[shard].prepare()


@cache
def _import_peer() -> None:
    with suppress(ImportError):
        import streaming.base.dataset  # noqa: F401 - its StreamingDataLoader asks for its class


def _register() -> None:
    """Make the class one of the peer's, where that is installed: or its StreamingDataLoader would keep no state."""
    _import_peer()
    peer = getattr(sys.modules.get("streaming.base.dataset"), "StreamingDataset", None)
    if peer is not None:
        peer.register(StreamingDataset)


def _refuse_not_done(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name not in _NOT_DONE:
            own = signature(StreamingDataset).parameters
            raise unknown_arguments("StreamingDataset", [name], [each for each in own if each != "more"])
        usual, instead = _NOT_DONE[name]
        if value != usual:
            raise UsageError(f"lading does not do {name}", expected=f"{name}={usual!r}, or nothing",
                             found=repr(value), advice=f"Leave it out: {instead}.")  # fmt: skip


def _refuse_counts(least: int, **arguments: Any) -> None:
    """Raise UsageError for an argument that is neither None nor a number of at least `least`."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, Integral)) or value < least):
            raise UsageError(
                f"{name} is a whole number", expected=f"{least} or more, or None", found=f"{name}={value!r}"
            )


def _with_defaults(stream: Stream, usual: Mapping[str, Any]) -> Stream:
    _refuse_not_done({} if stream.download_retry is None else {"download_retry": stream.download_retry})
    return replace(stream, **{name: value for name, value in usual.items() if getattr(stream, name) is None})


def _shuffle(algo: str, samples: int | None) -> Shuffle:
    if algo not in _SHUFFLES:
        raise UsageError("lading has an order of its own", expected="shuffle_algo py1e (blocks) or naive (all samples)",
                         found=f"shuffle_algo={algo!r}")  # fmt: skip
    if algo == "naive":
        return Shuffle("global")
    usual = Shuffle("block", 1)
    return Shuffle("block", max((samples or _SHUFFLED) // (usual.window * usual.lanes), 1))


def _replicated(rank: int, world_size: int, replication: int | None) -> tuple[int, int]:
    if replication is None:
        return rank, world_size
    if replication < 1 or world_size % replication:
        raise UsageError("ranks are replicated in groups of one size", expected=f"a divisor of {world_size}",
                         found=f"replication={replication}")  # fmt: skip
    return rank // replication, world_size // replication


def _chosen(streams: Sequence[Stream], sizes: Sequence[int], epoch_size: int | None, seed: int) -> list[int]:
    """Return how many samples an epoch has of each stream, the numbers of the peer."""
    relative = [each.proportion is not None for each in streams]
    absolute = any(each.repeat is not None or each.choose is not None for each in streams)
    if any(relative) and not all(relative):
        raise UsageError("all streams have a proportion, or none", found=f"{sum(relative)} of {len(relative)}")
    if absolute or not (epoch_size or any(relative)):
        if epoch_size:
            raise UsageError("epoch_size is for streams without repeat and choose", found=f"epoch_size={epoch_size}")
        return [_count(each, size) for each, size in zip(streams, sizes, strict=True)]
    total = epoch_size or sum(sizes)
    weights = np.array([each.proportion for each in streams] if any(relative) else sizes, np.float64)
    counts = (total * (weights / weights.sum())).astype(np.int64)
    more = np.random.default_rng(seed).choice(len(streams), total - counts.sum(), replace=False)
    counts[more] += 1
    found: list[int] = counts.tolist()
    return found


def _samples(epoch_size: int | str | None) -> int | None:
    """Return a number of samples, such as 10,000 of `10k`."""
    if epoch_size is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmbt]?)", str(epoch_size).strip().lower())
    if found is None:
        raise UsageError("not a number of samples", expected="epoch_size=1000, or a text such as 1k",
                         found=f"epoch_size={epoch_size!r}")  # fmt: skip
    return int(Fraction(found[1]) * 1000 ** " kmbt".index(found[2] or " "))


def _count(stream: Stream, size: int) -> int:
    if stream.repeat is not None:
        return int(stream.repeat * size)
    return size if stream.choose is None else stream.choose


def _ends_of_shards(drawn: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the runs of drawn samples end that are of one shard, once each."""
    shards = np.searchsorted(ends, drawn, "right")
    breaks = np.flatnonzero((np.diff(shards) != 0) | (np.diff(drawn) <= 0)) + 1
    return np.append(breaks, len(drawn))
