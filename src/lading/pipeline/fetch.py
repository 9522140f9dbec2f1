"""Payload in the place of references, or the files from which the writer takes it."""

from __future__ import annotations

from lading.arrow.references import is_ref
from lading.pipeline.batch import Batch
from lading.storage.fetch import Fetcher

__all__ = ["fetched"]


def fetched(batch: Batch, fetcher: Fetcher, *, takes_ranges: bool) -> Batch:
    """Return the batch without references.

    Args:
        batch: the rows.
        fetcher: reads references.
        takes_ranges: whether the writer takes payload from files: columns of large values in files of this machine are
            left to it then.

    Raises:
        BadReference: a reference without bytes.
    """
    references = [f.name for f in batch.schema if is_ref(f.type)]
    if not references:
        return batch
    ranges = fetcher.file_ranges(batch.rows) if takes_ranges else {}
    rows = fetcher.materialise(batch.rows, [name for name in references if name not in ranges], views=True)
    return batch.with_rows(rows, ranges=ranges)
