"""Salvage of MDS's split formats, where a line is a sample and `.meta` says where each begins."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lading
from cost import costs_at_most
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard, DataError, NotFound, SidecarMismatch, UnknownFormat

_ROWS, _BYTES = 200, 600
"""Rows of 30 to 120 bytes, and how many are damaged: of 20 lines at most."""
_KINDS: dict[str, dict[str, Any]] = {
    "json": {"kind": "json"},
    "csv": {"kind": "csv"},
    "tsv": {"kind": "tsv", "newline": "\r\n"},
    "xsv": {"kind": "xsv", "separator": "::"},
}
_DAMAGES = ["cut", "further", "zeroed", "truncated"]


def texts() -> dict[int, str]:
    random = Random(1)
    return {n: f"text {n} " + random.randbytes(random.randrange(10, 50)).hex() for n in range(_ROWS)}


def written(folder: Path, kind: str, **more: Any) -> tuple[Path, Path]:
    """A dataset of these; gives the shard's two files."""
    rows = texts()
    with lading.writer(folder, format="mds", options={**_KINDS[kind], **more}) as writer:
        writer.write_batch(pa.table({"n": [*rows], "t": [*rows.values()]}))
    [meta] = folder.glob("*.meta*")
    return meta.with_name(meta.name.replace(".meta", "")), meta


def damaged(body: bytes, at: int, how: str) -> bytes:
    rest = {
        "cut": body[at + _BYTES :],
        "further": Random(at).randbytes(_BYTES) + body[at:],
        "zeroed": bytes(len(body[at : at + _BYTES])) + body[at + _BYTES :],
        "truncated": b"",
    }
    return body[:at] + rest[how]


def whole(body: bytes, at: int, how: str) -> set[int]:
    """The rows that can be saved, none of whose bytes were touched: lines by Python's own splitting."""
    stop = {"further": at, "truncated": len(body)}.get(how, at + _BYTES)
    lines = body.splitlines(keepends=True)
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    first = len(lines) - _ROWS  # of CSV and its like, the names
    spans = list(zip([0, *ends], ends, strict=False))[first:]
    found = {n for n, (begin, end) in enumerate(spans) if end <= at or (begin >= stop and how != "further")}
    if how == "zeroed":
        return found
    # Where bytes are missing or came in, lines before the place are whole; near it, nothing tells where it is.
    return {*range(min({*range(_ROWS)} - found, default=_ROWS) - 2)}


def saved(folder: Path, **options: Any) -> dict[int, str]:
    with lading.open(folder, options=options) as dataset:
        return {sample["n"]: sample["t"] for sample in dataset}


@pytest.mark.cases(2)
@pytest.mark.parametrize("how", _DAMAGES)
@pytest.mark.parametrize("kind", [*_KINDS])
def test_every_line_is_kept_that_is_whole(kind: str, how: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shard, _ = written(source, kind)
    body = shard.read_bytes()
    for bare in (False, True):
        if bare:
            shutil.rmtree(source / "_lading")
        for at in (0, 2, 29, len(body) // 2, len(body) - _BYTES - 1, len(body) - 50):
            shard.write_bytes(damaged(body, at, how))
            expected = whole(body, at, how)
            if not expected:
                continue
            result = salvage(source, tmp_path / "out", overwrite=True)
            kept = saved(tmp_path / "out")
            assert kept.items() <= texts().items(), at
            assert expected <= {*kept}, at
            assert result.lost_samples == _ROWS - len(kept), at
            assert bool(result.lost) or len(kept) == _ROWS, at


@pytest.mark.soak
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("kind", _KINDS)
def test_no_line_is_lost_with_what_says_where_they_begin(kind: str, compression: str | None, tmp_path: Path) -> None:
    source = tmp_path / "source"
    _, meta = written(source, kind, compression=compression)
    body, random = meta.read_bytes(), Random(0)
    for bare in (False, True):
        if bare:
            shutil.rmtree(source / "_lading")
        for wrong in (b"", body[:100], body[:20] + random.randbytes(30) + body[50:], None):
            meta.unlink(missing_ok=True)
            if wrong is not None:
                meta.write_bytes(wrong)
            with pytest.raises((CorruptShard, SidecarMismatch, NotFound)):
                saved(source)
            assert saved(source, walk_lines=True) == texts()
            result = salvage(source, tmp_path / "out", overwrite=True)
            assert saved(tmp_path / "out") == texts()
            told = [*result.lost, *result.findings]
            assert str(meta) in {entry["file"] for entry in told}


@pytest.mark.parametrize("kind", _KINDS)
def test_lines_of_one_length_are_not_taken_for_each_other(kind: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    rows = {n: Random(n).randbytes(20).hex() for n in range(100, 200)}
    with lading.writer(source, format="mds", options=_KINDS[kind]) as writer:
        writer.write_batch(pa.table({"n": [*rows], "t": [*rows.values()]}))
    shutil.rmtree(source / "_lading")
    [shard] = (path for path in source.glob("shard*") if not path.name.endswith(".meta"))
    body = shard.read_bytes()
    line = len(body.splitlines(keepends=True)[-1])
    for at in (5, line * 3 // 2, len(body) // 2, len(body) - 3 * line - 5):
        for by in (line, 2 * line):
            shard.write_bytes(body[:at] + body[at + by :])  # halves of two lines are one like all others
            with contextlib.suppress(DataError):  # nothing is left
                salvage(source, out, overwrite=True)
                assert saved(out).items() <= rows.items()
        shard.write_bytes(body[:at] + body[at + line + 7 :])
        with contextlib.suppress(DataError):
            salvage(source, out, overwrite=True)
            kept = saved(out)
            assert kept.items() <= rows.items()
            assert len(kept) >= at // line - 4


def test_both_files_of_a_shard_may_lie_in_another_store(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shard, _ = written(source, "csv")
    body = shard.read_bytes()
    shard.write_bytes(damaged(body, 3000, "cut"))
    shutil.rmtree(source / "_lading")
    files = {f"memory://far/{path.name}": path.read_bytes() for path in source.iterdir()}
    salvage("memory://far", tmp_path / "out", stores=Stores({"memory://far": MemoryStore(files)}))
    kept = saved(tmp_path / "out")
    assert kept.items() <= texts().items()
    assert whole(body, 3000, "cut") <= {*kept}


def test_a_line_end_inside_a_value_is_damage(tmp_path: Path) -> None:
    shard, _ = written(tmp_path / "source", "csv")
    body = bytearray(shard.read_bytes())
    body[body.index(b"text 7 ") + 4] = ord("\n")
    shard.write_bytes(body)
    with pytest.raises(CorruptShard, match=r"row 7.*holds what ends lines"):
        list(lading.open(tmp_path / "source"))
    salvage(tmp_path / "source", tmp_path / "out")
    assert {*range(_ROWS)} - {*saved(tmp_path / "out")} == {7}


def test_lines_that_their_ends_do_not_tell_apart_are_not_walked(tmp_path: Path) -> None:
    for number, options in enumerate([
        {"kind": "json", "newline": "  "}, {"kind": "csv", "newline": "\n\n"},
        {"kind": "xsv", "newline": "ab", "separator": "b"},
    ]):  # fmt: skip
        source = tmp_path / str(number)
        with lading.writer(source, format="mds", options=options) as writer:
            writer.write_batch(pa.table({"n": [1, 2], "t": ["d d", "d\n"]}))
        with lading.open(source) as dataset:
            assert len([*dataset]) == 2
        with (
            lading.open(source, options={"walk_lines": True}) as dataset,
            pytest.raises(CorruptShard, match="not told apart"),
        ):
            list(dataset)


@pytest.mark.parametrize("old, new", [(b'"str"', b'"stp"'), (b'"int"', b'"inu"'), (b'"format"', b'"formaT"')])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_byte_of_the_columns_in_meta_costs_no_line(kind: str, old: bytes, new: bytes, tmp_path: Path) -> None:
    source = tmp_path / "source"
    _, meta = written(source, kind)
    shutil.rmtree(source / "_lading")
    body = meta.read_bytes()
    assert body.count(old) == 1
    meta.write_bytes(body.replace(old, new))
    result = salvage(source, tmp_path / "out")
    assert saved(tmp_path / "out") == texts()
    assert [entry["file"] for entry in result.lost] == [str(meta)]


@pytest.mark.soak
@pytest.mark.parametrize("index", ["cut", "gone"])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("kind", [*_KINDS])
def test_without_an_index_lines_are_what_their_metas_say(
    kind: str, compression: str | None, index: str, tmp_path: Path
) -> None:
    """To CSV the quotes would be no part of the texts, and the numbers texts."""
    source, rows = tmp_path / "source", [{"n": n, "t": text} for n, text in enumerate(['"x"', '5 "inch', "y"] * 40)]
    options = {**_KINDS[kind], "compression": compression, "size_limit": 400}
    with lading.writer(source, format="mds", options=options) as writer:
        writer.write_batch(pa.Table.from_pylist(rows))
    shutil.rmtree(source / "_lading")
    if index == "cut":
        os.truncate(source / "index.json", 200)
    else:
        (source / "index.json").unlink()
    found = salvage(source, tmp_path / "out")
    assert (found.ok, found.format, found.samples, found.lost_samples) == (True, "mds", 120, 0)
    with lading.open(tmp_path / "out") as dataset:
        assert list(dataset) == rows
    first, second, *_ = sorted(source.glob("*.meta*"))
    second.write_bytes(b"\xff" * 9)
    found = salvage(source, tmp_path / "without")
    assert {entry["file"] for entry in found.lost} == {str(second)}
    with lading.open(tmp_path / "without") as dataset:
        assert list(dataset) == rows
    second.unlink()
    found = salvage(source, tmp_path / "alone")
    assert {entry["file"] for entry in found.lost} == {str(second)}
    with lading.open(tmp_path / "alone") as dataset:
        assert list(dataset) == rows
    shard = source / first.name.replace(".meta", "")
    shard.unlink()
    found = salvage(source, tmp_path / "gone")
    assert {entry["file"] for entry in found.lost} == {str(second), str(shard)}
    assert found.lost_samples > 0
    with lading.open(tmp_path / "gone") as dataset:
        assert list(dataset) == rows[found.lost_samples :]


def test_of_lines_and_their_unpacked_copy_one_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for compression in ("gz", None):
        written(tmp_path / "one", "csv", compression=compression)
        shutil.rmtree(tmp_path / "one" / "_lading")
        shutil.copytree(tmp_path / "one", source, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "one")
    (source / "index.json").unlink()
    assert salvage(source, tmp_path / "out").samples == _ROWS
    assert saved(tmp_path / "out") == texts()
    for number, gone in enumerate(["shard.00000.csv.meta", "shard.00000.csv"]):
        (source / gone).unlink()
        assert salvage(source, tmp_path / str(number)).ok
        assert saved(tmp_path / str(number)) == texts()
        written(tmp_path / "one", "csv")
        shutil.copy(tmp_path / "one" / gone, source / gone)
        shutil.rmtree(tmp_path / "one")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_of_other_formats_beside_lines_are_not_left_aside_in_silence(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "in"
    written(source, kind)
    shutil.rmtree(source / "_lading")
    (source / "index.json").unlink()
    (source / "notes.txt").write_bytes(b"of no format")
    (source / "a.jsonl").write_bytes(b'{"a": 1}\n')
    with pytest.raises(UnknownFormat, match=r"several formats; found 1 jsonl, 1 mds"):
        salvage(source, tmp_path / "out")
    assert salvage(source, tmp_path / "out", source_format="mds").samples == _ROWS
    (source / "a.jsonl").rename(source / "a.mds")
    with pytest.raises(UnknownFormat, match="several formats"):
        salvage(source, tmp_path / "more", source_format="mds")


def test_one_file_of_lines_is_that_file(tmp_path: Path) -> None:
    source, rows = tmp_path / "in", [{"n": n} for n in range(100)]
    with lading.writer(source, format="mds", options={"kind": "json", "size_limit": 400}) as writer:
        writer.write_batch(pa.Table.from_pylist(rows))
    shutil.rmtree(source / "_lading")
    lines = (source / "shard.00001.json").read_bytes().splitlines()
    (source / "index.json").unlink()
    assert salvage(source / "shard.00001.json", tmp_path / "out").samples == len(lines) < 100
    with lading.open(tmp_path / "out") as dataset:
        assert list(dataset) == [json.loads(line) for line in lines]
    assert salvage(source / "index.json", tmp_path / "all").samples == 100


def _lines(folder: Path, kind: str) -> list[list[int]]:
    """Shards of lines without an index, and what is in each."""
    for number in range(3):
        one = folder / "one"
        with lading.writer(one, format="mds", options={"kind": kind}) as writer:
            writer.write_batch(pa.table({"n": [10 * number, 10 * number + 1]}))
        for path in one.glob("shard.*"):
            path.rename(folder / path.name.replace("00000", f"{number:05}"))
        shutil.rmtree(one)
    return [[0, 1], [10, 11], [20, 21]]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    "names, shards",
    [
        (["shard.*.{kind}"], [0, 1, 2]),
        (["shard.*"], [0, 1, 2]),
        (["shard.0000[12].{kind}"], [1, 2]),
        (["shard.0000{{0..1}}.{kind}"], [0, 1]),
        (["shard.0000{{0..7}}.{kind}"], [0, 1, 2]),
        (["shard.00002.{kind}", "shard.00000.{kind}"], [2, 0]),
        (["shard.0000[02].{kind}", "shard.00009.{kind}"], [0, 2]),
        (["shard.00001.{kind}"], [1]),
    ],
)
def test_files_of_lines_that_are_named_are_those_files(
    names: list[str], shards: list[int], kind: str, tmp_path: Path
) -> None:
    """As the error about several formats in their folder advises."""
    source = tmp_path / "in"
    source.mkdir()
    rows = _lines(source, kind)
    (source / "metadata.parquet").write_bytes(b"PAR1")
    with pytest.raises(UnknownFormat, match="Name one of them"):
        salvage(source, tmp_path / "out")
    named = [str(source / name.format(kind=kind)) for name in names]
    found = salvage(named if len(named) > 1 else named[0], tmp_path / "out")
    assert found.format == "mds"
    with lading.open(tmp_path / "out") as dataset:
        assert [row["n"] for row in dataset] == [n for number in shards for n in rows[number]]


def test_files_of_several_formats_that_are_named_are_refused(tmp_path: Path) -> None:
    _lines(tmp_path, "json")
    (tmp_path / "shard.parquet").write_bytes(b"PAR1")
    for source in (str(tmp_path / "shard.*"), [tmp_path / "shard.parquet", tmp_path / "shard.00000.json"]):
        with pytest.raises(UnknownFormat, match=r"several formats; found \d mds, 1 parquet"):
            salvage(source, tmp_path / "out")
    assert salvage(str(tmp_path / "*.json"), tmp_path / "out", source_format="mds").samples == 6


def test_a_table_beside_lines_that_is_named_is_a_table(tmp_path: Path) -> None:
    _lines(tmp_path, "csv")
    (tmp_path / "metadata.csv").write_bytes(b"n,t\n1,x\n")
    found = salvage(tmp_path / "metadata.csv", tmp_path / "out")
    assert (found.format, found.samples, found.ok) == ("csv", 1, True)


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["br", "zstd"])
def test_packed_lines_that_are_named_are_their_unpacked_copy(compression: str, tmp_path: Path) -> None:
    """The one of which more is there, as of those in a folder."""
    for packed in (compression, None):
        written(tmp_path / "one", "json", compression=packed)
        for path in (tmp_path / "one").glob("shard.*"):
            path.rename(tmp_path / path.name)
        shutil.rmtree(tmp_path / "one")
    assert salvage(tmp_path / f"shard.00000.json.{compression}", tmp_path / "out").samples == _ROWS
    assert saved(tmp_path / "out") == texts()


def test_a_csv_with_another_s_meta_beside_it_is_csv(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n,t\n1,x\n")
    (tmp_path / "in" / "a.csv.meta").write_bytes(b"guid: 0123456789abcdef, and more\n")
    found = salvage(tmp_path / "in", tmp_path / "out")
    assert (found.format, found.samples, found.ok) == ("csv", 1, True)


@pytest.mark.soak
def test_lines_that_are_kept_apart_cost_what_those_together_do(tmp_path: Path) -> None:
    def salvaged(name: str, text: str) -> None:
        (tmp_path / f"{name}.jsonl").write_text(text)
        assert salvage(tmp_path / f"{name}.jsonl", tmp_path / name, overwrite=True).samples == 5000

    apart, together = '{"a":1}\nx\n' * 5000, '{"a":1}\n' * 5000 + "x\n" * 5000
    assert costs_at_most(4, lambda: salvaged("apart", apart), lambda: salvaged("together", together))
