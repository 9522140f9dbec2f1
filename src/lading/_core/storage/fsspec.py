"""Every fsspec backend: S3, GCS, Azure, HTTP, SFTP and others.

Paths are full URLs. A backend is imported, and connects, at the first call in a process. A store that was made before a
fork makes a new connection in the child.

If uploads of a backend are invisible until complete (object stores), files are written in place. Other backends write
under a hidden name and rename. There a folder is published file by file, `_lading/manifest.json` last.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from lading._core.secret_urls import cleaned, whole
from lading._core.storage.base import (
    Buffer,
    FileInfo,
    check_inside,
    check_version,
    no_file,
    store_errors,
    temporary_name,
    unfinished,
)
from lading._core.storage.concurrent import concurrent_map
from lading._core.storage.fetch_plan import GAPS_A_REQUEST
from lading._core.storage.publish import publish_by_copies
from lading._core.storage.retries import DEFAULT_RETRIES, Retries, is_transient
from lading._core.storage.store_options import for_fsspec, without_values
from lading.errors import LadingError, NotFound, ShortRead, StoreError, UsageError, missing_extra

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["FsspecSink", "FsspecStore", "exactly", "own_errors"]

FileSystem: TypeAlias = "AbstractFileSystem"

_ATOMIC = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "tos", "r2"))
"""Schemes whose uploads are invisible until they are complete."""
_PART_BYTES = 8 << 20
"""Largest buffer passed to a backend at once: the backend may copy all of it."""
_UNCHECKED_BYTES = 64 << 20
"""A longer range is checked against the file's size first: some backends allocate its memory whatever the file holds.
"""
_VERSION_KEYS = ("ETag", "etag", "generation", "mtime", "LastModified", "last_modified", "updated", "created",
                 "blob_id", "xet_hash")  # fmt: skip
_GLOB = re.compile(r"[*?\[]")
_EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure", "huggingface_hub": "hf"}
"""Extras of lading by the package that they install."""


class FsspecStore:
    """Files of one fsspec file system.

    Args:
        place: a URL, whose scheme and host select the file system; or a file system (not to be used across forks if it
            is asynchronous).
        atomic_put: whether an upload is invisible until it is complete; None = the known behaviour of the scheme.
        options: options of the file system that a URL names (`_core.storage.store_options`), or as fsspec takes them.
        retries: how long a failing read is repeated; by default `retry_s` of the options says. Some backends repeat
            requests of their own.
    """

    request_bytes = 1 << 20

    def __init__(
        self,
        place: str | FileSystem,
        *,
        atomic_put: bool | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        retries: Retries | None = None,
    ) -> None:
        self._place, self._options = place, dict(options)
        host = str(options.get("endpoint", place)) if isinstance(place, str) else ""
        self._retries = retries or Retries(float(options.get("retry_s", DEFAULT_RETRIES.deadline_s)), host)
        if "gap_bytes" in options:
            self.request_bytes = options["gap_bytes"] * GAPS_A_REQUEST
        self._atomic_put = atomic_put
        self._made: tuple[int, FileSystem] | None = None

    @property
    def fs(self) -> FileSystem:
        """Return the file system of this process. Raises MissingExtra, UsageError."""
        if not isinstance(self._place, str):
            return self._place
        if self._made is None or self._made[0] != os.getpid():
            self._made = (os.getpid(), _file_system(self._place, self._options))
        return self._made[1]

    @property
    def atomic_put(self) -> bool:
        """Return whether an upload is invisible until it is complete."""
        if self._atomic_put is not None:
            return self._atomic_put
        schemes = self.fs.protocol
        return bool(_ATOMIC.intersection([schemes] if isinstance(schemes, str) else schemes))

    def head(self, path: str) -> FileInfo:
        """Return size, and etag or modification time as the version. Raises NotFound, or StoreError if not a file."""
        found = self._retries.call(partial(self._facts, path), path, is_first=True)
        if found["type"] != "file":
            raise no_file(path, f"a {found['type']}")
        if found["size"] is None:
            raise StoreError("the server does not say how long the file is", file=path, advice="Download it first.")
        return _info(path, found)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield every file below a folder, by path in code-point order.

        Holds the listing; leaves unfinished files out.
        """
        fs = self.fs
        found: Mapping[str, Any] = {}
        lead = prefix if prefix.endswith("/") or not prefix else prefix + "/"
        root = ""
        with suppress(NotFound):  # of S3, where there is no such bucket
            self._retries.meet(self.head, prefix)
            root = _stripped(fs, prefix)
            found = self._retries.call(partial(self._found, prefix), prefix)
        infos = []
        for name, info in found.items():
            inside = name.removeprefix(root).lstrip("/")
            if inside and info.get("type") != "directory" and not any(map(unfinished, inside.split("/"))):
                infos.append(_info(lead + inside, info))
        yield from sorted(infos, key=lambda info: info.path)

    def _errors(self, path: str) -> AbstractContextManager[None]:
        return _errors(path)

    def _facts(self, path: str) -> dict[str, Any]:
        fs = self.fs
        with self._errors(path):
            fs.invalidate_cache(whole(path))
            found: dict[str, Any] = fs.info(whole(path))
            return found

    def _found(self, prefix: str) -> Mapping[str, Any]:
        fs = self.fs
        with self._errors(prefix):
            fs.invalidate_cache(whole(prefix))
            found: Mapping[str, Any] = fs.find(whole(prefix), detail=True)
            return found

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one `bytes` per range, requested concurrently where the backend supports it.

        Ranges that failed are repeated. The version is compared by one more request, after the answers have come.
        """
        fs = self.fs
        wanted = [(offset, length) for offset, length in ranges if length]
        for offset, length in wanted:
            if offset < 0 or length < 0:
                # In fsspec, a negative offset counts from the end.
                raise ShortRead("not a range of a file", file=path, offset=offset, found=f"{length} bytes")
        if any(length > _UNCHECKED_BYTES for _, length in wanted):
            check_inside(path, wanted, self.head(path).size_bytes)
        self._retries.meet(self.head, path)
        came: dict[int, bytes] = {}
        try:
            ask = partial(_ask_missing, fs, path, wanted, came)
            self._retries.call(ask, path, partial(self._may_pass, path, wanted))
        except StoreError as error:
            if _outside(error):
                check_inside(path, wanted, self.head(path).size_bytes)
            raise
        if version:
            check_version(path, version, self.head(path).version)
        answers = iter([came[number] for number in range(len(wanted))])
        return [next(answers) if length else b"" for _, length in ranges]

    def _may_pass(self, path: str, ranges: Sequence[tuple[int, int]], error: StoreError) -> bool:
        """Whether the same request may succeed: also if an answer was cut, and its range is inside the file."""
        if isinstance(error, ShortRead):
            size = self.head(path).size_bytes
            return all(length <= size - offset for offset, length in ranges)
        return is_transient(error)

    def put_stream(self, path: str) -> FsspecSink:
        """Return a sink for a new file. It holds the buffer of the backend: some 5 to 50 MB."""
        self._retries.meet(self.head, path)
        return FsspecSink(self, path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Give a file or folder its final name, file by file (`publish_by_copies`)."""
        publish_by_copies(self, source, target, replace=replace)

    def copy_all(self, copies: Sequence[tuple[FileInfo, str]]) -> None:
        """Copy files inside of the store, up to 16 at once; rename them if the backend has a rename."""
        calls = [partial(self._give_name, old.path, new) for old, new in copies]
        for _ in concurrent_map(calls, remote=not _renames(self.fs)):
            pass

    def _give_name(self, source: str, target: str) -> None:
        if _renames(self.fs):
            self.move(source, target)
            return
        with _errors(source):
            self.make_parent(target)
            self.fs.cp_file(whole(source), whole(target))

    def folders(self, parent: str) -> list[str]:
        """Return the paths of the folders in a folder."""
        fs = self.fs
        with _errors(parent):
            fs.invalidate_cache(whole(parent))
            try:
                found = fs.ls(whole(parent), detail=True)
            except FileNotFoundError:
                return []
        names = [info["name"].rstrip("/").rpartition("/")[2] for info in found if info["type"] == "directory"]
        return [f"{parent.rstrip('/')}/{name}" for name in sorted(names)]

    def move(self, source: str, target: str) -> None:
        """Rename one file; copy and delete it if the backend has no rename."""
        fs = self.fs
        with _errors(source):
            self.make_parent(target)
            if _renames(fs):
                fs.mv(whole(source), whole(target))
            else:
                fs.cp_file(whole(source), whole(target))
                fs.rm_file(whole(source))

    def make_parent(self, path: str) -> None:
        """Create the folder of a file, if the backend has folders."""
        parent = path.rpartition("/")[0].rstrip("/")
        if parent and not parent.endswith(":") and not self.atomic_put:
            self.fs.makedirs(whole(parent), exist_ok=True)

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with everything below it."""
        fs, url = self.fs, whole(path)
        with _errors(path), suppress(FileNotFoundError):
            if _GLOB.search(url):
                # `rm` would interpret the name as a pattern.
                for name in [url] if fs.isfile(url) else fs.find(url):
                    fs.rm_file(name)
            else:
                fs.rm(url, recursive=True)


class FsspecSink:
    """A file being uploaded, or written under a hidden name."""

    __slots__ = ("_file", "_open", "_store", "_written", "_written_as", "path")

    def __init__(self, store: FsspecStore, path: str) -> None:
        self.path = path
        self._store = store
        self._written_as = path if store.atomic_put else temporary_name(path, ".tmp")
        self._written = 0
        fs = store.fs
        with _errors(path):
            store.make_parent(path)
            self._file = fs.open(whole(self._written_as), "wb")
        self._open = True

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order."""
        with _errors(self.path):
            for buffer in buffers:
                view = memoryview(buffer)
                view = view.cast("B") if view.nbytes else view
                for at in range(0, view.nbytes, _PART_BYTES):
                    self._file.write(view[at : at + _PART_BYTES])
                self._written += view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> FileInfo:
        """Complete the upload, or rename the file; leave nothing on failure."""
        named = False
        try:
            with _errors(self.path):
                self._file.close()
            if self._written_as != self.path:
                self._store.move(self._written_as, self.path)
            named = True
            info = self._store.head(self.path)
            _check_size(info, self._written)
        except StoreError:
            if named:  # the first error is reported, whether or not the file can be deleted
                with suppress(LadingError), _errors(self.path):
                    self._store.fs.rm_file(whole(self.path))
            self.abort()
            raise
        self._open = False
        return info

    def abort(self) -> None:
        """Drop the written bytes."""
        if not self._open:
            return
        self._open = False
        with _errors(self.path):
            if self._written_as == self.path:
                # Closing completes the upload, even during garbage collection: mark the file object as closed.
                if not self._file.closed:
                    self._file.discard()
                    self._file.closed = True
            else:
                self._file.close()
                with suppress(FileNotFoundError):
                    self._store.fs.rm_file(whole(self._written_as))


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Convert errors of a backend into lading's own. What names a URL with its secret is no cause of them."""
    try:
        with own_errors(path):
            yield
    except StoreError as error:
        if whole(path) == path and not any(map(_holds_secret, _causes(error))):
            raise
        if _outside(error):
            error.errno = errno.EINVAL
        elif is_transient(error):
            error.errno = error.errno or errno.EAGAIN
        error.message = cleaned(error.message.replace(whole(path), path))
        raise error from None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors behind an error, each once: one that is raised again may stand behind itself."""
    seen = {id(error)}
    while (cause := error.__cause__ or error.__context__) is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        error = cause


def _holds_secret(error: BaseException) -> bool:
    return cleaned(str(error)) != str(error)


@contextmanager
def own_errors(path: str) -> Iterator[None]:
    """Convert errors of a backend into lading's own. Each backend has classes of its own for a failed connection."""
    with store_errors(path):
        try:
            yield
        except FileNotFoundError as error:
            hidden = error.__cause__
            # fsspec's HTTP raises "not found" for every failure.
            if type(hidden).__module__.startswith("aiohttp") and getattr(hidden, "status", 0) != HTTPStatus.NOT_FOUND:
                raise hidden from None  # type: ignore[misc] # an exception, since it has a module of aiohttp's
            raise
        except NotImplementedError as error:
            raise UsageError("this kind of store cannot do that", file=path, advice="Use another place.") from error
        except Exception as error:
            if isinstance(error, (OSError, LadingError)) or type(error).__module__ == "builtins":
                raise
            cause = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise StoreError(cause, file=path, advice="Check the network, and that the URL is right.") from error


def _file_system(url: str, options: Mapping[str, Any]) -> FileSystem:
    """Return the file system of a URL."""
    from fsspec.core import url_to_fs

    scheme = urlsplit(url).scheme
    try:
        with _errors(url):
            fs, _ = url_to_fs(whole(url), **for_fsspec(scheme, options))
    except ImportError as error:
        package = _package(scheme)
        if package == "fsspec":  # which imports another one for this scheme
            package = getattr(error.__cause__ or error, "name", None) or package
        raise missing_extra(error, f"{scheme}:// needs {package}", package, _cure(scheme), file=url) from error
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        found = cleaned(without_values(str(error), options))
        raise UsageError(f"no store serves {scheme}://", file=url, found=found) from error
    return fs


def _package(scheme: str) -> str:
    from fsspec.registry import known_implementations

    return str(known_implementations[scheme]["class"].partition(".")[0])


def _cure(scheme: str) -> str:
    package = _package(scheme)
    extra = "http" if scheme in ("http", "https") else _EXTRAS.get(package)
    if extra is not None:
        return f"Run: pip install 'lading[{extra}]'."
    if package == "fsspec":
        package = f"fsspec[{'sftp' if scheme == 'ssh' else scheme}]"
    return f"Run: pip install '{package}'."


def _renames(fs: FileSystem) -> bool:
    """Return whether a file system has its own rename; the inherited one interprets names with `[` as patterns."""
    from fsspec import AbstractFileSystem

    return type(fs).mv is not AbstractFileSystem.mv


def _stripped(fs: FileSystem, path: str) -> str:
    """Return a path as the file system itself names it."""
    name: str = fs._strip_protocol(whole(path))  # noqa: SLF001 - fsspec's own hook for this; the public forms add a scheme back
    return name.rstrip("/")


def _info(path: str, found: Mapping[str, Any]) -> FileInfo:
    large = found.get("lfs") or {}  # of the Hub
    version = large.get("sha256") or next((found[key] for key in _VERSION_KEYS if found.get(key)), "")
    if isinstance(version, datetime):
        version = version.timestamp()  # a backend may return a datetime here and seconds there
    version = str(version)
    if version and version == found.get("etag") and not version.endswith('"'):
        version = f'"{version}"'  # as Azure lists it
    odd = found.get("type") == "other" and not found.get("islink")
    return FileInfo(path, -1 if odd or found.get("size") is None else int(found["size"]), version)


def _check_size(info: FileInfo, written: int) -> None:
    if info.size_bytes != written:
        raise StoreError(
            "the store holds another file than was written",
            file=info.path,
            expected=f"{written} bytes",
            found=f"{info.size_bytes} bytes",
        )


def _ask_missing(fs: FileSystem, path: str, ranges: Sequence[tuple[int, int]], came: dict[int, bytes]) -> None:
    """Request the ranges that have not come yet, and keep those that come whole. Raises the error of the first."""
    asked = [number for number in range(len(ranges)) if number not in came]
    if not asked:
        return
    starts, stops = [ranges[n][0] for n in asked], [sum(ranges[n]) for n in asked]
    with _errors(path):
        answers = fs.cat_ranges([whole(path)] * len(asked), starts, stops, on_error="return")
    failed: Exception | None = None
    for number, answer in zip(asked, answers, strict=True):
        try:
            with _errors(path):
                if isinstance(answer, BaseException):
                    raise answer
            came[number] = exactly(path, *ranges[number], answer)
        except LadingError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _outside(error: StoreError) -> bool:
    """Return whether a server refused a range without any byte in the file: HTTP 416, from s3fs as EINVAL."""
    statuses = (getattr(error.__cause__, name, None) for name in ("status", "code"))
    return error.errno == errno.EINVAL or HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE in statuses


def exactly(path: str, offset: int, length: int, answer: bytes) -> bytes:
    """Return the answer to a request for a range. Raises ShortRead, StoreError unless it has this length."""
    if len(answer) < length:
        raise ShortRead(
            "the store gave too few bytes",
            file=path,
            offset=offset,
            expected=length,
            found=len(answer),
            advice="The file was cut or replaced since its index was made, or the connection broke.",
        )
    if len(answer) > length:
        raise StoreError(
            "the server returns whole files instead of ranges",
            file=path,
            offset=offset,
            expected=length,
            found=len(answer),
            advice="Download the file first.",
        )
    return answer
