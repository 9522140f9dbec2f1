"""The plan of a job as its journal keeps it: all that its rows and the ends of its shards depend on, readable.

Two jobs of one plan write the same bytes. Processes, threads and executors are no part of it, nor are options of
stores: those may be secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Final

import orjson

from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.tasks import Task
from lading._core.jobs.journal.fingerprint import fingerprint, plain_facts
from lading._core.manifest.values import own_version
from lading._core.storage.base import FileInfo, Store, file_infos
from lading._core.storage.roots import real_place
from lading._core.storage.stores import resolve
from lading._core.units import count
from lading.errors import StoreError, UsageError
from lading.options import WriteOptions

__all__ = [
    "JournalPlan",
    "first_difference",
    "functions_plan",
    "journal_plan",
    "refuse_other",
    "source_files",
    "splits_plan",
]

_WRITE: Final = (
    "format", "options", "shard_size", "num_shards", "rows_per_shard", "checksums", "schema_policy", "on_error", "lazy",
    "max_batch_bytes",
)  # fmt: skip
"""Options of writing that decide bytes."""
_READ: Final = ("view", "format_options", "interleaved", "target", "types", "members", "stored_schema")
"""Of how shards are read, what decides rows."""
_SHOWN: Final = 3
_SHOWN_TEXT: Final = 80


@dataclass(frozen=True)
class JournalPlan:
    """What a job does.

    Attributes:
        facts: all that its output depends on, by a word that errors can say.
        tasks: number of its tasks.
        unknown: classes of values in functions of which nothing shows whether they are the same, if the user is asked
            (`--resume` without `--force`).
    """

    facts: Mapping[str, Any]
    tasks: int
    unknown: Sequence[str] = ()

    @cached_property
    def hash(self) -> str:
        """16 hex digits, equal for jobs that write the same bytes."""
        return fingerprint(self.facts)

    @cached_property
    def sha256(self) -> str:
        """64 hex digits, which a destination keeps of the job that wrote it."""
        return hashlib.sha256(orjson.dumps(self.facts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @classmethod
    def of(cls, facts: Mapping[str, Any], tasks: int, write: WriteOptions) -> JournalPlan:
        """Return the plan of these facts."""
        unknown: list[str] = []
        plain = plain_facts(facts, unknown)
        return cls(plain, tasks, tuple(dict.fromkeys(unknown)) if write.resume and not write.force else ())

    def refuse_unknown(self, destination: str) -> None:
        """Raise UsageError if nothing shows whether the functions are those of the job that is to be gone on with."""
        if self.unknown:
            raise UsageError(
                "nothing shows whether the functions of this job are those of the job that began", file=destination,
                found=f"they hold values of {', '.join(self.unknown[:_SHOWN])}",
                advice="If the values are the same, add --force. Or leave out --resume: that starts anew.",
            )  # fmt: skip

    def to_json(self) -> bytes:
        """Return the plan as the journal keeps it."""
        return orjson.dumps({"job": self.hash, "tasks": self.tasks, "facts": self.facts}, option=orjson.OPT_SORT_KEYS)


def journal_plan(shards: Shards, spec: JobPlan, tasks: Sequence[Task], steps: Sequence[Step]) -> JournalPlan:
    """Return the plan of a conversion. The sources' sizes and versions are asked for: one listing a folder.

    Args:
        shards: the source.
        spec: the conversion, settled.
        tasks: its pieces.
        steps: all of its steps, those that give samples a new order too.
    """
    write, read = spec.write, spec.read
    options = _options(write)
    facts = {
        "lading": own_version(),
        "source": source_files(shards),
        "source format": spec.source_format,
        "option": {**options, "ledger": write.ledger is not None},
        "reading": {name: getattr(read, name) for name in _READ} | {"roots": [real_place(r) for r in read.roots]},
        "step": list(steps),
        "schema": spec.schemas.schema_written,
        "columns": {"kind": "Plan", **{each.name: getattr(spec.schemas, each.name) for each in fields(spec.schemas)}},
        "tasks": fingerprint([asdict(task) for task in tasks]),
    }
    return JournalPlan.of(facts, len(tasks), write)


def functions_plan(shards: Shards, steps: Sequence[Step], write: WriteOptions) -> JournalPlan:
    """Return the plan of what functions make of a source: all that it depends on.

    Args:
        shards: the source.
        steps: the steps up to the last function.
        write: how the job writes.
    """
    read = shards.read_plan()
    facts = {
        "lading": own_version(), "source": source_files(shards), "source format": shards.format,
        "reading": {name: getattr(read, name) for name in _READ}, "step": list(steps),
    }  # fmt: skip
    return JournalPlan.of(facts, 0, write)


def splits_plan(write: WriteOptions, names: Sequence[str], files: Sequence[Any], steps: Sequence[Step]) -> JournalPlan:
    """Return the plan of a conversion into several datasets, each of which has a plan of its own besides.

    Args:
        write: how they are written.
        names: of the datasets.
        files: of their sources (`source_files`).
        steps: the steps of all of them.
    """
    option = {"splits": ",".join(names), **_options(write)}
    facts = {"lading": own_version(), "source": files, "option": option, "step": list(steps)}
    return JournalPlan.of(facts, 0, write)


def _options(write: WriteOptions) -> dict[str, Any]:
    return {name: getattr(write, name) for name in _WRITE}


def source_files(shards: Shards) -> list[list[Any]]:
    """Return path, size, version and entry of each shard, which is read in this version alone from then on.

    Stores are asked for what the listing does not say.
    """
    listed = shards.listing.table.select(["path", "entry", "size_bytes", "version"]).to_pydict()
    paths, entries = listed["path"], listed["entry"]
    found: dict[int, FileInfo] = {}
    for number, (path, size, version) in enumerate(zip(paths, listed["size_bytes"], listed["version"], strict=True)):
        if size is not None and version is not None:  # they were listed
            found[number] = FileInfo(path, size, version)
    by_store: dict[int, tuple[Store, list[int]]] = {}
    places = [resolve(path, shards.stores) for path in paths]
    for number in (n for n in range(len(paths)) if n not in found):
        store, _ = places[number]
        by_store.setdefault(id(store), (store, []))[1].append(number)
    for store, numbers in by_store.values():
        found.update(zip(numbers, _facts(store, [places[number][1] for number in numbers]), strict=True))
    shards.listing = shards.listing.with_versions([found[n].version for n in range(len(paths))])
    return [
        [real_place(path, shards.stores), found[n].size_bytes, found[n].version, entries[n]]
        for n, path in enumerate(paths)
    ]


def _facts(store: Store, paths: Sequence[str]) -> list[FileInfo]:
    try:
        return list(file_infos(store, paths))
    except StoreError:  # one is missing, which a policy may allow
        return [_one(store, path) for path in paths]


def _one(store: Store, path: str) -> FileInfo:
    try:
        return store.head(path)
    except StoreError:
        return FileInfo(path, -1)


def refuse_other(kept: Mapping[str, Any], plan: JournalPlan, destination: str, done: int) -> None:
    """Refuse to go on with another job, or with one that may be another.

    Args:
        kept: the journal's plan.
        plan: the plan of this job.
        destination: where both write to.
        done: tasks that the other job has done.

    Raises:
        UsageError: says what differs, or what may differ.
    """
    if kept.get("job") == plan.hash:
        plan.refuse_unknown(destination)
        return
    expected, found = first_difference(kept.get("facts", {}), plan.facts)
    raise UsageError(
        "the unfinished job of this destination is another one", file=destination, expected=expected, found=found,
        advice=f"Repeat what was asked for then. Or leave out --resume: that starts anew, without the "
        f"{count(done, 'finished task')}.",
    )  # fmt: skip


def first_difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, str]:
    """Return the most telling difference of the facts of two plans: how it was, and how it is."""
    return next(_differences(was, now), ("another plan", "this one"))


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what differs, the most telling first: how it was, and how it is."""
    if was.get("lading") != now["lading"]:
        yield f"lading {was.get('lading')}", f"lading {now['lading']}"
    yield from _different_files(was.get("source", []), now.get("source", []))
    for name in ("option", "reading"):
        old, new = was.get(name, {}), now.get(name, {})
        for key in new:
            if old.get(key) != new[key]:
                yield f"{key}={_short(old.get(key))}", f"{key}={_short(new[key])}"
    old, new = was.get("step", []), now.get("step", [])
    for at in range(max(len(old), len(new))):
        before, after = (steps[at] if at < len(steps) else {"kind": "none"} for steps in (old, new))
        if before != after:
            key = next(name for name in ("kind", *before, *after) if before.get(name) != after.get(name))
            yield f"step {at + 1} with {key}={_short(before.get(key))}", f"{key}={_short(after.get(key))}"
    for name in ("source format", "schema", "columns", "tasks"):
        if was.get(name) != now.get(name):
            yield f"{name} {_short(was.get(name))}", f"{_short(now.get(name))}"


def _different_files(was: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> Iterator[tuple[str, str]]:
    old, new = ({file[0]: file[1:] for file in files} for files in (was, now))
    changed = [path for path in new if path in old and old[path] != new[path]]
    for path in changed[:1]:
        more = f", and {count(len(changed) - 1, 'more file')}" if len(changed) > 1 else ""
        yield (f"{path} of {old[path][0]:,} bytes, version {old[path][1]}",
               f"{new[path][0]:,} bytes, version {new[path][1]}{more}")  # fmt: skip
    gone, come = [p for p in old if p not in new], [p for p in new if p not in old]
    if gone or come:
        yield _listed(len(was), gone, "that are gone"), _listed(len(now), come, "that are new")
    elif was != now and not changed:
        yield "the source files in their former order", "another order"


def _listed(total: int, files: Sequence[str], which: str) -> str:
    shown = f", {count(len(files), 'file')} {which}: {', '.join(files[:_SHOWN])}" if files else ""
    return f"{count(total, 'source file')}{shown}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
