"""Conversions of a part: filters, functions, references that fail, bytes that stay where they are, schemas."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, SQUARE, TALL, WIDE, documents, picture, tiff_of
from hooks import no_first_items, with_length
from in_process import by_tasks
from lading._core.dataset.steps.functions import Function
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.storage.fetch import OnError
from lading.errors import BadReference, SchemaMismatch, Unrepresentable, UsageError
from tars import tar_of


def rows_of(source: Path, *names: str, **options: Any) -> list[tuple[Any, ...]]:
    with lading.open(source, **options) as dataset:
        rows = [row for batch in dataset.batches() for row in batch.to_pylist()]
    return [tuple(row[name] for name in names) for row in rows]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(params=["webdataset", "parquet"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same samples in three shards of either format."""
    for i in range(3):
        renamed = [(f"{name}{i}", items, fields) for name, items, fields in SAMPLES]
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{i}.tar").write_bytes(documents(*renamed))
    if request.param == "parquet":
        lading.convert(tmp_path / "in", tmp_path / "p", format="parquet", shard_size=1)
        return tmp_path / "p"
    return tmp_path / "in"


@pytest.mark.parametrize("target", ["webdataset", "parquet"])
@pytest.mark.parametrize("workers", [2, 1])
def test_filters(target: str, workers: int, source: Path, tmp_path: Path) -> None:
    out, ledger = tmp_path / "out", tmp_path / "ledger.jsonl"
    done = lading.convert(
        source, out, format=target, shard_size="2kb", **by_tasks(workers), ledger=ledger, verify=True,
        where="lang is not null", min_aspect_ratio=1,
    )  # fmt: skip
    kept = [("a", -1, None), ("a", 0, None), ("a", 1, WIDE), ("c", -1, None), ("c", 0, None), ("e", -1, None)]
    expected = [(f"{name}{i}", position, value) for i in range(3) for name, position, value in kept]
    assert rows_of(out, "sample_id", "position", "binary_content") == expected
    assert (done.samples, done.rows, done.verified) == (9, 18, True)
    assert done.counts == {
        "not where lang is not null, filtered": 6,
        "images outside the bounds, filtered": 6,
        "rows of samples that are left out, filtered": 6,
    }
    lost = [(line["sample_id"], line["position"], line["reason"], line["outcome"]) for line in lines_of(ledger)]
    assert sorted(lost) == sorted(
        (f"{name}{i}", position, reason, "filtered")
        for i in range(3)
        for name, position, reason in (
            ("d", 0, "not where lang is not null"),
            ("d", 1, "not where lang is not null"),
            ("a", 2, "images outside the bounds"),
            ("b", 0, "images outside the bounds"),
            ("d", -1, "rows of samples that are left out"),
            ("b", -1, "rows of samples that are left out"),
        )
    )
    assert [dict(entry) for entry in done.filtered] == lines_of(ledger)[:5]
    assert {line["file"] for line in lines_of(ledger)} <= set(map(str, source.glob("*.*")))


@pytest.mark.soak
def test_functions_and_workers(source: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        done = lading.convert(
            source, tmp_path / f"{workers}", format="parquet", shard_size="2kb", **by_tasks(workers),
            filter_batches=no_first_items, map_batches=with_length, where="sample_id != 'e0'", drop="sample",
        )  # fmt: skip
        assert done.samples == 2  # e1 and e2 have no items; all others one at position 0
    shards = [sorted((tmp_path / f"{workers}").glob("*.parquet")) for workers in (1, 2)]
    assert [s.read_bytes() for s in shards[0]] == [s.read_bytes() for s in shards[1]]
    with lading.open(tmp_path / "1") as dataset:
        assert dataset.schema.field("length").type == pa.int64()


@pytest.mark.soak
def test_closures_and_expressions_and_workers(source: Path, tmp_path: Path) -> None:
    added, counts = 5, []

    def with_more(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("more", pa.array(np.arange(len(batch)) * 0 + added))

    for workers in (1, 2):
        done = lading.convert(
            source, tmp_path / f"{workers}", format="parquet", shard_size="2kb", map_batches=with_more,
            **by_tasks(workers), where=pc.field("position") >= 0, filter_batches=lambda batch: [added > 0] * len(batch),
        )  # fmt: skip
        counts.append(done.samples)
    assert counts[0] == counts[1] > 0
    shards = [sorted((tmp_path / f"{workers}").glob("*.parquet")) for workers in (1, 2)]
    assert [s.read_bytes() for s in shards[0]] == [s.read_bytes() for s in shards[1]]
    with lading.open(tmp_path / "2") as dataset:
        assert dataset.schema.field("more").type == pa.int64()


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
def test_a_function_that_adds_a_column(target: str, source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", format=target, map_batches=with_length, limit=1, verify=True)
    assert rows_of(tmp_path / "out", "position", "length") == [(-1, None), (0, 5), (1, None), (2, None)]


@pytest.mark.mechanism("functions that cannot be sent")
@pytest.mark.cases(1)
def test_functions_that_cannot_be(source: Path, tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"cannot be sent.*filter_batches=<function.*workers=1"):
        lading.convert(
            source, tmp_path / "out", format="parquet", workers=2, shard_size=1, filter_batches=lambda _: [lock]
        )
    with pytest.raises(UsageError, match="record batch"):
        lading.convert(source, tmp_path / "out", format="parquet", map_batches=lambda batch: batch.to_pydict())
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_columns_that_change_their_type_on_the_way(source: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def fickle(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        values = pa.array(["x"] * batch.num_rows) if len(seen) > 1 else pa.array([1] * batch.num_rows)
        return batch.append_column("own", values)

    with pytest.raises(SchemaMismatch, match="own"):
        lading.convert(source, tmp_path / "out", format="parquet", map_batches=fickle)
    assert all(seen)  # never called without rows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Items of which two lie elsewhere, and one is nowhere."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "wide.png").write_bytes(WIDE)
    places = [("a", "wide.png"), ("a", "gone.png"), ("b", "wide.png")]
    rows = [
        {**dict.fromkeys(INTERLEAVED_SCHEMA.names), "sample_id": s, "position": i, "modality": "image",
         "content_type": "image/png", "source_ref": json.dumps({"path": p})}
        for i, (s, p) in enumerate(places)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA), tmp_path / "t" / "t.parquet")
    return tmp_path / "t" / "t.parquet"


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
@pytest.mark.parametrize(
    "policy, left, outcome",
    [
        ("warn", [("a", 0, WIDE), ("a", 1, None), ("b", 2, WIDE)], "kept without payload"),
        ("drop_row", [("a", 0, WIDE), ("b", 2, WIDE)], "dropped"),
        ("drop_sample", [("b", 2, WIDE)], "dropped with their samples"),
    ],
)
def test_references_that_fail(
    policy: OnError, left: list[tuple[Any, ...]], outcome: str, target: str, table: Path, tmp_path: Path
) -> None:
    out, ledger = tmp_path / "out", tmp_path / "ledger.jsonl"
    with pytest.raises(BadReference, match=r"gone\.png"):
        lading.convert(table, out, format=target)
    assert not out.exists()
    done = lading.convert(table, out, format=target, on_error=policy, ledger=ledger, verify=True)
    with lading.open(out) as dataset:
        items = [(dataset[i]["sample_id"], item) for i in range(len(dataset)) for item in dataset[i]["items"]]
    assert [(sample, item["position"], item.get("binary_content")) for sample, item in items] == left
    along = {"rows of samples that are left out, dropped": 1} if policy == "drop_sample" else {}
    assert done.counts == {f"rows with unavailable payload, {outcome}": 1, **along}
    assert done.rows == len(left)
    line, *others = lines_of(ledger)
    assert [(other["sample_id"], other["position"]) for other in others] == [("a", 0)] * len(along)
    assert (line["file"], line["sample_id"], line["position"], line["outcome"]) == (str(table), "a", 1, outcome)
    assert "gone.png" in line["detail"]


@pytest.mark.parametrize("workers", [2, 1])
def test_rows_without_keys_have_their_number_in_the_shard(workers: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):  # more rows than a batch has, in two shards
        pq.write_table(pa.table({"n": range(20_000 if i < 2 else 3)}), tmp_path / "in" / f"{i}.parquet")
    done = lading.convert(
        tmp_path / "in", tmp_path / "out", format="jsonl", where="n != 2 and n != 16384 and n != 19999",
        **by_tasks(workers), shard_size="20KB", ledger=tmp_path / "ledger.jsonl",
    )  # fmt: skip
    expected = [(i, n) for i in range(3) for n in (2, 16_384, 19_999) if i < 2 or n < 3]
    found = [(Path(line["file"]).name, line["row"], line["outcome"]) for line in lines_of(tmp_path / "ledger.jsonl")]
    assert found == [(f"{i}.parquet", n, "filtered") for i, n in expected]
    assert (done.filtered_rows, done.lost_rows, done.lost) == (len(expected), 0, [])
    assert [row["row"] for row in done.filtered] == [n for _, n in expected[:5]]


def test_what_is_filtered_and_what_is_lost_are_told_apart(table: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    done = lading.convert(
        table, tmp_path / "out", format="parquet", where="position > 0", on_error="drop_row", ledger=ledger
    )
    assert (done.filtered_rows, done.lost_rows) == (1, 1)
    assert [(row["row"], row["sample_id"], row["outcome"]) for row in done.filtered] == [(0, "a", "filtered")]
    assert [(row["row"], row["sample_id"], row["outcome"]) for row in done.lost] == [(1, "a", "dropped")]
    assert lines_of(ledger) == [*done.filtered, *done.lost]


def test_a_failed_conversion_leaves_no_ledger(table: Path, tmp_path: Path) -> None:
    with pytest.raises(BadReference):
        lading.convert(table, tmp_path / "out", format="parquet", ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.soak
def test_bytes_that_stay_where_they_are(source: Path, tmp_path: Path) -> None:
    done = lading.convert(source, tmp_path / "lazy", format="parquet", lazy=True, verify=True)
    held = pq.read_table(sorted((tmp_path / "lazy").glob("*.parquet")))
    # Bytes stay in tars; what is in Parquet only has no other place, and is written.
    assert done.verified
    names = ("sample_id", "position", "binary_content", "text_content", "score")
    if source.name == "in":
        assert held.column("binary_content").null_count == len(held)
    roots = [tmp_path / "in"]
    assert rows_of(tmp_path / "lazy", *names, roots=roots) == rows_of(source, *names)
    back = lading.convert(tmp_path / "lazy", tmp_path / "back", format="webdataset", roots=roots, verify=True)
    assert back.digest == done.digest


@pytest.mark.soak
def test_parquet_that_came_from_tars_may_be_made_lazy_again(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(documents(("a", [WIDE, TALL], {}), ("b", [SQUARE], {})))
    lading.convert(tmp_path / "x.tar", tmp_path / "p", format="parquet")
    roots = [tmp_path]
    lading.convert(tmp_path / "p", tmp_path / "lazy", format="parquet", lazy=True, roots=roots, verify=True)
    assert pq.read_table(tmp_path / "lazy" / "shard-000000.parquet")["binary_content"].null_count == 5
    # A source that has changed since is no place to leave bytes at.
    (tmp_path / "x.tar").write_bytes((tmp_path / "x.tar").read_bytes()[:1024])
    lading.convert(tmp_path / "p", tmp_path / "kept", format="parquet", lazy=True, roots=roots, verify=True)
    kept = pq.read_table(tmp_path / "kept" / "shard-000000.parquet")["binary_content"].to_pylist()
    assert kept == [None, None, TALL, None, SQUARE]


@pytest.mark.parametrize("packed", ["mds", "media_archive"])
@pytest.mark.parametrize("named", [False, True])
def test_what_was_packed_into_samples_is_no_place_to_leave_bytes_at(
    packed: str, tmp_path: Path, *, named: bool
) -> None:
    """No `source_ref` names a range of a shard: bytes are written, but of what lies in the tar that it came from."""
    pages = tiff_of("red", "blue")
    (tmp_path / "x.tar").write_bytes(documents(("a", ["t", WIDE, TALL], {}), ("b", [pages], {})))
    lading.convert(tmp_path / "x.tar", tmp_path / packed, format=packed)
    roots = [tmp_path] if named else []
    lading.convert(tmp_path / packed, tmp_path / "lazy", format="parquet", lazy=True, roots=roots, verify=True)
    names = ("sample_id", "position", "text_content", "binary_content")
    found = rows_of(tmp_path / "lazy", *names, roots=[tmp_path])
    assert found == rows_of(tmp_path / "x.tar", *names)
    assert {WIDE, TALL, "t"} <= {value for row in found for value in row}
    written = pq.read_table(tmp_path / "lazy" / "shard-000000.parquet")["binary_content"]
    assert {WIDE, TALL} <= {*written.to_pylist()} or named


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "mds", "media_archive"])
def test_only_tables_of_items_can_be_lazy(target: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only tables of items"):
        lading.convert(source, tmp_path / "out", format=target, lazy=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_schemas_that_are_asked_for(workers: int, source: Path, tmp_path: Path) -> None:
    lading.convert(
        source, tmp_path / "out", format="parquet", shard_size=1, **by_tasks(workers),
        schema_overrides={"score": pa.float32(), "text_content": pa.large_string(), "more": pa.int8()},
    )  # fmt: skip
    for file in (tmp_path / "out").glob("*.parquet"):
        schema = pq.read_schema(file)
        assert {*schema.names} == {*INTERLEAVED_SCHEMA.names, "lang", "score", "more"}
        assert [schema.field(n).type for n in ("score", "text_content", "more")] == [
            pa.float32(), pa.large_string(), pa.int8(),
        ]  # fmt: skip


def test_a_modality_that_tars_do_not_hold_is_found_before_anything_is_written(tmp_path: Path) -> None:
    rows = [
        {"sample_id": f"{i}", "position": 0, "modality": "audio" if i == 99 else "text", "text_content": "t"}
        for i in range(100)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for more in ({}, {"columns": ["modality"]}, {"schema_overrides": {"extra": pa.int32()}}):
        with pytest.raises(Unrepresentable, match="audio") as caught:
            lading.convert(tmp_path / "t.parquet", tmp_path / "out", format="webdataset", dry_run=True, **more)
        assert caught.value.file == str(tmp_path / "t.parquet")
    done = lading.convert(tmp_path / "t.parquet", tmp_path / "out", format="webdataset", where="modality != 'audio'")
    assert done.samples == 99


def test_a_ledger_replaces_nothing(source: Path, tmp_path: Path) -> None:
    shard = next(source.glob("*.*"))
    before = shard.read_bytes()
    places = [shard, tmp_path, tmp_path / "out" / "ledger.jsonl", tmp_path / "out"]
    for place in [*places, *(f"file://{place}" for place in places), ""]:
        with pytest.raises(UsageError, match="ledger"):
            lading.convert(source, tmp_path / "out", format="parquet", ledger=place, min_side=1)
    assert shard.read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_references_do_not_lead_to_what_is_replaced(tmp_path: Path) -> None:
    for name in ("meta", "img"):
        (tmp_path / name).mkdir()
    (tmp_path / "img" / "wide.png").write_bytes(WIDE)
    row = {"sample_id": "s", "position": 0, "modality": "image",
           "source_ref": json.dumps({"path": str(tmp_path / "img" / "wide.png")})}  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "meta" / "0.parquet")
    for root, lazy, told in (("img", False, "may lead to"), ("img", True, "may lead to"), ("", True, "would lead to")):
        with pytest.raises(UsageError, match=told):
            lading.convert(tmp_path / "meta", tmp_path / "img", format="parquet", lazy=lazy, overwrite=True,
                           roots=[tmp_path / root])  # fmt: skip
    assert (tmp_path / "img" / "wide.png").read_bytes() == WIDE


@pytest.mark.cases(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_column_that_a_function_adds_goes_where_it_belongs_in_tars(
    workers: int, source: Path, tmp_path: Path
) -> None:
    lading.convert(source, tmp_path / "out", format="webdataset", map_batches=with_length, workers=workers, verify=True)
    rows = rows_of(tmp_path / "out", "sample_id", "position", "length")
    assert [row for row in rows if row[2] is not None] == [
        row for i in range(3) for row in ((f"a{i}", 0, 5), (f"c{i}", 0, 9))
    ]


@pytest.mark.parametrize("policy, left", [("drop_row", [0, 2]), ("drop_sample", [2]), ("warn", [0, 1, 2])])
def test_policies_hold_where_bytes_stay(policy: OnError, left: list[int], table: Path, tmp_path: Path) -> None:
    with pytest.raises(BadReference, match=r"gone\.png"):
        lading.convert(table, tmp_path / "out", format="parquet", lazy=True)
    done = lading.convert(table, tmp_path / "out", format="parquet", lazy=True, on_error=policy, verify=True)
    held = pq.read_table(tmp_path / "out" / "shard-000000.parquet")
    assert held["position"].to_pylist() == left
    assert held["binary_content"].null_count == len(left)
    assert done.rows == len(left)


@pytest.mark.parametrize("condition", ["txt is not null", "len(jpg) > 0 or txt is not null"])
def test_fields_that_only_some_shards_have(condition: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.tar").write_bytes(tar_of(("a.jpg", picture(9, 9, "JPEG")), ("a.cls", b"1")))
    (tmp_path / "in" / "1.tar").write_bytes(tar_of(("b.txt", b"hello")))
    for target in ("webdataset", "parquet"):
        done = lading.convert(
            tmp_path / "in", tmp_path / target, format=target, where=condition, min_side=9, verify=True
        )
        assert done.samples == (1 if condition == "txt is not null" else 2)


def test_nothing_is_told_of_rows_behind_the_limit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": range(1000)}), tmp_path / "t.parquet")
    for limit, kept in ((1, [0]), (3, [0, 10, 20]), (100, list(range(0, 1000, 10)))):
        out, ledger = tmp_path / f"{limit}", tmp_path / f"{limit}.jsonl"
        where = f"v in ({', '.join(map(str, range(0, 1000, 10)))})"
        done = lading.convert(tmp_path / "t.parquet", out, format="parquet", where=where, limit=limit, ledger=ledger)
        assert [row["v"] for row in pq.read_table(out / "shard-000000.parquet").to_pylist()] == kept
        assert done.samples == limit
        assert len(lines_of(ledger)) == sum(done.counts.values()) <= kept[-1] + 10


def test_a_function_sees_each_row_once_also_with_a_limit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [i // 3 for i in range(300)]}), tmp_path / "t.parquet")
    seen: set[int] = set()

    def is_new(batch: pa.RecordBatch) -> list[bool]:
        values = batch["v"].to_pylist()
        fresh = [value not in seen and value not in values[:i] for i, value in enumerate(values)]
        seen.update(values)
        return fresh

    done = lading.convert(tmp_path / "t.parquet", tmp_path / "out", format="parquet", filter_batches=is_new, limit=10)
    assert rows_of(tmp_path / "out", "v") == [(i,) for i in range(10)]
    assert done.counts == {"left out by the function, filtered": 18}  # two behind each of them but the last


@pytest.mark.parametrize("function, written", [
    (lambda b: pa.concat_batches([b, b]), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 6]),
    (lambda b: b.slice(0, 1), [0, 3, 6]),
])  # fmt: skip
def test_a_limit_counts_what_is_given_to_a_function(function: Function, written: list[int], tmp_path: Path) -> None:
    """A function may make more or fewer rows: those of the source's first samples are written, without a gap."""
    (tmp_path / "in").mkdir()
    for i in range(4):
        pq.write_table(pa.table({"v": range(3 * i, 3 * i + 3)}), tmp_path / "in" / f"{i}.parquet")
    done = lading.convert(
        tmp_path / "in", tmp_path / "out", format="parquet", map_batches=function, limit=7, verify=True
    )
    assert [v for (v,) in rows_of(tmp_path / "out", "v")] == written
    assert (done.samples, done.rows) == (len(written), len(written))


@pytest.mark.parametrize("drop, kept", [("row", ["c1", "e1", "f0", "f1"]), ("sample", ["e0", "e1", "f0", "f1"])])
def test_of_items_a_limit_tells_of_rows_up_to_its_last_sample(drop: Any, kept: list[str], tmp_path: Path) -> None:
    """Samples of two texts: of b all goes, of c the first; behind e one more goes, which nobody asked for."""
    names = [f"{sample}{item}" for sample in "bcefg" for item in range(2)]
    rows = [{"sample_id": n[0], "position": int(n[1]), "modality": "text", "text_content": n} for n in names]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    gone = ["b0", "b1", "c0", "e0", "g1"] if drop == "row" else ["b0", "b1", "c0", "g1"]
    where = f"text_content not in ({', '.join(map(repr, gone))})"
    done = lading.convert(tmp_path / "t.parquet", tmp_path / "out", format="parquet", where=where, drop=drop,
                          limit=len({name[0] for name in kept}), ledger=tmp_path / "ledger")  # fmt: skip
    assert [name for (name,) in rows_of(tmp_path / "out", "text_content")] == kept
    told = [f"{line['sample_id']}{line['position']}" for line in lines_of(tmp_path / "ledger")]
    assert sorted(told) == sorted(name for name in names if name not in kept and name[0] != "g")
    assert sum(done.counts.values()) == len(told)


def test_functions_may_not_break_samples(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(documents(*SAMPLES))

    def apart(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.take(pa.array([*range(0, batch.num_rows, 2), *range(1, batch.num_rows, 2)], pa.int64()))

    for broken, says in (
        (apart, "separates rows of one sample"),
        (lambda b: b.drop_columns(["position"]), "position"),
    ):
        with pytest.raises(UsageError, match=says):
            lading.convert(tmp_path / "in.tar", tmp_path / "out", format="webdataset", map_batches=broken)


def test_columns_of_other_kinds_that_are_called_as_those_of_items(tmp_path: Path) -> None:
    rows = {"__key__": pa.array([b"a", b"b"], pa.binary()), "position": [0.5, float("nan")], "keep": [True, False]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    lading.convert(tmp_path / "t.parquet", tmp_path / "out", format="parquet", where="keep", ledger=tmp_path / "l")
    [line] = lines_of(tmp_path / "l")
    assert line["reason"] == "not where keep"
    assert "position" not in line


def test_the_columns_that_all_shards_have_are_what_is_proved(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"__key__": ["a"], "x": [1], "y": [2]}), tmp_path / "in" / "0.parquet")
    pq.write_table(pa.table({"__key__": ["b"], "x": [3]}), tmp_path / "in" / "1.parquet")
    out = tmp_path / "out"
    done = lading.convert(tmp_path / "in", out, format="parquet", schema_policy="intersect", verify=True)
    assert done.verified
    assert pq.read_schema(out / "shard-000000.parquet").names == ["__key__", "x"]


@pytest.mark.soak
def test_arrow_expressions_are_conditions_too(source: Path, tmp_path: Path) -> None:
    condition = pc.field("score") > 1
    done = lading.convert(source, tmp_path / "out", format="parquet", where=condition)
    assert (done.samples, done.rows) == (9, 24)
    again = lading.convert(source, tmp_path / "more", format="parquet", where=condition, workers=2, shard_size="2kb")
    assert (again.samples, again.rows) == (9, 24)


@pytest.mark.soak
def test_a_condition_that_does_not_fit_is_found_before_rows_are_read(source: Path, tmp_path: Path) -> None:
    for bad in ("nope == 1", "score == 'high'"):
        with pytest.raises(UsageError, match=r"nope|score"):
            lading.convert(source, tmp_path / "out", format="parquet", where=bad, limit=0)
