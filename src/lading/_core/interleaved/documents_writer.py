"""Convert item rows to documents with media (`_core.formats.media_archive.format`), one a sample.

    id              the sample's
    text            its texts, separated by line ends
    media           one for each item with bytes, in order: `id` is its position, `type` its modality
    lading_items    all items in the form of `_core.interleaved.packed`, so that the reader restores the exact rows

A document has one text without places for images, so the texts are stored twice.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.views import byte_lengths, join, present
from lading._core.content.documents import MEDIA, media_lists
from lading._core.features.types import Json, with_feature
from lading._core.interleaved.documents import ITEMS_COLUMN, MODALITIES
from lading._core.interleaved.packed_writer import packed_ids, packed_items

__all__ = ["ITEM_DOCUMENTS", "documents_of_items"]

_BETWEEN = "\n\n"
_OTHER = len(MODALITIES) - 1

ITEM_DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.large_string()),
        pa.field("media", pa.list_(MEDIA)),
        with_feature(pa.field(ITEMS_COLUMN, pa.large_string()), Json()),
    ]
)
"""The columns of documents of interleaved samples."""


def documents_of_items(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return documents of `ITEM_DOCUMENTS`; the batch holds whole samples, payload as bytes or views.

    Memory: a copy of the payload, if it comes as views.

    Raises:
        DataError: a row without id, position or modality.
        Unrepresentable: a column that JSON cannot hold; invalid JSON in a JSON column. Names column, row.
    """
    ids, bounds = packed_ids(batch)
    at = batch.schema.get_field_index("binary_content")
    payload = pa.nulls(batch.num_rows, pa.large_binary()) if at < 0 else join(batch.column(at)).cast(pa.large_binary())
    there = present(payload)
    items = packed_items(batch, bounds, pa.array(byte_lengths(payload), mask=~there))
    return pa.record_batch(
        [ids, _texts(batch, bounds), _media(batch, bounds, payload, there), items], schema=ITEM_DOCUMENTS
    )


def _texts(batch: pa.RecordBatch, bounds: NDArray[np.int64]) -> pa.Array:
    """Return the texts of each sample as one text."""
    column = batch.column("text_content") if "text_content" in batch.schema.names else pa.nulls(len(batch))
    texts = column.cast(pa.large_string())
    said = np.flatnonzero(present(texts))
    ends = pa.array(np.searchsorted(said, bounds))
    lists = pa.LargeListArray.from_arrays(ends.cast(pa.int64()), texts.take(pa.array(said)))
    return pc.binary_join(lists, pa.scalar(_BETWEEN, pa.large_string()))


def _media(
    batch: pa.RecordBatch, bounds: NDArray[np.int64], payload: pa.Array, there: NDArray[np.bool_]
) -> pa.ListArray:
    """Return the items with bytes as media of their documents."""
    rows = np.flatnonzero(there)
    kinds = pc.index_in(batch.column("modality"), value_set=pa.array(MODALITIES)).take(pa.array(rows))
    ids = batch.column("position").take(pa.array(rows))
    values = payload.take(pa.array(rows)) if len(rows) < len(there) else payload
    return media_lists(ids, kinds.fill_null(_OTHER), values, np.searchsorted(rows, bounds))
