"""Warnings for requested fields that no sample of a shard has."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

__all__ = ["warn_absent_fields", "warn_absent_id_field"]


def warn_absent_fields(fields: Iterable[str], path: str, counts: Counter[str]) -> None:
    """Warn of requested fields that no sample of a shard has; count the shard for each."""
    for name in fields:
        warnings.warn(f"{path}: no sample has the field {name!r}; it is null", stacklevel=2)
        counts[f"shards without the field {name!r}, null there"] += 1


def warn_absent_id_field(field: str, path: str, counts: Counter[str]) -> None:
    """Warn of an id field that no sample of a shard has; count the shard."""
    warnings.warn(f"{path}: no sample has the field {field!r}; they are called as their JSON members", stacklevel=2)
    counts[f"shards without the field {field!r}, whose samples are called as their JSON members"] += 1
