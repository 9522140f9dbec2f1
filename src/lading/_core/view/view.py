"""What is shown: a dataset, its selections, and how a user would name the same samples elsewhere."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query
from lading._core.dataset.values.field_values import columns_of
from lading._core.features.natural import known_feature
from lading._core.view.cells import LONG, SHORT, PageCell, cells_of, column_kinds, keys_of, npy_of
from lading._core.view.checks import Checks
from lading._core.view.drawer import Drawn
from lading._core.view.drawers import Drawers
from lading._core.view.held_pages import HeldPages
from lading._core.view.marks import SampleMarks
from lading._core.view.naming import Naming
from lading._core.view.problems import number_of_row
from lading._core.view.rows import SelectedSamples, Turns
from lading._core.view.selection import Selection
from lading._core.view.statistics import Statistics
from lading._core.view.values import StoredValue, StoredValues, ValuePlace, value_of
from lading.errors import DataError, LadingError, StoreError, UsageError

__all__ = ["View"]

_MOST_SELECTIONS = 8
_MOST_DRAWN_BYTES = 128 << 20
_COUNT_WAIT_S = 20
_LOOKED_AT = 4
"""Samples whose bytes say what a column holds."""
_FACES = ("image", "video", "audio", "array", "list", "items")
"""Kinds that fill a tile of the grid."""


class View:
    """A dataset as the page asks for it.

    Args:
        data: the dataset; the error where it is so damaged that it cannot be opened.
        naming: how a user names it.
        query: the dataset as a value; by default that of `data`.
        other: a dataset to compare it with.
        drawers: the processes that decode, if they were started before.

    Attributes:
        naming: as given.
        query: the dataset as a value.
        drawers: as given, or others.
        run: of this view alone. Browsers keep answers whose URL has it.
        checks: of the dataset, which run in threads.
        other: as given.
    """

    def __init__(
        self,
        data: OpenDataset | DataError,
        naming: Naming,
        query: Query | None = None,
        *,
        other: View | None = None,
        drawers: Drawers | None = None,
    ) -> None:
        self._data, self.naming = data, naming
        self.query = self.data.query if query is None else query
        self.drawers = drawers or Drawers()
        self.run = secrets.token_hex(8)
        self._values = StoredValues()
        self.checks = Checks(self.query)
        self.other = other
        if other is not None:
            other.run = self.run  # numbers of samples say which of the two they are of
            if not isinstance(data, DataError):
                other.marks = self.marks  # marked samples are those of the same keys
        self._lock = Lock()
        self._rows: OrderedDict[Selection, SelectedSamples] = OrderedDict()
        self._pages, self._turns = HeldPages(), Turns()

    @property
    def data(self) -> OpenDataset:
        """The dataset. Raises DataError where it cannot be opened."""
        if isinstance(self._data, DataError):
            raise self._data
        return self._data

    @cached_property
    def statistics(self) -> Statistics:
        """Statistics of selections. Raises DataError where the dataset cannot be opened."""
        return Statistics(self.data, self.marks)

    @cached_property
    def marks(self) -> SampleMarks:
        """Marks of the samples. Raises DataError where the dataset cannot be opened."""
        return SampleMarks(self.data)

    def rows(self, selection: Selection) -> SelectedSamples:
        """Return the samples of a selection; the last few selections stay."""
        with self._lock:
            if selection not in self._rows:
                self._rows[selection] = SelectedSamples(
                    selection.applied(self.data, self.marks), self._pages, self._turns
                )
                if len(self._rows) > _MOST_SELECTIONS:
                    self._rows.popitem(last=False)[1].close()
            self._rows.move_to_end(selection)
            return self._rows[selection]

    @property
    def schema(self) -> pa.Schema:
        """The columns, as far as they are known; see `SelectedSamples.schema`."""
        return self.rows(Selection()).schema

    def refuse_wrong_steps(self) -> None:
        """Raise UsageError, and close, if a step names a column that is not there. Damage is for the page to say."""
        try:
            if self.other is not None:
                self.other.refuse_wrong_steps()
            if any(step.asks_schema for step in self.query.steps):
                with suppress(DataError, StoreError):
                    _ = self.schema
        except UsageError:
            self.close()
            raise

    def dataset(self) -> dict[str, Any]:
        """Return what the dataset is: its name, format, columns, shards; its name and the error if it is damaged."""
        try:
            shards, schema = self.data.shards, self.schema
        except (DataError, StoreError) as error:
            return {"run": self.run, "title": self.naming.title, "broken": str(error)}
        key = shards.row_layout.key if shards.row_layout.key in schema.names else None
        return {
            "run": self.run, "title": self.naming.title, "steps": [repr(step) for step in self.data.query.steps],
            "format": shards.format, "view": self.data.view, "columns": self._looked_at(schema),
            "shards": len(shards.listing), "key": key, "compare": self.other and self.other.naming.title,
        }  # fmt: skip

    def _looked_at(self, schema: pa.Schema) -> list[dict[str, str]]:
        """The kinds of columns: of those of bytes that of the first samples, if no type says that a column has media.

        A table of bytes does not say that they are pictures, as the endings of files in a tar do.
        """
        columns = column_kinds(self.data, schema)
        unknown = [column["name"] for column in columns if column["kind"] == "bytes"]
        if not unknown or any(column["kind"] in _FACES for column in columns):
            return columns
        try:
            rows = self.page(Selection(), 0, _LOOKED_AT, unknown)["rows"]
        except LadingError:  # the page of the samples says it
            return columns
        found = {name: cell["kind"] for row in rows for name, cell in row.get("cells", {}).items()
                 if cell["kind"] in _FACES}  # fmt: skip
        return [{**column, "kind": found.get(column["name"], column["kind"])} for column in columns]

    def count(self, selection: Selection, wait_s: float) -> dict[str, Any]:
        """Return the number of samples, None while they are counted, and the lines that name them elsewhere.

        `is_wrong` says that the selection is wrong, not the data.
        """
        rows = self.rows(selection)
        rows.wait(wait_s)
        # a file of numbers counts samples of the source, and --take those that the steps before it leave
        is_named = not (selection.marked and self.query.steps) or self.marks.by_key
        return {
            "count": rows.count, "error": None if rows.error is None else str(rows.error),
            "is_wrong": isinstance(rows.error, UsageError),
            "command": self.naming.command(selection) if is_named else None,
            "python": self.naming.expression(selection) if is_named else None,
        }  # fmt: skip

    def page(self, selection: Selection, start: int, stop: int, columns: list[str] | None) -> dict[str, Any]:
        """Return what is shown of a range of samples: the beginning of texts, and of documents."""
        rows = self.rows(selection)
        try:
            found = self._shown(rows, start, stop, columns)
        except LadingError:
            rows.wait(_COUNT_WAIT_S)
            if rows.count is None:
                raise
            return self._singly(rows, start, stop, columns)
        if found["error"] is not None:
            rows.wait(_COUNT_WAIT_S)
        return found if found["error"] is None or rows.count is None else self._singly(rows, start, stop, columns)

    def _singly(self, rows: SelectedSamples, start: int, stop: int, columns: list[str] | None) -> dict[str, Any]:
        """What is shown of a range of samples where some cannot be read: of these, why."""
        assert rows.count is not None
        shown: list[dict[str, Any]] = []
        for number in range(start, min(stop, rows.count)):
            try:
                shown += self._shown(rows, number, number + 1, columns)["rows"]
            except LadingError as error:
                shown.append({"number": number, "error": str(error)})
        return {"start": start, "rows": shown, "is_last": stop >= rows.count, "is_whole": True, "error": None}

    def _shown(self, rows: SelectedSamples, start: int, stop: int, columns: list[str] | None) -> dict[str, Any]:
        page = rows.page(start, stop, None if columns is None else self._read(columns))
        shown: list[dict[str, Any]] = []
        for batch in page.batches:
            cells = cells_of(rows.data, batch, columns, SHORT)
            keys, first = keys_of(rows.data, batch), start + len(shown)
            for place, (key, marked, of_sample) in enumerate(
                zip(keys, self._ids(rows, keys, first), cells, strict=True)
            ):
                shown.append({"number": first + place, "key": key, "id": marked, "cells": _as_json(of_sample)})
        return {"start": start, "rows": shown, "is_last": page.is_last, "is_whole": page.is_whole,
                "error": None if page.error is None else str(page.error)}  # fmt: skip

    def sample(self, selection: Selection, number: int) -> dict[str, Any]:
        """Return all of a sample, and where it lies."""
        rows = self.rows(selection)
        batch = rows.shown(number)
        [cells] = cells_of(rows.data, batch, None, LONG)
        place = rows.data.place_of(number) if rows.count is not None else None
        keys = keys_of(rows.data, batch)
        return {"number": number, "key": keys[0], "id": self._ids(rows, keys, number)[0], "cells": _as_json(cells),
                "file": place and place[0], "row": place and place[1]}  # fmt: skip

    def number_of_row(self, selection: Selection, file: str, row: int) -> dict[str, int | None]:
        """Return the number, in a selection, of the sample that has a row of a shard; None if there is none."""
        return {"number": number_of_row(self.rows(selection).data, file, row)}

    def comparison(self, selection: Selection, wait_s: float) -> dict[str, Any]:
        """Return how far the comparison of both datasets is, and the numbers of differences; it begins when asked."""
        return self.checks.comparison(selection, *self._both(selection)).state(wait_s)

    def differences(self, selection: Selection, kind: str, start: int, stop: int) -> dict[str, Any]:
        """Return what is shown of some differences of both datasets."""
        from lading._core.view.shown_differences import described

        one, other = self._both(selection)
        found = self.checks.comparison(selection, one, other).work.result
        if found is None:
            raise UsageError("the datasets are not compared yet", advice="Ask for the comparison until it ends.")
        return {"start": start, "differences": [described(pair, one, other) for pair in found.part(kind, start, stop)]}

    def _both(self, selection: Selection) -> tuple[SelectedSamples, SelectedSamples]:
        if self.other is None:
            raise UsageError("there is no dataset to compare with", advice="lading view A --compare B")
        return self.rows(selection), self.other.rows(selection)

    def ids(self, selection: Selection, start: int, stop: int) -> list[str]:
        """Return what marks belong to, of a range of samples without keys; it waits until they are counted."""
        rows = self.rows(selection)
        numbers = np.arange(min(start, len(rows.data)), min(stop, len(rows.data)))
        return self.marks.of_numbers(rows.data, numbers)

    def _ids(self, rows: SelectedSamples, keys: list[str | None], first: int) -> Sequence[str | None]:
        """What marks belong to; None for samples without a key, and while it is not known."""
        if self.marks.by_key:
            return keys
        if rows.data.chosen is not None and rows.count is None:
            return [None] * len(keys)
        return self.marks.of_numbers(rows.data, np.arange(first, first + len(keys)))

    def draw(self, what: str, selection: Selection, place: ValuePlace, size: int) -> Drawn:
        """Return what a decoding process makes of a value."""
        rows = self.rows(selection)

        def read() -> bytes | memoryview:
            data = value_of(rows, place, shown=True).whole(_MOST_DRAWN_BYTES)
            is_known = what == "array" and place.column in self.schema.names
            return npy_of(known_feature(self.schema.field(place.column)), data) if is_known else data

        return self.drawers.draw(what, size, (selection, place), read)

    def value(self, selection: Selection, place: ValuePlace) -> StoredValue:
        """Return the bytes of a value, as `value_of`."""
        rows = self.rows(selection)
        return self._values.get((selection, place), lambda: value_of(rows, place))

    def find(self, selection: Selection, key: str) -> int:
        """Return the number of the first sample with a key. Raises UsageError if there is none."""
        data, number = self.rows(selection).data, 0
        if data.key is None:
            raise UsageError("the samples have no keys", advice="Write the number of a sample.")
        for [keys] in data.values([data.key]):
            found = pc.index(keys.cast(pa.large_string()), key).as_py()
            if found >= 0:
                return number + int(found)
            number += len(keys)
        raise UsageError(
            "no sample has this key",
            found=repr(key),
            advice="Leave the condition out: it may exclude the sample." if selection != Selection() else None,
        )

    def close(self) -> None:
        """Stop to read; end the checks, the processes that decode, and statistics that are not ready."""
        self.checks.close()
        if self.other is not None:
            self.other.close()
        if not isinstance(self._data, DataError):
            self.statistics.close()
        with self._lock:
            for rows in self._rows.values():
                rows.close()
        self.drawers.close()

    def _read(self, columns: list[str]) -> list[str] | None:
        """The columns to read for those that are shown; all for documents."""
        if self.data.shards.has_items:
            return None
        key, schema = self.data.shards.row_layout.key, self.schema
        return list(dict.fromkeys([*([key] if key in schema.names else []), *columns_of(columns, schema)]))


def _as_json(cells: dict[str, PageCell]) -> dict[str, Any]:
    return {name: cell.as_json() for name, cell in cells.items()}
