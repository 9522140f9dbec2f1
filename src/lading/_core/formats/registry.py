"""Formats by name, and by the name and first bytes of a file.

Built-in formats are named here as text and imported when they are first needed. Other packages add a format by an entry
point of the group `_core.formats`; see docs/write-a-format.md. `register` adds one to this process alone.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from lading._core.formats.format import AnyFormat
from lading._core.storage.index_json import refuse_pointer
from lading._core.storage.stores import without_query
from lading.errors import DataError, UnknownFormat, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "aliases_of",
    "all_formats",
    "find_format",
    "format_names",
    "format_of_name",
    "get_format",
    "is_installed",
    "register",
]

_BUILT_IN = {
    "webdataset": "lading._core.formats.webdataset.format",
    "mds": "lading._core.formats.mds.format",
    "parquet": "lading._core.formats.parquet.format",
    "arrow": "lading._core.formats.arrow.format",
    "jsonl": "lading._core.formats.jsonl.format",
    "csv": "lading._core.formats.csv.format",
    "warc": "lading._core.formats.warc.format",
    "media_archive": "lading._core.formats.media_archive.format",
    "text": "lading._core.formats.text.format",
    "files": "lading._core.formats.files.format",
}
_ALIASES = {
    "audiofolder": "files",
    "feather": "arrow",
    "folder": "files",
    "imagefolder": "files",
    "ipc": "arrow",
    "json": "jsonl",
    "ndjson": "jsonl",
    "mosaic": "mds",
    "streaming": "mds",
    "pq": "parquet",
    "tar": "webdataset",
    "txt": "text",
    "wds": "webdataset",
}
"""Names by which other tools call a format."""

_ZIP = b"PK\x03\x04"
_OTHERS = (
    (_ZIP, "a ZIP archive, as .zip, .xlsx, .npz and .pt files are"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x80\x02", "a pickle"), (b"\x80\x03", "a pickle"), (b"\x80\x04", "a pickle"), (b"\x80\x05", "a pickle"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"%PDF-", "a PDF document"),
)  # fmt: skip
"""First bytes of files that are no shards, and what these files are."""
_PAGES = (b"<!doctype html", b"<html")

_ADVICE = {
    "hf": "The format is arrow; --to-option layout=huggingface writes what load_from_disk opens.",
    "huggingface": "The format is arrow; --to-option layout=huggingface writes what load_from_disk opens.",
    "tsv": "The format is csv; --to-option delimiter=tab writes .tsv files.",
}
"""Advice for names that mean a format and an option."""

_GROUP = "lading.formats"
_METADATA = (".dist-info", ".egg-info")
_registered: dict[str, AnyFormat] = {}
_unlisted: dict[str, AnyFormat] = {}


def register(new: AnyFormat, *, listed: bool = True) -> None:
    """Add a format to this process. Raises UsageError if another format has its name.

    A format that is not `listed` is found by its name alone: it is of no files.
    """
    if not listed:
        _unlisted[new.name] = new
        return
    taken = import_module(_BUILT_IN[new.name]).FORMAT if new.name in _BUILT_IN else _registered.get(new.name)
    if taken is not None and taken is not new:
        raise UsageError(
            f"the format name {new.name!r} is taken", found=f"{type(taken).__module__}.{type(taken).__name__}"
        )
    _registered[new.name] = new


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the formats of other packages by name.

    importlib.metadata parses the metadata of every installed package, which takes 20 ms, and as long to import. So the
    files are searched for the group first.
    """
    folders = [folder for folder in dict.fromkeys(sys.path) if os.path.isdir(folder or ".")]
    found = (entry for folder in folders for entry in os.scandir(folder or ".") if entry.name.endswith(_METADATA))
    if not any(_names_group(entry.path) for entry in found):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=_GROUP) if point.name not in _BUILT_IN}


def _names_group(metadata: str) -> bool:
    try:
        with open(os.path.join(metadata, "entry_points.txt"), encoding="utf-8") as file:
            return _GROUP in file.read()
    except (OSError, ValueError):
        return False


def format_names() -> list[str]:
    """Return the names of all formats, sorted."""
    return sorted({*_BUILT_IN, *_registered, *_entry_points()})


def aliases_of(name: str) -> list[str]:
    """Return the further names of a format, sorted."""
    return sorted(alias for alias, format_name in _ALIASES.items() if format_name == name)


def is_installed(name: str) -> bool:
    """Whether every process has this format: it is built-in, or of an installed package."""
    return name in _BUILT_IN or name in _entry_points()


def get_format(name: str) -> AnyFormat:
    """Return the format of this name, or of this alias.

    Raises:
        UnknownFormat: no format has the name; lists the formats.
        UsageError: the package of the format does not load.
    """
    if name in _unlisted:
        return _unlisted[name]
    name = name if name in _registered else _ALIASES.get(name, name)
    if name not in _registered and name in _BUILT_IN:
        register(import_module(_BUILT_IN[name]).FORMAT)
    if name not in _registered and name in _entry_points():
        register(_loaded(_entry_points()[name]))
    if name not in _registered:
        close = get_close_matches(name.lower(), [*format_names(), *_ALIASES], n=1)
        advice = _ADVICE.get(name.lower()) or (f"Did you mean {close[0]}?" if close else None)
        raise UnknownFormat("no such format", expected=", ".join(format_names()), found=repr(name), advice=advice)
    return _registered[name]


def _loaded(point: EntryPoint) -> AnyFormat:
    """Return the format of an entry point. Raises UsageError if it does not load, or has another name."""
    try:
        made: AnyFormat = point.load()
        name = made.info.name
    except Exception as error:
        raise UsageError(f"the format {point.name} does not load", found=f"{point.value}: {error}",
                         advice="Update or uninstall its package.") from error  # fmt: skip
    if name != point.name:
        raise UsageError("an entry point and its format have different names", expected=point.name, found=name)
    return made


def all_formats() -> Iterator[AnyFormat]:
    """Yield all formats, the built-in ones first; each is imported when its turn comes.

    A format of another package that does not load is left out with a warning.
    """
    yield from map(get_format, _BUILT_IN)
    for name in dict.fromkeys([*_registered, *_entry_points()]):
        if name in _BUILT_IN:
            continue
        try:
            yield get_format(name)
        except UsageError as error:
            warnings.warn(str(error), stacklevel=2)


def format_of_name(path: str) -> str:
    """Return the name of the format for the ending of a path. Raises UsageError if there is none."""
    ending = without_query(path).rstrip("/").lower()
    for candidate in all_formats():
        if ending.endswith(candidate.info.extensions):
            return candidate.name
    raise UsageError("the name of the destination does not say the format", found=repr(path),
                     expected=", ".join(sorted(each.name for each in all_formats() if each.info.write_options)),
                     advice="Name the format with --to.")  # fmt: skip


def find_format(path: str, head: bytes) -> AnyFormat:
    """Return the format that a file has by its name and first bytes.

    Raises:
        UnknownFormat: no format recognises it.
        DataError: it is a pointer of Git LFS, or an HTML page.
    """
    refuse_pointer(head, path)
    if head.lstrip().lower().startswith(_PAGES):
        raise DataError("an HTML page, not the file itself", file=path, advice="A server may have sent the page in "
                        "place of the file, for want of a login for example. Fetch the file again.")  # fmt: skip
    for candidate in all_formats():
        if candidate.matches(without_query(path), head):
            return candidate
    other = next((kind for mark, kind in _OTHERS if head.startswith(mark)), None)
    advice = "Write its rows in one of these formats, with a program that reads it."
    if head.startswith(_ZIP):
        advice += " An archive of files opens by a name that ends in .zip: rename it, or download it from its URL."
    raise UnknownFormat(
        "no format recognises this file",
        file=path,
        expected=", ".join(format_names()),
        found=other or f"first bytes {head[:16]!r}",
        advice="Name its folder, to read the files in it as samples."
        if (other or "").endswith("picture")
        else advice
        if other
        else "Name the format with --from.",
    )
