"""Whether this is `make soak`, which does more of everything than `make test`."""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["SOAK", "some"]

_Case = TypeVar("_Case")

SOAK = "LADING_FUZZ" in os.environ


def some(*cases: _Case, least: int = 1) -> tuple[_Case, ...]:
    """Return the first so many of them; in `make soak` all."""
    return cases if SOAK else cases[:least]
