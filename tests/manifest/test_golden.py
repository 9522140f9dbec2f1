"""Datasets that an earlier lading wrote, each with its manifest: they open, and hold what was given to the writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lading
from golden_cases import Golden, case_names, load_spec

CASES = case_names("manifests")


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", CASES)
def test_samples_and_digest_are_those_of_the_writer(golden: Golden, case: str) -> None:
    folder = golden("manifests") / case
    expected = load_spec(folder)
    found = lading.digest(folder / "data")
    assert (found.ordered, found.unordered, found.count) == (
        expected["ordered"],
        expected["unordered"],
        expected["samples"],
    )
    with lading.open(folder / "data") as ds:
        assert len(ds.shards) == expected["shards"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_given_to_the_writer(golden: Golden, case: str) -> None:
    folder = golden("manifests") / case
    with pa.ipc.open_file(folder / "input.arrow") as file:
        given = file.read_all()
    with lading.open(folder / "data") as ds:
        read = pa.Table.from_batches(list(ds.batches()))
    names = [name for name in given.column_names if name in read.column_names and name != "source_ref"]
    assert {"score", "n"} <= set(names) or {"sample_id", "text_content", "binary_content"} <= set(names)
    for name in names:
        assert read.column(name).to_pylist() == given.column(name).to_pylist(), name


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_wrong_with_them(golden: Golden, case: str) -> None:
    assert lading.verify(golden("manifests") / case / "data", deep=True).findings == []


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith(("-parquet", "-webdataset", "-mds"))])
def test_salvage_and_doctor_open_them(golden: Golden, case: str, tmp_path: Path) -> None:
    folder = golden("manifests") / case / "data"
    saved = lading.salvage(folder, tmp_path / "saved")
    assert saved.samples == load_spec(golden("manifests") / case)["samples"]
    assert lading.doctor(folder) is not None
