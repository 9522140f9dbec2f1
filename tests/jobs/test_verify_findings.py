"""Verify: no more findings than asked for, and no more work than they need."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import lading
from lading.formats.csv.reader import UNENDED
from lading.jobs import verify, verify_shards
from tars import tar_of

SHARD_ROWS = 200


def bad_pictures(out: Path, shards: int) -> Path:
    """Tars of pictures of which each begins as one and ends there; without what lading keeps of them."""
    for number in range(shards):
        with lading.writer(out / f"{number}", format="webdataset") as writer:
            rows = {"__key__": [f"{n:04d}" for n in range(SHARD_ROWS)], "png": [b"\x89PNG\r\n\x1a\n   "] * SHARD_ROWS}
            writer.write_batch(pa.table(rows))
        [tar] = (out / f"{number}").glob("*.tar")
        tar.rename(out / f"{number}.tar")
    return out


def tars(out: Path) -> list[Path]:
    return sorted(out.glob("?.tar"))


@pytest.mark.parametrize("most", [1, 5, SHARD_ROWS, SHARD_ROWS + 5, 2 * SHARD_ROWS, 1000])
def test_one_shard_gives_no_more_than_asked_for(tmp_path: Path, most: int) -> None:
    found = lading.verify(tars(bad_pictures(tmp_path, 2)), deep=True, max_findings=most, workers=1)
    assert [finding["row"] for finding in found.findings] == [*range(SHARD_ROWS), *range(SHARD_ROWS)][:most]
    assert found.shards == (1 if most <= SHARD_ROWS else 2)
    assert (found.digest is None) == (most <= 2 * SHARD_ROWS)


def test_one_finding_is_told_whatever_was_asked_for(tmp_path: Path) -> None:
    found = lading.verify(tars(bad_pictures(tmp_path, 1)), deep=True, max_findings=0)
    assert len(found.findings) == 1


def test_workers_give_no_more_than_asked_for(tmp_path: Path) -> None:
    source = tars(bad_pictures(tmp_path, 3))
    found = [lading.verify(source, deep=True, max_findings=250, workers=n).findings for n in (1, 2)]
    assert found[0] == found[1]
    assert len(found[0]) == 250


def test_a_finding_is_not_compared_with_all_before(tmp_path: Path) -> None:
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename in (verify.__file__, verify_shards.__file__)

    source = tars(bad_pictures(tmp_path, 1))
    sys.setprofile(count)
    try:
        found = lading.verify(source, deep=True, max_findings=1000, workers=1)
    finally:
        sys.setprofile(None)
    assert len(found.findings) == SHARD_ROWS
    assert calls < 30 * SHARD_ROWS


def test_a_shard_whose_end_was_not_read_is_not_said_to_have_other_counts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with lading.writer(out, format="webdataset", checksums="none") as writer:
        writer.write_batch(pa.table({"png": [b"\x89PNG\r\n\x1a\n   "] * SHARD_ROWS}))
    found = lading.verify(out, deep=True, max_findings=5)
    assert {finding["message"] for finding in found.findings} == {"a picture has no whole header"}
    assert (len(found.findings), found.digest) == (5, None)


@pytest.mark.soak
def test_small_shards_are_read_together_and_reported_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(70):
        (tmp_path / f"{number:02d}.tar").write_bytes(tar_of((f"{number}.txt", b"text"), (f"{number}.cls", b"1")))
    monkeypatch.setattr(verify_shards, "_TOGETHER_SHARDS", 1)
    alone = lading.verify(tmp_path)
    monkeypatch.undo()
    together = lading.verify(tmp_path)
    assert replace(together, seconds=0) == replace(alone, seconds=0)
    assert (together.samples, together.ok) == (70, True)
    body = (tmp_path / "40.tar").read_bytes()
    (tmp_path / "40.tar").write_bytes(body[:1024] + b"?" * 512 + body[1536:])
    found = lading.verify(tmp_path)
    assert [finding["file"] for finding in found.findings] == [str(tmp_path / "40.tar")]
    assert (found.shards, found.digest) == (70, None)


def test_a_csv_without_its_last_line_end_is_read_and_found(tmp_path: Path) -> None:
    """Also among shards that are read together, and in a compressed one."""
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "b.csv").write_bytes(b"a,b\r\n1,2\r\n3,4")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"a,b\r5,6"))
    found = lading.verify(str(tmp_path / "*.csv*"))
    assert [finding["message"] for finding in found.findings] == [
        "the last line has no end: the file may have been cut inside its last value"
    ] * 2
    assert found.samples == 4
    assert lading.info(str(tmp_path / "*.csv*")).counts == {UNENDED: 2}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_tar_without_an_end_is_a_finding(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """POSIX ends an archive with two blocks of zeros; a cut between two members shows by nothing else."""
    data = tar_of(("a.txt", b"1"), ("b.txt", b"2"))
    for name, length in (("cut.tar", 2048), ("whole.tar", len(data))):
        (tmp_path / name).write_bytes(pack(data[:length]))
    [finding] = lading.verify(sorted(tmp_path.glob("*.tar"))).findings
    assert (finding["file"], finding["offset"]) == (str(tmp_path / "cut.tar"), 2048)
    assert ("head -c 1024 /dev/zero >>" in str(finding.get("advice"))) is (pack is bytes)


def test_samples_in_several_pieces_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"x"), ("b.txt", b"y")))
    with pytest.warns(UserWarning, match="members of a sample do not stand together") as warned:
        [finding] = lading.verify(tmp_path).findings
    assert len(warned) == 1
    assert finding["found"] == "2 keys that return with further fields, such as 'a'"
    assert finding["advice"] == "--regroup joins them."
    assert lading.verify(tmp_path, regroup=True).ok


def test_samples_of_one_key_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"x")))
    assert lading.verify(tmp_path).ok
