"""What a job leaves out because somebody asked for it: rows by a condition, by the size of images, by a function.

Filters look at references, columns in memory, and the first bytes of images: the payload of a row that is left out is
never read. Of interleaved samples single items may go, or whole samples; a sample goes when none of its items is left,
and its metadata row never goes before. Positions stay as they were.

Source: NeMo Curator 1.4.0, `stages/interleaved/stages.py`, for what the bounds of an aspect ratio mean, and for images
whose size cannot be read: they do not pass. It numbers positions anew; lading does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.arrow.references import files_of, is_ref
from lading.arrow.views import is_bytes, present, slices, take_rows, take_values, without_views
from lading.content.conditions import Where, as_where
from lading.content.image import image_info, is_image, usual_sizes
from lading.errors import UsageError
from lading.features.items import METADATA_POSITION, RESERVED, sample_firsts, sample_starts, samples_with
from lading.features.types import Image, feature_of
from lading.jobs.ledger import ALONG, DROPPED, DROPPED_ALONG, Loss
from lading.options import Drop
from lading.storage.fetch import ERROR_COLUMN, Fetcher

__all__ = ["AppliedFilters", "Filters", "Hook"]

Hook: TypeAlias = Callable[[pa.RecordBatch], Any]
"""A function of the user's over a batch."""

_HEAD_BYTES = (512, 64 << 10)
"""First bytes of an image that are looked at, then more where they were too few; at last all of it."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep. Bounds are inclusive; an image whose size cannot be read is within none.

    Attributes:
        where: condition over columns (`lading.content.conditions`), or an Arrow expression. A column that only
            metadata rows fill holds for all rows of their sample.
        min_aspect_ratio, max_aspect_ratio: of images: width / height.
        min_side, max_side: of images, in pixels: the shorter side at least, the longer at most.
        keep: called with each batch (payload as references, or as `large_binary`); gives a truth value a row.
        drop: of interleaved samples: whether a row that fails goes alone or takes its sample along.
    """

    where: str | pc.Expression | None = None
    min_aspect_ratio: float | None = None
    max_aspect_ratio: float | None = None
    min_side: int | None = None
    max_side: int | None = None
    keep: Hook | None = None
    drop: Drop = "row"

    def __post_init__(self) -> None:
        """Refuse bounds that nothing can be within."""
        if self.drop not in get_args(Drop):
            raise UsageError("no such choice", expected=" or ".join(get_args(Drop)), found=f"drop={self.drop!r}")
        for low, high in (("min_aspect_ratio", "max_aspect_ratio"), ("min_side", "max_side")):
            least, most = getattr(self, low), getattr(self, high)
            if any(bound is not None and not bound >= 0 for bound in (least, most)):
                raise UsageError("a bound is a number from 0 on", found=f"{low}={least}, {high}={most}")
            if least is not None and most is not None and least > most:
                raise UsageError("no image is within these bounds", found=f"{low}={least}, {high}={most}")

    @property
    def active(self) -> bool:
        """Whether anything may be left out."""
        return self.looks or self.sizes

    @property
    def looks(self) -> bool:
        """Whether columns are looked at: by a condition, or by a function of the user's."""
        return self.where is not None or self.keep is not None

    @property
    def sizes(self) -> bool:
        """Whether images are measured."""
        return any(b is not None for b in (self.min_aspect_ratio, self.max_aspect_ratio, self.min_side, self.max_side))

    def fit(self, width: NDArray[np.int64], height: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which images are within the bounds."""
        ratio, short, long = width / height, np.minimum(width, height), np.maximum(width, height)
        fits = np.ones(len(width), np.bool_)
        for values, least, most in (
            (ratio, self.min_aspect_ratio, self.max_aspect_ratio),
            (short, self.min_side, None),
            (long, None, self.max_side),
        ):
            fits &= (values >= least) if least is not None else True
            fits &= (values <= most) if most is not None else True
        return fits


class AppliedFilters:
    """Applies filters to batches of one view.

    Args:
        filters: what to keep.
        view: how rows are taken.
        fetcher: what the first bytes of images are read with.

    Raises:
        UsageError: the condition is none.
    """

    def __init__(self, filters: Filters, view: str, fetcher: Fetcher) -> None:
        self._filters, self._view, self._fetcher = filters, view, fetcher
        self._where: Where | None = None if filters.where is None else as_where(filters.where)
        steps = (
            (self._where is not None, self._not_where),
            (filters.sizes, self._misfits),
            (filters.keep is not None, self._not_kept),
        )
        self._steps = [step for wanted, step in steps if wanted]

    def check(self, schema: pa.Schema) -> None:
        """Raise UsageError for a condition that does not fit rows of this schema."""
        if self._where is not None:
            self._where.check(schema)

    def apply(self, batch: pa.RecordBatch, most: int | None = None) -> tuple[pa.RecordBatch, list[Loss]]:
        """The rows that are kept, and what was left out: by the condition, then by sizes, then by the function.

        Each looks only at what the one before has left. Raises UsageError for a condition or a function that does not
        fit the columns.

        Args:
            batch: whole samples.
            most: samples to keep, at least 1; of what comes behind the last of them nothing is kept or told.
        """
        whole, rows = batch, np.arange(batch.num_rows)  # of the whole, those that are left
        losses: list[tuple[NDArray[np.int64], Loss]] = []
        for step in self._steps:
            if not batch.num_rows:
                break
            counted = self._counted(batch)
            found = {why: failing & counted for why, failing in step(batch).items()}
            bad = np.logical_or.reduce(list(found.values()))
            if bad.any():
                kept = self._kept(batch, bad, counted)
                fate = DROPPED_ALONG if self._filters.drop == "sample" else DROPPED
                lost = [Loss(why, fate, batch, np.flatnonzero(failing & ~kept)) for why, failing in found.items()]
                lost.append(Loss(ALONG, DROPPED, batch, np.flatnonzero(~bad & ~kept)))
                losses += [(rows[loss.rows], loss) for loss in lost]
                left = np.flatnonzero(kept)
                batch, rows = take_rows(batch, left), rows[left]
        if most is not None and len(firsts := np.append(sample_firsts(batch, self._view), batch.num_rows)) > most:
            batch = batch.slice(0, int(firsts[most]))
            ends = np.append(sample_firsts(whole, self._view)[1:], whole.num_rows)
            end = ends[np.searchsorted(ends, rows[firsts[most] - 1], side="right")]
            losses = [(told, replace(loss, rows=loss.rows[told < end])) for told, loss in losses]
        return batch, [loss for _, loss in losses if len(loss.rows)]

    def _counted(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Rows that a filter may leave out: not the metadata row of a sample that has items."""
        if self._view == "samples":
            return np.ones(batch.num_rows, np.bool_)
        starts = sample_starts(batch.column("sample_id"))
        item = np.asarray(batch.column("position").to_numpy() != METADATA_POSITION, np.bool_)
        return item | ~samples_with(item, starts)

    def _kept(self, batch: pa.RecordBatch, bad: NDArray[np.bool_], counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows stay, if these fail."""
        if self._view == "samples":
            return ~bad
        starts = sample_starts(batch.column("sample_id"))
        if self._filters.drop == "sample":
            return ~samples_with(bad, starts)
        return ~bad & samples_with(counted & ~bad, starts)

    # Condition and function

    def _not_where(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        assert self._where is not None, "a step only then"
        names = self._where.columns or batch.schema.names  # an expression does not say what it asks for
        told = _told_to_all(batch, names) if self._view == "interleaved" else batch
        return {f"not where {self._where.text}": ~self._where.mask(told)}

    def _not_kept(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        assert self._filters.keep is not None, "a step only then"
        answer = self._filters.keep(without_views(batch))
        try:
            kept = pa.array(answer.to_pylist() if isinstance(answer, pa.ChunkedArray) else answer, pa.bool_())
        except (pa.ArrowException, TypeError) as error:
            raise UsageError("the function gives a truth value for every row", found=str(error)) from error
        if len(kept) != batch.num_rows:
            raise UsageError("the function gives a truth value for every row",
                             expected=f"{batch.num_rows} values", found=len(kept))  # fmt: skip
        return {"left out by the function": ~np.asarray(kept.fill_null(False).to_numpy(zero_copy_only=False))}  # noqa: FBT003 - pyarrow takes it by position only

    # Images

    def _misfits(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        """Rows with an image that cannot be measured, and with one that is outside the bounds."""
        unknown, outside = np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_)
        for name in self._image_columns(batch.schema):
            rows = self._with_image(batch, name)
            width, height = self._sizes(batch, name, rows)
            unknown[rows] |= width < 0
            measured = width > 0
            outside[rows[measured]] |= ~self._filters.fit(width[measured], height[measured])
        return {"images whose size cannot be read": unknown, "images outside the bounds": outside & ~unknown}

    def _image_columns(self, schema: pa.Schema) -> list[str]:
        wanted = [
            field.name
            for field in schema
            if (field.name == "binary_content" if self._view == "interleaved" else isinstance(feature_of(field), Image))
            and (is_ref(field.type) or is_bytes(field.type))
        ]
        if not wanted:
            raise UsageError("no column holds images to be measured", found=", ".join(schema.names))
        return wanted

    def _with_image(self, batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
        """Rows that are to be measured: items that are images, samples that have one."""
        if self._view == "samples":
            return np.flatnonzero(present(batch.column(name)))
        image = np.asarray(pc.equal(batch.column("modality"), "image").to_numpy(zero_copy_only=False), np.bool_)
        if ERROR_COLUMN in batch.schema.names:
            image &= ~present(batch.column(ERROR_COLUMN))  # what becomes of these another policy says
        return np.flatnonzero(image)

    def _sizes(
        self, batch: pa.RecordBatch, name: str, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Width and height of the images in some rows; −1 where they cannot be read, 0 where no byte can be had."""
        column = batch.column(name)
        size = np.full((2, len(rows)), -1, np.int64)
        if not is_ref(column.type):
            values = slices(column)
            for i, row in enumerate(rows.tolist()):
                _measure(size, i, values[row])
            return size[0], size[1]
        files, left = files_of(batch.schema), np.arange(len(rows))
        there = present(column)[rows]
        for most in (*_HEAD_BYTES, None):
            found = self._fetcher.heads(column.take(pa.array(rows[left])), files, most)
            heads: Iterable[_Head] = zip(left.tolist(), found, strict=True)
            if most == _HEAD_BYTES[0]:
                heads = _measure_usual(size, list(heads), most)
            again = []
            for i, head in heads:
                if head is None:
                    size[:, i] = 0 if there[i] else -1  # 0: to fetch it will fail, and tell why
                elif not _measure(size, i, head) and len(head) == most and is_image(head):
                    again.append(i)
            left = np.array(again, np.int64)
            if not len(left):
                break
        return size[0], size[1]


_Head: TypeAlias = tuple[int, bytes | memoryview | None]
"""Number of an image, and its first bytes; None if they cannot be had."""


def _measure_usual(size: NDArray[np.int64], heads: list[_Head], most: int) -> list[_Head]:
    """Write down the sizes that can be told of many images at once; give the others."""
    whole = [(i, head) for i, head in heads if head is not None and len(head) == most]
    if not whole:
        return heads
    matrix = np.frombuffer(b"".join([head for _, head in whole]), np.uint8).reshape(-1, most)
    numbers = np.array([i for i, _ in whole])
    size[:, numbers] = usual_sizes(matrix)
    return [(i, head) for i, head in heads if size[0, i] < 0]


def _measure(size: NDArray[np.int64], i: int, data: bytes | memoryview | None) -> bool:
    """Write down what an image's first bytes say of its size; whether they say it."""
    info = None if data is None else image_info(data)
    if info is not None:
        size[:, i] = info.width, info.height
    return info is not None


def _told_to_all(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch with what the metadata row says of a sample said by all of its rows, where they say nothing."""
    wanted = [name for name in columns if name in batch.schema.names and name not in RESERVED]
    if not wanted:
        return batch
    starts = sample_starts(batch.column("sample_id"))
    counts = np.diff(np.append(starts, batch.num_rows))
    metadata = np.asarray(batch.column("position").to_numpy() == METADATA_POSITION, np.bool_)
    speaking = np.maximum.reduceat(np.where(metadata, np.arange(batch.num_rows), -1), starts)
    of_sample = np.repeat(speaking, counts)
    for name in wanted:
        column = batch.column(name)
        told = take_values(column, np.where(present(column) | (of_sample < 0), np.arange(batch.num_rows), of_sample))
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), told)
    return batch
