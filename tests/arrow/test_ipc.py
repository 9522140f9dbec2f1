"""Heads of Arrow messages and footers, against what pyarrow wrote."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.ipc import unpacked_sizes
from lading.errors import CorruptShard

_NUMBERS = pa.record_batch({"n": np.zeros(8_000, np.int64)})
_WORDS = pa.record_batch({"w": pa.array(["a", "bb"] * 64).dictionary_encode()})


def _file(batch: pa.RecordBatch, *, times: int = 3, legacy: bool = False, compression: str | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_legacy_format=legacy)
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_sizes_are_those_of_the_values(compression: str | None) -> None:
    file = _file(_NUMBERS, compression=compression)
    assert (file.size < 10_000) == (compression is not None)
    assert unpacked_sizes(file) == [64_000] * 3


def test_heads_without_a_mark() -> None:
    assert unpacked_sizes(_file(_NUMBERS, legacy=True)) == [64_000] * 3


def test_dictionaries_count() -> None:
    words, *indices = unpacked_sizes(_file(_WORDS, compression="zstd"))
    assert words == 3 * 4 + 3  # offsets and letters
    assert indices == [128 * 4] * 3


def test_a_file_without_rows() -> None:
    assert unpacked_sizes(_file(_NUMBERS, times=0)) == []


def test_any_cut_and_any_flip_in_the_heads_is_a_size_or_an_error() -> None:
    """None that takes more memory than the file, and none but lading's own."""
    data = _file(_NUMBERS, compression="zstd").to_pybytes()
    for size in range(len(data)):
        with pytest.raises(CorruptShard):
            unpacked_sizes(pa.py_buffer(data[:size]))
    errors = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x80
        try:
            found = unpacked_sizes(pa.py_buffer(bytes(changed)))
        except CorruptShard:
            errors += 1
        else:
            assert len(found) <= len(data) // 8
            assert min(found, default=0) >= 0
    assert errors > 50
