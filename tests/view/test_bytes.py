"""What the page costs of a remote dataset: requests and bytes of opening, of a page of the grid, of a sample."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

import lading
from counted_files import CountedFiles
from lading._core.dataset.opened import opened
from lading._core.view.naming import Naming
from lading._core.view.selection import Selection
from lading._core.view.values import ValuePlace, value_of
from lading._core.view.view import View
from tars import tar_of

COUNT, PAGE = 600, 24
ALL = Selection()
INDEXES = 400_000  # of 600 samples, with the footers of tables
PARQUET_PAGE = 1 << 20


class Cost(NamedTuple):
    """What was read."""

    requests: int
    read_bytes: int


def _cost() -> Cost:
    found = Cost(CountedFiles.requests, CountedFiles.read_bytes)
    CountedFiles.begin()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same samples as tars with and without an index, as Parquet, and as tars in a zip."""
    folder, rng = tmp_path_factory.mktemp("bytes"), random.Random(0)
    samples, members = [], []
    for i in range(COUNT):
        body = io.BytesIO()
        Image.new("RGB", (64, 64), (i % 256, 0, 0)).save(body, "JPEG")
        picture = body.getvalue() + rng.randbytes(rng.randrange(20_000, 60_000))
        samples.append({"__key__": f"{i:04}", "jpg": picture, "txt": f"text {i}"})
        members += [(f"{i:04}.jpg", picture), (f"{i:04}.txt", f"text {i}".encode())]
    for name, format_name in (("tars", "webdataset"), ("parquet", "parquet")):
        with lading.writer(folder / name, format=format_name, rows_per_shard=200) as writer:
            for sample in samples:
                writer.write(sample)
    (folder / "plain.tar").write_bytes(tar_of(*members))
    with zipfile.ZipFile(folder / "tars.zip", "w") as archive:
        for path in sorted((folder / "tars").rglob("*")):
            archive.write(path, path.relative_to(folder / "tars"))
    return folder


@pytest.fixture
def view(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[View]:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    CountedFiles.begin()
    view = View(opened(f"counted://{folder}/{request.param}"), Naming("data", "data", "lading.open('data')"))
    yield view
    CountedFiles.gate.set()
    view.close()


def _page(view: View, start: int, column: str = "jpg") -> int:
    """Ask for a page of the grid and its thumbnails; return the bytes of its pictures."""
    page = view.page(ALL, start, start + PAGE, [column])
    assert (len(page["rows"]), page["is_whole"]) == (PAGE, True)
    values = [value_of(view.rows(ALL), ValuePlace(start + i, column), shown=True).whole() for i in range(PAGE)]
    assert [len(value) for value in values] == [row["cells"]["jpg"]["length"] for row in page["rows"]]
    return sum(map(len, values))


@pytest.mark.parametrize("view", ["tars", "tars.zip"], indirect=True)
@pytest.mark.cases(2)
def test_a_page_of_an_indexed_dataset_reads_its_pictures_in_one_request(view: View) -> None:
    view.dataset()
    view.count(ALL, 20)
    opening = _cost()
    assert opening.requests <= 5
    pictures = _page(view, 0)
    first = _cost()
    assert first.requests <= 2
    assert first.read_bytes <= 1.5 * pictures + INDEXES
    for start in (300, 570):
        pictures = _page(view, start)
        assert _cost() <= Cost(1, int(1.1 * pictures))
    shown = view.sample(ALL, 450)
    value = value_of(view.rows(ALL), ValuePlace(450, "jpg"), shown=True).whole()
    assert shown["cells"]["jpg"]["length"] == len(value)
    assert _cost() <= Cost(1, int(1.1 * len(value)))


@pytest.mark.parametrize("view", ["parquet"], indirect=True)
def test_a_page_of_a_table_reads_its_pictures_and_the_rest_of_their_pages(view: View) -> None:
    view.dataset()
    view.count(ALL, 20)
    assert _cost().read_bytes < INDEXES
    for start in (0, 300):
        pictures = _page(view, start)
        found = _cost()
        assert found.requests <= 3
        assert found.read_bytes <= 1.5 * pictures + PARQUET_PAGE


@pytest.mark.parametrize("view", ["plain.tar"], indirect=True)
def test_the_first_page_of_a_tar_without_an_index_reads_its_beginning(view: View, folder: Path) -> None:
    CountedFiles.behind = 5_000_000  # counting goes no further meanwhile
    CountedFiles.gate.clear()
    columns = [column["name"] for column in view.dataset()["columns"]]
    assert columns == ["__key__", "jpg", "txt"]
    pictures = _page(view, 0)
    assert pictures > 500_000
    assert view.rows(ALL).count is None
    CountedFiles.gate.set()
    view.count(ALL, 20)
    size = (folder / "plain.tar").stat().st_size
    assert _cost().read_bytes < 1.5 * size  # the first samples are read for the page, and all once for the count
    for start in (300, 570):
        pictures = _page(view, start)
        assert _cost() <= Cost(1, int(1.1 * pictures))
