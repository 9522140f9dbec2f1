"""Sharded multimodal training data: open anything, convert anything to anything, prove that nothing was lost."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from lading._core.api.dataset import Dataset
    from lading._core.api.opening import concat
    from lading._core.api.opening import open_dataset as open  # noqa: A004 - what users type: lading.open(…)
    from lading._core.api.sql import sql
    from lading._core.dataset.writing.writer import DatasetWriter as writer  # noqa: N813 - what users type: with lading.writer(…)
    from lading._core.jobs.convert.clean import clean
    from lading._core.jobs.convert.convert import convert
    from lading._core.jobs.convert.finish import finish
    from lading._core.jobs.dataset.index import index
    from lading._core.jobs.dataset.merge import merge
    from lading._core.jobs.push.push import push
    from lading._core.jobs.salvage.repair import repair
    from lading._core.jobs.salvage.salvage import salvage
    from lading._core.jobs.stats.info import info
    from lading._core.jobs.verify.diff import diff
    from lading._core.jobs.verify.digest import dataset_digest as digest
    from lading._core.jobs.verify.doctor import doctor
    from lading._core.jobs.verify.verify import verify
    from lading._core.train.loader import loader
    from lading._core.train.mixture import mix
    from lading._core.train.packing import pack
    from lading.errors import LadingError

__all__ = [
    "Dataset",
    "LadingError",
    "clean",
    "concat",
    "convert",
    "diff",
    "digest",
    "doctor",
    "finish",
    "index",
    "info",
    "loader",
    "merge",
    "mix",
    "open",
    "pack",
    "push",
    "repair",
    "salvage",
    "sql",
    "verify",
    "writer",
]

_HOMES = {
    "Dataset": ("lading._core.api.dataset", "Dataset"),
    "LadingError": ("lading.errors", "LadingError"),
    "clean": ("lading._core.jobs.convert.clean", "clean"),
    "concat": ("lading._core.api.opening", "concat"),
    "convert": ("lading._core.jobs.convert.convert", "convert"),
    "diff": ("lading._core.jobs.verify.diff", "diff"),
    "digest": ("lading._core.jobs.verify.digest", "dataset_digest"),
    "doctor": ("lading._core.jobs.verify.doctor", "doctor"),
    "finish": ("lading._core.jobs.convert.finish", "finish"),
    "index": ("lading._core.jobs.dataset.index", "index"),
    "info": ("lading._core.jobs.stats.info", "info"),
    "loader": ("lading._core.train.loader", "loader"),
    "merge": ("lading._core.jobs.dataset.merge", "merge"),
    "mix": ("lading._core.train.mixture", "mix"),
    "open": ("lading._core.api.opening", "open_dataset"),
    "pack": ("lading._core.train.packing", "pack"),
    "push": ("lading._core.jobs.push.push", "push"),
    "repair": ("lading._core.jobs.salvage.repair", "repair"),
    "salvage": ("lading._core.jobs.salvage.salvage", "salvage"),
    "sql": ("lading._core.api.sql", "sql"),
    "verify": ("lading._core.jobs.verify.verify", "verify"),
    "writer": ("lading._core.dataset.writing.writer", "DatasetWriter"),
}
_MODULES = frozenset(
    ("caches", "compat", "errors", "features", "formats", "limits", "media", "options", "ray", "testing", "train")
)
"""What users reach as `lading.caches.write_cache(…)`, imported when it is asked for."""
_MOVED = {
    "InterleavedOptions": ("lading.options", "InterleavedOptions", "lading.options.InterleavedOptions"),
    "LocalCopy": ("lading.compat.mosaicml", "LocalCopy", "lading.compat.mosaicml.LocalCopy"),
    "MDSShard": ("lading.compat.mosaicml", "MDSShard", "lading.compat.mosaicml.MDSShard"),
    "materialise": ("lading.features", "materialise", "lading.features.materialise"),
    "to_ray": ("lading.ray", "to_ray", "lading.ray.to_ray"),
    "write_ray": ("lading.ray", "write_ray", "lading.ray.write_ray"),
    "export": ("lading._core.jobs.dataset.export", "export", "lading.open(…).export(…)"),
    "stats": ("lading._core.jobs.stats.stats", "dataset_stats", "lading.open(…).stats(…)"),
}
"""Names that leave with the next release, where they are, and what to write."""


def __getattr__(name: str) -> Any:
    """Load what is asked for: `import lading` alone loads nothing."""
    if name in _MODULES:
        return import_module(f"lading.{name}")
    if name in _MOVED:
        module, attribute, place = _MOVED[name]
        warn(f"lading.{name} will leave: write {place}", DeprecationWarning, stacklevel=2)
    elif name in _HOMES:
        module, attribute = _HOMES[name]
    else:
        raise AttributeError(f"module 'lading' has no attribute {name!r}")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
