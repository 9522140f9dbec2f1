"""Conditions on the number of items of a document choose the documents that plain Python chooses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lading
from documents import SAMPLES, documents
from lading.errors import UsageError

_Items = list[str | bytes | None]
_DOCUMENTS: list[tuple[str, _Items, dict[str, Any]]] = [
    (f"{name}{i}", [*items, *items[:i]], {**facts, "n": i}) for i in range(3) for name, items, facts in SAMPLES
]


def _images(items: _Items) -> int:
    return sum(isinstance(item, bytes) for item in items)


def _texts(items: _Items) -> int:
    return sum(isinstance(item, str) for item in items)


_CASES: list[tuple[str, Callable[[_Items, dict[str, Any]], bool]]] = [
    ("items.image > 2", lambda items, _: _images(items) > 2),
    ("items.image == 0", lambda items, _: not _images(items)),
    ("1 <= items.image <= 2 and items.text == 0", lambda items, _: 1 <= _images(items) <= 2 and not _texts(items)),
    ("items >= 4", lambda items, _: len(items) >= 4),
    ("items.text > 0 and n == 2", lambda items, facts: _texts(items) > 0 and facts["n"] == 2),
    ("items.image / items > 0.5", lambda items, _: bool(items) and _images(items) / len(items) > 0.5),
]


@pytest.mark.cases(5)
@pytest.mark.parametrize("name", ["tar", "webdataset", "parquet", "mds", "media_archive"])
def test_documents_are_chosen_by_their_number_of_images(name: str, tmp_path: Path) -> None:
    source = tmp_path / "docs.tar"
    source.write_bytes(documents(*_DOCUMENTS))
    if name != "tar":
        lading.convert(source, tmp_path / "in", format=name, shard_size="2KB")
        source = tmp_path / "in"
    for condition, keeps in _CASES:
        right = [key for key, items, facts in _DOCUMENTS if keeps(items, facts)]
        with lading.open(source) as ds, lading.open(source, fields=["n"]) as some:
            assert right
            assert [sample["sample_id"] for sample in ds.where(condition)] == right, condition
            assert [sample["sample_id"] for sample in some.where(condition)] == right, condition
    lading.convert(source, tmp_path / "out", format="parquet", where="items.image > 2")
    with lading.open(tmp_path / "out") as ds:
        assert [s["sample_id"] for s in ds] == [key for key, items, _ in _DOCUMENTS if _images(items) > 2]
    with pytest.raises(UsageError, match=r"the items of a document are text, image.*Did you mean image\?"):
        list(lading.open(source).where("items.imge > 1"))
