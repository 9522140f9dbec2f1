"""Which row a cell of a video belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.caches.videos import broken_videos, stored_videos
from lading._core.features.encode import VIDEO_FIELDS
from lading._core.features.types import Sequence, Video

_KIND = pa.struct([
    (name, {"bytes": pa.large_binary(), "size": pa.int64()}.get(name, pa.string())) for name in VIDEO_FIELDS
])  # fmt: skip


def under_a_null(*cells: dict[str, Any]) -> pa.Array:
    """Four cells: one in row 0, two under the null of row 1, one in row 2."""
    items = pa.array([{**dict.fromkeys(VIDEO_FIELDS), **cell} for cell in cells], _KIND)
    ends, present = np.array([0, 1, 3, 4], np.int32), b"\x05"
    lists = pa.ListArray.from_buffers(pa.list_(_KIND), 3, [pa.py_buffer(present), pa.py_buffer(ends)], children=[items])
    lists.validate(full=True)
    return lists


def test_cells_under_a_null_are_no_rows() -> None:
    whole, broken = {"mode": "bytes", "bytes": b"a", "size": 1}, {"mode": "bytes", "bytes": b"a", "size": 99}
    batch = pa.record_batch([under_a_null(whole, broken, whole, broken)], ["v"])
    assert [error.row for error in broken_videos(batch, "f", 10)] == [12]


def test_files_under_a_null_are_named_by_no_row() -> None:
    column = under_a_null(*({"mode": "path", "path": name} for name in "abcd"))
    found = stored_videos(column, Sequence(Video("path")), np.array([5, 6, 7]))
    assert [(row, film.name) for row, film in found] == [(5, "a"), (7, "d")]
