"""Facts of media, from the first bytes of each value: format, width and height of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.references import FileEntry, is_ref
from lading.arrow.views import present, slices
from lading.content.image import image_info, is_image, usual_sizes
from lading.jobs.summaries import Summaries, Summary
from lading.storage.fetch import Fetcher

__all__ = ["MediaFacts"]

_HEAD_BYTES = (512, 64 << 10)
"""First bytes that are looked at, then more where they were too few; at last all of them."""

_PNG, _JPEG = 0x89, 0xFF


@dataclass(slots=True)
class MediaFacts:
    """Adds the facts of media to summaries, and remembers which columns hold none.

    Args:
        fetcher: reads the first bytes.
    """

    fetcher: Fetcher
    _others: set[str] = field(default_factory=set)

    def __call__(
        self, summaries: Summaries, name: str, column: pa.Array, files: Sequence[FileEntry], places: NDArray[np.uint64]
    ) -> None:
        """Add the facts of a column's values."""
        summary, there = summaries.columns[name], present(column)
        if name in self._others or not there.any():
            return
        size, formats = self._measure(column.filter(pa.array(there)) if is_ref(column.type) else column, files)
        known = size[0] > 0
        if "bytes" in summary.kinds and not known.any():
            self._others.add(name)
            return
        summary.unreadable += int((~known).sum())
        places, (width, height) = places[there][known], size[:, known]
        for fact, values in (("width", width), ("height", height), ("aspect_ratio", width / height)):
            _fact(summaries, f"{name}.{fact}", str(values.dtype)).add_numbers(values, places)
        formats = list(compress(formats, known.tolist()))
        _fact(summaries, f"{name}.format", "text").add_found(Counter(formats))

    def _measure(self, column: pa.Array, files: Sequence[FileEntry]) -> tuple[NDArray[np.int64], list[str]]:
        """Width and height of images, 0 where unknown, and their formats."""
        count = len(column) - column.null_count
        size, formats = np.zeros((2, count), np.int64), [""] * count
        if not is_ref(column.type):
            for i, value in enumerate(value for value in slices(column) if value is not None):
                _measure_one(size, formats, i, value)
            return size, formats
        left = np.arange(len(column))
        for most in (*_HEAD_BYTES, None):
            heads = list(self.fetcher.heads(column.take(pa.array(left)), files, most))
            if most == _HEAD_BYTES[0]:
                _measure_usual(size, formats, heads, most)
            again = []
            for i, head in zip(left.tolist(), heads, strict=True):
                if size[0, i] or head is None:
                    continue
                if not _measure_one(size, formats, i, head) and len(head) == most and is_image(head):
                    again.append(i)
            left = np.array(again, np.int64)
            if not len(left):
                break
        return size, formats


def _fact(summaries: Summaries, name: str, kind: str) -> Summary:
    summary = summaries.columns.setdefault(name, Summary(is_fact=True))
    summary.kinds[kind] = None
    return summary


def _measure_usual(size: NDArray[np.int64], formats: list[str], heads: Sequence[Any], most: int) -> None:
    """Write down the sizes that can be told of many images at once."""
    whole = [i for i, head in enumerate(heads) if head is not None and len(head) == most]
    if not whole:
        return
    matrix = np.frombuffer(b"".join([heads[i] for i in whole]), np.uint8).reshape(-1, most)
    found = usual_sizes(matrix)
    known = found[0] > 0
    numbers = np.array(whole)[known]
    size[:, numbers] = found[:, known]
    for i, first in zip(numbers.tolist(), matrix[known, 0].tolist(), strict=True):
        formats[i] = "png" if first == _PNG else "jpeg"


def _measure_one(size: NDArray[np.int64], formats: list[str], i: int, data: Any) -> bool:
    """Write down what the first bytes of an image say; whether they say it."""
    info = None if data is None else image_info(data)
    if info is not None:
        size[:, i] = info.width, info.height
        formats[i] = info.mime.removeprefix("image/")
    return info is not None
