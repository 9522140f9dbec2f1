"""Batches by size: what the user says of them, the sizes of all samples, and epochs of such batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import is_number, whole_number
from lading._core.features.items import KEY
from lading._core.features.row_layout import row_layout
from lading._core.features.types import feature_of
from lading._core.storage.threads import Running
from lading._core.train.buckets import LEFT_OUT, Buckets, SizedOrder
from lading._core.train.decode import of_function
from lading._core.train.feed import EpochOrder, Feed, Parts
from lading._core.train.images import ImageSize, Size, is_several, sizes_of
from lading._core.train.mixing import ENDLESS
from lading._core.train.sample_numbers import error_at, numbers_of_samples, table_of_samples
from lading.errors import UsageError

__all__ = ["Length", "SizedFeed", "Sizing", "TooLarge"]

TooLarge: TypeAlias = Literal["error", "skip", "alone"]
"""For a sample above the bound of a batch: an error; leave it out, counted; or make it a batch of its own."""

Length: TypeAlias = str | Callable[[dict[str, Any]], float]
"""What says the tokens of a sample: a column, a field inside one, what is computed of them, or a function."""

_PADDING: Final = 0.1
_MERGED: Final = 0.2
"""The same of what is left of several sizes at the end of an epoch."""
_KEPT_EPOCHS: Final = 2
"""Workers of one loop may still be in the epoch before."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """How batches are made by size, as the user says it; the attributes are arguments of `lading.loader`."""

    batch_size: int | None = None
    batch_tokens: int | None = None
    batch_pixels: int | None = None
    bucket_by: str | None = None
    length: Length | None = None
    max_padding: float | None = None
    too_large: TooLarge = "error"
    image_size: ImageSize = None

    def __post_init__(self) -> None:
        """Refuse values that mean nothing, and arguments that would change nothing."""
        for name in ("batch_size", "batch_tokens", "batch_pixels"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, whole_number(name, value, 1))
        self._refuse_wrong_values()
        if self.batch_tokens is not None:
            self._refuse_other_tokens()
        self._refuse_other_images()
        self._refuse_without_effect()

    def _refuse_wrong_values(self) -> None:
        padding = self.max_padding
        if padding is not None and not (is_number(padding) and 0 <= padding < 1):
            raise UsageError("max_padding is a share of a batch", expected="a number from 0 to below 1, such as 0.1",
                             found=repr(padding))  # fmt: skip
        if self.too_large not in get_args(TooLarge):
            raise UsageError("no such way for samples that are too large", expected=", ".join(get_args(TooLarge)),
                             found=repr(self.too_large))  # fmt: skip
        if self.bucket_by is not None and not isinstance(self.bucket_by, str):
            raise UsageError("bucket_by is a text", expected='such as "len(txt)" or "jpg.aspect_ratio"',
                             found=repr(self.bucket_by)[:80],
                             advice="A function that counts the tokens of a sample is length=.")  # fmt: skip
        if self.length is not None and not isinstance(self.length, str) and not callable(self.length):
            raise UsageError("length is a text or a function of a sample", found=repr(self.length)[:80])

    def _refuse_without_effect(self) -> None:
        for name, what, others in (
            ("length", "says the tokens that batch_tokens= bounds", ("batch_tokens",)),
            ("max_padding", "is for batches by size", ("batch_tokens", "batch_pixels", "bucket_by")),
            ("too_large", "is for samples above a bound", ("batch_tokens", "batch_pixels")),
        ):
            given = getattr(self, name)
            if given not in (None, "error") and not any(getattr(self, other) is not None for other in others):
                more = " With batch_size= write bucket_by= in its place." if name == "length" else ""
                raise UsageError(f"{name} {what}", found=f"{name}={given!r} alone"[:80],
                                 advice=f"Add {' or '.join(f'{each}=' for each in others)}, or leave {name} out.{more}"
                                 )  # fmt: skip
        if self.bucket_by is not None and self.batch_size is None and self.bound == inf:
            raise UsageError("bucket_by needs to know how large a batch is", found=f"bucket_by={self.bucket_by!r}",
                             advice="Add batch_tokens= or batch_size=.")  # fmt: skip

    def _refuse_other_tokens(self) -> None:
        if self.batch_pixels is not None:
            raise UsageError("a batch has one bound", found="batch_tokens= and batch_pixels=",
                             advice="Leave one of them out.")  # fmt: skip
        if self.resolutions:
            raise UsageError("tokens say nothing about images of several sizes",
                             found="batch_tokens= with several sizes in image_size=",
                             advice="Write batch_pixels= or batch_size=.")  # fmt: skip
        if (self.length is None) == (self.bucket_by is None):
            raise UsageError("batch_tokens needs the tokens of each sample", expected="bucket_by= or length=",
                             found="neither" if self.length is None else "both",
                             advice='Write such as bucket_by="len(txt)", for characters; or length="json.num_tokens".'
                             )  # fmt: skip

    def _refuse_other_images(self) -> None:
        if self.batch_pixels is not None and self.image_size is not None and not self.resolutions:
            raise UsageError("images of one size need no bound of pixels", found="batch_pixels= with one image_size",
                             advice="Write batch_size=, or give image_size several sizes.")  # fmt: skip
        for name, default in (("max_padding", None), ("too_large", "error")) if self.resolutions else ():
            if (given := getattr(self, name)) != default:
                raise UsageError("images of one size a batch have no padding, and none is too large",
                                 found=f"{name}={given!r}", advice=f"Leave {name} out.")  # fmt: skip
        if self.resolutions and self.batch_size is None and self.bound == inf:
            raise UsageError("images of several sizes need to know how large a batch is", found="image_size= alone",
                             advice="Add batch_size= or batch_pixels=.")  # fmt: skip
        for height, width in self.resolutions if self.batch_pixels is not None else ():
            if height * width > self.bound:
                raise UsageError("an image of this size is above the bound of a batch",
                                 expected=f"at most batch_pixels={self.batch_pixels}", found=f"{height} × {width}",
                                 advice="Raise batch_pixels, or leave this size out.")  # fmt: skip

    @property
    def resolutions(self) -> tuple[Size, ...]:
        """Height and width of images, where there are several."""
        return sizes_of(self.image_size) if is_several(self.image_size) else ()

    @property
    def by_size(self) -> bool:
        """Whether batches are made by size, and not of neighbours in the order."""
        return bool(self.resolutions) or self.bucket_by is not None or self.bound < inf

    @property
    def bound(self) -> float:
        """The padded size of a batch, at most."""
        return self.batch_tokens or self.batch_pixels or inf

    @property
    def what(self) -> str:
        """What the bound counts."""
        return "tokens" if self.batch_tokens is not None else "pixels" if self.batch_pixels is not None else "samples"

    def applied(self, feed: Feed, columns: Sequence[str] | None = None) -> SizedFeed:
        """The samples of a feed, in batches by size. Reads the sizes of all samples, once: they are kept in the cache.

        Args:
            feed: the samples.
            columns: those that are read; None for all. A function for `length` is given these.

        Raises:
            UsageError: the epochs have no end, a sample has no size, or is above the bound.
        """
        if feed.order(0).num_samples == ENDLESS:
            raise UsageError("batches by size need an epoch that ends", found='stop="never"',
                             advice='Write epoch_size=N, or mix with stop="first" or stop="all".')  # fmt: skip
        return SizedFeed(feed, self.buckets(self.sides(feed.parts, columns)), self._told())

    def buckets(self, sides: NDArray[np.float64]) -> Buckets:
        """The buckets of samples with these sides (`sides`). Raises UsageError if all are larger than a batch."""
        if self.resolutions:
            return Buckets.by_shape(sides, self.resolutions, bound=self.bound, batch_size=self.batch_size)
        padding, merged = (_PADDING, _MERGED) if self.max_padding is None else (self.max_padding, 0.0)
        found = Buckets.by_size(
            sides, padding, bound=self.bound, batch_size=self.batch_size, most_merged=merged,
            leaves_out=self.too_large == "skip",
        )  # fmt: skip
        if len(found.of) and (found.of == LEFT_OUT).all():
            raise UsageError("all samples are larger than a batch", expected=f"at most {self.bound:,} {self.what}",
                             found=f"{len(found.of):,} samples, all left out", advice="Make batches larger.",
                             )  # fmt: skip
        return found

    def sides(self, parts: Parts, columns: Sequence[str] | None = None) -> NDArray[np.float64]:
        """The length of each sample, or its width and height: `(samples, 1)` or `(samples, 2)`.

        Raises:
            UsageError: a sample has no size, or is above the bound.
        """
        length = self.length if self.length is not None else self.bucket_by
        if self.batch_pixels is not None or self.resolutions:
            names = _image_columns(parts, self.bucket_by, columns)
            sides, length, least = _of_images(parts, names), " or ".join(f"{name}.width" for name in names), 1.0
        elif callable(length):
            sides, least = _called(parts, length, columns)[:, None], 0.0
        else:
            assert length is not None, "refused before"
            sides, least = numbers_of_samples(parts, length)[:, None], 0.0
        wrong = np.flatnonzero(~((sides >= least) & (sides < inf)).all(axis=1))
        if len(wrong):
            value = float(sides[wrong[0]].min())
            missing = " or ".join(f"{each} is not null" for each in _named(length).split(" or "))
            condition = missing if np.isnan(value) else f"{length} >= {least:g}"
            advice = (
                "Return a length for every sample." if callable(length)
                else f'Leave such samples out before: ds.where("{condition}").'
            )  # fmt: skip
            raise error_at(parts, int(wrong[0]), UsageError(
                "a sample has no size, and batches are made by size", expected=_named(length),
                found="no value" if np.isnan(value) else f"{value:g}", advice=advice,
            ))  # fmt: skip
        if self.too_large == "error" and not self.resolutions:
            self._refuse_too_large(parts, sides)
        return sides

    def _refuse_too_large(self, parts: Parts, sides: NDArray[np.float64]) -> None:
        sizes = sides.prod(axis=1)
        wrong = np.flatnonzero(sizes > self.bound)
        if len(wrong):
            count = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
            raise error_at(parts, int(wrong[0]), UsageError(
                "a sample is larger than a batch", expected=f"at most batch_{self.what}={int(self.bound):,}",
                found=f"{sizes[wrong[0]]:,.0f}{count}",
                advice="Write --too-large skip to leave such samples out, or --too-large alone for batches of their "
                f"own. The largest has {sizes.max():,.0f}.",
            ))  # fmt: skip

    def _told(self) -> dict[str, Any]:
        """What decides about batches, as a state keeps it."""
        length = self.length if self.length is not None else self.bucket_by
        found: dict[str, Any] = {
            "batch_size": self.batch_size,
            "batch_tokens": self.batch_tokens,
            "batch_pixels": self.batch_pixels,
            "bucket_by": length if isinstance(length, str) or length is None else _named(length),
            "max_padding": self.max_padding,
            "too_large": self.too_large,
            "image_size": [[*each] for each in self.resolutions],
        }
        return {name: value for name, value in found.items() if value is not None}


class SizedFeed:
    """Samples of a feed, in batches by size.

    Args:
        feed: the samples.
        buckets: of the samples.
        told: what decides about the batches, as a state keeps it.

    Memory: 4 bytes a sample, and 8 for each of two epochs.
    """

    def __init__(self, feed: Feed, buckets: Buckets, told: dict[str, Any]) -> None:
        self._feed, self.buckets, self._told = feed, buckets, told
        self._orders: OrderedDict[int, SizedOrder] = OrderedDict()
        self.left_out = int(np.count_nonzero(buckets.of == LEFT_OUT))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": OrderedDict()}

    @property
    def parts(self) -> Parts:
        """The datasets."""
        return self._feed.parts

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in its file, on average."""
        return self._feed.sample_bytes

    @property
    def remote(self) -> bool:
        """Whether files are in a store of high latency."""
        return self._feed.remote

    @property
    def seed(self) -> int:
        """Of the user."""
        return self._feed.seed

    @property
    def reads_units(self) -> bool:
        """Whether several samples are read from a remote store to read one."""
        return self._feed.reads_units

    @property
    def settings(self) -> dict[str, Any]:
        """What decides about the order, and about the batches."""
        return {**self._feed.settings, "batches": {**self._told, "sizes": self.buckets.digest}}

    @property
    def old_fingerprint(self) -> str:
        """The fingerprint that states of the same order had until 0.1."""
        return self._feed.old_fingerprint

    def resumed(self, shuffle: Any) -> SizedFeed:
        """The same samples with the shuffle of a state, where `shuffle=True` left the shuffle to lading."""
        feed = self._feed.resumed(shuffle)
        return self if feed is self._feed else SizedFeed(feed, self.buckets, self._told)

    def order(self, epoch: int) -> SizedOrder:
        """The order of an epoch, which is computed as a whole and kept."""
        found = self._orders.get(epoch)
        if found is None:
            whole: EpochOrder = self._feed.order(epoch)
            found = self._orders[epoch] = SizedOrder(whole, self.buckets)
            while len(self._orders) > _KEPT_EPOCHS:
                self._orders.popitem(last=False)
        return found

    def seen(self, epoch: int, position: int) -> dict[str, int] | None:
        """How often each source was given before an epoch; within it, before its end: it alone has the shares."""
        return self._feed.seen(epoch, self._feed.order(epoch).num_samples if position else 0)


def _named(length: Length) -> str:
    return length if isinstance(length, str) else getattr(length, "__name__", type(length).__name__)


def _image_columns(parts: Parts, asked: str | None, read: Sequence[str] | None) -> list[str]:
    """The columns of one image a sample, in their order; the one that is asked for, or those that are read.

    Raises:
        UsageError: there is none, or samples are documents.
    """
    if any(row_layout(dataset.view).has_items for _, dataset in parts):
        raise UsageError("a document has any number of images, and not one size", found="documents",
                         advice='Write batch_tokens= with length=FUNCTION of the document, or bucket_by="items.image".'
                         )  # fmt: skip
    schemas = (dataset.schema_with(None, whole=True) for _, dataset in parts)  # other shards may have other columns
    fields = (field for each in schemas for field in each)
    known = list(dict.fromkeys(field.name for field in fields if feature_of(field).medium == "image"))
    if asked is not None and asked not in known:
        raise UsageError("bucket_by names the column of images whose width and height count",
                         expected=", ".join(known) or "a column of images", found=repr(asked),
                         advice="Leave it out for the only one." if known else None)  # fmt: skip
    if not known:
        raise UsageError("no column holds images", expected="a column of one image a sample, for width and height",
                         found=", ".join(dict.fromkeys(name for _, dataset in parts for name in dataset.columns)),
                         advice='Write batch_tokens= with bucket_by="len(txt)" for texts.')  # fmt: skip
    return [asked] if asked is not None else [name for name in known if name in (read or ())] or known


def _of_images(parts: Parts, columns: Sequence[str]) -> NDArray[np.float64]:
    """Width and height of the image of each sample: in the first of these columns that has one."""
    facts = table_of_samples(parts, [f"{name}.{fact}" for name in columns for fact in ("width", "height")])
    each = facts.reshape(len(facts), len(columns), 2)
    first = np.argmin(np.isnan(each[:, :, 0]), axis=1)
    found: NDArray[np.float64] = each[np.arange(len(each)), first]
    return found


def _called(
    parts: Parts, function: Callable[[dict[str, Any]], float], columns: Sequence[str] | None
) -> NDArray[np.float64]:
    """What a function gives for each sample."""
    return np.fromiter(_calls(parts, function, columns), np.float64)


def _calls(parts: Parts, function: Callable[[dict[str, Any]], float], columns: Sequence[str] | None) -> Iterator[float]:
    for first, dataset in parts:
        chosen = dataset
        if columns is not None and not row_layout(dataset.view).has_items:
            chosen = dataset.selected(tuple(columns))
        for number, sample in enumerate(chosen.samples(), first):
            try:
                with Running(function):
                    value = float(function(sample))
            except Exception as error:
                raise error_at(parts, number, of_function("length", error, sample.get(KEY))) from error
            yield value
