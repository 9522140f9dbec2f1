"""The names of other libraries, each in a module: `lading.compat.datatrove` and others, imported when asked for."""

from importlib import import_module
from typing import Any

_MODULES = ("datatrove", "mosaicml", "nemo_curator", "stable_datasets")


def __getattr__(name: str) -> Any:
    """Load the module that is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module 'lading.compat' has no attribute {name!r}")
    return import_module(f"lading.compat.{name}")
