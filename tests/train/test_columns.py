"""What columns become: the same in every batch, whatever its values are (`test_missing.py`: which ones are missing)."""

from __future__ import annotations

import datetime as dt
import io
import weakref
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

import lading
from lading._core.arrow.older import numpy_type
from lading._core.features.types import Encoded, Feature, with_feature
from lading._core.train.columns import ColumnMaker, Recipe
from lading.errors import DataError, UsageError
from lading.features import Array, ClassLabel, Image, Json, Sequence, Struct, Text, Value, Video


def _column(values: Any, kind: pa.DataType, feature: Feature | None = None) -> pa.Table:
    field = pa.field("x", kind)
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table([array], pa.schema([with_feature(field, feature) if feature else field]))


def _made(table: pa.Table, **recipe: Any) -> tuple[Any, dict[int, str]]:
    maker = ColumnMaker(Recipe(**recipe), lambda: table.schema.names)
    columns, failed = maker.decoded(table, table.num_rows)
    return maker.batch(columns), {i: error.problem for i, error in failed.items()}


def _png(size: tuple[int, int], colour: tuple[int, int, int] = (9, 8, 7)) -> bytes:
    data = io.BytesIO()
    Pillow.new("RGB", size, colour).save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()]
)
def test_numbers_are_an_array_of_their_type_with_nulls_or_without(kind: pa.DataType) -> None:
    dtype = numpy_type(kind)
    whole = _column([1, 0, 1], pa.int8())["x"].cast(kind)
    for column in (whole, whole.slice(1)):
        found, failed = _made(pa.table({"x": column}))
        assert (found["x"].tolist(), found["x"].dtype, failed) == (column.to_pylist(), dtype, {})
        found["x"][0] = 1  # the memory is its own
    some = pa.table({"x": pa.chunked_array([pa.array([1, None], pa.int8()).cast(kind), whole.chunk(0)])})
    found, failed = _made(some, missing="list")
    assert failed == {}
    if dtype.kind == "f":
        assert found["x"].dtype == dtype
        assert np.array_equal(found["x"], [1, np.nan, 1, 0, 1], equal_nan=True)
    else:
        assert found["x"] == [1, None, 1, 0, 1]
        assert np.array([x for x in found["x"] if x is not None]).dtype == dtype
    assert _made(some, decode={"x": None}) == ({"x": [1, None, 1, 0, 1]}, {})
    assert _made(some, collate="list") == ([{"x": value} for value in (1, None, 1, 0, 1)], {})


def test_types_of_torch_are_those_of_numpy() -> None:
    torch = pytest.importorskip("torch")
    for name in ("int8", "uint8", "uint16", "int32", "int64", "float16", "float32", "float64", "bool"):
        found, _ = _made(pa.table({"x": np.array([0, 1]).astype(name)}), collate="torch")
        assert found["x"].dtype == getattr(torch, name)
        assert found["x"].tolist() == [0, 1]


def test_a_transform_keeps_the_types_of_numbers_that_it_lets_pass() -> None:
    for name in ("int8", "int32", "int64", "float32", "float64", "bool"):
        for nulls in (False, True):
            column = pa.array(np.array([1, 0, 1]).astype(name), mask=np.array([False, nulls, False]))
            found, failed = _made(pa.table({"x": column}), transform=dict)
            if nulls and not name.startswith("float"):
                assert [*failed] == [1]
            else:
                assert failed == {}
            whole = np.array(found["x"][::2]) if failed else found["x"]
            assert whole.dtype == name


@pytest.mark.parametrize("stored", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_numbers_in_text_are_an_array(stored: pa.DataType) -> None:
    found, failed = _made(_column([b"5", b"-7\n"], stored, Value("int64")))
    assert (found["x"].tolist(), found["x"].dtype, failed) == ([5, -7], np.int64, {})
    found, failed = _made(_column([b"5", None, b"x", b"9" * 30], stored, Value("int64")))
    assert (found["x"][0], sorted(failed)) == (5, [1, 2, 3])
    found, failed = _made(_column([b"5", b"x"], stored, Value("int64")))
    assert (found["x"][0], found["x"].dtype, [*failed]) == (5, np.int64, [1])
    found, failed = _made(_column([b"5", b"9" * 30], stored, Value("int64")))
    assert "a number that int64 cannot hold" in failed[1]
    found, _ = _made(_column([b"0.5", None], stored, Value("double")))
    assert (found["x"].dtype, found["x"][0], np.isnan(found["x"][1])) == (np.float64, 0.5, True)


def test_labels_and_dictionaries_are_what_they_stand_for() -> None:
    assert _made(_column([1, 0], pa.int64(), ClassLabel(("a", "b"))))[0]["x"].tolist() == [1, 0]
    texts = pa.array(["a", "b", "a", None]).dictionary_encode()
    assert _made(pa.table({"x": texts}))[0]["x"] == ["a", "b", "a", None]
    numbers = pa.array([7, 8, 7], pa.int16()).dictionary_encode()
    assert _made(pa.table({"x": numbers}))[0]["x"].dtype == np.int16


@pytest.mark.parametrize(
    "values, kind",
    [
        (["a", None], pa.string()),
        ([b"a", None], pa.binary()),
        ([Decimal("1.50"), None], pa.decimal128(5, 2)),
        ([dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        ([dt.date(2026, 1, 2), None], pa.date32()),
        ([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([["a", "b"], None, []], pa.list_(pa.string())),
        ([[[1], [2, 3]], None], pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_other_columns_are_lists_of_what_a_sample_has(values: list[Any], kind: pa.DataType) -> None:
    assert _made(_column(values, kind)) == ({"x": values}, {})
    assert _made(_column(values[:1], kind), collate="torch") == ({"x": values[:1]}, {})


def test_a_value_that_python_cannot_hold_is_an_error_of_its_sample() -> None:
    times = pa.array([1_000, 1_001], pa.time64("ns"))
    found, failed = _made(pa.table({"x": times}))
    assert found["x"] == [dt.time(0, 0, 0, 1), None]
    assert list(failed) == [1]
    assert "column 'x': Python cannot hold this value" in failed[1]


@pytest.mark.parametrize("stored", [pa.string(), pa.binary(), pa.binary_view()])
def test_texts_and_json(stored: pa.DataType) -> None:
    texts = [json.encode() for json in ('{"a": "é"}', "5", "[1]")]
    for some in (texts, [*texts, None]):
        assert _made(_column(some, stored, Text()))[0]["x"] == [text and text.decode() for text in some]
        parsed = [text and orjson.loads(text) for text in some]
        assert _made(_column(some, stored, Json()))[0]["x"] == parsed
        assert _made(_column(some, stored, Json()), collate="list")[0] == [{"x": value} for value in parsed]
    assert _made(_column(texts[1:2], stored, Json()))[0]["x"] == [5]  # a list, as in other batches
    broken = _made(_column([b"{}", b'{"a":'], stored, Json()))
    assert broken[0]["x"] == [{}, None]
    assert list(broken[1]) == [1]


def test_invalid_utf8_is_an_error_of_its_sample() -> None:
    found, failed = _made(_column([b"a", b"\xff", b"b"], pa.binary(), Text()))
    assert found["x"] == ["a", None, "b"]
    assert list(failed) == [1]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_view(pa.int32()), pa.list_(pa.int32(), 2)]
)
def test_lists_of_numbers_are_arrays(kind: pa.DataType) -> None:
    found, _ = _made(_column([[1, 2], [3, 4], [5, 6]], kind).slice(1))
    if isinstance(kind, pa.FixedSizeListType):
        assert (found["x"].tolist(), found["x"].dtype, found["x"].shape) == ([[3, 4], [5, 6]], np.int32, (2, 2))
        found, failed = _made(_column([[1, 2], None, [3, None]], kind).slice(0, 3), missing="list")
        assert [x if isinstance(x, list | None) else x.tolist() for x in found["x"]] == [[1, 2], None, [3, None]]
        assert failed == {}
        return
    assert [(x.tolist(), x.dtype) for x in found["x"]] == [([3, 4], np.int32), ([5, 6], np.int32)]
    found, failed = _made(_column([[1], [2, 3], [], None, [4, None]], kind))
    assert [None if x is None else [*x] for x in found["x"]] == [[1], [2, 3], [], None, [4, None]]
    assert found["x"][0].dtype == np.int32
    assert failed == {}
    assert _made(_column([[4, None]], kind), decode={"x": None})[0]["x"] == [[4, None]]
    floats, failed = _made(_column([[0.5, None]], pa.list_(pa.float32())))
    assert floats["x"][0].dtype == np.float32
    assert np.isnan(floats["x"][0][1])
    assert failed == {}


def test_lists_of_numbers_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    found, _ = _made(_column([[1], [2, 3]], pa.list_(pa.int64()), Sequence(Value("int64"))), collate="torch")
    assert [(x.dtype, x.tolist()) for x in found["x"]] == [(torch.int64, [1]), (torch.int64, [2, 3])]


def test_arrays_of_one_shape_are_one_array() -> None:
    arrays = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    stored = [each.tobytes() for each in arrays]
    for feature in (Array("float32", (2, 3)), Encoded("ndarray:float32:2,3")):
        for count in (1, 2):
            found, failed = _made(_column(stored[:count], pa.binary(), feature))
            assert np.array_equal(found["x"], arrays[:count])
            assert (found["x"].dtype, failed) == (np.float32, {})
        found, failed = _made(_column([stored[0], None, b"123"], pa.binary(), feature), missing="list")
        assert np.array_equal(found["x"][0], arrays[0])
        assert found["x"][1] is None
        assert sorted(failed) == [2]
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(arrays)
    assert np.array_equal(_made(pa.table({"x": tensors}))[0]["x"], arrays)
    assert np.array_equal(_made(pa.table({"x": tensors}).slice(1))[0]["x"], arrays[1:])


def test_npy_files_are_a_list_whatever_their_shapes_are() -> None:
    def npy(array: Any) -> bytes:
        data = io.BytesIO()
        np.save(data, array)
        return data.getvalue()

    equal = [npy(np.full((2, 2), i, ">f4")) for i in range(3)]
    found, _ = _made(_column(equal, pa.binary(), Array()))
    assert [each.shape for each in found["x"]] == [(2, 2)] * 3
    found, _ = _made(_column([*equal, npy(np.zeros(3))], pa.binary(), Array()))
    assert [each.shape for each in found["x"]] == [(2, 2)] * 3 + [(3,)]
    torch = pytest.importorskip("torch")
    for some in (equal, [*equal, npy(np.zeros(3))]):
        found, _ = _made(_column(some, pa.binary(), Array()), collate="torch")
        assert all(isinstance(each, torch.Tensor) and each.dtype.is_floating_point for each in found["x"])


@pytest.mark.parametrize("collate, shape", [("numpy", (2, 4, 6, 3)), ("torch", (2, 3, 4, 6))])
def test_images_of_one_size_are_one_array_in_every_batch(collate: Any, shape: tuple[int, ...]) -> None:
    pytest.importorskip("torch")
    files = [_png((6, 4), (1, 2, 3)), _png((12, 8), (1, 2, 3))]
    table = _column(files, pa.binary(), Image())
    found, _ = _made(table, collate=collate, image_size=(4, 6))
    assert tuple(found["x"].shape) == shape
    last = found["x"] if collate == "numpy" else found["x"].permute(0, 2, 3, 1)
    assert np.asarray(last).reshape(-1, 3).tolist() == [[1, 2, 3]] * 48
    own, _ = _made(table, collate=collate)
    assert [sorted(each.shape) for each in own["x"]] == [[3, 4, 6], [3, 8, 12]]
    same, _ = _made(table.take([0, 0]), collate=collate)
    assert [sorted(each.shape) for each in same["x"]] == [[3, 4, 6], [3, 4, 6]]
    lists: Any = {"collate": collate, "image_size": 5, "missing": "list"}
    found, failed = _made(_column([files[0], None], pa.binary(), Image()), **lists)
    assert failed == {}
    assert (len(found["x"]), sorted(found["x"][0].shape), found["x"][1]) == (2, [3, 5, 5], None)
    assert _made(_column([None], pa.binary(), Image()), collate=collate) == ({"x": [None]}, {})


def test_batches_of_several_sizes_have_one_each() -> None:
    maker = ColumnMaker(Recipe(image_size=[(2, 6), (4, 4)]))
    table = _column([_png((12, 8), (1, 2, 3)), _png((30, 5))], pa.binary(), Image())
    for size in ((2, 6), (4, 4), (2, 6)):
        assert maker.decoded(table, 2, size=size)[0]["x"].shape == (2, *size, 3)
    with pytest.raises(UsageError, match="these batches are not made by size"):
        maker.decoded(table, 2)
    own, _ = ColumnMaker(Recipe(image_size=(2, 6))).decoded(table, 2)
    assert own["x"].shape == (2, 2, 6, 3)


def test_images_of_several_sizes_are_cropped() -> None:
    flag = Pillow.new("RGB", (40, 10), "red")
    flag.paste("blue", (13, 0, 27, 10))
    data = io.BytesIO()
    flag.save(data, "PNG")
    table = _column([data.getvalue()], pa.binary(), Image())
    blue = [[0, 0, 255]] * 25
    found, _ = ColumnMaker(Recipe(image_size=[(5, 5), (4, 8)])).decoded(table, 1, size=(5, 5))
    assert found["x"].reshape(-1, 3).tolist() == blue
    found, _ = _made(table, image_size=5, fit="crop")
    assert found["x"].reshape(-1, 3).tolist() == blue
    found, _ = _made(table, image_size=20, fit="pad")
    assert found["x"][0, :, 10, 2].tolist() == [0] * 8 + [255] * 5 + [0] * 7  # 7.5 on each side


@pytest.mark.parametrize("collate, shapes", [("numpy", [(4, 6, 3), (5, 4, 3)]), ("torch", [(3, 4, 6), (3, 5, 4)])])
def test_images_of_one_shortest_side_are_a_list_in_every_batch(collate: Any, shapes: Any) -> None:
    pytest.importorskip("torch")
    table = _column([_png((6, 4)), _png((40, 50))], pa.binary(), Image())
    found, _ = _made(table, collate=collate, image_size=4, fit="shortest")
    assert [tuple(each.shape) for each in found["x"]] == shapes
    found, _ = _made(table.take([0, 0]), collate=collate, image_size=4, fit="shortest")
    assert isinstance(found["x"], list)


@pytest.mark.parametrize(
    "recipe, reason",
    [
        ({"image_size": 8, "fit": "cover"}, "no such fit; expected stretch, crop, pad, shortest"),
        ({"fit": "crop"}, "fit says how images come to a size, and there is none"),
        ({"image_size": (8, 9), "fit": "shortest"}, "the shortest side is one number"),
        ({"image_size": [(8, 8), (9, 9)], "fit": "shortest"}, "the shortest side is one number"),
        ({"image_size": [(8, 8), (9, 9), (8, 8)]}, "image_size has a size twice"),
        ({"image_size": [(8, 8), 9]}, "image_size is a number"),
        ({"image_size": []}, "image_size is a number"),
    ],
)
def test_a_fit_or_sizes_that_make_no_sense_are_refused(recipe: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ColumnMaker(Recipe(**recipe))


def test_images_in_structs_lists_and_columns_of_bytes() -> None:
    structs = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    one = {"bytes": _png((6, 4)), "path": "a.png"}
    expected = np.full((4, 6, 3), [9, 8, 7], np.uint8)
    found, _ = _made(_column([one], structs, Image()))
    assert np.array_equal(found["x"], [expected])
    found, failed = _made(_column([{"bytes": None, "path": None}, {"bytes": None, "path": "a.png"}], structs, Image()))
    assert found["x"] == [None, None]
    assert list(failed) == [1]
    assert "the column has the path of the file" in failed[1]
    found, _ = _made(_column([[one, one], [], None], pa.list_(structs), Sequence(Image())))
    assert [None if each is None else len(each) for each in found["x"]] == [2, 0, None]
    assert np.array_equal(found["x"][0][1], expected)
    nested = Struct((("image", Image()), ("n", Value("int64"))))
    kind = pa.struct([("image", structs), ("n", pa.int64())])
    found, _ = _made(_column([{"image": one, "n": 3}], kind, nested))
    assert np.array_equal(found["x"][0]["image"], expected)
    assert found["x"][0]["n"] == 3
    assert _made(_column([b"1"], pa.binary()))[0]["x"] == [b"1"]
    found, _ = _made(_column([_png((6, 4))], pa.binary()), decode={"x": "numpy"}, image_size=2)
    assert found["x"].shape == (1, 2, 2, 3)
    # functions take the bytes
    assert _made(_column([one], structs, Image()), decode={"x": len})[0]["x"].tolist() == [len(one["bytes"])]


def test_images_of_mds() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    raw = np.array([4, 2, 3], "<u4").tobytes() + b"RGB" + pixels.tobytes()  # mosaicml-streaming's `pil`
    found, _ = _made(_column([raw], pa.binary(), Encoded("pil")))
    assert np.array_equal(found["x"], [pixels])
    found, _ = _made(_column([raw, raw], pa.binary(), Encoded("pil")), image_size=2, fit="crop")
    assert np.array_equal(found["x"], [pixels[:, 1:3]] * 2)
    png = _png((6, 4))
    several = np.array([0, 2, len(png), len(png)], "<u4").tobytes() + png + png
    found, _ = _made(_column([several], pa.binary(), Encoded("list[png]")), image_size=2)
    assert [each.shape for each in found["x"][0]] == [(2, 2, 3), (2, 2, 3)]


@pytest.mark.parametrize("way, feature", [("pil", Json()), ("numpy", Text()), ("torch", Value("int64"))])
def test_a_way_that_does_not_suit_the_column_is_refused(way: Any, feature: Feature) -> None:
    with pytest.raises(UsageError, match="only media, arrays and bytes can be decoded"):
        _made(_column(["1"], pa.string(), feature), decode={"x": way})


@pytest.mark.parametrize("size", [0, -1, (1,), (1, 2, 3), (2.5, 1), "224", "22", 2.0, True])
def test_a_wrong_image_size_is_refused(size: Any) -> None:
    with pytest.raises(UsageError, match="image_size"):
        ColumnMaker(Recipe(image_size=size))


@pytest.mark.parametrize("way", ["pil", "numpy", "torch"])
def test_a_video_becomes_frames_by_a_function(way: Any) -> None:
    clip = _column([b"no video"], pa.binary(), Video())
    with pytest.raises(UsageError, match=r"a video becomes frames by a function; expected .*frames\(count=8\)"):
        _made(clip, decode={"x": way})
    assert _made(clip, decode={"x": None}) == ({"x": [b"no video"]}, {})


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"decode names a column that is not there: 'y'; expected x"):
        _made(_column([b"1"], pa.binary()), decode={"y": None, "x": None})
    maker = ColumnMaker(Recipe(decode={"y": len}), lambda: ["x", "y"])  # only these samples lack it
    assert maker.decoded(_column([b"1"], pa.binary()), 1) == ({"x": [b"1"]}, {})


@pytest.mark.parametrize("decode", [{"x": None}, False])
def test_a_transform_that_decodes_by_itself_makes_arrays(decode: Any) -> None:
    torch = pytest.importorskip("torch")
    table = _column([_png((6, 4)), _png((6, 4))], pa.binary(), Image())
    options = {"decode": decode, "transform": lambda s: {"x": np.asarray(Pillow.open(io.BytesIO(s["x"])))}}
    expected = np.full((2, 4, 6, 3), [9, 8, 7], np.uint8)
    assert np.array_equal(_made(table, **options)[0]["x"], expected)
    assert torch.equal(_made(table, collate="torch", **options)[0]["x"], torch.from_numpy(expected))
    lists = _column([[1, 2], [3, 4]], pa.list_(pa.int64()))
    found, _ = _made(lists, decode={"x": None}, transform=lambda s: {"x": s["x"], "n": sum(s["x"])})
    assert (found["x"], found["n"].tolist()) == ([[1, 2], [3, 4]], [3, 7])


class _Pixels:
    """Something large that a file becomes."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)


def test_few_files_are_decoded_before_a_transform_is_given_them() -> None:
    alive: weakref.WeakSet[_Pixels] = weakref.WeakSet()
    most = 0

    def decoded(data: bytes) -> _Pixels:
        alive.add(pixels := _Pixels(data))
        return pixels

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        nonlocal most
        most = max(most, len(alive))
        return {"size": sample["x"].size, "n": sample["n"]}

    sizes = [200_000 + i for i in range(40)]  # 8 MB
    table = pa.table({"n": np.arange(40), "x": [bytes(size) for size in sizes]})
    maker = ColumnMaker(Recipe(decode={"x": decoded}, transform=transform))
    columns, failed = maker.decoded(table, 40)
    assert (columns, failed) == ({"size": sizes, "n": [*range(40)]}, {})
    assert most <= 10
    documents = [{"items": [{"binary_content": bytes(size), "modality": "image"}]} for size in sizes]
    recipe = Recipe(
        decode={"binary_content": decoded},
        transform=lambda sample: transform({"x": sample["items"][0]["binary_content"], "n": 0}),
    )
    most = 0
    columns, failed = ColumnMaker(recipe, lambda: ["binary_content"]).decoded(
        table.rename_columns(["n", "binary_content"]), 40, lambda _: documents
    )
    assert (columns, failed) == ({"size": sizes, "n": [0] * 40}, {})
    assert most <= 10


def test_errors_of_a_transform_have_the_place_of_their_sample() -> None:
    table = pa.table({"n": np.arange(40), "x": [bytes(200_000)] * 40})
    found, failed = _made(table, transform=lambda sample: {"y": 1 // (sample["n"] % 13)})
    assert [*failed] == [0, 13, 26, 39]
    assert found["y"][:3] == [None, 1, 0]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rows = [("a", 0, "text", "one", None), ("a", 1, "image", None, _png((6, 4))), ("a", 2, "text", "two", None),
            ("b", 0, "image", None, _png((3, 2))), ("c", 0, "image", None, b"broken")]  # fmt: skip
    names = ("sample_id", "position", "modality", "text_content", "binary_content")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    position = table.column("position").cast(pa.int32())
    table = table.set_column(1, "position", position)
    (tmp_path / "documents").mkdir()
    pq.write_table(table, tmp_path / "documents/0.parquet")
    return tmp_path / "documents"


def test_documents_have_texts_and_images_in_order(documents: Path) -> None:
    loader = lading.loader(lading.open(documents, view="interleaved"), 2)
    with pytest.raises(DataError, match=r"sample 'c' column 'binary_content': the image cannot be opened"):
        batch, _ = [*loader]
    batch = next(iter(loader))
    assert batch["sample_id"] == ["a", "b"]
    parts = [each.get("text_content", np.shape(each.get("binary_content"))) for each in batch["items"][0]]
    assert parts == ["one", (4, 6, 3), "two"]
    bytes_of = next(iter(lading.loader(lading.open(documents, view="interleaved"), 2, decode=False)))
    assert bytes_of["items"][1][0]["binary_content"] == _png((3, 2))
    resized = next(iter(lading.loader(documents, 2, decode={"binary_content": "pil"}, image_size=2)))
    assert resized["items"][1][0]["binary_content"].size == (2, 2)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_a_sample_that_replaces_another_is_whole(tmp_path: Path, batch_size: int) -> None:
    (tmp_path / "set").mkdir()
    pq.write_table(
        pa.table({"x": [0, 1, 2, 3, 4], "ids": [[9], [1, 1], [1, 1], [3, 3, 3], [4]]}), tmp_path / "set/0.parquet"
    )
    # also where all samples of a batch fail
    loader = lading.loader(tmp_path / "set", batch_size, on_error="skip", transform=lambda s: {**s, "y": 6 // s["x"]})
    batches = [*loader]
    assert [x for batch in batches for x in batch["x"].tolist()] == [1, 1, 2, 3, 4]
    assert [y for batch in batches for y in batch["y"].tolist()] == [6, 6, 3, 2, 1]
    assert [ids.tolist() for batch in batches for ids in batch["ids"]] == [[1, 1], [1, 1], [1, 1], [3, 3, 3], [4]]


def test_a_wrong_call_is_an_error_and_replaces_no_sample(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"x": [0, 1]}), tmp_path / "set/0.parquet")
    with pytest.raises(UsageError, match=r"0\.parquet row 1: transform must return a dict"):
        [*lading.loader(tmp_path / "set", 2, on_error="skip", transform=lambda s: s["x"] or {})]


def test_collate_of_torch(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"x": [0, 1], "ids": [[9, 8], [1, 1]], "txt": ["a", "b"]}), tmp_path / "set/0.parquet")
    [batch] = lading.loader(tmp_path / "set", 2, collate=data.default_collate)
    assert (batch["x"].tolist(), batch["ids"].tolist(), batch["txt"]) == ([0, 1], [[9, 8], [1, 1]], ["a", "b"])
