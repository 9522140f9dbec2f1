"""`lading cache`: the copies of remote shards in a folder."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lading._core.cli.main import app
from lading._core.storage.memory import MemoryStore
from lading._core.storage.shard_cache import ShardCache

_URLS = [f"s3://bucket/{name}.tar" for name in ("val/0", "train/0", "train/1")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copies of 1,000 bytes each; the first one was used two days ago."""
    cache, store = ShardCache(str(tmp_path / "cache")), MemoryStore({url: bytes(1000) for url in _URLS})
    for url in _URLS:
        cache.keep(store, store.head(url))
    os.utime(cache.copies()[0].path, (time.time() - 2 * 86400, 0))
    return tmp_path / "cache"


def _run(*words: object, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["cache", *map(str, words), "--json"], prog_name="lading")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_what_is_there(folder: Path) -> None:
    copies = _run("ls", folder)
    assert [one["url"] for one in copies] == _URLS
    assert {one["size_bytes"] for one in copies} == {1000}
    assert all(Path(one["path"]).stat().st_size == 1000 for one in copies)
    assert _run("du", folder) == {
        "copies": 3,
        "size_bytes": 3000,
        "folders": {"s3://bucket/train": 2000, "s3://bucket/val": 1000},
    }
    text = CliRunner().invoke(app, ["cache", "ls", str(folder)]).output
    assert "s3://bucket/train/1.tar" in text
    assert "1.0 KB" in text


@pytest.mark.parametrize(
    "option, left", [(["--limit", "2500"], 2), (["--older-than", "1d"], 2), (["--limit", "1KB"], 1), (["--all"], 0)]
)
def test_the_least_recently_used_is_deleted_first(folder: Path, option: list[str], left: int) -> None:
    found = _run("prune", folder, *option)
    sizes = [{"copies": count, "size_bytes": 1000 * count} for count in (3 - left, left)]
    assert [found["deleted"], found["left"]] == sizes
    assert [one["url"] for one in _run("ls", folder)] == _URLS[3 - left :]


def test_wrong_calls(folder: Path, tmp_path: Path) -> None:
    assert "nothing says" in _run("prune", folder, status=2)["message"]
    assert "do not fit" in _run("ls", folder, "--all", status=2)["message"]
    assert "do not fit" in _run("prune", folder, "--all", "--limit", "1", status=2)["message"]
    assert "not a time" in _run("prune", folder, "--older-than", "soon", status=2)["message"]
    assert "not a cache" in _run("prune", tmp_path, "--all", status=2)["message"]
    assert len(_run("ls", folder)) == 3
