"""Problems of a dataset for the page: what `verify` and `doctor` find, and the commands that help."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query
from lading._core.dataset.transform.concat import Parts
from lading._core.formats.base import Scan
from lading._core.jobs.engine.progress import OnProgress
from lading._core.secret_urls import cleaned
from lading._core.view.work import PageWork
from lading.errors import DataError, UsageError

if TYPE_CHECKING:
    from lading._core.jobs.verify.doctor import Diagnosis
    from lading._core.jobs.verify.verify import VerifyResult

__all__ = ["CheckDepth", "Problems", "number_of_row"]

CheckDepth: TypeAlias = Literal["quick", "files", "deep"]
"""How much is read: headers, all files, or every sample."""

_FINDINGS_OF_SHARD = 20
_LISTED, _MOST_GROUPS = 100, 100
_KEY_ROWS, _KEY_BYTES = 16_384, 32 << 20


@dataclass(frozen=True, slots=True)
class _Found:
    """What the checks found in files that were opened as one dataset.

    Attributes:
        query: these files.
        findings: as `VerifyResult` has them.
        verified: the verification; None if they cannot be opened.
        layout: the check of the layout; None if it was not possible.
    """

    query: Query
    findings: Sequence[Mapping[str, Any]]
    verified: VerifyResult | None
    layout: Diagnosis | None

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield what for, and what to type."""
        from lading._core.jobs.verify.verify import mending_commands

        if self.query.source.is_temporary:
            return
        names, verified = _names(self.query), self.verified
        salvage, checked = ("", False) if verified is None else (verified.salvage, "checksums" in verified.checked)
        commands = mending_commands(self.findings, names, salvage, has_checksums=checked)
        yield from commands
        if commands and verified is not None and verified.all_shards > 1:
            yield "to see the sound shards alone", shlex.join(["lading", "view", *names, "--on-bad-shard", "skip"])
        for each in self.layout.findings if self.layout is not None else ():
            if each.command is not None:
                yield "to fix the layout", each.command


class Problems:
    """The check of a dataset, which runs in a thread: the newest one.

    Args:
        query: the dataset. Steps change no file: the shards of the source are checked.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._depth: CheckDepth = "quick"
        self._work: PageWork[list[_Found]] | None = None

    def start(self, depth: str) -> None:
        """Begin a check; an earlier one ends. Raises UsageError for an unknown depth."""
        if depth not in get_args(CheckDepth):
            raise UsageError("no such depth", found=repr(depth), expected=", ".join(get_args(CheckDepth)))
        self.stop()
        self._depth = cast("CheckDepth", depth)
        self._work = PageWork(lambda report: [_check(each, self._depth, report) for each in _parts(self._query)])

    def stop(self) -> None:
        """End the check that runs."""
        if self._work is not None:
            self._work.stop()

    def close(self) -> None:
        """End the check, and wait for its end."""
        if self._work is not None:
            self._work.close()

    def state(self, wait_s: float = 0) -> dict[str, Any]:
        """Return how far the check is, and what it found, by kind; `depth` is None before the first check.

        Args:
            wait_s: wait until the check ends, for so many seconds at most.
        """
        if self._work is None:
            return {"depth": None, "running": False}
        self._work.wait(wait_s)
        state, found = {"depth": self._depth, **self._work.state()}, self._work.result
        if found is None:
            return state
        verified = [each.verified for each in found if each.verified is not None]
        groups = _groups([finding for each in found for finding in each.findings])
        layout = [finding for each in found if each.layout is not None for finding in each.layout.findings]
        commands = dict.fromkeys(command for each in found for command in each.commands())
        return {
            **state, "groups": groups[:_MOST_GROUPS], "more_groups": len(groups[_MOST_GROUPS:]),
            "unlisted": sum(sum(each.more.values()) for each in verified),
            "problems": sum(len(each.findings) if each.verified is None else each.verified.problems for each in found),
            "shards": sum(each.shards for each in verified) if verified else None,
            "samples": sum(each.samples for each in verified),
            "checked": sorted({name for each in verified for name in each.checked}),
            "layout": [asdict(each) for each in layout],
            "commands": [{"purpose": purpose, "command": cleaned(command)} for purpose, command in commands],
        }  # fmt: skip


def _parts(query: Query) -> Iterator[Query]:
    """The datasets of a source that are one after another; each may have a format and a manifest of its own."""
    if isinstance(query.source, Parts):
        for each in query.source.queries:
            yield from _parts(each)
    else:
        yield query


def _names(query: Query) -> list[str]:
    given = query.source.names
    return [os.fspath(name) for name in ([given] if isinstance(given, (str, os.PathLike)) else given)]


def _check(query: Query, depth: CheckDepth, report: OnProgress) -> _Found:
    """Check layout and files. A dataset that cannot be opened has this as its one finding."""
    from lading._core.jobs.verify.doctor import doctor  # the page opens sooner without
    from lading._core.jobs.verify.verify import verify

    layout: Diagnosis | None = None
    with suppress(DataError):  # the verification reports it, with its place
        layout = doctor(query, on_progress=report, progress=False)
    try:
        verified = verify(
            query, quick=depth == "quick", deep=depth == "deep", max_findings=_FINDINGS_OF_SHARD,
            on_progress=report, progress=False,
        )  # fmt: skip
    except DataError as error:
        return _Found(query, [{"level": "problem", **error.to_dict()}], None, layout)
    return _Found(query, verified.findings, verified, layout)


def _groups(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Findings by level, class and problem: the first ones of each, and their number; problems first."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for finding in findings:
        groups.setdefault((finding["level"], finding["error"], finding["message"]), []).append(finding)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0] != "problem", -len(group[1])))
    return [
        {"level": level, "error": error, "message": message, "count": len(each), "findings": each[:_LISTED]}
        for (level, error, message), each in ordered
    ]


def number_of_row(data: OpenDataset, file: str, row: int) -> int | None:
    """Return the number of the sample that has a row of a shard; None if the dataset has none.

    Args:
        data: the dataset.
        file: path of the shard.
        row: number of the row in the shard, as findings have it.

    Raises:
        LadingError: the shards before it cannot be counted.
    """
    shards = data.fitting
    paths = shards.listing.table.column("path").to_pylist()
    shard = next((place for place in range(len(paths)) if file in (paths[place], shards.path(place))), None)
    if shard is None:
        return None
    sample = _sample_of_item(data, shard, row) if shards.has_items else row
    ends = shards.sample_ends()
    number = sample + (int(ends[shard - 1]) if shard else 0)
    if number >= int(ends[shard]):
        return None
    if data.chosen is None:
        return number
    places = np.flatnonzero(np.asarray(data.chosen.numbers) == number)
    return int(places[0]) if len(places) else None


def _sample_of_item(data: OpenDataset, shard: int, row: int) -> int:
    """The number, in its shard, of the document of an item."""
    layout, documents, first = data.shards.row_layout, 0, 0
    scan = Scan([layout.key], max_rows=_KEY_ROWS, max_bytes=_KEY_BYTES)
    for _, view in data.shards.readable([shard]):
        for batch in view.batches(scan):
            bounds = layout.bounds(batch)
            if row < first + batch.num_rows:
                return documents + int(np.searchsorted(bounds, row - first, "right")) - 1
            documents, first = documents + len(bounds) - 1, first + batch.num_rows
    return documents
