"""Text of data as it is shown: nothing in it controls a terminal, or hides."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ESCAPED", "visible", "visible_lines"]

ESCAPED: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb]|[\U000e0000-\U000e0fff]"
)
"""Characters that move the cursor, change direction or colours, hide, or cannot be encoded."""


def visible(text: str) -> str:
    """Return the text on one line. Characters that would control the terminal, or be hidden, are spelled out."""
    return ESCAPED.sub(lambda match: ascii(match[0])[1:-1], text)


def visible_lines(text: str) -> str:
    """Return the text with its lines as they are, each as `visible` shows it."""
    return "\n".join(map(visible, text.split("\n")))
