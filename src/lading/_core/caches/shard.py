"""Read and check the shards of a cache: Arrow IPC files, read over a map."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.align import refuse_duplicate_names
from lading._core.arrow.ipc import MAX_RATIO, unpacked_sizes
from lading._core.arrow.older import count_rows
from lading._core.arrow.text_checks import check_names
from lading._core.caches.layout import Features, differences, fingerprint, older_fingerprint, schema_of
from lading._core.caches.meta import META_NAME, CacheMeta, read_cache_meta
from lading._core.caches.videos import ExternalVideo, VideoFolder, stored_videos
from lading._core.features.types import keeps_files
from lading._core.storage.local import LocalStore
from lading.errors import CorruptShard, LadingError, NotFound, SchemaMismatch, SidecarMismatch, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["identity", "read_shard", "validate_cache"]

_BROKEN = (pa.ArrowException, OSError, EOFError, MemoryError, ValueError, OverflowError)
_REBUILD = "Build the cache again (lading.caches.write_cache)."
_TURNS = 100
_FILM_ROWS = 4096
"""Number of cells that are checked together."""
_OLDER = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


@public("lading.caches.read_shard")
def read_shard(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> pa.Table:
    """Return one shard as a table over a map of the file; nothing is copied unless the shard is compressed.

    Offsets and texts are read and checked; other values are not read. A compressed shard takes memory for its values.

    Example:
        table = read_shard(read_cache_meta("cache").shard_paths[0])

    Args:
        path: the file.
        limits: limits on the file. `arrow_batch_bytes` applies to all batches together.

    Raises:
        NotFound, StoreError: the file is missing or cannot be read.
        CorruptShard: the file is damaged, or not an Arrow IPC file.
        LimitExceeded: a compressed file claims to unpack to far more than its size.
        DuplicateField: two columns, or two fields of a struct, have one name.
    """
    name = os.fspath(path)
    with _opened(name, limits, at_once=True) as reader:
        table = reader.read_all()
        table.validate(full=True)
        check_names(table.schema)
        with errors_at(file=name):
            refuse_duplicate_names(table.schema)  # Python cannot represent a value of such a struct
        return table


@contextmanager
def _opened(
    path: str, limits: Limits = DEFAULT_LIMITS, *, at_once: bool = False
) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Return a reader over a map of the file, for batches one by one or at once; errors name the file."""
    mapped = LocalStore().map(path)
    with errors_at(file=path):
        packed, unpacked = mapped.buffer.size, unpacked_sizes(mapped.buffer)
        found = sum(unpacked) if at_once else max(unpacked, default=0)
        most = max(limits.arrow_batch_bytes, MAX_RATIO * packed)
        if found > most:
            raise limits.exceeded(
                "arrow_batch_bytes", "a compressed shard says that it is much larger than it seems",
                found=f"{found} bytes", expected=f"at most {most} of {packed} packed",
            )  # fmt: skip
    try:
        yield pa.ipc.open_file(pa.BufferReader(mapped.buffer))
    except LadingError:
        raise
    except _BROKEN as error:
        raise CorruptShard("a damaged Arrow file", file=path, found=str(error).partition("\n")[0][:200]) from error


def identity(cache_dir: str) -> tuple[int, int, int] | None:
    """Return a value that changes whenever the cache is rebuilt; None if there is no cache."""
    try:
        status = os.stat(os.path.join(cache_dir, META_NAME))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@public("lading.caches.validate_cache")
def validate_cache(cache_dir: str | os.PathLike[str], features: Features) -> CacheMeta:
    """Return the metadata of a cache, after checking it against these features and its own files.

    Each shard is opened, its rows are counted and its types compared; values are not read. A video in a file of its own
    is checked for existence and size (`lading.verify` also reads its bytes). If the cache is replaced meanwhile, the
    check starts again, so the answer describes the old cache or the new one.

    Raises:
        SchemaMismatch: the cache has other features; names the difference.
        SidecarMismatch: a shard differs from the metadata in rows or types, or a video's file is missing or has another
            size than its cell says.
        BadReference: the path of a video's file leads out of its folder, or names something other than a file.
        NotFound: there is no cache, or a shard is missing.
        CorruptShard: a file is damaged.
        UsageError: `features` is invalid.
    """
    folder = os.fspath(cache_dir)
    schema_of(features)
    for turn in range(_TURNS):
        before = identity(folder)
        try:
            meta = _validated(folder, features)
        except LadingError:
            if turn == _TURNS - 1 or identity(folder) == before:
                raise
        else:
            if identity(folder) == before:
                return meta
    return _validated(folder, features)


def _validated(folder: str, features: Features) -> CacheMeta:
    meta = read_cache_meta(folder)
    _compare(meta, features)
    expected = schema_of(features)
    for path, rows in zip(meta.shard_paths, meta.shard_row_counts, strict=True):
        with _opened(path) as reader:
            if reader.schema.names != expected.names or not all(map(_same_type, reader.schema, expected)):
                raise SidecarMismatch("a shard of other columns", file=path, expected=_told(expected),
                                      found=_told(reader.schema), advice=_REBUILD)  # fmt: skip
            found = count_rows(reader)
            if found != rows:
                raise SidecarMismatch("a shard of another number of rows than the cache says", file=path,
                                      expected=rows, found=found, advice=_REBUILD)  # fmt: skip
            _check_videos(folder, path, reader, features)
    return meta


def _compare(meta: CacheMeta, features: Features) -> None:
    """Raise SchemaMismatch, with the difference, unless the cache has these features."""
    file = os.path.join(meta.cache_dir, META_NAME)
    if meta.features is not None:
        lines = differences(meta.features, features)
        if lines:
            raise SchemaMismatch("the cache is of other features", file=file, found="; ".join(lines), advice=_REBUILD)
        return  # the fingerprint says no more, and may have other names of dtypes
    expected = fingerprint(features)
    if meta.schema_fingerprint not in ("", expected, older_fingerprint(features)):
        raise SchemaMismatch("the cache is of other features", file=file, expected=expected,
                             found=f"{meta.schema_fingerprint}, {_guess(meta, features)}", advice=_REBUILD)  # fmt: skip


def _guess(meta: CacheMeta, features: Features) -> str:
    """Return features guessed from the types of a peer's shard, because its metadata lack them."""
    if not meta.shard_paths:
        return "without a shard that tells more"
    with _opened(meta.shard_paths[0]) as reader:
        found, expected = reader.schema, schema_of(features)
    if found.names == expected.names and all(map(_same_type, found, expected)):
        return "with the same types: a shape, a dtype, a format or names of labels differ"
    return f"with the columns {_told(found)} instead of {_told(expected)}"


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)[:300]


def _same_type(one: pa.Field, other: pa.Field) -> bool:
    return bool(_OLDER.get(one.type, one.type) == _OLDER.get(other.type, other.type))


def _check_videos(folder: str, path: str, reader: pa.ipc.RecordBatchFileReader, features: Features) -> None:
    """Raise SidecarMismatch or BadReference if the external file of a video is missing or differs."""
    kept = {name: feature for name, feature in features.items() if keeps_files(feature)}
    if not kept:
        return
    files = VideoFolder(LocalStore(), folder, path)
    for i in range(reader.num_record_batches):
        batch = reader.get_batch(i)
        batch.validate(full=True)
        for name, feature in kept.items():
            for at in range(0, len(batch), _FILM_ROWS):
                some = batch.column(name).slice(at, _FILM_ROWS)
                with errors_at(column=name):
                    _check_stored_videos(
                        files, {video for _, video in stored_videos(some, feature, np.arange(len(some)))}
                    )


def _check_stored_videos(files: VideoFolder, videos: Iterable[ExternalVideo]) -> None:
    for video in videos:
        try:
            files.head(video)
        except NotFound as error:
            raise SidecarMismatch("the file of a video is not there", file=files.shard, expected=error.file,
                                  advice=_REBUILD) from error  # fmt: skip
