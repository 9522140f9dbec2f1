"""The methods of a dataset that give a new dataset with one more step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import pyarrow.compute as pc

from lading.dataset.field_steps import Fields
from lading.dataset.steps import Drop, Filter, Function, ImageBounds, Limit, Map, Rename, Select, Step, Where
from lading.options import Drop as DropPolicy

__all__ = ["StepVerbs"]


class StepVerbs(ABC):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

    @abstractmethod
    def _with(self, step: Step) -> Self:
        """The dataset with one more step."""

    def select(self, *columns: str) -> Self:
        """Keep these columns, in the order of the source.

        The key of samples (`__key__`) and the reserved columns of items stay too; `drop` leaves them out. A field
        inside a column becomes a column of its own, such as `json.lang`, `meta.tags[0]`, `jpg.width`. A sample without
        the field has a null there. The first samples decide the type of JSON fields: `select` reads them.

        Example: `ds.select("jpg", "json.lang")`
        """
        fields = self._fields(columns)
        chosen = self if fields is None else self._with(fields)
        return chosen._with(Select(columns))  # noqa: SLF001 - of the same class

    @abstractmethod
    def _fields(self, columns: Sequence[str]) -> Fields | None:
        """The step that adds the columns among these that are fields inside others; None if there are none."""

    def drop(self, *columns: str) -> Self:
        """Leave these columns out.

        Example: `ds.drop("thumbnail")`
        """
        return self._with(Drop(columns))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Give columns new names.

        Example: `ds.rename({"txt": "caption"})`
        """
        return self._with(Rename.of(names))

    def where(self, condition: str | pc.Expression, *, drop: DropPolicy = "row") -> Self:
        """Keep the rows for which a condition holds. A column that only metadata rows fill counts for all items.

        Example: `ds.where("lang == 'en' and score > 0.5")`

        Args:
            condition: a text, or a pyarrow expression.
            drop: of documents: drop the items that fail (`row`), or the documents that have such items (`sample`).
        """
        return self._with(Where(condition, drop))

    def image_bounds(
        self,
        *,
        min_side: int | None = None,
        max_side: int | None = None,
        min_aspect_ratio: float | None = None,
        max_aspect_ratio: float | None = None,
        drop: DropPolicy = "row",
    ) -> Self:
        """Keep the rows whose images are within bounds. Only the first bytes of images are read.

        Example: `ds.image_bounds(min_side=256, max_aspect_ratio=3)`

        Args:
            min_side: least pixels of an image's shorter side.
            max_side: most pixels of its longer side.
            min_aspect_ratio: least width / height.
            max_aspect_ratio: most width / height.
            drop: as of `where`.
        """
        return self._with(ImageBounds(min_side, max_side, min_aspect_ratio, max_aspect_ratio, drop))

    def filter(self, function: Function, *, drop: DropPolicy = "row") -> Self:
        """Keep the rows for which a function says true.

        Example: `ds.filter(lambda batch: pc.greater(batch["score"], 0.5))`

        Args:
            function: called with each record batch; returns a truth value for every row. Payload comes as references
                (`lading.materialise` reads it), or as `large_binary`.
            drop: as of `where`.
        """
        return self._with(Filter(function, drop))

    def map(self, function: Function) -> Self:
        """Replace each batch of rows by the batch that a function returns for it.

        The columns of the first batch with rows are those of all. A function that returns more or fewer samples than
        it gets can be iterated and written; samples by number (`ds[i]`, `len`, `take`) are an error then. The first
        use of numbers behind a function therefore calls it for all rows once.

        Example: `ds.map(lambda batch: batch.append_column("n", pc.utf8_length(batch["text"])))`

        Args:
            function: called with each record batch, payload as of `filter`.
        """
        return self._with(Map(function))

    def limit(self, count: int) -> Self:
        """Keep the first samples, at most so many.

        Example: `ds.limit(1000)`
        """
        return self._with(Limit(count))
