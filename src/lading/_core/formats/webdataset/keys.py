"""Escape keys of samples in names of members, where readers would otherwise see another key.

    %25   %
    %2E   .    the first dot of a base name ends the key
    %00   NUL  ends a name
    %0A   line end

Every `%` of a key is escaped, so that a `%` in a name always begins an escape.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["escaped", "unescaped"]

_ESCAPES = (("%", "%25"), (".", "%2E"), ("\0", "%00"), ("\n", "%0A"))
"""In the order of writing: the escape character first; it is restored last."""

_Keys = TypeVar("_Keys", pa.StringArray, pa.ChunkedArray)


def escaped(keys: _Keys) -> _Keys:
    """Return the keys as they are written under `escape='percent'`."""
    for character, escape in _ESCAPES:
        keys = pc.replace_substring(keys, character, escape)
    return keys


def unescaped(keys: _Keys) -> _Keys:
    """Return the original keys; other text after a `%` stays unchanged."""
    if not pc.any(pc.match_substring(keys, "%")).as_py():
        return keys
    for character, escape in reversed(_ESCAPES):
        keys = pc.replace_substring(keys, escape, character)
    return keys
