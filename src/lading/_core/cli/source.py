"""The dataset that a verb works on: its sources, how they are read, and the rows and columns that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lading._core.cli.options import one_or_many
from lading.errors import LadingError

if TYPE_CHECKING:
    from lading._core.api.dataset import Dataset
    from lading._core.cli.steps import TypedSteps
    from lading.options import OnError

__all__ = ["are_mixed", "open_chosen", "open_sources"]


def open_chosen(
    sources: Sequence[str],
    reading: Mapping[str, Any],
    choosing: TypedSteps,
    *,
    on_error: OnError = "error",
    splits: bool = False,
) -> Dataset:
    """Open sources with the steps that are typed, in their order.

    Args:
        sources: as the command line names them.
        reading: arguments of `lading.open`.
        choosing: the steps.
        on_error: the policy of the job, for files that are missing; `drop_sample` is that of functions too.
        splits: whether the caller splits the dataset by the seed.

    Raises:
        UsageError: an option does not fit the dataset, or has no effect without another option.
    """
    choosing.refuse_unused_seed(splits=splits)
    return choosing.applied(open_sources(sources, reading), on_error)


def open_sources(sources: Sequence[str], reading: Mapping[str, Any]) -> Dataset:
    """Open sources as one dataset; those of several formats one after another."""
    from lading._core.api.opening import concat, open_dataset

    if are_mixed(sources, reading):
        each = {**reading, "schema_overrides": None}
        types = reading.get("schema_overrides")
        return concat([open_dataset(source, **each) for source in sources], types=types)
    return open_dataset(one_or_many(sources), **reading)


def are_mixed(sources: Sequence[str], reading: Mapping[str, Any]) -> bool:
    """Return whether sources have several formats; False where a source cannot be opened by itself."""
    from lading._core.api.opening import open_dataset

    if len(sources) == 1 or reading.get("format") is not None:
        return False
    try:
        each = {**reading, "schema_overrides": None}
        return len({open_dataset(source, **each).format for source in sources}) > 1
    except LadingError:
        return False
