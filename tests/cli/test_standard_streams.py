"""`-`: standard input as a source."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lading._core.cli.main import app
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
