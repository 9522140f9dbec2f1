"""A destination that is one file, by its name: `out.parquet`, `out.tar.gz`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lading._core.codecs import unpacked_name
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import all_formats
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.storage.base import Store, has_file
from lading._core.storage.stores import without_query
from lading.errors import DestinationExists, UsageError

__all__ = ["check_file", "is_file_name", "lost_without_manifest", "options_of_file"]


def is_file_name(destination: str | os.PathLike[str]) -> bool:
    """Whether a destination is one file: its name has the ending of a format, and no slash at its end."""
    return bool(_ending(os.fspath(destination)))


def _ending(destination: str) -> str:
    name = without_query(destination).lower()
    endings = (ending for fmt in all_formats() for ending in fmt.info.extensions)
    return max((ending for ending in endings if name.endswith(ending)), key=len, default="")


def options_of_file(
    destination: str | os.PathLike[str], fmt: AnyFormat, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the options of writing with those that the ending of a file says: compression, tabs.

    Raises:
        UsageError: the ending is of another format or compression, or the format needs several files.
    """
    name = os.fspath(destination)
    ending, folder = _ending(name), f"Name a folder: {name}/ is one, by the slash at its end."
    if fmt.info.restores_types or fmt.info.files_name_each_other:
        raise UsageError(f"a dataset of the format {fmt.name} is several files", file=name, advice=folder)
    if ending not in fmt.info.extensions:
        raise UsageError("the name of the file says another format", file=name, expected=fmt.name, found=ending,
                         advice=f"Leave out --to. Or: {folder}")  # fmt: skip
    stem, wrap = unpacked_name("x" + ending)
    told: dict[str, Any] = {"compression": wrap} if wrap else {}
    if stem.endswith(".tsv"):
        told["delimiter"] = "tab"
    for option, value in told.items():
        if options.get(option, value) != value:
            raise UsageError("the name of the file says another value of an option", file=name,
                             expected=f"{option}={options[option]}", found=f"{ending}, {option}={value}")  # fmt: skip
    written = fmt.endings(fmt.write_options({**options, **told}))[0]
    if not wrap and unpacked_name("x" + written)[1]:
        raise UsageError("the name of a compressed file says its compression", file=name,
                             expected=f"a name that ends in {written}", found=ending)  # fmt: skip
    return {**options, **told}


def check_file(store: Store, path: str, *, overwrite: bool, again: bool = False) -> None:
    """Refuse a file that exists, unless it may be replaced, and a folder in its place.

    Raises:
        DestinationExists: there is a file, or a folder with files.
    """
    if next((info for info in store.walk(path) if info.path != path), None) is not None or os.path.isdir(path):
        raise DestinationExists("a folder has the name of the file", file=path,
                                advice="Choose another name, or delete the folder.")  # fmt: skip
    if has_file(store, path) and not overwrite and not again:
        raise DestinationExists("the file is there already", file=path,
                                advice="Choose another name, or replace the file with --overwrite.")  # fmt: skip


def lost_without_manifest(kind: ShardKind, schema: pa.Schema) -> dict[str, int]:
    """Return counts of what a file does not keep by itself, and a folder keeps in its manifest."""
    found: dict[str, int] = {}
    if kind.restores(schema):
        names = kind.format.written(schema, kind.options).lost_types
        if names:
            found[f"columns whose exact types one file of {kind.format.name} does not keep: {', '.join(names)}"] = len(
                names
            )
    needed = dict(kind.format.written(schema, kind.options).read_options)
    if needed and kind.row_layout.types_by_format:
        text = ", ".join(f"{name}={value}" for name, value in needed.items())
        found[f"options that readers of the file must give: {text}"] = len(needed)
    roles = kind.roles.options(schema.names) if kind.row_layout.has_items else {}
    if roles:
        found[f"options that readers of the file must give: {', '.join(roles)}"] = len(roles)
    return found
