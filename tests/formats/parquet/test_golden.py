"""Files that nemo-curator, datasets and pyarrow wrote, and damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from golden_cases import Golden, View, case_names, load_views
from golden_compare import compare_samples
from hostile import Judge
from lading._core.features.types import Array, ClassLabel, Image, feature_of
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.format import FORMAT
from lading._core.storage.local import LocalStore
from lading.errors import DataError

_CASES = {
    ("interleaved", "parquet-basic"): {"default", "hand"},
    ("interleaved", "parquet-large"): {"default", "hand"},
    ("arrow", "hf-parquet"): {""},
    ("arrow", "plain-ipc"): {"t.parquet"},
}
"""Readings that say no more than which files to read."""


def _files(view: View) -> list[Path]:
    if "files" in view.open:
        return [view.folder / name for name in view.open["files"]]
    return sorted((view.folder / view.open["path"]).glob("*.parquet"))


def _rows(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        reader = FORMAT.open(ShardFile(LocalStore(), str(file)), FORMAT.read_options({}))
        for batch in reader.batches(Scan(max_rows=7, max_bytes=1 << 20)):
            yield from batch.to_pylist()
        reader.close()


@pytest.mark.parametrize("family, case", _CASES)
def test_reads_what_the_peer_wrote(golden: Golden, family: str, case: str) -> None:
    views = [view for view in load_views(golden(family) / case) if view.name in _CASES[family, case]]
    assert {view.name for view in views} == _CASES[family, case]
    for view in views:
        assert compare_samples(view.samples, _rows(_files(view))) == []


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything of a hostile case, for the watched process."""
    names = spec["open"].get("files")
    files = [folder / n for n in names] if names else sorted((folder / spec["open"]["path"]).glob("*.parquet"))
    yield from _rows(files)


_ITEMS = {"no-sample-id", "null-position", "null-sample-id", "position-int64-overflow", "position-text"}
"""Cases that are sound as Parquet; what is wrong with their items is for the view of items to say."""

_FAMILIES = ("hostile-hf-parquet", "hostile-interleaved-parquet")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.mark.mechanism("hostile files, read by a watched process")
@pytest.mark.cases(16)
@pytest.mark.parametrize(
    "family, case", [(family, case) for family in _FAMILIES for case in case_names(family) if case not in _ITEMS]
)
def test_hostile(golden: Golden, judge: Judge, family: str, case: str) -> None:
    assert judge(golden(family) / case) == []


def test_features_of_hugging_face_stand_in_the_fields(golden: Golden) -> None:
    with lading.open(golden("arrow") / "hf-parquet" / "data").with_decode(False) as dataset:
        found = {field.name: feature_of(field) for field in dataset.schema}
        first = dataset[0]
    assert found["image"] == Image()
    assert found["label"] == ClassLabel(("cat", "dog", "ünicorn"))
    assert found["arr"] == Array("int16", (2, 3))
    assert first["image"].startswith(b"\x89PNG")
    assert first["arr"].shape == (2, 3)


@pytest.mark.soak
@pytest.mark.parametrize("told", [b"{", b'{"info": "\xff"}'])
def test_features_that_are_no_json_name_the_file(tmp_path: Path, told: bytes) -> None:
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({b"huggingface": told}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: broken JSON"):
        lading.open(tmp_path)
