"""The checks of a dataset that run in threads while its page is shown: one of each kind at a time."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query
from lading._core.view.pictures import PictureCheck
from lading._core.view.problems import Problems
from lading._core.view.rows import SelectedSamples
from lading._core.view.selection import Selection

if TYPE_CHECKING:
    from lading._core.view.comparison import Comparison, Differences
    from lading._core.view.work import PageWork

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
        self._pictures: tuple[Selection, PictureCheck] | None = None
        self._comparison: tuple[Selection, Comparison] | None = None

    def look_at_pictures(self, selection: Selection, data: OpenDataset) -> None:
        """Begin to decode all pictures of a selection; an earlier look ends.

        Args:
            selection: which samples.
            data: these samples.
        """
        with self._lock:
            if self._pictures is not None:
                self._pictures[1].stop()
            self._pictures = selection, PictureCheck(data)

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

    def comparison(self, selection: Selection, one: SelectedSamples, other: SelectedSamples) -> Comparison:
        """Return the comparison of the samples of a selection in two datasets; it begins when asked for.

        One runs at a time: that of an earlier selection ends.
        """
        from lading._core.view.comparison import Comparison

        with self._lock:
            if self._comparison is not None:
                of, found = self._comparison
                if of == selection and not found.work.was_stopped:
                    return found
                found.work.stop()
            made = Comparison(one.data.query, other.data.query)
            self._comparison = selection, made
            return made

    def close(self) -> None:
        """End the checks: all are told to, before one of them is waited for."""
        works: list[Problems | PictureCheck | PageWork[Differences]] = [self.problems]
        if self._pictures is not None:
            works.append(self._pictures[1])
        if self._comparison is not None:
            works.append(self._comparison[1].work)
        for work in works:
            work.stop()
        for work in works:
            work.close()
