"""Spell options of the command line as Python spells them.

Advice of errors names options as the command line takes them: `--to-option nulls=mask`. The command line prints such
advice as it is. For Python callers, `str(error)` spells each option as an argument or a method of a dataset.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence

__all__ = ["in_python", "names_value"]

_OPTION = re.compile(
    r"""--(?P<flag>[a-z][a-z-]*)(?:\ (?!(?:and|or)\b)(?P<value>(?:'[^']*'|"'"|[^\s'"])+?)(?=[.,;:)]*(?:\s|$)))?"""
)
_SWITCHES = {"verify", "overwrite", "resume", "force", "lazy", "dry-run", "ignore-sidecar", "debug", "json", "help",
             "regroup", "hive-partitioning", "no-hive-partitioning", "fetch", "fetch-private"}  # fmt: skip
_PAIRS = {"option", "to-option", "storage-option", "type", "rename", "max"}
_NAMES = {
    "from": "format", "to": "format", "schema": "schema_policy", "root": "roots", "max": "limits",
    "option": "options", "to-option": "options", "storage-option": "storage_options",
    "type": "schema_overrides", "join-columns": "columns", "join-how": "how",
    "json-as": "json",
}  # fmt: skip
"""Arguments whose names differ from those of the options."""
_METHODS = {"columns": "select", "drop-columns": "drop", "flatten": "flatten", "rename": "rename", "where": "where",
            "media-from": "media_from", "split-into": "split"}  # fmt: skip
_OF_DOCUMENTS = {
    "fields", "per-image-fields", "per-text-fields", "per-item-fields", "sample-id-field", "unreferenced",
    "sample_id_field",
}  # fmt: skip
"""Options of `InterleavedOptions`."""
_LISTS = {"fields", "lists", "per-image-fields", "per-text-fields", "per-item-fields"}
"""Options that take names."""


def names_value(names: Sequence[str]) -> str:
    """Return the value of an option that takes names, such as `--columns`, quoted for a shell: `a,b` or a JSON list."""
    plain = all(re.fullmatch(r"[^\s,'\"\[]+", name) for name in names)
    return shlex.quote(",".join(names) if plain else json.dumps([*names], ensure_ascii=False))


def in_python(text: str) -> str:
    """Return a text with the options of the command line spelled as Python's arguments.

    Example:
        in_python("Mark nulls with --to-option nulls=mask.")  # "Mark nulls with options={'nulls': 'mask'}."
    """
    found, at = [], 0
    matches = list(_OPTION.finditer(text))
    while matches:
        first = matches.pop(0)
        same = [first]
        while matches and _continues(same[-1], matches[0], text):
            same.append(matches.pop(0))
        values = [match["value"] for match in same]
        end = same[-1].end("flag" if first["flag"] in _SWITCHES else 0)
        found += [text[at : first.start()], _spelled(first["flag"], values)]
        at = end
    return "".join([*found, text[at:]])


def _continues(one: re.Match[str], other: re.Match[str], text: str) -> bool:
    repeated = one["flag"] == other["flag"] and one["flag"] in {*_PAIRS, "root"}
    return repeated and one["value"] is not None and text[one.end() : other.start()] == " "


def _spelled(flag: str, values: list[str | None]) -> str:
    given = [shlex.split(value)[0] for value in values if value]
    name = _NAMES.get(flag, flag.replace("-", "_"))
    if flag in _METHODS:
        return f"ds.{_METHODS[flag]}" + (f"({_arguments(flag, given)})" if given else "()")
    if flag in _SWITCHES:
        on = f"{name.removeprefix('no_')}={not flag.startswith('no-')}"
        return "options={'sidecar': 'ignore'}" if flag == "ignore-sidecar" else on
    if not given:
        return f"{name}="
    if flag in _PAIRS:
        return _of_pairs(flag, name, [value.partition("=")[::2] for value in given])
    value = repr(given if flag == "root" else _value(flag, given[0]))
    if flag in _OF_DOCUMENTS:
        return f"interleaved=InterleavedOptions({name}={value})"
    return f"options={{{name!r}: {value}}}" if flag == "on-duplicate" else f"{name}={value}"


def _of_pairs(flag: str, name: str, pairs: list[tuple[str, str]]) -> str:
    if flag == "max":
        limits = ", ".join(f"{key}={value}" for key, value in pairs)
        return f"limits=Limits({limits}), or --max {' --max '.join(f'{key}={value}' for key, value in pairs)}"
    if flag == "option" and pairs[0][0] in _OF_DOCUMENTS:
        return f"interleaved=InterleavedOptions({', '.join(f'{key}={_parsed(value)!r}' for key, value in pairs)})"
    shown: Callable[[str], str] = (lambda kind: f"pa.{kind}()") if flag == "type" else lambda text: repr(_parsed(text))
    entries = "{" + ", ".join(f"{key!r}: {shown(value)}" for key, value in pairs) + "}"
    return f"lading.open(…, {name}={entries})" if flag in ("option", "type") else f"{name}={entries}"


def _value(flag: str, text: str) -> object:
    if flag == "on":
        field, sign, column = text.partition("=")
        return {field: column} if sign else field
    if flag in _LISTS:
        return _names(text) if text else []
    return _names(text) if flag == "join-columns" else _parsed(text)


def _arguments(flag: str, given: list[str]) -> str:
    if flag == "split-into":
        shares = (part.partition("=")[::2] for part in given[0].split(","))
        return repr({name: None if share == "rest" else _parsed(share) for name, share in shares})
    if flag == "media-from":
        return ", ".join(map(repr, filter(None, reversed(given[0].rpartition("=")[::2]))))
    if flag == "rename":
        return repr(dict(value.partition("=")[::2] for value in given))
    return repr(given[0]) if flag == "where" else ", ".join(map(repr, _names(given[0])))


def _names(text: str) -> list[str]:
    listed = _parsed(text)
    return [str(name) for name in listed] if isinstance(listed, list) else text.split(",")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
