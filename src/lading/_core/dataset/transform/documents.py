"""Interleaved documents as functions of the user's get them, and the rows that become of what they return.

A document is a dict as `ds[i]` gives it: its id, its own fields, and `items`, a list of dicts in their order. Each is
a `FunctionSample`, so nothing is read that the function does not look at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import take_rows
from lading._core.content.image import image_info
from lading._core.content.media_files import MEDIA_OF_ITEMS, BrokenFile, Opening, open_media
from lading._core.dataset.transform.sample import FunctionColumns, FunctionSample
from lading._core.features.images import image_bytes, is_image
from lading._core.features.items import METADATA_POSITION, PAYLOAD, RESERVED, sample_starts
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, UsageError, errors_at

__all__ = ["Documents", "ItemRow", "refuse_merged", "with_rows"]

ITEMS = "items"
ItemRow = tuple[int, dict[str, Any]]
"""A row of the batch that an item is made of, −1 for a new item; and the new and changed values of its columns."""


class _ItemColumns(FunctionColumns):
    """The columns of items; the modality of an item tells the medium of its payload."""

    def value(self, name: str, row: int) -> Any:
        """The decoded value, as of other columns."""
        found = super().value(name, row)
        if name != PAYLOAD or "modality" not in self.names or self.opening is None:
            return found
        kind = MEDIA_OF_ITEMS.get(self.stored("modality", row))
        try:
            return found if kind is None else open_media(kind, found, self.opening)
        except DataError as error:
            return BrokenFile(bytes(found), error)


class Documents:
    """The documents of a batch as Python values, read when they are looked at; see `FunctionColumns`.

    Attributes:
        names: the fields that a document may have.
        members: those that a document may lack: all of them.
        items: the columns of items.
    """

    def __init__(self, batch: pa.RecordBatch, fetcher: Fetcher, opening: Opening) -> None:
        own = [name for name in batch.schema.names if name not in RESERVED and name != ITEMS]
        self._own = FunctionColumns(batch.select(["sample_id", *own]), fetcher, every_member=True, opening=opening)
        items = batch.drop_columns(["sample_id"])
        self.items: FunctionColumns = _ItemColumns(items, fetcher, every_member=True, opening=opening)
        self._bounds = [*pairwise([*sample_starts(batch.column("sample_id")).tolist(), batch.num_rows])]
        kinds = batch.column("modality").to_pylist() if "modality" in batch.schema.names else [None] * batch.num_rows
        self._is_own = [kind == "metadata" for kind in kinds]
        self.names = ["sample_id", *own, ITEMS]
        self.members: Collection[str] = frozenset(self.names)
        self.opening: Opening | None = opening

    def __len__(self) -> int:
        return len(self._bounds)

    def rows(self, document: int) -> range:
        """The rows of a document."""
        return range(*self._bounds[document])

    def own_rows(self, document: int) -> list[int]:
        """The rows of a document that hold its own fields: at most one in a tar."""
        return [row for row in self.rows(document) if self._is_own[row]]

    def item_rows(self, document: int) -> list[int]:
        """The rows of a document that are its items."""
        return [row for row in self.rows(document) if not self._is_own[row]]

    def has(self, name: object, document: int) -> bool:
        """Whether a document has a field."""
        return name == ITEMS or self._row_of(name, document) is not None

    def value(self, name: str, document: int) -> Any:
        """The decoded value of a field; None if the document lacks it. Raises KeyError for an unknown field."""
        if name == ITEMS:
            return [FunctionSample(self.items, row) for row in self.item_rows(document)]
        row = self._row_of(name, document)
        if row is None and name not in self.members:
            raise KeyError(name)
        return None if row is None else self._own.value(name, row)

    def stored(self, name: str, document: int) -> Any:
        """The value of a field as it is stored; None for items, and for a field that the document lacks."""
        row = None if name == ITEMS else self._row_of(name, document)
        return None if row is None else self._own.stored(name, row)

    def _row_of(self, name: object, document: int) -> int | None:
        rows = [self.rows(document)[0]] if name == "sample_id" else reversed(self.own_rows(document))
        return next((row for row in rows if self._own.has(name, row)), None)

    def is_changed(self, name: str, document: int, value: Any) -> bool:
        """Whether a value that a function looked at is another one now."""
        if name != ITEMS:
            row = self._row_of(name, document)
            return row is None or self._own.is_changed(name, row, value)
        made = [self._item(item) for item in value]
        return [row for row, _ in made] != self.item_rows(document) or any(changes for _, changes in made)

    def _item(self, item: Any) -> ItemRow:
        """The row of an item, and what changes in it."""
        row = item.row_among(self.items) if isinstance(item, FunctionSample) else None
        if row is not None:
            return row, item.changes(item)
        if isinstance(item, Mapping):
            return -1, dict(item)
        raise UsageError("an item of a document is a dict", found=f"{type(item).__name__} {item!r:.80}")

    def place(self, document: int) -> dict[str, Any]:
        """Where a document is: its first row in the batch, its file and its id, as far as they are known."""
        return self._own.place(self.rows(document)[0])

    def rows_made(self, document: int, changes: Mapping[str, Any]) -> list[ItemRow]:
        """The rows of a document after these changes: that of its own fields first, then its items in their order.

        Raises:
            UsageError: the items are no list of items.
        """
        own = {name: value for name, value in changes.items() if name not in (ITEMS, "sample_id")}
        made: list[ItemRow] = [(row, {}) for row in self.own_rows(document)]
        if own and not made:
            made = [(-1, {"position": METADATA_POSITION, "modality": "metadata"})]
        if own:
            _refuse_fields_of_items(own)
            made[-1][1].update(own)
        made += self._items_made(document, changes[ITEMS]) if ITEMS in changes else [
            (row, {}) for row in self.item_rows(document)
        ]  # fmt: skip
        if not made:
            raise UsageError("the function leaves nothing of a document", advice="Leave documents out with filter.")
        for row, changed in made:
            if "sample_id" in changes:
                changed["sample_id"] = changes["sample_id"]
            elif row < 0:
                changed["sample_id"] = self._own.stored("sample_id", self.rows(document)[0])
        return made

    def _items_made(self, document: int, items: Any) -> list[ItemRow]:
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Sequence):
            raise UsageError("the items of a document are a list of dicts", column=ITEMS,
                             found=f"{type(items).__name__} {items!r:.80}")  # fmt: skip
        made = [self._item(item) for item in items]
        for row, changed in made:
            kind = changed.get("modality")
            if kind == "metadata" or (kind is None and (row < 0 or "modality" in changed)):
                raise UsageError("an item of a document needs a modality", column="modality", found=repr(kind),
                                 expected="text, image or another kind of item")  # fmt: skip
            changed.pop("sample_id", None)
            if PAYLOAD in changed:  # where the bytes were before, and why they could not be read
                for name in {"source_ref", "materialize_error"}.intersection(self.items.names):
                    changed.setdefault(name, None)
                if is_image(changed[PAYLOAD]):
                    changed.update(self._picture(changed))
        if [row for row, _ in made] != self.item_rows(document) or any("position" in changed for _, changed in made):
            for place, (_, changed) in enumerate(made):
                changed["position"] = place
        return made

    def _picture(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the bytes of a new image of an item, and their type unless the function tells it."""
        with errors_at(column=PAYLOAD):
            data = image_bytes(changed[PAYLOAD])
        info = image_info(data)
        if info is None or "content_type" in changed or "content_type" not in self.items.names:
            return {PAYLOAD: data}
        return {PAYLOAD: data, "content_type": info.mime}


def _refuse_fields_of_items(own: Mapping[str, Any]) -> None:
    name = next((name for name in own if name in RESERVED), None)
    if name is not None:
        raise UsageError("items have this field, and documents do not", column=name,
                         advice="Change it in an item: sample['items'][0].")  # fmt: skip


def refuse_merged(before: pa.RecordBatch, made: pa.RecordBatch) -> None:
    """Raise UsageError if a function gave several documents one id."""
    if len(made.column("sample_id").unique()) < len(before.column("sample_id").unique()):
        raise UsageError("the function gives several documents one id", column="sample_id",
                         advice="Documents must have different ids.")  # fmt: skip


def with_rows(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a batch in the given order, with repeats; for −1 a row of nulls."""
    if (rows < 0).any():
        columns = [pa.concat_arrays([column, pa.nulls(1, column.type)]) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        rows = np.where(rows < 0, batch.num_rows - 1, rows)
    return take_rows(batch, rows)
