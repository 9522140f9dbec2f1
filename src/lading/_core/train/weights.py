"""Weights of samples, as `lading.loader` takes them: a column, a field inside one, or a number a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.dataset.opened import OpenDataset
from lading._core.train.epochs import Weights
from lading._core.train.sample_numbers import error_at, numbers_of_samples
from lading.errors import UsageError

__all__ = ["GivenWeights", "weights_of"]

GivenWeights: TypeAlias = str | Sequence[float] | NDArray[np.floating | np.integer]
"""The name of a column or of a field inside one; or a number for each sample, in the order of the dataset."""


def weights_of(dataset: OpenDataset, given: GivenWeights) -> Weights:
    """Return the weights of all samples. A column is read once (`numbers_of_samples`).

    Raises:
        UsageError: a weight is missing or negative, and the error names the sample; all weights are 0; or the numbers
            are not as many as the samples.
    """
    if isinstance(given, str):
        name, weights = given, numbers_of_samples(((0, dataset),), given)
    else:
        name, weights = None, _numbers(given, len(dataset))
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(wrong):
        first = float(weights[wrong[0]])
        advice = None if name is None else f'Leave such samples out: ds.where("{name} >= 0").'
        error = UsageError("a weight is a number of at least 0", column=name, advice=advice,
                           found="none" if np.isnan(first) else repr(first))  # fmt: skip
        raise error_at(((0, dataset),), int(wrong[0]), error)
    if not len(weights):
        raise UsageError("there are no samples to train on", advice="Look at the source, and at its steps.")
    if not weights.max():
        raise UsageError("all weights are 0", column=name, expected="one that is more")
    return Weights.of(weights)


def _numbers(given: object, count: int) -> NDArray[np.float64]:
    """Numbers of the user as an array."""
    if isinstance(given, dict):
        raise UsageError("weights are of samples", found=repr(given)[:80],
                         advice="Mix datasets: lading.loader(lading.mix({'a': (ds_a, 0.7), 'b': (ds_b, 0.3)}), …).",
                         )  # fmt: skip
    try:
        found = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # lists in lists; tensors of a GPU, or with a gradient
        raise UsageError("weights do not become an array of numpy", found=str(error),
                         advice="Give one number for each sample.") from error  # fmt: skip
    if found.ndim != 1 or found.dtype.kind not in "fiub":
        raise UsageError("weights are the name of a column, or a number for each sample",
                         expected='such as "json.score"', found=repr(given)[:80])  # fmt: skip
    if len(found) != count:
        raise UsageError("weights are a number for each sample", expected=f"{count:,}", found=f"{len(found):,} numbers",
                         advice="Mix datasets: lading.loader(lading.mix({'a': (ds_a, 0.7), 'b': (ds_b, 0.3)}), …).",
                         )  # fmt: skip
    return found.astype(np.float64)
