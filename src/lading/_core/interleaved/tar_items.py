"""Item rows, by column, in the order of an interleaved tar; and the rows that it cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.views import present
from lading._core.features.items import METADATA_POSITION, MODALITIES, sample_starts
from lading.errors import DataError, LimitExceeded, Unrepresentable

__all__ = ["IMAGE", "MAX_POSITIONS", "METADATA", "TEXT", "Clash", "Items", "clashes", "numbers", "refuse_modalities"]

METADATA, TEXT, IMAGE = range(len(MODALITIES))
"""Modalities as numbers: their indexes in `MODALITIES`."""

MAX_POSITIONS = 1_000_000
"""Maximum number of positions of a sample: a tar's lists have an entry for each, filled or not."""

_Misfit: TypeAlias = tuple[str, str, NDArray[np.bool_]]
"""The problem, the column, and the rows."""


@dataclass(frozen=True, slots=True)
class Items:
    """Rows of whole samples, each in the order of a tar: by position, a text before an image.

    Attributes:
        batch: the given rows.
        row: row in the batch, of each item.
        sample: number of its sample, from 0 on.
        kind: its modality, as a number.
        position: its position.
        filled: whether it has the value of its modality: a text its text, an image its bytes.
        bounds: items of sample i are `bounds[i]:bounds[i + 1]`.
        size: entries of each sample's lists; `MAX_POSITIONS` + 1 if they exceed the maximum.
        ranges: file range of each row's payload; None if it is in the batch.
    """

    batch: pa.RecordBatch
    row: NDArray[np.int64]
    sample: NDArray[np.int64]
    kind: NDArray[np.int64]
    position: NDArray[np.int64]
    filled: NDArray[np.bool_]
    bounds: NDArray[np.int64]
    size: NDArray[np.int64]
    ranges: ByteRanges | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, ranges: ByteRanges | None = None) -> Self:
        """Return all rows of a batch.

        Raises:
            Unrepresentable: a row that such a tar cannot hold; names row, column and sample.
            DataError: a row without `sample_id`.
        """
        kind = _kinds(batch)
        # A number beyond 64 bits becomes negative, and is refused.
        position = batch.column("position")
        position = numbers(
            position.cast(pa.int64(), safe=not pa.types.is_integer(position.type)), without=METADATA_POSITION - 1
        )
        filled = _refuse_misfits(batch, kind, position)
        starts = sample_starts(batch.column("sample_id"))
        bounds = np.append(starts, len(kind))
        sample = np.repeat(np.arange(len(starts)), np.diff(bounds))
        near = np.minimum(position, MAX_POSITIONS)
        size = 1 + np.maximum.reduceat(near, starts)
        row, place = np.arange(len(kind)), 2 * near + (kind != TEXT)
        if np.any((np.diff(place) < 0) & (np.diff(sample) == 0)):
            row = np.lexsort((place, sample))
            kind, position, filled = kind[row], position[row], filled[row]
        return cls(batch, row, sample, kind, position, filled, bounds, size, ranges)

    def part(self, first: int, stop: int) -> Self:
        """Return the items of the samples `[first, stop)`."""
        if (first, stop) == (0, len(self.size)):
            return self
        a, b = int(self.bounds[first]), int(self.bounds[stop])
        return replace(
            self, batch=self.batch.slice(a, b - a), row=self.row[a:b] - a, sample=self.sample[a:b] - first,
            kind=self.kind[a:b], position=self.position[a:b], filled=self.filled[a:b],
            bounds=self.bounds[first : stop + 1] - a, size=self.size[first:stop],
            ranges=None if self.ranges is None else self.ranges[a:b],
        )  # fmt: skip

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """Return which items are texts without text: their list entries are null, and readers skip them."""
        gaps: NDArray[np.bool_] = (self.kind == TEXT) & ~self.filled
        return gaps

    def there(self, name: str) -> NDArray[np.bool_]:
        """Return which items have a value in a column."""
        at = self.batch.schema.get_field_index(name)
        return np.zeros(len(self.row), np.bool_) if at < 0 else present(self.batch.column(at))[self.row]

    def texts(self, name: str) -> pa.StringArray | pa.LargeStringArray:
        """Return a text column, all rows of the batch unchanged; nulls if the column is missing."""
        if name not in self.batch.schema.names:
            return pa.nulls(self.batch.num_rows, pa.string())
        column = self.batch.column(name)
        return column if isinstance(column, pa.StringArray) else column.cast(pa.large_string())

    def sample_id(self, sample: int) -> Any:
        """Return the id of a sample."""
        return self.batch.column("sample_id")[int(self.bounds[sample])].as_py()


def numbers(column: pa.Array, *, without: int) -> NDArray[np.int64]:
    """Return an integer column; `without` where it is null."""
    filled = column.fill_null(without) if column.null_count else column
    return np.asarray(filled.to_numpy(), np.int64)


def _refuse_misfits(batch: pa.RecordBatch, kind: NDArray[np.int64], position: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Raise Unrepresentable for rows that a tar cannot hold; return the rows with text or bytes."""
    misfits: list[_Misfit] = [
        _other_modality(kind),
        ("only the metadata row has the position −1", "position",
         np.where(kind == METADATA, position != METADATA_POSITION, position < 0)),
    ]  # fmt: skip
    filled = np.zeros(len(kind), np.bool_)
    for column, owner, message in (
        ("text_content", TEXT, "only a text item has text"),
        ("binary_content", IMAGE, "only an image item has bytes"),
    ):
        if column in batch.schema.names:
            there = present(batch.column(column))
            misfits.append((message, column, there & (kind != owner)))
            filled |= there
    _refuse(batch, misfits)
    return filled


def refuse_modalities(batch: pa.RecordBatch) -> None:
    """Raise Unrepresentable for an item whose modality such a tar cannot hold, whatever else it holds."""
    _refuse(batch, [_other_modality(_kinds(batch))])


def _kinds(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return modalities as numbers; −1 for others."""
    modality = batch.column("modality").cast(pa.string())  # pyarrow cannot look up values in views
    return numbers(pc.index_in(modality, value_set=pa.array(MODALITIES)), without=-1)


def _other_modality(kind: NDArray[np.int64]) -> _Misfit:
    return "a tar holds metadata, text and image items only", "modality", kind < 0


def _refuse(batch: pa.RecordBatch, misfits: Sequence[_Misfit]) -> None:
    for message, column, mask in misfits:
        if mask.any():
            row = int(np.argmax(mask))
            value = batch.column(column)[row].as_py() if column != "binary_content" else "bytes"
            modality = batch.column("modality")[row].as_py()
            raise Unrepresentable(message, row=row, sample=batch.column("sample_id")[row].as_py(), column=column,
                                  found=f"{str(value)[:60]!r} in a row of modality {modality!r}",
                                  advice="Drop such rows, or write Parquet.")  # fmt: skip


Clash = tuple[int, DataError]
"""A sample that the lists of a tar cannot hold, by its number, and the error."""


def clashes(items: Items) -> list[Clash]:
    """Return samples that the lists cannot hold: the first of each kind, in the order of checks within a sample."""
    found = [_several_metadata(items), _far_position(items), _taken_position(items)]
    return [clash for clash in found if clash is not None]


def _several_metadata(items: Items) -> Clash | None:
    several = np.bincount(items.sample[items.kind == METADATA]) > 1
    if not several.any():
        return None
    sample = int(np.argmax(several))
    return sample, Unrepresentable("a tar holds one metadata row a sample", row=int(items.bounds[sample]),
                                   sample=items.sample_id(sample), column="modality", found="several")  # fmt: skip


def _far_position(items: Items) -> Clash | None:
    sample = int(np.argmax(items.size > MAX_POSITIONS))
    if items.size[sample] <= MAX_POSITIONS:
        return None
    start, stop = items.bounds[sample : sample + 2].tolist()
    return sample, LimitExceeded(
        "the lists of a sample would be too long: one entry a position", row=start, sample=items.sample_id(sample),
        column="position", expected=f"positions below {MAX_POSITIONS:,}",
        found=f"{items.position[start:stop].max():,}", advice="Number the items anew, or write Parquet.",
    )  # fmt: skip


def _taken_position(items: Items) -> Clash | None:
    same = (np.diff(items.sample) == 0) & (np.diff(items.position) == 0) & (np.diff(items.kind) == 0)
    # A null text is a gap, and leaves its place to the text after it; an image without bytes keeps its name there.
    taken = same & (items.filled | (items.kind == IMAGE))[:-1]
    if not taken.any():
        return None
    second = int(np.argmax(taken)) + 1
    sample, what = int(items.sample[second]), MODALITIES[items.kind[second]]
    return sample, Unrepresentable(
        f"two {what}s of a sample have one position", row=int(items.row[second]), sample=items.sample_id(sample),
        column="position", found=int(items.position[second]),
    )  # fmt: skip
