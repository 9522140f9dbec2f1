"""URLs with secrets: how they are shown, and who can ask for them."""

from __future__ import annotations

import json
import os
import pickle
import traceback
from pathlib import Path
from urllib.error import URLError

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, documents
from lading._core.secret_urls import KnownSecrets, cleaned, shown, whole
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.stores import Stores
from lading.errors import LadingError, NotFound, UsageError
from range_server import range_server

_AWS = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=c&X-Amz-Expires=3600&X-Amz-Signature={}"
_AZURE = "sv=2024-11-04&sr=b&sp=r&se=2030-01-01&sig={}"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("https://u:never@h/a.tar", "https://…@h/a.tar"),
        ("https://never@token/a@b.tar", "https://…@token/a@b.tar"),
        ("https://u:ne@ver@h:8/a.tar", "https://…@h:8/a.tar"),
        ("sftp://u:never@h/a.tar", "sftp://…@h/a.tar"),
        ("https://h/a.tar?" + _AWS.format("never"), "https://h/a.tar?…"),
        ("https://h/{00..09}.tar?" + _AZURE.format("never"), "https://h/{00..09}.tar?…"),
        ("az://box/a.tar?" + _AZURE.format("never"), "az://box/a.tar?…"),
    ],
)
def test_secrets_are_out_of_sight_and_come_back(url: str, expected: str) -> None:
    assert shown(url) == expected
    assert whole(shown(url)) == url
    assert shown(shown(url)) == expected


@pytest.mark.parametrize(
    "url",
    ["a?b#c", "s3://b/year=20??/a.tar", "s3://b/a#1.tar", "abfs://box@account/a.tar", "memory://a?token=x", "h://a"],
)
def test_other_names_stay(url: str) -> None:
    assert shown(url) is url
    assert whole(url) == url


def test_queries_of_one_path_are_told_apart_and_a_new_signature_is_the_same_file() -> None:
    one, other = (shown(f"https://h/get?id={number}") for number in (1, 2))
    assert one != other
    assert (whole(one), whole(other)) == ("https://h/get?id=1", "https://h/get?id=2")
    signed = [shown(f"https://h/get?id=1&{_AWS.format(signature)}") for signature in ("old", "new")]
    assert signed[0] == signed[1]
    assert whole(signed[0]).endswith("=new")


def test_the_query_of_a_pattern_is_that_of_its_names() -> None:
    pattern = shown("https://braces/{0..1}.tar?" + _AZURE.format("s"))
    assert whole(pattern.replace("{0..1}", "1")) == "https://braces/1.tar?" + _AZURE.format("s")


def test_users_of_one_host_are_told_apart() -> None:
    found = [shown(f"https://{user}:p@users/a") for user in ("a", "b", "a")]
    assert found == ["https://…@users/a", "https://…2@users/a", "https://…@users/a"]


def test_what_nobody_gave_is_an_error_that_says_so() -> None:
    with pytest.raises(
        UsageError, match=r"https://unknown/a\?…: the URL needs its query.*Give the whole URL again.*roots="
    ):
        whole("https://unknown/a?…")
    with pytest.raises(UsageError, match="needs its user and password"):
        whole("https://…@unknown/a")
    with pytest.raises(NotFound, match="nothing lies below"):
        whole(f"{shown('https://h/a?b=1')}/manifest.json")


def test_secrets_cross_to_other_processes_only_by_pickle() -> None:
    url = shown("https://u:never@pickled/a?b=never")
    assert b"never" in pickle.dumps(url)
    assert pickle.loads(pickle.dumps(url)) == url
    assert b"never" in pickle.dumps(Stores().for_workers)
    assert isinstance(pickle.loads(pickle.dumps(KnownSecrets())), KnownSecrets)
    assert "never" not in f"{url!r} {json.dumps(url)} {pa.array([url])} {Stores().for_workers!r}"


def test_messages_of_libraries() -> None:
    assert cleaned("GET https://u:p@h/a?sig=x failed: 'http://h/b#t=1'") == "GET https://h/a?… failed: 'http://h/b?…'"


class _Failing:
    """A file system whose errors name the URL."""

    protocol = "https"

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def invalidate_cache(self, path: str) -> None:
        """Nothing is kept."""

    def info(self, path: str) -> None:
        raise self.error(f"cannot reach {path}") from OSError(f"GET {path}")


@pytest.mark.parametrize(
    "error",
    [OSError, FileNotFoundError, ConnectionError, URLError, KeyError, type("Other", (Exception,), {"__module__": "x"})],
)
def test_no_error_of_a_library_tells_the_secret(error: type[Exception]) -> None:
    url = "https://user:never@host/a.tar?token=never"
    store = FsspecStore(_Failing(error), options={"retry_s": 0.1})
    with pytest.raises((LadingError, KeyError)) as caught:
        store.head(shown(url))
    told = "".join(traceback.format_exception(caught.value))
    assert "never" not in told.replace(url, "") or error is KeyError
    if error is not KeyError:
        assert "never" not in told


def _holds(folder: Path, secret: bytes) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if secret in path.read_bytes() or secret.decode() in str(path)]


def test_no_file_tells_the_password_of_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output with references, ledger, index cache, manifest; and who reads the references gives the URL again."""
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    with range_server({"/d/doc.tar": documents(*SAMPLES)}) as server:
        url = server.url.replace("http://", "http://user:never@") + "/d/doc.tar"
        dataset = lading.open(url)
        told = f"{dataset!r}{dataset._repr_html_()}{dataset.query}{dataset.schema.metadata}"
        lading.index(url, progress=False)
        lading.convert(url, tmp_path / "out", format="parquet", lazy=True, ledger=tmp_path / "l.jsonl", progress=False)
        told += str(lading.info(url))
        assert "never" not in told
        assert _holds(tmp_path, b"never") == []
        [shard] = (tmp_path / "out").glob("*.parquet")
        assert json.loads(pq.read_table(shard)["source_ref"][0].as_py())["path"] == shown(url)
        assert lading.digest(tmp_path / "out", roots=[url]) == lading.digest(url)
    modes = {oct(os.stat(path).st_mode & 0o777) for path in (tmp_path / "cache").iterdir()}
    assert (oct(os.stat(tmp_path / "cache").st_mode & 0o777), modes) == ("0o700", {"0o600"})


def test_references_without_their_query_are_an_error_that_says_how_to_give_it(tmp_path: Path) -> None:
    ref = json.dumps({"path": "https://…@nobody/d/doc.tar", "member": "a.1.png"})
    columns = {"sample_id": ["a"], "position": [0], "modality": ["image"], "content_type": ["image/png"],
               "text_content": pa.nulls(1, pa.string()), "binary_content": pa.nulls(1, pa.large_binary()),
               "source_ref": [ref]}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"needs its user and password.*roots=\['URL'\]"):
        list(lading.open(tmp_path / "a.parquet", roots=["https://nobody/d"]).batches())
