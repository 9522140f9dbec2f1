"""Object stores through obstore, against a server: the contract of stores, forks, errors, credentials."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

import lading
from fault_proxy import fault_proxy
from lading._core.storage.base import Store, write_file
from lading._core.storage.credentials import profile_options
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.object_errors import may_pass
from lading._core.storage.objects import ObjectStore
from lading._core.storage.stores import resolve
from lading.errors import NotFound, StoreError, UsageError
from object_server import BUCKET, environment, options
from object_store_tests import ObjectStoreTests
from tars import tar_of

_LEAD = f"s3://{BUCKET}/"


@pytest.fixture(scope="module")
def raw(server: str) -> S3Store:
    return S3Store(BUCKET, client_options={"allow_http": True}, **options(server))


def _program(code: str, server: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment(server), **more},
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


class TestObjectStore(ObjectStoreTests):
    lead = _LEAD

    @pytest.fixture
    def store(self, server: str, raw: S3Store) -> Store:
        self.raw = raw
        return ObjectStore(f"s3://{BUCKET}", options=options(server))

    def test_files_that_s3_does_not_copy_are_written_again(self, root: str, raw: S3Store, server: str) -> None:
        small, large = os.urandom(1000), os.urandom((9 << 20) + 5)
        self.raw = raw
        with fault_proxy(server) as proxy:
            store = ObjectStore(f"s3://{BUCKET}", options=options(proxy.url))
            store.copy_bytes = 1 << 20
            write_file(store, f"{root}/old/small", [small])
            write_file(store, f"{root}/old/large", [large])
            proxy.sent_bytes = 0
            store.publish(f"{root}/old", f"{root}/new")
            assert len(large) <= proxy.sent_bytes <= len(large) + 10_000  # the small one is copied by the server
        assert self.list_raw(store, root) == [f"{root}/new/large", f"{root}/new/small"]
        assert self.get_raw(store, f"{root}/new/large") == large
        assert self.get_raw(store, f"{root}/new/small") == small

    def test_an_empty_object_may_stand_for_a_folder(self, store: Store, root: str, server: str) -> None:
        """As consoles of object stores make them: a key with a slash at its end."""
        import urllib.request

        self.put_raw(store, f"{root}/folder/a", b"x")
        key = f"{root.removeprefix(_LEAD)}/folder/"
        urllib.request.urlopen(urllib.request.Request(f"{server}/{BUCKET}/{key}", data=b"", method="PUT")).close()
        assert [info.path for info in store.walk(root)] == [f"{root}/folder/a"]

    def test_names_that_no_object_store_has(self, store: Store, root: str) -> None:
        for name in ("a/../b", "a//b"):
            with pytest.raises(UsageError, match="not a name of an object"):
                store.head(f"{root}/{name}")

    def test_a_copy_by_pickle_is_as_good(self, store: Store, root: str) -> None:
        self.put_raw(store, f"{root}/a", b"bytes")
        store.head(f"{root}/a")
        assert pickle.loads(pickle.dumps(store)).head(f"{root}/a") == store.head(f"{root}/a")


def test_urls_of_buckets_are_served_by_obstore() -> None:
    store, path = resolve("s3://bucket/a/b")
    assert isinstance(store, ObjectStore)
    assert store is resolve("s3://bucket/other")[0]
    assert store is not resolve("s3://other/a/b")[0]
    assert path == "s3://bucket/a/b"
    assert isinstance(resolve("gs://bucket/a")[0], ObjectStore)
    assert isinstance(resolve("abfss://container@account.dfs.core.windows.net/a")[0], ObjectStore)
    assert isinstance(resolve("hf://datasets/a")[0], FsspecStore)


@pytest.mark.mechanism("an object store")
def test_a_dataset_goes_there_and_back(server: str, tmp_path: Path) -> None:
    code = f"""
import lading
rows = lading.open({str(tmp_path / "a.jsonl")!r})
rows.write("{_LEAD}there", format="mds")
print(lading.digest("{_LEAD}there") == lading.digest(rows), len(lading.open("{_LEAD}there")))
print(lading.open("{_LEAD}there")[2])
"""
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}, "text": "t{n}"}}\n' for n in range(5)))
    done = _program(code, server)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "True 5"
    assert "t2" in done.stdout.splitlines()[1]


def test_shards_that_were_listed_take_no_head(server: str, raw: S3Store) -> None:
    for i in range(20):
        obstore.put(raw, f"many/{i:02}.tar", tar_of((f"{i}.txt", b"text")))
    with fault_proxy(server) as proxy:
        dataset = lading.open(f"{_LEAD}many", storage_options=options(proxy.url))
        assert len(dataset) == 20
        assert proxy.requests["HEAD"] <= 2  # of the manifest, and of the first shard
        assert proxy.requests["GET"] <= 2 + 3 * 20


_FORK = f"""
import os, sys
from lading._core.storage.stores import resolve
store, path = resolve("{_LEAD}forked")
BEFORE
if (child := os.fork()) == 0:
    def told(call):
        try:
            print(call(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)

    try:
        told(lambda: store.head(path).size_bytes)
        told(lambda: b"".join(store.get_ranges(path, [(0, 2), (2, 2)])))
        told(lambda: [info.path for info in resolve(path)[0].walk("{_LEAD}folder")])
        told(lambda: store.head(path + "-none"))
        told(lambda: store.put_stream(path))
    finally:
        os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.mechanism("fork beside obstore")
def test_a_forked_child_of_a_user_of_obstore_reads_through_a_program(server: str, raw: S3Store) -> None:
    obstore.put(raw, "forked", b"four")
    obstore.put(raw, "folder/file", b"")
    size, data, names, none, writing = _program(_FORK.replace("BEFORE", "store.head(path)"), server).stdout.splitlines()
    assert (size, data, names) == ("4", "b'four'", f"['{_LEAD}folder/file']")
    assert none.startswith("NotFound ")
    assert "UsageError a forked process cannot write" in writing
    assert "forkserver" in writing


_CHILDREN = f"""
import multiprocessing, sys
import lading

def read(dataset, answers):
    try:
        answers.put((len(dataset), [row["txt"] for row in dataset], dataset[3]["txt"]))
    except Exception as error:
        answers.put(f"{{type(error).__name__}}: {{error}}")

if __name__ == "__main__":
    dataset = lading.open("{_LEAD}children")
    rows = [row["txt"] for row in dataset]
    for method in sys.argv[1:]:
        context = multiprocessing.get_context(method)
        answers = context.SimpleQueue()
        child = context.Process(target=read, args=(dataset, answers))
        child.start()
        found = answers.get()
        child.join()
        print(method, found if isinstance(found, str) else found == (8, rows, "text 3"), child.exitcode, flush=True)
    print("parent", [row["txt"] for row in dataset] == rows)
"""


@pytest.mark.soak
def test_children_read_the_open_dataset_of_their_parent(server: str, raw: S3Store, tmp_path: Path) -> None:
    for i in range(4):
        rows = [(f"{n}.txt", b"text %d" % n) for n in (2 * i, 2 * i + 1)]
        obstore.put(raw, f"children/{i}.tar", tar_of(*rows))
    (tmp_path / "program.py").write_text(_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), "spawn", "forkserver", "fork"],
        env={**os.environ, **environment(server)}, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["spawn True 0", "forkserver True 0", "fork True 0", "parent True"]


_LOADERS = f"""
import sys
from torch.utils.data import DataLoader
import lading
from lading.compat.mosaicml import StreamingDataset

remote, local = "{_LEAD}mds", sys.argv[1]
copy, dataset = lading.compat.mosaicml.LocalCopy(local + "/copy", remote=remote), lading.open(remote)
touched = copy[0]["n"], dataset[0]["n"]
training = StreamingDataset(remote=remote, local=local + "/training", shuffle=True, batch_size=4)
for data in (copy, dataset, training):
    loader = DataLoader(data, 4, num_workers=2, multiprocessing_context="fork", collate_fn=list)
    print(sorted(row["n"] for batch in loader for row in batch) == list(range(40)))
"""


@pytest.mark.soak
def test_forked_workers_of_pytorch_read_copies_and_datasets_that_were_touched(server: str, tmp_path: Path) -> None:
    with lading.writer(
        f"{_LEAD}mds", format="mds", options={"size_limit": 100, "compression": "zstd"}, storage_options=options(server)
    ) as out:
        for number in range(40):
            out.write({"n": number})
    (tmp_path / "program.py").write_text(_LOADERS)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
        env={**os.environ, **environment(server)}, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True"] * 3, done.stderr


def test_what_a_server_refuses_is_told_in_a_line(server: str) -> None:
    store = ObjectStore("s3://no-such-bucket", options=options(server))
    with pytest.raises(NotFound):
        store.head("s3://no-such-bucket/a")
    gone = ObjectStore(f"s3://{BUCKET}", options={**options(server), "endpoint": "http://127.0.0.1:9", "retry_s": 0.1})
    with pytest.raises(StoreError) as caught:
        gone.head(f"{_LEAD}a")
    assert caught.value.file == f"{_LEAD}a"
    assert "\n" not in str(caught.value.message)


def test_a_range_behind_the_end_is_not_asked_for_again() -> None:
    """What obstore raises where Azurite answers; its own error for S3 names the status."""
    text = "Generic MicrosoftAzure error: Wanted range starting at 1280, but object was only 1280 bytes long"
    assert not may_pass(obstore.exceptions.GenericError(text))
    assert may_pass(obstore.exceptions.GenericError("Generic MicrosoftAzure error: error sending request"))


def test_a_difference_of_two_stores(server: str, raw: S3Store) -> None:
    for name, text in (("one", b"a"), ("other", b"b")):
        obstore.put(raw, f"{name}/0.tar", tar_of(("0.txt", text)))
    one, other = f"{_LEAD}one", f"{_LEAD}other"
    assert lading.diff(one, one, storage_options=options(server)).equal
    opened = lading.open(other, storage_options=options(server))
    assert lading.diff(one, opened, storage_options=options(server)).differing == 1


class TestProfiles:
    """Profiles of the AWS command line."""

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / "credentials").write_text(
            "[default]\naws_access_key_id = D\naws_secret_access_key = ds\n"
            "[work]\naws_access_key_id = W\naws_secret_access_key = w%s\naws_session_token = t\n"
        )
        (tmp_path / ".aws" / "config").write_text(
            "[default]\nregion = eu-north-1\n[profile work]\nregion = us-west-2\nendpoint_url = http://store:9000\n"
            "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = work\n"
        )

    def test_of_the_default_profile(self) -> None:
        expected = {"region": "eu-north-1", "access_key_id": "D", "secret_access_key": "ds"}
        assert profile_options() == expected

    def test_of_a_named_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "work")
        keys: dict[str, Any] = {"access_key_id": "W", "secret_access_key": "w%s", "session_token": "t"}
        assert profile_options() == {"region": "us-west-2", "endpoint": "http://store:9000", **keys}

    def test_keys_of_the_environment_come_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
        assert profile_options() == {}

    def test_a_profile_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "wrok")
        with pytest.raises(UsageError, match="AWS_PROFILE=wrok"):
            profile_options()

    def test_a_role_takes_boto3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "role")
        monkeypatch.setitem(sys.modules, "boto3", None)
        with pytest.raises(lading.errors.MissingExtra, match="pip install boto3"):
            profile_options()
