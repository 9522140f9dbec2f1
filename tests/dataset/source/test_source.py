"""What users name as a source."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import lading
from lading._core.dataset.query import open_shards
from lading._core.dataset.source.source import list_source
from lading._core.features.types import Value
from lading._core.secret_urls import shown, whole
from lading._core.storage.base import FileInfo
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading.caches import write_cache
from lading.errors import LadingError, SourceNotFound, StoreError, UnknownFormat, UsageError
from lading.testing import CountingStore


def test_many_names_are_made_one_by_one(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SourceNotFound):
            paths(f"{tmp_path}/{{0..9}}{{0..999998}}.tar")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def paths(source: object, stores: Stores | None = None) -> list[str]:
    return list_source(source, stores or Stores()).table.column("path").to_pylist()  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.tar", "a.tar", "sub/c.tar", ".hidden.tar", "_lading/x.tar", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1024))
    return tmp_path


def test_folders_globs_and_lists(folder: Path) -> None:
    f = str(folder)
    assert paths(folder) == [f"{f}/a.tar", f"{f}/b.tar", f"{f}/sub/c.tar"]
    assert paths(f"{f}/*.tar") == [f"{f}/a.tar", f"{f}/b.tar"]
    assert paths(f"{f}/**/*.tar") == paths(folder)
    assert paths(f"{f}/b.tar::{f}/a.tar") == [f"{f}/b.tar", f"{f}/a.tar"]
    assert paths([folder / "b.tar", f"{f}/{{a,b}}.tar"]) == [f"{f}/b.tar", f"{f}/a.tar", f"{f}/b.tar"]


def test_a_name_that_is_there_is_no_pattern(tmp_path: Path) -> None:
    inside = tmp_path / "ü [x]"
    inside.mkdir()
    for name in ("a[1].tar", "a1.tar", "b*.tar"):
        (inside / name).write_bytes(b"")
    assert paths(inside) == [str(inside / n) for n in ("a1.tar", "a[1].tar", "b*.tar")]
    for name in ("a[1].tar", "b*.tar"):
        assert paths(inside / name) == [str(inside / name)]
    assert paths(f"{tmp_path}/ü [[]x]/a[1].tar") == [str(inside / "a1.tar")]
    with pytest.raises(SourceNotFound, match=r"is written \[\[\]"):
        paths(f"{inside}/*.tar")


def test_urls_of_files_are_listed_as_paths_are(folder: Path) -> None:
    for name in ("", "/*.tar", "/a.tar"):
        assert paths(f"file://{folder}{name}") == paths(f"{folder}{name}")


TREE = ("a.tar", "b.txt", "sub/b.tar", "sub/deep/s.tar", "s/s.tar", ".h.tar", ".hid/h.tar", "_lading/x.tar")


@pytest.mark.parametrize(
    "pattern, found",
    [
        ("*.tar", ["a.tar"]),
        ("*", ["a.tar", "b.txt"]),
        ("**/*.tar", ["a.tar", "s/s.tar", "sub/b.tar", "sub/deep/s.tar"]),
        ("**", ["a.tar", "b.txt", "s/s.tar", "sub/b.tar", "sub/deep/s.tar"]),
        ("**/s*.tar", ["s/s.tar", "sub/deep/s.tar"]),
        ("**/sub/**/*.tar", ["sub/b.tar", "sub/deep/s.tar"]),
        ("**/**/deep/?.tar", ["sub/deep/s.tar"]),
        ("s*/*.tar", ["s/s.tar", "sub/b.tar"]),
        ("s**/*.tar", ["s/s.tar", "sub/b.tar"]),
        ("[!a]*/[!a].tar", ["s/s.tar", "sub/b.tar"]),
        (".*.tar", [".h.tar"]),
        ("**/.h*/*.tar", [".hid/h.tar"]),
        ("*/x.tar", []),
        ("_lading/*.tar", ["_lading/x.tar"]),
        ("**/_lading/*.tar", ["_lading/x.tar"]),
    ],
)
@pytest.mark.parametrize("place", ["here", "box://d"])
def test_globs_mean_the_same_in_all_stores(pattern: str, found: list[str], place: str, tmp_path: Path) -> None:
    if place == "here":
        place = str(tmp_path)
        for name in TREE:
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).touch()
    stores = Stores({"box://": MemoryStore({f"box://d/{name}": b"" for name in TREE})})
    if found:
        assert paths(f"{place}/{pattern}", stores) == [f"{place}/{name}" for name in found]
    else:
        with pytest.raises(SourceNotFound):
            paths(f"{place}/{pattern}", stores)


def test_links_are_followed_but_not_in_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("l", "far"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.tar").touch()
    for name, target in (("one", "."), ("two", "."), ("far", "../far")):
        (tmp_path / "l" / name).symlink_to(target)
    assert paths(f"{tmp_path}/l/**/*.tar") == [f"{tmp_path}/l/a.tar", f"{tmp_path}/l/far/a.tar"]
    monkeypatch.chdir(tmp_path / "l")
    assert paths("**/*.tar") == ["a.tar", "far/a.tar"]


@pytest.mark.parametrize("name", ["o::1", "a{1,2}b", "{0..1}", "${WDS_X}", "$x", "{a,b}::[c]*"])
def test_what_is_there_as_it_stands_is_that(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    shard = tmp_path / name / f"{name}.tar"
    shard.touch()
    for source in (shard, str(shard), [shard], tmp_path / name, f"file://{shard}"):
        assert paths(source) == [str(shard)]
    with lading.writer(tmp_path / name / "of rows", format="jsonl") as writer:
        writer.write({"x": 1})
    assert open_shards(tmp_path / name / "of rows").manifest is not None


@pytest.mark.parametrize("source", [b"x.tar", [b"x.tar"], 5, None, [1, 2], [None]])
def test_what_is_no_name_is_a_wrong_call(source: object) -> None:
    with pytest.raises(UsageError, match="names of files, a table or data frame, or dicts"):
        lading.open(source)  # type: ignore[arg-type] # as a caller without types would


class Signed(WrappedStore):
    """A server that gives what was asked for as it was signed, and nothing else."""

    def head(self, path: str) -> FileInfo:
        """Refuse all other paths."""
        if whole(path) not in ("https://h/d/a.tsv?sig=a/b*[", "https://h/get?id=3"):
            raise StoreError("forbidden", file=path)
        return self.inner.head(path)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Refuse."""
        raise StoreError("forbidden", file=prefix)


@pytest.mark.parametrize("url", ["https://h/d/a.tsv?sig=a/b*[", "https://h/get?id=3"])
def test_what_is_asked_of_a_web_server_is_no_pattern(url: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path, format="webdataset") as writer:
        writer.write({"__key__": "a", "txt": "x"})
    data = b"a\tb\n1\t2\n" if "tsv" in url else (tmp_path / "shard-000000.tar").read_bytes()
    stores = Stores({"https://": Signed(MemoryStore({shown(url): data}))})
    for source in (url, [url]):
        with lading.open(source, stores=stores) as dataset:
            assert dataset[0] == ({"a": "1", "b": "2"} if "tsv" in url else {"__key__": "a", "txt": "x"})
    assert lading.verify(url, stores=stores, deep=True).findings == []


def test_other_stores_are_listed_alike() -> None:
    store = MemoryStore({f"box://d/{n}": bytes(1024) for n in ("b.tar", "a.tar", "sub/c.tar")})
    stores = Stores({"box://": store})
    assert paths("box://d/*.tar", stores) == ["box://d/a.tar", "box://d/b.tar"]
    assert paths("box://d", stores) == ["box://d/a.tar", "box://d/b.tar", "box://d/sub/c.tar"]
    assert paths("box://d/{a,b}.tar", stores) == ["box://d/a.tar", "box://d/b.tar"]


def test_many_names_of_a_remote_store_cost_one_listing() -> None:
    files = {f"box://a/{i:03}.tar": b"x" for i in range(100)}
    counting = CountingStore(MemoryStore(files))
    stores = Stores({"box://": counting})
    assert list_source("box://a/{000..099}.tar", stores).table.column("path").to_pylist() == list(files)
    assert counting.requests == {"walk": 1, "head": 1}  # and a look for an unfinished commit
    counting.reset()
    assert len(list_source("box://a/007.tar", stores)) == 1
    assert counting.requests == {"head": 1}
    with pytest.raises(SourceNotFound, match=r"100\.tar"):
        list_source("box://a/{000..100}.tar", stores)


def test_files_in_many_folders_are_looked_at_one_by_one() -> None:
    names = [f"box://{folder}/s-{i}.tar" for folder in ("a", "z") for i in range(10)]
    counting = CountingStore(MemoryStore(dict.fromkeys([*names, *(f"box://m/{i}" for i in range(500))], b"x")))
    assert len(list_source("box://{a,z}/s-{0..9}.tar", Stores({"box://": counting}))) == 20
    assert counting.requests == {"head": 20 + 2}  # and a look for an unfinished commit in each folder


class Secretive(WrappedStore):
    """A store that shows its files and no list of them, as some web servers do."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Refuse."""
        raise StoreError("forbidden", file=prefix)


def test_a_store_that_lists_nothing_still_has_its_files() -> None:
    files = {f"box://a/{i:02}.tar": b"x" for i in range(30)}
    stores = Stores({"box://": Secretive(MemoryStore(files))})
    assert list_source("box://a/{00..29}.tar", stores).table.column("path").to_pylist() == list(files)


def test_a_remote_folder_may_be_called_as_a_shard_is() -> None:
    files = {f"box://a/{i}.parquet/part-{k}.parquet": b"x" for i in (1, 2) for k in (0, 1)}
    stores = Stores({"box://": MemoryStore(files)})
    assert list_source("box://a/1.parquet", stores).table.column("path").to_pylist() == list(files)[:2]
    assert list_source("box://a/{1..2}.parquet", stores).table.column("path").to_pylist() == list(files)


def test_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_DATA", str(folder))
    monkeypatch.setenv("HOME_DATA", str(folder))
    assert paths("${WDS_DATA}/a.tar") == [f"{folder}/a.tar"]
    with pytest.raises(SourceNotFound):
        paths("${HOME_DATA}/a.tar")
    with pytest.raises(UsageError, match="WDS_NOPE"):
        paths("${WDS_NOPE}/a.tar")


@pytest.mark.parametrize("source", ["pipe:cat a.tar", "a.tar::pipe:touch /tmp/x"])
def test_commands_are_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, SourceNotFound)):
        paths(source)


def test_what_is_not_there(folder: Path) -> None:
    for source in (folder / "x.tar", f"{folder}/*.parquet", folder / "sub" / "..nothing", []):
        with pytest.raises(SourceNotFound):
            paths(source)
    (folder / "p.parquet").write_bytes(b"PAR1")
    with pytest.raises(UnknownFormat, match="several formats"):
        paths(folder)


def test_a_name_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    name = tmp_path / "b\udcff.jsonl"
    name.write_text("{}")
    for source in (tmp_path, name, f"{tmp_path}/*.jsonl"):
        with pytest.raises(StoreError, match=r"b\\udcff.jsonl.*invalid UTF-8"):
            paths(source)


@pytest.mark.parametrize("count", [(1 << 50) + 1, 1 << 63, 10**40])
@pytest.mark.parametrize("place", ["nsamples", "filesize", "mds samples", "mds bytes", "arrow"])
def test_a_count_that_no_shard_has_is_an_error_of_the_index(place: str, count: int, tmp_path: Path) -> None:
    if place.startswith("mds"):
        with lading.writer(tmp_path, format="mds") as writer:
            writer.write({"x": 1})
        index = tmp_path / "index.json"
        told = json.loads(index.read_bytes())
        [shard] = told["shards"]
        target, name = (shard, "samples") if place == "mds samples" else (shard["raw_data"], "bytes")
        target[name] = count
    elif place == "arrow":
        write_cache([{"x": 1}], {"x": Value("int64")}, tmp_path)
        index = tmp_path / "_metadata.json"
        told = json.loads(index.read_bytes()) | {"shard_row_counts": [count], "num_rows": count}
    else:
        (tmp_path / "a.tar").write_bytes(bytes(10240))
        index = tmp_path / "index.json"
        entry = {"url": "a.tar", "nsamples": 0, "filesize": 10240, place: count}
        told = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [entry]}
    index.write_text(json.dumps(told))
    shutil.rmtree(tmp_path / "_lading", ignore_errors=True)
    # A tar's folder is one without its wids index.
    source = index if place in ("nsamples", "filesize") else tmp_path
    with pytest.raises(LadingError) as raised, lading.open(source) as dataset:
        len(dataset)
    assert str(index) in str(raised.value)
