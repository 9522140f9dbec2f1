"""Verify looks at the headers of pictures that others wrote."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.features.types import Image as ImageFeature
from lading._core.features.types import Sequence, with_feature
from lading._core.jobs.stats.headers import broken_headers
from lading.errors import DataError
from tars import tar_of


def picture(kind: str) -> bytes:
    target = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)).save(target, kind)
    return target.getvalue()


@pytest.mark.parametrize("kind, ending, cut", [
    ("PNG", "png", 12), ("JPEG", "jpg", 12), ("WEBP", "webp", 12), ("GIF", "gif", 8),
])  # fmt: skip
def test_a_picture_without_a_whole_header_is_named(kind: str, ending: str, cut: int, tmp_path: Path) -> None:
    whole = picture(kind)
    members = [(f"a.{ending}", whole), (f"b.{ending}", bytes(1024) + whole[1024:]), (f"c.{ending}", whole[:cut])]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    assert lading.verify(tmp_path / "a.tar").ok
    findings = lading.verify(tmp_path / "a.tar", deep=True).findings
    assert [(found["file"], found["row"], found["sample"], found["column"]) for found in findings] == [
        (str(tmp_path / "a.tar"), row, key, ending) for row, key in ((1, "b"), (2, "c"))
    ]


@pytest.mark.parametrize("bytes_type", [pa.binary(), pa.large_binary()])
def test_pictures_in_structs_of_hugging_face_are_looked_at(bytes_type: pa.DataType, tmp_path: Path) -> None:
    kind = pa.struct([("bytes", bytes_type), ("path", pa.string())])
    values = [
        {"bytes": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "path": "p"}, {"bytes": bytes(300), "path": "p"},
        {"bytes": picture("PNG"), "path": None}, {"bytes": None, "path": "p"}, None,
    ]  # fmt: skip
    features = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    table = pa.table({"image": pa.array(values, kind)}).replace_schema_metadata({"huggingface": features})
    pq.write_table(table, tmp_path / "a.parquet")
    findings = lading.verify(tmp_path, deep=True).findings
    assert [(found["row"], found["column"], "sample" in found) for found in findings] == [
        (0, "image", False), (1, "image", False)
    ]  # fmt: skip


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list, lambda kind: pa.list_(pa.list_(kind))])
def test_pictures_in_lists_are_looked_at(list_of: Callable[[pa.DataType], pa.DataType], tmp_path: Path) -> None:
    kind, told = list_of(pa.struct([("bytes", pa.binary()), ("path", pa.string())])), {"_type": "Image"}
    one: dict[str, object] = {"bytes": picture("PNG"), "path": None}
    rows: list[object] = [[one, one], None, [], [one, {"bytes": bytes(300), "path": "p"}, None], [one]]
    deep = pa.types.is_list(kind.value_type)
    lists = "LargeList" if pa.types.is_large_list(kind) else "List"
    feature = {"_type": lists, "feature": {"_type": lists, "feature": told} if deep else told}
    features = json.dumps({"info": {"features": {"pages": feature}}})
    table = pa.table({"pages": pa.array([[row] for row in rows] if deep else rows, kind)})
    pq.write_table(table.replace_schema_metadata({"huggingface": features}), tmp_path / "a.parquet")
    [found] = lading.verify(tmp_path, deep=True).findings
    assert (found["row"], found["column"]) == (3, "pages")


def test_lists_of_what_is_no_picture_are_not_looked_through() -> None:
    items = pa.ListArray.from_arrays([0, 1 << 20], pa.array(np.zeros(1 << 20, np.uint8)))
    batch = pa.record_batch([items, pa.ListArray.from_arrays([0, 1], items)], ["a", "b"])
    tracemalloc.start()
    try:
        assert not [*broken_headers(batch, "a.arrow", 0)]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_pictures_that_lie_under_a_null_are_no_rows(tmp_path: Path) -> None:
    # Arrow lets a null list have items, which are no values of the column.
    lists = pa.ListArray.from_buffers(
        pa.list_(pa.binary()), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 3, 4], np.int32))],
        children=[pa.array([picture("PNG"), b"", bytes(300), bytes(300)], pa.binary())],
    )  # fmt: skip
    lists.validate(full=True)
    batch = pa.record_batch(
        [lists], schema=pa.schema([with_feature(pa.field("p", lists.type), Sequence(ImageFeature()))])
    )
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    [found] = lading.verify(tmp_path / "a.arrow", deep=True).findings
    assert (found["row"], found["column"]) == (2, "p")
    result = lading.salvage(tmp_path / "a.arrow", tmp_path / "out")
    assert (result.ok, result.samples, [entry["row"] for entry in result.findings]) == (True, 3, [2])


def test_of_items_only_pictures_are_looked_at(tmp_path: Path) -> None:
    story = json.dumps({"texts": ["one", None, None], "images": [None, "a.1.jpg", "a.2.png"]}).encode()
    (tmp_path / "a.tar").write_bytes(tar_of(("a.json", story), ("a.1.jpg", bytes(900)), ("a.2.png", picture("PNG"))))
    [found] = lading.verify(tmp_path / "a.tar", deep=True).findings
    assert (found["row"], found["column"]) == (2, "binary_content")


def test_empty_values_other_kinds_and_other_columns_are_no_findings(tmp_path: Path) -> None:
    members = [("a.jpg", b""), ("a.bin", bytes(100)), ("a.png", b"a picture of a kind unknown")]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    assert lading.verify(tmp_path / "a.tar", deep=True).ok


def test_salvage_tells_of_pictures_that_it_keeps_and_verify_names(tmp_path: Path) -> None:
    whole, source = picture("PNG"), tmp_path / "a.tar"
    members = [(f"{n:03d}.png", whole[:12] if n in {3, 7} else whole) for n in range(10)]
    source.write_bytes(tar_of(*members))
    expected = lading.verify(source, deep=True).findings
    assert len(expected) == 2
    result = lading.salvage(source, tmp_path / "out")
    assert (result.ok, result.samples, result.findings) == (
        True, 10, [{name: value for name, value in finding.items() if name != "level"} for finding in expected]
    )  # fmt: skip
    source.write_bytes(tar_of(*members, *((f"1{n:03d}.png", whole[:12]) for n in range(200)))[:-5000])
    found = lading.salvage(source, tmp_path / "more").findings
    assert len(found) == 100
    assert {entry["file"] for entry in found} == {str(source)}


@pytest.mark.soak
def test_of_what_salvage_finds_in_many_shards_the_first_is_told_and_the_rest_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / "in" / f"{number:02}.tar").write_bytes(tar_of(*((f"{n}.jpg", bytes(20)) for n in range(5))))
    result = lading.salvage(tmp_path / "in", tmp_path / "out")
    assert (result.ok, result.samples, len(result.findings), result.all_findings) == (True, 150, 100, 150)
    assert result.findings[-1]["file"] == str(tmp_path / "in" / "19.tar")


def test_a_feature_of_a_later_version_is_no_damage(tmp_path: Path) -> None:
    field = pa.field("p", pa.binary(), metadata={"lading.feature": '{"kind":"hologram"}'})
    pq.write_table(pa.table([[b"x", b"y"]], schema=pa.schema([field])), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a feature that this version of lading does not know") as caught:
        lading.salvage(tmp_path / "a.parquet", tmp_path / "out")
    assert caught.value.column == "p"
