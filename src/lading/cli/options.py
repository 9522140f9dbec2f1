"""Arguments and options that several commands share, and what becomes of them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lading.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lading.layouts.options import InterleavedOptions

__all__ = [
    "READ_PANEL",
    "Debug",
    "From",
    "Json",
    "Option",
    "Sources",
    "View",
    "name_list",
    "named_options",
    "one_or_many",
    "opening",
    "take_interleaved",
]

READ_PANEL = "What is read"
"""Heading of the options that say how the source is read, in help."""

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC",
        show_default=False,
        help="Files, folders, patterns ('mint/*.tar', 'shard-{00..41}.tar'), URLs, or a dataset's own index file.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="Format of the source, where it is not recognised by itself.",
        rich_help_panel=READ_PANEL,
    ),
]
View = Annotated[
    str | None,
    typer.Option(
        "--view",
        metavar="VIEW",
        help="Take a row as a sample (samples) or as an item of a document (interleaved). The data say it by default.",
        rich_help_panel=READ_PANEL,
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the source's format, or of interleaved data ('lading formats' lists them). Repeatable.",
        rich_help_panel=READ_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Print the traceback of an error.")]


def one_or_many(sources: Sequence[str]) -> str | list[str]:
    """A single source as it is, since a folder has a manifest; several as a list."""
    return sources[0] if len(sources) == 1 else list(sources)


def name_list(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None stays None."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def named_options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` texts as a dict; a value that is JSON (`true`, `3`, `["a"]`) is taken as such, else as text.

    Raises:
        UsageError: there is no `=`, or a name comes twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise UsageError("not an option", expected="NAME=VALUE", found=repr(pair))
        if name in found:
            raise UsageError("an option is given twice", found=name)
        try:
            found[name] = json.loads(text)
        except json.JSONDecodeError:
            found[name] = text
    return found


def opening(source_format: str | None, view: str | None, pairs: Sequence[str] | None) -> dict[str, Any]:
    """What `open_dataset` takes beside the source; options of the format and of interleaved data are told apart."""
    given = named_options(pairs)
    return {"format": source_format, "view": view, "interleaved": take_interleaved(given), "options": given}


def take_interleaved(given: dict[str, Any]) -> InterleavedOptions | None:
    """Take the options of interleaved data out of `given`; None if there are none."""
    from lading.layouts.options import InterleavedOptions

    known = {field.name: field for field in fields(InterleavedOptions)}
    mine = {name: given.pop(name) for name in list(given) if name in known}
    for name, value in mine.items():
        if str(known[name].type).startswith("tuple") and value is not None:
            mine[name] = tuple(value) if isinstance(value, list) else name_list(str(value))
    return InterleavedOptions(**mine) if mine else None
