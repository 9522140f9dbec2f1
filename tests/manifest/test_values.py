"""Manifests: their JSON, their shards, merged, cut, searched, held against what is there."""

import base64
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cost import costs_at_most
from lading._core.content.digests import DatasetDigest, sample_digests
from lading._core.features.types import Image, feature_of, with_feature
from lading._core.manifest.values import (
    SHARDS_SCHEMA,
    VERSION,
    Manifest,
    changes,
    from_json,
    kept_manifest,
    lookup,
    merge,
    read_shards,
    shards_table,
    to_json,
    validate,
    write_shards,
)
from lading.errors import BadReference, DataError, LimitExceeded, SchemaMismatch, SidecarMismatch, UsageError

SCHEMA = pa.schema(
    [
        pa.field("__key__", pa.string(), nullable=False),
        with_feature(pa.field("jpg", pa.large_binary()), Image()),
        pa.field("n", pa.int8(), metadata={"unit": "kg"}),
    ],
    metadata={"own": "yes"},
)


def _digest(first: int, count: int) -> DatasetDigest:
    digest = DatasetDigest()
    digest.update(sample_digests(pa.table({"x": np.arange(first, first + count)})))
    return digest


def _part(first: int, samples: list[int], **changes: Any) -> tuple[Manifest, pa.Table]:
    count = len(samples)
    paths = [f"shard-{first + i:06d}.tar" for i in range(count)]
    shards = shards_table(paths, samples, [1000 * n for n in samples], [900 * n for n in samples])
    manifest = Manifest(
        "webdataset",
        "samples",
        SCHEMA,
        num_samples=sum(samples),
        num_shards=count,
        size_bytes=1000 * sum(samples),
        payload_bytes=900 * sum(samples),
        options={"compression": None},
        counts={"dropped": first, "other": 1} if first else {"dropped": 1},
        digests=_digest(first * 100, sum(samples)).to_json(),
        sidecars=("index.json",),
        rank=first,
    )
    return replace(manifest, **changes), shards


def test_a_manifest_travels_as_json() -> None:
    manifest, _ = _part(3, [5, 7])
    data = to_json(manifest)
    found = from_json(data)
    assert found == manifest
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert feature_of(found.schema.field("jpg")) == Image()
    assert found.created_by.startswith("lading ")
    assert len(data) < 10_000
    told = json.loads(data)
    assert [f["name"] for f in told["fields"]] == ["__key__", "jpg", "n"]
    assert told["fields"][1]["feature"] == '{"kind":"image"}'
    assert told["fields"][0]["nullable"] is False


def _changed(**changes: Any) -> bytes:
    told = json.loads(to_json(_part(0, [1])[0]))
    told.update(changes)
    return json.dumps({k: v for k, v in told.items() if v != "gone"}).encode()


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "broken JSON"),
        (b"[]", "not a manifest"),
        (b"{}", "version"),
        (_changed(version=VERSION + 1), "newer version.*Upgrade"),
        (_changed(version="1"), "version"),
        (_changed(format=None), "format"),
        (_changed(view="gone"), "view"),
        (_changed(view="mds"), "view: samples or interleaved.*mds"),
        (_changed(num_samples=-1), "num_samples"),
        (_changed(size_bytes=1.5), "size_bytes"),
        (_changed(num_shards=True), "num_shards"),
        (_changed(rank="gone"), "rank"),
        (_changed(rank="a"), "rank"),
        (_changed(rank=-1), "rank"),
        (_changed(rank=True), "rank"),
        (_changed(version=-5), "version"),
        (_changed(version=True), "version"),
        (_changed(options=[]), "options"),
        (_changed(counts={"dropped": 1, "other": "2"}), "counts: whole numbers"),
        (_changed(counts={"dropped": None}), "counts"),
        (_changed(counts={"dropped": [1]}), "counts"),
        (_changed(counts={"dropped": 1.5}), "counts"),
        (_changed(counts={"dropped": True}), "counts"),
        (_changed(counts={"dropped": -1}), "counts"),
        (_changed(sidecars=[1]), "sidecars"),
        (_changed(sidecars="gone"), "sidecars"),
        (_changed(schema="gone"), "schema"),
        (_changed(schema=5), "schema"),
        (_changed(schema="***"), "schema"),
        (_changed(schema=base64.b64encode(b"garbage!" * 9).decode()), "schema"),
        (_changed(schema="\u00e9"), "schema"),
        (_changed(options={"reading": None}), "options.reading: dict.*None"),
        (_changed(options={"interleaved": [1]}), "options.interleaved: dict"),
        (_changed(options={"interleaved": {"per_text_fields": "ab"}}), "per_text_fields: a list of texts.*'ab'"),
        (_changed(options={"interleaved": {"per_image_fields": [None]}}), "per_image_fields: a list of texts"),
        (_changed(options={"interleaved": {"sample_id_field": [1]}}), "sample_id_field: a text, or none"),
        (_changed(sidecars=["\ud800"]), "sidecars: a list of paths"),
        (_changed(files={"\ud800": "0" * 16}), "files: a list of paths"),
        (_changed(digests={"unordered": "0" * 32, "ordered": None, "count": float("inf")}), "not a dataset digest"),
        (_changed(digests={"count": -1}), "not a dataset digest"),
        (_changed(digests={"unordered": "0" * 32, "ordered": None, "count": -1}), "not a dataset digest"),
        (_changed(digests={"unordered": "0" * 32, "ordered": None, "count": True}), "not a dataset digest"),
        (_changed(digests={"unordered": "-5", "ordered": None, "count": 1}), "not a dataset digest"),
        (_changed(fingerprint="0" * 16), "fingerprint"),
        (to_json(replace(_part(0, [1])[0], schema=pa.schema([*SCHEMA, *SCHEMA]))), "twice"),
        (to_json(replace(_part(0, [1])[0], schema=pa.schema([]))), "no columns"),
    ],
)
def test_what_is_no_manifest(data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        from_json(data, file="a/manifest.json")
    assert caught.value.file == "a/manifest.json"


@pytest.mark.parametrize("value", [None, 5, -1, "x", "\ud800", "\u00e9", [], [1], {}, {"a": 5}, float("inf"), 10**30])
def test_anything_in_the_place_of_anything(value: Any) -> None:
    told = json.loads(to_json(replace(_part(0, [1])[0], options={"reading": {}, "interleaved": {}})))
    places = [(told, name) for name in told] + [
        (told[outer], name)
        for outer, names in {"options": ["reading", "interleaved", "members"], "digests": told["digests"]}.items()
        for name in names
    ]
    for place, name in places:
        before = place.get(name)
        place[name] = value
        with suppress(DataError):
            merge([(from_json(json.dumps(told).encode(), file="m"), _part(0, [1])[1])] * 2)
        place[name] = before


OUTSIDE = ["", "/a", "..", "../a", "a/../../b", "a/..", ".", "./a", "a//b", "s3://b/a", "C:/a", "a\\b", "a\0b", "a/"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_stay_in_the_folder(path: str) -> None:
    with pytest.raises(BadReference, match="row 1"):
        shards_table(["ok.tar", path], [1, 1], [1, 1], [1, 1])
    with pytest.raises(BadReference):
        shards_table(["ok.tar"], [1], [1], [1], {"index_file": [path], "index_batch": [0]})
    if "\0" not in path:
        with pytest.raises(BadReference):
            from_json(_changed(sidecars=[path]), file="m")


def test_usual_paths_are_taken() -> None:
    paths = ["a.tar", "train/a..b.tar", "..a/b", "ü/x y.tar", "a/.hidden"]
    assert shards_table(paths, [1] * 5, [1] * 5, [1] * 5)["path"].to_pylist() == paths


def test_shards_travel_as_an_arrow_file() -> None:
    more = {"xxh3": ["0" * 16, None], "index_file": ["i", "i"], "index_batch": [0, 1]}
    shards = shards_table(["a.tar", "b.tar"], [1, 2], [3, 4], [5, 6], more)
    manifest = _part(0, [1, 2])[0]
    found = read_shards(write_shards(shards, manifest), file="shards.arrow")
    assert found.equals(shards)
    assert found.schema.equals(SHARDS_SCHEMA, check_metadata=True)
    assert kept_manifest(write_shards(shards, manifest)) == manifest
    assert read_shards(write_shards(shards.slice(0, 0), manifest)).num_rows == 0


def test_what_a_manifest_has_otherwise_than_its_copy_is_named() -> None:
    shards, manifest = shards_table(["a.tar"], [1], [3], [5]), _part(0, [1])[0]
    listed = write_shards(shards, manifest)
    with_its_sum = replace(manifest, files={**manifest.files, "_lading/shards.arrow": "0" * 16})
    assert changes(to_json(with_its_sum), listed, "_lading/shards.arrow") == []
    told = {**json.loads(to_json(with_its_sum)), "view": "interleaved", "created_by": "x" * 500}
    found = changes(json.dumps(told).encode(), listed, "_lading/shards.arrow", file="m")
    assert [(error.file, error.column) for error in found] == [("m", "view"), ("m", "created_by")]
    assert (found[0].expected, found[0].found) == (repr(manifest.view), "'interleaved'")
    assert len(str(found[1].found)) == 80
    no_copy = pa.BufferOutputStream()
    with pa.ipc.new_file(no_copy, SHARDS_SCHEMA):
        pass
    assert changes(json.dumps(told).encode(), no_copy.getvalue(), "_lading/shards.arrow") == []


def test_a_list_from_before_there_were_extents() -> None:
    shards = shards_table(["a.tar"], [1], [2], [3])
    older = shards.drop_columns(["extents_file", "extents_batch"])
    assert read_shards(write_shards(older, _part(0, [1])[0])).equals(shards)


def test_a_list_without_a_copy_of_the_manifest() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SHARDS_SCHEMA):
        pass
    for bad, says in ((sink.getvalue(), "no copy"), (pa.py_buffer(b"x" * 300), "not a list of shards")):
        with pytest.raises(DataError, match=says) as caught:
            kept_manifest(bad, file="f")
        assert caught.value.file == "f"


def test_lists_that_are_none() -> None:
    shards = shards_table(["a.tar"], [1], [1], [1])
    manifest = _part(0, [1])[0]
    good = write_shards(shards, manifest).to_pybytes()
    for bad in (b"", good[:100], b"x" * 300):
        with pytest.raises(DataError, match="not a list of shards"):
            read_shards(pa.py_buffer(bad), file="f")
    with pytest.raises(DataError, match="xxh3"):
        read_shards(write_shards(shards.drop_columns(["xxh3"]), manifest))
    with pytest.raises(DataError, match="column 'size_bytes'"):
        shards_table(["a"], [1], [-1], [1])
    with pytest.raises(DataError, match="null"):
        shards_table(["a"], [None], [1], [1])  # type: ignore[list-item]
    with pytest.raises(LimitExceeded, match="num_samples"):
        shards_table(["a", "b"], [1 << 62, 1 << 62], [1, 1], [1, 1])


def test_merging() -> None:
    one, two = _part(0, [2, 3]), _part(5, [4])
    merged, shards = merge([one, two])
    assert (merged.num_samples, merged.num_shards, merged.size_bytes, merged.payload_bytes) == (9, 3, 9000, 8100)
    assert shards["path"].to_pylist() == ["shard-000000.tar", "shard-000001.tar", "shard-000005.tar"]
    assert merged.counts == {"dropped": 6, "other": 1}
    assert merged.rank is None
    assert merged.sidecars == ("index.json",)
    both = _digest(0, 5).merge(_digest(500, 4))
    assert merged.digests == {"ordered": None, "unordered": both.unordered, "count": 9}
    validate(merged, shards)
    assert merge([one]) == one
    assert merge([one, _part(1, [], digests={})])[0].digests == {}
    with pytest.raises(UsageError):
        merge([])


def test_merging_unites_schemas() -> None:
    wider = SCHEMA.set(2, pa.field("n", pa.int64())).append(pa.field("txt", pa.string()))
    merged, _ = merge([_part(0, [1]), _part(1, [1], schema=wider)])
    assert merged.schema.names == ["__key__", "jpg", "n", "txt"]
    assert merged.schema.field("n").type == pa.int64()
    assert feature_of(merged.schema.field("jpg")) == Image()


def _of_items(**fields: Any) -> tuple[Manifest, pa.Table]:
    return _part(0, [1], options={"interleaved": {"sample_id_field": "sample_id", **fields}})


def test_merging_unites_what_fields_belong_to() -> None:
    """A writer that saw no value of a field does not say to which items it belongs."""
    one, other = _of_items(per_image_fields=["alt"]), _of_items(per_sample_fields=["lang"], per_image_fields=["hash"])
    expected = {"sample_id_field": "sample_id", "per_image_fields": ["alt", "hash"], "per_sample_fields": ["lang"]}
    assert merge([_of_items(), one, other])[0].options == {"interleaved": expected}
    for kind in ("sample", "text", "item"):
        with pytest.raises(SchemaMismatch, match="options"):
            merge([one, _of_items(**{f"per_{kind}_fields": ["alt"]})])
    with pytest.raises(SchemaMismatch, match="options"):
        merge([one, _of_items(sample_id_field=None)])


@pytest.mark.parametrize("changes", [{"format": "mds"}, {"view": "interleaved"}, {"options": {"compression": "zstd"}}])
def test_what_cannot_be_merged(changes: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch, match=next(iter(changes))):
        merge([_part(0, [1]), _part(1, [1], **changes)])


def test_lookup() -> None:
    _, shards = _part(0, [2, 0, 3, 0])
    ends = np.cumsum(shards["num_samples"].to_numpy())
    shard, row = lookup(ends, np.array([4, 0, 1, 2, 4]))
    assert shard.tolist() == [2, 0, 0, 2, 2]
    assert row.tolist() == [2, 0, 1, 0, 2]
    assert (shard.dtype, row.dtype) == (np.int32, np.int64)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"sample {wrong} of 5"):
            lookup(ends, np.array([0, wrong]))
    assert lookup(ends[:0], np.array([], np.int64))[0].tolist() == []
    with pytest.raises(IndexError):
        lookup(ends[:0], np.array([0]))


def test_validating() -> None:
    manifest, shards = _part(0, [2, 3])
    validate(manifest, shards)
    with pytest.raises(SidecarMismatch, match="num_samples is not that of its shards; expected 6, found 5"):
        validate(replace(manifest, num_samples=6), shards, file="m")
    with pytest.raises(SidecarMismatch, match=r"num_shards.*expected 2, found 1"):
        validate(manifest, shards.slice(0, 1))


@pytest.mark.parametrize("told", [{"name": None, "xxh3": "0" * 16}, {"name": "a.meta", "xxh3": None}, None])
def test_files_beside_a_shard_have_names_and_checksums(told: dict[str, str | None] | None) -> None:
    shards = _part(0, [1, 2])[1]
    column = pa.array([None, [{"name": "b", "xxh3": "0" * 16}, told]], SHARDS_SCHEMA.field("beside_xxh3").type)
    broken = shards.set_column(shards.schema.get_field_index("beside_xxh3"), SHARDS_SCHEMA.field("beside_xxh3"), column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, broken.schema) as writer:
        writer.write_table(broken)
    with pytest.raises(DataError, match=r"^shards\.arrow.*null"):
        read_shards(sink.getvalue(), file="shards.arrow")


@pytest.mark.soak
def test_a_schema_of_many_columns_is_read_in_a_time_like_that_of_writing_it() -> None:
    schema = pa.schema([pa.field(f"column {i}", pa.int64()) for i in range(8000)])
    manifest = replace(_part(0, [1])[0], schema=schema)
    assert costs_at_most(20, lambda: from_json(to_json(manifest)), lambda: to_json(manifest))
