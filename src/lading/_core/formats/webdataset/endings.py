"""Endings of members by which webdataset decodes their values.

    text, times, decimals   .txt    str
    whole numbers, labels   .cls    int
    bool, floats            .json   bool, float
    JSON, lists, structs    .json   what the JSON holds
    arrays                  .npy    numpy.ndarray

webdataset goes by the last ending of a name, and gives bytes for other endings. Media have an ending of their own.

Source: webdataset 1.0.2, autodecode.py.
"""

from __future__ import annotations

import pyarrow as pa

from lading._core.arrow.views import is_text
from lading._core.features.items import KEY
from lading._core.features.natural import has_items, known_feature, member_name
from lading._core.features.stored_values import is_payload, npy_head, restored_type

__all__ = ["lacking_endings"]

_DECODED = {
    "txt": {"txt", "text", "transcript"},
    "cls": {"cls", "cls2", "index", "inx", "id"},
    "json": {"json", "jsn"},
    "npy": {"npy"},
}
"""Endings that webdataset decodes as the first one."""


def lacking_endings(schema: pa.Schema) -> dict[str, str]:
    """Return the ending that webdataset needs, for each column whose members have none that it decodes."""
    found = {}
    for field in schema:
        ending = _ending(field)
        if ending is not None and member_name(field).rpartition(".")[2].lower() not in _DECODED[ending]:
            found[field.name] = ending
    return found


def _ending(field: pa.Field) -> str | None:
    """Return the ending of values of a column; None for bytes, media, and lists of them."""
    kind, feature = field.type, known_feature(field)
    if field.name == KEY or has_items(kind) or feature.is_media or pa.types.is_null(kind):
        return None
    kind = restored_type(kind)
    if isinstance(kind, pa.FixedShapeTensorType) or npy_head(field) is not None or feature.array is not None:
        return "npy"
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if feature.is_json or pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return "json"
    if is_payload(kind):
        return "txt" if feature.is_text else None
    if pa.types.is_integer(kind):
        return "cls"
    return "txt" if is_text(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else None
