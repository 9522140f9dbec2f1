"""Whole conversions: there and back with one digest, and what is refused before anything is written."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lading
from documents import SQUARE, TALL, WIDE, documents, tiff_of
from golden_cases import Golden
from in_process import by_tasks
from lading._core.dataset.query import open_shards
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.features.types import Image, Video, with_feature
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.caches import write_cache
from lading.errors import (
    BadReference,
    DataError,
    DestinationExists,
    LadingError,
    SchemaMismatch,
    SourceNotFound,
    StoreError,
    Unrepresentable,
    UsageError,
)
from media import frame, medium
from tars import tar_of


@pytest.mark.cases(1)
@pytest.mark.parametrize("view", ["interleaved", "samples"])
def test_real_documents_there_and_back(view: str, docs: Path, tmp_path: Path) -> None:
    want = lading.digest(docs, view=view)
    assert want.count > 10
    steps = [("parquet", "a"), ("webdataset", "b"), ("parquet", "c"), ("webdataset", "d"), ("webdataset", "e")]
    source = docs
    for fmt, name in steps:
        summary = lading.convert(source, tmp_path / name, format=fmt, view=view, verify=True)
        assert summary.verified
        assert summary.samples == want.count
        assert lading.digest(tmp_path / name, view=view).ordered == want.ordered, name
        source = tmp_path / name
    assert lading.diff(docs, source, options=({"view": view}, {"view": view})).equal


@pytest.mark.parametrize("name", ["o::1", "o{1,2}", "${WDS_O}", "o*"])
def test_a_destination_may_be_called_as_a_pattern_is(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"x")))
    assert lading.convert(tmp_path / "a.tar", tmp_path / name, format="parquet", verify=True).verified
    assert lading.open(tmp_path / name)[0]["txt"] == "x"


WDS = ("shards", "names", "long-names-pax", "long-names-gnu", "encoders", "tarwriter-gz", "non-samples",
       "gz-multi-member", "interleaved-keys", "pax-headers")  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* members of a sample do not stand together")
@pytest.mark.cases(2)
@pytest.mark.parametrize("case", WDS)
def test_golden_tars_there_and_back(case: str, golden: Golden, tmp_path: Path) -> None:
    source = sorted((golden("wds") / case).glob("*.tar*"))
    want = lading.digest(source)
    lading.convert(source, tmp_path / "a", format="parquet", verify=True)
    lading.convert(tmp_path / "a", tmp_path / "b", format="webdataset", verify=True)
    lading.convert(source, tmp_path / "c", format="webdataset", verify=True)
    for name in "abc":
        assert lading.digest(tmp_path / name).ordered == want.ordered


@pytest.mark.cases(2)
@pytest.mark.parametrize("case, file", [("tar-basic", "docs.tar"), ("parquet-basic", "t.parquet"),
                                        ("parquet-basic", "hand.parquet"), ("tar-large", "docs.tar")])  # fmt: skip
def test_golden_items_there_and_back(case: str, file: str, golden: Golden, tmp_path: Path) -> None:
    source = golden("interleaved") / case / file
    want = lading.digest(source)
    for fmt, name in (("parquet", "a"), ("webdataset", "b"), ("parquet", "c")):
        lading.convert(source, tmp_path / name, format=fmt, verify=True)
        assert lading.digest(tmp_path / name).ordered == want.ordered, name
        source = tmp_path / name


@pytest.mark.filterwarnings("ignore:.* members of a sample do not stand together")
@pytest.mark.parametrize("case", [*WDS, "long-names-ustar-prefix"])
def test_tar_to_tar_keeps_members_names_and_order(case: str, golden: Golden, tmp_path: Path) -> None:
    source = sorted((golden("wds") / case).glob("*.tar*"))
    lading.convert(source, tmp_path / "out", format="webdataset", verify=True)

    def members(paths: list[Path]) -> list[tuple[str, bytes]]:
        """What webdataset would see, by Python's own tarfile."""
        found = []
        for path in paths:
            with tarfile.open(path) as archive:
                for member in archive:
                    base = member.name.rpartition("/")[2]
                    skipped = not member.isreg() or "." not in base or re.match(r"__[^/]*__($|/)", member.name)
                    if not skipped and not (base.startswith(".") and "/" not in member.name):
                        body = archive.extractfile(member)
                        assert body is not None
                        found.append((member.name, body.read()))
        return found

    want = members(source) if case != "gz-multi-member" else None  # tarfile stops at the first gzip member
    got = members(sorted((tmp_path / "out").glob("*.tar")))
    assert got == want if want is not None else len(got) == 3


@pytest.mark.soak
def test_same_output_twice(docs: Path, tmp_path: Path) -> None:
    for fmt in ("parquet", "webdataset"):
        for name in ("x", "y"):
            lading.convert(docs, tmp_path / fmt / name, format=fmt)
        x, y = (sorted((tmp_path / fmt / n).glob("shard*")) for n in ("x", "y"))
        assert [p.read_bytes() for p in x] == [p.read_bytes() for p in y]


def test_limit_columns_and_dry_run(docs: Path, tmp_path: Path) -> None:
    summary = lading.convert(docs, tmp_path / "a", format="parquet", limit=3, columns=["title"])
    assert summary.samples == 3
    with lading.open(tmp_path / "a") as dataset:
        assert len(dataset) == 3
        assert "title" in dataset.schema.names
        assert "url" not in dataset.schema.names
    dry = lading.convert(docs, tmp_path / "b", format="parquet", dry_run=True)
    assert dry.dry_run
    assert dry.samples == 13
    assert not (tmp_path / "b").exists()
    with pytest.raises(UsageError, match="nope"):
        lading.convert(docs, tmp_path / "b", format="parquet", columns=["nope"])


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_no_number_of_samples_is_no_limit(docs: Path, tmp_path: Path, *, dry_run: bool) -> None:
    for limit in (-1, 2.5, "3", float("nan")):
        with pytest.raises(UsageError, match="whole number"):
            lading.convert(docs, tmp_path / "out", format="parquet", limit=limit, dry_run=dry_run)  # type: ignore[arg-type] # on purpose
    assert lading.convert(docs, tmp_path / "out", format="parquet", limit=np.int64(2)).samples == 2  # type: ignore[arg-type] # numbers of numpy count too


@pytest.mark.parametrize("target, refused", [
    ("parquet", {"options": {"nope": 1}}),
    ("parquet", {"options": {"compression": "nope"}}),
    ("webdataset", {"options": {"nope": 1}}),
    ("csv", {"checksums": "nope"}),
    ("csv", {"options": {"delimiter": "nope"}}),
    ("mds", {"options": {"nulls": ["nope"]}}),
    ("csv", {"columns": ["list"]}),
])  # fmt: skip
def test_a_dry_run_refuses_what_the_format_refuses_of_options_and_columns(
    target: str, refused: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"__key__": ["a"], "x": [1], "list": [[{"a": b"1"}]]})
    pq.write_table(rows, tmp_path / "in" / "0.parquet")
    told: dict[str, Any] = {"format": target, "columns": ["x"], **refused}
    errors = []
    for dry_run in (False, True):
        with pytest.raises(LadingError) as caught:
            lading.convert(tmp_path / "in", tmp_path / "out", dry_run=dry_run, **told)
        errors.append((type(caught.value), caught.value.column, caught.value.found))
    assert errors[0] == errors[1]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    done = lading.convert(tmp_path / "in", tmp_path / "out", format=target, columns=["x"], dry_run=True)
    assert (done.samples, done.shards, done.dry_run) == (1, 0, True)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def members_of(folder: Path) -> list[str]:
    names = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            names += tar.getnames()
    return names


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_what_becomes_of_shards_that_differ_holds_for_tars_of_tars(columns: list[str] | None, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.tar").write_bytes(tar_of(("x.a", b"1"), ("x.b", b"2")))
    (tmp_path / "in" / "1.tar").write_bytes(tar_of(("y.a", b"3")))
    told: dict[str, Any] = {"format": "webdataset", "columns": columns}
    with pytest.raises(SchemaMismatch, match="b"):
        lading.convert(tmp_path / "in", tmp_path / "strict", schema_policy="strict", **told)
    with pytest.raises(UsageError, match="no such policy"):
        lading.convert(tmp_path / "in", tmp_path / "bogus", schema_policy="bogus", **told)  # type: ignore[arg-type] # on purpose
    lading.convert(tmp_path / "in", tmp_path / "intersect", schema_policy="intersect", **told)
    lading.convert(tmp_path / "in", tmp_path / "union", **told)
    assert members_of(tmp_path / "intersect") == ["x.a", "y.a"]
    assert members_of(tmp_path / "union") == (["x.a", "x.b", "y.a"] if columns is None else ["x.a", "y.a"])
    # Shards that are alike are as they should be.
    (tmp_path / "in" / "1.tar").write_bytes(tar_of(("y.a", b"3"), ("y.b", b"4")))
    done = lading.convert(tmp_path / "in", tmp_path / "alike", schema_policy="strict", verify=True, **told)
    assert done.samples == 2


def test_a_copy_of_archives_is_verified_with_the_roots_that_were_named(tmp_path: Path) -> None:
    blobs, source = tmp_path / "blobs", tmp_path / "in"
    blobs.mkdir()
    source.mkdir()
    record = frame(b"a picture")
    (blobs / "a.bin.zst").write_bytes(record)
    document = {"id": "a", "media": [medium(id="m", path=str(blobs / "a.bin.zst"), offset=0, length=len(record))]}
    (source / "0.jsonl").write_text(json.dumps(document) + "\n")
    done = lading.convert(source, tmp_path / "out", format="media_archive", source_format="media_archive",
                          view="samples", roots=[blobs], verify=True)  # fmt: skip
    assert (done.samples, done.verified) == (1, True)


def test_folders_that_hold_what_the_source_leads_to_are_no_destinations(tmp_path: Path) -> None:
    record = frame(b"a picture")
    for name in ("jsonl", "media/first"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "media" / "first" / "a.bin.zst").write_bytes(record)

    def write(path: str, destination: str, *, overwrite: bool, **options: Any) -> None:
        document = {"id": "a", "media": [medium(id="m", path=path, offset=0, length=len(record))]}
        (tmp_path / "jsonl" / "0.jsonl").write_text(json.dumps(document) + "\n")
        lading.convert(
            tmp_path / "jsonl", tmp_path / destination, format="parquet", source_format="media_archive",
            source_options=options, overwrite=overwrite,
        )  # fmt: skip

    media = {"media": str(tmp_path / "media")}
    for destination, overwrite, told in (
        ("media", True, "may lead to"),
        ("media/first", True, "inside the folder"),
        ("media/new", False, "inside the folder"),
    ):
        with pytest.raises(UsageError, match=told):
            write("first/a.bin.zst", destination, overwrite=overwrite, **media)
    absolute, roots = str(tmp_path / "media/first/a.bin.zst"), {"roots": [str(tmp_path / "media")]}
    with pytest.raises(UsageError, match="may lead to"):
        write(absolute, "media", overwrite=True, **roots)
    with pytest.raises(UsageError, match="inside the folder"):
        write("media/first/a.bin.zst", "media", overwrite=True, media=str(tmp_path))
    for path, options in (("first/a.bin.zst", media), (absolute, roots)):
        write(path, "out", overwrite=True, **options)
    write("media/first/a.bin.zst", "beside", overwrite=False, media=str(tmp_path))
    assert (tmp_path / "media" / "first" / "a.bin.zst").read_bytes() == record


@pytest.mark.parametrize("target", ["", "file://", "FILE://"])
@pytest.mark.parametrize("origin", ["", "file://"])
def test_destinations_that_are_refused(origin: str, target: str, docs: Path, tmp_path: Path) -> None:
    """However they are spelled."""
    before = sorted(p.read_bytes() for p in docs.iterdir())
    with pytest.raises(UsageError, match="inside the source"):
        lading.convert(f"{origin}{docs}", f"{target}{docs}/out", format="parquet")
    with pytest.raises(UsageError, match="inside the source"):
        lading.convert(f"{origin}{docs}", f"{target}{docs}/", format="parquet", overwrite=True)
    with pytest.raises(UsageError, match="files of the source"):
        lading.convert(f"{origin}{docs}/*.tar", f"{target}{tmp_path}", format="parquet", overwrite=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    with pytest.raises(DestinationExists):
        lading.convert(f"{origin}{docs}", f"{target}{tmp_path}/full", format="parquet")
    for place, overwrite in product(("full/x", "full/x/out", "full/x/far/out"), (False, True)):
        with pytest.raises(UsageError, match="not a folder"):
            lading.convert(f"{origin}{docs}", f"{target}{tmp_path}/{place}", format="parquet", overwrite=overwrite)
    with pytest.raises(SourceNotFound):
        lading.convert(f"{origin}{tmp_path}/nothing", f"{target}{tmp_path}/out", format="parquet")
    assert sorted(p.read_bytes() for p in docs.iterdir()) == before
    assert (tmp_path / "full" / "x").read_text() == "mine"


def test_destinations_elsewhere_that_are_refused() -> None:
    stores = Stores({"memory://": MemoryStore()})
    with lading.writer("memory://a/data", format="webdataset", stores=stores) as writer:
        writer.write({"__key__": "a", "txt": "x"})
    before = lading.digest("memory://a/data", stores=stores)
    for inside in ("memory://a/data", "memory://a/data/", "memory://a/data/out", "memory://a/./data"):
        with pytest.raises(UsageError, match="inside the source"):
            lading.convert("memory://a/data", inside, format="parquet", overwrite=True, stores=stores)
    with pytest.raises(UsageError, match="files of the source"):
        lading.convert("memory://a/data/*.tar", "memory://a", format="parquet", overwrite=True, stores=stores)
    lading.convert("memory://a/data", "memory://a/data2", format="parquet", stores=stores)
    with pytest.raises(DestinationExists, match=r"ledger is there already\. Name another file with ledger="):
        lading.convert("memory://a/data", "memory://a/data3", format="parquet", where="txt == 'x'", stores=stores,
                       ledger="memory://a/data2/_lading/manifest.json")  # fmt: skip
    assert lading.digest("memory://a/data", stores=stores) == before
    assert lading.digest("memory://a/data2", stores=stores) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_value_says_which_source_it_comes_from(workers: int, tmp_path: Path) -> None:
    for part in range(2):
        keys = [f"k{part}{row}" for row in range(3)]
        pq.write_table(pa.table({"__key__": keys, "x": ["a", "b", "c" if part == 0 else None]}),
                       tmp_path / f"{part}.parquet")  # fmt: skip
    with pytest.raises(Unrepresentable) as caught:
        lading.convert(tmp_path / "*.parquet", tmp_path / "out", format="mds", **by_tasks(workers), shard_size=1)
    assert (caught.value.sample, caught.value.column) == ("k12", "x")
    assert f"MDS cannot hold nulls (in rows of {tmp_path}/1.parquet)" in str(caught.value)
    assert ".out.lading-" not in str(caught.value)


def test_overwriting_builds_beside_and_exchanges(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "out", format="parquet")
    lading.convert(docs, tmp_path / "out", format="webdataset", overwrite=True)
    assert not list((tmp_path / "out").glob("*.parquet"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "out"]


def test_a_late_field_is_in_the_schema_from_the_start(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a") as writer:
        for i in range(2000):
            writer.write({"__key__": f"{i:05d}", "txt": "x", **({"late": b"y"} if i == 1999 else {})})
    summary = lading.convert(tmp_path / "a", tmp_path / "b", format="parquet", verify=True)
    assert summary.samples == 2000
    assert pq.read_schema(next((tmp_path / "b").glob("*.parquet"))).names == ["__key__", "txt", "late"]


@pytest.mark.parametrize("start", ["webdataset", "mds", "media_archive"])
def test_bytes_in_files_are_verified_for_datasets_too(start: str, tmp_path: Path) -> None:
    """Rows are read with references to them; what is written holds bytes, and media in structs of bytes and path."""
    image = with_feature(pa.field("png", pa.binary()), Image())
    schema = pa.schema([("__key__", pa.string()), image, ("bin", pa.binary())])
    rows = [{"__key__": "a", "png": b"\x89PNG", "bin": b"abc"}, {"__key__": "b", "png": b"\x89P", "bin": b"de"}]
    with lading.writer(tmp_path / "in", format=start, schema=schema) as writer:
        for row in rows:
            writer.write(row)
    done = lading.convert(
        tmp_path / "in", tmp_path / "out", format="arrow", options={"layout": "huggingface"}, verify=True
    )
    assert (done.verified, done.samples) == (True, 2)
    [shard] = (tmp_path / "out").glob("*.arrow")
    assert pa.ipc.open_stream(shard.read_bytes()).read_all().select(["png", "bin"]).to_pylist() == [
        {"png": {"bytes": row["png"], "path": None}, "bin": row["bin"]} for row in rows
    ]


@pytest.mark.soak
@pytest.mark.parametrize("view", ["samples", "interleaved"])
@pytest.mark.parametrize("start", ["webdataset", "parquet"])
def test_a_dataset_without_samples_is_converted_too(view: str, start: str, tmp_path: Path) -> None:
    schema = INTERLEAVED_SCHEMA if view == "interleaved" else pa.schema([("__key__", pa.string())])
    with lading.writer(tmp_path / start, format=start, view=view, schema=schema):
        pass
    for target in ("webdataset", "parquet"):
        summary = lading.convert(tmp_path / start, tmp_path / f"to-{target}", format=target, verify=True)
        assert (summary.verified, summary.samples) == (True, 0)
        with lading.open(tmp_path / f"to-{target}") as dataset:
            assert (len(dataset), dataset.view) == (0, view)
            assert view == "samples" or dataset.schema.names == schema.names


@pytest.mark.soak
def test_json_types_that_differ_between_shards(tmp_path: Path) -> None:
    for number, value in enumerate(("1", '"one"', "null", "[1, 2]", "123456789012345678901234567890", "1.0")):
        body = f'{{"texts": ["t"], "images": [null], "n": {value}}}'.encode()
        (tmp_path / f"{number}.tar").write_bytes(tar_of((f"d{number}.json", body)))
    source = str(tmp_path / "{0..5}.tar")
    lading.convert(source, tmp_path / "p", format="parquet", verify=True)
    lading.convert(tmp_path / "p", tmp_path / "t", format="webdataset", verify=True)
    with lading.open(tmp_path / "t") as dataset:
        values = [dataset[i].get("n") for i in range(6)]
    assert values == [1, "one", None, [1, 2], 123456789012345678901234567890, 1.0]
    assert isinstance(values[5], float)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_documents_become_documents_without_a_look_beforehand(workers: int, tmp_path: Path) -> None:
    """Fields, and their types, that change from tar to tar; lists with an entry an image go back to their images."""
    shards = [
        {"n": 1, "alt": ["wide"], "only": {"in": "the first"}},
        {"n": 2.5, "alt": ["other"], "späte": [1, None]},
        {"n": "three"},
        {"n": None, "alt": None},
    ]
    for number, fields in enumerate(shards):
        body = documents((f"s{number}", ["text", WIDE], fields))
        (tmp_path / f"{number}.tar").write_bytes(body)
    options = lading.options.InterleavedOptions(per_image_fields=("alt",))
    out = tmp_path / "out"
    summary = lading.convert(str(tmp_path / "{0..3}.tar"), out, format="webdataset", interleaved=options,
                             **by_tasks(workers), shard_size="1kb", verify=True)  # fmt: skip
    assert summary.verified
    found = {}
    for path in sorted(out.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    found[member.name] = json.load(tar.extractfile(member))
    for number, fields in enumerate(shards):
        document = found[f"s{number}.json"]
        told = {name: value for name, value in document.items() if name not in ("sample_id", "texts", "images")}
        assert told == {name: value for name, value in fields.items() if value is not None}
        assert list(document) == ["sample_id", "texts", "images", *told]
    with lading.open(out) as dataset:
        passthrough = [f for f in dataset.schema if f.name not in INTERLEAVED_SCHEMA.names]
        assert [f.name for f in passthrough] == ["n", "only", "alt", "späte"]
        assert all(f.type == pa.string() for f in passthrough)
        assert dataset[1]["n"] == 2.5
    with open_shards(out) as shards:
        assert shards.interleaved.per_image_fields == ("alt",)


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
def test_samples_of_one_id_stay_apart_where_a_shard_between_them_is_left_out(target: str, tmp_path: Path) -> None:
    for number, (key, picture) in enumerate((("a", TALL), ("b", WIDE), ("a", TALL))):
        (tmp_path / f"{number}.tar").write_bytes(documents((key, [picture], {"n": number})))
    source = str(tmp_path / "{0..2}.tar")
    done = lading.convert(source, tmp_path / "out", format=target, max_aspect_ratio=1, drop="sample")
    assert done.samples == 2
    with lading.open(str(tmp_path / "out" / "shard-*")) as dataset:
        numbers = [value for batch in dataset.batches() for value in batch.column("n").to_pylist()]
    assert [n for n in numbers if n is not None] == [0, 2]


_LEFT_OUT: list[dict[str, Any]] = [
    {"where": "lang != 'de'", "drop": "sample"},
    {"on_error": "drop_sample"},
    {"where": "lang != 'de'", "max_aspect_ratio": 3, "drop": "sample"},
    {"map_batches": lambda batch: batch.filter(pc.not_equal(batch["text_content"], "two"))},
]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet", "mds"])
@pytest.mark.parametrize("left_out", _LEFT_OUT, ids=" ".join)
def test_samples_of_one_id_stay_apart_where_one_between_them_is_left_out(
    left_out: dict[str, Any], target: str, tmp_path: Path
) -> None:
    """Of them, too, a filter looks at each by itself: of the last the picture is too long."""
    samples = (("1", "one", SQUARE, "en"), ("2", "two", SQUARE, "de"), ("3", "three", WIDE, "en"))
    body = documents(*((name, [text, picture], {"lang": lang}) for name, text, picture, lang in samples))
    body = body.replace(b'_id": "1"', b'_id": "a"').replace(b'_id": "3"', b'_id": "a"')
    (tmp_path / "x.tar").write_bytes(body.replace(b'"2.1.png"', b'"2.9.png"'))
    unreferenced = lading.options.InterleavedOptions(unreferenced="drop")
    source = tmp_path / "x.tar"
    out = tmp_path / "out"
    done = lading.convert(source, out, format=target, verify=True, interleaved=unreferenced, **left_out)
    expected = ["one"] if "max_aspect_ratio" in left_out else ["one", "three"]
    assert (done.samples, done.verified) == (len(expected), True)
    with lading.open(out) as dataset:
        assert [sample["items"][0]["text_content"] for sample in dataset] == expected
        assert {sample["sample_id"] for sample in dataset} == {"a"}


def test_samples_of_one_id_are_read_apart_where_one_between_them_cannot_be_had(tmp_path: Path) -> None:
    body = documents(("1", [SQUARE], {}), ("2", [SQUARE], {}), ("3", [TALL], {})).replace(b'"3"', b'"1"')
    (tmp_path / "x.tar").write_bytes(body.replace(b'"2.0.png"', b'"2.9.png"'))
    options = lading.options.InterleavedOptions(unreferenced="drop")
    with lading.open(tmp_path / "x.tar", interleaved=options) as dataset:
        batches = [batch.column("sample_id").unique().to_pylist() for batch in dataset.batches(on_error="drop_sample")]
    assert batches == [["1"], ["1"]]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
def test_documents_of_one_id_that_follow_each_other(target: str, tmp_path: Path) -> None:
    """In one tar they would become one sample; in two they stay apart."""
    twins = documents(("a", ["first"], {}), ("b", ["second"], {})).replace(b'"sample_id": "b"', b'"sample_id": "a"')
    (tmp_path / "twins.tar").write_bytes(twins)
    for size in ("512MB", 1):
        with pytest.raises(DataError, match=r"twins\.tar sample 'a'.*have one id.*sample_id_field=None"):
            lading.convert(tmp_path / "twins.tar", tmp_path / "out", format=target, max_batch_bytes=size)
    with pytest.raises(DataError, match=r"twins\.tar sample 'a'.*have one id.*sample_id_field=None"):
        lading.salvage(tmp_path / "twins.tar", tmp_path / "out", format=target, view="interleaved")
    by_name = lading.options.InterleavedOptions(sample_id_field=None)
    done = lading.convert(tmp_path / "twins.tar", tmp_path / "names", format=target, interleaved=by_name, verify=True)
    assert done.samples == 2
    saved = lading.salvage(tmp_path / "twins.tar", tmp_path / "saved", format=target, interleaved=by_name)
    assert (saved.samples, saved.ok) == (2, True)
    for number in range(2):
        (tmp_path / f"{number}.tar").write_bytes(documents(("a", [f"text {number}"], {})))
    done = lading.convert(str(tmp_path / "{0..1}.tar"), tmp_path / "two", format=target, verify=True)
    assert (done.samples, done.verified) == (2, True)


def test_documents_of_one_id_that_follow_each_other_are_never_taken_for_one(tmp_path: Path) -> None:
    """Each by itself can be had; who reads their rows is told of the first two."""
    body = documents(*((name, [f"text of {name}", TALL], {}) for name in "abcd"))
    source = tmp_path / "x.tar"
    source.write_bytes(body.replace(b'd": "b"', b'd": "a"').replace(b'd": "c"', b'd": "a"'))
    with lading.open(source) as dataset:
        assert len(dataset) == 4
        found = [
            (sample["sample_id"], sample["items"][0]["text_content"]) for sample in map(dataset.__getitem__, range(4))
        ]
        assert found == [("a", "text of a"), ("a", "text of b"), ("a", "text of c"), ("d", "text of d")]
        assert dataset.by_key("d") == dataset[3]
        for columns in (None, ["position"]):
            with pytest.raises(DataError, match=r"have one id.*samples 0 and 1"):
                list(dataset.batches(columns=columns))
    for read in (lading.digest, lading.info):
        with pytest.raises(DataError, match=r"have one id.*samples 0 and 1"):
            read(source)  # type: ignore[operator] # mypy joins the two to an object
    [finding] = lading.verify(source).findings
    assert (finding["sample"], finding["message"]) == ("a", "two neighbouring documents have one id")
    by_name = lading.options.InterleavedOptions(sample_id_field=None)
    assert lading.digest(source, interleaved=by_name).count == 4


def test_documents_of_one_name_that_follow_each_other(tmp_path: Path) -> None:
    """Their ids are the names already: advice is another way to read the tar, which there is."""
    body = json.dumps({"texts": ["t"], "images": [None]}).encode()
    (tmp_path / "twins.tar").write_bytes(tar_of(("x/1.json", body), ("y/1.json", body)))
    with pytest.raises(DataError, match=r"twins\.tar sample '1'.*have one id.*view='samples'") as caught:
        lading.convert(tmp_path / "twins.tar", tmp_path / "out", format="parquet")
    assert "sample_id_field" not in str(caught.value)
    assert lading.convert(tmp_path / "twins.tar", tmp_path / "out", format="parquet", view="samples").samples == 2


def test_a_member_that_is_missing_is_told_of_its_own_small_shard(tmp_path: Path) -> None:
    for number in range(4):
        body = documents((f"s{number}", [TALL], {}))
        (tmp_path / f"{number}.tar").write_bytes(body.replace(b'"s2.0.png"', b'"s2.9.png"'))
    with pytest.raises(BadReference) as caught:
        lading.convert(str(tmp_path / "*.tar"), tmp_path / "out", format="parquet",
                       interleaved=lading.options.InterleavedOptions(unreferenced="drop"))  # fmt: skip
    assert caught.value.file == str(tmp_path / "2.tar")


@pytest.mark.parametrize("target", ["webdataset", "parquet"])
def test_counts_of_absent_fields_do_not_depend_on_how_documents_are_read(target: str, tmp_path: Path) -> None:
    samples = [(f"s{i}", [TALL], {"alt": ["x"]} if i == 0 else {}) for i in range(3)]
    for number, (sample, *more) in enumerate((samples, samples[1:])):
        (tmp_path / f"{number}.tar").write_bytes(documents(sample, *more))
    done = lading.convert(str(tmp_path / "*.tar"), tmp_path / "out", format=target,
                          interleaved=lading.options.InterleavedOptions(per_image_fields=("alt",)))  # fmt: skip
    assert done.counts["samples without the field 'alt'"] == 4


def items(**columns: list[object]) -> pa.Table:
    count = len(columns["position"])
    base = {"sample_id": ["s"] * count, "modality": ["text"] * count, "text_content": ["t"] * count}
    return pa.table({**base, **columns})


@pytest.mark.parametrize(
    "table, named",
    [
        (items(position=[0, 0]), "position"),
        (items(position=[-5]), "position"),
        (items(position=[0], modality=["audio"]), "modality"),
        (items(position=[0], modality=["image"]), "text_content"),
        (items(position=[-1], modality=["metadata"]), "text_content"),
        (items(position=[0], when=pa.array([1], pa.timestamp("s"))), "when"),
    ],
)
def test_what_a_tar_cannot_hold_is_refused_and_nothing_is_left(table: pa.Table, named: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match=named):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet"]


PAYLOAD = [None, None, b"\x89PNG", b"", None, b"odd", None, None, b"\xff\xd8"]


def test_gaps_unusual_types_and_per_item_columns_survive(tmp_path: Path) -> None:
    table = pa.table(
        {
            "sample_id": ["a"] * 6 + ["b/ü.x"] * 3,
            "position": pa.array([-1, 0, 2, 5, 7, 9, -1, 1, 1], pa.int32()),
            "modality": ["metadata", "text", "image", "image", "text", "image", "metadata", "text", "image"],
            "content_type": ["application/json", "text/plain", "image/png", None, "text/html", "image/x-odd",
                             "application/json", "text/plain", "image/jpeg"],
            "text_content": [None, "", None, None, "zwei\nZeilen", None, None, "ü", None],
            "binary_content": pa.array(PAYLOAD, pa.large_binary()),
            "caption": [None, None, "c2", None, None, "c9", None, None, "cb"],
            "tokens": pa.array([None, 3, None, None, 4, None, None, 5, None], pa.int64()),
            "both": [None, "x", "y", None, None, "z", None, None, None],
            "score": pa.array([0.1, None, None, None, None, None, float("nan"), None, None], pa.float32()),
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    want = lading.digest(tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "t", format="webdataset", verify=True)
    lading.convert(tmp_path / "t", tmp_path / "p", format="parquet", verify=True)
    assert lading.digest(tmp_path / "p").ordered == want.ordered
    with lading.open(tmp_path / "t") as dataset:
        assert [i.get("caption") for i in dataset[0]["items"]] == [None, "c2", None, None, "c9"]


BROKEN_TIFF = b"II*\0\x08\0\0\0"


@pytest.mark.parametrize(
    "bodies",
    [
        [tiff_of("red", "blue", "green"), tiff_of("red"), BROKEN_TIFF],
        [tiff_of("red", "blue", size=400), BROKEN_TIFF],  # so large that a tar's are copied from file to file
    ],
    ids=["small", "large"],
)
def test_files_of_several_pictures_stay_whole(bodies: list[bytes], tmp_path: Path) -> None:
    count = len(bodies)
    table = pa.table(
        {
            "sample_id": ["a"] * count,
            "position": pa.array(range(count), pa.int32()),
            "modality": ["image"] * count,
            "content_type": ["image/tiff"] * count,
            "binary_content": pa.array(bodies, pa.large_binary()),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "t", format="webdataset")
    lading.convert(tmp_path / "t", tmp_path / "u", format="webdataset")
    for place in ("t", "u"):
        with lading.open(tmp_path / place) as dataset:
            [batch] = dataset.batches()
        assert batch.column("binary_content").to_pylist()[1:] == bodies
        assert batch.column("content_type").to_pylist()[1:] == ["image/tiff"] * count
    assert lading.digest(tmp_path / "u").ordered == lading.digest(tmp_path / "in.parquet").ordered


@pytest.mark.parametrize("picture", [None, b"\x89PNG"])
def test_values_stay_with_their_items_where_a_text_is_null(picture: bytes | None, tmp_path: Path) -> None:
    table = pa.table(
        {
            "sample_id": ["a"] * 4,
            "position": pa.array([0, 1, 2, 3], pa.int32()),
            "modality": ["text", "text", "image", "text"],
            "text_content": ["x", None, None, "y"],
            "binary_content": pa.array([None, None, picture, None], pa.large_binary()),
            "score": [1.0, None, None if picture is None else 3.0, 4.0],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "t", format="webdataset", verify=True)
    with lading.open(tmp_path / "t") as dataset:
        found = {item["position"]: item.get("score") for item in dataset[0]["items"]}
    assert found == {0: 1.0, 2: None if picture is None else 3.0, 3: 4.0}


def test_an_image_that_is_json_is_no_document(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "position": [0, 1], "modality": ["image", "text"], "content_type": ["application/json", "text/plain"],
        "text_content": [None, "t"], "binary_content": [b"{}", None],
    }  # fmt: skip
    pq.write_table(items(**columns), tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "t", format="webdataset", verify=True)
    assert lading.diff(tmp_path / "in.parquet", tmp_path / "t").equal


def test_columns_that_tars_do_not_hold_are_refused_without_rows_too(tmp_path: Path) -> None:
    rows = INTERLEAVED_SCHEMA.append(pa.field("tags", pa.list_(pa.string()))).empty_table()
    pq.write_table(rows, tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match="column 'tags'"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "document, options, column",
    [
        ({"texts": ["t"], "images": [None], "name": "n", "sample_id": "s"}, {"sample_id_field": "name"},
         "json.sample_id"),
        ({"passages": ["t"], "images": [None], "texts": "other"}, {"texts_field": "passages"}, "texts"),
        ({"texts": ["t"], "pictures": [None], "images": 3}, {"images_field": "pictures"}, "images"),
    ],
)  # fmt: skip
def test_a_field_that_the_written_json_has_itself(
    document: dict[str, Any], options: dict[str, Any], column: str, tmp_path: Path
) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(("d.json", json.dumps(document).encode())))
    reading = lading.options.InterleavedOptions(**options)
    lading.convert(tmp_path / "x.tar", tmp_path / "p", format="parquet", view="interleaved", interleaved=reading)
    for source, own in ((tmp_path / "p", None), (tmp_path / "x.tar", reading)):
        with pytest.raises(Unrepresentable, match="of its own") as caught:
            lading.convert(source, tmp_path / "t", format="webdataset", view="interleaved", interleaved=own)
        assert caught.value.column == column
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "x.tar"]
    lading.convert(tmp_path / "p", tmp_path / "t", format="webdataset", columns=["sample_id"])
    with lading.open(tmp_path / "t") as dataset:
        assert [item["text_content"] for item in dataset[0]["items"]] == ["t"]


def test_a_member_no_json_names(tmp_path: Path) -> None:
    stray = tar_of(("d.json", b'{"texts": ["t"], "images": [null]}'), ("stray.jpg", b"x"))
    (tmp_path / "x.tar").write_bytes(stray)
    with pytest.raises(DataError, match=r"stray\.jpg"):
        lading.convert(tmp_path / "x.tar", tmp_path / "out", format="parquet", view="interleaved")
    summary = lading.convert(tmp_path / "x.tar", tmp_path / "out", format="parquet", view="interleaved",
                             interleaved=lading.options.InterleavedOptions(unreferenced="drop"))  # fmt: skip
    assert list(summary.counts.values()) == [1]


def test_verify_finds_what_was_changed(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "out", format="webdataset", verify=True)
    result = lading.verify(tmp_path / "out", deep=True)
    assert result.ok
    assert set(result.checked) >= {"sizes", "counts", "digest"}
    shard = next((tmp_path / "out").glob("*.tar"))
    body = bytearray(shard.read_bytes())
    at = body.index(b"IDAT") + 200
    body[at] ^= 1
    shard.write_bytes(body)
    broken = lading.verify(tmp_path / "out")
    assert not broken.ok
    assert "a row differs from the checksum" in str(broken.findings[0])
    shutil.copy(tmp_path / "out" / "_lading" / "manifest.json", shard)
    assert not lading.verify(tmp_path / "out").ok


@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "media_archive", "parquet", "webdataset"])
def test_samples_without_a_field_are_refused_and_not_lost(fmt: str, tmp_path: Path) -> None:
    """Arrow's tables of no columns forget how many rows they have."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "a.jsonl").write_text("{}\n{}\n")
    with pytest.raises(Unrepresentable, match=r"without a field.*2 samples"):
        lading.convert(tmp_path / "bare", tmp_path / "out", format=fmt)
    with (
        pytest.raises(Unrepresentable, match=r"without a field.*1 sample"),
        lading.writer(tmp_path / "out", format=fmt) as writer,
    ):
        writer.write({})
    assert not (tmp_path / "out").exists()


def test_samples_without_a_field_are_read_and_counted_and_have_no_digest(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    with lading.open(tmp_path) as ds:
        assert (len(ds), ds[1], list(ds)) == (2, {}, [{}, {}])
    with pytest.raises(Unrepresentable, match="without a field"):
        lading.digest(tmp_path)
    [finding] = lading.verify(tmp_path).findings
    assert "without a field" in str(finding["message"])


@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "arrow", "jsonl"])
def test_a_batch_of_a_byte_holds_a_sample(fmt: str, tmp_path: Path) -> None:
    rows = pa.table({"__key__": list("abc"), "txt": ["", "x" * 40_000, "y"], "n": [1, 2, 3]})
    with lading.writer(tmp_path / "source", format=fmt) as writer:
        writer.write_batch(rows)
    lading.convert(tmp_path / "source", tmp_path / "out", format="parquet", max_batch_bytes=1, verify=True)
    assert pq.read_table(min((tmp_path / "out").glob("*.parquet"))).column("__key__").to_pylist() == list("abc")


def test_types_that_no_type_holds_both_of_can_be_told(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, kind in (("a", pa.int64()), ("b", pa.uint64())):
        pq.write_table(pa.table({"n": pa.array([1], kind)}), source / f"{name}.parquet")
    with pytest.raises(SchemaMismatch, match=r"column 'n'.*'n': pa.string") as caught:
        lading.convert(source, tmp_path / "out", format="arrow")
    assert "--columns" not in str(caught.value)
    lading.convert(source, tmp_path / "out", format="arrow", schema=pa.schema([("n", pa.int64())]))
    with lading.open(tmp_path / "out") as dataset:
        assert list(dataset) == [{"n": 1}, {"n": 1}]


@pytest.mark.soak
def test_an_open_dataset_that_is_replaced_gives_no_rows_of_the_other(tmp_path: Path) -> None:
    for first in (0, 1000):
        (tmp_path / f"in{first}").mkdir()
        for number in range(3):
            table = pa.table({"n": [first + number]})
            pq.write_table(table, tmp_path / f"in{first}" / f"{number}.parquet")
    lading.convert(tmp_path / "in0", tmp_path / "out", format="parquet", shard_size=1)
    with lading.open(tmp_path / "out") as dataset:
        rows = iter(dataset)
        assert next(rows) == {"n": 0}
        lading.convert(tmp_path / "in1000", tmp_path / "out", format="parquet", shard_size=1, overwrite=True)
        with pytest.raises(StoreError, match="another dataset took the place"):
            list(rows)


@pytest.mark.soak
@pytest.mark.parametrize("storage", ["bytes", "path"])
@pytest.mark.parametrize("to", ["mds", "webdataset", "media_archive", "parquet", "arrow"])
def test_videos_of_a_cache_go_to_every_format_for_bytes(to: str, storage: str, tmp_path: Path) -> None:
    videos = [b"abc", b"de", b"f"]
    write_cache([{"v": video} for video in videos], {"v": Video(storage)}, tmp_path / "cache")
    own = {"media": "bytes", "load_assets": storage == "path"}
    assert lading.convert(tmp_path / "cache", tmp_path / "new", format=to, source_options=own, verify=True).verified
    for folder, options in (("new", {}), ("cache", own)):
        with lading.open(tmp_path / folder, options=options) as dataset:
            assert [row["v"] for row in dataset] == [dataset[i]["v"] for i in range(3)] == videos
    if storage == "path":
        told = {"media": "bytes", "load_assets": False}
        with pytest.raises(BadReference, match=r"cache.*'v'.*'load_assets': True"):
            lading.convert(tmp_path / "cache", tmp_path / "no", format=to, source_options=told)
