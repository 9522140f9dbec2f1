"""Verify: compare a dataset with its manifest, its indexes, its checksums and its digest."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from lading.content.digests import DatasetDigest
from lading.dataset.dataset import Dataset
from lading.dataset.shards.shards import Shards
from lading.dataset.source.open import open_shards, source_and_opening
from lading.dataset.source.source import Source, listed_once, named_folders, split_source
from lading.errors import LadingError, SidecarMismatch, UnknownFormat, UsageError
from lading.jobs.checksums import check_own_files
from lading.jobs.indexes import Indexes
from lading.jobs.progress import OnProgress
from lading.jobs.progress_bars import shown_progress
from lading.jobs.reading import Reading, look_at_shards
from lading.jobs.verify_shards import Findings, begin_verify, look_at
from lading.jobs.verify_unlisted import unlisted_shards
from lading.limits import DEFAULT_LIMITS
from lading.manifest.files import changed_manifests
from lading.options import WorkerOptions
from lading.storage.stores import Stores, resolve
from lading.units import parse_part, spread

__all__ = ["VerifyResult", "verify"]


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
        salvage: the arguments of `lading salvage` before DST; empty without open shards, and for many names.
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
    salvage: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def verify(  # noqa: PLR0913 - one argument a decision of the user; all but one by keyword
    source: Source | Dataset,
    *,
    deep: bool = False,
    sample: float | str = 1.0,
    max_findings: int = 100,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
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
    - a row whose payload in another file is unavailable, unless an earlier job recorded the error

    With `deep`, every file that lading wrote is compared with its checksum in the manifest: one flipped bit is a
    finding. It names the damaged samples if the manifest has checksums of samples. Samples of a shard that matches its
    checksum are not read again, unless rows may refer to bytes in other files. Of samples that are read, these are
    findings too: an image without a whole header, and a video whose size or SHA-256 differs from its cell.

    Example: `lading.verify("out/", deep=True).findings`

    Args:
        source: as `lading.open` takes it, or a dataset. Steps change no file: the shards of the source are verified.
        deep: compare files with checksums, and look into payload.
        sample: part of the shards to verify (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        max_findings: stop after so many findings, at least one.
        workers: as `lading.digest` takes it.
        executor: the same.
        address: the same.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        on_progress: called after every batch and shard.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is not a part.
    """
    stores = Stores.of(stores, storage_options)
    if isinstance(source, Dataset):
        source, opening = source_and_opening(source, {**opening, "stores": stores})
        stores = opening.pop("stores")
        opening = {**opening, "schema_overrides": None}
    elif opening.get("schema_overrides"):
        raise UsageError("files are verified with the types that they have", found="schema_overrides (--type)",
                         advice="Leave the types out.")  # fmt: skip
    opening = {**opening, "on_bad_shard": "error"}  # bad shards are findings
    source, part = listed_once(source), parse_part(sample)
    began = time.perf_counter()
    most = min(max(max_findings, 1), sys.maxsize)
    settings = {"deep": deep, "max_findings": most}
    reading = Reading(
        begin_verify,
        source,
        {**opening, "stores": stores},
        settings,
        WorkerOptions(workers=workers, executor=executor, address=address),
    )
    stores = stores or Stores()
    findings = Findings(most, _changed(split_source(source, opening.get("split"), stores), stores, opening))
    try:
        opened = open_shards(source, stores=stores, **opening)
    except UnknownFormat:
        if not findings.all:
            raise
        return VerifyResult(0, 0, 0, None, ["manifest"], findings.all, time.perf_counter() - began)
    with opened as dataset, shown_progress("verifying", on_progress, progress=progress) as report:
        found = _verify(dataset, stores, reading, spread(len(dataset.listing), part), findings, report)
    return replace(found, seconds=time.perf_counter() - began)


def _verify(
    dataset: Shards,
    stores: Stores,
    reading: Reading,
    chosen: Sequence[int],
    findings: Findings,
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
    look = look_at(dataset, stores, indexes, deep, findings.most)
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
        findings.all, all_shards=all_shards, undigested=undigested, salvage=dataset.bad.source or "",
    )  # fmt: skip


def _changed(source: Source, stores: Stores, opening: Mapping[str, Any]) -> list[LadingError]:
    """Return where the manifests of the named folders differ from their copies."""
    limits = opening.get("limits") or DEFAULT_LIMITS
    folders = dict.fromkeys(named_folders(source, stores))
    return [error for folder in folders for error in changed_manifests(resolve(folder, stores)[0], folder, limits)]


def _check_digest(dataset: Shards, digest: DatasetDigest, checked: set[str]) -> list[LadingError]:
    kept = dataset.manifest.digests if dataset.manifest is not None else {}
    if "ordered" not in kept:
        return []
    checked.add("digest")
    if kept["ordered"] == digest.ordered:
        return []
    return [SidecarMismatch("the content differs from the digest in the manifest", file=dataset.listing.folder,
                            expected=kept["ordered"], found=digest.ordered)]  # fmt: skip
