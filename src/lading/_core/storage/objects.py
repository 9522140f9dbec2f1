"""Object stores through obstore: S3 and what speaks like it, Google Cloud Storage, Azure, and files of web servers.

Paths are full URLs. Requests run in threads of their own, so that many are under way at once and Ctrl-C ends a wait.
What failed in a transient way is repeated here (`_core.storage.retries`), until `retry_s`. obstore itself repeats a
request twice, and goes on where a body broke. Parts of an upload only obstore can repeat, so it does that to the end.

Its runtime does not survive a fork: in a child of a process that has used it, every request would wait for ever. There,
a program makes the requests of reads (`_core.storage.forked`); writing is refused.
"""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import compress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from lading._core.secret_urls import cleaned, whole
from lading._core.storage.base import (
    Buffer,
    FileInfo,
    aborting,
    check_inside,
    check_version,
    store_errors,
    unfinished,
)
from lading._core.storage.credentials import profile_options, refuse_no_credentials
from lading._core.storage.fetch_plan import GAPS_A_REQUEST
from lading._core.storage.forked import FORKED, relayed
from lading._core.storage.object_errors import (
    QUICK_RETRIES,
    holds_secret,
    is_outside,
    is_refused,
    is_whole,
    may_pass,
    own_error,
)
from lading._core.storage.publish import publish_by_copies
from lading._core.storage.retries import Retries, is_transient
from lading._core.storage.store_options import (
    KINDS,
    check_endpoint,
    client_settings,
    for_obstore,
    refuse_unknown,
    without_values,
)
from lading._core.storage.threads import Threads
from lading.errors import LadingError, ShortRead, StoreError, UsageError, missing_extra

if TYPE_CHECKING:
    import obstore.store

__all__ = ["PART_BYTES", "ObjectSink", "ObjectStore", "is_usable", "serves"]

_LOG = logging.getLogger("lading.storage")
_T = TypeVar("_T")

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
"""Variables with the URL of a server."""
_REQUESTS: Final = 32
"""Requests under way at once, of a store."""
PART_BYTES: Final = 8 << 20
"""Of an upload. S3 takes 10,000 parts, so 80 GB."""
_PARTS: Final = 4
"""Parts of an upload under way at once."""
_DELETED: Final = 1000
"""Files deleted by one request."""
_RETRY_S: Final = 180.0
_TIMEOUT_S: Final = 60.0
_QUICK_S: Final = 10.0
"""obstore repeats no request that began longer ago: a server that sends nothing counts as failed once."""
_LONGEST_S: Final = 5.0
"""Between two of them."""
_UPLOAD_RETRIES: Final = 1_000_000
"""Of a part of an upload: the time decides."""
_SAY_EVERY_S: Final = 10.0
_UNKNOWN: Final = re.compile(r"Configuration key: '([^']*)' is not valid")

_used_in: int | None = None
"""The process that used obstore first: its children cannot."""


def serves(scheme: str) -> bool:
    """Return whether obstore has stores of this scheme, and is installed."""
    return scheme in KINDS and find_spec("obstore") is not None


def is_usable() -> bool:
    """Return whether this process may use obstore: it is not the forked child of one that has."""
    return _used_in is None or _used_in == os.getpid()


_reads = relayed(is_usable)


class ObjectStore:
    """Files of one bucket or container.

    Args:
        place: its URL: `s3://bucket`, `gs://bucket`, `az://container`,
            `abfss://container@account.dfs.core.windows.net`, or `https://host`, whose files are only read.
        options: such as `endpoint`, `region` or `access_key_id` (`_core.storage.store_options`). By default the
            environment says. `retry_s` is how long a failing request is repeated, in seconds, and `timeout_s` how long
            a server may send nothing. A request as a whole may take any time. Ranges nearer than `gap_bytes` are read
            together.
    """

    request_bytes = 1 << 20
    copy_bytes = 5 << 30
    """Size of the largest file that a server of S3 copies itself."""

    def __init__(
        self,
        place: str,
        *,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.place = place.rstrip("/")
        self._options = dict(options)
        if "gap_bytes" in options:
            self.request_bytes = options["gap_bytes"] * GAPS_A_REQUEST

    def __getstate__(self) -> dict[str, Any]:
        own = ("_objects", "_uploads", "_threads")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    @cached_property
    def _objects(self) -> obstore.store.ObjectStore:
        return _opened(self.place, self._options, QUICK_RETRIES, min(_QUICK_S, self._retries.deadline_s))

    @cached_property
    def _uploads(self) -> obstore.store.ObjectStore:
        return _opened(self.place, self._options, _UPLOAD_RETRIES, self._retries.deadline_s)

    @cached_property
    def _threads(self) -> Threads:
        return Threads(_REQUESTS, "lading-store")

    @_reads
    def head(self, path: str) -> FileInfo:
        """Return size, and the etag or the time of the last change as the version. Raises NotFound."""
        look = partial(_obstore().head, self._objects, self._key(path))
        [found] = self._each([partial(self._repeat, path, look, is_first=True)])
        return _info(path, found)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield every file below a folder, by path in code-point order.

        Holds the listing; leaves unfinished files out.
        """
        folder = self._key(prefix).rstrip("/")
        found = self._listed(prefix, folder)
        lead = f"{self.place}/"
        inside = len(folder) + 1 if folder else 0
        folders = {each["path"].rpartition("/")[0] for each in found}
        infos = [
            _info(lead + each["path"], each)
            for each in found
            if len(each["path"]) > inside
            and not any(map(unfinished, each["path"][inside:].split("/")))
            and (each["size"] or each["path"] not in folders)  # an empty object may stand for a folder
        ]
        yield from sorted(infos, key=lambda info: info.path)

    @_reads
    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one buffer per range, requested concurrently. What failed in a transient way is repeated."""
        for offset, length in ranges:
            if offset < 0 or length < 0:
                raise ShortRead("not a range of a file", file=path, offset=offset, found=f"{length} bytes")
        self._meet(path)
        calls = [partial(self._range, path, offset, length, version) for offset, length in ranges if length]
        try:
            answers = iter(self._each(calls))
        except StoreError as error:
            if is_outside(str(error)):
                info = self.head(path)
                check_version(path, version, info.version)
                check_inside(path, ranges, info.size_bytes)
            raise
        return [next(answers) if length else b"" for _, length in ranges]

    def _range(self, path: str, offset: int, length: int, version: str) -> Buffer:
        """Return the bytes of one range. obstore goes on where a body broke, unless the server ended it early."""
        objects, key = self._objects, self._key(path)
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version.startswith('"'):  # a weak etag, or a time, never matches
            options["if_match"] = version

        def ask() -> tuple[Any, FileInfo]:
            with _errors(path):
                try:
                    answer = _obstore().get(objects, key, options=options)
                    data = answer.bytes()
                except _obstore().exceptions.PreconditionError:
                    check_version(path, version, _info(path, _obstore().head(objects, key)).version)
                    raise
            info = _info(path, answer.meta)
            check_version(path, version, info.version)
            if len(data) != min(length, info.size_bytes - offset):
                raise ShortRead("the store gave too few bytes", file=path, offset=offset, expected=length,
                                found=len(data), advice="The connection broke: check the network.")  # fmt: skip
            return data, info

        def ask_again() -> tuple[Any, FileInfo]:
            try:
                return ask()
            except StoreError as error:
                if not is_whole(str(error.__cause__)):
                    raise
                return ask()  # a cache on the way gave the whole file, perhaps

        data, info = self._retries.call(ask_again, path, _is_worth)
        check_inside(path, [(offset, length)], info.size_bytes)
        return memoryview(data)

    def put_stream(self, path: str) -> ObjectSink:
        """Return a sink for a new file, uploaded in parts. It holds up to five parts of 8 MB."""
        return ObjectSink(self, path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Give a file or folder its final name, file by file (`publish_by_copies`), many at once."""
        publish_by_copies(self, source, target, replace=replace)

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with everything below it."""
        key = self._key(path).rstrip("/")
        found = self._listed(path, key)
        keys = [key] if key else []
        self._delete_all(path, [*keys, *(each["path"] for each in found)])

    def copy_all(self, copies: Sequence[tuple[FileInfo, str]]) -> None:
        """Copy files inside of the store, up to 32 at once.

        S3 copies no file of more than 5 GB: such files are read and written again, through this machine.
        """
        most = self.copy_bytes if KINDS.get(urlsplit(self.place).scheme) == "s3" else None
        large = [most is not None and file.size_bytes > most for file, _ in copies]
        copy = _obstore().copy
        self._each(
            [
                partial(self._repeat, file.path, partial(copy, self._objects, self._key(file.path), self._key(new)))
                for (file, new), is_large in zip(copies, large, strict=True)
                if not is_large
            ]
        )
        for file, new in compress(copies, large):
            self._write_again(file, new)

    def _write_again(self, file: FileInfo, target: str) -> None:
        ranges = [(at, min(PART_BYTES, file.size_bytes - at)) for at in range(0, file.size_bytes, PART_BYTES)]
        with aborting(self.put_stream(target)) as sink:
            for first in range(0, len(ranges), _PARTS):
                sink.write(self.get_ranges(file.path, ranges[first : first + _PARTS], file.version))
            sink.close()

    @_reads
    def folders(self, parent: str) -> list[str]:
        """Return the paths of the folders in a folder."""
        self._meet(parent)
        folder = self._key(parent).rstrip("/")
        listed = partial(_obstore().list_with_delimiter, self._objects, folder or None)
        [found] = self._each([partial(self._repeat, parent, listed)])
        return [f"{self.place}/{prefix.rstrip('/')}" for prefix in found["common_prefixes"]]

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless one of this name exists; return whether this call wrote it.

        A server without conditional writes replaces the file.
        """
        self._meet(path)
        put = partial(_obstore().put, self._objects, self._key(path), data)
        already, refused = _obstore().exceptions.AlreadyExistsError, _obstore().exceptions.NotSupportedError

        def attempt() -> bool:
            try:
                put(mode="create")
            except already:
                return False
            except refused:
                put()
            return True

        [created] = self._each([partial(self._repeat, path, attempt)])
        return created

    def writer(self, path: str) -> Any:
        """The writer of a new file, from obstore."""
        self._meet(path)
        with _errors(path):
            return _obstore().open_writer(
                self._uploads, self._key(path), buffer_size=PART_BYTES, max_concurrency=_PARTS
            )

    def upload(self, path: str, call: Callable[[], _T]) -> _T:
        """The result of a call of a writer, which waits for parts of an upload. What takes long is told."""
        result = self._threads.submit(call)
        waited = 0.0
        while not concurrent.futures.wait([result], timeout=_SAY_EVERY_S).done:
            waited += _SAY_EVERY_S
            _LOG.warning("waiting for %s: its upload goes on (%.0f s)", path, waited)
        with _errors(path):
            return result.result()

    @_reads
    def _listed(self, path: str, key: str) -> list[Any]:
        """The facts of all objects below a key."""
        self._meet(path)
        [found] = self._each(
            [partial(self._repeat, path, lambda: _obstore().list(self._objects, key or None).collect())]
        )
        return list(found)

    def _delete_all(self, path: str, keys: Sequence[str]) -> None:
        groups = [keys[first : first + _DELETED] for first in range(0, len(keys), _DELETED)]

        def delete(group: Sequence[str]) -> None:
            with suppress(FileNotFoundError):
                _obstore().delete(self._objects, group if len(group) > 1 else group[0])

        self._each([partial(self._repeat, path, partial(delete, group)) for group in groups])

    def _each(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
        """The results of calls that run at once. The first error stops those that have not begun."""
        results = [self._threads.submit(call) for call in calls]
        try:
            return [result.result() for result in results]
        finally:
            for result in results:
                result.cancel()

    def _meet(self, path: str) -> None:
        """Have the server answer once, before a call that may take long."""
        self._retries.meet(self.head, path if self._key(path).strip("/") else f"{self.place}/.lading")

    def _repeat(self, path: str, call: Callable[[], _T], *, is_first: bool = False) -> _T:
        """The result of a call that may be made twice."""

        def attempt() -> _T:
            with _errors(path):
                return call()

        return self._retries.call(attempt, path, is_first=is_first)

    @cached_property
    def _retries(self) -> Retries:
        host = str(self._options.get("endpoint") or _named_endpoint() or self.place)
        return Retries(float(self._options.get("retry_s", _RETRY_S)), host)

    def _key(self, path: str) -> str:
        return path[len(self.place) + 1 :]


class ObjectSink:
    """A file being uploaded. Nothing of it is visible before `close`."""

    __slots__ = ("_file", "_store", "_written", "path")

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.path = path
        self._store, self._written = store, 0
        self._file: Any = store.writer(path)

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order."""
        for buffer in buffers:
            view = memoryview(buffer)
            view = view.cast("B") if view.nbytes else view
            for at in range(0, view.nbytes, PART_BYTES):
                part = bytes(view[at : at + PART_BYTES])  # obstore keeps what it is given
                self._store.upload(self.path, partial(self._file.write, part))
            self._written += view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written

    def close(self) -> FileInfo:
        """Complete the upload; leave nothing on failure."""
        file, self._file = self._file, None
        self._store.upload(self.path, file.close)
        info = self._store.head(self.path)
        if info.size_bytes != self._written:
            raise StoreError("the store holds another file than was written", file=self.path,
                             expected=f"{self._written} bytes", found=f"{info.size_bytes} bytes")  # fmt: skip
        return info

    def abort(self) -> None:
        """Drop the written bytes. Where the server fails, parts stay there, which nobody sees."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(StoreError), _errors(self.path):
                file.__exit__(_Aborted, _Aborted(), None)


class _Aborted(Exception):
    """Tells a writer of obstore to drop an upload."""


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Convert errors of obstore into lading's own."""
    with store_errors(path):
        try:
            yield
        except LadingError:
            raise
        except Exception as error:
            # Writers of obstore raise OSError itself, without a number, for what a server says.
            if isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError):
                raise
            own = own_error(error, path)
            if isinstance(own, StoreError) and may_pass(error):
                own.errno = errno.ECONNREFUSED if is_refused(error) else errno.EAGAIN
            raise own from (None if holds_secret(error) else error)


def _obstore() -> Any:
    global _used_in  # noqa: PLW0603 - a fact of the process
    if not is_usable():
        raise UsageError("a forked process cannot write to the object store that its parent has used", advice=FORKED)
    import obstore

    _used_in = os.getpid()
    return obstore


def _named_endpoint() -> str | None:
    """The URL of a server that the environment names."""
    return next((found for found in map(os.environ.get, _ENDPOINTS) if found), None)


def _opened(place: str, given: Mapping[str, Any], retries: int, retry_s: float) -> obstore.store.ObjectStore:
    """The store of a place, which repeats a request so many times, and no longer than so many seconds."""
    url = urlsplit(place)
    try:
        _obstore()
        from obstore import store as stores
        from obstore.exceptions import BaseError
    except ImportError as error:
        install = f"Run: pip install 'lading[{KINDS[url.scheme]}]'."
        raise missing_extra(error, f"{url.scheme}:// needs obstore", "obstore", install, file=place) from error
    options, kind = for_obstore(url.scheme, given), KINDS[url.scheme]
    options.pop("retry_s", None)
    timeout_s, profile = options.pop("timeout_s", _TIMEOUT_S), options.pop("profile", None)
    if kind == "s3" and not options.get("skip_signature"):
        options = {**profile_options(profile), **options}
    container, endpoint = place, place
    if kind != "http":
        endpoint = str(options.get("endpoint") or _named_endpoint() or place)
        check_endpoint(endpoint)
        container, _, account = url.netloc.partition("@")
        if account:
            options = {"account_name": account.partition(".")[0], **options}
        refuse_no_credentials(kind, place, options)
    more = options.pop("client_options", {})
    if kind == "http":  # obstore leaves out the user of a URL
        container, headers = _without_user(whole(place))
        more = {**more, "default_headers": {**headers, **more.get("default_headers", {})}} if headers else more
    client: Any = client_settings(endpoint, timeout_s, more)
    retry: Any = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=retry_s),
        "backoff": {"max_backoff": timedelta(seconds=_LONGEST_S)},
    }
    makers = {"s3": stores.S3Store, "gcs": stores.GCSStore, "azure": stores.AzureStore, "http": stores.HTTPStore}
    make: Any = makers[kind]
    try:
        made: obstore.store.ObjectStore = make(container, client_options=client, retry_config=retry, **options)
    except (BaseError, TypeError, ValueError) as error:
        if unknown := _UNKNOWN.search(str(error)):
            refuse_unknown([unknown[1]], [], url.scheme, "obstore")
        advice = "Add --storage-option account_name=NAME." if "Account must be" in str(error) else None
        if kind == "http":
            advice = "Options of fsspec need backend=fsspec as a further storage option."
        raise UsageError("the options of the store are wrong", file=place,
                         found=cleaned(without_values(str(error), options)), advice=advice) from None  # fmt: skip
    return made


def _without_user(url: str) -> tuple[str, dict[str, str]]:
    """The URL of a web server without a user, and the header that says who that is."""
    scheme, mark, rest = url.partition("://")
    user, _, host = rest.rpartition("@")
    said = b64encode(unquote(user).encode()).decode()
    return f"{scheme}{mark}{host}", {"Authorization": f"Basic {said}"} if user else {}


def _is_worth(error: StoreError) -> bool:
    """Whether a read is repeated: also if its answer was cut."""
    return isinstance(error, ShortRead) or is_transient(error)


def _info(path: str, found: Mapping[str, Any]) -> FileInfo:
    etag = found["e_tag"]
    if etag and not etag.endswith('"'):
        etag = f'"{etag}"'  # as Azure lists it
    changed = found["last_modified"].timestamp() or ""  # 1970 where a server says nothing
    return FileInfo(path, found["size"], str(etag or found["version"] or changed))
