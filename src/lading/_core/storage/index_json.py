"""Read and write a dataset's own index, as JSON in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from lading._core.arrow import json_text
from lading._core.storage.base import Store
from lading.errors import DataError, SeveralSplits, ShortRead
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["POINTER_BYTES", "as_text", "load_index", "refuse_pointer", "several_splits"]

POINTER_BYTES = range(120, 160)
"""Sizes of pointers of Git LFS."""

_POINTER = b"version https://git-lfs.github.com/spec/"
_ATTEMPTS = 5
"""Attempts to read a file that is being replaced."""


def load_index(store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the contents of the file; for a file that is replaced meanwhile, those of one version.

    Raises:
        DataError: it is not valid JSON.
        LimitExceeded: it is larger than `index_bytes`, or has more than `index_values`.
    """
    info = store.head(path)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _load(store, path, info.size_bytes, limits)
        except (DataError, ShortRead):
            # The bytes may mix two versions: of an object or a list that is not valid JSON.
            before, info = info, store.head(path)
            if info == before:
                raise
    return _load(store, path, info.size_bytes, limits)


def _load(store: Store, path: str, size: int, limits: Limits) -> Any:
    if size > limits.index_bytes:
        raise limits.exceeded("index_bytes", "the index is too large", file=path, found=size)
    [data] = store.get_ranges(path, [(0, size)])
    refuse_pointer(bytes(data) if size in POINTER_BYTES else b"", path)
    limits.check_values(data, file=path)
    try:
        return orjson.loads(memoryview(data))
    except orjson.JSONDecodeError as error:
        raise DataError("the index is not valid JSON", file=path, offset=error.pos, found=error.msg) from error


def refuse_pointer(head: bytes, path: str) -> None:
    """Raise DataError for a file that Git LFS leaves in the place of a file which it has not fetched.

    Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
    """
    if head.startswith(_POINTER):
        raise DataError("a pointer of Git LFS, not the file itself", file=path,
                        advice="Fetch the file: run 'git lfs pull' in its repository.")  # fmt: skip


def as_text(part: Any) -> str:
    """Return a part of an index as JSON that readers take.

    Raises:
        DataError: it is nested too deeply.
    """
    try:
        text = orjson.dumps(part)
    except orjson.JSONEncodeError as error:
        raise DataError("JSON is nested too deeply", found=str(error)) from None
    json_text.refuse_too_deep(text)
    return text.decode()


def several_splits(
    folder: str, splits: Sequence[str], file: str | None = None, *, by_name: bool = False
) -> SeveralSplits:
    """Return the error that a folder holds several datasets: in folders of these names, or in files `by_name`."""
    advice = f"Choose one of them: --split {splits[0]}."
    error = SeveralSplits("the dataset has several splits", file=file, expected="one of them", found=", ".join(splits),
                          advice=advice)  # fmt: skip
    error.splits, error.by_name = splits, by_name
    return error if not by_name else error.at(file=folder)
