"""How stable-datasets builds an Arrow cache, told again after its cache.py and schema.py at f38ac71.

It is on no registry. What takes time is done as there, row by row: a generator around the generator, a dict of encoded
values a row, lists that are appended to, an array a column for every thousand rows. Left out are its lock, its log and
features that are not measured.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image as Pillow


class Value:
    """Of a plain Arrow type."""

    def __init__(self, dtype: str) -> None:
        self.arrow = pa.type_for_alias(dtype)

    def encode(self, value: Any, *, cache_dir: str | None = None) -> Any:
        del cache_dir
        if hasattr(value, "item"):
            return value.item()
        return value


class Image:
    """Bytes as they are, arrays as PNG."""

    arrow = pa.large_binary()

    def encode(self, value: Any, *, cache_dir: str | None = None) -> bytes | None:
        del cache_dir
        return _encode_image(value)


def _encode_image(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(type(value))
    out = io.BytesIO()
    Pillow.fromarray(value).save(out, format="PNG")
    return out.getvalue()


def _encode_example(example: dict[str, Any], features: dict[str, Any], cache_dir: str) -> dict[str, Any]:
    encoded = {}
    for key, value in example.items():
        feature = features.get(key)
        if isinstance(feature, (Value, Image)):
            encoded[key] = feature.encode(value, cache_dir=cache_dir)
        else:
            encoded[key] = value
    return encoded


def _encoded(generator: Iterable[Any], features: dict[str, Any], cache_dir: str) -> Iterator[Any]:
    for key, example in generator:
        yield key, _encode_example(example, features, cache_dir)


def write_sharded_arrow_cache(
    generator: Iterable[Any], features: dict[str, Any], cache_dir: str, batch_size: int = 1000
) -> None:
    """One shard, and what tells of it."""
    built = f"{cache_dir}_tmp"
    os.makedirs(built)
    schema = pa.schema([(name, feature.arrow) for name, feature in features.items()])
    pending: dict[str, list[Any]] = {name: [] for name in features}
    count = size = 0
    with pa.OSFile(f"{built}/shard-00000.arrow", "wb") as sink, pa.ipc.new_file(sink, schema) as writer:

        def flush() -> int:
            batch = pa.record_batch([pa.array(pending[name], features[name].arrow) for name in features], schema=schema)
            for name in pending:
                pending[name] = []
            writer.write_batch(batch)
            return batch.nbytes

        for _key, row in _encoded(generator, features, built):
            for name in features:
                pending[name].append(row.get(name))
            count += 1
            if count % batch_size == 0:
                size += flush()
        if pending[next(iter(features))]:
            size += flush()
    with open(f"{built}/_metadata.json", "w", encoding="utf-8") as file:
        json.dump({"num_rows": count}, file, indent=2)
    os.rename(built, cache_dir)
