"""Verify the shards of a dataset: their files, their rows, and what their format checks."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from enum import IntEnum
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.hashing import hash_strings
from lading._core.arrow.types import names_of
from lading._core.arrow.views import take_rows, total_bytes
from lading._core.caches.videos import broken_videos
from lading._core.content.digests import undigested as no_digest
from lading._core.dataset.shards.bad_shards import is_bad_shard
from lading._core.dataset.shards.sample_digests import batch_digests, digests_of, shard_content
from lading._core.dataset.shards.shards import Shards
from lading._core.features.items import KEY
from lading._core.formats.base import ShardFile
from lading._core.formats.findings import Level
from lading._core.formats.registry import get_format
from lading._core.interleaved.open import stored_errors
from lading._core.jobs.engine.read_task import NO_DIGESTS, Look, OnRead
from lading._core.jobs.stats.headers import broken_headers, key_of
from lading._core.jobs.verify.checksums import check_shard
from lading._core.jobs.verify.indexes import Indexes
from lading._core.jobs.verify.values import ValueChecks
from lading._core.storage.concurrent import is_remote
from lading._core.storage.fetch import earlier_errors
from lading._core.storage.roots import ELSEWHERE
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.zip_store import damaged_files
from lading.errors import BadReference, DataError, LadingError, NotFound, StoreError, Unrepresentable

__all__ = ["Depth", "FindingLevel", "Findings", "begin_verify", "look_at"]

FindingLevel: TypeAlias = Literal["problem", "note"]
"""A problem is damage or a contradiction. A note is what a user may want to know of sound data."""


class Depth(IntEnum):
    """How much of a dataset `verify` reads.

    Attributes:
        QUICK: headers, footers and indexes.
        FILES: the bytes of all files. Samples are read where no checksum tells whether the bytes are as written.
        DEEP: the same, and every sample.
        DECODE: the same, and every value is decoded.
    """

    QUICK = 0
    FILES = 1
    DEEP = 2
    DECODE = 3


_SMALL_BYTES, _TOGETHER_SHARDS = 64 << 10, 32
"""Shards that are read together; as many views stay open."""


class Findings:
    """Findings without repetitions: the first ones, and the number of the others.

    Args:
        most: number of findings that are kept.
        first: the first findings.

    Attributes:
        most: the same.
        all: the kept findings, as `LadingError.to_dict` returns them, with their `level`.
        more: number of further findings.
    """

    def __init__(self, most: int, first: Iterable[LadingError] = ()) -> None:
        self.most, self.more = most, 0
        self.all: list[Mapping[str, Any]] = []
        self._known: set[tuple[Any, ...]] = set()
        self.add(first)

    def add(self, errors: Iterable[LadingError], level: FindingLevel = "problem") -> None:
        """Add errors of a level.

        Raises:
            StoreError: an error is of the machine or a store, and no fault of one file.
        """
        for error in errors:
            one = _of_the_data(error).to_dict()
            missing = isinstance(error, NotFound)  # several checks look at the files of a shard
            names = ("error", "file") if missing else ("file", "row", "offset", "expected", "found")
            key = tuple(one.get(name) for name in names)
            if (missing or "expected" in one) and key in self._known:
                continue
            if len(self.all) == self.most:
                self.more += 1
                continue
            self._known.add(key)
            self.all.append({"level": level, **one})


def _of_the_data(error: LadingError) -> LadingError:
    if isinstance(error, StoreError) and not is_bad_shard(error):
        raise error
    return error


def begin_verify(dataset: Shards, *, depth: Depth, max_findings: int) -> Look:
    """Return what `verify` does with each shard."""
    return look_at(dataset, dataset.stores, Indexes.of(dataset, dataset.stores), depth, max_findings)


def look_at(dataset: Shards, stores: Stores, indexes: Indexes, depth: Depth, most: int) -> Look:
    """Return what `verify` does with each shard, by indexes that were read."""
    if depth >= Depth.DEEP:
        dataset.read_with(get_format(dataset.format).info.presets.read_deep)

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        with ValueChecks() if depth is Depth.DECODE else nullcontext() as values:
            together = depth is Depth.FILES and not (dataset.kept is not None and dataset.kept.has_checksums)
            for group in _groups(dataset, shards, stores) if together else ([number] for number in shards):
                found = _verify_together(dataset, group, on_read, indexes, stores) if len(group) > 1 else None
                for number in group if found is None else ():
                    yield _Shard(dataset, number, Findings(most), on_read, depth, values).verify(indexes, stores)
                yield from found or ()

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
    earlier = Counter(dataset.counts)
    shards = [_Shard(dataset, number, Findings(1), on_read, Depth.FILES, None) for number in numbers]

    def checked() -> Iterator[int]:
        for number, shard in zip(numbers, shards, strict=True):
            shard.check_files(indexes, stores)
            yield number

    try:
        found = list(digests_of(dataset, checked(), keyed=True))
        for number, shard in zip(numbers, shards, strict=True):
            shard.samples, shard.is_read = dataset.read_samples[number], True
            shard.finish(indexes, dataset.counts - earlier)  # those of all shards: a check looks again
    except LadingError:
        return None
    if any(shard.has_findings for shard in shards):
        return None
    first = 0
    keys = [key for one in found for key in one.keys or ()]
    for one in found:
        on_read(one.digests, len(one.digests), one.size_bytes)
    for shard in shards:
        shard.add_keys(keys[first : first + shard.samples])
        first += shard.samples
    return [shard.result() for shard in shards]


class _Shard:
    """A shard that is verified.

    Args:
        dataset: the dataset, open.
        number: number of the shard.
        findings: takes its findings.
        on_read: receives digests, samples and bytes.
        depth: how much is read.
        values: decodes the values of its rows; None to decode nothing.

    Attributes:
        samples: samples in the shard.
        is_read: whether all of them were read.
    """

    def __init__(
        self,
        dataset: Shards,
        number: int,
        findings: Findings,
        on_read: OnRead,
        depth: Depth,
        values: ValueChecks | None,
    ) -> None:
        self._dataset, self._number, self._path = dataset, number, dataset.path(number)
        self._findings, self._on_read, self._depth, self._values = findings, on_read, depth, values
        self._checked: set[str] = set()
        self._file: ShardFile | None = None
        self._index: pa.Table | None = None
        self._has_sums = self._intact = self._is_counted = False
        self.samples = 0
        self.is_read = False
        self._undigested: str | None = None
        self._keys: list[NDArray[np.uint64]] = []
        self._decoded = 0

    @property
    def has_findings(self) -> bool:
        """Whether there are findings."""
        return bool(self._findings.all)

    @property
    def _size_bytes(self) -> int:
        info = None if self._file is None else self._file.info
        return 0 if info is None else info.size_bytes

    def verify(self, indexes: Indexes, stores: Stores) -> dict[str, Any]:
        """Return the result of this shard."""
        try:
            if self.check_files(indexes, stores):
                self._look(indexes)
        except LadingError as error:
            self.is_read = False
            self._findings.add([error.at(file=self._path)])
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return findings, what was compared and read, and hashes of keys, as JSON-able values."""
        keys = np.concatenate([np.zeros(0, np.uint64), *self._keys])
        return {
            "findings": self._findings.all,
            "more": self._findings.more,
            "path": self._path,
            "checked": sorted(self._checked),
            "size_bytes": self._size_bytes,
            "samples": self.samples,
            "summed": self._has_sums,
            "unsummed": not self._has_sums and self._file is not None and self._depth > Depth.QUICK,
            "read": self.is_read,
            "undigested": self._undigested,
            "decoded": self._decoded,
            "undecoded": {} if self._values is None else dict(self._values.undecoded),
            "keys": base64.b64encode(keys.tobytes()).decode()
            if self._is_counted and len(keys) == self.samples
            else None,
        }

    def check_files(self, indexes: Indexes, stores: Stores) -> bool:
        """Compare the files of the shard with sizes, checksums and hashes; return whether its rows can be read.

        Raises:
            NotFound: the shard is missing.
            LadingError: a file that the shard needs is missing, or differs from the index by which it is read.
        """
        dataset, number, findings = self._dataset, self._number, self._findings
        self._checked |= _listed_facts(dataset, number)
        wrong: LadingError | None = None
        try:
            self._file = dataset.source(number)
        except NotFound:
            raise
        except LadingError as error:
            wrong = error.at(file=self._path)
            findings.add([wrong])
        sums = None
        if dataset.kept is not None and self._depth > Depth.QUICK:
            sums = check_shard(dataset.kept, number, stores, findings.most, end_as_one=True)
        if sums is not None:
            findings.add(sums.errors)
            findings.more += sums.more
            self._has_sums = True
            self._checked.add("checksums")
        self._intact = sums is not None and not sums.errors
        if wrong is None:
            self._checked |= indexes.check_files(dataset, number, stores, hashes=self._depth > Depth.QUICK)
        return wrong is None

    def _look(self, indexes: Indexes) -> None:
        """Read all rows as far as the depth says so, and check the rest."""
        dataset, trusted = self._dataset, self._intact and self._dataset.holds_its_bytes
        if self._depth is Depth.QUICK or (trusted and self._depth is Depth.FILES):
            self._count_samples()
            self.finish(indexes, None)
            return
        earlier = Counter(dataset.counts)
        broken: LadingError | None = None
        try:
            self._read_rows()
            self.is_read = True
        except LadingError as error:
            broken = error.at(file=self._path)
            self._findings.add([broken])
        self.finish(indexes, None if broken is not None else dataset.counts - earlier, broken)

    def _count_samples(self) -> None:
        """Count samples by the headers of the shard, or of a remote one by its index if there is one."""
        dataset, number = self._dataset, self._number
        walked = None if self._depth is Depth.QUICK or dataset.is_remote(number) else self._walk()
        if walked is None:
            self.samples = dataset.counted_shard(number).num_samples()
        else:
            self.samples = walked
            dataset.count_read(number, walked)
        if self._depth > Depth.QUICK and not dataset.has_items:
            with suppress(DataError, StoreError):  # the comparison of the index file reports it
                self._index = dataset.indexed(number).index
        if self._index is not None and KEY in self._index.column_names and len(self._index) == self.samples:
            self._keys.append(_key_hashes(self._index[KEY]))
        self._on_read(NO_DIGESTS, self.samples, self._size_bytes)

    def _walk(self) -> int | None:
        """Return the number of samples by the headers; None if a sidecar is wrong, which its check reports."""
        try:
            with closing(self._dataset.view_of(self._dataset.source(self._number))) as view:
                return view.num_samples()
        except LadingError as error:
            if error.file in (None, self._path):
                raise
            return None

    def finish(self, indexes: Indexes, reported: Mapping[str, int] | None, broken: LadingError | None = None) -> None:
        """Check what reading the rows does not raise. Of a broken shard, only the files next to it are checked."""
        dataset, findings = self._dataset, self._findings
        level = Level.DEEP if self._depth >= Depth.DEEP and broken is None else Level.QUICK
        assert self._file is not None
        file = replace(self._file, view=dataset.view, reported=reported, index=self._index)
        for finding in get_format(dataset.format).checks(file, dataset.read_options, level):
            if finding.checked:
                self._checked.add(finding.checked)
            if finding.error is not None and (broken is None or finding.error.file != broken.file):
                findings.add([finding.error])
        if level is Level.DEEP and get_format(dataset.format).loose is None:
            findings.add(damaged_files(file.store, [file.path]))
        self._is_counted = broken is None
        if broken is None:
            findings.add(indexes.check_counts(dataset, self._number, self.samples))

    def _read_rows(self) -> None:
        """Read all rows. Findings before an error are kept."""
        try:
            self._findings.add(self._rows(digested=True))
        except Unrepresentable:
            self._undigested = no_digest(self._dataset.open_shard(self._number).schema())
            if self._undigested is None:
                raise
            self.samples, self._keys = 0, []
            self._findings.add(self._rows(digested=False))

    def _rows(self, *, digested: bool) -> Iterator[LadingError]:
        """Read all rows and hand their digests over; yield rows whose payload in other files is unavailable.

        Rows for which an earlier job recorded the error are left out. Deeper, problems of payload come too.
        """
        dataset, number = self._dataset, self._number
        if self._depth is Depth.FILES and digested and dataset.holds_its_bytes:
            for found in digests_of(dataset, [number], keyed=True):
                self._count(found.digests, len(found.digests), found.size_bytes)
                self.add_keys(found.keys or [])
            return
        first, stored = 0, cache(lambda: stored_errors(dataset.open_shard(number)))
        for batch in shard_content(dataset, number):
            digests = batch_digests(batch, dataset.view) if digested else NO_DIGESTS
            starts = dataset.row_layout.firsts(batch)
            self._count(digests, len(starts), total_bytes(batch))
            names = [name for name in ("sample_id", KEY) if name in batch.schema.names]
            if names:
                self.add_keys(names_of(take_rows(batch.select(names[:1]), starts).column(0)))
            errors = {first + row: text for row, text in earlier_errors(batch).items()}
            for row, text in [(row, text) for row, text in errors.items() if row not in stored()]:
                yield BadReference(text, file=self._path, row=row, sample=key_of(batch, row - first), advice=ELSEWHERE)
            if self._values is not None:
                yield from self._values.errors(batch, self._path, first)
                self._decoded += self._values.take_count()
            elif self._depth is Depth.DEEP:
                yield from broken_headers(batch, self._path, first)
            if self._depth >= Depth.DEEP:
                yield from broken_videos(batch, self._path, first)
            first += len(batch)

    def _count(self, digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        self.samples += samples
        self._on_read(digests, samples, size_bytes)

    def add_keys(self, keys: Sequence[str | int | None]) -> None:
        """Take the keys of more samples. Keys of all samples, or of none, are compared."""
        if None not in keys:
            self._keys.append(_key_hashes(pa.chunked_array([pa.array([str(key) for key in keys], pa.large_string())])))


def _key_hashes(keys: pa.ChunkedArray) -> NDArray[np.uint64]:
    found: list[NDArray[np.uint64]] = [hash_strings(chunk) for chunk in keys.chunks]
    return np.concatenate([np.zeros(0, np.uint64), *found])


def _listed_facts(dataset: Shards, number: int) -> set[str]:
    """Return which facts of a shard the manifest or the index lists: opening the shard compares them."""
    if dataset.manifest is None and dataset.listing.index_file is None:
        return set()
    facts, listed = (("sizes", "size_bytes"), ("counts", "num_samples")), dataset.listing.table
    return {word for word, column in facts if listed[column][number].is_valid}
