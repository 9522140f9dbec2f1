"""Hard links in tars, as GNU tar makes them for files with one inode: against Python's tarfile."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.formats.webdataset import header_walk, walk
from lading.errors import CorruptShard, SidecarMismatch
from tars import energon_index, tar_of


def by_tarfile(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = [member for member in tar if member.isreg() or member.islnk()]
        return {file.name: tar.extractfile(file).read() for file in files}  # type: ignore[union-attr] # files


def linking(
    *members: tuple[str, bytes | str], form: int = tarfile.USTAR_FORMAT, kind: bytes = tarfile.LNKTYPE
) -> bytes:
    """Return a tar of files and, where the value is text, of links to a name."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=form) as tar:
        for name, value in members:
            info = tarfile.TarInfo(name)
            if isinstance(value, str):
                info.type, info.linkname = kind, value
                tar.addfile(info)
            else:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    return body.getvalue()


def members(source: Path, **options: object) -> dict[str, bytes]:
    with lading.open(source, options=options).with_decode(False) as dataset:
        rows = list(dataset.samples(raw=True))
        assert [dataset[i] for i in reversed(range(len(dataset)))] == list(dataset)[::-1]
    return {f"{row['__key__']}.{name}": row[name] for row in rows for name in row if name != "__key__"}


@pytest.fixture
def gnu_tar(tmp_path: Path) -> bytes:
    """A tar by GNU tar of 40 samples, whose files have few inodes; one name is longer than a header holds."""
    folder = tmp_path / ("folder" * 30)
    folder.mkdir()
    for n in range(40):
        (folder / f"{n:03}.txt").write_bytes(b"text %d" % n)
        if n % 10:
            os.link(folder / f"{n // 10 * 10:03}.jpg", folder / f"{n:03}.jpg")
        else:
            (folder / f"{n:03}.jpg").write_bytes(os.urandom(5000))
    subprocess.run(["tar", "--sort=name", "-cf", tmp_path / "t.tar", folder.name], cwd=tmp_path, check=True)
    data = (tmp_path / "t.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert sum(member.islnk() for member in tar) == 36
    return data


@pytest.mark.mechanism("links by GNU tar")
@pytest.mark.cases(1)
@pytest.mark.parametrize("way", ["mapped", "ranges", "gzip", "gzip, small windows", "index"])
def test_links_are_the_files_they_lead_to(
    tmp_path: Path, gnu_tar: bytes, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("t.tar.gz" if "gzip" in way else "t.tar")
    path.write_bytes(gzip.compress(gnu_tar) if "gzip" in way else gnu_tar)
    if "small" in way:
        monkeypatch.setattr(header_walk, "_STREAM_BYTES", 4096)
        monkeypatch.setattr(walk, "_READ_BYTES", 4096)
    if way == "index":
        monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
        lading.index(path)
    expected = by_tarfile(gnu_tar)
    assert len(expected) == 80
    assert members(path, mmap=way != "ranges") == expected
    plain = tmp_path / "plain.tar"
    plain.write_bytes(tar_of(*expected.items(), form=tarfile.GNU_FORMAT))
    digest = lading.digest(plain).ordered
    assert lading.digest(path).ordered == digest
    assert lading.verify(path, deep=True).ok
    for form in ("webdataset", "parquet"):
        assert lading.convert(path, tmp_path / form, format=form, verify=True).digest == digest
    assert members(tmp_path / "webdataset") == expected


@pytest.mark.soak
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_chains_spellings_and_names_that_come_twice(tmp_path: Path, form: int) -> None:
    long = "n" * 90 + "/" + "m" * 60
    longest = "c.x" if form == tarfile.USTAR_FORMAT else f"{long}.x"
    data = linking(("a.x", b"1"), ("b.x", "a.x"), ("c.x", "./b.x"), (f"{long}.x", "c.x"), ("d.x", longest),
                   ("z/e.x", b"2"), ("f.x", "z//e.x"), form=form)  # fmt: skip
    path = tmp_path / "t.tar"
    path.write_bytes(data)
    assert members(path) == by_tarfile(data)
    data = linking(("a.x", b"1"), ("b.x", "a.x"), ("a.x", b"2"), ("c.x", "a.x"))
    path.write_bytes(data)
    with lading.open(path).with_decode(False) as dataset:
        found = [row["x"] for row in dataset.samples(raw=True)]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert found == [tar.extractfile(member).read() for member in tar] == [b"1", b"1", b"2", b"2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("wrap", ["", ".gz"])
@pytest.mark.parametrize(
    "target, found", [("c.x", "only a later member"), ("/etc/passwd", "no member"), ("b.x", "no member")]
)
def test_a_link_to_nothing_is_an_error_that_salvage_saves_the_others_from(
    tmp_path: Path, wrap: str, target: str, found: str
) -> None:
    data = linking(("a.x", b"1"), ("a.y", b"1"), ("b.y", b"2"), ("b.x", target), ("c.x", b"3"), ("c.y", b"3"),
                   ("d.x", "a.x"), ("d.y", b"4"))  # fmt: skip
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(gzip.compress(data) if wrap else data)
    with pytest.raises(CorruptShard, match=rf"t\.tar.*'b\.x': a hard link leads to no earlier member.*{found}"):
        members(path)
    [problem] = lading.verify(path, view="samples").findings
    assert problem["offset"] == 3 * 1024
    saved = lading.salvage(path, tmp_path / "out")
    # Whether the targets of links are those that were written, a damaged tar does not tell.
    assert members(tmp_path / "out") == {"a.x": b"1", "a.y": b"1"}
    assert saved.samples == 1
    assert any("hard link" in str(lost) for lost in saved.lost)


def test_salvage_keeps_no_link_of_a_damaged_tar(tmp_path: Path) -> None:
    data = bytearray(linking(("a.x", b"1" * 700), ("a.y", b"1"), ("b.x", "a.x"), ("b.y", b"2"), ("c.x", b"3"),
                             ("c.y", b"3"), ("d.x", b"4"), ("d.y", b"4")))  # fmt: skip
    data[1536 + 148] ^= 0xFF  # the header of a.y
    path = tmp_path / "t.tar"
    path.write_bytes(data)
    lading.salvage(path, tmp_path / "out")
    assert members(tmp_path / "out") == {"c.x": b"3", "c.y": b"3", "d.x": b"4", "d.y": b"4"}


def test_a_link_within_a_sample_is_counted_and_left_out_as_webdataset_does(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(linking(("a.x", b"1"), ("a.y", "a.x"), ("b.x", b"2"), ("b.y", b"3")))
    with lading.open(path).with_decode(False) as dataset:
        assert next(iter(dataset.samples(raw=True))) == {"__key__": "a", "x": b"1"}
    assert lading.info(path).counts == {"members skipped: a hard link within a sample, or to no file": 1}


def test_symbolic_links_and_links_to_them_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(linking(("a.x", b"1"), ("b.x", "a.x"), kind=tarfile.SYMTYPE))
    assert members(path) == {"a.x": b"1"}
    assert lading.info(path).counts == {"members skipped: not a regular file": 1}


@pytest.mark.parametrize("wrap", ["", ".gz"])
def test_documents(tmp_path: Path, wrap: str) -> None:
    def document(image: str) -> bytes:
        return json.dumps({"texts": ["a", None], "images": [None, image]}).encode()

    content: list[tuple[str, Any]] = [("1.json", document("1.jpg")), ("1.jpg", b"\xff\xd8\xff" * 99),
                                      ("2.json", document("2.jpg")), ("2.jpg", "1.jpg")]  # fmt: skip
    data = linking(*content)
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(gzip.compress(data) if wrap else data)
    (tmp_path / "one.tar").write_bytes(tar_of(*by_tarfile(data).items()))
    assert lading.digest(path) == lading.digest(tmp_path / "one.tar")
    assert lading.verify(path).ok
    assert lading.salvage(path, tmp_path / "out").samples == 2


def test_an_index_by_energon(tmp_path: Path) -> None:
    """Energon takes regular files alone: of a sample that begins with a link, its index has another start."""
    path = tmp_path / "t.tar"
    file, link = ("b.x", b"2"), ("b.y", "a.x")
    for sample in ([file, link], [link, file]):
        data = linking(("a.x", b"1"), *sample, ("c.x", b"3"))
        path.write_bytes(data)
        (tmp_path / "t.tar.idx").write_bytes(energon_index(data))
        if sample[0] is file:
            assert members(path) == by_tarfile(data)
        else:
            with pytest.raises(SidecarMismatch, match="'sidecar': 'ignore'"):
                members(path)
        assert members(path, sidecar="ignore") == by_tarfile(data)
