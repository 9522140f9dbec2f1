"""The file by which `datasets.load_dataset` finds the shards of a folder.

Without it, `datasets` guesses by the endings of all files, and takes lading's own Arrow files in `_lading` for data. It
reads this file in a local folder and on the hub. It is JSON, which is YAML as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson

from lading._core.formats.registry import get_format
from lading._core.storage.base import Store, write_file
from lading._core.storage.checksum import Checksum
from lading.errors import UsageError

__all__ = ["DATA_FILES_NAME", "refuse_unread", "save_data_files"]

DATA_FILES_NAME = ".huggingface.yaml"
_FORMATS = {"arrow", "csv", "jsonl", "parquet", "webdataset"}
"""Formats that `datasets` reads."""


def refuse_unread(name: str) -> None:
    """Raise UsageError for a format that `datasets` does not read."""
    if name not in _FORMATS:
        raise UsageError("datasets does not read this format from the Hub", expected=", ".join(sorted(_FORMATS)),
                         found=name, advice="Choose one of these.")  # fmt: skip


def save_data_files(store: Store, folder: str, name: str, splits: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Write which files of a folder are the shards of each split, for formats that `datasets` reads.

    Return the checksum of the file by its name; empty if none is written.

    Args:
        store: store of the folder.
        folder: folder of the dataset, or of several ones, each a split.
        name: format of the shards.
        splits: files of each split, by paths below the folder. Files of other formats are left out.
    """
    if name not in _FORMATS or not all(re.fullmatch(r"\w+", split) for split in splits):
        return {}
    found = [{"split": split, "path": _patterns(name, paths)} for split, paths in splits.items()]
    if not all(split["path"] for split in found):
        return {}
    configs = {"configs": [{"config_name": "default", "data_files": found}]}
    text, checksum = orjson.dumps(configs, option=orjson.OPT_INDENT_2), Checksum()
    write_file(store, f"{folder}/{DATA_FILES_NAME}", [text])
    checksum.update(text)
    return {DATA_FILES_NAME: checksum.hexdigest()}


def _patterns(name: str, paths: Sequence[str]) -> list[str]:
    """Patterns of the files with an ending of the format: one for each folder at the top, and ending."""
    endings = sorted(get_format(name).info.extensions, key=len, reverse=True)
    found: dict[str, None] = {}
    for path in paths:
        ending = next((ending for ending in endings if path.lower().endswith(ending)), None)
        top, sign, below = path.partition("/")
        if ending is not None:
            deeper = "**/" if "/" in below else ""
            found[f"{top}/{deeper}*{ending}" if sign else f"*{ending}"] = None
    return list(found)
