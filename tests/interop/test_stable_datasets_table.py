"""Each line of the table of stable-datasets in `docs/coming-from.md`.

The peer is on no package index. What it does is here as its files and words say (`tests/golden/stable-older`, its
messages, the hashes of its fingerprints), as Arrow does to its calls, and as `bench/stable_datasets_way.py` retells it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Pillow

import lading
from doc_tables import Table
from golden_cases import Golden
from lading.caches import CacheMeta, read_cache_meta, validate_cache, write_cache
from lading.compat.stable_datasets import (
    Array3D,
    ClassLabel,
    Features,
    Image,
    Sequence,
    ShardedCacheMeta,
    Value,
    Video,
    cache_fingerprint,
    encode_example,
    read_shard,
    read_sharded_cache_meta,
    validate_sharded_cache,
    write_sharded_arrow_cache,
)
from lading.errors import LadingError, SchemaMismatch

pytestmark = pytest.mark.interop

TABLE = Table("stable-datasets")

FEATURES = Features(
    {
        "image": Image(),
        "vol": Array3D(shape=(1, 2, 2), dtype="float32"),
        "label": ClassLabel(names=["cat", "dog"]),
        "clip": Video(),
        "tags": Sequence(Value("string")),
        "n": Value("int32"),
    }
)
"""Of the peer's cache in `tests/golden`."""


def examples() -> list[tuple[int, dict[str, Any]]]:
    """What the peer wrote there, with batches of 2 rows and shards of 300 bytes."""
    return [
        (
            i,
            {
                "image": np.full((2, 2, 3), i, np.uint8) if i else None,
                "vol": np.full((1, 2, 2), i / 2),
                "label": "dog" if i % 2 else 0,
                "clip": Path(f"/videos/{i}.mp4") if i else None,
                "tags": ["a"] * i,
                "n": np.int64(i),
            },
        )
        for i in range(5)
    ]


@pytest.fixture
def theirs(golden: Golden) -> Path:
    """A cache of the peer."""
    return golden("stable-older") / "mixed"


def pixels(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with decoded images: another zlib may compress to other bytes."""
    found = table.to_pylist()
    for row in found:
        row["image"] = row["image"] and Pillow.open(io.BytesIO(row["image"])).tobytes()
    return found


@TABLE.line(
    "`write_sharded_arrow_cache(generator, features, cache_dir)`",
    "`shard_size_bytes=` (256 MiB), `batch_size=`",
    "`ShardedCacheMeta`, `read_sharded_cache_meta`",
    "`read_shard`, `encode_example`",
)
def test_caches_are_the_peer_s(theirs: Path, tmp_path: Path) -> None:
    peer = read_sharded_cache_meta(theirs)
    ours = write_sharded_arrow_cache(examples(), FEATURES, tmp_path / "a", shard_size_bytes=300, batch_size=2)
    assert ours == ShardedCacheMeta(**{**vars(peer), "cache_dir": tmp_path / "a"})
    assert read_sharded_cache_meta(tmp_path / "a") == ours
    for mine, other in zip(ours.shard_paths, peer.shard_paths, strict=True):
        assert pixels(read_shard(mine)) == pixels(read_shard(other))
        assert pixels(lading.caches.read_shard(mine)) == pixels(read_shard(other))
    encoded = [encode_example(example, FEATURES) for _, example in examples()]
    assert pixels(pa.Table.from_pylist(encoded)) == [row for p in peer.shard_paths for row in pixels(read_shard(p))]
    assert lading.caches.encode_example(examples()[1][1], FEATURES) == encoded[1]
    assert lading.compat.stable_datasets.DEFAULT_SHARD_SIZE_BYTES == 256 << 20
    more = write_cache(examples(), FEATURES, tmp_path / "b", shard_size="256MB", batch_bytes=1, lineage={"by": "me"})
    assert more == read_cache_meta(tmp_path / "b")
    assert isinstance(more, CacheMeta)
    assert more.shard_row_counts == (5,)


@TABLE.line("`write_sharded_arrow_cache(generator, features, cache_dir)`")
def test_the_retold_peer_reads_the_same(tmp_path: Path) -> None:
    way = _stable_datasets_way()
    features = {"n": way.Value("int64"), "image": way.Image()}
    given = [(i, {"n": np.int64(i), "image": np.full((2, 2, 3), i, np.uint8)}) for i in range(5)]
    way.write_sharded_arrow_cache(given, features, str(tmp_path / "peer"), batch_size=2)
    ours = write_sharded_arrow_cache(
        given, Features({"n": Value("int64"), "image": Image()}), tmp_path / "ours", batch_size=2
    )
    assert pixels(read_shard(tmp_path / "peer/shard-00000.arrow")) == pixels(read_shard(ours.shard_paths[0]))


def _stable_datasets_way() -> Any:
    path = Path(__file__).parents[2] / "bench" / "stable_datasets_way.py"
    spec = importlib.util.spec_from_file_location("stable_datasets_way", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@TABLE.line("`validate_sharded_cache` (`ValueError`)")
def test_caches_of_other_features(theirs: Path, tmp_path: Path) -> None:
    assert validate_sharded_cache(theirs, FEATURES).num_rows == validate_cache(theirs, FEATURES).num_rows == 5
    write_sharded_arrow_cache(examples(), FEATURES, tmp_path / "a")
    other = Features(FEATURES | {"label": ClassLabel(["cow"])})
    for folder in (theirs, tmp_path / "a"):
        with pytest.raises(ValueError, match="other features"):
            validate_sharded_cache(folder, other)
    with pytest.raises(SchemaMismatch, match="'label'") as error:
        validate_cache(tmp_path / "a", other)
    assert isinstance(error.value, ValueError)


@TABLE.line("`cache_fingerprint(name, version, config, split)`")
def test_names_of_folders() -> None:
    digest = hashlib.sha256(b"Pets:1.0.0:default:train").hexdigest()[:16]  # as in its cache.py
    assert cache_fingerprint("Pets", "1.0.0", "default", "train") == f"pets_default_train_{digest}"
    assert lading.caches.cache_fingerprint("Pets", "1.0.0", "default", "train") != f"pets_default_train_{digest}"


@TABLE.line("`Features`, `to_arrow_schema()`", "`feature.to_arrow_type()`")
def test_schemas(theirs: Path) -> None:
    schema = FEATURES.to_arrow_schema()
    peer = read_shard(theirs / "shard-00000.arrow").schema
    wide = {pa.binary(): pa.large_binary()}  # its later versions keep bytes so
    assert (schema.names, schema.types) == (peer.names, [wide.get(kind, kind) for kind in peer.types])
    assert [feature.to_arrow_type() for feature in FEATURES.values()] == schema.types
    assert isinstance(FEATURES, dict)


@TABLE.line("`Array3D(shape, dtype)`", "`ClassLabel(names)`, `ClassLabel(num_classes=…)`, `str2int`, `int2str`")
def test_features() -> None:
    assert Array3D((1, 2, 2), "float32") == lading.features.Array("float32", (1, 2, 2))
    assert lading.features.Array3D is Array3D
    assert lading.features.ClassLabel is ClassLabel
    label = ClassLabel(["cat", "dog"])
    assert (label.str2int("dog"), label.int2str(0), label.names) == (1, "cat", ("cat", "dog"))
    assert ClassLabel(num_classes=3).names == ("0", "1", "2")


@TABLE.line("`Video()` as a path")
def test_videos(theirs: Path, tmp_path: Path) -> None:
    peer = [row["clip"] for path in read_sharded_cache_meta(theirs).shard_paths for row in read_shard(path).to_pylist()]
    assert Video() == lading.features.Video("text")
    assert [encode_example({"v": e["clip"]}, Features({"v": Video()}))["v"] for _, e in examples()] == peer
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    write_cache([{"v": tmp_path / "a.mp4"}], {"v": lading.features.Video("path")}, tmp_path / "c")
    [copy] = (tmp_path / "c").rglob("*.mp4")
    assert copy.read_bytes() == (tmp_path / "a.mp4").read_bytes()


@TABLE.line("unknown keys ignored, missing keys null", "values cast without a check")
def test_other_keys_and_values(tmp_path: Path) -> None:
    features = Features({"n": Value("int64")})
    meta = write_sharded_arrow_cache([(0, {"m": 1}), (1, {"n": 2})], features, tmp_path / "a")
    assert read_shard(meta.shard_paths[0]).to_pylist() == [{"n": None}, {"n": 2}]
    for given in ({"m": 1, "n": 2}, {}):
        with pytest.raises(LadingError):
            write_cache([given], features, tmp_path / "b")
    write_cache([{"m": 1}], features, tmp_path / "b", on_unknown="drop", on_missing="null")
    assert lading.open(tmp_path / "b")[0]["n"] is None
    array = np.array([[[1.7]]])
    assert np.asarray(array, "int8").tolist() == [[[1]]]  # what the peer stores
    for write in (write_sharded_arrow_cache, write_cache):
        with pytest.raises(ValueError, match="column 'x'"):
            write([(0, {"x": array})], Features({"x": Array3D((1, 1, 1), "int8")}), tmp_path / "c")


@TABLE.line("`TypeError` for an image of another type, `KeyError` for an unknown label, `FileNotFoundError`")
def test_errors(tmp_path: Path) -> None:
    for builtin, feature, value in (
        (TypeError, Image(), 5),
        (TypeError, Image(), np.zeros((2, 2, 3), "f4")),
        (KeyError, ClassLabel(["cat"]), "cow"),
        (FileNotFoundError, Image(), tmp_path / "none.png"),
    ):
        with pytest.raises(builtin) as error:
            encode_example({"x": value}, Features({"x": feature}))
        assert isinstance(error.value, LadingError)


@TABLE.line("the log line `Cached … examples in … shard(s) to …`")
def test_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        write_sharded_arrow_cache(examples(), FEATURES, tmp_path / "a")
    assert caplog.record_tuples == [
        ("lading.caches", logging.INFO, f"Cached 5 examples in 1 shard(s) to {tmp_path / 'a'}")
    ]


@TABLE.line("any folder replaced by a cache")
def test_folders_that_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        assert write_sharded_arrow_cache(examples(), FEATURES, tmp_path / "empty").num_rows == 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        write_sharded_arrow_cache(examples(), FEATURES, tmp_path / "other")
    assert (tmp_path / "other/notes.txt").read_text() == "mine"


@TABLE.line("`StableDataset.select`, `filter`, `map`", "a cache of stable-datasets")
def test_caches_open(theirs: Path) -> None:
    with lading.open(theirs, schema=FEATURES.to_arrow_schema()) as ds:
        assert [row["n"] for row in ds[[3, 1]]] == [3, 1]
        assert [row["n"] for row in ds.filter(lambda row: row["label"] == 1)] == [1, 3]
        assert [row["m"] for row in ds.map(lambda row: {"m": 2 * row["n"]})] == [0, 2, 4, 6, 8]
        for row, (_, example) in zip(ds, examples(), strict=True):
            assert row["vol"].tolist() == example["vol"].tolist()
            assert (row["image"] is None) == (example["image"] is None)
            assert row["image"] is None or np.asarray(row["image"]).tolist() == example["image"].tolist()
    with lading.open(theirs) as ds:
        assert isinstance(ds[1]["image"], bytes)


def test_each_line_is_run() -> None:
    TABLE.check()
