"""The form of features in a cache: Arrow types, fields, the peer's spelling.

Types, and the metadata `stable_datasets.feature`, are the peer's. The feature itself is next to it under
`lading.feature`, because the peer's files lack shapes, dtypes and names of labels.

Source: stable-datasets at f38ac71 (schema.py, cache.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from lading._core.arguments import public
from lading._core.features.encode import VIDEO_FIELDS
from lading._core.features.plain_values import check_texts
from lading._core.features.types import (
    FEATURE_KEY,
    Feature,
    Image,
    Text,
    Video,
    check_feature,
    feature_from,
    feature_of,
    with_feature,
)
from lading.errors import DataError, UsageError, WrongFeature, errors_at

__all__ = [
    "PEER_KEY",
    "Features",
    "differences",
    "fingerprint",
    "from_description",
    "older_fingerprint",
    "older_spelling",
    "schema_of",
    "to_description",
]

Features: TypeAlias = Mapping[str, Feature]
"""Feature of each column, in order."""

PEER_KEY = b"stable_datasets.feature"
_PEER_STORAGE_KEY = b"stable_datasets.video.storage"
_VIDEO_TYPES = {"bytes": pa.large_binary(), "size": pa.int64()}
_VIDEO = pa.struct([(name, _VIDEO_TYPES.get(name, pa.string())) for name in VIDEO_FIELDS])
_VIDEOS = {Video(storage): storage for storage in ("bytes", "path")}
"""Videos that are stored in a struct, and where their bytes are."""
_PEER_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_PEER_ARRAYS = {3: "Array3D", 4: "Array4D"}
_PEER_TEXTS: Mapping[Feature, str] = {
    Video("bytes"): "Video(storage='bytes', allowed_extensions=('.mp4', '.avi', '.mov', '.webm', '.mkv'))",
    Video("text"): "Video()",
    Text(): "Value('string')",
}
_FEW_NAMES = 5
_SHOWN = 300


def schema_of(features: Features) -> pa.Schema:
    """Return the schema of a cache's shards.

    Raises:
        UsageError: no columns, or a feature that caches cannot store (WrongFeature); names the column.
    """
    if not features or not isinstance(features, Mapping):
        raise UsageError("a cache needs a column", expected="features: a dict of names and what they hold",
                         found=type(features).__name__)  # fmt: skip
    fields = []
    for name, feature in features.items():
        try:
            check_texts([name], "name of a column")
            kind = _type(feature)
        except UsageError as error:
            raise error.at(column=ascii(name)[1:-1] if isinstance(name, str) else repr(name)) from None
        metadata = {PEER_KEY: _peer_name(feature)}
        if feature in _VIDEOS:
            metadata[_PEER_STORAGE_KEY] = _VIDEOS[feature]
        field = pa.field(name, kind, metadata=metadata)
        fields.append(field if feature_of(field) == _normal(feature) else with_feature(field, _normal(feature)))
    return pa.schema(fields)


def _type(feature: Feature) -> pa.DataType:
    try:
        check_feature(feature)
        return feature.typed(_leaf_type)
    except WrongFeature as error:
        raise WrongFeature("no cache stores this feature", expected="a feature such as Image()",
                           found=error.found) from None  # fmt: skip


def _leaf_type(feature: Feature) -> pa.DataType:
    return _VIDEO if feature in _VIDEOS else feature.to_arrow_type()


def _normal(feature: Feature) -> Feature:
    return feature.with_leaves(lambda leaf: leaf.normal())


def _peer_name(feature: Feature) -> str:
    if feature.is_text or feature.is_json or feature.is_bytes:
        return "Value"
    if feature.array is not None and feature.array[0] is not None:
        return _PEER_ARRAYS.get(len(feature.array[1] or ()), "Array")
    return type(feature).__name__


@public("lading.caches.fingerprint")
def fingerprint(features: Features) -> str:
    """Return 16 hex digits of the features in the peer's spelling; equal to the peer's, for features that it has.

    The peer leaves out the names of more than five labels: equal fingerprints do not prove equal features.
    """
    return hashlib.sha256(_listed(features).encode()).hexdigest()[:16]


def older_fingerprint(features: Features) -> str:
    """Return the fingerprint of the peer's versions before images had a format."""
    return hashlib.sha256(older_spelling(features).encode()).hexdigest()[:16]


def older_spelling(features: Features) -> str:
    """Return the features as the peer's versions before images had a format print them."""
    return _listed(features).replace(repr(Image()), "Image()")


def _listed(features: Features) -> str:
    return f"{{{', '.join(f'{name!r}: {_spelled(feature)}' for name, feature in features.items())}}}"


def _spelled(feature: Feature) -> str:
    """Return the feature as the peer's prints; one that the peer lacks, as ours prints."""
    dtype, shape = feature.array or (None, None)
    if feature in _PEER_TEXTS:
        return _PEER_TEXTS[feature]
    if feature.type_name is not None:
        return f"Value({_PEER_DTYPES.get(feature.type_name, feature.type_name)!r})"
    if feature.labels is not None:
        few = len(feature.labels) <= _FEW_NAMES
        return f"ClassLabel(names={[*feature.labels]!r})" if few else f"ClassLabel(num_classes={len(feature.labels)})"
    if feature.item is not None:
        return f"Sequence({_spelled(feature.item)})"
    if dtype is not None and shape is not None:
        return f"{_peer_name(feature)}(shape={tuple(shape)!r}, dtype={dtype!r})"
    return repr(feature)


def to_description(features: Features) -> list[list[Any]]:
    """Return the features as JSON: name and feature of each column, in order, completely."""
    fields = [with_feature(pa.field(name, pa.null()), _normal(feature)) for name, feature in features.items()]
    return [[field.name, orjson.loads(field.metadata[FEATURE_KEY])] for field in fields]


def from_description(rows: Any) -> dict[str, Feature]:
    """Parse the JSON of `to_description`.

    Raises:
        DataError: it is invalid, or holds a feature that this version does not know, or that caches cannot store.
    """
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):  # noqa: PLR2004 - pairs
        raise DataError("not a description of features", expected="a list of pairs", found=repr(rows)[:80])
    features = {}
    for name, feature in rows:
        with errors_at(column=str(name)):
            made = feature_from(feature)
            try:
                _type(made)
            except UsageError as error:  # here the file is wrong, and not the call
                raise DataError(error.message, expected=error.expected, found=error.found) from None
        features[str(name)] = made
    return features


def _short(feature: Feature) -> str:
    text = str(feature)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _label(one: Feature, other: Feature) -> str:
    """Return the first label that differs, in words: there may be a million of them."""
    if one.labels is None or other.labels is None:
        return ""
    pairs = enumerate(zip_longest(one.labels, other.labels))
    number, (there, here) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    return f": label {number} is {there!r} there and {here!r} here"


def differences(found: Features, expected: Features) -> list[str]:
    """Return in words how a cache's features differ from the expected ones, a line a column; empty if equal."""
    names = [*found, *(name for name in expected if name not in found)]
    lines = []
    for name in names:
        if name not in found:
            lines.append(f"column {name!r} is not in the cache")
        elif name not in expected:
            lines.append(f"column {name!r} is only in the cache")
        elif (there := _normal(found[name])) != (here := _normal(expected[name])):
            lines.append(
                f"column {name!r} is {_short(there)} in the cache and {_short(here)} here{_label(there, here)}"
            )
    if not lines and list(found) != list(expected):
        lines.append(f"the columns stand in another order: {list(found)} in the cache, {list(expected)} here")
    return lines
