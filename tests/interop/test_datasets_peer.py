"""Hugging Face datasets reads what lading writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lading

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS = [
    {
        "__key__": f"{i:03d}",
        "jpg": b"\xff\xd8\xff" + bytes([i]) * 2000,
        "json": {"i": i, "t": "ü" * i},
        "txt": "text " * i,
    }
    for i in range(20)
]


def _written(folder: Path, fmt: str) -> None:
    with lading.writer(folder, format=fmt) as writer:
        for row in ROWS:
            writer.write(row)


def test_parquet(datasets: object, tmp_path: Path) -> None:
    _written(tmp_path / "new", "parquet")
    files = [str(path) for path in sorted((tmp_path / "new").glob("*.parquet"))]
    found = datasets.Dataset.from_parquet(files, cache_dir=str(tmp_path / "cache"))
    assert found.features["jpg"] == datasets.Image()
    rows = list(found.cast_column("jpg", datasets.Image(decode=False)))
    assert [(r["__key__"], r["jpg"]["bytes"], r["txt"]) for r in rows] == [
        (r["__key__"], r["jpg"], r["txt"]) for r in ROWS
    ]


def test_webdataset(datasets: object, tmp_path: Path) -> None:
    _written(tmp_path / "new", "webdataset")
    files = [str(path) for path in sorted((tmp_path / "new").glob("*.tar"))]
    stream = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    rows = list(stream.cast_column("jpg", datasets.Image(decode=False)))
    assert [(r["__key__"], r["jpg"]["bytes"], r["json"]) for r in rows] == [
        (r["__key__"], r["jpg"], r["json"]) for r in ROWS
    ]


def test_an_empty_dataset_has_the_columns_that_it_was_saved_with(datasets: object, tmp_path: Path) -> None:
    value = datasets.Value
    features = {
        **{kind: value(kind) for kind in ("null", "bool", "uint8", "float16", "double", "large_string", "binary")},
        **{kind: value(kind) for kind in ("date64", "time64[ns]", "duration[s]", "timestamp[us, tz=UTC]")},
        "decimal": value("decimal128(5, 2)"),
        "fixed": value("fixed_size_binary[3]"),
        "label": datasets.ClassLabel(names=["a"]),
        **{name: getattr(datasets, name)() for name in ("Image", "Audio", "Video", "Pdf", "Nifti")},
        "lists": [datasets.List(value("int8")), value("string")][:1],
        "three": datasets.List(datasets.Image(), length=3),
        "large": datasets.LargeList(value("int8")),
        "structs": datasets.Sequence({"x": value("int32"), "y": {"z": value("bool")}}),
        "translation": datasets.Translation(["de", "en"]),
        "translations": datasets.TranslationVariableLanguages(languages=["de", "en"]),
        "array": datasets.Array3D((None, 2, 3), "uint8"),
    }
    expected = datasets.Features(features).arrow_schema
    datasets.Dataset.from_dict({name: [] for name in features}, features=datasets.Features(features)).save_to_disk(
        str(tmp_path / "saved")
    )
    assert not list((tmp_path / "saved").glob("*.arrow"))
    with lading.open(tmp_path / "saved") as dataset:
        assert dataset.schema.names == expected.names
        assert dataset.schema.types == expected.types


def test_json_is_json_wherever_it_lies(datasets: object, tmp_path: Path) -> None:
    json = datasets.Json()
    features = datasets.Features({"plain": json, "list": datasets.List(json), "struct": {"x": json}})
    values = [{"b": 1, "a": [None, 2.5]}, 3, "text"]
    rows = [{"plain": value, "list": [value, value], "struct": {"x": value}} for value in values]
    saved = datasets.Dataset.from_list(rows, features=features)
    saved.save_to_disk(str(tmp_path / "saved"))
    assert list(saved) == rows
    with lading.open(tmp_path / "saved") as dataset:
        assert list(dataset) == rows


@pytest.mark.parametrize("fmt", ["jsonl", "webdataset"])
def test_lists_of_pictures_stay_lists_of_images(datasets: object, tmp_path: Path, fmt: str) -> None:
    features = datasets.Features({"images": datasets.List(datasets.Image()), "n": datasets.Value("int64")})
    rows = [{"images": [{"bytes": b"\xff\xd8", "path": "a.jpg"}], "n": 1}, {"images": [], "n": 2}]
    datasets.Dataset.from_list(rows, features).to_parquet(tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / fmt, format=fmt)
    lading.convert(tmp_path / fmt, tmp_path / "back", format="parquet")
    assert lading.diff(tmp_path / "in.parquet", tmp_path / "back").equal
    [file] = (tmp_path / "back").glob("*.parquet")
    found = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))
    assert found.features == features
    assert list(found.cast_column("images", datasets.List(datasets.Image(decode=False)))) == rows


def test_objects_in_base64_are_objects(datasets: object, tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    with lading.writer(tmp_path / "new", format="jsonl") as writer:
        writer.write_batch(pa.table({"images": pa.array([[{"bytes": b"\xff\xd8", "path": "a.jpg"}], []], kind)}))
    [file] = (tmp_path / "new").glob("*.jsonl")
    found = datasets.Dataset.from_json(str(file), cache_dir=str(tmp_path / "cache"))
    assert found["images"][:] == [[{"bytes": "/9g=", "path": "a.jpg"}], []]
