"""Interleaved documents in a loader: which rows are whose, where documents of one id become neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.api.dataset import Dataset
from tars import tar_of
from train_sources import COUNT, DOCUMENT_SOURCES, DOCUMENTS, contents, write

_IDS = [name for name, _ in DOCUMENTS]


@pytest.fixture(scope="module", params=["tar", "parquet", "mds.zstd", "media archive"])
def documents(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return lading.open(write(tmp_path_factory.mktemp("documents"), DOCUMENT_SOURCES[request.param], documents=True))


def _batches(source: Any, **options: Any) -> list[Any]:
    return [*lading.loader(source, 4, **{"shuffle": "global", "decode": False, **options})]


@pytest.mark.soak
def test_a_document_that_is_its_own_neighbour(documents: Dataset) -> None:
    """A concatenation, a padded batch and a mixture give a document twice; a step in between reads it otherwise."""
    twice = lading.concat([documents, documents])
    few = lading.mix({"one": (documents[:1], 0.5), "more": (documents[:20], 0.5)}, stop="all")
    for source, ids in (
        (twice, 2 * _IDS),
        (twice.where("sample_id >= '00010'"), 2 * _IDS[10:]),
        (lading.concat([documents[:1]] * 2), [*2 * _IDS[:1]]),
        (few, None),
    ):
        found = [contents(sample) for batch in _batches(source, collate="list") for sample in batch]
        assert all(each == DOCUMENTS[int(each[0])] for each in found)
        assert ids is None or sorted(name for name, _ in found) == sorted(ids)
    columns = _batches(few)
    assert [name for batch in columns for name in batch["sample_id"]] == [name for name, _ in found]
    assert all(len(batch["items"]) == len(batch["sample_id"]) for batch in columns)


def test_documents_of_one_id_in_a_tar(tmp_path: Path) -> None:
    """Neighbours have different ids there, and samples that are read together need not."""
    texts = [json.dumps({"sample_id": "ab"[i % 2], "texts": [f"text {i}"], "images": [None]}) for i in range(9)]
    (tmp_path / "d.tar").write_bytes(tar_of(*((f"{i}.json", text.encode()) for i, text in enumerate(texts))))
    documents = lading.open(tmp_path / "d.tar")
    for source in (documents, documents.where("sample_id != ''")):
        found = [items[0] for batch in _batches(source) for items in batch["items"]]
        assert sorted(item["text_content"] for item in found) == [f"text {i}" for i in range(9)]


def test_all_rows_of_a_table_say_whether_their_document_comes_again(documents: Dataset) -> None:
    for count in (1, 3, 6):
        [*_, table] = _batches(documents[:count], collate="arrow", last="pad", shuffle=False)
        again = {(row["sample_id"], row["__padding__"]) for row in table.to_pylist()}
        left = _IDS[:count][count // 4 * 4 if count % 4 else count - 4 :]
        assert {name for name, padding in again if not padding} == {*left}
        assert {name for name, padding in again if padding} == {*(_IDS[:count] * 4)[: 4 - len(left)]}


@pytest.mark.soak
def test_reading_by_number_holds_no_map(documents: Dataset) -> None:
    """Views keep their map as long as they live; a fetcher that kept each would hold every file of a large dataset."""
    for _ in range(3):
        documents.take(range(COUNT), views=True)
    assert not documents._rows.shards.fetcher._touched
