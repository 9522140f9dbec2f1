"""The peers' libraries."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

__all__ = ["import_peer"]


def import_peer(name: str) -> ModuleType:
    """A module of a peer; what it warns of while it is imported is none of our business. It has to be installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)
