"""The lazy dataset: steps obey laws in every format, and what cannot be is refused. More: `property/test_steps.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, documents
from in_process import by_tasks
from lading.errors import UsageError

FORMATS = {"webdataset": "20kb", "parquet": "1400b", "mds": "500b", "jsonl": "300b", "arrow": "200b"}
"""Formats, and the size that gives about four shards."""

COUNT = 23


@pytest.fixture(scope="module")
def plain_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`plain_in("mds")`: samples of several shards: a key, two numbers, a text. Each format is written once."""

    @cache
    def written(fmt: str) -> Path:
        folder = tmp_path_factory.mktemp("lazy") / "plain"
        with lading.writer(folder, format=fmt, shard_size=FORMATS[fmt]) as writer:
            for at in range(0, COUNT, 5):
                rows = range(at, min(at + 5, COUNT))
                writer.write_batch(
                    pa.table({"__key__": [f"{i:03}" for i in rows], "a": list(rows), "b": [i % 3 for i in rows],
                              "txt": [f"text {i}" for i in rows]})
                )  # fmt: skip
        return folder

    return written


@pytest.fixture(params=FORMATS)
def plain(request: pytest.FixtureRequest, plain_in: Callable[[str], Path]) -> Path:
    """The samples in a format. The tests only read them."""
    return plain_in(request.param)


@pytest.fixture(params=["webdataset", "parquet", "jsonl"])
def docs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Interleaved documents of two shards, with pictures and texts."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(2):
        samples = [
            (f"{name}{number}", items, {"lang": "en" if i % 2 else "de"}) for i, (name, items, _) in enumerate(SAMPLES)
        ]
        (folder / f"{number}.tar").write_bytes(documents(*samples))
    if request.param == "webdataset":
        return folder
    to = {"jsonl": "media_archive"}.get(request.param, request.param)
    lading.convert(folder, tmp_path / "other", format=to)
    return tmp_path / "other"


def _rows(dataset: lading.Dataset, **how: Any) -> list[dict[str, Any]]:
    return [row for batch in dataset.batches(**how) for row in batch.to_pylist()]


def _digest(dataset: lading.Dataset | Path) -> tuple[int, str]:
    found = lading.digest(dataset)
    return found.count, str(found.ordered)


def _odd(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(pc.bit_wise_and(batch["a"].cast(pa.int64()), 1), 1)


def _doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("twice", pc.multiply(batch["a"].cast(pa.int64()), 2))


def _doubled_again(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("four", pc.multiply(batch["twice"], 2))


def _without_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


@pytest.mark.soak
def test_workers_write_the_same(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="parquet", shard_size="2kb") as writer:
        for at in range(0, 400, 50):
            writer.write_batch(pa.table({"a": range(at, at + 50), "txt": [f"{i:050}" for i in range(at, at + 50)]}))
    with lading.open(tmp_path / "in") as ds:
        dataset = ds.where("a > 20").map_batches(lambda batch: batch.append_column("b", pc.negate(batch["a"])))
        for workers in (1, 2):
            done = dataset.write(tmp_path / f"{workers}", "jsonl", **by_tasks(workers), shard_size="2kb")
            assert done.samples == 379
            assert _digest(tmp_path / f"{workers}") == _digest(dataset)


@pytest.mark.soak
def test_conditions_one_behind_the_other_are_both(plain: Path) -> None:
    with lading.open(plain) as ds:
        assert _digest(ds.where("a > 3").where("b != 1")) == _digest(ds.where("a > 3 and b != 1"))


def test_select_keeps_the_order_that_is_typed(plain: Path, tmp_path: Path) -> None:
    """Whatever step or conversion follows; the key comes first."""
    names = ["__key__", "txt", "b", "a"]
    with lading.open(plain) as ds:
        chosen = ds.select("txt", "b", "a")
        assert [*chosen.schema.names] == [*chosen[0]] == [*next(iter(chosen))] == names
        assert chosen.take([0]).schema.names == next(chosen.shuffle().batches()).schema.names == names
        lading.convert(plain, tmp_path / "columns.parquet", columns=["txt", "b", "a"])
        chosen.shuffle().write(tmp_path / "steps.parquet")
        assert _digest(tmp_path / "columns.parquet") != _digest(tmp_path / "steps.parquet")  # other orders of samples
    for made in ("columns.parquet", "steps.parquet"):
        assert pq.read_schema(tmp_path / made).names == names
    with pytest.raises(UsageError, match="no column is selected"):
        lading.convert(plain, tmp_path / "none.parquet", columns=[])


def test_select_and_where_commute_where_the_column_is_kept(plain: Path) -> None:
    with lading.open(plain) as ds:
        assert _digest(ds.select("a", "txt").where("a > 3")) == _digest(ds.where("a > 3").select("a", "txt"))


@pytest.mark.soak
def test_slices_compose_as_those_of_a_list(plain: Path) -> None:
    with lading.open(plain) as ds:
        keys = [sample["__key__"] for sample in ds]
        for first in (slice(2, 20), slice(None, None, -1), slice(-9, None), slice(3, None, 5)):
            for second in (slice(1, 9, 3), slice(0, 4), slice(-4, -1)):
                assert [sample["__key__"] for sample in ds[first][second]] == keys[first][second]


def test_to_rename_there_and_back_changes_nothing(plain: Path) -> None:
    with lading.open(plain) as ds:
        assert _digest(ds.rename({"a": "x", "b": "a"}).rename({"a": "b", "x": "a"})) == _digest(ds)


def test_a_limit_is_a_slice(plain: Path) -> None:
    with lading.open(plain) as ds:
        assert _rows(ds.limit(6)) == _rows(ds[:6]) == _rows(ds)[:6]


def test_steps_leave_the_dataset_as_it_was(plain: Path) -> None:
    with lading.open(plain) as ds:
        ds.where("a > 3"), ds.limit(1), ds.select("a")
        assert (ds.query.steps, len(ds)) == ((), COUNT)
        for name in ("steps", "source", "read", "anything"):
            with pytest.raises(AttributeError):
                setattr(ds, name, ())


def test_batches_have_the_columns_that_are_asked_for(plain: Path) -> None:
    with lading.open(plain) as ds:
        [*batches] = ds.where("b == 1").rename({"txt": "caption"}).batches(columns=["caption", "a"])
        assert {tuple(batch.schema.names) for batch in batches} == {("caption", "a")}
        assert ds.where("b == 1").take([1, 0], ["a"]).column_names == ["a"]


def test_a_column_that_no_shard_has(plain: Path) -> None:
    with lading.open(plain) as ds:
        for wrong in (
            ds.select("zz"),
            ds.drop("zz"),
            ds.rename({"zz": "y"}),
            ds.where("zz > 1"),
            ds.map_batches(_doubled).select("zz"),
        ):
            with pytest.raises(UsageError, match="zz"):
                list(wrong.batches())
        with pytest.raises(UsageError, match="zz"):
            list(ds.where("a > 1").batches(columns=["zz"]))


def test_a_column_that_an_earlier_step_left_out_is_an_error_at_once(plain: Path) -> None:
    with lading.open(plain) as ds:
        for wrong in (
            lambda: ds.select("a").where("b > 1"),
            lambda: ds.drop("a").select("a"),
            lambda: ds.rename({"a": "x"}).drop("a"),
        ):
            with pytest.raises(UsageError, match="earlier step"):
                wrong()


@pytest.mark.parametrize("wrong", [
    lambda ds: ds.limit(-1), lambda ds: ds.limit("3"), lambda ds: ds.where("a >"),
    lambda ds: ds.where("a > 1", drop="all"),
    lambda ds: ds.select(), lambda ds: ds.select(["a"]), lambda ds: ds.image_bounds(min_side=9, max_side=8),
    lambda ds: ds.map("a"), lambda ds: ds.rename({"a": "x", "b": "x"}), lambda ds: ds[1:2:0], lambda ds: ds[["a"]],
])  # fmt: skip
def test_steps_that_cannot_be(wrong: Callable[[lading.Dataset], object], plain: Path) -> None:
    with lading.open(plain) as ds, pytest.raises(UsageError):
        wrong(ds)


@pytest.mark.parametrize("wrong", [slice(1.5, None), slice("a", None), slice(None, None, "1")])
def test_bounds_of_a_slice_are_whole_numbers(wrong: slice, plain: Path) -> None:
    with lading.open(plain) as source, pytest.raises(UsageError, match="whole numbers"):
        source[wrong]


def test_steps_with_expressions_can_be_compared(plain: Path) -> None:
    with lading.open(plain) as ds:
        one, two = (ds.where(pc.field("a") > 3).query.steps for _ in range(2))
        assert one == two
        assert hash(one) == hash(two)
        assert one != ds.where(pc.field("a") > 4).query.steps
        assert one != ds.where("a > 3").query.steps
        assert one != ds.where(pc.field("a") > 3, drop="sample").query.steps
        assert one != ds.limit(3).query.steps


@pytest.mark.soak
def test_a_function_that_changes_the_number_of_samples_gives_them_no_numbers(plain: Path, tmp_path: Path) -> None:
    with lading.open(plain) as source:
        dataset = source.map_batches(_without_first)
        assert len(list(dataset)) < COUNT
        for asked in (
            lambda: len(dataset),
            lambda: dataset[0],
            lambda: dataset.take([0]),
            lambda: dataset[:2].take([0]),
        ):
            with pytest.raises(UsageError, match="number of samples"):
                asked()
        dataset.write(tmp_path / "out", "parquet")
        assert _digest(tmp_path / "out") == _digest(dataset)


def test_a_list_behind_functions_alone(plain: Path) -> None:
    with lading.open(plain) as source:
        dataset = source.map_batches(_doubled)[[-1, 2, -1]]
        assert [row["twice"] for row in _rows(dataset)] == [2 * (COUNT - 1), 4, 2 * (COUNT - 1)]
        assert [row["twice"] for row in _rows(dataset.select("twice")[1::-1])] == [4, 2 * (COUNT - 1)]
        assert len(dataset) == 3
        with pytest.raises(UsageError, match="number of samples"):
            next(source.map_batches(_without_first)[-2:].batches())


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_columns_behind_a_list_of_rows_without_keys(to: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"a": i, "b": -i}) + "\n" for i in range(5)))
    if to == "parquet":
        pq.write_table(pa.table({"a": range(5), "b": range(0, -5, -1)}), rows := tmp_path / "rows.parquet")
    with lading.open(rows) as ds:
        assert _rows(ds[[3, 1]].select("b")) == [{"b": -3}, {"b": -1}]
        with pytest.raises(UsageError, match="no such column"):
            list(ds[[3, 1]].select("__key__"))


def test_a_function_keeps_columns_that_only_later_shards_have(tmp_path: Path) -> None:
    for number, more in enumerate(({}, {"late": [7]}, {})):
        pq.write_table(pa.table({"a": [number], **more}), tmp_path / f"{number}.parquet")
    with lading.open(tmp_path / "*.parquet") as source:
        dataset = source.map_batches(_doubled)
        rows = [
            {"a": 0, "twice": 0},
            {"a": 1, "twice": 2, "late": 7},
            {"a": 2, "twice": 4, "late": None},
        ]
        assert _rows(dataset) == rows
        assert dataset[1] == rows[1]
        assert _rows(dataset[1:]) == rows[1:]
        dataset.write(tmp_path / "out", "parquet")
        assert _digest(tmp_path / "out") == _digest(dataset)


def test_a_function_sees_rows_before_it_says_its_columns(plain: Path) -> None:
    """Arrow finds no type for the values of no rows."""
    with lading.open(plain) as ds:
        dataset = ds.where("a > 5").map_batches(lambda batch: batch.append_column("i", pa.array(range(batch.num_rows))))
        assert dataset.schema.field("i").type == pa.int64()
        assert ds.where("a < 0").map_batches(lambda batch: 1 / 0).schema == ds.schema


def test_arguments_of_opening_are_refused_for_a_dataset(plain: Path) -> None:
    with lading.open(plain) as ds, pytest.raises(UsageError, match="open already"):
        lading.digest(ds, view="samples")


def test_verify_index_and_doctor_look_at_the_files(plain: Path) -> None:
    with lading.open(plain) as ds:
        dataset = ds.where("a > 5")
        assert lading.index(dataset).samples == COUNT
        assert lading.verify(dataset).samples == COUNT
        assert lading.doctor(dataset).shards == len(ds.shards)
        with pytest.raises(UsageError, match="open already"):
            lading.open(dataset)  # type: ignore[arg-type] # what is refused


def test_the_ending_of_the_destination_names_the_format(plain: Path, tmp_path: Path) -> None:
    with lading.open(plain) as ds:
        assert ds.limit(2).write(tmp_path / "out.jsonl").format == "jsonl"
        with pytest.raises(UsageError, match="parquet"):
            ds.write(tmp_path / "out")


def test_a_dataset_shows_what_it_is(plain: Path) -> None:
    with lading.open(plain) as ds:
        shown = repr(ds.where("a > 5").select("txt"))
        for part in (ds.format, "samples", str(plain), "__key__", "txt", "where('a > 5')", "select('txt')"):
            assert part in shown
        assert "<script>" not in ds.where("txt != '<script>'")._repr_html_()
        assert [name for name in dir(ds) if not name.startswith("_")] == _NAMES


_NAMES = [
    "batches",
    "by_key",
    "cast",
    "close",
    "columns",
    "concat",
    "counts",
    "dedup",
    "drop",
    "export",
    "filter",
    "filter_batches",
    "flatten",
    "format",
    "head",
    "image_bounds",
    "join",
    "limit",
    "loader",
    "map",
    "map_batches",
    "media_from",
    "push",
    "query",
    "rename",
    "repartition",
    "sample",
    "samples",
    "schema",
    "schema_is_partial",
    "select",
    "shards",
    "show",
    "shuffle",
    "skipped_shards",
    "sort",
    "split",
    "stats",
    "take",
    "take_keys",
    "to_arrow",
    "to_pandas",
    "to_polars",
    "to_reader",
    "view",
    "where",
    "with_decode",
    "write",
]


@pytest.mark.soak
def test_columns_that_only_some_shards_have(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), tmp_path / "in" / "0.parquet")
    pq.write_table(pa.table({"a": [4, 5, 6], "c": [1.0, 2.0, 3.0]}), tmp_path / "in" / "1.parquet")
    with lading.open(tmp_path / "in") as ds:
        for condition, left in (("c > 1.5", [5, 6]), ("c is null", [1, 2, 3]), ("b is null or b == 'y'", [2, 4, 5, 6])):
            dataset = ds.where(condition)
            assert [sample["a"] for sample in dataset] == [dataset[i]["a"] for i in range(len(dataset))] == left
            dataset.write(tmp_path / condition, "parquet")
            assert _digest(tmp_path / condition) == _digest(dataset)
        assert ds.select("c").take([0, 4]).to_pydict() == {"c": [None, 2.0]}
        assert [batch.to_pydict() for batch in ds.select("c").batches()] == [{"c": [None] * 3}, {"c": [1.0, 2.0, 3.0]}]
        with pytest.raises(UsageError, match=r"no such column.*a, b.*'zz'"):
            len(ds.where("zz > 1"))


# Interleaved documents


def test_items_go_alone_or_with_their_sample(docs: Path) -> None:
    with lading.open(docs, view="interleaved") as ds:
        alone, along = ds.where("position != 0"), ds.where("position != 0", drop="sample")
        assert len(list(alone)) >= len(list(along))
        assert all(item["position"] for sample in alone for item in sample["items"])


def test_reserved_columns_keep_their_names(docs: Path) -> None:
    with lading.open(docs, view="interleaved") as ds:
        for wrong in (lambda: ds.drop("position"), lambda: ds.rename({"sample_id": "id"})):
            with pytest.raises(UsageError, match="items need"):
                wrong()


def test_a_condition_reads_no_other_column(tmp_path: Path) -> None:
    """Numbers of samples behind a condition are found by its columns alone."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"a": i, "b": "x" * 1000}) + "\n" for i in range(50)))
    lading.convert(tmp_path / "a.jsonl", tmp_path / "out", format="parquet")
    with lading.open(tmp_path / "out") as ds:
        from lading._core.dataset.steps.sequence import columns_to_read

        dataset = ds.where("a > 40")
        assert columns_to_read(dataset.query.steps, [], "samples", ds.schema) == ["a"]
        assert [sample["a"] for sample in dataset] == list(range(41, 50))


def test_a_function_that_drops_rows_in_a_later_batch_leaves_no_numbers(tmp_path: Path) -> None:
    for number in range(4):
        pq.write_table(pa.table({"id": range(5 * number, 5 * number + 5)}), tmp_path / f"{number}.parquet")
    ds = lading.open(tmp_path).map_batches(lambda batch: batch.filter(pc.not_equal(batch["id"], 10)))
    assert [sample["id"] for sample in ds] == [n for n in range(20) if n != 10]
    for ask in (lambda: len(ds), lambda: ds[12], lambda: ds.take([12]), lambda: list(ds[-8:])):
        with pytest.raises(UsageError, match="changes the number of samples"):
            ask()


def test_a_function_that_gives_two_columns_one_name_is_refused(plain: Path) -> None:
    with lading.open(plain) as ds, pytest.raises(UsageError, match=r"several columns one name.*set_column"):
        list(ds.map_batches(lambda batch: batch.append_column("a", batch["a"])).batches())
