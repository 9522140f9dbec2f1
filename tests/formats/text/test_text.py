"""Plain text: lines as Hugging Face's builder `text` reads them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from datasets import load_dataset

import lading
from lading.errors import CorruptShard, LimitExceeded, SeveralSplits, SourceNotFound, UsageError
from lading.limits import Limits

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def _texts(source: object, **options: object) -> list[str]:
    return [sample["text"] for sample in lading.open(source, **options)]  # type: ignore[call-overload]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.cases(3)
def test_lines_are_those_of_hugging_face(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    parts = [draw.choice(["\n", "\r\n", "\r", "a", "é ", "long " * 30, "\n\n"]) for _ in range(draw.randrange(1, 4000))]
    path = tmp_path / "a.txt"
    path.write_bytes("".join(["x", *parts]).encode())
    expected = list(load_dataset("text", data_files=str(path), split="train", cache_dir=str(tmp_path / "hf"))["text"])
    ds = lading.open(path)
    assert _texts(path) == expected
    assert len(ds) == len(expected)
    wanted = [draw.randrange(len(expected)) for _ in range(50)]
    assert ds.take(wanted)["text"].to_pylist() == [expected[row] for row in wanted]
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert _texts(tmp_path / "b.txt.gz") == expected


@pytest.mark.parametrize(
    "data,lines",
    [
        (b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\r\n\r\nb", ["a", "", "b"]), (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []), (b"a\r", ["a"]), (b"\r\n", [""]), (b"a\n\n", ["a", ""]),
    ],
)  # fmt: skip
@pytest.mark.cases(9)
def test_ends_of_lines(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    assert _texts(tmp_path / "a.txt") == lines
    assert len(lading.open(tmp_path / "a.txt")) == len(lines)


def test_a_file_may_be_a_sample(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one\r\ntwo\n"), ("b.txt", ""), ("c.txt", "é")):
        (tmp_path / name).write_bytes(text.encode())
    ds = lading.open(tmp_path, options={"sample_by": "file"})
    assert [sample["text"] for sample in ds] == ["one\r\ntwo\n", "", "é"]
    assert ds.take([2, 0])["text"].to_pylist() == ["é", "one\r\ntwo\n"]
    with pytest.raises(UsageError, match=r"line, or file.*found sample_by='document'"):
        lading.open(tmp_path, options={"sample_by": "document"})
    with pytest.raises(LimitExceeded, match="line_bytes"):
        len(list(lading.open(tmp_path, options={"sample_by": "file"}, limits=Limits(line_bytes=7))))


def test_errors_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff two\n" + b"x" * 100)
    with pytest.raises(CorruptShard, match=r"(?s)a\.txt @ 4.*line 2: invalid UTF-8.*iconv -f WINDOWS-1252"):
        _texts(path)
    assert lading.open(path)[0] == {"text": "one"}
    path.write_bytes(b"one\n" + b"x" * 100)
    with pytest.raises(LimitExceeded, match="line 2 is too long"):
        _texts(path, limits=Limits(line_bytes=50))
    path.write_bytes("one\n".encode("utf-16"))
    with pytest.raises(lading.errors.DataError, match=r"(?s)UTF-16.*iconv"):
        _texts(path)


def test_a_folder_of_texts_alone_is_text(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "deep/a.txt", "README.txt", "LICENSE"):
        (tmp_path / name).write_text(f"{name}\n")
    assert _texts(tmp_path) == ["b.txt", "deep/a.txt"]
    assert dict(lading.open(tmp_path).counts) == {"files about the folder, left out": 2}
    assert _texts(f"{tmp_path}/*.txt") == ["README.txt", "b.txt"]
    assert lading.open(tmp_path, format="files").columns == ["__key__", "txt"]
    (tmp_path / "a.jpg").write_bytes(b"a picture")
    assert {"jpg", "txt"} < {*lading.open(tmp_path).columns}
    (tmp_path / "a.jpg").rename(tmp_path / "a.bin")
    with pytest.raises(SourceNotFound, match="the folder holds no shard"):
        lading.open(tmp_path)
    assert _texts(tmp_path, format="text") == ["README.txt", "b.txt", "deep/a.txt"]


def test_texts_named_like_splits_are_splits(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text(name)
    with pytest.raises(SeveralSplits):
        lading.open(tmp_path)
    assert _texts(tmp_path, split="test") == ["test"]


def test_text_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(UsageError, match="text is read-only"):
        lading.convert(tmp_path / "a.txt", tmp_path / "out", format="text")


@pytest.mark.soak
def test_a_large_text_by_several_workers(tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(300_000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    lading.convert(tmp_path / "a.txt", tmp_path / "out", format="parquet", workers=2, progress=False)
    assert [sample["text"] for sample in lading.open(tmp_path / "out")] == lines
