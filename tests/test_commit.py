"""Where a dataset may appear, and that what lies there stays unless it is to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lading
from lading.errors import DestinationExists, StoreError, UsageError
from lading.store.memory import MemoryStore
from lading.store.open import Stores
from lading.store.protocol import Store
from lading.store.wrap import WrappedStore


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


def test_what_a_user_puts_there_meanwhile_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    writer = lading.writer(out, format="jsonl")
    writer.write({"txt": "a"})
    (out / "mine").write_text("kept")
    with pytest.raises(DestinationExists):
        writer.close()
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("mine", "kept")]
    with lading.writer(out, format="jsonl", overwrite=True) as writer:
        writer.write({"txt": "a"})
    assert _texts(out) == ["a"]


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
    with pytest.raises(DestinationExists, match="whole dataset"):
        writer.close()
    with pytest.raises(DestinationExists, match="whole dataset"):
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


@pytest.mark.parametrize("name", ["s-${shard}", "s"])
def test_names_of_ranks_have_the_rank(name: str, tmp_path: Path) -> None:
    """Those of one rank would replace those of another."""
    with pytest.raises(UsageError, match="rank"):
        lading.writer(tmp_path / "out", name=name, rank=0)
