"""Downloads of files that a table names: which addresses are asked, and what servers may send.

What is public says the registry of IANA (RFC 6890 and its updates).
"""

from __future__ import annotations

import socket
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from lading._core.storage import downloads
from lading._core.storage.downloads import Downloader, Failure, is_public
from lading._core.storage.temporary import temporary_files_in
from lading.errors import StoreError
from lading.limits import Limits
from odd_server import OddHandler, OddServer, odd_server, picture

_LIMITS = Limits(fetch_bytes=1 << 20, fetch_seconds=3)


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


def _anything(_: IO[bytes], __: str) -> None:
    return None


def _downloader(*, private: bool = True, limits: Limits = _LIMITS) -> Downloader:
    return Downloader(limits, private=private, check=_anything, agent="lading/test")


def _fetched(*urls: str, private: bool = True, limits: Limits = _LIMITS) -> list[bytes | str | None]:
    """The bytes of each URL, or why there are none."""
    column, failures = _downloader(private=private, limits=limits).column(urls)
    return [failures[row].reason if row in failures else value for row, value in enumerate(column.to_pylist())]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
     "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
     "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
     "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:0:0:0:0:80ff:fffe",
     "2001:db8::1", "100::1", "168.63.129.16"],
)  # fmt: skip
@pytest.mark.cases(40)
def test_addresses_of_no_public_host(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
@pytest.mark.cases(4)
def test_addresses_of_public_hosts(address: str) -> None:
    assert is_public(address)


def test_no_name_number_or_redirect_leads_to_this_machine(server: OddServer) -> None:
    """Nothing is asked: neither by the address in other spellings, nor by a name of it, nor by another port."""
    port = server.server_port
    hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]",
             "user:pw@127.0.0.1", "127.0.0.1.", "0"]  # fmt: skip
    found = _fetched(*(f"http://{host}:{port}/ok" for host in hosts), private=False)
    assert set(found) <= {"an address that is not public", "an unknown host", "not a URL"}, found
    assert found[0] == "an address that is not public"
    assert server.asked == []
    assert _fetched("http://1.1.1.1:25/", "http://1.1.1.1:22/", private=False) == ["a port of other services"] * 2


def test_an_address_is_looked_up_once(server: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name whose second answer is another address leads to the first, which was checked."""
    answers: list[str] = ["127.0.0.1", "10.0.0.1"]
    real = socket.getaddrinfo

    def rebinding(host: str, *more: Any, **how: Any) -> Any:
        return real(answers.pop(0) if host == "rebinds.test" else host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert _fetched(f"http://rebinds.test:{server.server_port}/ok") == [picture()]
    assert answers == ["10.0.0.1"]


def test_a_redirect_to_an_address_that_is_not_public_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first server counts as public here; the redirect names this machine by an address that does not."""
    monkeypatch.setattr(downloads, "is_public", lambda address: address == "127.0.0.1")

    def to_metadata(handler: OddHandler) -> None:
        handler.give(b"", status=302, Location=f"http://127.0.0.2:{handler.server.server_port}/ok")

    with odd_server({"/meta": to_metadata}) as server:
        assert _fetched(f"{server.url}/ok", f"{server.url}/meta", private=False) == [
            picture(), "an address that is not public",
        ]  # fmt: skip


def test_what_servers_send(server: OddServer) -> None:
    expected = {
        "/ok": picture(), "/moved": picture(), "/packed": picture(), "/gone": "HTTP 404", "/loop": "too many redirects",
        "/to-file": "not a URL of http or https", "/cut": "no whole answer", "/huge": "more than 1.0 MB",
        "/endless": "more than 1.0 MB", "/bomb": "more than 1.0 MB", "/brotli": "another content encoding",
        "/slow": "no whole file in time", "/slow-head": "no whole file in time",
    }  # fmt: skip
    found = _fetched(*(server.url + path for path in expected))
    assert dict(zip(expected, found, strict=True)) == expected
    assert Counter(server.asked)["/loop"] == 6
    assert Counter(server.asked)["/cut"] == 3


def test_an_answer_without_end_takes_no_memory(server: OddServer) -> None:
    """The length of a chunk may have any number of digits: they count too."""
    tracemalloc.start()
    try:
        [found] = _fetched(f"{server.url}/endless-chunk")
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert isinstance(found, str)


def test_a_busy_server_is_asked_again_when_it_says(server: OddServer) -> None:
    def busy(handler: OddHandler) -> None:
        first = handler.server.asked.count("/busy") == 1
        handler.give(picture(), **({"status": 503, "Retry_After": "0"} if first else {}))  # type: ignore[arg-type]

    def later(handler: OddHandler) -> None:
        handler.give(b"", status=429, Retry_After="3600")

    server.answers |= {"/busy": busy, "/later": later}
    assert _fetched(f"{server.url}/busy", f"{server.url}/later") == [picture(), "HTTP 429"]
    assert Counter(server.asked) == {"/busy": 2, "/later": 1}


def test_user_and_password_of_a_url_are_sent_and_not_told(server: OddServer) -> None:
    def closed(handler: OddHandler) -> None:
        right = handler.headers.get("Authorization") == "Basic bWU6cEB3"
        handler.give(picture() if right else b"", status=200 if right else 401)

    server.answers |= {"/closed": closed}
    host = server.url.removeprefix("http://")
    column, failures = _downloader().column([f"http://me:p%40w@{host}/closed", f"http://me:no@{host}/closed"])
    assert column[0].as_py() == picture()
    assert failures == {1: Failure("HTTP 401")}


def test_files_beyond_what_memory_holds_lie_in_a_temporary_file(
    server: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_HELD_BYTES", 3 * len(picture()))
    urls = [f"{server.url}/ok/{n % 4}" if n % 5 else None for n in range(12)]
    column, failures = _downloader().column([*urls, f"{server.url}/gone"])
    assert column.to_pylist() == [None if url is None else picture() for url in urls] + [None]
    assert column.null_count == 4
    assert failures == {12: Failure("HTTP 404")}
    assert max(Counter(server.asked).values()) == 1
    assert column.take([1, 1, 12]).to_pylist() == [picture(), picture(), None]


def test_no_room_for_files_is_no_failure_of_theirs(
    server: OddServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Samples may be left out whose files could not be had: not because the disk is full."""
    monkeypatch.setattr(downloads, "_ONE_HELD_BYTES", 10)
    (tmp_path / "gone").mkdir()
    with temporary_files_in(tmp_path / "gone"):
        assert _fetched(f"{server.url}/ok") == [picture()]
        (tmp_path / "gone").rmdir()
        with pytest.raises(StoreError, match=r"temporary files could not be written"):
            _fetched(f"{server.url}/ok")


def test_urls_that_are_none(server: OddServer) -> None:
    urls = ["http://[::1", "http://", "https:///x", "http://a b/", "http://\udcff/", "x", f"{server.url}:99/", "HTTP:x"]
    assert set(_fetched(*urls)) <= {"not a URL", "not a URL of http or https", "an unknown host"}
    server.answers["/bad"] = lambda h: h.give(b"", status=302, Location="http://[::1")
    assert _fetched(f"{server.url}/bad") == ["not a URL"]
