"""Datasets one after another equal a chain of their samples."""

from __future__ import annotations

import json
import pickle
import tarfile
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import SchemaMismatch, UsageError
from tars import tar_of

_BYTES = b"\xff\xd8\xff"


@pytest.fixture
def parts(tmp_path: Path) -> list[lading.Dataset]:
    """Two tars whose samples have fields of their own, a table behind a condition, and lines."""
    for first in (0, 6):
        members = [(f"t{n:02}.txt", b"caption %d" % n) for n in range(first, first + 6)]
        more = [("t99.bin", _BYTES), ("t99.txt", b"caption 12")] if first else []
        (tmp_path / f"{first}.tar").write_bytes(tar_of(*members, *more))
    table = {"txt": [f"row {n}" for n in range(7)], "score": [n / 2 for n in range(7)]}
    pq.write_table(pa.table(table), tmp_path / "more.parquet")
    lines = (json.dumps({"txt": f"line {n}", "n": n}) + "\n" for n in range(4))
    (tmp_path / "lines.jsonl").write_text("".join(lines))
    return [
        lading.open(str(tmp_path / "*.tar")),
        lading.open(tmp_path / "more.parquet").where("score > 1"),
        lading.open(tmp_path / "lines.jsonl"),
    ]


TEXTS = [*(f"caption {n}" for n in range(13)), *(f"row {n}" for n in range(3, 7)), *(f"line {n}" for n in range(4))]


def test_samples_are_those_of_the_parts_in_order(parts: list[lading.Dataset]) -> None:
    ds = lading.concat(parts)
    chained = [{k: v for k, v in s.items() if k != "__key__"} for s in chain(*parts)]
    assert [{k: v for k, v in s.items() if k != "__key__"} for s in ds] == chained
    assert [s["txt"] for s in ds] == TEXTS
    assert len(ds) == len(TEXTS)
    assert [ds[n]["txt"] for n in (0, 12, 13, -1)] == ["caption 0", "caption 12", "row 3", "line 3"]
    taken = ds.take([18, 0, 14, 0], ["txt", "score"]).to_pylist()
    assert [(row["txt"], row["score"]) for row in taken] == [
        ("line 1", None), ("caption 0", None), ("row 4", 2.0), ("caption 0", None),
    ]  # fmt: skip
    assert [s["txt"] for s in parts[0].concat(*parts[1:])] == TEXTS
    assert len(pickle.loads(pickle.dumps(ds))) == len(TEXTS)


def test_steps_run_over_all_parts(parts: list[lading.Dataset]) -> None:
    ds = lading.concat(parts)
    assert [s["txt"] for s in ds.where("score >= 2 or n == 3")] == ["row 4", "row 5", "row 6", "line 3"]
    assert sorted(s["txt"] for s in ds.shuffle(seed=1)) == sorted(TEXTS)
    assert [s["txt"] for s in ds.shuffle(seed=1)] != TEXTS
    assert [s["txt"] for s in ds[10:14]] == TEXTS[10:14]
    assert [s["txt"] for s in lading.concat([ds[:2], ds[-1:]])] == ["caption 0", "caption 1", "line 3"]


@pytest.mark.parametrize(
    "target, options", [("parquet", {}), ("webdataset", {}), ("arrow", {}), ("mds", {"nulls": "mask"})]
)
def test_what_is_written_has_the_digest_of_the_concatenation(
    target: str, options: dict[str, Any], parts: list[lading.Dataset], tmp_path: Path
) -> None:
    ds = lading.concat(parts)
    done = ds.write(tmp_path / "out", format=target, options=options, verify=True, workers=2)
    assert (done.samples, done.digest) == (len(TEXTS), lading.digest(ds).ordered)
    assert any("bin" in difference for difference in done.differences)
    back = lading.open(tmp_path / "out")
    assert [s["txt"] for s in back] == TEXTS


def test_peers_read_what_is_written(parts: list[lading.Dataset], tmp_path: Path) -> None:
    lading.concat(parts).write(tmp_path / "all.parquet")
    table = pd.read_parquet(tmp_path / "all.parquet")
    assert table["txt"].tolist() == TEXTS
    assert table["score"].dropna().tolist() == [1.5, 2.0, 2.5, 3.0]
    lading.concat(parts).write(tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as tar:
        found = [tar.extractfile(each).read().decode() for each in tar if each.name.endswith(".txt")]  # type: ignore[union-attr] # a file
    assert found == TEXTS


def test_repeated_keys_are_counted(parts: list[lading.Dataset], tmp_path: Path) -> None:
    done = lading.concat([parts[0], parts[1], parts[0]]).write(tmp_path / "out", format="webdataset")
    assert done.counts["samples with a key that an earlier sample has"] == 13


def test_what_cannot_be_concatenated_is_refused(parts: list[lading.Dataset], docs: Path, tmp_path: Path) -> None:
    for wrong in ([], ["more.parquet"]):
        with pytest.raises(UsageError):
            lading.concat(wrong)  # type: ignore[arg-type] # what is refused
    with pytest.raises(UsageError, match="documents"):
        lading.concat([parts[0], lading.open(docs)])
    pq.write_table(pa.table({"txt": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(SchemaMismatch, match="txt"):
        lading.concat([parts[1], lading.open(tmp_path / "numbers.parquet")]).schema  # noqa: B018 - what raises


def test_numbers_that_a_tar_holds_as_text_join_numbers_of_a_table(tmp_path: Path) -> None:
    members = [member for n in range(4) for member in ((f"{n}.cls", b"%d" % n), (f"{n}.txt", b"t"))]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    lading.open(tmp_path / "a.tar").write(tmp_path / "table", format="parquet")
    both = lading.concat([lading.open(tmp_path / "a.tar"), lading.open(tmp_path / "table")])
    assert [sample["cls"] for sample in both] == [*range(4), *range(4)]
    assert [sample["cls"] for sample in both[[5, 2]]] == [1, 2]
    both.write(tmp_path / "all", format="parquet", verify=True)
    assert pd.concat(map(pd.read_parquet, (tmp_path / "all").glob("*.parquet")))["cls"].tolist() == [*range(4)] * 2
