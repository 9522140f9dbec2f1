"""Payload in the place of references, or the files from which the writer takes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.features.items import split_rows
from lading._core.pipeline.batch import Batch
from lading._core.storage.fetch import Fetcher, OnFailure, earlier_errors
from lading._core.storage.roots import ELSEWHERE
from lading.errors import BadReference, errors_at
from lading.options import OnError

__all__ = ["advising", "fetched", "fetched_parts"]

_ADVICE = (
    f"{ELSEWHERE} Or choose what happens to such rows: --on-error warn, --on-error drop_row or --on-error drop_sample."
)


@contextmanager
def advising() -> Iterator[None]:
    """Name the option that decides about rows whose payload is unavailable, where there is such an option."""
    try:
        yield
    except BadReference as error:
        error.advice = _ADVICE if error.advice in (None, ELSEWHERE) else error.advice
        raise


def fetched(batch: Batch, fetcher: Fetcher, in_files: Collection[str]) -> Batch:
    """Return the batch without references.

    Args:
        batch: the rows.
        fetcher: reads references.
        in_files: columns whose payload the writer may take from files: those of large values in files of this machine
            are left to it.

    Raises:
        BadReference: a reference without bytes.
    """
    references = [f.name for f in batch.schema if is_ref(f.type)]
    if not references:
        return batch
    ranges = fetcher.file_ranges(batch.rows.select([*in_files])) if in_files else {}
    left = [name for name in references if name not in ranges]
    rows = batch.rows
    if left or earlier_errors(rows):
        [rows] = fetcher.materialise_parts(rows, None, 0, left, views=True)
    return batch.with_rows(rows, ranges=ranges)


def fetched_parts(
    batch: Batch,
    fetcher: Fetcher,
    max_bytes: int,
    *,
    columns: Sequence[str] | None = None,
    views: bool = False,
    on_error: OnError = "error",
    earlier: bool = True,
    on_failure: OnFailure | None = None,
) -> Iterator[Batch]:
    """Give the batch with its payload, in parts of whole samples of up to `max_bytes`, packed or unpacked.

    A larger sample stays whole. So pages of packed values are given back with each part. Where rows may be dropped, no
    part has two samples of one id: without the samples between them, they would become one.

    Args:
        batch: the rows.
        fetcher: reads references.
        max_bytes: see above.
        columns: as `Fetcher.materialise` takes them, and so all that follow.
        views: see there.
        on_error: see there.
        earlier: see there.
        on_failure: see there; rows count from the start of the batch.
    """
    drops = on_error in ("drop_row", "drop_sample")
    for first, stop in pairwise(_bounds(batch, max_bytes, apart=drops)):
        part = batch.slice(first, stop)
        report = None if on_failure is None else partial(_failed_behind, on_failure, first)
        with errors_at(first_row=first):
            for rows in fetcher.materialise_parts(
                part.rows, part.starts, max_bytes, columns, on_error, views=views, earlier=earlier,
                on_failure=report,
            ):  # fmt: skip
                yield part.with_rows(rows) if rows.num_rows == part.num_rows else Batch(rows, batch.view)
                del rows  # before as much is unpacked again


def _failed_behind(
    on_failure: OnFailure, before: int, rows: pa.RecordBatch, errors: dict[int, str], first: int
) -> None:
    """Report failed rows of a part that begins so many rows behind the start of its batch."""
    on_failure(rows, errors, before + first)


def _bounds(batch: Batch, max_bytes: int, *, apart: bool) -> list[int]:
    """Bounds of parts of a batch that keep the limit, and with `apart` have each id once."""
    if not batch.num_rows:
        return [0]
    outer = batch.row_layout.distinct_bounds(batch.rows) if apart else [0, batch.num_rows]
    if batch.size_bytes <= max_bytes:
        return outer
    bounds = [0]
    for first, stop in pairwise(outer):
        part = batch.slice(first, stop)
        inner: NDArray[np.int64] = split_rows(part.starts, part.row_bytes, max_bytes=max_bytes)
        bounds += (inner[1:] + first).tolist()
    return bounds
