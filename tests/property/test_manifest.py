"""Laws of manifests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.content.digests import DatasetDigest, sample_digests
from lading._core.manifest.values import Manifest, from_json, lookup, merge, shards_table, to_json, validate

_OPTIONS: list[dict[str, Any]] = [
    {},
    {"interleaved": {}},
    {"interleaved": {"per_image_fields": ["alt", "score"], "per_sample_fields": ["lang"]}},
    {"interleaved": {"per_text_fields": ["tone"], "per_image_fields": ["score", "size"]}},
]
_TYPES = [pa.null(), pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]


@st.composite
def parts(draw: st.DrawFn) -> tuple[Manifest, pa.Table]:
    samples = draw(st.lists(st.integers(0, 9), max_size=3))
    digest = DatasetDigest()
    digest.update(sample_digests(pa.table({"x": [str(samples)] * sum(samples)})))
    names = draw(st.lists(st.sampled_from("abc"), min_size=min(sum(samples), 1), unique=True))
    kinds = [draw(st.sampled_from(_TYPES)) for _ in names]
    fields = [
        pa.field(name, kind, nullable=kind == pa.null() or draw(st.booleans()))
        for name, kind in zip(names, kinds, strict=True)
    ]
    size, payload = (draw(st.lists(st.integers(0, 99), min_size=len(samples), max_size=len(samples))) for _ in "xy")
    manifest = Manifest(
        "webdataset",
        "samples",
        pa.schema(fields),
        num_samples=sum(samples),
        num_shards=len(samples),
        size_bytes=sum(size),
        payload_bytes=sum(payload),
        options=draw(st.sampled_from(_OPTIONS)),
        counts=draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9))),
        digests=draw(st.sampled_from([{}, digest.to_json()])),
        sidecars=tuple(draw(st.lists(st.sampled_from(["index.json", "a.idx"]), max_size=2, unique=True))),
        rank=draw(st.none() | st.integers(0, 3)),
    )
    return manifest, shards_table([f"{i}.tar" for i in range(len(samples))], samples, size, payload)


@pytest.mark.soak
@given(parts(), parts(), parts())
def test_merging_is_associative(
    a: tuple[Manifest, pa.Table], b: tuple[Manifest, pa.Table], c: tuple[Manifest, pa.Table]
) -> None:
    one, other = merge([merge([a, b]), c]), merge([a, merge([b, c])])
    assert one == other == merge([a, b, c])
    assert [f.nullable for f in one[0].schema] == [f.nullable for f in other[0].schema]
    validate(*one)
    assert from_json(to_json(one[0])) == one[0]


@given(st.lists(st.integers(0, 5), max_size=8), st.data())
def test_lookup_finds_what_counting_finds(samples: list[int], data: st.DataObject) -> None:
    shards = shards_table([f"{i}" for i in range(len(samples))], samples, samples, samples)
    places = [(shard, row) for shard, count in enumerate(samples) for row in range(count)]
    ordinals = data.draw(st.lists(st.integers(0, len(places) - 1), max_size=9) if places else st.just([]))
    shard, row = lookup(np.cumsum(shards["num_samples"].to_numpy()), np.array(ordinals, np.int64))
    assert list(zip(shard.tolist(), row.tolist(), strict=True)) == [places[i] for i in ordinals]
