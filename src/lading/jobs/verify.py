"""Verify: compare a dataset with its manifest, its indexes, its checksums and its digest."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.arrow.views import total_bytes
from lading.caches.videos import broken_videos
from lading.content.digests import DatasetDigest
from lading.content.digests import undigested as no_digest
from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source, listed_once, named_folders
from lading.errors import BadReference, LadingError, SidecarMismatch, StoreError, UnknownFormat, Unrepresentable
from lading.features.items import sample_firsts
from lading.formats.base import Level, ShardFile
from lading.formats.registry import get_format
from lading.interleaved.open import stored_errors
from lading.jobs.checksums import check_own_files, check_shard
from lading.jobs.digest import batch_digests, digests_of, shard_content
from lading.jobs.headers import broken_headers, key_of
from lading.jobs.indexes import Indexes
from lading.jobs.progress import OnProgress
from lading.jobs.reading import NO_DIGESTS, Look, OnRead, Reading, look_at_shards
from lading.jobs.verify_unlisted import unlisted_shards
from lading.limits import DEFAULT_LIMITS
from lading.manifest.files import changed_manifests
from lading.storage.concurrent import is_remote
from lading.storage.fetch import earlier_errors
from lading.storage.stores import Stores, resolve
from lading.units import parse_part, spread

__all__ = ["VerifyResult", "begin_verify", "verify"]

_SMALL_BYTES, _TOGETHER_SHARDS = 64 << 10, 32
"""Shards that are read together; as many views stay open."""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verification.

    Attributes:
        shards: number of verified shards.
        samples: samples in them.
        size_bytes: bytes of the shards.
        digest: ordered content digest; None if not all samples were read.
        checked: what the shards were compared with: `sizes`, `counts`, `hashes`, `checksums`, `indexes` (of a dataset),
            `sidecars` (sample indexes next to shards), `videos` (external videos), `digest`. `manifest` alone if the
            manifest is damaged and no shards were found without it.
        findings: the problems, as `LadingError.to_dict` returns them.
        seconds: wall-clock time.
        all_shards: number of shards of the dataset.
        undigested: name and type of a column whose values have no digest. The dataset then has no digest.
    """

    shards: int
    samples: int
    size_bytes: int
    digest: str | None
    checked: Sequence[str]
    findings: Sequence[Mapping[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    all_shards: int = 0
    undigested: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def verify(
    source: Source,
    *,
    deep: bool = False,
    sample: float | str = 1.0,
    max_findings: int = 100,
    workers: int | None = None,
    stores: Stores | None = None,
    on_progress: OnProgress | None = None,
    **opening: Any,
) -> VerifyResult:
    """Read every sample, and compare the dataset with its manifest and its indexes.

    Reads every shard to its end and counts its samples. A damaged shard is a finding, and the next one is read. Other
    findings are:

    - a manifest that differs from its copy in the list of shards
    - an index of a peer that contradicts the manifest or the shards, and a file whose hash it has wrong
    - a shard in the folders of the dataset that its manifest does not list
    - a shard of MDS whose header contradicts its index
    - a missing external video of a cache, and one of another size than its row says

    With `deep`, every file that lading wrote is compared with its checksum in the manifest: one flipped bit is a
    finding. It names the damaged samples if the manifest has checksums of samples. Samples of a shard that matches its
    checksum are not read again, unless rows may refer to bytes in other files. Of samples that are read, these are
    findings too: a row whose payload is unavailable, unless an earlier job recorded the error; an image without a whole
    header; and a video whose size or SHA-256 differs from its cell.

    Example:
        >>> lading.verify("out/", deep=True).ok  # doctest: +SKIP
        True

    Args:
        source: as `lading.open` takes it.
        deep: compare files with checksums, and look into payload.
        sample: part of the shards to verify (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        max_findings: stop after so many findings, at least one.
        workers: as `lading.digest` takes it.
        stores: which store serves which URL.
        on_progress: called after every batch and shard.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is not a part.
    """
    source, part = listed_once(source), parse_part(sample)
    began = time.perf_counter()
    most = min(max(max_findings, 1), sys.maxsize)
    settings = {"deep": deep, "max_findings": most}
    reading = Reading(begin_verify, source, {**opening, "stores": stores}, settings, workers)
    stores = stores or Stores()
    findings = _Findings(most, _changed(source, stores, opening))
    try:
        opened = open_shards(source, stores=stores, **opening)
    except UnknownFormat:
        if not findings.all:
            raise
        return VerifyResult(0, 0, 0, None, ["manifest"], findings.all, time.perf_counter() - began)
    with opened as dataset:
        found = _verify(dataset, stores, reading, spread(len(dataset.listing), part), findings, on_progress)
    return replace(found, seconds=time.perf_counter() - began)


def _verify(
    dataset: Shards,
    stores: Stores,
    reading: Reading,
    chosen: Sequence[int],
    findings: _Findings,
    on_progress: OnProgress | None,
) -> VerifyResult:
    indexes = Indexes.of(dataset, stores)
    findings.add(indexes.findings)
    checked = {"indexes"} if indexes.own or indexes.others else set[str]()
    deep = reading.settings["deep"]
    own_files = check_own_files(dataset, stores) if deep else None
    if own_files is not None:
        findings.add(own_files)
        checked.add("checksums")
    digest, shards, size_bytes, trusted_samples = DatasetDigest(), 0, 0, 0
    undigested: str | None = None
    whole, all_shards = True, len(dataset.listing)
    look = _look(dataset, stores, indexes, deep, findings.most)
    found = look_at_shards(dataset, look, reading, chosen, on_digests=digest.update, on_progress=on_progress)
    with closing(found) as results:
        for shard in () if findings.full else results:
            shards += 1
            findings.add_dicts(shard["findings"])
            checked.update(shard["checked"])
            size_bytes += shard["size_bytes"]
            trusted_samples += shard["trusted_samples"]
            whole = whole and shard["whole"]
            undigested = undigested or shard["undigested"]
            if findings.full:
                break
    whole = whole and not trusted_samples and shards == all_shards
    if whole and not findings.all:
        findings.add(_check_digest(dataset, digest, checked))
    findings.add(unlisted_shards(dataset, indexes, stores))
    return VerifyResult(
        shards, digest.count + trusted_samples, size_bytes, digest.ordered if whole else None, sorted(checked),
        findings.all, all_shards=all_shards, undigested=undigested,
    )  # fmt: skip


class _Findings:
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
        """Add errors. Stops asking for more of them at the maximum."""
        self.add_dicts(error.to_dict() for error in errors)

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


def _changed(source: Source, stores: Stores, opening: Mapping[str, Any]) -> list[LadingError]:
    """Return where the manifests of the named folders differ from their copies."""
    limits = opening.get("limits") or DEFAULT_LIMITS
    folders = dict.fromkeys(named_folders(source, stores))
    return [error for folder in folders for error in changed_manifests(resolve(folder, stores)[0], folder, limits)]


def begin_verify(dataset: Shards, *, deep: bool, max_findings: int) -> Look:
    """Return what `verify` does with each shard."""
    stores = Stores()
    return _look(dataset, stores, Indexes.of(dataset, stores), deep, max_findings)


def _look(dataset: Shards, stores: Stores, indexes: Indexes, deep: bool, most: int) -> Look:
    if deep:
        dataset.read_with(get_format(dataset.format).info.deep_options)

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        findings = _Findings(most)
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
    findings = _Findings(1)
    shards = [_Shard(dataset, number, findings, on_read, deep=False) for number in numbers]

    def checked() -> Iterator[int]:
        for number, shard in zip(numbers, shards, strict=True):
            shard.check_files(indexes, stores)
            yield number

    try:
        found = list(digests_of(dataset, checked()))
        for number, shard in zip(numbers, shards, strict=True):
            shard.samples, shard.whole = dataset.read_samples[number], True
            shard.finish(indexes, {})
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

    def __init__(self, dataset: Shards, number: int, findings: _Findings, on_read: OnRead, *, deep: bool) -> None:
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
            self.samples = self._trusted = dataset.counted_samples(self._number)
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
        """Read all rows and hand their digests over; yield problems of their bytes if `deep`.

        Unavailable bytes in other files are a problem, unless an earlier job recorded the error.
        """
        dataset, number = self._dataset, self._number
        if not self._deep and digested:
            for found in digests_of(dataset, [number]):
                self._count(found.digests, len(found.digests), found.size_bytes)
            return
        first, stored = 0, cache(lambda: stored_errors(dataset.open_shard(number)))
        for batch in shard_content(dataset, number):
            digests = batch_digests(batch, dataset.view) if digested else NO_DIGESTS
            self._count(digests, len(sample_firsts(batch, dataset.view)), total_bytes(batch))
            if not self._deep:
                continue
            errors = {first + row: text for row, text in earlier_errors(batch).items()}
            for row, text in [(row, text) for row, text in errors.items() if row not in stored()]:
                yield BadReference(text, file=self._path, row=row, sample=key_of(batch, row - first))
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


def _check_digest(dataset: Shards, digest: DatasetDigest, checked: set[str]) -> list[LadingError]:
    kept = dataset.manifest.digests if dataset.manifest is not None else {}
    if "ordered" not in kept:
        return []
    checked.add("digest")
    if kept["ordered"] == digest.ordered:
        return []
    return [SidecarMismatch("the content differs from the digest in the manifest", file=dataset.listing.folder,
                            expected=kept["ordered"], found=digest.ordered)]  # fmt: skip
