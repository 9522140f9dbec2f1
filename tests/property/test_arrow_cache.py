"""Caches of any rows: what went in comes out, cut as the rules say, whoever encoded it."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading._core.features.types import Array, ClassLabel, Feature, Image, Json, Sequence, Text, Value, decode
from lading.caches import read_shard, validate_cache, write_cache

FEATURES: dict[str, Feature] = {
    "text": Text(),
    "n": Value("int16"),
    "label": ClassLabel(("a", "b")),
    "image": Image(),
    "ids": Sequence(Value("uint8")),
    "tags": Sequence(Text()),
    "json": Json(),
    "x": Array("float32", (None, 2)),
}
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": _TEXTS,
    "n": st.integers(-(2**15), 2**15 - 1),
    "label": st.sampled_from(["a", "b"]),
    "image": st.binary(max_size=300),
    "ids": st.lists(st.integers(0, 255), max_size=5),
    "tags": st.lists(st.none() | _TEXTS, max_size=3),
    "json": st.recursive(st.booleans() | st.integers() | _TEXTS, lambda inner: st.lists(inner, max_size=3)),
    "x": st.integers(0, 4).map(lambda n: np.arange(2 * n, dtype="float32").reshape(n, 2)),
}
_ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in _VALUES.items()}), max_size=40)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.soak
@settings(max_examples=40)
@given(_ROWS, st.integers(1, 9), st.integers(1, 2000), st.none() | st.integers(1, 3000), st.integers(1, 3))
def test_rows_come_back_in_batches_that_end_as_the_rules_say(
    rows: list[dict[str, Any]], batch_size: int, batch_bytes: int, shard_size: int | None, workers: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"batch_size": batch_size, "batch_bytes": batch_bytes, "shard_size": shard_size}
        meta = write_cache(rows, FEATURES, Path(folder, "one"), **options)
        again = write_cache(enumerate(rows), FEATURES, Path(folder, "two"), workers=workers, **options)
        validate_cache(meta.cache_dir, FEATURES)
        made = [Path(path).read_bytes() for path in meta.shard_paths]
        assert made == [Path(path).read_bytes() for path in again.shard_paths]
        tables = [read_shard(path) for path in meta.shard_paths]
        found = [row for table in tables for row in table.to_pylist()]
        for row in found:
            for name, feature in FEATURES.items():
                row[name] = plain(decode(feature, row[name]))
        labels = {None: None, "a": 0, "b": 1}
        assert found == [{k: plain(v) for k, v in row.items()} | {"label": labels[row["label"]]} for row in rows]
        sizes = [len(batch) for table in tables for batch in table.to_batches()]
        assert max(sizes, default=0) <= batch_size
        assert len(sizes) >= math.ceil(len(rows) / batch_size)
        assert all(meta.shard_row_counts)
        assert shard_size is not None or len(tables) <= 1
