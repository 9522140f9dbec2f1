"""The loader: batches of a dataset for training, in an order that is exact, for any number of ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import public, whole_number
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable
from lading._core.features.items import PAYLOAD
from lading._core.features.row_layout import row_layout
from lading._core.features.types import Feature, Image, feature_of
from lading._core.train.buckets import SizedOrder
from lading._core.train.changed import feed_of_changed, refuse_keys_of
from lading._core.train.columns import Collate, ColumnMaker, Recipe
from lading._core.train.decode import Decode
from lading._core.train.feed import Feed, Parts
from lading._core.train.images import Fit, ImageSize
from lading._core.train.metrics import Gauge, LoopCounts, Metrics, Reports
from lading._core.train.missing import Missing
from lading._core.train.mixing import ENDLESS
from lading._core.train.mixture import Mixture
from lading._core.train.order import Shuffle
from lading._core.train.other_names import OF_OTHERS
from lading._core.train.processes import Processes
from lading._core.train.ranks import rank_and_world_size
from lading._core.train.reading import EpochReader, OnChanged, OnSampleError, Reading
from lading._core.train.share import Last, Share, SizedShare
from lading._core.train.sizes import Length, SizedFeed, Sizing, TooLarge
from lading._core.train.skipped import SkippedLedger, SkippedSample, refuse_wrong_max_skipped
from lading._core.train.sources import decode_of, feed_of, with_columns
from lading._core.train.state import before_of, earliest_state, refuse_other_state, state_of
from lading._core.train.weights import GivenWeights
from lading._core.units import parse_bytes
from lading.errors import UsageError, missing_extra
from lading.options import OpeningOptions

if TYPE_CHECKING:
    from lading._core.train.torch_dataset import TorchBatches

__all__ = ["Loader", "loader"]


@public("lading.loader", OF_OTHERS)
def loader(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: Queryable | Mixture,
    batch_size: int | None = None,
    *,
    batch_tokens: int | None = None,
    batch_pixels: int | None = None,
    bucket_by: str | None = None,
    length: Length | None = None,
    max_padding: float | None = None,
    too_large: TooLarge = "error",
    shuffle: bool | Literal["global", "block"] | Shuffle = False,
    seed: int | None = None,
    epoch_size: int | None = None,
    weights: GivenWeights | None = None,
    columns: Sequence[str] | None = None,
    decode: Mapping[str, Decode] | Literal[False] | None = None,
    image_size: ImageSize = None,
    fit: Fit | None = None,
    transform: Callable[..., dict[str, Any]] | None = None,
    batch_transform: Callable[[Any], Any] | None = None,
    collate: Collate = "numpy",
    last: Last = "short",
    rank: int | None = None,
    world_size: int | None = None,
    threads: int | None = None,
    workers: int = 0,
    ahead_bytes: int | str = "256MB",
    on_error: OnSampleError = "error",
    missing: Missing = "error",
    max_skipped: float | None = None,
    on_changed: OnChanged = "error",
    timeout: float | None = None,
    log_every: int | None = None,
    on_metrics: Callable[[Metrics], Any] | None = None,
    **opening: Unpack[OpeningOptions],
) -> Loader:
    """Batches of a dataset for training, one epoch after the other.

    Example:
        loader = lading.loader("train/*.tar", 64, shuffle=True, seed=7, collate="torch")
        for epoch in range(loader.epoch, 3):
            for batch in loader:
                batch["jpg"], batch["json"], batch["__key__"]
            torch.save(loader.state_dict(), path)

        lading.loader("texts/*.tar", batch_tokens=16_384, bucket_by="len(txt)", shuffle=True)
        lading.loader("train/*.tar", 32, image_size=lading.train.aspect_buckets(512 * 512), shuffle=True)

    The order is a function of the data, the seed, the epoch and the shuffle alone. `load_state_dict` goes on at the
    next sample, also with another number of ranks or another batch size.

    Args:
        source: a dataset, or what `lading.open` opens; or a mixture of `lading.mix`, which has a seed of its own.
        batch_size: samples a batch, by default 1; with `batch_tokens` or `batch_pixels` at most, by default any number.
        batch_tokens: what a padded batch has at most: the size of its largest sample times their number. `bucket_by` or
            `length` says the size. Samples of similar size make a batch. See the page "Batches by size".
        batch_pixels: the same for images of their own sizes: widest times highest times number. Of images with several
            `image_size`, height times width times number.
        bucket_by: the size by which samples are put together: a column, a field inside one, or what is computed of
            them, such as `len(txt)` (characters), `json.num_tokens`, `jpg.aspect_ratio`. Sizes of all samples are read
            once, and kept in the cache folder. With pixels it names the column of images, where there are several.
        length: the tokens of a sample, for `batch_tokens`: as `bucket_by`, or a function of the sample, a dict. Each
            rank calls a function for every sample when it starts: a column is cheaper.
        max_padding: share of a batch that is padding, at most: by default 0.1, and 0.2 for batches of what is left of
            several sizes at the end of an epoch. A value given holds for all.
        too_large: for a sample above `batch_tokens` or `batch_pixels`: `error`; `skip`, which leaves it out, counted;
            or `alone`, a batch of its own.
        shuffle: True for `global`, which is any order, where samples are byte ranges of local files, and `block` where
            the store is remote or files are compressed: blocks of neighbours in random order, shuffled within a round
            of about 128 MB, and read once. False for the order of the source.
        seed: of the shuffle, and of `rng` in `transform`; by default 0. Refused for a mixture.
        epoch_size: samples of an epoch, of all ranks together; by default those of the dataset, or what the mixture
            says. The next epoch goes on where the last one ended: in each pass over the data every sample comes once,
            and each pass has a shuffle of its own. An epoch may be larger than the dataset.
        weights: a column such as `score`, a field inside one such as `json.score`, what is computed of them as in
            conditions, such as `1 / json.count`, or a number for each sample. Samples are drawn with replacement, and
            a sample of twice the weight comes twice as often. An epoch has `epoch_size` draws, by default as many as
            samples. A column is read once, and kept in the cache folder.
        columns: columns to read, and fields inside them such as `json.score`, as `ds.select` takes them; None for all.
            Of documents, `items` stands for all columns of items.
        decode: what becomes of columns, such as `{"jpg": "pil"}`: `pil`, `numpy` (height, width, 3), `torch`
            (3, height, width), None for a list of values as `ds.with_decode(False)[i]` has them, such as bytes, or a
            function of such a value. By default images and audio are arrays or tensors, as `collate` says. False
            decodes no media, and is the default for `ds.with_decode(False)`. `lading.train.images` crops and mirrors
            images at random; `lading.train.frames` is for videos, and `lading.train.sound` for sound at a rate, or for
            some seconds of it.
        image_size: height and width of images, one number for both: a column of them is one array. A list of several,
            as `lading.train.aspect_buckets` gives it: each batch has images of one of them, each image in the one whose
            aspect ratio is nearest to its own. None leaves images as they are.
        fit: how images come to `image_size`: `stretch`, which is the default, changes proportions; `crop`, the default
            for a list of sizes, cuts off what juts out on both sides; `pad` adds black bars on both sides; `shortest`
            gives the shorter side the size and keeps the rest, so that a column is a list.
        transform: is given every sample, a dict of decoded values, and returns one: for augmentation, tokenizing. With
            an argument `rng` it is given a `numpy.random.Generator` too, of the seed, the epoch and the place of the
            sample in the order: a resumed job draws the same numbers, with any ranks and workers.
        batch_transform: is given every batch, and returns one: for tuples, pinned memory. Threads call both functions.
        collate: `numpy` or `torch` for a dict of columns, `list` for a list of samples, `arrow` for an Arrow table of
            bytes, or a function of the list of samples. It is given arrays; with `decode={"jpg": "torch"}` tensors.
        last: where the samples do not fill the last step of all ranks: `short` for shorter batches, `pad` for samples
            of the epoch again, `drop` to leave them out; the same for what is left of each size at the end. All ranks
            have the same number of batches. Where samples may come again, the column `__padding__` says which do.
        rank: of this process; by default that of `torch.distributed` if it is initialised, else that of torchrun,
            `mpirun` or a step of Slurm, else 0. Processes with one rank see the same samples. Rank 0 of 1 sees all.
        world_size: number of ranks; by default from where the rank is, else 1.
        threads: that decode, all of them the same batch; with functions of yours each a batch of its own. By default
            one a core, of those that this process may use. The ranks that torchrun starts on a machine share its
            cores; with another launcher, give a number. Each worker has so many; by default the workers share those of
            their rank.
        workers: processes that make the batches. They pay where functions of the user are heavy Python; media are
            decoded as fast by threads, which is the default, 0. The batches, the state, errors and counts are the same
            with any number. With a block shuffle each worker reads the bytes of all blocks: use `cache_dir` for a
            remote store. A script needs no `if __name__ == "__main__"`. cloudpickle sends functions to workers; what a
            function changes there stays there. A worker that dies is an error. Not on Windows.
        ahead_bytes: what is read ahead of the loop, at most, by the sizes of files.
        on_error: for a sample that cannot be decoded, or for which a function raises: `error`, or `skip`, which takes
            the next sound one of the order. `loader.skipped` lists them by key and reason.
        missing: for a sample without a value in a column that is an array, such as labels, or images with `image_size`:
            `error`; `skip`, which takes the next sample of the order; `list`, which makes such columns lists with None
            in all batches; or a value that is put there. A dict chooses by column, of lists and floats too:
            `{"label": -1, "jpg": "skip", "txt": ""}`. Unless it names them, floats have NaN there, and lists None.
        max_skipped: samples that may be skipped in an epoch of this rank: a number, or a rate such as `0.01` of the
            samples so far (at first of 1,000, or of the epoch). More are an error that names the first ones.
        on_changed: for a state of data that are others now: `error`, or `keys`, which gives the samples that were not
            given before, each once in the rest of the epoch; see `Loader.load_state_dict`. For one dataset, whose
            epochs give each sample once.
        timeout: seconds that a loop waits for a batch; then an error names samples, worker and what functions are at.
            None waits 300 seconds for a store to answer, and for functions and decoders as long as they take. A
            worker that has died is an error at once.
        log_every: batches after which a line on standard error says what the last ones took, such as `epoch 0  batch
            1,200 of 5,004  3,210 samples/s  412 MB/s  waited 2 %`; the last line is of the whole loop. With several
            ranks, rank 0 prints. None prints nothing. `loader.metrics` has the numbers at any time.
        on_metrics: is given these numbers instead, a `lading.train.Metrics`, after `log_every` batches and at the end
            of an epoch: `lambda metrics: wandb.log(metrics.to_dict())`. It is called in the loop, on every rank. The
            numbers are those since the last call, so without `log_every` those of the epoch.
        opening: the other arguments of `lading.open`, such as `split="train"`, for a source that is named. With
            `cache_dir` the ranks and workers of a machine share copies of remote shards: the first epoch downloads each
            shard once, and later ones download nothing.

    Raises:
        UsageError: an argument is wrong, the dataset has steps whose samples are not known by number, or there is no
            batch: no sample, or with `last="drop"` fewer than a step of all ranks.
    """
    if isinstance(columns, str):
        raise UsageError("columns must be a list of names", found=repr(columns), advice=f"Write columns=[{columns!r}].")
    reading = Reading(
        columns=None if columns is None else tuple(columns),
        threads=None if threads is None else whole_number("threads", threads, 1),
        ahead_bytes=parse_bytes(ahead_bytes),
        on_error=on_error,
        timeout_s=timeout,
        max_skipped=max_skipped,
        on_changed=on_changed,
        workers=whole_number("workers", workers, 0),
    )
    sizing = Sizing(batch_size, batch_tokens, batch_pixels, bucket_by, length, max_padding, too_large, image_size)
    ranks = None if rank is world_size is None else rank_and_world_size(rank, world_size)
    feed = feed_of(
        source, opening, shuffle, None if seed is None else whole_number("seed", seed),
        None if epoch_size is None else whole_number("epoch_size", epoch_size, 1), weights,
    )  # fmt: skip
    datasets = source.datasets.values() if isinstance(source, Mixture) else [each for _, each in feed.parts]
    recipe = Recipe(decode_of(datasets, decode), image_size, fit, transform, batch_transform, collate, missing)
    if reading.columns is not None:
        feed = with_columns(feed, reading.columns)
    if sizing.by_size:
        feed = sizing.applied(feed, reading.columns)
    reports = Reports(None if log_every is None else whole_number("log_every", log_every, 1), on_metrics)
    if on_metrics is not None and not callable(on_metrics):
        raise UsageError("on_metrics must be a function of the metrics", found=repr(on_metrics))
    made = Loader(feed, sizing.batch_size or 1, last, ranks, recipe, reading, reports)
    made.refuse_unused_size()
    return made


class Loader:
    """Gives batches; made by `lading.loader`. A `for` loop is one epoch, or what is left of it after `load_state_dict`.

    A loop that ends early (`break`) leaves its epoch: the next loop gives the next one. One loop runs at a time: the
    state is that of the last one that began, and an earlier one raises UsageError when it goes on. A forked process
    begins a loop of its own. A copy made by pickle goes on where this one stands.

    Attributes:
        epoch: number of the epoch that the next loop gives.
        counts: samples that were left out so far (`on_error="skip"`, `missing="skip"`), and those that batches by size
            leave out of an epoch (`too_large="skip"`, `last="drop"`), by a short phrase.
    """

    def __init__(
        self,
        feed: Feed,
        batch_size: int,
        last: Last,
        ranks: tuple[int, int] | None,
        recipe: Recipe,
        reading: Reading,
        reports: Reports,
    ) -> None:
        _refuse_wrong(last, reading)
        if reading.on_changed == "keys":
            refuse_keys_of(feed)
        self._feed, self._reading, self._recipe, self._given_ranks = feed, reading, recipe, ranks
        self._share = Share(feed.order(0).num_samples, batch_size, last, *(ranks or rank_and_world_size()))
        self._maker = ColumnMaker(recipe, partial(_columns_of, feed.parts))
        if any(row_layout(each.view).has_items for each in self.datasets):
            _refuse_of_samples_alone(self._maker, feed.parts)
        whole = self.share_of(1 if before_of(feed, 0) else 0)
        _refuse_no_batch(whole)
        self._left_out = Counter[str]()
        if isinstance(feed, SizedFeed):
            self._left_out["samples larger than a batch, left out of each epoch"] = feed.left_out
            self._left_out["samples that fill no batch of their size, left out of an epoch"] = whole.left_out
        if self._share.num_samples == ENDLESS:
            reports.refuse_without_end()
        self.epoch, self._position, self._resumed = 0, 0, False
        self._loop: Generator[Any] | None = None
        self._processes = Processes(reading.workers) if reading.workers else None
        self._ledger, self._reports = SkippedLedger(reading.max_skipped), reports
        self._gauge: Gauge | None = None
        choices = recipe.missing.values() if isinstance(recipe.missing, Mapping) else (recipe.missing,)
        skips_missing = any(isinstance(choice, str) and choice == "skip" for choice in choices)
        self._skips = skips_missing or reading.on_error == "skip"
        refuse_wrong_max_skipped(reading.max_skipped, skips=self._skips)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None, "_resumed": True}

    @property
    def datasets(self) -> tuple[OpenDataset, ...]:
        """The samples; of a mixture one dataset of all samples, and one of all documents."""
        return tuple(dataset for _, dataset in self._feed.parts)

    @property
    def counts(self) -> Counter[str]:
        """How many samples were left out so far, and of an epoch by size, by a short phrase."""
        return self._ledger.counts + self._left_out

    @property
    def skipped(self) -> list[SkippedSample]:
        """The first 1,000 samples that this loader has left out: their keys, and why.

        A state does not have them: it is the same on every rank, and each rank leaves out samples of its own.
        Workers of a `DataLoader` list theirs in their own processes: `workers=` of `lading.loader` lists all here.
        """
        return self._ledger.samples

    @property
    def metrics(self) -> Metrics:
        """What the loop that began last has done so far: samples, bytes, seconds, and what limits it.

        Of loops over this loader: the processes of a `DataLoader` (`to_torch`) and packing (`lading.pack`) count none.

        Example: `print(loader.metrics)`
        """
        return (self._gauge or self._new_gauge()).whole()

    def note(self, skipped: Sequence[SkippedSample], counts: LoopCounts) -> None:
        """Note what was done for a batch, and the samples left out. Raises DataError where these are too many."""
        if self._gauge is not None:
            self._gauge.add(counts)
        self._note_skipped(skipped, counts)

    def _note_skipped(self, skipped: Sequence[SkippedSample], counts: LoopCounts) -> None:
        self._ledger.add(skipped, counts.samples)

    def _new_gauge(self) -> Gauge:
        """What counts a loop that begins here."""
        share, workers = self.share_of(self.epoch), self._reading.workers
        processes = max(workers, 1)
        return Gauge(
            self.epoch, self.batches_done, None if share.num_samples == ENDLESS else share.num_batches(),
            processes=processes, remote=self._feed.remote,
            threads=processes * self._reading.shared_by(processes).decoding(self._maker),
        )  # fmt: skip

    @property
    def batches_done(self) -> int:
        """Batches of the epoch before the next one, where a progress bar goes on.

        After `break` these are the batches of the loop that was left: the next loop gives the next epoch, from 0.

        Example: `for batch in tqdm(loader, initial=loader.batches_done): ...`
        """
        share = self.share_of(self.epoch)
        return share.num_batches() - share.num_batches(self._position)

    def share_of(self, epoch: int) -> Share:
        """What this rank reads of an epoch."""
        return _share_in(self._feed, epoch, self._share)

    def refuse_unused_size(self) -> None:
        """Raise UsageError for an `image_size`, or a `fit`, that surely changes no image."""
        if self._recipe.image_size is None:
            return
        features, asked, all_known = dict[str, Feature](), self._reading.columns, True
        for each in self.datasets:
            if row_layout(each.view).has_items:
                features[PAYLOAD] = Image()
                continue
            mine = {field.name: feature_of(field) for field in each.schema if asked is None or field.name in asked}
            features |= mine
            all_known &= not each.schema_is_partial or len(mine) == len(asked or ())
        self._maker.refuse_unused_size(features, all_known=all_known)

    @property
    def by_size(self) -> bool:
        """Whether batches are made by size."""
        return isinstance(self._feed, SizedFeed)

    @property
    def separate_columns(self) -> Sequence[str]:
        """Columns each of which can be read without the others; none where functions or `skip` need whole samples."""
        parts, columns = self._feed.parts, self._reading.columns
        whole = self._maker.has_functions or self._skips or len(parts) > 1
        if whole or (columns is None and parts[0][1].schema_is_partial):
            return ()
        items = ["items"] if row_layout(parts[0][1].view).has_items else []
        return columns or [*_columns_of(parts), *items]

    def alone(self, columns: Sequence[str] = (), ahead: int = 1, *, decodes: bool = True) -> Loader:
        """A loader of the same samples, from where this one stands, that reads those of all ranks.

        Args:
            columns: those that it reads; by default those of this one.
            ahead: it reads one of so many parts of the bytes ahead.
            decodes: whether media are decoded; else batches have their files.
        """
        share, reading = replace(self._share, rank=0, world_size=1), self._reading
        recipe = self._recipe if decodes else replace(self._recipe, decode=False, image_size=None, fit=None)
        reading = replace(
            reading, columns=tuple(columns) or reading.columns, ahead_bytes=max(reading.ahead_bytes // ahead, 1)
        )
        found = Loader(self._feed, share.batch_size, share.last, (0, 1), recipe, reading, Reports())
        found.load_state_dict(self.state_dict())
        found._ledger = self._ledger  # what the other leaves out, this one lists
        return found

    def batches_at(
        self, epoch: int, columns: Sequence[str], recipe: Recipe, steps: Iterator[NDArray[np.int64]], step_bytes: int
    ) -> Generator[Any]:
        """A batch of these columns at each array of positions of an epoch (`EpochReader.batches_at`)."""
        reading = replace(self._reading, columns=tuple(columns))
        return replace(self.reader(epoch), reading=reading, maker=ColumnMaker(recipe)).batches_at(steps, step_bytes)

    @property
    def recipe(self) -> Recipe:
        """What is made of the rows of a batch, as `lading.loader` was told."""
        return self._recipe

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank, also after a resume (`batches_done`).

        By size epochs differ a little with a block shuffle, `epoch_size`, weights or a mixture.

        Raises TypeError for a mixture that never stops; `epoch_size` gives it epochs.
        """
        share = self.share_of(self.epoch)
        if share.num_samples == ENDLESS:
            raise TypeError("a mixture with stop='never' has no length; epoch_size=N gives it epochs")
        return share.num_batches()

    def __iter__(self) -> Iterator[Any]:
        self.refuse_other_ranks()
        self._end_loop()
        if self._position and not self._resumed:  # the loop before ended early, or never asked for more
            self.epoch, self._position = self.epoch + 1, 0
        self._gauge = self._new_gauge()
        self._loop = self._batches_from(self._position)
        return self._epoch(self._loop, self._position, os.getpid(), self._gauge)

    def _epoch(self, loop: Generator[Any], position: int, process: int, gauge: Gauge) -> Iterator[Any]:
        """The batches of a loop from a position on, while no other loop has begun."""
        epoch, share = self.epoch, self.share_of(self.epoch)
        left = share.num_batches(position)
        try:
            while True:
                if self._loop is loop and os.getpid() == process:
                    gauge.asked()
                    self._reports.tell(gauge, ended=not left, prints=share.rank == 0)
                    batch = gauge.next_of(loop) if left else None
                elif left:
                    raise _no_more(forked=os.getpid() != process)
                else:
                    return
                if not left:
                    break
                left -= 1
                self._position = position = share.after(position)
                self._resumed = False
                yield batch
                del batch
        finally:
            loop.close()
        self.epoch, self._position, self._loop = epoch + 1, 0, None

    def _end_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(ValueError):  # it is being advanced at this moment, by another thread
                loop.close()

    def _samples_after(self, epoch: int, position: int) -> int:
        """Samples of this rank behind a position of an epoch, but for a batch's worth."""
        share = self.share_of(epoch)
        return min(share.num_batches(position) * share.batch_size, share.num_samples - position)

    def _batches_from(self, position: int) -> Generator[Any]:
        self._ledger.begin(self._samples_after(self.epoch, position))
        if self._processes is None:
            return self.reader(self.epoch).batches(position)
        return self._processes.batches(self, self.epoch, position)

    def set_epoch(self, epoch: int) -> None:
        """Make the next loop give this epoch from its begin, or from where `load_state_dict` has it go on."""
        epoch = whole_number("epoch", epoch, 0)
        self._end_loop()
        if not self._resumed or epoch != self.epoch:
            self.epoch, self._position, self._resumed = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Where the next sample is: a small dict of what JSON has. The same on every rank.

        Inside of a loop, the batch that the loop was given last counts as used.
        """
        return self.state_at(*self._begin(self.epoch, self._position))

    def load_state_dict(self, state: Mapping[str, Any], before: Queryable | None = None) -> None:
        """Make the next loop go on where `state_dict` was made.

        The state of a `StatefulDataLoader` that reads `to_torch()` does as well, with any number of workers. Copies of
        the shards in other places do as well: where `shuffle=True` would choose another shuffle there, that of the
        state holds.

        With `on_changed="keys"` the data may have changed since. The rest of the epoch then gives each sample that was
        not given before, and its states go on in the same way. Data that grew by shards behind the last one need
        nothing else. Else `before` names the data of the state. If their shards are among those of today, all is known.
        Else the keys of samples say which were given: the data may have been written anew, in another format or in
        other shards. At the begin of an epoch nothing was given.

        Example: `loader.load_state_dict(state, before="old/*.tar")`

        Args:
            state: of a loader.
            before: the dataset that the state is of, or what `lading.open` opens. Used where the data changed, and not
                by shards behind the last one; until the end of the epoch, later states of it need `before` too.

        Raises:
            UsageError: it is no state, or one of other data or of another order; the error names what differs. Or two
                samples have one key.
        """
        state, steps = earliest_state(state)
        feed = self._feed
        if self._reading.on_changed == "keys":
            feed, state = feed_of_changed(feed, state, None if before is None else opened(before), steps)
        elif before is not None:
            raise UsageError("before= is for data that changed", found="a loader that refuses such states",
                             advice='Make it with on_changed="keys".')  # fmt: skip
        elif isinstance(state, Mapping) and "shuffle" in state:
            feed = feed.resumed(state["shuffle"])
        self._refuse_other_state(state, feed)
        self._end_loop()
        if feed is not self._feed:
            self._feed = feed
            self._processes = Processes(self._reading.workers) if self._reading.workers else None
        position = self.share_of(state["epoch"]).behind(state["position"], steps, state)
        (self.epoch, self._position), self._resumed = self._begin(state["epoch"], position), True

    def to_torch(self) -> TorchBatches:
        """The batches as a `torch.utils.data.IterableDataset`: worker processes of a `DataLoader` make them.

        They come in the order of this loader with any number of workers, from where this loader stands, and each loop
        gives the next epoch. That pays where a function of the user is heavy Python. Else the threads of the loader
        are as fast, without processes. With a block shuffle every batch has samples of all blocks of its round. So each
        worker reads the bytes of all blocks: n workers read n times the bytes of a store, and wait as long for it as
        one. Remote data are cheaper without workers.

        Example:
            workers = DataLoader(loader.to_torch(), batch_size=None, num_workers=4)
            for batch in workers: ...

        Raises:
            MissingExtra: PyTorch is not installed.
        """
        self.refuse_other_ranks()
        self.refuse_reports("to_torch()")
        try:
            from lading._core.train.torch_dataset import TorchBatches
        except ImportError as error:
            raise missing_extra(error, "this needs PyTorch", "torch", "Install it: pip install torch.") from error
        return TorchBatches(self)

    # For those who read parts of an epoch elsewhere

    def batches(self, epoch: int, position: int, every: int = 1) -> Generator[Any]:
        """The batches of an epoch from a position on, or one of so many where other processes make those between."""
        self._ledger.begin(self._samples_after(epoch, position) // every)
        return self.reader(epoch, every, self._note_skipped).batches(position)

    def reader(
        self, epoch: int, every: int = 1, note: Callable[[Sequence[SkippedSample], LoopCounts], None] | None = None
    ) -> EpochReader:
        """What reads the batches of an epoch, or one of so many; `note` takes what was done for each."""
        share, reading = replace(self.share_of(epoch), every=every), self._reading.shared_by(every)
        return EpochReader(self._feed, share, self._feed.order(epoch), self._maker, reading, note or self.note, epoch)

    @property
    def timeout_s(self) -> float | None:
        """Seconds that a loop waits for a batch, if the user says so."""
        return self._reading.timeout_s

    @property
    def given(self) -> dict[str, Any]:
        """What the user gave that other processes need: the data and the functions, by the names of arguments."""
        return {"source": self.datasets, **{each.name: getattr(self._recipe, each.name) for each in fields(Recipe)}}

    def refuse_reports(self, what: str) -> None:
        """Raise UsageError if the user wants reports of the loop, and the loop is over something else."""
        self._reports.refuse_for(what)

    def without_reports(self) -> Loader:
        """This loader, as other processes have it: the loop reports here."""
        found = copy(self)
        found._reports = Reports()  # noqa: SLF001 - of the copy
        return found

    def position_after(self, epoch: int, position: int, batches: int = 1) -> int:
        """The position behind so many batches of every rank in an epoch."""
        return self.share_of(epoch).after(position, batches)

    def state_at(self, epoch: int, position: int) -> dict[str, Any]:
        """The state of a loader that goes on at a position of an epoch."""
        return state_of(self._feed, epoch, position)

    def is_changed_since(self, state: Mapping[str, Any]) -> bool:
        """Whether the loader would go on from a state of other data."""
        same = state.get("fingerprint") in (self._feed.settings["fingerprint"], self._feed.old_fingerprint)
        return self._reading.on_changed == "keys" and not same

    def refuse_other_state(self, state: Mapping[str, Any]) -> None:
        """Raise UsageError if a state is none, or one of other data or of another order."""
        self._refuse_other_state(state, self._feed)

    def _refuse_other_state(self, state: Mapping[str, Any], feed: Feed) -> None:
        refuse_other_state(state, feed, lambda epoch, at: _share_in(feed, epoch, self._share).has(at))

    def refuse_other_ranks(self) -> None:
        """Raise UsageError if the program has set up `torch.distributed` since: ranks would read the same samples."""
        rank, world_size = self._given_ranks or rank_and_world_size()
        if world_size > 1 and (rank, world_size) != (self._share.rank, self._share.world_size):
            raise UsageError(
                "the loader was made before the ranks were known", found=f"rank {rank} of {world_size}",
                expected=f"rank {self._share.rank} of {self._share.world_size}",
                advice="Make it after torch.distributed.init_process_group, or give it rank= and world_size=.",
            )  # fmt: skip

    def _begin(self, epoch: int, position: int) -> tuple[int, int]:
        """An epoch and a position; of the next epoch where this one has no batch left."""
        ends = position and not self.share_of(epoch).num_batches(position)
        return (epoch + 1, 0) if ends else (epoch, position)

    def __getitem__(self, index: object) -> NoReturn:
        """Raise UsageError: `DataLoader(loader)` asks for samples by number."""
        raise UsageError(
            "a loader gives whole batches, in its order", found=f"loader[{index!r}]",
            advice="Loop over it, without a DataLoader. Or let the processes of a DataLoader make the batches: "
            "DataLoader(loader.to_torch(), batch_size=None, num_workers=2).",
        )  # fmt: skip

    def __repr__(self) -> str:
        share, settings = self.share_of(self.epoch), self._feed.settings
        endless = share.num_samples == ENDLESS
        batches, count = ("", settings["num_samples"]) if endless else (f"{len(self):,} ", share.num_samples)
        before, behind = (None if endless else self._feed.seen(self.epoch, at) for at in (0, count))
        of_each = {} if before is None or behind is None else {name: behind[name] - before[name] for name in before}
        sources = f" ({', '.join(f'{name} {number:,}' for name, number in of_each.items())})" if of_each else ""
        shuffles = settings["shuffle"] if isinstance(settings["shuffle"], list) else [settings["shuffle"]]
        kinds = " and ".join(dict.fromkeys(each["kind"] for each in shuffles))
        facts = [
            f"{count:,} samples{sources}",
            f"{batches}batches of {share.batch_size:,}" + (" on average" if self.by_size else ""),
            *([f"rank {share.rank} of {share.world_size}"] if share.world_size > 1 else []),
            "drawn by weights" if "weights" in settings else f"shuffle {kinds}",
            f"seed {settings['seed']}",
            f"epoch {self.epoch}" + (f" from sample {self._position:,}" if self._position else ""),
            *(f"{count:,} {what}" for what, count in self.counts.items()),
        ]
        return f"Loader({', '.join(facts)})"


def _share_in(feed: Feed, epoch: int, share: Share) -> Share:
    """What a rank reads of an epoch of a feed."""
    order = feed.order(epoch)
    if isinstance(order, SizedOrder):
        return SizedShare.of(share, order.batches)
    return replace(share, num_samples=order.num_samples)


def _columns_of(parts: Parts) -> list[str]:
    return list(dict.fromkeys(name for _, dataset in parts for name in dataset.columns))


def _refuse_of_samples_alone(maker: ColumnMaker, parts: Parts) -> None:
    """Raise UsageError for tables of documents together with samples."""
    if len(parts) > 1 and not maker.decodes:
        raise UsageError("a table holds samples or documents, and the mixture has both", found='collate="arrow"',
                         advice='Use collate="numpy", "torch" or "list".')  # fmt: skip


def _refuse_wrong(last: str, reading: Reading) -> None:
    if last not in ("short", "pad", "drop"):
        raise UsageError("no such way to end an epoch", expected="short, pad or drop", found=repr(last))
    if reading.on_error not in ("error", "skip"):
        raise UsageError("no such policy", expected="error or skip", found=repr(reading.on_error))
    if reading.on_changed not in ("error", "keys"):
        raise UsageError("no such policy", expected="error or keys", found=f"on_changed={reading.on_changed!r}")
    if reading.timeout_s is not None and not reading.timeout_s > 0:
        raise UsageError("timeout must be more than 0 seconds", found=repr(reading.timeout_s))


def _refuse_no_batch(share: Share) -> None:
    if not share.num_samples:
        raise UsageError("there are no samples to train on", advice="Look at the source, and at its steps.")
    if not share.num_batches():
        least, there = f"{share.step_samples} samples, a step of all ranks", f"{share.num_samples}"
        if isinstance(share, SizedShare):
            least, there = f"{share.world_size} full batches, a step of all ranks", f"{share.batches.whole}"
        raise UsageError(
            'no batch is left with last="drop"', expected=f"at least {least}", found=there,
            advice='Make batches smaller, or use last="short" or last="pad".',
        )  # fmt: skip


def _no_more(*, forked: bool) -> UsageError:
    if forked:
        return UsageError("this loop began in another process", advice="Begin a loop in each process.")
    return UsageError(
        "this loop over the loader has ended: another one began, or set_epoch or load_state_dict was called",
        advice="Call them between loops. Loops at the same time take a loader each.",
    )
