"""Kill conversions at random moments, go on with `--resume`, and compare with an undisturbed conversion.

python kill_jobs.py [--kills 50] [--seed 0] [--steps shuffle] [--to mds] [--source file] [--destination s3] [--ledger]

A source is made and converted once, undisturbed. Then it is converted again and again. At a random moment the job gets
a signal: the whole of it, its first process alone, or one of its workers. `lading convert --resume` is repeated until
the job ends. Its files must be those of the undisturbed conversion, byte by byte, and nothing else may be beside them.

The exit status is 1 if a file differs, something is left, a job does not end, or a worker did more again than a task
and the beginning of the next one.
A kill is repeated by its seed: `--seed S --first N --kills 1`, as far as the machine's speed allows.
"""

from __future__ import annotations

import argparse
import glob
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import lading
from lading._core.storage.stores import Stores, resolve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import object_server
from processes import children

_COMMAND = """
from lading._core.jobs.convert import schedule
from lading._core.jobs.convert import tasks
tasks.ALONE_BYTES = schedule.ALONE_BYTES = schedule._QUICK_BYTES = 0  # several tasks and workers, always
from lading._core.cli import run as command
command()
"""
_FUNCTIONS = """
def keep(sample):
    return int(sample["txt"]) % 7 != 3

def change(sample):
    return {"length": len(sample["bin"]), "name": f"number {sample['txt']}"}
"""
_STEPS = {
    "none": [],
    "shuffle": ["--shuffle", "--seed", "5"],
    "dedup": ["--dedup", "txt"],
    "sort": ["--sort", "json.score"],
    "splits": ["--split-into", "train=0.7,val=0.2,test=0.1"],
    "filter": ["--filter", "steps.py:keep", "--map", "steps.py:change"],
    "filter-shuffle": ["--filter", "steps.py:keep", "--map", "steps.py:change", "--shuffle"],
}
_SAMPLE_BYTES = 20_000
_VICTIMS = (
    ("all", signal.SIGKILL),
    ("parent", signal.SIGKILL),
    ("worker", signal.SIGKILL),
    ("parent", signal.SIGTERM),
    ("parent", signal.SIGINT),
)
_EARLY, _RUNS, _RUN_S = 0.25, 5, 600
_IS_DONE = "No such job is unfinished"


@dataclass(frozen=True, slots=True)
class Place:
    """Where conversions write to: a folder for each, with the destination `out` and whatever is left beside it."""

    root: str
    stores: Stores
    environment: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        return f"{self.root}/{name}"

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def look_s(self) -> float:
        """Seconds between two looks at a journal: each is a request, or a few system calls."""
        return 0.02 if self.is_local else 0.2

    def files(self, name: str) -> dict[str, bytes]:
        """Every file of a conversion, and every folder, hidden or not."""
        folder = self.of(name)
        if self.is_local:
            found = {str(path.relative_to(folder)): path for path in Path(folder).rglob("*")}
            return {name: path.read_bytes() if path.is_file() else b"" for name, path in found.items()}
        store, _ = resolve(folder, self.stores)
        sizes = {info.path: info.size_bytes for info in store.walk(folder)}
        return {path.removeprefix(f"{folder}/"): bytes(*store.get_ranges(path, [(0, sizes[path])])) for path in sizes}

    def names(self, name: str) -> list[str]:
        """The names of what the journal of a conversion has so far, behind the random part."""
        if self.is_local:
            build, deep = f"{self.of(name)}/.out.lading-*/", ("tasks/task-*", "tasks/*/task-*")
            found = [path for each in (*deep, "records/*", "tasks/*/records/*") for path in glob.glob(build + each)]
        else:
            store, _ = resolve(self.of(name), self.stores)
            found = [info.path for info in store.walk(self.of(name)) if ".lading-" in info.path]
        return [path.partition(".lading-")[2].partition("/")[2] for path in found]

    def remove(self, name: str) -> None:
        if self.is_local:
            shutil.rmtree(self.of(name))
        else:
            resolve(self.of(name), self.stores)[0].delete(self.of(name))


@dataclass(slots=True)
class Attempts:
    """What was seen of a job's attempts at tasks while it ran.

    Attributes:
        seen: folders of attempts, by task.
        recorded: tasks with records.
        begun: when the first of them was seen, in seconds of the monotonic clock.
    """

    seen: dict[str, set[str]] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    begun: float | None = None

    def look(self, place: Place, name: str) -> None:
        for path in place.names(name):
            self.begun = self.begun or time.monotonic()
            if attempt := re.match(r"(.*tasks/(?:[^/]+/)?task-\d+)-([0-9a-f]{16})", path):
                self.seen.setdefault(attempt[1], set()).add(attempt[2])
            elif record := re.fullmatch(r"(.*records/\d+)\.json", path):
                self.recorded.add(record[1])

    @property
    def again(self) -> int:
        """The number of tasks that more than one attempt was made at."""
        return sum(len(attempts) > 1 for attempts in self.seen.values())


@dataclass(slots=True)
class Death:
    """One kill, and what came of it.

    Attributes:
        number: of the kill.
        victim: what was killed, and how; empty if the job had ended before.
        moment: seconds after its start.
        records: finished tasks at that moment.
        runs: conversions until the job ended.
        again: tasks that were begun more than once.
        kept: tasks that the last run took over.
        problems: what was not as it should be.
    """

    number: int
    victim: str = ""
    moment: float = 0.0
    records: int = 0
    runs: int = 1
    again: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200, help="size of the source")
    parser.add_argument("--tasks", type=int, default=40, help="about so many tasks")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="number of the first kill, to repeat one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--source", choices=("tars", "file", "splits"), default="tars", help="file: one of Parquet")
    parser.add_argument("--steps", choices=_STEPS, default="none")
    parser.add_argument("--to", default="parquet", help="the format that is written")
    parser.add_argument("--ledger", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--destination", choices=("disk", "s3"), default="disk")
    parser.add_argument("--folder", help="where to work; by default, a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, ExitStack() as held:
        os.mkdir(f"{folder}/tmp")
        place = held.enter_context(_on_s3()) if args.destination == "s3" else Place(f"{folder}/results", Stores())
        sys.exit(_all_kills(args, folder, place))


def _all_kills(args: argparse.Namespace, folder: str, place: Place) -> int:
    Path(folder, "steps.py").write_text(_FUNCTIONS, encoding="utf-8")
    source = make_source(folder, args.source, args.mb * 1_000_000, args.tasks)
    command = ["convert", source, "OUT", "--to", args.to, "--workers", str(args.workers), "--json"]
    command += ["--shard-size", f"{args.mb * 1_000_000 // args.tasks}", *_STEPS[args.steps]]
    command += ["--verify"] * args.verify + ["--ledger", "LEDGER"] * args.ledger
    began, seen = time.monotonic(), Attempts()
    _, told = _watched_end(_start(command, folder, place, "whole"), place, "whole", seen)
    seconds, expected = time.monotonic() - began, place.files("whole")
    shares = (seen.begun or began) - began, began + seconds - (seen.begun or began)
    print(f"{' '.join(command)}: {told['tasks']} tasks, {shares[0]:.1f} + {shares[1]:.1f} s undisturbed", flush=True)
    deaths: list[Death] = []
    number = args.first
    while sum(bool(death.victim) for death in deaths) < args.kills:
        death = Death(number)
        seen = _convert_and_kill(death, random.Random(f"{args.seed}-{number}"), command, folder, place, shares)
        _compare(death, seen, expected, place, args.workers)
        left = [name for name in os.listdir(f"{folder}/tmp") if not name.endswith(".lock")]
        death.problems += [f"temporary files: {left}"] * bool(left)
        deaths.append(death)
        at = f"{death.victim} at {death.moment:.2f} s, {death.records} records" if death.victim else "too late"
        outcome = "; ".join(death.problems) or "identical"
        print(f"  {number}: {at}: {death.runs} runs, {death.kept} tasks kept: {outcome}", file=sys.stderr, flush=True)
        place.remove(str(number))
        shares = shares if death.victim else (0.9 * shares[0], 0.9 * shares[1])
        number += 1
    _print_table([death for death in deaths if death.victim])
    return int(any(death.problems for death in deaths))


def make_source(folder: str, kind: str, size: int, tasks: int) -> str:
    """Make samples with a number, a JSON object and random bytes, of which every ninth has the text of an earlier one.

    They are tars, eight for each task; or one file of Parquet, or three splits, made of these.
    """
    rng, tars = np.random.default_rng(0), f"{folder}/tars"
    with lading.writer(tars, format="webdataset", shard_size=size // tasks // 8) as writer:
        for number in range(size // _SAMPLE_BYTES):
            text = str(number - 5 if number % 9 == 8 else number)
            length = int(rng.integers(_SAMPLE_BYTES // 2, 3 * _SAMPLE_BYTES // 2))
            fields = {"score": int(rng.integers(1000)), "of": number}
            writer.write({"__key__": f"{number:06}", "txt": text, "json": fields, "bin": rng.bytes(length)})
    if kind == "file":
        group = {"row_group_bytes": max(size // tasks // 8, 1)}
        lading.convert(tars, f"{folder}/source.parquet", format="parquet", options=group, progress=False)
        return f"{folder}/source.parquet"
    if kind == "splits":
        splits = lading.open(tars).split({"train": 0.6, "val": 0.3, "test": 0.1})
        lading.convert(splits, f"{folder}/splits", format="webdataset", shard_size=size // tasks, progress=False)
        return f"{folder}/splits"
    return tars


@contextmanager
def _on_s3() -> Iterator[Place]:
    with object_server.object_server() as url:
        object_server.empty_server(url)
        stores = Stores.of(None, object_server.options(url))
        assert stores is not None, "there are options"
        yield Place(f"s3://{object_server.BUCKET}", stores, object_server.environment(url))


def _start(command: list[str], folder: str, place: Place, name: str, *more: str) -> subprocess.Popen[str]:
    where = {"OUT": f"{place.of(name)}/out", "LEDGER": f"{place.of(name)}/ledger.jsonl"}
    if place.is_local:
        os.makedirs(place.of(name), exist_ok=True)
    words = [where.get(word, word) for word in (*command, *more)]
    own = {"TMPDIR": f"{folder}/tmp", "LADING_CACHE": f"{folder}/cache", "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *words], cwd=folder, env={**os.environ, **own, **place.environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _end(process: subprocess.Popen[str]) -> tuple[int, dict]:
    """The exit status of a conversion, and its summary or its errors."""
    out, errors = process.communicate(timeout=_RUN_S)
    return process.returncode, json.loads(out) if process.returncode == 0 else {"errors": errors}


def _convert_and_kill(
    death: Death, chance: random.Random, command: list[str], folder: str, place: Place, shares: tuple[float, float]
) -> Attempts:
    """Convert, kill, and go on until the job ends; return what was seen of its attempts.

    One in four dies before its first task begins. `shares` are the seconds before that, and behind it.
    """
    (who, how), early = chance.choice(_VICTIMS), chance.random() < _EARLY
    wait, name, seen = chance.uniform(0, shares[not early]), str(death.number), Attempts()
    process, began = _start(command, folder, place, name), time.monotonic()
    while process.poll() is None and time.monotonic() < wait + (began if early else seen.begun or math.inf):
        seen.look(place, name)
        time.sleep(place.look_s)
    death.moment = time.monotonic() - began
    workers = children(process.pid)
    if process.poll() is None:
        who = who if workers else "parent"
        death.victim = f"{who} {how.name[3:]}"
        victims = {"all": [process.pid, *workers], "parent": [process.pid]}.get(who) or [chance.choice(workers)]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
    death.records = len(seen.recorded)
    status, told = _watched_end(process, place, name, seen)
    while status != 0 and death.runs < _RUNS:
        if _IS_DONE in told["errors"]:  # it was killed behind its end
            death.kept = len(seen.recorded)
            return seen
        if death.runs > 1 or status not in (-how, 128 + how) or who == "worker":
            death.problems.append(f"exit status {status}: {told['errors'][-300:]}")
        death.runs += 1
        status, told = _watched_end(_start(command, folder, place, name, "--resume"), place, name, seen)
    death.kept = told.get("tasks_before", 0)
    if status != 0:
        death.problems.append(f"it never ended: {told['errors'][-300:]}")
    return seen


def _watched_end(process: subprocess.Popen[str], place: Place, name: str, seen: Attempts) -> tuple[int, dict]:
    deadline = time.monotonic() + _RUN_S
    while process.poll() is None and time.monotonic() < deadline:
        seen.look(place, name)
        time.sleep(place.look_s)
    seen.look(place, name)
    return _end(process)


def _compare(death: Death, seen: Attempts, expected: dict[str, bytes], place: Place, workers: int) -> None:
    found = place.files(str(death.number))
    death.again = seen.again
    different = [name for name in expected if found.get(name) != expected[name]]
    left = [name for name in found if name not in expected]
    if different:
        death.problems.append(f"{len(different)} files differ or are missing: {different[:3]}")
    if left:
        death.problems.append(f"left: {left[:3]}")
    if death.again > 2 * workers:  # one each; and the next one may have begun while files of the first were finished
        death.problems.append(f"{death.again} tasks done again by {workers} workers")


def _print_table(deaths: list[Death]) -> None:
    print(f"{'killed':14} {'kills':>5} {'identical':>9} {'runs':>9} {'tasks kept':>14} {'done again':>10}")
    victims = Counter(death.victim for death in deaths)
    for victim in (*sorted(victims), ""):
        mine = [death for death in deaths if victim in ("", death.victim)]
        good, kept = sum(not death.problems for death in mine), sorted(death.kept for death in mine)
        runs, middle = Counter(death.runs for death in mine), statistics.median_low(kept)
        print(
            f"{victim or 'in all':14} {len(mine):5} {good:9} {min(runs):4} to {max(runs)} "
            f"{kept[0]:4},{middle:4},{kept[-1]:4} {max(death.again for death in mine):10}"
        )


if __name__ == "__main__":
    main()
