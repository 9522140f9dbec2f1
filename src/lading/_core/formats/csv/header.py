"""The header of a CSV file: names of columns, and what a header of one name says about the delimiter."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["column_names", "delimiter_advice", "other_delimiter"]

_OTHERS = {";": "'delimiter=;'", "\t": "delimiter=tab", "|": "'delimiter=|'", ",": "delimiter=,"}
"""Usual delimiters, as the command line spells them."""


def column_names(cells: Sequence[str | None]) -> list[str]:
    """Return a name for each column; columns without a name are called as in pandas: `Unnamed: 0`.

    pandas writes its row numbers as such a column. The number is the place of the column. A name that another column
    has already continues `Unnamed: 0.1`.
    """
    taken, names = {name for name in cells if name}, []
    for at, name in enumerate(cells):
        own = name or f"Unnamed: {at}"
        number = 0
        while not name and own in taken:
            number += 1
            own = f"Unnamed: {at}.{number}"
        taken.add(own)
        names.append(own)
    return names


def other_delimiter(header: str, delimiter: str) -> str:
    """Return the delimiter that a header without this one seems to have; empty if there is none."""
    most = max(_OTHERS, key=header.count)
    return most if most in header and most != delimiter and delimiter not in header else ""


def delimiter_advice(delimiter: str) -> str:
    """Return what to do where a header seems to have this delimiter."""
    return f"The header seems to have another delimiter: --option {_OTHERS[delimiter]}."
