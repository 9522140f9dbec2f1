"""Where a dataset may appear, and that what lies there stays unless it is to be replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from fault_proxy import fault_proxy
from lading._core.dataset.query import open_shards
from lading._core.manifest import values as mf
from lading._core.manifest.builds import builds_of
from lading._core.manifest.commit import Staging, sweep_unbegun
from lading._core.storage.base import FileInfo, Store, write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import DestinationExists, StoreError, UsageError
from object_server import BUCKET, options


def _written(folder: Path, *texts: str) -> None:
    with lading.writer(folder, format="jsonl") as writer:
        for text in texts:
            writer.write({"txt": text})


def _into(destination: str) -> None:
    lading.writer(destination, overwrite=True)


def _converted(destination: str) -> None:
    lading.convert("../src", destination, format="parquet", overwrite=True)


def _salvaged(destination: str) -> None:
    lading.salvage("../src", destination, overwrite=True)


def _merged(destination: str) -> None:
    lading.merge(destination, overwrite=True)


@pytest.mark.cases(3)
@pytest.mark.parametrize("job", [_into, _converted, _salvaged, _merged])
@pytest.mark.parametrize("destination", ["", "/", "file:///", "memory://"])
def test_a_destination_without_a_name_is_refused(
    destination: str, job: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / "src", "a")
    _written(tmp_path / "here", "mine")
    monkeypatch.chdir(tmp_path / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="names no folder"):
        job(destination)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("job", [_into, _converted, _salvaged])
@pytest.mark.parametrize("destination", [".", "..", "file://.", "../../up/here"])
def test_the_current_directory_is_not_replaced(
    destination: str, job: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / "src", "a")
    (tmp_path / "up" / "here").mkdir(parents=True)
    (tmp_path / "up" / "src").symlink_to(tmp_path / "src")
    monkeypatch.chdir(tmp_path / "up" / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="current directory"):
        job(destination)
    assert sorted(tmp_path.rglob("*")) == before


def _texts(folder: Path | str) -> list[str]:
    with lading.open(folder) as dataset:
        return [sample["txt"] for sample in dataset]


@pytest.mark.parametrize("folder", ["out", "memory://writers/out"])
def test_of_two_writers_of_one_place_the_second_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (lading.writer(folder, format="jsonl") for _ in range(2))
    one.write({"txt": "first"})
    other.write({"txt": "second"})
    one.close()
    with pytest.raises(DestinationExists, match=rf"^{folder}: "):
        other.close()
    assert _texts(folder) == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * (folder == "out")


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_a_user_puts_there_meanwhile_stays(overwrite: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = lading.writer(out, format="jsonl", overwrite=overwrite)
    writer.write({"txt": "a"})
    (out / "mine").write_text("kept")
    with pytest.raises(DestinationExists):
        writer.close()
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("mine", "kept")]


@pytest.mark.parametrize("inside", ["", "empty", ".x.lading-0123456789abcdef.tmp"])
def test_a_folder_without_files_is_nothing(inside: str, tmp_path: Path) -> None:
    (tmp_path / "out" / inside).mkdir(parents=True)
    _written(tmp_path / "out", "a")
    assert _texts(tmp_path / "out") == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_rank_may_write_into_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces nothing but files of its own."""
    monkeypatch.chdir(tmp_path)
    with lading.writer(".", format="jsonl", rank=3) as writer:
        writer.write({"txt": "a"})
    with lading.open(tmp_path) as dataset:
        assert [sample["txt"] for sample in dataset] == ["a"]


def _of_rank(folder: Path | str, rank: int, *texts: str, overwrite: bool = False, shard_size: int = 1) -> None:
    with lading.writer(folder, format="jsonl", rank=rank, overwrite=overwrite, shard_size=shard_size) as writer:
        for text in texts:
            writer.write({"txt": text})


def test_what_a_rank_wrote_is_replaced_only_if_told(tmp_path: Path) -> None:
    for rank in range(2):
        _of_rank(tmp_path / "out", rank, f"of {rank}")
    with pytest.raises(DestinationExists, match="rank"):
        _of_rank(tmp_path / "out", 0, "anew")
    assert _texts(tmp_path / "out") == ["of 0", "of 1"]
    _of_rank(tmp_path / "out", 0, "anew", overwrite=True)
    assert _texts(tmp_path / "out") == ["anew", "of 1"]


def test_a_reader_does_not_go_on_with_rows_of_a_rank_that_was_replaced(tmp_path: Path) -> None:
    for rank in range(2):
        _of_rank(tmp_path / "out", rank, f"old {rank}.0", f"old {rank}.1")
    with lading.open(tmp_path / "out") as dataset:
        rows = iter(dataset)
        assert next(rows)["txt"] == "old 0.0"
        _of_rank(tmp_path / "out", 0, "new 0.0", "new 0.1", overwrite=True)
        with pytest.raises(StoreError, match="another dataset took the place"):
            list(rows)


def test_of_two_writers_of_one_rank_the_second_is_refused(tmp_path: Path) -> None:
    one, other = (lading.writer(tmp_path / "out", format="jsonl", rank=0) for _ in range(2))
    one.write({"txt": "first"})
    other.write({"txt": "second"})
    one.close()
    with pytest.raises(DestinationExists, match=f"^{tmp_path}/out: .*rank"):
        other.close()
    assert _texts(tmp_path / "out") == ["first"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("folder", ["out", "memory://ranks/{}/out"])
def test_a_rank_does_not_write_where_nobody_would_see_it(folder: str, overwrite: bool, tmp_path: Path) -> None:
    """Readers of a whole dataset go by its manifest alone."""
    folder = folder.format(overwrite) if "://" in folder else str(tmp_path / folder)
    writer = lading.writer(folder, format="jsonl", rank=0, overwrite=overwrite)
    writer.write({"txt": "new"})
    with lading.writer(folder, format="jsonl") as whole:
        whole.write({"txt": "old"})
    with pytest.raises(DestinationExists, match="complete dataset"):
        writer.close()
    with pytest.raises(DestinationExists, match="complete dataset"):
        lading.writer(folder, format="jsonl", rank=0, overwrite=overwrite)
    assert _texts(folder) == ["old"]


def test_a_rank_replaces_no_file_of_others(tmp_path: Path) -> None:
    mine = tmp_path / "out" / "00000-000001.jsonl"
    mine.parent.mkdir()
    mine.write_text("kept")
    with pytest.raises(DestinationExists, match="00000-000001"):
        _of_rank(tmp_path / "out", 0, "a", "b")
    assert [(path, path.read_text()) for path in (tmp_path / "out").rglob("*")] == [(mine, "kept")]
    _of_rank(tmp_path / "out", 0, "a", "b", overwrite=True)
    assert _texts(tmp_path / "out") == ["a", "b"]


@pytest.mark.parametrize("published", [1, 2, 3])
def test_a_rank_that_died_while_it_published_is_done_again(published: int, tmp_path: Path) -> None:
    """It leaves no manifest, and its files are in nobody's way."""
    folder, store = str(tmp_path / "out"), MemoryStore()

    class Dying(WrappedStore):
        left = published

        def publish(self, source: str, target: str, *, replace: bool = True) -> None:
            if not self.left:
                raise StoreError("killed", file=target)
            self.left -= 1
            super().publish(source, target, replace=replace)

    with pytest.raises(StoreError, match="killed"):
        _write_to(Dying(store), folder, "a", "b")
    assert len(list(store.walk(folder))) == published
    _write_to(store, folder, "c", "d")
    with lading.open(folder, stores=Stores({"": store})) as dataset:
        assert [sample["txt"] for sample in dataset] == ["c", "d"]


def _write_to(store: Store, folder: str, *texts: str) -> None:
    with lading.writer(folder, format="jsonl", rank=0, shard_size=1, stores=Stores({"": store})) as writer:
        for text in texts:
            writer.write({"txt": text})


def _dying(monkeypatch: pytest.MonkeyPatch, folder: Path, fmt: str, **told: Any) -> None:
    """A writer that is killed when all but its manifest is where it belongs."""
    publish = LocalStore.publish

    def until(self: LocalStore, source: str, target: str, *, replace: bool = True) -> None:
        if target.endswith("/manifest.json"):
            raise KeyboardInterrupt
        publish(self, source, target, replace=replace)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "publish", until)
        with pytest.raises(KeyboardInterrupt):
            _fill(folder, fmt, 4, rank=0, **told)


def _fill(folder: Path, fmt: str, count: int, **told: Any) -> None:
    with lading.writer(folder, format=fmt, shard_size=1, **told) as writer:
        for number in range(count):
            writer.write({"txt": str(number)})


@pytest.mark.parametrize("checksums", ["samples", "none"])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}])
@pytest.mark.parametrize("died", [False, True])
def test_a_rank_that_is_followed_by_one_of_fewer_shards_is_merged(
    died: bool, options: dict[str, str], checksums: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were too many would be of no part."""
    told: dict[str, Any] = {"options": options, "checksums": checksums}
    if died:
        _dying(monkeypatch, tmp_path / "out", "mds", **told)
    else:
        _fill(tmp_path / "out", "mds", 4, rank=0, **told)
    _fill(tmp_path / "out", "mds", 2, rank=0, overwrite=not died, **told)
    _fill(tmp_path / "out", "mds", 1, rank=1, **told)
    assert lading.merge(tmp_path / "out").samples == 3
    assert lading.verify(tmp_path / "out").ok
    assert _texts(tmp_path / "out") == ["0", "1", "0"]


def test_who_follows_a_rank_that_died_replaces_no_file_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _dying(monkeypatch, tmp_path / "out", "jsonl")
    theirs = tmp_path / "out" / "00000-000004.jsonl"
    theirs.write_text("kept")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(DestinationExists, match="00000-000004"):
        _fill(tmp_path / "out", "jsonl", 5, rank=0)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_a_list_of_shards_is_not_taken_for_one_of_lading_s_own_files(tmp_path: Path) -> None:
    """Whoever made it: what lies in `_lading` is not deleted by it."""
    _fill(tmp_path / "out", "jsonl", 1, rank=1)
    before = open_shards(tmp_path / "out")
    shards = pa.Table.from_pylist([{**before.kept_shards.to_pylist()[0], "path": "_lading/00001/manifest.json"}])
    before.close()
    (tmp_path / "out" / "_lading" / "00000").mkdir()
    body = mf.write_shards(shards.cast(mf.SHARDS_SCHEMA), before.manifest)
    (tmp_path / "out" / "_lading" / "00000" / "shards.arrow").write_bytes(body)
    _fill(tmp_path / "out", "jsonl", 1, rank=0)
    assert _texts(tmp_path / "out") == ["0", "0"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_who_follows_a_rank_that_died_is_told_of_a_list_that_cannot_be_read(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under names without the rank nobody else knows whose the files are."""
    out = tmp_path / "out"
    _dying(monkeypatch, out, "jsonl", name="n-${shard}")
    listed = out / "_lading" / "00000" / "shards.arrow"
    listed.write_bytes(listed.read_bytes()[:100])
    before = sorted(out.rglob("*"))
    told = r"n-000000\.jsonl: .* found _lading/00000/shards\.arrow, .*cannot be read\. Delete .* by hand"
    with pytest.raises(DestinationExists, match=told):
        _fill(out, "jsonl", 2, rank=0, name="n-${shard}", overwrite=overwrite)
    assert sorted(out.rglob("*")) == before
    for path in out.glob("n-*"):
        path.unlink()
    _fill(out, "jsonl", 2, rank=0, name="n-${shard}", overwrite=overwrite)
    assert _texts(out) == ["0", "1"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("seen", [False, True])
def test_names_of_ranks_may_differ_by_words_and_tags(seen: bool, overwrite: bool, tmp_path: Path) -> None:
    """Names of another rank's files are refused, whether that one was before or comes at the same moment."""
    out = tmp_path / "out"
    before: dict[Path, bytes] = {}

    def other() -> None:
        _fill(out, "jsonl", 2, rank=0, name="node3-${shard}", overwrite=overwrite)
        before.update((path, path.read_bytes()) for path in out.rglob("*") if path.is_file())

    _fill(out, "jsonl", 1, rank=1, name="${host}-${shard}", tags={"host": "b"}, overwrite=overwrite)
    store: Store = LocalStore() if seen else _Interrupted(LocalStore(), other)
    if seen:
        other()
    with pytest.raises(DestinationExists, match="node3-000000"):
        _fill(out, "jsonl", 3, rank=2, name="node3-${shard}", overwrite=overwrite, stores=Stores({"": store}))
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    _fill(out, "jsonl", 1, rank=2, name="node4-${shard}", overwrite=overwrite)
    assert _texts(out) == ["0", "1", "0", "0"]


class _Interrupted(WrappedStore):
    """Something happens when this one has looked and is about to publish."""

    def __init__(self, inner: Store, happens: Callable[[], None]) -> None:
        super().__init__(inner)
        self._happens = [happens]

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        while self._happens:
            self._happens.pop()()
        super().publish(source, target, replace=replace)


class _Looked(CountingStore):
    """Counts what the walks give, too."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        for info in super().walk(prefix):
            self.count("walked")
            yield info


def _looks(own: int, others: int, *, overwrite: bool = False) -> Counter[str]:
    """What a rank that commits so many files asks of its place, where others wrote so many."""
    memory = MemoryStore()
    for number in range(others):
        with lading.writer("box://out", format="jsonl", rank=number + 1, stores=Stores({"box://": memory})) as writer:
            writer.write({"txt": "a"})
    store = _Looked(memory)
    stores = Stores({"box://": store})
    with lading.writer("box://out", format="jsonl", rank=0, shard_size=1, overwrite=overwrite, stores=stores) as writer:
        for number in range(own):
            writer.write({"txt": str(number)})
        writer.finish()
        store.reset()
    return store.requests


@pytest.mark.soak
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_rank_looks_at_nothing_that_others_wrote(overwrite: bool) -> None:
    """They may be very many, and come and go while it looks."""
    assert _looks(2, 20, overwrite=overwrite) == _looks(2, 0, overwrite=overwrite)


def test_a_rank_looks_at_its_place_as_often_for_many_files_as_for_few() -> None:
    """But for one look at each name that may be taken, where nothing is replaced: a walk goes over all of others."""
    few, many = (_looks(own, 0, overwrite=True) for own in (1, 20))
    assert (few["head"], few["walk"]) == (many["head"], many["walk"])
    few, many = (_looks(own, 0) for own in (1, 20))
    assert (few["head"] + 19, few["walk"]) == (many["head"], many["walk"])


def test_a_rank_commits_where_others_files_go_and_some_cannot_be_read(tmp_path: Path) -> None:
    class Changing(WrappedStore):
        def walk(self, prefix: str) -> Iterator[FileInfo]:
            if prefix.endswith(("/out", "/_lading")):
                raise StoreError("permission denied", file=f"{prefix}/lost+found")
            return super().walk(prefix)

    _fill(tmp_path / "out", "jsonl", 2, rank=1)
    for overwrite in (False, True):
        stores = Stores({"": Changing(LocalStore())})
        _fill(tmp_path / "out", "jsonl", 1, rank=0, overwrite=overwrite, stores=stores)
    assert _texts(tmp_path / "out") == ["0", "0", "1"]


def test_a_list_of_shards_deletes_no_folder(tmp_path: Path) -> None:
    """Whoever made it: all that is in a folder that it names would go."""
    out = tmp_path / "out"
    _fill(out, "jsonl", 1, rank=0)
    (out / "kept").mkdir()
    (out / "kept" / "a.txt").write_text("kept")
    with open_shards(out) as dataset:
        [row], manifest = dataset.kept_shards.to_pylist(), dataset.manifest
    shards = pa.Table.from_pylist([{**row, "path": "kept"}], schema=mf.SHARDS_SCHEMA)
    (out / "_lading" / "00000" / "shards.arrow").write_bytes(mf.write_shards(shards, manifest))
    with pytest.raises(StoreError, match="/kept: not a file"):
        _fill(out, "jsonl", 1, rank=0, overwrite=True)
    assert (out / "kept" / "a.txt").read_text() == "kept"


def _begun(store: Store, out: str, root: str | None = None) -> Staging:
    """A job whose commit has begun: it has a record, and built one dataset."""
    begun = Staging.begin(store, out, shared=False) if root is None else _gone_on(store, out, root)
    begun.keep_records(begun.journal)
    write_file(store, f"{begun.journal}/records/000000.json", [b"{}"])
    write_file(store, begun.path("shard"), [b"ours"])
    write_file(store, begun.path("_lading/manifest.json"), [b"ours"])
    write_file(store, f"{begun.journal}/plan.json", [b"{}"])
    begun.begin_commit(b"{}", b"{}")
    return begun


def _gone_on(store: Store, out: str, root: str) -> Staging:
    return Staging.resumed(store, out, root, had_ended=False)


def test_a_job_that_goes_on_replaces_no_dataset_that_appeared_meanwhile(server: str) -> None:
    """On a store files of the job may be at the destination already: the manifest tells whose it is."""
    out = f"s3://{BUCKET}/meanwhile/out"
    store, _ = resolve(out, Stores.of(None, options(server)))
    dead = _begun(store, out)
    for name in ("shard", "_lading/manifest.json"):
        write_file(store, f"{out}/{name}", [b"theirs"])
    with pytest.raises(DestinationExists, match=r"_lading/manifest\.json"):
        _begun(store, out, dead.journal).commit(overwrite=False)
    assert bytes(*store.get_ranges(f"{out}/shard", [(0, 6)])) == b"theirs"
    _begun(store, out, dead.journal).commit(overwrite=True)
    assert bytes(*store.get_ranges(f"{out}/shard", [(0, 4)])) == b"ours"


def test_only_what_a_job_left_before_its_plan_is_swept(server: str) -> None:
    """A writer has the same one file in its folder until it writes a shard."""
    out = f"s3://{BUCKET}/unplanned/out"
    store, _ = resolve(out, Stores.of(None, options(server)))
    dead = Staging.begin(store, out, shared=False, plans=True)
    with lading.writer(out, format="jsonl", storage_options=options(server)) as living:
        living.write({"txt": "a"})
        own = [root for root in builds_of(store, out) if root != dead.journal]
        for root in (dead.journal, *own):
            sweep_unbegun(store, root)
        assert builds_of(store, out) == own != []


def test_two_that_go_on_with_a_job_do_not_take_files_from_each_other(server: str) -> None:
    out = f"s3://{BUCKET}/twice/out"
    store, _ = resolve(out, Stores.of(None, options(server)))
    one = _begun(store, out)
    _gone_on(store, out, one.journal)
    one.commit(overwrite=False)
    names = ("_lading/job.json", "_lading/manifest.json", "shard")
    assert [info.path for info in store.walk(out)] == [f"{out}/{name}" for name in names]


def test_a_store_that_fails_behind_the_commit_is_a_warning(server: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    place = f"s3://{BUCKET}/whole"
    with fault_proxy(server, share=1, kinds=["503"]) as proxy:
        proxy.only = "?delete"
        asked = {**options(proxy.url), "retry_s": 0.3}
        with pytest.warns(UserWarning, match=f"{place} is complete.*503.*Run: lading clean {place}"):
            lading.convert(tmp_path / "a.jsonl", place, format="mds", storage_options=asked, progress=False)
    assert len(lading.open(place, storage_options=options(server))) == 1
    lading.clean(place, storage_options=options(server))
    names = [info.path for info in resolve(place, Stores.of(None, options(server)))[0].walk(f"s3://{BUCKET}")]
    assert [name for name in names if "whole" in name and not name.startswith(f"{place}/")] == []
