"""Verify: compare a dataset with its manifest, its indexes, its checksums and its digest."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import pyarrow as pa

from lading._core.arguments import public
from lading._core.content.digests import DatasetDigest
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.open import Named
from lading._core.dataset.source.source import named_folders, split_source
from lading._core.jobs.convert.tasks import shard_sizes
from lading._core.jobs.engine.progress import OnProgress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading._core.jobs.verify.checksums import check_own_files
from lading._core.jobs.verify.indexes import Indexes
from lading._core.jobs.verify.keys import SharedKeys
from lading._core.jobs.verify.shards import Depth, Findings, begin_verify, look_at
from lading._core.jobs.verify.unlisted import unlisted_shards
from lading._core.json_forms import ErrorList
from lading._core.manifest.files import changed_manifests
from lading._core.result_text import ResultText
from lading._core.storage.stores import Stores, resolve
from lading._core.units import count, format_bytes, parse_part, spread
from lading.errors import LadingError, SidecarMismatch, UnknownFormat, UsageError
from lading.options import OpeningOptions, WorkerOptions

__all__ = ["VerifyResult", "mending_commands", "verify"]

_ANOTHER_FIX = re.compile(r"columns |--root|at its origin")
"""Advice where salvage does not help: other columns can be read, or the payload is in another folder, or was never
right."""


@dataclass(frozen=True, slots=True)
class VerifyResult(ResultText):
    """The result of a verification.

    Attributes:
        shards: number of verified shards.
        samples: number of samples in these shards.
        size_bytes: bytes of the shards.
        digest: ordered content digest; None if not all samples were read.
        checked: what the shards were compared with: `sizes`, `counts`, `hashes`, `checksums`, `indexes` (of a dataset),
            `sidecars` (sample indexes next to shards), `videos` (external videos), `keys` (with those of other shards),
            `digest`. `manifest` alone if the manifest is damaged and no shards were found without it.
        findings: errors that were found, each with a `level`: `problem` or `note`.
        more: by shard or folder, the number of further findings that are not listed.
        seconds: wall-clock time.
        all_shards: number of shards of the dataset.
        undigested: name and type of a column whose values have no digest. The dataset then has no digest.
        salvage: the arguments of `lading salvage` before DST; empty without open shards, and for many names.
        depth: how much was asked for: `quick`, `files`, `deep` or `decode`.
        shards_with_checksums: number of shards whose files were compared with checksums.
        shards_without_checksums: number of shards that have none.
        shards_read: number of shards of which every sample was read.
        decoded: number of decoded values.
        undecoded: with `decode`, the columns whose values were not decoded, and why.
    """

    shards: int
    samples: int
    size_bytes: int
    digest: str | None
    checked: Sequence[str]
    findings: ErrorList = field(default_factory=list)
    more: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    all_shards: int = 0
    undigested: str | None = None
    depth: str = "files"
    shards_with_checksums: int = 0
    shards_without_checksums: int = 0
    shards_read: int = 0
    decoded: int = 0
    undecoded: Mapping[str, str] = field(default_factory=dict)
    salvage: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def problems(self) -> int:
        """Number of problems, with those that are not listed."""
        listed = [finding for finding in self.findings if finding["level"] == "problem"]
        return len(listed) + sum(self.more.values())

    @property
    def summary(self) -> str:
        """What was compared and read, and what was not, in one line. Options are spelled as on the command line."""
        if self.depth == "quick":
            opened = f"{count(self.shards, 'shard')} opened, counts and sizes compared"
            return f"{opened}; checksums were not compared, and samples not read: leave out --quick"
        done = []
        if self.shards_with_checksums:
            done.append(f"checksums of {count(self.shards_with_checksums, 'shard')} compared")
        if self.shards_without_checksums:
            done.append(f"{count(self.shards_without_checksums, 'shard')} without checksums")
        done.append("headers walked")
        if self.shards_read:
            done.append(f"samples of {count(self.shards_read, 'shard')} read")
        if self.depth == "decode":
            return ", ".join([*done, f"{count(self.decoded, 'value')} decoded"])
        is_read = self.depth == "deep" or self.shards_read == self.shards
        rest = (
            ["samples were not decoded: --decode"]
            if is_read
            else ["samples were not read: --deep", "samples were not decoded: --decode"]
        )
        return "; ".join([", ".join(done), *rest])


def mending_commands(
    findings: Sequence[Mapping[str, Any]], sources: Sequence[str], salvage: str = "", *, has_checksums: bool = False
) -> list[tuple[str, str]]:
    """Return the commands that help against damage, each behind its purpose in a few words.

    Args:
        findings: as `VerifyResult` has them.
        sources: what was verified, as the command line names it.
        salvage: the arguments of `lading salvage` before DST, if they are others than the sources.
        has_checksums: whether a manifest has checksums of the files.
    """
    problems = (finding for finding in findings if finding["level"] == "problem")
    if all(_ANOTHER_FIX.search(str(finding.get("advice"))) for finding in problems):
        return []
    commands = [("to save the intact samples", f"lading salvage {salvage or shlex.join(sources)} DST")]
    if len(sources) == 1 and has_checksums:
        commands.insert(0, ("to mend it in its place", shlex.join(["lading", "repair", *sources])))
    return commands


@public("lading.verify")
def verify(  # noqa: PLR0913 - one argument a decision of the user; all but one by keyword
    source: Queryable,
    *,
    quick: bool = False,
    deep: bool = False,
    decode: bool = False,
    sample: float | str = 1.0,
    max_findings: int = 10,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    on_remote: Callable[[int, int], object] | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> VerifyResult:
    """Compare a dataset with its manifest, its checksums and its indexes. Every damaged shard is a finding.

    By default, every file that lading wrote is compared with its checksum in the manifest, and the headers of shards
    are walked: one flipped bit is a finding. It names the damaged samples if the manifest has checksums of samples.
    Shards without checksums are read, sample by sample.

    `quick` reads no more than headers: it opens shards, and compares counts and sizes. `deep` also reads every sample,
    looks at headers of images and at external videos, and computes the content digest. `decode` also decodes every
    image, sound, JSON text, array and video header: HTML as `jpg`, empty and truncated files, and bytes of another
    format than the ending are findings, with the key of their sample.

    Problems of all depths, but for what `quick` leaves out:

    - a missing or damaged shard, and a file next to it
    - a manifest that differs from its copy in the list of shards
    - an index of a peer that contradicts the manifest or the shards, and a file whose hash it has wrong
    - a shard in the folders of the dataset that its manifest does not list
    - a shard of MDS whose header contradicts its index
    - members of a sample that do not stand together in a tar
    - a missing external video of a cache, and one of another size than its row says
    - a row whose payload in another file is unavailable, unless an earlier job recorded the error

    Equal keys in several shards are a note, which is no problem.

    Example: `lading.verify("out/").findings`

    Args:
        source: as `lading.open` takes it, or a dataset. Steps change no file: the shards of the source are verified.
        quick: read headers alone.
        deep: read every sample too.
        decode: read and decode every value too.
        sample: part of the shards to verify (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        max_findings: findings of one shard that are listed, at least one. The others are counted (`more`).
        workers: as `lading.digest` takes it.
        executor: the same.
        address: the same.
        on_remote: called before remote shards are read, with their number and the bytes that will be read.
        on_progress: called after every batch and shard.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is not a part; `quick` and a deeper verification.
    """
    if quick and (deep or decode):
        raise UsageError("a quick verification reads no samples", found=f"--quick and --{'deep' if deep else 'decode'}",
                         advice="Choose one of them.")  # fmt: skip
    depth = Depth.DECODE if decode else Depth.DEEP if deep else Depth.QUICK if quick else Depth.FILES
    given = Query.of(source, **opening)  # temporary files of rows live as long as it does
    if Query.held_by(source) is None and given.read.schema_overrides:
        raise UsageError("files are verified with the types that they have", found="schema_overrides (--type)",
                         advice="Leave the types out.")  # fmt: skip
    query = Query(Named.of(given.source.names), given.read)  # of datasets one after another the files
    query = query.reading(schema_overrides=None, on_bad_shard="error")  # bad shards are findings
    part, stores = parse_part(sample), query.stores
    began = time.perf_counter()
    most = min(max(max_findings, 1), sys.maxsize)
    sharing = WorkerOptions(workers=workers, executor=executor, address=address)
    reading = Reading(begin_verify, query, {"depth": depth, "max_findings": most}, sharing)
    findings = Findings(most, _changed(query))
    try:
        opened = query.open_shards()
    except UnknownFormat:
        if not findings.all:
            raise
        return VerifyResult(0, 0, 0, None, ["manifest"], findings.all, depth=depth.name.lower(),
                            seconds=time.perf_counter() - began)  # fmt: skip
    with opened as dataset:
        chosen = spread(len(dataset.listing), part)
        remote, size_bytes = _remote(dataset, chosen, stores, depth)
        if remote and on_remote is not None:
            on_remote(remote, size_bytes)
        label = f"verifying {format_bytes(size_bytes)}" if size_bytes else "verifying"
        with shown_progress(label, on_progress, progress=progress) as report:
            found = _verify(dataset, stores, reading, chosen, findings, report)
    return replace(found, seconds=time.perf_counter() - began)


def _remote(dataset: Shards, chosen: Sequence[int], stores: Stores, depth: Depth) -> tuple[int, int]:
    """Return the number of remote shards, and the bytes of them that will be read.

    Samples that match their checksums are read a second time for their digests.
    """
    remote = [number for number in chosen if dataset.is_remote(number)] if depth > Depth.QUICK else []
    listing = replace(dataset.listing, table=dataset.listing.table.take(pa.array(remote, pa.int64())))
    sizes: int = sum(shard_sizes(listing, stores, skip=True))
    twice = depth >= Depth.DEEP and dataset.kept is not None and dataset.kept.has_checksums
    return len(remote), sizes * (2 if twice else 1)


def _verify(
    dataset: Shards,
    stores: Stores,
    reading: Reading,
    chosen: Sequence[int],
    findings: Findings,
    on_progress: OnProgress | None,
) -> VerifyResult:
    depth: Depth = reading.settings["depth"]
    indexes = Indexes.of(dataset, stores)
    findings.add(indexes.findings)
    total = _Total(findings, {"indexes"} if indexes.own or indexes.others else set())
    own_files = check_own_files(dataset, stores) if depth > Depth.QUICK else None
    if own_files is not None:
        named = {finding.get("file") for finding in findings.all}  # with what is wrong in the file
        findings.add(error for error in own_files if error.file not in named)
        total.checked.add("checksums")
    digest = DatasetDigest()
    look = look_at(dataset, stores, indexes, depth, findings.most)
    found = look_at_shards(dataset, look, reading, chosen, on_digests=digest.update, on_progress=on_progress)
    with closing(found) as results, SharedKeys() as keys:
        for shard in results:
            total.add(shard)
            if depth > Depth.QUICK:
                keys.add(shard["path"], shard["keys"])
        notes = Findings(1)
        notes.add(keys.note(), level="note")
        if keys.are_compared:
            total.checked.add("keys")
    all_shards = len(dataset.listing)
    whole = total.read == total.shards == all_shards and total.undigested is None
    last = Findings(findings.most)
    if whole and not findings.all and not total.findings:
        last.add(_check_digest(dataset, digest, total.checked))
    last.add(unlisted_shards(dataset, indexes, stores))
    if findings.more or last.more:
        total.more[dataset.listing.folder or dataset.path(0)] = findings.more + last.more
    return VerifyResult(
        total.shards, total.samples, total.size_bytes, digest.ordered if whole else None, sorted(total.checked),
        [*findings.all, *total.findings, *last.all, *notes.all], total.more, all_shards=all_shards,
        undigested=total.undigested, depth=depth.name.lower(), shards_with_checksums=total.summed,
        shards_without_checksums=total.unsummed,
        shards_read=total.read, decoded=total.decoded, undecoded=total.undecoded, salvage=dataset.bad.source or "",
    )  # fmt: skip


class _Total:
    """What was found in all shards.

    Args:
        before: the findings of the manifest and of indexes.
        checked: what was compared so far.
    """

    def __init__(self, before: Findings, checked: set[str]) -> None:
        self.checked = checked
        self.shards = self.samples = self.size_bytes = self.summed = self.unsummed = self.read = self.decoded = 0
        self.undigested: str | None = None
        self.undecoded: dict[str, str] = {}
        self.more: dict[str, int] = {}
        self.findings: list[Mapping[str, Any]] = []
        self._before = before
        self._shared: set[tuple[Any, ...]] = set()

    def add(self, shard: Mapping[str, Any]) -> None:
        """Add the result of a shard."""
        self._shared = self._shared or {_place_of(finding) for finding in self._before.all}
        for finding in shard["findings"]:
            if finding.get("file") != shard["path"]:  # an index of many shards is damaged for each of them
                if _place_of(finding) in self._shared:
                    continue
                self._shared.add(_place_of(finding))
            self.findings.append(finding)
        if shard["more"]:
            self.more[shard["path"]] = shard["more"]
        self.checked.update(shard["checked"])
        self.shards += 1
        self.samples += shard["samples"]
        self.size_bytes += shard["size_bytes"]
        self.summed += shard["summed"]
        self.unsummed += shard["unsummed"]
        self.read += shard["read"]
        self.decoded += shard["decoded"]
        self.undecoded |= shard["undecoded"]
        self.undigested = self.undigested or shard["undigested"]


def _place_of(finding: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(finding.get(name) for name in ("error", "message", "file", "row", "offset"))


def _changed(query: Query) -> list[LadingError]:
    """Return where the manifests of the named folders differ from their copies."""
    stores, limits = query.stores, query.read.limits
    folders = dict.fromkeys(named_folders(split_source(query.source.names, query.read.split, stores), stores))
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
