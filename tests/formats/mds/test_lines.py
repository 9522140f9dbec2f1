"""MDS's split formats, where a line is a sample: they are read, not written. Files of the peer: `tests/interop`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.api.dataset import Dataset
from lading.errors import CorruptShard, DataError, SidecarMismatch, UsageError
from mds_lines import write_lines

_KINDS: list[dict[str, Any]] = [
    {"kind": "json"}, {"kind": "csv"}, {"kind": "tsv", "newline": "\r\n"}, {"kind": "xsv", "separator": "||"},
]  # fmt: skip


def _samples(count: int) -> list[dict[str, Any]]:
    return [{"f": n / 7, "n": n, "text": "x" * 10} for n in range(count)]


def _rows(place: Path) -> list[dict[str, Any]]:
    with lading.open(place) as dataset:
        return list(dataset)


def _change_lines(path: Path, lines: list[bytes]) -> None:
    """Give a shard other lines, as many as it has; `.meta` and index say where they lie."""
    meta, index = path.with_name(path.name + ".meta"), path.with_name("index.json")
    old, told = meta.read_bytes(), json.loads(index.read_text())
    assert len(lines) == path.read_bytes().count(b"\n")
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    ends = np.cumsum([0, *(len(line) + 1 for line in lines)])
    count = int.from_bytes(old[:4], "little")
    meta.write_bytes(old[:4] + ends[-1 - count :].astype("<u4").tobytes() + old[4 * (count + 2) :])
    told["shards"][0]["raw_data"]["bytes"] = path.stat().st_size
    index.write_text(json.dumps(told))


@pytest.mark.parametrize("options", [*_KINDS, {"kind": "mds"}, {"kind": "parquet"}])
def test_writing_them_is_refused_with_what_to_write_instead(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="jsonl"):
        lading.writer(tmp_path / "new", format="mds", options=options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_to_the_format_of_their_source_they_become_mds(kind: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in", _samples(10), kind)
    assert lading.salvage(tmp_path / "in", tmp_path / "out").samples == 10
    assert [path.name for path in (tmp_path / "out").glob("shard*")] == ["shard.00000.mds"]
    assert lading.diff(tmp_path / "in", tmp_path / "out").equal


@pytest.mark.cases(3)
@pytest.mark.parametrize("written, given, column", [
    (b'"abcdef"', b'"\\udc69"', "text"),
    (b"1234567890123456789", b"9" * 19, "n"),
    (b"0.24680135791357924", b"9" * 19, "f"),
])  # fmt: skip
@pytest.mark.parametrize("read", [lambda ds: list(ds.batches()), lambda ds: ds[1], lambda ds: ds.take([0, 1])])
def test_what_no_column_holds_names_file_row_and_column(
    written: bytes, given: bytes, column: str, read: Callable[[Dataset], object], tmp_path: Path
) -> None:
    """The peer gives Python's own: half of a character out of an escape, an integer of any size."""
    row = {"text": "abcdef", "n": 1234567890123456789, "f": 0.24680135791357924}
    write_lines(tmp_path / "out", [row] * 3, "json")
    path = tmp_path / "out" / "shard.00000.json"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    assert written in second
    _change_lines(path, [line.rstrip(b"\n") for line in (first, second.replace(written, given), third)])
    with lading.open(tmp_path / "out") as dataset, pytest.raises(DataError, match="cannot hold") as told:
        read(dataset)
    assert (told.value.file, told.value.row, told.value.column) == (str(path), 1, column)


@pytest.mark.parametrize("given, found", [
    (b'{"n": 1, "m": 2}', "m"),
    (b'{"n": 1, "n": 2}', "n"),
    (b'{"n": 1 , "n"\t: 2}', "n"),
])  # fmt: skip
@pytest.mark.parametrize("read", [lambda ds: list(ds.batches()), lambda ds: ds[1], lambda ds: ds.take([0, 1])])
def test_a_name_that_no_column_takes_is_an_error(
    given: bytes, found: str, read: Callable[[Dataset], object], tmp_path: Path
) -> None:
    """The peer gives what `json.loads` does: further names too, and the last of two values."""
    write_lines(tmp_path / "out", [{"n": 1}] * 3, "json")
    path = tmp_path / "out" / "shard.00000.json"
    _change_lines(path, [b'{"n": 1}', given, b'{"n": 1}'])
    with lading.open(tmp_path / "out") as dataset, pytest.raises(DataError, match=f"found '{found}'") as told:
        read(dataset)
    assert (told.value.file, told.value.row, told.value.found) == (str(path), 1, repr(found))
    assert not lading.verify(tmp_path / "out", deep=True).ok


def _with_cell(out: Path, cell: str, encoding: str) -> Path:
    """A shard of CSV with a cell between two others."""
    number = "1.5" if encoding == "float" else "7"
    write_lines(out, [{"n": json.loads(number)}] * 3, "csv")
    _change_lines(out / "shard.00000.csv", [b"n", number.encode(), cell.encode(), number.encode()])
    return out


_INTEGERS = ["+5", " 5", "5\t", "05", "-0", "1_0", "\u0663", "0x10", "0XfF", "5.0", "", "nan"]
_FLOATS = ["+.5", " 5", "1_0.5", "1E5", "5.", "-Infinity", "1e400", "nan(1)", "0x1p3", ""]


@pytest.mark.parametrize(
    "encoding, read, near, cell",
    [*(("int", int, 7, cell) for cell in _INTEGERS), *(("float", float, 1.5, cell) for cell in _FLOATS)],
)
def test_a_number_of_csv_is_what_python_takes_for_one(
    encoding: str, read: Callable[[str], float], near: float, cell: str, tmp_path: Path
) -> None:
    """The peer gives `int(cell)`, and `float(cell)`."""
    with lading.open(_with_cell(tmp_path / "out", cell, encoding)) as dataset:
        try:
            expected = read(cell)
        except ValueError:
            with pytest.raises(CorruptShard, match="not a number") as caught:
                list(dataset.batches())
            assert (caught.value.row, caught.value.column) == (1, "n")
        else:
            assert list(dataset) == [{"n": near}, {"n": expected}, {"n": near}]


def test_an_integer_of_csv_that_is_too_large_is_named(tmp_path: Path) -> None:
    with (
        lading.open(_with_cell(tmp_path / "out", "9" * 19, "int")) as dataset,
        pytest.raises(DataError, match="too large") as caught,
    ):
        list(dataset.batches())
    assert (caught.value.row, caught.value.column) == (1, "n")


@pytest.mark.parametrize("options", _KINDS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_every_sample_is_read(options: dict[str, Any], compression: str | None, tmp_path: Path) -> None:
    place, rows = tmp_path / "new", _samples(300)
    shards = write_lines(place, rows, **options, compression=compression, hashes=["md5"], size_limit=2000)
    assert len(shards) > 3
    assert _rows(place) == rows
    assert lading.verify(place).ok
    with lading.open(place, options={"verify": True}) as dataset:
        assert dataset[299] == dataset.shards[len(shards) - 1].get_item(shards[-1]["samples"] - 1)


def test_a_copy_knows_both_files_of_a_shard(tmp_path: Path) -> None:
    write_lines(tmp_path / "new", _samples(10), "tsv", compression="br")
    [shard] = lading.compat.mosaicml.LocalCopy(tmp_path / "new").shards
    assert list(shard) == _rows(tmp_path / "new")
    assert shard.evict() == shard.get_zip_size()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"index.json"}


def test_a_shard_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "new", _samples(20), "csv", hashes=["md5"], size_limit=300)
    meta = tmp_path / "new" / "shard.00001.csv.meta"
    good = meta.read_bytes()
    for bad in (good[:-1], good.replace(b'"int"', b'"str"'), good[:4] + b"\1" + good[5:], good[:6] + b"\7" + good[7:]):
        meta.write_bytes(bad)
        result = lading.verify(tmp_path / "new")
        named = {Path(finding["file"]).name for finding in result.findings}
        assert named
        assert named <= {meta.name, "shard.00001.csv"}
    meta.write_bytes(good.replace(b": ", b":\n", 1))
    with (
        pytest.raises(SidecarMismatch, match="md5"),
        lading.open(tmp_path / "new", options={"verify": True}) as dataset,
    ):
        dataset[12]
    meta.unlink()
    with pytest.raises(lading.LadingError, match=r"csv\.meta"), lading.open(tmp_path / "new") as dataset:
        dataset[12]


@pytest.mark.parametrize("broken", ["raw_meta", "newline"])
def test_an_entry_that_lacks_what_lines_need(broken: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "new", _samples(1), "json")
    path = tmp_path / "new" / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0][broken] = None
    path.write_text(json.dumps(index))
    with pytest.raises(DataError), lading.open(path) as dataset:
        dataset[0]
