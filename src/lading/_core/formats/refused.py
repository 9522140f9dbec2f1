"""Columns of a file that cannot be read: an error for a caller that asks for them. The other columns are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lading._core.arrow.align import refuse_duplicate_names
from lading._core.arrow.types import unread_type
from lading._core.spelling import names_value
from lading.errors import DuplicateField, LadingError, Unrepresentable

__all__ = ["Refusal", "duplicate_columns", "first_of_each", "refuse_columns", "unread_columns"]

_FEW_NAMES = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a column cannot be read.

    Attributes:
        kind: class of the error.
        message: the reason.
        found: what the file has.
        advice: further advice, a sentence.
    """

    kind: type[LadingError]
    message: str
    found: str
    advice: str = ""


def unread_columns(schema: pa.Schema) -> dict[str, Refusal]:
    """Return the columns of a schema that no reader can give: repeated names, and types without a class in pyarrow."""
    refused, repeats = duplicate_columns(schema.names), _repeats(schema)
    for field in schema:
        unread = unread_type(field.type)
        if unread is not None:
            inside = "" if unread == field.type else f" in {field.type}"
            refused.setdefault(
                field.name,
                Refusal(Unrepresentable, "a type that pyarrow does not read into Python", f"{unread}{inside}"),
            )
        elif repeats and (error := _repeats(pa.schema([field]))):
            refused.setdefault(field.name, Refusal(DuplicateField, error.message, str(error.found)))
    return refused


def _repeats(schema: pa.Schema) -> DuplicateField | None:
    """Return the error of a repeated name, of a column or inside one; None if there is none."""
    try:
        refuse_duplicate_names(schema)
    except DuplicateField as error:
        return error
    return None


def duplicate_columns(names: Iterable[str]) -> dict[str, Refusal]:
    """Return the names that several columns have."""
    names = [*names]
    return {
        name: Refusal(DuplicateField, "several columns have this name", _places(names, name))
        for name, count in Counter(names).items()
        if count > 1
    }


def _places(names: list[str], name: str) -> str:
    places = [str(number) for number, one in enumerate(names, 1) if one == name]
    return f"columns {', '.join(places[:-1])} and {places[-1]} of {len(names)}"


def first_of_each(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the first column of each name."""
    fields = {field.name: field for field in reversed(list(schema))}
    names = dict.fromkeys(schema.names)
    return pa.schema([fields[name] for name in names], metadata=schema.metadata)


def refuse_columns(
    refused: Mapping[str, Refusal], asked: Iterable[str] | None, names: Iterable[str], file: str
) -> None:
    """Raise the error of the first column that is asked for and cannot be read.

    Args:
        refused: such columns.
        asked: names that are asked for; None for all.
        names: all columns of the file.
        file: its path.
    """
    if not refused:
        return
    name = next((name for name in (refused if asked is None else asked) if name in refused), None)
    if name is None:
        return
    refusal = refused[name]
    advice = " ".join(_advice(refused, names, refusal.advice))
    raise refusal.kind(refusal.message, file=file, column=name, found=refusal.found, advice=advice)


def _advice(refused: Mapping[str, Refusal], names: Iterable[str], own: str) -> Iterator[str]:
    if own:
        yield own
    rest = [name for name in dict.fromkeys(names) if name not in refused]
    if not rest:
        yield "The file has no other column."
    elif len(rest) <= _FEW_NAMES:
        yield f"lading convert and lading head read the other columns: --columns {names_value(rest)}"
    else:
        yield f"lading convert and lading head read the other columns: --drop-columns {names_value([*refused])}"
