"""A query: the value that jobs and training take."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import lading
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Query
from lading._core.dataset.steps.order_steps import Limit
from lading.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name in ("a", "b"):
        with lading.writer(tmp_path / name, format="parquet") as writer:
            for number in range(3):
                writer.write({"x": number})
    return str(tmp_path)


def test_names_a_dataset_and_a_query_become_one_value(folder: str) -> None:
    named = Query.of(f"{folder}/a", view="samples")
    assert (named.source.names, named.read.view, named.steps, named.opened) == (f"{folder}/a", "samples", (), None)
    assert Query.of(named) is named
    ds = lading.open(f"{folder}/a").limit(2)
    query = Query.of(ds)
    assert (query.read.format, query.read.view, query.steps) == ("parquet", "samples", (Limit(2),))
    assert query == ds.query
    assert opened(ds) is opened(query) is query.opened


def test_a_copy_of_a_query_is_the_value_alone(folder: str) -> None:
    for ds in (lading.open(f"{folder}/a"), lading.concat([lading.open(f"{folder}/a"), lading.open(f"{folder}/b")])):
        query = ds.limit(2).query
        copy = pickle.loads(pickle.dumps(query))
        assert (copy.steps, copy.opened, query.replace(steps=()).opened) == (query.steps, None, None)
        assert list(OpenDataset.of(copy).samples()) == list(ds.limit(2))
        assert lading.digest(copy).ordered == lading.digest(ds.limit(2)).ordered


def test_arguments_of_opening_belong_to_names(folder: str) -> None:
    ds = lading.open(f"{folder}/a")
    assert Query.of(ds, view=None, on_bad_shard="error").read == ds.query.read
    with pytest.raises(UsageError, match=r"a dataset is open already.*found view"):
        Query.of(ds, view="samples")
    with pytest.raises(UsageError, match=r"open already.*found columns"):
        Query.of(ds.query, columns=["x"])
    with pytest.raises(TypeError, match="columns"):
        Query.of(folder, columns=["x"])


def test_datasets_one_after_another_are_a_source_as_files_are(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    both = lading.concat([lading.open("a").where("x > 0"), lading.open("b")])
    source = both.query.source
    assert (source.names, str(source), source.repeats_keys) == (["a", "b"], "a + b", True)
    absolute = both.query.absolute()
    assert absolute.source.names == [f"{folder}/a", f"{folder}/b"]
    assert list(OpenDataset.of(absolute).samples()) == list(both)
    assert Query.of("a").absolute().source.names == f"{folder}/a"
