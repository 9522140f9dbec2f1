"""What processes that are lading's own, and nobody else's, do without: the command and its workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa

__all__ = ["leave_pandas_out"]


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas, for as long as this process lives; whoever else asks for it later gets it.

    To make an array of a list, pyarrow asks whether that is one of pandas' own, and imports pandas for it wherever
    it is installed: half of the time that a command or a worker takes to start. Nothing here is pandas'.
    """
    sys.meta_path.insert(0, _NO_PANDAS)
    try:
        pa.array([])  # it asks once
    finally:
        sys.meta_path.remove(_NO_PANDAS)


class _NoPandas:
    """A finder of modules by which pandas is not installed."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """Nothing, or ModuleNotFoundError."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


_NO_PANDAS = _NoPandas()
