"""The command that fixes a layout, ready to paste into a shell."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import count
from typing import Any

import pyarrow as pa

from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards, options_like
from lading._core.manifest.commit import check_destination
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import DestinationExists, UsageError
from lading.limits import Limits
from lading.options import InterleavedOptions, ReadOptions

__all__ = ["copy_command", "index_command"]

_WORD = "fixed"


def copy_command(query: Query, dataset: Shards, read_options: Mapping[str, Any]) -> str:
    """Return `lading convert …`: a copy in the same format and view, with the source's options of writing.

    Args:
        query: the source.
        dataset: the source, open.
        read_options: further options of its format.
    """
    given = query.reading(options={**(query.read.options or {}), **read_options})
    words = ["lading", "convert", *_names(query), _free_place(dataset, query.stores), "--to", dataset.format]
    for name, value in options_like(dataset).items():
        words += ["--to-option", _assigned(name, value)]
    return shlex.join([*words, *_reading(given.read)])


def index_command(query: Query) -> str:
    """Return `lading index …`, which keeps the dataset's references in the user's cache folder."""
    return shlex.join(["lading", "index", *_names(query), *_reading(query.read)])


def _names(query: Query) -> list[str]:
    given = query.source.names
    names = [given] if isinstance(given, (str, os.PathLike)) else given
    return [_no_option(os.fspath(name)) for name in names]


def _no_option(name: str) -> str:
    """Return a path that does not look like an option."""
    return f"./{name}" if name.startswith("-") else name


def _free_place(dataset: Shards, stores: Stores) -> str:
    """Return an empty folder next to the source's, with its name and `-fixed`; for loose files here, a folder here.

    If a store cannot list folders, return the first name; the copy reports whether it is free.
    """
    folder = dataset.listing.folder
    if folder is None:
        folder = folder_of(dataset.path(0))
    folder = folder.rstrip("/") or folder
    if folder and is_local(resolve(folder, stores)[0]) and os.path.basename(folder) in ("", ".", ".."):
        folder = os.path.abspath(folder)
    name = f"{folder}-{_WORD}" if folder else _WORD
    for number in count(1):
        place = _no_option(name + (f"-{number}" if number > 1 else ""))
        store, path = resolve(place, stores)
        try:
            check_destination(store, path, overwrite=False)
        except DestinationExists:
            continue
        except UsageError:
            if is_local(store) and os.path.lexists(path):  # a file
                continue
        return place
    raise AssertionError("count() is infinite")


def _reading(read: ReadOptions) -> Iterator[str]:
    """Yield the command-line options that open a source with these options of reading."""
    for option in fields(ReadOptions):
        if "cli" in option.metadata:
            value, flag = getattr(read, option.name), option.metadata["cli"].flag
            if isinstance(value, bool):
                yield from [flag.split("/")[not value]] if value != option.default else []
                continue
            for text in _texts(value) if value != option.default else ():
                yield from (flag, text)
    interleaved = read.interleaved or InterleavedOptions()
    for option in fields(InterleavedOptions):
        if (value := getattr(interleaved, option.name)) != option.default:
            yield from ("--option", _assigned(option.name, value))


def _texts(value: object) -> list[str]:
    """Return the texts of an option, one for each time that it is given."""
    if isinstance(value, Limits):
        value = {limit.name: most for limit in fields(Limits) if (most := getattr(value, limit.name)) != limit.default}
    elif isinstance(value, pa.Schema):
        value = {field.name: field.type for field in value}
    if isinstance(value, Mapping):
        return [_assigned(name, str(one) if isinstance(one, pa.DataType) else one) for name, one in value.items()]
    if value is None or isinstance(value, str):
        return [value] if value else []
    assert isinstance(value, Sequence)
    return [os.fspath(one) for one in value]


def _assigned(name: str, value: object) -> str:
    """Return `NAME=VALUE` for the command line: text as it is, unless it would be read as JSON."""
    text = json.dumps(value)
    if isinstance(value, str):
        try:
            json.loads(value)
        except json.JSONDecodeError:
            text = value
    return f"{name}={text}"
