"""Tables of paths and of URLs: their files, as the files hold them, and what becomes of rows without one."""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from documents import SAMPLES, documents
from in_process import by_tasks
from lading._core.cli.main import app
from lading._core.storage.base import FileInfo
from lading._core.storage.memory import MemoryStore
from lading._core.storage.object_errors import own_error
from lading._core.storage.stores import Stores
from lading.errors import BadReference, LimitExceeded, UsageError
from lading.limits import Limits
from odd_server import OddServer, odd_server, picture

_KINDS = {"jpg": "JPEG", "png": "PNG"}


def _files(folder: Path, *names: str) -> dict[str, bytes]:
    """Write images of different sizes; return their bytes."""
    files = {name: picture(8 + at, 6, _KINDS[name.rpartition(".")[2]]) for at, name in enumerate(names)}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return files


def _table(folder: Path, paths: list[str | None], kind: str = "csv", column: str = "path") -> Path:
    rows = [{column: path, "n": n} for n, path in enumerate(paths)]
    table = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), table)
    elif kind == "jsonl":
        table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        table.write_text(f"{column},n\n" + "".join(f"{row[column] or ''},{row['n']}\n" for row in rows))
    return table


def _run(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], prog_name="lading")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def server() -> Iterator[OddServer]:
    with odd_server() as running:
        yield running


# Paths


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_are_read_when_they_are_asked_for(tmp_path: Path, kind: str) -> None:
    files = _files(tmp_path, "a/1.jpg", "a/2.jpg", "b.jpg")
    ds = lading.open(_table(tmp_path, [*files, None], kind)).media_from("path")
    assert ds.columns == ["path", "n", "image"]
    assert [ds[i]["image"].size for i in range(3)] == [(8, 6), (9, 6), (10, 6)]
    assert ds[3]["image"] is None
    assert ds.take([2, 0, 1, 3])["image"].to_pylist() == [files["b.jpg"], files["a/1.jpg"], files["a/2.jpg"], None]
    (tmp_path / "b.jpg").unlink()
    assert [sample["n"] for sample in ds.select("n").with_decode(False)] in ([0, 1, 2, 3], ["0", "1", "2", "3"])
    with pytest.raises(BadReference, match=r"b\.jpg"):
        ds[2]


def test_members_of_tars_have_the_endings_of_files(tmp_path: Path) -> None:
    files = _files(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    table = _table(tmp_path, [*files])
    for option, ending in (("jpg=path", "jpg"), ("path", "image.jpg")):
        _run("convert", table, tmp_path / ending, "--to", "webdataset", "--media-from", option)
        with tarfile.open(next((tmp_path / ending).glob("*.tar"))) as tar:
            assert {name.partition(".")[2] for name in tar.getnames()} == {"path", "n", ending}
            found = [tar.extractfile(name) for name in tar.getnames() if name.endswith(ending)]
            assert [file.read() for file in found if file] == list(files.values())


def test_both_files_of_a_sample(tmp_path: Path) -> None:
    files = _files(tmp_path, "1.jpg", "1.png", "2.jpg", "2.png")
    rows = [{"photo": f"{i}.jpg", "mask": f"{i}.png"} for i in (1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    _run("convert", tmp_path / "t.parquet", tmp_path / "o.parquet", "--media-from", "image=photo", "--media-from",
         "seg.png=mask")  # fmt: skip
    found = lading.open(tmp_path / "o.parquet").take([0, 1]).to_pylist()
    assert [(row["image"], row["seg.png"]) for row in found] == [
        (files["1.jpg"], files["1.png"]), (files["2.jpg"], files["2.png"]),
    ]  # fmt: skip


def test_a_path_leads_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    _files(folder, "in.jpg")
    _files(tmp_path, "secret.jpg")
    (folder / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (folder / "inner.jpg").symlink_to(folder / "in.jpg")
    outside = ["../secret.jpg", str(tmp_path / "secret.jpg"), "link.jpg", f"file://{tmp_path}/secret.jpg",
               "a/../../secret.jpg", "pipe:cat x.jpg", "http://127.0.0.1/1.jpg"]  # fmt: skip
    table = _table(folder, ["in.jpg", "inner.jpg", *outside])
    ds = lading.open(table).media_from("path", on_error="warn")
    assert [sample["n"] for sample in ds if sample["image"] is not None] == ["0", "1"]
    reasons = {"path: outside the folders that it may name, kept without payload": 5,
               "path: a URL, kept without payload": 2}  # fmt: skip
    assert ds.counts == reasons
    with pytest.raises(
        BadReference, match=r"table\.csv row 2 column 'path': .*outside.*found \.\./secret\.jpg.*roots="
    ):
        list(lading.open(table).media_from("path"))
    allowed = lading.open(table, roots=[tmp_path]).media_from("path", on_error="warn")
    assert [sample["n"] for sample in allowed if sample["image"] is not None] == ["0", "1", "2", "3", "4"]


def test_files_below_a_root(tmp_path: Path) -> None:
    files = _files(tmp_path / "elsewhere", "1.jpg", "2.jpg")
    (tmp_path / "tables").mkdir()
    table = _table(tmp_path / "tables", [*files])
    with pytest.raises(BadReference, match=r"not found.*roots="):
        list(lading.open(table).media_from("path"))
    ds = lading.open(table, roots=[tmp_path / "elsewhere"]).media_from("path")
    assert ds.take([0, 1])["image"].to_pylist() == list(files.values())


def test_tables_of_several_folders_name_their_own_files(tmp_path: Path) -> None:
    for at, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(picture(20 + at))
        _table(tmp_path / name, ["1.jpg", "1.jpg"])
    ds = lading.open(str(tmp_path / "*" / "table.csv")).media_from("path")
    assert [sample["image"].width for sample in ds] == [20, 20, 21, 21]
    assert [sample["image"].width for sample in ds.shuffle(1).sort("image.width")] == [20, 20, 21, 21]


def test_files_of_another_kind_than_their_column_says(tmp_path: Path) -> None:
    files = _files(tmp_path, "1.jpg", "2.png")
    table = _table(tmp_path, [*files, "3.wav", "4.jpg"])
    ledger = tmp_path / "ledger.jsonl"
    said = _run("convert", table, tmp_path / "out", "--to", "webdataset", "--media-from", "jpg=path", "--on-error",
                "drop_sample", "--ledger", ledger, "--json")  # fmt: skip
    assert json.loads(said)["samples"] == 1
    found = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [(line["row"], line["reason"], line["outcome"]) for line in found] == [
        (1, "path: png, not jpg", "dropped"), (2, "path: an audio file, not an image", "dropped"),
        (3, "path: not found", "dropped"),
    ]  # fmt: skip
    assert found[1]["detail"] == "3.wav: an audio file, not an image"


@pytest.mark.parametrize(
    "words, said",
    [
        (["--media-from", "n"], "do not say what they are.*found names such as '0'.*--media-from image=n"),
        (["--media-from", "gone"], "no such column; expected path, n"),
        (["--media-from", "n=path"], "a column has this name already.*--media-from my_image=path"),
        (["--fetch"], "--fetch belongs to a --media-from.*--media-from COLUMN --fetch"),
        (["--media-from", "path", "--fetch-private"], "fetch_private goes with fetch.*Add --fetch"),
    ],
)
@pytest.mark.cases(5)
def test_what_cannot_be_meant(tmp_path: Path, words: list[str], said: str) -> None:
    table = _table(tmp_path, [*_files(tmp_path, "1.jpg")])
    done = CliRunner().invoke(app, ["head", str(table), *words], prog_name="lading")
    assert done.exit_code == 2
    assert re.search(said, " ".join(done.stderr.split())), done.stderr


def test_documents_name_no_files(tmp_path: Path) -> None:
    (tmp_path / "docs.tar").write_bytes(documents(*SAMPLES))
    with pytest.raises(UsageError, match="a column of samples"):
        lading.open(tmp_path / "docs.tar").media_from("text_content", "image")


def test_files_of_a_store_are_looked_at_together(tmp_path: Path) -> None:
    store = MemoryStore()
    for name, data in {"d/t.csv": b"path\n1.jpg\n1.jpg\nsub/2.jpg\n../x.jpg\n", "d/1.jpg": picture(30),
                       "d/sub/2.jpg": picture(31), "x.jpg": picture(32)}.items():  # fmt: skip
        sink = store.put_stream(f"mem://b/{name}")
        sink.write([data])
        sink.close()
    ds = lading.open("mem://b/d/t.csv", stores=Stores({"mem://": store})).media_from("path", on_error="drop_sample")
    assert [sample["image"].width for sample in ds] == [30, 30, 31]
    assert ds.counts == {"path: outside the folders that it may name, dropped": 1}


# URLs


def test_urls_are_downloaded_and_failures_counted(tmp_path: Path, server: OddServer) -> None:
    """As img2dataset, samples without a file are left out; each has a line that says why."""
    paths = ["/ok/1.jpg", "/page", "/gone.jpg", "/page-as-image", "/png", "/wav", "/noise", "/empty", "/ok/2.jpg"]
    urls = [server.url + path for path in paths]
    table = _table(tmp_path, [*urls, "ftp://host/1.jpg", "/etc/passwd", "file:///etc/passwd", None], column="url")
    ledger = tmp_path / "ledger.jsonl"
    said = _run("convert", table, tmp_path / "out", "--to", "webdataset", "--media-from", "jpg=url", "--fetch",
                "--fetch-private", "--on-error", "drop_sample", "--ledger", ledger, "--json")  # fmt: skip
    assert json.loads(said)["samples"] == 3  # a row without URL stays, without a file
    with tarfile.open(next((tmp_path / "out").glob("*.tar"))) as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames() if name.endswith(".jpg")}  # type: ignore[union-attr]
    assert list(members.values()) == [picture(), picture()]
    reasons = Counter(json.loads(line)["reason"] for line in ledger.read_text().splitlines())
    assert reasons == {
        "url: a page or a text, not an image": 2, "url: HTTP 404": 1, "url: png, not jpg": 1,
        "url: an audio file, not an image": 1, "url: not an image": 1, "url: an empty file": 1,
        "url: not a URL of the web or of an object store": 3,
    }  # fmt: skip
    assert max(Counter(server.asked).values()) == 1


def test_addresses_that_are_not_public_need_to_be_allowed(tmp_path: Path, server: OddServer) -> None:
    table = _table(tmp_path, [f"{server.url}/ok.jpg"])
    with pytest.raises(BadReference, match=r"an address that is not public; found http.*Allow.*fetch_private=True"):
        list(lading.open(table).media_from("path", fetch=True))
    assert server.asked == []
    with pytest.raises(BadReference, match=r"a URL.*fetch=True"):
        list(lading.open(table).media_from("path"))


@pytest.mark.parametrize(
    "steps",
    [
        lambda ds: ds.shuffle(1),
        lambda ds: ds.where("jpg.width > 2 and n != 'x'").sort("jpg.width"),
        lambda ds: ds.image_bounds(min_side=2).limit(7),
        lambda ds: ds.dedup("url"),
    ],
)
@pytest.mark.cases(4)
def test_a_file_is_downloaded_once_in_a_run(tmp_path: Path, server: OddServer, steps: object) -> None:
    urls = [f"{server.url}/{'gone' if n % 5 == 4 else 'ok'}/{n}.jpg" for n in range(20)]
    ds = lading.open(_table(tmp_path, [*urls], column="url"))
    ds = ds.media_from("url", "jpg", fetch=True, fetch_private=True, on_error="drop_sample")
    done = steps(ds).write(tmp_path / "out", format="parquet", **by_tasks(2))  # type: ignore[operator]
    assert done.samples == (7 if done.samples < 16 else 16)
    assert Counter(server.asked) == dict.fromkeys([url.removeprefix(server.url) for url in urls], 1)


def test_only_samples_that_are_read_are_downloaded(tmp_path: Path, server: OddServer) -> None:
    table = _table(tmp_path, [f"{server.url}/ok/{n}.jpg" for n in range(9)])
    ds = lading.open(table).media_from("path", fetch=True, fetch_private=True)
    assert ds[4]["image"].size == (8, 6)
    assert ds.select("n").take([0])["n"].to_pylist() == ["0"]
    assert server.asked == ["/ok/4.jpg"]
    assert ds.select("n").columns == ["n"]
    few = lading.open(table).where("n >= '7'").media_from("path", fetch=True, fetch_private=True)
    assert [sample["image"].size for sample in few] == [(8, 6)] * 2
    assert len(server.asked) == 3


def test_a_limit_names_itself(tmp_path: Path, server: OddServer) -> None:
    table = _table(tmp_path, [f"{server.url}/ok.jpg"])
    ds = lading.open(table, limits=Limits(fetch_bytes=10)).media_from("path", fetch=True, fetch_private=True)
    with pytest.raises(LimitExceeded, match=r"more than 10 B.*fetch_bytes"):
        list(ds)


def test_objects_of_stores_are_downloaded_too(tmp_path: Path) -> None:
    store = MemoryStore()
    sink = store.put_stream("s3://bucket/1.jpg")
    sink.write([picture(33)])
    sink.close()
    table = _table(tmp_path, ["s3://bucket/1.jpg", "s3://bucket/2.jpg"])
    ds = lading.open(table, stores=Stores({"s3://bucket/": store}))
    assert [s["image"] and s["image"].width for s in ds.media_from("path", fetch=True, on_error="warn")] == [33, None]
    below = lading.open(table, stores=Stores({"s3://bucket/": store}), roots=["s3://bucket"])
    assert [s["image"] and s["image"].width for s in below.media_from("path", on_error="warn")] == [33, None]


class _Denying(MemoryStore):
    def head(self, path: str) -> FileInfo:
        if "denied" in path:
            raise own_error(PermissionDeniedError("status code: 403 Forbidden"), path)
        return super().head(path)


class PermissionDeniedError(Exception):
    """Has the name of the error that obstore raises."""


def test_an_object_that_is_refused_is_a_failure_of_its_row(tmp_path: Path) -> None:
    store = _Denying({"s3://bucket/1.jpg": picture(33)})
    table = _table(tmp_path, ["s3://bucket/1.jpg", "s3://bucket/denied.jpg"])
    ds = lading.open(table, stores=Stores({"s3://bucket/": store}))
    assert [s["image"] and s["image"].width for s in ds.media_from("path", fetch=True, on_error="warn")] == [33, None]
    with pytest.raises(BadReference, match="the store refuses access"):
        list(ds.media_from("path", fetch=True))
