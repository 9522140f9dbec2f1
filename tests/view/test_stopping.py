"""The server stops when it is told to, or killed: nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from documents import picture
from processes import children, wait_until_gone
from range_server import range_server
from tars import tar_of


@contextmanager
def server(source: Path | str, folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A server of its own process, with these words more, and a client that has its token."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "lading", "view", str(source), "--no-browser", "--port", str(port), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        found = None
        while found is None and (line := process.stdout.readline()):
            found = re.search(r"http://\S+token=\S+", line)
        assert found is not None, process.communicate()[1]
        with httpx.Client(base_url=found[0].partition("?")[0], follow_redirects=True, timeout=60) as client:
            assert client.get(found[0]).status_code == 200
            yield process, client
    finally:
        with suppress(OSError):
            process.kill()
        process.communicate()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in.tar").write_bytes(tar_of(*((f"{i}.png", picture(64, 48)) for i in range(9))))
    return tmp_path / "in.tar"


@pytest.mark.mechanism("server of the page that is stopped")
@pytest.mark.parametrize(
    "number, status, words",
    [
        (signal.SIGINT, 0, "stopped"),
        pytest.param(signal.SIGTERM, 143, "interrupted", marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, 129, "interrupted", marks=pytest.mark.soak),
    ],
)
def test_a_signal_ends_all_of_it(source: Path, tmp_path: Path, number: int, status: int, words: str) -> None:
    with server(source, tmp_path / "tmp") as (process, client):
        assert client.get("/picture/thumbnail?number=0&column=png").headers["content-type"] == "image/jpeg"
        started = children(process.pid)
        assert len(started) == 1
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 10
        assert (process.returncode, (out if number == signal.SIGINT else err).split()[-1]) == (status, words)
        assert "Traceback" not in err
        wait_until_gone(started, 5)
        port = client.base_url.port
        assert port is not None
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert [*(tmp_path / "tmp").iterdir()] == []


@pytest.mark.soak
def test_its_processes_end_when_it_is_killed(source: Path, tmp_path: Path) -> None:
    with server(source, tmp_path / "tmp") as (process, _):
        started = children(process.pid)
        process.kill()
        wait_until_gone(started, 5)


@pytest.mark.soak
def test_a_decoding_process_outlives_the_threads_that_ask(source: Path, tmp_path: Path) -> None:
    with server(source, tmp_path / "tmp") as (process, client):
        started = children(process.pid)
        time.sleep(11)  # idle threads of the server end after 10 seconds
        for i in range(1, 9):
            assert client.get(f"/picture/thumbnail?number={i}&column=png").status_code == 200
        assert set(started) <= set(children(process.pid))


@pytest.mark.soak
def test_a_killed_decoding_process_is_started_again(source: Path, tmp_path: Path) -> None:
    with server(source, tmp_path / "tmp") as (process, client):
        for pid in children(process.pid):
            os.kill(pid, signal.SIGKILL)
        answers = [client.get(f"/picture/thumbnail?number={i}&column=png").status_code for i in range(1, 9)]
        assert answers[1:] == [200] * 7


@pytest.mark.soak
def test_it_stops_while_it_answers(tmp_path: Path) -> None:
    """A player holds a connection, and takes no more bytes."""
    with (tmp_path / "in.tar").open("wb") as file:
        file.write(tar_of(("0.png", picture(64, 48)), ("0.bin", b"")))
        file.seek(512 * 2)
        file.write(tar_of(("0.bin", bytes(64 << 20))))
    with (
        server(tmp_path / "in.tar", tmp_path / "tmp") as (process, client),
        client.stream("GET", "/raw?number=0&column=bin") as answer,
    ):
        assert len(next(answer.iter_raw(1000))) == 1000
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert time.monotonic() - began < 10


@pytest.mark.soak
def test_it_stops_while_a_store_hangs(tmp_path: Path) -> None:
    """Rows, a count and bytes wait for a server that says no more."""
    whole = tar_of(*((f"{i}.png", picture(64, 48)) for i in range(9)), ("9.bin", bytes(64 << 20)), ("9.png", b"last"))

    far_files = {"/in.tar": _Hanging(whole)}
    with (
        range_server(far_files) as far,
        server(f"{far.url}/in.tar", tmp_path / "tmp", "--view", "samples") as (process, client),
    ):
        asks = [
            Thread(target=_ask, args=(client, path), daemon=True)
            for path in ("/api/count?wait=30", "/api/sample?number=9", "/raw?number=9&column=bin")
        ]
        for ask in asks:
            ask.start()
        time.sleep(1)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert time.monotonic() - began < 10


class _Hanging(bytes):
    """A file whose end does not come."""

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, slice) and part.stop > 40 << 20:
            time.sleep(60)
        return super().__getitem__(part)


def _ask(client: httpx.Client, path: str) -> None:
    with suppress(httpx.HTTPError):
        client.get(path)
