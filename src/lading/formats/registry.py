"""The formats that are known, by name and by their first bytes.

Built-in formats are named here as text and imported when they are first needed; anybody's format joins by `register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module

from lading.errors import UnknownFormat, UsageError
from lading.formats.base import AnyFormat
from lading.storage.stores import without_query

__all__ = ["aliases_of", "all_formats", "find_format", "format_names", "get_format", "is_built_in", "register"]

_BUILT_IN = {
    "webdataset": "lading.formats.webdataset.format",
    "mds": "lading.formats.mds.format",
    "parquet": "lading.formats.parquet.format",
    "arrow": "lading.formats.arrow.format",
    "jsonl": "lading.formats.jsonl.format",
    "csv": "lading.formats.csv.format",
    "media_archive": "lading.formats.media_archive.format",
}
_ALIASES = {
    "feather": "arrow",
    "ipc": "arrow",
    "json": "jsonl",
    "ndjson": "jsonl",
    "mosaic": "mds",
    "streaming": "mds",
    "pq": "parquet",
    "tar": "webdataset",
    "wds": "webdataset",
}
"""Names by which other tools call a format."""

_ADVICE = {
    "hf": "The format is arrow; option layout=huggingface writes what load_from_disk opens.",
    "huggingface": "The format is arrow; option layout=huggingface writes what load_from_disk opens.",
    "tsv": "The format is csv; option delimiter=tab writes .tsv files.",
}
"""What to write for names that stand for a format and an option."""

_registered: dict[str, AnyFormat] = {}


def register(new: AnyFormat) -> None:
    """Make a format known under its name. Raises UsageError if another one has it, loaded or not."""
    taken = import_module(_BUILT_IN[new.name]).FORMAT if new.name in _BUILT_IN else _registered.get(new.name)
    if taken is not None and taken is not new:
        raise UsageError(
            f"the format name {new.name!r} is taken", found=f"{type(taken).__module__}.{type(taken).__name__}"
        )
    _registered[new.name] = new


def format_names() -> list[str]:
    """Names of all known formats, sorted."""
    return sorted({*_BUILT_IN, *_registered})


def aliases_of(name: str) -> list[str]:
    """Return the further names of a format, sorted."""
    return sorted(alias for alias, format_name in _ALIASES.items() if format_name == name)


def is_built_in(name: str) -> bool:
    """Whether every process knows this format, and not only one that registered it."""
    return name in _BUILT_IN


def get_format(name: str) -> AnyFormat:
    """Return the format of this name, or of this alias. Raises UnknownFormat, listing the formats."""
    name = name if name in _registered else _ALIASES.get(name, name)
    if name not in _registered and name in _BUILT_IN:
        register(import_module(_BUILT_IN[name]).FORMAT)
    if name not in _registered:
        close = get_close_matches(name, [*format_names(), *_ALIASES], n=1)
        advice = _ADVICE.get(name) or (f"Did you mean {close[0]}?" if close else None)
        raise UnknownFormat("no such format", expected=", ".join(format_names()), found=repr(name), advice=advice)
    return _registered[name]


def all_formats() -> Iterator[AnyFormat]:
    """All known formats, the built-in ones first; each is imported when its turn comes."""
    for name in dict.fromkeys([*_BUILT_IN, *_registered]):
        yield get_format(name)


def find_format(path: str, head: bytes) -> AnyFormat:
    """The format that recognises a file by its name and first bytes. Raises UnknownFormat."""
    for candidate in all_formats():
        if candidate.matches(without_query(path), head):
            return candidate
    raise UnknownFormat(
        "no known format recognises this file",
        file=path,
        expected=", ".join(format_names()),
        found=f"first bytes {head[:16]!r}",
        advice="Name the format with --from (or format=).",
    )
