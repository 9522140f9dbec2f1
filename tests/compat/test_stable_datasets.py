"""Arrow caches under stable-datasets' names: one test for each sentence that its cache.py says of them."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from PIL import Image as PILImage

import lading
from golden_cases import Golden
from lading.caches import validate_cache, write_cache
from lading.compat.stable_datasets import (
    DEFAULT_SHARD_SIZE_BYTES,
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
from lading.errors import LadingError
from lading.features import Array, Text

FEATURES = Features({"n": Value("int64")})


def rows(count: int, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((number, {"n": number}) for number in range(start, start + count))


def encoded(feature: Any, value: Any) -> Any:
    return encode_example({"x": value}, Features({"x": feature}))["x"]


def picture(mode: str = "RGB", encoding: str = "PNG") -> bytes:
    out = io.BytesIO()
    PILImage.new(mode, (4, 3), 7 if mode in ("L", "P") else (1, 2, 3, 4)[: len(mode)]).save(out, format=encoding)
    return out.getvalue()


# Encoding


def test_raw_bytes_of_images_pass_through_unchanged() -> None:
    assert encoded(Image(), b"no image at all") == b"no image at all"
    assert encoded(Image(), None) is None


@pytest.mark.parametrize("encoding", ["JPEG", "PNG"])
def test_files_of_images_are_read_as_they_are(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(picture(encoding=encoding))
    assert encoded(Image(), path) == encoded(Image(), str(path)) == path.read_bytes()
    with pytest.raises(FileNotFoundError):
        encoded(Image(), tmp_path / "b")


@pytest.mark.parametrize(
    "mode, encoding, stored",
    [("RGB", "JPEG", "JPEG"), ("RGB", "PNG", "PNG"), ("RGB", "WEBP", "WEBP"), ("P", "GIF", "PNG")],
)
def test_pillow_images_keep_the_format_of_their_file_unless_they_have_a_palette(
    mode: str, encoding: str, stored: str
) -> None:
    with PILImage.open(io.BytesIO(picture(mode, encoding))) as image:
        image.load()
        image.fp = None  # nothing but the pixels
        with PILImage.open(io.BytesIO(encoded(Image(), image))) as again:
            assert (again.format, again.size) == (stored, (4, 3))


@pytest.mark.parametrize(
    "image", [PILImage.new("RGB", (4, 3)), PILImage.new("RGBA", (4, 3)), np.zeros((3, 4, 3), "u1")]
)
def test_images_made_by_programs_become_png(image: Any) -> None:
    with PILImage.open(io.BytesIO(encoded(Image(), image))) as again:
        assert (again.format, again.size) == ("PNG", (4, 3))


@pytest.mark.parametrize("array", [np.zeros((2, 2, 3), "f4"), np.zeros((2, 2, 3), "i8"), np.zeros((2, 2, 5), "u1")])
def test_arrays_that_pillow_does_not_take_are_a_type_error_as_there(array: Any) -> None:
    with pytest.raises(TypeError):
        PILImage.fromarray(array)
    with pytest.raises(TypeError, match="an array that is not an image") as error:
        encoded(Image(), array)
    assert isinstance(error.value, LadingError)


@pytest.mark.parametrize("value", [5, 1.5, object(), {"a": 1}])
def test_other_types_of_images_are_a_type_error(value: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"not an image|not media") as error:
        encoded(Image(), value)
    assert isinstance(error.value, LadingError)
    with pytest.raises(TypeError, match="row 0"):
        write_sharded_arrow_cache([(0, {"x": value})], Features({"x": Image()}), tmp_path / "c")


def test_arrays_are_flat_bytes_of_their_dtype() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    feature = Array3D(shape=(2, 3, 4), dtype="float32")
    assert encoded(feature, array) == array.astype("float32").tobytes()
    assert encoded(feature, array.tolist()) == array.astype("float32").tobytes()
    assert encoded(feature, None) is None
    assert isinstance(feature, Array3D)
    assert (feature.shape, feature.dtype) == ((2, 3, 4), "float32")
    assert Array3D((1, 2, 3)) == Array("uint8", (1, 2, 3))
    assert not isinstance(Array("uint8", (1, 2)), Array3D)
    with pytest.raises(ValueError, match="three"):
        Array3D((1, 2))


def test_labels_are_numbers_of_their_names(tmp_path: Path) -> None:
    label = ClassLabel(names=["cat", "dog"])
    assert (encoded(label, "dog"), encoded(label, 1), encoded(label, np.int8(1)), encoded(label, None)) == (
        1,
        1,
        1,
        None,
    )
    assert (label.str2int("cat"), label.int2str(1), label.num_classes, list(label.names)) == (
        0,
        "dog",
        2,
        ["cat", "dog"],
    )
    assert encoded(label, 1.0) == 1
    with pytest.raises(TypeError, match=r"found 0\.5"):
        encoded(label, 0.5)
    assert ClassLabel(num_classes=12).int2str(11) == "11"
    assert ClassLabel(num_classes=12) == ClassLabel([str(number) for number in range(12)])
    for wrong in (lambda: label.str2int("cow"), lambda: label.int2str(2), lambda: label.int2str(-1)):
        with pytest.raises(KeyError, match="label"):
            wrong()
    with pytest.raises(KeyError, match=r"row 0 sample 'k' column 'x'.*one of cat, dog.*found 'cow'"):
        write_sharded_arrow_cache([("k", {"x": "cow"})], Features({"x": label}), tmp_path / "c")
    with pytest.raises(ValueError, match="names or num_classes"):
        ClassLabel()


def test_videos_are_kept_as_paths(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"  # which need not exist
    assert encoded(Video(), path) == encoded(Video(), str(path)) == str(path)
    assert encoded(Video(), None) is None
    assert isinstance(Video(), Video)
    with pytest.raises(TypeError, match="paths of videos"):
        encoded(Video(), b"bytes")
    given = [(number, {"v": value}) for number, value in enumerate([path, str(path), None])]
    meta = write_sharded_arrow_cache(given, Features({"v": Video()}), tmp_path / "c")
    assert read_shard(meta.shard_paths[0])["v"].to_pylist() == [str(path), str(path), None]
    assert sorted(file.name for file in meta.cache_dir.iterdir()) == ["_metadata.json", "shard-00000.arrow"]
    with lading.open(meta.cache_dir) as ds:
        assert ds[0]["v"] == str(path)
    table = pa.table({"v": [str(path), None]})
    assert write_cache([table], Features({"v": Video()}), tmp_path / "d").num_rows == 2
    assert lading.verify(meta.cache_dir, deep=True).ok


def test_sequences_are_lists() -> None:
    feature = Sequence(Value("int32"))
    assert [encoded(feature, value) for value in (np.arange(3), (1, 2), [], None)] == [[0, 1, 2], [1, 2], [], None]


def test_numpy_s_numbers_become_python_s_and_other_keys_pass() -> None:
    examples = (
        {"f": np.float32(0.5), "new": np.int64(3), "text": "x"},
        {"f": np.array([0.5]), "new": np.array([[3]]), "text": "x"},
    )
    for example in examples:
        found = encode_example(example, Features({"f": Value("float64")}))
        assert found == {"f": 0.5, "new": 3, "text": "x"}
        assert {type(value) for value in found.values()} == {float, int, str}


def test_tensors_are_their_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    features = Features({"n": Value("int64"), "label": ClassLabel(num_classes=3), "s": Sequence(Value("int32"))})
    example = {"n": torch.tensor([5]), "label": torch.tensor(1), "s": torch.arange(2)}
    expected = {"n": example["n"].item(), "label": 1, "s": example["s"].tolist()}
    assert encode_example(example, features) == expected
    write_sharded_arrow_cache([(0, example)], features, tmp_path / "c")
    assert read_shard(tmp_path / "c" / "shard-00000.arrow").to_pylist() == [expected]
    for name, value in (("n", torch.arange(2)), ("s", torch.tensor(1))):
        with pytest.raises(TypeError, match=f"column '{name}'.*found Tensor"):
            write_sharded_arrow_cache([(0, {name: value})], features, tmp_path / "d")


@pytest.mark.parametrize(
    "feature, value, builtin",
    [
        (Value("int32"), "x", ValueError),
        (Value("int32"), 1 << 40, ValueError),
        (Value("int32"), b"x", ValueError),
        (Value("int32"), True, TypeError),
        (Value("string"), 5, TypeError),
        (Value("string"), {}, TypeError),
        (Value("binary"), 5, TypeError),
        (Value("bool"), "x", ValueError),
        (Sequence(Value("int32")), ["x"], ValueError),
    ],
)
def test_values_that_do_not_fit_are_the_builtin_that_pyarrow_raises(
    tmp_path: Path, feature: Any, value: object, builtin: type[Exception]
) -> None:
    kind = Features({"x": feature}).to_arrow_schema().field("x").type
    with pytest.raises(builtin) as peer:  # what stable-datasets does
        pa.array([value], kind)
    assert not isinstance(peer.value, LadingError)
    with pytest.raises(builtin, match="column 'x'") as error:
        write_sharded_arrow_cache([(0, {"x": value})], Features({"x": feature}), tmp_path / "c")
    assert isinstance(error.value, LadingError)


# Fingerprints


def test_the_folder_name_is_the_peer_s_of_four_arguments() -> None:
    digest = hashlib.sha256(b"MNIST:1.0.0:default:train").hexdigest()[:16]
    assert cache_fingerprint("MNIST", "1.0.0", "default", "train") == f"mnist_default_train_{digest}"
    assert [*inspect.signature(cache_fingerprint).parameters] == ["cls_name", "version", "config_name", "split"]


def test_the_fingerprint_of_features_is_the_sha256_of_their_repr(tmp_path: Path) -> None:
    features = Features({"image": Image(), "label": ClassLabel(num_classes=10), "v": Video(), "n": Value("int32")})
    assert repr(features) == (
        "{'image': Image(), 'label': ClassLabel(num_classes=10), 'v': Video(), 'n': Value('int32')}"
    )
    meta = write_sharded_arrow_cache([], features, tmp_path / "c")
    assert meta.schema_fingerprint == hashlib.sha256(repr(features).encode()).hexdigest()[:16]


def test_features_give_the_schema_of_the_shards(tmp_path: Path) -> None:
    features = Features({"label": ClassLabel(["a"]), "v": Video(), "vol": Array3D((1, 1, 1)), "t": Value("string")})
    assert isinstance(features, dict)
    meta = write_sharded_arrow_cache([(0, {"label": "a", "t": "x"})], features, tmp_path / "c")
    assert read_shard(meta.shard_paths[0]).schema.equals(features.to_arrow_schema(), check_metadata=True)
    assert features.to_arrow_schema().names == ["label", "v", "vol", "t"]
    with pytest.raises(TypeError, match=r"column 'x'.*no cache stores this feature") as error:
        Features({"x": 5}).to_arrow_schema()  # type: ignore[dict-item] # wrong on purpose
    assert isinstance(error.value, LadingError)


@pytest.mark.parametrize(
    "feature, kind",
    [
        (Value("int32"), pa.int32()),
        (Value("float64"), pa.float64()),
        (Value("string"), pa.string()),
        (Image(), pa.large_binary()),
        (Array3D((1, 2, 2), "float32"), pa.large_binary()),
        (ClassLabel(num_classes=3), pa.int64()),
        (Video(), pa.string()),
        (Sequence(Value("int8")), pa.list_(pa.int8())),
        (Sequence(Sequence(ClassLabel(["a"]))), pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_each_feature_gives_the_type_of_its_column(feature: Any, kind: pa.DataType) -> None:
    assert feature.to_arrow_type() == kind == Features({"x": feature}).to_arrow_schema().field("x").type


def test_values_of_types_that_arrow_lacks_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="float128"):
        pa.type_for_alias("float128")
    for name in ("float128", "object", ""):
        with pytest.raises(ValueError, match=rf"a name of Arrow's.*found '{name}'") as error:
            Value(name)
        assert isinstance(error.value, LadingError)
    with pytest.raises(TypeError, match="not the name of a type"):
        Value(5)  # type: ignore[arg-type] # wrong on purpose


# Shards


def test_the_default_shard_size_is_256_mib() -> None:
    assert DEFAULT_SHARD_SIZE_BYTES == 256 * 1024 * 1024
    told = inspect.signature(write_sharded_arrow_cache).parameters
    assert [*told][:5] == ["generator", "features", "cache_dir", "shard_size_bytes", "batch_size"]
    assert (told["shard_size_bytes"].default, told["batch_size"].default) == (DEFAULT_SHARD_SIZE_BYTES, 1000)
    assert told["shard_size_bytes"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("batch_size, batches", [(1000, [7]), (3, [3, 3, 1]), (7, [7]), (1, [1] * 7)])
def test_batches_are_flushed_every_batch_size_rows(tmp_path: Path, batch_size: int, batches: list[int]) -> None:
    meta = write_sharded_arrow_cache(rows(7), FEATURES, tmp_path / "c", batch_size=batch_size)
    assert [len(batch) for batch in read_shard(meta.shard_paths[0]).to_batches()] == batches


def test_batches_of_large_values_are_flushed_every_batch_size_rows_too(tmp_path: Path) -> None:
    given = ((number, {"x": bytes(3 << 20)}) for number in range(5))
    meta = write_sharded_arrow_cache(given, Features({"x": Image()}), tmp_path / "c", batch_size=3)
    assert [len(batch) for batch in read_shard(meta.shard_paths[0]).to_batches()] == [3, 2]


@pytest.mark.parametrize(
    "size, counts",
    [(1, [2, 2, 2]), (16, [2, 2, 2]), (17.0, [4, 2]), ("48b", [6]), (1 << 30, [6]), (float("inf"), [6]), ("1mb", [6])],
)
def test_a_shard_is_closed_when_its_batches_reach_the_size_and_none_is_empty(
    tmp_path: Path, size: float | str, counts: list[int]
) -> None:
    meta = write_sharded_arrow_cache(rows(6), FEATURES, tmp_path / "c", batch_size=2, shard_size_bytes=size)
    assert (meta.shard_row_counts, meta.num_shards, meta.num_rows) == (counts, len(counts), 6)
    assert meta.shard_filenames == [f"shard-{number:05d}.arrow" for number in range(len(counts))]
    assert [len(read_shard(path)) for path in meta.shard_paths] == counts
    numbers = [row["n"] for path in meta.shard_paths for row in read_shard(path).to_pylist()]
    assert numbers == [*range(6)]


def test_an_empty_generator_produces_no_shards(tmp_path: Path) -> None:
    meta = write_sharded_arrow_cache(iter(()), FEATURES, tmp_path / "c")
    assert (meta.num_shards, meta.num_rows, meta.shard_filenames) == (0, 0, [])
    assert validate_sharded_cache(tmp_path / "c", FEATURES) == meta


def test_columns_that_an_example_lacks_are_null_and_other_keys_are_left_out(tmp_path: Path) -> None:
    meta = write_sharded_arrow_cache([(0, {"m": 1}), (1, {"n": 2})], FEATURES, tmp_path / "c")
    assert read_shard(meta.shard_paths[0]).to_pylist() == [{"n": None}, {"n": 2}]


def test_the_folder_contains_ipc_files_and_metadata(tmp_path: Path) -> None:
    meta = write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "deep/er/c", batch_size=1, shard_size_bytes=1)
    assert sorted(file.name for file in meta.cache_dir.iterdir()) == ["_metadata.json", *meta.shard_filenames]
    assert pa.feather.read_table(meta.shard_paths[2]).to_pylist() == [{"n": 2}]
    told = json.loads((meta.cache_dir / "_metadata.json").read_text())
    assert told["cache_format_version"] == 1
    assert told["shard_size_target_bytes"] == 1
    for name in ("num_rows", "num_shards", "shard_filenames", "shard_row_counts", "schema_fingerprint"):
        assert told[name] == getattr(meta, name)


def test_writing_is_atomic(tmp_path: Path) -> None:
    write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c")

    def failing() -> Iterator[tuple[int, dict[str, Any]]]:
        yield from rows(2, start=50)
        assert read_shard(tmp_path / "c/shard-00000.arrow")["n"].to_pylist() == [0, 1, 2]
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        write_sharded_arrow_cache(failing(), FEATURES, tmp_path / "c", batch_size=1)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    assert validate_sharded_cache(tmp_path / "c", FEATURES).num_rows == 3
    assert write_sharded_arrow_cache(rows(2), FEATURES, tmp_path / "c").num_rows == 2
    assert validate_sharded_cache(tmp_path / "c", FEATURES).num_rows == 2


def test_a_log_line_tells_of_each_cache_that_is_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c", batch_size=2, shard_size_bytes=1)
    assert caplog.record_tuples == [
        ("lading.caches", logging.INFO, f"Cached 3 examples in 2 shard(s) to {tmp_path / 'c'}")
    ]


def test_the_metadata_is_what_is_returned(tmp_path: Path) -> None:
    meta = write_sharded_arrow_cache(rows(3), FEATURES, str(tmp_path / "c"))
    assert read_sharded_cache_meta(tmp_path / "c") == read_sharded_cache_meta(str(tmp_path / "c")) == meta
    told = ShardedCacheMeta(str(tmp_path / "c"), 3, 1, ["shard-00000.arrow"], [3], meta.schema_fingerprint)  # type: ignore[arg-type]
    assert told == meta
    assert meta.shard_paths == [tmp_path / "c/shard-00000.arrow"]


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"num_encode_workers": 2}, {"lineage": {"from": "a"}}])
def test_options_of_later_versions(tmp_path: Path, options: dict[str, Any]) -> None:
    meta = write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c", **options)
    assert read_shard(meta.shard_paths[0])["n"].to_pylist() == [0, 1, 2]


# Reading


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told | {"cache_format_version": 2},
        lambda told: told | {"num_shards": 5},
        lambda told: told | {"shard_row_counts": [1]},
        lambda told: told | {"num_rows": 99},
        lambda told: {name: value for name, value in told.items() if name != "shard_filenames"},
    ],
)
def test_an_inconsistent_cache_is_a_value_error(tmp_path: Path, change: Any) -> None:
    write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c", batch_size=2, shard_size_bytes=1)
    path = tmp_path / "c/_metadata.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    for check in (read_sharded_cache_meta, lambda folder: validate_sharded_cache(folder, FEATURES)):
        with pytest.raises(ValueError, match="_metadata") as error:
            check(tmp_path / "c")
        assert isinstance(error.value, LadingError)


def test_broken_metadata_a_missing_shard_and_a_missing_cache(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        validate_sharded_cache(tmp_path / "c", FEATURES)
    meta = write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c")
    meta.shard_paths[0].rename(tmp_path / "away")
    for check in (read_sharded_cache_meta, lambda folder: validate_sharded_cache(folder, FEATURES)):
        with pytest.raises(ValueError, match=r"shard-00000\.arrow: a shard of the cache is missing"):
            check(tmp_path / "c")
    (tmp_path / "c/_metadata.json").write_text("{")
    with pytest.raises(ValueError, match="_metadata"):
        validate_sharded_cache(tmp_path / "c", FEATURES)


@pytest.mark.parametrize(
    "other", [{"n": Value("int32")}, {"m": Value("int64")}, {"n": Value("int64"), "m": Value("int64")}]
)
def test_a_changed_schema_is_a_value_error(tmp_path: Path, other: dict[str, Any]) -> None:
    write_sharded_arrow_cache(rows(3), FEATURES, tmp_path / "c")
    with pytest.raises(ValueError, match="other features"):
        validate_sharded_cache(tmp_path / "c", Features(other))


def test_a_shard_is_read_over_a_map(tmp_path: Path) -> None:
    given = ((number, {"x": bytes(1 << 20)}) for number in range(8))
    meta = write_sharded_arrow_cache(given, Features({"x": Image()}), tmp_path / "c")
    before = pa.total_allocated_bytes()
    table = read_shard(shard_path=meta.shard_paths[0])
    assert isinstance(table, pa.Table)
    assert table.nbytes > 8 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


# A cache of the peer

OLDER = Features(
    {
        "image": Image(),
        "vol": Array3D(shape=(1, 2, 2), dtype="float32"),
        "label": ClassLabel(names=["cat", "dog"]),
        "clip": Video(),
        "tags": Sequence(Value("string")),
        "n": Value("int32"),
    }
)


def older_rows() -> Iterator[tuple[int, dict[str, Any]]]:
    """What the peer was given."""
    for i in range(5):
        yield (
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


def test_a_cache_of_the_peer_is_valid_and_the_same_rows_give_the_same_shards(golden: Golden, tmp_path: Path) -> None:
    theirs = validate_sharded_cache(golden("stable-older") / "mixed", OLDER)
    ours = write_sharded_arrow_cache(older_rows(), OLDER, tmp_path / "c", batch_size=2, shard_size_bytes=300)
    assert (ours.shard_row_counts, ours.schema_fingerprint) == ([4, 1], theirs.schema_fingerprint)
    assert ours.shard_row_counts == theirs.shard_row_counts
    for mine, peers in zip(ours.shard_paths, theirs.shard_paths, strict=True):
        one, other = read_shard(mine), read_shard(peers)
        assert [len(batch) for batch in one.to_batches()] == [len(batch) for batch in other.to_batches()]
        found, expected = one.to_pylist(), other.to_pylist()
        for row in (*found, *expected):  # another zlib may compress to other bytes
            row["image"] = row["image"] and PILImage.open(io.BytesIO(row["image"])).tobytes()
        assert found == expected
    assert validate_cache(theirs.cache_dir, OLDER).num_rows == 5
    with pytest.raises(ValueError, match="other features"):
        validate_sharded_cache(theirs.cache_dir, Features(OLDER | {"label": ClassLabel(["cow"])}))


def test_a_cache_of_the_peer_opens(golden: Golden) -> None:
    with lading.open(golden("stable-older") / "mixed") as ds:
        assert len(ds) == 5
        row = ds[3]
    assert (row["clip"], row["label"], row["n"], row["tags"]) == ("/videos/3.mp4", 1, 3, ["a"] * 3)
    assert np.frombuffer(row["vol"], "float32").tolist() == [1.5] * 4  # its files do not say what bytes are


def test_a_cache_of_the_peer_opens_with_its_features(golden: Golden) -> None:
    given = [row for _, row in older_rows()]
    with lading.open(golden("stable-older") / "mixed", schema=OLDER.to_arrow_schema()) as ds:
        assert [lading.features.feature_of(ds.schema.field(name)) for name in ("image", "vol", "label")] == [
            OLDER[name] for name in ("image", "vol", "label")
        ]
        for row, expected in zip(ds, given, strict=True):
            found = row["image"]
            assert (found and np.asarray(found).tolist()) == (
                expected["image"].tolist() if expected["image"] is not None else None
            )
            assert (row["vol"].dtype, row["vol"].tolist()) == (np.float32, expected["vol"].tolist())
            assert row["clip"] == (expected["clip"] and str(expected["clip"]))
    assert Text() == lading.features.feature_of(pa.field("clip", pa.string()))
