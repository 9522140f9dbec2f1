"""Files that lading wrote, held against their checksums: how the damaged samples are named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lading
from lading._core.jobs.verify.checksums import CheckedShard, check_shard
from lading._core.jobs.verify.verify import verify
from lading._core.manifest.files import ShardTables, load_manifest
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores

DAMAGED = range(0, 60, 3)


class Counting(ShardTables):
    """Counts how often an index is loaded."""

    num_loads = 0

    def index(self, shard: int) -> pa.Table | None:
        self.num_loads += 1
        return super().index(shard)


def checked(out: Path, most: int) -> tuple[CheckedShard, int]:
    """What is wrong with the first shard, and how often its index was loaded for that."""
    found = load_manifest(LocalStore(), str(out))
    assert found is not None
    kept = Counting(LocalStore(), str(out), found[1])
    result = check_shard(kept, 0, Stores(), most)
    assert result is not None
    return result, kept.num_loads


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """A dataset of one tar, each third of its samples damaged."""
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(
            pa.table({"__key__": [f"k{n}" for n in range(60)], "bin": [b"value%04d" % n for n in range(60)]})
        )
    [path] = (tmp_path / "out").glob("*.tar")
    body = path.read_bytes()
    for n in DAMAGED:
        body = body.replace(b"value%04d" % n, b"other%04d" % n)
    path.write_bytes(body)
    return tmp_path / "out"


@pytest.mark.parametrize("most", [1, 7, 20, 100])
def test_the_index_is_loaded_once_for_the_keys_of_all_damaged_samples(tars: Path, most: int) -> None:
    result, num_loads = checked(tars, most)
    assert [(error.row, error.sample) for error in result.errors] == [(n, f"k{n}") for n in DAMAGED[:most]]
    assert num_loads == 1


def test_an_index_that_cannot_be_read_names_no_sample(tars: Path) -> None:
    [index] = (tars / "_lading").glob("index-*.arrow")
    index.write_bytes(b"ARROW1" + bytes(100))
    result, num_loads = checked(tars, 100)
    assert [(error.row, error.sample) for error in result.errors] == [(n, None) for n in DAMAGED]
    assert num_loads == 1


def test_what_is_whole_needs_no_index(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(pa.table({"bin": [b"x"]}))
    result, num_loads = checked(tmp_path / "out", 100)
    assert (result.errors, num_loads) == ([], 0)


def test_what_is_behind_the_end_of_a_cut_file_is_one_finding_with_the_number_of_rows(tars: Path) -> None:
    """Samples k0 to k19 are there, each third of them damaged: a sample has two blocks of 512 bytes."""
    [path] = tars.glob("*.tar")
    path.write_bytes(path.read_bytes()[: 20 * 1024 + 100])
    found = verify(tars, deep=True, max_findings=100)
    damaged = [finding for finding in found.findings if finding["error"] == "SidecarMismatch" and "row" in finding]
    assert [finding["row"] for finding in damaged] == [*range(0, 20, 3), 20]
    assert damaged[-1]["message"] == "the end of the file is missing, with 40 rows"
    assert damaged[-1]["sample"] == "k20"
    few = verify(tars, deep=True, max_findings=3)
    assert (few.problems, len(few.findings), sum(few.more.values())) == (found.problems, 3, found.problems - 3)
