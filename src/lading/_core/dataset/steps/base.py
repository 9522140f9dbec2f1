"""What a step is: a small frozen value that owns all that it does, and a few facts that others ask for.

Steps can be printed, compared and pickled. `_core.dataset.transform.transform` applies a row of them to batches.

A new step is a class here with its methods, and a verb of `Dataset` and of the command line:

    @dataclass(frozen=True, slots=True)
    class Reversed(OrderStep):
        def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
            return numbers[::-1]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from lading._core.content.conditions import Condition
from lading._core.content.field_paths import Wanted, parse_field
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.spelling import names_value
from lading._core.storage.fetch import Fetcher
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.dataset.order.numbers import Look, Numbers
    from lading._core.dataset.transform.function_spool import StepSpool

__all__ = [
    "Applied",
    "AppliedEach",
    "Columns",
    "Known",
    "OrderStep",
    "Step",
    "StepContext",
    "columns_of_names",
    "no_such_column",
    "refuse_no_names",
    "shown_names",
]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are asked for: some, or all but some.

    Example: `Columns.all_but({"a"}).with_("a", "b") == Columns.all_but()`

    Attributes:
        names: the columns; or those that are not asked for.
        inverted: whether all but these columns are asked for.
    """

    names: frozenset[str]
    inverted: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> Columns:
        """Return these columns."""
        return cls(frozenset(names))

    @classmethod
    def all_but(cls, names: Iterable[str] = ()) -> Columns:
        """Return all columns but these."""
        return cls(frozenset(names), inverted=True)

    def __contains__(self, name: object) -> bool:
        return (name in self.names) is not self.inverted

    def with_(self, *names: str) -> Columns:
        """Return these columns and further ones."""
        return Columns(self.names.difference(names) if self.inverted else self.names.union(names), self.inverted)

    def without(self, names: Iterable[str]) -> Columns:
        """Return these columns without some."""
        return Columns(self.names.union(names) if self.inverted else self.names.difference(names), self.inverted)

    def named(self, new: Mapping[str, str]) -> Columns:
        """Return these columns under other names, those that the mapping has."""
        return Columns(frozenset(new.get(name, name) for name in self.names), self.inverted)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the rows before a step.

    Attributes:
        view: how they are taken.
        added: columns that earlier steps added.
        schema: of the source; None where it is unknown: then some steps ask for all columns.
    """

    view: str
    added: Collection[str] = ()
    schema: pa.Schema | None = None

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)


class Applied:
    """A step at work: called with one batch after another.

    Attributes:
        schema: of a function of the user: the columns of the rows that it gives; None before the first of them.
    """

    schema: pa.Schema | None = None

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return the rows that are left, as the step makes them. By default all, as they are."""
        return traced

    def is_done(self) -> bool:
        """Return whether no row of the batches that follow will be kept."""
        return False

    def most_rows(self) -> int | None:
        """Return how many rows the next batch should have at most: a step may make much of each. None: any number."""
        return None

    def unmatched(self) -> Counter[str]:
        """Return the rows of joined tables for which there was no sample so far."""
        return Counter()

    def absent_field(self) -> Wanted | None:
        """Return a field that a condition asks for and no row had, if the condition was true for none."""
        return None


class AppliedEach(Applied):
    """A step at work that makes something of each batch alone."""

    def __init__(self, apply: Callable[[TracedBatch], TracedBatch]) -> None:
        self._apply = apply

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return what the function makes of the batch."""
        return self._apply(traced)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step needs to work.

    Attributes:
        view: how rows are taken.
        fetcher: reads payload behind references.
        counts: of what is worth a report, by a short phrase; added to.
        image_lists: gives the columns whose lists have one entry an image; asked where a step may drop or move images.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
        behind_function: whether a function of the user made the rows.
        schema: of the rows that the step's function gives, if it is known.
        skipped: samples before the first batch, which a first slice is not shown.
        spool: what the step's function made before; None: it is called for all samples, and nothing is kept.
    """

    view: str
    fetcher: Fetcher
    counts: Counter[str]
    image_lists: Callable[[], Sequence[str]] = tuple
    any_members: bool = False
    behind_function: bool = False
    schema: pa.Schema | None = None
    skipped: int = 0
    spool: StepSpool | None = None

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)


class Step:
    """A step of a dataset. By default it keeps samples, rows and columns, and looks at no values.

    Attributes:
        over_numbers: it chooses or orders samples by their numbers, and changes no row; see `numbers_after`.
        only_orders: of such a step: it keeps all samples, in another order.
        counts_samples: of such a step: it takes samples by their number, in a slice or list.
        phase: of such a step: what a progress bar says while it reads all samples; empty if it reads none.
        changes_columns: it chooses, names, adds or casts columns.
        keeps_names: columns behind it are columns before it, with their names, types and values.
        reads_values: it reads values of samples, other than to leave rows out by a condition or the size of images.
        calls_function: it calls a function of the user.
        makes_columns: a function makes its rows, and alone knows their columns.
        asks_schema: it asks for fewer columns where the schema of the source is known.
    """

    __slots__ = ()

    over_numbers: ClassVar[bool] = False
    only_orders: ClassVar[bool] = False
    counts_samples: ClassVar[bool] = False
    phase: ClassVar[str] = ""
    changes_columns: ClassVar[bool] = False
    keeps_names: ClassVar[bool] = True
    reads_values: ClassVar[bool] = False
    calls_function: ClassVar[bool] = False
    makes_columns: ClassVar[bool] = False
    asks_schema: ClassVar[bool] = False

    # Samples and rows

    @property
    def keeps_samples(self) -> bool:
        """Whether each sample stays one sample, in its place."""
        return True

    @property
    def needs_all(self) -> bool:
        """Whether it needs all samples before it."""
        return False

    @property
    def skips(self) -> int:
        """Samples that it leaves out before the first that it keeps."""
        return 0

    @property
    def most_samples(self) -> int | None:
        """The most samples that are left, if it only limits their number."""
        return None

    @property
    def replaces_batches(self) -> bool:
        """Whether a function replaces batches, and may give any number of rows."""
        return False

    @property
    def is_spooled(self) -> bool:
        """Whether what its function makes may be kept, so that the function is called once a sample."""
        return False

    @property
    def cut(self) -> dict[str, Any] | None:
        """How shards are cut that are written, if it is a step that says so."""
        return None

    def changes_rows(self, view: str) -> bool:  # noqa: ARG002 - conditions need it
        """Return whether it changes rows of samples that it keeps; conditions may take single items of documents."""
        return True

    def without_choice(self) -> Step:
        """Return the step so that it leaves out no sample."""
        return self

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - steps over numbers need it
        """Return the numbers, in the source, of the samples behind the step. By default all, in their order.

        Args:
            numbers: of the samples before the step, in their order.
            look: reads values of these samples.

        Raises:
            UsageError: the step does not fit these samples.
            IndexError: a list names a sample that is not there.
        """
        return numbers

    # Columns

    @property
    def row_condition(self) -> Condition | None:
        """The condition that rows must meet, if the step is one."""
        return None

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns that it selects."""
        return ()

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that it adds."""
        return ()

    @property
    def adds_to_samples(self) -> tuple[str, ...]:
        """Of documents, the columns that it adds with one value a document."""
        return ()

    def looked_at(self, known: Collection[str]) -> list[str]:  # noqa: ARG002 - steps that look at values need it
        """Return the columns whose values decide which samples are kept, and in which order, as far as it is known.

        Args:
            known: columns that there are; names with dots may be theirs.
        """
        return []

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - steps that name fields need it
        """Return the columns of its rows that it names, where earlier steps added some."""
        return ()

    def sources(self, source: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the names in the source that columns have behind the step.

        Args:
            source: the same before the step: names of columns that have other names in the source; None for those that
                steps add.
        """
        return {**source, **dict.fromkeys(self.adds)}

    def refuse_for(self, layout: RowLayout) -> None:
        """Raise UsageError if it takes columns from rows that these cannot be without."""

    def left(self, names: Columns, view: str) -> Columns:  # noqa: ARG002 - selections need it
        """Return the names that later steps may use, where earlier steps left these."""
        return names.with_(*self.adds)

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - most steps need it
        """Return the columns that are needed before the step, so that it gives the wanted ones."""
        return wanted

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - selections need it
        """Return the schema behind the step. Raises UsageError for a column that is not there, or there twice."""
        return schema

    def check(self, schema: pa.Schema, fetcher: Fetcher) -> None:
        """Raise UsageError if it fits no row of this schema, whatever the values."""

    # Work

    @property
    def sent(self) -> dict[str, object]:
        """What may be impossible to send to another process, by the argument of the user that it comes from."""
        return {}

    def begin(self, context: StepContext) -> Applied:  # noqa: ARG002 - steps that change rows need it
        """Return the step at work; the same step may work several times at once."""
        return Applied()


class OrderStep(Step, ABC):
    """A step that chooses or orders samples by their numbers in the source. It reads no payload."""

    __slots__ = ()

    over_numbers: ClassVar[bool] = True

    @property
    def keeps_samples(self) -> bool:
        """It need not."""
        return False

    @property
    def needs_all(self) -> bool:
        """By default it does."""
        return True

    def changes_rows(self, view: str) -> bool:  # noqa: ARG002 - of any view
        """It changes none."""
        return False

    @abstractmethod
    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
        """Return the numbers of the samples that it keeps, in its order; as of `Step`."""


def columns_of_names(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the column of each name of a field."""
    return [parse_field(name, known).column for name in names]


def no_such_column(name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a column that is not among some."""
    known = [*names]
    field = parse_field(name, known)
    is_inside = field.column in known and bool(field.path)
    flatten = f"Fields become columns by --flatten {names_value([field.column])}, before this step."
    return UsageError("no such column", expected=", ".join(known), found=repr(name),
                      advice=flatten if is_inside else None)  # fmt: skip


def refuse_no_names(names: object) -> None:
    """Raise UsageError for names of columns that are no texts."""
    for name in names if isinstance(names, (tuple, list)) else [names]:
        if not isinstance(name, str):
            raise UsageError("a column is named by a text", found=repr(name)[:80])


def shown_names(names: Iterable[str]) -> str:
    """Return names as a step shows them."""
    return ", ".join(map(repr, names))
