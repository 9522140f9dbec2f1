"""Which places lie below which roots. Through references: `tests/layouts/test_follow.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading._core.storage.roots import Roots, folder_of, sibling_path
from lading.errors import BadReference, UsageError


@pytest.mark.parametrize("url", ["s3://bucket/a/b.tar", "s3://bucket/a/..b/c.tar", "s3://bucket/a"])
def test_below_a_url(url: str) -> None:
    Roots(["s3://bucket/a/"]).check(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/ab",
        "s3://bucket/a/../b",
        "s3://bucket/a/c/../b.tar",  # to some stores the name of an object, to others a path
        "s3://bucket/a/./b",
        "s3://bucket/b//../a/c",  # b/a/c to who keeps the empty part
        "s3://bucket/a/..?x",
        "s3://bucket/a/..;/b",
        "gs://bucket/a/b",
        "s3://bucket/a/%2e%2e/b",
        "/s3:/bucket/a/b",
    ],
)
def test_not_below_it(url: str) -> None:
    with pytest.raises(BadReference):
        Roots(["s3://bucket/a/"]).check(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.internal/../good.example/data/x",
        "https://evil/secret?/../../good.example/data/x",
        "https://evil/secret#/../../good.example/data/x",
        "https://evil?/../good.example/data/x",
        "https://good.example/secret?/../data/x",
        "https://good.example@evil/data/x",
        "https://evil/x?https://good.example/data/x",
    ],
)
def test_nothing_in_a_url_leads_from_one_host_to_another(url: str) -> None:
    with pytest.raises(BadReference):
        Roots(["https://good.example/data"]).check(url)


def test_a_root_with_dots_is_on_its_host() -> None:
    Roots(["https://good.example/../data/b/.."]).check("https://good.example/data/x")
    with pytest.raises(BadReference):
        Roots(["https://good.example/../evil/data"]).check("https://evil/data/x")


@pytest.mark.parametrize(
    "folder, path, place",
    [
        ("s3://b/t", "x.png", "s3://b/t/x.png"),
        ("s3://b/t/", "../i/x.png", "s3://b/i/x.png"),
        ("s3://b/t", "../../../x", "s3://b/x"),
        ("s3://b/a//t", "x", "s3://b/a//t/x"),
        ("/a/link", "../x", "/a/link/../x"),  # which the file system follows
        ("", "../x", "../x"),
    ],
)
def test_beside(folder: str, path: str, place: str) -> None:
    assert sibling_path(folder, path) == place


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
