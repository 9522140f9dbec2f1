"""A look at all pictures of a selection: which of them cannot be read or decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arrow.views import list_lengths, slices
from lading._core.content.nested import plain
from lading._core.dataset.opened import OpenDataset
from lading._core.features.items import PAYLOAD
from lading._core.features.natural import has_items, known_feature
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.view.cells import keys_of
from lading._core.view.drawers import Drawers
from lading._core.view.work import PageWork
from lading.errors import BadReference, DataError, LadingError, NotFound

__all__ = ["PictureCheck", "UndecodedPicture"]

_ROWS, _LISTED = 64, 500
_IMAGE = "image"


@dataclass(frozen=True, slots=True)
class UndecodedPicture:
    """A picture that cannot be read or decoded.

    Attributes:
        number: of the sample.
        key: of the sample.
        column: of the picture.
        item: its place, in lists and documents.
        error: why.
    """

    number: int
    key: str | None
    column: str
    item: int
    error: str


class PictureCheck:
    """The look at all pictures, which runs in a thread, and decodes in processes of its own.

    Args:
        data: the samples.
        count: of processes.
    """

    def __init__(self, data: OpenDataset, count: int = 2) -> None:
        self._data, self._count = data, count
        self._decoded = 0
        self._failed = 0
        self._first: list[UndecodedPicture] = []
        self._work = PageWork(self._look)

    def stop(self) -> None:
        """End the look."""
        self._work.stop()

    def close(self) -> None:
        """End the look, and wait for its end."""
        self._work.close()

    def state(self, wait_s: float = 0) -> dict[str, Any]:
        """Return how far the look is, and the first pictures that failed.

        Args:
            wait_s: wait until it ends, for so many seconds at most.
        """
        self._work.wait(wait_s)
        state, failures = self._work.state(), [asdict(each) for each in self._first]
        return {**state, "decoded": self._decoded, "failed": self._failed, "failures": failures}

    def _look(self, report: OnProgress) -> None:
        drawers, samples = Drawers(self._count), 0
        columns = _picture_columns(self._data)
        key = self._data.key
        read = None if self._data.shards.has_items else [*([] if key is None else [key]), *columns]
        batches = self._data.looked_at(_ROWS, read, on_error="warn") if columns else iter(())
        try:
            with ThreadPoolExecutor(self._count, thread_name_prefix="lading-view-decode") as pool:
                for batch in batches:
                    keys = keys_of(self._data, batch)
                    for column in columns:
                        found = _pictures(self._data, batch, column, samples, keys)
                        for failure in pool.map(partial(_failure, drawers), found):
                            self._decoded += 1
                            self._add(failure)
                            report(Progress(0, 1, samples, 0))
                    samples += len(keys)
                    report(Progress(0, 1, samples, 0))
        finally:
            drawers.close()

    def _add(self, failure: UndecodedPicture | None) -> None:
        if failure is not None:
            self._failed += 1
            if len(self._first) < _LISTED:
                self._first.append(failure)


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture, or the error in its place; the other attributes are those of `UndecodedPicture`."""

    number: int
    key: str | None
    column: str
    item: int
    value: memoryview | LadingError


def _failure(drawers: Drawers, picture: _Picture) -> UndecodedPicture | None:
    if isinstance(picture.value, LadingError):
        error = str(picture.value)
    else:
        error = drawers.ask("picture", 0, picture.value).facts.get("error", "")
    return UndecodedPicture(picture.number, picture.key, picture.column, picture.item, error) if error else None


def _picture_columns(data: OpenDataset) -> list[str]:
    """The columns of pictures, or of lists of pictures."""
    if data.shards.has_items:
        return [PAYLOAD]
    features = ((field.name, known_feature(field)) for field in data.first_schema)
    return [name for name, each in features if _IMAGE in (each.medium, each.item and each.item.medium)]


def _pictures(
    data: OpenDataset, rows: pa.RecordBatch, column: str, first: int, keys: Sequence[str | None]
) -> list[_Picture]:
    """The pictures of a column; nulls are none. The rows are read one by one where one of them cannot be read."""
    if column not in rows.schema.names:
        return []
    samples, items = _places(data, rows)
    try:
        read = data.materialise(rows, columns=[column], views=True)
        values: list[tuple[int, int, memoryview | LadingError | None]] = [*_values(read, column)]
    except (DataError, NotFound):
        values = []
        for row in range(rows.num_rows):
            try:
                read = data.materialise(rows.slice(row, 1), columns=[column], views=True)
                values += [(row, item, value) for _, item, value in _values(read, column)]
            except (DataError, NotFound) as error:
                values.append((row, 0, error))
    return [
        _Picture(first + samples[row], keys[samples[row]], column, items[row] if data.shards.has_items else item, value)
        for row, item, value in values
        if value is not None
    ]


def _places(data: OpenDataset, rows: pa.RecordBatch) -> tuple[list[int], list[int]]:
    """The sample of each row, from 0 on, and the place of the row in it."""
    bounds = data.shards.row_layout.bounds(rows)
    lengths = np.diff(bounds)
    items = np.arange(rows.num_rows) - np.repeat(bounds[:-1], lengths)
    return np.repeat(np.arange(len(lengths)), lengths).tolist(), items.tolist()


def _values(rows: pa.RecordBatch, name: str) -> Iterator[tuple[int, int, memoryview | LadingError | None]]:
    """The row, the place in its list, and the bytes of each value; of documents, of pictures alone."""
    column = plain(rows.column(name))
    if name == PAYLOAD and "modality" in rows.schema.names:
        names = [name for name in ("modality", "materialize_error") if name in rows.schema.names]
        for row, (item, value) in enumerate(zip(rows.select(names).to_pylist(), slices(column), strict=True)):
            lost = item.get("materialize_error") if value is None else None
            if item["modality"] == _IMAGE:
                yield row, 0, BadReference(lost) if lost else value
        return
    lengths = np.ones(len(column), np.int64)
    if has_items(column.type):
        lengths, column = list_lengths(column), plain(column.flatten())
    if pa.types.is_struct(column.type):
        column = column.field("bytes")
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(column)) - np.repeat(starts, lengths)
    yield from zip(np.repeat(np.arange(len(lengths)), lengths).tolist(), places.tolist(), slices(column), strict=True)
