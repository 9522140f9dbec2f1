#!/usr/bin/env python3
"""Tables of options in the docs, made from the dataclasses of options and the commands' own options.

    python docs/make_tables.py

The text between `<!-- options: NAME -->` and `<!-- end -->` is replaced. NAME is a command, a group of
options, `interleaved`, or a format with `read` or `write`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from lading._core.cli.formats import option_docs, spelled_default
from lading._core.cli.main import app
from lading._core.cli.options import CHOOSING, READING, WRITING, FormatFlags
from lading._core.formats.registry import get_format
from lading.options import CliOption, InterleavedOptions, RowOptions, help_texts

PAGES = [Path(__file__).parent / "cli.md", *sorted((Path(__file__).parent / "formats").glob("*.md"))]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined] # a group has commands
OUTPUT = ("--json", "--quiet", "--debug")
GROUPS = {"reading": READING, "choosing": CHOOSING, "writing": WRITING}
UNNEEDED = {"--lists", "--on-bad-shard"}
"""Options of a group that `verify` and `salvage` do not take: they report bad shards by themselves."""
REPLACED = {"plan": {"--shuffle", "--seed"}}
"""Options of a group for which a command has an option of its own with the same name."""
_MARKED = re.compile(r"(?<=<!-- options: )([\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def options_of(command: str) -> dict[str, Any]:
    """Return the options of a command by their first name."""
    found = (p for p in COMMANDS[command].params if p.param_type_name == "option" and p.name != "help")
    return {option.opts[0]: option for option in found}


def flags_of(group: str) -> dict[str, str]:
    """Return the options of a group, each with its name in Python."""
    if group == "output":
        return dict.fromkeys(OUTPUT, "")
    return {
        spelled.flag.partition("/")[0]: _in_python(kind, one.name, spelled)
        for _, kind, one, spelled in GROUPS[group].options()
    }


def _in_python(kind: type, name: str, spelled: CliOption) -> str:
    """Return an option as Python spells it: an argument, or a step of a dataset."""
    if kind is not RowOptions:
        return {InterleavedOptions: "InterleavedOptions.{}", FormatFlags: 'options["{}"]'}.get(kind, "{}").format(name)
    if spelled.belongs_to:
        return f"ds.{spelled.belongs_to[0]}(…, {name.removeprefix('join_')}=…)"
    if not spelled.step:
        return f"ds.shuffle({name}=…), ds.sample(…, {name}=…), ds.split(…, {name}=…)"
    return f"ds.{spelled.step}({name}=…)" if spelled.step == "image_bounds" else f"ds.{spelled.step}"


def groups_of(command: str) -> list[str]:
    """Return the groups of which a command has every option, but for options that some commands do not need."""
    mine = options_of(command).keys() | UNNEEDED
    return [group for group in ("output", *GROUPS) if flags_of(group).keys() <= mine]


def row(option: Any, *cells: str) -> str:
    """Return an option as a row of a table."""
    value = f" {option.metavar}".replace("|", "\\|") if option.metavar else ""
    default = f" (default {option.default})" if option.default else ""
    names = ", ".join([f"`{option.opts[0]}{value}`", *(f"`{name}`" for name in option.opts[1:])])
    return f"| {' | '.join([names + default, *cells, option.help])} |"


def table(name: str) -> str:
    """Return the table of a command's own options, or of a group."""
    if name in COMMANDS:
        groups = groups_of(name)
        shared = {flag for group in groups for flag in flags_of(group)}
        own = [
            row(option) for flag, option in options_of(name).items() if flag not in shared - REPLACED.get(name, set())
        ]
        links = ", ".join(f"[{group}](#{group}-options)" for group in groups)
        lacks = sorted(UNNEEDED - options_of(name).keys()) if "reading" in groups else []
        without = f", without `{'`, `'.join(lacks)}`" if lacks else ""
        return "\n".join([*_lines(["option", ""], own), f"Shared options: {links}{without}.", ""])
    if name not in ("output", *GROUPS):
        return "\n".join(_lines(["option", "default", ""], _format_rows(name)))
    flags = flags_of(name)
    options = next(mine for mine in map(options_of, COMMANDS) if flags.keys() <= mine.keys())
    if name == "output":
        return "\n".join(_lines(["option", ""], (row(options[flag]) for flag in flags)))
    rows = (row(options[flag], f"`{python}`") for flag, python in flags.items())
    return "\n".join(_lines(["option", "Python", ""], rows))


def _format_rows(name: str) -> Iterator[str]:
    """Return a row for each option of a format, such as `parquet read`, or of interleaved data."""
    kind: type = InterleavedOptions
    if name != "interleaved":
        fmt, way = name.split()
        kind = getattr(get_format(fmt).info, f"{way}_options")
    texts = help_texts(kind)
    defaults = {one.name: f"`{spelled_default(one)}`" for one in option_docs(kind) if one.default not in (None, "")}
    for option, text in texts.items():
        yield f"| `{option}` | {defaults.get(option, '')} | {text} |".replace("|  |", "| |")


def _lines(head: list[str], rows: Iterable[str]) -> list[str]:
    found = list(rows)
    return [f"| {' | '.join(head)} |".replace("|  |", "| |"), f"|{'---|' * len(head)}", *found, ""] if found else []


def filled(page: str) -> str:
    """Return the page with its tables made anew."""
    return _MARKED.sub(lambda marked: f"{marked[1]}{marked[2]}\n{table(marked[1]).strip()}\n\n", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
