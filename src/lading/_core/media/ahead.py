"""Process a stream of items in threads, ahead of the consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from lading._core.storage.threads import Threads

__all__ = ["Pace", "map_ahead"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Pace(Generic[_Item]):
    """How items are distributed.

    Python's threads switch slowly: groups of a few dozen small items take half as long as single items.

    Attributes:
        workers: threads; with one, work is done in the caller's thread, one item at a time.
        ordered: yield results in the order of the items, not as they are ready.
        weigh: return the weight of an item.
        group_weight: a thread takes items until they reach this weight.
    """

    workers: int
    ordered: bool
    weigh: Callable[[_Item], int] = lambda _item: 1
    group_weight: int = 1


def map_ahead(work: Callable[[_Item], _Result], items: Iterable[_Item], pace: Pace[_Item]) -> Iterator[_Result]:
    """Yield the result of `work` for each item.

    Items are taken in the caller's thread. At most 2 × workers groups are pending, so that many results are in memory
    at once. An error of an item is raised in its place; an error of `items` itself after all earlier results. Threads
    end with the iterator.
    """
    if pace.workers == 1:
        yield from map(work, items)
        return
    source = _Source(items, pace)
    taken = given = 0
    answers: SimpleQueue[tuple[int, _Answer[_Item, _Result]]] = SimpleQueue()
    waiting: dict[int, _Answer[_Item, _Result]] = {}

    def answer(number: int, group: list[_Item]) -> None:
        answers.put((number, _Answer(work, group)))

    with Threads(pace.workers, "lading-media") as threads:
        try:
            while True:
                while taken - given < 2 * pace.workers and (group := source.group()):
                    threads.submit(partial(answer, taken, group))
                    taken += 1
                if given == taken:
                    break
                number, found = answers.get()
                waiting[number if pace.ordered else given] = found
                while given in waiting:
                    given += 1
                    yield from waiting.pop(given - 1).results()
        finally:
            threads.stop()
            threads.wait()
    source.finish()


class _Source(Generic[_Item]):
    """Groups of items. An error of the items is stored until all earlier groups were passed on."""

    def __init__(self, items: Iterable[_Item], pace: Pace[_Item]) -> None:
        self._items, self._pace = iter(items), pace
        self._ended = False
        self._failed: Exception | None = None

    def group(self) -> list[_Item]:
        """Return the next items; nothing at the end."""
        group: list[_Item] = []
        weight = 0
        while not self._ended and weight < self._pace.group_weight:
            try:
                group.append(next(self._items))
                weight += self._pace.weigh(group[-1])
            except StopIteration:
                self._ended = True
            except Exception as error:  # noqa: BLE001 - raised by `finish`
                self._ended, self._failed = True, error
        return group

    def finish(self) -> None:
        """Raise the stored error of the items."""
        if self._failed is not None:
            raise self._failed


class _Answer(Generic[_Item, _Result]):
    """The result of a group: results, and the error after them."""

    __slots__ = ("_error", "_results")

    def __init__(self, work: Callable[[_Item], _Result], group: list[_Item]) -> None:
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        try:
            self._results.extend(map(work, group))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that takes the answer
            self._error = error

    def results(self) -> Iterator[_Result]:
        yield from self._results
        if self._error is not None:
            raise self._error
