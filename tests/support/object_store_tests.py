"""The tests of every store, for stores of obstore: what they write and find is looked at by obstore itself."""

from __future__ import annotations

import os
import secrets
from typing import Any

import obstore
import pytest

from lading._core.storage.base import Store
from lading.testing import StoreTests

__all__ = ["ObjectStoreTests"]


class ObjectStoreTests(StoreTests):
    """A subclass has `lead`, how URLs of the bucket begin, and a fixture `store` that sets `raw`, obstore's own."""

    lead: str
    raw: Any

    @pytest.fixture
    def root(self) -> str:
        return f"{self.lead}{secrets.token_hex(8)}"

    def put_raw(self, store: Store, path: str, data: bytes) -> None:
        obstore.put(self.raw, path.removeprefix(self.lead), data)

    def get_raw(self, store: Store, path: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.raw, path.removeprefix(self.lead)).bytes())
        except FileNotFoundError:
            return None

    def list_raw(self, store: Store, root: str) -> list[str]:
        found = obstore.list(self.raw, root.removeprefix(self.lead)).collect()
        return sorted(self.lead + each["path"] for each in found)

    def test_files_larger_than_a_part_arrive_whole(self, store: Store, root: str) -> None:
        data = os.urandom((8 << 20) + 5)
        sink = store.put_stream(f"{root}/large")
        sink.write([data[:100], data[100:]])
        assert sink.close().size_bytes == len(data)
        assert self.get_raw(store, f"{root}/large") == data
