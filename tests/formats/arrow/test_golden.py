"""Folders and files that stable-datasets, datasets, pyarrow, Polars and Arrow JS wrote, and damaged ones."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from golden_cases import Golden, View, case_names, load_spec, load_views
from golden_compare import compare_samples
from hostile import Judge
from lading._core.features.types import Array, ClassLabel, Image, Struct, Value, feature_of
from lading._core.features.types import Sequence as ListOf
from lading.errors import LadingError, UsageError

_FAMILIES = ("hostile-arrow-shards", "hostile-hf-disk")
_CASES = [
    *(f"arrow/{case}" for case in case_names("arrow") if case != "hf-parquet"),
    *(f"arrow-files/{case}" for case in case_names("arrow-files")),
]


def _opened(folder: Path, told: dict[str, Any], *, mmap: bool = True) -> lading.Dataset:
    if "files" in told:
        return lading.open([folder / name for name in told["files"]], mmap=mmap)
    options = {"load_assets": True} if told.get("load_assets") else {}
    return lading.open(folder / told["path"] / (told.get("split") or ""), options=options, mmap=mmap)


def _rows(dataset: lading.Dataset, **how: Any) -> Iterator[dict[str, Any]]:
    for batch in dataset.batches(max_rows=7, **how):
        yield from batch.to_pylist()


def _views(golden: Golden, case: str) -> list[View]:
    family, name = case.split("/")
    return [view for view in load_views(golden(family) / name) if view.name != "t.parquet"]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("case", _CASES)
def test_reads_what_the_peer_wrote(golden: Golden, case: str, mmap: bool) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open, mmap=mmap) as dataset:
            assert dataset.format == "arrow"
            assert compare_samples(view.samples, _rows(dataset)) == []
            assert compare_samples(view.samples, _rows(dataset, views=True)) == []


@pytest.mark.cases(3)
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("case", _CASES)
def test_at_random(golden: Golden, case: str, mmap: bool) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open, mmap=mmap) as dataset:
            assert len(dataset) == len(view.samples)
            order = [i for i in np.random.default_rng(0).permutation(len(dataset)).tolist() for _ in range(2)]
            taken = dataset.take(order).to_pylist()
            assert compare_samples([view.samples[i] for i in order], iter(taken)) == []


@pytest.mark.parametrize("case", _CASES)
def test_one_by_one_is_as_one_after_another(golden: Golden, case: str) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open) as dataset:
            for number, sample in enumerate(dataset.samples()):
                np.testing.assert_equal(dataset[number], sample)


def test_videos_in_files_of_their_own(golden: Golden) -> None:
    folder = golden("arrow") / "stable-video-path"
    assets = [asset["sha256"] for asset in load_spec(folder)["assets"]]
    with lading.open(folder, options={"load_assets": True}) as dataset:
        found = [row["video"]["bytes"] for row in _rows(dataset, max_bytes=1)]
        assert found == [dataset[i]["video"]["bytes"] for i in range(len(dataset))]
        assert found == [row["bytes"] for row in dataset.take(range(len(dataset))).column("video").to_pylist()]
    assert {hashlib.sha256(data).hexdigest() for data in found} == set(assets)
    assert found.count(None) == 0


def test_features_of_hugging_face(golden: Golden) -> None:
    with lading.open(golden("arrow") / "hf-save-to-disk").with_decode(False) as dataset:
        found = {field.name: feature_of(field) for field in dataset.schema}
        first = dataset[0]
    assert found["image"] == Image()
    assert found["label"] == ClassLabel(("cat", "dog", "ünicorn"))
    assert found["arr"] == Array("int16", (2, 3))
    assert found["imgs"] == ListOf(Image())
    assert found["boxes"] == ListOf(Struct((("c", ClassLabel(("u", "v"))),)))
    assert first["image"].startswith(b"\x89PNG")
    assert first["arr"].shape == (2, 3)


def test_features_of_stable_datasets(golden: Golden) -> None:
    """Names of labels and shapes of arrays are not in the files."""
    with lading.open(golden("arrow") / "stable-single") as dataset:
        found = {field.name: feature_of(field) for field in dataset.schema}
    assert found["image"] == Image()
    assert found["label"] == Value("int64")


def test_splits_are_folders(golden: Golden, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(golden("arrow") / "hf-dataset-dict", folder)
    with pytest.raises(UsageError, match=r"dataset_dict.json: the dataset has several splits.*found train, test"):
        lading.open(folder)
    (folder / "dataset_dict.json").write_text('{"splits": ["test"]}')
    with lading.open(folder) as dataset:
        assert len(dataset) == 3


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[Any]:
    """Everything of a hostile case, for the watched process: in order; then, if that went well, at random."""
    with _opened(folder, spec["open"]) as dataset:
        yield from _rows(dataset)
        for number in range(len(dataset)):
            yield dataset[number]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile"), 5, 500) as judge:
        yield judge


@pytest.mark.mechanism("hostile files, read by a watched process")
@pytest.mark.cases(16)
@pytest.mark.parametrize("family, case", [(family, case) for family in _FAMILIES for case in case_names(family)])
def test_hostile(golden: Golden, judge: Judge, family: str, case: str) -> None:
    assert judge(golden(family) / case) == []


def test_a_video_outside_its_folder_is_refused(golden: Golden) -> None:
    with (
        lading.open(golden("hostile-arrow-shards") / "video-path-traversal", options={"load_assets": True}) as dataset,
        pytest.raises(LadingError, match="not the name of a video"),
    ):
        list(dataset.batches())
