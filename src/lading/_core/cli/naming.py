"""How a user names the dataset of a command elsewhere: the same words, and an expression in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading._core.arguments import shown_call
from lading._core.cli.options import one_or_many
from lading._core.cli.source import are_mixed
from lading._core.secret_urls import cleaned
from lading._core.view.naming import Naming
from lading._core.view.shell import shell_line
from lading.limits import Limits
from lading.options import InterleavedOptions, ReadOptions

if TYPE_CHECKING:
    from lading._core.cli.steps import TypedSteps

__all__ = ["naming_of"]

_HIDDEN = "…"
_HARMLESS = ("anonymous", "endpoint", "region")
"""Options of stores whose values are no secrets."""


def naming_of(
    words: Sequence[str],
    own: Mapping[str, int],
    sources: Sequence[str],
    opening: Mapping[str, Any],
    steps: TypedSteps,
) -> Naming:
    """Return how a user names the dataset of a command.

    Secrets of URLs and of stores are shown as `…`.

    Args:
        words: all words behind the verb.
        own: the options that no other verb has, with the number of their values.
        sources: as they were typed.
        opening: the arguments of `lading.open`.
        steps: those that were typed.
    """
    kept, calls = [*_without(words, own, sources)], steps.calls()
    last, values = steps.steps[-1] if steps.steps else ("", {})
    sorts = [*_sorts(kept)][-len(values["sort"]) :] if last == "sort" else []
    places = {place for span in sorts for place in span}
    return Naming(
        title=cleaned(" ".join(sources)),
        words=shell_line(word for place, word in enumerate(kept) if place not in places),
        sorts=shell_line(kept[place] for place in sorted(places)),
        seed=(steps.seed or 0) if {"shuffle", "sample"} & {name for name, _ in steps.steps} else None,
        python=None if calls is None else _opened(sources, opening) + calls,
    )


def _without(words: Sequence[str], own: Mapping[str, int], sources: Sequence[str]) -> Iterator[str]:
    """The words without options that the verb alone has, without secrets, and without a `--` before sources."""
    rest, options = iter(words), True
    for word in rest:
        flag, given, value = word.partition("=")
        flag = flag.replace("_", "-")
        if options and flag in own:
            if own[flag] and not given:
                next(rest, None)
        elif options and flag in _HOLD_HIDDENS:
            yield flag
            yield _HOLD_HIDDENS[flag](value if given else next(rest, ""))
        elif options and word == "--":
            options = False
        elif word in sources:
            yield cleaned(f"./{word}" if word.startswith("-") and word != "-" else word)
        else:
            yield word


def _without_value(pair: str) -> str:
    """`NAME=VALUE`, or `URL NAME=VALUE`, with a value that may be a secret left out."""
    name, sign, value = pair.rpartition("=") if "://" in pair else pair.partition("=")
    return name + sign + (value if name.rpartition(" ")[2] in _HARMLESS else _HIDDEN)


_HOLD_HIDDENS = {"--storage-option": _without_value, "--join": cleaned, "--take": cleaned}


def _sorts(words: Sequence[str]) -> Iterator[range]:
    """The places of the options `--sort`, each with its value."""
    for place, word in enumerate(words):
        if word == "--sort":
            yield range(place, place + 2)
        elif word.startswith("--sort="):
            yield range(place, place + 1)


def _opened(sources: Sequence[str], opening: Mapping[str, Any]) -> str:
    usual = {one.name: one.default for one in fields(ReadOptions)}
    given = {name: value for name, value in opening.items() if value != usual.get(name)}
    if are_mixed(sources, opening):
        types = {"types": given.pop("schema_overrides")} if "schema_overrides" in given else {}
        each = ", ".join(f"lading.open({cleaned(one)!r}{_arguments(given)})" for one in sources)
        return f"lading.concat([{each}]{_arguments(types)})"
    named = one_or_many([cleaned(one) for one in sources])
    return f"lading.open({named!r}{_arguments(given)})"


def _arguments(given: Mapping[str, Any]) -> str:
    return "".join(f", {name}={_written(name, value)}" for name, value in given.items())


def _written(name: str, value: Any) -> str:
    if isinstance(value, InterleavedOptions):
        return shown_call("lading.options.InterleavedOptions", value)
    if isinstance(value, Limits):
        return shown_call("lading.limits.Limits", value)
    if name == "storage_options":
        return repr({key: _without_secrets(key, each) for key, each in value.items()})
    if isinstance(value, Mapping) and any(isinstance(each, pa.DataType) for each in value.values()):
        types = (f"{key!r}: pyarrow.type_for_alias({str(kind)!r})" for key, kind in value.items())
        return f"{{{', '.join(types)}}}"
    return repr(value)


def _without_secrets(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_secrets(name, each) for name, each in value.items()}
    return value if key in _HARMLESS else _HIDDEN
