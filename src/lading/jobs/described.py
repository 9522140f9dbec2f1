"""Values as JSON that is equal for equal values in every process: options, steps, and functions of the user's.

A function is described by its name and its code, never by its address: constants, helper functions of its module and
plain values that it names are part of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lading.dataset.transform.join_table import JoinTable

__all__ = ["described", "fingerprint"]

_Inner: TypeAlias = Callable[[Any], Any]

_PLAIN = (bool, int, float, str, type(None))
_JSON_BITS = 53


def fingerprint(value: object) -> str:
    """Return 16 hex digits that are equal for values of equal JSON."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def described(value: Any, met: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """Return a value as JSON-able values, equal for equal values in every process.

    Large values (tables, arrays, code) are told by a fingerprint.

    Args:
        value: the value.
        met: the values that were met before, and what was told of them, by their identity. Values may hold each other.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # names of files may be invalid Unicode
    if isinstance(value, _PLAIN):
        return str(value) if isinstance(value, int) and value.bit_length() > _JSON_BITS else value
    met = {} if met is None else met
    if id(value) not in met:
        met[id(value)] = value, "…"  # for values inside that hold this one
        inner = partial(described, met=met)
        found = (of_kind(value, inner) for of_kind in (_of_python, _of_library, _of_function, _of_object))
        met[id(value)] = value, next(told for told in found if told is not None)
    return met[id(value)][1]


def _of_python(value: Any, inner: _Inner) -> Any:
    """Describe containers and other values of Python; None for others."""
    found: Any = None
    if isinstance(value, Mapping):
        found = {str(name): inner(one) for name, one in value.items()}
    elif isinstance(value, (list, tuple)):
        found = [inner(one) for one in value]
    elif isinstance(value, (set, frozenset)):
        found = sorted(map(inner, value), key=orjson.dumps)
    elif isinstance(value, os.PathLike):
        found = os.fspath(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        found = f"bytes {xxhash.xxh3_128_hexdigest(bytes(value))}"
    elif isinstance(value, Enum):
        found = value.name
    return found


def _of_library(value: Any, inner: _Inner) -> Any:
    """Describe values of pyarrow and numpy; None for others."""
    found: Any = None
    if isinstance(value, pa.Schema):
        found = {field.name: str(field.type) + _metadata(field.metadata) for field in value}
    elif isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value.combine_chunks())
        found = f"table {xxhash.xxh3_128_hexdigest(sink.getvalue())}"
    elif isinstance(value, (pa.DataType, pa.Field, pc.Expression)):
        found = str(value)
    elif isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value).tobytes()
        found = f"array {value.dtype.str} {value.shape} {xxhash.xxh3_128_hexdigest(data)}"
    elif isinstance(value, np.generic):
        found = inner(value.item())
    elif isinstance(value, JoinTable):
        found = {"table": value.name, "key": value.key, "rows": inner(value.rows)}
    return found


def _metadata(metadata: Mapping[bytes, bytes] | None) -> str:
    return f" {sorted(metadata.items())}" if metadata else ""


def _of_function(value: Any, inner: _Inner) -> Any:
    """Describe what can be called, modules and classes; None for other values."""
    found: Any = None
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        told = [_code(value.__code__), inner(value.__defaults__), inner(value.__kwdefaults__), inner(cells),
                _named_by(value, inner)]  # fmt: skip
        found = f"{value.__module__}:{value.__qualname__} {fingerprint(told)}"
    elif isinstance(value, MethodType):
        found = [inner(value.__func__), inner(value.__self__)]
    elif isinstance(value, partial):
        found = [inner(value.func), inner(value.args), inner(value.keywords)]
    elif isinstance(value, type):
        own = [inner(one) for _, one in sorted(vars(value).items()) if isinstance(one, (FunctionType, *_PLAIN))]
        found = f"{value.__module__}:{value.__qualname__} {fingerprint(own)}"
    elif isinstance(value, ModuleType):
        found = value.__name__
    elif isinstance(value, BuiltinFunctionType):
        found = f"{value.__module__}:{value.__qualname__}"
    return found


def _of_object(value: Any, inner: _Inner) -> Any:
    """Describe any other object by its class and its state."""
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    if is_dataclass(value):
        return {"kind": type(value).__name__, **{one.name: inner(getattr(value, one.name)) for one in fields(value)}}
    state = getattr(value, "__dict__", None)
    return {"kind": inner(type(value)) if callable(value) else kind, "state": inner(state)} if state else kind


def _code(code: CodeType) -> list[Any]:
    """Describe the code of a function, and of the functions inside it; lines and files are no part of it."""
    consts = [_code(one) if isinstance(one, CodeType) else described(one) for one in code.co_consts]
    names = [*code.co_names, "", *code.co_varnames, "", *code.co_freevars]
    return [hashlib.sha256(code.co_code).hexdigest(), consts, names]


def _named_by(function: FunctionType, inner: _Inner) -> dict[str, Any]:
    """Describe what a function names in its module: plain values, and functions and classes of the same module."""
    found = {}
    for name in sorted(_names(function.__code__)):
        one = function.__globals__.get(name)
        ours = isinstance(one, (FunctionType, type)) and one.__module__ == function.__module__
        if ours or (isinstance(one, _PLAIN) and one is not None):
            found[name] = inner(one)
    return found


def _names(code: CodeType) -> set[str]:
    inside = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inside)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
