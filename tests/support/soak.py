"""Whether this is `make soak`, which does more of everything than `make test`."""

from __future__ import annotations

import os

__all__ = ["SOAK"]

SOAK = "LADING_FUZZ" in os.environ
