"""Salvage of MDS's split formats, where a line is a sample and `.meta` says where each begins."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lading
from cost import costs_at_most
from lading._core.jobs.salvage.salvage import salvage
from lading.errors import CorruptShard, UnknownFormat
from mds_lines import write_lines

_ROWS, _BYTES = 200, 600
"""Rows of 30 to 120 bytes, and how many are damaged: of 20 lines at most."""
_KINDS: dict[str, dict[str, Any]] = {
    "json": {"kind": "json"},
    "csv": {"kind": "csv"},
    "tsv": {"kind": "tsv", "newline": "\r\n"},
    "xsv": {"kind": "xsv", "separator": "::"},
}


def texts() -> dict[int, str]:
    random = Random(1)
    return {n: f"text {n} " + random.randbytes(random.randrange(10, 50)).hex() for n in range(_ROWS)}


def written(folder: Path, kind: str, **more: Any) -> tuple[Path, Path]:
    """A dataset of these; gives the first shard's two files."""
    write_lines(folder, [{"n": n, "t": text} for n, text in texts().items()], **_KINDS[kind], **more)
    meta = min(folder.glob("*.meta*"))
    return meta.with_name(meta.name.replace(".meta", "")), meta


def saved(folder: Path, **options: Any) -> dict[int, str]:
    with lading.open(folder, options=options) as dataset:
        return {sample["n"]: sample["t"] for sample in dataset}


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", [*_KINDS])
def test_lines_that_are_zeros_are_lost_and_no_others(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shard, _ = written(source, kind)
    body = shard.read_bytes()
    for at in (29, len(body) // 2, len(body) - _BYTES - 1):
        shard.write_bytes(body[:at] + bytes(_BYTES) + body[at + _BYTES :])
        first, last = body.count(b"\n", 0, at), body.count(b"\n", 0, at + _BYTES)
        names = body.count(b"\n") - _ROWS
        result = salvage(source, tmp_path / "out", overwrite=True)
        kept = saved(tmp_path / "out")
        assert {*range(_ROWS)} - {*kept} >= {*range(max(first - names, 0), last - names)}, at
        assert {*range(_ROWS)} - {*kept} <= {*range(max(first - names, 0), last - names + 1)}, at
        assert all(kept[n] == texts()[n] for n in kept if n != last - names), at
        assert result.lost_samples == _ROWS - len(kept), at


@pytest.mark.parametrize("damage", ["cut", "further", "truncated"])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_shard_of_another_size_is_lost(kind: str, damage: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    written(source, kind, size_limit=4000)
    shard = source / f"shard.00001.{kind}"
    body = shard.read_bytes()
    shard.write_bytes({"cut": body[:500] + body[600:], "further": body + body[:99], "truncated": body[:999]}[damage])
    result = salvage(source, tmp_path / "out")
    assert saved(tmp_path / "out").items() < texts().items()
    assert result.lost_samples == _ROWS - result.samples > 0
    assert {entry["file"] for entry in result.lost} == {str(shard)}


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_without_what_says_where_they_begin_lines_are_walked_if_asked_for(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    written(source, kind, size_limit=4000)
    meta = source / f"shard.00001.{kind}.meta"
    meta.write_bytes(meta.read_bytes()[:100])
    result = salvage(source, tmp_path / "out")
    assert {entry["file"] for entry in result.lost} == {str(meta)}
    assert all("walk_lines" in entry["advice"] for entry in result.lost)
    assert 0 < result.samples < _ROWS
    assert salvage(source, tmp_path / "all", source_options={"walk_lines": True}).samples == _ROWS
    assert saved(tmp_path / "all") == texts()


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
