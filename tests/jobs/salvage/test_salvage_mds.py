"""Salvage of MDS shards whose heads are damaged, or from which bytes are missing."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest

import lading
from lading._core.formats.base import ShardFile
from lading._core.formats.mds.format import FORMAT
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.memory import MemoryStore
from lading.errors import DataError
from mds_lines import write_lines

NUMBERED = pa.table({"n": [*range(50)], "t": [f"text {n} " * (n % 9) for n in range(50)]})


def samples(source: Path) -> list[dict[str, Any]]:
    with lading.open(source) as dataset:
        return list(dataset)


def written(source: Path, table: pa.Table) -> Path:
    """A dataset with an index and no manifest; gives its only shard."""
    with lading.writer(source, format="mds", checksums="none") as writer:
        writer.write_batch(table)
    shutil.rmtree(source / "_lading")
    [path] = source.glob("*.mds")
    return path


@pytest.mark.parametrize("old, new", [
    (b'"str"', b'"stp"'),
    (b'"int"', b'"inu"'),
    (b'"mds"', b'"mdr"'),
    (b'"column_sizes": [8', b'"column_sizes": [9'),
    (b'"column_encodings"', b'"column_encodingz"'),
])  # fmt: skip
def test_a_byte_of_the_columns_in_the_head_of_an_mds_shard_costs_no_sample(
    old: bytes, new: bytes, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    path = written(source, NUMBERED)
    body = path.read_bytes()
    assert body.count(old) == 1
    path.write_bytes(body.replace(old, new))
    result = salvage(source, out)
    assert samples(out) == NUMBERED.to_pylist()
    assert [(entry["file"], entry["offset"]) for entry in result.lost] == [(str(path), 0)]


@pytest.mark.soak
def test_to_look_for_the_samples_of_an_mds_shard_takes_less_memory_than_the_shard(tmp_path: Path) -> None:
    count = 70_000
    path = written(tmp_path, pa.table({f"{n}": [""] * (count - 1) + ["xyz"] for n in range(20)}))
    data = path.read_bytes()[:-2]
    source = ShardFile(MemoryStore({"s.mds": data}), "s.mds")
    tracemalloc.start()
    try:
        remains = FORMAT.recover(source, FORMAT.read_options({}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert remains is not None
    assert remains.lost_rows.tolist() == [count - 1]
    assert peak < len(data)


@pytest.mark.parametrize("damage, at", [(-7, 298), (-8, 297), (7, 298)])
def test_empty_values_do_not_say_that_an_mds_sample_is_at_its_place(damage: int, at: int, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    rows = [{"id": 1000 + n, "s": "x" * (n % 5)} for n in range(10)]
    path = written(source, pa.Table.from_pylist(rows))
    body = path.read_bytes()
    path.write_bytes(body[:at] + bytes(max(damage, 0)) + body[at + max(-damage, 0) :])
    salvage(source, out)
    kept = samples(out)
    assert len(kept) >= 3
    assert [row for row in kept if row not in rows] == []


def test_texts_that_are_json_are_not_read_again_and_again_for_the_head_of_an_mds_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [json.dumps({"caption": "x" * 5000, "n": n}) for n in range(40)]
    body = written(tmp_path / "source", pa.table({"t": texts})).read_bytes()
    (tmp_path / "alone.mds").write_bytes(body.replace(b"column_names", b"Xolumn_names"))
    read, loads = [], orjson.loads
    monkeypatch.setattr(orjson, "loads", lambda text: read.append(len(text)) or loads(text))
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(tmp_path / "alone.mds", tmp_path / "out")
    assert sum(read) < 2 * len(body)


@pytest.mark.parametrize("size", [0, 200, None, 50_000])
def test_zeros_in_place_of_an_mds_shard_are_no_samples(size: int | None, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with lading.writer(source, format="mds", checksums="none", shard_size=800) as writer:
        writer.write_batch(NUMBERED)
    shutil.rmtree(source / "_lading")
    first = min(source.glob("*.mds"))
    lost = len(lading.open(first))
    first.write_bytes(bytes(first.stat().st_size if size is None else size))
    assert salvage(source, tmp_path / "out").lost_samples == lost
    assert samples(tmp_path / "out") == NUMBERED.to_pylist()[lost:]


def test_a_damaged_place_of_an_mds_shard_takes_no_memory(tmp_path: Path) -> None:
    """The index has the columns; every place in the file is text."""
    entry = json.loads((written(tmp_path, NUMBERED).parent / "index.json").read_text())["shards"][0]
    source = ShardFile(MemoryStore({"s.mds": b"text" * 60}), "s.mds", entry=json.dumps(entry))
    tracemalloc.start()
    try:
        recovered = FORMAT.recover(source, FORMAT.read_options({}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recovered is not None
    assert recovered.lost_rows.tolist() == [*range(50)]
    assert peak < 1 << 20


@pytest.mark.parametrize("kind, kept", [("mds", False), ("mds", True), ("csv", False)])
@pytest.mark.parametrize("harm", ["zeros", "gone", "changed"])
@pytest.mark.parametrize("form", ["raw", "zip"])
def test_of_a_shard_in_two_forms_the_sound_one_is_taken(
    form: str, harm: str, kind: str, kept: bool, tmp_path: Path
) -> None:
    """As the peer leaves them with `keep_zip`: the compressed files, and beside them what they unpack to."""
    source, rows = tmp_path / "in", [{"n": n, "t": f"text {n} of many"} for n in range(100)]
    if kind == "csv":
        write_lines(source, rows, kind, compression="gz", size_limit=1000)
    else:
        with lading.writer(source, format="mds", options={"compression": "gz", "size_limit": 1000}) as writer:
            writer.write_batch(pa.Table.from_pylist(rows))
        if not kept:
            shutil.rmtree(source / "_lading")
    for path in source.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    assert lading.verify(source, deep=True).findings == []
    path = source / (f"shard.00000.{kind}" + (".gz" if form == "zip" else ""))
    body = path.read_bytes()
    if harm == "changed":
        other = gzip.decompress(body) if form == "zip" else body
        other = other.replace(b"text 7", b"test 7")
        path.write_bytes(gzip.compress(other, mtime=0) if form == "zip" else other)
    elif harm == "zeros":
        path.write_bytes(bytes(len(body)))
    else:
        path.unlink()
    found = {str(one["file"]) for one in lading.verify(source, deep=True).findings}
    # Without one of the forms a dataset is whole, but for who goes by a manifest, which lists the compressed one.
    assert bool(found) == (harm != "gone" or (kept and form == "zip"))
    assert found <= {str(path), f"{source}/shard.00000.{kind}", f"{source}/shard.00000.{kind}.gz"}
    result = salvage(source, tmp_path / "out")
    assert (result.samples, result.lost_samples, result.lost) == (100, 0, [])
    # Which of two forms was changed only a checksum tells; without one it is the unpacked one that the peer reads, too.
    if harm == "changed" and form == "raw" and not kept:
        rows[7]["t"] = "test 7 of many"
    assert samples(tmp_path / "out") == rows


@pytest.mark.soak
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("harm, left", [("more", 100), ("cut", 99), ("half", None)])
def test_a_shard_in_brotli_is_unpacked_up_to_its_damage(
    harm: str, left: int | None, kept: bool, tmp_path: Path
) -> None:
    source, chance = tmp_path / "in", Random(0)
    rows = [{"n": n, "t": chance.randbytes(chance.randrange(10, 900)).hex()} for n in range(100)]
    with lading.writer(source, format="mds", options={"compression": "br"}) as writer:
        writer.write_batch(pa.Table.from_pylist(rows))
    if not kept:
        shutil.rmtree(source / "_lading")
    [path] = source.glob("*.br")
    body = path.read_bytes()
    path.write_bytes({"more": body + b"more", "cut": body[:-5], "half": body[: len(body) // 2]}[harm])
    result = salvage(source, tmp_path / "out")
    count = result.samples if left is None else left
    assert 30 < count <= 100
    assert (result.samples, result.lost_samples) == (count, 100 - count)
    assert samples(tmp_path / "out") == rows[:count]
    assert [path.suffix for path in (tmp_path / "out").glob("shard*")] == [".br"]
    assert lading.verify(tmp_path / "out", deep=True).ok
