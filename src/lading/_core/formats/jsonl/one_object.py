"""A `.json` file that is one object, where rows are expected: the error, and the command that makes rows of it.

{"images": [{…}, …], "annotations": [{…}, …]}    lists of rows under keys; COCO
{"v_1": {…}, "v_2": {…}, …}                      rows keyed by an id
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lading._core.formats.jsonl.array import Scanner
from lading.errors import DataError

__all__ = ["ObjectMembers", "is_rows", "members_of", "one_object_error"]

_LIST = b"["
_KINDS = {b"{": "objects", _LIST: "lists", b'"': "texts"}
_KEYED = 100
"""Members of one kind from which on an object is keyed by an id: a row with so many is rare."""
_MOST_MEMBERS = 100_000
_NAME_BYTES = 1 << 10
_NAME = re.compile(rb'"(?:[^"\\]|\\.)*"\s*\Z')
_BLANKS = 64
_SHOWN = 8
_COCO_ROWS = (
    "(.annotations | group_by(.image_id) | map({key: (.[0].image_id | tostring), value: .}) | from_entries) as $of"
    " | .images[] | . + {annotations: ($of[.id | tostring] // [])}"
)


@dataclass(frozen=True, slots=True)
class ObjectMembers:
    """The members of a JSON object.

    Attributes:
        kinds: by name, the first byte of the value.
        objects: by name, the number of objects in a value that is a list.
        is_whole: whether the object was read to its end. Otherwise numbers are the least there are.
    """

    kinds: Mapping[str, bytes]
    objects: Mapping[str, int]
    is_whole: bool

    @property
    def lists(self) -> dict[str, int]:
        """Return the numbers of objects in lists of objects, by name."""
        return {name: count for name, count in self.objects.items() if count and self.kinds[name] == _LIST}

    @property
    def is_keyed(self) -> bool:
        """Return whether there are many members, all of one kind."""
        kinds = {*self.kinds.values()}
        return len(self.kinds) > _KEYED and len(kinds) == 1 and not kinds.isdisjoint(_KINDS)


def members_of(pieces: Iterable[bytes], most_bytes: int) -> ObjectMembers:
    """Return the members of the JSON object that a text begins with. Reads at most some more bytes than given."""
    scanner, kinds, objects = Scanner(0), dict[str, bytes](), dict[str, int]()
    name, before, size = "", b"", 0
    for piece in pieces:
        colons, braces = scanner.places(piece, [(":", 1), ("{", 3)])
        counts = np.diff(np.searchsorted(braces, [0, *colons, len(piece)])).tolist()
        if name:
            objects[name] += counts[0]
            kinds[name] = kinds[name] or piece[:_BLANKS].lstrip()[:1]
        for at, count in zip(colons[: _MOST_MEMBERS - len(kinds)].tolist(), counts[1:], strict=False):
            name = _name(before + piece[:at] if at < _NAME_BYTES else piece[at - _NAME_BYTES : at])
            kinds[name] = piece[at + 1 : at + _BLANKS].lstrip()[:1]
            objects[name] = objects.get(name, 0) + count
        before, size = (before + piece[-_NAME_BYTES:])[-_NAME_BYTES:], size + len(piece)
        if size > most_bytes or len(kinds) >= _MOST_MEMBERS:
            break
    return ObjectMembers(kinds, objects, scanner.depth == 0 and len(kinds) < _MOST_MEMBERS)


def _name(text: bytes) -> str:
    found = _NAME.search(text)
    with suppress(ValueError):
        return str(json.loads(found[0])) if found is not None else ""
    return ""


def is_rows(members: ObjectMembers) -> bool:
    """Return whether the rows of a file are inside its object."""
    return bool(members.lists) or members.is_keyed


def one_object_error(members: ObjectMembers, path: str, target: str) -> DataError:
    """Return the error for a file of one object.

    Args:
        members: the members of the object.
        path: path of the file.
        target: name for JSON Lines made of it, as a shell takes it.
    """
    lists, source = members.lists, shlex.quote(path)
    is_coco = "images" in lists and (
        "annotations" in lists or "categories" in lists or {"info", "licenses"} <= members.kinds.keys()
    )
    if members.is_keyed:
        kind = next(iter(members.kinds.values()))
        found = f"an object of {_least(len(members.kinds), members)} {_KINDS[kind]}, keyed by {_shown(members.kinds)}"
        rows = "to_entries[] | {_key: .key} + .value" if kind == b"{" else "to_entries[]"
        advice = "Write a row for each key: "
    elif lists:
        counted = [f"{name!r} ({_least(count, members)})" for name, count in lists.items()]
        found = f"an object with the lists of rows {', '.join(counted[:_SHOWN])}{' …' if len(counted) > _SHOWN else ''}"
        rows = f".[{json.dumps(max(lists, key=lambda name: lists[name]))}][]"
        advice = "Write the rows of one list alone: "
    else:
        found, rows, advice = "an object over several lines", ".", "If not, write it in one line: "
    advice = f"{advice}jq -c {shlex.quote(rows)} {source} > {target}"
    what = "the file is one JSON object, not rows"
    if is_coco:
        what = "the file has the layout of COCO: one JSON object, not rows"
        joined = f"jq -c {shlex.quote(_COCO_ROWS)} {source} > metadata.jsonl"
        advice = f"{advice}  Or write the images with their annotations, next to the pictures: {joined}"
    else:
        advice = f"If the object is one row, name the file .jsonl. {advice}"
    return DataError(what, file=path, expected="an array of objects, or an object a line", found=found, advice=advice)


def _least(count: int, members: ObjectMembers) -> str:
    return f"{count:,}" if members.is_whole else f"at least {count:,}"


def _shown(names: Iterable[str]) -> str:
    first, second, *_ = names
    return f"{first!r:.40}, {second!r:.40} …"
