"""Two datasets side by side, by key: which samples are in one of them alone, and which differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.hashing import hash_strings
from lading._core.dataset.query import Query
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.verify.diff import ranks, unmatched
from lading._core.jobs.verify.digest import all_digests
from lading._core.view.work import PageWork
from lading.errors import UsageError

__all__ = ["Comparison", "DifferenceKind", "Differences", "differences"]

DifferenceKind: TypeAlias = Literal["changed", "only_a", "only_b"]
_Numbers: TypeAlias = NDArray[np.int64]
_LEASE_S = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """The samples in which two datasets differ, by number: 8 bytes each.

    Attributes:
        by: whether samples of one key are compared, or those of one number, where a dataset has no keys.
        counts: number of samples of each.
        changed: the numbers, in both datasets, of samples with other content: `(samples, 2)`.
        only_a: the numbers of samples that the second dataset lacks.
        only_b: the numbers of samples that the first dataset lacks.
        in_order: whether the samples that both have come in the same order.
    """

    by: Literal["key", "number"]
    counts: tuple[int, int]
    changed: _Numbers
    only_a: _Numbers
    only_b: _Numbers
    in_order: bool

    @property
    def same(self) -> int:
        """Number of samples that both have."""
        return self.counts[0] - len(self.only_a) - len(self.changed)

    def part(self, kind: str, start: int, stop: int) -> list[tuple[int | None, int | None]]:
        """Return the numbers of some differences in both datasets. Raises UsageError for an unknown kind."""
        if kind == "changed":
            return [(a, b) for a, b in self.changed[start:stop].tolist()]
        if kind == "only_a":
            return [(number, None) for number in self.only_a[start:stop].tolist()]
        if kind == "only_b":
            return [(None, number) for number in self.only_b[start:stop].tolist()]
        raise UsageError("no such differences", found=repr(kind), expected=", ".join(get_args(DifferenceKind)))


class Comparison:
    """The comparison of two datasets, which runs in a thread, as long as somebody asks for it.

    Args:
        one: the first dataset, with its steps.
        other: the second one.
    """

    def __init__(self, one: Query, other: Query) -> None:
        self.work = PageWork(lambda report: differences(one, other, report), lease_s=_LEASE_S)

    def state(self, wait_s: float) -> dict[str, Any]:
        """Return how far the comparison is, and the numbers of differences.

        Args:
            wait_s: wait until it ends, for so many seconds at most.
        """
        self.work.wait(wait_s)
        state, found = self.work.state(), self.work.result
        if found is None:
            return {**state, "counts": None}
        counts = {"a": found.counts[0], "b": found.counts[1], "changed": len(found.changed), "same": found.same,
                  "only_a": len(found.only_a), "only_b": len(found.only_b)}  # fmt: skip
        return {**state, "counts": counts, "by": found.by, "in_order": found.in_order}


def differences(one: Query, other: Query, report: OnProgress) -> Differences:
    """Return in which samples two datasets differ. Reads both once.

    Holds 24 bytes a sample: a digest and a hash of the key. Samples of one key are compared; of several with one key
    those of equal content, then in order. Where a dataset has no keys, samples of equal content are the same; the
    others are compared by number.
    """
    a, b = _Side.of(one, report, 0), _Side.of(other, report, 1)
    is_keyed = a.keys is not None and b.keys is not None
    digests = [side.digests if not is_keyed else _with_keys(side) for side in (a, b)]
    lone, lone_other = unmatched(*digests)
    if is_keyed:
        assert a.keys is not None
        assert b.keys is not None
        pairs = _paired(a.keys[lone], b.keys[lone_other])
    else:
        _, first, second = np.intersect1d(lone, lone_other, assume_unique=True, return_indices=True)
        pairs = first, second
    changed = np.stack([lone[pairs[0]], lone_other[pairs[1]]], axis=1)
    changed = changed[np.argsort(changed[:, 0], kind="stable")]
    return Differences(
        "key" if is_keyed else "number", (len(a.digests), len(b.digests)), changed, np.delete(lone, pairs[0]),
        np.delete(lone_other, pairs[1]),
        in_order=np.array_equal(np.delete(digests[0], lone, axis=0), np.delete(digests[1], lone_other, axis=0)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """All samples of a dataset.

    Attributes:
        digests: of each sample without its key, `(samples, 16)`.
        keys: a hash of each key; None if a sample has none.
    """

    digests: NDArray[np.uint8]
    keys: NDArray[np.uint64] | None

    @classmethod
    def of(cls, query: Query, report: OnProgress, place: int) -> _Side:
        """Read all samples of a dataset: the first or the second one of two."""
        digests, keys, is_keyed = [np.zeros((0, 16), np.uint8)], [np.zeros(0, np.uint64)], True

        def tell(done: Progress) -> None:
            share = (place + (done.done_share or 0)) / 2
            report(Progress(done.shards_done, done.num_shards, done.samples, done.payload_bytes,
                            f"reading {'AB'[place]}", share))  # fmt: skip

        with query.open_shards() as shards:
            shards.read_with(shards.fmt.info.presets.read_whole)
            for part in all_digests(shards, query.samples_of(shards), tell, keyed=True, with_key=False):
                digests.append(part.digests)
                found = part.keys or []
                is_keyed = is_keyed and None not in found
                if is_keyed:
                    keys.append(hash_strings(pa.array([str(key) for key in found], pa.large_string())))
        return cls(np.concatenate(digests), np.concatenate(keys) if is_keyed else None)


def _with_keys(side: _Side) -> NDArray[np.uint8]:
    """Digests that differ where the keys do."""
    assert side.keys is not None
    words = side.digests.copy().view(np.uint64)
    words[:, 0] ^= side.keys
    return words.view(np.uint8)


def _paired(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> tuple[_Numbers, _Numbers]:
    """The places of equal keys: of several, the first with the first."""
    names, which = np.unique(np.concatenate([one, other]), return_inverse=True)
    sides = which[: len(one)], which[len(one) :]
    codes = [side + ranks(side) * len(names) for side in sides]
    _, first, second = np.intersect1d(codes[0], codes[1], assume_unique=True, return_indices=True)
    return first, second
