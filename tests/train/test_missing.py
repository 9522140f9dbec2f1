"""Samples that lack a value: a column has one type in all batches, wherever values are missing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

import lading
from lading._core.features.types import Encoded, Feature, with_feature
from lading._core.train.columns import ColumnMaker, Recipe
from lading.errors import DataError, UsageError
from lading.features import Array, ClassLabel, Image, Json, Sequence, Text, Value
from tars import tar_of


def _png(number: int, size: tuple[int, int] = (4, 3)) -> bytes:
    data = io.BytesIO()
    Pillow.new("RGB", size, (number, 0, 0)).save(data, "PNG")
    return data.getvalue()


_COLUMNS: dict[str, tuple[pa.DataType, Feature | None, list[Any]]] = {
    "int8": (pa.int8(), None, [1, 2]),
    "uint64": (pa.uint64(), None, [1, 2**63]),
    "bool": (pa.bool_(), None, [True, False]),
    "float32": (pa.float32(), None, [0.5, 2.5]),
    "text": (pa.string(), Text(), ["a", "b"]),
    "bytes": (pa.binary(), None, [b"a", b"b"]),
    "json": (pa.string(), Json(), ["1", "[2]"]),
    "number in text": (pa.binary(), Value("int64"), [b"5", b"6"]),
    "float in text": (pa.binary(), Value("double"), [b"5", b"6"]),
    "label": (pa.int64(), ClassLabel(("cat", "dog")), [0, 1]),
    "list": (pa.list_(pa.int32()), None, [[1, 2], [3]]),
    "equal lists": (pa.list_(pa.int32()), None, [[1, 2], [3, 4]]),
    "fixed list": (pa.list_(pa.int32(), 2), None, [[1, 2], [3, 4]]),
    "fixed list of floats": (pa.list_(pa.float32(), 2), None, [[1, 2], [3, 4]]),
    "array": (pa.binary(), Array("float32", (2,)), [np.zeros(2, "f4").tobytes(), np.ones(2, "f4").tobytes()]),
    "array of mds": (pa.binary(), Encoded("ndarray:uint8:2"), [b"\1\2", b"\3\4"]),
    "image": (pa.binary(), Image(), [_png(1), _png(2)]),
    "structs": (pa.struct([("a", pa.int64())]), None, [{"a": 1}, {"a": 2}]),
    "sounds": (pa.list_(pa.list_(pa.int16())), Sequence(Sequence(Value("int16"))), [[[1]], [[2], []]]),
}
"""Of each type: values of two samples."""


def _table(names: list[str], places: list[list[int | None]]) -> pa.Table:
    """The columns of some names, with the first or the second value, or none."""
    fields, arrays = [], []
    for name, chosen in zip(names, places, strict=True):
        kind, feature, values = _COLUMNS[name]
        field = pa.field(name, kind)
        fields.append(with_feature(field, feature) if feature else field)
        arrays.append(pa.array([None if i is None else values[i] for i in chosen], kind))
    return pa.table(arrays, pa.schema(fields))


def _type(column: Any) -> Any:
    return type(column) if isinstance(column, list) else (type(column), column.dtype, column.shape[1:])


@given(data=st.data())
@pytest.mark.parametrize("collate", ["numpy", "torch"])
def test_a_column_has_one_type_in_all_batches(collate: Any, data: st.DataObject) -> None:
    pytest.importorskip("torch")
    names = data.draw(st.lists(st.sampled_from([*_COLUMNS]), min_size=1, max_size=4, unique=True))
    policies = st.sampled_from(["list", "skip"])
    named = st.dictionaries(st.sampled_from(names), policies)
    missing = data.draw(st.one_of(st.sampled_from(["error", "skip", "list", 0]), named))
    size = data.draw(st.sampled_from([None, 2]))
    maker = ColumnMaker(Recipe(collate=collate, missing=missing, image_size=size))
    found: dict[str, set[Any]] = {name: set() for name in names}
    for _ in range(4):
        count = data.draw(st.integers(1, 3))
        one = st.lists(st.sampled_from([0, 1, None]), min_size=count, max_size=count)
        columns, failed = maker.decoded(_table(names, [data.draw(one) for _ in names]), count)
        assert all(len(values) == count for values in columns.values())
        assert missing not in ("list", 0) or failed == {}
        for name, values in maker.batch(columns).items():
            found[name].add(_type(values))
            if missing == "list" and "float" not in name:
                assert isinstance(values, list)
    assert all(len(types) <= 1 for types in found.values()), found


def _source(folder: Path, **columns: Any) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"__key__": [f"k{i}" for i in range(6)], **columns}), folder / "0.parquet")
    return folder


def test_a_missing_value_is_an_error_that_names_the_choices(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", label=[0, 1, 2, None, 4, 5])
    batches = iter(lading.loader(source, 2, on_error="skip"))
    next(batches)
    with pytest.raises(UsageError) as caught:
        next(batches)
    error = str(caught.value)
    assert "0.parquet row 3 sample 'k3' column 'label': the sample has no value" in error
    for choice in ('missing="skip"', "missing={'label': -1}", "missing={'label': \"list\"}"):
        assert choice in error


def test_a_sample_without_a_value_is_left_out(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", label=[0, 1, 2, None, None, 5], score=[0.5, None, 1, 1, 1, 1])
    loader = lading.loader(source, 3, missing="skip")
    batches = [*loader]
    assert [batch["label"].tolist() for batch in batches] == [[0, 1, 2], [5, 5, 5]]
    assert np.isnan(batches[0]["score"][1])  # NaN stands for it
    assert loader.counts.total() == 2
    named = [*lading.loader(source, 3, columns=["__key__", "score"], missing={"score": "skip"})]
    assert [batch["__key__"] for batch in named] == [["k0", "k2", "k2"], ["k3", "k4", "k5"]]
    nothing = _source(tmp_path / "nothing", label=pa.nulls(6, pa.int64()))
    with pytest.raises(DataError, match='missing="skip" found no sample to take instead'):
        [*lading.loader(nothing, 3, missing="skip")]


def test_a_value_that_stands_for_missing_ones(tmp_path: Path) -> None:
    columns: Any = {"label": [0, 1, 2, None, 4, 5], "score": [0.5, None, 1, 1, 1, 1], "txt": ["a", None, *"cdef"],
                    "jpg": [_png(i) for i in range(5)] + [None],
                    "box": pa.array([[1, 2]] * 4 + [None, [3, None]], pa.list_(pa.int32(), 2))}  # fmt: skip
    source = _source(tmp_path / "set", **columns)
    options: Any = {"image_size": 2, "decode": {"jpg": "torch"}}
    [batch] = lading.loader(source, 6, **{**options, "decode": {"jpg": "numpy"}}, missing=7)
    assert batch["label"].tolist() == [0, 1, 2, 7, 4, 5]
    assert batch["box"].tolist() == [[1, 2]] * 4 + [[7, 7], [3, 7]]
    assert batch["jpg"][5].tolist() == [[[7] * 3] * 2] * 2
    assert (np.isnan(batch["score"][1]), batch["txt"][1]) == (True, None)
    by_name = {"label": -1, "score": 0, "txt": "", "box": [8, 9], "jpg": np.full((3, 1, 1), 255)}
    [batch] = lading.loader(source, 6, **options, missing=by_name, collate="torch")
    assert batch["label"].tolist() == [0, 1, 2, -1, 4, 5]
    assert batch["score"].tolist() == [0.5, 0, 1, 1, 1, 1]
    assert (batch["txt"][:2], batch["box"][4].tolist()) == (["a", ""], [8, 9])
    with pytest.raises(UsageError, match=r"column 'jpg': the column cannot hold the value .*shape \(3, 2, 2\)"):
        [*lading.loader(source, 6, **options, missing={**by_name, "jpg": -1}, collate="torch")]


def test_what_functions_make_may_lack_values_too(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", n=[0, 1, 2, 3, 4, 5])

    def made(sample: dict[str, Any]) -> dict[str, Any]:
        n = sample["n"]
        made = {"x": None if n == 1 else n, "pixels": None if n == 2 else np.full(2, n, np.uint8)}
        return made | {"score": n / 2 or None, "txt": None if n == 4 else "a"}

    with pytest.raises(UsageError, match=r"row 1 sample 'k1' column 'x': the sample has no value"):
        [*lading.loader(source, 6, transform=made)]
    [batch] = lading.loader(source, 6, transform=made, missing=9)
    assert batch["x"].tolist() == [0, 9, 2, 3, 4, 5]
    assert (batch["pixels"].dtype, batch["pixels"][2].tolist()) == (np.uint8, [9, 9])
    assert (np.isnan(batch["score"][0]), batch["txt"][4]) == (True, None)
    batches = [*lading.loader(source, 2, transform=made, missing="skip")]
    assert [batch["x"].tolist() for batch in batches] == [[0, 3], [3, 3], [4, 5]]
    lists = [*lading.loader(source, 2, transform=made, missing={"x": "list", "pixels": "list"}, collate="torch")]
    assert [batch["x"] for batch in lists] == [[0, None], [2, 3], [4, 5]]
    assert [type(batch["pixels"]) for batch in lists] == [list] * 3
    functions: Any = {"decode": {"n": lambda n: None if n == 3 else n}}
    with pytest.raises(UsageError, match=r"row 3 sample 'k3' column 'n'"):
        [*lading.loader(source, 2, **functions)]


def test_samples_in_lists_hold_none(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", label=[0, 1, 2, None, 4, 5])
    [batch] = lading.loader(source, 6, collate="list")
    assert batch[3]["label"] is None
    [batch] = lading.loader(source, 6, collate="list", missing={"label": -1})
    assert batch[3]["label"] == -1
    [batch] = lading.loader(source, 6, collate=lambda samples: [each["__key__"] for each in samples],
                            missing={"label": "skip"})  # fmt: skip
    assert batch == ["k0", "k1", "k2", "k4", "k4", "k5"]


@pytest.mark.parametrize("order", [1, -1])
def test_batches_of_tars_have_all_columns_of_the_first_shard(tmp_path: Path, order: int) -> None:
    """A shard without any image, and batches without any."""
    for shard in range(2):
        members = [(f"{shard}{i}.{name}", _png(i) if name == "png" else b"5") for i in range(4)
                   for name in ("cls", "png") if name == "cls" or not shard]  # fmt: skip
        (tmp_path / f"{shard}.tar").write_bytes(tar_of(*members))
    shards = [str(tmp_path / f"{shard}.tar") for shard in range(2)][::order]
    dataset = lading.open(shards) if order == 1 else lading.open(shards).select("png", "cls")
    for options in ({"missing": {"png": 0}, "image_size": 2}, {"decode": False}):
        batches = [*dataset.loader(2, **options)]
        assert len({(*batch,) for batch in batches}) == 1
        assert all(len({_type(batch[name]) for batch in batches}) == 1 for name in ("png", "cls"))
    tables = [*dataset.loader(2, collate="arrow")]
    assert all(table.schema.equals(tables[0].schema) for table in tables)
    with pytest.raises(UsageError, match="column 'png': the sample has no value"):
        [*dataset.loader(2, image_size=2)]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"missing": None}, "no such way to treat missing values"),
        ({"missing": "drop"}, "error, skip, list, a number, or a dict"),
        ({"missing": {"x": None}}, "None does not stand for a missing value"),
        ({"missing": "skip", "collate": "list"}, "samples and tables hold missing values"),
        ({"missing": 0, "collate": "arrow"}, "samples and tables hold missing values"),
        ({"missing": {"label": 0}, "collate": "arrow"}, "samples and tables hold missing values"),
        ({"missing": {"lable": 0}}, "missing names a column that is not there: 'lable'; expected __key__, label"),
        (
            {"missing": {"label": 0, "hafl": 0}, "transform": lambda sample: {"half": 1}},
            "missing names a column that is not there: 'hafl'; expected half",
        ),
        ({"image_size": 8}, "no column holds images; found image_size=8"),
    ],
)
def test_wrong_choices_are_refused(tmp_path: Path, options: Any, words: str) -> None:
    source = _source(tmp_path / "set", label=[0, 1, 2, None, 4, 5])
    with pytest.raises(UsageError, match=words):
        [*lading.loader(source, 6, **options)]


def test_images_of_their_own_size_are_lists() -> None:
    maker = ColumnMaker(Recipe())
    for values in ([_png(1), _png(2)], [_png(1), _png(2, (9, 9))], [_png(1)]):
        field = with_feature(pa.field("x", pa.binary()), Image())
        columns, _ = maker.decoded(pa.table([pa.array(values)], pa.schema([field])), len(values))
        assert isinstance(maker.batch(columns)["x"], list)


@pytest.mark.parametrize("missing", [0, {"x": 0}])
def test_a_value_stands_for_an_array_that_a_function_would_make(missing: Any) -> None:
    def window(value: bytes) -> np.ndarray[Any, Any]:
        return np.full((2, 3), len(value), np.float32)

    maker = ColumnMaker(Recipe(decode={"x": window}, missing=missing))
    columns, failed = maker.decoded(pa.table({"x": pa.array([b"a", None, b"ccc"])}), 3)
    assert failed == {}
    found = maker.batch(columns)["x"]
    assert found.dtype == np.float32
    assert found.tolist() == [[[n] * 3] * 2 for n in (1, 0, 3)]


def test_skipped_samples_are_listed_by_key_and_reason(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", label=[0, 1, 2, None, 4, 5])

    def halved(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "half": 1 // sample["label"]}

    loader = lading.loader(source, 2, missing={"label": "skip"}, on_error="skip", transform=halved)
    next(iter(loader))
    reason = "the function of transform raised an error, found ZeroDivisionError: integer division or modulo by zero"
    assert [(each.key, each.reason, each.row, each.epoch) for each in loader.skipped] == [("k0", reason, 0, 0)]
    assert loader.skipped[0].file == str(tmp_path / "set/0.parquet")
    again = lading.loader(source, 2, missing={"label": "skip"}, on_error="skip", transform=halved)
    again.load_state_dict(loader.state_dict())
    assert len([*again]) == 2
    assert [(each.key, each.reason, each.column) for each in again.skipped] == [
        ("k3", "the sample has no value", "label")
    ]
    assert again.counts.total() == 1


@pytest.mark.parametrize("most", [0.34, 2])
def test_some_samples_may_be_skipped_in_each_epoch(tmp_path: Path, most: float) -> None:
    source = _source(tmp_path / "set", label=[0, None, 2, 3, None, 5])
    loader = lading.loader(source, 2, missing="skip", max_skipped=most)
    assert [len([*loader]) for _ in range(2)] == [3, 3]
    assert loader.counts.total() == len(loader.skipped) == 4


@pytest.mark.parametrize("most, batches", [(0.17, 2), (1, 2), (0, 0), (0.0, 0)])
def test_too_many_skipped_samples_end_the_run(tmp_path: Path, most: float, batches: int) -> None:
    source = _source(tmp_path / "set", label=[0, None, 2, 3, None, 5])
    loop = iter(lading.loader(source, 2, missing="skip", max_skipped=most))
    for _ in range(batches):
        next(loop)
    with pytest.raises(DataError, match=r"too many samples were skipped; .* first k1: the sample has no value"):
        next(loop)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"max_skipped": 5}, 'Give on_error="skip" or missing="skip"'),
        ({"max_skipped": 1.5, "on_error": "skip"}, "a rate such as 0.01, or a whole number"),
        ({"max_skipped": float("nan"), "on_error": "skip"}, "a rate such as 0.01, or a whole number"),
        ({"max_skipped": -1, "missing": "skip"}, "a rate such as 0.01"),
        ({"max_skipped": "1%", "missing": {"label": "skip"}}, "a rate such as 0.01"),
    ],
)
def test_wrong_limits_are_refused(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(_source(tmp_path / "set", label=[0] * 6), 2, **options)


def test_a_progress_bar_goes_on_where_the_run_does(tmp_path: Path) -> None:
    source = _source(tmp_path / "set", label=[0] * 6)
    loader = lading.loader(source, 2)
    assert (len(loader), loader.batches_done) == (3, 0)
    next(iter(loader))
    again = lading.loader(source, 3)
    again.load_state_dict(loader.state_dict())
    assert (len(again), again.batches_done) == (2, 0)
    same = lading.loader(source, 1)
    same.load_state_dict(loader.state_dict())
    assert (len(same), same.batches_done, len([*same])) == (6, 2, 4)


def test_a_dataset_that_gives_bytes_gives_them_in_batches(damaged_images: Path) -> None:
    stored = lading.open(damaged_images).with_decode(False)
    assert {type(each) for each in next(iter(stored.loader(2)))["jpg"]} == {bytes}
    for loader in (
        lambda: stored.loader(2, decode={"jpg": "pil"}),
        lambda: stored.with_decode(upright=False).loader(2),
    ):
        with pytest.raises(UsageError, match="with_decode"):
            loader()


def test_skipped_samples_have_keys_where_batches_have_none(damaged_images: Path) -> None:
    loader = lading.loader(damaged_images, 2, columns=["jpg"], on_error="skip")
    assert sum(len(batch["jpg"]) for batch in loader) == 6
    assert [(sample.key, sample.row) for sample in loader.skipped] == [("2", 2)]


def test_samples_that_a_packer_leaves_out_are_listed_by_its_loader(damaged_images: Path) -> None:
    loader = lading.loader(damaged_images, 2, on_error="skip", rank=0, world_size=2)
    for _ in lading.pack(loader, 8, tokenizer=lambda text: [1] * len(text)):
        pass
    assert [sample.key for sample in loader.skipped] == ["2"]


@pytest.fixture
def damaged_images(tmp_path: Path) -> Path:
    file = io.BytesIO()
    Pillow.new("RGB", (8, 8)).save(file, "JPEG")
    with lading.writer(tmp_path / "images", format="webdataset") as writer:
        for number in range(6):
            writer.write({"__key__": f"{number}", "jpg": file.getvalue() if number != 2 else b"<html>", "txt": "text"})
    return tmp_path / "images"


def test_images_may_begin_in_a_later_shard(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.json", b"{}")))
    (tmp_path / "b.tar").write_bytes(tar_of(("b.png", _png(1)), ("b.json", b"{}")))
    [batch] = lading.loader([tmp_path / "a.tar", tmp_path / "b.tar"], 2, image_size=4, missing=0)
    assert batch["png"].shape == (2, 4, 4, 3)
    assert not batch["png"][0].any()
