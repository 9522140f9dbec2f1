"""Words that people type for verbs and options of `lading`, and the words that are meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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
    "show": "head", "view": "head", "cat": "head", "peek": "head", "ls": "info", "count": "info", "schema": "info",
    "describe": "stats", "check": "verify", "validate": "verify", "compare": "diff", "unpack": "export",
    "extract": "export", "fix": "repair", "version": "--version",
}  # fmt: skip
"""Verbs that have another name here."""
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
    asks_help = bool({"--help", "-h"} & {*rest})
    typed = any(each.partition("=")[0] == option.partition(" ")[0] for each in rest)
    command = ["lading", verb, *(["--help"] if asks_help else map(shlex.quote, rest or _places(verb)))]
    command += [option] if option and not typed and not asks_help else []
    of_convert = f": it is an option of {verb}" if option else ""
    return UsageError(f"lading has no verb {word!r}{of_convert}", advice=f"Type: {' '.join(command)}")


def _places(verb: str) -> list[str]:
    return {"convert": ["SRC", "DST"], "export": ["SRC", "DIR"], "diff": ["A", "B"], "--version": []}.get(verb, ["SRC"])
