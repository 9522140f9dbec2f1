"""Which parts of a damaged file are intact, compared with the bytes themselves."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.jobs.salvage.damage import FileExtents, file_extents
from lading._core.manifest.files import ShardTables, load_manifest
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores

ROWS = pa.table(
    {
        "__key__": [f"{n:04d}" for n in range(200)],
        "txt": [f"text {n} " * (n % 90) for n in range(200)],
        "bin": [np.random.default_rng(n).bytes(3000) if n % 5 else b"x" * 40 for n in range(200)],
    }
)


def written(out: Path, fmt: str) -> Path:
    columns = [name for name in ROWS.column_names if name != "bin" or fmt not in ("jsonl", "csv")]
    with lading.writer(out, format=fmt, shard_size="200kb", options={} if fmt != "arrow" else {"batch_rows": 20}) as w:
        w.write_batch(ROWS.select(columns))
    return out


def found_in(out: Path, number: int = 0) -> list[FileExtents]:
    kept = load_manifest(LocalStore(), str(out))
    assert kept is not None
    return list(file_extents(ShardTables(LocalStore(), str(out), kept[1]), number, Stores()))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["flip", "zero", "cut", "insert", "end", "gone", "two"])
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "jsonl", "csv", "arrow", "parquet", "media_archive"])
def test_what_is_intact_is_found_where_it_is(fmt: str, kind: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    whole = found_in(out)[-1]
    path = Path(whole.path)
    body = path.read_bytes()
    random = Random(f"{fmt} {kind}")
    for _ in range(12):
        at = random.randrange(len(body) - 1)
        size = random.choice([1, 100, 1024])
        damaged = {
            "flip": body[:at] + bytes(byte ^ 0x55 for byte in body[at : at + size]) + body[at + size :],
            "zero": body[:at] + bytes(len(body[at : at + size])) + body[at + size :],
            "cut": body[:at] + body[at + size :],
            "insert": body[:at] + b"?" * size + body[at:],
            "end": body[:at],
            "gone": b"",
            "two": body[: at // 2] + b"\xaa" + body[at // 2 + 1 : at] + body[at + size :],
        }[kind]
        path.write_bytes(damaged)
        [found] = [one for one in found_in(out) if one.path == str(path)]
        moved = len(damaged) - len(body)
        for number, (begin, length) in enumerate(
            zip(found.begin.tolist(), found.extents["size_bytes"].to_pylist(), strict=True)
        ):
            own = body[begin : begin + length]
            there = [to for to in (begin, begin + moved) if to >= 0 and damaged[to : to + length] == own]
            assert (found.found[number] in there) == bool(there), (at, size, number)
            assert there or found.found[number] == -1
    path.write_bytes(body)
    assert not len(found_in(out)[-1].lost)
    path.unlink()
    [gone] = [one for one in found_in(out) if one.path == str(path)]
    assert (gone.info, len(gone.lost)) == (None, len(gone.begin))
