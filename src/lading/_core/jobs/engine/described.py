"""Values as JSON that is equal for equal values in every process: options, steps, and functions of the user's.

A function is described by its name and its code, never by its address. What it names is part of it: constants, values
of modules, functions and classes of the user's modules. Of libraries, the names count.

Arguments and attributes that a function holds may be secrets: a fingerprint stands for them.
"""

from __future__ import annotations

import copyreg
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lading._core.dataset.transform.join_table import JoinTable

__all__ = ["described", "fingerprint"]

_Inner: TypeAlias = Callable[[Any], Any]

_PLAIN = (bool, int, float, str, type(None))
_JSON_BITS = 53
_PROTOCOL = 4
"""Of pickles: 5 would leave buffers out."""


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
    return found


def _of_library(value: Any, inner: _Inner) -> Any:
    """Describe values of pyarrow and numpy; None for others."""
    found: Any = None
    if isinstance(value, pa.Schema):
        found = {field.name: str(field.type) + _metadata(field.metadata) for field in value}
    elif isinstance(value, pa.RecordBatch):
        found = inner(pa.Table.from_batches([value]))
    elif isinstance(value, (pa.Array, pa.ChunkedArray)):
        found = inner(pa.table([value], names=["values"]))
    elif isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value.combine_chunks())
        found = f"table {xxhash.xxh3_128_hexdigest(sink.getvalue())}"
    elif isinstance(value, (pa.DataType, pa.Field, pc.Expression)):
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
    """Describe what can be called, modules and classes; None for other values."""
    found: Any = None
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        named = {} if _is_library(value.__module__) else _named_by(value, inner)
        told = [_code(value.__code__), inner(value.__defaults__), inner(value.__kwdefaults__), inner(cells), named]
        found = f"{value.__module__}:{value.__qualname__} {fingerprint(told)}"
    elif isinstance(value, MethodType):
        found = f"{_name(value.__func__)} {fingerprint([inner(value.__func__), inner(value.__self__)])}"
    elif isinstance(value, partial):
        held = [inner(value.func), inner(value.args), inner(value.keywords)]
        found = f"partial {_name(value.func)} {fingerprint(held)}"
    elif isinstance(value, type):
        found = (
            _name(value) if _is_library(value.__module__) else f"{_name(value)} {fingerprint(_of_class(value, inner))}"
        )
    elif isinstance(value, ModuleType):
        found = value.__name__
    elif isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        found = _name(value)
        if owner is not None and not isinstance(owner, ModuleType):
            found = f"{found} {fingerprint(inner(owner))}"
    return found


def _of_class(value: type, inner: _Inner) -> dict[str, Any]:
    """Describe a class of the user's: its bases, its methods and its values."""
    found: dict[str, Any] = {"": [inner(base) for base in value.__bases__]}
    for name, one in vars(value).items():
        if isinstance(one, (GetSetDescriptorType, MemberDescriptorType)):
            continue
        if isinstance(one, (staticmethod, classmethod)):
            found[name] = inner(one.__func__)
        elif isinstance(one, property):
            found[name] = inner([one.fget, one.fset, one.fdel])
        elif isinstance(one, cached_property):
            found[name] = inner(one.func)
        elif isinstance(one, FunctionType) or not name.startswith("__"):
            found[name] = inner(one)
    return found


def _of_object(value: Any, inner: _Inner) -> Any:
    """Describe any other object by its class and its state, as `copy` takes it; by its class if it has none.

    Objects that lie too deep inside others are told by their class too.
    """
    kind = type(value)
    if is_dataclass(value):
        ours = _is_ours(kind.__module__)
        state = {one.name: inner(getattr(value, one.name)) for one in fields(value) if one.compare or not ours}
        return {"kind": kind.__name__, **state} if ours else _with_state(kind, state, inner)
    try:
        reduce = copyreg.dispatch_table.get(kind)
        parts = value.__reduce_ex__(_PROTOCOL) if reduce is None else reduce(value)
    except Exception:  # noqa: BLE001 - it is the class's own code: locks, files and generators refuse in many ways
        parts = ""
    if isinstance(parts, str):
        return _with_state(kind, [parts, inner(getattr(value, "__dict__", None))], inner)
    make, arguments, *more = parts
    held = [one if one is None or isinstance(one, (Mapping, tuple)) else _listed(one) for one in more]
    try:
        return _with_state(kind, [_name(make), inner(arguments), inner(held)], inner)
    except RecursionError:  # a chain of objects, each of which holds the next one
        return _name(kind)


def _listed(state: Any) -> Any:
    """Return what an iterator of items gives; other state as it is."""
    return list(state) if hasattr(state, "__next__") else state


def _with_state(kind: type, state: Any, inner: _Inner) -> str:
    return f"{_name(kind)} {fingerprint([inner(kind), state])}"


def _name(value: Any) -> str:
    """Return the name of a function or a class, with its module."""
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"{getattr(value, '__module__', None)}:{name}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "lading"


def _is_library(module: str | None) -> bool:
    """Whether a module is Python's, lading's, or installed: whoever changes it installs another version."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if module is None or _is_ours(module) or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)


def _code(code: CodeType) -> list[Any]:
    """Describe the code of a function, and of the functions inside it; lines and files are no part of it."""
    consts = [_code(one) if isinstance(one, CodeType) else described(one) for one in code.co_consts]
    names = [*code.co_names, "", *code.co_varnames, "", *code.co_freevars]
    return [hashlib.sha256(code.co_code).hexdigest(), consts, names]


def _named_by(function: FunctionType, inner: _Inner) -> dict[str, Any]:
    """Describe what a function names in its module, and in other modules of the user's."""
    names, found = sorted(_names(function.__code__)), dict[str, Any]()
    spaces: list[tuple[str, Mapping[str, Any]]] = [("", function.__globals__)]
    for place, space in spaces:  # modules that are named are added
        for name in names:
            one = space.get(name)
            if isinstance(one, ModuleType) and not _is_library(one.__name__):
                if all(vars(one) is not known for _, known in spaces):
                    spaces.append((f"{place}{name}.", vars(one)))
            elif isinstance(one, (FunctionType, type)) and _is_library(one.__module__):
                found[place + name] = _name(one)
            elif one is not None:
                found[place + name] = inner(one)
    return found


def _names(code: CodeType) -> set[str]:
    inside = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inside)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
