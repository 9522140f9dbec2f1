"""Functions of the user in steps: their types, how they are shown, and what is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from lading._core.dataset.steps.base import Columns, Known, Step
from lading.errors import UsageError

__all__ = [
    "Function",
    "FunctionStep",
    "OnFunctionError",
    "refuse_no_function",
    "refuse_other_error",
    "shown_error",
    "shown_function",
    "shown_spool",
]

Function: TypeAlias = Callable[[Any], Any]
"""A function of the user's over a sample; or over a batch, in which payload comes as references or `large_binary`."""

OnFunctionError: TypeAlias = Literal["error", "drop_sample"]
"""For a sample for which a function raises: raise; or drop it, counted and listed in the ledger."""


class FunctionStep(Step, ABC):
    """A step that calls a function of the user, with each sample or with batches."""

    __slots__ = ()

    function: Function
    spool: bool

    reads_values: ClassVar[bool] = True
    calls_function: ClassVar[bool] = True

    @property
    @abstractmethod
    def verb(self) -> str:
        """Name of the method that makes the step."""

    @property
    def is_spooled(self) -> bool:
        """Whether what the function gives may be kept."""
        return self.spool

    @property
    def sent(self) -> dict[str, object]:
        """The function."""
        return {self.verb: self.function}

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - as of all steps
        """Return all columns."""
        return Columns.all_but()


def refuse_no_function(function: object, on_error: str) -> None:
    """Raise UsageError for a value that cannot be called, and for an unknown policy."""
    if not callable(function):
        raise UsageError("not a function", found=repr(function)[:80])
    refuse_other_error(on_error)


def refuse_other_error(on_error: str) -> None:
    """Raise UsageError for an unknown policy."""
    if on_error not in get_args(OnFunctionError):
        raise UsageError("no such policy", expected=" or ".join(get_args(OnFunctionError)),
                         found=f"on_error={on_error!r}")  # fmt: skip


def shown_error(on_error: str) -> str:
    """Return the policy as a step shows it."""
    return "" if on_error == "error" else f", on_error={on_error!r}"


def shown_spool(spool: bool) -> str:
    """Return as a step shows it whether what its function makes is kept."""
    return "" if spool else ", spool=False"


def shown_function(function: Function) -> str:
    """Return the name of a function."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{getattr(function, '__module__', '')}.{name}".removeprefix("__main__.")
