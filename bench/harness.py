"""Measure ways of doing one thing beside each other.

A *case* is one thing to be done; a *way* is a function that imports and sets up what it needs and gives back a function
of no arguments. Only that is timed, once, in a fresh process. The ways of a case take turns, so that a busy minute of
the machine falls on all of them; medians are reported. Each case has a *peer* and a *limit*, which moves the same bytes
without structure, measured in the same run. Inputs are read once before each turn; outputs go to memory, which is
taken once before, so that neither a disk nor the host of a virtual machine is in a number.
"""

from __future__ import annotations

import glob
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    """Where a way works: `data` holds the corpora, `out` is an empty folder that is removed afterwards."""

    data: str
    out: str

    def files(self, pattern: str) -> list[str]:
        return sorted(glob.glob(os.path.join(self.data, pattern)))

    def facts(self, corpus: str) -> dict[str, int]:
        with open(os.path.join(self.data, "facts.json"), encoding="utf-8") as file:
            return json.load(file)[corpus]


@dataclass(frozen=True, slots=True)
class Done:
    """What a way did. All ways of a case must have done the same."""

    samples: int
    payload_bytes: int


def counted(samples: Iterable[dict], size_of: Callable[[dict], int]) -> Done:
    """Go through samples one at a time."""
    count = size = 0
    for sample in samples:
        count += 1
        size += size_of(sample)
    return Done(count, size)


Way: TypeAlias = Callable[[Place], Callable[[], Done]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be done.

    Attributes:
        name: for people, and for choosing.
        inputs: pattern of the files that are read, below the data.
        peer, limit: names of the ways that the others are compared with.
        ways: by name.
        writes: whether as much is written as is read, or held in memory at once.
    """

    name: str
    inputs: str
    peer: str
    limit: str
    ways: Mapping[str, Way]
    writes: bool = False


def measure_here(case: Case, way: str, place: Place) -> dict[str, object]:
    """Do it once in this process."""
    try:
        work = case.ways[way](place)
    except ImportError as error:
        return {"skipped": str(error)}
    _import_lazily()
    if case.writes:
        _touch_memory(place, sum(os.path.getsize(path) for path in place.files(case.inputs)))
    cpu, start = _cpu_s(), time.perf_counter()
    done = work()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu_s": _cpu_s() - cpu,
        "samples": done.samples,
        "payload_bytes": done.payload_bytes,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run_case(case: Case, place: Place, repeats: int, command: list[str]) -> Iterator[dict[str, object]]:
    """A result for each way; `command` starts a process that prints `measure_here` of the case and way appended."""
    turns: dict[str, list[dict]] = {way: [] for way in case.ways}
    for _ in range(repeats):
        for way, taken in turns.items():
            if not taken or "seconds" in taken[-1]:
                taken.append(_in_fresh_process(case, way, place, command))
                print(f"  {case.name} · {way}: {_brief(taken[-1])}", file=sys.stderr, flush=True)
    medians = {way: statistics.median(t["seconds"] for t in taken) for way, taken in turns.items() if _ok(taken)}
    for way, taken in turns.items():
        result = {"case": case.name, "way": way}
        yield result | (_summary(taken, case, medians) if way in medians else taken[-1])


def copy_files(paths: Iterable[str], folder: str) -> None:
    """Write the same bytes once more: the limit of everything that writes."""
    buffer = memoryview(bytearray(4 << 20))
    for path in paths:
        target = os.path.join(folder, os.path.basename(path))
        with open(path, "rb", buffering=0) as source, open(target, "wb", buffering=0) as out:
            while count := source.readinto(buffer):
                out.write(buffer[:count])


def hash_files(paths: Iterable[str], new_hash: Callable[[], Any]) -> None:
    """Hash the bytes of each file, a MiB at a time: the limit of everything that looks at all of them."""
    # Whole pages: into a `bytearray`, which begins 16 bytes behind one, reads take 1.6 times as long.
    buffer = memoryview(mmap.mmap(-1, 1 << 20))
    for path in paths:
        total = new_hash()
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total.update(buffer[:count])
        total.digest()


def _summary(taken: list[dict], case: Case, medians: Mapping[str, float]) -> dict[str, object]:
    seconds = statistics.median(t["seconds"] for t in taken)
    first = taken[0]
    summary = {
        "seconds": round(seconds, 4),
        "seconds_all": [round(t["seconds"], 4) for t in taken],
        "samples": first["samples"],
        "payload_bytes": first["payload_bytes"],
        "samples_s": round(first["samples"] / seconds),
        "mb_s": round(first["payload_bytes"] / 1e6 / seconds, 1),
        "cpu_s": round(statistics.median(t["cpu_s"] for t in taken), 3),
        "peak_rss_mb": round(max(t["peak_rss_mb"] for t in taken)),
        "peak_own_mb": round(max(t["peak_own_mb"] for t in taken)),
    }
    if case.peer in medians:
        summary["times_peer"] = round(medians[case.peer] / seconds, 2)
    if case.limit in medians:
        summary["of_limit"] = round(medians[case.limit] / seconds, 3)
    return summary


def _import_lazily() -> None:
    """Let packages import what they import once a process.

    pyarrow imports pandas at the first array, wherever it is installed. That takes half a second to a second, and some
    peers (datasets) import it themselves while they are set up. lading imports the modules of a name
    and of a format when they are used.
    """
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].array([])
    if "lading" in sys.modules:
        for name in sys.modules["lading"].__all__:
            getattr(sys.modules["lading"], name)
        from lading._core.formats.registry import all_formats

        list(all_formats())


def _touch_memory(place: Place, size: int) -> None:
    """Take as much memory as the outputs will, and give it back.

    A virtual machine gives memory that lies free for a second or two back to its host, and then pays several times for
    it. Ways take very unlike times to set up, so without this the quickest to begin would have the cheapest memory.
    """
    path, block = os.path.join(place.out, "touch"), bytes(4 << 20)
    with open(path, "wb", buffering=0) as file:
        file.writelines(block for _ in range(size // len(block) + 1))
    os.unlink(path)


def _in_fresh_process(case: Case, way: str, place: Place, command: list[str]) -> dict:
    shutil.rmtree(place.out, ignore_errors=True)
    os.makedirs(place.out)
    _read_once(place.files(case.inputs))
    quiet = {"LOGURU_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore", "TMPDIR": place.out}
    quiet["PYTHONDONTWRITEBYTECODE"] = ""  # the source of lading stays compiled, as installed peers are
    own_kb = 0
    with tempfile.TemporaryFile("w+") as out:
        command = [*command, case.name, way]
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **quiet})
        while child.poll() is None:
            own_kb = max(own_kb, _own_memory_kb(child.pid))
            time.sleep(_POLL_S)
        out.seek(0)
        said = out.read()
    shutil.rmtree(place.out, ignore_errors=True)
    if child.returncode:
        return {"failed": said.strip().rpartition("\n")[2]}
    return {**json.loads(said.splitlines()[-1]), "peak_own_mb": own_kb / 1024}


def _own_memory_kb(pid: int) -> int:
    """Memory of a process and its children that is no file's: what counts when maps are shared and can be dropped."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            total = sum(int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssShmem")))
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as children:
                total += sum(_own_memory_kb(int(child)) for child in children.read().split())
    except OSError:  # it has just ended
        return total
    return total


def _read_once(paths: list[str]) -> None:
    buffer = bytearray(8 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _cpu_s() -> float:
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in use)


def _ok(taken: list[dict]) -> bool:
    return all("seconds" in turn for turn in taken)


def _brief(turn: Mapping[str, object]) -> str:
    return f"{turn['seconds']:.3f} s" if "seconds" in turn else str(turn)
