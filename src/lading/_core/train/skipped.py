"""Samples that a loader left out: which ones, why, and when they are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lading.errors import DataError, LadingError, UsageError

__all__ = ["SkippedLedger", "SkippedSample", "refuse_wrong_max_skipped"]

_MOST_LISTED: Final = 1000
_RATE_OF: Final = 1000
"""Samples of which a rate is taken at the begin of an epoch: the first one that is skipped is no rate of 100 %."""
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class SkippedSample:
    """A sample that was left out, and replaced by the next one of the order.

    Attributes:
        key: of the sample, if it has one.
        reason: what was wrong.
        column: with the problem, if it is in one.
        file: of the sample.
        row: number of the sample in the file.
        epoch: in which it was left out.
    """

    key: str | None
    reason: str
    column: str | None
    file: str | None
    row: int | None
    epoch: int

    @classmethod
    def of(cls, error: LadingError, epoch: int) -> SkippedSample:
        """The sample of an error that has its place."""
        found = "" if error.found is None else f", found {error.found}"
        return cls(error.sample, f"{error.message}{found}", error.column, error.file, error.row, epoch)


class SkippedLedger:
    """Lists and counts samples that were left out, and ends the run where they are too many.

    Args:
        most: number of them in an epoch, or rate; None for any.

    Attributes:
        samples: the first 1,000.
        counts: of all, by a short phrase.
    """

    def __init__(self, most: float | None) -> None:
        self._most, self._of_epoch, self._given, self._skipped = most, 0, 0, 0
        self.samples: list[SkippedSample] = []
        self.counts: Counter[str] = Counter()

    def begin(self, of_epoch: int) -> None:
        """Begin a loop over so many samples."""
        self._of_epoch, self._given, self._skipped = of_epoch, 0, 0

    def add(self, skipped: Sequence[SkippedSample], given: int) -> None:
        """Note the samples that were left out for a batch of so many. Raises DataError if they are too many."""
        self._given += given
        if not skipped:
            return
        self._skipped += len(skipped)
        self.counts["skipped samples, replaced"] += len(skipped)
        self.samples += skipped[: _MOST_LISTED - len(self.samples)]
        most = self._most
        if most is None:
            return
        of = max(self._given, min(self._of_epoch, _RATE_OF))
        if self._skipped > (most * of if isinstance(most, float) else most):
            first = "; ".join(f"{each.key or each.row}: {each.reason}" for each in self.samples[:_NAMED])
            rate = f"{100 * most:g} % of {of:,} samples" if isinstance(most, float) else f"{most:,} samples"
            raise DataError(
                "too many samples were skipped", file=skipped[-1].file, expected=f"at most {rate}",
                found=f"{self._skipped:,}, first {first}",
                advice="Look at loader.skipped, correct the data, or allow more: max_skipped=…",
            )  # fmt: skip


def refuse_wrong_max_skipped(most: float | None, *, skips: bool) -> None:
    """Raise UsageError for a limit that is none, or without effect."""
    if most is None:
        return
    if (
        isinstance(most, bool)
        or not isinstance(most, int | float)
        or not most >= 0  # NaN would allow any number
        or (isinstance(most, float) and most > 1)
    ):
        raise UsageError("no such limit of skipped samples", found=f"max_skipped={most!r}",
                         expected="a rate such as 0.01, or a whole number of samples")  # fmt: skip
    if not skips:
        raise UsageError("no samples are skipped, so max_skipped would have no effect", found=f"max_skipped={most!r}",
                         advice='Give on_error="skip" or missing="skip" too.')  # fmt: skip
