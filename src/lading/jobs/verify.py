"""Verify: sidecars and manifest against files, counts against rows, digest and checksums against content."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from lading.arrow.views import total_bytes
from lading.caches.videos import broken_videos
from lading.content.digests import DatasetDigest
from lading.content.digests import undigested as no_digest
from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source, listed_once, named_folders
from lading.errors import (
    BadReference,
    DataError,
    LadingError,
    SidecarMismatch,
    StoreError,
    UnknownFormat,
    Unrepresentable,
)
from lading.features.items import sample_firsts
from lading.formats.base import (
    HasCompressedCopy,
    HasSidecar,
    KeepsFiles,
    ListedElsewhere,
    ListedFile,
    LooksCloser,
    TellsOfItself,
)
from lading.formats.registry import get_format
from lading.interleaved.open import stored_errors
from lading.jobs.checksums import check_own_files, check_shard
from lading.jobs.digest import batch_digests, digests_of, shard_content
from lading.jobs.headers import broken_headers, key_of
from lading.jobs.indexes import Indexes, check_file
from lading.jobs.progress import OnProgress
from lading.jobs.reading import NO_DIGESTS, Look, OnRead, Reading, look_at_shards
from lading.jobs.verify_unlisted import unlisted_shards
from lading.limits import DEFAULT_LIMITS
from lading.manifest.files import changed_manifests
from lading.storage.fetch import earlier_errors
from lading.storage.stores import Stores, resolve
from lading.units import parse_part, spread

__all__ = ["VerifyResult", "begin_verify", "verify"]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What verification found.

    Attributes:
        shards: shards looked at.
        samples: samples in them.
        size_bytes: bytes of the shards.
        digest: ordered content digest; None if not all samples were read.
        checked: what there was to check against: sizes, counts, hashes, checksums, indexes of a dataset, files
            beside shards that say where samples lie (sidecars), rows that say of videos which files they are, digest;
            of a manifest that nothing can be read by, that alone.
        findings: what is wrong: each as `LadingError.to_dict` gives it.
        seconds: wall-clock time.
        all_shards: shards of the dataset, of which `shards` were looked at.
        undigested: name and type of a column whose values have no digest, so that none was taken.
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
        """Whether nothing is wrong."""
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
    """Read every sample and hold it against what manifest and sidecars say.

    Every shard is read to its end and its samples are counted, so that damage inside it shows; a shard that is broken
    is a finding, and the next one is looked at. A manifest is held against its copy in the list of shards. The peer's
    own indexes beside a manifest are held against it, and the hashes in them against the files. A shard that lies among
    those of the dataset and that its manifest does not list is a finding, and so is what a shard of MDS says of itself
    otherwise than its index. Videos that a cache keeps in files of their own must be there, as regular files, with the
    size that their rows tell.

    With `deep` every file that lading wrote is also held against its checksum in the manifest, so that one flipped bit
    shows; of one that differs, the samples that do are named, if checksums of samples were kept. Samples of a shard
    that has the bytes that were written are those that were written: they are not read again, but where rows may lead
    to bytes in other files. Of a shard that differs, samples are read, so that the damaged one is named if the format
    notices; and so are those of shards that others wrote. Of samples that are read, a row that leads to bytes that
    cannot be had is a finding, unless it came with its error, and so is a picture that begins as one and has no whole
    header, or a video of a cache that has another size or SHA-256 than its cell tells. Videos in files of their own are
    read, in pieces, and held against the SHA-256 that name and checksum tell.

    Args:
        source: as `lading.open` takes it.
        deep: hold files against checksums.
        sample: part of the shards to look at (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        max_findings: stop after so many, one at least; the rest of that shard and the shards behind it are not read.
        workers: as `lading.digest` takes it.
        stores: which store serves which URL.
        on_progress: called after every batch and shard.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is no such part.
    """
    source, part = listed_once(source), parse_part(sample)
    began = time.perf_counter()
    most = min(max(max_findings, 1), sys.maxsize)
    settings = {"deep": deep, "max_findings": most}
    reading = Reading("lading.jobs.verify:begin_verify", source, {**opening, "stores": stores}, settings, workers)
    stores = stores or Stores()
    digest, size_bytes, trusted_samples = DatasetDigest(), 0, 0
    findings = _Findings(most, _changed(source, stores, opening))
    checked: set[str] = set()
    undigested: str | None = None
    whole = True
    try:
        opened = open_shards(source, stores=stores, **opening)
    except UnknownFormat:
        if not findings.all:
            raise
        return VerifyResult(0, 0, 0, None, ["manifest"], findings.all, time.perf_counter() - began)
    with opened as dataset:
        indexes = Indexes.of(dataset, stores)
        findings.add(indexes.findings)
        checked.update(["indexes"] if indexes.shards or indexes.others else [])
        found_files = check_own_files(dataset, stores) if deep else None
        findings.add(found_files or ())
        checked.update([] if found_files is None else ["checksums"])
        chosen = spread(len(dataset.listing), part)
        look = _look(dataset, stores, indexes, deep, most)
        found = look_at_shards(dataset, look, reading, chosen, on_digests=digest.update, on_progress=on_progress)
        looked_at = 0
        with closing(found) as looked:
            for shard in () if findings.full else looked:
                looked_at += 1
                findings.add_told(shard["findings"])
                checked.update(shard["checked"])
                size_bytes += shard["size_bytes"]
                trusted_samples += shard["trusted_samples"]
                whole = whole and shard["whole"]
                undigested = undigested or shard["undigested"]
                if findings.full:
                    break
        all_shards = len(dataset.listing)
        whole = whole and not trusted_samples and looked_at == all_shards
        findings.add(_check_digest(dataset, digest, checked) if whole and not findings.all else [])
        findings.add(unlisted_shards(dataset, indexes, stores))
    return VerifyResult(
        looked_at, digest.count + trusted_samples, size_bytes, digest.ordered if whole else None, sorted(checked),
        findings.all, time.perf_counter() - began, all_shards, undigested,
    )  # fmt: skip


class _Findings:
    """What is wrong, each thing once, and no more than asked for.

    Args:
        most: how many, at most.
        first: the first of them.

    Attributes:
        all: the findings, each as `LadingError.to_dict` gives it.
    """

    def __init__(self, most: int, first: Iterable[LadingError] = ()) -> None:
        self._most = most
        self.all: list[Mapping[str, Any]] = [error.to_dict() for error in islice(first, most)]
        self._known = {_sameness(one) for one in self.all}

    @property
    def full(self) -> bool:
        """Whether there are as many as asked for."""
        return len(self.all) >= self._most

    def add(self, errors: Iterable[LadingError]) -> None:
        """Take errors in, and ask for no more of them once that is enough."""
        self.add_told(error.to_dict() for error in errors)

    def add_told(self, more: Iterable[Mapping[str, Any]]) -> None:
        """The same of errors as `LadingError.to_dict` gives them."""
        for one in () if self.full else more:
            key = _sameness(one)
            if "expected" in one and key in self._known:
                continue
            self._known.add(key)
            self.all.append(one)
            if self.full:
                break


def _sameness(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two findings share that tell of the same and of what was expected: several may tell a shard's size."""
    return tuple(finding.get(name) for name in ("file", "row", "offset", "expected", "found"))


def _changed(source: Source, stores: Stores, opening: Mapping[str, Any]) -> list[LadingError]:
    """What the manifests of the folders named have otherwise than their copies."""
    limits = opening.get("limits") or DEFAULT_LIMITS
    folders = dict.fromkeys(named_folders(source, stores))
    return [error for folder in folders for error in changed_manifests(resolve(folder, stores)[0], folder, limits)]


def begin_verify(dataset: Shards, *, deep: bool, max_findings: int) -> Look:
    """What `verify` does with each shard: gives findings, what was checked, sizes, and whether all of it was read."""
    stores = Stores()
    return _look(dataset, stores, Indexes.of(dataset, stores), deep, max_findings)


def _look(dataset: Shards, stores: Stores, indexes: Indexes, deep: bool, most: int) -> Look:
    fmt = get_format(dataset.format)
    if deep:
        dataset.read_with(fmt.info.deep_options)

    def look_at(number: int, on_read: OnRead, findings: _Findings) -> dict[str, Any]:
        before = len(findings.all)
        checked: set[str] = set()
        size_bytes = samples = trusted_samples = 0
        undigested: str | None = None
        whole = False
        try:
            checked.update(_known(dataset, number))
            known = check_shard(dataset.kept, number, stores, most) if deep and dataset.kept else None
            findings.add(() if known is None else known.errors)
            checked.update([] if known is None else ["checksums"])
            shard = dataset.source(number)
            size_bytes = shard.info.size_bytes if shard.info else 0
            checked.update(_check_files(dataset, number, indexes, stores))
            beside, wrong = _check_stored_videos(dataset, number, deep=deep, most=most)
            checked.update(beside)
            findings.add(wrong)
            unread = known is not None and not known.errors and dataset.holds_its_bytes
            beside, wrong = _check_sidecar(dataset, number, unread=unread)
            checked.update(beside)
            findings.add(wrong)
            if unread:
                samples = trusted_samples = dataset.counted_samples(number)
                on_read(NO_DIGESTS, trusted_samples, size_bytes)
            elif not findings.full:
                counted, known_counts = _Counted(on_read), Counter(dataset.counts)
                undigested = _read_all(dataset, number, counted, findings, deep=deep)
                samples = counted.samples
                trusted_samples = 0 if undigested is None else samples
                findings.add(_false_claims(dataset, number))
                findings.add(_noticed(dataset, number, dataset.counts - known_counts) if deep else ())
            whole = unread or not findings.full  # behind the last of them, nothing was read or counted
            findings.add(_miscounted(dataset, number, indexes, samples))
            findings.add(_wrong_twin(dataset, number) if deep and whole else ())
        except LadingError as error:
            whole = False
            findings.add([error.at(file=dataset.path(number))])
        told = {"findings": findings.all[before:], "checked": sorted(checked), "size_bytes": size_bytes}
        return {**told, "trusted_samples": trusted_samples, "whole": whole, "undigested": undigested}

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        findings = _Findings(most)
        for number in shards:
            yield look_at(number, on_read, findings)
            if findings.full:
                return

    return look


class _Counted:
    """Hands over what is read, and counts samples.

    Attributes:
        samples: how many there were.
    """

    def __init__(self, on_read: OnRead) -> None:
        self._on_read = on_read
        self.samples = 0

    def __call__(self, digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        self.samples += samples
        self._on_read(digests, samples, size_bytes)


def _read_all(dataset: Shards, number: int, on_read: OnRead, findings: _Findings, *, deep: bool) -> str | None:
    """Read all of a shard, or as far as there is room for findings; gives a column without digests.

    What is wrong before an error is among the findings.
    """
    try:
        findings.add(_read(dataset, number, on_read, deep=deep))
    except Unrepresentable:
        undigested = no_digest(dataset.open_shard(number).schema())
        if undigested is None:
            raise
        findings.add(_read(dataset, number, on_read, deep=deep, digested=False))
        return undigested
    return None


def _read(dataset: Shards, number: int, on_read: OnRead, *, deep: bool, digested: bool = True) -> Iterator[LadingError]:
    """Read all of a shard and hand its digests over; give what is wrong with its bytes, if that is looked for.

    Bytes in other files that cannot be had are wrong, unless an earlier job wrote that down.
    """
    if not deep and digested:
        for found in digests_of(dataset, [number]):
            on_read(found.digests, len(found.digests), found.size_bytes)
        return
    first, told = 0, cache(lambda: stored_errors(dataset.open_shard(number)))
    for batch in shard_content(dataset, number):
        digests = batch_digests(batch, dataset.view) if digested else NO_DIGESTS
        on_read(digests, len(sample_firsts(batch, dataset.view)), total_bytes(batch))
        if not deep:
            continue
        errors = {first + row: text for row, text in earlier_errors(batch).items()}
        lost = [(row, text) for row, text in errors.items() if row not in told()]
        for row, text in lost:
            key = key_of(batch, row - first)
            yield BadReference(text, file=dataset.path(number), row=row, sample=key)
        yield from broken_headers(batch, dataset.path(number), first)
        yield from broken_videos(batch, dataset.path(number), first)
        first += len(batch)


def _known(dataset: Shards, number: int) -> list[str]:
    """What there was to hold a shard against."""
    if dataset.manifest is None and dataset.listing.index_file is None:
        return []
    row = dataset.listing.table.slice(number, 1).to_pylist()[0]
    return [word for word, column in (("sizes", "size_bytes"), ("counts", "num_samples")) if row[column] is not None]


def _check_files(dataset: Shards, number: int, indexes: Indexes, stores: Stores) -> set[str]:
    """Hold the files of a shard against hashes and sizes; give what there was."""
    if indexes.shards:
        return indexes.check(dataset.path(number), stores)
    text = dataset.listing.table.column("hashes")[number].as_py()
    if not text:
        return set()
    file = ListedFile(dataset.path(number), None, orjson.loads(text), needed=True)
    return check_file(file, "what its index says", stores)


def _miscounted(dataset: Shards, number: int, indexes: Indexes, samples: int) -> Iterator[LadingError]:
    """What indexes say wrongly of the number of samples in a shard, as far as to open the dataset has not told it."""
    path, fmt = dataset.path(number), get_format(dataset.format)
    alike = dataset.view == "samples" and not dataset.format_options.get("regroup")
    opened_by = dataset.manifest is not None or (alike and dataset.listing.index_file is not None)
    if not indexes.others and (opened_by or not indexes.shards):
        return
    if not alike and isinstance(fmt, ListedElsewhere):
        samples = fmt.count_as_listed(dataset.source(number), dataset.format_options)
    elif not alike:
        return
    if not opened_by:
        yield from indexes.wrong_counts(path, samples)
    yield from indexes.others_wrong(path, samples)


def _check_sidecar(dataset: Shards, number: int, *, unread: bool) -> tuple[set[str], list[LadingError]]:
    """Hold the file beside a shard against it, unless reading all of its samples does.

    Returns:
        What there was to hold against, and what is wrong with it; of a shard that is read, reading tells the rest.
    """
    fmt = get_format(dataset.format)
    path = fmt.sidecar(dataset.source(number), dataset.format_options) if isinstance(fmt, HasSidecar) else None
    if path is None or not isinstance(fmt, HasSidecar):
        return set(), []
    try:
        if unread or dataset.view != "samples":  # items are found without it
            fmt.check_sidecar(dataset.source(number), dataset.format_options)
    except (DataError, StoreError) as error:
        return {"sidecars"}, [error] if unread or error.file == path else []
    return {"sidecars"}, []


def _false_claims(dataset: Shards, number: int) -> Sequence[LadingError]:
    """What a shard that can be read tells of itself, and is not so."""
    fmt = get_format(dataset.format)
    if not isinstance(fmt, TellsOfItself):
        return ()
    return fmt.false_claims(dataset.source(number), dataset.format_options)


def _noticed(dataset: Shards, number: int, noticed: Counter[str]) -> Sequence[LadingError]:
    """What is wrong with a shard of which reading it noticed this."""
    fmt = get_format(dataset.format)
    if not isinstance(fmt, LooksCloser):
        return ()
    return fmt.wrong_as_noticed(dataset.source(number), dataset.format_options, noticed)


def _wrong_twin(dataset: Shards, number: int) -> Sequence[LadingError]:
    """What is wrong with a shard's other form, if there is one: readers may take it instead."""
    fmt = get_format(dataset.format)
    wrong = fmt.wrong_compressed_copy(dataset.source(number)) if isinstance(fmt, HasCompressedCopy) else None
    return [] if wrong is None else [wrong]


def _check_stored_videos(
    dataset: Shards, number: int, *, deep: bool, most: int
) -> tuple[set[str], Sequence[LadingError]]:
    """Hold files that rows keep bytes in against what the rows say of them.

    Returns:
        What there was to hold against, and what is wrong with it.
    """
    fmt = get_format(dataset.format)
    if not isinstance(fmt, KeepsFiles):
        return set(), []
    wrong = fmt.check_files(dataset.source(number), dataset.format_options, deep=deep, most=most)
    return ({"videos"}, wrong) if wrong is not None else (set(), [])


def _check_digest(dataset: Shards, digest: DatasetDigest, checked: set[str]) -> list[LadingError]:
    kept = dataset.manifest.digests if dataset.manifest is not None else {}
    if "ordered" not in kept:
        return []
    checked.add("digest")
    if kept["ordered"] == digest.ordered:
        return []
    return [SidecarMismatch("the content differs from the digest in the manifest", file=dataset.listing.folder,
                            expected=kept["ordered"], found=digest.ordered)]  # fmt: skip
