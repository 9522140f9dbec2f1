"""The peers' libraries."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

__all__ = ["import_peer"]


def import_peer(name: str) -> ModuleType:
    """Import a module of a peer, without its warnings. It has to be installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)
