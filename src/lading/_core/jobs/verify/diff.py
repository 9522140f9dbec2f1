"""The differences between two datasets of any formats."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.content.digests import DatasetDigest, differing_columns, differing_items
from lading._core.dataset.order.chosen_access import ChosenAccess, access_to
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.sample_access import SampleAccess
from lading._core.dataset.shards.sample_digests import Digested
from lading._core.dataset.shards.shards import Shards
from lading._core.jobs.engine.progress import OnProgress, reporting_passes
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.verify.digest import all_digests
from lading._core.json_forms import Differences
from lading._core.result_text import ResultText, shown_fact
from lading._core.units import count
from lading._core.visible import visible
from lading.errors import UsageError

__all__ = ["DiffResult", "diff", "difference_rows", "ranks", "unmatched"]

_SHOWN_ITEMS = 5
"""Items of a document that are listed."""
_Pair: TypeAlias = tuple[int | None, int | None]
"""The numbers of a sample in both datasets; None where a dataset lacks the sample."""


@dataclass(frozen=True, slots=True)
class DiffResult(ResultText):
    """How two datasets compare.

    Attributes:
        equal: same samples, in the same order unless any order is accepted.
        same_samples: same samples, perhaps in another order.
        counts: number of samples of each.
        digests: ordered digest of each.
        differing: samples that differ, or that one dataset lacks. In order: samples at the same place with other
            content.
        differences: the first differences: `samples` (number in each dataset, None where it is missing), `keys` (key in
            each), `fields` that differ, and for two documents of one id `items`: `position`, `modality`, `fields`, and
            `only_in` (`A` or `B`) for an item that the other document lacks.
    """

    equal: bool
    same_samples: bool
    counts: tuple[int, int]
    digests: tuple[str, str]
    differing: int = 0
    differences: Differences = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "equal" if self.equal else "different order" if self.same_samples else "different"
        verdict += ", in another order" if self.equal and len({*self.digests}) > 1 else ""
        rows = [(side, f"{count(number, 'sample')}, digest {digest}")
                for side, number, digest in zip("AB", self.counts, self.digests, strict=True)]  # fmt: skip
        rows += [("differing", f"{self.differing:,}")] if self.differing else []
        for numbers, keys, told in difference_rows(self):
            rows.append((f"sample {numbers}", f"{keys}: {'; '.join(told.splitlines())}"))
        more = self.differing - len(self.differences)
        rows += [("", f"… and {more:,} more")] if self.differences and more > 0 else []
        return "\n".join([f"DiffResult: {verdict}", *(shown_fact(name, text) for name, text in rows)])


def difference_rows(found: DiffResult) -> list[tuple[str, str, str]]:
    """Return the differences as text: numbers of the samples, their keys, and the fields or items that differ."""
    return [_row(**difference) for difference in found.differences]


def _row(
    samples: tuple[int | None, int | None],
    keys: tuple[str | None, str | None],
    fields: list[str],
    items: list[dict[str, Any]] | None = None,
) -> tuple[str, str, str]:
    names = [visible(str(key)) for key in dict.fromkeys(keys) if key is not None]
    numbers = " / ".join(f"{number:,}" for number in dict.fromkeys(samples) if number is not None)
    if None in samples:
        told = f"only in {'B' if samples[0] is None else 'A'}"
    elif items:
        more = [f"… {len(items) - _SHOWN_ITEMS:,} more items"] if len(items) > _SHOWN_ITEMS else []
        told = "\n".join([*map(_item, items[:_SHOWN_ITEMS]), *more])
    else:
        told = visible(", ".join(fields)) or "order"
    return numbers, " / ".join(names) or "(no key)", told


def _item(item: dict[str, Any]) -> str:
    place = "metadata" if item["modality"] == "metadata" else f"position {item['position']}, {item['modality']}"
    told = f"only in {item['only_in']}" if "only_in" in item else ", ".join(item["fields"])
    return visible(f"{place}: {told}")


@public("lading.diff")
def diff(
    one: Queryable,
    other: Queryable,
    *,
    any_order: bool = False,
    max_differences: int = 10,
    options: Sequence[Mapping[str, Any]] = ({}, {}),
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
) -> DiffResult:
    """Compare the content of two datasets in any formats, sample by sample.

    Example:
        lading.diff("mint/*.tar", "out").equal

    Files beside the shards, such as videos of a cache, are compared by their bytes, as `convert` takes them along.

    Args:
        one: as for `lading.open`, or a dataset.
        other: the same.
        any_order: ignore the order of samples: samples with one key are compared. Holds the digest and the key of every
            sample, some 50 bytes each.
        max_differences: differences to describe, at most.
        options: further arguments of `lading.open`, for each side.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix, for
            each side that is no open dataset.
        on_progress: called after every batch and shard of the first dataset.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
    """
    if len(options) != 2:  # noqa: PLR2004 - the two sides
        raise UsageError("options are those of both sides", expected="two dicts", found=repr(options)[:80])
    if storage_options is not None and Query.held_by(one) is not None and Query.held_by(other) is not None:
        raise UsageError("both datasets are open already", found="storage_options",
                         advice="Give storage_options to lading.open.")  # fmt: skip
    totals = (DatasetDigest(), DatasetDigest())
    shared = {} if storage_options is None else {"storage_options": storage_options}
    first, second = (Query.of(side, **{**({} if Query.held_by(side) else shared), **own})
                     for side, own in zip((one, other), options, strict=True))  # fmt: skip
    with (
        first.open_shards() as a,
        second.open_shards() as b,
        shown_progress("comparing", on_progress, progress=progress) as report,
        reporting_passes(a, report),
        reporting_passes(b, report),
    ):
        for shards in (a, b):
            shards.read_with(shards.fmt.info.presets.read_whole)
        chosen = first.samples_of(a), second.samples_of(b)
        parts = all_digests(a, chosen[0], report, keyed=True), all_digests(b, chosen[1], None, keyed=True)
        compare = _in_any_order if any_order else _in_order
        pairs, differing = compare(*parts, totals, max_differences)
        both = access_to(a, chosen[0]), access_to(b, chosen[1])
        found = [_described(pair, keys, both, (a, b)) for pair, keys in pairs]
    one_count, other_count = (total.count for total in totals)
    same = totals[0].unordered == totals[1].unordered and one_count == other_count
    equal = same and (any_order or totals[0].ordered == totals[1].ordered)
    return DiffResult(
        equal, same, (one_count, other_count), (str(totals[0].ordered), str(totals[1].ordered)), differing, found
    )


_Pairs: TypeAlias = tuple[list[tuple[_Pair, tuple[Any, Any]]], int]
"""The first samples that differ, with their keys, and the number of all."""


def _described(
    pair: _Pair, keys: tuple[Any, Any], both: Sequence[SampleAccess | ChosenAccess], shards: tuple[Shards, Shards]
) -> dict[str, Any]:
    """Return a difference as `DiffResult` has it."""
    one, other = (None if at is None else access.take([at]) for at, access in zip(pair, both, strict=True))
    told: dict[str, Any] = {"samples": pair, "keys": keys, "fields": []}
    if one is None or other is None:
        return told
    if not all(each.has_items for each in shards):
        told["fields"] = differing_columns(one, other)
    elif one["sample_id"][0].as_py() != other["sample_id"][0].as_py():
        told["fields"] = ["sample_id"]
    else:
        told["items"] = differing_items(one, other)
        told["fields"] = sorted({name for item in told["items"] for name in item["fields"]})
    return told


def _in_order(
    one: Iterator[Digested], other: Iterator[Digested], totals: tuple[DatasetDigest, DatasetDigest], most: int
) -> _Pairs:
    found: list[tuple[_Pair, tuple[Any, Any]]] = []
    differing = 0
    for first, left, right in _aligned(one, other, totals):
        shared = min(len(left.keys), len(right.keys))
        unlike = np.flatnonzero((left.digests[:shared] != right.digests[:shared]).any(axis=1))
        differing += len(unlike) + abs(len(left.keys) - len(right.keys))
        some = unlike[: most - len(found)].tolist()
        found += [((first + i, first + i), (left.keys[i], right.keys[i])) for i in some]
        more = most - len(found)
        found += [((first + i, None), (key, None)) for i, key in enumerate(left.keys[shared : shared + more], shared)]
        found += [((None, first + i), (None, key)) for i, key in enumerate(right.keys[shared : shared + more], shared)]
    return found, differing


def _in_any_order(
    one: Iterator[Digested], other: Iterator[Digested], totals: tuple[DatasetDigest, DatasetDigest], most: int
) -> _Pairs:
    (left, left_keys), (right, right_keys) = _whole(one, totals[0]), _whole(other, totals[1])
    lone, lone_other = unmatched(left, right)
    of_key: dict[Any, deque[int]] = defaultdict(deque)
    for at in lone_other.tolist():
        of_key[_key(right_keys, at)].append(at)
    pairs: list[_Pair] = []
    matched = set()
    for at in lone.tolist():
        key = _key(left_keys, at)
        partner = of_key[key].popleft() if key is not None and of_key.get(key) else None
        matched.add(partner)
        pairs.append((at, partner))
    pairs += [(None, at) for at in lone_other.tolist() if at not in matched]
    return [(pair, (_key(left_keys, pair[0]), _key(right_keys, pair[1]))) for pair in pairs[:most]], len(pairs)


def _whole(parts: Iterator[Digested], total: DatasetDigest) -> tuple[NDArray[np.uint8], pa.ChunkedArray]:
    """Return the digests and keys of all samples."""
    digests, keys = [np.zeros((0, 16), np.uint8)], []
    for part in parts:
        total.update(part.digests)
        digests.append(part.digests)
        keys.append(pa.array([None if key is None else str(key) for key in part.keys or ()], pa.large_string()))
    return np.concatenate(digests), pa.chunked_array(keys, pa.large_string())


def _key(keys: pa.ChunkedArray, at: int | None) -> str | None:
    return None if at is None else keys[at].as_py()


def unmatched(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the samples of each side that have no equal sample on the other side, by number."""
    both = np.ascontiguousarray(np.concatenate([one, other])).view(np.uint64)
    order = np.lexsort((both[:, 1], both[:, 0]))  # a quarter of the time of np.unique
    ordered = both[order]
    which = np.zeros(len(both), np.int64)
    which[order[1:]] = np.cumsum((ordered[1:] != ordered[:-1]).any(axis=1))
    sides = which[: len(one)], which[len(one) :]
    counts = [np.bincount(side, minlength=len(both)) for side in sides]
    shared = np.minimum(*counts)
    return _beyond(sides[0], shared), _beyond(sides[1], shared)


def _beyond(which: NDArray[np.int64], shared: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of values that come more often than `shared` says: the later ones."""
    return np.flatnonzero(ranks(which) >= shared[which])


def ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many equal values stand before each value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, np.int64)
    lengths = np.diff(firsts, append=len(ordered))
    found = np.zeros(len(values), np.int64)
    found[order] = np.arange(len(ordered)) - np.repeat(firsts, lengths)
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Digests and keys of consecutive samples."""

    digests: NDArray[np.uint8]
    keys: list[str | int | None]

    @classmethod
    def empty(cls) -> _Part:
        return cls(np.zeros((0, 16), np.uint8), [])

    def head(self, count: int) -> _Part:
        return _Part(self.digests[:count], self.keys[:count])

    def tail(self, count: int) -> _Part:
        return _Part(self.digests[count:], self.keys[count:])


def _aligned(
    one: Iterator[Digested], other: Iterator[Digested], totals: tuple[DatasetDigest, DatasetDigest]
) -> Iterator[tuple[int, _Part, _Part]]:
    """Ordinal of the first, and as many samples of each as both have at hand; at the end what is left of one."""
    first, left, right = 0, _Part.empty(), _Part.empty()
    while True:
        if not left.keys:
            left = _next(one, totals[0])
        if not right.keys:
            right = _next(other, totals[1])
        count = min(len(left.keys), len(right.keys)) or max(len(left.keys), len(right.keys))
        if not count:
            return
        yield first, left.head(count), right.head(count)
        first, left, right = first + count, left.tail(count), right.tail(count)


def _next(parts: Iterator[Digested], total: DatasetDigest) -> _Part:
    for part in parts:
        total.update(part.digests)
        if part.keys:
            return _Part(part.digests, part.keys)
    return _Part.empty()
