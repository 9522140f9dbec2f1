"""A dataset's own index, as JSON in a file."""

from __future__ import annotations

from typing import Any

import orjson

from lading.errors import DataError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.store.protocol import Store

__all__ = ["as_text", "load_index"]


def load_index(store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """What stands in the file.

    Raises:
        DataError: it is no JSON.
        LimitExceeded: it is larger than `index_bytes`.
    """
    size = store.head(path).size_bytes
    if size > limits.index_bytes:
        raise limits.exceeded("index_bytes", "the index is too large", file=path, found=size)
    [data] = store.get_ranges(path, [(0, size)])
    try:
        return orjson.loads(memoryview(data))
    except orjson.JSONDecodeError as error:
        raise DataError("the index is no JSON", file=path, offset=error.pos, found=error.msg) from error


def as_text(told: Any) -> str:
    """A part of an index as JSON, for readers to carry along.

    Raises:
        DataError: it is deeper than orjson writes, which is not as deep as it reads.
    """
    try:
        return orjson.dumps(told).decode()
    except orjson.JSONEncodeError as error:
        raise DataError("objects or lists that lie too deep in each other", found=str(error)) from None
