"""The steps of a dataset: small frozen values that say which rows and columns are kept, and how rows change.

Steps can be printed, compared and pickled. `lading.dataset.transform.transform` applies them to batches of rows.

Example:
    Select(("jpg", "json")), Where("jpg.width >= 256"), Limit(100)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index as as_int
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.content.conditions import as_where
from lading.content.media_files import Opening
from lading.dataset.steps.base import StepBase
from lading.dataset.steps.cast_step import Cast
from lading.dataset.steps.field_steps import Fields
from lading.dataset.steps.key_steps import Dedup, Join, Split, SplitByGroup
from lading.dataset.steps.order_steps import Sample, Shuffle, Sort, Take
from lading.dataset.steps.repartition import Repartition
from lading.errors import UsageError
from lading.features.stored_values import declared_field
from lading.options import Drop as DropPolicy

__all__ = [
    "Drop",
    "Filter",
    "Function",
    "ImageBounds",
    "Limit",
    "Map",
    "OnFunctionError",
    "Rename",
    "Rows",
    "Select",
    "Step",
    "Where",
    "before_map",
    "names_behind",
    "unasked_columns",
    "without_unasked",
]

Function: TypeAlias = Callable[[Any], Any]
"""A function of the user's over a sample; or over a batch, in which payload comes as references or `large_binary`."""

OnFunctionError: TypeAlias = Literal["error", "drop_sample"]
"""For a sample for which a function raises: raise; or drop it, counted and listed in the ledger."""

_SHOWN_ROWS = 4


@dataclass(frozen=True, slots=True)
class Select(StepBase):
    """Keep these columns, in the order of the source. Keys of samples and reserved columns of items always stay."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse to select nothing, and names that are no texts."""
        if not self.columns:
            raise UsageError("no column is selected", advice="Name one, or leave columns out for all of them.")
        _refuse_no_names(self.columns)

    def __repr__(self) -> str:
        return f"select({_listed(self.columns)})"


@dataclass(frozen=True, slots=True)
class Drop(StepBase):
    """Leave these columns out.

    Attributes:
        columns: their names.
        unasked: whether the columns were read for earlier steps alone; see `lading.dataset.transform.unlisted_fields`.
    """

    columns: tuple[str, ...]
    unasked: bool = False

    def __post_init__(self) -> None:
        """Refuse names that are no texts."""
        _refuse_no_names(self.columns)

    def __repr__(self) -> str:
        return f"drop({_listed(self.columns)})"


@dataclass(frozen=True, slots=True)
class Rename(StepBase):
    """Give columns new names: pairs of the old and the new name."""

    names: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        """Refuse names that are no texts, and one new name for two columns."""
        _refuse_no_names([name for pair in self.names for name in pair])
        new = [name for _, name in self.names]
        if len({*new}) < len(new):
            raise UsageError("two columns get one name", found=_listed(new))

    @classmethod
    def of(cls, names: Mapping[str, str]) -> Rename:
        """The step that gives each key of the mapping its value as name."""
        return cls(tuple(names.items()))

    def __repr__(self) -> str:
        return f"rename({dict(self.names)!r})"


@dataclass(frozen=True, slots=True)
class Where(StepBase):
    """Keep the rows for which a condition holds.

    Attributes:
        condition: a text (`lading.content.conditions`), or a pyarrow expression.
        drop: of documents: drop the items that fail (`row`), or the documents that have such items (`sample`).
    """

    condition: str | pc.Expression
    drop: DropPolicy = "row"

    def __post_init__(self) -> None:
        """Refuse a text that is no condition."""
        _refuse_other_policy(self.drop)
        as_where(self.condition)

    def __eq__(self, other: object) -> bool:
        """Compare expressions with their own method: their `==` makes another expression."""
        if not isinstance(other, Where):
            return NotImplemented
        one, two = self.condition, other.condition
        if isinstance(one, str) or isinstance(two, str):
            same = isinstance(one, str) and isinstance(two, str) and one == two
        else:
            same = one.equals(two)
        return same and self.drop == other.drop

    def __hash__(self) -> int:
        return hash((str(self.condition), self.drop))

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its condition; an expression of pyarrow does not say them."""
        wanted = as_where(self.condition).wanted if isinstance(self.condition, str) else ()
        return [each.field.among(known).column for each in wanted]

    def __repr__(self) -> str:
        return f"where({_shown_condition(self.condition)}{_shown_policy(self.drop)})"


@dataclass(frozen=True, slots=True)
class ImageBounds(StepBase):
    """Keep the rows whose images are within bounds, which are inclusive.

    An image whose size cannot be read is outside all bounds.

    Attributes:
        min_side: least pixels of an image's shorter side.
        max_side: most pixels of its longer side.
        min_aspect_ratio: least width / height.
        max_aspect_ratio: most width / height.
        drop: as of `Where`.
    """

    min_side: int | None = None
    max_side: int | None = None
    min_aspect_ratio: float | None = None
    max_aspect_ratio: float | None = None
    drop: DropPolicy = "row"

    def __post_init__(self) -> None:
        """Refuse bounds that no image can be within."""
        _refuse_other_policy(self.drop)
        for low, high in (("min_aspect_ratio", "max_aspect_ratio"), ("min_side", "max_side")):
            least, most = getattr(self, low), getattr(self, high)
            if any(bound is not None and not bound >= 0 for bound in (least, most)):
                raise UsageError("a bound must be a number, 0 or more", found=f"{low}={least}, {high}={most}")
            if least is not None and most is not None and least > most:
                raise UsageError("no image is within these bounds", found=f"{low}={least}, {high}={most}")

    def fit(self, width: NDArray[np.int64], height: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which images are within the bounds."""
        ratio, short, long = width / height, np.minimum(width, height), np.maximum(width, height)
        fits = np.ones(len(width), np.bool_)
        for values, least, most in (
            (ratio, self.min_aspect_ratio, self.max_aspect_ratio),
            (short, self.min_side, None),
            (long, None, self.max_side),
        ):
            fits &= (values >= least) if least is not None else True
            fits &= (values <= most) if most is not None else True
        return fits

    def __repr__(self) -> str:
        names = ("min_side", "max_side", "min_aspect_ratio", "max_aspect_ratio")
        bounds = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) is not None]
        return f"image_bounds({', '.join(bounds)}{_shown_policy(self.drop)})"


@dataclass(frozen=True, slots=True)
class Filter(StepBase):
    """Keep the samples for which a function says true.

    Attributes:
        function: called with each sample, a dict of decoded values; or with each batch, for a truth value of every row.
        drop: as of `Where`, of a function over batches.
        on_error: for a function over samples that raises: `error`, or `drop_sample`.
        batched: whether the function is called with batches.
        opening: how a function over samples gets images.
    """

    function: Function
    drop: DropPolicy = "row"
    on_error: OnFunctionError = "error"
    batched: bool = False
    opening: Opening = "upright"

    def __post_init__(self) -> None:
        """Refuse values that cannot be called, and unknown policies."""
        _refuse_other_policy(self.drop)
        _refuse_no_function(self.function, self.on_error)

    def __repr__(self) -> str:
        verb = "filter_batches" if self.batched else "filter"
        return f"{verb}({_shown_function(self.function)}{_shown_policy(self.drop)}{_shown_error(self.on_error)})"


@dataclass(frozen=True, slots=True)
class Map(StepBase):
    """Merge the dict that a function returns into its sample; or replace each batch by the batch that it returns.

    Attributes:
        function: called with each sample, a dict of decoded values; or with each batch.
        columns: name and declared type of new and changed columns; None: the first samples decide.
        on_error: as of `Filter`.
        batched: as of `Filter`.
        opening: as of `Filter`.
    """

    function: Function
    columns: tuple[tuple[str, Any], ...] | None = None
    on_error: OnFunctionError = "error"
    batched: bool = False
    opening: Opening = "upright"

    def __post_init__(self) -> None:
        """Refuse values that cannot be called, unknown policies, and types that columns cannot have."""
        _refuse_no_function(self.function, self.on_error)
        for name, kind in self.columns or ():
            _refuse_no_names([name])
            declared_field(name, kind)

    @property
    def keeps_samples(self) -> bool:
        """Whether each sample stays one sample, in its place."""
        return not self.batched and self.on_error == "error"

    def __repr__(self) -> str:
        if self.batched:
            return f"map_batches({_shown_function(self.function)})"
        columns = "" if self.columns is None else f", columns={dict(self.columns)!r}"
        return f"map({_shown_function(self.function)}{columns}{_shown_error(self.on_error)})"


@dataclass(frozen=True, slots=True)
class Limit(StepBase):
    """Keep the first samples, at most so many."""

    count: int

    def __post_init__(self) -> None:
        """Refuse what is no number of samples."""
        if not isinstance(self.count, (int, np.integer)) or isinstance(self.count, bool) or self.count < 0:
            raise UsageError("limit must be a whole number, 0 or more", found=repr(self.count))

    def __repr__(self) -> str:
        return f"limit({self.count})"


@dataclass(frozen=True, slots=True)
class Rows(StepBase):
    """Take samples by number: a slice of them, or a list in any order, with repeats.

    Attributes:
        start, stop, step: of a slice.
        numbers: of a list; None for a slice.
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None
    numbers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a step of 0, and bounds that are no whole numbers."""
        for name in ("start", "stop", "step"):
            bound = getattr(self, name)
            try:
                object.__setattr__(self, name, None if bound is None else as_int(bound))
            except TypeError:
                raise UsageError("bounds of a slice are whole numbers", found=repr(bound)[:80]) from None
        if self.step == 0:
            raise UsageError("the step of a slice is not 0", found=repr(self))

    @property
    def slice(self) -> slice:
        """The slice."""
        return slice(self.start, self.stop, self.step)

    @property
    def streams(self) -> bool:
        """Whether the samples can be taken in one pass from the first one on, without knowing how many there are."""
        start, stop, step = self.start or 0, self.stop, self.step or 1
        return self.numbers is None and start >= 0 and (stop is None or stop >= 0) and step > 0

    def __repr__(self) -> str:
        if self.numbers is None:
            bounds = ["" if bound is None else str(bound) for bound in (self.start, self.stop, self.step)]
            return f"[{':'.join(bounds if bounds[2] else bounds[:2])}]"
        more = f", … {len(self.numbers):,} numbers" if len(self.numbers) > _SHOWN_ROWS else ""
        return f"[[{', '.join(map(str, self.numbers[:_SHOWN_ROWS]))}{more}]]"


Step: TypeAlias = (
    Select
    | Drop
    | Rename
    | Where
    | ImageBounds
    | Filter
    | Map
    | Limit
    | Rows
    | Shuffle
    | Sample
    | Sort
    | Take
    | Join
    | Fields
    | Split
    | Cast
    | SplitByGroup
    | Repartition
    | Dedup
)
"""One step of a dataset."""


def names_behind(steps: Sequence[Step], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that columns have behind steps."""
    for step in steps:
        if isinstance(step, Rename):
            new = dict(step.names)
            names = [new.get(name, name) for name in names]
    return tuple(names)


def before_map(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps before the first function over samples or batches that gives columns: they name the source's."""
    return steps[: next((place for place, step in enumerate(steps) if isinstance(step, Map)), None)]


def unasked_columns(steps: Iterable[Step]) -> set[str]:
    """Return the columns that were read for other steps alone."""
    return {name for step in steps if isinstance(step, Drop) and step.unasked for name in step.columns}


def without_unasked(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps without those that drop what was read for other steps alone."""
    return tuple(step for step in steps if not (isinstance(step, Drop) and step.unasked))


def _refuse_no_names(names: object) -> None:
    for name in names if isinstance(names, (tuple, list)) else [names]:
        if not isinstance(name, str):
            raise UsageError("a column is named by a text", found=repr(name)[:80])


def _refuse_other_policy(drop: str) -> None:
    if drop not in get_args(DropPolicy):
        raise UsageError("no such choice", expected=" or ".join(get_args(DropPolicy)), found=f"drop={drop!r}")


def _refuse_no_function(function: object, on_error: str) -> None:
    if not callable(function):
        raise UsageError("not a function", found=repr(function)[:80])
    if on_error not in get_args(OnFunctionError):
        raise UsageError("no such policy", expected=" or ".join(get_args(OnFunctionError)),
                         found=f"on_error={on_error!r}")  # fmt: skip


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))


def _shown_condition(condition: str | pc.Expression) -> str:
    return repr(condition) if isinstance(condition, str) else str(condition)


def _shown_policy(drop: str) -> str:
    return "" if drop == "row" else f", drop={drop!r}"


def _shown_error(on_error: str) -> str:
    return "" if on_error == "error" else f", on_error={on_error!r}"


def _shown_function(function: Function) -> str:
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{getattr(function, '__module__', '')}.{name}".removeprefix("__main__.")
