"""Sound golden cases, read and converted in ways drawn by chance: whichever way is taken tells the same of them.

`make test` draws some ways for each format, `make soak` ten times as many. What is told names seed and number of a way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import lading
from fuzz_targets import TARGETS, Reading, find_readings
from golden_cases import Golden
from lading._core.jobs.salvage.salvage import salvage
from lading._core.jobs.stats.info import info
from lading.errors import LadingError

_COUNT = int(os.environ.get("LADING_FUZZ", "1000")) // 80
_SEED = os.environ.get("LADING_FUZZ_SEED", "0")
_FORMATS = ("webdataset", "parquet", "mds", "arrow", "media_archive", "jsonl", "csv")
_NO_PICTURE = "a picture has no whole header"
"""Found in cases whose pictures are none."""


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")  # of what cases lack, whoever reads them is told; here they are read very often
@pytest.mark.parametrize("target", [name for name in TARGETS if name != "arrow_cache"])
def test_all_ways_tell_the_same(golden: Golden, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = find_readings(golden, target)
    for number in range(_COUNT):
        rng = Random(f"{target} {_SEED} {number}")
        folder, reading = rng.choice(cases)
        monkeypatch.chdir(folder)
        way = _Way(reading, {**reading.opening, "view": rng.choice((None, "samples", "interleaved"))}, rng)
        try:
            faults = [*way.faults(tmp_path)]
        except Exception as error:
            error.add_note(f"way {number} of seed '{target} {_SEED}': {way}")
            raise
        assert not faults, f"way {number} of seed '{target} {_SEED}': {way}\n" + "\n".join(faults)


@dataclass(frozen=True, slots=True)
class _Way:
    """A source, how it is opened, and what draws all else."""

    reading: Reading
    opening: Mapping[str, Any]
    rng: Random

    def faults(self, scratch: Path) -> Iterator[str]:
        """What differs from what a plain loop over the samples gives."""
        source = self.reading.source
        try:
            with lading.open(source, **self.opening) as dataset:
                view, samples = dataset.view, [_plain(sample) for sample in dataset]
                rows = _rows(dataset, max_rows=1024)
        except LadingError:
            return  # not of this view
        opening = {**self.opening, "mmap": self.rng.random() < 0.7}
        with lading.open(source, **opening) as dataset:
            yield from self._read(dataset, samples, rows)
        digest = lading.digest(source, workers=1, **opening)
        if not digest.count == info(source, **opening).samples == len(samples):
            yield f"{len(samples)} samples are counted otherwise"
        yield from self._converted(scratch, view, self._taken_in(opening, digest))

    def _taken_in(self, opening: Mapping[str, Any], digest: Any) -> Any:
        """The digest of a copy: conversions take in films that lie beside a cache, and who only reads does not."""
        if self.reading.target != "arrow":
            return digest
        options = {"load_assets": True, **opening.get("options", {})}
        return lading.digest(self.reading.source, workers=1, **{**opening, "options": options})

    def _read(self, dataset: lading.Dataset, samples: list[Any], rows: list[Any]) -> Iterator[str]:
        rng, count = self.rng, len(samples)
        limits = {"max_rows": rng.choice((1, 2, 5, 1024)), "max_bytes": rng.choice((1, 1000, 1 << 20))}
        views = rng.random() < 0.5
        if len(dataset) != count:
            yield f"{count} samples, and len says {len(dataset)}"
        if _rows(dataset, **limits, views=views, shards_per_batch=rng.choice((1, 2, None))) != rows:
            yield f"batches differ with {limits}, views={views}"
        if not count:
            return
        order = [rng.randrange(count) for _ in range(rng.choice((1, 3, 8)))]
        if [_plain(dataset[i]) for i in order] != [samples[i] for i in order]:
            yield f"samples {order} differ"
        taken = dataset.take(order, views=views)
        taken.validate(full=True)
        if dataset.view == "samples" and _dicts(taken) != [rows[i] for i in order]:
            yield f"rows {order} differ when they are taken"

    def _converted(self, scratch: Path, view: str, digest: Any) -> Iterator[str]:
        """The digest through two formats, what is found wrong with what was written, and the other view of it."""
        rng, source = self.rng, self.reading.source
        out = scratch / "out"
        for name in ("out", "further", "saved"):
            shutil.rmtree(scratch / name, ignore_errors=True)
        first, second = rng.choice(_FORMATS), rng.choice(_FORMATS)
        try:
            lading.convert(
                source, out, format=first, view=self.opening["view"], source_format=self.opening.get("format"),
                source_options=self.opening.get("options"), shard_size=rng.choice(("2kb", "50kb", "256MB")),
                max_batch_bytes=rng.choice(("4kb", "1MB", "512MB")), checksums=rng.choice(("samples", "none")),
            )  # fmt: skip
        except LadingError:
            if out.exists():
                yield f"a refused conversion to {first} left something behind"
            return
        if lading.digest(out, workers=1, view=view) != digest:
            yield f"another digest as {first}"
        yield from (f"{first}: {message}" for message in _found_wrong(out, view))
        yield from _taken_otherwise(out, first, "samples" if view == "interleaved" else "interleaved")
        yield from _further(out, first, second, digest, scratch)


def _taken_otherwise(folder: Path, fmt: str, view: str) -> Iterator[str]:
    """What is wrong with a dataset taken as the view that it was not written as."""
    try:
        with lading.open(folder, view=view) as dataset:
            count = sum(1 for _ in dataset.samples())
            if not count == len(dataset) == lading.digest(folder, view=view, workers=1).count:
                yield f"{fmt} taken as {view} is counted in two ways"
        yield from (f"{fmt} as {view}: {message}" for message in _found_wrong(folder, view))
    except LadingError:
        pass  # not of this view


def _further(folder: Path, fmt: str, other: str, digest: Any, scratch: Path) -> Iterator[str]:
    """What is lost by one more conversion, and by a salvage behind that."""
    further, saved = scratch / "further", scratch / "saved"
    try:
        lading.convert(folder, further, format=other, verify=True)
    except LadingError:
        return
    if lading.digest(further, workers=1) != digest:
        yield f"another digest through {fmt} as {other}"
    if digest.count:  # of nothing, salvage says that nothing is left
        lost = salvage(further, saved).lost_entries
        if lost or lading.digest(saved, workers=1) != digest:
            yield f"salvage of sound {other} loses something"


def _found_wrong(folder: Path, view: str) -> list[str]:
    found = lading.verify(folder, deep=True, workers=1, view=view).findings
    return [str(finding["message"]) for finding in found if finding["message"] != _NO_PICTURE]


def _rows(dataset: lading.Dataset, **how: Any) -> list[Any]:
    return [row for batch in dataset.batches(**how) for row in _dicts(batch)]


def _dicts(rows: Any) -> list[Any]:
    """Rows without nulls: a field that is null may as well be absent."""
    rows.validate(full=True)
    return [{name: value for name, value in row.items() if value is not None} for row in _plain(rows.to_pylist())]


def _plain(value: Any) -> Any:
    """Values that are equal where they are alike: not a number, arrays and pictures too."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, (float, Decimal)) and value != value:  # noqa: PLR0124 - so of NaN alone
        return "NaN"
    return (value.mode, value.size, value.tobytes()) if hasattr(value, "mode") else value
