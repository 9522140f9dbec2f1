"""A server that speaks as S3 does, for tests: moto, in an environment of its own that `make test` sets up.

Its packages and those of other peers do not agree on versions, so it is only a process to talk to.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

PROGRAM = Path(sys.prefix) / "servers" / "bin" / "moto_server"
BUCKET = "bucket"


@contextmanager
def object_server() -> Iterator[str]:
    """The URL of a server that has no bucket yet. Skips the test where moto is not there."""
    if not PROGRAM.exists():
        pytest.skip("make test sets up the server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([PROGRAM, "-H", "127.0.0.1", "-p", str(port)], **quiet) as server:
        try:
            while True:
                try:
                    urllib.request.urlopen(f"{url}/moto-api/data.json").close()
                    break
                except URLError:
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.05)
            yield url
        finally:
            server.kill()


def empty_server(url: str) -> None:
    """Leave the server nothing but an empty bucket named `BUCKET`."""
    for method, path in (("POST", "moto-api/reset"), ("PUT", BUCKET)):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{path}", method=method)).close()


def options(url: str) -> dict[str, Any]:
    """Options of a store that talks to the server."""
    return {"access_key_id": "key", "secret_access_key": "secret", "endpoint": url, "region": "us-east-1"}


def environment(url: str) -> dict[str, str]:
    """Variables by which programs find the server."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
    }
