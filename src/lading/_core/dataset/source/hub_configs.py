"""Configs (subsets) of a repository on Hugging Face's hub, as the YAML at the top of its README.md lists them.

    ---
    configs:
    - config_name: en
      default: true
      data_files:
      - {split: train, path: "en/train-*.parquet"}
    ---

`data_files` is a pattern, a list of patterns, a list of splits with their patterns, or a dict of them. Patterns count
from the folder of README.md, or from `data_dir`. Without `data_files`, the names of the files below tell the splits.

Source: datasets 5.2.0, utils/metadata.py, data_files.py (sanitize_patterns).
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lading._core.content.yaml_text import parse_yaml
from lading.errors import DataError, UsageError, errors_at

__all__ = ["CARD", "HubConfig", "choose_config", "read_configs"]

CARD = "README.md"
"""Name of the file, at the top of a repository."""

_MOST = 200
"""Configs that an error names, at most."""

_TRAIN = "train"
_APPLIED = {"config_name", "data_dir", "data_files", "default", "description", "version"}
_FRONT = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_LISTS = re.compile(rb"^configs[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """A config.

    Attributes:
        name: its name.
        splits: patterns of the files of each split, below the folder of README.md; empty if names of files tell them.
        folder: folder of its files, below that of README.md; empty for that folder itself.
        default: whether it is meant if no name is given.
        ignored: its other options, such as `sep` for CSV, which lading does not apply.
    """

    name: str
    splits: Mapping[str, Sequence[str]]
    folder: str = ""
    default: bool = False
    ignored: tuple[str, ...] = ()


def read_configs(card: bytes, path: str) -> list[HubConfig]:
    """Return the configs that a README.md lists; none if it has no YAML, or no `configs` there.

    Raises:
        DataError: the YAML with `configs` is invalid, or a config has no name or no patterns.
    """
    front = _FRONT.match(card)
    if front is None or not _LISTS.search(front[1]):
        return []
    with errors_at(file=path):
        told = parse_yaml(front[1])
        listed = (told.get("configs") or []) if isinstance(told, dict) else None
        if not isinstance(listed, list):
            raise DataError("not a list of configs", column="configs", expected="config_name and data_files",
                            found=reprlib.repr(listed)[:80])  # fmt: skip
        configs = [_config(each) for each in listed]
    return list({config.name: config for config in configs}.values())


def choose_config(configs: Sequence[HubConfig], name: str, path: str) -> HubConfig:
    """Return the config of a name; without a name the only config, or the default.

    Raises:
        UsageError: there is no such config; or there are several, none is the default, and no name is given.
    """
    more = f" and {len(configs) - _MOST} more" if len(configs) > _MOST else ""
    names = ", ".join(config.name for config in configs[:_MOST]) + more
    for config in configs:
        if config.name == name or (not name and (len(configs) == 1 or config.default)):
            return config
    if name:
        raise UsageError("no such config", file=path, expected=names, found=name)
    raise UsageError("the repository has several configs", file=path, expected="one of them", found=names,
                     advice=f"Choose one of them: --config {configs[0].name}.")  # fmt: skip


def _config(told: Any) -> HubConfig:
    name = told.get("config_name") if isinstance(told, dict) else None
    if not isinstance(name, str) or not name:
        raise DataError("a config without a name", column="config_name", found=reprlib.repr(told)[:80])
    folder = told.get("data_dir") or ""
    if not isinstance(folder, str):
        raise DataError("not the name of a folder", column="data_dir", found=reprlib.repr(folder)[:80])
    folder = "/".join(_plain(folder))
    splits = {} if told.get("data_files") is None else _splits(told["data_files"])
    inside = {
        split: [*dict.fromkeys("/".join([*filter(None, [folder]), *_plain(each)]) for each in patterns)]
        for split, patterns in splits.items()
    }
    default = name == "default" or str(told.get("default")).lower() == "true"
    return HubConfig(name, inside, folder, default=default, ignored=tuple(sorted({*told} - _APPLIED)))


def _splits(told: Any) -> dict[str, list[str]]:
    """Return the patterns of each split. A list of patterns is of one split."""
    if isinstance(told, dict):
        return {split: _patterns(patterns) for split, patterns in told.items()}
    if not isinstance(told, list) or not any(isinstance(each, dict) for each in told):
        return {_TRAIN: _patterns(told)}
    found: dict[str, list[str]] = {}
    for each in told:
        split = each.get("split", _TRAIN) if isinstance(each, dict) else None
        if not isinstance(split, str):
            raise DataError("not a split with its files", column="data_files", expected="split and path",
                            found=reprlib.repr(each)[:80])  # fmt: skip
        found.setdefault(split, []).extend(_patterns(each.get("path")))
    return found


def _patterns(told: Any) -> list[str]:
    patterns = [told] if isinstance(told, str) else told
    if not isinstance(patterns, list) or not patterns or not all(isinstance(each, str) and each for each in patterns):
        raise DataError("not a pattern of files", column="data_files", expected="a text, or a list of texts",
                        found=reprlib.repr(told)[:80])  # fmt: skip
    return patterns


def _plain(path: str) -> list[str]:
    """Return the parts of a path below a folder. Raises DataError for one that leads elsewhere."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if "://" in path or path.startswith("/") or ".." in parts:
        raise DataError("a config names files elsewhere", column="data_files",
                        expected="files below the folder of README.md", found=path[:80])  # fmt: skip
    return parts
