"""Arguments of public functions: a wrong one is answered with the name that users type, and with the nearest argument.

Example:
    lading.loader("train/*.tar", 64, num_worker=4)
    # UnknownArgument: lading.loader() has no argument num_worker. Did you mean workers?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from functools import update_wrapper, wraps
from importlib import import_module
from inspect import CO_VARKEYWORDS, Parameter, Signature, signature
from numbers import Real
from operator import index
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from lading.errors import UnknownArgument, UsageError
from lading.options import OpeningOptions, ReadOptions

__all__ = ["STEPS", "Later", "arguments_of", "is_number", "public", "shown_call", "unknown_arguments", "whole_number"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Thing = TypeVar("_Thing", bound=Callable[..., Any])

_FEW: Final = 9
"""So many arguments are all named."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_STEPS: Final = {
    **{name: name for name in ("cast", "dedup", "drop", "filter", "flatten", "join", "limit", "map", "rename", "sample",
                               "select", "shuffle", "sort", "where")},
    "columns": "select", "drop_columns": "drop", "take": "take_keys",
}  # fmt: skip
STEPS: Final = {name: f"{name} is a step: lading.open(…).{method}(…)." for name, method in _STEPS.items()}
"""What users ask a function for that opens a source, and what to write."""


def shown_call(name: str, value: Any) -> str:
    """Return the call that makes a value of a dataclass, without the arguments that are the defaults.

    Example: `shown_call("lading.train.images", self)`    # lading.train.images(size=(32, 32), flip=0.5)
    """
    given = {each.name: getattr(value, each.name) for each in fields(value)}
    others = (f"{each.name}={given[each.name]!r}" for each in fields(value) if given[each.name] != each.default)
    return f"{name}({', '.join(others)})"


def is_number(value: object) -> bool:
    """Return whether a value is a number of Python's or numpy's; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return a number of Python's for one of Python's or numpy's, so that JSON can hold it.

    Raises:
        UsageError: the value is no whole number, or less than `least`; the error has the name of the argument.
    """
    number = None
    if not isinstance(value, bool):
        with suppress(TypeError):
            number = index(value)
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise UsageError(f"{name} must be a whole number{bound}", found=repr(value))
    return number


def public(name: str, others: Mapping[str, str] = _NONE) -> Callable[[_Thing], _Thing]:
    """Return a decorator of a function or a class that users call by this name.

    An argument that it lacks is an `UnknownArgument`. Errors of Python about its arguments say the name, too. `help`
    and editors show the arguments of `lading.open` for a parameter `**opening: Unpack[OpeningOptions]`.

    Args:
        name: what users type, such as `lading.open`. Methods of a class are named after its last part.
        others: arguments of other libraries, and a sentence that says what to write in their place.
    """

    def decorated(thing: _Thing) -> _Thing:
        if not isinstance(thing, type):
            made: _Thing = _checked(thing, name, others)
            return made
        for each, method in [*vars(thing).items()]:
            if isinstance(method, FunctionType) and (each == "__init__" or not each.startswith("_")):
                said = name if each == "__init__" else f"{name.rpartition('.')[2]}.{each}"
                setattr(thing, each, _checked(method, said, others))
        return thing

    return decorated


def unknown_arguments(
    name: str, unknown: Collection[str], known: Collection[str], others: Mapping[str, str] = _NONE
) -> UnknownArgument:
    """Return the error of a function that lacks these arguments; `known` are those that it has."""
    answers = {each: others.get(each) or _near(each, known) for each in unknown}
    told = [answer if len(answers) == 1 else f"{each}: {answer}" for each, answer in answers.items() if answer]
    few = ", ".join(known) if len(known) <= _FEW and len(told) < len(unknown) else None
    if not told and few is None:
        told = [f"'help({name})' lists its arguments."]
    return UnknownArgument(
        f"{name}() has no argument {', '.join(unknown)}", expected=few, advice=" ".join(told) or None
    )


def _near(name: str, known: Collection[str]) -> str | None:
    """Return the question whether the nearest argument is meant: one of similar spelling, or with the same words."""
    words = {*name.split("_")}
    close = get_close_matches(name, known, n=1) or [each for each in known if words < {*each.split("_")}]
    return f"Did you mean {close[0]}?" if close else None


def _checked(function: Any, name: str, others: Mapping[str, str]) -> Any:
    """Return the function, which refuses arguments that it lacks, but for those with `**` of their own."""
    code = function.__code__
    opens = "OpeningOptions" in str(function.__annotations__.values())
    takes_any = bool(code.co_flags & CO_VARKEYWORDS) and not opens
    own = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    known = (*own, *OpeningOptions.__annotations__) if opens else own
    accepted, alone = frozenset(known), {**STEPS, **others} if opens else others

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if not takes_any and not given.keys() <= accepted:
            unknown = [each for each in given if each not in accepted]
            raise unknown_arguments(name, unknown, [each for each in known if each != "self"], alone)
        return function(*args, **given)

    if opens:
        call.__signature__ = _with_opening(function)  # type: ignore[attr-defined] # for help and editors
    function.__qualname__ = name  # Python's own errors of a call say it
    return call


def _with_opening(function: Callable[..., Any]) -> Any:
    """Return the signature of a function with the arguments of `lading.open` in place of `**opening`."""
    shown, usual = signature(function), ReadOptions()
    own = [each for each in shown.parameters.values() if each.kind is not each.VAR_KEYWORD]
    opening = [
        Parameter(each, Parameter.KEYWORD_ONLY, default=getattr(usual, each, None), annotation=kind.__forward_arg__)
        for each, kind in OpeningOptions.__annotations__.items()
    ]
    return shown.replace(parameters=[*own, *opening])


class Later:
    """A function that is imported when it is called, or looked at."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def get(self) -> Any:
        """Import the function."""
        return getattr(import_module(self._module), self._name)

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self.get()(*args, **given)


def arguments_of(
    function: Callable[Concatenate[Any, _P], _R],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Any, _P], _R]]:
    """Return a decorator of a method that gives its object to a function, with all other arguments of the function.

    Type checkers, editors and `help` see these arguments. At runtime the function is a `Later`.
    """
    return lambda method: _Forwarding(method, function)


class _Forwarding:
    """A method with the arguments of a function, which is not imported before somebody looks at them."""

    def __init__(self, method: Callable[..., Any], function: Any) -> None:
        self._method, self._function = method, function
        update_wrapper(self, method)

    def __get__(self, held: Any, owner: type | None = None) -> Any:
        return self if held is None else MethodType(self, held)

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self._method(*args, **given)

    @property
    def __signature__(self) -> Signature:
        """The arguments of the function, but for those of `lading.open`, which the object has used already."""
        shown = signature(self._function.get().__wrapped__)
        first, *others = (each for each in shown.parameters.values() if each.kind is not each.VAR_KEYWORD)
        own = signature(self._method)
        return shown.replace(
            parameters=[own.parameters["self"].replace(kind=first.kind), *others],
            return_annotation=own.return_annotation,
        )
