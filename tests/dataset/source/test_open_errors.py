"""What cannot be opened says what it is, by the name that the user gave."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lading
from golden_cases import Golden
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.retries import Retries
from lading._core.storage.stores import Stores
from lading.errors import DataError, MissingExtra, SourceNotFound, StoreError, UnknownFormat
from tars import tar_of

# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_POINTER = """version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl", "jsonl.gz", "tar", "tar.gz", "mds", "bin"])
def test_a_pointer_of_git_lfs_is_told(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.{ending}"
    file.write_text(_POINTER)
    for opening in ({}, {"format": "csv"}):
        with pytest.raises(DataError, match=rf"a\.{ending}: a pointer of Git LFS.*git lfs pull"):
            list(lading.open(file, **opening))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.parquet", "a.tar", "a.csv", "a.jsonl.gz", "a.bin"])
@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n<html>Log in</html>", b"\n<html><body>404</body></html>"])
def test_a_page_in_the_place_of_a_file_is_told(name: str, page: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(page)
    for place in (tmp_path / name, tmp_path):
        if place.suffix or name != "a.bin":
            with pytest.raises(DataError, match=rf"{name}: an HTML page, not the file itself.*Fetch the file again"):
                lading.info(place)


def test_files_of_other_kinds_are_told_by_their_first_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    np.save(tmp_path / "a.npy", np.zeros(2))
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"a": 1}))
    for name, kind in (("a.npz", "a ZIP archive"), ("a.npy", "an array of NumPy"), ("a.pkl", "a pickle")):
        with pytest.raises(UnknownFormat, match=rf"no format recognises this file.*found {kind}.*Write its rows in"):
            lading.open(tmp_path / name)


def test_a_pointer_behind_sound_shards_and_in_place_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.csv").write_text(_POINTER)
    with pytest.raises(DataError, match=r"b\.csv: a pointer of Git LFS"):
        list(lading.open(tmp_path))
    assert ["Git LFS" in one["message"] for one in lading.verify(tmp_path).findings] == [True]
    (tmp_path / "index.json").write_text(_POINTER)
    with pytest.raises(DataError, match=r"index\.json: a pointer of Git LFS"):
        lading.open(tmp_path, format="mds")


@pytest.fixture
def locked(golden: Golden) -> Iterator[Callable[..., Path]]:
    """Gives a folder below `/tmp` that anybody may look through, but for some of its files."""
    made: list[tuple[Path, list[Path]]] = []
    root = Path(os.path.realpath(os.environ.get("TMPDIR", "/tmp"))) / f"lading-locked-{os.getpid()}"

    def make(*without: str) -> Path:
        (root / "in").mkdir(parents=True)
        shutil.copy(golden("wds") / "energon" / "train-000000.tar", root / "in" / "a.tar")
        lading.convert(root / "in" / "a.tar", root / "own", format="parquet")
        root.chmod(0o755)
        places = [root / name for name in without]
        made.append((root, places))
        for place in places:
            place.chmod(0)
        return root

    yield make
    for folder, places in made:
        for place in places:
            place.chmod(0o755)
        shutil.rmtree(folder)


_VERBS: dict[str, Callable[[str], Any]] = {
    "open": lading.open,
    "info": lading.info,
    "verify": lading.verify,
    "digest": lading.digest,
    "doctor": lading.doctor,
}


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(
    "without, source, named",
    [
        ("in", "in/a.tar", "in/a.tar"),
        ("in", "in/*.tar", "in/*.tar"),
        ("in", "in", "in"),
        ("in/a.tar", "in/a.tar", "in/a.tar"),
        ("own/_lading", "own", "own/_lading"),
        ("own/_lading/manifest.json", "own", "own/_lading/manifest.json"),
    ],
)
def test_a_lack_of_permission_names_what_the_user_named(
    without: str, source: str, named: str, verb: str, locked: Callable[..., Path]
) -> None:
    """Permissions do not hold for root, so its process becomes another's for the call."""
    root = locked(without)
    if os.getuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match=r"permission denied\. Check the permissions") as error:
            _VERBS[verb](f"{root}/{source}")
    finally:
        os.seteuid(os.getuid())
    assert error.value.file == f"{root}/{named}"


class _Client(Exception):
    """As of an HTTP client: no OSError."""


class _Failing(MemoryFileSystem):
    """A store that fails as another one does."""

    cachable = False
    error: Exception = _Client("[Errno -2] Name or service not known")

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self.error

    info = find = ls = cat_ranges = _fail


def test_a_store_without_network_names_the_url_and_the_cause() -> None:
    stores = Stores({"hf://": FsspecStore(_Failing(), retries=Retries(deadline_s=0))})
    for source in ("hf://datasets/x/y", "hf://datasets/x/y/a.parquet"):
        with pytest.raises(StoreError, match=r"Name or service not known.*Check the network") as error:
            lading.open(source, stores=stores)
        assert error.value.file == source


def test_a_missing_bucket_is_told() -> None:
    failing = _Failing()
    failing.error = FileNotFoundError("The specified bucket does not exist")  # s3fs 2024.10, of NoSuchBucket
    stores = Stores({"s3://": FsspecStore(failing, retries=Retries(deadline_s=0))})
    for source in ("s3://b/x", "s3://b/x/a.tar"):
        with pytest.raises(SourceNotFound, match=f"{source}: the bucket or path does not exist"):
            lading.open(source, stores=stores)


@pytest.mark.parametrize(
    "url, package, extra", [("s3://b/x", "s3fs", "s3"), ("gs://b/x", "gcsfs", "gcs"), ("az://b/x", "adlfs", "azure")]
)
def test_a_missing_package_names_the_extra(url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", package):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'lading\[{extra}\]'"):
        lading.open(url)


@pytest.mark.parametrize("name, meant", [("Parquet", "parquet"), ("WEBDATASET", "webdataset"), ("jsonlines", "jsonl")])
def test_an_unknown_format_is_told_the_closest(name: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"x")))
    with pytest.raises(UnknownFormat, match=f"Did you mean {meant}"):
        lading.open(tmp_path, format=name)


def test_a_folder_of_documents_and_archives_is_one_of_media_archives(tmp_path: Path) -> None:
    rows = pa.table({"__key__": [f"k{i}" for i in range(50)], "jpg": [os.urandom(2000) for _ in range(50)]})
    with lading.writer(tmp_path / "set", format="media_archive") as writer:
        writer.write_batch(rows)
    shutil.rmtree(tmp_path / "set" / "_lading")
    with lading.open(tmp_path / "set") as dataset:
        assert dataset.format == "media_archive"
        assert len(dataset) == 50
    assert lading.verify(tmp_path / "set", deep=True).ok
    [archive] = (tmp_path / "set").glob("*.bin.zst")
    os.truncate(archive, archive.stat().st_size // 2)
    assert not lading.verify(tmp_path / "set", deep=True).ok
    (tmp_path / "set" / "shard-000000.jsonl.gz").unlink()
    (tmp_path / "set" / "a.jsonl").write_text('{"n": 1}\n')
    assert lading.open(tmp_path / "set").format == "jsonl"


@pytest.mark.mechanism("python -m lading")
def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lading", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("lading ")


def test_a_folder_of_json_files_is_opened_where_its_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"n": 1}]')
    (tmp_path / "b.json").write_text('{"n": 2}\n{"n": 3}\n')
    with pytest.raises(SourceNotFound, match=r"found 2 \.json.*format='jsonl'") as caught:
        lading.open(tmp_path)
    assert str(caught.value.advice).startswith("If they hold rows, name the format: --from jsonl.")
    with lading.open(tmp_path, format="jsonl") as dataset:
        assert list(dataset) == [{"n": 1}, {"n": 2}, {"n": 3}]
    (tmp_path / "c.jsonl").write_text('{"n": 4}\n')
    with lading.open(tmp_path, format="jsonl") as dataset:  # the others may be anything, such as an index
        assert list(dataset) == [{"n": 4}]


def test_folders_of_programs_own_files_hold_no_shards(tmp_path: Path) -> None:
    (tmp_path / "n=1").mkdir()
    shard = tmp_path / "n=1" / "part-0.parquet"
    pq.write_table(pa.table({"a": [1]}), shard)
    for name in ("_temporary/0/task_1/n=2", "_delta_log", "__MACOSX"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(shard, tmp_path / name / "part-1.parquet")
    with lading.open(tmp_path) as dataset:
        assert list(dataset) == [{"a": 1, "n": 1}]
