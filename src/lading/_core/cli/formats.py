"""`lading formats`: all formats and their options."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from lading._core.cli.options import Debug, Json
from lading._core.cli.output import Output
from lading._core.cli.text import columns
from lading._core.units import format_bytes
from lading.options import InterleavedOptions, help_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

__all__ = ["OptionDoc", "formats", "option_docs", "spelled_default"]

_TYPED = re.compile(r"\b(?:bool|int|float|str|tuple|Literal|Sequence|Mapping)\b")


@dataclass(frozen=True, slots=True)
class OptionDoc:
    """One option as its users meet it.

    Attributes:
        name: the part before the `=`.
        default: value without the option.
        text: what the option does.
    """

    name: str
    default: Any
    text: str


@dataclass(frozen=True, slots=True)
class FormatDoc:
    """One format as its users meet it.

    Attributes:
        name: what users type.
        aliases: further names.
        extensions: file extensions.
        read_options: options of reading.
        write_options: options of writing.
    """

    name: str
    aliases: list[str]
    extensions: list[str]
    read_options: list[OptionDoc]
    write_options: list[OptionDoc]


def formats(as_json: Json = False, debug: Debug = False) -> None:
    """List the formats with aliases, file extensions and options.

    Give options as NAME=VALUE, with --option for reading and --to-option for
    writing.

    Example: lading formats
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.formats.format import NoOptions
        from lading._core.formats.registry import aliases_of, all_formats

        found = []
        for info in sorted((known.info for known in all_formats()), key=lambda info: info.name):
            read, write = option_docs(info.read_options), option_docs(info.write_options or NoOptions)
            found.append(FormatDoc(info.name, aliases_of(info.name), list(info.extensions), read, write))
        documents = option_docs(InterleavedOptions)
        listed = {"formats": [asdict(one) for one in found], "interleaved_options": [asdict(one) for one in documents]}
        out.show(listed, _text(found, documents))


def option_docs(kind: type) -> list[OptionDoc]:
    """Return the options that a dataclass holds, as its docstring describes them; only those that text can give."""
    texts = help_texts(kind)
    return [
        OptionDoc(one.name, _default(one.default), texts.get(one.name, "").replace("`", ""))
        for one in fields(kind)
        if _TYPED.search(_spelled_type(kind, str(one.type)))
    ]


def _spelled_type(kind: type, name: str) -> str:
    """Return the type of a field of a dataclass; a name that its module gives to a type is spelled out."""
    return str(getattr(sys.modules[kind.__module__], name, name))


def _default(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def _text(found: Sequence[FormatDoc], documents: Sequence[OptionDoc]) -> Iterator[RenderableType]:
    from rich.text import Text

    rows = [
        (Text(one.name, "bold"), ", ".join(one.aliases), ", ".join(map("*{}".format, one.extensions))) for one in found
    ]
    yield columns(("format", "also called", "files"), rows)
    for one in found:
        yield from _options(f"{one.name}, reading (--option)", one.read_options)
        yield from _options(f"{one.name}, writing (--to-option)", one.write_options)
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
        default = "" if doc.default in (None, "") else f" (default {spelled_default(doc)})"
        table.add_row(doc.name, Text.assemble(doc.text.removesuffix("."), (default, "dim")))
    yield Text(f"\n{title}", "bold")
    yield Padding(table, (0, 0, 0, 2))


def spelled_default(doc: OptionDoc) -> str:
    """Return the default of an option as users write it."""
    if isinstance(doc.default, bool):
        return str(doc.default).lower()
    if isinstance(doc.default, int) and doc.name.endswith("_bytes"):
        return format_bytes(doc.default)
    return str(doc.default)
