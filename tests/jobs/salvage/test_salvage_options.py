"""What salvage writes in the format of its source is written as the source was, unless options say otherwise."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards.shards import options_like
from lading._core.jobs.salvage.salvage import salvage
from lading._core.pipeline.cutting import Cut

_RANDOM = random.Random(0)
ROWS = pa.table({"n": range(200), "txt": [_RANDOM.randbytes(60).hex() for _ in range(200)]})
NULLS = ROWS.append_column("m", pa.array([None if i % 3 else f"é{i}" for i in range(200)]))
NAMED = ROWS.append_column("__key__", pa.array([f"v1.{i}" for i in range(200)]))
TIMES = ROWS.append_column("at", pa.array(range(200), pa.timestamp("us"))).append_column("b", pa.array([b"\xff"] * 200))
BYTES = ROWS.append_column("b", pa.array([b"%d\xff" % i for i in range(200)]))

CASES = [
    pytest.param("mds", NULLS, {"nulls": "mask"}, ".mds", id="marks of nulls"),
    pytest.param("mds", NULLS, {"nulls": ["m"], "compression": "zstd"}, ".mds.zstd", id="packed marks of nulls"),
    pytest.param("webdataset", NAMED, {"escape": "percent"}, ".tar", id="escaped keys"),
    pytest.param("jsonl", BYTES, {"bytes": "base64", "compression": "gzip"}, ".jsonl.gz", id="bytes in base64"),
    pytest.param("media_archive", TIMES, {"documents": "parquet"}, ".parquet", id="documents in Parquet"),
    pytest.param("media_archive", BYTES, {"compression": "zstd"}, ".jsonl.zst", id="packed documents"),
    pytest.param("media_archive", BYTES, {"compression": None}, ".jsonl", id="plain documents"),
    pytest.param("csv", ROWS, {"delimiter": ";"}, ".csv", id="semicolons"),
    pytest.param("csv", ROWS, {"delimiter": "tab", "compression": "xz"}, ".tsv.xz", id="tabs"),
]


def written(out: Path, fmt: str, rows: pa.Table, options: dict[str, Any]) -> Path:
    """Rows in three shards: compressed text is not split into small ones."""
    with lading.writer(out, format=fmt, options=options) as writer:
        for first in (0, 50, 100):
            writer.write_batch(rows.slice(first, 50 if first < 100 else None))
            writer.end_part(Cut(1 << 20))
    return out


@pytest.mark.soak
@pytest.mark.parametrize("fmt, rows, options, ending", CASES)
def test_what_is_sound_is_written_as_it_was(
    fmt: str, rows: pa.Table, options: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", fmt, rows, options)
    result = salvage(source, tmp_path / "saved")
    assert (result.ok, result.samples, result.findings) == (True, 200, [])
    assert lading.verify(tmp_path / "saved", deep=True).ok
    assert lading.digest(tmp_path / "saved").ordered == lading.digest(source).ordered
    with lading.open(tmp_path / "saved") as saved:
        assert all(shard.path.endswith(ending) for shard in saved.shards)
    with open_shards(tmp_path / "saved") as one, open_shards(source) as other:
        assert options_like(one) == options_like(other)


@pytest.mark.parametrize("fmt, rows, options, ending", CASES)
def test_so_is_what_is_left_where_the_first_shards_are_damaged(
    fmt: str, rows: pa.Table, options: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", fmt, rows, options)
    first, second, *_ = sorted(path for path in source.iterdir() if path.name.endswith(ending))
    first.unlink()
    second.write_bytes(second.read_bytes()[:700])
    result = salvage(source, tmp_path / "saved")
    assert not result.ok
    assert result.samples
    with lading.open(tmp_path / "saved") as saved:
        assert all(shard.path.endswith(ending) for shard in saved.shards)
        assert {sample["n"] for sample in saved} >= set(range(150, 200))


def test_options_that_are_given_hold(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "jsonl", ROWS, {"compression": "gzip"})
    salvage(source, tmp_path / "saved", options={"compression": None})
    with lading.open(tmp_path / "saved") as saved:
        assert all(shard.path.endswith(".jsonl") for shard in saved.shards)


def test_a_shard_by_itself_says_which_columns_have_marks(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "mds", NULLS, {"nulls": ["m"]})
    result = salvage(source / "shard.00000.mds", tmp_path / "saved")
    assert result.ok
    with lading.open(tmp_path / "saved") as saved:
        assert saved[0]["m"] == "é0"
        assert saved[1].get("m") is None


def _write(samples: list[dict[str, Any]], out: Path) -> None:
    with lading.writer(out) as writer:
        for sample in samples:
            writer.write(sample)


@pytest.mark.parametrize("name", ["out.tar", "out.tar.gz", "out.parquet", "out.arrow"])
def test_a_name_of_a_file_makes_that_file(name: str, tmp_path: Path) -> None:
    """The file is the one that `convert` makes of the sound samples; a list of the losses lies next to it."""
    samples = [{"__key__": f"{i}", "txt": f"text {i}", "bin": bytes([i]) * 900} for i in range(9)]
    _write(samples, tmp_path / "in.tar.gz")
    result = salvage(tmp_path / "in.tar.gz", tmp_path / name)
    assert (result.ok, result.lost_list) == (True, None)
    lading.convert(tmp_path / "in.tar.gz", tmp_path / "converted" / name)
    assert (tmp_path / name).read_bytes() == (tmp_path / "converted" / name).read_bytes()

    _write(samples, tmp_path / "cut.tar")
    with (tmp_path / "cut.tar").open("r+b") as file:
        file.truncate(7000)
    result = salvage(tmp_path / "cut.tar", tmp_path / name, overwrite=True)
    kept = list(lading.open(tmp_path / name))
    assert [sample["__key__"] for sample in kept] == [str(i) for i in range(result.samples)]
    assert 0 < result.samples < len(samples)
    listed = tmp_path / f"{name}.lost.jsonl"
    assert (result.lost_list, len(listed.read_text().splitlines())) == (str(listed), result.lost_entries)
    salvage(tmp_path / "in.tar.gz", tmp_path / name, overwrite=True)
    assert not listed.exists()


def test_a_file_has_no_shards(tmp_path: Path) -> None:
    _write([{"__key__": "a", "n": 1, "txt": "one"}], tmp_path / "in.parquet")
    with pytest.raises(lading.errors.UsageError, match=r"one file holds all rows.*by the slash at its end"):
        salvage(tmp_path / "in.parquet", tmp_path / "out.tar", shard_size="1MB")
    with pytest.raises(lading.errors.UsageError, match="mds is several files"):
        salvage(tmp_path / "in.parquet", tmp_path / "out.mds")
    result = salvage(tmp_path / "in.parquet", tmp_path / "out.tar")
    assert [finding["message"] for finding in result.findings] == [
        "columns whose exact types one file of webdataset does not keep: n"
    ]
