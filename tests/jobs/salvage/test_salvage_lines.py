"""Salvage of MDS's split formats, where a line is a sample and `.meta` says where each begins."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lading
from cost import costs_at_most
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard, DataError, NotFound, SidecarMismatch, UnknownFormat
from mds_lines import write_lines

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
    write_lines(folder, [{"n": n, "t": text} for n, text in rows.items()], **_KINDS[kind], **more)
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
    write_lines(source, [{"n": n, "t": text} for n, text in rows.items()], **_KINDS[kind])
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
        write_lines(source, [{"n": 1, "t": "d d"}, {"n": 2, "t": "d\n"}], **options)
        with lading.open(source) as dataset:
            assert len([*dataset]) == 2
        with pytest.raises(CorruptShard, match="not told apart"):
            saved(source, walk_lines=True)


@pytest.mark.parametrize("old, new", [(b'"str"', b'"stp"'), (b'"int"', b'"inu"'), (b'"format"', b'"formaT"')])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_byte_of_the_columns_in_meta_costs_no_line(kind: str, old: bytes, new: bytes, tmp_path: Path) -> None:
    source = tmp_path / "source"
    _, meta = written(source, kind)
    body = meta.read_bytes()
    assert body.count(old) == 1
    meta.write_bytes(body.replace(old, new))
    result = salvage(source, tmp_path / "out")
    assert saved(tmp_path / "out") == texts()
    assert [entry["file"] for entry in result.lost] == [str(meta)]


@pytest.mark.parametrize("index", ["cut", "gone"])
@pytest.mark.parametrize("compression", [None, "gz"])
def test_without_an_index_they_are_not_taken_for_csv(compression: str | None, index: str, tmp_path: Path) -> None:
    """Of CSV the quotes would be no part of the texts."""
    source = tmp_path / "source"
    write_lines(source, [{"n": n, "t": '"x"'} for n in range(9)], "csv", compression=compression)
    if index == "cut":
        os.truncate(source / "index.json", 200)
    else:
        (source / "index.json").unlink()
    with pytest.raises(UnknownFormat, match="a shard of mds without its index"):
        salvage(source, tmp_path / "out")
    assert salvage(source, tmp_path / "out", source_format="csv").samples == 9


def test_a_csv_with_another_s_meta_in_its_folder_is_csv(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n,t\n1,x\n")
    (tmp_path / "in" / "b.csv.meta").write_bytes(b"guid: 0123456789abcdef, and more\n")
    found = salvage(tmp_path / "in", tmp_path / "out")
    assert (found.format, found.samples, found.ok) == ("csv", 1, True)


@pytest.mark.soak
def test_lines_that_are_kept_apart_cost_what_those_together_do(tmp_path: Path) -> None:
    def salvaged(name: str, text: str) -> None:
        (tmp_path / f"{name}.jsonl").write_text(text)
        assert salvage(tmp_path / f"{name}.jsonl", tmp_path / name, overwrite=True).samples == 5000

    apart, together = '{"a":1}\nx\n' * 5000, '{"a":1}\n' * 5000 + "x\n" * 5000
    assert costs_at_most(4, lambda: salvaged("apart", apart), lambda: salvaged("together", together))
