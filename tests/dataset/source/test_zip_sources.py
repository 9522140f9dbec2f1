"""A zip archive is opened as the folder of its files would be."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import lading
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import SeveralSplits, SourceNotFound, UnknownFormat, UsageError

METHODS = pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])


def _picture(seed: int) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (4 + seed, 3), tuple(random.Random(seed).randbytes(3))).save(made, "PNG")
    return made.getvalue()


def _labelled(folder: Path) -> None:
    for i, name in enumerate(["cat/1.png", "dog/2.png", "dog/3.png", "__MACOSX/cat/._1.png", "README.md"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(_picture(i))


def _with_metadata(folder: Path) -> None:
    folder.mkdir()
    (folder / "metadata.csv").write_text("file_name,caption\nb.png,two\na.png,one\n")
    for i, name in enumerate(["a.png", "b.png"]):
        (folder / name).write_bytes(_picture(i))


def _tars(folder: Path) -> None:
    folder.mkdir()
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for i in range(3):
                for name, data in ((f"{number}-{i}.png", _picture(i)), (f"{number}-{i}.json", b'{"n": 1}')):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def _parquet(folder: Path) -> None:
    _tars(folder.parent / "tars")
    lading.convert(folder.parent / "tars", folder, format="parquet", workers=1, progress=False)


def _with_manifest(folder: Path) -> None:
    _tars(folder.parent / "tars")
    lading.convert(folder.parent / "tars", folder / "inner", format="webdataset", workers=1, progress=False)


def _csv(folder: Path) -> None:
    folder.mkdir()
    (folder / "train.csv").write_text("id,name\n" + "".join(f"{i},name {i}\n" for i in range(3000)))


def _zip(folder: Path, archive: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(archive, "w", method) as made:
        for file in sorted(folder.rglob("*")):
            made.write(file, file.relative_to(folder))
    return archive


def _digest(source: Any, **options: Any) -> str:
    return str(lading.digest(source, **options))


@METHODS
@pytest.mark.parametrize("written", [_labelled, _with_metadata, _tars, _parquet, _with_manifest, _csv])
@pytest.mark.cases(6)
def test_an_archive_is_the_folder_of_its_files(tmp_path: Path, written: Any, method: int) -> None:
    written(tmp_path / "in")
    archive = _zip(tmp_path / "in", tmp_path / "a.zip", method)
    assert _digest(archive) == _digest(tmp_path / "in")
    assert lading.open(archive).schema == lading.open(tmp_path / "in").schema
    far = Stores({"far://": MemoryStore({"far://b/a.zip": archive.read_bytes()})})
    ds = lading.open("far://b/a.zip", stores=far)
    assert _digest(ds) == _digest(tmp_path / "in")
    raw = [*lading.open(tmp_path / "in").with_decode(False).samples()]
    assert ds.with_decode(False)[len(raw) - 1] == raw[-1]


def test_parts_of_an_archive(tmp_path: Path) -> None:
    _tars(tmp_path / "in")
    archive = _zip(tmp_path / "in", tmp_path / "A.ZIP")
    assert _digest(f"{archive}/*.tar") == _digest(archive)
    assert _digest(f"{archive}/1.tar") == _digest(tmp_path / "in" / "1.tar")
    with pytest.raises(SourceNotFound, match=r"A\.ZIP/2: no such file or folder.*begins with 0\.tar, 1\.tar"):
        lading.open(f"{archive}/2")
    (tmp_path / "b.zip").mkdir()  # a folder may have the name of an archive
    shutil.copy(tmp_path / "in" / "0.tar", tmp_path / "b.zip")
    assert len(lading.open(tmp_path / "b.zip")) == 3


def test_several_archives_are_one_dataset(tmp_path: Path) -> None:
    _labelled(tmp_path / "in")
    (tmp_path / "zips").mkdir()
    both = [_zip(tmp_path / "in", tmp_path / "zips" / f"part-{i}.zip") for i in range(2)]
    expected = _digest(lading.concat([lading.open(each) for each in both]))
    for source in (both, f"{tmp_path}/zips/*.zip", f"{tmp_path}/zips/part-{{0..1}}.zip", tmp_path / "zips"):
        assert _digest(source) == expected
    (tmp_path / "zips" / "notes.pdf").write_bytes(b"-")
    assert dict(lading.open(tmp_path / "zips").counts) == {
        "files next to zip archives, left out": 1, "hidden files, left out": 2,
        "files about the folder (README and the like), left out": 2,
    }  # fmt: skip


def test_archives_named_like_splits_are_splits(tmp_path: Path) -> None:
    _labelled(tmp_path / "in")
    (tmp_path / "zips").mkdir()
    for name in ("train", "test"):
        _zip(tmp_path / "in", tmp_path / "zips" / f"{name}.zip")
    with pytest.raises(SeveralSplits):
        lading.open(tmp_path / "zips")
    assert _digest(tmp_path / "zips", split="test") == _digest(tmp_path / "in")


def test_an_archive_in_an_archive_is_refused(tmp_path: Path) -> None:
    _labelled(tmp_path / "in")
    (tmp_path / "zips").mkdir()
    _zip(tmp_path / "in", tmp_path / "zips" / "inner.zip")
    outer = _zip(tmp_path / "zips", tmp_path / "outer.zip")
    with pytest.raises(UsageError, match=r"inner\.zip: a zip inside a zip is not opened.*unzip"):
        lading.open(outer)


def test_an_archive_of_another_name_says_how_it_opens(tmp_path: Path) -> None:
    _csv(tmp_path / "in")
    _zip(tmp_path / "in", tmp_path / "download")
    with pytest.raises(UnknownFormat, match=r"a ZIP archive.*a name that ends in \.zip"):
        lading.open(tmp_path / "download")


@METHODS
@pytest.mark.parametrize("written", [_labelled, _tars])
@pytest.mark.cases(4)
def test_verify_compares_checksums(tmp_path: Path, written: Any, method: int) -> None:
    written(tmp_path / "in")
    archive = _zip(tmp_path / "in", tmp_path / "a.zip", method)
    assert lading.verify(archive, deep=True).ok
    with zipfile.ZipFile(archive) as peer:
        last = peer.infolist()[-1]  # a picture, or a tar
    body = bytearray(archive.read_bytes())
    body[last.header_offset + 30 + len(last.filename) + last.compress_size - 60] ^= 1
    archive.write_bytes(body)
    report = lading.verify(archive, deep=True)
    assert not report.ok
    assert any("a.zip" in str(finding["file"]) for finding in report.findings)


def test_a_conversion_is_verified(tmp_path: Path) -> None:
    _labelled(tmp_path / "in")
    archive = _zip(tmp_path / "in", tmp_path / "a.zip", zipfile.ZIP_STORED)
    lading.convert(archive, tmp_path / "out", format="webdataset", workers=1, progress=False, verify=True)
    assert _digest(tmp_path / "out") == _digest(archive)
