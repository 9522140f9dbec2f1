"""Read the YAML that programs write for lists of names: mappings, lists and texts, or JSON; nothing more.

    split_parts:
      train:
      - a-{000000..000009}.tar   # a comment
      val: ['b.tar', "c.tar"]
    exclude: []

Anchors, tags, texts of several lines and several documents are errors. All scalars are texts; no value is None.

Source: YAML 1.2.2, and what PyYAML 6.0.3 writes (`yaml.dump`).
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from lading.errors import DataError

__all__ = ["parse_yaml"]

_COMMENT = re.compile(r"\s*(?:#.*)?")
_PLAIN = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`](?:[^\s:#]|:(?!\s|$)|(?<!\s)#|[ \t]+(?![\s#]|$))*|-(?=\S)\S*")
_PLAIN_IN_LIST = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`](?:[^,\[\]{}#:]|(?<!\s)#|:(?![\s,\]]|$))*|-[^,\[\]{}\s]+")
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"\\(?:x(?P<hex>[0-9A-Fa-f]{2})|.)")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"')


def parse_yaml(data: bytes) -> Any:
    """Return a document as dicts, lists and texts.

    Raises:
        DataError: it is invalid UTF-8, or has more of YAML than this module reads; names the line.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError("the YAML is invalid UTF-8") from None
    if text.lstrip().startswith("{"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise DataError("the file is neither JSON nor simple YAML", offset=error.pos) from None
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if not _COMMENT.fullmatch(line)]
    parser = _Parser([(n, line) for n, line in lines if line.rstrip() != "---"])
    found = parser.block(-1)
    if parser.at < len(parser.lines):
        raise parser.wrong()
    return found


def _as_json(escape: re.Match[str]) -> str:
    """Return an escape of YAML as JSON has it."""
    return f"\\u00{escape['hex']}" if escape["hex"] else escape[0]


class _Parser:
    """Reads lines with content, one after the other; `at` is the next one."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines, self.at = lines, 0

    def wrong(self) -> DataError:
        number, line = self.lines[min(self.at, len(self.lines) - 1)]
        return DataError(f"line {number} is more of YAML than is read here", expected="names, lists and texts",
                         found=repr(line.strip())[:80], advice="Write the file as JSON.")  # fmt: skip

    def _indent(self) -> int:
        """Return the indentation of the next line; -1 at the end."""
        if self.at == len(self.lines):
            return -1
        line = self.lines[self.at][1]
        return len(line) - len(line.lstrip(" "))

    def _is_item(self) -> bool:
        return self.at < len(self.lines) and bool(re.match(r" *-(?:\s|$)", self.lines[self.at][1]))

    def block(self, outer: int) -> Any:
        """Return the value of the lines that are indented more than `outer`; of items, as much is enough."""
        indent = self._indent()
        if indent < outer or (indent == outer and not self._is_item()):
            return None
        return self._items(indent) if self._is_item() else self._mapping(indent)

    def _items(self, indent: int) -> list[Any]:
        found = []
        while self._indent() == indent and self._is_item():
            found.append(self._value(self.lines[self.at][1].lstrip()[1:].strip()))
        return found

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._indent() == indent and not self._is_item():
            line = self.lines[self.at][1].strip()
            name, end = self._scalar(line, 0, _PLAIN)
            rest = line[end:].lstrip()
            if name in found or not re.match(r":(?:\s|$)", rest):
                raise self.wrong()
            if _COMMENT.fullmatch(rest[1:]):
                self.at += 1
                found[name] = self.block(indent)
            else:
                found[name] = self._value(rest[1:].strip())
        return found

    def _value(self, text: str) -> Any:
        """Return the value of a text that ends its line, and go to the next line."""
        if text.startswith("["):
            return self._list(text)
        found: Any
        found, end = ({}, 2) if text.startswith("{}") else self._scalar(text, 0, _PLAIN)
        if not _COMMENT.fullmatch(text[end:]):
            raise self.wrong()
        self.at += 1
        return found

    def _list(self, text: str) -> list[str]:
        """Return a list in brackets, which may go on in the lines that follow."""
        found, at = [], 1
        while True:
            at += len(text[at:]) - len(text[at:].lstrip(", \t"))
            if at == len(text):
                self.at += 1
                if self.at == len(self.lines):
                    raise self.wrong()
                text, at = self.lines[self.at][1].strip(), 0
            elif text[at] == "]":
                break
            else:
                name, at = self._scalar(text, at, _PLAIN_IN_LIST)
                found.append(name)
        if not _COMMENT.fullmatch(text[at + 1 :]):
            raise self.wrong()
        self.at += 1
        return found

    def _scalar(self, text: str, at: int, plain: re.Pattern[str]) -> tuple[str, int]:
        """Return a text that begins at a place, and the place behind it."""
        if match := _SINGLE.match(text, at):
            return match[1].replace("''", "'"), match.end()
        if match := _DOUBLE.match(text, at):
            try:
                return orjson.loads(_ESCAPE.sub(_as_json, match[0])), match.end()
            except orjson.JSONDecodeError:
                raise self.wrong() from None
        if match := plain.match(text, at):
            return match[0].strip(), match.end()
        raise self.wrong()
