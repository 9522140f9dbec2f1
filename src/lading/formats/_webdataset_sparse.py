"""Files with holes in a tar (GNU `S`, pax `GNU.sparse.*`) → their bytes.

Python's tarfile reads the map of the holes; the file is put together here, so that a damaged map can neither loop nor
set memory aside beyond the limit.
"""

from __future__ import annotations

import io
import tarfile

from lading.errors import CorruptShard
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["expand"]


def expand(stored: bytes, start: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The file that a member holds.

    Args:
        stored: the member from its first header to the end of its data.
        start: where it begins in the tar, for errors.
        limits: on its size: a few bytes of a tar can state any.

    Raises:
        CorruptShard: the map of holes breaks the rules.
        LimitExceeded: the file is larger than `tar_sparse_bytes`.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(stored), mode="r:") as archive:
            member = archive.next()
    except (tarfile.TarError, ValueError, IndexError, OverflowError) as error:
        raise _bad_map(start, str(error)) from error
    parts: list[tuple[int, int]] | None = getattr(member, "sparse", None)
    if member is None or parts is None:
        raise _bad_map(start, "no map")
    if member.size > limits.tar_sparse_bytes:
        raise limits.exceeded("tar_sparse_bytes", "a sparse member is too large", offset=start, found=member.size)
    whole = bytearray(max(member.size, 0))
    at, end = member.offset_data, 0
    for offset, size in parts:
        if not size:
            continue  # how a hole at the end is written, and what fills the places of a short map
        if size < 0 or offset < end or offset + size > member.size or at + size > len(stored):
            raise _bad_map(start, f"a part of {size} bytes at {offset}")
        whole[offset : offset + size] = stored[at : at + size]
        at, end = at + size, offset + size
    return bytes(whole)


def _bad_map(start: int, found: str) -> CorruptShard:
    return CorruptShard("the map of a sparse member is broken", offset=start, found=found)
