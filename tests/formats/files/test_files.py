"""Loose files: samples as webdataset groups them, labels and metadata as Hugging Face's folders have them."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import webdataset
from datasets import load_dataset
from PIL import Image

import lading
from lading.errors import DataError, DuplicateField, SeveralSplits, SourceNotFound, StoreError, UsageError
from lading.features import ClassLabel, feature_of

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]
"""The peers leave files open."""


def _open(source: Any, **options: Any) -> Any:
    """A dataset that gives media as the bytes that they are here, mostly none that Pillow knows."""
    return lading.open(source, **options).with_decode(False)


def _write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


def _picture(seed: int, kind: str = "PNG") -> bytes:
    colour = tuple(random.Random(seed).randbytes(3))
    made = io.BytesIO()
    Image.new("RGB", (8 + seed, 6), colour).save(made, kind)
    return made.getvalue()


def _pictures(*names: str) -> dict[str, bytes]:
    return {name: _picture(i, "JPEG" if name.endswith("jpg") else "PNG") for i, name in enumerate(names)}


def _raw(ds: Any) -> list[dict[str, Any]]:
    return list(ds.samples(raw=True))


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(4))
def test_samples_are_those_that_webdataset_finds_in_a_tar_of_the_folder(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    files = {}
    for number in range(60):
        key = f"{draw.choice(['', 'a/', 'a/b c/', 'é/'])}{draw.choice(['x', 'x-1', 'y_', 'Z'])}{number}"
        for field in draw.sample(["jpg", "TXT", "json", "seg.png", "a.b.c"], draw.randint(1, 4)):
            files[f"{key}.{field}"] = b"%d" % draw.getrandbits(draw.randint(1, 200))
    folder = _write(tmp_path / "loose", files)
    with tarfile.open(tmp_path / "same.tar", "w") as tar:
        for path in sorted(files):
            tar.add(folder / path, path)
    expected = [
        {k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")}
        for sample in webdataset.WebDataset(str(tmp_path / "same.tar"), shardshuffle=False)
    ]
    ds = _open(folder, format="files")
    # A folder says which fields there are: each sample has all of them.
    empty = dict.fromkeys(name for sample in expected for name in sample)
    assert _raw(ds) == [empty | sample for sample in expected]
    assert len(ds) == len(expected)
    for sample in expected[::7]:
        assert ds.by_key(sample["__key__"])["__key__"] == sample["__key__"]
    assert lading.digest(ds) == lading.digest(tmp_path / "same.tar")


@pytest.mark.soak
def test_many_shards_hold_all_samples_and_workers_write_the_same_bytes(tmp_path: Path) -> None:
    folder = _write(tmp_path / "loose", {f"{n:05d}.{e}": b"%d" % n for n in range(2500) for e in ("txt", "cls")})
    ds = _open(folder, format="files")
    assert len(ds.shards) == 3
    assert [sample["cls"] for sample in ds] == [*range(2500)]
    assert ds.take([2499, 0, 1024], ["txt"])["txt"].to_pylist() == [b"2499", b"0", b"1024"]
    for workers in (1, 2):
        lading.convert(folder, tmp_path / f"out{workers}", format="parquet", source_format="files", workers=workers,
                       shard_size="10KB", verify=True)  # fmt: skip
    one, two = (sorted((tmp_path / f"out{w}").glob("*.parquet")) for w in (1, 2))
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert lading.digest(tmp_path / "out1") == lading.digest(ds)


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "names",
    [
        ("cat/1.png", "cat/2.png", "dog/1.png"),
        ("b/2.jpg", "a/x.y.png", "a/1.jpg", "c/1.JPEG"),
        ("deep/cat/1.png", "deep/dog/1.png"),
        ("1.png", "2.png"),
        ("cat/1.png", "cat/2.png"),
        ("cat/1.png", "2.png"),
    ],
)
def test_labels_are_those_of_imagefolder(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = _write(tmp_path / "images", _pictures(*names))
    theirs = load_dataset("imagefolder", data_dir=str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    ours = _open(folder)
    assert ours.format == "files"
    if "label" not in theirs.features:
        assert "label" not in ours.columns
        return
    assert feature_of(ours.schema.field("label")) == ClassLabel(theirs.features["label"].names)
    mine = sorted((sample["label"], sample["image"]) for sample in ours.samples(raw=True))
    read = theirs.cast_column("image", theirs.features["image"].__class__(decode=False))
    paths = [(row["label"], row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()) for row in read]
    assert mine == sorted(paths)


def test_labels_may_be_asked_for_or_left_out(tmp_path: Path) -> None:
    pairs = {f"{c}/{i}.{e}": b"%d" % i for c in ("cat", "dog") for i in range(2) for e in ("png", "txt")}
    folder = _write(tmp_path / "pairs", pairs)
    assert _open(folder).columns == ["__key__", "png", "txt"]
    asked = _open(folder, options={"labels": "folders"})
    assert [(s["__key__"], s["label"]) for s in asked] == [("cat/0", 0), ("cat/1", 0), ("dog/0", 1), ("dog/1", 1)]
    images = _write(tmp_path / "images", _pictures("cat/1.png", "dog/1.png"))
    assert "label" not in _open(images, options={"labels": "none"}).columns
    with pytest.raises(UsageError, match="labels='yes'"):
        _open(images, options={"labels": "yes"})


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_columns_are_those_of_imagefolder(tmp_path: Path, kind: str) -> None:
    folder = _write(tmp_path / "images", _pictures("a.png", "b.jpg", "sub/c.png"))
    lines = {
        "csv": 'file_name,text,score,n,good,code\na.png,"one, two",0.5,3,True,007\nsub/c.png,three,1.25,-4,False,008\n'
        "b.jpg,ü,2,5,True,x\n",
        "jsonl": '{"file_name": "a.png", "text": "one", "n": 3, "score": 0.5, "tags": ["x", "y"]}\n'
        '{"file_name": "sub/c.png", "text": "three", "n": -4, "score": 1.5, "tags": []}\n'
        '{"file_name": "b.jpg", "text": "ü", "n": 5, "score": 2.0, "tags": ["z"]}\n',
    }[kind]
    (folder / f"metadata.{kind}").write_text(lines)
    theirs = load_dataset("imagefolder", data_dir=str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    ours = _open(folder)
    names = [name for name in theirs.column_names if name != "image"]
    assert {*ours.columns} == {"__key__", "image", *names}
    rows = theirs.select_columns(names).to_list()
    assert sorted(({n: s[n] for n in names} for s in ours), key=str) == sorted(rows, key=str)
    assert [s["image"] for s in ours.samples(raw=True)] == [
        (folder / name).read_bytes() for name in ("a.png", "b.jpg", "sub/c.png")
    ]


def test_files_without_metadata_get_nulls_and_metadata_may_be_ignored(tmp_path: Path) -> None:
    folder = _write(tmp_path / "images", _pictures("a.png", "b.png"))
    (folder / "metadata.csv").write_text("file_name,n\nb.png,1\n")
    assert _open(folder).take([0, 1], ["n"])["n"].to_pylist() == [None, 1]
    assert _open(folder, options={"metadata": "ignore"}).columns == ["__key__", "image"]


@pytest.mark.parametrize("name", ["../a.png", "/etc/passwd", "file:///a.png", "x/../../a.png"])
def test_metadata_name_no_file_outside_their_folder(tmp_path: Path, name: str) -> None:
    folder = _write(tmp_path / "images", _pictures("a.png"))
    (folder / "metadata.csv").write_text(f"file_name,n\n{name},1\n")
    with pytest.raises(DataError, match="outside their folder"):
        _open(folder).head()


def test_folders_named_like_splits_are_splits(tmp_path: Path) -> None:
    folder = _write(tmp_path / "images", _pictures(*(f"{s}/{c}/1.png" for s in ("train", "val") for c in ("a", "b"))))
    with pytest.raises(SeveralSplits, match="train, validation"):
        _open(folder)
    for split, place in (("train", "train"), ("validation", "val")):
        ds = _open(folder, split=split)
        assert [(s["__key__"], s["label"]) for s in ds] == [("a/1", 0), ("b/1", 1)]
        assert ds[0]["image"] == (folder / place / "a" / "1.png").read_bytes()
    done = lading.convert(folder, tmp_path / "out", format="webdataset", verify=True)
    assert {name: one.samples for name, one in done.splits.items()} == {"train": 2, "validation": 2}
    with pytest.raises(SourceNotFound, match="no such split"):
        _open(folder, split="dev")


def test_classes_that_are_called_like_splits_are_classes(tmp_path: Path) -> None:
    folder = _write(tmp_path / "images", _pictures("train/1.png", "bus/1.png"))
    assert [s["label"] for s in _open(folder)] == [0, 1]


def test_what_is_no_sample_is_counted(tmp_path: Path) -> None:
    odd = ("README.md", ".DS_Store", "Makefile", "x/.hidden.txt", "_lading/f.txt")
    folder = _write(tmp_path / "loose", {"1.txt": b"a", **dict.fromkeys(odd, b"")})
    os.symlink(tmp_path / "nowhere", folder / "2.txt")
    os.symlink(folder / "1.txt", folder / "3.txt")
    ds = _open(folder, format="files")
    assert [s["__key__"] for s in ds] == ["1", "3"]
    assert dict(ds.counts) == {
        "hidden files, left out": 3,
        "files without an extension, left out": 1,
        "files about the folder (README and the like), left out": 1,
        "links to other folders, left out (--root allows a folder)": 1,
    }


def test_links_lead_to_other_folders_only_where_these_are_roots(tmp_path: Path) -> None:
    other = _write(tmp_path / "other", {"1.txt": b"secret", "deep/2.txt": b"too"})
    folder = _write(tmp_path / "loose", {"0.txt": b"own"})
    os.symlink(other / "1.txt", folder / "1.txt")
    os.symlink(other / "deep", folder / "deep")
    ds = _open(folder, format="files")
    assert [s["txt"] for s in ds] == ["own"]
    allowed = _open(folder, format="files", roots=[str(other)])
    assert [s["txt"] for s in allowed] == ["own", "secret", "too"]


def test_files_that_differ_in_the_case_of_their_extension_are_one_field(tmp_path: Path) -> None:
    folder = _write(tmp_path / "loose", {"1.txt": b"a", "1.TXT": b"b"})
    with pytest.raises(DuplicateField, match=r"1\.txt.*column 'txt'"):
        _open(folder, format="files")


def test_names_that_are_no_text_are_errors(tmp_path: Path) -> None:
    folder = _write(tmp_path / "loose", {"1.txt": b"a"})
    with open(os.fsencode(folder) + b"/\xff.txt", "wb"):
        pass
    with pytest.raises(StoreError, match="invalid UTF-8"):
        _open(folder, format="files")


def test_patterns_and_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _write(tmp_path / "loose", {"a/1.txt": b"1", "a/1.png": b"p", "b/2.txt": b"2"})
    assert _raw(_open(f"{folder}/*/*.txt", format="files")) == [
        {"__key__": "a/1", "txt": b"1"},
        {"__key__": "b/2", "txt": b"2"},
    ]
    monkeypatch.chdir(folder)
    for source in (".", "*/*"):
        assert [s["__key__"] for s in _open(source, format="files")] == ["a/1", "b/2"]
    with pytest.raises(UsageError, match="Name the folder"):
        _open("a/1.txt", format="files")


def test_a_folder_of_media_opens_by_itself_and_other_folders_say_how(tmp_path: Path) -> None:
    assert _open(_write(tmp_path / "media", {"1.wav": b"", "1.json": b"{}"})).format == "files"
    others = _write(tmp_path / "others", {"1.md": b"a"})
    with pytest.raises(SourceNotFound, match="format='files'"):
        _open(others)
    shards = _write(tmp_path / "shards", {"1.jpg": b"", "a.csv": b"n\n1\n"})
    assert _open(shards).format == "csv"


def test_a_file_that_changed_since_it_was_listed_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = _write(tmp_path / "loose", {"1.txt": b"long enough", "2.txt": b"b"})
    ds = _open(folder, format="files")
    (folder / "1.txt").write_bytes(b"x")
    with pytest.raises(DataError, match=r"1\.txt"):
        list(ds)
    (folder / "1.txt").unlink()
    with pytest.raises(DataError, match=r"1\.txt"):
        list(_open(folder, format="files").head() and ds)
