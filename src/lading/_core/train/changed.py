"""Go on in an epoch over data that changed since its state was made: which samples were given, and what is left.

A state says the order of the samples before it, but no sample. So the data that the state is of must be known:

- data that grew by shards at their end are found by the fingerprint of their first shards. Nothing is read.
- else the user names the data of before. Shards that are among those of today need no keys. Else the keys of samples
  say which samples of today were given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.dataset.layout import ends_behind, first_shards
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.order.numbers import Numbers, numbers_at
from lading._core.features.items import KEY
from lading._core.storage.roots import absolute_path
from lading._core.train.feed import DatasetFeed, Feed
from lading._core.train.order import Order, shuffle_of
from lading._core.train.rest import Rest, RestOrder, numbers_in_order, positions_left
from lading.errors import UsageError

__all__ = ["feed_of_changed", "refuse_keys_of"]

_PLACE: Final = ("version", "epoch", "position")
_SETTINGS: Final = ("num_samples", "seed", "shuffle", "fingerprint")
_OPEN_OLD: Final = 'loader.load_state_dict(state, before="old/*.tar")'
_KEYS_AT_ONCE: Final = 1 << 20
"""Keys are looked up so many at once: each time, a table of all keys that were given is made."""


def refuse_keys_of(feed: Feed) -> None:
    """Raise UsageError if epochs of a feed have no rest: those of a mixture, by size, of weights or of another size."""
    more = {*feed.settings} - {*_SETTINGS}
    if not isinstance(feed, DatasetFeed) or more:
        named = ", ".join(sorted(more)) or "a mixture"
        raise UsageError(
            'on_changed="keys" takes epochs in which each sample of one dataset comes once', found=named,
            advice="Go on with the data of the state to the end of the epoch, and change them then.",
        )  # fmt: skip


def feed_of_changed(
    feed: Feed, state: Mapping[str, Any], before: OpenDataset | None, steps: int
) -> tuple[Feed, Mapping[str, Any]]:
    """Return the feed that goes on from a state of other data, and its state there.

    Of a state of the same data, it is the feed that gives what is left of the epoch, if the data changed in it before.

    Args:
        feed: of today.
        state: as `Loader.state_dict` made it.
        before: the data of the state, or of the epoch before the data changed; None where they grew by shards.
        steps: number of steps since the state was made.

    Raises:
        UsageError: the samples that were given cannot be told, or the state has another seed or shuffle.
    """
    if not isinstance(feed, DatasetFeed) or not _is_state(state):
        return feed, state  # the caller refuses it
    epoch, states = state["epoch"], _states_before(state)
    same = state["fingerprint"] in (feed.layout.fingerprint, feed.old_fingerprint)
    if same:
        feed = feed.resumed(state["shuffle"])
        if feed.rest is not None and (feed.rest.epoch, [*feed.rest.before]) == (epoch, states):
            return feed, state
    else:
        _refuse_other_settings(state, feed)
        if steps:
            raise UsageError("the state of a DataLoader was made some steps ago, and its data have changed",
                             advice="Save states of each step: StatefulDataLoader(…, snapshot_every_n_steps=1).",
                             )  # fmt: skip
        if state["position"]:
            states.append({name: state[name] for name in (*_PLACE, *_SETTINGS)})
        state = {**state, **feed.settings, "position": 0, "before": states}
    if feed.rest is not None:
        feed = replace(feed, rest=None)
    if not states:
        return feed, state
    left = positions_left(feed.whole_order(epoch), _seen(feed, before, states))
    if not len(left):
        return feed, {**state, "epoch": epoch + 1, "position": 0, "before": []}
    return replace(feed, rest=Rest(epoch, left, tuple(states))), state


def _is_state(state: Any) -> bool:
    """Whether a value has what a state of a loader has."""
    if not isinstance(state, Mapping) or not {*_PLACE, *_SETTINGS} <= state.keys():
        return False
    numbers = [state[name] for name in ("epoch", "position", "num_samples", "seed")]
    return all(type(number) is int for number in numbers) and min(state["epoch"], state["position"]) >= 0


def _states_before(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the epoch at which the data changed."""
    before = state.get("before", [])
    if not isinstance(before, list) or not all(_is_state(each) and each["epoch"] == state["epoch"] for each in before):
        raise UsageError("this is no state of a loader", expected="before: a list of states of its epoch",
                         found=repr(before)[:200])  # fmt: skip
    return [*before]


def _refuse_other_settings(state: Mapping[str, Any], feed: DatasetFeed) -> None:
    """Raise UsageError for a state whose seed or kind of shuffle differs, or that has settings of other epochs."""
    more = sorted(state.keys() - {*_SETTINGS, *_PLACE, "before", "step_samples"})
    if more:
        raise UsageError("the state is of other data, and its epochs have no rest", found=", ".join(more),
                         advice="Go on with the data of the state to the end of the epoch.")  # fmt: skip
    theirs, mine = shuffle_of(state["shuffle"]).kind, feed.shuffle.kind
    for name, found, expected in (("seed", state["seed"], feed.seed), ("shuffle", theirs, mine)):
        if found != expected and not (name == "shuffle" and feed.chosen):
            raise UsageError(f"the state belongs to another order of samples: the {name} differs",
                             expected=repr(expected), found=repr(found),
                             advice=f"Give the loader the {name} of the state.")  # fmt: skip


def _seen(feed: DatasetFeed, before: OpenDataset | None, states: Sequence[Mapping[str, Any]]) -> NDArray[np.bool_]:
    """Return of each sample of today whether it was given before the last of some states, the oldest first."""
    now, old = _Samples(feed.dataset_of_layout), None if before is None else _Samples(before)
    for state in states:
        if (shards := now.shards_of(state)) is not None:
            if old is not None and old.seen.any():
                now.take_over(old)
                old = None
            now.note(state, shards)
        elif old is not None and not now.seen.any() and (shards := old.shards_of(state)) is not None:
            old.note(state, shards)
        else:
            raise _unknown(state, feed, before)
    if old is not None and old.seen.any():
        now.take_over(old)
    return now.flags()


def _unknown(state: Mapping[str, Any], feed: DatasetFeed, before: OpenDataset | None) -> UsageError:
    fingerprint = state["fingerprint"]
    if before is not None:
        return UsageError("before= is not the data of the state", expected=f"the fingerprint {fingerprint}",
                          found=before.layout.fingerprint,
                          advice="Open the data as they were when the state was made, with the same steps."
                          )  # fmt: skip
    return UsageError(
        "the state is of other data, which are not the first shards of these", expected=feed.layout.fingerprint,
        found=fingerprint, advice="Name the data of before: the keys of their samples say which ones were given. "
        f"{_OPEN_OLD}.",
    )  # fmt: skip


class _Samples:
    """The samples of a dataset, and which of them were given.

    Attributes:
        seen: of each sample of the source, before steps, whether it was given.
    """

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset
        self._ends = dataset.fitting.sample_ends()
        self.seen = np.zeros(int(self._ends[-1]) if len(self._ends) else 0, np.bool_)

    def shards_of(self, state: Mapping[str, Any]) -> int | None:
        """How many first shards a state is of; None if it is of other data."""
        return first_shards(self._dataset.fitting, self._dataset.chosen, state["fingerprint"])

    def note(self, state: Mapping[str, Any], shards: int) -> None:
        """Note the samples that were given before a state of the first shards."""
        numbers, ends = self._behind_steps(shards)
        whole = Order(ends, shuffle_of(state["shuffle"]), state["seed"], state["epoch"])
        order = RestOrder(whole, positions_left(whole, self._flags(numbers)))
        if state["position"] > order.num_samples:
            raise UsageError("the position of the state is no such number", found=repr(state["position"]))
        for _, given in numbers_in_order(order, state["position"]):
            self.seen[numbers_at(numbers, given)] = True

    def flags(self) -> NDArray[np.bool_]:
        """Of each sample behind the steps whether it was given."""
        return self._flags(self._behind_steps(len(self._ends))[0])

    def _flags(self, numbers: Numbers) -> NDArray[np.bool_]:
        if isinstance(numbers, range):
            return self.seen[numbers.start : numbers.stop : numbers.step]
        found: NDArray[np.bool_] = self.seen[numbers]
        return found

    def _behind_steps(self, shards: int) -> tuple[Numbers, NDArray[np.int64]]:
        """The numbers in the source of the samples of the first shards behind the steps, and where shards end there."""
        ends, chosen = self._ends[:shards], self._dataset.chosen
        if chosen is not None and shards < len(self._ends):
            chosen = self._dataset.of_first_shards(shards).chosen
        if chosen is None:
            return range(int(ends[-1]) if len(ends) else 0), ends
        numbers = chosen.numbers
        if not isinstance(numbers, range) and len(np.unique(numbers)) < len(numbers):
            raise UsageError("the steps give a sample several times, and a state does not say which one was given",
                             found=", ".join(map(repr, chosen.steps))[:200])  # fmt: skip
        return numbers, ends_behind(ends, chosen)

    def take_over(self, old: _Samples) -> None:
        """Note the samples that were given of other ones: those of the same files, else those of the same keys."""
        begins = self._begins_of(old)
        if begins is not None:
            seen = np.flatnonzero(old.seen)
            shards = np.searchsorted(old._ends, seen, "right")
            self.seen[begins[shards] + seen - np.append(0, old._ends)[shards]] = True
            return
        given, flags, at = list[pa.Array](), old.flags(), 0
        for keys in _keys_of(old._dataset):
            given.append(keys.filter(pa.array(flags[at : at + len(keys)])))
            at += len(keys)
        wanted = pa.concat_arrays(given)
        _places_of(wanted, old._dataset)
        places = _places_of(wanted, self._dataset)
        if not len(places):
            self._refuse_other_keys(old._dataset)
        numbers, _ = self._behind_steps(len(self._ends))
        self.seen[numbers_at(numbers, places)] = True

    def _begins_of(self, old: _Samples) -> NDArray[np.int64] | None:
        """The numbers here of the first samples of the shards of other ones; None if these are not all here."""
        mine, theirs = self._files(), old._files()
        places = {path: i for i, path in enumerate(mine)}
        if len(places) < len(mine) or len({*theirs}) < len(theirs) or not {*theirs} <= places.keys():
            return None
        which = np.array([places[path] for path in theirs], np.int64)
        same = np.array_equal(np.diff(self._ends, prepend=0)[which], np.diff(old._ends, prepend=0))
        return np.append(0, self._ends)[which] if same and self._dataset.view == old._dataset.view else None

    def _files(self) -> list[str]:
        return [absolute_path(path) for path in self._dataset.fitting.listing.table.column("path").to_pylist()]

    def _refuse_other_keys(self, old: OpenDataset) -> None:
        """Raise UsageError if no sample has a key that another dataset has."""
        theirs = pa.concat_arrays([*_keys_of(old)])
        mine = next(_keys_of(self._dataset))
        if not any(pc.any(pc.is_in(keys, value_set=theirs)).as_py() for keys in _keys_of(self._dataset)):
            raise UsageError(
                "no sample has a key that samples had before", expected=f"such as {theirs[0].as_py()!r}",
                found=repr(mine[0].as_py()), advice="Give the samples the keys that they had before.",
            )  # fmt: skip


def _places_of(wanted: pa.Array, dataset: OpenDataset) -> NDArray[np.int64]:
    """Return the numbers of the samples that have some keys. Raises UsageError if two of them have one key."""
    found, counts, at = [np.zeros(0, np.int64)], np.zeros(len(wanted), np.int32), 0
    for keys in _keys_of(dataset):
        which = pc.index_in(keys, value_set=wanted)
        found.append(np.flatnonzero(which.is_valid()) + at)
        counts += np.bincount(which.drop_null().to_numpy(), minlength=len(wanted)).astype(np.int32)
        at += len(keys)
    if counts.max(initial=0) > 1:
        raise UsageError("two samples have one key, and nothing says which one was given",
                         found=repr(wanted[int(counts.argmax())].as_py()),
                         advice="Go on with the data of the state to the end of the epoch. Or leave one of them out.",
                         )  # fmt: skip
    return np.concatenate(found)


def _keys_of(dataset: OpenDataset) -> Iterator[pa.Array]:
    """Yield the keys of all samples as texts, about a million at once. Raises UsageError if one has none."""
    name = dataset.key
    if name is None:
        raise UsageError("the samples have no keys", expected=f"a column {KEY}", found=", ".join(dataset.column_names),
                         advice=f"Call the column that names them so: ds.rename({{'id': {KEY!r}}}).")  # fmt: skip
    held, count = list[pa.Array](), 0
    for [keys] in dataset.values([name]):
        if keys.null_count:
            raise UsageError("a sample has no key", column=name)
        held.append((keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys).cast(pa.large_string()))
        count += len(keys)
        if count >= _KEYS_AT_ONCE:
            yield pa.concat_arrays(held)
            held, count = [], 0
    yield pa.concat_arrays([*held, pa.array([], pa.large_string())])
