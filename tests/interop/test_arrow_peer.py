"""Hugging Face datasets and pyarrow read what lading writes, and lading what they write."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Picture

import lading
from lading import errors
from lading._core.arrow.casts import unregistered_type
from lading._core.features.huggingface import schema_of_features
from lading._core.features.types import (
    Array,
    ClassLabel,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    Value,
    Video,
    feature_of,
    with_feature,
)
from lading.caches import write_cache

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS = 2500
NOON = datetime(2020, 1, 1, 12)  # noqa: DTZ001 - a time without a zone


def _picture(number: int) -> bytes:
    data = io.BytesIO()
    Picture.new("RGB", (5, 4), (number % 256, 0, 0)).save(data, "PNG")
    return data.getvalue()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Pictures, labels, numbers, lists and structs, some of them missing."""
    fields = [
        with_feature(pa.field("image", pa.large_binary()), Image()),
        with_feature(pa.field("label", pa.int16()), ClassLabel(("cat", "ünicorn"))),
        with_feature(pa.field("about", pa.string()), Json()),
        pa.field("numbers", pa.list_(pa.float32())),
        pa.field("pair", pa.list_(pa.int8(), 2)),
        pa.field("inside", pa.struct([("a", pa.large_string()), ("b", pa.timestamp("us"))])),
        pa.field("raw", pa.large_binary()),
    ]
    pictures = [_picture(number) for number in range(16)]
    rows = [
        {
            "image": pictures[n % 16] if n % 7 else None,
            "label": n % 2 if n % 5 else None,
            "about": json.dumps({"n": n}),
            "numbers": [n / 2] * (n % 3),
            "pair": [1, 2] if n % 3 else None,
            "inside": {"a": f"row {n}", "b": None} if n % 4 else None,
            "raw": b"r" * (n % 50),
        }
        for n in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def _write(table: pa.Table, folder: Path, fmt: str, **options: Any) -> Path:
    with lading.writer(folder, format=fmt, options=options, shard_size="20kb") as writer:
        writer.write_batch(table)
    return folder


def _of_datasets(row: dict[str, Any]) -> dict[str, Any]:
    image = None if row["image"] is None else {"bytes": row["image"], "path": None}
    return {**row, "image": image, "about": json.loads(row["about"])}


def _check_features(datasets: Any, features: Any) -> None:
    assert features["image"] == datasets.Image()
    assert features["label"] == datasets.ClassLabel(names=["cat", "ünicorn"])
    assert features["about"] == datasets.Json()
    assert features["pair"] == datasets.List(datasets.Value("int8"), length=2)
    assert features["inside"] == {"a": datasets.Value("large_string"), "b": datasets.Value("timestamp[us]")}


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_load_from_disk(datasets: Any, table: pa.Table, tmp_path: Path, compression: str) -> None:
    folder = _write(table, tmp_path / "set", "arrow", layout="huggingface", compression=compression)
    found = datasets.load_from_disk(str(folder))
    _check_features(datasets, found.features)
    expected = [_of_datasets(row) for row in table.to_pylist()]
    null = {"a": None, "b": None}
    rows = found.cast_column("image", datasets.Image(decode=False)).to_list()
    assert [{**row, "inside": row["inside"] or null} for row in rows] == [
        {**row, "inside": row["inside"] or null} for row in expected
    ]
    assert found[1]["image"].size == (5, 4)
    again = lading.open(_saved(found.select(range(100)), tmp_path / "again"))
    with again as dataset:
        assert feature_of(dataset.schema.field("label")) == ClassLabel(("cat", "ünicorn"))
        assert [row["image"] for batch in dataset.batches() for row in batch.to_pylist()] == [
            row["image"] for row in expected[:100]
        ]


def _saved(dataset: Any, folder: Path) -> Path:
    dataset.save_to_disk(str(folder))
    return folder


def test_parquet_with_features(datasets: Any, table: pa.Table, tmp_path: Path) -> None:
    folder = _write(table, tmp_path / "set", "parquet", huggingface=True)
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    found = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    _check_features(datasets, found.features)
    images = [row["image"] for row in found.cast_column("image", datasets.Image(decode=False))]
    assert images == [_of_datasets(row)["image"] for row in table.to_pylist()]
    with lading.open(folder) as dataset:
        assert dataset.schema.field("image").type == pa.large_binary()
        rows = [row for batch in dataset.batches() for row in batch.to_pylist()]
    assert rows == table.to_pylist()


def _healthy(datasets: Any, folder: Path) -> dict[str, Any]:
    """Datasets as they come from a generator, whose rows datasets counted, with something done to them."""

    def rows() -> Any:
        yield from ({"n": n, "t": str(n), "label": n % 2} for n in range(100))

    features = datasets.Features({"n": datasets.Value("int64"), "t": datasets.Value("string"),
                                  "label": datasets.ClassLabel(names=["a", "b"])})  # fmt: skip
    whole = datasets.Dataset.from_generator(rows, features=features, cache_dir=str(folder))
    other = datasets.Dataset.from_dict({"m": list(range(100))})
    return {
        "whole": whole,
        "select": whole.select(range(7)),
        "filter": whole.filter(lambda row: row["n"] % 3 == 0),
        "shuffle": whole.shuffle(seed=1),
        "shard": whole.shard(4, 1),
        "map": whole.map(lambda row: {"z": row["n"] / 2}),
        "rename": whole.rename_column("n", "m"),
        "remove": whole.remove_columns(["t"]),
        "cast": whole.cast_column("n", datasets.Value("int8")),
        "format": whole.with_format("numpy", columns=["n"]),
        "rows joined": datasets.concatenate_datasets([whole, whole.select(range(5))]),
        "columns joined": datasets.concatenate_datasets([whole, other], axis=1),
        "mixed": datasets.interleave_datasets([whole, whole.select(range(5))]),
        "dict": datasets.DatasetDict({"train": whole.select(range(3)), "val": whole.select(range(5))}),
        "split": whole.train_test_split(test_size=0.2, seed=1),
    }


def test_nothing_is_wrong_with_what_datasets_saves(datasets: Any, tmp_path: Path) -> None:
    """`num_examples` in `dataset_info.json` are those of the generator, whatever was selected since: no claim."""
    for name, dataset in _healthy(datasets, tmp_path / "cache").items():
        folder = _saved(dataset, tmp_path / name)
        parts = {folder / part: rows for part, rows in dataset.num_rows.items()} if name in ("dict", "split") else {}
        for part, count in (parts or {folder: dataset.num_rows}).items():
            again = datasets.load_from_disk(str(part))
            again.filter(lambda row: True)  # leaves `cache-….arrow` beside the files
            found = lading.verify(part)
            assert (name, found.findings, found.samples) == (name, [], count)
    told = json.loads((tmp_path / "select" / "dataset_info.json").read_text())
    assert told["splits"]["train"]["num_examples"] == 100


@pytest.mark.soak
def test_features_that_datasets_refuses_are_findings(datasets: Any, table: pa.Table, tmp_path: Path) -> None:
    folder = _saved(datasets.Dataset(table.select(["numbers", "pair", "inside"])), tmp_path / "set")
    info = folder / "dataset_info.json"
    right = json.loads(info.read_text())
    assert lading.verify(folder).ok
    value = {"dtype": "int8", "_type": "Value"}
    for name, feature in [
        ("numbers", value), ("numbers", {"feature": value, "_type": "List"}), ("more", value),
        ("numbers", {**right["features"]["numbers"], "_type": "LargeList"}),
        ("pair", {**right["features"]["pair"], "length": 3}), ("pair", {"feature": value, "_type": "List"}),
        ("pair", {"names": ["a"], "_type": "ClassLabel"}), ("inside", {"a": right["features"]["inside"]["a"]}),
        ("inside", {**right["features"]["inside"], "b": {"dtype": "timestamp[ms]", "_type": "Value"}}),
    ]:  # fmt: skip
        info.write_text(json.dumps({**right, "features": {**right["features"], name: feature}}))
        with pytest.raises((TypeError, ValueError), match=r"[Cc]ast|features|mismatch|truncated"):
            datasets.load_from_disk(str(folder))
        [finding] = lading.verify(folder).findings
        assert (finding["file"], finding["column"]) == (str(info), name)


def test_splits(datasets: Any, table: pa.Table, tmp_path: Path) -> None:
    whole = datasets.Dataset(table.select(["label", "about", "numbers"]))
    datasets.DatasetDict({"train": whole, "test": whole.select(range(7))}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(lading.LadingError, match="several splits; expected one of them, found train, test"):
        lading.open(tmp_path / "set")
    with lading.open(tmp_path / "set" / "test") as dataset:
        assert [
            row["about"]["n"] if isinstance(row["about"], dict) else json.loads(row["about"])["n"] for row in dataset
        ] == list(range(7))
    lading.convert(tmp_path / "set", tmp_path / "ours", format="arrow", options={"layout": "huggingface"})
    theirs, ours = (datasets.load_from_disk(str(tmp_path / name)) for name in ("set", "ours"))
    assert list(ours) == list(theirs) == ["train", "test"]
    for name in theirs:
        assert ours[name].features == theirs[name].features
        assert ours[name].with_format("arrow")[:].equals(theirs[name].with_format("arrow")[:])


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_pyarrow_opens_a_cache(table: pa.Table, tmp_path: Path, compression: str) -> None:
    folder = _write(table, tmp_path / "set", "arrow", compression=compression)
    index = json.loads((folder / "_metadata.json").read_text())
    parts = [pa.ipc.open_file(pa.memory_map(str(folder / name))).read_all() for name in index["shard_filenames"]]
    assert [len(part) for part in parts] == index["shard_row_counts"]
    assert len(parts) > 1
    found = pa.concat_tables(parts)
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    "to, options",
    [("arrow", {}), ("arrow", {"layout": "huggingface"}), ("parquet", {}), ("parquet", {"huggingface": True})],
)
def test_saved_datasets_are_converted(
    datasets: Any, table: pa.Table, tmp_path: Path, to: str, options: dict[str, Any]
) -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "ünicorn"]),
            "arr": datasets.Array2D((2, 2), "int16"),
        }
    )
    rows = [
        {"image": {"bytes": _picture(n), "path": f"{n}.png"}, "label": n % 2, "arr": [[n, 1], [2, 3]]}
        for n in range(20)
    ]
    saved = _saved(datasets.Dataset.from_list(rows, features=features), tmp_path / "set")
    done = lading.convert(saved, tmp_path / "new", format=to, options=options, verify=True)
    assert done.verified
    if to == "arrow" and options:
        found = datasets.load_from_disk(str(tmp_path / "new"))
        assert found.features == features
        assert found.cast_column("image", datasets.Image(decode=False)).to_list() == rows
    lading.convert(saved, tmp_path / "mds", format="mds", columns=["image", "label"], source_options={"media": "bytes"})
    with lading.open(tmp_path / "mds").with_decode(False) as dataset:
        assert [row["image"] for row in dataset] == [_picture(n) for n in range(20)]


@pytest.mark.parametrize("saved", ["disk", "parquet"])
@pytest.mark.parametrize(
    "name, value",
    [
        ("binary", b"a"), ("string_view", "a"), ("binary_view", b"a"), ("times", [NOON]),
        ("days", [date(2020, 1, 1)]), ("clocks", [time(1, 2)]), ("views", ["a"]), ("fixed", [NOON]),
        ("arrays", [[[1.0, 2.0], [3.0, 4.0]]]), ("inside", {"q": [[1.0, 2.0], [3.0, 4.0]]}),
        ("old", {"a": [b"x"], "c": [0]}), ("pair", {"en": "a", "de": "b"}),
    ],
)  # fmt: skip
def test_every_type_of_datasets_comes_back(datasets: Any, name: str, value: Any, saved: str, tmp_path: Path) -> None:
    """The features tell the types that the files have, or datasets refuses the folder."""
    of, array = datasets.Value, datasets.Array2D((2, 2), "float32")
    features = {
        "binary": of("binary"), "string_view": of("string_view"), "binary_view": of("binary_view"),
        "times": datasets.List(of("timestamp[s]")), "days": datasets.List(of("date64")), "arrays": datasets.List(array),
        "clocks": datasets.List(of("time32[s]")), "views": datasets.List(of("string_view")), "inside": {"q": array},
        "fixed": datasets.List(of("timestamp[s]"), length=1), "pair": datasets.Translation(("en", "de")),
        "old": datasets.Sequence({"a": of("binary"), "c": datasets.ClassLabel(names=["q"])}),
    }  # fmt: skip
    rows = datasets.Dataset.from_dict({"x": [value, None]}, features=datasets.Features({"x": features[name]}))
    source = tmp_path / "a.parquet"
    if saved == "disk":
        source = _saved(rows, tmp_path / "set")
    else:
        rows.to_parquet(str(source))
    assert lading.convert(
        source, tmp_path / "new", format="arrow", options={"layout": "huggingface"}, verify=True
    ).verified
    found = datasets.load_from_disk(str(tmp_path / "new"))
    assert str(found[:]) == str(rows[:])
    assert type(found.features["x"]) is type(rows.features["x"])


def _large(kind: pa.DataType) -> pa.DataType:
    """The type with long offsets, as files of others have it."""
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _large(child.type)) for child in kind])
    if pa.types.is_list(kind):
        return pa.large_list(_large(kind.value_type))
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


@pytest.mark.parametrize(
    "name, value",
    [
        ("numbers", [1]), ("pdf", {"bytes": b"%PDF", "path": "x"}), ("pdfs", [{"bytes": b"%PDF", "path": None}]),
        ("pair", {"en": "a", "de": "b"}), ("many", {"language": ["en"], "translation": ["a"]}),
        ("array", [[1.0, 2.0]]), ("arrays", [[[1.0, 2.0]]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
def test_files_that_datasets_casts_to_its_features(
    datasets: Any, name: str, value: Any, tmp_path: Path, *, large: bool
) -> None:
    """It opens Parquet whose columns have longer offsets, or are bare lists, than its features; lading's folder too."""
    array, pdf, told = datasets.Array2D((1, 2), "float32"), datasets.Pdf(decode=False), ["en", "de"]
    feature = {
        "numbers": datasets.List(datasets.Value("int32")), "pdf": pdf, "pdfs": datasets.List(pdf), "array": array,
        "arrays": datasets.List(array), "pair": datasets.Translation(told),
        "many": datasets.TranslationVariableLanguages(told),
    }[name]  # fmt: skip
    features = datasets.Features({"x": feature})
    kind = unregistered_type(schema_of_features(features.to_dict()).field("x").type)
    column = pa.array([value, None], _large(kind) if large else kind)
    pq.write_table(
        pa.table({"x": column}).replace_schema_metadata(features.arrow_schema.metadata), tmp_path / "a.parquet"
    )
    options = {"layout": "huggingface"}
    assert lading.convert(
        tmp_path / "a.parquet", tmp_path / "new", format="arrow", options=options, verify=True
    ).verified
    found = datasets.load_from_disk(str(tmp_path / "new"))
    assert found.features == features
    assert found.with_format("arrow")[:]["x"].to_pylist() == [value, None]


def test_a_split_without_rows_has_the_columns_of_another(datasets: Any, tmp_path: Path) -> None:
    """Its types are known by its features alone; those of datasets' own are registered by now."""
    features = datasets.Features({
        "a": datasets.Array2D((2, 3), "float32"), "l": datasets.List(datasets.Array2D((None, 1), "int8")),
        "j": datasets.Json(), "i": datasets.Image(decode=False), "s": {"x": datasets.Value("string")},
    })  # fmt: skip
    row = {"a": [[0.0] * 3] * 2, "l": [[[1]]], "j": {"n": 1}, "i": None, "s": {"x": "y"}}
    full = datasets.Dataset.from_list([row], features=features)
    datasets.DatasetDict({"full": full, "none": full.select([])}).save_to_disk(str(tmp_path / "set"))
    with lading.open(tmp_path / "set/full") as one, lading.open(tmp_path / "set/none") as other:
        assert (len(one), len(other)) == (1, 0)
        assert one.schema.remove_metadata().equals(other.schema.remove_metadata(), check_metadata=True)
    lading.convert(tmp_path / "set", tmp_path / "out", format="parquet")
    with lading.open([tmp_path / "out/full", tmp_path / "out/none"]) as both:
        assert len(both) == 1


@pytest.mark.parametrize("by", ["arrow", "mds", "webdataset", "parquet"])
def test_what_datasets_told_of_media_survives_as_bytes(datasets: Any, by: str, tmp_path: Path) -> None:
    features = datasets.Features({
        "__key__": datasets.Value("string"),
        "sound": datasets.Audio(sampling_rate=16_000, decode=False),
        "image": datasets.Image(mode="RGB", decode=False),
    })  # fmt: skip
    rows = [{"__key__": "a", "sound": {"bytes": b"RIFF", "path": "x"}, "image": {"bytes": b"PNG", "path": None}}]
    kinds = schema_of_features(features.to_dict())
    saved = _saved(datasets.Dataset(pa.Table.from_pylist(rows, kinds)).cast(features), tmp_path / "set")
    lading.convert(saved, tmp_path / "by", format=by, source_options={"media": "bytes"})
    lading.convert(tmp_path / "by", tmp_path / "new", format="arrow", options={"layout": "huggingface"})
    assert datasets.load_from_disk(str(tmp_path / "new")).features == features


@pytest.mark.parametrize("to, options", [("arrow", {"layout": "huggingface"}), ("parquet", {"huggingface": True})])
def test_media_inside_lists_and_structs_go_there_and_back(
    datasets: Any, to: str, options: dict[str, Any], tmp_path: Path
) -> None:
    features: dict[str, Feature] = {
        "l": Sequence(Image()), "s": Struct((("i", Image()), ("n", Value("int64")))),
        "d": Sequence(Struct((("i", Image()),))),
    }  # fmt: skip
    a, b = _picture(1), _picture(2)
    rows = [{"l": [a, None], "s": {"i": b, "n": 1}, "d": [{"i": a}, None]}, dict.fromkeys(features)]
    write_cache(rows, features, tmp_path / "cache")
    done = lading.convert(tmp_path / "cache", tmp_path / "new", format=to, options=options, verify=True)
    assert done.verified
    if to == "arrow":
        found = datasets.load_from_disk(str(tmp_path / "new"))
        assert found.features["l"] == datasets.List(datasets.Image())
        assert found[0]["s"]["i"].tobytes() == Picture.open(io.BytesIO(b)).tobytes()
    lading.convert(tmp_path / "new", tmp_path / "back", format="arrow")
    assert lading.diff(tmp_path / "cache", tmp_path / "back").equal


_TO_DATASETS = [("arrow", {"layout": "huggingface"}), ("parquet", {"huggingface": True})]


def _opened(datasets: Any, folder: Path) -> Any:
    """A folder of either format as datasets opens it."""
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    if not files:
        return datasets.load_from_disk(str(folder))
    return datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder / "cache"))


def _arrays(datasets: Any, dtype: str) -> dict[str, tuple[Feature, Any, Any]]:
    """Features, what datasets should make of each, and a value."""
    value = datasets.Value(dtype)
    return {
        "list": (Array(dtype, (3,)), datasets.List(value, length=3), np.array([0, 1, 2], dtype)),
        "any": (Array(dtype, (None,)), datasets.List(value), np.arange(2).astype(dtype)),
        "none": (Array(dtype, (None,)), datasets.List(value), np.zeros(0, dtype)),
        "a2": (Array(dtype, (2, 3)), datasets.Array2D((2, 3), dtype), np.arange(6).reshape(2, 3).astype(dtype)),
        "d2": (Array(dtype, (None, 2)), datasets.Array2D((None, 2), dtype), np.ones((4, 2), dtype)),
        "a3": (Array(dtype, (1, 2, 3)), datasets.Array3D((1, 2, 3), dtype), np.ones((1, 2, 3), dtype)),
        "a4": (Array(dtype, (2, 1, 1, 2)), datasets.Array4D((2, 1, 1, 2), dtype), np.ones((2, 1, 1, 2), dtype)),
        "a5": (Array(dtype, (1,) * 5), datasets.Array5D((1,) * 5, dtype), np.ones((1,) * 5, dtype)),
    }


@pytest.mark.parametrize("to, options", _TO_DATASETS)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool", "float16"])
def test_arrays_are_arrays(datasets: Any, to: str, options: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    known = _arrays(datasets, dtype)
    features = {name: feature for name, (feature, _, _) in known.items()}
    rows = [{name: value for name, (_, _, value) in known.items()}, dict.fromkeys(known)]
    write_cache([*rows, rows[0]], features, tmp_path / "cache")
    assert lading.convert(tmp_path / "cache", tmp_path / "new", format=to, options=options, verify=True).verified
    found = _opened(datasets, tmp_path / "new")
    assert found.features == {name: theirs for name, (_, theirs, _) in known.items()}
    for name, (_, _, value) in known.items():
        assert [np.asarray(found[i][name], dtype).tolist() for i in (0, 2)] == [value.tolist()] * 2
        assert found.data.column(name).is_valid().to_pylist() == [True, False, True]
    with lading.open(tmp_path / "new") as dataset:
        assert {field.name: feature_of(field) for field in dataset.schema} == features
        assert {*dataset.schema.types} == {pa.large_binary()}
        np.testing.assert_array_equal(dataset[2]["a3"], known["a3"][2])
    assert lading.diff(tmp_path / "cache", tmp_path / "new").equal


def test_arrays_are_stored_as_datasets_stores_them(datasets: Any, tmp_path: Path) -> None:
    feature = datasets.Array2D((None, 2), "int16")
    rows = datasets.Dataset.from_dict({"x": [[[1, 2]], None]}, features=datasets.Features({"x": feature}))
    theirs = pa.ipc.open_stream(next(_saved(rows, tmp_path / "theirs").glob("*.arrow"))).schema
    write_cache([{"x": np.array([[1, 2]], np.int16)}], {"x": Array("int16", (None, 2))}, tmp_path / "cache")
    lading.convert(tmp_path / "cache", tmp_path / "ours", format="arrow", options={"layout": "huggingface"})
    ours = pa.ipc.open_stream(next((tmp_path / "ours").glob("*.arrow"))).schema
    assert ours.field("x").type == theirs.field("x").type
    assert ours.field("x").type.__arrow_ext_serialize__() == theirs.field("x").type.__arrow_ext_serialize__()
    assert json.loads(ours.metadata[b"huggingface"]) == json.loads(theirs.metadata[b"huggingface"])


@pytest.mark.parametrize("to, options", _TO_DATASETS)
def test_json_is_json(datasets: Any, to: str, options: dict[str, Any], tmp_path: Path) -> None:
    values: list[Any] = [{"k": 1, "ü": [None, {"x": 1.5}]}, None, [], "text", 3]
    features: dict[str, Feature] = {"j": Json(), "l": Sequence(Json()), "a": Struct((("q", Array("int8", (1, 2))),))}
    array = np.array([[1, 2]], np.int8)
    write_cache([{"j": value, "l": [value, 1], "a": {"q": array}} for value in values], features, tmp_path / "cache")
    assert lading.convert(tmp_path / "cache", tmp_path / "new", format=to, options=options, verify=True).verified
    found = _opened(datasets, tmp_path / "new")
    assert found.features == {
        "j": datasets.Json(), "l": datasets.List(datasets.Json()), "a": {"q": datasets.Array2D((1, 2), "int8")}
    }  # fmt: skip
    assert [found[i]["j"] for i in range(5)] == values
    assert found[0]["l"] == [values[0], 1]
    assert found[0]["a"] == {"q": [[1, 2]]}
    lading.convert(tmp_path / "new", tmp_path / "back", format="arrow", verify=True)
    with lading.open(tmp_path / "cache") as before, lading.open(tmp_path / "back") as after:
        assert after.schema.equals(before.schema, check_metadata=False)
        assert [feature_of(field) for field in after.schema] == [*features.values()]
    assert lading.diff(tmp_path / "cache", tmp_path / "back").equal


def test_json_of_bytes_is_json(datasets: Any, tmp_path: Path) -> None:
    field = with_feature(pa.field("j", pa.large_binary()), Json())
    rows = pa.table([pa.array([b"[1]", None, b'"x"'], pa.large_binary())], pa.schema([field]))
    folder = _write(rows, tmp_path / "set", "arrow", layout="huggingface")
    assert datasets.load_from_disk(str(folder))["j"][:] == [[1], None, "x"]
    with lading.open(folder) as dataset:
        assert dataset.schema.field("j").type == pa.string()
        assert [row.get("j") for row in dataset] == [[1], None, "x"]


@pytest.mark.parametrize("storage", ["bytes", "path"])
@pytest.mark.parametrize("to, options", _TO_DATASETS)
def test_videos_of_a_cache_are_videos(
    datasets: Any, to: str, options: dict[str, Any], storage: str, tmp_path: Path
) -> None:
    write_cache([{"v": b"abc"}, {"v": None}, {"v": b"de"}], {"v": Video(storage)}, tmp_path / "cache")
    own = {"load_assets": storage == "path"}
    lading.convert(tmp_path / "cache", tmp_path / "cells", format=to, options=options, source_options=own)
    with pytest.raises(errors.UsageError, match=r"'v'.*'media': 'bytes'"):
        lading.convert(tmp_path / "cache", tmp_path / "no", format=to, options=options, source_options=own, verify=True)
    own["media"] = "bytes"
    done = lading.convert(
        tmp_path / "cache", tmp_path / "bytes", format=to, options=options, source_options=own, verify=True
    )
    assert done.verified
    for folder in (tmp_path / "cells", tmp_path / "bytes"):
        found = _opened(datasets, folder)
        assert found.features == {"v": datasets.Video()}
        plain = found.cast_column("v", datasets.Video(decode=False))[:]["v"]
        assert [cell and cell["bytes"] for cell in plain] == [b"abc", None, b"de"]
        with lading.open(folder, options={"media": "bytes"}) as dataset:
            assert [row.get("v") for row in dataset] == [b"abc", None, b"de"]
            assert isinstance(feature_of(dataset.schema.field("v")), Video)
    if storage == "path":
        own = {"load_assets": False}
        with pytest.raises(errors.BadReference, match=r"row 0.*'v'.*'load_assets': True"):
            lading.convert(tmp_path / "cache", tmp_path / "no", format=to, options=options, source_options=own)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["binary", "string", "large_binary", "large_string"])
def test_types_of_values_stay_by_way_of_parquet(datasets: Any, kind: str, tmp_path: Path) -> None:
    value = b"a" if kind.endswith("binary") else "a"
    features = datasets.Features({"x": datasets.Value(kind), "l": datasets.List(datasets.Value(kind))})
    rows = datasets.Dataset.from_dict({"x": [value, None], "l": [[value], None]}, features=features)
    saved = _saved(rows, tmp_path / "set")
    lading.convert(saved, tmp_path / "pq", format="parquet", options={"huggingface": True}, verify=True)
    assert _opened(datasets, tmp_path / "pq").features == features
    lading.convert(tmp_path / "pq", tmp_path / "new", format="arrow", options={"layout": "huggingface"}, verify=True)
    found = datasets.load_from_disk(str(tmp_path / "new"))
    assert found.features == features
    assert found[:] == rows[:]
    assert lading.verify(tmp_path / "new").ok
    lading.convert(tmp_path / "pq", tmp_path / "again", format="parquet", options={"huggingface": True}, verify=True)
    assert _opened(datasets, tmp_path / "again").features == features
