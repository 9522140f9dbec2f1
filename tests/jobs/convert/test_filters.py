"""Filters: which rows stay, which samples, and how few bytes it takes to know."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image

import lading
from documents import SAMPLES, WIDE, documents, picture
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.filter_steps import Filter, ImageBounds, Where
from lading._core.dataset.transform.transform import Transform
from lading._core.dataset.writing.outcomes import RowOutcome
from lading._core.storage.fetch import Fetcher
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, UsageError
from lading.limits import Limits
from lading.testing import CountingStore
from media import frame, medium
from tars import tar_of


@pytest.mark.parametrize("count", [1, 2, 37])
def test_samples_whose_json_is_broken_are_dropped_by_name_where_that_is_asked_for(count: int, tmp_path: Path) -> None:
    broken = {0, 5, 6, 30} & {*range(count)}
    members = [(f"{i:02}.json", b'{"n": 1,,' if i in broken else b'{"n": %d}' % i) for i in range(count)]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    kept = [f"{i:02}" for i in range(count) if i not in broken and i % 2]
    with pytest.raises(DataError, match="on_error='drop_sample'"):
        list(lading.open(tmp_path / "a.tar").where("json.n > 0"))
    ds = lading.open(tmp_path / "a.tar").where("json.n is not null", on_error="drop_sample")
    ds = ds.filter(lambda sample: int(sample["__key__"]) % 2)
    assert [sample["__key__"] for sample in ds] == kept
    options: Any = {"format": "jsonl", "where": "json.n >= 0", "on_error": "drop_sample"}
    done = lading.convert(tmp_path / "a.tar", tmp_path / "out", **options)
    assert [row["__key__"] for row in done.lost] == [f"{i:02}" for i in sorted(broken)]
    assert (done.samples, done.counts) == (count - len(broken), {"values that cannot be read, dropped": len(broken)})


@pytest.fixture
def mint(tmp_path: Path) -> Path:
    path = tmp_path / "docs.tar"
    path.write_bytes(documents(*SAMPLES))
    return path


def steps_of(where: Any = None, keep: Any = None, drop: Any = "row", **bounds: Any) -> list[Step]:
    """The steps that `lading.convert` makes of its arguments."""
    steps: list[Step] = [] if where is None else [Where(where, drop)]
    steps += [ImageBounds(**bounds, drop=drop)] if bounds or drop != "row" else []
    return [*steps, *([] if keep is None else [Filter(keep, drop, batched=True)])]


def applied(
    batch: pa.RecordBatch, view: str, fetcher: Fetcher, **filters: Any
) -> tuple[pa.RecordBatch, list[RowOutcome]]:
    """Rows that stay, and what was filtered."""
    traced = Transform(steps_of(**filters), view, fetcher).apply(batch)
    return traced.batch, [outcome for _, outcome in traced.outcomes]


def filtered(path: Path, **filters: Any) -> tuple[list[tuple[str, int]], dict[str, list[tuple[str, int]]]]:
    """Rows that stay and rows that fail by reason, as (sample, position)."""
    with lading.open(path) as dataset, Fetcher() as fetcher:
        [batch] = dataset.batches(lazy=True)
        left, losses = applied(batch, dataset.view, fetcher, **filters)
    return _named(left), {loss.reason: _named(loss.batch.take(pa.array(loss.rows))) for loss in losses}


def _named(batch: pa.RecordBatch) -> list[tuple[str, int]]:
    return list(zip(batch["sample_id"].to_pylist(), batch["position"].to_pylist(), strict=True))


ALL = [(s, p) for s, n in (("a", 3), ("b", 1), ("c", 1), ("d", 2), ("e", 0)) for p in range(-1, n)]


def but(*gone: tuple[str, int]) -> list[tuple[str, int]]:
    return [row for row in ALL if row not in gone]


def test_no_filter_keeps_all(mint: Path) -> None:
    assert filtered(mint) == (ALL, {})


@pytest.mark.parametrize(
    "bounds, left, outside",
    [
        ({"min_aspect_ratio": 1}, but(("a", 2), ("b", -1), ("b", 0), ("d", 0)), [("a", 2), ("b", 0)]),
        ({"max_aspect_ratio": 1.0}, but(("a", 1), ("d", 0)), [("a", 1)]),
        ({"min_side": 20}, but(("a", 1), ("a", 2), ("b", -1), ("b", 0), ("d", 0)), [("a", 1), ("a", 2), ("b", 0)]),
        ({"max_side": 20}, but(("a", 1), ("a", 2), ("b", -1), ("b", 0), ("d", 0)), [("a", 1), ("a", 2), ("b", 0)]),
        ({"min_aspect_ratio": 0.25, "max_aspect_ratio": 4}, but(("d", 0)), []),
    ],
)
def test_bounds_are_inclusive_and_a_sample_goes_with_its_last_item(
    bounds: dict[str, Any], left: list[tuple[str, int]], outside: list[tuple[str, int]], mint: Path
) -> None:
    kept, lost = filtered(mint, **bounds)
    assert kept == left
    along = [row for row in ALL if row not in left and row not in outside and row != ("d", 0)]
    expected = {
        "images whose size cannot be read": [("d", 0)],
        "images outside the bounds": outside,
        "rows of samples that are left out": along,
    }
    assert lost == {reason: rows for reason, rows in expected.items() if rows}


def test_samples_may_go_whole(mint: Path) -> None:
    kept, _ = filtered(mint, min_aspect_ratio=1, drop="sample")
    assert kept == [row for row in ALL if row[0] in "ce"]


@pytest.mark.parametrize(
    "where, left",
    [
        ("lang == 'en'", [row for row in ALL if row[0] in "ace"]),  # what the metadata row says holds for all rows
        ("score > 1", [row for row in ALL if row[0] in "ade"]),
        ("modality == 'text'", [("a", -1), ("a", 0), ("c", -1), ("c", 0)]),
        ("modality != 'image' or position > 1", but(("a", 1), ("b", -1), ("b", 0), ("d", -1), ("d", 0), ("d", 1))),
        ("len(binary_content) > 0 or modality != 'image'", ALL),
        ("sample_id == 'none'", []),
    ],
)
def test_conditions(where: str, left: list[tuple[str, int]], mint: Path) -> None:
    assert filtered(mint, where=where)[0] == left


def test_a_condition_that_takes_samples_along(mint: Path) -> None:
    kept, lost = filtered(mint, where="modality == 'text'", drop="sample")
    assert kept == [("c", -1), ("c", 0)]
    assert lost == {
        "not where modality == 'text'": [("a", 1), ("a", 2), ("b", 0), ("d", 0), ("d", 1), ("e", -1)],
        "rows of samples that are left out": [("a", -1), ("a", 0), ("b", -1), ("d", -1)],
    }


def test_a_function(mint: Path) -> None:
    def keep(batch: pa.RecordBatch) -> Any:
        return np.array(batch["position"].to_pylist()) != 1

    assert filtered(mint, keep=keep)[0] == but(("a", 1), ("d", 1))
    for answer in ([True], [None] * len(ALL), pa.array([False] * len(ALL))):
        if len(answer) == len(ALL):
            assert filtered(mint, keep=lambda _, answer=answer: answer)[0] == []
        else:
            with pytest.raises(UsageError, match="truth value"):
                filtered(mint, keep=lambda _, answer=answer: answer)


@pytest.mark.parametrize(
    "answer", [np.array(["yes"] * len(ALL)), np.zeros(len(ALL), "M8[s]"), pa.array(["x"] * len(ALL)), np.ones((7, 2))]
)
def test_a_function_that_gives_no_truth_values(answer: Any, mint: Path) -> None:
    with pytest.raises(UsageError, match="truth value for every row"):
        filtered(mint, keep=lambda _: answer)


RUNS = pc.run_end_encode(pa.array([1, 1, None, 2, 2, 2]))


@pytest.mark.parametrize(
    "column, where, left",
    [
        (RUNS, "c >= 1", [1, 1, 2, 2, 2]),
        (RUNS, "c is null", [None]),
        (pa.StructArray.from_arrays([RUNS], ["of"]), "c.of > 1", [{"of": 2}] * 3),
        (pa.ListArray.from_arrays([0, 1, 2, 2, 4, 5, 6], RUNS), "len(c) != 1", [[], [None, 2]]),
        (pa.array(["a", "b", "a long text, not inline", None, "c", ""], pa.string_view()), "c > 'b'", ["c"]),
    ],
)
def test_columns_that_pyarrow_takes_no_rows_of(column: pa.Array, where: str, left: list[Any]) -> None:
    batch = pa.record_batch({"c": column})
    with Fetcher() as fetcher:
        transform = Transform(steps_of(where=where), "samples", fetcher)
        transform.check(batch.schema)
        kept = transform.apply(batch).batch
    assert kept["c"].to_pylist() == left
    assert kept.schema == batch.schema


def test_what_metadata_rows_say_in_runs_and_views() -> None:
    runs = pc.run_end_encode(pa.array(["en", None, None, None, "de"]))
    batch = pa.record_batch(
        {
            "sample_id": ["a", "a", "b", "c", "c"],
            "position": pa.array([-1, 0, 0, -1, 0], pa.int32()),
            "runs": runs,
            "inside": pa.StructArray.from_arrays([runs], ["of"], mask=pa.array([False, True, True, True, False])),
            "view": pa.array(["en", None, None, None, "de"], pa.string_view()),
        }
    )
    with Fetcher() as fetcher:
        for condition in ("runs == 'en'", "inside.of == 'en'", "view == 'en'"):
            kept, _ = applied(batch, "interleaved", fetcher, where=condition)
            assert _named(kept) == [("a", -1), ("a", 0)]
            kept, _ = applied(batch, "interleaved", fetcher, where=f"not {condition}")
            assert _named(kept) == [("c", -1), ("c", 0)]


@pytest.mark.parametrize(
    "bad", [{"drop": "all"}, {"min_side": -1}, {"min_side": 9, "max_side": 8}, {"max_aspect_ratio": float("nan")}]
)
def test_filters_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        steps_of(**bad)


def test_samples_with_images(tmp_path: Path) -> None:
    members = [("a.jpg", picture(40, 10, "JPEG")), ("a.txt", b"x"), ("b.jpg", picture(10, 40, "JPEG")), ("c.txt", b"x")]
    (tmp_path / "s.tar").write_bytes(tar_of(*members))
    with lading.open(tmp_path / "s.tar") as dataset, Fetcher() as fetcher:
        [batch] = dataset.batches(lazy=True)
        left, _ = applied(batch, dataset.view, fetcher, min_aspect_ratio=1)
        assert left["__key__"].to_pylist() == ["a", "c"]  # a sample without an image has none outside the bounds
        with pytest.raises(UsageError, match="no column holds images"):
            applied(batch.select(["__key__", "txt"]), dataset.view, fetcher, min_side=1)


def test_a_picture_that_cannot_be_had_is_left_to_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "docs.tar"
    path.write_bytes(documents(("a", [WIDE], {})))
    with lading.open(path) as dataset, Fetcher() as fetcher:
        [batch] = dataset.batches(lazy=True)
        path.write_bytes(path.read_bytes()[:300])
        left, losses = applied(batch, dataset.view, fetcher, min_side=1)
    assert (left.num_rows, losses) == (batch.num_rows, [])


@pytest.mark.soak
def test_what_is_left_out_is_not_read() -> None:
    """Pictures of 100 KB of which one in twenty is kept: no more than a tenth of the bytes is asked for."""
    rng = np.random.default_rng(7)
    noise = Image.fromarray(rng.integers(0, 255, (200, 170, 3), np.uint8))
    body = io.BytesIO()
    noise.save(body, "PNG")
    tall, wide = body.getvalue(), io.BytesIO()
    noise.rotate(90, expand=True).save(wide, "PNG")
    samples = [(f"s{i:03}", [tall if i % 20 else wide.getvalue()], {}) for i in range(200)]
    tar = documents(*samples)
    box = CountingStore(MemoryStore({"box://d.tar": tar}))
    with lading.open("box://d.tar", stores=Stores({"box://": box})) as dataset:
        fetcher = Fetcher(Stores({"box://": box}))
        transform = Transform(steps_of(min_aspect_ratio=1), dataset.view, fetcher)
        left = [transform.apply(batch).batch for batch in dataset.batches(lazy=True)]
        kept = [value for batch in left for value in fetcher.materialise(batch)["binary_content"].to_pylist() if value]
    assert kept == [wide.getvalue()] * 10
    assert box.bytes_read <= len(tar) / 10


def test_pictures_that_lie_compressed_are_measured_however_many_there_are(tmp_path: Path) -> None:
    """Together they may unpack to more than those of one document may: each is measured by itself."""
    pictures = [picture(200, side, "BMP") for side in (10, 200) * 10]
    records = [frame(body) for body in pictures]
    (tmp_path / "a.zst").write_bytes(b"".join(records))
    ends = np.cumsum([len(record) for record in records]).tolist()
    path = tmp_path / "d.jsonl"
    with path.open("w") as lines:
        for key, (end, record) in enumerate(zip(ends, records, strict=True)):
            media = medium(id="0", path="a.zst", offset=end - len(record), length=len(record))
            lines.write(json.dumps({"id": f"{key}", "text": "", "media": [media]}) + "\n")
    limits = Limits(sample_bytes=max(map(len, pictures)))
    with lading.open(path, format="media_archive", view="interleaved", limits=limits) as dataset:
        [batch] = dataset.batches(lazy=True)
        left, _ = applied(batch, dataset.view, dataset._rows.shards.fetcher, min_aspect_ratio=2)
    assert [name for name, position in _named(left) if position == 0] == [f"{key}" for key in range(0, 20, 2)]


@pytest.mark.parametrize("head_bytes", [2_000, 100_000])
def test_sizes_far_into_a_file(head_bytes: int) -> None:
    """A JPEG may hold long segments before its size."""
    plain = picture(40, 10, "JPEG")
    segments = b"".join(b"\xff\xe1" + (1002).to_bytes(2, "big") + bytes(1000) for _ in range(head_bytes // 1000))
    jpeg = plain[:2] + segments + plain[2:] + bytes(200_000)
    box = CountingStore(MemoryStore({"box://d.tar": documents(("a", [jpeg], {}), ("b", [WIDE], {}))}))
    with lading.open("box://d.tar", stores=Stores({"box://": box})) as dataset:
        [batch] = dataset.batches(lazy=True)
        box.reset()
        fetcher = Fetcher(Stores({"box://": box}))
        left, losses = applied(batch, dataset.view, fetcher, min_aspect_ratio=4)
    assert (left.num_rows, losses) == (batch.num_rows, [])
    assert (box.bytes_read < 70_000) == (head_bytes < 60_000)
