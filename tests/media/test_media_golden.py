"""What datatrove wrote is read, damaged variants of it are errors, and the same media give the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden_cases import Golden, case_names, load_views
from golden_compare import compare_samples
from hostile import Judge
from lading.media import MediaWriter
from media import golden_documents, reader_of

_FAMILY, _HOSTILE = "datatrove", "hostile-datatrove"
_CASES = [case for case in case_names(_FAMILY) if case != "inline-bytes"]
_OF_DOCUMENTS = {case for case in case_names(_HOSTILE) if case.startswith("jsonl-")}
"""Cases of damaged JSON: whoever reads the documents finds that."""
_MOST_MB, _MOST_SECONDS = 500, 5


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("case", _CASES)
def test_reads_what_the_peer_wrote(golden: Golden, case: str, workers: int) -> None:
    folder = golden(_FAMILY) / case
    [view, *_] = load_views(folder)
    reader = reader_of(folder, view.open, workers=workers, preserve_order=True)
    found = list(_read(reader.run(golden_documents(folder / view.open["documents"]))))
    assert compare_samples(view.samples, found) == []
    there = [one for sample in found for one in sample["media"] if one["path"] is not None]
    assert reader.stats.records == len(there)
    assert reader.stats.payload_bytes == sum(len(one["media_bytes"]) for one in there)


def _read(documents: Iterator[Any]) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # some cases have media without a path
        yield from documents


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "case, template, max_file_size",
    [
        ("v2-basic", None, 5 << 30),
        ("v2-split-plain", None, 4000),
        ("v2-split-subdir", "images/${rank}/part.bin.zst", 4000),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_media_give_the_peer_s_files(
    golden: Golden, tmp_path: Path, case: str, template: str | None, max_file_size: int, workers: int
) -> None:
    folder = golden(_FAMILY) / case
    read = reader_of(folder, {"media_root": "media"}).run(golden_documents(folder / "jsonl"))
    documents = list(_read(read))
    places = [[(one["path"], one["offset"], one["length"]) for one in doc["media"]] for doc in documents]
    writer = MediaWriter(tmp_path / "new", template, max_file_size, workers=workers)
    ranks: dict[int, list[Any]] = {}
    for doc in documents:
        ranks.setdefault(int(str(doc["id"]).startswith("doc1")), []).append(doc)
    with writer:
        for rank, own in ranks.items():
            for doc in own:
                for one in doc["media"]:
                    if one["media_bytes"] is not None:
                        writer.write(one, rank)
    assert _files(tmp_path / "new") == _files(folder / "media")
    assert [[(one["path"], one["offset"], one["length"]) for one in doc["media"]] for doc in documents] == places


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[object]:
    opened = spec["open"]
    yield from reader_of(folder, opened).run(golden_documents(folder / opened["documents"]))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("hostile"), _MOST_SECONDS, _MOST_MB) as judge:
        yield judge


@pytest.mark.soak
@pytest.mark.parametrize("case", sorted(set(case_names(_HOSTILE)) - _OF_DOCUMENTS))
def test_hostile(golden: Golden, judge: Judge, case: str) -> None:
    assert judge(golden(_HOSTILE) / case) == []
