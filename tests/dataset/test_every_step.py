"""Every verb of a dataset behind every step, on a tar and on Parquet, against dicts and lists."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lading
from soak import some_pairs
from step_cases import CASES, ROWS, SOURCES, plain_rows, write_sources


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and the files that steps name."""
    folder = tmp_path_factory.mktemp("steps")
    write_sources(folder)
    return folder


@pytest.mark.parametrize("name, source", some_pairs(CASES, SOURCES[::-1]))
def test_verbs_behind_steps(name: str, source: str, place: Path, tmp_path: Path) -> None:
    """The command line has the other source of each case, in `tests/cli/test_every_step.py`."""
    case = CASES[name]
    expected = case.plain(ROWS)
    with lading.open(place / source) as opened:
        ds = case.chain(opened, place)
        assert plain_rows(list(ds)) == expected
        assert plain_rows(list(ds.samples())) == expected
        assert len(ds) == len(expected)
        assert plain_rows([ds[i] for i in range(len(expected))]) == expected
        assert plain_rows(ds.head(3)) == expected[:3]
        assert plain_rows(list(ds[1:3])) == expected[1:3]
        sizes = [batch.num_rows for batch in ds.batches(max_rows=2)]
        assert sum(sizes) == len(expected)
        assert max(sizes, default=0) <= 2
        if expected:
            backwards = ds.take(range(len(expected) - 1, -1, -1)).select(["__key__"]).to_pylist()
            assert backwards == [{"__key__": row["__key__"]} for row in reversed(expected)]
        stats = ds.stats()
        assert stats.samples == len(expected)
        assert (stats.duplicate_keys or 0) == len(expected) - len({row["__key__"] for row in expected})
        for number in ("cls", "score", "n"):
            if values := [row[number] for row in expected if number in row]:
                column = stats.columns[number]
                assert (column.min, column.max, column.values) == (min(values), max(values), len(values))
        digest = lading.digest(ds)
        assert digest.count == len(expected)
        assert ds.write(tmp_path / "out.parquet", workers=1).samples == len(expected)
        assert plain_rows(pq.read_table(tmp_path / "out.parquet").to_pylist()) == expected
        assert lading.digest(tmp_path / "out.parquet").ordered == digest.ordered
        assert plain_rows(list(pickle.loads(pickle.dumps(ds)))) == expected
        assert plain_rows(list(lading.concat([ds, ds[:1]]))) == expected + expected[:1]
        parts = ds.repartition(rows_per_shard=2).write(tmp_path / "parts", "parquet")
        assert (parts.samples, parts.shards) == (len(expected), max(1, (len(expected) + 1) // 2))


@pytest.mark.parametrize("source", SOURCES)
def test_a_split_of_samples_behind_steps(source: str, place: Path) -> None:
    for name in ("where", "map", "dedup by a column", "all at once"):
        case = CASES[name]
        with lading.open(place / source) as opened:
            parts = case.chain(opened, place).split({"a": 2, "b": None})
            rows = [plain_rows(list(part)) for part in parts.values()]
        expected = case.plain(ROWS)
        assert [len(part) for part in rows] == [2, len(expected) - 2]
        assert sorted(map(str, rows[0] + rows[1])) == sorted(map(str, expected))
