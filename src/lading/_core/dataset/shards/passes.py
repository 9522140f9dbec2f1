"""How far a pass over shards is, for a job that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

__all__ = ["OnPass", "Passes"]

OnPass: TypeAlias = Callable[[str, int, int], object]
"""Called with the phase of a job, the shards that are done, and the samples that are read."""


class Passes:
    """Reports the passes over shards that come before the work of a job, such as the look for duplicates.

    Attributes:
        report: called at the begin of a pass, after every batch and every shard; None if nobody looks.
    """

    def __init__(self) -> None:
        self.report: OnPass | None = None
        self._phase, self._samples = "", 0

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Report the shards that are read inside as this phase; an empty one reports nothing."""
        before = self._phase, self._samples
        self._phase, self._samples = phase, 0
        try:
            self.add(0)
            yield
        finally:
            self._phase, self._samples = before

    def add(self, shards_done: int, samples: int = 0) -> None:
        """Note that samples were read; before them, so many shards were read to their end."""
        if self._phase and self.report is not None:
            self._samples += samples
            self.report(self._phase, shards_done, self._samples)

    @property
    def is_on(self) -> bool:
        """Whether `add` reports."""
        return bool(self._phase) and self.report is not None
