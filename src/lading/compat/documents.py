"""Samples as documents of datatrove, and documents as samples: one at a time, as Python values.

    a sample      `text` and `id` are its columns of these names, `media` its columns of bytes (the id is the name of
                  the column), `metadata` all other columns
    interleaved   `text` is its texts with an empty line between them, `media` its items with bytes in order,
                  `metadata` its own fields; fields of an item are the metadata of its media

A document has one text, so the places of texts between media are not kept. A document becomes an interleaved sample as
the format `media_archive` reads it: metadata at position -1, text at 0, then media.

Source: datatrove 0.10.1, data.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from lading.content.media_info import media_info
from lading.errors import DataError
from lading.features.items import KEY, METADATA_POSITION, RESERVED, content_type_of
from lading.features.types import Audio, Image, Video, feature_of
from lading.interleaved.documents import MODALITIES
from lading.media.documents import get, media_of

__all__ = ["document_of_items", "document_of_row", "items_of_document", "media_types", "row_of_document"]

_BETWEEN: Final = "\n\n"
_TYPES: Final = {Image: 0, Video: 1, Audio: 2}
_OTHER: Final = MODALITIES.index("document")
_MEDIA: Final = ("id", "url", "alt")
"""Fields of media that are columns of items, as `media_id` …, in the view `interleaved` of documents."""


def media_types(schema: pa.Schema) -> dict[str, int]:
    """Return the type that values of each column have as media."""
    return {field.name: _TYPES.get(type(feature_of(field)), _OTHER) for field in schema}


def document_of_row(
    sample: Mapping[str, Any], types: Mapping[str, int], names: tuple[str, str], otherwise: str
) -> dict[str, Any]:
    """Return a sample as the arguments of a document; media are such arguments too.

    Args:
        sample: the sample.
        types: of media, by column.
        names: of the columns with text and id.
        otherwise: the id if the sample has none and no key.
    """
    text_key, id_key = names
    rest = dict(sample)
    text, found = rest.pop(text_key, None), rest.pop(id_key, None)
    if found is None:
        found = rest.pop(KEY, None)
    media = [
        {"id": name, "type": types.get(name, _OTHER), "url": "", "media_bytes": value}
        for name, value in rest.items()
        if isinstance(value, bytes)
    ]
    rest = {name: value for name, value in rest.items() if not isinstance(value, bytes)}
    return {"text": text or "", "id": otherwise if found is None else str(found), "media": media, "metadata": rest}


def document_of_items(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return an interleaved sample as the arguments of a document; media are such arguments too."""
    items = sample["items"]
    texts = [item["text_content"] for item in items if item.get("text_content") is not None]
    return {
        "text": _BETWEEN.join(texts), "id": sample["sample_id"],
        "media": [_media_of_item(item) for item in items if item.get("binary_content") is not None],
        "metadata": {name: value for name, value in sample.items() if name not in ("sample_id", "items")},
    }  # fmt: skip


def _media_of_item(item: Mapping[str, Any]) -> dict[str, Any]:
    modality = item["modality"]
    known = {name: item.get(f"media_{name}") for name in _MEDIA}
    own = (*RESERVED, *(f"media_{name}" for name in _MEDIA))
    return {
        "id": str(item["position"]) if known["id"] is None else known["id"],
        "type": MODALITIES.index(modality) if modality in MODALITIES else _OTHER,
        "url": known["url"] or "", "alt": known["alt"], "media_bytes": item["binary_content"],
        "metadata": {name: value for name, value in item.items() if name not in own},
    }  # fmt: skip


def row_of_document(document: Any, names: tuple[str, str]) -> dict[str, Any]:
    """Return a document as a sample: its media are columns, by their ids.

    Raises:
        DataError: two fields have one name.
    """
    text_key, id_key = names
    fields = [(id_key, get(document, "id")), (text_key, get(document, "text"))]
    fields += [(str(get(media, "id")), _bytes_of(media, document)) for media in media_of(document)]
    fields += (get(document, "metadata") or {}).items()
    row = dict(fields)
    if len(row) < len(fields):
        twice = next(name for at, (name, _) in enumerate(fields) if name in dict(fields[:at]))
        raise DataError("two fields of a document have one name", sample=str(get(document, "id")), column=twice,
                        advice='Give text_key or id_key another name, or write documents with view="interleaved".',
                        )  # fmt: skip
    return row


def items_of_document(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the items of a document, as rows of `INTERLEAVED_SCHEMA` and further columns.

    Raises:
        DataError: a media without bytes or of an unknown type; or metadata that has the name of a reserved column.
    """
    name, text = str(get(document, "id")), get(document, "text")
    metadata = get(document, "metadata") or {}
    yield _item(name, METADATA_POSITION, "metadata", "application/json", metadata)
    if text:
        yield {**_item(name, 0, "text", "text/plain", {}), "text_content": text}
    for position, media in enumerate(media_of(document), 1 if text else 0):
        kind, content = get(media, "type"), _bytes_of(media, document)
        if kind not in range(len(MODALITIES)):
            raise DataError("a media has an unknown type", sample=name, found=repr(kind),
                            expected=", ".join(f"{at} ({each})" for at, each in enumerate(MODALITIES)))  # fmt: skip
        more = {**(get(media, "metadata") or {}), **{f"media_{key}": get(media, key) for key in _MEDIA}}
        info = media_info(content)
        typed = content_type_of(f".{info.format}") if info is not None else None
        yield {**_item(name, position, MODALITIES[kind], typed, more), "binary_content": content}


def _item(name: str, position: int, modality: str, content_type: str | None, more: Mapping[str, Any]) -> dict[str, Any]:
    own = dict.fromkeys(RESERVED) | {
        "sample_id": name, "position": position, "modality": modality, "content_type": content_type,
    }  # fmt: skip
    taken = next((key for key in more if key in RESERVED), None)
    if taken is not None:
        raise DataError("metadata of a document has the name of a column of items", sample=name, column=taken,
                        advice="Rename it in a step before.")  # fmt: skip
    return {**own, **more}


def _bytes_of(media: Any, document: Any) -> bytes:
    content = get(media, "media_bytes")
    if content is None:
        raise DataError("a media has no bytes", sample=str(get(document, "id")), found=repr(get(media, "id")),
                        advice="Read them first, by ZstdReader or the like.")  # fmt: skip
    return bytes(content)
