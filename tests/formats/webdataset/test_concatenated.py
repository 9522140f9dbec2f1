"""Tars behind each other in one file, as `cat` leaves them: against Python's tarfile, with and without ignore_zeros."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import lading
from lading._core.formats.webdataset.walk import CONCATENATED
from lading.errors import CorruptShard, SidecarMismatch
from tars import energon_index, tar_of

PARTS = [
    tar_of(*((f"{n}.{end}", f"{end} of {n}".encode() * (300 * n)) for n in part for end in ("x", "bin")))
    for part in ((1, 2, 3), (4,), (5, 6))
]
WHOLE = b"".join(PARTS)
READ = {"on_concatenated": "read"}
WRAPS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def by_tarfile(data: bytes, *, ignore_zeros: bool) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), ignore_zeros=ignore_zeros) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr] # files


def members(source: Path, **options: object) -> dict[str, bytes]:
    with lading.open(source, options=options) as dataset:
        rows = list(dataset.samples(raw=True))
        assert [dataset[i] for i in range(len(dataset))] == list(dataset)
        return {f"{row['__key__']}.{name}": row[name] for row in rows for name in ("x", "bin")}


@pytest.mark.cases(3)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_read(tmp_path: Path, wrap: str, mmap: bool) -> None:
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(WRAPS[wrap](WHOLE))
    assert members(path, mmap=mmap) == by_tarfile(WHOLE, ignore_zeros=False)
    assert members(path, mmap=mmap, on_concatenated="read") == by_tarfile(WHOLE, ignore_zeros=True)
    with pytest.raises(CorruptShard, match=r"t\.tar.*follow the end of the archive.*on_concatenated"):
        members(path, mmap=mmap, on_concatenated="error")
    assert lading.info(path, options={"mmap": mmap}).counts == {CONCATENATED: 1}
    assert not lading.info(path, options={"mmap": mmap, "on_concatenated": "read"}).counts


@pytest.mark.soak
@pytest.mark.parametrize("wrap", ["", ".gz"])
def test_a_copy_of_all_has_the_digest_of_one_tar_of_all(tmp_path: Path, wrap: str) -> None:
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(WRAPS[wrap](WHOLE))
    (tmp_path / "one.tar").write_bytes(tar_of(*by_tarfile(WHOLE, ignore_zeros=True).items()))
    expected = lading.digest(tmp_path / "one.tar")
    for form in ("webdataset", "parquet"):
        done = lading.convert(path, tmp_path / form, format=form, source_options=READ, verify=True)
        assert (done.digest, done.samples) == (expected.ordered, 6)
    lost = lading.convert(path, tmp_path / "lost", format="parquet")
    assert (lost.samples, lost.counts) == (3, {CONCATENATED: 1})


@pytest.mark.parametrize("wrap", ["", ".gz"])
@pytest.mark.parametrize("deep", [True, False])
def test_verify_and_doctor_find_it(tmp_path: Path, wrap: str, deep: bool) -> None:
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(WRAPS[wrap](WHOLE))
    [found] = lading.verify(path, deep=deep).findings
    with tarfile.open(fileobj=io.BytesIO(PARTS[0])) as tar:
        tar.getmembers()
        end = tar.offset  # type: ignore[attr-defined] # where the first archive ends
    assert (found["offset"], found["found"]) == (end, f"a header at {len(PARTS[0])}")
    assert lading.verify(path, deep=deep, options=READ).ok
    (tmp_path / "u.tar").write_bytes(PARTS[0])
    assert lading.verify(tmp_path / "u.tar", deep=deep).ok
    assert lading.doctor(tmp_path / "u.tar").ok
    [problem] = lading.doctor(path).findings
    assert problem.problem == "several tars in one file"
    assert problem.command is not None
    assert "on_concatenated=read" in problem.command


@pytest.mark.parametrize("wrap", WRAPS)
def test_salvage_of_all(tmp_path: Path, wrap: str) -> None:
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(WRAPS[wrap](WHOLE))
    saved = lading.salvage(path, tmp_path / "all", source_options=READ)
    assert (saved.samples, list(saved.lost)) == (6, [])
    found = lading.salvage(path, tmp_path / "found")  # where zeros were written, or members were zeroed, nothing tells
    assert found.samples == 3
    assert sum("tars were joined with cat" in str(lost) for lost in found.lost) == 2
    path.write_bytes(WRAPS[wrap](WHOLE[: len(WHOLE) - len(PARTS[2]) + 700]))
    saved = lading.salvage(path, tmp_path / "cut", source_options=READ)
    assert saved.samples == 3  # the last whole one is next to the damage


def test_an_index_of_samples_beside_it(tmp_path: Path) -> None:
    """Energon's index is by Python's tarfile, so it ends where the first archive does."""
    path = tmp_path / "t.tar"
    path.write_bytes(WHOLE)
    (tmp_path / "t.tar.idx").write_bytes(energon_index(WHOLE))
    assert len(members(path)) == 6
    assert lading.info(path).counts == {CONCATENATED: 1}
    with pytest.raises(SidecarMismatch, match=r"t\.tar\.idx"):
        members(path, on_concatenated="read")
    assert len(members(path, on_concatenated="read", sidecar="ignore")) == 12


@pytest.mark.parametrize("wrap", ["", ".gz"])
def test_documents(tmp_path: Path, wrap: str) -> None:
    parts = [
        tar_of(
            (f"{n}.json", json.dumps({"texts": ["a", None], "images": [None, f"{n}.jpg"]}).encode()),
            (f"{n}.jpg", b"\xff\xd8\xff" * n),
        )
        for n in (1, 2, 3)
    ]
    path = tmp_path / f"t.tar{wrap}"
    path.write_bytes(WRAPS[wrap](b"".join(parts)))
    (tmp_path / "one.tar").write_bytes(tar_of(*by_tarfile(b"".join(parts), ignore_zeros=True).items()))
    assert lading.info(path).samples == 1
    assert lading.info(path).counts == {CONCATENATED: 1}
    assert [found["message"].split(":")[0] for found in lading.verify(path).findings] == [
        "members follow the end of the archive"
    ]
    assert lading.digest(path, options=READ) == lading.digest(tmp_path / "one.tar")
    done = lading.convert(path, tmp_path / "out", format="parquet", verify=True, source_options=READ)
    assert (done.samples, done.digest) == (3, lading.digest(tmp_path / "one.tar").ordered)


def test_zeros_and_other_bytes_behind_the_end_are_no_archive(tmp_path: Path) -> None:
    for number, rest in enumerate((bytes(100_000), bytes(5000) + b"x" * 5000, b"x")):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(PARTS[0] + rest)
        for policy in ("stop", "read", "error"):
            assert len(members(path, on_concatenated=policy)) == 6
        assert CONCATENATED not in lading.info(path).counts
