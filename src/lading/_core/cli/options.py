"""Arguments and options of commands; those that say how a dataset is read or written come from `lading.options`."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial, wraps
from itertools import repeat
from types import GenericAlias
from typing import Annotated, Any, TypeAlias, get_args

import typer

from lading._core.cli.steps import TypedOption, TypedSteps
from lading._core.units import parse_sample
from lading.errors import UsageError
from lading.limits import Limits
from lading.options import (
    NAMES,
    CliOption,
    Drop,
    InterleavedOptions,
    ReadOptions,
    RowOptions,
    SplitOptions,
    WorkerOptions,
    WriteOptions,
    cli,
    help_texts,
)

__all__ = [
    "CHECKING",
    "CHOOSING",
    "READING",
    "SHARING",
    "SPLITTING",
    "STORES",
    "TYPED",
    "WORDS",
    "WRITING",
    "Debug",
    "FormatFlags",
    "Json",
    "OptionGroup",
    "Quiet",
    "Sources",
    "StepGroup",
    "Steps",
    "StoreFlags",
    "Values",
    "column_names",
    "flag_aliases",
    "name_list",
    "named_options",
    "one_or_many",
    "takes",
]

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC",
        show_default=False,
        help="Files, folders, patterns ('docs/*.tar', 'shard-{00..41}.tar'), URLs, or a dataset's own index file. "
        "- is standard input.",
    ),
]
_OUTPUT = "Output"
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of text.", rich_help_panel=_OUTPUT)]
Debug = Annotated[
    bool, typer.Option("--debug", metavar="", help="Print the traceback of an error.", rich_help_panel=_OUTPUT)
]

Quiet = Annotated[
    bool | None,
    typer.Option(
        "--quiet/--no-quiet",
        "-q",
        metavar="",
        show_default=False,
        rich_help_panel=_OUTPUT,
        help="Print no progress and no notes; warnings, errors and results stay. --json is quiet, unless --no-quiet.",
    ),
]

Values: TypeAlias = Callable[..., dict[str, Any]]
"""Returns the values of a group of options, by the names of Python's arguments; see `takes`."""
Steps: TypeAlias = Callable[[], TypedSteps]
"""Returns the steps of a command, in the order in which they are typed; see `takes`."""
TYPED, WORDS = "typed", "words"
"""Where a command's context keeps the names of its parameters, in the order typed, and all words behind the verb."""


@dataclass(frozen=True, slots=True)
class FormatFlags:
    """Options of a source's format that have a flag of their own.

    Attributes:
        on_duplicate: Where a sample has a field twice: error (the default), keep_first or keep_last.
        sidecar: Ignore index files next to the shards (.tar.idx).
    """

    on_duplicate: str | None = field(default=None, metadata=cli("--on-duplicate", "POLICY"))
    sidecar: str | None = field(default=None, metadata=cli("--ignore-sidecar", switch="ignore"))


@dataclass(frozen=True, slots=True)
class StoreFlags:
    """Options of stores.

    Attributes:
        storage_options: Option of object stores, such as endpoint=http://minio:9000 or anonymous=true. For one place
            alone, its URL comes first: "s3://bucket region=eu-west-1".
    """

    storage_options: Mapping[str, Any] | None = field(
        default=None, metadata=cli("--storage-option", "NAME=VALUE", repeatable=True)
    )


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that a verb gets as one argument.

    Attributes:
        name: of the verb's argument.
        kinds: dataclasses whose fields are the options.
        only: fields that the verb takes; by default all.
        without: fields that the verb does not take.
        optional: whether even an option without a default may be left out.
    """

    name: str
    kinds: tuple[type, ...]
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    optional: bool = False

    def options(self) -> Iterator[tuple[str, type, Field[Any], CliOption]]:
        """Return each option: its name in the verb's signature, its dataclass and field, and its spelling."""
        for kind in self.kinds:
            for one in fields(kind):
                taken = (not self.only or one.name in self.only) and one.name not in self.without
                if "cli" in one.metadata and taken:
                    yield f"{kind.__name__.lower()}_{one.name}", kind, one, one.metadata["cli"]

    def parameters(self) -> list[inspect.Parameter]:
        """Return the options as parameters, from which typer makes the command line."""
        return [_parameter(*option, optional=self.optional) for option in self.options()]

    def values(self, given: Mapping[str, Any], more: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the values of the options given, and of those with a default.

        Args:
            given: values from typer, by the names in the verb's signature.
            more: further texts of `--option`.

        Raises:
            UsageError: a text is no value of its option. UnknownFormat: there is no such format.
        """
        found: dict[type, dict[str, Any]] = {kind: {} for kind in self.kinds}
        for name, kind, one, spelled in self.options():
            text = given[name]
            if more and kind is ReadOptions and one.name == "options":
                text = [*(text or ()), *more]
            if text not in (None, []) and not (spelled.switch and not text):
                found[kind][one.name] = _parsed(one.name, spelled, text)
        return _reading(found) if ReadOptions in found else found[self.kinds[0]]

    def asked(self, given: Mapping[str, Any], typed: Sequence[str]) -> Values | Steps:  # noqa: ARG002 - of steps alone
        """Return the verb's argument: a function, so that an invalid value is an error inside the verb."""
        return partial(self.values, given)


class StepGroup(OptionGroup):
    """Options that are steps, whose order counts."""

    __slots__ = ()

    def asked(self, given: Mapping[str, Any], typed: Sequence[str]) -> Steps:
        """Return the verb's argument."""
        return partial(self.steps, given, typed)

    def steps(self, given: Mapping[str, Any], typed: Sequence[str]) -> TypedSteps:
        """Return the steps in the order typed.

        Args:
            given: values from typer, by the names in the verb's signature.
            typed: these names in the order typed, each as often as it is typed.

        Raises:
            UsageError: a text is no value of its option, or an option belongs to no step.
        """
        known = {name: (one.name, spelled) for name, _, one, spelled in self.options()}
        texts = {name: iter(given[name] if isinstance(given[name], (list, tuple)) else repeat(given[name]))
                 for name in known}  # fmt: skip
        return TypedSteps.of([TypedOption(*known[name], next(texts[name])) for name in typed if name in known], _parsed)


READING = OptionGroup("reading", (ReadOptions, FormatFlags, StoreFlags, InterleavedOptions))
"""How the source is read: the arguments of `lading.open`."""

CHECKING = replace(READING, without=("on_bad_shard",))
"""The same for verbs that report bad shards themselves."""

CHOOSING = StepGroup("choosing", (RowOptions,))
"""Which rows and columns are kept."""

SPLITTING = OptionGroup("splitting", (SplitOptions,))
"""How a dataset is divided into splits."""

SHARING = OptionGroup("sharing", (WorkerOptions,))
"""What shares the shards of a job that only reads."""

STORES = OptionGroup("stores", (StoreFlags,))
"""How object stores are reached."""

WRITING = OptionGroup("writing", (WriteOptions,))
"""How the destination is written."""


def takes(*groups: OptionGroup) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb groups of options, besides its own options.

    The verb gets each group as one argument, a function that returns the values. It is a function so that an invalid
    value is an error inside the verb, printed as all others are. A verb with an argument `typed` gets the names of the
    options that were typed, in order; one with an argument `words` all words behind the verb.
    """

    def with_options(verb: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(verb, eval_str=True).parameters
        names = {TYPED, WORDS, *(group.name for group in groups)}
        own = [p for p in parameters.values() if p.name not in names]
        made = [parameter for group in groups for parameter in group.parameters()]

        @wraps(verb)
        def run(context: typer.Context, **given: Any) -> None:
            mine, typed = {p.name: given.pop(p.name) for p in made}, context.meta[TYPED]
            more = {name: context.meta[name] for name in (TYPED, WORDS) if name in parameters}
            verb(**given, **{group.name: group.asked(mine, typed) for group in groups}, **more)

        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        signature = inspect.Signature([context, *(p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *made))])
        run.__signature__ = signature  # type: ignore[attr-defined] # typer makes the command line from it
        run.groups = groups  # type: ignore[attr-defined] # for `flag_aliases`
        return run

    return with_options


def flag_aliases(verb: Callable[..., None]) -> dict[str, str]:
    """Return the further names of a verb's options, and the names that help shows, all without dashes.

    Where two groups have the same alias, it stands for the option of the first.
    """
    groups: Sequence[OptionGroup] = getattr(verb, "groups", ())
    found: dict[str, str] = {}
    for *_, spelled in (option for group in groups for option in group.options()):
        for alias in spelled.aliases:
            found.setdefault(alias.removeprefix("--"), spelled.flag.removeprefix("--"))
    return found


def one_or_many(sources: Sequence[str]) -> str | list[str]:
    """Return a single source as it is, since a folder has a manifest, and several sources as a list."""
    return sources[0] if len(sources) == 1 else list(sources)


def name_list(text: str) -> tuple[str, ...]:
    """Return the names of `a,b`, or of a JSON list, in which names may contain commas and spaces."""
    with suppress(ValueError, RecursionError):
        listed = json.loads(text)
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            return tuple(listed)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def column_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns. Raises UsageError for an empty list: most likely an empty shell variable."""
    for text in texts:
        if not name_list(text):
            raise UsageError(
                "no column is selected", found=repr(text), advice="Name a column, or leave the option out."
            )
    return _all_names(texts)


def _fields(text: str) -> tuple[str, ...]:
    """Return the names of fields, one at least. Raises UsageError."""
    return column_names((text,))


def _all_names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in name_list(text))


def named_options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return `NAME=VALUE` texts as a dict. A value that is JSON (`true`, `3`, `["a"]`) is parsed, others are text.

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
        except (ValueError, RecursionError):  # not JSON, or a number or list too large for Python
            found[name] = text
    return found


def _storage_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return `NAME=VALUE` texts, and `URL NAME=VALUE` texts by URL. Messages name no value: it may be a secret."""
    found: dict[str, Any] = {}
    for text in texts:
        url, space, pair = text.strip().partition(" ") if "://" in text.partition("=")[0] else ("", " ", text)
        name, sign, value = pair.strip().partition("=")
        if not space or not sign or not name:
            raise UsageError("not a storage option", expected="NAME=VALUE, or 'URL NAME=VALUE'",
                             found=repr(text.partition("=")[0]))  # fmt: skip
        place = found.setdefault(url, {}) if url else found
        if name in place:
            raise UsageError("a storage option is given twice", found=name)
        place[name] = named_options([f"{name}={value}"])[name]
    return found


def _parameter(name: str, kind: type, one: Field[Any], spelled: CliOption, *, optional: bool) -> inspect.Parameter:
    """Return an option as a parameter of a verb."""
    required = one.default is MISSING and not optional
    none = one.default is MISSING or kind is InterleavedOptions or _is_list(spelled, one)
    default = None if none else one.default
    declared = typer.Option(
        spelled.flag,
        metavar=spelled.metavar,
        help=help_texts(kind)[one.name].replace("`", "") + (" Repeatable." if spelled.repeatable else ""),
        rich_help_panel=spelled.panel,
        min=spelled.at_least,
        show_default=default not in (None, False),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else False if spelled.switch else default,
        annotation=Annotated[_text_type(one, spelled), declared],
    )


def _text_type(one: Field[Any], spelled: CliOption) -> Any:
    """Return the type to which typer converts an option's text. Other types than these are parsed later."""
    names = {*str(one.type).split(" | ")} - {"None"}
    if spelled.repeatable:
        return list[str] | None
    if spelled.switch or names == {"bool"}:
        return bool
    single: type = {"int": int, "float": float}.get(names.pop(), str) if len(names) == 1 else str
    if spelled.choices:
        single = _words(one.name, spelled.choices)
    if _is_list(spelled, one):
        return GenericAlias(list, single) | None
    return single if spelled.choices else single | None


def _words(name: str, words: Sequence[str]) -> Any:
    return StrEnum(name, {word: word for word in words})


def _is_list(spelled: CliOption, one: Field[Any]) -> bool:
    """Return whether an option may be typed several times: of steps, all but switches, since their order counts."""
    return spelled.repeatable or (bool(spelled.step or spelled.belongs_to) and one.type != "bool")


def _parsed(name: str, spelled: CliOption, text: Any) -> Any:
    """Return the value of an option. Raises UsageError."""
    if spelled.switch:
        return spelled.switch
    if name in _PARSERS:
        return _PARSERS[name](text)
    if spelled.metavar == NAMES:
        return _all_names(text)
    return str(text) if spelled.choices else text


def _new_names(pairs: Sequence[str]) -> dict[str, str]:
    """Return `OLD=NEW` texts as a dict. Raises UsageError."""
    found = _pairs(pairs)
    if found is None:
        raise UsageError("not a new name of a column", expected="--rename OLD=NEW, once for a column",
                         found=", ".join(map(repr, pairs)))  # fmt: skip
    return found


def _pairs(texts: Sequence[str]) -> dict[str, str] | None:
    """Return `A=B` texts as a dict; None if a side is empty, or an A comes twice."""
    found = dict(text.partition("=")[::2] for text in texts)
    return found if len(found) == len(texts) and all(found) and all(found.values()) else None


def _new_types(pairs: Sequence[str]) -> dict[str, str]:
    """Return `NAME=TYPE` texts as a dict. Raises UsageError."""
    found = _pairs(pairs)
    if found is None:
        raise UsageError("not a new type of a column", expected="--cast NAME=TYPE, once for a column",
                         found=", ".join(map(repr, pairs)))  # fmt: skip
    for name, kind in found.items():
        first, comma, more = kind.partition(",")
        if comma and "=" in more and not any(bracket in first for bracket in "[(<"):
            raise UsageError("the new types of several columns in one --cast", found=repr(f"{name}={kind}"),
                             advice=f"Repeat --cast for each column: --cast {name}={first} --cast {more.strip()}"
                             )  # fmt: skip
    return found


def _on(text: str) -> str | dict[str, str]:
    """Return a field, or the field of the samples and the column of the table of `FIELD=COLUMN`."""
    field, sign, column = text.partition("=")
    return {field: column} if sign else text


def _shares(text: str) -> dict[str, float | None]:
    """Return the shares of `train=0.98,val=0.02`, or of `val=1000,train=rest`."""
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        if name in found:
            raise UsageError("a split is named twice", found=f"--split-into {text}")
        try:
            found[name] = None if share == "rest" else int(share) if share.isdecimal() else float(share)
        except ValueError:
            raise UsageError("not a split", expected="--split-into train=0.98,val=0.02", found=repr(part)) from None
    return found


def _limits(pairs: Sequence[str]) -> Limits:
    return Limits.of(named_options(pairs))


def _format(name: str) -> str:
    """Return the name of a format that exists."""
    from lading._core.formats.registry import get_format

    return get_format(name).name


def _types(pairs: Sequence[str]) -> dict[str, Any]:
    """Return `NAME=TYPE` texts as Arrow types by name."""
    from lading._core.arrow.types import arrow_type

    found = {}
    for name, text in named_options(pairs).items():
        try:
            found[name] = arrow_type(str(text))
        except UsageError:
            raise UsageError("no such type", expected="int64, float32, string, large_string, timestamp[us] …",
                             found=f"--type {name}={text}") from None  # fmt: skip
    return found


def _all_of(conditions: Sequence[str]) -> str:
    """Return the condition that all conditions hold."""
    return conditions[0] if len(conditions) == 1 else " and ".join(f"({one})" for one in conditions)


def _drop(text: str) -> str:
    """Return a policy of filters."""
    if text not in get_args(Drop):
        raise UsageError("--drop says what a filter drops", expected=" or ".join(get_args(Drop)), found=repr(text),
                         advice=f"Leave out columns with --drop-columns {shlex.quote(text)}.")  # fmt: skip
    return text


def _sort(texts: Sequence[str]) -> list[tuple[str, bool]]:
    """Return fields such as `score` and `score:desc`, each with whether the largest value comes first."""
    parts = [(text, *text.rpartition(":")) for text in texts]
    return [(name, way == "desc") if name and way in ("asc", "desc") else (text, False)
            for text, name, _, way in parts]  # fmt: skip


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "columns": column_names,
    "limits": _limits,
    "dedup": _fields,
    "drop": _drop,
    "drop_columns": column_names,
    "flatten": column_names,
    "join_columns": column_names,
    "on": _on,
    "options": named_options,
    "rename": _new_names,
    "cast": _new_types,
    "roots": tuple,
    "sample": parse_sample,
    "storage_options": _storage_options,
    "sort": _sort,
    "schema_overrides": _types,
    "split_by": _fields,
    "split_into": _shares,
    "where": _all_of,
}
"""Parsers of options that are more than a text or number, by field."""


def _reading(found: Mapping[type, dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of `lading.open`; `--option` holds options of the format and of interleaved data."""
    values = {**found[ReadOptions], **found.get(StoreFlags, {})}
    options = {**values.pop("options", {}), **found.get(FormatFlags, {})}
    if "regroup" in options:  # of tars, or of interleaved documents
        values["regroup"] = options.pop("regroup")
    known = {one.name: one for one in fields(InterleavedOptions)}
    interleaved = {name: options.pop(name) for name in list(options) if name in known}
    for name, value in interleaved.items():
        if str(known[name].type).startswith("tuple") and value is not None:
            interleaved[name] = tuple(value) if isinstance(value, list) else name_list(str(value))
    interleaved |= found.get(InterleavedOptions, {})
    if options:
        values["options"] = options
    if interleaved:
        values["interleaved"] = InterleavedOptions(**interleaved)
    if "format" in values:
        values["format"] = _format(values["format"])
    return values
