"""Sharded multimodal training data: open anything, convert anything to anything, prove that nothing was lost."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lading.compat.mosaicml import LocalCopy, MDSShard
    from lading.dataset.dataset import Dataset
    from lading.dataset.source.open import open_dataset as open  # noqa: A004 - what users type: lading.open(…)
    from lading.dataset.transform.concat import concat
    from lading.dataset.writing.writer import DatasetWriter as writer  # noqa: N813 - what users type: with lading.writer(…)
    from lading.errors import LadingError
    from lading.jobs.clean import clean
    from lading.jobs.convert import convert
    from lading.jobs.diff import diff
    from lading.jobs.digest import dataset_digest as digest
    from lading.jobs.doctor import doctor
    from lading.jobs.export import export
    from lading.jobs.finish import finish
    from lading.jobs.index import index
    from lading.jobs.info import info
    from lading.jobs.merge import merge
    from lading.jobs.ray_sink import write_ray
    from lading.jobs.ray_source import to_ray
    from lading.jobs.repair import repair
    from lading.jobs.salvage import salvage
    from lading.jobs.stats import dataset_stats as stats
    from lading.jobs.verify import verify
    from lading.options import InterleavedOptions
    from lading.storage.fetch import materialise
    from lading.train.feed import mix
    from lading.train.loader import loader
    from lading.train.packing import pack

__all__ = [
    "Dataset",
    "InterleavedOptions",
    "LadingError",
    "LocalCopy",
    "MDSShard",
    "clean",
    "concat",
    "convert",
    "diff",
    "digest",
    "doctor",
    "export",
    "finish",
    "index",
    "info",
    "loader",
    "materialise",
    "merge",
    "mix",
    "open",
    "pack",
    "repair",
    "salvage",
    "stats",
    "to_ray",
    "verify",
    "write_ray",
    "writer",
]

_HOMES = {
    "Dataset": ("lading.dataset.dataset", "Dataset"),
    "InterleavedOptions": ("lading.options", "InterleavedOptions"),
    "LadingError": ("lading.errors", "LadingError"),
    "LocalCopy": ("lading.compat.mosaicml", "LocalCopy"),
    "MDSShard": ("lading.compat.mosaicml", "MDSShard"),
    "clean": ("lading.jobs.clean", "clean"),
    "concat": ("lading.dataset.transform.concat", "concat"),
    "convert": ("lading.jobs.convert", "convert"),
    "diff": ("lading.jobs.diff", "diff"),
    "digest": ("lading.jobs.digest", "dataset_digest"),
    "doctor": ("lading.jobs.doctor", "doctor"),
    "export": ("lading.jobs.export", "export"),
    "finish": ("lading.jobs.finish", "finish"),
    "index": ("lading.jobs.index", "index"),
    "info": ("lading.jobs.info", "info"),
    "loader": ("lading.train.loader", "loader"),
    "materialise": ("lading.storage.fetch", "materialise"),
    "merge": ("lading.jobs.merge", "merge"),
    "mix": ("lading.train.feed", "mix"),
    "open": ("lading.dataset.source.open", "open_dataset"),
    "pack": ("lading.train.packing", "pack"),
    "repair": ("lading.jobs.repair", "repair"),
    "salvage": ("lading.jobs.salvage", "salvage"),
    "stats": ("lading.jobs.stats", "dataset_stats"),
    "to_ray": ("lading.jobs.ray_source", "to_ray"),
    "verify": ("lading.jobs.verify", "verify"),
    "write_ray": ("lading.jobs.ray_sink", "write_ray"),
    "writer": ("lading.dataset.writing.writer", "DatasetWriter"),
}
_MODULES = frozenset(("caches", "errors", "features", "limits", "media"))
"""What users reach as `lading.caches.write_cache(…)`, imported when it is asked for."""


def __getattr__(name: str) -> Any:
    """Load what is asked for."""
    if name in _MODULES:
        return import_module(f"lading.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'lading' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])


# The command (`lading`, `python -m lading`) loads nothing here: `lading --help` need not wait for pyarrow, and an
# interrupt meanwhile ends as any other. Every other program loads everything at the import, so that no call pays for it
# later; except formats, which are loaded when they are used.
if not getattr(sys, "argv", [""])[0].endswith(("/lading", "-m")):
    globals().update({name: __getattr__(name) for name in __all__ if not _HOMES[name][0].startswith("lading.compat")})
