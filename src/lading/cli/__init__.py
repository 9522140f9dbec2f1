"""The command line, one file a verb."""

from __future__ import annotations

import sys

__all__ = ["run"]

_INTERRUPTED = 130


def run() -> None:
    """What the shell's `lading` runs.

    What a verb needs takes a third of a second to load: who interrupts that is told as who interrupts the verb.
    """
    try:
        from lading.cli.main import run as run_verb
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)
    run_verb()
