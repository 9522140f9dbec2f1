"""Verify the shards of a dataset: their files, their rows, and what their format checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.arrow.views import total_bytes
from lading.caches.videos import broken_videos
from lading.content.digests import undigested as no_digest
from lading.dataset.shards.bad_shards import is_bad_shard
from lading.dataset.shards.sample_digests import batch_digests, digests_of, shard_content
from lading.dataset.shards.shards import Shards
from lading.errors import BadReference, LadingError, StoreError, Unrepresentable
from lading.features.items import sample_firsts
from lading.formats.base import Level, ShardFile
from lading.formats.registry import get_format
from lading.interleaved.open import stored_errors
from lading.jobs.checksums import check_shard
from lading.jobs.headers import broken_headers, key_of
from lading.jobs.indexes import Indexes
from lading.jobs.read_task import NO_DIGESTS, Look, OnRead
from lading.storage.concurrent import is_remote
from lading.storage.fetch import earlier_errors
from lading.storage.roots import ELSEWHERE
from lading.storage.stores import Stores, resolve

__all__ = ["Findings", "begin_verify", "look_at"]

_SMALL_BYTES, _TOGETHER_SHARDS = 64 << 10, 32
"""Shards that are read together; as many views stay open."""


class Findings:
    """Findings without repetitions, up to a maximum.

    Args:
        most: the maximum.
        first: the first findings.

    Attributes:
        most: the maximum.
        all: the findings, as `LadingError.to_dict` returns them.
    """

    def __init__(self, most: int, first: Iterable[LadingError] = ()) -> None:
        self.most = most
        self.all: list[Mapping[str, Any]] = []
        self._known: set[tuple[Any, ...]] = set()
        self.add(first)

    @property
    def full(self) -> bool:
        """Whether the maximum is reached."""
        return len(self.all) >= self.most

    def add(self, errors: Iterable[LadingError]) -> None:
        """Add errors. Stops asking for more of them at the maximum.

        Raises:
            StoreError: an error is of the machine or a store, and no fault of one file.
        """
        self.add_dicts(_of_the_data(error).to_dict() for error in errors)

    def add_dicts(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Add errors as `LadingError.to_dict` returns them."""
        for one in () if self.full else found:
            key = tuple(one.get(name) for name in ("file", "row", "offset", "expected", "found"))
            if "expected" in one and key in self._known:  # several checks compare the size of a shard
                continue
            self._known.add(key)
            self.all.append(one)
            if self.full:
                break


def _of_the_data(error: LadingError) -> LadingError:
    if isinstance(error, StoreError) and not is_bad_shard(error):
        raise error
    return error


def begin_verify(dataset: Shards, *, deep: bool, max_findings: int) -> Look:
    """Return what `verify` does with each shard."""
    return look_at(dataset, dataset.stores, Indexes.of(dataset, dataset.stores), deep, max_findings)


def look_at(dataset: Shards, stores: Stores, indexes: Indexes, deep: bool, most: int) -> Look:
    """Return what `verify` does with each shard, by indexes that were read."""
    if deep:
        dataset.read_with(get_format(dataset.format).info.deep_options)

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        findings = Findings(most)
        for group in ([number] for number in shards) if deep else _groups(dataset, shards, stores):
            together = _verify_together(dataset, group, on_read, indexes, stores) if len(group) > 1 else None
            if together is not None:
                yield from together
                continue
            for number in group:
                yield _Shard(dataset, number, findings, on_read, deep=deep).verify(indexes, stores)
                if findings.full:
                    return

    return look


def _groups(dataset: Shards, shards: Iterable[int], stores: Stores) -> Iterator[list[int]]:
    """Yield consecutive small shards together, others alone. A remote store is not asked for sizes: a request each."""
    group: list[int] = []
    for number in shards:
        size = dataset.listing.table["size_bytes"][number].as_py()
        store, path = resolve(dataset.path(number), stores)
        if size is None and not is_remote(store):
            with suppress(StoreError):  # verifying the shard reports it
                size = store.head(path).size_bytes
        small = size is not None and size <= _SMALL_BYTES
        if group and (not small or len(group) == _TOGETHER_SHARDS):
            yield group
            group = []
        if small:
            group.append(number)
        else:
            yield [number]
    if group:
        yield group


def _verify_together(
    dataset: Shards, numbers: Sequence[int], on_read: OnRead, indexes: Indexes, stores: Stores
) -> list[dict[str, Any]] | None:
    """Verify shards in one reading, which takes half of the time; None if there is a finding in one of them."""
    findings, earlier = Findings(1), Counter(dataset.counts)
    shards = [_Shard(dataset, number, findings, on_read, deep=False) for number in numbers]

    def checked() -> Iterator[int]:
        for number, shard in zip(numbers, shards, strict=True):
            shard.check_files(indexes, stores)
            yield number

    try:
        found = list(digests_of(dataset, checked()))
        for number, shard in zip(numbers, shards, strict=True):
            shard.samples, shard.whole = dataset.read_samples[number], True
            shard.finish(indexes, dataset.counts - earlier)  # those of all shards: a check looks again
    except LadingError:
        return None
    if findings.all:
        return None
    for one in found:
        on_read(one.digests, len(one.digests), one.size_bytes)
    return [shard.result() for shard in shards]


class _Shard:
    """A shard that is verified.

    Args:
        dataset: the dataset, open.
        number: number of the shard.
        findings: findings of all shards so far.
        on_read: receives digests, samples and bytes.
        deep: compare checksums, and look into payload.

    Attributes:
        samples: samples in the shard.
        whole: whether all of them were read, or match their checksum.
    """

    def __init__(self, dataset: Shards, number: int, findings: Findings, on_read: OnRead, *, deep: bool) -> None:
        self._dataset, self._number, self._path = dataset, number, dataset.path(number)
        self._findings, self._on_read, self._deep = findings, on_read, deep
        self._before = len(findings.all)
        self._checked: set[str] = set()
        self._file: ShardFile | None = None
        self._intact = False
        self.samples = self._trusted = 0
        self.whole = False
        self._undigested: str | None = None

    def verify(self, indexes: Indexes, stores: Stores) -> dict[str, Any]:
        """Return the result of this shard."""
        try:
            self.check_files(indexes, stores)
            self._read(indexes)
        except LadingError as error:
            self.whole = False
            self._findings.add([error.at(file=self._path)])
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return new findings, what was compared, sizes, and whether all samples were read, as JSON-able values."""
        return {
            "findings": self._findings.all[self._before :],
            "checked": sorted(self._checked),
            "size_bytes": self._file.info.size_bytes if self._file is not None and self._file.info is not None else 0,
            "trusted_samples": self._trusted,
            "whole": self.whole,
            "undigested": self._undigested,
        }

    def check_files(self, indexes: Indexes, stores: Stores) -> None:
        """Compare the files of the shard with checksums, sizes and hashes."""
        dataset, number, findings = self._dataset, self._number, self._findings
        self._checked |= _listed_facts(dataset, number)
        sums = check_shard(dataset.kept, number, stores, findings.most) if self._deep and dataset.kept else None
        if sums is not None:
            findings.add(sums.errors)
            self._checked.add("checksums")
        self._intact = sums is not None and not sums.errors
        self._file = dataset.source(number)
        self._checked |= indexes.check_files(dataset, number, stores)

    def _read(self, indexes: Indexes) -> None:
        """Read all rows, unless the shard matches its checksum, and check the rest."""
        dataset, findings = self._dataset, self._findings
        if self._intact and dataset.holds_its_bytes:
            self.samples = self._trusted = dataset.counted_shard(self._number).num_samples()
            self._on_read(NO_DIGESTS, self.samples, self.result()["size_bytes"])
            self.whole = True
            self.finish(indexes, None)
        elif not findings.full:
            earlier = Counter(dataset.counts)
            broken: LadingError | None = None
            try:
                self._read_rows()
                self.whole = not findings.full  # rows behind the last finding were not read
            except LadingError as error:
                broken = error.at(file=self._path)
                findings.add([broken])
            self.finish(indexes, None if broken is not None else dataset.counts - earlier, broken)

    def finish(self, indexes: Indexes, reported: Mapping[str, int] | None, broken: LadingError | None = None) -> None:
        """Check what reading the rows does not raise. Of a broken shard, only the files next to it are checked."""
        dataset, findings = self._dataset, self._findings
        level = Level.DEEP if self._deep and broken is None else Level.QUICK
        assert self._file is not None
        file = replace(self._file, view=dataset.view, reported=reported)
        for finding in () if findings.full else get_format(dataset.format).check(file, dataset.read_options, level):
            if finding.checked:
                self._checked.add(finding.checked)
            if finding.error is not None and (broken is None or finding.error.file != broken.file):
                findings.add([finding.error])
            if findings.full:
                break
        if self.whole:
            findings.add(indexes.check_counts(dataset, self._number, self.samples))

    def _read_rows(self) -> None:
        """Read all rows, or as far as there is room for findings. Findings before an error are kept."""
        try:
            self._findings.add(self._rows(digested=True))
        except Unrepresentable:
            self._undigested = no_digest(self._dataset.open_shard(self._number).schema())
            if self._undigested is None:
                raise
            self.samples = 0
            self._findings.add(self._rows(digested=False))
            self._trusted = self.samples

    def _rows(self, *, digested: bool) -> Iterator[LadingError]:
        """Read all rows and hand their digests over; yield rows whose payload in other files is unavailable.

        Rows for which an earlier job recorded the error are left out. With `deep`, problems of payload come too.
        """
        dataset, number = self._dataset, self._number
        if not self._deep and digested and dataset.holds_its_bytes:
            for found in digests_of(dataset, [number]):
                self._count(found.digests, len(found.digests), found.size_bytes)
            return
        first, stored = 0, cache(lambda: stored_errors(dataset.open_shard(number)))
        for batch in shard_content(dataset, number):
            digests = batch_digests(batch, dataset.view) if digested else NO_DIGESTS
            self._count(digests, len(sample_firsts(batch, dataset.view)), total_bytes(batch))
            errors = {first + row: text for row, text in earlier_errors(batch).items()}
            for row, text in [(row, text) for row, text in errors.items() if row not in stored()]:
                yield BadReference(text, file=self._path, row=row, sample=key_of(batch, row - first), advice=ELSEWHERE)
            if self._deep:
                yield from broken_headers(batch, self._path, first)
                yield from broken_videos(batch, self._path, first)
            first += len(batch)

    def _count(self, digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        self.samples += samples
        self._on_read(digests, samples, size_bytes)


def _listed_facts(dataset: Shards, number: int) -> set[str]:
    """Return which facts of a shard the manifest or the index lists: opening the shard compares them."""
    if dataset.manifest is None and dataset.listing.index_file is None:
        return set()
    facts, listed = (("sizes", "size_bytes"), ("counts", "num_samples")), dataset.listing.table
    return {word for word, column in facts if listed[column][number].is_valid}
