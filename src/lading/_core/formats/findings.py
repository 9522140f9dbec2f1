"""What checks of a shard, and of a dataset's own index, find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Self

from lading.errors import LadingError

__all__ = ["Finding", "Level"]


class Level(Enum):
    """How `Format.check` looks at a shard.

    Attributes:
        QUICK: headers, indexes and the files next to the shard; no payload.
        DEEP: the same, and the content of payload and of the files next to the shard.
        LAYOUT: how the shard is laid out, by headers and indexes; `doctor` reports it.
    """

    QUICK = "quick"
    DEEP = "deep"
    LAYOUT = "layout"


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of `Format.check` or `Format.check_index`.

    Attributes:
        problem: the problem in a few words, the same words for every shard; empty if `checked` has no problem.
        error: the error with its place; None for layout findings.
        checked: a kind of file that was compared with the shard (`sidecars`, `videos`), for the report of `verify`.
        measured: place in the shard, the measured value and its limit; for layout findings.
        why: whom the layout slows down or breaks, in one sentence.
        weight: the measured value as a number. Of many shards with one problem, the report names the largest.
        fix: command that solves the problem: a `copy` in the same format, an `index` of the dataset, or none.
        read_options: options of reading under which a copy solves the problem.
    """

    problem: str
    error: LadingError | None = None
    checked: str = ""
    measured: str = ""
    why: str = ""
    weight: float = 0
    fix: Literal["copy", "index"] | None = None
    read_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: LadingError) -> Self:
        """Return the finding of an error."""
        return cls(error.message, error)
