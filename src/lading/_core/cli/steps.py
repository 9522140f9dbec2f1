"""Steps of the command line: the options that choose rows and columns, in the order in which they are typed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from lading._core.cli.functions import named_function
from lading._core.cli.output import Note, about_order
from lading._core.secret_urls import cleaned
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.api.dataset import Dataset
    from lading.options import CliOption, OnError

__all__ = ["TypedOption", "TypedSteps"]

Parse = Callable[[str, "CliOption", Any], Any]
"""Returns the value of an option from its name and its text, or its texts."""


class TypedOption(NamedTuple):
    """An option that is typed.

    Attributes:
        name: of the field of `RowOptions`.
        spelled: how it is spelled.
        text: its value, as typer gives it.
    """

    name: str
    spelled: CliOption
    text: Any


@dataclass(slots=True)
class _Step:
    """A step while its options are collected.

    Attributes:
        name: the method of a dataset.
        own: the options that are the step.
        more: the options that belong to it.
    """

    name: str
    own: list[TypedOption] = field(default_factory=list)
    more: list[TypedOption] = field(default_factory=list)

    def goes_on(self, option: TypedOption) -> bool:
        """Return whether an option is a part of this step: options of one step next to each other are one step."""
        again = any(one.name == option.name for one in self.own)
        return option.spelled.step == self.name and not self.more and (option.spelled.repeatable or not again)

    def add(self, option: TypedOption) -> None:
        """Add an option that belongs to the step. Raises UsageError for one that is there already."""
        if not option.spelled.repeatable and any(one.name == option.name for one in self.more):
            raise UsageError("an option is given twice for one step", found=option.spelled.flag)
        self.more.append(option)

    def values(self, parse: Parse) -> dict[str, Any]:
        """Return the values of all options by name. Raises UsageError."""
        texts: dict[str, list[TypedOption]] = {}
        for one in (*self.own, *self.more):
            texts.setdefault(one.name, []).append(one)
        return {
            name: parse(
                name, each[0].spelled, [one.text for one in each] if each[0].spelled.repeatable else each[0].text
            )
            for name, each in texts.items()
        }

    def shown(self) -> str:
        """Return the options that are the step."""
        return " ".join(dict.fromkeys(one.spelled.flag for one in self.own))


@dataclass(frozen=True, slots=True)
class TypedSteps:
    """The steps of a command, in the order in which they are typed.

    Attributes:
        steps: methods of a dataset, each with the values of its options.
        seed: of all steps that have one; None if it is not typed.
        note: where the order differs from that of earlier versions, what happens now; else empty.
        too_late: advice if a step that makes columns follows one that names columns; else empty.
    """

    steps: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    seed: int | None = None
    note: str = ""
    too_late: str = ""

    @classmethod
    def of(cls, typed: Iterable[TypedOption], parse: Parse) -> TypedSteps:
        """Return the steps of options, which come in the order typed.

        Raises:
            UsageError: an option belongs to no step, is given twice, or has a text that is no value of it.
        """
        steps: list[_Step] = []
        seeds = []
        for option in typed:
            if option.spelled.belongs_to:
                parse(option.name, option.spelled, [option.text] if option.spelled.repeatable else option.text)
                _step_of(option, steps).add(option)
            elif not option.spelled.step:
                seeds.append(option.text)
            elif steps and steps[-1].goes_on(option):
                steps[-1].own.append(option)
            else:
                steps.append(_Step(option.spelled.step, [option]))
        if len(seeds) > 1:
            raise UsageError("one seed holds for all steps", found=f"--seed {len(seeds)} times")
        values = tuple((step.name, step.values(parse)) for step in steps)
        return cls(values, seeds[0] if seeds else None, " ".join(_differences(steps)), _too_late(steps))

    def __contains__(self, name: str) -> bool:
        return any(step == name for step, _ in self.steps)

    def refuse_unused_seed(self, *, splits: bool) -> None:
        """Raise UsageError for a seed that no step uses. `splits`: whether the command divides the dataset."""
        if self.seed is not None and not splits and not ("shuffle" in self or "sample" in self):
            raise UsageError("no option uses the seed", found=f"--seed {self.seed}",
                             advice="Add --shuffle, --sample or --split-into, or leave --seed out.")  # fmt: skip

    def applied(self, dataset: Dataset, on_error: OnError) -> Dataset:
        """Return the dataset with the steps.

        `on_error` is for files that are missing; `drop_sample` also for samples that a function or condition cannot
        take.
        """
        about_order.set(self.too_late)
        if self.note:
            warnings.warn(self.note, Note, stacklevel=2)
        found: Dataset = self._called(dataset, on_error)
        return found

    def calls(self) -> str | None:
        """Return the steps as calls in Python, such as `.where('score > 1').limit(5)`; None for steps of functions.

        Functions that the command line names have no such text.
        """
        if "map" in self or "filter" in self:
            return None
        written = _Written()
        self._called(written, "error")
        return written.text

    def _called(self, dataset: Any, on_error: OnError) -> Any:
        of_functions = "drop_sample" if on_error == "drop_sample" else "error"
        given = {"seed": self.seed or 0, "on_error": of_functions, "on_missing": on_error}
        for step, values in self.steps:
            dataset = _CALLS[step](dataset, {**given, **values})
        return dataset


@dataclass(slots=True)
class _Written:
    """Stands for a dataset, and writes down the calls of its methods, without arguments that are the defaults.

    Attributes:
        text: the calls.
    """

    text: str = ""

    def __getattr__(self, method: str) -> Callable[..., _Written]:
        return partial(self._call, method)

    def _call(self, method: str, *args: Any, **named: Any) -> _Written:
        from lading._core.api.dataset import Dataset

        known, shown = signature(getattr(Dataset, method)), list[str]()
        if method in ("join", "take_keys"):
            args = (cleaned(args[0]), *args[1:])
        for place, (name, value) in enumerate(known.bind(self, *args, **named).arguments.items()):
            one = known.parameters[name]
            if one.kind is Parameter.VAR_POSITIONAL:
                shown += map(repr, value)
            elif place and value != one.default:
                shown.append(
                    repr(value) if place == 1 and one.kind is not Parameter.KEYWORD_ONLY else f"{name}={value!r}"
                )
        self.text += f".{method}({', '.join(shown)})"
        return self


_OWN = {"where": "--where EXPR", "join": "--join FILE", "media_from": "--media-from COLUMN"}
"""Steps with options that belong to them, as they are typed."""


def _step_of(option: TypedOption, steps: list[_Step]) -> _Step:
    """Return the nearest step to which an option belongs. Raises UsageError if there is none before it."""
    for step in reversed(steps):
        if step.name in option.spelled.belongs_to:
            return step
    own = _OWN[option.spelled.belongs_to[0]]
    typed = option.spelled.flag if option.text is True else f"{option.spelled.flag} {option.text}"
    raise UsageError(f"{option.spelled.flag} belongs to a {own.split()[0]} that is typed before it",
                     found=typed, advice=f"Type it behind: {own} {typed}.")  # fmt: skip


_FORMERLY = ("take_keys", "join", "where", "image_bounds", "filter", "dedup", "sample", "shuffle", "sort", "map",
             "flatten", "cast", "select", "drop", "rename", "limit")  # fmt: skip
"""The order in which steps applied before they applied as they are typed."""


_OF_COLUMNS = {"flatten", "cast", "select", "drop", "rename"}
_OF_NUMBERS = {"sample", "shuffle", "limit"}
"""Steps that give the same in either order with a step of columns."""


def _swapped(one: str, other: str) -> bool:
    """Return whether two steps applied in another order, and whether it counts."""
    counts = not ({one, other} & _OF_COLUMNS and {one, other} & _OF_NUMBERS)
    return counts and _FORMERLY.index(one) > _FORMERLY.index(other)


def _differences(steps: list[_Step]) -> Iterator[str]:
    """Give a sentence for what earlier versions did in another way."""
    steps = [step for step in steps if step.name in _FORMERLY]
    if any(_swapped(one.name, other.name) for one, other in combinations(steps, 2)):
        formerly = sorted(steps, key=lambda step: _FORMERLY.index(step.name))
        yield (f"Steps apply as typed: {', '.join(step.shown() for step in steps)}. "
               f"Earlier versions: {', '.join(step.shown() for step in formerly)}.")  # fmt: skip
    filters = [step for step in steps if step.name in ("where", "image_bounds")]
    if 0 < sum(bool(step.more) for step in filters) < len(filters):
        yield from (f"--drop is of {step.shown()} alone. Earlier versions: of all conditions and image bounds."
                    for step in filters if step.more)  # fmt: skip


_MAKES = {"join", "map", "media_from", "flatten", "rename"}
_NAMES = {"where", "media_from", "sort", "dedup", "flatten", "cast", "select", "drop", "rename"}
"""Steps that make columns, and steps that name columns."""


def _too_late(steps: list[_Step]) -> str:
    """Return advice about the first step that makes columns and follows a step that names columns."""
    for one, other in combinations(steps, 2):
        if one.name in _NAMES and other.name in _MAKES:
            return f"Steps apply as typed: if {other.shown()} makes the column, type it before {one.shown()}."
    return ""


def _sort(dataset: Dataset, by: list[tuple[str, bool]]) -> Dataset:
    if len(by) == 1:
        return dataset.sort(by[0][0], descending=by[0][1])
    return dataset.sort([name for name, _ in by], descending=[way for _, way in by])


def _bounds(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("seed", "on_error", "on_missing")}


def _media_from(dataset: Dataset, has: Mapping[str, Any]) -> Dataset:
    """Return the dataset with a column of files for each option: `COLUMN`, or `NAME=COLUMN`."""
    for text in has["media_from"]:
        name, _, column = text.rpartition("=")
        dataset = dataset.media_from(
            column, name or None, fetch=has.get("fetch", False), fetch_private=has.get("fetch_private", False),
            on_error=has["on_missing"],
        )  # fmt: skip
    return dataset


_CALLS: dict[str, Callable[[Dataset, Mapping[str, Any]], Dataset]] = {
    "take_keys": lambda ds, has: ds.take_keys(has["take"]),
    "join": lambda ds, has: ds.join(
        has["join"], has.get("on", "key"), has.get("join_how", "left"), has.get("join_columns")
    ),
    "where": lambda ds, has: ds.where(has["where"], drop=has.get("drop", "row"), on_error=has["on_error"]),
    "image_bounds": lambda ds, has: ds.image_bounds(**_bounds(has)),
    "filter": lambda ds, has: ds.filter(named_function("--filter", has["filter"]), on_error=has["on_error"]),
    "dedup": lambda ds, has: ds.dedup(has["dedup"][0] if len(has["dedup"]) == 1 else has["dedup"]),
    "sample": lambda ds, has: ds.sample(has["sample"], has["seed"]),
    "shuffle": lambda ds, has: ds.shuffle(has["seed"]),
    "sort": lambda ds, has: _sort(ds, has["sort"]),
    "map": lambda ds, has: ds.map(named_function("--map", has["map"]), on_error=has["on_error"]),
    "media_from": _media_from,
    "flatten": lambda ds, has: ds.flatten(*has["flatten"]),
    "cast": lambda ds, has: ds.cast(has["cast"]),
    "select": lambda ds, has: ds.select(*has["columns"]),
    "drop": lambda ds, has: ds.drop(*has["drop_columns"]),
    "rename": lambda ds, has: ds.rename(has["rename"]),
    "limit": lambda ds, has: ds.limit(has["limit"]),
}
"""The call of each step."""
