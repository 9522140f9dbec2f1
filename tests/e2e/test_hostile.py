"""Damaged and malicious data through the public door: opened, streamed, looked at, converted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from golden_cases import Golden, case_names
from hostile import FAMILIES, Judge, source_of


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[object]:
    """Everything of one case: streamed as the format's rows and as items, at random, and into another format.

    A case that must fail has to fail at the first of them; the others must only end well or in an error of lading's.
    """
    source, tar = source_of(spec["open"]), spec["format"] in {"wds", "interleaved-tar"}
    yield from _streamed(source, "interleaved" if spec["format"].startswith("interleaved") else "samples")
    if spec["open"].get("verify"):
        result = lading.verify(source)
        if result.findings:
            raise lading.LadingError(str(result.findings))
    with lading.open(source) as dataset:
        count = len(dataset)
        yield from (dataset[i] for i in range(0, count, max(1, count // 3)))
    lading.convert(source, folder / "new", format="parquet" if tar else "webdataset")
    shutil.rmtree(folder / "new")


def _streamed(source: str | list[str], view: str) -> Iterator[object]:
    with lading.open(source, view=view) as dataset:
        for batch in dataset.batches():
            yield from batch.to_pylist()


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile(golden: Golden, judge: Judge, family: str) -> None:
    wrong = [f"{case.name}: {problem}" for case in sorted(golden(family).iterdir()) for problem in judge(case)]
    assert not wrong, "\n".join(wrong)


def test_every_hostile_family_is_tried() -> None:
    assert all(case_names(family) for family in FAMILIES)
