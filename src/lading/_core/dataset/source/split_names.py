"""Splits that the names of files and folders tell, as Hugging Face datasets reads them.

    data/train-00000-of-00002.parquet    the split `train`; with such a number, any word names a split
    train/a.tar, dev-clean/b.tar         a folder with a keyword: `train`, `validation`
    imdb_test.csv, val.jsonl             a file with a keyword: `test`, `validation`

The first of these three kinds that is there decides. A keyword stands between `-._ `, digits, and the ends of a name.

Source: datasets 5.2.0, data_files.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["splits_of_names"]

_KEYWORDS: Mapping[str, Sequence[str]] = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NUMBERED = re.compile(r"(?:data/)?(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*", re.ASCII)
_BEFORE, _AFTER = r"(?:.*[-._ 0-9])?", r"(?:[-._ 0-9].*)?"
_NAMES = {split: re.compile(f"{_BEFORE}(?:{'|'.join(words)}){_AFTER}", re.DOTALL) for split, words in _KEYWORDS.items()}


def splits_of_names(paths: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of the files of each split, by their paths below a folder; empty if no name tells a split."""
    parts = [path.split("/") for path in paths]
    return (
        _ordered((match[1] if (match := _NUMBERED.fullmatch(path)) else None) for path in paths)
        or _by_keyword([each[:-1] for each in parts])
        or _by_keyword([each[-1:] for each in parts])
    )


def _ordered(names: Iterable[str | None]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if name is not None:
            found.setdefault(name, []).append(number)
    return {name: found[name] for name in [*(n for n in _KEYWORDS if n in found), *sorted({*found} - {*_KEYWORDS})]}


def _by_keyword(parts: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Return the files of each split by the names on their paths; a file may be in several."""
    known: dict[str, list[str]] = {}
    found: dict[str, list[int]] = {}
    for number, names in enumerate(parts):
        for split in dict.fromkeys(split for name in names for split in _splits_in(name, known)):
            found.setdefault(split, []).append(number)
    return {split: found[split] for split in _KEYWORDS if split in found}


def _splits_in(name: str, known: dict[str, list[str]]) -> list[str]:
    if name not in known:
        known[name] = [split for split, pattern in _NAMES.items() if pattern.fullmatch(name)]
    return known[name]
