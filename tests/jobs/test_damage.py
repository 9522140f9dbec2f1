"""Which parts of a damaged file are intact, held against the bytes themselves."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading.jobs import damage
from lading.jobs.damage import FileExtents, file_extents
from lading.manifest.files import ShardTables, load_manifest
from lading.storage.base import write_file
from lading.storage.local import LocalStore
from lading.storage.memory import MemoryStore
from lading.storage.stores import Stores
from lading.storage.wrappers import CountingStore

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


def twice_damaged(body: bytes, random: Random, *, sizes: tuple[int, ...] = (1, 100, 1024)) -> tuple[bytes, int, int]:
    """With bytes cut out of it or put into it at two places; where these are, and what lies between them moved by."""
    one, two = len(body) // 5 + random.randrange(999), len(body) * 4 // 5 - random.randrange(999)
    damaged, moved = body, []
    for at in (two, one):
        size = random.choice(sizes)
        cut = random.random() < 0.5
        damaged = damaged[:at] + damaged[at + size :] if cut else damaged[:at] + random.randbytes(size) + damaged[at:]
        moved.append(-size if cut else size)
    return damaged, one + (-moved[1] if moved[1] < 0 else 0), moved[1]


@pytest.mark.parametrize("fmt", ["webdataset", "mds", "jsonl", "csv", "arrow", "media_archive"])
def test_what_lies_between_two_places_that_grew_or_shrank_is_found(fmt: str, tmp_path: Path) -> None:
    path = Path(found_in(written(tmp_path / "out", fmt))[-1].path)
    body = path.read_bytes()
    random = Random(fmt)
    for _ in range(12):
        damaged, begin, moved = twice_damaged(body, random)
        path.write_bytes(damaged)
        [found] = [one for one in found_in(tmp_path / "out") if one.path == str(path)]
        size = found.extents["size_bytes"].to_numpy()
        between = np.flatnonzero((found.begin >= begin) & (found.begin + size <= len(body) * 4 // 5 - 999))
        assert len(between) >= 2
        assert found.found[between].tolist() == (found.begin[between] + moved).tolist()


def test_of_many_damages_inside_large_extents_not_all_are_searched_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_MOST_SUMMED_IN_FILE", 1)
    store = CountingStore(MemoryStore())
    stores = Stores({"box://": store})
    values = [Random(n).randbytes(30_000) for n in range(40)]
    with lading.writer("box://out", format="webdataset", stores=stores) as writer:
        writer.write_batch(pa.table({"__key__": [f"{n:02d}" for n in range(40)], "jpg": values}))
    kept = load_manifest(store, "box://out")
    assert kept is not None
    path = "box://out/shard-000000.tar"
    [body] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    hurt = bytes(body)
    for number, value in enumerate(values):
        hurt = hurt if number % 4 == 0 else hurt.replace(value[5000:5064], bytes(64))
    write_file(store, path, [hurt])
    before = store.bytes_read
    [found] = file_extents(ShardTables(store, "box://out", kept[1]), 0, stores)
    assert len(found.lost) == 30
    # The file, the extents of it, and what lies around one of ten runs.
    assert store.bytes_read - before < len(hurt) + 200_000
