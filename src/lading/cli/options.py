"""Arguments and options that several commands share, and what becomes of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from lading.errors import UsageError
from lading.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lading.options import InterleavedOptions

__all__ = [
    "READ_PANEL",
    "WRITE_PANEL",
    "Debug",
    "Json",
    "Max",
    "Overwrite",
    "Reading",
    "ShardSize",
    "Sources",
    "ToOption",
    "Workers",
    "column_names",
    "name_list",
    "named_options",
    "one_or_many",
    "opening",
    "parse_limits",
    "reads",
]

READ_PANEL = "What is read"
"""Heading of the options that say how the source is read, in help."""

WRITE_PANEL = "What is written"
"""Heading of the options that say how the destination is written."""

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC",
        show_default=False,
        help="Files, folders, patterns ('mint/*.tar', 'shard-{00..41}.tar'), URLs, or a dataset's own index file.",
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Print the traceback of an error.")]

Max = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="NAME=VALUE",
        show_default=False,
        help="The most that a file may ask for, such as page_bytes=4GB; errors name the limit. Repeatable.",
        rich_help_panel=READ_PANEL,
    ),
]

ShardSize = Annotated[
    str, typer.Option("--shard-size", metavar="SIZE", help="About the size of a shard.", rich_help_panel=WRITE_PANEL)
]
ToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to-option",
        metavar="NAME=VALUE",
        help="An option of the format written. Repeatable.",
        rich_help_panel=WRITE_PANEL,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", metavar="", help="Replace what is at DST, in one step at the end.", rich_help_panel=WRITE_PANEL
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Processes that share the shards, at most; by default one a core, up to eight, where it takes longer than "
        "a few seconds.",
        show_default=False,
    ),
]

Reading: TypeAlias = Callable[..., dict[str, Any]]
"""Called for what `open_dataset` takes beside the source, perhaps with further `NAME=VALUE` options; see `reads`."""


def one_or_many(sources: Sequence[str]) -> str | list[str]:
    """A single source as it is, since a folder has a manifest; several as a list."""
    return sources[0] if len(sources) == 1 else list(sources)


def name_list(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names, or a JSON list of them, in which names may hold commas and spaces; None stays None."""
    if text is None:
        return None
    with suppress(ValueError, RecursionError):
        listed = json.loads(text)
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            return tuple(listed)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def column_names(text: str | None) -> tuple[str, ...] | None:
    """The same of columns. Raises UsageError if none is named: an empty variable, most likely."""
    names = name_list(text)
    if names is not None and not names:
        raise UsageError("no column is asked for", found=f"--columns {text!r}", advice="Name one, or leave it out.")
    return names


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
        except (ValueError, RecursionError):  # no JSON, or a number or list that Python takes from nobody
            found[name] = text
    return found


def parse_limits(pairs: Sequence[str] | None) -> Limits:
    """Limits on files, those that `NAME=VALUE` texts name changed. Raises UsageError."""
    return Limits.of(named_options(pairs))


def reads(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that say how a source is read, on top of its own.

    The verb gets them as one argument, `reading`, to be called for what `open_dataset` takes beside the source. It is a
    call and not a value so that a wrong option is an error inside the verb, told as all others are.
    """
    shared = inspect.signature(opening, eval_str=True).parameters
    own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name != "reading"]

    @wraps(verb)
    def run(**given: Any) -> None:
        mine = {name: given.pop(name) for name in shared}
        option = mine.pop("option") or []
        verb(**given, reading=lambda more=None: opening(**mine, option=[*option, *(more or ())]))

    signature = inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *shared.values())])
    run.__signature__ = signature  # type: ignore[attr-defined] # what typer makes the command line of
    return run


def opening(  # noqa: PLR0913, PLR0917 - one argument an option of the command line
    source_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="Format of the source, where it is not recognised by itself.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW",
            help="Take rows as samples, or as interleaved items of documents; by default the data say it.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    on_duplicate: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Where one sample holds a field twice: error (the default), keep_first or keep_last.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    unreferenced: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Where no document names a member: error (the default) or drop.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    ignore_sidecar: Annotated[
        bool,
        typer.Option(
            "--ignore-sidecar",
            metavar="",
            help="Leave index files beside the shards (.tar.idx) aside.",
            rich_help_panel=READ_PANEL,
        ),
    ] = False,
    root: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="A folder that references in tables may point into, beside those of SRC. Repeatable.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="NAME=TYPE",
            help="Arrow type of a column of items (score=float32); with it, only reserved columns and those named so "
            "are read. Repeatable.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of the source's format, or of documents; 'lading formats' lists them. Repeatable.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    max_: Max = None,
) -> dict[str, Any]:
    """What `open_dataset` takes beside the source; options of the format and of interleaved data are told apart.

    Raises:
        UsageError: an option is given twice, or is none. UnknownFormat: there is no such format.
    """
    from lading.formats.registry import get_format

    given = named_options(option)
    flags = {
        "on_duplicate": on_duplicate,
        "unreferenced": unreferenced,
        "sidecar": "ignore" if ignore_sidecar else None,
    }
    for name, value in flags.items():
        if value is not None:
            given[name] = value
    return {
        "format": None if source_format is None else get_format(source_format).name,
        "view": view,
        "interleaved": _take_interleaved(given),
        "roots": tuple(root or ()),
        "schema_overrides": _types(type_),
        "options": given,
        "limits": parse_limits(max_),
    }


def _types(pairs: Sequence[str] | None) -> dict[str, Any] | None:
    """`NAME=TYPE` texts as Arrow types by name; None if there are none."""
    from lading.arrow.types import arrow_type

    found = {}
    for name, text in named_options(pairs).items():
        try:
            found[name] = arrow_type(str(text))
        except UsageError:
            raise UsageError("no such type", expected="int64, float32, string, large_string, timestamp[us] …",
                             found=f"--type {name}={text}") from None  # fmt: skip
    return found or None


def _take_interleaved(given: dict[str, Any]) -> InterleavedOptions | None:
    """Take the options of interleaved data out of `given`; None if there are none."""
    from lading.options import InterleavedOptions

    known = {field.name: field for field in fields(InterleavedOptions)}
    mine = {name: given.pop(name) for name in list(given) if name in known}
    for name, value in mine.items():
        if str(known[name].type).startswith("tuple") and value is not None:
            mine[name] = tuple(value) if isinstance(value, list) else name_list(str(value))
    return InterleavedOptions(**mine) if mine else None
