"""Folders that other programs lay out, known by the names of their files.

A folder of a table format holds more than its rows: old rows, deleted rows, and files about the table. Only the log of
the table says which rows count, so its files are no dataset by themselves.

Sources: Delta Lake's PROTOCOL.md; Iceberg's spec.md (naming of metadata files); Hudi's tech-specs; Paimon's
specification; Lance's format.md; LeRobot 0.4, datasets/utils.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lading._core.storage.roots import folder_of
from lading.errors import UsageError

__all__ = [
    "COMPANIONS",
    "UNFINISHED",
    "MarkedTables",
    "TableLayout",
    "companions_of",
    "files_of_log",
    "is_about_folder",
    "refuse_labels_apart",
    "refuse_log",
    "revisions_of",
]

UNFINISHED = ".incomplete"
"""Ending of the folders that Hugging Face's datasets builds a cache in."""

_REVISION = re.compile(
    r"((?:.*/)?(?:(?:datasets|models|spaces)--[^/]+/snapshots/[^/]+|snapshots/[0-9a-f]{40}))(?:/.*)?"
)

COMPANIONS = "files about shards next to them (img2dataset), left out"
"""What a listing counts of `companions_of`."""

_COMPANION = re.compile(r"((?:.*/)?\d+)(\.parquet|_stats\.json)")

_ABOUT_FOLDER = re.compile(r"(?i)(?:readme|licen[sc]e|citation|changelog|requirements)(?:\.\w+)*")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A kind of table.

    Attributes:
        name: its name in errors.
        folder: the folder that each of its tables has.
        mark: regular expression of the names of files in this folder that tell it from a folder of the same name.
        library: advice for reading the rows, with `{table}` for its folder.
        plain: how a user names the plain files of a table, with `{table}` for its folder; empty if lading reads none.
        says: regular expression of the head of such a file, if its name could be chance.
        log: regular expression of the names of files in the folder, of which the last lists the rows.
        format: name of the format that reads the log; empty if none does.
    """

    name: str
    folder: str
    mark: str
    library: str
    plain: str = ""
    says: bytes = b""
    log: str = ""
    format: str = ""


_EVERY_PARQUET = "'{table}/**/*.parquet'"
_LAYOUTS = (
    TableLayout("a Delta Lake table", "_delta_log", r"\d+\..+|_last_checkpoint",
                "Open it by its own folder: '{table}'.", _EVERY_PARQUET,
                log=r"\d{20}\.(?:json|checkpoint\.[^/]+)", format="parquet"),
    TableLayout("an Apache Iceberg table", "metadata", r"(?:v\d+|\d{5,}-.+)(?:\.gz)?\.metadata\.json(?:\.gz)?",
                "Read its rows with the package pyiceberg: StaticTable.from_metadata(file).scan().", "'{table}/data'"),
    TableLayout("an Apache Iceberg table", "metadata", r".+\.metadata\.json",
                "Read its rows with the package pyiceberg: StaticTable.from_metadata(file).scan().", "'{table}/data'",
                rb'"(?:format-version|table-uuid)"'),
    TableLayout("an Apache Hudi table", ".hoodie", r".+",
                "Read its rows with the package hudi: HudiTableBuilder.from_base_uri(folder).build().",
                _EVERY_PARQUET),
    TableLayout("an Apache Paimon table", "snapshot", r"(?:snapshot-\d+|EARLIEST|LATEST)",
                "Read its rows with the package pypaimon.", _EVERY_PARQUET),
    TableLayout("a Lance dataset", "_versions", r".+\.manifest",
                "Read its rows with the package pylance: lance.dataset(folder)."),
    TableLayout("a Lance dataset", "_transactions", r".+\.txn",
                "Read its rows with the package pylance: lance.dataset(folder)."),
    TableLayout("a LeRobot dataset", "meta", r"info\.json",
                "Read its episodes with the package lerobot: LeRobotDataset(name, root=folder).", "'{table}/data'",
                rb'"(?:codebase_version|total_episodes)"'),
    TableLayout("a LeRobot dataset", "meta_data", r"info\.json",
                "Read its episodes with the package lerobot: LeRobotDataset(name, root=folder).", "'{table}/data'",
                rb'"(?:codebase_version|total_episodes)"'),
)  # fmt: skip
_FOLDERS = frozenset(layout.folder for layout in _LAYOUTS)


@dataclass(slots=True)
class MarkedTables:
    """Tables below a folder, as the names of their files tell them.

    Attributes:
        marks: a file for each kind and table.
        logs: the file that lists the rows of a table, and the format that reads this file, by the table's folder.
    """

    marks: dict[tuple[TableLayout, str], str] = field(default_factory=dict)
    logs: dict[str, tuple[str, str]] = field(default_factory=dict)

    def look_at(self, path: str, parts: Sequence[str]) -> None:
        """Look at the name of a file: its path, and its path below the folder that was named, cut at slashes."""
        if _FOLDERS.isdisjoint(parts):
            return
        for layout in _LAYOUTS:
            if layout.folder in parts[:-1]:
                below = "/".join(parts[parts.index(layout.folder) + 1 :])
                if re.fullmatch(layout.mark, below):
                    table = path[: len(path) - len(below) - len(layout.folder) - 1].rstrip("/")
                    self.marks.setdefault((layout, table), path)
                    if layout.log and re.fullmatch(layout.log, below):
                        self.logs[table] = max(self.logs.get(table, ("", "")), (path, layout.format))

    def refuse(self, head_of: Callable[[str], bytes]) -> None:
        """Raise UsageError that names the first table, and what reads it.

        Tables lie in the folder, or below it.

        Args:
            head_of: returns the first bytes of a file, which tell tables whose files have usual names.
        """
        for (layout, table), path in self.marks.items():
            if not layout.says or re.search(layout.says, head_of(path)):
                plain = f" To read its plain files all the same, name them: {layout.plain.format(table=table)}."
                raise UsageError(
                    f"the folder is {layout.name}, and its files hold more than its rows",
                    file=table, expected="a folder whose files are all data", found=path,
                    advice=layout.library.format(table=table) + (plain if layout.plain else ""),
                )  # fmt: skip


def _layout_of_log(path: str | None) -> TableLayout | None:
    names = (path or "").split("/")
    found = (layout for layout in _LAYOUTS if layout.log and names[-2:-1] == [layout.folder])
    return next((layout for layout in found if re.fullmatch(layout.log, names[-1])), None)


def files_of_log(path: str | None) -> str:
    """Return how a user names the plain files of a table, by a file of its log; empty for other files."""
    layout = _layout_of_log(path)
    return "" if layout is None else layout.plain.format(table=folder_of(folder_of(path or "")) or ".")


def refuse_log(path: str | None) -> None:
    """Raise UsageError for a file of a log that lading reads: the files of the table hold more than its rows."""
    layout = _layout_of_log(path)
    if layout is not None:
        raise UsageError(f"the folder is {layout.name}, and its files hold more than its rows", file=path,
                         expected="files without a log",
                         advice=f"Name its files: {files_of_log(path)}. Deleted rows come back then.")  # fmt: skip


def revisions_of(folders: Iterable[str]) -> set[str]:
    """Return the folders of revisions, in the cache of Hugging Face's hub, that these folders lie in."""
    return {match[1] for folder in folders if (match := _REVISION.fullmatch(folder))}


def is_about_folder(name: str) -> bool:
    """Whether a file's name says that it describes its folder, as `README.txt` does."""
    return _ABOUT_FOLDER.fullmatch(name) is not None


def companions_of(paths: Sequence[str], *, sure: bool = True) -> set[str]:
    """Return the files that img2dataset and video2dataset write about each of their tars, or folders of images.

    They are `00000.parquet` and `00000_stats.json` next to `00000.tar`, or next to the folder `00000`.

    Args:
        paths: files of a folder, and of those below it.
        sure: return none without any `_stats.json`: tars and Parquet files may be two datasets.
    """
    if sure and not any(path.endswith("_stats.json") for path in paths):  # millions of paths pass here
        return set()
    found = [match for path in paths if (match := _COMPANION.fullmatch(path))]
    shards = {path.removesuffix(".tar") for path in paths if path.endswith(".tar")} | set(map(os.path.dirname, paths))
    found = [match for match in found if match[1] in shards]
    written = any(match[2] == "_stats.json" for match in found)
    return {match[0] for match in found} if written or not sure else set()


@dataclass(frozen=True, slots=True)
class LabelsApart:
    """A layout of labelled images whose labels lie in other files than next to the images.

    Attributes:
        name: its name in errors.
        labels: regular expression of the path of a file with labels.
        says: regular expression of the head of such a file.
        image: the path of the image of a file with labels, without its ending, as a template of `labels`; empty if one
            file has the labels of all images.
        fix: advice for reading labels with their images.
    """

    name: str
    labels: re.Pattern[str]
    says: re.Pattern[bytes]
    image: Sequence[str]
    fix: str


_NEXT_TO = "To have both in one sample, copy each label next to its image."
_LABELS = (
    LabelsApart("COCO", re.compile(r"(?:.*/)?(?:annotations/[^/]+\.json|_annotations\.coco\.json)"),
                re.compile(rb'\s*\{\s*"(?:info|licenses|images|annotations|categories|type)"\s*:'), (),
                "To have both in one sample, write the labels as metadata.jsonl with the column file_name."),
    LabelsApart("YOLO", re.compile(r"(?P<before>(?:.*/)?)labels/(?P<after>.+)\.txt"),
                re.compile(rb"\s*\d+(?:[ \t]+-?[\d.]+(?:[eE][-+]?\d+)?){4,}\s"), (r"\g<before>images/\g<after>",),
                _NEXT_TO),
    LabelsApart("Pascal VOC", re.compile(r"(?P<before>(?:.*/)?)[Aa]nnotations/(?P<after>.+)\.xml"),
                re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<annotation\b"),
                (r"\g<before>JPEGImages/\g<after>", r"\g<before>images/\g<after>"), _NEXT_TO),
)  # fmt: skip
_APART = re.compile(r"labels/|nnotations[/.]")
_TRIES = 8
"""Files with labels that are looked into: some have none, as of an image without objects."""


def refuse_labels_apart(names: Sequence[str], folder: str, head_of: Callable[[str], bytes], loose: str) -> None:
    """Raise UsageError for a folder of images whose labels would be samples of their own.

    Args:
        names: its files, by their paths below it.
        folder: the folder.
        head_of: returns the first bytes of such a file.
        loose: name of the format of loose files.
    """
    marked = [name for name in names if name.endswith((".txt", ".xml", ".json")) and _APART.search(name)]
    stems = {name.rpartition(".")[0] for name in names} if marked else set[str]()
    for layout in _LABELS:
        found = ((name, match) for name in marked if (match := layout.labels.fullmatch(name)))
        paired = (
            name for name, match in found
            if not layout.image or any(match.expand(image) in stems for image in layout.image)
        )  # fmt: skip
        for name in islice(paired, _TRIES):
            if layout.says.match(head_of(name)):
                raise UsageError(
                    f"the folder has the layout of {layout.name}: images and labels would be separate samples",
                    file=folder, expected="labels next to their images", found=name,
                    advice=f"{layout.fix} To read them as separate samples all the same: --from {loose}.",
                )  # fmt: skip
