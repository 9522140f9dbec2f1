"""Keys of samples ⇄ how they stand in names of members, where a writer escapes what a reader would see differently.

    %25   %
    %2E   .    after the first dot of a base name the field begins
    %00   NUL  ends a name
    %0A   line end

Every `%` of a key is escaped, so that one that stands in a name always begins an escape.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["escaped", "unescaped"]

_ESCAPES = (("%", "%25"), (".", "%2E"), ("\0", "%00"), ("\n", "%0A"))
"""In the order of writing: the sign of an escape first, and last of all when it is undone."""

_Keys = TypeVar("_Keys", pa.StringArray, pa.ChunkedArray)


def escaped(keys: _Keys) -> _Keys:
    """The keys as they are written under `escape='percent'`."""
    for character, escape in _ESCAPES:
        keys = pc.replace_substring(keys, character, escape)
    return keys


def unescaped(keys: _Keys) -> _Keys:
    """The keys that were written so; what else stands behind a `%` stays as it is."""
    if not pc.any(pc.match_substring(keys, "%")).as_py():
        return keys
    for character, escape in reversed(_ESCAPES):
        keys = pc.replace_substring(keys, escape, character)
    return keys
