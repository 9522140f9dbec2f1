"""Sparse files in a tar (GNU `S`, pax `GNU.sparse.*`): restore their bytes.

Python's tarfile reads the map of the holes. The file is assembled here, so that a damaged map can neither loop nor
allocate memory beyond the limits.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import bitmap
from lading._core.formats.webdataset.headers import BLOCK, Sparse
from lading.errors import CorruptShard
from lading.limits import Limits

__all__ = ["filled"]


def filled(
    read: Callable[[int, int], bytes | memoryview],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    valid: NDArray[np.bool_],
    sparse: Mapping[int, Sparse],
    limits: Limits,
) -> pa.Array:
    """Return values of which some are sparse files, as `large_binary`.

    Peak memory: the column, and the largest member as stored.

    Args:
        read: returns `(offset, length)` of the tar.
        offset: starts of payloads.
        length: stored bytes of payload.
        valid: False for nulls.
        sparse: by row, the sparse files, whose sizes the caller has checked against the limit.
        limits: limits on the maps of holes.

    Raises:
        CorruptShard: the map of holes breaks the rules, or exceeds the size of the file.
        LimitExceeded: the map of holes is longer than `tar_map_blocks`.
    """
    size = np.where(valid, length, 0)
    for row, place in sparse.items():
        size[row] = place.size_bytes
    ends = np.append(0, np.cumsum(size))
    values = memoryview(bytearray(int(ends[-1])))
    for row, (first, last) in enumerate(pairwise(ends.tolist())):
        if row in sparse:
            place = sparse[row]
            head = int(offset[row]) - place.start + limits.tar_map_blocks * BLOCK
            _fill(values[first:last], read(place.start, place.stop - place.start), head, place, limits)
        elif first < last:
            values[first:last] = read(int(offset[row]), last - first)
    buffers = [None if valid.all() else bitmap(valid), pa.py_buffer(ends), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.large_binary(), len(size), buffers)


def _fill(whole: memoryview, stored: bytes | memoryview, head: int, place: Sparse, limits: Limits) -> None:
    """Copy the data of a member, whose map of holes ends within `head` bytes, to their places among zeros."""
    file = io.BytesIO(stored[:head])
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            member = archive.next()
    except (tarfile.TarError, ValueError, IndexError, OverflowError) as error:
        if file.tell() == head < len(stored):
            message = "the map of a sparse member is too long"
            raise limits.exceeded("tar_map_blocks", message, offset=place.start) from error
        raise _bad_map(place, str(error)) from error
    parts: list[tuple[int, int]] | None = getattr(member, "sparse", None)
    if member is None or parts is None:
        raise _bad_map(place, "no map")
    # With records of both sizes, tarfile keeps the last: that of the file, or that of the stored bytes.
    if not any(key.startswith("GNU.sparse.") for key in member.pax_headers) and member.size != place.size_bytes:
        raise _bad_map(place, f"a file of {member.size} bytes, not {place.size_bytes}")
    data = memoryview(stored)
    at, end = member.offset_data, 0
    for offset, size in parts:
        if not size:
            continue  # the form of a hole at the end, and the padding of a short map
        if size < 0 or offset < end or offset + size > len(whole) or at + size > len(stored):
            raise _bad_map(place, f"a part of {size} bytes at {offset}")
        whole[offset : offset + size] = data[at : at + size]
        at, end = at + size, offset + size


def _bad_map(place: Sparse, found: str) -> CorruptShard:
    return CorruptShard("the map of a sparse member is broken", offset=place.start, found=found)
