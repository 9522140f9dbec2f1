"""Peers that need something before they can be imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def mosaicml_streaming() -> ModuleType:
    """mosaicml-streaming, with stand-ins for torchvision and transformers, which nobody here uses."""
    sys.path.append(str(Path(__file__).parents[1] / "tests/support"))
    from replacements import replacement

    replacement("torchvision", "transformers")
    import streaming
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    return streaming
