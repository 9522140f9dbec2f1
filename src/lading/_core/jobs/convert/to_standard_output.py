"""A conversion whose destination is standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from lading._core.formats.registry import get_format
from lading._core.storage.base import Store
from lading._core.storage.standard_output import PREFIX, StandardOutput
from lading.errors import UsageError
from lading.options import WriteOptions

__all__ = ["to_standard_output"]

_TEXT = ("text", "inferred")
"""Types of formats that people can read."""


def to_standard_output(write: WriteOptions) -> tuple[str, WriteOptions, Mapping[str, Store]]:
    """Return the destination that stands for standard output, the options of writing, and the store.

    Raises:
        UsageError: an option needs a file, the format is several files, or standard output is a terminal.
    """
    needs_file = {
        "verify": write.verify, "resume": write.resume, "rank": write.rank is not None, "workers": write.workers > 1,
        "executor": write.executor is not None, "lazy": write.lazy, "shard_size": write.shard_size is not None,
        "num_shards": write.num_shards is not None, "rows_per_shard": write.rows_per_shard is not None,
    }  # fmt: skip
    for name, given in needs_file.items():
        if given:
            raise UsageError("standard output is one file, written once by one process", found=name,
                             advice=f"Leave {name} out, or name a folder.")  # fmt: skip
    fmt = get_format(write.format)
    options = {**fmt.info.presets.write_piped, **(write.options or {})}
    if fmt.info.restores_types or fmt.info.files_name_each_other or fmt.info.write_options is None:
        raise UsageError(f"a dataset of the format {fmt.name} is several files", file="standard output",
                         advice="Name a folder.")  # fmt: skip
    if sys.stdout is not None and sys.stdout.isatty() and fmt.info.types not in _TEXT:
        raise UsageError("standard output is a terminal", expected="a pipe or a file", found=f"{fmt.name}, bytes",
                         advice="Pipe it to a program. 'lading head SRC' shows samples.")  # fmt: skip
    name = f"samples{fmt.endings(fmt.write_options(options))[0]}"
    return PREFIX + name, replace(write, options=options), {PREFIX: StandardOutput(name)}
