"""The files of a dataset get their names on an object server: killed anywhere and repeated, the result is right."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lading._core.storage.base import FileInfo, write_file
from lading._core.storage.objects import ObjectStore
from lading._core.storage.publish import Finished, publish_list
from lading.errors import DestinationExists, NotFound
from object_server import BUCKET, options

_NEW = {
    "shard-0": b"new 0", "shard-1": b"new 1", "_lading/shards": b"new list", "_lading/manifest.json": b"new manifest",
}  # fmt: skip
_OLD = {
    "shard-0": b"old 0", "shard-1": b"other", "shard-2": b"old 2", "_lading/manifest.json": b"old manifest",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(server: str) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}", options=options(server))


class _Killed(Exception):
    pass


class _Dying(ObjectStore):
    """A store whose process is killed after so many changes."""

    def __init__(self, store: ObjectStore, changes: int) -> None:
        super().__init__(store.place, options=store._options)
        self.left = changes

    def _change(self) -> None:
        if not self.left:
            raise _Killed
        self.left -= 1

    def copy_all(self, copies: Sequence[tuple[FileInfo, str]]) -> None:
        for each in copies:
            self._change()
            super().copy_all([each])

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


def _put(store: ObjectStore, folder: str, files: dict[str, bytes]) -> list[FileInfo]:
    return [write_file(store, f"{folder}/{name}", [data]) for name, data in files.items()]


def _contents(store: ObjectStore, folder: str) -> dict[str, bytes]:
    found = {}
    for info in store.walk(folder):
        [data] = store.get_ranges(info.path, [(0, info.size_bytes)])
        found[info.path.removeprefix(f"{folder}/")] = bytes(data)
    return found


def _listed(store: ObjectStore, root: str, files: dict[str, bytes] = _NEW) -> list[Finished]:
    """Finished files in the folders of attempts, and their names."""
    found = []
    for number, (name, data) in enumerate(files.items()):
        [info] = _put(store, f"{root}/built/task-{number}", {"000000": data})
        found.append(Finished(info, f"{root}/out/{name}"))
    return found


@pytest.mark.cases(1)
@pytest.mark.parametrize("before", [{}, _OLD], ids=["nothing", "a dataset"])
def test_killed_after_any_change_and_repeated(before: dict[str, bytes], store: ObjectStore) -> None:
    survived = False
    for changes in range(20):
        root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
        _put(store, f"{root}/out", before)
        files = _listed(store, root)
        dying = _Dying(store, changes)
        try:
            publish_list(dying, files, f"{root}/out", replace=True)
            for each in files:  # one by one, as a killed deletion leaves them
                dying.delete(each.file.path)
            survived = True
        except _Killed:
            found = _contents(store, f"{root}/out")
            is_marked = found.pop("_lading/committing.json", None) is not None
            if "_lading/manifest.json" in found:  # a reader sees one dataset, whole
                assert found in (before, _NEW)
            assert is_marked or found in (before, _NEW)
            publish_list(store, files, f"{root}/out", replace=True)
            store.delete(f"{root}/built")
        assert _contents(store, root) == {f"out/{name}": data for name, data in _NEW.items()}
        if survived:
            break
    assert survived
    assert changes > len(_NEW)


def test_a_large_file_whose_source_is_gone_was_copied(store: ObjectStore) -> None:
    """It was uploaded in parts, and its copy has another etag."""
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    large = secrets.token_bytes((8 << 20) + 1)
    files = _listed(store, root, {"large": large, "_lading/manifest.json": b"manifest"})
    publish_list(store, files, f"{root}/out", replace=False)
    store.delete(files[0].file.path)
    publish_list(store, files, f"{root}/out", replace=True)
    assert _contents(store, f"{root}/out") == {"large": large, "_lading/manifest.json": b"manifest"}


def test_what_is_not_there_is_an_error_and_no_manifest_appears(store: ObjectStore) -> None:
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    files = _listed(store, root)
    store.delete(files[1].file.path)
    with pytest.raises(NotFound):
        publish_list(store, files, f"{root}/out", replace=False)
    assert "_lading/manifest.json" not in _contents(store, f"{root}/out")


def test_nothing_is_replaced_without_being_told(store: ObjectStore) -> None:
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    _put(store, f"{root}/out", _OLD)
    with pytest.raises(DestinationExists):
        publish_list(store, _listed(store, root), f"{root}/out", replace=False)
    assert _contents(store, f"{root}/out") == _OLD


@pytest.mark.soak
def test_copies_run_at_once(store: ObjectStore) -> None:
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    files = {f"shard-{number:02d}": b"%d" % number for number in range(40)}
    listed: list[Any] = _listed(store, root, files)
    publish_list(store, listed, f"{root}/out", replace=False)
    assert _contents(store, f"{root}/out") == files


class _Encrypting(ObjectStore):
    """A store whose copies have other etags than their sources, as with keys of SSE-KMS."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        for info in super().walk(prefix):
            yield replace(info, version=f"{info.version}{info.path}")


def test_a_manifest_whose_etag_is_of_its_place_is_not_lost(store: ObjectStore) -> None:
    """It is deleted first, so it must be copied, also if its source goes meanwhile: then that is an error."""
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    files = _listed(store, root)
    encrypting = _Encrypting(store.place, options=store._options)
    for _ in range(2):
        publish_list(encrypting, files, f"{root}/out", replace=True)
        assert _contents(store, f"{root}/out") == _NEW
    store.delete(files[-1].file.path)
    with pytest.raises(NotFound):
        publish_list(encrypting, files, f"{root}/out", replace=True)
