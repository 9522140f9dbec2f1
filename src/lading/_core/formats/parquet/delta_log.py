"""The log of a Delta Lake table → the files of one version of the table, as shards.

    table/_delta_log/00000000000000000011.json                  a commit: one action a line
    table/_delta_log/00000000000000000010.checkpoint.parquet    all actions that hold at this version
    table/part-00000-….parquet                                  rows, some of which a deletion vector may leave out

A version is its newest checkpoint and the commits behind it. An action adds a file, removes a file, or changes the
columns or the protocol. A shard's `entry` says how its reader makes rows of the table out of those of the file
(`_core.formats.parquet.delta_rows`); its `partition` has the partition values of the log.

Source: Delta Lake's PROTOCOL.md.
"""

from __future__ import annotations

import os
import posixpath
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.dataset_index import ListedShard
from lading._core.formats.parquet.deletion_vectors import check_vector, roaring, vector_file
from lading._core.formats.parquet.delta_types import name_in_log, table_schema
from lading._core.formats.parquet.footer import read_footer
from lading._core.formats.parquet.input import open_input
from lading._core.formats.parquet.options import ReadOptions
from lading._core.formats.parquet.reader import ParquetReader
from lading._core.storage.base import FileInfo, Store
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import is_local
from lading.errors import BadReference, DataError, UsageError, errors_at
from lading.limits import Limits

__all__ = ["is_log", "list_table", "schema_of_table"]

_LOG = re.compile(r"(?:.*/)?_delta_log/\d{20}\.(?:json|checkpoint\.[^/]+)", re.DOTALL)
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint\.(?:parquet|(\d{10})\.(\d{10})\.parquet|[0-9a-f-]{36}\.(?:json|parquet))"
)
_ACTIONS = ("protocol", "metaData", "add", "sidecar")
_FEATURES = ("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
_READER_VERSION = 3
_MAPPED = 2
_MODES = ("none", "name", "id")
_BATCH_ROWS = 4096
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", re.DOTALL)
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_OTHER_READERS = "Read it with the package deltalake or with Spark, and write it as Parquet."


@dataclass(frozen=True, slots=True)
class _Added:
    """A file of the table, as an `add` action has it."""

    path: str
    values: Mapping[str, str | None]
    size_bytes: int | None
    stats: str | None
    vector: Mapping[str, Any] | None


@dataclass(slots=True)
class _Version:
    """A version of the table: its columns and protocol, and its files by path and deletion vector.

    Attributes:
        place: the file of the log that said the columns last, for errors.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    files: dict[tuple[str, str], _Added] = field(default_factory=dict)

    def apply(self, action: Mapping[str, Any], place: str) -> None:
        """Apply one action of a commit or a checkpoint. Raises DataError if it lacks something."""
        for kind, told in action.items():
            if kind not in ("add", "remove", "metaData", "protocol") or told is None:
                continue
            if not isinstance(told, dict):
                raise DataError(f"the action {kind!r} is no object", found=reprlib.repr(told)[:80])
            if kind == "add":
                added = _added(told)
                self.files[_key(added.path, added.vector)] = added
            elif kind == "remove":
                self.files.pop(_key(_path(told), told.get("deletionVector")), None)
            elif kind == "metaData":
                self.metadata, self.place = told, place
            else:
                self.protocol = told


def is_log(path: str) -> bool:
    """Return whether a path is that of a commit or a checkpoint in the log of a table."""
    return _LOG.fullmatch(path) is not None


def list_table(store: Store, log: str, limits: Limits) -> list[ListedShard]:
    """Return the files of a table as shards, by path.

    Args:
        store: the store of the table.
        log: the commit or checkpoint in its log that says the version.
        limits: limits on what the log may ask for.

    Raises:
        BadReference: the log names a file outside of the table's folder.
        DataError: the log is damaged, or lacks a commit; names its file.
        LimitExceeded: a file of the log is larger than `index_bytes`.
        MissingExtra: there are deletion vectors, and pyroaring is not installed.
        UsageError: the table has a feature that lading does not read.
    """
    version = _version(store, log, limits)
    with errors_at(file=version.place):
        told, mode, partitions = _columns(version)
        schema = table_schema(told, mode)
    keys = {each["name"]: name_in_log(each, mode) for each in told if each["name"] in partitions}
    inside = [{**each, "metadata": _only_mapping(each)} for each in told if each["name"] not in partitions]
    types = {name: schema.field(name).type for name in keys}
    columns: dict[str, Any] = {"fields": inside, "mode": mode, "log": log}
    shards, root = [], folder_of(folder_of(log))
    for added in version.files.values():
        with errors_at(file=log):
            path = _place(added.path, root, local=is_local(store))
            entry, rows = {**columns}, _num_records(added)
            if added.vector is not None:
                roaring(log)
                name = vector_file(added.vector)
                entry["vector"] = {**added.vector, "file": name and _place(name, root, local=is_local(store))}
                rows = None if rows is None else rows - int(added.vector["cardinality"])
            values = _partition(added, types, keys)
        shards.append(
            ListedShard(
                path, num_samples=rows, size_bytes=added.size_bytes or None, entry=orjson.dumps(entry).decode(),
                partition=orjson.dumps(values).decode() if values else "",
            )
        )  # fmt: skip
    shards.sort(key=lambda shard: shard.path)
    for one, other in pairwise(shards):
        if one.path == other.path:
            raise DataError("the log adds a file twice, with two deletion vectors", file=log, found=one.path)
    return shards


def schema_of_table(store: Store, log: str, limits: Limits) -> pa.Schema:
    """Return the columns of a table as rows have them: those of partitions last. Raises as `list_table`."""
    version = _version(store, log, limits)
    with errors_at(file=version.place):
        told, mode, partitions = _columns(version)
        return table_schema(sorted(told, key=lambda each: each["name"] in partitions), mode).remove_metadata()


def _columns(version: _Version) -> tuple[list[dict[str, Any]], str, list[str]]:
    """Return the fields of the schema, the mode of column mapping, and the names of the partition columns."""
    reader = version.protocol.get("minReaderVersion")
    features = version.protocol.get("readerFeatures") or []
    if not isinstance(reader, int) or not isinstance(features, list):
        raise DataError("the log has no protocol", expected="minReaderVersion", found=reprlib.repr(version.protocol))
    unread = [str(each) for each in features if each not in _FEATURES] if reader >= _READER_VERSION else []
    if reader > _READER_VERSION or unread:
        raise UsageError(
            "the table has a feature of Delta Lake that lading does not read", expected=", ".join(_FEATURES),
            found=", ".join(unread) or f"reader version {reader}", advice=_OTHER_READERS,
        )  # fmt: skip
    metadata = version.metadata
    try:
        fields = orjson.loads(metadata["schemaString"])["fields"]
    except (KeyError, TypeError, orjson.JSONDecodeError):
        raise DataError("the log has no schema", expected="metaData with schemaString",
                        found=reprlib.repr(metadata)[:80]) from None  # fmt: skip
    partitions = metadata.get("partitionColumns") or []
    settings = metadata.get("configuration") or {}
    mapped = reader == _MAPPED or "columnMapping" in features
    mode = settings.get("delta.columnMapping.mode", "none") if mapped and isinstance(settings, dict) else "none"
    if mode not in _MODES or not isinstance(partitions, list):
        raise DataError("the columns of the table are damaged", expected=f"column mapping {', '.join(_MODES)}",
                        found=f"{mode!r}, partitions {partitions!r}"[:80])  # fmt: skip
    table_schema(fields, mode)
    if missing := {*map(str, partitions)} - {each["name"] for each in fields}:
        raise DataError("a partition column is no column of the table", column=min(missing))
    return fields, mode, partitions


def _only_mapping(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (told.get("metadata") or {}).items() if key.startswith("delta.columnMapping.")}


def _version(store: Store, log: str, limits: Limits) -> _Version:
    """Read the log up to a commit or checkpoint."""
    folder, last = folder_of(log), int(posixpath.basename(log)[:20])
    infos = {posixpath.basename(info.path): info for info in store.walk(folder)
             if posixpath.dirname(info.path) == folder and info.size_bytes >= 0}  # fmt: skip
    commits = {int(match[1]): infos[name] for name in infos if (match := _COMMIT.fullmatch(name))}
    first, checkpoint = _newest_checkpoint(infos, last)
    version = _Version()
    for info in checkpoint:
        _read_checkpoint(store, info, version, limits, folder)
    wanted = range(first + 1, last + 1)
    for number in wanted:
        if number not in commits:
            raise DataError("the log lacks a commit", file=folder, expected=f"{number:020}.json",
                            found=f"a checkpoint of version {first}" if checkpoint else "no checkpoint")  # fmt: skip
    reads = [partial(_read, store, commits[number], limits) for number in wanted]
    for number, data in zip(wanted, concurrent_map(reads, remote=is_remote(store)), strict=True):
        with errors_at(file=commits[number].path):
            for action in _actions(data, commits[number].path):
                version.apply(action, commits[number].path)
    version.place = version.place or log
    return version


def _newest_checkpoint(infos: Mapping[str, FileInfo], last: int) -> tuple[int, list[FileInfo]]:
    """Return the version and files of the newest whole checkpoint, at most of the last version; -1 if there is none."""
    found: dict[tuple[int, str], list[str]] = {}
    for name in infos:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= last:
            kind = f"0 {match[3]}" if match[2] else f"1 {name}"  # parts of one checkpoint stand together
            found.setdefault((int(match[1]), kind), []).append(name)
    whole = [key for key, names in found.items() if key[1].startswith("1") or len(names) == int(key[1][2:])]
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], [infos[name] for name in sorted(found[newest])]


def _read(store: Store, info: FileInfo, limits: Limits) -> bytes:
    if info.size_bytes > limits.index_bytes:
        raise limits.exceeded("index_bytes", "a file of the log is too large", file=info.path, found=info.size_bytes)
    [data] = store.get_ranges(info.path, [(0, info.size_bytes)])
    limits.check_values(data, file=info.path)
    return bytes(data)


def _actions(data: bytes, path: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of a file of JSON lines."""
    for number, line in enumerate(data.split(b"\n")):
        if line.strip():
            with errors_at(file=path, row=number):
                try:
                    action = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise DataError("a line of the log is not valid JSON", found=str(error)) from None
                if not isinstance(action, dict):
                    raise DataError("a line of the log is no action", found=reprlib.repr(action)[:80])
                yield action


def _read_checkpoint(store: Store, info: FileInfo, version: _Version, limits: Limits, folder: str) -> None:
    """Apply a file of a checkpoint, and the sidecars that it names."""
    if info.path.endswith(".json"):
        actions = _actions(_read(store, info, limits), info.path)
    else:
        actions = _rows(store, info.path, limits)
    for action in actions:
        sidecar = action.get("sidecar")
        if sidecar is not None:
            name = sidecar.get("path") if isinstance(sidecar, dict) else None
            with errors_at(file=info.path):
                if not isinstance(name, str):
                    raise DataError("a sidecar without a path", found=reprlib.repr(sidecar)[:80])
                place = _place(posixpath.basename(name), f"{folder}/_sidecars", local=is_local(store))
            with errors_at(file=place):
                for row in _rows(store, place, limits):
                    version.apply({"add": row.get("add")}, place)
        with errors_at(file=info.path):
            version.apply({kind: action.get(kind) for kind in _ACTIONS}, info.path)


def _rows(store: Store, path: str, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the actions of a Parquet file that lading reads, without statistics of columns."""
    source = open_input(ShardFile(store, path, limits=limits), mmap=False)
    with closing(ParquetReader(source, read_footer(source), ReadOptions())) as reader:
        names = [name for name in _ACTIONS if name in reader.schema().names]
        for batch in reader.batches(Scan(names, max_rows=_BATCH_ROWS)):
            for name in names:
                column = batch.column(batch.schema.get_field_index(name))
                if not pa.types.is_struct(column.type):
                    raise DataError("a checkpoint has other columns", file=path, column=name, expected="a struct",
                                    found=str(column.type))  # fmt: skip
                column = column.filter(pc.is_valid(column))
                yield from ({name: _without_maps(row)} for row in _without_stats(column).to_pylist())


def _without_stats(column: pa.StructArray) -> pa.StructArray:
    """Return actions without parsed statistics of columns, which are most of their bytes."""
    parts = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
    parsed = parts.pop("stats_parsed", None)
    if parsed is not None and "stats" not in parts and parsed.type.get_field_index("numRecords") >= 0:
        parts["num_records"] = pc.struct_field(parsed, "numRecords")
    parts.pop("partitionValues_parsed", None)
    return pa.StructArray.from_arrays(list(parts.values()), list(parts))


def _without_maps(row: dict[str, Any]) -> dict[str, Any]:
    """Return an action with its maps as dicts, as JSON has them."""
    found = {key: dict(value) if key in ("partitionValues", "configuration") and value else value
             for key, value in row.items()}  # fmt: skip
    if found.get("num_records") is not None:
        found["stats"] = orjson.dumps({"numRecords": found["num_records"]}).decode()
    return found


def _path(told: Mapping[str, Any]) -> str:
    path = told.get("path")
    if not isinstance(path, str) or not path:
        raise DataError("a file of the log has no path", found=reprlib.repr(told)[:80])
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise DataError("a path of the log is invalid UTF-8", found=repr(path)[:200]) from None


def _key(path: str, vector: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return what identifies a file of the table: its path, and its deletion vector."""
    if vector is None:
        return path, ""
    if not isinstance(vector, dict):
        raise DataError("not a deletion vector", found=reprlib.repr(vector)[:80])
    check_vector(vector)
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return path, f"{vector['storageType']}{vector['pathOrInlineDv']}{offset}"


def _added(told: Mapping[str, Any]) -> _Added:
    values, size, stats = told.get("partitionValues") or {}, told.get("size"), told.get("stats")
    if not isinstance(values, dict) or not all(value is None or isinstance(value, str) for value in values.values()):
        raise DataError("not the partition values of a file", found=reprlib.repr(values)[:80])
    if not isinstance(size, int | None) or not isinstance(stats, str | None):
        raise DataError("not the size and statistics of a file", found=f"{size!r}, {stats!r}"[:80])
    return _Added(_path(told), values, size, stats, told.get("deletionVector"))


def _num_records(added: _Added) -> int | None:
    """Return the rows of the file, deleted ones too, if the log says that."""
    with suppress(orjson.JSONDecodeError):
        stats = orjson.loads(added.stats or "null")
        number = stats.get("numRecords") if isinstance(stats, dict) else None
        return number if type(number) is int and number >= 0 else None
    return None


def _place(path: str, root: str, *, local: bool) -> str:
    """Return the path of a file of the table in the store.

    Raises:
        BadReference: the file is not below the table's folder.
    """
    uri = _URI.fullmatch(path)
    inside = path
    if uri or path.startswith("/"):
        scheme, rest = (uri[1], uri[2]) if uri else ("file", path)
        if local:
            full = "/" + rest.lstrip("/") if scheme == "file" else None
            homes = [os.path.abspath(root or "."), os.path.realpath(root or ".")]
        else:
            full, homes = f"{_SCHEMES.get(scheme, scheme)}:{rest}", [root]
        home = next((each for each in homes if full is not None and full.startswith(f"{each.rstrip('/')}/")), None)
        inside = ".." if home is None or full is None else full[len(home.rstrip("/")) + 1 :]
    if {"", ".", ".."}.intersection(inside.split("/")) or "\0" in inside:
        raise BadReference(
            "the log names a file outside of the table's folder", expected=f"a file below {root or '.'}",
            found=path[:200], advice="Copy a shallow clone with its rows first (a deep clone), and open the copy.",
        )  # fmt: skip
    return posixpath.join(root, inside)


def _partition(
    added: _Added, types: Mapping[str, pa.DataType], keys: Mapping[str, str]
) -> list[tuple[str, str, bool, str | None]]:
    """Return the partition of a file, as `_core.formats.hive_partitions` takes it."""
    return [(name, str(kind), True, _value(added.values.get(keys[name]), kind, name)) for name, kind in types.items()]


@lru_cache(4096)
def _value(text: str | None, kind: pa.DataType, name: str) -> str | None:
    """Return a partition value as a text that Arrow casts to its type. An empty text stands for null."""
    if not text:
        return None
    if pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        raise UsageError("lading does not read partition columns of this type", column=name, found=str(kind),
                         advice=_OTHER_READERS)  # fmt: skip
    for told in (text, f"{text}Z"):  # times without a zone are in UTC, as deltalake takes them
        with suppress(pa.ArrowInvalid):
            pa.array([told]).cast(kind)
            return told
    raise DataError("not a value of the partition column", column=name, expected=str(kind), found=repr(text)[:80])
