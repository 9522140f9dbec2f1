"""The command line, one file a verb."""

from __future__ import annotations

import sys

from lading.cli.signals import end_by_signals, status_of_interrupt

__all__ = ["run"]


def run() -> None:
    """Run the command `lading` of the shell.

    Loading takes a moment. An interrupt before or behind the verb ends as an interrupt of the verb does.
    """
    try:
        end_by_signals()
        from lading.cli.main import run as run_verb

        run_verb()
    except KeyboardInterrupt as error:
        sys.stderr.write("interrupted\n")
        sys.exit(status_of_interrupt(error))
