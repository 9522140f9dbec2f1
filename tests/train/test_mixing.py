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


@pytest.mark.parametrize("temperature", [None, 1, 2, 10 / 3, float("inf")])
def test_shares_are_as_the_numbers_of_samples_by_temperature(sources: dict[str, Dataset], temperature: Any) -> None:
    """Samples ** (1 / temperature): 40, 25 and 10 samples."""
    options = {} if temperature is None else {"temperature": temperature}
    powers = np.array([40, 25, 10]) ** (1 / (temperature or 1))
    mixed = lading.mix(sources, stop="never", **options)
    loader = lading.loader(mixed, 1, epoch_size=300, columns=["__key__"])
    seen = Counter(key.partition("-")[0] for key in _keys(loader))
    assert [seen[name] for name in sources] == pytest.approx(300 * powers / powers.sum(), abs=3)


_TIMES = st.dictionaries(
    st.sampled_from(["web", "books", "code"]), st.one_of(st.integers(1, 4), st.sampled_from([0.5, 0.3, 1.7]))
)


@settings(max_examples=settings.default.max_examples // 4)
@given(repeats=_TIMES, epochs=st.integers(1, 3))
def test_an_epoch_gives_each_source_as_often_as_repeats_say(
    sources: dict[str, Dataset], repeats: dict[str, float], epochs: int
) -> None:
    """Exactly so many samples an epoch, of passes that go on in the next one."""
    loader = lading.loader(lading.mix(sources, repeats=repeats, seed=4), 8, shuffle=True, columns=["__key__"])
    given = [_keys(loader) for _ in range(epochs)]
    for name, source in sources.items():
        count, times = len(source), repeats.get(name, 1)
        of_epochs = [[key for key in epoch if key.startswith(name)] for epoch in given]
        assert [len(each) for each in of_epochs] == [int(count * times + 0.5)] * epochs
        mine = [key for each in of_epochs for key in each]
        for begin in range(0, len(mine), count):
            assert len({*mine[begin : begin + count]}) == len(mine[begin : begin + count])
    assert len(loader) == -(-len(given[0]) // 8)


@given(counts=st.lists(st.integers(1, 10**9), min_size=1, max_size=8))
def test_any_numbers_of_samples_are_given_exactly(counts: list[int]) -> None:
    proportions = Proportions.of({str(i): count for i, count in enumerate(counts)}, {})
    assert proportions.counts(np.array([sum(counts)])).tolist() == [counts]


@pytest.mark.parametrize("stop", ["first", "never"])
def test_epochs_of_a_size_are_parts_of_an_endless_mixture(sources: dict[str, Dataset], stop: Any) -> None:
    options: dict[str, Any] = {"shuffle": True, "columns": ["__key__"]}
    schedule = {50: {"code": 1}, 70: {"web": 1, "code": 1}}
    loader = lading.loader(_mixed(sources, stop=stop, schedule=schedule), 7, epoch_size=33, **options)
    epochs = [_keys(loader) for _ in range(4)]
    assert [len(each) for each in epochs] == [33] * 4
    endless = lading.loader(_mixed(sources, stop="never", schedule=schedule), 12, **options)
    whole = [key for batch in islice(endless, 11) for key in batch["__key__"]]
    assert [key for epoch in epochs for key in epoch] == whole
    seen = {name: sum(key.startswith(name) for key in whole[:66]) for name in sources}
    loader.set_epoch(2)
    assert loader.state_dict()["seen"] == seen
    assert f"33 samples (web {sum(key.startswith('web') for key in epochs[2])}, books 0" in repr(loader)


@pytest.mark.soak
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_epochs_of_a_size_and_repeats_go_on(sources: dict[str, Dataset], data: st.DataObject) -> None:
    size = data.draw(st.one_of(st.none(), st.integers(37, 120)))  # more than a step of any job
    mixture = lading.mix(sources, repeats={"code": 3}) if size is None else _mixed(sources)
    options: dict[str, Any] = {"shuffle": True, "columns": ["__key__"], "epoch_size": size}
    whole = _keys(lading.loader(mixture, 1, **options))
    first, second = (Job(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))) for _ in range(2))
    steps = data.draw(st.integers(1, (len(whole) - 1) // (first.batch_size * first.world_size)))
    before, after = resumed(mixture, first, steps, second, **options)
    assert keys(before) + keys(after) == whole


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    "mixture_of, words",
    [
        (lambda s: _mixed(s, stop="all"), 'found epoch_size=5 with stop="all"'),
        (lambda s: lading.mix(s, repeats={"web": 2}), "found epoch_size=5 with repeats"),
    ],
)
def test_two_ends_of_an_epoch_are_refused(sources: dict[str, Dataset], mixture_of: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(mixture_of(sources), 4, epoch_size=5)
    with pytest.raises(UsageError, match="weights are of the samples of one dataset"):
        lading.loader(mixture_of(sources), 4, weights="stars")


def test_states_of_other_epochs_are_refused(sources: dict[str, Dataset]) -> None:
    loaders = [
        lading.loader(_mixed(sources), 5),
        lading.loader(_mixed(sources), 5, epoch_size=20),
        lading.loader(lading.mix(sources, repeats={"web": 2}), 5),
        lading.loader(lading.mix(sources, repeats={"web": 3}), 5),
    ]
    for one in loaders:
        for other in loaders:
            if one is not other:
                with pytest.raises(UsageError, match="the state belongs to another order"):
                    one.load_state_dict(other.state_dict())
    loaders[1].load_state_dict(lading.loader(_mixed(sources, stop="never"), 5, epoch_size=20).state_dict())


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
    known = {sample["sample_id"]: sample for sample in documents.with_decode(False)}
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
    one, other = (documents[i : i + 1].with_decode(False) for i in range(2))
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


@pytest.mark.cases(12)
@pytest.mark.parametrize(
    "sources_of, options, words",
    [
        (lambda s: {}, {}, "no dataset to mix"),
        (lambda s: {"a": (s["web"], 1), "b": s["code"]}, {}, "the source 'b' is no pair"),
        (lambda s: {"a": ("web", 1, 2)}, {}, "the source 'a' is no pair"),
        (lambda s: {"a": (s["web"], "1")}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], -1)}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], 0)}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], float("nan"))}, {}, "weights must be numbers"),
        (lambda s: {"a": (s["web"], 1)}, {"stop": "last"}, "first, all or never"),
        (lambda s: {"a": (s["web"], 1)}, {"schedule": {5: {"b": 1}}}, "expected a, found b"),
        (lambda s: {"a": (s["web"], 1)}, {"schedule": {-1: {"a": 1}}}, "no position"),
        (lambda s: {"a": (s["web"].limit(0), 1)}, {}, "the source 'a' has no samples"),
        (lambda s: {"a": s["web"], "b": s["web"].limit(0)}, {}, "the source 'b' has no samples"),
        (lambda s: {"a": (s["web"], 1)}, {"temperature": 2}, "found temperature with weights"),
        (lambda s: {"a": (s["web"], 1)}, {"repeats": {"a": 2}}, "found repeats with weights"),
        (lambda s: {"a": s["web"]}, {"temperature": 0}, "a temperature is a number above 0"),
        (lambda s: {"a": s["web"]}, {"repeats": {"b": 2}}, "expected a, found b"),
        (lambda s: {"a": s["web"]}, {"repeats": {"a": 0}}, "repeated by a number above 0"),
        (lambda s: {"a": s["web"]}, {"repeats": {"a": 0.001}}, "no sample in an epoch"),
        (lambda s: {"a": s["web"]}, {"repeats": 2}, "repeats are numbers by the names"),
        (lambda s: {"a": s["web"]}, {"repeats": {}, "stop": "all"}, "found stop='all' with repeats"),
        (lambda s: {"a": s["web"]}, {"repeats": {}, "temperature": 2}, "found temperature with repeats"),
        (lambda s: {"a": s["web"]}, {"repeats": {}, "schedule": {9: {"a": 1}}}, "found schedule with repeats"),
    ],
)
def test_wrong_mixtures_are_refused(sources: dict[str, Dataset], sources_of: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(lading.mix(sources_of(sources), **options), 4)


@pytest.mark.parametrize(
    "options, words",
    [({"weights": [0.5, 0.5]}, "Write pairs of a dataset and its weight"), ({"alpha": 0.3}, "temperature=1 / alpha")],
)
def test_arguments_of_peers_have_advice(sources: dict[str, Dataset], options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.mix(sources, **options)
