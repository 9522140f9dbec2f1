"""Messages between the processes of a job: lines of JSON, followed by bytes or by Arrow tables.

A frame is one line of JSON, and bodies of so many bytes as its field `bodies` lists. In a message, the bodies are
tables (Arrow IPC streams).
"""

from __future__ import annotations

import base64
import builtins
import io
import os
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from lading import errors
from lading._core.arrow.references import is_ref, ref_field, with_refs
from lading._core.dataset.shards.bad_shards import SkippedShard
from lading._core.manifest.values import SHARDS_SCHEMA
from lading._core.pipeline.finished import FinishedPart
from lading.errors import LadingError

__all__ = [
    "DIGESTS_NAME",
    "decode_error",
    "decode_message",
    "decode_part",
    "decode_schema",
    "decode_skipped",
    "encode_error",
    "encode_message",
    "encode_part",
    "encode_schema",
    "encode_skipped",
    "encode_warning",
    "plain_value",
    "read_frame",
    "repeat_warning",
    "write_frame",
]

DIGESTS_NAME = "digests"
"""File, in the folder of a task, with the content digests of its samples, 16 bytes each."""

_MAX_INT = 1 << 63


def write_frame(fd: int, told: Mapping[str, Any], *bodies: bytes) -> None:
    """Write a line of JSON and the bytes behind it to a pipe, whole."""
    data = memoryview(_frame(told, bodies))
    while data:
        data = data[os.write(fd, data) :]


def read_frame(pipe: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return the next line and the bytes behind it; None at the end of the pipe, and for a frame that is cut there."""
    line = pipe.readline()
    if not line.endswith(b"\n"):
        return None
    told = orjson.loads(line)
    sizes = told.pop("bodies")
    bodies = [pipe.read(size) for size in sizes]
    whole = all(len(body) == size for body, size in zip(bodies, sizes, strict=True))
    return (told, bodies) if whole else None


def encode_message(told: Mapping[str, Any], tables: Sequence[pa.Table | None] = ()) -> bytes:
    """Return a message as bytes: a frame whose bodies are tables."""
    return _frame(told, [b"" if table is None else _ipc(table) for table in tables])


def decode_message(data: bytes) -> tuple[dict[str, Any], list[pa.Table | None]]:
    """Return the message and the tables that `encode_message` was given."""
    frame = read_frame(io.BytesIO(data))
    assert frame is not None, "it is whole"
    told, bodies = frame
    return told, [with_refs(pa.ipc.open_stream(body).read_all()) if body else None for body in bodies]


def _frame(told: Mapping[str, Any], bodies: Sequence[bytes]) -> bytes:
    return b"".join([orjson.dumps({**told, "bodies": [len(body) for body in bodies]}), b"\n", *bodies])


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON-able values, with its traceback."""
    trace = _plain("".join(traceback.format_exception(error)))
    told: dict[str, Any] = {"kind": _kind(error), "trace": trace, "errno": None}
    if isinstance(error, OSError):
        told["errno"] = error.errno
    if isinstance(error, LadingError):
        known = {n: v for n, v in vars(error).items() if v is not None and not n.startswith("__")}
        return {**told, "state": {n: _plain(v) for n, v in known.items()}}
    if isinstance(error, OSError):
        file = None if error.filename is None else _plain(os.fsdecode(error.filename))
        return {**told, "text": _plain(error.strerror or str(error)), "file": file}
    return {**told, "text": _plain(str(error))}


def _plain(value: object) -> int | str:
    """Return a value as JSON can hold it; invalid Unicode is escaped in ASCII."""
    if isinstance(value, int) and abs(value) < _MAX_INT:
        return value
    return str(value).encode(errors="backslashreplace").decode()


def plain_value(value: Any) -> Any:
    """Return nested lists and dicts as JSON can hold them; invalid Unicode is escaped in ASCII."""
    if isinstance(value, Mapping):
        return {name: plain_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(one) for one in value]
    return value if value is None or isinstance(value, (bool, float)) else _plain(value)


def _kind(error: BaseException) -> str:
    """Return the name of the error's class, or of its first base class that every process knows."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ in ("lading.errors", "builtins"))


def decode_error(told: Mapping[str, Any]) -> BaseException:
    """Return the error that `encode_error` was given, with the other process's traceback as a note."""
    error = _rebuilt(told)
    error.add_note(f"In a worker process:\n{told['trace']}")
    return error


def _rebuilt(told: Mapping[str, Any]) -> BaseException:
    kind = getattr(errors, told["kind"], None)
    if kind is not None:
        error: LadingError = kind(told["state"]["message"])
        vars(error).update(told["state"])
        if isinstance(error, OSError):
            error.errno = told["errno"]
        return error
    known: type[BaseException] = getattr(builtins, told["kind"])
    if issubclass(known, OSError) and told["errno"] is not None:
        return OSError(told["errno"], told["text"], told["file"])
    try:
        return known(told["text"])
    except TypeError:  # some want more than a text
        return RuntimeError(f"{told['kind']}: {told['text']}")


def encode_skipped(skipped: Mapping[int, SkippedShard]) -> list[dict[str, Any]]:
    """Return skipped shards, by number, as JSON-able values."""
    return [{"number": number, "file": one.file, "error": encode_error(one.error)} for number, one in skipped.items()]


def decode_skipped(told: Sequence[Mapping[str, Any]]) -> dict[int, SkippedShard]:
    """Return the skipped shards that `encode_skipped` was given."""
    found = {}
    for one in told:
        error = _rebuilt(one["error"])
        assert isinstance(error, LadingError), "no other error skips a shard"
        found[one["number"]] = SkippedShard(one["file"], error)
    return found


def encode_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int) -> dict[str, Any]:
    """Return a warning as JSON-able values."""
    kind = next(k.__name__ for k in category.__mro__ if k.__module__ == "builtins")
    return {"kind": kind, "text": _plain(str(message)), "file": filename, "line": lineno}


def repeat_warning(told: Mapping[str, Any], registry: dict[str | tuple[str, type[Warning], int], int]) -> None:
    """Issue the warning that `encode_warning` was given, with its original place.

    Args:
        told: the warning.
        registry: where this process keeps which were given, so that it says each once.
    """
    kind: type[Warning] = getattr(builtins, told["kind"])
    warnings.warn_explicit(told["text"], kind, told["file"], told["line"], registry=registry)


def encode_part(part: FinishedPart) -> dict[str, Any]:
    """Return a part as JSON-able values."""
    return {
        "shards": part.shards.to_pylist(),
        "schema": encode_schema(part.schema),
        "columns": encode_schema(part.columns),
        "counts": dict(part.counts),
        "roles": dict(part.roles),
    }


def decode_part(told: Mapping[str, Any]) -> FinishedPart:
    """Return the part that `encode_part` was given."""
    shards = pa.Table.from_pylist(told["shards"], SHARDS_SCHEMA)
    columns = decode_schema(told["columns"]) or pa.schema([])
    return FinishedPart(shards, decode_schema(told["schema"]), columns, told["counts"], told["roles"])


def encode_schema(schema: pa.Schema | None) -> str | None:
    """A schema as base64 of its Arrow IPC form, and the numbers of its references: others may be called so."""
    if schema is None:
        return None
    references = (str(i) for i, kind in enumerate(schema.types) if is_ref(kind))
    return " ".join([base64.b64encode(schema.serialize()).decode(), *references])


def decode_schema(text: str | None) -> pa.Schema | None:
    """The schema that `encode_schema` gave."""
    if text is None:
        return None
    told, *references = text.split()
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told)))
    for i in map(int, references):
        schema = schema.set(i, ref_field(schema.field(i)))
    return schema
