"""Azure's protocol, as Azurite speaks it: `npm install azurite`, and its program `azurite-blob` in LADING_AZURITE."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from obstore.store import AzureStore

import lading
from lading._core.storage.base import Store
from lading._core.storage.objects import ObjectStore
from lading.errors import DestinationExists
from object_store_tests import ObjectStoreTests

_PROGRAM = os.environ.get("LADING_AZURITE")
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Account and key that Azurite publishes."""
_LEAD = "az://container/"

pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="LADING_AZURITE names no program")


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Options of a store with an empty container."""
    assert _PROGRAM is not None, "else skipped"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [_PROGRAM, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
               "--blobPort", str(port)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.05)
            url = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            _make_container(f"{url}/container")
            yield {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": url}
        finally:
            server.kill()


def _make_container(url: str) -> None:
    """Source: "Authorize with Shared Key" of Azure's REST reference; obstore makes no containers."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = [f"{name}:{value}" for name, value in headers.items()]
    signed = "\n".join(["PUT", *[""] * 11, *lines, f"/{_ACCOUNT}/{_ACCOUNT}/container", "restype:container"])
    seal = base64.b64encode(hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {_ACCOUNT}:{seal}", "Content-Length": "0"}
    urllib.request.urlopen(urllib.request.Request(f"{url}?restype=container", method="PUT", headers=headers)).close()


class TestAzure(ObjectStoreTests):
    lead = _LEAD

    @pytest.fixture
    def store(self, options: dict[str, Any]) -> Store:
        self.raw = AzureStore("container", client_options={"allow_http": True}, **options)
        return ObjectStore("az://container", options=options)


def test_a_dataset_goes_there_and_back(options: dict[str, Any], docs: Path, tmp_path: Path) -> None:
    there, back = f"{_LEAD}parquet", str(tmp_path / "back")
    lading.convert(str(docs), there, format="parquet", storage_options=options, workers=2, verify=True)
    lading.convert(there, back, format="webdataset", storage_options=options)
    assert lading.diff(str(docs), back).equal
    assert lading.diff(there, back, storage_options=options).equal
    assert lading.verify(there, deep=True, storage_options=options).ok
    with pytest.raises(DestinationExists):
        lading.convert(str(docs), there, format="parquet", storage_options=options)
    lading.convert(str(docs), there, format="mds", storage_options=options, overwrite=True)
    assert lading.diff(there, lading.open(back), storage_options=options).equal
