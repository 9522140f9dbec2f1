"""Conditions on fields inside columns, in every format, against the same test in Python."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading.errors import UsageError
from tars import tar_of

COUNT = 60


def _jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG")
    return file.getvalue()


def _meta(i: int) -> dict[str, Any]:
    meta: dict[str, Any] = {"score": i if i % 2 else i / 8, "tags": ["x", "y", "z"][: i % 4], "in": {"odd key": i % 5}}
    if i % 7:
        meta["lang"] = "en" if i % 3 else "de"
    if i % 10 == 0:
        meta["score"] = "none"
    return meta


SAMPLES: list[dict[str, Any]] = [
    {"__key__": f"{i:04}", "json": _meta(i), "txt": "word " * (i % 9), "cls": i % 4, "jpg": (100 + i, 150)}
    for i in range(COUNT)
]


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for sample in SAMPLES:
            members = {
                "json": json.dumps(sample["json"]).encode(),
                "txt": sample["txt"].encode(),
                "cls": str(sample["cls"]).encode(),
                "jpg": _jpeg(*sample["jpg"]),
            }
            for name, data in members.items():
                info = tarfile.TarInfo(f"{sample['__key__']}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sources")
    (root / "a.tar").write_bytes(_tar())
    (root / "a.tar.gz").write_bytes(gzip.compress(_tar()))
    for name in ("parquet", "arrow", "mds"):
        lading.open(root / "a.tar").write(root / name, format=name)
    return {
        "tar": root / "a.tar",
        "tar.gz": root / "a.tar.gz",
        **{name: root / name for name in ("parquet", "arrow", "mds")},
    }


CASES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("json.lang == 'en'", lambda s: s["json"].get("lang") == "en"),
    ("json.lang != 'en'", lambda s: s["json"].get("lang") == "de"),
    ("json.lang is null", lambda s: "lang" not in s["json"]),
    ("json.lang in ('de', 'fr') or json.lang is null", lambda s: s["json"].get("lang") != "en"),
    ("json.score > 20", lambda s: s["json"]["score"] != "none" and s["json"]["score"] > 20),
    ("json.score == 'none'", lambda s: s["json"]["score"] == "none"),
    ("json.tags[0] == 'x' and json.tags[-1] == 'y'", lambda s: s["json"]["tags"] == ["x", "y"]),
    ("len(json.tags) >= 2", lambda s: len(s["json"]["tags"]) >= 2),
    ("json['in']['odd key'] + 1 == 3", lambda s: s["json"]["in"]["odd key"] == 2),
    ("len(txt) > 20", lambda s: len(s["txt"]) > 20),
    ("contains(txt, 'word')", lambda s: "word" in s["txt"]),
    ("cls == 3", lambda s: s["cls"] == 3),
    ("jpg.width >= 120 and jpg.height >= 120", lambda s: s["jpg"][0] >= 120),
    ("jpg.width / jpg.height > 1", lambda s: s["jpg"][0] > s["jpg"][1]),
    ("jpg.aspect_ratio > 1", lambda s: s["jpg"][0] > s["jpg"][1]),
    ("jpg.aspect_ratio == 1", lambda s: s["jpg"][0] == s["jpg"][1]),
    ("'y' in json.tags", lambda s: "y" in s["json"]["tags"]),
    ("'x' not in json.tags or 'z' in json.tags", lambda s: "x" not in s["json"]["tags"] or "z" in s["json"]["tags"]),
    ("jpg.format == 'jpeg' and json.lang == 'de'", lambda s: s["json"].get("lang") == "de"),
]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["tar", "tar.gz", "parquet", "arrow", "mds"])
def test_conditions_keep_what_python_keeps(sources: dict[str, Path], name: str) -> None:
    ds = lading.open(sources[name])
    for condition, keeps in CASES:
        assert _keys(ds.where(condition)) == [s["__key__"] for s in SAMPLES if keeps(s)], condition


_LISTS: list[Any] = [
    ["cat", "dog"], [], None, ["ca", "t", None], [1, "cat", 2.5, True], [1.0], [[1], {"cat": 1}], ['c"at', "é"],
    [2**70, 0], [False], "cat", {"cat": 2},
]  # fmt: skip
_MEMBERS: list[Any] = ["cat", 'c"at', "é", 1, 2.5, 0, 2**70, True, False, "1"]


def test_json_lines_with_numbers_in_one_file_and_texts_in_another(tmp_path: Path) -> None:
    files = {"a": [{"id": 1, "n": 1, "t": "x"}], "b": [{"id": "one", "n": 2.5, "t": None}]}
    (tmp_path / "in").mkdir()
    for name, rows in files.items():
        (tmp_path / "in" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = [f"column of several types: {each}" for each in (
        "id (int64 in a.jsonl, string in b.jsonl)", "n (int64 in a.jsonl, double in b.jsonl)",
    )]  # fmt: skip
    assert lading.info(tmp_path / "in", progress=False).counts == dict.fromkeys(lines, 1)
    done = lading.convert(tmp_path / "in", tmp_path / "out", format="parquet")
    assert done.counts == dict.fromkeys(lines, 1)
    found = [row["id"] for row in pq.read_table(tmp_path / "out").to_pylist()]
    assert [json.loads(text) for text in found] == [rows[0]["id"] for rows in files.values()]
    (tmp_path / "in" / "b.jsonl").unlink()
    assert not lading.info(tmp_path / "in", progress=False).counts


def _is_in(literal: Any, items: Any) -> bool | None:
    """Return whether an item of a list is equal, as Python has it, but true is no number; None for what is no list."""
    if not isinstance(items, list):
        return None
    return any(isinstance(each, bool) == isinstance(literal, bool) and each == literal for each in items)


@pytest.mark.parametrize("name", ["tar", "parquet", "jsonl"])
def test_membership_in_json_lists(tmp_path: Path, name: str) -> None:
    rows = [{"__key__": f"{i}", "json": {"tags": tags}} for i, tags in enumerate(_LISTS)]
    with lading.writer(tmp_path / "in", format="webdataset" if name == "tar" else name) as writer:
        for row in rows:
            writer.write(row)
    ds = lading.open(tmp_path / "in")
    for literal in _MEMBERS:
        shown = str(literal).lower() if isinstance(literal, bool) else repr(literal)
        right = {
            answer: [f"{i}" for i, tags in enumerate(_LISTS) if _is_in(literal, tags) is answer]
            for answer in (True, False)
        }
        if right[True]:
            assert _keys(ds.where(f"{shown} in json.tags")) == right[True], literal
        assert _keys(ds.where(f"{shown} not in json.tags")) == right[False], literal


_TYPED: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "list": ([["a", "b"], [], None, [None, "b"]], pa.list_(pa.string()), ["a", "b", "c"]),
    "large": ([[1, 2], [2**53 + 1], [], None], pa.large_list(pa.int64()), [1, 2**53, 2**53 + 1, 1.5]),
    "fixed": ([[1.5, 0.1], None, [2.0, 3.0]], pa.list_(pa.float32(), 2), [0.1, 2, 9]),
    "view": ([["a"], [], None, ["b", "a"]], pa.list_view(pa.string()), ["a", "x"]),
    "bools": ([[True], [False], []], pa.list_(pa.bool_()), [True, False]),
}


@pytest.mark.cases(9)
@pytest.mark.parametrize("name", list(_TYPED))
def test_membership_in_lists_of_arrow(tmp_path: Path, name: str) -> None:
    values, kind, literals = _TYPED[name]
    table = pa.table({"__key__": [f"{i}" for i in range(len(values))], "tags": pa.array(values, kind)})
    with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    ds = lading.open(tmp_path / "in.arrow")
    for literal in literals:
        shown = str(literal).lower() if isinstance(literal, bool) else repr(literal)
        near = pa.scalar(literal, pa.float32()).as_py() if name == "fixed" else literal
        stored = table["tags"].to_pylist()
        for word, wanted in (("in", True), ("not in", False)):
            right = [f"{i}" for i, tags in enumerate(stored) if _is_in(near, tags) is wanted]
            assert _keys(ds.where(f"{shown} {word} tags")) == right, (literal, word)


def test_items_of_lists_as_stats_names_them(sources: dict[str, Path]) -> None:
    ds = lading.open(sources["tar"])
    assert "json.tags[]" in ds.stats().columns
    for condition, items in (
        ("json.tags[] == 'y'", {"y"}),
        ("'z' == json['tags'][]", {"z"}),
        ("json.tags[] in ('z', 'none') and txt != '[]'", {"z"}),
        ("json.tags[] in ('z', 'y')", {"y", "z"}),
    ):
        right = [s["__key__"] for s in SAMPLES if items & {*s["json"]["tags"]}]
        assert _keys(ds.where(condition)) == right, condition
    assert _keys(ds.where("json.tags[] not in ('z', 'y')")) == [
        s["__key__"] for s in SAMPLES if len(s["json"]["tags"]) < 2
    ]
    for condition in ("json.tags[] != 'y'", "len(json.tags[]) > 1", "json.tags[] > 'a'", "json.tags[] is null"):
        with pytest.raises(UsageError, match=r"items of a list are compared by == and in, as in json.tags\[\] == 'a'"):
            list(ds.where(condition))
    with pytest.raises(UsageError, match="the list is empty"):
        list(ds.where("txt in []"))


def test_wrong_memberships(sources: dict[str, Path]) -> None:
    ds = lading.open(sources["tar"])
    for condition, message in (
        ("'word' in txt", "is not a list; for a piece of a text write contains\\(x, 'word'\\)"),
        ("3 in cls", "is not a list; write == 3"),
        ("txt in json.tags", "or a value and a column of lists, 'a' in x"),
        ("'a' in json.lang", "no sample has a list in this field"),
    ):
        with pytest.raises(UsageError, match=message):
            list(ds.where(condition))


@pytest.mark.parametrize("source, condition, meant, keeps", [
    ("tar", "lang == en", "json.lang == 'en'", lambda s: s["json"].get("lang") == "en"),
    ("tar", "json.lang == en", "json.lang == 'en'", lambda s: s["json"].get("lang") == "en"),
    ("tar", "txt != word", "txt != 'word'", lambda s: s["txt"] != "word"),
    ("tar", "width > 120", "jpg.width > 120", lambda s: s["jpg"][0] > 120),
    ("tar", "score > 20", "json.score > 20", lambda s: s["json"]["score"] != "none" and s["json"]["score"] > 20),
])  # fmt: skip
def test_the_commonest_slips_are_told_with_what_is_meant(
    sources: dict[str, Path], source: str, condition: str, meant: str, keeps: Callable[[dict[str, Any]], bool]
) -> None:
    ds = lading.open(sources[source])
    with pytest.raises(UsageError) as caught:
        list(ds.where(condition))
    name = meant.partition(" ")[0]
    assert "no such column" in str(caught.value)
    assert re.search(rf"(column: |or |quotes: ){re.escape(name)}\b", str(caught.value))
    assert ("quotes" not in str(caught.value)) or f"Texts stand in quotes: {meant}." in str(caught.value)
    assert _keys(ds.where(meant)) == [s["__key__"] for s in SAMPLES if keeps(s)]


def test_slips_on_tables(tmp_path: Path) -> None:
    pq.write_table(pa.table({"lang": ["en"], "score": [1]}), tmp_path / "a.parquet")
    for condition, advice in (
        ("lang == en", "Texts stand in quotes: lang == 'en'."),
        ("lan == en", "Did you mean lang? Texts stand in quotes: lang == 'en'."),
        ("score > scores", "Did you mean score? Texts stand in quotes: score > 'scores'."),
    ):
        with pytest.raises(UsageError) as caught:
            list(lading.open(tmp_path / "a.parquet").where(condition))
        assert str(caught.value).endswith(advice)


@pytest.mark.parametrize("name", ["tar", "parquet"])
def test_aspect_ratio_is_a_fact_of_images(sources: dict[str, Path], name: str) -> None:
    ds = lading.open(sources[name])
    for low in (0.7, 1, 1.05):
        right = [s["__key__"] for s in SAMPLES if s["jpg"][0] / s["jpg"][1] >= low]
        assert _keys(ds.where(f"jpg.aspect_ratio >= {low}")) == right
    table = ds.select("jpg.aspect_ratio").take(range(COUNT))
    assert table["jpg.aspect_ratio"].to_pylist() == [s["jpg"][0] / s["jpg"][1] for s in SAMPLES]


def test_conversion_counts_samples_without_the_field(sources: dict[str, Path], tmp_path: Path) -> None:
    done = lading.convert(
        sources["tar"], tmp_path / "out", format="parquet", where="json.score > 20 and json.lang == 'en'"
    )
    assert done.samples == sum(
        s["json"]["score"] != "none" and s["json"]["score"] > 20 and s["json"].get("lang") == "en" for s in SAMPLES
    )
    assert done.filtered_rows == COUNT - done.samples
    misfit = {s["__key__"] for s in SAMPLES if s["json"]["score"] == "none" and s["json"].get("lang") != "de"}
    absent = {
        s["__key__"]
        for s in SAMPLES
        if "lang" not in s["json"] and s["json"]["score"] != "none" and s["json"]["score"] > 20
    }
    assert done.counts["json.score is not a number, filtered"] == len(misfit)
    assert done.counts["without json.lang, filtered"] == len(absent)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_field_that_no_sample_has(sources: dict[str, Path], tmp_path: Path, workers: int) -> None:
    with pytest.raises(UsageError, match=r"no sample has this field; expected json.score.*Did you mean lang\?"):
        lading.convert(sources["tar"], tmp_path / "out", format="parquet", where="json.langg == 'en'", workers=workers)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match=r"no sample has this field"):
        len(lading.open(sources["tar"]).where("json.langg == 'en'"))


def test_a_field_of_another_kind_in_every_sample(sources: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sample has a number in this field"):
        lading.convert(sources["tar"], tmp_path / "out", format="parquet", where="json.lang > 5")
    with pytest.raises(UsageError, match="no sample has a number in this field"):
        list(lading.open(sources["tar"]).where("json.lang > 5"))
    with pytest.raises(UsageError) as caught:
        list(lading.open(sources["tar"]).where("contains(json.tags, 'x')"))
    assert caught.value.advice == "It is a list: 'x' in json.tags."


def test_json_lines_and_texts_that_hold_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"meta": s["json"], "t": s["txt"]}) + "\n" for s in SAMPLES))
    ds = lading.open(path).where("meta.lang == 'en' and len(meta.tags) > 1")
    assert len(ds) == sum(s["json"].get("lang") == "en" and len(s["json"]["tags"]) > 1 for s in SAMPLES)
    table = tmp_path / "a.csv"
    table.write_text('id,meta\n1,"{""lang"": ""en""}"\n2,\n3,"{""lang"": ""de""}"\n')
    assert [s["id"] for s in lading.open(table).where("meta.lang == 'de'")] == ["3"]


def test_images_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"image": [{"bytes": _jpeg(10 * i, 20), "path": None} for i in range(1, 6)], "n": list(range(5))}
    features = datasets.Features({"image": datasets.Image(), "n": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "hf")
    assert [s["n"] for s in lading.open(tmp_path / "hf").where("image.width >= 30")] == [2, 3, 4]


def _wav(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(2 * int(8000 * seconds)))
    return file.getvalue()


def test_audio_and_video_by_their_headers(tmp_path: Path) -> None:
    movie = (Path(__file__).parents[1] / "content" / "media" / "end.mp4").read_bytes()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(8):
            members = {"wav": _wav(i / 2), **({"mp4": movie} if i % 2 else {})}
            for name, data in members.items():
                info = tarfile.TarInfo(f"{i}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    ds = lading.open(tmp_path / "a.tar")
    assert _keys(ds.where("wav.duration_s > 2 and wav.sample_rate == 8000")) == ["5", "6", "7"]
    assert _keys(ds.where("mp4.fps == 25 and mp4.width == 64 and mp4.codec == 'h264'")) == ["1", "3", "5", "7"]
    assert _keys(ds.where("mp4.duration_s is null")) == ["0", "2", "4", "6"]


def _keys(ds: lading.Dataset) -> list[str]:
    return [key for batch in ds.batches(lazy=True) for key in batch["__key__"].to_pylist()]


@pytest.mark.parametrize(
    "condition, says",
    [
        ("jpg == 'x'", "bytes cannot be compared with 'x'"),
        ("jpg.widht > 3", "Did you mean width?"),
        ("jsn.lang == 'en'", "Did you mean json?"),
        ("lang == 'en'", "Fields of JSON are named after their column: json.lang"),
        ("webp.width > 3", "Fields of media are named after their column: jpg.width."),
        ("width > 3", "Fields of media and JSON are named after their column: jpg.width or json.width."),
        ("cls.x == 1", "JSON"),
    ],
)
def test_errors_name_no_type_of_lading(sources: dict[str, Path], tmp_path: Path, condition: str, says: str) -> None:
    with pytest.raises(lading.LadingError) as caught:
        lading.convert(sources["tar"], tmp_path / "out", format="parquet", where=condition)
    assert "RefType" not in str(caught.value)
    assert says in str(caught.value) or "no sample has" in str(caught.value)


@pytest.mark.parametrize("name", ["tar", "tar.gz", "parquet", "arrow", "mds"])
def test_fields_become_columns(sources: dict[str, Path], tmp_path: Path, name: str) -> None:
    ds = lading.open(sources[name]).select("json.lang", "json.tags", "json.tags[0]", "json.score", "jpg.width", "cls")
    assert ds.columns == ["__key__", "json.lang", "json.tags", "json.tags[0]", "json.score", "jpg.width", "cls"]
    ds.where("json.lang == 'en'").rename({"json.lang": "lang"}).write(tmp_path / "out", format="parquet")
    table = pq.read_table(tmp_path / "out")
    kept = [s for s in SAMPLES if s["json"].get("lang") == "en"]
    assert table["__key__"].to_pylist() == [s["__key__"] for s in kept]
    assert table["json.tags"].to_pylist() == [s["json"]["tags"] for s in kept]
    assert table["json.tags[0]"].to_pylist() == [(s["json"]["tags"] or [None])[0] for s in kept]
    assert table["jpg.width"].to_pylist() == [s["jpg"][0] for s in kept]
    # Values of several kinds stay JSON.
    assert [json.loads(text) for text in table["json.score"].to_pylist()] == [s["json"]["score"] for s in kept]
    assert ds[3]["json.lang"] == SAMPLES[3]["json"]["lang"]


def test_a_value_of_another_type_than_the_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"m": {"n": i if i < 2000 else "many"}}) + "\n" for i in range(2001)))
    ds = lading.open(path).select("m.n")
    assert ds.schema.field("m.n").type == pa.int64()
    with pytest.raises(lading.LadingError, match=r"column 'm\.n': a value of another type than in the first samples"):
        list(ds.batches())


def test_a_column_with_dots_is_a_column(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("0.seg.png", "0.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
    assert lading.open(tmp_path / "a.tar").select("seg.png").columns == ["__key__", "seg.png"]


@pytest.mark.soak
@pytest.mark.parametrize("condition", ["json.lang == 'de'", "jpg.height >= 600"])
def test_few_bytes_are_read_where_few_samples_stay(tmp_path: Path, condition: str) -> None:
    random = np.random.default_rng(0)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(100):
            height, language = (600, "de") if i % 20 == 0 else (400, "en")
            file = io.BytesIO()
            Image.fromarray(random.integers(0, 255, (height, 500, 3), np.uint8)).save(file, "JPEG", quality=90)
            for name, data in {"jpg": file.getvalue(), "json": json.dumps({"lang": language}).encode()}.items():
                info = tarfile.TarInfo(f"{i:04}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    store = CountingStore(LocalStore())
    ds = lading.open(tmp_path / "a.tar", stores=Stores({str(tmp_path): store}))
    store.reset()
    assert sum(batch.num_rows for batch in ds.where(condition).batches()) == 5
    assert store.bytes_read <= (tmp_path / "a.tar").stat().st_size / 10


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in folders that name their labels: 3 cats, 2 dogs; also as Parquet and MDS."""
    folder = tmp_path_factory.mktemp("labels")
    for name, count in (("cat", 3), ("dog", 2)):
        (folder / "files" / name).mkdir(parents=True)
        for i in range(count):
            (folder / "files" / name / f"{i}.jpg").write_bytes(_jpeg(10 + i, 10))
    for target in ("parquet", "mds", "webdataset"):
        lading.convert(folder / "files", folder / target, format=target)
    return folder


@pytest.mark.parametrize("name", ["files", "parquet", "mds", "webdataset"])
@pytest.mark.parametrize(
    "condition, labels",
    [
        ("label == 'dog'", [1, 1]),
        ("label != 'dog'", [0, 0, 0]),
        ("label in ('cat', 'dog')", [0, 0, 0, 1, 1]),
        ("startswith(label, 'd')", [1, 1]),
        ("label == 0 and image.width > 10", [0, 0]),
    ],
)
def test_labels_are_compared_by_name_and_by_number(pets: Path, name: str, condition: str, labels: list[int]) -> None:
    assert [sample["label"] for sample in lading.open(pets / name).where(condition)] == labels


def test_a_label_that_is_none_is_refused(pets: Path) -> None:
    for condition in ("label == 'dgo'", "label != 'dgo'", "image.width > 1 and not label in ('cat', 'dgo')"):
        with pytest.raises(UsageError, match=r"no such label; expected cat, dog, found 'dgo'. Did you mean dog\?"):
            len(lading.open(pets / "parquet").where(condition))


def test_names_are_found_in_later_samples_and_behind_steps(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "late", format="webdataset") as writer:
        for i in range(600):
            writer.write({"__key__": f"{i:03}", "txt": "x", **({"json": {"a": i}} if i > 500 else {})})
    late = lading.open(tmp_path / "late")
    for dataset, field in ((late, "json"), (late.rename({"json": "meta"}), "meta")):
        with pytest.raises(UsageError, match=rf"no sample has this field; expected {field}.a, found '{field}.b'"):
            len(dataset.where(f"{field}.b == 1"))
    with pytest.raises(UsageError, match=r"found 'more.b'. A step makes the column. ds.head\(1\)"):
        len(late.map(lambda sample: {"more": {"a": 1}}).where("more.b == 1"))
    pq.write_table(pa.table({"j": ['{"x": 1}', '{"x": 2}']}), tmp_path / "texts.parquet")
    with pytest.raises(UsageError, match=r"no sample has this field; expected j.x, found 'j.y'"):
        len(lading.open(tmp_path / "texts.parquet").where("j.y == 1"))


def test_a_field_that_lies_deeper_is_named_with_its_place(tmp_path: Path) -> None:
    text = b'{"lang": "en", "meta": {"camera": {"lens": 35}}}'
    (tmp_path / "a.tar").write_bytes(tar_of(("0.json", text)))
    for name, meant in (("json.lens", "json.meta.camera.lens"), ("json.meta.lens", "json.meta.camera.lens")):
        with pytest.raises(UsageError, match=rf"no sample has this field.*Did you mean {meant}\?"):
            list(lading.open(tmp_path / "a.tar").where(f"{name} > 3"))
    with pytest.raises(UsageError, match=r"no such column.*named after their column: json\.lens"):
        list(lading.open(tmp_path / "a.tar").sort("lens"))
