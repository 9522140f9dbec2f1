"""Words that people type for verbs and options of `lading`, and the words that are meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import takewhile

from lading.errors import UsageError

__all__ = ["OTHER_OPTIONS", "OTHER_VERBS", "other_verb"]

_CONVERT = {
    "filter": "--where EXPR", "where": "--where EXPR", "query": "--where EXPR",
    "select": "--columns A,B", "drop": "--drop-columns A,B", "rename": "--rename OLD=NEW", "cast": "--cast NAME=TYPE",
    "flatten": "--flatten A,B", "map": "--map FILE.py:FUNCTION", "join": "--join FILE",
    "dedup": "--dedup content", "dedupe": "--dedup content", "take": "--take FILE", "limit": "--limit 1000",
    "sample": "--sample 10%", "split": "--split-into train=0.9,val=0.1", "shuffle": "--shuffle", "sort": "--sort FIELD",
    "shard": "--shard-size 256MB", "reshard": "--shard-size 256MB", "copy": "", "concat": "", "write": "",
}  # fmt: skip
"""Steps and other work of `convert`, each with its option."""
_SAME = {
    "show": "view", "browse": "view", "cat": "head", "peek": "head", "ls": "info", "count": "info", "schema": "info",
    "describe": "stats", "check": "verify", "validate": "verify", "compare": "diff", "unpack": "export",
    "extract": "export", "fix": "repair", "upload": "push", "publish": "push", "version": "--version",
}  # fmt: skip
"""Verbs that have another name here."""
_VALUES = {
    "--where": re.compile(r"[<>=!]| in | is "), "--sample": re.compile(r"^[\d.]+%?$"), "--limit": re.compile(r"^\d+$"),
    "--map": re.compile(r":\w+$"), "--rename": re.compile("^[^/]+=[^/]+$"), "--cast": re.compile("^[^/]+=[^/]+$"),
}  # fmt: skip
"""Values of options that are told from names of files."""
_THIRD = ("--columns", "--dedup", "--drop-columns", "--flatten", "--join", "--sort", "--take")
"""Options whose values are names of fields or files: the third word is one, behind source and destination."""
OTHER_VERBS = {**dict.fromkeys(_CONVERT, "convert"), **_SAME}
"""For each word that people try, the verb that is meant."""
OTHER_OPTIONS = {
    "--select": "--columns", "--exclude": "--drop-columns", "--remove-columns": "--drop-columns",
    "--rename-columns": "--rename", "--order-by": "--sort", "--unique": "--dedup", "--distinct": "--dedup",
    "--head": "--limit", "--max-samples": "--limit", "--num-workers": "--workers", "--output-format": "--to",
}  # fmt: skip
"""Options that have another name here."""


def other_verb(words: Sequence[str]) -> UsageError:
    """Return the error of a word that is no verb: its advice is the whole command with the words that are typed."""
    word, *rest = words
    verb, option = OTHER_VERBS[word], _CONVERT.get(word, "")
    flag = option.partition(" ")[0]
    command = ["lading", verb]
    if {"--help", "-h"} & {*rest}:
        command += ["--help"]
    else:
        value = _value(flag, rest)
        typed = [each for each in rest if each is not value] or _places(verb)
        places = [*takewhile(lambda word: not word.startswith("-"), typed)]
        command += map(shlex.quote, places)
        if value is not None:
            command += [flag, shlex.quote(value)]
        elif option and not any(each.partition("=")[0] == flag for each in rest):
            command += [option]
        command += map(shlex.quote, typed[len(places) :])  # options such as --on follow their --join
    of_convert = f": it is an option of {verb}" if option else ""
    return UsageError(f"lading has no verb {word!r}{of_convert}", advice=f"Type: {' '.join(command)}")


def _value(flag: str, words: Sequence[str]) -> str | None:
    """Return the word that is the value of an option and no place, as in `lading limit SRC DST 100`."""
    before = [*takewhile(lambda word: not word.startswith("-"), words)]
    more = before[2:]
    if flag in _THIRD and len(more) == 1:
        return more[0]
    return next((word for word in before if flag in _VALUES and _VALUES[flag].search(word)), None)


def _places(verb: str) -> list[str]:
    return {
        "convert": ["SRC", "DST"],
        "export": ["SRC", "DIR"],
        "diff": ["A", "B"],
        "push": ["SRC", "hf://datasets/ORG/NAME"],
        "--version": [],
    }.get(verb, ["SRC"])
