"""What a loader reads of the source that its user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Literal

from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable, refuse_opening
from lading._core.features.row_layout import row_layout
from lading._core.train.decode import Decode
from lading._core.train.feed import DatasetFeed, Feed, MixtureFeed
from lading._core.train.mixture import Mixture
from lading._core.train.order import Kind, Shuffle
from lading._core.train.weights import GivenWeights, weights_of
from lading.errors import UsageError

__all__ = ["decode_of", "feed_of", "feed_of_dataset", "with_columns"]


def feed_of(
    source: Queryable | Mixture, opening: Mapping[str, Any], shuffle: bool | Kind | Shuffle, seed: int | None,
    epoch_size: int | None, weights: GivenWeights | None,
) -> Feed:  # fmt: skip
    """Return the feed of a source; `opening` are arguments of `lading.open`, for a source that is named."""
    if not isinstance(source, Mixture):
        return feed_of_dataset(source, opening, shuffle, seed or 0, epoch_size, weights)
    refuse_opening(opening)
    if weights is not None:
        raise UsageError("weights are of the samples of one dataset", found="weights with a mixture",
                         advice="Give the datasets weights in lading.mix, or load one dataset.")  # fmt: skip
    if seed is not None:
        raise UsageError("a mixture has a seed of its own", found=f"seed={seed}",
                         advice=f"Give it to lading.mix(…, seed={seed}).")  # fmt: skip
    return MixtureFeed(source, shuffle, epoch_size)


def feed_of_dataset(
    source: Queryable, opening: Mapping[str, Any], shuffle: bool | Kind | Shuffle, seed: int,
    epoch_size: int | None, weights: GivenWeights | None,
) -> DatasetFeed:  # fmt: skip
    """Return the feed of a source that is one dataset."""
    dataset = opened(source, **opening)
    drawn = None if weights is None else weights_of(dataset, weights)
    return DatasetFeed.of(dataset, shuffle, seed, epoch_size, drawn)


def decode_of(
    datasets: Iterable[OpenDataset], decode: Mapping[str, Decode] | Literal[False] | None
) -> Mapping[str, Decode] | Literal[False] | None:
    """Return what becomes of columns: media stay bytes where `with_decode(False)` says so of the datasets."""
    ways = {each.media for each in datasets}
    if "stored" in ways:
        raise UsageError("batches have upright images", found="with_decode(upright=False)",
                         advice='For upright images: ds.with_decode().loader(…). For others give a function of the '
                         'bytes: decode={"jpg": function}.')  # fmt: skip
    if None not in ways or decode is False:
        return decode
    if len(ways) > 1 or decode is not None:
        raise UsageError("the media of all datasets are decoded, or those of none", found="with_decode(False)",
                         advice='Leave with_decode(False) out. decode={"jpg": None} gives the bytes of a column.'
                         )  # fmt: skip
    return False


def with_columns(feed: Feed, columns: Sequence[str]) -> Feed:
    """Return what is read, with these columns: of one dataset also fields inside columns.

    Raises:
        UsageError: there is no such column.
    """
    if isinstance(feed, DatasetFeed) and not row_layout(feed.dataset.view).has_items:
        feed = replace(feed, dataset=feed.dataset.with_fields(columns))  # the layout stays: so do states
    datasets = [dataset for _, dataset in feed.parts]
    known = list(dict.fromkeys(name for dataset in datasets for name in dataset.first_schema.names))
    if any(row_layout(dataset.view).has_items for dataset in datasets):
        known.append("items")
    lacking = [name for name in columns if name not in known]
    if lacking:
        known += [name for dataset in datasets for name in dataset.schema_with(lacking).names if name in lacking]
    for name in lacking:
        if name not in known:
            inside = "." in name or "[" in name
            select = ", ".join(map(repr, columns))
            near = get_close_matches(name, known, n=1)
            raise UsageError("no such column", expected=", ".join(known), found=repr(name),
                             advice=f"Select fields inside columns before: ds.select({select})." if inside
                             else f"Did you mean {near[0]}?" if near else None)  # fmt: skip
    return feed
