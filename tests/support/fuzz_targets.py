"""What is fuzzed: for each format, the golden cases that its reader is given, and how each is read.

A family joins by itself if its cases are of a `format` that `_READINGS` knows; a new format is a function there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golden_cases import ARCHIVES, Golden, load_spec

__all__ = ["FAMILIES", "TARGETS", "Reading", "data_files", "find_readings"]

FAMILIES = sorted(
    name
    for path in ARCHIVES.glob("*.tar.xz")
    if not (name := path.name.removesuffix(".tar.xz")).startswith(("hostile", "manifests", "stable-older"))
)
"""Families of valid cases that peers wrote and that have an `expected.json`."""

TARGETS = ("webdataset", "mds", "parquet", "jsonl", "csv", "media_archive", "arrow", "arrow_cache", "warc")
"""Formats, and the shards of caches."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a case.

    Attributes:
        target: name of the reader.
        source: the opened path, relative to the case; for `arrow_cache` the case itself.
        opening: further arguments of `lading.open`.
        beside: files and folders that are read next to the source.
    """

    target: str
    source: str | list[str]
    opening: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()


def _wds(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    yield Reading("webdataset", spec["open"].get("index") or spec["open"]["shards"], beside=(".",))


def _interleaved_tar(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    for files in _files(spec):
        yield Reading("webdataset", files)


def _parquet(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    if "path" in spec["open"]:
        yield Reading("parquet", spec["open"]["path"])
    for files in _files(spec):
        others = [path.name for path in folder.iterdir() if path.suffix not in {".parquet", ".arrow"}]
        yield Reading("parquet", files, beside=tuple(sorted(others)))


def _files(spec: Mapping[str, Any]) -> list[list[str]]:
    opened = [spec["open"], *(view["open"] for view in spec.get("views", []))]
    return [list(files) for files in dict.fromkeys(tuple(told["files"]) for told in opened if "files" in told)]


def _mds(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    yield from (Reading("mds", split, beside=(".",)) for split in _splits(spec))
    lines = sorted(path.name for path in folder.glob("shard.*.json"))
    if lines:
        yield Reading("jsonl", lines, {"format": "jsonl"})
    for path in sorted([*folder.glob("shard.00000.csv"), *folder.glob("shard.00000.tsv")]):  # the others are not CSV
        yield Reading("csv", path.name, {"format": "csv"})
        yield Reading("csv", path.name, {"format": "csv", "options": {"types": {"id": "int64", "w": "double"}}})


def _datatrove(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    for told in [spec["open"], *(view["open"] for view in spec.get("views", []))]:
        if told:
            names = {"media_root": "media", "media_kind": "archives"}
            options = {ours: told[theirs] for theirs, ours in names.items() if theirs in told}
            opening = {"format": "media_archive", "options": options}
            beside = tuple(told[name] for name in names if name == "media_root" and name in told)
            yield Reading("media_archive", told["documents"], opening, beside)
            yield Reading(told["documents"], told["documents"])  # its folders are named after their formats
    for path in sorted(folder.rglob("*.warc*")):
        yield Reading("warc", str(path.relative_to(folder)))


def _arrow(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    for files in _files(spec):
        if files != ["t.parquet"]:
            yield Reading("arrow", files)


def _arrow_folder(spec: Mapping[str, Any], folder: Path) -> Iterator[Reading]:
    for split in _splits(spec):
        yield Reading("arrow", split, beside=(".",))
    if "load_assets" in spec["open"]:
        yield Reading("arrow", ".", {"options": {"load_assets": True}})
    if (folder / "_metadata.json").exists():
        yield Reading("arrow_cache", ".")


def _splits(spec: Mapping[str, Any]) -> list[str]:
    """Return folders that are datasets: the case, or its splits."""
    return [view["open"]["split"] for view in spec.get("views", []) if "split" in view["open"]] or ["."]


_READINGS: dict[str, Callable[[Mapping[str, Any], Path], Iterator[Reading]]] = {
    "wds": _wds,
    "interleaved-tar": _interleaved_tar,
    "interleaved-parquet": _parquet,
    "hf-parquet": _parquet,
    "mds": _mds,
    "datatrove": _datatrove,
    "arrow-ipc": _arrow,
    "arrow-shards": _arrow_folder,
    "hf-disk": _arrow_folder,
}


def find_readings(golden: Golden, target: str) -> list[tuple[Path, Reading]]:
    """Return the cases of a target, each with a way to read it."""
    cases = [case for family in FAMILIES for case in sorted(golden(family).iterdir())]
    found = [(case, reading) for case in cases for reading in _readings(case)]
    return [(case, reading) for case, reading in found if reading.target == target]


def _readings(case: Path) -> Iterator[Reading]:
    spec = load_spec(case)
    return _READINGS[spec["format"]](spec, case)


def data_files(folder: Path, reading: Reading) -> dict[str, bytes]:
    """Return the files of a case that a reading opens, by their paths in it."""
    sources = [reading.source] if isinstance(reading.source, str) else reading.source
    roots = [folder / name for name in (*sources, *reading.beside)]
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("expected")]
    kept = [path for path in found if any(root == path or root in path.parents for root in roots)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}
