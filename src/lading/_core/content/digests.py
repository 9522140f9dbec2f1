"""The content digest: a hash of the contents of samples, independent of format, shard and batch.

A sample's digest is xxh3-128 (16 bytes, big-endian) over the canonical form (`_core.content.canonical`) of the struct
of its fields; `__key__` is one of them. An interleaved sample's is taken of its items (`interleaved_digests`).

A dataset has two digests: `ordered` is xxh3-128 over the sample digests in order; `unordered` is their sum modulo 2¹²⁸,
which any number of processes can add up. Bounds of shards and batches change neither.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.arrow.align import refuse_bare
from lading._core.arrow.references import is_ref
from lading._core.arrow.text_checks import holds
from lading._core.arrow.types import unread_type
from lading._core.arrow.views import is_list, present, row_bytes
from lading._core.content.canonical import FORM, column_forms, field_forms, hash_forms, joined, list_forms, struct_forms
from lading._core.features.items import sample_starts, split_rows
from lading._core.features.types import Text
from lading.errors import DataError, Unrepresentable, UsageError

__all__ = [
    "DatasetDigest",
    "differing_columns",
    "differing_items",
    "interleaved_digests",
    "sample_digests",
    "undigested",
]

_SLICE_ROWS, _SLICE_BYTES = 1 << 16, 64 << 20
_FORM_BYTES = 32
"""Approximate bytes of the form of a number, with its bounds and its copy in the form of the list."""


def sample_digests(rows: pa.Table | pa.RecordBatch) -> NDArray[np.uint8]:
    """Return digests of rows, each a sample: shape (rows, 16).

    Memory: the short values of 65,536 rows, or of fewer that hold 2 million numbers in lists. A single row with more
    numbers takes some 26 bytes for each.

    Args:
        rows: rows with their bytes, not references.

    Raises:
        UsageError: a column holds references.
        Unrepresentable: a column's type has no canonical form; names it. Or there is no column.
    """
    refuse_bare(rows.num_rows, rows.num_columns)
    table = _table(rows)
    parts = [np.zeros((0, 16), np.uint8)]
    for first, last in pairwise(_bounds(table, np.arange(table.num_rows)).tolist()):
        some = table.slice(first, last - first)
        if some.num_rows > 1 and all(column.null_count == some.num_rows for column in some.columns):
            # Nulls take no bytes: a batch may have any number of them.
            parts.append(np.repeat(sample_digests(some.slice(0, 1)), some.num_rows, axis=0))
            continue
        columns = zip(some.schema, some.columns, strict=True)
        parts.append(hash_forms(struct_forms(field_forms(columns), some.num_rows)))
    return np.concatenate(parts)


def _bounds(table: pa.Table, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return bounds of rows whose samples are digested together; `starts` are the first rows of samples."""
    lists = [i for i, kind in enumerate(table.schema.types) if _is_listed(kind)]
    sizes = [row_bytes(batch, _FORM_BYTES) for batch in table.select(lists).to_batches()] if lists else []
    size = np.concatenate(sizes) if sizes else np.zeros(table.num_rows, np.int64)
    return split_rows(starts, size, max_bytes=_SLICE_BYTES, max_rows=_SLICE_ROWS)


def _is_listed(kind: pa.DataType) -> bool:
    """Return whether a type contains lists, whose items have forms of their own, each longer than a number."""
    return not isinstance(kind, pa.FixedShapeTensorType) and holds(kind, is_list)


def undigested(schema: pa.Schema) -> str | None:
    """Return name and type of the first column whose values have no digest; None if all have one."""
    for field in schema:
        if unread_type(field.type) is not None:
            return f"{field.name}: {field.type}"
        if not is_ref(field.type):
            try:
                field_forms([(field, pa.nulls(0, field.type))])
            except Unrepresentable:
                return f"{field.name}: {field.type}"
    return None


def differing_columns(one: pa.Table, other: pa.Table) -> list[str]:
    """Return the names of the columns in which two samples differ. A column of nulls counts as absent.

    Args:
        one: the rows of a sample, with their bytes.
        other: the rows of the other sample.

    Raises:
        UsageError, Unrepresentable: as `sample_digests`.
    """
    here, there = (field_forms(zip(rows.schema, rows.columns, strict=True)) for rows in (one, other))
    names = sorted({*here, *there} - {*_ELSEWHERE}, key=str.encode)
    pairs = [(here.get(name), there.get(name)) for name in names]
    return [name for name, (a, b) in zip(names, pairs, strict=True) if not _same_forms(a, b)]


def differing_items(one: pa.Table, other: pa.Table) -> list[dict[str, Any]]:
    """Return the items in which two documents differ, by position, metadata rows first.

    Items of one position and modality are compared. Each difference has `position`, `modality`, the `fields` that
    differ, and `only_in` (`A` or `B`) for an item that the other document lacks. Rows without a value are no items,
    as in `interleaved_digests`.

    Args:
        one: the rows of a document, with their bytes.
        other: the rows of the other document.
    """
    here, there = _items_of(one), _items_of(other)
    found = []
    for place in sorted({*here, *there}):
        a, b = here.get(place), there.get(place)
        fields = [] if a is None or b is None else [n for n in sorted({*a, *b}) if a.get(n) != b.get(n)]
        if fields or a is None or b is None:
            only = {} if a is not None and b is not None else {"only_in": "B" if a is None else "A"}
            position, _, modality, _ = place
            found.append({"position": position, "modality": modality, "fields": fields, **only})
    return found


def _items_of(table: pa.Table) -> dict[tuple[int, bool, str, int], dict[str, Any]]:
    """Return the forms of the values of each item by position, whether it is no text, modality, and number of such."""
    columns = zip(table.schema, table.columns, strict=True)
    forms = field_forms([(field, column) for field, column in columns if field.name not in _NOT_CONTENT])
    modalities = [str(name) for name in table["modality"].to_pylist()]
    found: dict[tuple[int, bool, str, int], dict[str, Any]] = {}
    seen: Counter[tuple[int, bool, str]] = Counter()
    for row, modality in enumerate(modalities):
        values = {name: form[row].as_py() for name, form in forms.items() if form[row].is_valid}
        generated = _ITEM_KEYS if modality == "metadata" else ("position", "modality")
        content = {name: value for name, value in values.items() if name not in generated}
        if modality in ("metadata", "text") and not content.keys() - {*_ITEM_KEYS}:
            continue
        position = table["position"][row].as_py() or 0 if modality != "metadata" else -1
        place = position, modality != "text", modality
        found[*place, seen[place]] = content
        seen[place] += 1
    return found


def _same_forms(one: pa.Array | None, other: pa.Array | None) -> bool:
    if one is None or other is None:
        return all(forms is None or forms.null_count == len(forms) for forms in (one, other))
    return bool(one.equals(other))


_ELSEWHERE = ("source_ref", "materialize_error")
_NOT_CONTENT = ("sample_id", *_ELSEWHERE)
_ITEM_KEYS = ("position", "modality", "content_type")


def interleaved_digests(rows: pa.Table | pa.RecordBatch, *, with_id: bool = True) -> NDArray[np.uint8]:
    """Return digests of the samples of an item table: shape (samples, 16), in order of the runs of one `sample_id`.

    The form covers three parts. The first is `sample_id`. The second is the list of metadata rows: all columns except
    position, modality and content type, which readers generate. The third is the list of the other rows, as structs of
    all their columns.

    Rows are sorted by position, text before others, and otherwise keep their order, because a tar has no other order.
    `source_ref` and `materialize_error` describe places, not content. Empty rows are left out, because a tar cannot
    represent them: a metadata row without a value, and a text row without text or value (a gap).

    Args:
        rows: whole samples, materialised. Takes memory for the short values of some 65,536 rows.
        with_id: whether `sample_id` is covered.

    Raises:
        DataError: a `sample_id` is null.
        UsageError, Unrepresentable: as `sample_digests`.
    """
    table = _table(rows)
    starts = sample_starts(table["sample_id"])
    bounds = _bounds(table, starts).tolist()
    parts = [_of_items(table.slice(first, last - first), with_id=with_id) for first, last in pairwise(bounds)]
    return np.concatenate([np.zeros((0, 16), np.uint8), *parts])


def _of_items(table: pa.Table, *, with_id: bool) -> NDArray[np.uint8]:
    starts = sample_starts(table["sample_id"])
    sample = np.repeat(np.arange(len(starts)), np.diff(starts, append=table.num_rows))
    columns = zip(table.schema, table.columns, strict=True)
    forms = field_forms([(field, column) for field, column in columns if field.name not in _NOT_CONTENT])
    carries = np.zeros(table.num_rows, np.bool_)
    for name, form in forms.items():
        carries |= present(form) & (name not in _ITEM_KEYS)
    metadata, text = _is_of(table["modality"], "metadata"), _is_of(table["modality"], "text")
    position = np.asarray(pc.fill_null(table["position"], 0).to_numpy(), np.int64)
    order = np.lexsort((~text, position, ~metadata, sample))
    order = order[(carries | ~(metadata | text))[order]]
    for name in forms.keys() & _ITEM_KEYS:  # a form without them covers only the values
        forms[name] = pc.if_else(pa.array(metadata), pa.scalar(None, FORM), forms[name])
    rows = struct_forms(forms, len(sample))
    # The metadata rows of each sample come first: two adjacent lists.
    counts = np.bincount(sample[order] * 2 + ~metadata[order], minlength=2 * len(starts))
    lists = list_forms(rows.take(pa.array(order)), np.concatenate([[0], np.cumsum(counts)]))
    ids = column_forms(table["sample_id"], Text()).take(pa.array(starts))
    return hash_forms(joined(*([ids] if with_id else []), lists[::2], lists[1::2]))


def _is_of(modality: pa.ChunkedArray, name: str) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.equal(modality.cast(pa.string()), name), fill_value=False), np.bool_)


def _table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


class DatasetDigest:
    """The digest of a dataset, from the digests of its samples.

    A digest that was merged or read from JSON knows the sum of its parts, but not their order: `merge` drops `ordered`.
    """

    __slots__ = ("_ordered", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0
        self._ordered: xxhash.xxh3_128 | str | None = xxhash.xxh3_128()

    def update(self, digests: NDArray[np.uint8]) -> None:
        """Add the digests of samples, in order: shape (samples, 16).

        Raises:
            UsageError: this digest was read from JSON, so nothing can follow in order.
        """
        if isinstance(self._ordered, str):
            raise UsageError("a digest that was read cannot be updated", advice="Merge it with another one instead.")
        if self._ordered is not None:
            self._ordered.update(np.ascontiguousarray(digests).data)
        words = np.ascontiguousarray(digests).view(">u4").astype(np.uint64).sum(axis=0).tolist()
        self._add(sum(word << shift for word, shift in zip(words, (96, 64, 32, 0), strict=True)), len(digests))

    def _add(self, total: int, count: int) -> None:
        self._sum = (self._sum + total) % (1 << 128)
        self.count += count

    @property
    def ordered(self) -> str | None:
        """Return 32 hex digits: the samples in their order; None if the order is unknown."""
        return self._ordered if isinstance(self._ordered, str | None) else self._ordered.hexdigest()

    @property
    def unordered(self) -> str:
        """Return 32 hex digits: the samples in any order."""
        return f"{self._sum:032x}"

    def merge(self, other: DatasetDigest) -> Self:
        """Add the samples of another digest, in no order."""
        self._ordered = None
        self._add(other._sum, other.count)
        return self

    def to_json(self) -> dict[str, Any]:
        """The digest as JSON-able values: `ordered`, `unordered`, `count`."""
        return {"ordered": self.ordered, "unordered": self.unordered, "count": self.count}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The digest that `to_json` gave.

        Raises:
            DataError: the value is not a digest.
        """
        total, ordered, count = (state.get(name, "") for name in ("unordered", "ordered", "count"))
        if not (_is_hex(total) and (ordered is None or _is_hex(ordered)) and type(count) is int and count >= 0):
            raise DataError("not a dataset digest", found=repr(state)[:100])
        digest = cls()
        digest._add(int(total, 16), count)
        digest._ordered = ordered
        return digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetDigest) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.count, self._sum))

    def __repr__(self) -> str:
        return f"DatasetDigest(ordered={self.ordered}, unordered={self.unordered}, count={self.count})"


def _is_hex(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None
