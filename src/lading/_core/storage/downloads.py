"""Download files of the web that a table names: bounded in size and time, from public addresses alone.

A table of a stranger must not make this machine ask for what the stranger cannot reach. So the address of every
connection is checked where it is made, behind names, redirects and numbers in any spelling: no second look at a name
can give another address. What a server sends is counted as it arrives, headers included.

urllib3 speaks HTTP. A file takes one thread, and as many connections as its redirects and repeats need.
"""

from __future__ import annotations

import ipaddress
import random
import shutil
import socket
import ssl
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from mmap import ACCESS_READ, mmap
from typing import IO, Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np
import pyarrow as pa
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, make_headers
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as SlowAnswer
from urllib3.util import Timeout

from lading._core.secret_urls import cleaned
from lading._core.storage.retries import TRANSIENT_STATUS
from lading._core.storage.temporary import temporary_place, writing
from lading._core.storage.threads import Threads
from lading._core.units import format_bytes
from lading.errors import StoreError
from lading.limits import Limits

__all__ = ["Check", "Downloader", "Failure", "is_public", "too_large"]

AT_ONCE: Final = 32
"""Files that are downloaded at once."""
_REDIRECTS: Final = 5
_ATTEMPTS: Final = 3
_CONNECT_S, _IDLE_S, _PAUSE_S = 10.0, 10.0, 10.0
"""Time for a connection; the longest silence of a server; the longest wait before a file is asked for again."""
_PART_BYTES: Final = 64 << 10
_HEADERS_BYTES: Final = 1 << 20
"""Bytes beyond those of the file that an answer may have."""
_HELD_BYTES, _ONE_HELD_BYTES = 64 << 20, 1 << 20
"""Files that wait in memory, together and each; what is beyond lies in a temporary file without a name."""
_FIRST_FREE_PORT: Final = 1024
_WEB_PORTS: Final = (80, 443)
_MOVED: Final = (301, 302, 303, 307, 308)
_OK: Final = 200
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_WIRE_SERVER: Final = "168.63.129.16/32"
"""Where machines of Azure ask for their settings and keys: an address of the public kind."""
_NOT_GLOBAL: Final = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", _WIRE_SERVER))
)
"""Networks that Python counts as global before 3.13, and one that is not what it seems."""
_MEANS_NOTHING: Final = ("identity", "")
_UNPACKED: Final = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS | 32}
"""Encodings that are undone, though none is asked for, and how zlib is told."""

Check = Callable[[IO[bytes], str], str | None]
"""Says from the first bytes of a file and its content type what is wrong with it, as a short phrase; None: nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file could not be had.

    Attributes:
        reason: a short phrase, the same for all of a kind: `HTTP 404`, `an unknown host`.
        detail: more of it, if there is more to say.
        limit: the limit that ended the download, if one did.
    """

    reason: str
    detail: str = ""
    limit: str = ""


class _FailedError(Exception):
    """Ends the download of a file.

    Attributes:
        failure: why.
        again: whether the same request may succeed.
        wait_s: the server's wish, how long to wait before it.
    """

    def __init__(
        self, reason: str, detail: str = "", limit: str = "", *, again: bool = False, wait_s: float | None = None
    ) -> None:
        super().__init__(reason)
        self.failure, self.again, self.wait_s = Failure(reason, detail, limit), again, wait_s


class _NoSocketError(Exception):
    """This machine has no further connections. urllib3 would take an OSError for one of the network."""


def too_large(most: int) -> tuple[str, str, str]:
    """Return why a file that is larger is not downloaded, as `Failure` takes it."""
    return f"more than {format_bytes(most)}", f"at most {most} bytes", "fetch_bytes"


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet, also if it wraps an IPv4 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6:  # noqa: PLR2004 - the version of the protocol
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:
            return False
    known = ip.is_multicast or ip.is_reserved or ip.is_unspecified or any(ip in each for each in _NOT_GLOBAL)
    return ip.is_global and not known


class Downloader:
    """Downloads files, many at once; threads may share it.

    Args:
        limits: `fetch_bytes` and `fetch_seconds` of a file.
        private: whether addresses that are not public may be asked too.
        check: says whether what came is what was wanted.
        agent: the name by which servers know lading.
    """

    def __init__(self, limits: Limits, *, private: bool, check: Check, agent: str) -> None:
        self._limits, self._check, self._agent = limits, check, agent
        context = ssl.create_default_context()
        context.sslsocket_class = _TlsSocket
        self._pools = PoolManager(num_pools=2 * AT_ONCE, maxsize=AT_ONCE, ssl_context=context)
        self._pools.pool_classes_by_scheme = {
            "http": _pool(HTTPConnectionPool, _plain(private=private)),
            "https": _pool(HTTPSConnectionPool, _secure(private=private)),
        }

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()

    def column(
        self, urls: Sequence[str | None], others: Callable[[str, IO[bytes]], Failure | None] | None = None
    ) -> tuple[pa.Array, dict[int, Failure]]:
        """Return the files of some URLs as `large_binary`, null where there is none, and why, by row.

        Equal URLs are asked for once. Files of more than 64 MiB together lie in a temporary file that is mapped, and
        that the system removes with the array.

        Args:
            urls: the URLs.
            others: writes the bytes of a URL of another scheme than http and https, or returns why not.

        Raises:
            StoreError: this machine has no room for temporary files, or no further connections.
        """
        distinct = list(dict.fromkeys(url for url in urls if url is not None))
        folder = temporary_place()
        try:
            column, found = self._column(folder, urls, distinct, others)
        except StoreError:
            raise
        except _NoSocketError as error:
            raise StoreError("no further connection can be made", found=str(error),
                             advice="Allow the process more open files: ulimit -n.") from error  # fmt: skip
        except OSError:
            with writing(folder):
                raise
        return column, {row: found[url] for row, url in enumerate(urls) if url is not None and url in found}

    def _column(
        self, folder: str, urls: Sequence[str | None], distinct: Sequence[str],
        others: Callable[[str, IO[bytes]], Failure | None] | None,
    ) -> tuple[pa.Array, dict[str, Failure]]:  # fmt: skip
        """Return the files of URLs, and why there are none, by URL."""
        with closing(_Held(folder)) as held, Threads(AT_ONCE, "lading-fetch") as threads:
            calls = {url: threads.submit(partial(self._into, held, url, others)) for url in distinct}
            try:
                found = {url: failure for url, call in calls.items() if (failure := call.result()) is not None}
            except Exception:
                threads.stop()
                threads.wait()
                raise
            return held.column(urls), found

    def _into(self, held: _Held, url: str, others: Callable[[str, IO[bytes]], Failure | None] | None) -> Failure | None:
        """Put a file among those that are held; return why there is none."""
        if others is not None and url.partition(":")[0].lower() not in self._pools.pool_classes_by_scheme:
            with held.new_file() as body:
                return others(url, body) or self._kept(held, url, body, "")
        _now.deadline = time.monotonic() + self._limits.fetch_seconds
        for attempt in count(1):
            _now.left_bytes = self._limits.fetch_bytes + _HEADERS_BYTES
            try:
                with held.new_file() as body:
                    return self._kept(held, url, body, self._get(url, body))
            except _FailedError as error:
                usual = 0.5 * 2**attempt * random.uniform(0.5, 1)  # noqa: S311 - spreads load only
                wait = usual if error.wait_s is None else error.wait_s
                late = wait > _PAUSE_S or time.monotonic() + wait > _now.deadline
                if not error.again or attempt == _ATTEMPTS or late:
                    return error.failure
                time.sleep(wait)
        raise AssertionError("the loop has no end")

    def _kept(self, held: _Held, url: str, body: Any, kind: str) -> Failure | None:
        body.seek(0)
        wrong = self._check(body, kind)
        if wrong is not None:
            return Failure(wrong)
        held.add(url, body)
        return None

    def _get(self, url: str, body: IO[bytes]) -> str:
        """Write the file of a URL; return the content type that its server says. Raises _FailedError."""
        for _ in range(_REDIRECTS + 1):
            try:
                moved_to = self._request(url, body)
                if isinstance(moved_to, _Answer):
                    return moved_to.kind
                url = urljoin(url, moved_to)
            except (LocationParseError, UnicodeError, ValueError) as error:
                raise _FailedError("not a URL", cleaned(str(error))[:200]) from None
            except SSLError as error:
                raise _FailedError("no secure connection", cleaned(str(error))[:200]) from None
            except SlowAnswer:
                _now.left_s(_IDLE_S)  # raises if no time is left
                raise _FailedError("no answer in time") from None
            except HTTPError as error:  # an error of the system is one of temporary files, and ends the job
                cut = isinstance(error, ProtocolError)
                raise _FailedError("no whole answer", cleaned(str(error))[:200], again=cut) from None
        raise _FailedError("too many redirects", f"more than {_REDIRECTS}")

    def _request(self, url: str, body: IO[bytes]) -> str | _Answer:
        """Write the file of a URL, or return where the server says that it is."""
        parts = urlsplit(url)
        if parts.scheme.lower() not in self._pools.pool_classes_by_scheme or not parts.hostname:
            raise _FailedError("not a URL of http or https", cleaned(url)[:200])
        headers = {"User-Agent": self._agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        user, at, host = parts.netloc.rpartition("@")
        if at:
            headers |= make_headers(basic_auth=unquote(user))
        plain = parts._replace(netloc=host, fragment="").geturl()
        answer = self._pools.request(
            "GET", plain, headers=headers, preload_content=False, decode_content=False, redirect=False, retries=False,
            timeout=Timeout(connect=_CONNECT_S, read=_IDLE_S),
        )  # fmt: skip
        try:
            if answer.status in _MOVED and "Location" in answer.headers:
                return answer.headers["Location"]
            if answer.status != _OK:
                raise _FailedError(f"HTTP {answer.status}", again=answer.status in TRANSIENT_STATUS,
                                   wait_s=_seconds(answer.headers.get("Retry-After")))  # fmt: skip
            length = answer.headers.get("Content-Length", "")
            self._refuse_large(int(length) if length.isascii() and length.isdigit() else 0)
            for part in self._unpacked(answer.stream(_PART_BYTES), answer.headers.get("Content-Encoding", "")):
                body.write(part)
                self._refuse_large(body.tell())
            answer.release_conn()
        finally:
            answer.close()
        return _Answer(answer.headers.get("Content-Type", "").partition(";")[0].strip().lower())

    def _unpacked(self, parts: Iterator[bytes], encoding: str) -> Iterator[bytes]:
        """Undo the compression of a server that ignores that none was asked for, a bounded part at a time."""
        encoding = encoding.strip().lower()
        if encoding in _MEANS_NOTHING:
            yield from parts
            return
        if encoding not in _UNPACKED:
            raise _FailedError("another content encoding", encoding[:80])
        unpack = zlib.decompressobj(_UNPACKED[encoding])
        try:
            for part in parts:
                while part:
                    yield unpack.decompress(part, _PART_BYTES)
                    part = unpack.unconsumed_tail  # noqa: PLW2901 - what is left of it
            yield unpack.flush()
        except zlib.error as error:
            raise _FailedError("a broken content encoding", str(error)[:80]) from None
        if unpack.unused_data:
            raise _FailedError("a broken content encoding", "bytes behind its end")
        if not unpack.eof:
            raise _FailedError("no whole answer", "its compressed content is cut", again=True)

    def _refuse_large(self, size: int) -> None:
        most = self._limits.fetch_bytes
        if size > most:
            raise _FailedError(*too_large(most))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The end of an answer that was written: its content type."""

    kind: str


class _Held:
    """Files that have come: in memory, and what is beyond in a temporary file without a name.

    Args:
        folder: of temporary files.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._bytes: dict[str, bytes] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._size, self._file, self._lock = 0, cast("IO[bytes] | None", None), threading.Lock()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new_file(self) -> Any:
        """Return an empty file: in memory, while it is small."""
        return tempfile.SpooledTemporaryFile(_ONE_HELD_BYTES, dir=self.folder)

    def add(self, url: str, body: IO[bytes]) -> None:
        size = body.seek(0, 2)
        body.seek(0)
        with self._lock:
            if size <= _ONE_HELD_BYTES and self._size + size <= _HELD_BYTES:
                self._bytes[url] = body.read()
                self._size += size
                return
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - `close` closes it
            self._places[url] = self._file.seek(0, 2), size
            shutil.copyfileobj(body, self._file, _PART_BYTES)

    def column(self, urls: Sequence[str | None]) -> pa.Array:
        """Return the files in the order of their URLs, null where there is none."""
        if self._file is None:
            return pa.array([None if url is None else self._bytes.get(url) for url in urls], pa.large_binary())
        lengths = [self._length(url) for url in urls]
        offsets = np.concatenate([[0], np.cumsum([length or 0 for length in lengths])]).astype(np.int64)
        with tempfile.TemporaryFile(dir=self.folder) as whole:
            for url in urls:
                self._copy(url, whole)
            whole.flush()
            data = pa.py_buffer(mmap(whole.fileno(), int(offsets[-1]), access=ACCESS_READ))
        there = pa.array([length is not None for length in lengths])
        return pa.Array.from_buffers(pa.large_binary(), len(urls), [there.buffers()[1], pa.py_buffer(offsets), data])

    def _length(self, url: str | None) -> int | None:
        if url in self._places:
            return self._places[url][1]
        return len(self._bytes[url]) if url in self._bytes else None

    def _copy(self, url: str | None, whole: IO[bytes]) -> None:
        if url in self._bytes:
            whole.write(self._bytes[url])
        elif url in self._places:
            assert self._file is not None, "it has places"
            at, left = self._places[url]
            self._file.seek(at)
            while left:
                part = self._file.read(min(left, _PART_BYTES))
                whole.write(part)
                left -= len(part)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


# Connections


class _Now(threading.local):
    """The file that a thread downloads.

    Attributes:
        deadline: when it must have come, by the monotonic clock.
        left_bytes: bytes that its server may still send.
    """

    deadline = 0.0
    left_bytes = 0

    def left_s(self, most: float) -> float:
        """Return the time for what comes next. Raises _FailedError where none is left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise _FailedError("no whole file in time", "more time", "fetch_seconds")
        return min(left, most)


_now = _Now()


class _Bounded(socket.socket):
    """Counts what comes, and the time: one byte every few seconds would go on for ever."""

    def recv_into(self, *into: Any, **how: Any) -> int:
        self.settimeout(_now.left_s(_IDLE_S))
        came = super().recv_into(*into, **how)
        _now.left_bytes -= came
        if _now.left_bytes < 0:
            raise _FailedError("more bytes than its headers said", "fewer bytes", "fetch_bytes")
        return came


class _TlsSocket(_Bounded, ssl.SSLSocket):
    """The same behind TLS."""


def _connected(host: str, port: int, *, private: bool) -> socket.socket:
    """Return a connection to one of the addresses of a host, all of which must be public."""
    if not private and port not in _WEB_PORTS and port < _FIRST_FREE_PORT:
        raise _FailedError("a port of other services", str(port))
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise _FailedError("an unknown host", again=error.errno == socket.EAI_AGAIN) from None
    if not private and not all(is_public(str(place[0])) for *_, place in found):
        raise _FailedError("an address that is not public")
    failed = "it has no address"
    for family, kind, protocol, _, place in found:
        left_s = _now.left_s(_CONNECT_S)
        try:
            sock = _Bounded(family, kind, protocol)
        except OSError as error:
            raise _NoSocketError(*error.args) from None
        try:
            sock.settimeout(left_s)
            sock.connect(place)
        except OSError as error:
            sock.close()
            failed = "" if isinstance(error, TimeoutError) else str(error)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise _FailedError("no connection" if failed else "no answer in time", failed[:200])


def _plain(*, private: bool) -> type[HTTPConnection]:
    class Checked(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self._dns_host, self.port, private=private)

    return Checked


def _secure(*, private: bool) -> type[HTTPSConnection]:
    class Checked(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connected(self._dns_host, self.port, private=private)

    return Checked


def _pool(base: Any, connection: Any) -> Any:
    return type(base.__name__, (base,), {"ConnectionCls": connection})
