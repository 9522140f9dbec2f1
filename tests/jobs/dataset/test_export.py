"""Samples as loose files: the same bytes, safe names, and back."""

from __future__ import annotations

import io
import json
import random
import tarfile
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from datasets import Image as HfImage
from PIL import Image

import lading
from lading._core.features.types import Image as Picture
from lading._core.features.types import with_feature
from lading._core.jobs.dataset.export import export
from lading._core.manifest.replaced import EXPORT_MARK
from lading.errors import DestinationExists, Unrepresentable, UsageError

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]
"""Datasets leaves files open."""


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def _tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without the mark of an export."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if name != EXPORT_MARK}


def _picture(kind: str = "PNG") -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 30, 30)).save(made, kind)
    return made.getvalue()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_files_to_tar_and_back_are_the_same_tree(tmp_path: Path, seed: int) -> None:
    draw, folder = random.Random(seed), tmp_path / "loose"
    for number in range(300):
        for field in draw.sample(["jpg", "txt", "json", "seg.png", "x.bin"], draw.randint(1, 3)):
            place = folder / draw.choice(["", "a", "a/b c", "é"]) / f"k{number}.{field}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"%d" % draw.getrandbits(draw.randint(1, 300)))
    lading.convert(folder, tmp_path / "tars", format="webdataset", source_format="files", shard_size="20KB")
    done = lading.open(tmp_path / "tars").export(tmp_path / "back")
    assert _tree(tmp_path / "back") == _tree(folder)
    assert (done.files, done.size_bytes) == (len(_tree(folder)), sum(map(len, _tree(folder).values())))
    back = lading.open(tmp_path / "back", format="files")
    assert lading.digest(back) == lading.digest(tmp_path / "tars")


def test_a_table_of_images_gives_pictures_and_json(tmp_path: Path) -> None:
    features = Features({"image": HfImage(), "label": ClassLabel(names=["cat", "dog"]), "n": Value("int64"),
                         "caption": Value("string")})  # fmt: skip
    rows = [
        {"image": {"bytes": _picture("JPEG"), "path": None}, "label": 1, "n": 3, "caption": "ü"},
        {"image": {"bytes": _picture("PNG"), "path": None}, "label": None, "n": None, "caption": None},
    ]
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "a.parquet")
    lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    found = _tree(tmp_path / "out")
    assert {name: data for name, data in found.items() if not name.endswith("json")} == {
        "000000000.jpg": _picture("JPEG"),
        "000000001.png": _picture("PNG"),
    }
    assert json.loads(found["000000000.json"]) == {"label": "dog", "n": 3, "caption": "ü"}
    assert json.loads(found["000000001.json"]) == {"label": None, "n": None, "caption": None}


def test_several_columns_of_media_keep_their_names(tmp_path: Path) -> None:
    image = {"bytes": _picture(), "path": None}
    made = Dataset.from_list([{"left": image, "right": image}], features=Features(left=HfImage(), right=HfImage()))
    made.to_parquet(tmp_path / "a.parquet")
    lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    assert {*_tree(tmp_path / "out")} == {"000000000.left.png", "000000000.right.png"}


def test_values_beside_a_json_field_have_a_file_of_their_own(tmp_path: Path) -> None:
    table = pa.table({"__key__": ["a"], "json": pa.array([b'{"x": 1}']), "score": [0.5]})
    pq.write_table(table, tmp_path / "a.parquet")
    lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    assert _tree(tmp_path / "out") == {"a.json": b'{"x": 1}', "a.columns.json": b'{"score":0.5}'}


@pytest.mark.parametrize(
    "key", ["../a", "/etc/a", "a/../b", "a//b", "", ".hidden", "a/.git", "a\\b", "x" * 300, "a\0b", "_lading/x", "a/"]
)
def test_keys_that_are_no_safe_names_are_refused(tmp_path: Path, key: str) -> None:
    pq.write_table(pa.table({"__key__": ["ok", key], "txt": ["1", "2"]}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match="name of a file"):
        lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet"]
    lading.open(tmp_path / "a.parquet").drop("__key__").export(tmp_path / "out")
    assert _tree(tmp_path / "out") == {"000000000.txt": b"1", "000000001.txt": b"2"}


@pytest.mark.parametrize("keys", [["a", "a"], ["a.txt/b", "a"], ["a", "a.txt/b"]])
def test_two_files_of_one_name_are_refused(tmp_path: Path, keys: list[str]) -> None:
    pq.write_table(pa.table({"__key__": keys, "txt": ["1", "2"]}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match=r"sample '.*': two files"):
        lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet"]


@pytest.mark.parametrize("name", ["../x", "a/b", "/x"])
def test_columns_that_are_no_extensions_are_refused(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"__key__": ["a"], name: [b"1"]}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match="extension"):
        lading.open(tmp_path / "a.parquet").export(tmp_path / "out")


def test_a_value_that_json_lacks_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": ["a"], "m": pa.array([[[b"1"]]])}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match=r"column 'm'.*ds\.drop\('m'\)"):
        lading.open(tmp_path / "a.parquet").export(tmp_path / "out")


def test_a_folder_with_files_is_replaced_only_on_request(tmp_path: Path) -> None:
    tar = _tar(tmp_path / "a.tar", {"1.txt": b"a"})
    export(_tar(tmp_path / "b.tar", {"2.jpg": b"b", "2.txt": b"b"}), tmp_path / "out")
    with pytest.raises(DestinationExists, match="overwrite=True"):
        export(tar, tmp_path / "out")
    export(tar, tmp_path / "out", overwrite=True)
    assert _tree(tmp_path / "out") == {"1.txt": b"a"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.txt").write_text("mine")
    with pytest.raises(DestinationExists, match=r"1 other file: mine\.txt"):
        export(tar, tmp_path / "mine", overwrite=True)
    assert _tree(tmp_path / "mine") == {"mine.txt": b"mine"}
    with pytest.raises(UsageError, match=r"inside the source|files of the source"):
        lading.open(tmp_path / "out", format="files").export(tmp_path / "out" / "deeper")


def test_steps_choose_the_samples_and_fields(tmp_path: Path) -> None:
    tar = _tar(tmp_path / "a.tar", {f"{n}.{e}": b"%d" % n for n in range(9) for e in ("txt", "cls")})
    lading.open(tar).select("txt")[2:5].export(tmp_path / "out")
    assert _tree(tmp_path / "out") == {"2.txt": b"2", "3.txt": b"3", "4.txt": b"4"}


def test_documents_are_the_members_of_an_interleaved_tar(tmp_path: Path) -> None:
    docs = str(resources.files("lading._core.data") / "docs-00000.tar")
    lading.convert(docs, tmp_path / "tars", format="webdataset")
    done = lading.open(docs).export(tmp_path / "out")
    members = {}
    for path in (tmp_path / "tars").glob("*.tar"):
        with tarfile.open(path) as tar:
            members |= {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr] # all are files
    assert _tree(tmp_path / "out") == members
    assert done.samples == len(lading.open(docs))


def test_lists_of_pictures_are_a_file_an_item(tmp_path: Path) -> None:
    jpeg, png = _picture("JPEG"), _picture("PNG")
    kind = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    rows = [[{"bytes": jpeg, "path": "a.jpg"}, None, {"bytes": png, "path": None}], [], None]
    image = with_feature(pa.field("cover", pa.binary()), Picture())
    schema = pa.schema([("__key__", pa.string()), ("images", kind), image])
    pq.write_table(
        pa.table([list("abc"), pa.array(rows, kind), [png, png, None]], schema=schema), tmp_path / "a.parquet"
    )
    lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
    found = _tree(tmp_path / "out")
    assert json.loads(found.pop("a.images.json")) == [
        {"bytes": "images.0.jpg", "path": "a.jpg"}, None, {"bytes": "images.2.png", "path": None}
    ]  # fmt: skip
    assert found == {
        "a.images.0.jpg": jpeg, "a.images.2.png": png, "a.cover.png": png,
        "b.images.json": b"[]", "b.cover.png": png, "c.json": b"{}",
    }  # fmt: skip
    lading.convert(tmp_path / "out", tmp_path / "tars", format="webdataset", source_format="files")
    [batch] = lading.open(tmp_path / "tars", lists=["images"]).batches()
    assert batch.column("images").to_pylist() == rows


def test_a_column_with_the_name_of_an_item_is_refused(tmp_path: Path) -> None:
    table = pa.table({"__key__": ["a"], "images": pa.array([[b"1"]]), "images.json": ["{}"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match=r"column 'images': .*member.*found 'images\.json'"):
        lading.open(tmp_path / "a.parquet").export(tmp_path / "out")
