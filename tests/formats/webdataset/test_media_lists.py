"""Lists of media in tars: every way of reading gives the lists that were written."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.arrow import json_text
from lading._core.content.media_lists import folded
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, LimitExceeded, SchemaMismatch, Unrepresentable, UsageError
from tars import tar_of


def picture(kind: str, colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (5, 4), colour).save(file, kind)
    return file.getvalue()


JPEG, PNG = picture("JPEG", "red"), picture("PNG", "blue")
BYTES = [[JPEG, PNG], [], None, [b"not a picture", None, JPEG]]
STRUCTS = [None if row is None else [b and {"bytes": b, "path": f"{i}"} for i, b in enumerate(row)] for row in BYTES]
STRUCTS[1] = [{"bytes": None, "path": "far.jpg"}]
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TURNED = pa.struct([("path", pa.large_string()), ("bytes", pa.large_binary())])


def source(folder: Path, kind: pa.DataType, rows: list[Any]) -> Path:
    table = pa.table({"id": [f"{i}" for i in range(len(rows))], "images": pa.array(rows, kind)})
    pq.write_table(table, folder / "in.parquet")
    return folder / "in.parquet"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    "kind, rows",
    [
        (pa.list_(pa.binary()), BYTES),
        (pa.large_list(pa.large_binary()), BYTES),
        (pa.list_(MEDIA), STRUCTS),
        (pa.large_list(TURNED), STRUCTS),
        (pa.list_(pa.binary()), [None, None]),
    ],
)
def test_lists_come_back(kind: pa.DataType, rows: list[Any], compression: str | None, tmp_path: Path) -> None:
    given = source(tmp_path, kind, rows)
    lading.convert(given, tmp_path / "out", format="webdataset", options={"compression": compression})
    assert lading.diff(given, tmp_path / "out").equal
    assert lading.verify(tmp_path / "out").ok
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert [sample["images"] for sample in dataset] == rows
        assert [dataset[i]["images"] for i in (1, 0, -1)] == [rows[1], rows[0], rows[-1]]
        assert [batch.schema.names for batch in dataset.drop("images").batches()] == [["id"]]


def test_names_of_members(tmp_path: Path) -> None:
    lading.convert(source(tmp_path, pa.list_(MEDIA), STRUCTS), tmp_path / "out", format="webdataset")
    [tar] = (tmp_path / "out").glob("*.tar")
    with tarfile.open(tar) as members:
        names = [name.partition(".")[2] for name in members.getnames()]
    assert names == [
        "id", "images.0.jpg", "images.1.png", "images.json", "id", "images.json", "id",
        "id", "images.0.bin", "images.2.jpg", "images.json",
    ]  # fmt: skip


def test_lists_in_a_store(tmp_path: Path) -> None:
    stores = Stores({"box://": MemoryStore()})
    given = source(tmp_path, pa.list_(pa.binary()), BYTES)
    lading.convert(given, "box://out", format="webdataset", stores=stores)
    with lading.open("box://out", stores=stores).with_decode(False) as dataset:
        assert [sample["images"] for sample in dataset] == BYTES
        assert dataset[3]["images"] == BYTES[3]


@pytest.mark.parametrize("name", ["images.json", "images.0.jpg", "images.7.x"])
def test_a_column_with_the_name_of_a_member_is_refused(name: str, tmp_path: Path) -> None:
    table = pa.table({"images": pa.array(BYTES, pa.list_(pa.binary())), name: ["{}"] * len(BYTES)})
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match=f"member of the list gets.*found '{name}'") as caught:
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    assert caught.value.column == "images"


def test_a_list_whose_members_look_like_items_of_another_is_refused(tmp_path: Path) -> None:
    lists = pa.array(BYTES, pa.list_(pa.binary()))
    pq.write_table(pa.table({"im.1": lists, "im": lists}), tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match=r"column 'im': .*found 'im\.1\.json'"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")


@pytest.mark.parametrize("name, key", [("im/ages", "a"), ("images", "a.b")])
def test_errors_of_members_name_the_column_of_the_list(name: str, key: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": [key], name: pa.array([[JPEG]]), "n": ["x"]}), tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable) as caught:
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    assert caught.value.column == name


@pytest.mark.parametrize(
    "listed, message",
    [
        ("{", "not valid JSON"),
        ("3", "not a list of items"),
        ('["images.1.jpg"]', "no member"),
        ("[7]", "no member"),
        ('[["images.0.jpg"]]', "no member"),
    ],
)
def test_broken_lists_name_the_sample(listed: str, message: str) -> None:
    field = pa.field("images", pa.list_(pa.binary()))
    items = {"images.0.jpg": pa.array([JPEG], pa.large_binary())}
    with pytest.raises(DataError, match=message) as caught:
        folded(field, pa.array([listed.encode()], pa.large_binary()), items, pa.array(["a"]), "a.tar")
    assert (caught.value.file, caught.value.sample, caught.value.column) == ("a.tar", "a", "images")


def test_plain_tars_keep_their_columns(tmp_path: Path) -> None:
    listed = json_text.dumps(["images.0.jpg"]).encode()
    (tmp_path / "a.tar").write_bytes(tar_of(("a.images.0.jpg", JPEG), ("a.images.json", listed)))
    assert lading.open(tmp_path / "a.tar").schema.names == ["__key__", "images.0.jpg", "images.json"]


def test_lists_that_would_make_the_index_nearly_empty_are_refused(tmp_path: Path) -> None:
    rows = [[b"x"]] * 5000 + [[b"x"] * 2000]
    given = source(tmp_path, pa.list_(pa.binary()), rows)
    with pytest.raises(LimitExceeded, match=r"column 'images': .*rows_per_shard=500\. .*tar_cells"):
        lading.convert(given, tmp_path / "out", format="webdataset")
    assert lading.convert(given, tmp_path / "out", format="webdataset", rows_per_shard=500).samples == len(rows)


@pytest.mark.parametrize("fmt", ["parquet", "webdataset", "jsonl", "mds"])
def test_lists_of_pictures_from_python(fmt: str, tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        writer.write({"id": "a", "pages": []})
        writer.write({"id": "b", "pages": [JPEG, Image.fromarray(pixels), pixels]})
    given = lading.open(tmp_path / "out")
    assert [page.format for page in given[1]["pages"]] == ["JPEG", "PNG", "PNG"]
    cut = given.map(lambda row: {"crops": [page.crop((0, 0, 2, 1)) for page in row["pages"]]})
    cut.write(tmp_path / "cut", format=fmt)
    empty, whole = lading.open(tmp_path / "cut").with_decode(False)
    assert (empty["pages"], empty["crops"], whole["pages"][0]) == ([], [], JPEG)
    with Image.open(io.BytesIO(whole["crops"][2])) as crop:
        assert np.array_equal(np.asarray(crop), pixels[:1, :2])


# Lists that the caller names, in tars without a manifest


PLAIN = [
    ("a.image.1.png", PNG),
    ("a.image.0.jpg", JPEG),
    ("a.txt", b"two"),
    ("b.txt", b"none"),
    ("c.image.0.jpg", JPEG),
    ("c.image.json", b'[null, "image.0.jpg"]'),
    ("d.image.json", b"[]"),
]
LISTS = [[JPEG, PNG], None, [None, JPEG], []]


def plain_tar(folder: Path, *members: tuple[str, bytes], name: str = "plain.tar") -> Path:
    (folder / name).write_bytes(tar_of(*members))
    return folder / name


@pytest.mark.parametrize("compressed", [False, True])
def test_members_become_the_lists_that_are_named(compressed: bool, tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, *PLAIN)
    if compressed:
        tar = tmp_path / "plain.tar.gz"
        tar.write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes()))
    with lading.open(tar, lists=["image"]) as dataset:
        assert dataset.schema.names == ["__key__", "image", "txt"]
        assert [image and image.format for image in dataset[2]["image"]] == [None, "JPEG"]
        stored = dataset.with_decode(False)
        assert [row["image"] for row in stored] == [stored[i]["image"] for i in range(4)] == LISTS
        assert [row["__key__"] for row in dataset.where("len(image) == 2")] == ["a", "c"]
        assert [batch.schema.names for batch in dataset.select("txt").batches()] == [["__key__", "txt"]]
        assert [batch["__key__"] for batch in lading.loader(stored, batch_size=3)] == [["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("fmt", ["parquet", "webdataset", "jsonl"])
def test_lists_that_are_named_are_converted(fmt: str, tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, *PLAIN)
    lading.convert(tar, tmp_path / "out", format=fmt, lists=["image"], verify=True)
    assert [row["image"] for row in lading.open(tmp_path / "out").with_decode(False)] == LISTS
    assert lading.digest(tmp_path / "out") == lading.digest(tar, lists=["image"])


def test_written_tars_without_their_manifest_keep_paths_and_digest(tmp_path: Path) -> None:
    rows = [{"Images": [{"bytes": JPEG, "path": "a.jpg"}, None], "n": "x"}, {"Images": None, "n": "y"}]
    table = pa.Table.from_pylist(rows, pa.schema([("Images", pa.list_(MEDIA)), ("n", pa.string())]))
    pq.write_table(table.add_column(0, "__key__", [["a", "b"]]), tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    shutil.rmtree(tmp_path / "out" / "_lading")
    [batch] = lading.open(tmp_path / "out", lists=["images"]).batches()
    assert batch.column("images").to_pylist() == [row["Images"] for row in rows]


def test_shards_without_the_members_have_nulls(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    plain_tar(folder, ("a.txt", b"x"), name="0.tar")
    plain_tar(folder, ("b.image.0.png", PNG), ("c.image.json", b"[]"), name="1.tar")
    dataset = lading.open(folder, lists=["image"]).with_decode(False)
    assert [row["image"] for row in dataset] == [dataset[i]["image"] for i in range(3)] == [None, [PNG], []]
    assert dataset.schema.names == ["__key__", "txt", "image"]
    assert [row["n"] for row in dataset.map(lambda row: {"n": row["image"] is None})] == [True, False, False]
    assert all("image" in batch for batch in lading.loader(dataset, batch_size=1))
    assert [row["__key__"] for row in dataset.where("image is null").shuffle(seed=1)] == ["a"]
    for column in ("image", "txt"):  # each is missing in one shard
        assert sum(batch.num_rows for batch in dataset.batches(columns=[column])) == len(dataset)
        assert len(dataset.where(f"{column} is null")) == len([*dataset.where(f"{column} is null")]) > 0
    plain_tar(folder, ("d.image.json", b"[]"), ("e.image.json", b"[null]"), name="2.tar")
    lading.convert(folder, tmp_path / "out", format="parquet", lists=["image"])
    found = [row["image"] for row in lading.open(tmp_path / "out").with_decode(False)]
    assert found == [None, [PNG], [], [], [None]]


def test_paths_that_are_no_texts_name_the_sample(tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, ("a.image.0.jpg", JPEG), ("a.image.json", b'[{"bytes": "image.0.jpg", "path": 5}]'))
    with pytest.raises(DataError, match=r"sample 'a' column 'image': the path of an item is not a text.*found 5"):
        lading.open(tar, lists=["image"])[0]


def test_shards_with_and_without_paths_are_refused_with_advice(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    listed = b'[{"bytes": "image.0.jpg", "path": "x"}]'
    plain_tar(folder, ("a.image.0.jpg", JPEG), ("a.image.json", listed), name="0.tar")
    plain_tar(folder, ("b.image.0.jpg", JPEG), name="1.tar")
    with pytest.raises(SchemaMismatch, match=r"column 'image': .*Convert the files of each type") as caught:
        lading.convert(folder, tmp_path / "out", format="parquet", lists=["image"])
    assert "string" not in (caught.value.advice or "")


def test_copies_of_plain_tars_take_lists_too(tmp_path: Path) -> None:
    lading.convert(plain_tar(tmp_path, *PLAIN), tmp_path / "copy", format="webdataset")
    with lading.open(tmp_path / "copy", lists=["image"]).with_decode(False) as dataset:
        assert dataset.schema.names == ["__key__", "image", "txt"]
        assert [row["image"] for row in dataset] == LISTS


@pytest.mark.parametrize(
    "members, message",
    [
        ([("image.0.jpg", b""), ("image.2.jpg", b"")], "not numbered 0, 1, 2 …; expected 2 items without a gap"),
        ([("image.0.jpg", b""), ("image.0.png", b"")], "not numbered 0, 1, 2 …"),
        ([("image.0.jpg", b""), ("image.json", b"[]")], "a member is not in the list of items"),
        ([("image.json", b'["image.0.jpg"]'), ("image.1.jpg", b"")], "no member"),
        ([("image.json", b'["a cat"]')], "no member; expected such as image.0.jpg, found 'a cat'. .* leave out"),
    ],
)
def test_lists_that_do_not_fit_name_the_sample(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, ("good.image.0.jpg", JPEG), *((f"bad.{name}", data) for name, data in members))
    dataset = lading.open(tar, lists=["image"])
    for read in (lambda: list(dataset.batches()), lambda: dataset[1]):
        with pytest.raises(DataError, match=message) as caught:
            read()
        assert (caught.value.file, caught.value.sample, caught.value.column) == (str(tar), "bad", "image")


@pytest.mark.parametrize(
    "lists, message",
    [
        (["img"], "no such list of members; expected audio, image, found lists='img'"),
        (["txt"], "a member has the name of the list"),
        ("image", "lists are a list of names"),
        (["image", "image"], "lists must be different names"),
    ],
)
def test_names_that_are_no_lists(lists: Any, message: str, tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, *PLAIN, ("e.audio.0.wav", b""))
    with pytest.raises(UsageError, match=message):
        lading.open(tar, lists=lists)


def test_lists_of_other_sources_are_refused(tmp_path: Path) -> None:
    tar = plain_tar(tmp_path, *PLAIN)
    with pytest.raises(UsageError, match="lists of members apply to samples"):
        lading.open(tar, view="interleaved", lists=["image"])
    lading.convert(tar, tmp_path / "out", format="webdataset", lists=["image"])
    assert lading.open(tmp_path / "out", lists=["image"]).schema.names == ["__key__", "image", "txt"]
    with pytest.raises(UsageError, match="no such list of members; expected image, found lists='img'"):
        lading.open(tmp_path / "out", lists=["img"])
    with pytest.raises(DataError, match="column 'image': not a list of items"):
        lading.open(plain_tar(tmp_path, ("a.image.json", b"{}"), name="b.tar"), lists=["image"])
