"""Caches beside those that stable-datasets wrote: the same rows give the same batches, types, keys and names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from golden_cases import Golden, case_names
from hostile import Judge
from lading._core.features.types import Array, ClassLabel, Feature, Image, Sequence, Value, Video
from lading.caches import fingerprint, read_cache_meta, read_shard, validate_cache, write_cache
from lading.errors import SchemaMismatch, SidecarMismatch

CACHES = [name for name in case_names("arrow") if name.startswith("stable-")]
LABELS = ClassLabel(("0", "1", "2"))
FEATURES: dict[str, Feature] = {
    "image": Image(),
    "image_jpg": Image(),
    "vol": Array("float32", (2, 3, 4)),
    "clip": Array("uint8", (1, 2, 3, 4)),
    "label": LABELS,
    "tags": Sequence(Value("string")),
    "ids": Sequence(Value("int32")),
    "i8": Value("int8"),
    "u64": Value("uint64"),
    "f16": Value("float16"),
    "f32": Value("float32"),
    "f64": Value("float64"),
    "ok": Value("bool"),
    "text": Value("string"),
    "raw": Value("binary"),
}


def batches_of(path: str) -> list[pa.RecordBatch]:
    with pa.memory_map(path) as file:
        reader = pa.ipc.open_file(file)
        return [reader.get_batch(i) for i in range(reader.num_record_batches)]


def told(schema: pa.Schema) -> list[tuple[str, pa.DataType, bytes]]:
    return [(field.name, field.type, field.metadata[b"stable_datasets.feature"]) for field in schema]


@pytest.mark.parametrize(
    "case, options",
    [
        ("stable-single", {}),
        ("stable-sharded", {"batch_size": 3, "shard_size": 9000}),
        ("stable-zstd", {"batch_size": 4, "compression": "zstd"}),
        ("stable-lz4", {"batch_size": 5, "compression": "lz4", "shard_size": 1, "lineage": {"src": "unit", "n": 1}}),
        ("stable-empty", {}),
    ],
)
def test_the_same_rows_give_the_same_files(golden: Golden, case: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = read_cache_meta(golden("arrow") / case)
    rows = [row for path in theirs.shard_paths for row in read_shard(path).to_pylist()]
    for row in rows:  # what the peer was given: arrays
        for name, feature in FEATURES.items():
            if isinstance(feature, Array) and row[name] is not None:
                row[name] = np.frombuffer(row[name], feature.dtype).reshape(feature.shape)
    ours = write_cache(rows, FEATURES, tmp_path / "out", **options)
    for mine, peers in zip(ours.shard_paths, theirs.shard_paths, strict=True):
        assert [len(b) for b in batches_of(mine)] == [len(b) for b in batches_of(peers)]
        assert told(read_shard(mine).schema) == told(read_shard(peers).schema)
        for one, other in zip(batches_of(mine), batches_of(peers), strict=True):
            assert one.replace_schema_metadata().to_pylist().__repr__() == other.to_pylist().__repr__()
    mine_told, peers_told = (json.loads((Path(m.cache_dir) / "_metadata.json").read_text()) for m in (ours, theirs))
    assert mine_told.pop("lading")["features"][3] == [
        "clip",
        {"kind": "array", "dtype": "uint8", "shape": [1, 2, 3, 4]},
    ]
    assert [*mine_told] == [*peers_told]
    assert mine_told | {"schema_fingerprint": ""} == peers_told | {"schema_fingerprint": ""}


@pytest.mark.parametrize("storage", ["bytes", "path"])
def test_fingerprints_are_the_peers(golden: Golden, storage: str) -> None:
    features = {"video": Video(storage), "label": LABELS}
    meta = validate_cache(golden("arrow") / f"stable-video-{storage}", features)
    assert meta.schema_fingerprint == fingerprint(features)
    assert meta.features is None


@pytest.mark.parametrize("storage", ["bytes", "path"])
def test_videos_are_stored_as_the_peer_does(golden: Golden, storage: str, tmp_path: Path) -> None:
    case = golden("arrow") / f"stable-video-{storage}"
    [path] = read_cache_meta(case).shard_paths
    theirs = read_shard(path)
    rows = theirs.to_pylist()
    given = []
    for row in rows:
        cell = row["video"]
        given.append(row if cell is None else row | {"video": dict(cell)})
        if cell is not None and storage == "path":
            given[-1]["video"]["path"] = str(case / "_assets/video" / cell["path"])
    ours = write_cache(given, {"video": Video(storage), "label": LABELS}, tmp_path / "out")
    mine = read_shard(ours.shard_paths[0])
    assert mine.to_pylist() == rows
    assert mine.schema.field("video").type == theirs.schema.field("video").type
    peer_told = theirs.schema.field("video").metadata
    assert {**peer_told, **mine.schema.field("video").metadata} == mine.schema.field("video").metadata
    if storage == "path":
        kept = (Path(ours.cache_dir) / "_assets/video").iterdir()
        assert sorted(p.name for p in kept) == sorted(p.name for p in (case / "_assets/video").iterdir())


@pytest.mark.parametrize("case", CACHES)
def test_a_cache_of_the_peer_that_is_of_other_features_says_what_its_types_tell(golden: Golden, case: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"_metadata\.json.*other features.*(same types|columns|without)"):
        validate_cache(golden("arrow") / case, FEATURES | {"label": ClassLabel(("else",))})


def read_case(folder: Path, _spec: dict[str, Any]) -> Any:
    """Everything of a hostile cache, each row a dict."""
    meta = read_cache_meta(folder)
    schema = None
    for path, count in zip(meta.shard_paths, meta.shard_row_counts, strict=True):
        table = read_shard(path)
        schema = schema or table.schema
        if len(table) != count or table.schema.names != schema.names:
            raise SidecarMismatch("another number of rows, or other columns", file=path, expected=count)
        yield from table.to_pylist()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.mark.soak
@pytest.mark.parametrize("case", case_names("hostile-arrow-shards"))
def test_hostile(golden: Golden, judge: Judge, case: str) -> None:
    assert judge(golden("hostile-arrow-shards") / case) == []
