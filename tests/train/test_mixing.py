"""Mixtures: exact proportions in any span, one order for all ranks, resume in the middle, weights that change."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lading
from lading._core.api.dataset import Dataset
from lading._core.train.mixing import Proportions
from lading.errors import DataError, UsageError
from training import Job, keys, resumed

_WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 9)), min_size=1, max_size=6).filter(any)


def _one_by_one(weights: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The next sample is always the one whose time comes first."""
    seen = np.zeros(len(weights), np.int64)
    found = []
    with np.errstate(divide="ignore"):
        for _ in range(count):
            source = int(np.argmin((seen + 0.5) / weights))
            found.append((source, int(seen[source])))
            seen[source] += 1
    return found


@given(weights=_WEIGHTS, data=st.data())
def test_positions_are_what_one_step_after_the_other_gives(weights: list[float], data: st.DataObject) -> None:
    proportions = Proportions.of({str(i): weight for i, weight in enumerate(weights)}, {})
    expected = _one_by_one(proportions.weights[0], 200)
    asked = data.draw(st.lists(st.integers(0, 199), max_size=40))
    source, sample = proportions.at(np.array(asked, np.int64))
    assert [*zip(source.tolist(), sample.tolist(), strict=True)] == [expected[i] for i in asked]


@given(weights=_WEIGHTS, start=st.integers(0, 10**12), length=st.integers(1, 300))
def test_any_stretch_has_the_proportions(weights: list[float], start: int, length: int) -> None:
    proportions = Proportions.of({str(i): weight for i, weight in enumerate(weights)}, {})
    before, after = proportions.counts(np.array([start, start + length]))
    assert (after - before).sum() == length
    assert np.abs((after - before) - proportions.weights[0] * length).max() <= len(weights)


def test_weights_change_at_a_position() -> None:
    proportions = Proportions.of({"a": 0.7, "b": 0.3}, {100: {"a": 0.1, "b": 0.9}, 200: {"b": 1}})
    assert proportions.counts(np.array([0, 10, 100, 200, 300])).tolist() == [
        [0, 0], [7, 3], [70, 30], [80, 120], [80, 220],
    ]  # fmt: skip
    assert proportions.position(1, 121) == 201


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Three datasets of other formats, sizes and columns."""
    folder = tmp_path_factory.mktemp("mix")
    for name, fmt, count in (("web", "webdataset", 40), ("books", "parquet", 25), ("code", "mds", 10)):
        with lading.writer(folder / name, format=fmt, rows_per_shard=8) as writer:
            for i in range(count):
                more = {"stars": i} if name == "code" else {}
                writer.write({"__key__": f"{name}-{i:03}", "txt": f"{name} {i}", **more})
    return {name: lading.open(folder / name) for name in ("web", "books", "code")}


def _mixed(sources: dict[str, Dataset], **options: Any) -> Any:
    return lading.mix({name: (sources[name], w) for name, w in (("web", 5), ("books", 3), ("code", 2))}, **options)


def _keys(loader: Any) -> list[str]:
    return [key for batch in loader for key in batch["__key__"]]


@pytest.mark.parametrize("stop, counts", [("first", (25, 15, 10)), ("all", (42, 25, 17))])
@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_an_epoch_ends(sources: dict[str, Dataset], stop: Any, counts: tuple[int, ...], shuffle: Any) -> None:
    loader = lading.loader(_mixed(sources, stop=stop, seed=1), 7, shuffle=shuffle, missing="list")
    keys = _keys(loader)
    seen = Counter(key.partition("-")[0] for key in keys)
    if stop == "first":
        assert len({*keys}) == len(keys)
        assert abs(len(keys) - 50) <= 3
    else:
        assert len({*keys}) == 75
        assert abs(len(keys) - 84) <= 3
    assert all(abs(seen[name] - count) <= 2 for name, count in zip(sources, counts, strict=True))
    assert len(loader) == -(-len(keys) // 7)


def test_the_next_epoch_goes_on_with_samples_that_were_not_seen(sources: dict[str, Dataset]) -> None:
    loader = lading.loader(_mixed(sources, seed=3), 10, shuffle=True, columns=["__key__"])
    first, second = (_keys(loader) for _ in range(2))
    assert first != second
    web = [key for key in first + second if key.startswith("web")]
    assert len({*web[:40]}) == 40


@pytest.mark.soak
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_training_goes_on_at_the_next_sample(sources: dict[str, Dataset], data: st.DataObject) -> None:
    """Sources of several formats, with other ranks and batches."""
    mixture = _mixed(sources, stop=data.draw(st.sampled_from(["first", "all"])), seed=2)
    options: dict[str, Any] = {"shuffle": True, "columns": ["__key__"]}
    whole = _keys(lading.loader(mixture, 1, **options))
    first, second = (Job(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))) for _ in range(2))
    steps = data.draw(st.integers(1, (len(whole) - 1) // (first.batch_size * first.world_size)))
    before, after = resumed(mixture, first, steps, second, **options)
    assert keys(before) + keys(after) == whole


def test_a_state_has_how_often_each_source_was_seen(sources: dict[str, Dataset]) -> None:
    loader = lading.loader(_mixed(sources, seed=2), 7, shuffle=True, columns=["__key__"])
    before = [key for _, batch in zip(range(3), loader, strict=False) for key in batch["__key__"]]
    assert loader.state_dict()["seen"] == {name: sum(key.startswith(name) for key in before) for name in sources}


def test_weights_may_change_from_the_position_of_a_state_on(sources: dict[str, Dataset]) -> None:
    options: dict[str, Any] = {"shuffle": True, "columns": ["__key__"]}
    loader = lading.loader(_mixed(sources, stop="never"), 10, **options)
    before = [key for _, batch in zip(range(3), loader, strict=False) for key in batch["__key__"]]
    state = loader.state_dict()
    changed = lading.loader(_mixed(sources, stop="never", schedule={30: {"code": 1}}), 10, **options)
    changed.load_state_dict(state)
    after = [key for _, batch in zip(range(2), changed, strict=False) for key in batch["__key__"]]
    assert len(before) == 30
    assert {key.partition("-")[0] for key in after} == {"code"}
    other = lading.loader(_mixed(sources, stop="never", schedule={20: {"code": 1}}), 10, **options)
    with pytest.raises(UsageError, match="the weights before the position of the state differ"):
        other.load_state_dict(state)


def test_a_mixture_without_end_has_no_length(sources: dict[str, Dataset]) -> None:
    loader = lading.loader(_mixed(sources, stop="never"), 10)
    with pytest.raises(TypeError, match="no length"):
        len(loader)


def test_columns_that_a_source_lacks_are_missing(sources: dict[str, Dataset]) -> None:
    with pytest.raises(UsageError, match=r"sample 'web-000' column 'stars': the sample has no value"):
        next(iter(lading.loader(_mixed(sources), 10)))
    whole = [key for key in _keys(lading.loader(_mixed(sources), 10, missing="skip")) if not key.startswith("code")]
    assert whole == []
    batch = next(iter(lading.loader(_mixed(sources), 10, missing={"stars": "list"})))
    for key, text, stars in zip(batch["__key__"], batch["txt"], batch["stars"], strict=True):
        name, number = key.split("-")
        assert text == f"{name} {int(number)}"
        assert stars == (int(number) if name == "code" else None)


@pytest.fixture(scope="module")
def documents() -> Dataset:
    return lading.open(str(resources.files("lading._core.data") / "docs-00000.tar"))


def _plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if value is not None}


@pytest.mark.soak
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_documents_are_mixed_with_samples(
    sources: dict[str, Dataset], documents: Dataset, shuffle: bool, workers: int
) -> None:
    """Batches hold the samples of each dataset in the proportions, as the dataset itself has them."""
    mixed = lading.mix({"docs": (documents, 0.4), "web": (sources["web"], 0.4), "code": (sources["code"], 0.2)})
    options: dict[str, Any] = {"shuffle": shuffle, "decode": False, "collate": "list", "workers": workers}
    loader = lading.loader(mixed, 5, **options)
    batches = [*loader]
    assert [sum("items" in _plain(sample) for sample in batch) for batch in batches] == [2] * 3
    samples = [_plain(sample) for batch in batches for sample in batch]
    known = {sample["sample_id"]: sample for sample in documents}
    known |= {sample["__key__"]: sample for name in ("web", "code") for sample in sources[name].with_decode(False)}
    assert len({sample.get("sample_id") or sample["__key__"] for sample in samples}) == len(samples)
    assert samples == [_plain(known[sample.get("sample_id") or sample["__key__"]]) for sample in samples]
    half = lading.loader(mixed, 5, **options)
    half.load_state_dict(loader.state_at(0, 10))
    assert [*half] == batches[2:]


@pytest.mark.soak
def test_a_mixture_with_documents_takes_columns_transforms_and_errors(
    sources: dict[str, Dataset], documents: Dataset, tmp_path: Path
) -> None:
    mixed = lading.mix({"docs": (documents, 0.5), "web": (sources["web"], 0.5)})
    batch = next(iter(lading.loader(mixed, 4, columns=["txt", "url"])))
    assert {*batch} == {"txt", "sample_id", "url", "items"}
    assert [url is None for url in batch["url"]] == [text is not None for text in batch["txt"]]
    lengths = lading.loader(mixed, 4, decode=False, transform=lambda each: {"n": len(each.get("items") or each["txt"])})
    assert next(iter(lengths))["n"].dtype == np.int64
    with pytest.raises(UsageError, match=r"no such column; expected __key__, txt, .*items, found 'nope'"):
        lading.loader(mixed, 4, columns=["nope"])
    with pytest.raises(UsageError, match="a table holds samples or documents"):
        lading.loader(mixed, 4, collate="arrow")
    with lading.writer(tmp_path / "broken", format="webdataset") as writer:
        writer.write({"__key__": "bad", "jpg": b"no image"})
    mixed = lading.mix({"docs": (documents, 0.5), "bad": (lading.open(tmp_path / "broken"), 0.5)}, stop="all")
    with pytest.raises(DataError, match=r"broken/shard-000000.tar row 0 sample 'bad' column 'jpg'"):
        next(iter(lading.loader(mixed, 4)))
    skipping = lading.loader(mixed, 4, on_error="skip", collate="list")
    assert all("items" in sample for sample in next(iter(skipping)))


def test_all_of_a_mixture_leaves_out_datasets_without_weight(sources: dict[str, Dataset]) -> None:
    mixed = lading.mix({"web": (sources["web"], 1.0), "code": (sources["code"], 0.0)}, stop="all")
    loader = lading.loader(mixed, 5, columns=["__key__"])
    assert sum(len(batch["__key__"]) for batch in islice(loader, 1000)) == len(sources["web"])


@pytest.mark.soak
@pytest.mark.parametrize("collate", ["list", "arrow"])
def test_documents_of_one_id_that_are_neighbours_stay_apart(documents: Dataset, collate: Any) -> None:
    one, other = documents[:1], documents[1:2]
    again = lading.concat([one, one, other])
    loader = lading.loader(again, 4, decode=False, collate=collate, last="pad")
    [batch] = [*loader]
    if collate == "list":
        expected = [one[0], one[0], other[0], one[0]]
        assert [{name: sample[name] for name in one[0]} for sample in batch] == expected
        for dataset in (again, again.where("n_words > 0")):
            assert dataset.__getitems__([0, 2, 1, 0]) == [dataset[i] for i in (0, 2, 1, 0)]
    else:
        rows = again.take([0, 1, 2, 0])
        assert batch.column("position").to_pylist() == rows.column("position").to_pylist()
        padding = [False] * (2 * one.take([0]).num_rows + other.take([0]).num_rows) + [True] * one.take([0]).num_rows
        assert batch.column("__padding__").to_pylist() == padding


def test_sources_are_opened(sources: dict[str, Dataset]) -> None:
    paths = {name: (str(each.query.source), 1) for name, each in sources.items()}
    datasets = {name: (each, 1) for name, each in sources.items()}
    one, other = (_keys(lading.loader(lading.mix(each), 6, columns=["__key__"])) for each in (paths, datasets))
    assert one == other


@pytest.mark.soak
def test_ranks_share_a_mixture(sources: dict[str, Dataset]) -> None:
    mixture = _mixed(sources)
    alone = _keys(lading.loader(mixture, 1, shuffle=True, columns=["__key__"]))
    options: dict[str, Any] = {"shuffle": True, "last": "drop", "columns": ["__key__"]}
    ranks = [_keys(lading.loader(mixture, 1, rank=r, world_size=2, **options)) for r in range(2)]
    assert [key for pair in zip(*ranks, strict=True) for key in pair] == alone[: len(alone) // 2 * 2]
    assert all(one != other for one, other in pairwise(ranks))


@pytest.mark.parametrize(
    "sources_of, options, words",
    [
        (lambda s: {}, {}, "no dataset to mix"),
        (lambda s: {"a": s["web"]}, {}, "the source 'a' is no pair"),
        (lambda s: {"a": ("web", 1, 2)}, {}, "the source 'a' is no pair"),
        (lambda s: {"a": (s["web"], "1")}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], -1)}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], 0)}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], float("nan"))}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], 1)}, {"stop": "last"}, "first, all or never"),
        (lambda s: {"a": (s["web"], 1)}, {"schedule": {5: {"b": 1}}}, "expected a, found b"),
        (lambda s: {"a": (s["web"], 1)}, {"schedule": {-1: {"a": 1}}}, "no position"),
        (lambda s: {"a": (s["web"].limit(0), 1)}, {}, "the source 'a' has no samples"),
    ],
)
def test_wrong_mixtures_are_refused(sources: dict[str, Dataset], sources_of: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(lading.mix(sources_of(sources), **options), 4)
