"""Splits partition, and dedup keeps the first of equal samples, as plain Python computes them, in every format."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import lading
from documents import SAMPLES, documents
from lading._core.jobs.convert import schedule
from lading.errors import UsageError

FORMATS = {"webdataset": "20kb", "parquet": "2kb", "mds": "1kb", "jsonl": "1kb", "arrow": "1kb", "csv": "1kb"}
"""Formats, and the size that gives several shards."""
SOURCES = (*FORMATS, "files")

COUNT = 120
_RNG = np.random.default_rng(8)
URLS = [f"u{i}" for i in _RNG.integers(0, 40, COUNT)]
NUMBERS = _RNG.integers(0, 4, COUNT).tolist()
TEXTS = [f"text {i}" for i in _RNG.integers(0, 6, COUNT)]
KEYS = [f"{i:05}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def plain_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`plain_in("mds")`: samples of several shards, with values that come again. Each format is written once."""

    @cache
    def written(fmt: str) -> Path:
        folder = tmp_path_factory.mktemp("dedup") / "plain"
        if fmt == "files":
            folder.mkdir()
            for i, key in enumerate(KEYS):
                for name, value in {"url": URLS[i], "n": NUMBERS[i], "txt": TEXTS[i]}.items():
                    (folder / f"{key}.{name}").write_text(str(value))
            return folder
        with lading.writer(folder, format=fmt, shard_size=FORMATS[fmt]) as writer:
            for at in range(0, COUNT, 12):
                some = slice(at, at + 12)
                writer.write_batch(
                    pa.table({"__key__": KEYS[some], "url": URLS[some], "n": NUMBERS[some], "txt": TEXTS[some]})
                )
        return folder

    return written


@pytest.fixture(params=SOURCES)
def plain(request: pytest.FixtureRequest, plain_in: Callable[[str], Path]) -> Iterator[lading.Dataset]:
    """The samples in a format. The tests only read them."""
    with lading.open(plain_in(request.param), format="files" if request.param == "files" else None) as dataset:
        yield dataset


def _keys(dataset: lading.Dataset) -> list[str]:
    return [str(sample["__key__"]) for sample in dataset]


def _first(values: list[Any]) -> list[int]:
    """Return the places of the first of equal values."""
    return sorted({value: i for i, value in reversed([*enumerate(values)])}.values())


def _last(values: list[Any]) -> list[int]:
    return sorted({value: i for i, value in enumerate(values)}.values())


# Splits


_SHARES: list[dict[str, float]] = [{"train": 0.9, "val": 0.1}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, {"all": 1.0}]


@pytest.mark.parametrize(
    "plain, split", [*product(SOURCES, product(_SHARES, [None, "url", ["n", "txt"]]))], indirect=["plain"]
)
def test_a_split_partitions(plain: lading.Dataset, split: tuple[dict[str, float], Any]) -> None:
    shares, by = split
    parts = plain.split(shares, seed=3, by=by)
    keys = {name: _keys(part) for name, part in parts.items()}
    assert list(keys) == list(shares)
    assert sorted(key for part in keys.values() for key in part) == KEYS
    for name, part in parts.items():
        assert keys[name] == sorted(keys[name])
        assert len(part) == len(keys[name])
        if keys[name]:
            assert part[-1]["__key__"] == keys[name][-1]
        assert _keys(pickle.loads(pickle.dumps(part))) == keys[name]
        assert lading.digest(part).count == len(part)
    if by is None:
        assert [len(part) for part in keys.values()] == [round(share * COUNT) for share in shares.values()]


@pytest.mark.parametrize("by", ["url", ["url"], ["n", "txt"]])
def test_no_group_is_on_both_sides(plain: lading.Dataset, by: Any) -> None:
    names = [by] if isinstance(by, str) else by
    parts = plain.split({"train": 0.6, "val": 0.4}, by=by)
    groups = [{tuple(str(sample[name]) for name in names) for sample in part} for part in parts.values()]
    assert all(groups)
    assert not groups[0] & groups[1]


def test_groups_stay_where_they_are_in_every_format(tmp_path: Path) -> None:
    rows = [{"__key__": KEYS[i], "url": URLS[i], "json": {"url": URLS[i]}} for i in range(COUNT)]
    found = []
    for number, (fmt, count) in enumerate([("webdataset", COUNT), ("parquet", COUNT), ("jsonl", 50)]):
        with lading.writer(tmp_path / str(number), format=fmt) as writer:
            for row in rows[:count]:
                writer.write(row if fmt != "parquet" else {k: v for k, v in row.items() if k != "json"})
        with lading.open(tmp_path / str(number)) as ds:
            names = ["url"] if fmt == "parquet" else ["url", "json.url"]
            found += [set(_keys(ds.split({"train": 0.5, "val": 0.5}, by=name)["val"])) for name in names]
    whole, less = found[0], {*KEYS[:50]}
    assert 0 < len(whole) < COUNT
    assert all(one == whole for one in found[:3])
    assert all(one == whole & less for one in found[3:])


@pytest.mark.soak
def test_another_seed_is_another_split(plain: lading.Dataset) -> None:
    for by in (None, "url"):
        one, same, other = (_keys(plain.split({"a": 0.5, "b": 0.5}, seed=s, by=by)["a"]) for s in (0, 0, 1))
        assert one == same != other


def test_the_number_of_samples_of_a_split(plain: lading.Dataset) -> None:
    parts = plain.split({"val": 7, "test": 0.25, "train": None})
    assert {name: len(part) for name, part in parts.items()} == {"val": 7, "test": 30, "train": 83}
    assert sorted(key for part in parts.values() for key in _keys(part)) == KEYS


def test_samples_without_a_group_are_groups_of_their_own(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tars", format="webdataset") as writer:
        for key in KEYS:
            writer.write({"__key__": key, "txt": "x"} if int(key) % 2 else {"__key__": key, "txt": "x", "url": "u"})
    parts = lading.open(tmp_path / "tars").split({"a": 0.5, "b": 0.5}, by="url")
    odd = [sum(int(key) % 2 for key in _keys(part)) for part in parts.values()]
    assert sum(odd) == COUNT // 2
    assert min(odd) > COUNT // 8
    assert sorted(key for part in parts.values() for key in _keys(part)) == KEYS


def _place(form: bytes, seed: int = 0) -> float:
    """Return where a group lies between 0 and 1: the first 53 bits of a hash of the seed and the canonical form."""
    found = xxhash.xxh3_128_digest(b"%d {s\x010%s}" % (seed, form))
    return (int.from_bytes(found[:8], "big") >> 11) / 2**53


def _form(value: int | str) -> bytes:
    """Return the canonical form of a value; of the text of an integer that of the integer."""
    if isinstance(value, str) and not re.fullmatch(r"0|-?[1-9][0-9]*", value):
        return b"s" + bytes([len(value.encode())]) + value.encode()
    if -(2**63) <= int(value) < 2**63:
        return b"i" + int(value).to_bytes(8, "little", signed=True)
    return b"Is" + bytes([len(str(value))]) + str(value).encode()


_MIXED = [0, 7, -3, 2**53 + 1, 2**63 - 1, 2**63, 10**20, "a", "07", "+5", "-0", "", " 7", "1.0", "u12", "é"]
_IDS: list[int | str] = [*_MIXED, *map(str, _MIXED), *range(100, 140), *map(str, range(120, 160))]


@pytest.mark.parametrize("seed", [0, 7])
def test_texts_of_integers_go_with_them_and_other_groups_stay(tmp_path: Path, seed: int) -> None:
    for number, some in enumerate([_IDS, [i for i in _IDS if isinstance(i, str)], [*range(100, 140)]]):
        lines = (json.dumps({"__key__": str(at), "id": i}) for at, i in enumerate(some))
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
        with lading.writer(tmp_path / f"{number}", format="webdataset") as writer:
            for at, i in enumerate(some):
                writer.write({"__key__": str(at), "json": {"id": i}})
        right = [str(at) for at, i in enumerate(some) if _place(_form(i), seed) < 0.5]
        assert 5 < len(right) < len(some) - 5
        sources = [(tmp_path / f"{number}", "json.id")]
        if number:  # a column has one type
            sources.append((tmp_path / f"{number}.jsonl", "id"))
            pq.write_table(pa.table({"__key__": [*map(str, range(len(some)))], "id": some}), tmp_path / "t.parquet")
            sources.append((tmp_path / "t.parquet", "id"))
        for source, name in sources:
            assert _keys(lading.open(source).split({"a": 0.5, "b": 0.5}, seed=seed, by=name)["a"]) == right, source


WRONG_SPLITS: list[tuple[Any, dict[str, Any], str]] = [
    ({"train": 0.9, "val": 0.2}, {}, "must add up to 1"),
    ({"train": 0.5, "val": 0.2}, {}, "must add up to 1"),
    ({"train": 1.2, "val": None}, {}, "must add up to 1"),
    ({"train": 1.0, "val": -0.1}, {}, "the split 'val' would be empty"),
    ({"train": 1.0, "val": 0.0}, {}, "the split 'val' would be empty"),
    ({"train": 0.999, "val": 0.001}, {}, "the split 'val' would be empty"),
    ({"train": COUNT, "val": None}, {}, "the split 'val' would be empty"),
    ({"train": COUNT + 1, "val": None}, {}, "do not add up to the samples"),
    ({"train": 10, "val": 10}, {}, "do not add up to the samples"),
    ({"train": 10, "val": None}, {"by": "url"}, "approximate sizes"),
    ({"train": 0.5, "val": 0.5}, {"by": "nope"}, "no such column"),
    ({"train": 0.5, "val": 0.5}, {"by": []}, "a field is named by a text"),
    ({}, {}, "a split names its parts"),
    ({"train": "half"}, {}, "a split is a name with a fraction"),
    ({"train": None, "val": None}, {}, "must add up to 1"),
    ({"train": 0.5, "val": 0.5}, {"seed": -1}, "a seed is a whole number"),
]


@pytest.mark.parametrize("shares, how, message", WRONG_SPLITS, ids=[message for _, _, message in WRONG_SPLITS])
def test_splits_that_cannot_be(tmp_path: Path, shares: Any, how: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table({"__key__": KEYS, "url": URLS}), tmp_path / "plain.parquet")
    with pytest.raises(UsageError) as caught:
        _keys(lading.open(tmp_path / "plain.parquet").split(shares, **how).get("val"))
    assert message in str(caught.value)


# Dedup


@pytest.mark.parametrize("keep", ["first", "last"])
def test_one_of_equal_samples_is_kept(plain: lading.Dataset, keep: Any) -> None:
    kept = _first if keep == "first" else _last
    pairs = [*zip(NUMBERS, TEXTS, strict=True)]
    cases: list[tuple[lading.Dataset, Any, list[Any]]] = [
        (plain, "url", URLS),
        (plain, ["n", "txt"], pairs),
        (plain, "key", KEYS),
        (plain, "content", [*zip(URLS, NUMBERS, TEXTS, strict=True)]),
        (plain.drop("url"), "content", pairs),
    ]
    for dataset, by, values in cases:
        found = dataset.dedup(by=by, keep=keep)
        expected = [KEYS[i] for i in kept(values)]
        assert _keys(found) == expected, by
        assert len(found) == len(expected)
        assert found[-1]["__key__"] == expected[-1]


def test_keys_that_come_again(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": URLS, "n": range(COUNT)}), tmp_path / "plain.parquet")
    found = lading.open(tmp_path / "plain.parquet").dedup()
    assert [sample["n"] for sample in found] == _first(URLS)
    assert len(lading.open(tmp_path / "plain.parquet").dedup(by="content")) == COUNT


@pytest.mark.soak
@pytest.mark.parametrize("plain", ["webdataset", "parquet", "jsonl"], indirect=True)
def test_what_is_written_is_what_is_iterated(
    plain: lading.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "ALONE_BYTES", 0)  # workers for the little that there is
    chains = {
        "dedup": plain.dedup(by=["n", "txt"]),
        "content": plain.where("n > 0").drop("url").dedup(by="content"),
        "split": plain.split({"train": 0.75, "val": 0.25})["train"],
        "group": plain.dedup(by="url").split({"a": 0.5, "b": 0.5}, by="n")["a"],
    }
    for number, (name, chain) in enumerate(chains.items()):
        files = []
        for workers in (1, 2 + number % 2):
            folder = tmp_path / f"{name}{workers}"
            chain.write(folder, format="parquet", workers=workers, shard_size="1kb", verify=True)
            files.append([file.read_bytes() for file in sorted(folder.glob("*.parquet"))])
        assert files[0] == files[1]
        assert _keys(lading.open(tmp_path / f"{name}1")) == _keys(chain)


@pytest.mark.soak
def test_duplicates_are_counted_and_listed(plain: lading.Dataset, tmp_path: Path) -> None:
    done = plain.dedup(by="url").write(tmp_path / "out.parquet", ledger=tmp_path / "ledger.jsonl")
    kept = _first(URLS)
    lost = [i for i in range(COUNT) if i not in kept]
    assert (done.samples, done.filtered_rows, done.lost_rows) == (len(kept), len(lost), 0)
    assert done.counts == {"duplicates by url, filtered": len(lost)}
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    first = {URLS[i]: KEYS[i] for i in reversed(range(COUNT))}
    assert [(line["__key__"], line["detail"]) for line in lines] == [
        (KEYS[i], f"equal to sample {first[URLS[i]]!r}") for i in lost
    ]
    assert all(Path(line["file"]).exists() and line["outcome"] == "filtered" for line in lines)


def test_a_null_equals_nothing(tmp_path: Path) -> None:
    pairs = [(1, None), (1, None), (None, 2), (1, 2), (1.0, 2), (None, 2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"a": a, "b": b}) for a, b in pairs))
    ds = lading.open(tmp_path / "rows.jsonl")
    kept = [(row.get("a"), row.get("b")) for row in ds.dedup(by=["a", "b"])]
    assert kept == [(1, None), (1, None), (None, 2), (1, 2), (None, 2)]
    done = ds.dedup(by=["a", "b"]).write(tmp_path / "out.parquet")
    assert done.counts["samples without a value of a and b, kept"] == 4


@pytest.mark.parametrize("target", ["webdataset", "parquet", "media_archive", "mds"])
def test_documents(tmp_path: Path, target: str) -> None:
    samples = [(f"{name}{again}", items, {"lang": "en", "url": name}) for again in "xy" for name, items, _ in SAMPLES]
    (tmp_path / "docs.tar").write_bytes(documents(*samples))
    lading.convert(tmp_path / "docs.tar", tmp_path / "docs", format=target)
    ds = lading.open(tmp_path / "docs")
    ids = [name for name, _, _ in samples]
    assert [s["sample_id"] for s in ds.dedup(by="url")] == ids[: len(SAMPLES)]
    assert [s["sample_id"] for s in ds.dedup(by="content")] == ids[: len(SAMPLES)]
    assert [s["sample_id"] for s in ds.dedup()] == ids
    parts = [[s["sample_id"] for s in part] for part in ds.split({"a": 0.5, "b": 0.5}, by="url").values()]
    assert sorted(parts[0] + parts[1]) == sorted(ids)
    assert all(Counter(name[:-1] for name in part).most_common()[-1][1] == 2 for part in parts if part)
    exact = [[s["sample_id"] for s in part] for part in ds.split({"a": 0.5, "b": 0.5}).values()]
    assert [len(part) for part in exact] == [len(SAMPLES)] * 2
    assert sorted(exact[0] + exact[1]) == sorted(ids)


def test_a_field_that_no_sample_has_is_refused(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="webdataset", shard_size="2KB") as writer:
        for number in range(9):
            writer.write({"__key__": str(number), "json": {"id": number, **({"late": 1} if number > 7 else {})}})
    found = lading.open(tmp_path / "in")
    table = pa.table({"id": [1], "score": [2]})
    for use in (
        lambda name: list(found.split({"a": 0.5, "b": None}, by=name)["a"]),
        lambda name: list(found.dedup(by=name)),
        lambda name: list(found.sort(name)),
        lambda name: list(found.select(name)),
        lambda name: list(found.join(table, on={name: "id"})),
    ):
        use("json.late")
        with pytest.raises(UsageError, match=r"no sample has this field; expected json.id.*, found 'json.nothing'"):
            use("json.nothing")
