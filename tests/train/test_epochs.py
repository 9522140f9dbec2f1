"""Epochs of any size are passes one after the other; weights draw samples with replacement; both resume anywhere."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lading
from lading._core.api.dataset import Dataset
from lading._core.train.epochs import DrawnOrder, PassesOrder, Weights
from lading._core.train.order import Order, Shuffle
from lading._core.train.permutation import derived_key, random_floats
from lading.errors import UsageError
from training import Job, keys, ranks, resumed
from training import given as given_to

_COUNT = 23


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("epochs")
    with lading.writer(folder / "tars", format="webdataset", rows_per_shard=5) as writer:
        for i in range(_COUNT):
            writer.write({"__key__": f"{i:02}", "json": {"score": i % 4, "maybe": i if i < 20 else None}})
    return lading.open(folder / "tars")


def _keys(loader: Any, epochs: int = 1) -> list[str]:
    return [key for _ in range(epochs) for batch in loader for key in batch["__key__"]]


# PassesOrder


@pytest.mark.parametrize("size", [1, 7, _COUNT, 60])
@pytest.mark.parametrize("shuffle", [False, True, Shuffle("block", 2, 2, 2)])
def test_epochs_are_passes_one_after_the_other(tars: Dataset, size: int, shuffle: Any) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 3, "columns": ["__key__"]}
    loader = lading.loader(tars, 4, epoch_size=size, **options)
    epochs = [_keys(loader) for _ in range(5)]
    assert [len(each) for each in epochs] == [size] * 5
    assert len(loader) == -(-size // 4)
    whole = _keys(lading.loader(tars, 4, **options), 5 * size // _COUNT + 1)
    assert [key for epoch in epochs for key in epoch] == whole[: 5 * size]


_STOPS = {"data": st.data(), "size": st.integers(5, 60), "epoch": st.integers(0, 3)}


def _goes_on(source: Any, size: int, epoch: int, data: st.DataObject, **options: Any) -> None:
    """A job that stops anywhere, and goes on with other ranks and batches, is given the epoch as one rank is."""
    options = {"columns": ["__key__"], "epoch_size": size, **options}
    alone = lading.loader(source, 1, **options)
    alone.set_epoch(epoch)
    whole = _keys(alone)
    worlds = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=2))
    first, second = (Job(data.draw(st.integers(1, min((size - 1) // world, 9))), world) for world in worlds)
    steps = data.draw(st.integers(1, (size - 1) // (first.batch_size * first.world_size)))
    loaders = ranks(source, first.batch_size, first.world_size, **options)
    for each in loaders:
        each.set_epoch(epoch)
    loops = [iter(each) for each in loaders]
    before = [*given_to(loops, steps)]
    [state] = {str(each.state_dict()): each.state_dict() for each in loaders}.values()
    again = ranks(source, second.batch_size, second.world_size, **options)
    for each in again:
        each.load_state_dict(state)
    assert keys(before) + keys(given_to(again)) == whole


@pytest.mark.soak
@settings(max_examples=settings.default.max_examples // 2)
@given(**_STOPS, shuffle=st.sampled_from([False, True, Shuffle("block", 2, 2, 2)]))
def test_an_epoch_of_any_size_goes_on(tars: Dataset, data: Any, size: int, epoch: int, shuffle: Any) -> None:
    _goes_on(tars, size, epoch, data, shuffle=shuffle)


@given(
    ends=st.lists(st.integers(0, 20), min_size=1, max_size=5).map(np.cumsum),
    shuffle=st.builds(Shuffle, st.just("block"), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3)),
    size=st.integers(1, 90),
    epoch=st.integers(0, 4),
)
def test_rounds_are_those_of_the_passes(ends: np.ndarray, shuffle: Shuffle, size: int, epoch: int) -> None:
    assume(ends[-1])
    found = PassesOrder(lambda number: Order(ends, shuffle, 1, number), epoch, size)
    rounds = []
    for position in range(size):
        number, place = divmod(epoch * size + position, int(ends[-1]))
        rounds.append((number, Order(ends, shuffle, 1, number).round_end(place)))
    expected = [next((p for p in range(at, size) if rounds[p] != rounds[at]), size) for at in range(size)]
    assert [found.round_end(position) for position in range(size)] == expected
    assert found.reads_rounds


# Weights


def test_random_floats_are_those_of_splitmix64() -> None:
    """The first words for the seed 1234567, as the reference implementation in C gives them."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert random_floats(1234567, np.arange(5)).tolist() == [(word >> 11) / 2**53 for word in words]


_WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=40).filter(any)


@given(weights=_WEIGHTS, seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_draws_are_those_of_the_cumulative_weights(weights: list[float], seed: int, epoch: int) -> None:
    """Each sample has the part of [0, 1) that its share says: the first sum above the random number."""
    drawn = DrawnOrder(Weights.of(np.array(weights)), seed, epoch, 200).at(np.arange(200))
    at = random_floats(derived_key(seed, epoch, "draws"), np.arange(200))
    sums = np.cumsum(np.array(weights) / max(weights))
    assert drawn.tolist() == [next(i for i in count() if sums[i] > x * sums[-1]) for x in at.tolist()]
    assert all(weights[i] > 0 for i in drawn.tolist())


def test_samples_come_as_often_as_their_weights_say() -> None:
    """Within five standard deviations of a binomial distribution, for each sample and for each pair of neighbours."""
    weights, n = np.array([0, 1, 2, 4, 0, 8, 1e-9, 16]), 200_000
    drawn = DrawnOrder(Weights.of(weights), 7, 0, n).at(np.arange(n))
    shares = weights / weights.sum()
    for found, expected in ((drawn, shares), (drawn[1:] * 8 + drawn[:-1], np.outer(shares, shares).ravel())):
        times = np.bincount(found, minlength=len(expected))
        assert (np.abs(times - n * expected) <= 5 * np.sqrt(n * expected * (1 - expected)) + 1e-3).all()


def test_weights_are_a_column_or_numbers(tars: Dataset) -> None:
    scores = [i % 4 for i in range(_COUNT)]
    options: dict[str, Any] = {"columns": ["__key__"], "seed": 5}
    loader = lading.loader(tars, 4, weights="json.score", **options)
    first, second = _keys(loader), _keys(loader)
    assert len(first) == len(second) == _COUNT
    assert first != second
    for same in (scores, np.array(scores), np.array(scores, np.float32) / 3, "json.score * 2"):
        assert _keys(lading.loader(tars, 4, weights=same, shuffle=True, **options)) == first
    assert "drawn by weights, seed 5" in repr(loader)
    many = Counter(_keys(lading.loader(tars, 50, weights="json.score", epoch_size=3000, **options)))
    assert {*many} == {f"{i:02}" for i in range(_COUNT) if i % 4}


@pytest.mark.soak
@settings(max_examples=settings.default.max_examples // 2)
@given(**_STOPS)
def test_an_epoch_of_draws_goes_on(tars: Dataset, data: Any, size: int, epoch: int) -> None:
    _goes_on(tars, size, epoch, data, weights="json.score")


@pytest.mark.soak
def test_workers_draw_the_same(tars: Dataset) -> None:
    options: dict[str, Any] = {"columns": ["__key__"], "weights": "json.score", "epoch_size": 40}
    before, after = resumed(tars, Job(4, 2, workers=2), 3, Job(3, 1, workers=2), **options)
    assert keys(before) + keys(after) == _keys(lading.loader(tars, 1, **options))


@pytest.mark.parametrize("options", [{"epoch_size": 60}, {"weights": "json.score", "epoch_size": 40}])
def test_packed_sequences_go_on(tars: Dataset, options: dict[str, Any]) -> None:
    def packer() -> Any:
        keyed = lading.loader(tars, 4, shuffle=True, columns=["__key__"], **options)
        return lading.pack(keyed, 7, tokenizer=lambda text: [*text.encode()], column="__key__")

    whole, first, second = [*packer()], packer(), packer()
    before = [*islice(first, 2)]
    second.load_state_dict(first.state_dict())
    found = np.concatenate([batch["input_ids"] for batch in [*before, *second]])
    assert np.array_equal(found, np.concatenate([batch["input_ids"] for batch in whole]))


# What is refused


@pytest.mark.cases(20)
@pytest.mark.parametrize(
    "options, words",
    [
        ({"epoch_size": 0}, "epoch_size must be a whole number of at least 1"),
        ({"epoch_size": 1.5}, "epoch_size must be a whole number"),
        ({"epoch_size": 3, "last": "drop"}, "no batch is left"),
        ({"weights": "json.maybe"}, r"000004.tar row 0 sample '20' column 'json.maybe': a weight is .* found none"),
        ({"weights": "json.scor"}, "no sample has this field"),
        ({"weights": [1.0] * 5}, "expected 23, found 5 numbers"),
        ({"weights": [1.0] * 5 + [-1.0] * 18}, r"row 0 sample '05': a weight is a number .* found -1.0"),
        ({"weights": [float("inf")] * _COUNT}, "found inf"),
        ({"weights": [0] * _COUNT}, "all weights are 0"),
        ({"weights": {"a": 0.5}}, "Mix datasets"),
        ({"weights": 3}, "the name of a column, or a number for each sample"),
        ({"weights": [[1], [1, 2]]}, "do not become an array of numpy"),
        ({"weights": "json.score", "shuffle": "block"}, "drawn by weights come in any order"),
    ],
)
def test_wrong_arguments_are_refused(tars: Dataset, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(tars, 4, **options)


def test_weights_in_a_tensor(tars: Dataset) -> None:
    torch = pytest.importorskip("torch")
    weights = torch.arange(_COUNT)
    assert _keys(lading.loader(tars, 4, weights=weights)) == _keys(lading.loader(tars, 4, weights=weights.tolist()))
    with pytest.raises(UsageError, match=r"do not become an array of numpy.*tensor.detach\(\)"):
        lading.loader(tars, 4, weights=torch.ones(_COUNT, requires_grad=True))


@pytest.mark.cases(8)
@pytest.mark.parametrize(
    "one, other, words",
    [
        ({"epoch_size": 10}, {"epoch_size": 11}, "epoch_size differs; expected 11, found 10"),
        ({}, {"epoch_size": 11}, "epoch_size differs; expected 11, found 'none'"),
        ({"epoch_size": 11}, {}, "epoch_size differs; expected 'none', found 11"),
        ({"shuffle": True}, {"weights": "json.score"}, "the weights of samples differ"),
        ({"weights": [1] * _COUNT}, {"weights": "json.score"}, "the weights of samples differ"),
        ({"weights": [1] * _COUNT}, {"shuffle": "global"}, "the weights of samples differ"),
    ],
)
def test_a_state_of_another_order_is_refused(tars: Dataset, one: Any, other: Any, words: str) -> None:
    loader = lading.loader(tars, 4, **one)
    [*islice(loader, 1)]
    state = loader.state_dict()
    with pytest.raises(UsageError, match=words):
        lading.loader(tars, 4, **other).load_state_dict(state)
    lading.loader(tars, 2, **one).load_state_dict(state)
