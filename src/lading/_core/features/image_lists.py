"""Lists of documents with one entry an image, such as `alt_text` and `p_hash`, that stay on the metadata row.

Such lists have no mark in the data. A list counts as one if its length equals the number of images in each of the
first documents of a shard. A step that drops or moves images drops or moves the same entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.views import make_lists, take_values
from lading._core.features.items import METADATA_POSITION, RESERVED, sample_starts
from lading._core.features.types import feature_of
from lading._core.spelling import names_value
from lading.errors import DataError

__all__ = ["FIRST_DOCUMENTS", "ImageLists", "follow_images", "may_hold_lists", "without_entries"]

FIRST_DOCUMENTS = 1000
"""Documents by which lists with one entry an image are found."""

_NO_LIST = -1


class ImageLists:
    """Finds the lists with one entry an image, among the first documents.

    Attributes:
        documents: documents that were looked at.
        with_images: those of them with images.
    """

    def __init__(self) -> None:
        self.documents = self.with_images = 0
        self._fits, self._differs = Counter[str](), set[str]()

    @property
    def is_full(self) -> bool:
        """Whether enough documents were looked at."""
        return self.documents >= FIRST_DOCUMENTS

    @property
    def names(self) -> tuple[str, ...]:
        """The columns whose lists have as many entries as images, in every document."""
        whole = [name for name, count in self._fits.items() if count == self.with_images]
        return tuple(name for name in whole if name not in self._differs)

    def add(self, images: int, lengths: Mapping[str, int]) -> None:
        """Take a document: its number of images, and the length of each list in it."""
        if self.is_full:
            return
        self.documents += 1
        self.with_images += images > 0
        self._differs.update(name for name, length in lengths.items() if length != images)
        self._fits.update([*lengths] if images else ())

    def add_rows(self, rows: pa.RecordBatch, names: Sequence[str]) -> None:
        """Take the documents of a batch; `names` are the columns that may hold lists."""
        documents = _Documents(rows)
        found = {name: documents.lengths(name).tolist() for name in names if name in rows.schema.names}
        for place, images in enumerate(documents.images.tolist()):
            lengths = {name: lengths[place] for name, lengths in found.items() if lengths[place] != _NO_LIST}
            self.add(images, lengths)


def may_hold_lists(field: pa.Field) -> bool:
    """Return whether values of a passthrough column may be lists of any length."""
    is_list = isinstance(field.type, (pa.ListType, pa.LargeListType))
    return field.name not in RESERVED and (is_list or feature_of(field).is_json)


class _Documents:
    """Documents of a batch of item rows.

    Attributes:
        starts: first row of each document.
        is_image: which rows are images.
        images: number of images of each document.
        own: row of each document with its own fields; −1 if there is none.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self.starts = sample_starts(rows.column("sample_id"))
        image = pc.equal(rows.column("modality"), "image").fill_null(False)  # noqa: FBT003 - pyarrow takes it by position
        self.is_image = np.asarray(image.to_numpy(zero_copy_only=False), np.bool_)
        own = np.where(rows.column("position").to_numpy() == METADATA_POSITION, np.arange(rows.num_rows), -1)
        has_rows = bool(len(self.starts))
        self.own = np.maximum.reduceat(own, self.starts) if has_rows else self.starts
        self.images = np.add.reduceat(self.is_image.astype(np.int64), self.starts) if has_rows else self.starts

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Return the length of the list in a column of each document; −1 if the value is missing or not a list."""
        field, found = self._rows.schema.field(name), np.full(len(self.starts), _NO_LIST)
        if not may_hold_lists(field):
            return found
        there = self.own >= 0
        values = take_values(self._rows.column(name), self.own[there])
        if isinstance(field.type, (pa.ListType, pa.LargeListType)):
            found[there] = pc.list_value_length(values).fill_null(_NO_LIST).to_numpy(zero_copy_only=False)
        else:
            found[there] = [_length(text) for text in values.to_pylist()]
        return found

    def refuse_others(
        self, names: Sequence[str], looked_at: NDArray[np.bool_], known: Sequence[str] | None = None
    ) -> None:
        """Raise DataError for a list of another length than the number of images, in one of some documents.

        `known` are all columns with such lists, by default `names`.
        """
        for name in names:
            lengths = self.lengths(name)
            wrong = np.flatnonzero((lengths != _NO_LIST) & (lengths != self.images) & looked_at)
            if len(wrong):
                at = int(wrong[0])
                raise self._error(name, known or names, at, int(lengths[at]))

    def _error(self, name: str, names: Sequence[str], at: int, found: int) -> DataError:
        others = [other for other in names if other != name]
        named = names_value(others) if others else "NAME"
        return DataError(
            "a list has one entry an image in the first documents, and another length in this document",
            sample=self._rows.column("sample_id")[int(self.starts[at])].as_py(), column=name,
            row=int(self.own[at]), expected=f"{int(self.images[at])} entries, as images", found=found,
            advice=f"Name the lists with one entry an image: --per-image-fields {named}. "
            "If there are no such lists: --per-image-fields ''.",
        )  # fmt: skip


def without_entries(rows: pa.RecordBatch, kept: NDArray[np.bool_], names: Sequence[str]) -> pa.RecordBatch:
    """Return all rows, where lists have lost the entries of images that will be dropped.

    Args:
        rows: whole documents.
        kept: the rows that stay.
        names: the columns of the lists.

    Raises:
        DataError: a document that stays has a list of another length than its number of images.
    """
    names = _held(rows, names)
    if not names or not rows.num_rows:
        return rows
    documents = _Documents(rows)
    documents.refuse_others(names, np.logical_or.reduceat(kept, documents.starts))
    lost = np.add.reduceat((documents.is_image & ~kept).astype(np.int64), documents.starts) > 0
    stops = np.append(documents.starts[1:], rows.num_rows)
    chosen = {}
    for at in np.flatnonzero(lost & (documents.own >= 0)).tolist():
        mine = slice(documents.starts[at], stops[at])
        chosen[at] = np.flatnonzero(kept[mine][documents.is_image[mine]])
    return _with_entries(rows, documents, names, chosen)


def follow_images(
    before: pa.RecordBatch, made: pa.RecordBatch, sources: NDArray[np.int64] | None, names: Sequence[str]
) -> pa.RecordBatch:
    """Return the rows that a function made, where lists follow the images that it dropped or moved.

    Lists that the function changed itself stay as they are.

    Args:
        before: the rows that the function got.
        made: the rows that it gave.
        sources: the row of `before` that each row was made of, −1 for a new row; None if that is unknown.
        names: the columns of the lists.

    Raises:
        DataError: a list has another length than the number of images, and the function did not change it.
    """
    names = [name for name in _held(made, names) if name in before.schema.names]
    if not names or not made.num_rows:
        return made
    old, new = _Documents(before), _Documents(made)
    ids = {name: at for at, name in enumerate(before.column("sample_id").take(pa.array(old.starts)).to_pylist())}
    found = [ids.get(name, -1) for name in made.column("sample_id").take(pa.array(new.starts)).to_pylist()]
    if sources is not None:
        document = np.repeat(np.arange(len(old.starts)), np.diff(np.append(old.starts, before.num_rows)))
        found = [int(document[sources[row]]) if row >= 0 and sources[row] >= 0 else -1 for row in new.own.tolist()]
    of_old, of_new = (np.split(np.arange(len(d.is_image)), d.starts[1:]) for d in (old, new))
    for name in names:
        was, now = before.column(name), made.column(name)
        old.refuse_others([name], np.isin(np.arange(len(old.starts)), found), names)
        chosen, stays = {}, np.zeros(len(new.starts), np.bool_)
        for at, source in enumerate(found):
            row, own = int(new.own[at]), int(old.own[source])
            if source < 0 or row < 0 or own < 0 or was[own].as_py() != now[row].as_py():
                continue
            stays[at] = True
            images = of_old[source][old.is_image[of_old[source]]]
            rows = of_new[at][new.is_image[of_new[at]]]
            if sources is None or (sources[rows] < 0).any() or not np.isin(sources[rows], images).all():
                continue
            places = np.searchsorted(images, sources[rows])
            if not np.array_equal(places, np.arange(len(images))):
                chosen[at] = places
        made = _with_entries(made, new, [name], chosen)
        _Documents(made).refuse_others([name], stays, names)
    return made


def _held(rows: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """Return the columns that are there, and may hold lists."""
    return [name for name in names if name in rows.schema.names and may_hold_lists(rows.schema.field(name))]


def _length(text: str | None) -> int:
    """Return the length of a list in JSON; −1 for null and other values."""
    value = None if text is None else json_text.loads(text)
    return len(value) if isinstance(value, list) else _NO_LIST


def _with_entries(
    rows: pa.RecordBatch, documents: _Documents, names: Sequence[str], chosen: Mapping[int, NDArray[np.int64]]
) -> pa.RecordBatch:
    """Return the rows, where lists of some documents have these entries, by their places in the list."""
    for name in names if chosen else ():
        lengths = documents.lengths(name)
        mine = [at for at in chosen if lengths[at] != _NO_LIST]
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        column, own = rows.column(place), documents.own[mine]
        lists = take_values(column, own)
        if isinstance(field.type, (pa.ListType, pa.LargeListType)):
            made = _chosen_entries(lists, [chosen[at] for at in mine])
        else:
            values = [json_text.loads(text) for text in lists.to_pylist()]
            texts = [
                json_text.dumps([value[i] for i in chosen[at].tolist()]) for at, value in zip(mine, values, strict=True)
            ]
            made = pa.array(texts, column.type)
        order = np.arange(rows.num_rows)
        order[own] = rows.num_rows + np.arange(len(mine))
        rows = rows.set_column(place, field, take_values(pa.concat_arrays([column, made]), order))
    return rows


def _chosen_entries(lists: pa.Array, chosen: Sequence[NDArray[np.int64]]) -> pa.Array:
    """Return lists with these entries, by their places in each list."""
    first = lists.offsets.to_numpy()[: len(chosen)]
    at = [begin + places for begin, places in zip(first.tolist(), chosen, strict=True)]
    entries = take_values(lists.values, np.concatenate([np.zeros(0, np.int64), *at]).astype(np.int64))
    lengths = np.array([len(places) for places in chosen], np.int64)
    return make_lists(lists.type, lengths, entries, np.ones(len(chosen), np.bool_))
