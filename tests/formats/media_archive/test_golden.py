"""Documents and archives that datatrove wrote, and damaged ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from golden_cases import Golden, View, case_names, load_views
from golden_compare import compare_samples
from hostile import Judge

_FAMILY, _HOSTILE = "datatrove", "hostile-datatrove"
_MOST_MB, _MOST_SECONDS = 500, 5

pytestmark = pytest.mark.filterwarnings("ignore:.*name no path or no offset")


def _opened(folder: Path, told: dict[str, Any], **options: Any) -> lading.Dataset:
    media = {"media": str(folder / told["media_root"])} if "media_root" in told else {}
    archives = {"archives": told["media_kind"]} if "media_kind" in told else {}
    return lading.open(folder / told["documents"], format="media_archive", view=told.get("view"),
                       options={**media, **archives, **options})  # fmt: skip


def _views(golden: Golden, case: str) -> list[View]:
    return load_views(golden(_FAMILY) / case)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("case", case_names(_FAMILY))
def test_reads_what_the_peer_wrote(golden: Golden, case: str, workers: int) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open, workers=workers) as dataset:
            assert dataset.view == "samples"
            assert compare_samples(view.samples, dataset.samples()) == []


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", case_names(_FAMILY))
def test_at_random(golden: Golden, case: str) -> None:
    for view in _views(golden, case):
        with _opened(view.folder, view.open) as dataset:
            order = [*range(len(view.samples))][::-1]
            assert len(dataset) == len(order)
            assert compare_samples([view.samples[i] for i in order], (dataset[i] for i in order)) == []
            assert dataset.take([1, 0, 1]).to_pylist() == [dataset.take([i]).to_pylist()[0] for i in (1, 0, 1)]


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", case_names(_FAMILY))
def test_as_items(golden: Golden, case: str) -> None:
    """Each document's text and media, in order; bytes of version 2 are references until they are asked for."""
    for view in _views(golden, case):
        with _opened(view.folder, view.open) as dataset:
            documents = list(dataset.samples())
        with _opened(view.folder, {**view.open, "view": "interleaved"}) as dataset:
            stored = dataset.with_decode(False)
            found = list(stored.samples())
            assert [stored[i] for i in range(len(found))] == found
        assert [sample["sample_id"] for sample in found] == [document["id"] for document in documents]
        for sample, document in zip(found, documents, strict=True):
            assert sample["metadata"] == document["metadata"]
            items = iter(sample["items"])
            if document["text"]:
                assert next(items)["text_content"] == document["text"]
            for media, item in zip(document["media"], items, strict=True):
                assert item["modality"] == ("image", "video", "audio", "document")[media["type"]]
                assert item.get("binary_content") == media["media_bytes"]
                assert item.get("media_url") == media["url"]
                assert item.get("media_metadata", {}) == (media["metadata"] or {})
            assert [item["position"] for item in sample["items"]] == [*range(len(sample["items"]))]


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[Any]:
    """Everything of a hostile case, for the watched process."""
    warnings.simplefilter("ignore")
    with _opened(folder, spec["open"]) as dataset:
        yield from dataset


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile"), _MOST_SECONDS, _MOST_MB) as judge:
        yield judge


@pytest.mark.mechanism("hostile files, read by a watched process")
@pytest.mark.cases(16)
@pytest.mark.parametrize("case", case_names(_HOSTILE))
def test_hostile(golden: Golden, judge: Judge, case: str) -> None:
    assert judge(golden(_HOSTILE) / case) == []
