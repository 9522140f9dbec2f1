"""The command line, one file a verb."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

from lading._core.cli.signals import ended_by_signals, lost, status_of_interrupt

__all__ = ["run"]


def run() -> None:
    """Run the command `lading` of the shell.

    A signal ends every verb in the same way: one line, and its status. The line is the verb's if it had begun: it knows
    what is left. Before and behind the verb, also while modules load, it is printed here. The secrets of URLs are taken
    out of the arguments first, so that no message repeats them.

    No garbage is collected until the verb begins: modules make little of it, and each pass would look at all of them.
    """
    gc.disable()
    with ended_by_signals():
        try:
            from lading._core.secret_urls import shown

            sys.argv[1:] = ["::".join(map(shown, each.split("::"))) for each in sys.argv[1:]]
            from lading._core.cli.main import run as run_verb

            run_verb()
        except BaseException as error:
            interrupt = lost()
            if interrupt is None or (isinstance(error, SystemExit) and not error.code):
                raise
            if not interrupt.reported:
                with suppress(OSError):  # after SIGHUP the terminal is gone
                    sys.stderr.write("interrupted\n")
            sys.exit(status_of_interrupt(interrupt))
