"""Which column of a record batch has most bytes behind offsets of 32 bits, whatever stands before it."""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lading._core.formats import layout_findings
from lading._core.formats.arrow.blocks import ArrowFile, find_blocks
from lading._core.formats.arrow.check import find_layout_findings, longest_column
from lading._core.formats.base import ShardFile
from lading._core.storage.local import LocalStore

_MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

COLUMNS = [
    pa.nulls(2),
    pa.array([True, None]),
    pa.array([1, 2]),
    pa.array(["a", "bb"]),
    pa.array(["a" * 999, "b"], pa.large_string()),
    pa.array([b"ab", b"cd"], pa.binary(2)),
    pa.array([["x"], ["y", "zzz"]]),
    pa.array([[b"x"], [b"y"]], pa.large_list(pa.binary())),
    pa.array([["x", "y"], ["z", "w"]], pa.list_(pa.string(), 2)),
    pa.array([{"bytes": b"123", "path": "p"}] * 2, _MEDIA),
    pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string())),
    pa.array(["u", "v"]).dictionary_encode(),
    pa.array([Decimal("1.5")] * 2),
    pa.array([datetime(2020, 1, 1)] * 2),  # noqa: DTZ001 - a column without a zone
    pa.array([time(1)] * 2),
]


def longest(batch: pa.RecordBatch, path: Path, compression: str | None = None) -> tuple[str, int]:
    with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    blocks = find_blocks(ArrowFile(ShardFile(LocalStore(), str(path)), mmap=True), unended=False)
    blocks.find_all()
    return longest_column(blocks, 0, batch.schema)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_the_longest_column_is_found_behind_any_other(column: pa.Array, tmp_path: Path) -> None:
    batch = pa.record_batch({"before": column, "text": ["q" * 50, "r" * 51], "after": column})
    assert longest(batch, tmp_path / "a.arrow") == ("text", 101)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_packed_values_count_as_they_unpack(compression: str, tmp_path: Path) -> None:
    batch = pa.record_batch({"dense": [bytes(range(256)).hex()], "text": ["q" * 100_000], "n": [1]})
    assert longest(batch, tmp_path / "a.arrow", compression) == ("text", 100_000)


def test_a_large_batch_is_found_though_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_findings, "LARGE_UNIT_BYTES", 5 << 20)
    batch = pa.record_batch({"text": ["q" * (300 << 10)] * 20})
    for compression in (None, "zstd"):
        path = tmp_path / f"{compression}.arrow"
        with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_batch(batch)
        blocks = find_blocks(ArrowFile(ShardFile(LocalStore(), str(path)), mmap=True), unended=False)
        [finding] = find_layout_findings(blocks, batch.schema)
        assert finding.problem == "large record batch"
        assert finding.weight - 20 * (300 << 10) in range(1000)


def test_bytes_of_media_count_for_their_column(tmp_path: Path) -> None:
    media = pa.array([{"bytes": b"x" * 500, "path": "p"}], _MEDIA)
    assert longest(pa.record_batch({"text": ["q"], "image": media}), tmp_path / "a.arrow") == ("image", 500)


def test_what_stands_behind_a_column_of_views_is_not_known(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": ["ab"], "views": pa.array(["x" * 99], pa.string_view()), "text": ["q" * 50]})
    assert longest(batch, tmp_path / "a.arrow") == ("n", 2)
