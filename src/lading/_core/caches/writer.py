"""Build a folder of Arrow shards from a generator, and exchange it for the old folder in one step.

A cache is built in a hidden folder next to its final place, under a lock that the kernel releases when its owner dies.
A process that waited for the lock uses the cache that was built meanwhile. The old cache stays until the new one is
complete.

Source: stable-datasets at f38ac71 (cache.py) for names, layout and cuts.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow import json_text
from lading._core.arrow.older import data_bytes
from lading._core.caches.layout import Features, schema_of
from lading._core.caches.meta import META_NAME, CacheMeta, meta_text, new_meta, read_cache_meta
from lading._core.caches.rows import batches_of
from lading._core.caches.shard import identity, validate_cache
from lading._core.caches.tables import Rules
from lading._core.caches.videos import ASSETS
from lading._core.storage.base import final_place, store_errors, write_file
from lading._core.storage.local import LocalSink, LocalStore
from lading._core.storage.staging import stage_folder, sweep_stale
from lading._core.storage.stores import is_local, named_folder, resolve
from lading._core.units import parse_bytes
from lading.errors import (
    DataError,
    DestinationExists,
    LadingError,
    NotFound,
    SidecarMismatch,
    StoreError,
    UsageError,
)

__all__ = ["cache_fingerprint", "write_cache"]

_LOG = logging.getLogger("lading.caches")
_COMPRESSIONS = (None, "zstd", "lz4")
_OWN_NAME = re.compile(rf"{re.escape(META_NAME)}|{ASSETS.split('/')[0]}|shard-\d+\.arrow")
_BEHIND_BYTES = 1 << 20
"""Minimum bytes of a batch that a thread writes. For less, waiting for the interpreter lock takes longer than writing.
"""


@public("lading.caches.cache_fingerprint")
def cache_fingerprint(cls_name: str, version: str, config_name: str, split: str, storage: str | None = "arrow") -> str:
    """Return the folder name of a dataset's variant and split: `{name}_{config}_{split}_{16 hex digits}`.

    Args:
        cls_name: name of the dataset. The folder name has it in lower case, the digits as it is.
        version: version of the dataset.
        config_name: name of the variant.
        split: `train`, `test` …
        storage: `arrow` or `lance`; None gives the digits of older stable-datasets versions.
    """
    parts = [cls_name, version, config_name, split, *([] if storage is None else [storage])]
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()[:16]
    return f"{cls_name.lower()}_{config_name}_{split}_{digest}"


@public("lading.caches.write_cache")
def write_cache(  # noqa: PLR0913 - one argument a decision of the user; all but three by keyword
    generator: Iterable[Any],
    features: Features,
    cache_dir: str | os.PathLike[str],
    *,
    shard_size: int | str | None = None,
    batch_size: int = 1000,
    batch_bytes: int | str = "4MB",
    compression: str | None = None,
    workers: int = 1,
    reuse: bool = False,
    on_missing: str = "error",
    on_unknown: str = "error",
    lineage: Mapping[str, Any] | None = None,
    schema_fingerprint: str | None = None,
) -> CacheMeta:
    """Build a cache from a generator, and replace the old cache in one step.

    Readers see the old cache until the new one is complete. If another process is building the same cache, wait for it
    and use its result. Peak memory: about three batches, and one more for each worker. The logger `_core.caches` gets
    one line for each cache that is built.

    Example:
        rows = ({"image": path, "label": name} for path, name in files)
        meta = write_cache(rows, {"image": Image(), "label": ClassLabel(("cat", "dog"))}, "cache", shard_size="256MB")

    Args:
        generator: rows as dicts, or pairs of a key (for errors) and a dict; or record batches and tables.
        features: feature of each column (`_core.features`). `_core.features.encode` encodes the values.
        cache_dir: a local folder.
        shard_size: a shard ends when its batches hold this much in memory; None writes one shard.
        batch_size: rows of a batch, at most.
        batch_bytes: a batch ends when its values hold this much, so media take no more memory than that.
        compression: of the shards' buffers: `zstd`, `lz4` or None.
        workers: threads that encode images, videos and arrays. The shards are the same with any number. With more than
            one, files that rows name must stay where they are.
        reuse: return an existing complete cache of these features.
        on_missing: `error`, or `null` for columns that a row lacks.
        on_unknown: `error`, or `drop` for keys that are not columns.
        lineage: JSON-able values to keep in the metadata.
        schema_fingerprint: fingerprint for stable-datasets to compare; None is `fingerprint(features)`.

    Raises:
        SchemaMismatch: a row lacks a column or has an unknown key. Names row, key and column.
        Unrepresentable: a value does not fit its feature. Names row, key and column.
        UsageError: an option, a feature or a row is invalid; `cache_dir` is a file; the generator builds this cache.
        DestinationExists: the folder holds something other than a cache.
        StoreError: a file cannot be read or written, or the file system cannot exchange two folders.
    """
    rules = _rules(batch_size, batch_bytes, workers, on_missing, on_unknown)
    target = None if shard_size is None else max(parse_bytes(shard_size), 1)
    if compression not in _COMPRESSIONS:
        raise UsageError("unknown compression of Arrow", expected="zstd, lz4 or None", found=repr(compression))
    schema = schema_of(features)
    lineage_json = None if lineage is None else _plain_lineage(lineage)
    place = _place(cache_dir)
    _check_place(place)
    before = None if reuse else identity(place)
    found = _finished(place, features, before)
    if found is not None:
        return found
    with _locked(place):
        found = _finished(place, features, before)
        if found is not None:
            return found
        sweep_stale(place)
        with stage_folder(place) as staged:
            _check_exchange(staged.path, place)
            shards = _Shards(staged.path, schema, target, compression)
            try:
                rules = replace(rules, assets=f"{staged.path}/{ASSETS}")
                for rows, batch_rows in batches_of(generator, features, rules, settle=shards.settle):
                    shards.write(rows, batch_rows)
                counts = shards.close()
            except BaseException:
                shards.abort()
                raise
            meta = new_meta(
                os.fspath(cache_dir), counts, features, target, compression, lineage_json, schema_fingerprint
            )
            store = LocalStore()
            write_file(store, f"{staged.path}/{META_NAME}", [meta_text(meta)])
            store.publish(staged.path, staged.place)
    _LOG.info("Cached %d examples in %d shard(s) to %s", meta.num_rows, meta.num_shards, meta.cache_dir)
    return meta


def _rules(batch_size: int, batch_bytes: int | str, workers: int, on_missing: str, on_unknown: str) -> Rules:
    for name, value in (("batch_size", batch_size), ("workers", workers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"no {name}", expected="1 or more", found=repr(value))
    for name, parsed, other in (("on_missing", on_missing, "null"), ("on_unknown", on_unknown, "drop")):
        if parsed not in ("error", other):
            raise UsageError(f"no {name}", expected=f"error or {other}", found=repr(parsed))
    return Rules(
        batch_size, max(parse_bytes(batch_bytes), 1), workers,
        drop_unknown=on_unknown == "drop", fill_missing=on_missing == "null",
    )  # fmt: skip


def _plain_lineage(lineage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lineage as it will be read back."""
    if not isinstance(lineage, Mapping):
        raise UsageError("lineage must be a dict", expected="a dict", found=type(lineage).__name__)
    try:
        text = json.dumps(dict(lineage), allow_nan=False, ensure_ascii=False).encode()
        parsed = dict(json_text.loads(text))
    except (TypeError, ValueError, RecursionError, DataError) as error:
        raise UsageError("a lineage that JSON cannot hold", found=str(error)) from None
    if (repeated := json_text.find_repeated_name([text], [parsed])) is not None:
        raise UsageError("a lineage that JSON cannot hold: two keys become one text", found=repr(repeated[1]))
    return parsed


def _place(parsed: str | os.PathLike[str]) -> str:
    """Return the place of the cache: an absolute path if its last part is not a name."""
    folder = os.fspath(parsed) if isinstance(parsed, os.PathLike) else parsed
    if not isinstance(folder, str) or not folder or not is_local(resolve(folder)[0]):
        raise UsageError("a cache is a folder of this machine", expected="a path", found=repr(folder))
    place = final_place(named_folder(folder))
    return os.path.realpath(place) if os.path.basename(place) in (".", "..") else place


def _check_place(place: str) -> None:
    """Refuse to replace anything but a cache."""
    with store_errors(place):
        if not os.path.lexists(place):
            above = os.path.dirname(place)
            while above and not os.path.lexists(above):
                above = os.path.dirname(above)
            if above and not os.path.isdir(above):
                raise StoreError("a part of the destination's path is not a folder", file=place, found=above)
            return
        if not os.path.isdir(place):
            raise UsageError("the destination is not a folder", file=place)
        held = os.listdir(place)
    if held and not (META_NAME in held and _is_cache(place, held)):
        others = [name for name in held if not _OWN_NAME.fullmatch(name)]
        raise DestinationExists("the folder holds something other than a cache", file=place, found=min(others or held),
                                advice="Choose another folder.")  # fmt: skip


def _is_cache(place: str, held: list[str]) -> bool:
    """Return whether a folder with these names is a cache; also a damaged one that holds only files of a cache."""
    try:
        read_cache_meta(place)
    except SidecarMismatch as error:
        if error.column in (None, "cache_format_version"):  # of another tool, or of a later version
            return False
    except (DataError, NotFound):  # broken; or another process removes the folder
        pass
    else:
        return True
    return all(map(_OWN_NAME.fullmatch, held))


def _check_exchange(folder: str, place: str) -> None:
    """Check before the work whether an old cache can be exchanged for the new one."""
    if not os.path.isdir(place):
        return
    with store_errors(folder):
        os.mkdir(f"{folder}/new")
        os.mkdir(f"{folder}/old")
    try:
        LocalStore().publish(f"{folder}/new", f"{folder}/old")
    except StoreError as error:
        error.file = place
        raise
    LocalStore().delete(f"{folder}/old")


def _finished(place: str, features: Features, before: tuple[int, int, int] | None) -> CacheMeta | None:
    """Return the cache that was built since `before`, if it is complete and has these features."""
    if identity(place) in (None, before):
        return None
    try:
        return validate_cache(place, features)
    except LadingError:
        return None


@contextmanager
def _locked(place: str) -> Iterator[None]:
    """Hold `{name}.lock` next to the cache. The file stays; the lock ends with its owner, however that ends.

    Without locks (on some network file systems), several may build, and the last one stays.
    """
    path = place + ".lock"
    with store_errors(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        parsed = os.fstat(fd)
    owner = (threading.get_ident(), parsed.st_dev, parsed.st_ino)
    if owner in _held.values():  # it would wait for itself
        os.close(fd)
        raise UsageError("the cache would be built from itself", file=place,
                         advice="Choose another folder for what a generator builds.")  # fmt: skip
    try:
        _held[fd] = owner
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        if fd in _held:  # not in a process forked meanwhile, which released it
            del _held[fd]
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


_held: dict[int, tuple[int, int, int]] = {}
"""Descriptors of this process's locks, with their owners: the thread, and the device and number of the file."""


def _let_go() -> None:
    """Release locks in a forked process: a lock ends with its last holder, and children may outlive a builder."""
    while _held:
        os.close(_held.popitem()[0])


os.register_at_fork(after_in_child=_let_go)


class _Shards:
    """The shards being written in a folder, one after another; the next begins with its first batch."""

    def __init__(self, folder: str, schema: pa.Schema, target: int | None, compression: str | None) -> None:
        self._folder, self._schema, self._target = folder, schema, target
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._counts: dict[str, int] = {}
        self._sink: LocalSink | None = None
        self._bytes = self._rows = 0

    def write(self, rows: pa.RecordBatch, batch_rows: int) -> None:
        """Add rows, in batches of the given sizes; their memory must stay unchanged until `settle`."""
        size = data_bytes(rows)
        if self._target is not None and len(rows) > batch_rows and self._bytes + size >= self._target:
            for start in range(0, len(rows), batch_rows):
                self.write(rows.slice(start, batch_rows), batch_rows)
            return
        if self._sink is None:
            self._begin()
        assert self._sink is not None
        with store_errors(self._sink.path, pa.ArrowException):
            if len(rows) > batch_rows:
                self._sink.settle()
                self._writer.write_table(pa.Table.from_batches([rows]), batch_rows)
            elif size >= _BEHIND_BYTES:
                self._sink.later(partial(self._writer.write_batch, rows))
            else:
                self._sink.settle()
                self._writer.write_batch(rows)
        self._bytes += size
        self._rows += len(rows)
        if self._target is not None and self._bytes >= self._target:
            self._finish()

    def _begin(self) -> None:
        """Open the next shard."""
        self._sink = LocalStore().put_stream(f"{self._folder}/shard-{len(self._counts):05d}.arrow")
        self._file = pa.OSFile(self._sink.native_path, "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema, options=self._options)
        self._bytes = self._rows = 0

    def settle(self) -> None:
        """Wait until all batches are in the file."""
        if self._sink is not None:
            with store_errors(self._sink.path, pa.ArrowException):
                self._sink.settle()

    def close(self) -> dict[str, int]:
        """Return names and rows of all shards."""
        if self._sink is not None:
            self._finish()
        return self._counts

    def _finish(self) -> None:
        assert self._sink is not None
        self.settle()
        with store_errors(self._sink.path, pa.ArrowException):
            self._writer.close()
            self._file.close()
        self._counts[os.path.basename(self._sink.path)] = self._rows
        self._sink.close()
        self._sink = None
        self._bytes = 0

    def abort(self) -> None:
        """Abort the shard being written; the owner deletes the folder."""
        if self._sink is not None:
            self._sink.abort()
