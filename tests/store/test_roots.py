"""Which places lie below which roots. Through references: `tests/layouts/test_follow.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.errors import BadReference, UsageError
from lading.store.roots import Roots, folder_of


@pytest.mark.parametrize("url", ["s3://bucket/a/b.tar", "s3://bucket/a/c/../b.tar", "s3://bucket/a"])
def test_below_a_url(url: str) -> None:
    Roots(["s3://bucket/a/"]).check(url)


@pytest.mark.parametrize(
    "url", ["s3://bucket/ab", "s3://bucket/a/../b", "gs://bucket/a/b", "s3://bucket/a/%2e%2e/b", "/s3:/bucket/a/b"]
)
def test_not_below_it(url: str) -> None:
    with pytest.raises(BadReference):
        Roots(["s3://bucket/a/"]).check(url)


def test_links_and_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_bytes(b"")
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    roots = Roots([str(tmp_path / "in")])
    roots.check(str(tmp_path / "in/nothing there"))
    for path in ("in/link", "out", "in/../out", "in"):
        with pytest.raises(BadReference):
            roots.check(str(tmp_path / path))
    with pytest.raises(UsageError):
        roots.check("pipe:cat")


def test_folders() -> None:
    assert [folder_of(path) for path in ("a/b", "a", "/a", "s3://b/c/d", "s3://b")] == [
        "a",
        "",
        "/",
        "s3://b/c",
        "s3://",
    ]
