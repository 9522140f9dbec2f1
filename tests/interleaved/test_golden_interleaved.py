"""Golden interleaved cases: what the peers wrote, read as items, row for row."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from golden_cases import Golden, load_views
from golden_compare import compare_samples
from lading._core.api.opening import open_dataset
from lading._core.arrow.references import is_ref
from lading._core.dataset.shards.random_access import unfetched_rows
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.options import InterleavedOptions
from lading.testing import CountingStore

CASES = (
    "tar-basic",
    "tar-large",
    "parquet-basic",
    "parquet-large",
    "writer-facts",
    "mint-tiff",
    "source-refs",
)


def settings(opened: dict[str, Any]) -> InterleavedOptions:
    fields = opened.get("fields")
    return InterleavedOptions(
        fields=None if fields is None else tuple(fields),
        per_image_fields=tuple(opened.get("per_image_fields", ())),
        per_text_fields=tuple(opened.get("per_text_fields", ())),
        sample_id_field=opened.get("sample_id_field"),
        unreferenced="drop",  # the peer does not look at members that no JSON names
    )


def read_rows(opened: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of a reading as its peer gives them; what is not materialised is null."""
    lazy = not opened.get("materialize")
    with open_dataset(opened["files"], view="interleaved", interleaved=settings(opened)) as dataset:
        batches = dataset.batches(
            max_rows=7, max_bytes=opened.get("max_batch_bytes", 1 << 20), lazy=lazy, on_error="warn"
        )
        for batch in batches:
            assert {"sample_id", "position", "modality"} <= set(batch.schema.names)
            yield from without_references(batch).to_pylist()


def without_references(batch: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([batch])
    for i, field in enumerate(table.schema):
        if is_ref(field.type):
            table = table.set_column(i, field.name, pa.nulls(len(table), pa.large_binary()))
    return table


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_the_peer_reads(case: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = golden("interleaved") / case
    monkeypatch.chdir(folder)
    views = load_views(folder)
    assert views
    for view in views:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = list(read_rows(view.open))
        if case == "writer-facts":
            # The peer takes its columns from the first sample only, and so loses what later ones have besides.
            assert {(row["sample_id"], row.pop("k")) for row in rows} >= {("meta-only", "v")}
        problems = compare_samples(view.samples, rows)
        assert not problems, (view.name, problems)


@pytest.mark.parametrize("case, rows", [("tar-basic", 7), ("parquet-basic", 5)])
def test_batches_cut_no_sample(case: str, rows: int, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = golden("interleaved") / case
    monkeypatch.chdir(folder)
    [view] = [v for v in load_views(folder) if v.name == "default"]
    with open_dataset(view.open["files"], view="interleaved") as dataset:
        seen: list[str] = []
        for batch in dataset.batches(max_rows=rows):
            ids = list(dict.fromkeys(batch.column("sample_id").to_pylist()))
            assert not set(ids) & set(seen)
            assert batch.num_rows <= rows or len(ids) == 1
            seen += ids
        assert len(seen) == len(dataset)


@pytest.mark.parametrize("case", ["tar-basic", "parquet-basic", "mint-tiff"])
def test_samples_at_random_are_those_in_order(case: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = golden("interleaved") / case
    monkeypatch.chdir(folder)
    [view] = [v for v in load_views(folder) if v.name == "default"]
    with open_dataset(view.open["files"], view="interleaved", interleaved=settings({})) as dataset:
        want = pa.Table.from_batches([pa.record_batch(b) for b in dataset.batches(lazy=True, max_rows=1 << 20)])
        order = [*reversed(range(len(dataset))), 0, 0]
        got = unfetched_rows(dataset._rows.shards, pa.array(order).to_numpy(), None)
        ids = list(dict.fromkeys(want.column("sample_id").to_pylist()))
        rows = [r for i in order for r in want.filter(pa.compute.equal(want["sample_id"], ids[i])).to_pylist()]
        assert got.select(want.schema.names).to_pylist() == rows


def test_detection(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    for case, file, found in (
        ("interleaved/tar-basic", "docs.tar", "interleaved"),
        ("interleaved/parquet-basic", "t.parquet", "interleaved"),
        ("interleaved/parquet-basic", "hand.parquet", "interleaved"),
        ("wds/shards", "train-000000.tar", "samples"),
        ("wds/names", "n.tar", "samples"),
    ):
        family, name = case.split("/")
        path = golden(family) / name / file
        store = CountingStore(MemoryStore({f"far://{file}": path.read_bytes()}))
        store.request_bytes = 1 << 20
        for place in (path, f"far://{file}"):
            with open_dataset(place, stores=Stores({"far://": store})) as dataset:
                assert dataset.view == found, case
