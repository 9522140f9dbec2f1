"""Videos that a cache keeps in files of their own: held against their rows, and taken along by whoever copies these."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from arrow_files import arrow_bytes
from cost import costs_at_most
from golden_cases import Golden
from in_process import by_tasks
from lading._core.features.types import Feature, Sequence, Struct, Value, Video, with_feature
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.caches import validate_cache, write_cache
from lading.errors import BadReference, LadingError, SidecarMismatch, UsageError

_FEATURES: dict[str, Feature] = {"v": Video("path"), "x": Value("int64")}
_INSIDE: dict[str, Feature] = {"l": Sequence(Struct((("n", Value("int64")), ("w", Video("path")))))}
_LOAD = {"load_assets": True}
_Change = Callable[[Path], object]


def rows(count: int = 4) -> Iterator[dict[str, Any]]:
    return ({"v": b"film-%d" % number if number else None, "x": number} for number in range(count))


def film(cache: Path, content: bytes) -> Path:
    [path] = [path for path in (cache / "_assets/video").iterdir() if path.read_bytes() == content]
    return path


def cut(path: Path) -> None:
    path.write_bytes(b"")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


_CHANGES: list[tuple[_Change, type[LadingError], str]] = [
    (cut, SidecarMismatch, "another size"),
    (Path.unlink, BadReference, "no such file"),
    (as_folder, BadReference, "no regular file"),
    (as_link, BadReference, "outside the folders"),
]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    write_cache(rows(), _FEATURES, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("linked", ["_assets", "_assets/video"])
def test_a_folder_of_films_that_is_a_link_leads_nowhere(linked: str, cache: Path, tmp_path: Path) -> None:
    """What lies behind it is none of the cache's, whatever its name and content."""
    (cache / linked).rename(tmp_path / "elsewhere")
    (cache / linked).symlink_to(tmp_path / "elsewhere")
    assert {found["error"] for found in lading.verify(cache, deep=True).findings} == {"BadReference"}
    with pytest.raises(BadReference, match="outside the folders"):
        validate_cache(cache, _FEATURES)
    with (
        lading.open(cache, options=_LOAD) as dataset,
        pytest.raises(BadReference, match=r"outside the folders .*roots="),
    ):
        dataset[2]
    (tmp_path / "another").mkdir()
    with (
        lading.open(cache, options=_LOAD, roots=[tmp_path / "another"]) as dataset,
        pytest.raises(BadReference, match="outside the folders"),
    ):
        dataset[2]


@pytest.mark.parametrize("linked", ["_assets", "_assets/video"])
def test_a_folder_of_films_may_be_a_link_to_a_root(linked: str, cache: Path, tmp_path: Path) -> None:
    (cache / linked).rename(tmp_path / "elsewhere")
    (cache / linked).symlink_to(tmp_path / "elsewhere")
    with lading.open(cache, options=_LOAD, roots=[tmp_path / "elsewhere"]) as dataset:
        assert dataset[2] == {"v": b"film-2", "x": 2}
        assert [row.get("v") for row in dataset] == [None, b"film-1", b"film-2", b"film-3"]
    film(cache, b"film-2").write_bytes(b"film-?")
    with lading.open(cache, options={**_LOAD, "roots": str(tmp_path)}) as dataset, pytest.raises(SidecarMismatch):
        dataset[2]
    with pytest.raises(UsageError, match="the destination holds what the source may lead to"):
        lading.convert(
            cache, tmp_path / "elsewhere", format="jsonl", source_options={"roots": str(tmp_path / "elsewhere")}
        )


def test_a_cache_that_is_reached_by_a_link_has_its_films(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(cache)
    with lading.open(tmp_path / "link", options=_LOAD) as dataset:
        assert dataset[2]["v"] == b"film-2"
    assert lading.verify(tmp_path / "link", deep=True).findings == []


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("change, kind, told", _CHANGES)
def test_a_film_that_is_not_what_its_row_says_is_a_finding(
    change: _Change, kind: type[LadingError], told: str, cache: Path, *, deep: bool
) -> None:
    change(film(cache, b"film-2"))
    [found] = lading.verify(cache, deep=deep).findings
    assert (found["error"], found["file"], found["row"], found["column"]) == (
        kind.__name__, str(cache / "shard-00000.arrow"), 2, "v",
    )  # fmt: skip
    assert told in found["message"]
    assert "_assets/video" in found["found"]


@pytest.mark.parametrize("change", [change for change, _, _ in _CHANGES])
def test_such_a_film_is_no_video_of_the_cache_and_is_not_read(change: _Change, cache: Path) -> None:
    change(film(cache, b"film-2"))
    with pytest.raises((SidecarMismatch, BadReference), match=r"column 'v'.*"):
        validate_cache(cache, _FEATURES)
    with lading.open(cache, options=_LOAD) as dataset:
        for read in (list, lambda given: given[2], lambda given: given.take([1, 2])):
            with pytest.raises(LadingError, match=r"column 'v'.*"):
                read(dataset)


def test_a_film_of_other_bytes_is_found_by_who_reads_it(cache: Path) -> None:
    film(cache, b"film-2").write_bytes(b"FILM-2")
    assert lading.verify(cache).findings == []
    [found] = lading.verify(cache, deep=True).findings
    assert (found["row"], found["column"], found["message"]) == (
        2,
        "v",
        "the file of a video differs from its checksum",
    )
    with (
        lading.open(cache, options=_LOAD) as dataset,
        pytest.raises(SidecarMismatch, match="differs from its checksum; expected sha256 "),
    ):
        list(dataset)


def test_films_that_were_read_do_not_stay_in_memory(tmp_path: Path) -> None:
    write_cache(({"v": b"%d" % number * 1_000_000} for number in range(9)), {"v": Video("path")}, tmp_path / "cache")
    with lading.open(tmp_path / "cache", options=_LOAD) as dataset:
        before = pa.total_allocated_bytes()
        for batch in dataset.batches(max_rows=100, max_bytes=2_000_000):
            assert len(batch) <= 2
            del batch
        assert pa.total_allocated_bytes() - before < 3_000_000


def test_a_row_has_its_own_film_read_and_no_other(tmp_path: Path) -> None:
    """30 rows of one batch that name one film of a megabyte."""
    write_cache(({"v": b"%d" % (n == 7) * 1_000_000, "x": n} for n in range(30)), _FEATURES, tmp_path / "cache")
    film(tmp_path / "cache", b"1" * 1_000_000).unlink()
    with lading.open(tmp_path / "cache", options=_LOAD) as dataset:
        before = pa.total_allocated_bytes()
        for row in (8, 3, 29, 8):
            sample = dataset[row]
            assert (sample["x"], sample["v"]) == (row, b"0" * 1_000_000)
            assert pa.total_allocated_bytes() - before < 3_000_000
        with pytest.raises(LadingError, match="no such file"):
            dataset[7]


def test_rows_whose_films_are_inside_their_cells_cost_no_more_with_load_assets(tmp_path: Path) -> None:
    """Each row made the readers of all columns again: 20 times the work, and more with more columns."""
    numbers = {f"c{at}": at for at in range(20)}
    features = {"v": Video(), **dict.fromkeys(numbers, Value("int64"))}
    write_cache(({"v": b"film", **numbers} for _ in range(300)), features, tmp_path / "cache")
    with lading.open(tmp_path / "cache", options=_LOAD) as loading, lading.open(tmp_path / "cache") as plain:
        assert loading[299] == plain[299] == {"v": b"film", **numbers}
        assert costs_at_most(4, lambda: [loading[n] for n in range(300)], lambda: [plain[n] for n in range(300)])


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("media", ["stored", "bytes"])
def test_a_row_is_the_same_whether_picked_or_passed(media: str, text: pa.DataType, tmp_path: Path) -> None:
    """Of a cell that is known as a video the sample has the bytes; of one with fewer fields the cell."""
    kind = pa.struct([("path", text), ("bytes", pa.binary()), ("mode", text)])
    told = [*((name, text) for name in ("extension", "media_type", "checksum")), ("size", pa.int64())]
    named = {"v": pa.struct([*kind, *(pa.field(*one) for one in told)]), "w": kind}
    fields = [pa.field(name, of, metadata={"stable_datasets.feature": "Video"}) for name, of in named.items()]
    schema = pa.schema([with_feature(fields[0], Video("path")), ("x", pa.int64()), fields[1]])
    cells: list[Any] = [{"mode": "path", "path": "a.mp4"}, None, {"mode": "bytes", "bytes": b"own"}]
    (tmp_path / "_assets/video").mkdir(parents=True)
    (tmp_path / "_assets/video/a.mp4").write_bytes(b"film")
    table = pa.Table.from_pylist([{"v": cell, "x": 1, "w": cell} for cell in cells], schema=schema)
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(table))
    inside: list[dict[str, Any]] = [
        {"v": data, "x": 1, "w": {"path": None, "bytes": data, "mode": "bytes"}} for data in (b"film", b"own")
    ]
    with lading.open(tmp_path / "a.arrow", options={**_LOAD, "media": media}) as dataset:
        for found in (list(dataset), [dataset[row] for row in range(3)]):
            assert found == [inside[0], {"v": None, "x": 1, "w": None}, inside[1]]
            assert [*found[0]] == ["v", "x", "w"]


def test_films_inside_lists_and_structs_are_held_against_their_rows(tmp_path: Path) -> None:
    cells = [[], [{"n": 1, "w": b"one"}, {"n": 2, "w": None}], None, [{"n": 3, "w": b"two"}, {"n": 4, "w": b"one"}]]
    write_cache(({"l": cell} for cell in cells), _INSIDE, tmp_path / "cache")
    result = lading.verify(tmp_path / "cache", deep=True)
    assert (result.findings, "videos" in result.checked) == ([], True)
    film(tmp_path / "cache", b"two").write_bytes(b"TWO")
    film(tmp_path / "cache", b"one").unlink()
    assert [found["row"] for found in lading.verify(tmp_path / "cache").findings] == [1]
    assert [found["row"] for found in lading.verify(tmp_path / "cache", deep=True).findings] == [1, 3]
    assert len(lading.verify(tmp_path / "cache", deep=True, max_findings=1).findings) == 1


@pytest.mark.parametrize(
    "change, told",
    [({"size": 7}, "another size than its cell says"), ({"bytes": b"FILM"}, "differs from its checksum")],
)
@pytest.mark.parametrize("nested", [False, True])
def test_films_inside_cells_are_held_against_these(
    change: dict[str, Any], told: str, tmp_path: Path, *, nested: bool
) -> None:
    """A cache whose shard somebody wrote again."""
    cells: list[Any] = [b"film", None, b"film"]
    features: dict[str, Feature] = {"v": Sequence(Struct((("w", Video()),))) if nested else Video()}
    rows = ({"v": [{"w": b"one"}, {"w": cell}] if nested else cell} for cell in cells)
    cache = Path(write_cache(rows, features, tmp_path / "cache").cache_dir)
    assert lading.verify(cache, deep=True).findings == []
    shard = cache / "shard-00000.arrow"
    with pa.ipc.open_file(shard) as file:
        table = file.read_all()
    made = table.to_pylist()
    [*_, cell] = [part["w"] for part in made[2]["v"]] if nested else [made[2]["v"]]
    cell.update(change)
    with pa.ipc.new_file(shard, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(made, table.schema))
    assert lading.verify(cache).findings == []
    [found] = lading.verify(cache, deep=True).findings
    assert (found["error"], found["file"], found["row"], found["column"]) == ("SidecarMismatch", str(shard), 2, "v")
    assert told in found["message"]


def test_a_checksum_of_another_kind_says_nothing_of_a_film(golden: Golden, tmp_path: Path) -> None:
    """stable-datasets keeps whatever it is given."""
    case = golden("arrow") / "stable-video-path"
    assert lading.verify(case, deep=True).findings == []
    copy = Path(shutil.copytree(case, tmp_path / "copy"))
    for path in (copy / "_assets/video").iterdir():
        path.write_bytes(path.read_bytes()[::-1])
    assert [found["message"] for found in lading.verify(copy, deep=True).findings][:1] == [
        "the file of a video differs from its checksum"
    ]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["arrow", "parquet"])
def test_a_copy_has_the_films(target: str, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = lading.convert(cache, out, format=target, verify=True)
    assert (done.counts, lading.verify(out, deep=True).findings) == ({}, [])
    with lading.open(out) as dataset:
        assert [row.get("v") for row in dataset] == [row["v"] for row in rows()]
        cells = [row["v"] for row in dataset.take(range(4)).to_pylist()]
    assert cells[0] is None
    assert {(cell["mode"], cell["path"]) for cell in cells[1:]} == {("bytes", None)}
    write_cache(rows(), {**_FEATURES, "v": Video()}, tmp_path / "bytes")
    digests = {lading.digest(out).ordered, lading.digest(tmp_path / "bytes").ordered}
    assert digests == {lading.digest(cache, options=_LOAD).ordered}
    if target == "arrow":
        assert validate_cache(out, {**_FEATURES, "v": Video()}).num_rows == 4


@pytest.mark.soak
def test_a_copy_by_workers_has_the_films(tmp_path: Path) -> None:
    write_cache(rows(8), _FEATURES, tmp_path / "cache", shard_size=1, batch_size=2)
    lading.convert(tmp_path / "cache", tmp_path / "out", format="parquet", shard_size=1, **by_tasks(2), verify=True)
    with lading.open(tmp_path / "out") as dataset:
        assert [row.get("v") for row in dataset] == [row["v"] for row in rows(8)]


def test_films_are_left_where_that_is_asked_for_and_told(cache: Path, tmp_path: Path) -> None:
    done = lading.convert(cache, tmp_path / "out", format="arrow", verify=True, source_options={"load_assets": False})
    assert done.counts == {"videos in files of their own, left there (load_assets=true reads them)": 3}
    assert len(lading.verify(tmp_path / "out").findings) == 3


def test_films_that_are_not_read_are_not_lost_unsaid(cache: Path, tmp_path: Path) -> None:
    film(cache, b"film-2").unlink()
    with pytest.raises(LadingError, match=r"column 'v': no such file"):
        lading.convert(cache, tmp_path / "out", format="parquet")
    write_cache([{"l": [{"n": 1, "w": b"one"}]}], _INSIDE, tmp_path / "inside")
    with pytest.raises(UsageError, match=r"column 'l': files of videos inside lists.*'load_assets': False"):
        lading.convert(tmp_path / "inside", tmp_path / "out", format="parquet")
    assert not os.path.lexists(tmp_path / "out")


def test_salvage_loses_the_rows_whose_films_are_lost_and_no_others(cache: Path, tmp_path: Path) -> None:
    assert salvage(cache, tmp_path / "whole").ok
    film(cache, b"film-2").unlink()
    result = salvage(cache, tmp_path / "out")
    assert (result.samples, result.lost_samples, len(result.lost)) == (3, 1, 1)
    with lading.open(tmp_path / "out") as dataset:
        assert [row.get("v") for row in dataset] == [None, b"film-1", b"film-3"]


def test_films_of_a_damaged_cache_are_read_from_the_store_where_it_lies(cache: Path, tmp_path: Path) -> None:
    [shard] = cache.glob("*.arrow")
    body = shard.read_bytes()
    shard.write_bytes(body[:-40])  # without its footer the shard is laid out anew, on this machine
    files = {f"memory://far/{p.relative_to(cache)}": p.read_bytes() for p in cache.rglob("*") if p.is_file()}
    salvage("memory://far", tmp_path / "out", stores=Stores({"memory://far": MemoryStore(files)}))
    with lading.open(tmp_path / "out") as dataset:
        assert [row.get("v") for row in dataset] == [None, b"film-1", b"film-2", b"film-3"]


def test_a_copy_with_the_bytes_of_videos_is_equal(tmp_path: Path) -> None:
    write_cache(rows(), _FEATURES, tmp_path / "cache")
    assert lading.convert(tmp_path / "cache", tmp_path / "out", format="parquet", verify=True).verified
    assert lading.diff(tmp_path / "cache", tmp_path / "out").equal
    as_stored = {"options": {"load_assets": False}}
    assert not lading.diff(tmp_path / "cache", tmp_path / "out", options=(as_stored, {})).equal
