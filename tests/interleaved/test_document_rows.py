"""Rows of samples as documents with media."""

import pyarrow as pa
import pytest

from lading._core.arrow.views import over
from lading._core.interleaved.document_rows import documents_of_rows

_POOL = pa.proxy_memory_pool(pa.system_memory_pool())
"""It must live as long as its memory."""


@pytest.mark.parametrize("size", [3, 100_000])
def test_media_are_the_values_of_bytes_columns_by_row(size: int) -> None:
    columns = {"jpg": [b"a" * size, None, b"b" * size], "png": [b"c" * size, b"d" * size, None]}
    rows = pa.record_batch([over(values) for values in columns.values()], names=list(columns))
    media = documents_of_rows(rows).column("media").to_pylist()
    assert [[(one["id"], one["media_bytes"]) for one in document] for document in media] == [
        [("jpg", b"a" * size), ("png", b"c" * size)],
        [("png", b"d" * size)],
        [("jpg", b"b" * size)],
    ]


def test_large_values_are_copied_once() -> None:
    values = [bytes([i]) * 1_000_000 for i in range(16)]
    rows = pa.record_batch([over(values), over([b"a caption"] * 16)], names=["jpg", "txt"])
    before = pa.default_memory_pool()
    pa.set_memory_pool(_POOL)
    try:
        documents = documents_of_rows(rows)
        assert documents.num_rows == 16
        assert _POOL.max_memory() < 1.2 * sum(map(len, values))
    finally:
        pa.set_memory_pool(before)
