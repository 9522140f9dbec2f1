"""Fetch the files of a shard into a local folder: download, check, unpack.

Source: mosaicml-streaming 0.13.0, base/stream.py (`Stream.prepare_shard`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from lading._core.codecs import new_hash, unpack_file
from lading._core.storage.base import Buffer, Store, aborting, store_errors, write_file
from lading._core.storage.base import FileInfo as StoredFile
from lading._core.storage.cached import CachedStore
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores, resolve
from lading.compat.reader import FileInfo, refuse_outside
from lading.errors import LimitExceeded, NotFound, SidecarMismatch, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["Remote"]

_REQUEST_BYTES, _REQUESTS = 8 << 20, 4
"""Bytes of a request, and requests that are sent together."""


@dataclass(frozen=True, slots=True)
class Remote:
    """The source of missing files, and the rules for checking and keeping them.

    Attributes:
        url: folder of the split; None if nothing can be fetched.
        stores: store of each URL.
        validate_hash: name of the hash that is compared; None compares sizes only.
        keep_zip: keep a compressed file after it was unpacked.
        limits: limits on the files.
    """

    url: str | None = None
    stores: Stores | None = None
    validate_hash: str | None = None
    keep_zip: bool = True
    limits: Limits = DEFAULT_LIMITS

    def prepare(self, folder: str, raw: FileInfo, packed: FileInfo | None, compression: str) -> int:
        """Make sure that an unpacked file exists; return the change of bytes in the folder.

        Args:
            folder: local folder of the split.
            raw: the unpacked file.
            packed: the compressed file; None if there is none.
            compression: name in `_core.codecs` of the compression.

        Raises:
            NotFound: a file is missing here and at the URL.
            SidecarMismatch: a size or hash differs from the index. The file is not kept.
            UsageError: the index has no hash of this name.
            LimitExceeded: the unpacked shard is too large.
        """
        target = os.path.join(folder, raw.basename)
        refuse_outside(folder, target)
        if os.path.isfile(target):
            return 0 if packed is None or self.keep_zip else -_removed(os.path.join(folder, packed.basename))
        if packed is None:
            self.download(raw, target)
            return raw.bytes
        source, delta = os.path.join(folder, packed.basename), 0
        if not os.path.isfile(source):
            self.download(packed, source)
            delta += packed.bytes
        try:
            self._unpack(source, target, raw, packed, compression)
        except NotFound:  # another process or thread has unpacked and removed the same file meanwhile
            if not os.path.isfile(target):
                raise
            return 0
        return delta + raw.bytes - (0 if self.keep_zip else _removed(source))

    def download(self, file: FileInfo, target: str) -> None:
        """Copy a file of the URL to a local path, where it appears complete or not at all. Raises as `prepare`."""
        if self.url is None:
            raise NotFound("no such file, and no remote to fetch it from", file=target,
                           advice="Give remote= to LocalCopy, or copy the file there.")  # fmt: skip
        store, path = resolve(f"{self.url}/{file.basename}", self.stores)
        info = store.head(path)
        size = info.size_bytes
        if size != file.bytes:
            raise SidecarMismatch("the size differs from what the index says", file=path,
                                  expected=f"{file.bytes} bytes", found=f"{size} bytes")  # fmt: skip
        check = self._check_of(file, path)
        if isinstance(store, CachedStore):
            store.keep(info)
        with aborting(LocalStore().put_stream(target)) as sink:
            for parts in _parts(store, info):
                sink.write(parts)
                check.add(parts)
            check.finish()
            sink.close()

    def _unpack(self, source: str, target: str, raw: FileInfo, packed: FileInfo, compression: str) -> None:
        store = LocalStore()
        if raw.bytes > self.limits.shard_bytes:
            raise self.limits.exceeded("shard_bytes", "a compressed shard is too large to be held", file=source,
                                       found=raw.bytes)  # fmt: skip
        [data] = store.get_ranges(source, [(0, store.head(source).size_bytes)])
        check = self._check_of(packed, source)
        check.add([data])
        check.finish()
        with errors_at(file=source):
            try:
                body = unpack_file(compression, data, raw.bytes, self.limits)
            except LimitExceeded as error:
                if error.advice:  # the limit is one of memory
                    raise
                raise SidecarMismatch("the file unpacks to more than the index says", found=error.found,
                                      expected=f"{raw.bytes} bytes") from error  # fmt: skip
            if len(body) != raw.bytes:
                raise SidecarMismatch("the file unpacks to less than the index says", found=f"{len(body)} bytes",
                                      expected=f"{raw.bytes} bytes")  # fmt: skip
        write_file(store, target, [pa.py_buffer(body)])

    def _check_of(self, file: FileInfo, path: str) -> _Check:
        name = self.validate_hash
        if name and name not in file.hashes:
            raise UsageError("the index has no hash of this name", file=path, found=f"validate_hash={name!r}",
                             expected=", ".join(sorted(file.hashes)) or "none, since the index has no hashes",
                             )  # fmt: skip
        return _Check(path, name or "", file.hashes[name] if name else "")


class _Check:
    """The comparison of a file's hash with the index; nothing is compared without the name of a hash."""

    def __init__(self, path: str, name: str, expected: str) -> None:
        self._path, self._name, self._expected = path, name, expected
        self._hash = new_hash(name) if name else None

    def add(self, parts: Sequence[Buffer]) -> None:
        """Add bytes of the file."""
        if self._hash is not None:
            for part in parts:
                self._hash.update(memoryview(part))

    def finish(self) -> None:
        """Raise SidecarMismatch if the hash differs."""
        found = self._hash.hexdigest() if self._hash is not None else ""
        if found != self._expected:
            raise SidecarMismatch(f"the {self._name} of the file differs from what the index says", file=self._path,
                                  expected=self._expected, found=found)  # fmt: skip


def _parts(store: Store, info: StoredFile) -> Iterator[list[Buffer]]:
    """Yield the bytes of a version of a file, a few requests at a time."""
    size = info.size_bytes
    ranges = [(at, min(_REQUEST_BYTES, size - at)) for at in range(0, size, _REQUEST_BYTES)]
    for first in range(0, len(ranges), _REQUESTS):
        yield store.get_ranges(info.path, ranges[first : first + _REQUESTS], info.version)


def _removed(path: str) -> int:
    """Remove a file; return the bytes freed."""
    with suppress(NotFound), store_errors(path):
        size = os.lstat(path).st_size
        os.unlink(path)
        return size
    return 0
