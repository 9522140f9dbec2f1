#!/usr/bin/env python3
"""Tables of options and of JSON in the docs, made from the dataclasses of options and results.

    python docs/make_tables.py

The text between `<!-- options: NAME -->` and `<!-- end -->` is replaced. NAME is a command, a group of
options, `interleaved`, or a format with `read` or `write`. The same holds for `<!-- json: NAME -->`, where NAME is
`error`, `commands` or `parts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from lading._core.cli.formats import option_docs, spelled_default
from lading._core.cli.json_schemas import schema_of, schemas
from lading._core.cli.main import app
from lading._core.cli.options import CHOOSING, READING, WRITING, FormatFlags
from lading._core.formats.registry import get_format
from lading.options import CliOption, InterleavedOptions, RowOptions, help_texts

PAGES = [
    *(Path(__file__).parent / name for name in ("cli.md", "json.md")),
    *sorted((Path(__file__).parent / "formats").glob("*.md")),
]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined] # a group has commands
OUTPUT = ("--json", "--quiet", "--debug")
GROUPS = {"reading": READING, "choosing": CHOOSING, "writing": WRITING}
IN_COMMANDS = {"ConvertSummary": "lading-convert", "Error": "error", "Info": "lading-info"}
"""Objects inside of results that have sections as results, with the anchors of these."""
UNNEEDED = {"--lists", "--on-bad-shard"}
"""Options of a group that `verify` and `salvage` do not take: they report bad shards by themselves."""
REPLACED = {"plan": {"--shuffle", "--seed"}}
"""Options of a group for which a command has an option of its own with the same name."""
_MARKED = re.compile(r"(?<=<!-- )(options|json): ([\w ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


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


def json_text(name: str) -> str:
    """Return the tables of an error, of what commands print with `--json`, or of the objects inside of that."""
    found = {name: schema_of(name) for name in schemas()}
    if name == "error":
        return _keys(found["error"])
    if name == "parts":
        parts = {part: one for schema in found.values() for part, one in schema.get("$defs", {}).items()}
        return "\n\n".join(f"### {part}\n\n{_keys(parts[part])}" for part in sorted(parts.keys() - IN_COMMANDS))
    del found["error"]
    forms = [form for schema in found.values() for form in schema.get("anyOf", [schema])]
    shown: dict[str, str] = {}
    for form in forms:
        keys, title = _keys(form), f"lading {form['title']}"
        same = next((other for other, text in shown.items() if text == keys), None)
        shown[title] = keys if same is None else f"As [{same}](#{same.replace(' ', '-')})."
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in shown.items())


def _keys(schema: Mapping[str, Any]) -> str:
    """Return the keys of an object as a table; of anything else, its type."""
    if "properties" not in schema:
        return f"An {_json_type(schema)}."
    rows = (
        f"| `{key}` | {_json_type(one)}{'' if key in schema['required'] else ', optional'} | {one['description']} |"
        for key, one in schema["properties"].items()
    )
    return "\n".join([schema["description"], "", *_lines(["key", "type", ""], rows)]).strip()


def _json_type(schema: Mapping[str, Any]) -> str:
    """Return a type of JSON in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{IN_COMMANDS.get(name, name.lower())})"
    if "enum" in schema or "anyOf" in schema:
        words = [f"`{word}`" for word in schema.get("enum", ())]
        return " or ".join([*words, *map(_json_type, schema.get("anyOf", ()))])
    kind = schema.get("type", "any")
    if kind == "array":
        first, *_ = each = schema.get("prefixItems", [schema.get("items")])
        return f"array{f' of {len(each)}' if len(each) > 1 else ''}: {_json_type(first)}"
    if kind == "object":
        return f"object, by name: {_json_type(schema['additionalProperties'])}"
    return kind if isinstance(kind, str) else " or ".join(kind)


def filled(page: str) -> str:
    """Return the page with its tables made anew."""
    made = {"options": table, "json": json_text}
    return _MARKED.sub(lambda at: f"{at[1]}: {at[2]}{at[3]}\n{made[at[1]](at[2]).strip()}\n\n", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
