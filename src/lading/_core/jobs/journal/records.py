"""Records of finished tasks, by which a job that died goes on: one JSON file a task, made once, after its files.

A record is the answer of the task (`_core.jobs.engine.messages`) with names and sizes of its files. Whoever does a task
writes its record. The record of another attempt that was faster stays, and this attempt's files are deleted. Nothing in
a record is run when it is read back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from lading._core.manifest.builds import RECORDS
from lading._core.storage.base import Store, write_file
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.create_file import create_file
from lading._core.storage.stores import is_local
from lading.errors import NotFound

__all__ = ["read_json", "read_records", "record_path", "sweep_records", "write_record"]

_NAME: Final = re.compile(r"(\d{6,})\.json")
_ATTEMPT: Final = re.compile(r"task-\d{6,}-[0-9a-f]{16}")
_FIELDS: Final = frozenset(("done", "folder", "part", "reported", "tally", "outcomes", "skipped", "files"))


def record_path(journal: str, number: int) -> str:
    """Return the path of the record of a task."""
    return f"{journal}/{RECORDS}/{number:06d}.json"


def write_record(store: Store, path: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write the record of a task whose files are on disk; return the answer that counts.

    A shard that the listing of the folder lacks is looked up by its name: some stores list new files late.

    Args:
        store: where the task's files are.
        path: of the record.
        answer: of the task.

    Raises:
        NotFound: a shard of the answer is not there.
    """
    folder = answer["folder"]
    tasks, _, attempt = folder.rpartition("/")
    files = {info.path[len(folder) + 1 :]: info.size_bytes for info in store.walk(folder)}
    for shard in answer["part"]["shards"]:
        if shard["path"] not in files:
            files[shard["path"]] = store.head(f"{folder}/{shard['path']}").size_bytes
    data = orjson.dumps({**answer, "folder": attempt, "files": list(files.items())})
    if create_file(store, path, data):
        return answer
    other = _whole(store, path, answer["done"], tasks)
    if other is None or not _has_files(store, other):
        write_file(store, path, [data])
        return answer
    if other["folder"] != folder:
        store.delete(folder)
    return other


def read_records(store: Store, journal: str, tasks: str) -> dict[int, Mapping[str, Any]]:
    """Return the answers of tasks whose files are there, by number. Other records count as none.

    They are not deleted: another process may have written them, with files that a network file system does not list
    here yet. `write_record` replaces them.

    Args:
        store: where the journal lies.
        journal: its folder.
        tasks: the folder of the attempts.
    """
    paths = [info.path for info in store.walk(f"{journal}/{RECORDS}")]
    numbers = {path: int(name[1]) for path in paths if (name := _NAME.fullmatch(path.rpartition("/")[2]))}
    calls = [partial(_whole, store, path, number, tasks) for path, number in numbers.items()]
    records = zip(numbers.values(), concurrent_map(calls, remote=is_remote(store)), strict=True)
    found = {number: record for number, record in records if record is not None}
    there = {info.path: info.size_bytes for info in store.walk(tasks)} if found else {}
    return {number: record for number, record in found.items() if _are_there(record, there)}


def sweep_records(store: Store, journal: str, kept: Collection[int]) -> None:
    """Delete the records of a dead process, but for the numbers to be kept. On a store some may be new."""
    for info in store.walk(f"{journal}/{RECORDS}") if is_local(store) else ():
        name = _NAME.fullmatch(info.path.rpartition("/")[2])
        if name and int(name[1]) not in kept:
            store.delete(info.path)


def read_json(store: Store, path: str) -> Mapping[str, Any] | None:
    """Return a JSON object of the journal; None where it is missing, cut, or something else."""
    with suppress(NotFound, ValueError):
        [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
        value = orjson.loads(memoryview(data))
        return value if isinstance(value, Mapping) else None
    return None


def _whole(store: Store, path: str, number: int, tasks: str) -> Mapping[str, Any] | None:
    """Return a record as an answer; None if it is missing, cut, or of another task."""
    record = read_json(store, path)
    if record is None or not record.keys() >= _FIELDS or record["done"] != number:
        return None
    return {**record, "folder": f"{tasks}/{record['folder']}"} if _ATTEMPT.fullmatch(record["folder"]) else None


def _has_files(store: Store, record: Mapping[str, Any]) -> bool:
    return _are_there(record, {info.path: info.size_bytes for info in store.walk(record["folder"])})


def _are_there(record: Mapping[str, Any], there: Mapping[str, int]) -> bool:
    return all(there.get(f"{record['folder']}/{name}") == size for name, size in record["files"])
