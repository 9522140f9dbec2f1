"""Facts of media, from the headers of values: sizes, durations, rates, formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import files_of, is_ref
from lading._core.arrow.views import present, take_values
from lading._core.content.image import usual_sizes
from lading._core.content.media_info import MediaInfo
from lading._core.dataset.values.media_headers import media_facts
from lading._core.jobs.stats.summaries import Summaries, Summary
from lading._core.storage.fetch import Fetcher

__all__ = ["MediaFacts"]

_HEAD_BYTES = 512
_PNG = 0x89
_FACTS = ("duration_s", "sample_rate", "channels", "fps")


@dataclass(slots=True)
class MediaFacts:
    """Adds the facts of media to summaries, and remembers which columns hold none.

    Args:
        fetcher: reads the headers.
    """

    fetcher: Fetcher
    _others: set[str] = field(default_factory=set)

    def __call__(
        self, summaries: Summaries, name: str, column: pa.Array, schema: pa.Schema, places: NDArray[np.uint64]
    ) -> None:
        """Add the facts of a column's values."""
        rows = np.flatnonzero(present(column))
        if name in self._others or not len(rows):
            return
        size, formats = np.zeros((2, len(column)), np.int64), Counter[str]()
        if is_ref(column.type):
            formats.update(self._measure_usual(column, schema, rows, size))
        usual = np.flatnonzero(size[0])
        rows = rows[size[0, rows] == 0]
        facts = media_facts(_at(column, rows), schema, self.fetcher) if len(rows) else []
        infos = [(row, info) for row, info in zip(rows.tolist(), facts, strict=True) if info is not None]
        summary = summaries.columns[name]
        if "bytes" in summary.kinds and not infos and not len(usual):
            self._others.add(name)
            return
        summary.unreadable += len(facts) - len(infos)
        for row, info in infos:
            if info.width and info.height:
                size[:, row] = info.width, info.height
        formats.update(info.format for _, info in infos)
        if not formats:
            return
        _add_sizes(summaries, name, size, places)
        _add_others(summaries, name, infos, places)
        _fact(summaries, f"{name}.format", "text").add_found(formats)

    def _measure_usual(
        self, column: pa.Array, schema: pa.Schema, rows: NDArray[np.int64], size: NDArray[np.int64]
    ) -> dict[str, int]:
        """Write down the sizes of ordinary PNG and JPEG files, all at once; their number by format."""
        heads = list(self.fetcher.heads(_at(column, rows), files_of(schema), _HEAD_BYTES))
        whole = [i for i, head in enumerate(heads) if head is not None and len(head) == _HEAD_BYTES]
        if not whole:
            return {}
        matrix = np.frombuffer(b"".join([heads[i] or b"" for i in whole]), np.uint8).reshape(-1, _HEAD_BYTES)
        found = usual_sizes(matrix)
        known = found[0] > 0
        size[:, rows[np.array(whole)[known]]] = found[:, known]
        png = int((matrix[known, 0] == _PNG).sum())
        return {name: count for name, count in (("png", png), ("jpeg", int(known.sum()) - png)) if count}


def _at(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    if len(rows) == len(column):
        return column
    return column.take(pa.array(rows)) if is_ref(column.type) else take_values(column, rows)


def _add_sizes(summaries: Summaries, name: str, size: NDArray[np.int64], places: NDArray[np.uint64]) -> None:
    measured = np.flatnonzero(size[0])
    width, height = size[:, measured]
    for fact, values in (("width", width), ("height", height), ("aspect_ratio", width / np.maximum(height, 1))):
        if len(values):
            _fact(summaries, f"{name}.{fact}", str(values.dtype)).add_numbers(values, places[measured])


def _add_others(
    summaries: Summaries, name: str, infos: Sequence[tuple[int, MediaInfo]], places: NDArray[np.uint64]
) -> None:
    """Add durations, rates and codecs."""
    for fact in _FACTS:
        found = [(row, value) for row, info in infos if (value := getattr(info, fact)) is not None]
        if found:
            at, values = np.array([row for row, _ in found]), np.array([value for _, value in found])
            _fact(summaries, f"{name}.{fact}", str(values.dtype)).add_numbers(values, places[at])
    codecs = Counter(info.codec for _, info in infos if info.codec is not None)
    if codecs:
        _fact(summaries, f"{name}.codec", "text").add_found(codecs)


def _fact(summaries: Summaries, name: str, kind: str) -> Summary:
    summary = summaries.columns.setdefault(name, Summary(is_fact=True))
    summary.kinds[kind] = None
    return summary
