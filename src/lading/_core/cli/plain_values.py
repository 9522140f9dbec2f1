"""Values of options that need no validator.

Some versions of typer make a validator of pydantic's for each option of a verb, whether it is given or not. To import
pydantic and to make 50 of them took a fifth of the time of `lading info`.
"""

from __future__ import annotations

from enum import EnumType
from typing import Any

__all__ = ["with_plain_values"]


def with_plain_values(params: Any) -> Any:
    """Return options that take texts, choices and what is not given as they are, and other values by typer."""
    for param in params:
        validator = getattr(param, "get_runtime_param", None)
        if validator is not None and not isinstance(validator, _PlainValue):
            param.get_runtime_param = _PlainValue(validator)
    return params


class _PlainValue:
    """What typer asks for the value of an option: instead of it, or by its own validator."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def __call__(self) -> _PlainValue:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of an option. Raises as typer's validator."""
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind is str and isinstance(value, str):
            return value
        if kind in (int, float) and type(value) is kind and value == param.default:
            return value
        if kind == list[str] and isinstance(value, (list, tuple)):
            return [*value]
        if isinstance(kind, EnumType) and value in kind._value2member_map_:
            return kind(value)
        return self._validator().coerce(value, param=param, ctx=ctx)
