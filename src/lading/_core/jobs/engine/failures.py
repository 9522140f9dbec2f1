"""Tasks that fail, of jobs that go on for a while (`--max-failures`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from lading._core.units import count
from lading.errors import DataError, FunctionError, LadingError

__all__ = ["Failures"]

_SHOWN: Final = 10


class Failures:
    """The tasks of a job that failed. Each is tried twice. The job fails in the end, with all of them.

    Args:
        most: number of tasks that may fail while the others go on; 0 ends the job with the first error.

    Attributes:
        found: the errors, by the number of the task.
    """

    def __init__(self, most: int) -> None:
        self._most, self._tries = most, Counter[int]()
        self.found: dict[int, LadingError] = {}

    def try_again(self, number: int, error: BaseException) -> bool:
        """Note that an attempt at a task failed; return whether to try again. Otherwise the others go on without it.

        Raises:
            BaseException: the error, if it is no fault of the task's data or functions, or if no task may fail.
            DataError: more tasks failed than may.
        """
        if not self._most or not isinstance(error, (DataError, FunctionError)):
            raise error
        self._tries[number] += 1
        if self._tries[number] == 1:
            return True
        self.found[number] = error
        if len(self.found) > self._most:
            self.raise_all()
        return False

    def raise_all(self) -> None:
        """Raise one error that tells all of them, if there are any."""
        errors = [error for _, error in sorted(self.found.items())]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            failed = DataError(f"{count(len(errors), 'task')} failed twice")
            more = [f"and {count(len(errors) - _SHOWN, 'more task')}"] if len(errors) > _SHOWN else []
            failed.details = [*(error.problem for error in errors[:_SHOWN]), *more]
            raise failed
