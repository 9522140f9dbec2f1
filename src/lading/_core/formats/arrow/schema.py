"""Arrow schemas: the types in which a file's columns are returned, and comparison of two files' schemas."""

from __future__ import annotations

import orjson
import pyarrow as pa
import xxhash

from lading._core.arrow.casts import unregistered_type
from lading._core.arrow.references import is_ref, without_files
from lading._core.arrow.views import plain_type
from lading._core.features.huggingface import HUGGINGFACE_KEY, from_huggingface, unwrapped_schema
from lading._core.features.types import FEATURE_KEY, Feature, Image, with_feature
from lading.errors import Unrepresentable

__all__ = ["STABLE_KEY", "check_schema", "given_schema", "schema_hash", "stored_schema"]

STABLE_KEY = b"stable_datasets.feature"
"""Key of a field's metadata: the name of a class of stable-datasets."""

_STABLE: dict[bytes, Feature] = {b"Image": Image()}
"""Features that the class name determines completely. Arrays and labels are not among them: shapes and names are
missing."""


def given_schema(stored: pa.Schema, features: str, *, media: str) -> pa.Schema:
    """Return the schema of batches, in `plain_type`s; features from a peer go into the fields too.

    A table of files, which only lading's own references have, is left out.

    Args:
        stored: the file's schema.
        features: JSON of Hugging Face's features, if they are next to the file; used if the file has none itself.
        media: as in `unwrapped_schema` of `_core.features.huggingface`.

    Raises:
        DataError: the features are not valid JSON.
    """
    metadata = without_files(stored.metadata)
    if features and HUGGINGFACE_KEY not in metadata:
        metadata[HUGGINGFACE_KEY] = orjson.dumps({"info": {"features": orjson.loads(features)}})
    fields = []
    for field in stored:
        feature = _STABLE.get((field.metadata or {}).get(STABLE_KEY, b""))
        plain = field.with_type(plain_type(field.type))
        fields.append(with_feature(plain, feature) if feature and FEATURE_KEY not in (field.metadata or {}) else plain)
    return unwrapped_schema(from_huggingface(pa.schema(fields, metadata=metadata or None)), media=media)


def schema_hash(schema: pa.Schema) -> str:
    """Return 16 hex digits of the names and types of columns; independent of the types registered in a process."""
    kinds = [[field.name, str(unregistered_type(field.type))] for field in schema]
    return xxhash.xxh3_64_hexdigest(orjson.dumps(kinds))


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a file for such rows: in `plain_type`s, without the table of the rows' source files."""
    metadata = without_files(schema.metadata)
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema], metadata=metadata or None)


def check_schema(schema: pa.Schema) -> None:
    """Raise Unrepresentable for schemas that Arrow files cannot hold: references, and two columns of one name."""
    for field in schema:
        if is_ref(field.type):
            raise Unrepresentable("an Arrow file holds bytes, not references", column=field.name,
                                  advice="Materialise it first.")  # fmt: skip
        if len(schema.get_all_field_indices(field.name)) > 1:
            raise Unrepresentable("two columns of one name", column=field.name)
