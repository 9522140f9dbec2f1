"""The checks of a dataset that run in threads while its page is shown: one of each kind at a time."""

from __future__ import annotations

from threading import Lock
from typing import Any

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query
from lading._core.view.pictures import Pictures
from lading._core.view.problems import Problems
from lading._core.view.selection import Selection

__all__ = ["Checks"]


class Checks:
    """The checks of a dataset.

    Args:
        query: the dataset.

    Attributes:
        problems: what `verify` and `doctor` find.
    """

    def __init__(self, query: Query) -> None:
        self.problems = Problems(query)
        self._lock = Lock()
        self._pictures: tuple[Selection, Pictures] | None = None

    def look_at_pictures(self, selection: Selection, data: OpenDataset) -> None:
        """Begin to decode all pictures of a selection; an earlier look ends.

        Args:
            selection: which samples.
            data: these samples.
        """
        with self._lock:
            if self._pictures is not None:
                self._pictures[1].stop()
            self._pictures = selection, Pictures(data)

    def stop_pictures(self) -> None:
        """End the look at all pictures."""
        if self._pictures is not None:
            self._pictures[1].stop()

    def pictures(self, selection: Selection, wait_s: float) -> dict[str, Any]:
        """Return the state of the look at the pictures of a selection, as `Pictures.state`.

        `decoded` is None if there was no look at this selection.
        """
        with self._lock:
            of, pictures = self._pictures or (None, None)
        if pictures is None or of != selection:
            return {"running": False, "decoded": None}
        return pictures.state(wait_s)

    def close(self) -> None:
        """End the checks."""
        self.problems.close()
        if self._pictures is not None:
            self._pictures[1].close()
