"""A dataset's own index, as JSON in a file."""

from __future__ import annotations

from typing import Any

import orjson

from lading.errors import DataError, LimitExceeded
from lading.store.protocol import Store

__all__ = ["load_index"]

_MAX_BYTES = 256 << 20


def load_index(store: Store, path: str) -> Any:
    """What stands in the file.

    Raises:
        DataError: it is no JSON.
        LimitExceeded: it is larger than 256 MiB.
    """
    size = store.head(path).size_bytes
    if size > _MAX_BYTES:
        raise LimitExceeded("the index is too large", file=path, expected=f"at most {_MAX_BYTES}", found=size)
    [data] = store.get_ranges(path, [(0, size)])
    try:
        return orjson.loads(memoryview(data))
    except orjson.JSONDecodeError as error:
        raise DataError("the index is no JSON", file=path, offset=error.pos, found=error.msg) from error
