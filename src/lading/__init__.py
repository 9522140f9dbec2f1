"""Sharded multimodal training data: open anything, convert anything to anything, prove that nothing was lost."""

from lading.dataset import Dataset
from lading.dataset import open_dataset as open  # noqa: A004 - what users type: lading.open(…)
from lading.errors import LadingError
from lading.fetch import materialise
from lading.jobs.convert import convert
from lading.jobs.digest import dataset_digest as digest
from lading.jobs.digest import diff
from lading.jobs.index import index
from lading.jobs.info import info
from lading.jobs.verify import verify
from lading.layouts.options import InterleavedOptions
from lading.writer import DatasetWriter as writer  # noqa: N813 - what users type: with lading.writer(…)

__all__ = [
    "Dataset",
    "InterleavedOptions",
    "LadingError",
    "convert",
    "diff",
    "digest",
    "index",
    "info",
    "materialise",
    "open",
    "verify",
    "writer",
]
