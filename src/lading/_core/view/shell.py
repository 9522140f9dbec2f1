"""Words of a command, quoted as people would quote them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

__all__ = ["shell_line", "shell_word"]

_OBEYED = re.compile(r'["$`\\\n]|!(?!=)')
"""What a shell does not take as it is between double quotes."""


def shell_word(text: str) -> str:
    """Return a word for a shell: between double quotes, where these are enough and the word has single ones.

    Example: `shell_word("lang == 'en'")`    # "lang == 'en'"
    """
    return f'"{text}"' if "'" in text and not _OBEYED.search(text) else shlex.quote(text)


def shell_line(words: Iterable[str]) -> str:
    """Return words as a line for a shell."""
    return " ".join(map(shell_word, words))
