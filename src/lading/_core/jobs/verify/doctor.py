"""Doctor: problems of a dataset's layout, and the command that fixes each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import Shards, layout_findings
from lading._core.formats.findings import Finding
from lading._core.jobs.convert.tasks import shard_sizes
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.verify.doctor_command import copy_command, index_command
from lading._core.result_text import ResultText
from lading._core.storage.stores import Stores
from lading._core.units import format_bytes, parse_part, spread
from lading.errors import errors_at
from lading.options import OpeningOptions

__all__ = ["Diagnosis", "LayoutFinding", "doctor"]

LONE_BYTES = 1 << 30
"""A larger shard that is most of a dataset is a problem: one worker reads what four could, in shards of the default
size."""

UNEQUAL_TIMES = 4
"""A shard of more times the mean is a problem. A copy has none: two neighbouring tasks fill a shard, so the mean is a
third of the largest or more."""

UNEQUAL_BYTES = 64 << 20
"""A smaller shard takes about a second to read, so unequal sizes do not matter."""

MANY_SHARDS = 1000
"""Above this, small shards are a problem: a store lists a thousand files a request, and each takes own requests."""

SMALL_BYTES = 8 << 20
"""Opening a smaller shard takes a store as long (50 ms and more) as sending it."""


@dataclass(frozen=True, slots=True)
class LayoutFinding:
    """A problem of the layout.

    Attributes:
        shard: the shard with the largest value.
        problem: the problem in a few words.
        measured: place in the shard, the measured value and its limit.
        why: whom the layout slows down or breaks, in one sentence.
        command: shell command that solves the problem; None if lading has none.
        shards: number of shards with the problem, among those that were opened.
    """

    shard: str
    problem: str
    measured: str
    why: str
    command: str | None
    shards: int


@dataclass(frozen=True, slots=True)
class Diagnosis(ResultText):
    """The result of `doctor`.

    Attributes:
        format: format of the shards.
        view: how rows are taken.
        shards: number of shards that were opened; the sizes of all are known.
        all_shards: number of shards of the dataset.
        size_bytes: bytes of all their files.
        findings: the problems; one that many shards have comes once.
        seconds: wall-clock time.
    """

    format: str
    view: str
    shards: int
    all_shards: int
    size_bytes: int
    findings: Sequence[LayoutFinding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


@public("lading.doctor")
def doctor(
    source: Queryable,
    *,
    sample: float | str = 1.0,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> Diagnosis:
    """Check the layout of a dataset: the sizes of shards, and what its format checks (`Level.LAYOUT`).

    Reads listings, headers, footers, indexes, and the ids of items in tables. Reads no payload, and only the first
    bytes of a compressed file. One copy solves all problems that a copy solves. Peak memory: the largest footer, or the
    index of one tar.

    Example: `lading.doctor("out/").findings[0].command`

    Args:
        source: as `lading.open` takes it, or a dataset. Steps change no file: the shards of the source are checked.
        sample: part of the shards to open (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        on_progress: called after every shard.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is not a part.
        DataError: a shard is so damaged that its layout is unknown.
    """
    part = parse_part(sample)
    began = time.perf_counter()
    query = Query.of(source, **opening)
    stores = query.stores
    with (
        query.open_shards() as dataset,
        shown_progress("checking", on_progress, progress=progress) as report,
    ):
        sizes = _sizes(dataset, stores)
        found = _Findings()
        for number, shards, finding in _check_sizes(sizes) if dataset.manifest or not dataset.files_beside else ():
            found.add(dataset.path(number), finding, shards)
        chosen = spread(len(sizes), part)
        for done, number in enumerate(chosen, 1):
            path = dataset.path(number)
            with dataset.bad.skipping(number, path), errors_at(file=path):
                for finding in layout_findings(dataset, number):
                    found.add(dataset.path(number), finding)
            if report is not None:
                report(Progress(done, len(chosen), 0, 0))
        findings = found.with_commands(query, dataset)
        return Diagnosis(
            dataset.format, dataset.view, len(chosen), len(sizes), int(sizes.sum()), findings,
            time.perf_counter() - began,
        )  # fmt: skip


def _sizes(dataset: Shards, stores: Stores) -> NDArray[np.int64]:
    """Return the bytes of each shard, with further files of it where a manifest lists them."""
    sizes = np.fromiter(shard_sizes(dataset.listing, stores), np.int64, len(dataset.listing))
    if dataset.kept_shards is None:
        return sizes
    beside: NDArray[np.int64] = pc.fill_null(dataset.kept_shards["beside_bytes"], 0).to_numpy()
    return sizes + beside


def _check_sizes(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, Finding]]:
    """Yield problems of sizes: the shard with the largest value, how many shards have the problem, and the problem."""
    if not len(sizes):
        return
    at, total, count = int(sizes.argmax()), int(sizes.sum()), len(sizes)
    largest, mean = int(sizes[at]), total // count
    if largest >= LONE_BYTES and 2 * largest > total:
        measured = f"{format_bytes(largest)} of {format_bytes(total)}; at most {format_bytes(LONE_BYTES)}, or half"
        why = "Workers, processes and hosts share a dataset by shards, so one of them reads this shard alone."
        yield at, 1, Finding("one huge shard", measured=measured, why=why, weight=largest, fix="copy")
    elif largest >= UNEQUAL_BYTES and largest > UNEQUAL_TIMES * mean:
        times = f"{largest / max(mean, 1):,.0f} times the mean of {format_bytes(mean)}; at most {UNEQUAL_TIMES} times"
        measured = f"{format_bytes(largest)}, {times}"
        why = "The worker with this shard works while the others wait, or all of them end their epoch early."
        unequal = int(np.count_nonzero((sizes >= UNEQUAL_BYTES) & (sizes > UNEQUAL_TIMES * mean)))
        finding = Finding("shards of very unequal size", measured=measured, why=why, weight=largest, fix="copy")
        yield at, unequal, finding
    if count > MANY_SHARDS and mean < SMALL_BYTES:
        limit = f"at most {MANY_SHARDS:,}, or {format_bytes(SMALL_BYTES)}"
        measured = f"{count:,} with a mean of {format_bytes(mean)}; {limit}"
        why = "Listing and opening a shard takes a store longer than sending it."
        finding = Finding("very many small shards", measured=measured, why=why, weight=count, fix="copy")
        yield int(sizes.argmin()), count, finding


class _Findings:
    """Layout findings of many shards: for each problem the largest value, and how many shards have it."""

    def __init__(self) -> None:
        self._worst: dict[str, tuple[str, Finding]] = {}
        self._shards: dict[str, int] = {}
        self._unsolved: set[str] = set()

    def add(self, path: str, finding: Finding, shards: int = 1) -> None:
        """Add a finding of a shard, which stands for so many shards."""
        problem = finding.problem
        self._shards[problem] = self._shards.get(problem, 0) + shards
        if problem not in self._worst or finding.weight > self._worst[problem][1].weight:
            self._worst[problem] = path, finding
        if finding.fix is None:
            self._unsolved.add(problem)

    def with_commands(self, query: Query, dataset: Shards) -> list[LayoutFinding]:
        """Return the findings with their commands. One copy solves everything that a copy or an index solves."""
        solved = {problem: found for problem, (_, found) in self._worst.items() if problem not in self._unsolved}
        copied = [found for found in solved.values() if found.fix == "copy"]
        command = ""
        if copied:
            options = {name: value for found in copied for name, value in found.read_options.items()}
            command = copy_command(query, dataset, options)
        elif solved:
            command = index_command(query)
        return [
            LayoutFinding(
                path, problem, found.measured, found.why, command if problem in solved else None, self._shards[problem]
            )
            for problem, (path, found) in self._worst.items()
        ]
