"""Samples as documents of datatrove, and documents as samples: one at a time, as Python values.

    a sample      `text` and `id` are its columns of these names, `media` the list of that name and its columns of bytes
                  (the id is the name of the column), `metadata` the object of that name and all other columns
    interleaved   `text` is its texts with an empty line between them, `media` its items with bytes in order,
                  `metadata` its own fields; fields of an item are the metadata of its media

A document has one text, so the places of texts between media are not kept. A document becomes an interleaved sample as
the format `media_archive` reads it: metadata at position -1, text at 0, then media.

Source: datatrove 0.10.1, data.py, pipeline/readers/base.py, pipeline/readers/jsonl.py.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.content.media_info import media_info
from lading._core.features.items import KEY, METADATA_POSITION, RESERVED, content_type_of
from lading._core.features.types import feature_of
from lading._core.interleaved.documents import MODALITIES
from lading._core.media.documents import get, media_of
from lading.errors import DataError

__all__ = ["document_of_items", "document_of_row", "items_of_document", "media_types", "row_of_document"]

_BETWEEN: Final = "\n\n"
_TYPES: Final = {"image": 0, "video": 1, "audio": 2}
_OTHER: Final = MODALITIES.index("document")
_MEDIA: Final = ("id", "url", "alt")
"""Fields of media that are columns of items, as `media_id` …, in the view `interleaved` of documents."""
_FIELDS: Final = ("id", "type", "url", "alt", "path", "offset", "length", "media_bytes", "metadata")
_NEEDED: Final = frozenset(("id", "type", "url"))
"""Fields of media in a list, and those that each of them has."""


def media_types(schema: pa.Schema) -> dict[str, int]:
    """Return the type that values of each column have as media."""
    return {field.name: _TYPES.get(feature_of(field).medium or "", _OTHER) for field in schema}


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
    media = [_as_media(each) for each in rest.pop("media") or ()] if _are_media(rest.get("media", "")) else []
    media += [
        {"id": name, "type": types.get(name, _OTHER), "url": "", "media_bytes": value}
        for name, value in rest.items()
        if isinstance(value, bytes)
    ]
    metadata = _metadata_of(rest.pop("metadata", None))
    metadata |= {name: value for name, value in rest.items() if not isinstance(value, bytes)}
    return {"text": text or "", "id": otherwise if found is None else str(found), "media": media, "metadata": metadata}


def _metadata_of(value: Any) -> dict[str, Any]:
    """Return the metadata that a column of this name holds: its object or JSON text, or the value itself."""
    found = value
    if isinstance(value, str):
        with suppress(DataError):
            found = json_text.loads(value.encode())
    if value is None:
        return {}
    return dict(found) if isinstance(found, Mapping) else {"metadata": value}


def _are_media(value: Any) -> bool:
    """Whether a value is a list of media, as datatrove writes them, or null."""
    if not isinstance(value, list):
        return value is None
    return all(isinstance(each, Mapping) and _NEEDED <= each.keys() <= {*_FIELDS} for each in value)


def _as_media(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a media; its bytes may be in base64."""
    content = fields.get("media_bytes")
    return {**fields, "media_bytes": b64decode(content) if isinstance(content, str) else content}


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
    """Return a document as a sample: its media are columns, by their ids. Those in archives are the list `media`.

    Raises:
        DataError: two fields have one name; or a media has neither bytes nor a place in an archive.
    """
    text_key, id_key = names
    fields = [(id_key, get(document, "id")), (text_key, get(document, "text"))]
    archived = [media for media in media_of(document) if _is_archived(media)]
    if archived:
        fields.append(("media", [{name: get(media, name) for name in _FIELDS} for media in archived]))
    fields += [
        (str(get(media, "id")), _bytes_of(media, document)) for media in media_of(document) if not _is_archived(media)
    ]
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


def _is_archived(media: Any) -> bool:
    return get(media, "media_bytes") is None and get(media, "path") is not None


def _bytes_of(media: Any, document: Any) -> bytes:
    content = get(media, "media_bytes")
    if content is None:
        raise DataError("a media has no bytes", sample=str(get(document, "id")), found=repr(get(media, "id")),
                        advice="Read them first, by ZstdReader or the like.")  # fmt: skip
    return bytes(content)
