"""Options of object stores: translated, found by URL, sent to workers, and never shown."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.objects import ObjectStore
from lading._core.storage.store_options import by_prefix, for_fsspec, for_obstore, of_url
from lading._core.storage.stores import Stores, resolve
from lading.errors import LadingError, StoreError, UsageError
from object_server import BUCKET, options

_SECRET = "never-to-be-shown"


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")


def _in(url: str) -> dict[str, Any]:
    return {**options(url), "secret_access_key": _SECRET}


class TestNames:
    """Names that users type, and the names that backends have."""

    def test_of_s3(self) -> None:
        given = {"endpoint": "http://m:9000", "region": "r", "access_key_id": 12, "secret_access_key": "s",
                 "session_token": "t", "anonymous": False, "sas_token": "of Azure", "timeout_s": 5}  # fmt: skip
        keys = {"endpoint": "http://m:9000", "region": "r", "access_key_id": "12", "secret_access_key": "s"}
        assert for_obstore("s3", given) == {**keys, "session_token": "t", "skip_signature": False, "timeout_s": 5.0}

    def test_of_google_and_azure(self) -> None:
        assert for_obstore("gs", {"token_file": "k.json", "endpoint": "http://g"}) == {
            "service_account": "k.json", "base_url": "http://g"
        }  # fmt: skip
        assert for_obstore("abfss", {"account_name": "a", "sas_token": "sv=1"}) == {
            "account_name": "a", "sas_key": "sv=1"
        }  # fmt: skip

    def test_names_of_the_backend_go_to_it(self) -> None:
        found = for_obstore("s3", {"unsigned_payload": True, "proxy_url": "http://p"})
        assert found == {"unsigned_payload": True, "client_options": {"proxy_url": "http://p"}}

    def test_of_s3fs(self) -> None:
        given = {"endpoint": "http://m", "region": "r", "access_key_id": "k", "secret_access_key": "s", "retry_s": 3}
        assert for_fsspec("s3", {**given, "timeout_s": 5, "backend": "fsspec"}) == {
            "endpoint_url": "http://m", "client_kwargs": {"region_name": "r"}, "key": "k", "secret": "s",
            "config_kwargs": {"connect_timeout": 5.0, "read_timeout": 5.0, "retries": {"max_attempts": 0}},
        }  # fmt: skip
        assert for_fsspec("gs", {"anonymous": True}) == {"token": "anon"}

    def test_another_file_system_takes_its_own_names_only(self) -> None:
        assert for_fsspec("memory", {"region": "of S3"}) == {}
        with pytest.raises(UsageError, match=r"found skip_instance_cach\. Did you mean skip_instance_cache\?"):
            for_fsspec("memory", {"skip_instance_cach": True})

    def test_a_wrong_name_is_told_with_the_closest(self) -> None:
        with pytest.raises(UsageError, match=r"found acess_key\. Did you mean access_key_id\?") as caught:
            ObjectStore("s3://b", options={"access_key_id": "k", "acess_key": _SECRET}).head("s3://b/x")
        assert _SECRET not in str(caught.value)

    @pytest.mark.parametrize("wrong", [{"anonymous": "yes"}, {"timeout_s": "long"}, {"retry_s": -1}, {"backend": "x"},
                                       {"s3://b": "x"}, {1: 2}, {"endpoint": "localhost:9000"}, {"endpoint": "minio"},
                                       {"endpoint": "http://h:port"}])  # fmt: skip
    def test_a_wrong_value(self, wrong: dict[Any, Any]) -> None:
        with pytest.raises(UsageError):
            by_prefix(wrong)


def test_the_longest_prefix_wins_and_ends_where_a_name_ends() -> None:
    given = by_prefix({"region": "a", "s3://b": {"region": "b"}, "s3://b/deep": {"region": "c"}})
    regions = {url: of_url(given, url)["region"] for url in ("s3://x/y", "s3://b/y", "s3://b/deep/y", "s3://bb/y")}
    assert list(regions.values()) == ["a", "b", "c", "a"]


def test_stores_are_made_once_for_equal_options() -> None:
    one, other = (Stores.of(None, {"s3://b": {"region": region}}) for region in ("r", "s"))
    same = Stores.of(None, {"s3://b": {"region": "r"}})
    assert resolve("s3://b/x", one)[0] is resolve("s3://b/y", same)[0]
    assert resolve("s3://b/x", one)[0] is not resolve("s3://b/x", other)[0]
    assert resolve("s3://c/x", one)[0] is resolve("s3://c/x")[0]
    assert resolve("a", one)[0] is resolve("a")[0]
    assert isinstance(resolve("s3://b/x", Stores.of(None, {"backend": "fsspec"}))[0], FsspecStore)


@pytest.mark.parametrize("place", ["s3://bucket/a", "https://host/a", "hf://datasets/a"])
def test_gaps(place: str) -> None:
    far, _ = resolve(place, Stores.of(None, {"gap_bytes": "128KB"}))
    assert (far.request_bytes, resolve(place)[0].request_bytes) == (4 << 20, 1 << 20)
    with pytest.raises(UsageError, match=r"gap_bytes is too small.*8KB"):
        Stores.of(None, {"gap_bytes": 1000})


def test_secrets_are_not_shown() -> None:
    stores = Stores.of(None, {"secret_access_key": _SECRET})
    assert stores is not None
    store, _ = resolve("s3://b/x", stores)
    job = JobPlan("", None, None, stores=stores.for_workers)  # type: ignore[arg-type] # looked at only
    assert _SECRET not in repr((stores, store, of_url(stores.options, "s3://b"), job))
    assert pickle.loads(pickle.dumps(stores)) == stores


@pytest.mark.soak
def test_a_dataset_goes_through_every_verb(server: str, tmp_path: Path) -> None:
    """With workers, which get the options with the job; what they write holds no secret."""
    source, there = tmp_path / "a.jsonl", f"s3://{BUCKET}/there"
    source.write_text("".join(f'{{"n": {n}, "text": "t{n}"}}\n' for n in range(6)))
    code = f"""
import lading
if __name__ == "__main__":
    options = {_in(server)!r}
    given = {{"s3://{BUCKET}": options}}
    rows = lading.open({str(source)!r})
    wrote = rows.write("{there}", format="mds", workers=2, verify=True, rows_per_shard=2, storage_options=given)
    ds = lading.open("{there}", storage_options=options)
    print(wrote.shards, lading.digest("{there}", storage_options=given, workers=2) == lading.digest(rows))
    print(lading.verify("{there}", storage_options=given, workers=2).ok, lading.diff(ds, rows).equal, len(ds[:3]))
    print(sorted(n for b in lading.loader("{there}", 2, storage_options=options) for n in b["n"].tolist()))
    print({_SECRET!r} in repr((ds, ds.query, wrote)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines() == ["3 True", "True True 3", "[0, 1, 2, 3, 4, 5]", "False"], done.stderr
    store = ObjectStore(f"s3://{BUCKET}", options=_in(server))
    for info in store.walk(there):
        assert _SECRET.encode() not in bytes(store.get_ranges(info.path, [(0, info.size_bytes)])[0])


def test_options_of_the_command_line(server: str) -> None:
    with lading.writer(f"s3://{BUCKET}/typed", format="jsonl", storage_options=_in(server)) as writer:
        writer.write({"n": 1})
    given = [each for name, value in _in(server).items() for each in ("--storage-option", f"{name}={value}")]
    done = CliRunner().invoke(app, ["info", f"s3://{BUCKET}/typed", *given, "--json"])
    assert '"samples": 1' in done.stdout
    given = [f"s3://{BUCKET} {each}" if "=" in each else each for each in given]
    assert CliRunner().invoke(app, ["info", f"s3://{BUCKET}/typed", *given]).exit_code == 0
    elsewhere = [each.replace(BUCKET, "other") for each in given]
    refused = CliRunner().invoke(app, ["info", f"s3://{BUCKET}/typed", *elsewhere])
    assert "no credentials" in refused.output
    unnamed = CliRunner().invoke(app, ["info", "s3://b/x", "--storage-option", "region"])
    assert "expected NAME=VALUE" in unnamed.output


class TestErrors:
    """Each says in a line what is wrong and what to type."""

    @pytest.fixture
    def answer(self) -> Iterator[Any]:
        """A function that starts a server with one answer, and gives its URL."""
        servers: list[ThreadingHTTPServer] = []

        def start(status: int, body: str = "") -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body.encode())

                do_PUT = do_POST = do_GET  # noqa: N815 - names of the library

                def log_message(self, *_: Any) -> None:
                    pass

            servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
            return f"http://127.0.0.1:{servers[-1].server_port}"

        yield start
        for each in servers:
            each.shutdown()
            each.server_close()

    def _error(self, url: str, **more: Any) -> LadingError:
        store = ObjectStore(f"s3://{BUCKET}", options={**_in(url), "retry_s": 0.1, **more})
        with pytest.raises(LadingError) as caught:
            list(store.walk(f"s3://{BUCKET}/a"))
        assert "\n" not in str(caught.value)
        assert _SECRET not in str(caught.value)
        assert caught.value.file == f"s3://{BUCKET}/a"
        return caught.value

    @pytest.mark.parametrize(
        "status, body, told",
        [
            (403, "<Error><Code>SignatureDoesNotMatch</Code></Error>", "refuses access; found 403 Forbidden"),
            (301, "", "in another region. Set AWS_REGION"),
            (400, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
             "expected eu-west-1. Set AWS_REGION=eu-west-1, or add storage_options={'region': 'eu-west-1'}."),
            (404, "<Error><Code>NoSuchBucket</Code></Error>", "no such bucket"),
            (400, "<Error><Code>XAmzContentSHA256Mismatch</Code></Error>", "unsigned_payload"),
        ],
    )  # fmt: skip
    def test_of_a_server(self, answer: Any, status: int, body: str, told: str) -> None:
        assert told in str(self._error(answer(status, body)))

    def test_a_server_that_does_not_answer(self) -> None:
        said = str(self._error("http://127.0.0.1:9", retry_s=1))
        assert "http://127.0.0.1:9 does not answer" in said
        assert "Check the network, and the endpoint" in said

    @pytest.mark.parametrize("place, told", [("s3://b", "AWS_ACCESS_KEY_ID"), ("gs://b", "GOOGLE_APPLICATION")])
    def test_no_credentials(self, place: str, told: str) -> None:
        with pytest.raises(StoreError, match=rf"{place}: no credentials\. Set {told}.*anonymous"):
            ObjectStore(place).head(f"{place}/x")

    def test_a_public_bucket_needs_none(self, answer: Any) -> None:
        body = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
        public = {"endpoint": answer(200, body), "region": "r", "anonymous": True}
        assert list(ObjectStore("s3://b", options=public).walk("s3://b")) == []

    def test_azure_needs_an_account(self) -> None:
        with pytest.raises(UsageError, match="account_name"):
            ObjectStore("az://c", options={"account_key": "c2VjcmV0"}).head("az://c/x")
