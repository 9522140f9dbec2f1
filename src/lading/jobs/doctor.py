"""Doctor: layouts that will hurt, and the command that mends each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source
from lading.errors import errors_at
from lading.formats.base import LayoutFinding
from lading.jobs.doctor_command import copy_command, index_command
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.tasks import shard_sizes
from lading.storage.stores import Stores
from lading.units import format_bytes, parse_part, spread

__all__ = ["Diagnosis", "Finding", "doctor"]

LONE_BYTES = 1 << 30
"""A shard of this size that is most of a dataset hurts: it would be four of the size that lading writes by default, and
one worker reads what four could."""

UNEQUAL_TIMES = 4
"""A shard so many times the mean hurts: whoever gets it works while the others wait, or shortens their epoch. No copy
has such a one: what two neighbouring tasks write fills a shard, so the mean is a third of the largest or more."""

UNEQUAL_BYTES = 64 << 20
"""Below this, the largest shard is read in about a second, however small the others are."""

MANY_SHARDS = 1000
"""Above this, small shards hurt: a store lists a thousand files a request, and opens each with requests of its own."""

SMALL_BYTES = 8 << 20
"""Shards that are smaller in the mean take a store as long to open (50 ms and more) as to send."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that will hurt.

    Attributes:
        shard: the shard where it is worst.
        symptom: what it is, in a few words.
        measured: where in the shard, how much it is, and how much would be well.
        why: whom it hurts, in one sentence.
        command: the command that mends it, for a shell; None if lading has none.
        shards: number of shards that have it, among those looked at.
    """

    shard: str
    symptom: str
    measured: str
    why: str
    command: str | None
    shards: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a look at the layout found.

    Attributes:
        format: of the shards.
        view: how rows are taken.
        shards: shards that were opened; the sizes of all are known.
        all_shards: shards of the dataset.
        size_bytes: bytes of all their files.
        findings: what will hurt, the same thing in many shards once.
        seconds: wall-clock time.
    """

    format: str
    view: str
    shards: int
    all_shards: int
    size_bytes: int
    findings: Sequence[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing will hurt."""
        return not self.findings


def doctor(
    source: Source,
    *,
    sample: float | str = 1.0,
    stores: Stores | None = None,
    on_progress: OnProgress | None = None,
    **opening: Any,
) -> Diagnosis:
    """Look at how a dataset lies: sizes of shards, and what its format knows of each (`TellsLayoutFindings`).

    Reads listings, headers, footers, indexes, and the ids of items in tables; no payload, and nothing of a compressed
    file but its first bytes.
    Findings that a copy mends have the same command, which mends all of them. Peak memory: the largest footer, or the
    index of one tar.

    Args:
        source: as `lading.open` takes it.
        sample: part of the shards to open (`"1%"`, `0.01`): at least one, evenly spread, always the same ones.
        stores: which store serves which URL.
        on_progress: called after every shard.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: `sample` is no such part.
        DataError: a shard is so damaged that it cannot be told how it lies.
    """
    part = parse_part(sample)
    began = time.perf_counter()
    stores = stores or Stores()
    with open_shards(source, stores=stores, **opening) as dataset:
        sizes = _sizes(dataset, stores)
        found = _Findings()
        for number, shards, symptom in _of_sizes(sizes) if dataset.manifest or not dataset.files_beside else ():
            found.add(dataset.path(number), symptom, shards)
        chosen = spread(len(sizes), part)
        for done, number in enumerate(chosen, 1):
            with errors_at(file=dataset.path(number)):
                for symptom in dataset.layout_findings(number):
                    found.add(dataset.path(number), symptom)
            if on_progress is not None:
                on_progress(Progress(done, len(chosen), 0, 0))
        findings = found.with_commands(source, dataset, opening, stores)
        return Diagnosis(
            dataset.format, dataset.view, len(chosen), len(sizes), int(sizes.sum()), findings,
            time.perf_counter() - began,
        )  # fmt: skip


def _sizes(dataset: Shards, stores: Stores) -> NDArray[np.int64]:
    """Bytes of each shard, files beside it included where a manifest tells them."""
    sizes = np.fromiter(shard_sizes(dataset.listing, stores), np.int64, len(dataset.listing))
    if dataset.kept_shards is None:
        return sizes
    beside: NDArray[np.int64] = pc.fill_null(dataset.kept_shards["beside_bytes"], 0).to_numpy()
    return sizes + beside


def _of_sizes(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, LayoutFinding]]:
    """What the sizes of shards tell: the shard where it is worst, how many have it, and what it is."""
    if not len(sizes):
        return
    at, total, count = int(sizes.argmax()), int(sizes.sum()), len(sizes)
    largest, mean = int(sizes[at]), total // count
    if largest >= LONE_BYTES and 2 * largest > total:
        measured = f"{format_bytes(largest)} of {format_bytes(total)}; at most {format_bytes(LONE_BYTES)}, or half"
        why = "Workers, processes and hosts share a dataset by shards, so that one of them reads this alone."
        yield at, 1, LayoutFinding("one huge shard", measured, why, largest)
    elif largest >= UNEQUAL_BYTES and largest > UNEQUAL_TIMES * mean:
        times = f"{largest / max(mean, 1):,.0f} times the mean of {format_bytes(mean)}; at most {UNEQUAL_TIMES} times"
        why = "Whoever gets this shard works while the others wait, or ends their epoch with them."
        unequal = int(np.count_nonzero((sizes >= UNEQUAL_BYTES) & (sizes > UNEQUAL_TIMES * mean)))
        yield (
            at,
            unequal,
            LayoutFinding("shards of very unequal size", f"{format_bytes(largest)}, {times}", why, largest),
        )
    if count > MANY_SHARDS and mean < SMALL_BYTES:
        measured = (
            f"{count:,} of {format_bytes(mean)} in the mean; at most {MANY_SHARDS:,}, or {format_bytes(SMALL_BYTES)}"
        )
        why = "To list and open each takes a store longer than to send it."
        yield int(sizes.argmin()), count, LayoutFinding("very many small shards", measured, why, count)


class _Findings:
    """Symptoms of many shards: of each kind the worst, and how many shards have it."""

    def __init__(self) -> None:
        self._worst: dict[str, tuple[str, LayoutFinding]] = {}
        self._shards: dict[str, int] = {}
        self._stuck: set[str] = set()

    def add(self, path: str, symptom: LayoutFinding, shards: int = 1) -> None:
        """A symptom of a shard, which stands for so many."""
        name = symptom.name
        self._shards[name] = self._shards.get(name, 0) + shards
        if name not in self._worst or symptom.weight > self._worst[name][1].weight:
            self._worst[name] = path, symptom
        if symptom.remedy is None:
            self._stuck.add(name)

    def with_commands(self, source: Source, dataset: Shards, opening: dict[str, Any], stores: Stores) -> list[Finding]:
        """The findings. A copy mends all that is mended by one, and has an index as well."""
        mended = {name: found for name, (_, found) in self._worst.items() if name not in self._stuck}
        copied = [found for found in mended.values() if found.remedy == "copy"]
        command = ""
        if copied:
            options = {name: value for found in copied for name, value in found.read_options.items()}
            command = copy_command(source, dataset, opening, options, stores)
        elif mended:
            command = index_command(source, opening)
        return [
            Finding(path, name, found.measured, found.why, command if name in mended else None, self._shards[name])
            for name, (path, found) in self._worst.items()
        ]
