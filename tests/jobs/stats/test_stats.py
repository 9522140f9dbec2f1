"""Statistics: equal to a plain computation in memory, the same however a dataset is cut, with headers alone read."""

from __future__ import annotations

import io
import json
import wave
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import lading
from lading._core.content.summaries import EXACT_VALUES, TOP_VALUES, Counts, Keys, NumberSummary, mixed
from lading._core.jobs.stats.stats import dataset_stats
from lading._core.jobs.stats.text import as_text
from lading._core.jobs.stats.values import QUANTILES, Stats
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading.errors import UsageError
from tars import tar_of

MEDIA = Path(__file__).parents[2] / "content" / "media"


def rows(count: int = 700) -> list[dict[str, Any]]:
    draw = np.random.default_rng(4)
    return [
        {
            "n": int(draw.integers(-50, 50)),
            "score": float(draw.normal(3, 2)),
            "text": "é" * int(draw.integers(0, 40)) + str(i % 90),
        }
        for i in range(count)
    ]


def written(folder: Path, fmt: str, samples: list[dict[str, Any]], **options: Any) -> Path:
    with lading.writer(folder, format=fmt, shard_size="64KB", **options) as writer:
        for sample in samples:
            writer.write(sample)
    return folder


def check_numbers(found: Stats, name: str, values: list[float]) -> None:
    column, plain = found.columns[name], np.array(values, np.float64)
    assert (column.min, column.max) == (min(values), max(values))
    assert column.mean == pytest.approx(plain.mean())
    assert column.std == pytest.approx(plain.std(ddof=1))
    assert [column.quantiles[part] for part in QUANTILES] == pytest.approx(np.quantile(plain, QUANTILES))
    assert column.histogram is not None
    assert sum(column.histogram.counts) == len(values)
    assert list(column.histogram.counts) == np.histogram(plain, column.histogram.edges)[0].tolist()
    assert not column.approximate


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow", "jsonl", "mds", "webdataset", "csv"])
def test_facts_are_those_of_a_plain_computation(tmp_path: Path, fmt: str) -> None:
    samples = rows()
    found = dataset_stats(written(tmp_path / "d", fmt, samples))
    assert found.samples == len(samples)
    check_numbers(found, "n", [s["n"] for s in samples])
    check_numbers(found, "score", [s["score"] for s in samples])
    check_numbers(found, "len(text)", [len(s["text"]) for s in samples])
    counts = Counter(s["n"] for s in samples)
    assert found.columns["n"].distinct == len(counts)
    assert Counter(dict(found.columns["n"].top)) <= counts
    assert [count for _, count in found.columns["n"].top] == [count for _, count in counts.most_common(10)]
    texts = Counter(s["text"] for s in samples)
    assert found.columns["text"].distinct == len(texts)
    assert dict(found.columns["text"].top).items() <= texts.items()
    assert {name: column.nulls for name, column in found.columns.items() if "(" not in name} == dict.fromkeys(
        ("n", "score", "text"), 0
    )


def test_truth_values_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"flag": [True, False, True, None]}), tmp_path / "0.parquet")
    column = dataset_stats(tmp_path).columns["flag"]
    assert (column.top, column.distinct, column.nulls) == (((True, 2), (False, 1)), 2, 1)


def test_nulls_and_columns_that_some_shards_lack(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, None, 3], "b": ["x", None, None]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [None, 5], "c": [1.5, float("nan")]}), tmp_path / "1.parquet")
    found = dataset_stats(tmp_path).columns
    assert {name: found[name].nulls for name in "abc"} == {"a": 2, "b": 4, "c": 3}
    assert found["a"].mean == 3
    assert found["c"].max == 1.5


def test_times_are_shown_as_times(tmp_path: Path) -> None:
    days = [date(2024, 1, 1) + timedelta(i) for i in range(11)]
    pq.write_table(pa.table({"day": days, "at": pa.array(days).cast(pa.timestamp("ms"))}), tmp_path / "0.parquet")
    found = dataset_stats(tmp_path).columns
    assert (found["day"].min, found["day"].median, found["day"].max) == ("2024-01-01", "2024-01-06", "2024-01-11")
    assert found["at"].min == "2024-01-01 00:00:00.000"


def test_fields_of_json_have_facts_of_their_own(tmp_path: Path) -> None:
    values: list[Any] = [
        {"lang": "en", "n": 1, "tags": ["a", "b"], "meta": {"w": 2}},
        {"lang": "de", "n": 2.5, "tags": []},
        {"lang": None, "n": "three", "tags": ["a"]},
        {},
    ]
    members = [(f"{i}.json", json.dumps(value).encode()) for i, value in enumerate(values)]
    (tmp_path / "s.tar").write_bytes(tar_of(*members, ("4.json", b"{broken"), ("5.json", b"null")))
    found = dataset_stats(tmp_path / "s.tar").columns
    assert (found["json"].values, found["json"].nulls, found["json"].unreadable) == (6, 0, 1)
    assert (found["json.lang"].top, found["json.lang"].nulls) == ((("de", 1), ("en", 1)), 4)
    assert (found["json.n"].kind, found["json.n"].max, found["json.n"].values) == ("double, text", 2.5, 3)
    assert (found["len(json.tags)"].max, found["json.tags[]"].top[0]) == (2, ("a", 2))
    assert found["json.meta.w"].min == 2
    assert next(iter(found)) == "json"


def test_more_fields_than_are_listed_are_noted(tmp_path: Path) -> None:
    body = json.dumps({f"f{i}": i for i in range(100)}).encode()
    (tmp_path / "s.tar").write_bytes(tar_of(("0.json", body)))
    found = dataset_stats(tmp_path / "s.tar")
    assert sum(name.startswith("json.") for name in found.columns) == 64
    assert found.notes == ("json: only the first 64 fields are listed",)


def image(width: int, height: int, kind: str = "jpeg") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, kind)
    return file.getvalue()


def test_images_are_measured_by_their_headers(tmp_path: Path) -> None:
    sizes = [(10 + i, 200 - i, ("jpeg", "png", "webp", "gif")[i % 4]) for i in range(80)]
    members = [(f"{i:03}.jpg", image(*size)) for i, size in enumerate(sizes)]
    (tmp_path / "s.tar").write_bytes(tar_of(*members, ("900.jpg", b"no picture"), ("901.jpg", b"")))
    found = dataset_stats(tmp_path / "s.tar")
    check_numbers(found, "jpg.width", [width for width, _, _ in sizes])
    check_numbers(found, "jpg.height", [height for _, height, _ in sizes])
    check_numbers(found, "jpg.aspect_ratio", [width / height for width, height, _ in sizes])
    assert dict(found.columns["jpg.format"].top) == dict.fromkeys(("jpeg", "png", "webp", "gif"), 20)
    assert (found.columns["jpg"].values, found.columns["jpg"].unreadable) == (82, 2)


def test_bytes_of_a_table_are_images_if_they_look_like_it(tmp_path: Path) -> None:
    pictures = [image(30, 40, "png"), image(50, 60)]
    pq.write_table(pa.table({"p": pictures, "q": [b"abc", b"de"]}), tmp_path / "0.parquet")
    found = dataset_stats(tmp_path).columns
    assert (found["p"].kind, found["p.width"].min, found["p.width"].max) == ("image", 30, 50)
    assert (found["q"].kind, found["len(q)"].mean) == ("bytes", 2.5)
    assert "q.width" not in found


def test_bytes_of_which_few_are_images_are_bytes(tmp_path: Path) -> None:
    columns = {"p": [image(30, 40), b"a", b"b"], "q": [image(3, 4), image(5, 6), b"b"]}
    pq.write_table(pa.table(columns), tmp_path / "0.parquet")
    found = dataset_stats(tmp_path).columns
    assert [(found[name].kind, found[name].unreadable) for name in "pq"] == [("bytes", 0), ("image", 1)]
    assert found["p.width"].values == 1


def test_audio_and_video_are_measured_by_their_headers(tmp_path: Path) -> None:
    times = [0.5, 1.0, 2.25]
    for i, seconds in enumerate(times):
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setparams((i + 1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(bytes(2 * (i + 1) * int(8000 * seconds)))
        (tmp_path / f"{i}.wav").write_bytes(file.getvalue())
    clips = [(MEDIA / name).read_bytes() for name in ("front.mp4", "end.mp4")]
    members = [(f"{i}.wav", (tmp_path / f"{i}.wav").read_bytes()) for i in range(3)]
    (tmp_path / "a.tar").write_bytes(tar_of(*members, *[(f"{i + 5}.mp4", clip) for i, clip in enumerate(clips)]))
    found = dataset_stats(tmp_path / "a.tar")
    check_numbers(found, "wav.duration_s", times)
    check_numbers(found, "wav.channels", [1, 2, 3])
    assert found.columns["wav.sample_rate"].max == 8000
    assert found.columns["wav.format"].top == (("wav", 3),)
    assert [found.columns[f"mp4.{fact}"].max for fact in ("width", "height", "fps")] == [64, 48, 25]
    assert found.columns["mp4.codec"].top == (("h264", 2),)
    assert found.columns["mp4.duration_s"].min == 0.6
    pq.write_table(pa.table({"clip": clips, "n": [1, 2]}), tmp_path / "0.parquet")
    assert dataset_stats(tmp_path / "0.parquet").columns["clip"].kind == "video"


def test_payload_of_images_is_not_read() -> None:
    pictures = [image(64, 64) + bytes(100_000) for _ in range(40)]
    tar = tar_of(*[(f"{i}.jpg", picture) for i, picture in enumerate(pictures)])
    counting = CountingStore(MemoryStore({"box://s.tar": tar}))
    found = dataset_stats("box://s.tar", stores=Stores({"box://": counting}), workers=1)
    assert found.columns["jpg.width"].values == 40
    assert counting.bytes_read <= len(tar) / 10


def test_documents_are_counted_by_their_items(docs: Path) -> None:
    found = dataset_stats(docs)
    batches = list(lading.open(docs).batches(columns=["modality", "text_content"]))
    modality = [value for batch in batches for value in batch["modality"].to_pylist()]
    texts = [value for batch in batches for value in batch["text_content"].to_pylist() if value is not None]
    ids = [value for batch in batches for value in batch["sample_id"].to_pylist()]
    images = Counter(name for name, what in zip(ids, modality, strict=True) if what == "image")
    assert found.items == Counter(modality)
    check_numbers(found, "len(text_content)", [len(text) for text in texts])
    check_numbers(found, "items.image", [images[name] for name in dict.fromkeys(ids)])
    assert found.columns["binary_content.width"].values == Counter(modality)["image"]
    assert found.columns["url"].nulls == 0
    assert found.duplicate_keys == 0


def test_keys_that_come_again_are_counted(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tar_of(*[(f"{i}.txt", b"x") for i in range(10 if name == "a.tar" else 7)]))
    assert dataset_stats(tmp_path).duplicate_keys == 7


@pytest.mark.soak
def test_any_number_of_workers_gives_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path / "d", "jsonl", rows(3000))
    one = dataset_stats(folder, workers=1)
    assert dataset_stats(folder, workers=2) == one
    assert len(list(folder.glob("*.jsonl"))) > 3


def test_steps_are_applied(tmp_path: Path) -> None:
    samples = rows()
    dataset = lading.open(written(tmp_path / "d", "parquet", samples))
    found = dataset.where("n > 10").select("n").stats(top=3)
    check_numbers(found, "n", [s["n"] for s in samples if s["n"] > 10])
    assert list(found.columns) == ["n"]
    assert len(found.columns["n"].top) == 3
    assert dataset.limit(0).stats().samples == 0


def test_wrong_calls_say_so(tmp_path: Path) -> None:
    dataset = lading.open(written(tmp_path / "d", "jsonl", rows(3)))
    with pytest.raises(UsageError, match="top=-1"):
        dataset.stats(top=-1)
    with pytest.raises(UsageError, match=r"columns is a step.*select"):
        dataset.stats(columns=["n"])


def test_many_values_are_approximate_and_say_so(tmp_path: Path) -> None:
    count = 5 * EXACT_VALUES
    draw = np.random.default_rng(1)
    values = draw.exponential(size=count)
    names = np.where(draw.random(count) < 0.3, "often", np.arange(count).astype(str))
    for i in range(5):
        part = slice(i * EXACT_VALUES, (i + 1) * EXACT_VALUES)
        pq.write_table(pa.table({"x": values[part], "name": names[part]}), tmp_path / f"{i}.parquet")
    found = dataset_stats(tmp_path).columns
    x, name = found["x"], found["name"]
    assert x.approximate == ("quantiles", "histogram", "distinct", "top")
    assert (x.min, x.max) == (values.min(), values.max())
    assert x.mean == pytest.approx(values.mean())
    for part, value in x.quantiles.items():
        assert (values < value).mean() == pytest.approx(part, abs=0.015)
    assert x.distinct == pytest.approx(count, rel=0.04)
    assert x.histogram is not None
    assert sum(x.histogram.counts) == count
    often = int((names == "often").sum())
    assert name.top[0][0] == "often"
    assert often - count / TOP_VALUES <= name.top[0][1] <= often
    assert "~ approximate" in repr(dataset_stats(tmp_path))
    assert "≥ at least" in repr(dataset_stats(tmp_path))
    one = dataset_stats(tmp_path / "0.parquet")
    assert one.columns["x"].approximate == ("top",)
    assert "~" not in repr(one)


@pytest.mark.parametrize(
    "values",
    [[1 << 60] * 3, [1 << 60, (1 << 60) + 1], [7], [1e-320, 0.0], [1e308, -1e308], [float("inf"), 1.0], [0.1] * 2],
)
def test_a_histogram_of_odd_numbers_holds_all_that_are_finite(values: list[float]) -> None:
    numbers = NumberSummary()
    numbers.add(np.array(values), mixed(np.arange(len(values))))
    shown = numbers.histogram()
    assert shown is not None
    assert sum(shown.counts) == np.isfinite(np.array(values, np.float64)).sum()
    assert numbers.quantiles((0.0,)) == [min(values)]


def test_infinite_numbers_have_infinite_means() -> None:
    numbers = NumberSummary()
    for part in ([1.0, float("inf")], [float("inf")], [2.0]):
        one = NumberSummary()
        one.add(np.array(part), mixed(np.arange(len(part))))
        numbers.merge(one)
    assert (numbers.mean, numbers.std, numbers.high) == (float("inf"), None, float("inf"))


numbers = st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), max_size=60)


@given(numbers, st.integers(0, 60))
def test_merged_numbers_are_those_of_all(values: list[float], cut: int) -> None:
    places = mixed(np.arange(len(values)))
    parts = []
    for mine in (slice(0, cut), slice(cut, None)):
        parts.append(NumberSummary())
        parts[-1].add(np.array(values[mine], np.float64), places[mine])
    parts[0].merge(parts[1])
    assert parts[0].count == len(values)
    if values:
        assert (parts[0].low, parts[0].high) == (min(values), max(values))
        assert parts[0].mean == pytest.approx(np.mean(values))
        assert parts[0].quantiles(QUANTILES) == pytest.approx(np.quantile(values, QUANTILES).tolist())
    if len(values) > 1:
        assert parts[0].std == pytest.approx(np.std(values, ddof=1), abs=1e-6)


@given(st.lists(st.integers(0, 30)), st.integers(0, 60))
def test_merged_counts_are_those_of_all(values: list[int], cut: int) -> None:
    parts = []
    for mine in (values[:cut], values[cut:]):
        found = Counter(mine)
        parts.append(Counts())
        parts[-1].add(mixed(np.array(list(found), np.int64)), np.array(list(found.values()), np.int64),
                      np.array(list(found), object))  # fmt: skip
    parts[0].merge(parts[1])
    assert dict(parts[0].top(100)) == Counter(values)
    assert parts[0].distinct == len({*values})


def test_samples_and_estimates_do_not_depend_on_the_cut() -> None:
    values = np.random.default_rng(0).normal(size=3 * EXACT_VALUES)
    places = mixed(np.arange(len(values)))
    whole, cut = NumberSummary(), NumberSummary()
    whole.add(values, places)
    for part in np.array_split(np.arange(len(values)), 7)[::-1]:
        one = NumberSummary()
        one.add(values[part], places[part])
        cut.merge(one)
    assert whole.quantiles(QUANTILES) == cut.quantiles(QUANTILES)


def test_repeated_keys_are_estimated_beyond_what_is_held() -> None:
    keys, other = Keys(most=20_000), Keys(most=20_000)
    for begin in range(0, 100_000, 1000):
        keys.add(mixed(np.arange(begin, begin + 1000)))
    other.add(mixed(np.arange(50_000)))
    keys.merge(other)
    assert not keys.is_exact
    assert keys.repeated == pytest.approx(50_000, rel=0.05)


def test_facts_are_json_a_table_and_text(tmp_path: Path) -> None:
    found = dataset_stats(written(tmp_path / "d", "parquet", rows()))
    told = json.loads(json.dumps(found.to_dict()))
    assert told["columns"]["n"]["histogram"]["counts"] == list(found.columns["n"].histogram.counts)  # type: ignore[union-attr]
    table = found.to_table()
    assert table["name"].to_pylist() == list(found.columns)
    assert table["q50"].to_pylist()[0] == found.columns["n"].median
    assert repr(found).splitlines()[0] == f"700 samples, {repr(found).splitlines()[0].split(', ')[1]}"
    assert "█" in repr(found)
    assert "<svg" in found._repr_html_()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_table_is_as_wide_as_the_terminal(docs: Path, width: int) -> None:
    found = dataset_stats(docs)
    lines = as_text(found, width).splitlines()
    assert max(map(len, lines[1:])) <= max(width, 76)
    assert ("mean" in lines[2]) == (width > 100)
    assert any(line.startswith("binary_content.width") for line in lines)
    assert not any(line.startswith("materialize_error") for line in lines)


def test_text_of_a_file_does_not_control_the_terminal(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a\x1b[2J": ["\x1b]0;x\x07<b>"] * 3}), tmp_path / "0.parquet")
    found = dataset_stats(tmp_path)
    assert "\x1b" not in repr(found)
    assert "<b>" not in found._repr_html_().replace("<b>3 samples", "")
