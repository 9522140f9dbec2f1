"""Damage cases and read them, in a process that `fuzz.py` watches: `python fuzz_child.py JOB.json`.

Says when it is ready, then a line of JSON for each damage: what was done, how long it took, what was wrong. It damages
one file of a case, reads the case in some of the ways there are, and puts the file right again, so that a thousand take
a minute.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import lading
from fuzz_targets import Reading, data_files
from lading.caches import read_cache_meta, read_shard
from lading.errors import LadingError
from mutations import damage_case
from watched import forget_peak, peak_mb, say

_MEMORY_BYTES = 2 << 30  # larger allocations fail at once, and are seen
_SAMPLES = 3


def main() -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    job = json.loads(Path(sys.argv[1]).read_text())
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cases = [_Case(Path(folder), Reading(**reading)) for folder, reading in job["cases"]]
    say({"ready": True})
    for number in range(job["start"], job["stop"]):
        rng = Random(f"{job['seed']} {number}")
        say(cases[number % len(cases)].tried(Path(job["scratch"]), rng, job["ways"]) | {"number": number})


class _Case:
    """A case with its original files."""

    def __init__(self, folder: Path, reading: Reading) -> None:
        self.name, self.reading = f"{folder.parent.name}/{folder.name}", reading
        self.folder, self.originals = folder, data_files(folder, reading)

    def tried(self, scratch: Path, rng: Random, ways: int) -> dict[str, Any]:
        """Damage it, read it in so many ways, judge."""
        place = scratch / "case"
        for name, data in self.originals.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        said = damage_case(place, self.originals, rng)
        os.chdir(place)
        forget_peak()
        began, wall = time.process_time(), time.perf_counter()
        steps = _steps(self.reading, rng)
        steps = rng.sample(steps, min(ways, len(steps)))
        problems = [problem for step in steps for problem in judge(step, self._names())]
        seconds, waited = time.process_time() - began, time.perf_counter() - wall
        os.chdir(scratch)
        shutil.rmtree(place)
        return {
            "case": self.name, "source": self.reading.source, "damage": said, "problems": problems,
            "seconds": seconds, "waited": waited, "peak_mb": peak_mb(),
        }  # fmt: skip

    def _names(self) -> list[str]:
        """Return what an error may name: a file, a folder that files are in, or the opened source."""
        source = self.reading.source
        return [*self.originals, *(["."] if source == "." else [])]


def judge(step: Callable[[], None], names: list[str]) -> Iterator[str]:
    """Return the fault in how a step ends: an error that is not lading's, or one that names none of these files."""
    try:
        step()
    except LadingError as error:
        text = str(error)
        known = {Path(name).name for name in names} | {str(parent) for name in names for parent in Path(name).parents}
        if not error.file and not any(name in text for name in known):
            yield f"{step.__name__}: the error names no file: {text}"
    except Exception:  # noqa: BLE001 - whatever it is, it is a fault, and the next damage is tried
        yield f"{step.__name__}: {traceback.format_exc()[-2500:]}"


def _steps(reading: Reading, rng: Random) -> list[Callable[[], None]]:
    """Yield every way to read a case, each with newly drawn options."""
    if reading.target == "arrow_cache":
        return [_read_cache, _read_shards]
    opening = {**reading.opening, "mmap": rng.random() < 0.7}
    how = {"views": rng.random() < 0.5, "max_rows": rng.choice((1, 7, 1024))}
    ways = _Ways(reading.source, opening, how)
    return [ways.streamed, ways.decoded, ways.at_random, ways.other_view, ways.verified]


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to read the sources of `lading.open`."""

    source: str | list[str]
    opening: Mapping[str, Any]
    how: Mapping[str, Any]

    def _opened(self, view: str | None = None) -> lading.Dataset:
        return lading.open(self.source, view=view, **self.opening)

    def streamed(self) -> None:
        with self._opened() as dataset:
            for batch in dataset.batches(**self.how):
                batch.validate(full=True)

    def decoded(self) -> None:
        with self._opened() as dataset:
            for _ in dataset.samples():
                pass

    def at_random(self) -> None:
        with self._opened() as dataset:
            count = len(dataset)
            wanted = [*range(0, count, max(1, count // _SAMPLES))][::-1]
            dataset.take(wanted, views=self.how["views"]).validate(full=True)
            for i in wanted:
                dataset[i]

    def other_view(self) -> None:
        with self._opened() as dataset:
            found = dataset.view
        with self._opened("samples" if found == "interleaved" else "interleaved") as dataset:
            for batch in dataset.batches(**self.how):
                batch.validate(full=True)
            if len(dataset):
                dataset[0]

    def verified(self) -> None:
        for finding in lading.verify(self.source, **self.opening).findings:
            raise LadingError(str(finding["message"]), file=str(finding.get("file", "")))


def _read_cache() -> None:
    for path in read_cache_meta(".").shard_paths:
        read_shard(path).to_pylist()


def _read_shards() -> None:
    for path in sorted(Path().glob("*.arrow")):
        table = read_shard(path)
        table.validate(full=True)
        table.to_pylist()


if __name__ == "__main__":
    main()
