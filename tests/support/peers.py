"""The peers' libraries."""

from __future__ import annotations

import os
import warnings
from functools import partial
from importlib import import_module
from itertools import count
from types import ModuleType

__all__ = ["import_peer"]


def import_peer(name: str) -> ModuleType:
    """Import a module of a peer, without its warnings. It has to be installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = import_module(name)
    if name == "streaming":  # names its shared memory by the first free number, which another process may take too
        import_module("streaming.base.shared.prefix")._each_prefix_int = partial(count, os.getpid() * 100)
    return module
