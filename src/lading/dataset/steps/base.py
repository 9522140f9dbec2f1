"""What every step answers, whatever kind it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lading.content.field_paths import parse_field

__all__ = ["StepBase", "columns_of_names"]


class StepBase:
    """A step of a dataset. Steps of the usual kind look at no values."""

    __slots__ = ()

    def looked_at(self, known: Collection[str]) -> list[str]:  # noqa: ARG002 - steps that look at values need it
        """Return the columns whose values decide which samples are kept, and in which order, as far as it is known.

        Args:
            known: columns that there are; names with dots may be theirs.
        """
        return []


def columns_of_names(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the column of each name of a field."""
    return [parse_field(name, known).column for name in names]
