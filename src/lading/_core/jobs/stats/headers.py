"""Images of a batch whose header is damaged."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.views import is_bytes, listed_values, slices
from lading._core.content.image import image_info, is_image, usual_sizes
from lading._core.features.huggingface_types import is_media
from lading._core.features.items import KEY
from lading._core.features.types import Feature, feature_of
from lading.errors import DataError

__all__ = ["broken_headers", "key_of"]

_HEAD_BYTES, _USUAL_BYTES = 16, 256


def broken_headers(batch: pa.RecordBatch, file: str, first: int) -> Iterator[DataError]:
    """Yield images that begin like a known format and have no size in their header, or that begin with zeros.

    Other first bytes are not errors: there are more image formats than are known here. An empty value is an empty file.

    Args:
        batch: rows with their bytes.
        file: the shard.
        first: number of the batch's first row in the shard.
    """
    for name, values in _images(batch):
        for row, data in _without_usual(values):
            if image_info(data) is not None:
                continue
            if is_image(data[:_HEAD_BYTES]) or not any(data[:_HEAD_BYTES]):
                yield DataError(
                    "a picture has no whole header", file=file, row=first + row, sample=key_of(batch, row),
                    column=name, expected="the size of a picture",
                    found=f"{len(data)} bytes, first {bytes(data[:8]).hex(' ')}",
                )  # fmt: skip


def _without_usual(values: Iterable[tuple[int, memoryview | None]]) -> list[tuple[int, memoryview]]:
    """Return the values that are neither empty nor, by a check of many at once, images with a size."""
    there = [(row, data) for row, data in values if data is not None and len(data)]
    long = [number for number, (_, data) in enumerate(there) if len(data) >= _USUAL_BYTES]
    heads = np.frombuffer(b"".join([there[number][1][:_USUAL_BYTES] for number in long]), np.uint8)
    sized = np.zeros(len(there), np.bool_)
    sized[long] = usual_sizes(heads.reshape(-1, _USUAL_BYTES))[0] > 0
    return [there[number] for number in np.flatnonzero(~sized).tolist()]


def key_of(batch: pa.RecordBatch, row: int) -> str | None:
    """Return the key of a row's sample, if the batch has keys."""
    name = next((name for name in ("sample_id", KEY) if name in batch.schema.names), None)
    key = None if name is None else batch.column(name)[row].as_py()
    return key if isinstance(key, str) else None


def _images(batch: pa.RecordBatch) -> Iterator[tuple[str, Iterable[tuple[int, memoryview | None]]]]:
    """Yield columns of encoded images, by row, with Hugging Face's structs and lists; of items, the rows of images."""
    items = {"modality", "binary_content"} <= {*batch.schema.names}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if items and field.name == "binary_content" and is_bytes(column.type):
            rows = zip(enumerate(slices(column)), batch.column("modality").to_pylist(), strict=True)
            yield field.name, [row for row, kind in rows if kind == "image"]
        else:
            yield from ((field.name, found) for found in _by_row(column, feature_of(field), range(batch.num_rows)))


def _by_row(
    column: pa.Array, feature: Feature, rows: abc.Sequence[int]
) -> Iterator[Iterable[tuple[int, memoryview | None]]]:
    kind = column.type
    if feature.item is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        if not _holds_images(feature):
            return
        values, parents = listed_values(column)
        yield from _by_row(values, feature.item, np.asarray(rows)[parents].tolist())
    elif feature.medium == "image":
        column = pc.struct_field(column, "bytes") if is_media(kind) else column
        if is_bytes(column.type):
            yield zip(rows, slices(column), strict=True)


def _holds_images(feature: Feature) -> bool:
    """Whether the values in nested lists are images. Lists of numbers may have a value for each byte."""
    while feature.item is not None:
        feature = feature.item
    return feature.medium == "image"
