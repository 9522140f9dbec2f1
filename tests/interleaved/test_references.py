"""`source_ref` texts of tables: what they point to, what they may not, and what becomes of those that fail."""

from __future__ import annotations

import gzip
import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.arrow.references import is_ref
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.storage.base import FileInfo
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import BadReference, CorruptShard, StoreError, UsageError
from lading.testing import CountingStore
from tars import tar_of

RED, BLUE = b"red" * 300, b"blue" * 200
FAR = b"far away" * 50


def ref(path: str | None, member: str | None = None, offset: Any = None, size: Any = None, **more: Any) -> str:
    return json.dumps({"path": path, "member": member, "byte_offset": offset, "byte_size": size, **more})


def item(source_ref: str | None, **more: Any) -> dict[str, Any]:
    return {"sample_id": "s", "modality": "image", "source_ref": source_ref, **more}


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    named = [{**dict.fromkeys(INTERLEAVED_SCHEMA.names), "position": i, **row} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(named, INTERLEAVED_SCHEMA), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a loose picture, a tar, and the same tar compressed."""
    place = tmp_path / "data"
    place.mkdir()
    (place / "red é.jpg").write_bytes(RED)
    (place / "sub").mkdir()
    (place / "sub" / "p.tar").write_bytes(tar_of(("a.jpg", RED), ("b.jpg", BLUE), ("none.jpg", b"")))
    (place / "p.tar.gz").write_bytes(gzip.compress(tar_of(("a.jpg", RED), ("b.jpg", BLUE))))
    (tmp_path / "secret").write_bytes(b"secret")
    return place


def contents(source: Path, **options: Any) -> list[bytes | None]:
    with lading.open(source, **options) as dataset:
        return [value for batch in dataset.batches() for value in batch.column("binary_content").to_pylist()]


def errors(source: Path, **options: Any) -> list[str | None]:
    with pytest.warns(UserWarning, match="ha(s|ve) no bytes"), lading.open(source, **options) as dataset:
        [batch] = dataset.batches(on_error="warn")
    assert batch.column("binary_content").null_count == batch.num_rows
    return list(batch.column("materialize_error").to_pylist())


def test_every_form(folder: Path) -> None:
    inside = 512 + 1024 + 512  # a header, RED in two blocks, a header
    rows = [
        item(ref("red é.jpg")),
        item(ref(str(folder / "red é.jpg"), None, 7, 9)),  # without a member: the whole file, whatever it says
        item(ref("sub/p.tar", "a.jpg", 512, len(RED))),
        item(ref("sub/p.tar", "b.jpg")),
        item(ref("sub/p.tar", "none.jpg", 4096, 0)),
        item(ref("p.tar.gz", "b.jpg")),
        item(ref("p.tar.gz", "b.jpg", inside, len(BLUE))),  # counts in the tar, never in the compressed file
        item(ref("sub/p.tar", "b.jpg", str(inside), str(len(BLUE)))),
        item(ref(f"file://{folder}/red é.jpg")),
    ]
    assert contents(write_table(folder / "t.parquet", rows)) == [RED, RED, RED, BLUE, b"", BLUE, BLUE, BLUE, RED]


def test_lazy_rows_are_references_and_nothing_is_read_before_they_are_asked_for(folder: Path) -> None:
    table = write_table(folder / "t.parquet", [item(ref("sub/p.tar", "b.jpg")), item(None, modality="text")])
    with lading.open(table) as dataset:
        [batch] = dataset.batches(lazy=True)
        assert is_ref(batch.schema.field("binary_content").type)
        os.truncate(folder / "sub" / "p.tar", 100)
        with pytest.raises(CorruptShard, match="replaced"):
            dataset._rows.materialise(batch)


def test_random_access_follows_too(folder: Path) -> None:
    rows = [{**item(ref("red é.jpg")), "sample_id": "a"}, {**item(ref("sub/p.tar", "b.jpg")), "sample_id": "b"}]
    with lading.open(write_table(folder / "t.parquet", rows)) as dataset:
        assert dataset[1]["items"][0]["binary_content"] == BLUE
        assert dataset.take([1, 0], columns=["binary_content"]).column("binary_content").to_pylist() == [BLUE, RED]
        assert [s["items"][0]["binary_content"] for s in dataset.samples()] == [RED, BLUE]


def test_rows_with_bytes_beside_rows_with_references(folder: Path) -> None:
    rows = [item(ref("red é.jpg")), item(None, binary_content=b"own"), item(ref("nowhere.jpg"), binary_content=FAR)]
    assert contents(write_table(folder / "t.parquet", rows)) == [RED, b"own", FAR]


def test_only_items_with_bytes_are_followed(folder: Path) -> None:
    rows = [
        item(ref("sub/p.tar", "a.jpg"), modality="metadata", position=-1),
        item(ref("nowhere"), modality="text", position=0, text_content="t"),
        item(ref("red é.jpg"), modality="audio", position=1),
    ]
    assert contents(write_table(folder / "t.parquet", rows)) == [None, None, RED]


def test_beside_the_table_comes_before_the_current_directory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "red é.jpg").write_bytes(b"another")
    (here / "only here.jpg").write_bytes(FAR)
    monkeypatch.chdir(here)
    table = write_table(folder / "t.parquet", [item(ref("red é.jpg")), item(ref("only here.jpg"))])
    assert contents(table, roots=["."]) == [RED, FAR]


@pytest.mark.parametrize(
    "path",
    ["../secret", "{}/secret", "/etc/passwd", "link", "sub/../../secret", "file:///etc/passwd", "s3://bucket/x"],
)
def test_what_lies_outside_the_roots_is_not_read(path: str, folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path / "secret")
    table = write_table(folder / "t.parquet", [item(ref(path.format(tmp_path)))])
    [error] = errors(table)
    assert error is not None
    assert "outside the folders" in error
    with lading.open(table) as dataset, pytest.raises(BadReference, match="roots="):
        list(dataset.batches())


def test_roots_that_the_caller_adds(folder: Path, tmp_path: Path) -> None:
    table = write_table(folder / "t.parquet", [item(ref("../secret"))])
    assert contents(table, roots=[tmp_path]) == [b"secret"]
    with pytest.raises(UsageError, match="list of folders"):
        lading.open(table, roots=str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    "text, says",
    [
        (ref("nowhere.jpg"), "nowhere.jpg"),
        (ref("sub/p.tar", "c.jpg"), "no plain member 'c.jpg'"),
        (ref("red é.jpg", "a.jpg"), "red é.jpg"),  # no tar
        (ref("sub"), "no regular file"),
        (ref("fifo"), "no regular file"),
        (ref("pipe:cat /etc/passwd"), "command"),
        (ref("x\0y"), "no path"),
        (ref("x" * 5000), "too long"),
        (ref("a/" * 500_000), "no path"),
        (ref("sub/p.tar", "a.jpg", 512, 1 << 40), "past the end"),
        (ref("sub/p.tar", "a.jpg", -1, 5), "whole number"),
        ("{", "source_ref cannot be read"),
        (None, "names no source"),
        ("", "names no source"),
        (ref(None), "names no source"),
    ],
)
def test_a_reference_that_fails_is_an_error_of_its_row(text: str | None, says: str, folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    [error] = errors(write_table(folder / "t.parquet", [item(text)]))
    assert error is not None
    assert says in error


def test_an_item_without_bytes_and_source_is_a_null_unless_a_policy_says_otherwise(folder: Path) -> None:
    table = write_table(folder / "t.parquet", [item(None), item(ref("red é.jpg"))])
    assert contents(table) == [None, RED]
    with lading.open(table) as dataset:
        [batch] = dataset.batches(on_error="drop_row")
    assert batch.column("binary_content").to_pylist() == [RED]


@pytest.mark.parametrize("path", ["x" * 5000, "../" + "x" * 5000, "s/" * 2500, "http://host/" + "x" * 5000])
def test_of_a_path_of_any_length_the_beginning_is_told(path: str, folder: Path) -> None:
    write_table(folder / "t.parquet", [item(ref(path)), item(ref("sub/p.tar", "m" * 5000))])
    first, second = lading.verify(folder / "t.parquet", deep=True).findings
    assert len(str(first["message"])) < 600
    assert path[:80] in str(first["message"])
    assert len(str(second["message"])) < 600


def test_an_error_that_came_with_the_row_stays(folder: Path) -> None:
    rows = [item(ref("red é.jpg"), materialize_error="an earlier stage says so"), item(ref("red é.jpg"))]
    table = write_table(folder / "t.parquet", rows)
    with lading.open(table) as dataset, pytest.raises(BadReference, match="an earlier stage says so"):
        list(dataset.batches())
    with lading.open(table) as dataset:
        [batch] = dataset.batches(on_error="drop_row")
    assert batch.column("position").to_pylist() == [1]


@pytest.mark.parametrize("policy, left", [("drop_row", [0, 2, 3]), ("drop_sample", [2, 3])])
def test_policies(policy: Any, left: list[int], folder: Path) -> None:
    rows = [{**item(ref(p)), "sample_id": s} for p, s in (("red é.jpg", "a"), ("no", "a"), ("red é.jpg", "b"))]
    rows.append({**item(None, binary_content=BLUE), "sample_id": "b"})
    with lading.open(write_table(folder / "t.parquet", rows)) as dataset:
        kept = [p for batch in dataset.batches(on_error=policy, views=True) for p in batch["position"].to_pylist()]
        assert kept == left
        assert sum(dataset.counts.values()) == 4 - len(left)
        assert dataset.counts == dataset.write(folder / "out", format="parquet", on_error=policy).counts


def test_batches_count_what_is_referenced(folder: Path) -> None:
    rows = [{**item(ref("red é.jpg")), "sample_id": f"s{i}"} for i in range(6)]
    with lading.open(write_table(folder / "t.parquet", rows)) as dataset:
        sizes = [batch.num_rows for batch in dataset.batches(max_bytes=2 * len(RED) + 400)]
    assert max(sizes) == 2
    assert sum(sizes) == 6


def test_one_batch_over_several_stores_asks_each_for_little(folder: Path) -> None:
    tar = tar_of(("a.jpg", RED), ("b.jpg", BLUE))
    box = CountingStore(MemoryStore({"box://far/p.tar": tar, "box://far/c.jpg": FAR}))
    box.request_bytes = 1 << 20
    place = "box://far/p.tar"
    rows = [
        item(ref(place, "a.jpg", 512, len(RED))),
        item(ref("red é.jpg")),
        item(ref(place, "b.jpg", 2048, len(BLUE))),
        item(ref("box://far/c.jpg")),
        item(ref(place, "a.jpg", 512, len(RED))),
    ]
    table = write_table(folder / "t.parquet", rows)
    found = contents(table, stores=Stores({"box://": box}), roots=["box://far"])
    assert found == [RED, RED, BLUE, FAR, RED]
    assert box.requests["head"] == 2
    # The first bytes tell whether a tar is compressed; then one range for neighbours, asked for once.
    assert box.ranges == {place: [(0, 16), (512, 1536 + len(BLUE))], "box://far/c.jpg": [(0, len(FAR))]}


def test_a_tar_is_walked_once_for_all_its_members(folder: Path) -> None:
    box = CountingStore(MemoryStore({"box://p.tar": tar_of(*((f"{i}.jpg", RED) for i in range(50)))}))
    rows = [{**item(ref("box://p.tar", f"{i}.jpg")), "sample_id": f"s{i}"} for i in range(50)]
    table = write_table(folder / "t.parquet", rows)
    once = contents(table, stores=Stores({"box://": box}), roots=["box://"])
    assert once == [RED] * 50
    walked = sum(length for _, length in box.ranges["box://p.tar"])
    with lading.open(table, stores=Stores({"box://": box}), roots=["box://"]) as dataset:
        box.reset()
        assert len(list(dataset.batches(max_bytes=1500))) == 50
    assert sum(length for _, length in box.ranges["box://p.tar"]) <= walked


@pytest.mark.parametrize(
    "options",
    [{"columns": ["sample_id", "binary_content"]}, {"schema": INTERLEAVED_SCHEMA.remove(7)}],
    ids=["columns", "schema"],
)
def test_a_failure_shows_also_where_nobody_asked_for_errors(options: dict[str, Any], folder: Path) -> None:
    rows = [item(ref("/etc/passwd"), sample_id="a"), item(ref("red é.jpg"), sample_id="b")]
    table = write_table(folder / "t.parquet", rows)
    columns = options.pop("columns", None)
    with lading.open(table, **options) as dataset:
        with pytest.raises(BadReference, match="roots="):
            list(dataset.batches(columns=columns))
        [batch] = dataset.batches(columns=columns, on_error="drop_row")
        assert batch.column("binary_content").to_pylist() == [RED]
        assert "materialize_error" not in batch.schema.names
    if columns is None:
        with pytest.raises(BadReference, match="roots="):
            lading.convert(table, folder.parent / "out", format="parquet", **options)
        lading.convert(table, folder.parent / "out", format="parquet", on_error="drop_row", verify=True, **options)
        assert "materialize_error" not in pq.read_schema(folder.parent / "out" / "shard-000000.parquet").names


@pytest.mark.parametrize("path", ["%2e%2e/secret", "http://h/data/%2E%2e/secret", "http://h/data/.\t./secret"])
def test_urls_that_others_would_read_otherwise(path: str, folder: Path) -> None:
    body = (write_table(folder / "t.parquet", [item(ref(path))])).read_bytes()
    store = MemoryStore({"http://h/data/t.parquet": body, "http://h/data/%2e%2e/secret": b"s", "http://h/secret": b"s"})
    stores = Stores({"http://": store})
    with lading.open("http://h/data/t.parquet", stores=stores) as dataset, pytest.raises(BadReference):
        list(dataset.batches())


def test_links_are_followed_through_other_stores_over_the_same_files(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path / "secret")
    write_table(folder / "t.parquet", [item(ref("link"))])
    with lading.open(f"local://{folder}/t.parquet") as dataset, pytest.raises(BadReference, match="roots="):
        list(dataset.batches())


def test_sizes_that_cannot_be(folder: Path) -> None:
    rows = [item(ref("red é.jpg"), sample_id=f"{i}") for i in range(4)]
    rows[2] = item(ref("sub/p.tar", "m", 0, (1 << 63) - 1), sample_id="2")
    table = write_table(folder / "t.parquet", rows)
    with lading.open(table) as dataset:
        sizes = [batch.num_rows for batch in dataset.batches(max_bytes=len(RED) + 400, on_error="drop_row")]
    assert max(sizes) == 1
    assert sum(sizes) == 3
    held = [item(ref("sub/p.tar", "m", (1 << 63) - 1, 5), binary_content=b"BYTES")]
    lading.convert(write_table(folder / "h.parquet", held), folder.parent / "lazy", format="parquet", lazy=True)
    assert pq.read_table(folder.parent / "lazy" / "shard-000000.parquet")["binary_content"].to_pylist() == [b"BYTES"]


def test_bytes_are_left_where_they_are_only_if_they_are_there(folder: Path) -> None:
    """A bitmap, or a recording, that was edited in place has the length that it had."""
    (folder / "edited.bmp").write_bytes(RED)
    held = [
        item(ref("red é.jpg"), binary_content=RED),
        item(ref("edited.bmp"), binary_content=RED[::-1]),
        item(ref("sub/p.tar", "b.jpg"), binary_content=BLUE),
        item(ref("sub/p.tar", "b.jpg"), binary_content=BLUE[::-1]),
        item(ref("red é.jpg"), binary_content=RED[1:]),
    ]
    lading.convert(write_table(folder / "h.parquet", held), folder.parent / "lazy", format="parquet", lazy=True,
                   roots=[folder])  # fmt: skip
    stored = pq.read_table(folder.parent / "lazy" / "shard-000000.parquet").column("binary_content").to_pylist()
    assert stored == [None, RED[::-1], None, BLUE[::-1], RED[1:]]
    assert contents(folder.parent / "lazy", roots=[folder]) == [row["binary_content"] for row in held]


class _Locked(CountingStore):
    """Lets nobody read files of some names; it tells that they are there, or not even that."""

    tells = True

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Any]:
        self._check(path)
        return super().get_ranges(path, ranges, version)

    def head(self, path: str) -> FileInfo:
        if not self.tells:
            self._check(path)
        return super().head(path)

    def _check(self, path: str) -> None:
        if "locked" in path:
            raise StoreError("access denied", file=path)


@pytest.mark.parametrize("tells", [True, False])
def test_bytes_stay_where_their_source_may_not_be_read(tells: bool, tmp_path: Path) -> None:
    tar = tar_of(("a.jpg", RED))
    files = {"1.jpg": BLUE, "locked 2.jpg": RED, "3.jpg": RED, "4.jpg": BLUE, "locked 5.jpg": RED, "locked 6.tar": tar}
    box = _Locked(MemoryStore({f"box://pics/{name}": data for name, data in files.items()}))
    box.tells = tells
    rows = [
        item(ref(f"box://pics/{name}", "a.jpg" if data is tar else None), sample_id=name,
             binary_content=RED if data is tar else data)
        for name, data in files.items()
    ]  # fmt: skip
    table = write_table(tmp_path / "h.parquet", rows)
    lading.convert(
        table, tmp_path / "lazy", format="parquet", lazy=True, roots=["box://pics"], stores=Stores({"box://": box})
    )
    stored = pq.read_table(tmp_path / "lazy" / "shard-000000.parquet")["binary_content"].to_pylist()
    assert stored == [None, RED, None, None, RED, RED]


def test_an_empty_error_is_none(folder: Path) -> None:
    assert contents(write_table(folder / "t.parquet", [item(ref("red é.jpg"), materialize_error="")])) == [RED]


def test_only_the_run_of_rows_that_fails_is_dropped(folder: Path) -> None:
    for name, paths in (("0", [("x", "no"), ("y", "red é.jpg")]), ("1", [("z", "red é.jpg"), ("x", "red é.jpg")])):
        write_table(folder / f"{name}.parquet", [item(ref(path), sample_id=s) for s, path in paths])
    for most in (1, None):
        with lading.open(str(folder / "*.parquet")) as dataset:
            found = dataset.batches(on_error="drop_sample", shards_per_batch=most)
            assert [s for batch in found for s in batch["sample_id"].to_pylist()] == ["y", "z", "x"]


def test_a_batch_of_very_many_files(folder: Path) -> None:
    for i in range(700):
        (folder / f"{i}.jpg").write_bytes(b"%d" % i)
    table = write_table(folder / "t.parquet", [item(ref(f"{i}.jpg")) for i in range(700)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        assert contents(table) == [b"%d" % i for i in range(700)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
