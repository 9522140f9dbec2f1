"""Values on their way to worker processes: options, schemas, conditions and functions of the user's.

cloudpickle takes functions too that no module holds: a lambda, a closure, a function of a notebook.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from typing import Any

from lading.errors import UsageError

__all__ = ["decode_value", "encode_value"]


def encode_value(value: object, parts: Mapping[str, object]) -> str:
    """Return a value as text, from which a worker process makes an equal one.

    Args:
        value: the value.
        parts: the parts of it that come from the user, by name, for the error.

    Raises:
        UsageError: a part cannot be pickled; names it.
    """
    import cloudpickle  # only where workers are started

    try:
        return base64.b64encode(cloudpickle.dumps(value)).decode()
    except Exception as error:
        for name, part in parts.items():
            _refuse_unpicklable(name, part)
        raise UsageError("worker processes cannot be sent this job", found=str(error)[:200],
                         advice="Work with --workers 1.") from error  # fmt: skip


def _refuse_unpicklable(name: str, part: object) -> None:
    import cloudpickle

    try:
        cloudpickle.dumps(part)
    except Exception as error:
        raise UsageError(
            "worker processes cannot be sent this value", found=f"{name}={part!r}"[:200],
            expected=f"a value that cloudpickle can pickle ({str(error)[:200]})", advice="Work with --workers 1.",
        ) from error  # fmt: skip


def decode_value(text: str) -> Any:
    """Return the value that `encode_value` was given.

    Raises:
        UsageError: a function is of a module that this process cannot import.
    """
    try:
        return pickle.loads(base64.b64decode(text))  # noqa: S301 - the process that started this one wrote it
    except (ImportError, AttributeError) as error:
        raise UsageError("a worker process cannot import what a function needs", found=str(error)[:200],
                         advice="Install the module, or work with --workers 1.") from error  # fmt: skip
