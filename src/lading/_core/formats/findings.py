"""What checks of a shard, and of a dataset's own index, find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Self

from lading.errors import LadingError

__all__ = ["Finding", "Level"]


class Level(Enum):
    """How `Format.checks` looks at a shard.

    Attributes:
        QUICK: headers, indexes and the files next to the shard; no payload.
        DEEP: the same, and the content of payload and of the files next to the shard.
        BESIDE: what the files next to a damaged shard say of it.
        LAYOUT: how the shard is laid out, by headers and indexes; `doctor` reports it.
    """

    QUICK = "quick"
    DEEP = "deep"
    BESIDE = "beside"
    LAYOUT = "layout"


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of `Format.checks` or `DatasetIndex.checks`.

    Attributes:
        problem: the problem in a few words, the same words for every shard; empty if there is none.
        error: the error with its place; None for layout findings.
        checked: a kind of file that was compared with the shard (`sidecars`, `videos`), for the report of `verify`.
            With an error if such a file is wrong.
        lost_samples: samples that a wrong sidecar lists behind all of the shard's: the shard was cut.
        listed_samples: samples that the sidecar of a damaged shard lists; None without one, or for another shard's.
        copy: path of the same shard with other compression; empty without one.
        measured: place in the shard, the measured value and its limit; for layout findings.
        why: whom the layout slows down or breaks, in one sentence.
        weight: the measured value as a number. Of many shards with one problem, the report names the largest.
        fix: command that solves the problem: a `copy` in the same format, an `index` of the dataset, or none.
        read_options: options of reading under which a copy solves the problem.
    """

    problem: str
    error: LadingError | None = None
    checked: str = ""
    lost_samples: int = 0
    listed_samples: int | None = None
    copy: str = ""
    measured: str = ""
    why: str = ""
    weight: float = 0
    fix: Literal["copy", "index"] | None = None
    read_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: LadingError) -> Self:
        """Return the finding of an error."""
        return cls(error.message, error)
