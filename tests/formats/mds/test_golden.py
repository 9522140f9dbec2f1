"""Datasets that mosaicml-streaming wrote, and damaged ones."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lading
from golden_cases import Golden, View, case_names, load_views
from golden_compare import compare_samples
from hostile import Judge
from lading.errors import DataError


def _opened(folder: Path, told: dict[str, Any], *, mmap: bool = True) -> lading.Dataset:
    options = {name: True for name in ("allow_pickle", "verify") if told.get(name)}
    return lading.open(folder / told["path"] / (told.get("split") or ""), options=options, mmap=mmap).with_decode(False)


def _views(golden: Golden, case: str) -> list[View]:
    return load_views(golden("mds") / case)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("case", case_names("mds"))
def test_reads_what_the_peer_wrote(golden: Golden, case: str, mmap: bool) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open, mmap=mmap) as dataset:
            assert dataset.format == "mds"
            assert compare_samples(view.samples, dataset.samples()) == []


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("case", case_names("mds"))
def test_at_random(golden: Golden, case: str, mmap: bool) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open, mmap=mmap) as dataset:
            assert len(dataset) == len(view.samples)
            order = np.random.default_rng(0).permutation(len(dataset)).tolist()
            assert compare_samples([view.samples[i] for i in order], (dataset[i] for i in order)) == []
            numbers = [i for i in order for _ in range(2)]
            taken = dataset.take(numbers)
            assert taken.num_rows == len(numbers)
            if numbers:
                assert taken.slice(1, 3).to_pylist() == dataset.take(numbers[1:4]).to_pylist()


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything of a hostile case, for the watched process."""
    with _opened(folder, spec["open"]) as dataset:
        for sample in dataset:
            if spec["open"].get("decode"):
                _decode(sample)
            yield sample


def _decode(sample: dict[str, Any]) -> None:
    for name, value in sample.items():
        if isinstance(value, bytes):
            try:
                Image.open(io.BytesIO(value)).load()
            except (OSError, Image.DecompressionBombError, SyntaxError) as error:
                raise DataError("not an image", column=name) from error


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
        yield judge


@pytest.mark.mechanism("hostile files, read by a watched process")
@pytest.mark.cases(16)
@pytest.mark.parametrize("case", case_names("hostile-mds"))
def test_hostile(golden: Golden, judge: Judge, case: str) -> None:
    assert judge(golden("hostile-mds") / case) == []
