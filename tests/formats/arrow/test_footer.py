"""Files whose footer says something else than the messages before it: the footer rules, as in pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import feather

import lading
from arrow_files import arrow_bytes
from golden_cases import Golden
from lading._core.arrow.ipc import FileFooter, parse_footer
from lading.errors import CorruptShard, DataError

_TABLE = pa.table(
    {
        "n": range(60),
        "d": pa.array([*"abc"] * 20).dictionary_encode(),
        "s": pa.array([{"x": n, "y": str(n)} for n in range(60)]),
    }
)
_PLAIN = pa.table({"n": range(60), "t": [str(n) for n in range(60)], "b": [bytes([n]) * n for n in range(60)]})
_LEFT_OUT = "rows of record batches that the footer does not list, left out"


def _edited(data: bytes, edit: Callable[[FileFooter], None]) -> bytes:
    """A file whose footer was edited in place."""
    found = bytearray(data)
    length = int.from_bytes(found[-10:-6], "little")
    edit(parse_footer(memoryview(found)[-10 - length : -10]))  # type: ignore[arg-type]
    return bytes(found)


def _parts(data: bytes) -> tuple[int, int]:
    """Return where the first listed message begins, and the footer."""
    start = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    footer = parse_footer(data[start:-10])
    return int(min(np.concatenate([footer.dictionaries, footer.batches])["offset"])), start


def _with_head(data: bytes, head: bytes) -> bytes:
    """A file with other bytes than its schema between the magic and the first listed message."""
    first, _ = _parts(data)
    head += bytes(-len(head) % 8)
    moved = 8 + len(head) - first

    def move(footer: FileFooter) -> None:
        footer.dictionaries["offset"] += moved
        footer.batches["offset"] += moved

    return _edited(data[:8] + head + data[first:], move)


def _schema_head(data: bytes) -> bytes:
    return data[8 : _parts(data)[0]]


_HEADS: dict[str, Callable[[bytes], bytes]] = {
    "none, as of Arrow JS and C++ before 0.11": lambda data: b"",
    "without its prefix, as of Polars 2.1": lambda data: _schema_head(data).removeprefix(b"\xff" * 4)[4:],
    "zeros, as of Rust": lambda data: bytes(56) + _schema_head(data),
}


def _told(finding: Mapping[str, Any]) -> str:
    return f"{finding['message']}; expected {finding.get('expected')}, found {finding.get('found')}"


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _rows(path: Path, **how: Any) -> list[dict[str, Any]]:
    with lading.open(path, **how) as dataset:
        return [row for batch in dataset.batches() for row in batch.to_pylist()]


@pytest.mark.cases(3)
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", _HEADS)
@pytest.mark.parametrize("table", [_TABLE, _PLAIN], ids=["dictionaries", "plain"])
def test_files_with_and_without_a_schema_at_the_head(
    tmp_path: Path, table: pa.Table, name: str, legacy: bool, mmap: bool
) -> None:
    version = pa.ipc.MetadataVersion.V4 if legacy else pa.ipc.MetadataVersion.V5
    plain = arrow_bytes(table, use_legacy_format=legacy, metadata_version=version)
    data = _with_head(plain, _HEADS[name](plain))
    assert pa.ipc.open_file(data).read_all() == table
    path = _write(tmp_path / "a.arrow", data)
    assert _rows(path, mmap=mmap) == table.to_pylist()
    with lading.open(path, mmap=mmap) as dataset:
        assert len(dataset) == 60
        assert [dataset[i] for i in (59, 0, 31)] == table.take([59, 0, 31]).to_pylist()
        order = [50, 3, 3, 41]
        assert dataset.take(order).to_pylist() == table.take(order).to_pylist()
        assert dataset.select("n").head(70) == table.select(["n"]).to_pylist()
    assert lading.verify(path, deep=True).ok
    assert lading.info(path).samples == 60


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", _HEADS)
@pytest.mark.parametrize("legacy", [True, False])
def test_damaged_files_without_a_schema_at_the_head_are_saved(tmp_path: Path, name: str, legacy: bool) -> None:
    plain = arrow_bytes(_PLAIN, use_legacy_format=legacy)
    data = bytearray(_with_head(plain, _HEADS[name](plain)))
    batches = parse_footer(bytes(data[_parts(bytes(data))[1] : -10])).batches
    at = int(batches["offset"][3])
    data[at : at + 64] = bytes(64)
    path = _write(tmp_path / "a.arrow", bytes(data))
    with pytest.raises(CorruptShard):
        _rows(path)
    assert lading.salvage(path, tmp_path / "saved").samples == 50
    kept = [row for row in _PLAIN.to_pylist() if row["n"] // 10 != 3]
    assert _rows(tmp_path / "saved") == kept


def test_a_cut_file_of_polars_is_lost(tmp_path: Path) -> None:
    plain = arrow_bytes(_TABLE)
    data = _with_head(plain, _schema_head(plain)[8:])
    cut = int(parse_footer(data[_parts(data)[1] : -10]).batches["offset"][4]) + 50
    path = _write(tmp_path / "a.arrow", data[:cut])
    with pytest.raises(CorruptShard, match="does not end as an Arrow file does"):
        _rows(path)
    with pytest.raises(DataError, match=r"no sample could be saved.*nothing else tells the columns"):
        lading.salvage(path, tmp_path / "saved")  # without a footer, and a schema with a prefix


_POLARS: dict[str, tuple[Callable[[bytes], bytes], Sequence[int]]] = {
    "a batch": (lambda data: data[:2304] + bytes(64) + data[2368:], range(4, 8)),
    "the head": (lambda data: data[:8] + bytes(700) + data[708:], ()),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", _POLARS)
def test_damaged_files_of_polars_are_saved(golden: Golden, name: str, tmp_path: Path) -> None:
    """Their dictionaries stand behind the rows."""
    harm, lost = _POLARS[name]
    source = golden("arrow-files") / "polars" / "write.arrow"
    path = _write(tmp_path / "a.arrow", harm(source.read_bytes()))
    rows = [row for at, row in enumerate(_rows(source)) if at not in lost]
    assert lading.salvage(path, tmp_path / "saved").samples == len(rows)
    assert _rows(tmp_path / "saved") == rows


def test_feather_of_version_1(tmp_path: Path) -> None:
    with pytest.deprecated_call():
        feather.write_feather(pa.table({"n": [1]}), tmp_path / "a.feather", version=1)
    with pytest.raises(DataError, match=r"a.feather: a Feather file of version 1.*pyarrow.feather.read_table"):
        _rows(tmp_path / "a.feather")


def test_the_schema_of_the_footer_rules(tmp_path: Path) -> None:
    data = arrow_bytes(_TABLE)
    other = arrow_bytes(_TABLE.rename_columns(["m", "d", "s"]))
    path = _write(tmp_path / "a.arrow", _with_head(data, _schema_head(other)))
    assert pa.ipc.open_file(path).read_all() == _TABLE
    assert _rows(path) == _TABLE.to_pylist()
    for deep in (False, True):
        report = lading.verify(path, deep=deep)
        assert not report.ok
        [finding] = report.findings
        assert "schema before the record batches differs" in _told(finding)
        assert "expected n: int64" in _told(finding)
        assert "found m: int64" in _told(finding)


def test_bytes_before_the_batches_that_are_no_schema(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.arrow", _with_head(arrow_bytes(_TABLE), b"garbage " * 4))
    assert _rows(path) == pa.ipc.open_file(path).read_all().to_pylist()
    [finding] = lading.verify(path).findings
    assert "no schema" in _told(finding)


def _shorter(count: int) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        start = _parts(data)[1]
        listed = parse_footer(data[start:-10]).batches
        one = len(listed).to_bytes(4, "little") + listed[0].tobytes()
        return data[:start] + data[start:].replace(one, count.to_bytes(4, "little") + one[4:])

    return edit


def _listed(order: NDArray[np.int64]) -> Callable[[bytes], bytes]:
    def change(footer: FileFooter) -> None:
        footer.batches[:] = footer.batches.copy()[order]

    return lambda data: _edited(data, change)


_LISTS: dict[str, tuple[Callable[[bytes], bytes], str, int]] = {
    "none": (_shorter(0), "expected None, found 6 more, with 60 rows", 60),
    "the first two": (_shorter(2), "expected None, found 4 more, with 40 rows", 40),
    "another order": (_listed(np.array([5, 1, 2, 4, 3, 0])), "lists record batches in another order", 0),
    "one twice": (_listed(np.array([0, 1, 2, 2, 4, 5])), "found 1 more, with 10 rows", 10),
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", _LISTS)
@pytest.mark.parametrize("table", [_TABLE, _PLAIN], ids=["dictionaries", "plain"])
def test_the_footer_says_which_messages_there_are(tmp_path: Path, table: pa.Table, name: str, mmap: bool) -> None:
    edit, message, missing = _LISTS[name]
    path = _write(tmp_path / "a.arrow", edit(arrow_bytes(table)))
    peer = pa.ipc.open_file(path).read_all().to_pylist()
    assert _rows(path, mmap=mmap) == peer
    with lading.open(path, mmap=mmap) as dataset:
        assert [dataset[i] for i in range(len(dataset))] == peer
        assert dataset.take(range(len(peer))[::-1]).to_pylist() == peer[::-1]
    report = lading.verify(path)
    assert any(message in _told(finding) for finding in report.findings)
    result = lading.convert(path, tmp_path / "out", format="parquet")
    assert _rows(tmp_path / "out") == peer
    assert result.counts.get(_LEFT_OUT, 0) == missing


def test_dictionaries_by_the_footer(tmp_path: Path) -> None:
    parts = [pa.table({"d": pa.DictionaryArray.from_arrays([0, n], [*"abcd"[: n + 1]])}) for n in range(4)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(sink, parts[0].schema, options=options) as writer:
        for part in parts:
            writer.write_table(part)
    data = bytes(sink.getvalue().to_pybytes())
    path = _write(tmp_path / "a.arrow", data)
    assert _rows(path) == pa.ipc.open_file(path).read_all().to_pylist()

    def twice(footer: FileFooter) -> None:
        footer.dictionaries[1] = footer.dictionaries[0]

    _write(path, _edited(data, twice))
    with pytest.raises(pa.ArrowInvalid, match="replacement"):
        pa.ipc.open_file(path).read_all()
    for _ in range(2):
        with pytest.raises(CorruptShard, match="may extend a dictionary, but not replace it"):
            _rows(path)
