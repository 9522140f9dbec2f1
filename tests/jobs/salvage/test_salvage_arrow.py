"""Salvage of Arrow files and streams with damaged heads.

Of a file all record batches are kept but these; of a stream those before the damage, but for the last one in doubt.

What is to be kept follows from which record batch a damage lies in, by the places at which they were written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.jobs.salvage.salvage import salvage
from lading.errors import DataError
from soak import SOAK

_MAKERS = [pa.ipc.new_stream, pa.ipc.new_file]
_ROWS = 10


def written(path: Path, batches: list[pa.RecordBatch], make: Any) -> list[int]:
    """Write a file or stream; give where each record batch begins, and where the last one ends."""
    path.write_bytes(b"")
    at = []
    with pa.OSFile(str(path), "wb") as sink, make(sink, batches[0].schema) as writer:
        for batch in batches:
            at.append(sink.tell())
            writer.write_batch(batch)
        at.append(sink.tell())
    body = path.read_bytes()
    at[0] = next(n for n in range(at[1]) if _is_head_of_rows(body, n))  # the writer writes the schema with the first
    return at


def _is_head_of_rows(body: bytes, at: int) -> bool:
    try:
        return body[at : at + 4] == b"\xff" * 4 and pa.ipc.read_message(body[at:]).type == "record batch"
    except pa.ArrowInvalid:
        return False


def harm(path: Path, at: int, values: bytes) -> None:
    body = bytearray(path.read_bytes())
    body[at : at + len(values)] = values
    path.write_bytes(body)


def kept(path: Path, column: str = "k") -> list[Any]:
    out = path.parent / "out"
    salvage(path, out, overwrite=True)
    with lading.open(out) as dataset:
        return [value for batch in dataset.batches(max_rows=1000) for value in batch[column].to_pylist()]


def check_kept(found: list[Any], hit: int, make: Any, rows: int = _ROWS, count: int = 6) -> None:
    """Check which rows are kept if a record batch is hit: of a file all others, of a stream those before."""
    if make is pa.ipc.new_file:
        assert found == [n for n in range(count * rows) if n // rows != hit]
    else:
        assert found in ([*range(hit * rows)], [*range((hit - 1) * rows)])


def numbers(number: int) -> pa.Array:
    return pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())


def stream_of(tag: int, schema: pa.Schema) -> bytes:
    """A stream of other rows of the same columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(2):
            writer.write_batch(pa.record_batch([pa.array([900_000 + tag]), pa.array([b"inner"])], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def plain(number: int) -> pa.RecordBatch:
    texts = [f"text {row}" for row in range(number * _ROWS, (number + 1) * _ROWS)]
    return pa.record_batch({"k": numbers(number), "t": pa.array(texts)})


def nested(number: int) -> pa.RecordBatch:
    lists = pa.array([[row] * (row % 3) for row in range(_ROWS)], pa.list_(pa.int32()))
    return pa.record_batch({"k": numbers(number), "l": lists, "s": pa.array([{"a": f"{n}"} for n in range(_ROWS)])})


def coded(number: int) -> pa.RecordBatch:
    return pa.record_batch({"k": numbers(number), "d": pa.array(["aa", "bb"] * (_ROWS // 2)).dictionary_encode()})


def streams(number: int) -> pa.RecordBatch:
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    values = [stream_of(100 * number + row, schema) for row in range(_ROWS)]
    return pa.record_batch([numbers(number), pa.array(values)], schema=schema)


@pytest.mark.parametrize("make", _MAKERS)
@pytest.mark.parametrize("at, values", [(0, b"\x55" * 8), (0, bytes(16)), (30, b"\x77" * 30)])
def test_streams_in_values_are_no_messages_of_the_file(at: int, values: bytes, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    starts = written(path, [streams(n) for n in range(6)], make)
    harm(path, starts[3] + at, values)
    check_kept(kept(path), 3, make)


@pytest.mark.parametrize("make", _MAKERS)
@pytest.mark.parametrize("byte", [4, 6])
def test_a_record_batch_that_says_more_rows_than_its_columns_have_is_lost_alone(
    byte: int, make: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.arrow"
    starts = written(path, [pa.record_batch({"k": [*range(n * 37, n * 37 + 37)]}) for n in range(6)], make)
    harm(path, path.read_bytes().index(struct.pack("<q", 37), starts[2]) + byte, b"\1")
    check_kept(kept(path), 2, make, rows=37)


@pytest.mark.soak
@pytest.mark.parametrize("make", _MAKERS)
@pytest.mark.parametrize("byte, bit", [(5, 3), (5, 5), (6, 0), (4, 5)])
def test_a_head_that_says_another_length_hides_no_record_batches(
    byte: int, bit: int, make: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.arrow"
    starts = written(path, [plain(n) for n in range(60)], make)
    at = starts[20] + byte
    harm(path, at, bytes([path.read_bytes()[at] ^ 1 << bit]))
    check_kept(kept(path), 20, make, count=60)


def test_a_damaged_record_batch_costs_no_dictionary_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    starts = written(path, [coded(n) for n in range(6)], pa.ipc.new_file)
    harm(path, starts[0], b"\x55" * 8)
    assert kept(path) == [*range(10, 60)]
    assert kept(path, "d") == ["aa", "bb"] * 25


def test_a_damaged_end_costs_the_last_record_batch_of_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    starts = written(path, [plain(n) for n in range(6)], pa.ipc.new_stream)
    body = path.read_bytes()
    for at in (starts[-1], len(body) - 1):
        path.write_bytes(body[:at] + b"\x17" + body[at + 1 :])
        assert kept(path) == [*range(50)]
    written(path, [streams(n) for n in range(6)], pa.ipc.new_file)
    body = path.read_bytes()
    path.write_bytes(body[:-90] + b"\xff" * 90)  # without a footer, the end mark is that of the rows
    assert kept(path) == [*range(60)]


@pytest.mark.soak
@pytest.mark.parametrize("make", _MAKERS)
@pytest.mark.parametrize("batch_of", [plain, nested, coded, streams])
def test_all_record_batches_are_kept_that_a_damage_does_not_touch(
    batch_of: Callable[[int], pa.RecordBatch], make: Any, tmp_path: Path
) -> None:
    path, random = tmp_path / "a.arrow", Random(f"{batch_of.__name__} {make.__name__}")
    starts = written(path, [batch_of(n) for n in range(6)], make)
    body = path.read_bytes()
    for _ in range(300 if SOAK else 6):
        start = starts[random.randrange(1 if make is pa.ipc.new_file else 3, 6)]  # before the first are dictionaries
        at = start + random.choice([random.randrange(320), random.randrange(starts[1] - starts[0])])
        values = random.choice([bytes(4), b"\xff", b"\xff" * 4, random.randbytes(1), random.randbytes(7)])
        values = values[: max(starts[-1] - at, 0)]
        path.write_bytes(body[:at] + values + body[at + len(values) :])
        hit = {n for n in range(6) if starts[n] < at + len(values) and at < starts[n + 1]}
        last = max(min(hit, default=7) - 1, 0) if make is pa.ipc.new_stream else 6
        found = kept(path)
        rest = {n for n in range(60) if n // 10 not in hit and n // 10 < last}
        assert rest <= {*found}, (at, values)
        assert len(found) <= 60, (at, values)
        assert not {*found} & {*range(900_000, 901_000)}, (at, values)


def test_rows_that_no_file_of_such_a_size_can_hold_are_not_laid_out(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    written(path, [pa.record_batch({"k": pa.nulls(77)})], pa.ipc.new_file)
    path.write_bytes(path.read_bytes().replace(struct.pack("<q", 77), struct.pack("<q", 1 << 39)))
    with pytest.raises(DataError, match=r"no sample could be saved.*more rows than the bytes of the file can hold"):
        salvage(path, tmp_path / "out")
