"""Statistics of the samples that are shown: of the first ones soon, then of all. Nobody waits: nothing is computed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.steps.filter_steps import Where
from lading._core.storage.fetch import Fetcher
from lading._core.view.bars import literal, shown_column, spelled
from lading._core.view.marks import SampleMarks
from lading._core.view.selection import Selection
from lading._core.view.work import PageWork
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.jobs.engine.progress import OnProgress
    from lading._core.jobs.stats.values import Stats
    from lading._core.json_forms import TopValues

__all__ = ["FIRST_SAMPLES", "Statistics"]

FIRST_SAMPLES = 10_000
"""Statistics of so many samples come before those of all."""
_READY = 2
"""The stage of a job that has ended."""
_FIRST_REMOTE = 1_000
_LOOKED_AT, _LOOKED_AT_REMOTE = 1_000, 64
_FEW_VALUES = 20
_MOST_HELD = 8
_LEASE_S = 10.0


class Statistics:
    """Statistics of selections of a dataset; the last few stay.

    Args:
        data: the dataset.
        marks: of its samples.
    """

    def __init__(self, data: OpenDataset, marks: SampleMarks) -> None:
        self._data, self._marks, self._lock = data, marks, Lock()
        self._jobs: OrderedDict[tuple[Selection, bool], _Job] = OrderedDict()
        self._fields: list[dict[str, Any]] | None = None

    def of(self, selection: Selection, seen: int, wait_s: float, *, whole: bool = False) -> dict[str, Any]:
        """Return the statistics of a selection as far as they are known, and how far the rest is.

        Args:
            selection: the samples; their order does not count.
            whole: read all samples, also of a remote dataset.
            seen: the stage of the last answer: 0 at first, 1 for the first samples, 2 at the end.
            wait_s: how long to wait for a later stage, at most.
        """
        key = selection.in_any_order(), whole or not _is_remote(self._data)
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.work.was_stopped:
                job = self._jobs[key] = _Job(key[0].applied(self._data, self._marks), whole=key[1])
                if len(self._jobs) > _MOST_HELD:
                    self._jobs.popitem(last=False)[1].work.stop()
            self._jobs.move_to_end(key)
        return job.answer(seen, wait_s)

    def fields(self) -> list[dict[str, Any]]:
        """Return what conditions may name, as the first samples show it, each with its kind and frequent values."""
        from lading._core.jobs.stats.stats import first_stats

        with self._lock:
            if self._fields is None:
                count = _LOOKED_AT_REMOTE if _is_remote(self._data) else _LOOKED_AT
                found, _ = first_stats(self._data, count, top=_FEW_VALUES)
                self._fields = _fields(self._data, found)
            return self._fields

    def close(self) -> None:
        """End what still runs."""
        with self._lock:
            for job in self._jobs.values():
                job.work.stop()


def _is_remote(data: OpenDataset) -> bool:
    return bool(len(data.shards.listing)) and data.shards.is_remote(0)


def _fields(data: OpenDataset, found: Stats) -> list[dict[str, Any]]:
    names = _names(data, found)
    listed: dict[str | None, tuple[str, TopValues]] = {}
    if found.duplicate_keys is not None:
        key = data.shards.row_layout.key
        listed[spelled(key, [key])] = ("text", ())
    listed |= {names[name]: (column.kind, column.top) for name, column in found.columns.items()}
    return [
        {"name": name, "kind": kind, "values": [text for value, _ in top if (text := literal(value)) is not None]}
        for name, (kind, top) in listed.items()
        if name is not None
    ]


def _names(data: OpenDataset, found: Stats) -> dict[str, str | None]:
    """How conditions spell the names of statistics; None where no condition is possible, as of the length of a map."""
    from lading._core.jobs.stats.summaries import ITEMS

    columns = [name for name, column in found.columns.items() if column.size_bytes is not None]
    of_items = [name for name in found.columns if found.items and name.partition(".")[0] == ITEMS]
    spelt = {name: None if name in of_items else spelled(name, columns) for name in found.columns}
    if not data.shards.knows_schema:  # a tar is not read for its columns, none of which are maps or structs
        return spelt
    schema, fetcher = data.first_schema, data.shards.fetcher
    return {name: each if each and _is_possible(each, schema, fetcher) else None for name, each in spelt.items()}


def _is_possible(name: str, schema: pa.Schema, fetcher: Fetcher) -> bool:
    try:
        if not name.endswith("[]"):
            Where(f"{name} is null").check(schema, fetcher)
    except UsageError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Found:
    """Statistics, and whether they are of all samples."""

    stats: Stats
    is_whole: bool


class _Job:
    """Statistics of a dataset, found in a thread as long as somebody asks for them.

    Args:
        data: the dataset.
        whole: read all samples, not the first ones alone.
    """

    def __init__(self, data: OpenDataset, *, whole: bool) -> None:
        self._data, self._whole = data, whole
        self._first: _Found | None = None
        self._was_first = Event()
        self.work = PageWork(self._find, lease_s=_LEASE_S)

    def answer(self, seen: int, wait_s: float) -> dict[str, Any]:
        """Return what is known, as soon as it is more than was seen, or after a while."""
        self.work.wait(wait_s, None if seen else self._was_first)
        state = self.work.state()
        stage = (0 if self._first is None else 1) if state["running"] else _READY
        found = self._first if state["running"] else self.work.result or self._first
        return {
            "stage": stage,
            "is_whole": found is not None and found.is_whole,
            "error": state["error"],
            "statistics": None if found is None or stage == seen else self._shown(found.stats),
            "progress": None if stage == _READY else state["progress"],
        }

    def _shown(self, found: Stats) -> dict[str, Any]:
        names = _names(self._data, found)
        return {
            **found.to_dict(),
            "columns": [shown_column(column, names[name]) for name, column in found.columns.items()],
        }

    def _find(self, report: OnProgress) -> _Found:
        from lading._core.jobs.stats.stats import dataset_stats, first_stats

        try:
            count = _FIRST_REMOTE if _is_remote(self._data) else FIRST_SAMPLES
            first = self._first = _Found(*first_stats(self._data, count, on_progress=report))
        finally:
            self._was_first.set()
        if first.is_whole or not self._whole:
            return first
        return _Found(dataset_stats(self._data, on_progress=report, progress=False), is_whole=True)
