"""Bytes in JSON Lines, as base64 texts: alone, in lists, and in Hugging Face's objects of bytes and a path.

    {"image": "iVBORw…", "images": ["iVBORw…", null], "photos": [{"bytes": "/9j/4A…", "path": "a.jpg"}]}

The types in the manifest say which texts are base64. Other readers, and a file alone, give the texts.

Source: RFC 4648, with the standard alphabet and padding.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.casts import unregistered_type
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes, list_lengths
from lading._core.features.natural import has_items, is_media
from lading._core.features.types import feature_of
from lading._core.formats.text_lines import without_dictionary
from lading.errors import DataError

__all__ = ["base64_texts", "becomes_base64", "from_base64", "holds_base64"]

_SHOWN = 40


def becomes_base64(field: pa.Field) -> bool:
    """Return whether a column holds bytes that are not text, in a dictionary or not, or single media as structs."""
    kind = unregistered_type(field.type)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_bytes(kind) or is_ref(kind):
        return not feature_of(field).is_written_as_text
    return bool(pa.types.is_fixed_size_binary(kind)) or is_media(kind)


def holds_base64(field: pa.Field) -> bool:
    """Return whether the texts of a written column hold base64."""
    return becomes_base64(field) or has_items(unregistered_type(field.type))


def base64_texts(column: pa.Array) -> pa.LargeStringArray:
    """Return the JSON texts of bytes, of structs of bytes and a path, or of lists of these."""
    values = without_dictionary(column)
    if has_items(values.type):
        bounds = np.append(0, np.cumsum(list_lengths(values)))
        texts = json_text.glued("[", json_text.joined_runs(base64_texts(values.flatten()), bounds), "]")
    elif is_media(values.type):
        data, path = base64_texts(values.field("bytes")), json_text.dumps_each(values.field("path"))
        texts = json_text.glued('{"bytes": ', data, ', "path": ', path, "}")
    else:
        found = [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in values.to_pylist()]
        return pa.array(found, pa.large_string()).fill_null("null")
    return pc.if_else(values.is_valid(), texts, "null")


def from_base64(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value with bytes in place of base64 texts; a value of another JSON type stays unchanged.

    Raises:
        DataError: a text where bytes are expected is not base64.
    """
    if value is None:
        return None
    if isinstance(value, list) and has_items(kind):
        return [from_base64(item, kind.value_type) for item in value]
    if isinstance(value, dict) and is_media(kind):
        return {**value, "bytes": from_base64(value.get("bytes"), kind.field("bytes").type)}
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except (TypeError, ValueError):
            raise DataError("a value is not base64", expected="a text in base64, as lading wrote it",
                            found=f"{value!r:.{_SHOWN}}") from None  # fmt: skip
    return value
