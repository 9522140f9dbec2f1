"""What a conversion leaves out because somebody asked for it, as steps of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from lading.dataset.steps import Filter, Function, ImageBounds, Step, Where
from lading.options import Drop

__all__ = ["Filters"]


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep; see the steps `Where`, `ImageBounds` and `Filter`, which are applied in this order.

    Attributes:
        where: the condition of `Where`.
        min_aspect_ratio, max_aspect_ratio, min_side, max_side: the bounds of `ImageBounds`.
        keep: the function of `Filter`.
        drop: of all three.
    """

    where: str | pc.Expression | None = None
    min_aspect_ratio: float | None = None
    max_aspect_ratio: float | None = None
    min_side: int | None = None
    max_side: int | None = None
    keep: Function | None = None
    drop: Drop = "row"

    def __post_init__(self) -> None:
        """Refuse conditions and bounds that nothing fits."""
        ImageBounds(self.min_side, self.max_side, self.min_aspect_ratio, self.max_aspect_ratio, self.drop)

    @property
    def steps(self) -> list[Step]:
        """The steps that leave rows out."""
        bounds = ImageBounds(self.min_side, self.max_side, self.min_aspect_ratio, self.max_aspect_ratio, self.drop)
        return [
            *([Where(self.where, self.drop)] if self.where is not None else []),
            *([bounds] if bounds != ImageBounds(drop=self.drop) else []),
            *([Filter(self.keep, self.drop)] if self.keep is not None else []),
        ]

    @property
    def active(self) -> bool:
        """Whether anything may be left out."""
        return bool(self.steps)

    @property
    def looks(self) -> bool:
        """Whether columns are looked at: by a condition, or by a function of the user's."""
        return self.where is not None or self.keep is not None
