"""Values as JSON that is equal for equal values in every process: options, steps, and functions of the user's.

A function is its name, its bytecode, its defaults and its closure; an object that is called is its class, the bytecode
of its methods, and its attributes. What a function names in its module is no part of it. Values of other classes have
no such JSON: they are listed as unknown, and `--resume` asks whether they are the same.

Arguments and attributes that a function holds may be secrets: a fingerprint stands for them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lading._core.dataset.transform.join_table import JoinTable

__all__ = ["fingerprint", "plain_facts"]

_Inner: TypeAlias = Callable[[Any], Any]

_PLAIN = (bool, int, float, str, type(None))
_JSON_BITS = 53
_DEEPEST = 100
_SHOWN_WHOLE = (dt.date, dt.time, dt.timedelta, dt.timezone, Decimal, range, complex, slice, pc.Expression)
"""Types whose `repr` has all of a value."""


def fingerprint(value: object) -> str:
    """Return 16 hex digits that are equal for values of equal JSON."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def plain_facts(value: Any, unknown: list[str], known: dict[int, tuple[Any, Any]] | None = None, depth: int = 0) -> Any:
    """Return a value as JSON-able values, equal for equal values in every process.

    Large values (tables, arrays, code) are shown by a fingerprint.

    Args:
        value: the value.
        unknown: gets the class of each value inside that only its class stands for.
        known: the values that were met before, with their facts, by their identity. Values may hold themselves.
        depth: number of values that hold this one.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # names of files may be invalid Unicode
    if isinstance(value, _PLAIN):
        return str(value) if isinstance(value, int) and value.bit_length() > _JSON_BITS else value
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = value, "…"  # for values inside that hold this one
    inner = partial(plain_facts, unknown=unknown, known=known, depth=depth + 1)
    of_kinds = (_of_python, _of_library, _of_function, _of_object) if depth < _DEEPEST else ()
    plain = next((one for one in (of_kind(value, inner) for of_kind in of_kinds) if one is not None), None)
    if plain is None or _hides_state(type(value)):
        unknown.append(_name(type(value)))
    known[id(value)] = value, _name(type(value)) if plain is None else plain
    return known[id(value)][1]


def _of_python(value: Any, inner: _Inner) -> Any:
    """Return containers and other values of Python; None for others."""
    found: Any = None
    if isinstance(value, Mapping):
        found = {str(inner(name)): inner(one) for name, one in value.items()}
    elif isinstance(value, (list, tuple)):
        found = [inner(one) for one in value]
    elif isinstance(value, (set, frozenset)):
        found = sorted(map(inner, value), key=orjson.dumps)
    elif isinstance(value, os.PathLike):
        found = os.fspath(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        whole = value if memoryview(value).c_contiguous else bytes(value)
        found = f"bytes {xxhash.xxh3_128_hexdigest(whole)}"
    elif isinstance(value, Enum):
        found = value.name
    elif isinstance(value, re.Pattern):
        found = f"pattern {value.flags} {fingerprint(inner(value.pattern))}"
    elif isinstance(value, _SHOWN_WHOLE):
        found = repr(value)
    return found


def _of_library(value: Any, inner: _Inner) -> Any:
    """Return values of pyarrow and numpy; None for others."""
    found: Any = None
    if isinstance(value, pa.Schema):
        found = {field.name: str(field.type) + _metadata(field.metadata) for field in value}
    elif isinstance(value, pa.RecordBatch):
        found = inner(pa.Table.from_batches([value]))
    elif isinstance(value, (pa.Array, pa.ChunkedArray, pa.Scalar)):
        found = inner(pa.table([pa.array([value]) if isinstance(value, pa.Scalar) else value], names=["values"]))
    elif isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value.combine_chunks())
        found = f"table {xxhash.xxh3_128_hexdigest(sink.getvalue())}"
    elif isinstance(value, (pa.DataType, pa.Field)):
        found = str(value)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        found = inner(value.tolist())
    elif isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        found = f"array {value.dtype.str} {value.shape} {xxhash.xxh3_128_hexdigest(data)}"
    elif isinstance(value, np.generic):
        found = inner(value.item())
    elif isinstance(value, JoinTable):
        found = {"table": value.name, "key": value.key, "rows": inner(value.rows)}
    return found


def _metadata(metadata: Mapping[bytes, bytes] | None) -> str:
    return f" {sorted(metadata.items())}" if metadata else ""


def _of_function(value: Any, inner: _Inner) -> Any:
    """Return functions, classes and modules; None for other values."""
    found: Any = None
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        held = [_code(value.__code__), inner(value.__defaults__), inner(value.__kwdefaults__), inner(cells)]
        found = f"{_name(value)} {fingerprint(held)}"
    elif isinstance(value, MethodType):
        found = f"{_name(value.__func__)} {fingerprint([inner(value.__func__), inner(value.__self__)])}"
    elif isinstance(value, partial):
        found = f"partial {fingerprint([inner(value.func), inner(value.args), inner(value.keywords)])}"
    elif isinstance(value, type):
        found = _class(value)
    elif isinstance(value, ModuleType):
        found = value.__name__
    elif isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        found = _name(value)
        if owner is not None and not isinstance(owner, ModuleType):
            found = f"{found} {fingerprint(inner(owner))}"
    elif callable(value) and hasattr(value, "__wrapped__"):  # `functools.cache`
        found = inner(value.__wrapped__)
    return found


def _of_object(value: Any, inner: _Inner) -> Any:
    """Return dataclasses and objects that are called; None for others."""
    kind = type(value)
    if not is_dataclass(kind):
        return f"{_class(kind)} {fingerprint(inner(vars(value)))}" if _is_called(kind) else None
    ours = kind.__module__.partition(".")[0] == "lading"
    state = {one.name: inner(getattr(value, one.name)) for one in fields(kind) if one.compare or not ours}
    return {"kind": kind.__name__, **state} if ours else f"{_class(kind)} {fingerprint(state)}"


def _is_called(kind: type) -> bool:
    """Return whether objects of a class are functions of the user's, with attributes."""
    return isinstance(vars(kind).get("__call__"), FunctionType) and bool(kind.__dictoffset__)


def _hides_state(kind: type) -> bool:
    """Return whether objects of a class hold more than their attributes."""
    return _is_called(kind) and any(vars(base).get("__slots__") for base in kind.__mro__)


def _class(kind: type) -> str:
    """Return the name of a class, and a fingerprint of the methods of it and its bases."""
    methods = [{name: [_code(one.__code__) for one in _functions(attribute)] for name, attribute in vars(base).items()}
               for base in kind.__mro__]  # fmt: skip
    named = [{name: code for name, code in each.items() if code} for each in methods]
    return f"{_name(kind)} {fingerprint(named)}"


def _functions(attribute: Any) -> list[FunctionType]:
    """Return the functions of a class' attribute: a method, or the functions of a property."""
    parts = [attribute]
    if isinstance(attribute, (staticmethod, classmethod)):
        parts = [attribute.__func__]
    elif isinstance(attribute, property):
        parts = [attribute.fget, attribute.fset, attribute.fdel]
    elif isinstance(attribute, cached_property):
        parts = [attribute.func]
    return [part for part in parts if isinstance(part, FunctionType)]


def _name(value: Any) -> str:
    """Return the name of a function or a class, with its module."""
    return f"{getattr(value, '__module__', None)}:{getattr(value, '__qualname__', type(value).__qualname__)}"


def _code(code: CodeType) -> list[Any]:
    """Return the bytecode of a function and of the functions inside it; lines and files are no part of it."""
    consts = [_code(one) if isinstance(one, CodeType) else plain_facts(one, []) for one in code.co_consts]
    names = [*code.co_names, "", *code.co_varnames, "", *code.co_freevars]
    return [hashlib.sha256(code.co_code).hexdigest(), consts, names]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
