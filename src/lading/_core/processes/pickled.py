"""Values on their way to worker processes: options, schemas, conditions and functions of the user's.

cloudpickle takes functions too that no module holds: a lambda, a closure, a function of a notebook.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from typing import Any, Final

from lading.errors import UsageError

__all__ = ["ALONE", "decode_value", "encode_value", "from_bytes", "to_bytes"]

ALONE: Final = "Work with --workers 1."
"""Advice for those who need no worker processes, unless they say another one."""


def to_bytes(value: object, parts: Mapping[str, object], advice: str = ALONE) -> bytes:
    """Return a value as bytes, from which a worker process makes an equal one.

    Args:
        value: the value.
        parts: the parts of it that come from the user, by name, for the error.
        advice: what to do where it cannot be pickled.

    Raises:
        UsageError: a part cannot be pickled; names it.
    """
    import cloudpickle  # only where workers are started

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        for name, part in parts.items():
            _refuse_unpicklable(name, part, advice)
        raise UsageError("worker processes cannot be sent this job", found=str(error)[:200], advice=advice) from error


def from_bytes(data: bytes, advice: str = ALONE) -> Any:
    """Return the value that `to_bytes` was given.

    Raises:
        UsageError: a function is of a module that this process cannot import.
    """
    try:
        return pickle.loads(data)  # noqa: S301 - the process that started this one wrote it
    except (ImportError, AttributeError) as error:
        raise UsageError("a worker process cannot import what a function needs", found=str(error)[:200],
                         advice=f"Install the module. {advice}") from error  # fmt: skip


def encode_value(value: object, parts: Mapping[str, object]) -> str:
    """Return a value as text, as `to_bytes` does as bytes."""
    return base64.b64encode(to_bytes(value, parts)).decode()


def decode_value(text: str) -> Any:
    """Return the value that `encode_value` was given. Raises as `from_bytes`."""
    return from_bytes(base64.b64decode(text))


def _refuse_unpicklable(name: str, part: object, advice: str) -> None:
    import cloudpickle

    try:
        cloudpickle.dumps(part)
    except Exception as error:
        raise UsageError(
            "worker processes cannot be sent this value", found=f"{name}={part!r}"[:200],
            expected=f"a value that cloudpickle can pickle ({str(error)[:200]})", advice=advice,
        ) from error  # fmt: skip
