"""Two names exchanged in one step, by the calls of Linux and of macOS."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from lading._core.storage.exchange import exchange_names
from lading.errors import StoreError

_FOUND = ctypes.CDLL.__getattr__


def _renamex_np(one: bytes, other: bytes, flags: ctypes.c_uint) -> int:
    """`renamex_np(from, to, RENAME_SWAP)`, where RENAME_SWAP is 2 in sys/stdio.h of macOS."""
    assert flags.value == 2
    exchange = _FOUND(ctypes.CDLL(None, use_errno=True), "renameat2")
    return int(exchange(-100, one, -100, other, 2))


@pytest.mark.parametrize("system", ["Linux", "macOS", "another"])
def test_names_are_exchanged(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_system(library: ctypes.CDLL, name: str) -> Any:
        if system != "Linux" and name == "renameat2":
            raise AttributeError(name)
        if name == "renamex_np":
            if system != "macOS":
                raise AttributeError(name)
            return _renamex_np
        return _FOUND(library, name)

    monkeypatch.setattr(ctypes.CDLL, "__getattr__", of_system)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if system == "another":
        with pytest.raises(StoreError, match=r"other: this file system cannot exchange two names in one step"):
            exchange_names(str(tmp_path / "one"), str(tmp_path / "other"))
        assert (tmp_path / "one" / "one").exists()
        return
    exchange_names(str(tmp_path / "one"), str(tmp_path / "other"))
    assert (tmp_path / "one" / "other").exists()
    assert (tmp_path / "other" / "one").exists()
    with pytest.raises(FileNotFoundError):
        exchange_names(str(tmp_path / "one"), str(tmp_path / "missing"))
