"""Shards that cannot be read: an error that names the way out, or skipped, counted and listed."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from in_process import by_tasks
from lading._core.cli.main import app
from lading.errors import (
    CorruptShard,
    DataError,
    LadingError,
    SidecarMismatch,
    SourceNotFound,
    Unrepresentable,
    UsageError,
)

ROWS = 40
_INSIDE = 0.5
_WARNING = "a bad shard is skipped"


def _tar(path: Path, first: int) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(first, first + ROWS):
            for extension, data in (("txt", f"text {number}".encode()), ("jpg", bytes([number % 256]) * 3000)):
                member = tarfile.TarInfo(f"{number:06d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _parquet(path: Path, first: int) -> None:
    texts = np.random.default_rng(first).integers(0, 1 << 62, (ROWS, 40)).tolist()
    table = pa.table({"number": range(first, first + ROWS), "txt": [" ".join(map(str, text)) for text in texts]})
    pq.write_table(table, path, row_group_size=10)


def _lines(path: Path, first: int) -> None:
    path.write_text(
        "".join(json.dumps({"number": number, "txt": "x" * 500}) + "\n" for number in range(first, first + ROWS))
    )


def _packed_lines(path: Path, first: int) -> None:
    lines = "".join(json.dumps({"number": n, "txt": os.urandom(200).hex()}) + "\n" for n in range(first, first + ROWS))
    path.write_bytes(gzip.compress(lines.encode()))


def _arrow(path: Path, first: int) -> None:
    table = pa.table({"number": range(first, first + ROWS), "txt": ["x" * 500] * ROWS})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "tar": _tar, "parquet": _parquet, "jsonl": _lines, "jsonl.gz": _packed_lines, "arrow": _arrow,
}  # fmt: skip


def _shards(folder: Path, ending: str, bad: int = 1, count: int = 3) -> Path:
    """A folder of shards, one of which is cut in the middle."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:05d}.{ending}"
        WRITERS[ending](path, number * 1000)
        if number == bad:
            os.truncate(path, int(path.stat().st_size * _INSIDE) + 3)
    return folder


@pytest.fixture(params=WRITERS)
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_error_of_damage_names_the_command(tmp_path: Path, ending: str) -> None:
    source = _shards(tmp_path / "in put", ending)
    with pytest.raises(DataError) as caught:
        lading.convert(source, tmp_path / "out", format="parquet")
    assert "00001" in str(caught.value.file)
    if isinstance(caught.value, CorruptShard):
        assert f"'lading salvage '{source}' DST'" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_damage_of_a_read_only_format_names_the_format_to_write(tmp_path: Path) -> None:
    source = tmp_path / "a.warc"
    record = b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n"
    source.write_bytes(record + record[:-9])
    with pytest.raises(CorruptShard) as caught:
        lading.digest(source)
    assert caught.value.advice == f"'lading salvage {source} --to parquet DST' saves the intact samples."
    with pytest.raises(Unrepresentable, match=r"with format='parquet', and convert"):
        lading.salvage(source, tmp_path / "saved", format="jsonl")
    assert lading.salvage(source, tmp_path / "saved", format="parquet").samples == 1


@pytest.mark.parametrize("ending, case", [*product(WRITERS, [(0, 1), (0, 2), (1, 2), (1, 1)])])
def test_a_conversion_leaves_the_whole_shard_out_and_lists_it(
    tmp_path: Path, ending: str, case: tuple[int, int]
) -> None:
    bad, workers = case
    source = _shards(tmp_path / "in", ending, bad)
    with pytest.warns(UserWarning, match=f"a bad shard is skipped: .*0000{bad}"):
        done = lading.convert(
            source, tmp_path / "out", format="jsonl" if ending != "tar" else "parquet", on_bad_shard="skip",
            ledger=tmp_path / "ledger.jsonl", verify=True, **by_tasks(workers), shard_size="1KB",
        )  # fmt: skip
    assert (done.samples, done.verified) == (2 * ROWS, True)
    [skipped] = done.skipped_shards
    assert str(skipped["file"]).endswith(f"0000{bad}.{ending}")
    assert {"error", "message"} <= skipped["error"].keys()
    [entry] = map(json.loads, (tmp_path / "ledger.jsonl").read_text().splitlines())
    assert (entry["file"], entry["reason"], entry["outcome"]) == (skipped["file"], "bad shard", "skipped")
    assert lading.info(tmp_path / "out").samples == 2 * ROWS


@pytest.mark.filterwarnings("ignore:a bad shard is skipped")
def test_what_is_iterated_counted_and_digested_agrees(tmp_path: Path, ending: str) -> None:
    source, whole = _shards(tmp_path / "in", ending), _shards(tmp_path / "whole", ending, bad=-1)
    (whole / f"00001.{ending}").unlink()
    if ending == "jsonl.gz":  # its content is random
        for path in whole.iterdir():
            path.write_bytes((source / path.name).read_bytes())
    with (
        lading.open(source, on_bad_shard="skip").with_decode(False) as ds,
        lading.open(whole).with_decode(False) as expected,
    ):
        assert len(list(ds.samples())) == len(ds) == 2 * ROWS
        assert [Path(bad.file).name for bad in ds.skipped_shards] == [f"00001.{ending}"]
        assert ds.schema.names == expected.schema.names
        assert ds[ROWS]["txt"] == expected[ROWS]["txt"]
        assert sum(batch.num_rows for batch in ds.batches(shards_per_batch=None)) == 2 * ROWS
        assert lading.digest(ds).ordered == lading.digest(whole).ordered
        assert lading.digest(ds.limit(60)).ordered == lading.digest(expected.limit(60)).ordered


@pytest.mark.filterwarnings("ignore:a bad shard is skipped")
def test_a_filter_goes_on_behind_a_bad_shard(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "parquet")
    done = lading.convert(source, tmp_path / "out", format="jsonl", where="number > 5", on_bad_shard="skip")
    assert done.samples == 2 * ROWS - 6
    with lading.open(source, on_bad_shard="skip") as ds:
        assert len(ds.where("number > 5")) == done.samples


@pytest.mark.filterwarnings("ignore:a bad shard is skipped")
def test_large_shards_are_read_twice_and_give_no_row_of_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading._core.dataset.shards.iteration._HELD_BYTES", 1000)
    source = _shards(tmp_path / "in", "jsonl.gz")
    with lading.open(source, on_bad_shard="skip") as ds:
        numbers = [n for batch in ds.batches(max_rows=7) for n in batch.column("number").to_pylist()]
    assert numbers == [*range(ROWS), *range(2000, 2000 + ROWS)]


@pytest.mark.soak
def test_a_missing_shard_and_one_of_another_size_are_bad(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "tar", bad=-1)
    pattern = str(source / "{00000..00003}.tar")
    (source / "00000.tar").rename(source / "00003.tar")
    with pytest.raises(SourceNotFound):
        lading.convert(pattern, tmp_path / "no", format="parquet")
    with pytest.warns(UserWarning, match="00000"):
        assert lading.convert(pattern, tmp_path / "one", format="parquet", on_bad_shard="skip").samples == 3 * ROWS
    lading.convert(source, tmp_path / "kept", format="webdataset", shard_size="100KB")
    [first, *_] = sorted((tmp_path / "kept").glob("*.tar"))
    os.truncate(first, first.stat().st_size - 1024)
    with pytest.raises(SidecarMismatch, match=r"'lading salvage .* DST'"):
        lading.digest(tmp_path / "kept")
    with pytest.warns(UserWarning, match=_WARNING):
        done = lading.convert(tmp_path / "kept", tmp_path / "two", format="parquet", on_bad_shard="skip")
    assert 0 < done.samples < 3 * ROWS
    assert len(done.skipped_shards) == 1


def test_nothing_but_bad_shards_is_an_error(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "parquet", bad=0, count=1)
    warnings.simplefilter("ignore")
    for job in (
        lambda: lading.convert(source, tmp_path / "out", format="jsonl", on_bad_shard="skip"),
        lambda: lading.digest(source, on_bad_shard="skip"),
        lambda: lading.info(source),
        lambda: list(lading.open(source, on_bad_shard="skip")),
    ):
        with pytest.raises(LadingError, match="00000"):
            job()
    assert not (tmp_path / "out").exists()


def test_other_errors_are_not_skipped(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "parquet", bad=-1)
    pq.write_table(pa.table({"other": [1]}), source / "00001.parquet")
    with pytest.raises(DataError, match="column"):
        lading.convert(source, tmp_path / "out", format="jsonl", on_bad_shard="skip", schema_policy="strict")
    with pytest.raises(UsageError, match="no such policy"):
        lading.open(source, on_bad_shard="warn")  # type: ignore[arg-type] # that is the point


def test_info_shows_the_others_and_the_bad_one(tmp_path: Path, ending: str) -> None:
    source = _shards(tmp_path / "in", ending)
    found = lading.info(source)
    if ending == "jsonl":  # a line is cut, and lines are counted
        return
    assert (found.shards, found.samples) == (3, 2 * ROWS)
    [bad] = found.bad_shards
    assert str(bad["file"]).endswith(f"00001.{ending}")
    shown = CliRunner().invoke(app, ["info", str(source)])
    assert shown.exit_code == 1
    assert "80" in shown.stdout
    assert "lading salvage" in shown.stdout
    assert CliRunner().invoke(app, ["info", str(source), "--on-bad-shard", "skip"]).exit_code == 0


def test_the_command_line_counts_and_lists(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "tar")
    command = ["convert", str(source), str(tmp_path / "out"), "--to", "parquet", "--on-bad-shard", "skip"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert "warning: a bad shard is skipped" in done.stderr
    assert "00001.tar:amemberiscut" in "".join(done.stdout.split())  # wherever the lines end
    told = CliRunner().invoke(app, ["verify", str(source), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["findings"]


def test_advice_that_speaks_of_salvage_names_the_source_too(tmp_path: Path) -> None:
    source = _shards(tmp_path / "in", "tar", bad=-1)
    path = source / "00001.tar"
    data = bytearray(path.read_bytes())
    data[512 * 18 : 512 * 19] = b"\xff" * 512  # where a header was
    path.write_bytes(data)
    with pytest.raises(CorruptShard) as caught:
        lading.convert(source, tmp_path / "out", format="parquet")
    assert str(caught.value).count(f"lading salvage {source} DST") == 1
    assert str(caught.value).count("lading salvage") == 1


def test_advice_that_ends_with_a_command_comes_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,b\n1,é\n".encode("latin-1"))
    with pytest.raises(CorruptShard) as caught:
        lading.info(tmp_path / "a.csv")
    sentence, _, command = (caught.value.advice or "").partition(" saves the intact samples. ")
    assert sentence == f"'lading salvage {tmp_path}/a.csv DST'"
    assert command.endswith(f"iconv -f WINDOWS-1252 -t UTF-8 {tmp_path}/a.csv > {tmp_path}/a.utf-8.csv")


def test_ledgers_and_warnings_hold_the_problem_and_summaries_the_command(tmp_path: Path) -> None:
    """Python and the command line spell options of advice differently; a ledger is read by both."""
    source = _shards(tmp_path / "in", "arrow", bad=-1)
    data = (source / "00001.arrow").read_bytes()
    (source / "00001.arrow").write_bytes(data[8:100])  # a stream without its end, of which the advice names an option
    ledger = tmp_path / "ledger.jsonl"
    command = ["convert", str(source), str(tmp_path / "out"), "--to", "parquet", "--on-bad-shard", "skip"]
    done = CliRunner().invoke(app, [*command, "--ledger", str(ledger)])
    assert done.exit_code == 0
    [entry] = map(json.loads, ledger.read_text().splitlines())
    assert entry["detail"] in done.stderr
    assert "lading.open" not in ledger.read_text() + done.output
    shown = "".join(done.stdout.split())  # lines break anywhere in a long path
    assert "2of3shardsofarrow" in shown
    assert f"'ladingsalvage{source}DST'savestheintactsamplesofbadshards" in shown


@pytest.mark.parametrize("first", [b"<html></html>", b"version https://git-lfs.github.com/spec/v1\n", None])
def test_the_first_shard_may_be_the_bad_one(first: bytes | None, tmp_path: Path) -> None:
    _parquet(tmp_path / "b.parquet", 0)
    if first is None:
        (tmp_path / "a.parquet").symlink_to(tmp_path / "gone.parquet")
    else:
        (tmp_path / "a.parquet").write_bytes(first)
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(LadingError, match=r"a\.parquet"):
        lading.convert(sources, tmp_path / "out", format="jsonl")
    with pytest.warns(UserWarning, match=_WARNING):
        done = lading.convert(sources, tmp_path / "out", format="jsonl", on_bad_shard="skip")
    assert (done.samples, len(done.skipped_shards)) == (ROWS, 1)
