"""Verify: what is a finding, how many of them are listed, and what the summary says."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import lading
from lading._core.formats.csv.reader import UNENDED
from lading._core.jobs.verify import shards as verify_shards
from lading._core.jobs.verify import verify
from lading.errors import UsageError
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


def problems(found: lading.VerifyResult) -> list[object]:
    return [finding["row"] for finding in found.findings if finding["level"] == "problem"]


def test_each_shard_lists_ten_findings_and_counts_the_others(tmp_path: Path) -> None:
    """All shards are named, however many findings one has."""
    first, second = source = tars(bad_pictures(tmp_path, 2))
    found = lading.verify(source, deep=True)
    assert problems(found) == [*range(10), *range(10)]
    assert found.more == {str(first): SHARD_ROWS - 10, str(second): SHARD_ROWS - 10}
    assert found.problems == 2 * SHARD_ROWS
    assert (found.ok, found.digest is not None) == (False, True)


@pytest.mark.parametrize("most", [0, 1, 25, SHARD_ROWS])
def test_as_many_findings_of_a_shard_are_listed_as_asked_for(most: int, tmp_path: Path) -> None:
    found = lading.verify(tars(bad_pictures(tmp_path, 1)), deep=True, max_findings=most)
    assert problems(found) == [*range(max(most, 1))]
    assert found.problems == SHARD_ROWS


def test_workers_give_no_more_than_asked_for(tmp_path: Path) -> None:
    source = tars(bad_pictures(tmp_path, 3))
    found = [lading.verify(source, deep=True, max_findings=25, workers=n) for n in (1, 2)]
    assert (found[0].findings, found[0].more) == (found[1].findings, found[1].more)
    assert len(problems(found[0])) == 75


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


def test_a_cut_shard_hides_no_other_damaged_shard_and_a_missing_one_is_one_finding(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", rows_per_shard=100) as writer:
        writer.write_batch(pa.table({"txt": [f"text {n}" * 20 for n in range(500)]}))
    first, second, third, fourth, _ = sorted((tmp_path / "out").glob("*.tar"))
    first.write_bytes(first.read_bytes()[:1024])
    body = second.read_bytes()
    second.write_bytes(body[:600] + bytes([body[600] ^ 1]) + body[601:])
    third.unlink()
    fourth.write_bytes(fourth.read_bytes().replace(b"text", b"texT"))
    found = lading.verify(tmp_path / "out")
    per_shard = Counter(str(finding["file"]) for finding in found.findings)
    assert per_shard == {str(first): 2, str(second): 1, str(third): 1, str(fourth): 10}  # of first: its size, its end
    assert found.more == {str(fourth): 100 - 10}
    quick = lading.verify(tmp_path / "out", quick=True)
    assert [finding["file"] for finding in quick.findings] == [str(first), str(third)]


def test_equal_keys_in_other_shards_are_a_note_and_in_pieces_of_one_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"1"), ("b.txt", b"2")))
    (tmp_path / "b.tar").write_bytes(tar_of(("c.txt", b"1"), ("b.txt", b"3")))
    found = lading.verify(tmp_path)
    [note] = found.findings
    assert (found.ok, found.problems, note["level"], note["row"]) == (True, 0, "note", 1)
    assert note["file"] == str(tmp_path / "b.tar")
    assert (
        f"1 sample with the key of a sample in an earlier shard; this one also in {tmp_path / 'a.tar'}, row 1"
        in str(note["found"])
    )
    lading.convert(tars(tmp_path), tmp_path / "out", format="webdataset", rows_per_shard=2)
    written = lading.verify(tmp_path / "out")  # by checksums and indexes
    assert [finding["level"] for finding in written.findings] == ["note"]


def test_samples_in_pieces_that_lading_wrote_are_found_without_reading_them(tmp_path: Path) -> None:
    members = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"x"), ("b.txt", b"y")]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    with pytest.warns(UserWarning, match="members of a sample do not stand together"):
        lading.convert(tmp_path / "a.tar", tmp_path / "out", format="webdataset")
    with pytest.warns(UserWarning, match="members of a sample do not stand together"):
        found = lading.verify(tmp_path / "out")
    assert found.shards_read == 0
    assert [finding["found"] for finding in found.findings] == ["2 keys that return with further fields, such as 'a'"]


@pytest.mark.parametrize("how, said", [
    ("quick", "1 shard opened, counts and sizes compared; checksums were not compared, and samples not read: "),
    ("", "checksums of 1 shard compared, headers walked; samples were not read: --deep; samples were not decoded: "),
    ("deep", "checksums of 1 shard compared, headers walked, samples of 1 shard read; samples were not decoded: "),
    ("decode", "checksums of 1 shard compared, headers walked, samples of 1 shard read, 2 values decoded"),
])  # fmt: skip
def test_the_summary_says_what_was_compared_and_what_was_not(how: str, said: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(pa.table({"json": [b"[1]", b"[2]"]}))
    found = lading.verify(tmp_path / "out", **dict.fromkeys([how] if how else [], True))
    assert (found.ok, found.summary.removesuffix("leave out --quick").removesuffix("--decode")) == (True, said)
    assert (found.digest is not None) == (how in ("deep", "decode"))


def test_without_checksums_samples_are_read_whatever_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"1")))
    found = lading.verify(tmp_path)
    assert found.summary == (
        "1 shard without checksums, headers walked, samples of 1 shard read; samples were not decoded: --decode"
    )
    assert found.digest == lading.digest(tmp_path).ordered


def test_a_quick_verification_reads_nothing_deep(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a quick verification reads no samples"):
        lading.verify(tmp_path, quick=True, deep=True)


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
    finding, same_keys = lading.verify(sorted(tmp_path.glob("*.tar"))).findings
    assert same_keys["level"] == "note"
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
