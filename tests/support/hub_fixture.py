"""A server of the Hub's API (`hub_server`) for a test, and the clients of this process at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_server import HubServer, hub_server
from lading._core.storage.stores import _by_fsspec

__all__ = ["ask_at", "hub_of_test", "running_hub_of_module"]


@pytest.fixture(scope="module", name="running_hub")
def running_hub_of_module() -> Iterator[HubServer]:
    """One server for the tests of a module."""
    with hub_server() as server:
        yield server


def ask_at(server: HubServer, patch: pytest.MonkeyPatch, cache: Path) -> None:
    """Let the clients of this process ask at a server; without Xet, which it does not speak."""
    constants = {
        "ENDPOINT": server.url, "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_TOKEN_PATH": os.devnull, "HF_HUB_DISABLE_XET": True, "HF_HUB_CACHE": str(cache),
    }  # fmt: skip
    _by_fsspec.cache_clear()  # a store keeps the client of an earlier server
    for name, value in constants.items():
        patch.setattr(f"huggingface_hub.constants.{name}", value)


@pytest.fixture(name="hub")
def hub_of_test(running_hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HubServer:
    """An empty server, at which the clients ask if nothing else is said."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    ask_at(running_hub, monkeypatch, tmp_path / "hf")
    running_hub.forget()
    return running_hub
