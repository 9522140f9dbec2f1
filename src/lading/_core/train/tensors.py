"""PyTorch, where it is asked for."""

from __future__ import annotations

from typing import Any

from lading.errors import missing_extra

__all__ = ["torch_here"]


def torch_here() -> Any:
    """Return the module `torch`. Raises MissingExtra."""
    try:
        import torch
    except ImportError as error:
        advice = 'Install it: pip install torch. Or take arrays: collate="numpy".'
        raise missing_extra(error, "tensors need PyTorch", "torch", advice) from error
    return torch
