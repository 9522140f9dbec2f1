"""Which rows a step rejects: by a condition, by the size of images, by a function.

Filters look at references, columns in memory, and the first bytes of images: the payload of a row that is left out is
never read. Positions of items stay as they were.

Source: NeMo Curator 1.4.0, `stages/interleaved/stages.py`, for the meaning of the bounds of an aspect ratio, and for
images whose size cannot be read: they do not pass. It numbers positions anew; lading does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import files_of, is_ref
from lading._core.arrow.views import is_bytes, present, slices, take_values
from lading._core.content.conditions import Condition
from lading._core.content.field_paths import FieldPath, Wanted
from lading._core.content.image import image_info, is_image, usual_sizes
from lading._core.content.nested import close_to, empty_batch, plain, value_at
from lading._core.dataset.transform.sample_functions import of_batch
from lading._core.dataset.values.field_values import advice_about, meant_fields, read_fields, refuse_absent
from lading._core.dataset.values.json_values import FieldColumn
from lading._core.features.items import METADATA_POSITION, RESERVED, sample_starts, samples_with
from lading._core.features.row_layout import row_layout
from lading._core.features.types import feature_of
from lading._core.formats.base import RowFilter
from lading._core.storage.fetch import Fetcher
from lading.errors import CorruptShard, DataError, LadingError, UsageError

if TYPE_CHECKING:
    from lading._core.dataset.steps.base import Step
    from lading._core.dataset.steps.filter_steps import ImageBounds

__all__ = [
    "UNREADABLE",
    "FailsCondition",
    "OutOfBounds",
    "Rejects",
    "advice_about_missing",
    "check_types",
    "fails_function",
    "left_rows",
    "of_other_kind",
    "row_filter_of",
    "without",
]

Rejects: TypeAlias = Callable[[pa.RecordBatch], Mapping[str, NDArray[np.bool_]]]
"""Gives, for a batch of rows, the rejected rows by reason."""

UNREADABLE = "values that cannot be read"
"""The reason of samples that are left out because a condition cannot be looked up in them."""

_SHOWN_LABELS = 50
_HEAD_BYTES = (512, 64 << 10)
"""First bytes of an image that are looked at, then more where they were too few; at last all of it."""


def row_filter_of(steps: Sequence[Step], view: str, fetcher: Fetcher) -> RowFilter | None:
    """The conditions on rows of the source that come before steps which look at payload; None without conditions."""
    leading = [*takewhile(lambda step: not step.reads_values, steps)]
    if row_layout(view).has_items or all(step.keeps_samples or step.over_numbers for step in leading):
        return None
    of_source = takewhile(lambda step: step.keeps_names, leading)
    known = [condition for condition in _conditions(of_source) if condition.columns]

    def columns(names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(each.field.among(names).column for one in known for each in one.wanted))

    def passes(batch: pa.RecordBatch) -> NDArray[np.bool_]:
        kept = np.ones(batch.num_rows, np.bool_)
        for condition in known:
            try:
                kept &= left_rows(FailsCondition(condition, view, fetcher), batch, view, "row")[0]
            except LadingError:  # the steps report the error, with the place
                continue
        return kept

    return RowFilter(columns, passes)


def left_rows(
    rejects: Rejects, batch: pa.RecordBatch, view: str, drop: str
) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
    """The rows that stay, and the rejected rows by reason.

    Of documents the metadata row is not rejected itself, but where it is the only row: it goes with the last item.
    """
    layout = row_layout(view)
    judged = layout.judged(batch)
    found = {why: failing & judged for why, failing in rejects(batch).items()}
    bad = np.logical_or.reduce(list(found.values()))
    if not layout.has_items or not bad.any():
        return ~bad, found
    starts = layout.firsts(batch)
    if drop == "sample":
        return ~samples_with(bad, starts), found
    return ~bad & samples_with(judged & ~bad, starts), found


class FailsCondition:
    """Rejects rows for which a condition is not true. Rows without a field that it needs have a reason of their own.

    Args:
        condition: the condition.
        view: how rows are taken.
        fetcher: reads JSON, texts and the first bytes of media behind references.
        drops_unreadable: reject samples whose values cannot be read, such as broken JSON; else they are an error.

    Attributes:
        absent: the fields inside columns, and the columns of documents that these lack, of which no row had a fitting
            value so far; None before the first row.
        has_kept: whether the condition was true for a row.
    """

    def __init__(self, condition: Condition, view: str, fetcher: Fetcher, *, drops_unreadable: bool = False) -> None:
        self._layout, self._drops = row_layout(view), drops_unreadable
        self._condition, self._of_documents, self._fetcher = condition, self._layout.has_items, fetcher
        self.absent: list[Wanted] | None = None
        self.has_kept = False

    def __call__(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        """Return the rejected rows by reason; all rows of samples that are dropped are `UNREADABLE`."""
        return self._in_parts(batch, self._layout.bounds(batch)) if self._drops else self._rejected(batch)

    def _in_parts(self, batch: pa.RecordBatch, bounds: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Return the same; where values cannot be read, of halves, until samples with such values are alone."""
        try:
            return self._rejected(batch)
        except CorruptShard:
            raise
        except DataError:
            if len(bounds) == 2:  # noqa: PLR2004 - one sample
                return {UNREADABLE: np.ones(batch.num_rows, np.bool_)}
        found, middle = dict[str, NDArray[np.bool_]](), len(bounds) // 2
        for part in (bounds[: middle + 1], bounds[middle:]):
            first, stop = int(part[0]), int(part[-1])
            for reason, failing in self._in_parts(batch.slice(first, stop - first), part - first).items():
                found.setdefault(reason, np.zeros(batch.num_rows, np.bool_))[first:stop] = failing
        return found

    def _rejected(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        condition = self._condition
        names = condition.columns or batch.schema.names  # an expression does not say which columns it asks for
        if self._of_documents:
            names = [each.field.among(batch.schema.names).column for each in condition.wanted] or names
            batch = _told_to_all(batch, names)
        found = self._values(batch)
        truth = condition.truth(batch, {each: column.values for each, column in found.items()})
        kept, known = np.asarray(truth.fill_null(False).to_numpy(zero_copy_only=False)), present(truth)  # noqa: FBT003 - pyarrow takes it by position only
        self.has_kept |= bool(kept.any())
        reasons, others = self._without(found, ~known)
        return {f"not where {condition.text}": (~kept & known) | others, **reasons}

    def _values(self, batch: pa.RecordBatch) -> dict[Wanted, FieldColumn]:
        wanted = self._condition.wanted
        check_condition(self._condition, batch.schema)
        found = dict(zip(wanted, read_fields(batch, wanted, self._fetcher), strict=True))
        if len(batch) and not self.has_kept:
            there = {each for each, column in found.items() if present(column.values).any()}
            before = self.absent
            if before is None:
                before = [each for each, column in found.items() if self._may_lack(each, column)]
            self.absent = [each for each in before if each not in there]
        return found

    def _may_lack(self, wanted: Wanted, column: FieldColumn) -> bool:
        """Whether a row without a value lacks the field: inside a column, or of documents without such a column."""
        return bool(wanted.field.path) or (self._of_documents and pa.types.is_null(column.values.type))

    def _without(
        self, found: Mapping[Wanted, FieldColumn], unknown: NDArray[np.bool_]
    ) -> tuple[dict[str, NDArray[np.bool_]], NDArray[np.bool_]]:
        """Return the rows whose condition is null by the first field to blame, and those of which no field is."""
        reasons: dict[str, NDArray[np.bool_]] = {}
        for wanted, column in found.items():
            other = np.zeros(len(unknown), np.bool_) if column.others is None else column.others & unknown
            may_lack = wanted.use != "presence" and self._may_lack(wanted, column)
            absent = ~present(column.values) & unknown & ~other & may_lack
            named = (of_other_kind(wanted), other), (without(wanted.field), absent)
            for reason, rows in named:
                if rows.any():
                    reasons[reason] = reasons.get(reason, rows) | rows
            unknown = unknown & ~other & ~absent
        return reasons, unknown


_OTHER_KIND = {"text": "not text", "number": "not a number", "bool": "not true or false", "length": "without a length",
               "list": "not a list"}  # fmt: skip


def of_other_kind(wanted: Wanted) -> str:
    """Return the reason of rows whose value is of another kind than a condition needs."""
    return f"{wanted.field} is {_OTHER_KIND.get(wanted.use)}"


def without(field: FieldPath) -> str:
    """Return the reason of rows that lack a field."""
    return f"without {field}"


def check_condition(condition: Condition, schema: pa.Schema) -> None:
    """Raise the errors that rows of this schema would meet whatever their values.

    Raises:
        UsageError: a column is missing, has no such field or label, or its type does not fit; names the place in the
            condition.
    """
    for wanted in condition.wanted:
        try:
            refuse_absent(schema, wanted.field)
        except UsageError as error:
            error.advice = _about_quotes(condition, wanted, schema, error.advice)
            raise condition.located(error, wanted) from None
    for wanted, text in condition.texts:
        path = wanted.field.among(schema.names)
        labels = None if path.path else feature_of(schema.field(path.column)).labels
        if labels and text not in labels:
            shown = ", ".join(labels[:_SHOWN_LABELS]) + (", …" if len(labels) > _SHOWN_LABELS else "")
            raise UsageError("the column has no such label", column=path.column, expected=shown, found=repr(text),
                             advice=close_to(text, labels))  # fmt: skip


def _conditions(steps: Iterable[Step]) -> list[Condition]:
    return [step.row_condition for step in steps if step.row_condition is not None]


def advice_about_missing(name: str, steps: Sequence[Step], schema: pa.Schema) -> str | None:
    """Return advice about a column that no shard has: the field that a condition among the steps probably means."""
    advice = advice_about(FieldPath(name), schema)
    for condition in _conditions(steps):
        for wanted in condition.wanted:
            if wanted.field.column == name:
                return _about_quotes(condition, wanted, schema, advice_about(wanted.field, schema))
    return advice


def _about_quotes(condition: Condition, wanted: Wanted, schema: pa.Schema, advice: str | None) -> str | None:
    """Return advice about a missing column, and to put a text into quotes: `lang == 'en'`, not `lang == en`."""
    pair = condition.compared(wanted)
    if pair is None or pair[2].path or pair[2].column in schema.names:
        return advice
    left, sign, text = pair
    close = close_to(wanted.field.column, schema.names)
    if wanted.field == left:
        similar = [] if close is None else [name for name in schema.names if close == f"Did you mean {name}?"]
        meant = [FieldPath(name, left.path) for name in similar] or meant_fields(left, schema)
        left = meant[0] if meant else left
    else:
        advice = close
    return " ".join(filter(None, (advice, f"Texts stand in quotes: {left} {sign} {text.column!r}.")))


def check_types(condition: Condition, schema: pa.Schema, fetcher: Fetcher) -> None:
    """Raise the errors of `check_condition`, and those of types that do not fit the condition."""
    check_condition(condition, schema)
    empty = empty_batch(schema)
    columns = read_fields(empty, condition.wanted, fetcher)
    condition.truth(empty, {each: column.values for each, column in zip(condition.wanted, columns, strict=True)})


def fails_function(function: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
    """Return the rows for which a function over batches is not true, by reason."""
    answer = of_batch(function, batch, "filter_batches")
    try:
        kept = pa.array(answer.to_pylist() if isinstance(answer, pa.ChunkedArray) else answer, pa.bool_())
    except (pa.ArrowException, TypeError) as error:
        raise UsageError("the function must return a truth value for every row", found=str(error)) from error
    if len(kept) != batch.num_rows:
        raise UsageError("the function must return a truth value for every row",
                         expected=f"{batch.num_rows} values", found=len(kept))  # fmt: skip
    return {"left out by the function": ~np.asarray(kept.fill_null(False).to_numpy(zero_copy_only=False))}  # noqa: FBT003 - pyarrow takes it by position only


class OutOfBounds:
    """Rejects rows with an image that cannot be measured, and with one that is outside the bounds."""

    def __init__(self, bounds: ImageBounds, view: str, fetcher: Fetcher) -> None:
        self._bounds, self._layout, self._fetcher = bounds, row_layout(view), fetcher

    def __call__(self, batch: pa.RecordBatch) -> dict[str, NDArray[np.bool_]]:
        """Return the rejected rows by reason."""
        unknown, outside = np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_)
        for name in self._image_columns(batch.schema):
            rows = np.flatnonzero(self._layout.has_image(batch, name))
            width, height = self._sizes(batch, name, rows)
            unknown[rows] |= width < 0
            measured = width > 0
            outside[rows[measured]] |= ~self._bounds.fit(width[measured], height[measured])
        return {"images whose size cannot be read": unknown, "images outside the bounds": outside & ~unknown}

    def _image_columns(self, schema: pa.Schema) -> list[str]:
        images = self._layout.image_columns(schema)
        wanted = [
            field.name
            for field in schema
            if field.name in images and (is_ref(field.type) or is_bytes(field.type) or pa.types.is_struct(field.type))
        ]
        if not wanted:
            raise UsageError("no column holds images to be measured", found=", ".join(schema.names),
                             advice="Bytes are measured by conditions: --where 'NAME.width >= 256'.")  # fmt: skip
        return wanted

    def _sizes(
        self, batch: pa.RecordBatch, name: str, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Width and height of the images in some rows; −1 where they cannot be read, 0 where no byte is available."""
        column = plain(batch.column(name))
        if pa.types.is_struct(column.type):  # as Hugging Face stores media
            column = plain(value_at(column, FieldPath("", ("bytes",))))
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
"""Number of an image, and its first bytes; None if they are unavailable."""


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
