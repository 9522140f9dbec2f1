"""`lading formats`: the formats there are, and their options."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from lading.cli.options import Debug, Json
from lading.cli.output import Output
from lading.cli.text import columns
from lading.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

__all__ = ["OptionDoc", "formats", "option_docs"]

_TYPED = re.compile(r"\b(?:bool|int|float|str|tuple|Literal|Sequence|Mapping)\b")
_ENTRY = re.compile(r"^    (\w+): ((?:.+)(?:\n {8,}.+)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OptionDoc:
    """One option as its users meet it.

    Attributes:
        name: what stands before the `=`.
        default: what holds without it.
        text: what it does.
    """

    name: str
    default: Any
    text: str


def formats(as_json: Json = False, debug: Debug = False) -> None:
    """List the formats, their file names and their options.

    Options are given as NAME=VALUE: with --option for reading, --to-option for
    writing.

    Example: lading formats
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.formats.registry import all_formats
        from lading.options import InterleavedOptions

        found = []
        for fmt in sorted(all_formats(), key=lambda known: known.name):
            read, write = option_docs(fmt.info.read_options), option_docs(fmt.info.write_options)
            found.append((fmt.name, list(fmt.info.extensions), read, write))
        documents = option_docs(InterleavedOptions)
        value = {
            "formats": [
                {"name": name, "extensions": endings, "read_options": _plain(read), "write_options": _plain(write)}
                for name, endings, read, write in found
            ],
            "interleaved_options": _plain(documents),
        }
        out.show(value, _text(found, documents))


def option_docs(kind: type | None) -> list[OptionDoc]:
    """The options that a dataclass holds, told by its docstring; only those that can be given as text."""
    if kind is None:
        return []
    entries = _ENTRY.findall(inspect.getdoc(kind) or "")
    told = {name: " ".join(text.split()).replace("`", "") for name, text in entries}
    return [
        OptionDoc(field.name, _default(field.default), told.get(field.name, ""))
        for field in fields(kind)
        if _TYPED.search(str(field.type))
    ]


def _default(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def _plain(docs: Sequence[OptionDoc]) -> list[dict[str, Any]]:
    return [{"name": doc.name, "default": doc.default, "text": doc.text} for doc in docs]


def _text(
    found: Sequence[tuple[str, list[str], list[OptionDoc], list[OptionDoc]]], documents: Sequence[OptionDoc]
) -> Iterator[RenderableType]:
    from rich.text import Text

    yield columns(
        ("format", "files"),
        [(Text(name, "bold"), ", ".join(f"*{e}" for e in endings)) for name, endings, _, _ in found],
    )
    for name, _, read, write in found:
        yield from _options(f"{name}, reading (--option)", read)
        yield from _options(f"{name}, writing (--to-option)", write)
    yield from _options("interleaved documents, reading (--option)", documents)


def _options(title: str, docs: Sequence[OptionDoc]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not docs:
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for doc in docs:
        default = "" if doc.default in (None, "") else f" (default {_spelled(doc)})"
        table.add_row(doc.name, Text.assemble(doc.text.removesuffix("."), (default, "dim")))
    yield Text(f"\n{title}", "bold")
    yield Padding(table, (0, 0, 0, 2))


def _spelled(doc: OptionDoc) -> str:
    if isinstance(doc.default, bool):
        return str(doc.default).lower()
    if isinstance(doc.default, int) and doc.name.endswith("_bytes"):
        return format_bytes(doc.default)
    return str(doc.default)
