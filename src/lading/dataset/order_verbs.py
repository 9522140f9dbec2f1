"""The methods of a dataset that choose or order samples as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from lading.dataset.steps import Shuffle, Step

__all__ = ["OrderVerbs"]


class OrderVerbs(ABC):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

    @abstractmethod
    def _with(self, step: Step) -> Self:
        """The dataset with one more step."""

    def shuffle(self, seed: int = 0) -> Self:
        """Put all samples in a random order: one exact permutation of the whole dataset, and no buffer.

        The order depends only on the seed and on the number of samples. It is
        `numpy.random.Generator(numpy.random.PCG64(seed)).permutation(len(ds))`, on any machine.

        Example: `ds.shuffle(seed=42).write("shuffled", format="webdataset")`

        Args:
            seed: a whole number, 0 or more. Another seed gives another order.
        """
        return self._with(Shuffle(seed))
