"""Any steps behind each other, in any format and view, for any consumer, are the plain computation over dicts.

`make test` tries a fixed choice in which any two steps, formats and consumers are together once; `make soak` tries
what Hypothesis draws.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from documents import SQUARE, TALL, WIDE, documents
from in_process import InProcess
from step_cases import CASES, ROWS, Row, drawn, firsts, plain_rows, write_sources

Case = tuple[tuple[str, ...], str, str]
SAMPLES = ("webdataset", "parquet", "mds", "arrow", "jsonl", "csv")
DOCUMENTS = tuple(f"interleaved {name}" for name in ("webdataset", "parquet", "mds", "media_archive"))
Chain = Callable[[lading.Dataset, Path], lading.Dataset]


@dataclass(frozen=True)
class Law:
    """A step, and what it is over plain rows.

    Attributes:
        chain: the step; the second argument is the folder of `write_sources`.
        plain: the same over a list of dicts.
        needs: fields that rows must have.
        makes: fields that rows may not have yet.
    """

    chain: Chain
    plain: Callable[[list[Row]], list[Row]]
    needs: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()


def law(chain: Chain, plain: Callable[[list[Row]], list[Row]], needs: str = "", makes: str = "") -> Law:
    return Law(chain, plain, frozenset(needs.split()), frozenset(makes.split()))


_NEEDS = {
    "where": "json", "where, by the header of an image": "png json", "where leaves nothing": "cls", "filter": "json",
    "max_side": "png json", "min_side, min_aspect_ratio": "png json", "dedup by a column": "txt",
    "dedup by fields": "json cls", "sort": "cls", "sort by fields": "json png", "columns": "txt json png",
    "drop_columns": "json png", "rename": "txt", "cast": "cls", "flatten": "json", "map": "cls txt",
}  # fmt: skip
_MAKES = {"rename": "caption", "map": "n", "join": "score", "join, inner": "score"}
_LEFT_OUT = {"where leaves nothing", "all at once", "take", "cast"}
"""Of `CASES`: two show nothing of others; `take` names keys that earlier steps may leave out; `cast` is below."""


def _twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("twice", pc.multiply(batch["__key__"].cast(pa.int64()), 2))


def _few(batch: pa.RecordBatch) -> pa.Array:
    return pc.not_equal(batch["__key__"].cast(pa.int64()), 5)


SAMPLE_LAWS: dict[str, Law] = {
    **{
        name: law(case.chain, case.plain, _NEEDS.get(name, ""), _MAKES.get(name, ""))
        for name, case in CASES.items()
        if name not in _LEFT_OUT
    },
    "cast": law(
        lambda ds, _: ds.cast({"cls": "float64"}),
        lambda rows: [r | {"cls": float(r["cls"])} for r in rows],
        "cls",
        "n twice",
    ),
    "map_batches": law(
        lambda ds, _: ds.map_batches(_twice),
        lambda rows: [r | {"twice": 2 * int(r["__key__"])} for r in rows],
        "",
        "twice",
    ),
    "filter_batches": law(
        lambda ds, _: ds.filter_batches(_few), lambda rows: [r for r in rows if r["__key__"] != "05"]
    ),
    "slice": law(lambda ds, _: ds[1:9:2], lambda rows: rows[1:9:2]),
    "slice backwards": law(lambda ds, _: ds[::-1], lambda rows: rows[::-1]),
    "numbers": law(lambda ds, _: ds[[2, 0, -1, 2]], lambda rows: [rows[i] for i in (2, 0, -1, 2)]),
    "a part of a split": law(
        lambda ds, _: ds.split({"a": 3, "b": None})["b"],
        lambda rows: [rows[i] for i in sorted(drawn(0, len(rows))[3:])],
    ),
}


def _without_items(keep: Callable[[tuple[int, str, Any]], bool]) -> Callable[[list[Row]], list[Row]]:
    """Items go, and documents of which none is left though they had some."""

    def plain(rows: list[Row]) -> list[Row]:
        left = [row | {"items": [*filter(keep, row["items"])]} for row in rows]
        return [new for new, old in zip(left, rows, strict=True) if new["items"] or not old["items"]]

    return plain


def _is_wide(item: tuple[int, str, Any]) -> bool:
    return item[2] in (WIDE, SQUARE) or item[1] == "text"


_DOCUMENTS: list[tuple[str, list[str | bytes | None], dict[str, Any]]] = [
    (f"d{i:02}", items, {"lang": "en" if i % 3 else "de", "score": i % 4 / 2})
    for i, items in enumerate([["hello", WIDE, TALL], [TALL], ["only text"], [SQUARE, "below", WIDE], []] * 2)
]

DOCUMENT_LAWS: dict[str, Law] = {
    "where": law(
        lambda ds, _: ds.where("lang == 'en'"), lambda rows: [r for r in rows if r.get("lang") == "en"], "lang"
    ),
    "where, of items": law(lambda ds, _: ds.where("position < 1"), _without_items(lambda item: item[0] < 1)),
    "where, of other items": law(lambda ds, _: ds.where("position != 0"), _without_items(lambda item: item[0] != 0)),
    "where, of whole documents": law(
        lambda ds, _: ds.where("position < 1", drop="sample"),
        lambda rows: [r for r in rows if all(item[0] < 1 for item in r["items"])],
    ),
    "image bounds": law(lambda ds, _: ds.image_bounds(min_aspect_ratio=1), _without_items(_is_wide)),
    "columns": law(
        lambda ds, _: ds.select("lang"),
        lambda rows: [{k: v for k, v in r.items() if k != "score"} for r in rows],
        "lang",
    ),
    "drop_columns": law(
        lambda ds, _: ds.drop("lang"), lambda rows: [{k: v for k, v in r.items() if k != "lang"} for r in rows], "lang"
    ),
    "rename": law(
        lambda ds, _: ds.rename({"score": "mark"}),
        lambda rows: [{"mark" if k == "score" else k: v for k, v in r.items()} for r in rows],
        "score",
        "mark",
    ),
    "limit": law(lambda ds, _: ds.limit(6), lambda rows: rows[:6]),
    "slice": law(lambda ds, _: ds[1:8:2], lambda rows: rows[1:8:2]),
    "slice backwards": law(lambda ds, _: ds[::-1], lambda rows: rows[::-1]),
    "numbers": law(lambda ds, _: ds[[2, 0, -1]], lambda rows: [rows[i] for i in (2, 0, -1)]),
    "shuffle": law(lambda ds, _: ds.shuffle(3), lambda rows: [rows[i] for i in drawn(3, len(rows))]),
    "sample": law(lambda ds, _: ds.sample(4, seed=2), lambda rows: [rows[i] for i in sorted(drawn(2, len(rows))[:4])]),
    "sort": law(
        lambda ds, _: ds.sort("score", descending=True), lambda rows: sorted(rows, key=lambda r: -r["score"]), "score"
    ),
    "dedup": law(
        lambda ds, _: ds.dedup("score"),
        lambda rows: firsts(rows, lambda row: row["score"]),
        "score",
    ),
    "map_batches": law(lambda ds, _: ds.map_batches(_the_same), lambda rows: rows),
}


def _the_same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _plain_documents(samples: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        {k: v for k, v in sample.items() if k not in ("sample_id", "items") and v is not None}
        | {"__key__": sample["sample_id"], "items": [
            (item["position"], item["modality"], item.get("text_content") or item.get("binary_content"))
            for item in sample["items"]
        ]}
        for sample in samples
    ]  # fmt: skip


# What is asked of the dataset behind the steps

Plain = Callable[[Sequence[Mapping[str, Any]]], list[Row]]
Asked = Callable[[lading.Dataset, list[Row], Plain, Path], None]


def _by_number(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    assert plain([ds[i] for i in range(len(rows))]) == rows
    assert plain([ds[i - len(rows)] for i in range(len(rows))]) == rows
    with pytest.raises(IndexError):
        ds[len(rows)]


def _taken(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    order = np.random.default_rng(len(rows)).permutation(len(rows))
    assert plain(list(ds[order.tolist()])) == [rows[i] for i in order]
    table = ds.take(order)
    key = "sample_id" if ds.view == "interleaved" else "__key__"
    assert [*dict.fromkeys(table[key].to_pylist())] == [*dict.fromkeys(rows[i]["__key__"] for i in order)]


def _by_key(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    for key in dict.fromkeys(row["__key__"] for row in rows):
        assert plain([ds.by_key(key)])[0]["__key__"] == key
    with pytest.raises(KeyError):
        ds.by_key("nobody")


def _counted(ds: lading.Dataset, rows: list[Row], _plain: Plain, _: Path) -> None:
    assert len(ds) == len(rows)
    assert ds.stats().samples == len(rows)
    assert lading.info(ds).samples == len(rows)
    assert lading.digest(ds).count == len(rows)


def _batched(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    assert {name for row in rows for name in row} - {"__key__", "items"} <= {*ds.schema.names}
    key = "sample_id" if ds.view == "interleaved" else "__key__"
    batches = [batch[key].to_pylist() for batch in ds.batches(max_rows=2)]
    assert max(map(len, batches), default=0) <= 2 or ds.view == "interleaved"
    assert [*dict.fromkeys(chain.from_iterable(batches))] == [*dict.fromkeys(row["__key__"] for row in rows)]


def _looked_at(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    assert plain(ds.head(3)) == rows[:3]
    assert plain(list(ds[1:3])) == rows[1:3]
    assert repr(ds)
    assert ds._repr_html_()


def _pickled(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    with pickle.loads(pickle.dumps(ds)) as again:
        assert repr(again.query.steps) == repr(ds.query.steps)
        assert plain(list(again)) == rows


def _concatenated(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    both = lading.concat([ds, ds[:2]]).with_decode(plain is plain_rows)
    assert plain(list(both)) == rows + rows[:2]
    assert lading.diff(ds, ds).equal


def _split(ds: lading.Dataset, rows: list[Row], plain: Plain, _: Path) -> None:
    if len(rows) > 2:
        found = [plain(list(part)) for part in ds.split({"a": 2, "b": None}, seed=1).values()]
        order = drawn(1, len(rows))
        assert found == [[rows[i] for i in sorted(order[:2])], [rows[i] for i in sorted(order[2:])]]


def _written(ds: lading.Dataset, rows: list[Row], plain: Plain, folder: Path, *, target: str) -> None:
    done = ds.write(folder / "out", target, verify=True)
    assert (done.samples, done.verified) == (len(rows), True)
    if rows:
        with lading.open(folder / "out", format=target) as back:
            assert plain(list(back.with_decode(plain is plain_rows))) == rows
        assert lading.digest(folder / "out").ordered == lading.digest(ds).ordered


def _by_tasks(ds: lading.Dataset, rows: list[Row], _plain: Plain, folder: Path) -> None:
    for name, how in (("alone", {}), ("tasks", {"executor": InProcess()})):
        done = ds.repartition(rows_per_shard=3).write(folder / name, "parquet", **how)
        assert done.samples == len(rows)
    files = [[path.read_bytes() for path in sorted((folder / name).glob("*.parquet"))] for name in ("alone", "tasks")]
    assert files[0] == files[1] != []


def _looped(ds: lading.Dataset, rows: list[Row], _plain: Plain, _: Path) -> None:
    key = "sample_id" if ds.view == "interleaved" else "__key__"
    loader = ds.loader(2, columns=None if ds.view == "interleaved" else ["__key__"])
    keys = [str(each) for batch in loader for each in batch[key]]
    assert keys == [row["__key__"] for row in rows]


ASKED: dict[str, Asked] = {
    "list": lambda ds, rows, plain, _: _same(plain(list(ds)), rows),
    "samples": lambda ds, rows, plain, _: _same(plain(list(ds.samples())), rows),
    "numbers": _by_number,
    "take": _taken,
    "keys": _by_key,
    "counts": _counted,
    "batches": _batched,
    "head": _looked_at,
    "pickle": _pickled,
    "concat": _concatenated,
    "split": _split,
    "parquet": partial(_written, target="parquet"),
    "webdataset": partial(_written, target="webdataset"),
    "tasks": _by_tasks,
    "loader": _looped,
}


def _same(found: list[Row], expected: list[Row]) -> None:
    assert found == expected


# The law


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The rows, and the documents, in every format, in several shards."""
    folder = tmp_path_factory.mktemp("laws")
    write_sources(folder)
    found = {"folder": folder, "webdataset": folder / "in.tar", "parquet": folder / "in.parquet"}
    with lading.open(folder / "in.tar") as ds:
        for fmt in SAMPLES[2:]:
            found[fmt] = folder / fmt
            rows = ds if _holds_pictures(fmt) else ds.drop("png")
            rows.repartition(rows_per_shard=5).write(folder / fmt, fmt)
    (folder / "docs.tar").write_bytes(documents(*_DOCUMENTS))
    found["interleaved webdataset"] = folder / "docs.tar"
    for name in DOCUMENTS[1:]:
        found[name] = folder / name
        lading.convert(folder / "docs.tar", folder / name, format=name.split()[1], rows_per_shard=4)
    return found


def _applied(laws: Mapping[str, Law], chain: Sequence[str], rows: list[Row]) -> tuple[list[str], list[Row]]:
    """The steps of a chain that can be behind each other, and the rows behind them."""
    columns, applied = {name for row in rows for name in row}, list[str]()
    for name in chain:
        if laws[name].needs <= columns and not laws[name].makes & columns and len(rows) > 4:
            rows = laws[name].plain(rows)
            columns = {name for row in rows for name in row}
            applied.append(name)
    return applied, rows


def _check(case: Case, laws: Mapping[str, Law], sources: Mapping[str, Path], out: Path) -> None:
    chain, asked, source = case
    applied, expected = _applied(laws, chain, _rows_of(source))
    interleaved = source.startswith("interleaved")
    with lading.open(sources[source], view="interleaved" if interleaved else "samples") as opened:
        dataset = opened.with_decode(not interleaved)
        for name in applied:
            dataset = laws[name].chain(dataset, sources["folder"])
        ASKED[asked](dataset, expected, _plain_documents if interleaved else plain_rows, out)


def _rows_of(source: str) -> list[Row]:
    if source.startswith("interleaved"):
        return _plain_documents([{"sample_id": n, "items": _items(items), **more} for n, items, more in _DOCUMENTS])
    return [{n: v for n, v in row.items() if n != "png" or _holds_pictures(source)} for row in ROWS]


def _holds_pictures(source: str) -> bool:
    return source not in ("csv", "jsonl")


def _items(items: Sequence[str | bytes | None]) -> list[dict[str, Any]]:
    return [
        {"position": i, "modality": "text", "text_content": item}
        if isinstance(item, str)
        else {"position": i, "modality": "image", "binary_content": item}
        for i, item in enumerate(items)
    ]


_LENGTH = 4


def _covering(laws: Mapping[str, Law], sources: Sequence[str], count: int) -> list[Any]:
    """So many cases; of some drawn ones each is that with most pairs that no case before has."""
    rng, found, cases = random.Random(1), set[frozenset[tuple[int, str]] | tuple[str, str]](), list[Any]()

    def drawn_case() -> Case:
        return tuple(rng.choices([*laws], k=_LENGTH)), rng.choice([*ASKED]), rng.choice(sources)

    def pairs(case: Case) -> set[Any]:
        chain, asked, source = case
        applied, _ = _applied(laws, chain, _rows_of(source))
        return {*combinations(applied, 2), *product(applied, (asked, source)), (asked, source)}

    for _ in range(count):
        best = max((drawn_case() for _ in range(12)), key=lambda case: len(pairs(case) - found))
        found |= pairs(best)
        cases.append(pytest.param(best, id=" > ".join((best[2], *best[0], best[1])).replace(" ", "_")))
    return cases


@pytest.mark.cases(None)
@pytest.mark.parametrize("case", _covering(SAMPLE_LAWS, SAMPLES, 120))
def test_steps_of_samples(case: Case, sources: dict[str, Path], tmp_path: Path) -> None:
    _check(case, SAMPLE_LAWS, sources, tmp_path)


@pytest.mark.cases(None)
@pytest.mark.parametrize("case", _covering(DOCUMENT_LAWS, DOCUMENTS, 50))
def test_steps_of_documents(case: Case, sources: dict[str, Path], tmp_path: Path) -> None:
    _check(case, DOCUMENT_LAWS, sources, tmp_path)


def _any_case(laws: Mapping[str, Law], sources: Sequence[str]) -> st.SearchStrategy[Case]:
    chains = st.lists(st.sampled_from([*laws]), max_size=_LENGTH + 2).map(tuple)
    return st.tuples(chains, st.sampled_from([*ASKED]), st.sampled_from(sources))


@pytest.mark.soak
@given(_any_case(SAMPLE_LAWS, SAMPLES))
def test_any_steps_of_samples(sources: dict[str, Path], case: Case) -> None:
    with TemporaryDirectory() as out:
        _check(case, SAMPLE_LAWS, sources, Path(out))


@pytest.mark.soak
@given(_any_case(DOCUMENT_LAWS, DOCUMENTS))
def test_any_steps_of_documents(sources: dict[str, Path], case: Case) -> None:
    with TemporaryDirectory() as out:
        _check(case, DOCUMENT_LAWS, sources, Path(out))
