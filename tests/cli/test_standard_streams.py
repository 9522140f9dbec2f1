"""`-`: standard input as a source, standard output as a destination."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading.errors import UsageError
from tars import tar_of

_LINES = b'{"n": 1}\n{"n": 2}\n'


def _samples(given: bytes, *words: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(app, ["head", "-", "--json", *words], input=given)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def _stream() -> bytes:
    written = io.BytesIO()
    pl.DataFrame({"n": [1, 2]}).write_ipc_stream(written)
    return written.getvalue()


def _file() -> bytes:
    written = io.BytesIO()
    with pa.ipc.new_file(written, pa.schema({"n": pa.int64()})) as writer:
        writer.write_table(pa.table({"n": [1, 2]}))
    return written.getvalue()


@pytest.mark.parametrize(
    "given",
    [_LINES, gzip.compress(_LINES), b'[{"n": 1}, {"n": 2}]', _stream(), _file()],
    ids=["lines", "gzip", "array", "stream", "file"],
)
@pytest.mark.cases(5)
def test_rows_from_standard_input(given: bytes) -> None:
    assert _samples(given) == [{"n": 1}, {"n": 2}]


def test_tars_and_other_formats_from_standard_input() -> None:
    tar = tar_of(("a.txt", b"one"), ("b.txt", b"two"))
    assert [sample["txt"] for sample in _samples(gzip.compress(tar))] == ["one", "two"]
    assert _samples(b"n\n1\n2\n", "--from", "csv") == [{"n": "1"}, {"n": "2"}]


@pytest.mark.parametrize(
    "words, shown",
    [
        (["info", "-", "--json"], '"samples": 2'),
        (["digest", "-"], "samples    2"),
        (["verify", "-"], "no problems in 1 shard"),
        (["convert", "-", "out.parquet", "--where", "n > 1"], "1 sample"),
        (["diff", "-", "lines.jsonl"], "equal: 2 samples"),
    ],
)
def test_verbs_take_standard_input(
    words: list[str], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.jsonl").write_bytes(_LINES)
    done = CliRunner().invoke(app, words, input=_LINES)
    assert (done.exit_code, shown in done.output) == (0, True), done.output


def test_standard_input_that_holds_nothing_is_refused() -> None:
    for given, message in ((b"", "standard input: the stream is empty"), (b"hello\n", "Name the format with --from")):
        done = CliRunner().invoke(app, ["head", "-"], input=given)
        assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_file_may_have_the_name_of_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_bytes(tar_of(("a.txt", b"one")))
    done = CliRunner().invoke(app, ["digest", "./-"], input=b"")
    assert (done.exit_code, "samples    1" in done.output) == (0, True), done.output


# Standard output


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with lading.writer("photos", format="webdataset", rows_per_shard=2) as writer:
        for i in range(5):
            writer.write({"__key__": str(i), "bin": bytes([i]) * 3, "txt": f"t{i}", "json": {"n": i}})
    return tmp_path / "photos"


def _written(*words: str) -> bytes:
    done = CliRunner().invoke(app, ["convert", "photos", "-", *words])
    assert done.exit_code == 0, done.stderr
    assert "wrote" in done.stderr
    return done.stdout_bytes


def test_peers_read_what_is_on_standard_output(photos: Path) -> None:
    lines = [json.loads(line) for line in _written("--to", "jsonl", "--drop-columns", "bin").splitlines()]
    assert [line["txt"] for line in lines] == ["t0", "t1", "t2", "t3", "t4"]
    frame = pl.read_ipc_stream(_written("--to", "arrow", "--where", "json.n > 2"))
    assert frame["bin"].to_list() == [b"\3\3\3", b"\4\4\4"]
    with tarfile.open(fileobj=io.BytesIO(_written("--to", "webdataset", "--limit", "1"))) as tar:
        assert tar.getnames() == ["0.bin", "0.json", "0.txt"]
    assert pd.read_parquet(io.BytesIO(_written("--to", "parquet")))["txt"].tolist() == [line["txt"] for line in lines]
    assert _written("--to", "csv", "--columns", "txt").splitlines()[1:3] == [b"0,t0", b"1,t1"]


def test_a_summary_is_no_part_of_standard_output(photos: Path) -> None:
    done = CliRunner().invoke(app, ["convert", "photos", "-", "--to", "arrow", "--json"])
    assert json.loads(done.stderr)["samples"] == 5
    again = CliRunner().invoke(app, ["digest", "-", "--json"], input=done.stdout_bytes)
    assert json.loads(again.stdout)["ordered"] == lading.digest(photos).ordered


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "Name the format with --to"),
        (["--to", "mds"], "standard output: a dataset of the format mds is several files"),
        (["--to", "jsonl", "--verify"], "standard output is one file, written once by one process; found verify"),
        (["--to", "jsonl", "--workers", "2"], "found workers"),
        (["--to", "jsonl", "--num-shards", "2"], "found num_shards"),
    ],
)
@pytest.mark.cases(5)
def test_what_standard_output_cannot_hold_is_refused(photos: Path, words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["convert", "photos", "-", *words])
    assert (done.exit_code, done.stdout_bytes, message in done.stderr) == (2, b"", True), done.stderr


@pytest.mark.parametrize("name", ["webdataset", "arrow", "jsonl"])
@pytest.mark.cases(3)
def test_a_reader_that_stops_early_ends_the_job(photos: Path, name: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out, redirect_stdout(out):
        with pytest.raises(BrokenPipeError):
            lading.open("photos").drop("bin").write("-", format=name)
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # what waits goes there


def test_bytes_are_not_written_to_a_terminal(photos: Path) -> None:
    own, terminal = os.openpty()
    with open(terminal, "w") as out, redirect_stdout(out):
        with pytest.raises(UsageError, match=r"standard output is a terminal.*found webdataset"):
            lading.convert("photos", "-", format="webdataset")
        lading.convert("photos", "-", format="jsonl", columns=["txt"], limit=1)
    assert json.loads(os.read(own, 1000)) == {"__key__": "0", "txt": "t0"}
    os.close(own)
