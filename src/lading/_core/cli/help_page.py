"""The page of `lading VERB --help`: what the verb does, examples, then its options in groups."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["help_page"]

_MOST_COLUMNS = 100
_NAME_COLUMNS = 26
_VERB_COLUMNS = 9
_INDENT = 2
_LAST = ("Running", "Reading", "Interleaved documents", "Output")
"""The groups at the end, in this order: few calls need them."""


def help_page(
    command: Any, context: Any, columns: int, verbs: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Text]:
    """Give the help of a command, line by line.

    Args:
        command: of typer.
        context: of click.
        columns: of the terminal.
        verbs: of `lading` itself: by their group, each with its text.
    """
    from rich.text import Text

    width = min(columns, _MOST_COLUMNS)
    yield Text(command.get_usage(context).translate({ord(brace): None for brace in "{}"}) + "\n", "bold")
    yield Text(command.help.strip())
    for title, texts in (verbs or {}).items():
        yield Text(f"\n{title}", "bold")
        for name, text in texts.items():
            yield from _lines((name, ""), text, width, _VERB_COLUMNS)
    groups: dict[str, list[Any]] = {"Arguments": [], "Options": []}
    for param in command.get_params(context):
        own = "Arguments" if param.param_type_name == "argument" else "Output" if param.name == "help" else "Options"
        groups.setdefault(getattr(param, "rich_help_panel", None) or own, []).append(param)
    titles = [title for title, params in groups.items() if params]
    for title in sorted(titles, key=lambda title: _LAST.index(title) if title in _LAST else -1):
        yield Text(f"\n{title}", "bold")
        for param in groups[title]:
            yield from _lines(_names(param), _told(param), width, _NAME_COLUMNS)


def _lines(names: Sequence[str], told: str, columns: int, name_columns: int) -> Iterator[Text]:
    """Give a name and its text in two columns; where the name is long, the text begins on the next line."""
    from rich.text import Text

    left = _INDENT + name_columns
    shown = Text(" " * _INDENT).append(names[0], "cyan").append("".join(names[1:]), "dim")
    first, *rest = textwrap.wrap(told, max(columns - left, _NAME_COLUMNS), break_on_hyphens=False)
    if len(shown) < left:
        yield shown.append(" " * (left - len(shown))).append(first)
    else:
        yield shown
        rest.insert(0, first)
    yield from (Text(" " * left + line) for line in rest)


def _names(param: Any) -> tuple[str, str]:
    """Return the names of a parameter, and what stands for its value."""
    if param.param_type_name == "argument":
        return param.metavar, " …" if param.nargs == -1 else ""
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    return ", ".join((*param.opts, *param.secondary_opts)), value


def _told(param: Any) -> str:
    """Return what a parameter does, and its default."""
    shown = param.default not in (None, "") and not isinstance(param.default, bool)
    return str(param.help) + (f" Default: {param.default}." if shown else "")
