"""Datasets to be mixed: what `lading.mix` makes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from lading._core.arguments import is_number, public
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable
from lading._core.train.mixing import Proportions, Stop, shares_by_temperature
from lading.errors import UsageError

__all__ = ["Mixture", "mix", "no_samples"]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Datasets to be mixed, made by `lading.mix`; `lading.loader` takes it as a source.

    Attributes:
        datasets: by name.
        proportions: their shares.
        seed: of the shuffles of the datasets.
        stop: when an epoch ends.
        of_epoch: samples of each dataset in an epoch, where `repeats` says that; else `stop` says when an epoch ends.
    """

    datasets: Mapping[str, OpenDataset]
    proportions: Proportions
    seed: int
    stop: Stop
    of_epoch: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        pairs = zip(self.datasets, self.proportions.weights[0].tolist(), strict=True)
        shares = ", ".join(f"{name} {100 * share:.4g} %" for name, share in pairs)
        ends = f"stop {self.stop}" if self.of_epoch is None else f"epochs of {sum(self.of_epoch):,} samples"
        return f"Mixture({shares}, {ends})"


_EXAMPLE: Final = 'lading.mix({"a": (ds_a, 0.7), "b": (ds_b, 0.3)})'


_OF_OTHERS: Final = {
    "weights": f"Write pairs of a dataset and its weight: {_EXAMPLE}.",
    "probabilities": f"Write pairs of a dataset and its weight: {_EXAMPLE}.",
    "stopping_strategy": 'Write stop="all" for all_exhausted, stop="first" for first_exhausted.',
    "alpha": "Write temperature=1 / alpha.",
    "epoch_size": "Give it to lading.loader.",
    "shuffle": "Give it to lading.loader: each dataset is shuffled by itself.",
}
"""Arguments of mixtures in datasets, LitData, MosaicML Streaming and papers."""


@public("lading.mix", _OF_OTHERS)
def mix(
    sources: Mapping[str, Queryable | tuple[Queryable, float]],
    *,
    seed: int = 0,
    stop: Stop = "first",
    schedule: Mapping[int, Mapping[str, float]] | None = None,
    temperature: float | None = None,
    repeats: Mapping[str, float] | None = None,
) -> Mixture:
    """Mix datasets in exact proportions, for `lading.loader`.

    Among any number of neighbours each dataset has its share, within one sample for each dataset. Each dataset is
    shuffled by itself, and begins again where it has no sample left. The datasets may have different formats, and some
    may be documents with items. A column that a dataset lacks is null in its samples.

    Example:
        both = lading.mix({"web": (web, 0.7), "books": (books, 0.3)}, seed=7)
        loader = lading.loader(both, 64, shuffle=True)
        loader.state_dict()["seen"]    # {"web": 4480, "books": 1920}

        lading.mix({"de": de, "fr": fr, "sw": sw}, temperature=3.3)    # small languages come more often
        lading.mix({"web": web, "books": books}, repeats={"books": 4})    # web once an epoch, books four times

    Args:
        sources: each dataset, or what `lading.open` opens, by name: with its weight, or all without one. Weights need
            not have the sum 1. Without weights, the shares are those of the numbers of samples.
        seed: of the shuffles of the datasets.
        stop: when an epoch ends: `first`, before a dataset would begin again; `all`, when every sample was given once,
            but for those of datasets whose weight is 0 before that; `never`. `epoch_size` of `lading.loader` takes the
            place of `first` and `never`.
        schedule: other weights from a position on, which counts the samples of all ranks in the epoch:
            `{1_000_000: {"web": 0.2, "books": 0.8}}`. A name that is left out has the weight 0. With `epoch_size` the
            position counts from the first epoch on.
        temperature: of datasets without weights: the shares are as samples ** (1 / temperature). 1, the default, keeps
            the numbers of samples. Larger ones come closer to equal shares.
        repeats: of datasets without weights: how often an epoch gives each sample of a dataset; 1 where no name is
            given. An epoch has exactly these samples. With 0.5 it gives half of the dataset, and the next epoch the
            other half.

    Raises:
        UsageError: no dataset, an empty one, a weight that is no weight, a name that is unknown, or two arguments that
            both say the shares or the end of an epoch.
    """
    if stop not in ("first", "all", "never"):
        raise UsageError("no such way to end an epoch", expected="first, all or never", found=repr(stop))
    if not isinstance(sources, Mapping) or not sources:
        raise UsageError("no dataset to mix", found=type(sources).__name__, advice=f"Give {_EXAMPLE}.")
    given, weights = _parted(sources)
    datasets, of_epoch = {name: opened(each) for name, each in given.items()}, None
    if weights is not None:
        beside = {"temperature": temperature, "repeats": repeats}
        if wrong := next((name for name, value in beside.items() if value is not None), None):
            raise UsageError("the datasets have weights, which say the shares", found=f"{wrong} with weights",
                             advice=f'Leave {wrong} out, or give datasets without weights: {{"a": ds_a, "b": ds_b}}.'
                             )  # fmt: skip
    elif repeats is None:
        weights = shares_by_temperature(_counts(datasets), 1.0 if temperature is None else temperature)
    else:
        if (wrong := _beside_repeats(stop, schedule, temperature)) is not None:
            raise UsageError("repeats say what an epoch has", found=f"{wrong} with repeats",
                             advice=f"Leave {wrong} or repeats out.")  # fmt: skip
        weights = of_epoch = _samples_of_epoch(_counts(datasets), repeats)
    schedule = schedule or {}
    for begin, row in {0: weights, **schedule}.items():
        _refuse_wrong_weights(begin, row, weights)
    of_each = None if of_epoch is None else tuple(of_epoch.values())
    return Mixture(datasets, Proportions.of(weights, schedule), seed, stop, of_each)


def _parted(
    sources: Mapping[str, Queryable | tuple[Queryable, float]],
) -> tuple[dict[str, Queryable], Mapping[str, float] | None]:
    """The datasets, and their weights if they have some. Raises UsageError if only some of them have one."""
    pairs = {name: each for name, each in sources.items() if isinstance(each, tuple)}
    alone = {name: each for name, each in sources.items() if not isinstance(each, tuple)}
    wrong = [name for name, each in pairs.items() if len(each) != 2]  # noqa: PLR2004 - a pair
    if pairs and (wrong or alone):
        name = [*wrong, *alone][0]
        raise UsageError(f"the source {name!r} is no pair of a dataset and a weight", expected=_EXAMPLE,
                         found=type(sources[name]).__name__)  # fmt: skip
    if not pairs:
        return alone, None
    return {name: each for name, (each, _) in pairs.items()}, {name: weight for name, (_, weight) in pairs.items()}


def _beside_repeats(stop: Stop, schedule: object, temperature: object) -> str | None:
    """The argument that says as well what an epoch has, if there is one."""
    if stop != "first":
        return f"stop={stop!r}"
    return "schedule" if schedule else "temperature" if temperature is not None else None


def _counts(datasets: Mapping[str, OpenDataset]) -> dict[str, int]:
    found = {name: len(each) for name, each in datasets.items()}
    for name, count in found.items():
        if not count:
            raise no_samples(name)
    return found


def no_samples(name: str) -> UsageError:
    """The error about a dataset of a mixture that is empty."""
    return UsageError(f"the source {name!r} has no samples")


def _samples_of_epoch(counts: Mapping[str, int], repeats: Mapping[str, float]) -> dict[str, int]:
    """How many samples an epoch has of each dataset."""
    if not isinstance(repeats, Mapping):
        raise UsageError("repeats are numbers by the names of datasets", expected='such as {"books": 4}',
                         found=repr(repeats)[:80])  # fmt: skip
    if unknown := [name for name in repeats if name not in counts]:
        raise UsageError("repeats name a source that is not mixed", expected=", ".join(counts), found=str(unknown[0]))
    found = {}
    for name, count in counts.items():
        times = repeats.get(name, 1)
        if not is_number(times) or not 0 < times < inf:
            raise UsageError(f"the source {name!r} is repeated by a number above 0", found=repr(times))
        found[name] = int(count * times + 0.5)
        if not found[name]:
            raise UsageError(f"the source {name!r} has no sample in an epoch", found=f"{times!r} of {count:,} samples")
    return found


def _refuse_wrong_weights(begin: int, row: Mapping[str, float], known: Mapping[str, float]) -> None:
    if type(begin) is not int or begin < 0:
        raise UsageError("a position in the schedule is no position", found=repr(begin))
    unknown = [name for name in row if name not in known]
    if unknown:
        raise UsageError("the schedule names a source that is not mixed", expected=", ".join(known), found=unknown[0])
    wrong = [value for value in row.values() if not is_number(value) or not 0 <= value < inf]
    if wrong or not sum(row.values()):
        raise UsageError("weights must be numbers of at least 0, and one of them more", found=repr(dict(row)))
