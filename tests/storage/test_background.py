"""Work that goes on out of sight."""

from __future__ import annotations

from threading import Event

import pytest

from lading._core.storage.background import Background
from lading.errors import StoreError


def test_what_follows_waits_for_what_came_before_and_is_left_out_if_that_failed() -> None:
    background, seen = Background("test"), list[int]()

    def fail() -> None:
        raise StoreError("no")

    background.start(lambda: seen.append(1))
    background.then(lambda: seen.append(2))
    background.wait()
    assert seen == [1, 2]
    background.start(fail)
    background.then(lambda: seen.append(3))
    with pytest.raises(StoreError, match="no"):
        background.wait()
    background.stop()
    assert seen == [1, 2]


def test_all_but_the_last_few_are_waited_for() -> None:
    background, go, seen = Background("test"), Event(), list[int]()
    background.start(lambda: seen.append(1))
    background.then(lambda: seen.append(2))
    background.then(lambda: (go.wait(), seen.append(3))[1])
    background.wait(but=1)
    assert seen == [1, 2]
    background.wait(but=1)  # there is but one left
    go.set()
    background.wait()
    assert seen == [1, 2, 3]
    background.stop()


def test_work_has_begun_when_its_owner_goes_on() -> None:
    """Else it may wait for its turn with the interpreter until its owner waits for it."""
    background = Background("test")
    for _ in range(100):
        go = Event()
        background.start(lambda go=go: (go.wait(), None)[1])
        begun = background._pending[0].running()
        go.set()
        assert begun
    background.stop()
