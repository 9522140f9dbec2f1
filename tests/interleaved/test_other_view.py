"""A dataset that lading wrote as one view, taken as the other: its manifest speaks of rows that nobody asked for."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pyarrow as pa
import pytest

import lading
from lading._core.arrow.references import is_ref
from lading._core.jobs.stats.info import info

SAMPLES, ROWS = 13, 103
"""In the documents that ship with lading: `sample_id`s, and items of all of them."""


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    with resources.as_file(resources.files("lading._core.data")) as data:
        tars = sorted(str(path) for path in data.glob("*.tar"))
        for name in ("webdataset", "parquet", "mds", "arrow", "media_archive"):
            lading.convert(tars, folder / name, format=name)
    lading.convert(folder / "parquet", folder / "rows", format="parquet", view="samples")
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("name, view, count", [
    ("webdataset", "samples", SAMPLES),
    ("parquet", "samples", ROWS),
    ("mds", "samples", SAMPLES),
    ("arrow", "samples", ROWS),
    ("media_archive", "samples", SAMPLES),
    ("rows", "interleaved", SAMPLES),
])  # fmt: skip
def test_all_of_it_is_of_the_view_that_was_asked_for(
    name: str, view: str, count: int, docs: Path, tmp_path: Path
) -> None:
    with lading.open(docs / name, view=view) as dataset:
        assert len(dataset) == count == len(list(dataset))
        assert dataset.take([0, count - 1]).num_rows >= 2
        told = {field.name: pa.large_binary() if is_ref(field.type) else field.type for field in dataset.schema}
        for batch in dataset.batches():
            assert all(told[field.name] == field.type for field in batch.schema)
    assert lading.digest(docs / name, view=view).count == count
    assert info(docs / name, view=view).samples == count
    for deep in (False, True):
        assert lading.verify(docs / name, view=view, deep=deep).findings == []
    lading.convert(docs / name, tmp_path / "out", format="parquet", view=view)
    assert lading.digest(tmp_path / "out", view=view).count == count
