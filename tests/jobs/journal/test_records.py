"""Records of finished tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lading._core.jobs.journal.records import read_records, record_path, write_record
from lading._core.storage.base import FileInfo
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import WrappedStore
from lading.errors import NotFound

_FOLDER = f"box://job/tasks/task-000000-{0:016x}"


class _Late(WrappedStore):
    """A store that lists no new file yet."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        return iter(())


def _answer(*paths: str) -> dict[str, Any]:
    shards = [{"path": path} for path in paths]
    told: dict[str, Any] = {"reported": {}, "tally": [], "outcomes": {}, "skipped": {}}
    return {"done": 0, "folder": _FOLDER, "part": {"shards": shards}, **told}


def test_a_record_names_the_shards_of_the_task_whatever_is_listed() -> None:
    """Else it would hold after their loss."""
    store, path = MemoryStore(), record_path("box://job", 0)
    with pytest.raises(NotFound):
        write_record(_Late(store), path, _answer("000000"))
    store.put(f"{_FOLDER}/000000", b"data")
    write_record(_Late(store), path, _answer("000000"))
    assert list(read_records(store, "box://job", "box://job/tasks")) == [0]
    store.delete(f"{_FOLDER}/000000")
    assert read_records(store, "box://job", "box://job/tasks") == {}
