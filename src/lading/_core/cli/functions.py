"""Functions that the command line names: `steps.py:add_length`, or `package.module:add_length`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from lading.errors import UsageError

__all__ = ["named_function"]


def named_function(option: str, text: str) -> Callable[..., Any]:
    """Return the function that an option names.

    Args:
        option: the option, for errors.
        text: a Python file or a module, a colon, and the name of a function in it.

    Raises:
        UsageError: there is no such file, module or function, or the file cannot be run.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise UsageError("not the name of a function", expected="FILE.py:FUNCTION or MODULE:FUNCTION",
                         found=f"{option} {text}")  # fmt: skip
    module = _module(option, place)
    function = getattr(module, name, None)
    if not callable(function):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UsageError(f"{option}: no such function", file=place, expected=", ".join(known) or None, found=name)
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # worker processes need not find the file
    return function  # type: ignore[no-any-return] # anything that can be called


def _module(option: str, place: str) -> ModuleType:
    is_file = place.endswith(".py") or os.sep in place
    if is_file and not os.path.isfile(place):
        raise UsageError(f"{option}: no such file", file=place)
    try:
        if not is_file:
            sys.path.insert(0, os.getcwd())
            try:
                return importlib.import_module(place)
            finally:
                sys.path.remove(os.getcwd())
        name = os.path.basename(place).removesuffix(".py")
        spec = importlib.util.spec_from_file_location(f"lading_functions_{name}", place)
        assert spec is not None, "the name ends in .py"
        assert spec.loader is not None, "as of every file"
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{option}: the code cannot be loaded", file=place,
                         found=f"{type(error).__name__}: {error}"[:300]) from error  # fmt: skip
    return module
