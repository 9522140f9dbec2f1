"""Attributes of a dataset that leave with the next release: they warn, name the new place, and give what they gave."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import lading


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        for number in range(3):
            writer.write({"__key__": str(number), "txt": f"text {number}"})
    return str(tmp_path / "a")


def test_attributes_that_moved_warn_and_answer(folder: str) -> None:
    with lading.open(folder).limit(2) as ds:
        expected = {
            "read": (ds.query.read, "ds.query.read"),
            "source": (folder, "ds.query.source.names"),
            "steps": (ds.query.steps, "ds.query.steps"),
        }
        for name, (value, place) in expected.items():
            with pytest.warns(DeprecationWarning, match=f"Dataset.{name} will leave: write {place}"):
                assert getattr(ds, name) == value
        with pytest.warns(DeprecationWarning, match="lading.train.plan"):
            assert ds.layout.num_samples == 2
        with pytest.warns(DeprecationWarning, match=r"list\(ds"):
            as_samples = ds.as_samples
        assert as_samples(ds.take([1])) == list(ds[[1]])
        with pytest.warns(DeprecationWarning, match="lading.features.materialise"):
            materialise = ds.materialise
        [lazy] = ds.batches(lazy=True)
        assert materialise(lazy) == lading.features.materialise(lazy)
        with pytest.warns(DeprecationWarning, match="lading.source_files"):
            place_of = ds.place_of
        assert place_of(1) == (ds.shards[0].path, 1)


def test_other_names_are_absent_without_a_warning(folder: str) -> None:
    ds = lading.open(folder)
    assert not hasattr(ds, "sources")
    assert list(pickle.loads(pickle.dumps(ds))) == list(ds)
