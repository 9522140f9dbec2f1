"""The command line, one file a verb."""

from __future__ import annotations

import sys

__all__ = ["run"]

_INTERRUPTED = 130


def run() -> None:
    """Run the command `lading` of the shell.

    Loading takes a moment. An interrupt in that moment ends as an interrupt of the verb does.
    """
    try:
        from lading.cli.main import run as run_verb
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)
    run_verb()
