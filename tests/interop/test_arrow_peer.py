"""Hugging Face datasets and pyarrow read what lading writes, and lading what they write."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image as Picture

import lading
from lading.arrow import write_cache
from lading.features import (
    ClassLabel,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    Value,
    feature_of,
    with_feature,
)

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
    with lading.writer(folder, format=fmt, options=options, shard_size="60kb") as writer:
        writer.write_batch(table)
    return folder


def _of_datasets(row: dict[str, Any]) -> dict[str, Any]:
    image = None if row["image"] is None else {"bytes": row["image"], "path": None}
    return {**row, "image": image}


def _check_features(datasets: Any, features: Any) -> None:
    assert features["image"] == datasets.Image()
    assert features["label"] == datasets.ClassLabel(names=["cat", "ünicorn"])
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
    with lading.open(tmp_path / "mds") as dataset:
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
