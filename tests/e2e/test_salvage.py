"""A kilobyte damaged anywhere in any format: samples that it does not touch are saved, byte for byte, and no others."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from damage import Extent, damaged, extents, some_rows
from golden_cases import Golden
from hostile import FAMILIES, Judge, source_of
from lading._core.jobs.engine import reading
from lading._core.jobs.salvage.salvage import salvage
from lading.errors import DataError, LadingError
from soak import SOAK
from tars import tar_of

PLACES = 200 if SOAK else 3
"""Places that are damaged in each way."""

OWN = ["webdataset", "mds", "jsonl", "csv", "media_archive", "arrow", "parquet"]
BY_PLACE = ["mds of others", "parquet file", "media_archive"]
"""Cases whose files tell where samples lie, and have no checksums that find them elsewhere."""
UNIT_ROWS = 10

OPTIONS: dict[str, dict[str, Any]] = {
    "media_archive": {"compression": None},
    "arrow": {"batch_rows": 10},
    "parquet": {"row_group_bytes": 20_000},
}


def own(fmt: str, out: Path) -> None:
    options = OPTIONS.get(fmt, {})
    with lading.writer(out, format=fmt, shard_size="120kb", options=options) as writer:
        writer.write_batch(some_rows(fmt))


def foreign(fmt: str, out: Path) -> None:
    own(fmt, out)
    shutil.rmtree(out / "_lading")


def documents(out: Path) -> None:
    out.mkdir()
    sizes = np.random.default_rng(1)
    for shard in range(2):
        members: list[tuple[str, bytes]] = []
        for number in range(30):
            key, count = f"doc{shard}.{number:03d}", int(sizes.integers(1, 4))
            names = [f"{key}.{2 * i + 1}.jpg" for i in range(count)]
            texts = [text for i in range(count) for text in (f"text {number} {i} " * 10, None)]
            story = {"texts": texts, "images": [image for name in names for image in (None, name)], "n": number}
            members.append((f"{key}.json", json.dumps(story).encode()))
            members += [(name, b"\xff\xd8" + sizes.bytes(int(sizes.integers(100, 3000)))) for name in names]
        (out / f"{shard}.tar").write_bytes(tar_of(*members))


def arrow(out: Path, *, stream: bool) -> None:
    out.mkdir()
    table = some_rows("arrow")
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(out / "a.arrow"), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=10):
            writer.write_batch(batch)


def parquet(out: Path) -> None:
    out.mkdir()
    pq.write_table(some_rows("parquet"), out / "a.parquet", row_group_size=10, compression="zstd")


CASES: dict[str, tuple[str, Any]] = {
    **{fmt: (fmt, lambda out, fmt=fmt: own(fmt, out)) for fmt in OWN},
    **{f"{fmt} of others": (fmt, lambda out, fmt=fmt: foreign(fmt, out)) for fmt in OWN[:4]},
    "documents": ("mint", documents),
    "arrow file": ("arrow", lambda out: arrow(out, stream=False)),
    "arrow stream": ("arrow", lambda out: arrow(out, stream=True)),
    "parquet file": ("parquet", parquet),
}


def contents(source: Path) -> list[str]:
    with lading.open(source) as dataset:
        return [repr(_plain(sample)) for sample in dataset.samples(raw=dataset.view == "samples")]


def _plain(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample without what says where it came from."""
    items = [{k: v for k, v in item.items() if k != "source_ref"} for item in sample.get("items", [])]
    return {**sample, "items": items} if items else sample


def untold(case: str, path: Path, at: int, own_extents: list[Extent]) -> bool:
    """Whether the damage hits what nothing else in the source says: a footer of Parquet, the schema of a stream."""
    last = max(extent.stop for extent in own_extents if extent.file == path)
    if case == "parquet file":
        return at + 1024 > last
    return case == "arrow stream" and at < min(extent.start for extent in own_extents)


def may_be_lost(case: str, kind: str, path: Path, at: int, own_extents: list[Extent]) -> set[int]:
    """The samples that a damage may cost: those that it touches, and those next to it where bytes moved."""
    found = {extent.sample for extent in own_extents if extent.touches(path, at)}
    if kind in ("flipped", "zeroed"):
        return found
    behind = {extent.sample for extent in own_extents if extent.file == path and extent.stop > at}
    first = min(behind, default=0)
    if case in BY_PLACE:  # what lies behind is not at its place, and a unit before it may be hit
        return found | behind | {*range(first - UNIT_ROWS, first)}
    return found | {max(found, default=first) + 1}  # a payload may have swallowed it


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", ["flipped", "cut", "zeroed", "inserted"])
@pytest.mark.parametrize("case", CASES)
def test_what_a_damage_does_not_touch_is_saved(case: str, kind: str, tmp_path: Path) -> None:
    fmt, make = CASES[case]
    source, out = tmp_path / "source", tmp_path / "out"
    make(source)
    before, places = contents(source), extents(source, fmt)
    assert {extent.sample for extent in places} == {*range(len(before))}
    files = sorted({extent.file for extent in places})
    chance = random.Random(f"{case} {kind}")
    for path in chance.choices(files, [file.stat().st_size for file in files], k=PLACES):
        body = path.read_bytes()
        at = chance.randrange(len(body))
        if untold(case, path, at, places):
            continue
        path.write_bytes(damaged(body, at, kind))
        try:
            result = salvage(source, out, overwrite=True)
        except DataError:
            assert may_be_lost(case, kind, path, at, places) == {*range(len(before))}, (path.name, at)
            path.write_bytes(body)
            continue
        after = contents(out)
        allowed = may_be_lost(case, kind, path, at, places)
        missing = [n for n, sample in enumerate(before) if n not in allowed and sample not in {*after}]
        assert missing == [], (path.name, at, result.lost)
        assert len({*after} - {*before}) <= len({e.sample for e in places if e.touches(path, at)}), (path.name, at)
        assert result.samples == len(after)
        assert lading.verify(out).ok
        if case in OWN:  # what others wrote has no checksum, so that a changed value shows in nothing
            assert {*after} <= {*before}
            assert bool(result.lost_entries) == (len(after) < len(before))
            assert result.lost_samples == len(before) - len(after)
        if result.lost_entries:
            told = [json.loads(line) for line in (out / "_lading" / "lost.jsonl").read_bytes().splitlines()]
            assert len(told) == result.lost_entries
            assert str(path) in {entry["file"] for entry in told} | {finding["file"] for finding in result.findings}
        path.write_bytes(body)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "source"]


@pytest.mark.soak
@pytest.mark.parametrize("case", OWN)
def test_a_damage_to_any_list_of_shards_loses_nothing(case: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    CASES[case][1](source)
    before = {*contents(source)}
    lists = [path for path in source.rglob("*") if path.parent.name == "_lading" or path.name == "index.json"]
    for path in lists:
        body = path.read_bytes()
        path.write_bytes(damaged(body, len(body) // 3, "flipped"))
        read_as = {"source_format": case} if case == "media_archive" else {}
        result = salvage(source, out, overwrite=True, **read_as)
        assert {*contents(out)} == before, (path.name, result.lost, result.findings)
        assert result.samples == len(before)
        path.write_bytes(body)


def outcome(source: Path, out: Path, **how: Any) -> tuple[object, dict[str, bytes]]:
    """What a salvage returns or raises, and the files that it writes."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        result: object = {**asdict(salvage(source, out, **how)), "seconds": 0}
    except LadingError as error:
        result = error.to_dict()
    return result, {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
def test_an_executor_saves_the_same_whatever_is_damaged(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards, indexes, manifests and media are damaged, cut or gone, up to three at once."""
    monkeypatch.setattr(reading, "_TASK_SHARDS", 1)
    source, out, chance = tmp_path / "source", tmp_path / "out", random.Random(case)
    CASES[case][1](source)
    whole = {path: path.read_bytes() for path in sorted(source.rglob("*")) if path.is_file()}
    with ThreadPoolExecutor(2) as executor:
        for _ in range(max(PLACES // 10, 10)):
            for path in sorted({*chance.choices([*whole], k=chance.choice([1, 1, 2, 3]))}):
                body, kind = whole[path], chance.choice(["flipped", "cut", "zeroed", "inserted", "short", "gone"])
                at = chance.randrange(len(body))
                path.write_bytes(body[:at] if kind == "short" else damaged(body, at, kind))
                if kind == "gone":
                    path.unlink()
            assert outcome(source, out, executor=executor) == outcome(source, out, workers=1)
            for path, body in whole.items():
                path.write_bytes(body)


READS = 3
"""How often a salvage reads a case: for its view, for what is left, and to write that."""


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[object]:
    """A salvage of one case, which ends in a result that can be read, or in an error of lading's."""
    try:
        salvage(source_of(spec["open"]), folder / "new")
        with lading.open(folder / "new") as dataset:
            for batch in dataset.batches(lazy=True):
                yield batch.num_rows
    except LadingError:
        pass
    finally:
        shutil.rmtree(folder / "new", ignore_errors=True)


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_data_end_in_a_result_or_an_error_of_ladings(golden: Golden, judge: Judge, family: str) -> None:
    wrong = [f"{case.name}: {problem}" for case in sorted(golden(family).iterdir()) for problem in judge(case)
             if not problem.startswith(("no error", "the error names none"))]  # fmt: skip
    assert not wrong, "\n".join(wrong)
