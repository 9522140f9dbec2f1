"""How far training has come: a small dict that JSON can hold, and the check that it fits.

`position` counts the samples of the epoch that all ranks together have consumed. Another number of ranks, another
batch size or other workers go on at the next sample; other data, another seed or another shuffle would be other
samples, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lading._core.train.feed import DatasetFeed, Feed
from lading._core.train.sizes import SizedFeed
from lading.errors import UsageError

__all__ = ["before_of", "earliest_state", "refuse_other_state", "state_of"]

_VERSION: Final = 1

_NAMES: Final = {
    "fingerprint": "fingerprint of the data and steps",
    "num_samples": "number of samples",
    "seed": "seed",
    "shuffle": "shuffle",
}
_OF_DATA: Final = ("fingerprint", "num_samples")
_OPTIONAL: Final = {
    "epoch_size": "epoch_size differs",
    "weights": "the weights of samples differ",
}
"""Of some loaders: a state has them if its loader had them. How an error says that they differ."""


def state_of(feed: Feed, epoch: int, position: int) -> dict[str, Any]:
    """Return the state of a loader that goes on at a position of an epoch of a feed."""
    before = before_of(feed, epoch)
    return {**_order_of(feed, epoch, position), **({"before": before} if before else {})}


def before_of(feed: Feed, epoch: int) -> list[dict[str, Any]]:
    """Return the states of an epoch at which the data changed."""
    rest = feed.rest if isinstance(feed, DatasetFeed) else None
    return [dict(each) for each in rest.before] if rest is not None and rest.epoch == epoch else []


def _order_of(feed: Feed, epoch: int, position: int) -> dict[str, Any]:
    """Return what a state says of the order of an epoch, and how far it has come."""
    seen = feed.seen(epoch, position)
    place = {"version": _VERSION, "epoch": epoch, "position": position}
    return {**place, **feed.settings, **({} if seen is None else {"seen": seen})}


def refuse_other_state(state: Mapping[str, Any], feed: Feed, is_position: Callable[[int, int], bool]) -> None:
    """Raise UsageError if a state is none, or one of other data or of another order, naming what differs.

    Args:
        state: as `Loader.state_dict` made it.
        feed: of the loader that is to go on.
        is_position: whether a step of an epoch may begin at a position.
    """
    if isinstance(state, Mapping) and state.get("fingerprint") == feed.old_fingerprint:
        state = {**state, "fingerprint": feed.settings["fingerprint"]}
    _refuse_other_order(state, _order_of(feed, 0, 0), is_position)
    if state.get("before", []) != before_of(feed, state["epoch"]):
        raise UsageError("the data changed in the epoch of the state", expected="a loader that goes on over such data",
                         found="another one", advice='Make it with on_changed="keys", and load the state into it: '
                         "loader.load_state_dict(state).")  # fmt: skip
    seen = feed.seen(state["epoch"], state["position"])
    if seen is not None and seen != state["seen"]:
        by_size = isinstance(feed, SizedFeed)
        until, since = ("end of the epoch", "the next epoch") if by_size else ("position", "this position")
        raise UsageError(f"the weights before the {until} of the state differ", expected=str(seen),
                         found=str(state["seen"]),
                         advice=f"Change weights with schedule=, from {since} on.")  # fmt: skip


def _refuse_other_order(
    state: Mapping[str, Any], mine: Mapping[str, Any], is_position: Callable[[int, int], bool]
) -> None:
    """Raise UsageError if a state is none, or its order is another than `mine` says."""
    needed = [name for name in mine if name not in {*_OPTIONAL, "batches"}]
    missing = [name for name in needed if name not in state] if isinstance(state, Mapping) else needed
    if missing:
        raise UsageError("this is no state of a loader", expected=f"a dict with {', '.join(needed)}",
                         found=f"{', '.join(missing[:3])} missing")  # fmt: skip
    if state["version"] != _VERSION:
        raise UsageError("the state was made by another version of lading", expected=str(_VERSION),
                         found=repr(state["version"]))  # fmt: skip
    for name, words in _NAMES.items():
        if state[name] != mine[name]:
            raise _other_order(f"the {words} differs", state[name], mine[name], changed=name in _OF_DATA)
    for name, words in _OPTIONAL.items():
        if state.get(name) != mine.get(name):
            raise _other_order(words, *(each.get(name, "none") for each in (state, mine)))
    _refuse_other_batches(state.get("batches"), mine.get("batches"))
    for name in ("epoch", "position"):
        value = state[name]
        if type(value) is not int or value < 0 or (name == "position" and not is_position(state["epoch"], value)):
            raise UsageError(f"the {name} of the state is no such number", found=repr(value))


def _other_order(what: str, found: Any, mine: Any, *, changed: bool = False) -> UsageError:
    goes_on = ' If the data grew or were written anew: lading.loader(…, on_changed="keys").' if changed else ""
    return UsageError(
        f"the state belongs to another order of samples: {what}", expected=repr(mine), found=repr(found),
        advice=f"Open the same data, with the same steps, seed, shuffle, epoch_size and weights.{goes_on}",
    )  # fmt: skip


def _refuse_other_batches(found: Any, mine: Mapping[str, Any] | None) -> None:
    """Raise UsageError if the batches of a state were made by size in another way."""
    if found == mine:
        return
    if mine is None or not isinstance(found, Mapping):
        ways = ["batches of neighbours" if each is None else "batches by size" for each in (mine, found)]
        raise UsageError("the state belongs to another order of samples", expected=ways[0], found=ways[1],
                         advice="Make batches by size for all of a run, or for none.")  # fmt: skip
    name = next(name for name in {**mine, **found} if mine.get(name) != found.get(name))
    words, advice = f"{name} differs", "Give the arguments for batches by size as before."
    if name == "sizes":
        words, advice = "the sizes of samples differ", "Count the tokens of samples as before."
    raise UsageError(f"the state belongs to other batches: {words}", expected=repr(mine.get(name)),
                     found=repr(found.get(name)), advice=advice)  # fmt: skip


def earliest_state(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """The state of a loader in that of a `StatefulDataLoader`, and how many steps were made since.

    Each worker has a state, of its next batch. That of the batch that comes first is given. A state of a loader, or
    something else, is given as it is.
    """
    found = [*_states_in(state)]
    if not found or state is found[0]:
        return state, 0
    first = min(found, key=lambda each: (each["epoch"], each["position"]))
    return first, state.get("_steps_since_snapshot", 0)


def _states_in(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if {"version", "epoch", "position", *_NAMES} <= value.keys():
            yield value
        else:
            for inner in value.values():
                yield from _states_in(inner)
