"""Output of a command: text for people or JSON for programs, errors, and the exit status.

Results go to standard output, everything else to standard error, so that `--json` output is JSON only. Every
command runs inside one `Output`, which turns its end into a status:

    0    success, also if the reader of a pipe stops early
    1    the data are bad, two datasets differ, or the layout has a problem
    2    the call is wrong
    3    the machine, a store, or lading itself failed
    130  interrupted; 143 or 129 after SIGTERM or SIGHUP
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import traceback
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import typer

from lading._core.cli.signals import Terminated, lost, status_of_interrupt
from lading._core.cli.text import ESCAPED, plain, visible
from lading.errors import CorruptShard, LadingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from rich.console import Console, RenderableType

__all__ = [
    "FAILED",
    "Note",
    "Output",
    "about_order",
    "command_line",
    "error_lines",
    "finding_text",
    "json_text",
    "prepare_streams",
    "quiet",
]

FAILED = 3
_STANDARD_OUTPUT = "standard output"
_SALVAGE = "'lading salvage SRC DST' saves the intact samples."
quiet: ContextVar[bool | None] = ContextVar("quiet", default=None)
"""Whether `--quiet` or `--no-quiet` is given; `_core.cli.main` gives them to all verbs."""
about_order: ContextVar[str] = ContextVar("about_order", default="")
"""Advice for a column that is not there: about steps that may make it, and that are typed too late."""
_NO_COLUMN = ("no such column", "the column is not there")

_OURS = (typer.Exit, typer.Abort, typer.BadParameter, SystemExit, GeneratorExit)
MISUSE: Any = typer.BadParameter.__base__
"""Errors of the command line; typer has no public name for their class."""


class Note(UserWarning):
    """What is good to know: no reason for doubt. A command prints it as `Output.note` does."""


class Output:
    """Standard output and standard error of one command; entered for as long as the command runs.

    Args:
        as_json: results are JSON.
        debug: errors come with a traceback.
        interrupted: message after an interrupt.
        done: see the attribute.
        piped: standard output carries data: results go to standard error.

    Attributes:
        done: advice if the job is done and its results cannot be printed.
        quiet: print no progress and no notes; by default with JSON.
        status: the exit status, unless an error occurs.
    """

    def __init__(
        self, *, as_json: bool, debug: bool, interrupted: str = "", done: str = "", piped: bool = False
    ) -> None:
        self.as_json, self.status, self._piped = as_json, 0, piped
        self._debug, self._interrupted, self.done = debug, interrupted, done
        asked = quiet.get()
        self.quiet = as_json or (piped and sys.stdout.isatty()) if asked is None else asked
        self._warnings = warnings.catch_warnings()
        self._warned: set[str] = set()

    @cached_property
    def out(self) -> Console:
        """Standard output, for text."""
        return _console(stderr=self._piped)

    @cached_property
    def err(self) -> Console:
        """Standard error."""
        return _console(stderr=True)

    def show(self, value: object, text: Iterable[RenderableType], *, indent: int | None = 2) -> None:
        """Print a result: `value` as one JSON document with `--json`, else `text`.

        Args:
            value: the result as JSON-able values.
            text: the result for people, as renderables of rich; iterated only if it is printed.
            indent: of the JSON; None for one line.
        """
        if self.as_json:
            with _standard_output():
                (sys.stderr if self._piped else sys.stdout).write(json_text(value, indent=indent) + "\n")
            return
        self.print(text)

    def note(self, text: str) -> None:
        """Print what is good to know on standard error, unless it is to be quiet."""
        if not self.quiet:
            self.err.print(text, style="dim", soft_wrap=True)

    def print(self, text: Iterable[RenderableType]) -> None:
        """Print text for people, unless `--json` is given. Renderables with `no_wrap` stay on one line."""
        if not self.as_json:
            for part in text:
                with _standard_output():
                    self.out.print(part, soft_wrap=getattr(part, "no_wrap", None) is True)

    def __enter__(self) -> Self:
        self._warnings.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, category, *_: self._warn(str(message), category)
        return self

    def _warn(self, text: str, category: type[Warning]) -> None:
        """Print a warning or a note for users, each text once. Warnings for developers need --debug."""
        if text in self._warned or not (self._debug or issubclass(category, UserWarning)):
            return
        self._warned.add(text)
        if issubclass(category, Note):
            self.note(visible(text))
        else:
            self._say("warning", "yellow", [visible(text)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Print an error, and exit with the status. Exits of typer itself pass."""
        self._warnings.__exit__(kind, error, trace)
        error = error and (lost() or error)
        if isinstance(error, _OURS):
            return False
        try:
            if error is not None:
                self._explain(error)
            with _standard_output():
                sys.stdout.flush()
        except BrokenPipeError:
            _silence()
        except OSError as unwritten:
            self._give_up(unwritten, error)
        if self.status:
            raise typer.Exit(self.status) from None
        return True

    def _give_up(self, unwritten: OSError, error: BaseException | None) -> None:
        """Print that standard output cannot be written (a full disk), unless that error ended the command."""
        _silence()
        self.status = FAILED
        if not isinstance(error, OSError) or error.errno != unwritten.errno:
            self._say("error", "bold red", error_lines(self._lading_error(unwritten)))

    def _explain(self, error: BaseException) -> None:
        if isinstance(error, BrokenPipeError):
            _silence()
            return
        kept = str(getattr(error, "kept_tasks", ""))  # of a job that may go on (`_core.jobs.journal.journal`)
        if self._debug and not isinstance(error, KeyboardInterrupt):
            traceback.print_exception(error, file=sys.stderr)
        if isinstance(error, KeyboardInterrupt):
            self.status = status_of_interrupt(error)
            if isinstance(error, Terminated):
                error.reported = True
            with suppress(OSError):  # after SIGHUP the terminal is gone
                self._say("interrupted", "yellow", [visible(text) for text in (self._interrupted, kept) if text])
            return
        shown = self._lading_error(error)
        order = about_order.get() if shown.message.startswith(_NO_COLUMN) else ""
        shown.advice = " ".join(text for text in (order, shown.advice, kept) if text) or None
        self.status = shown.exit_status
        # For people first: standard output may be what failed.
        problem, *advice = error_lines(shown)
        if isinstance(error, CorruptShard) and "lading salvage" not in (error.advice or ""):
            advice = [" ".join([*advice, _SALVAGE])]
        self._say("error", "bold red", [problem, *advice])
        if self.as_json:
            sys.stdout.write(json_text({**shown.to_dict(), "error": type(error).__name__}, indent=None) + "\n")

    def _lading_error(self, error: BaseException) -> LadingError:
        found = _lading_error(error)
        if isinstance(error, OSError) and error.filename == _STANDARD_OUTPUT:
            found.advice = self.done or None
        return found

    def _say(self, label: str, style: str, lines: list[str]) -> None:
        from rich.text import Text

        first, *rest = lines or [""]
        rest_of_line = f": {first}" if first else ""
        self.err.print(Text.assemble((label, style), rest_of_line), soft_wrap=True)
        for line in rest:
            self.err.print(Text(f"  {line}"), soft_wrap=True)


@contextmanager
def _standard_output() -> Iterator[None]:
    """Name standard output in errors of writing to it, so that they do not look like errors of the data."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, _STANDARD_OUTPUT) from error


@contextmanager
def command_line(*, as_json: bool) -> Iterator[None]:
    """Let help pages and errors of the command line, which typer prints, end as commands do.

    Args:
        as_json: the call asks for JSON.

    Raises:
        typer.Exit: the call is wrong and the error was printed as JSON, or standard output is closed.
    """
    try:
        yield
    except MISUSE as error:
        if not as_json:
            raise
        path = getattr(error.ctx, "command_path", "lading")
        with Output(as_json=True, debug=False):
            raise UsageError(error.format_message().removesuffix("."), advice=f"Try '{path} --help'.") from None
    except OSError:
        with Output(as_json=False, debug=False):
            raise
        raise typer.Exit from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich's way out
            raise typer.Exit from None
        raise


def _lading_error(error: BaseException) -> LadingError:
    """Return any error as a `LadingError`, for printing."""
    if isinstance(error, LadingError):
        return error
    if isinstance(error, MemoryError):
        found = LadingError("out of memory", advice="Use smaller batches (--max-batch-bytes), or a larger machine.")
    elif isinstance(error, OSError):
        found = LadingError(error.strerror or str(error), file=None if error.filename is None else str(error.filename))
    else:
        found = LadingError(
            f"internal error: {type(error).__name__}: {error}",
            advice="This is a bug of lading, not a fault of the data. Run again with --debug, and report the output.",
        )
    found.exit_status = FAILED
    return found


def error_lines(error: LadingError) -> list[str]:
    """Return an error for people, safe to print: problem and place on one line, advice on the next."""
    return [visible(text) for text in (error.problem, *error.details, error.advice) if text]


def finding_text(finding: Mapping[str, Any], mark: str, style: str) -> Iterator[RenderableType]:
    """Return a finding, in the form of `LadingError.to_dict`, behind a mark."""
    from rich.text import Text

    places = {name: value for name, value in finding.items() if name not in ("error", "message", "level")}
    first, *rest = error_lines(LadingError(finding["message"], **places))
    yield Text.assemble((f"{mark} ", style), first, overflow="fold")
    yield from (Text(f"  {line}", "dim") for line in rest)


def json_text(value: object, *, indent: int | None = 2) -> str:
    """Return JSON that is safe to print: control and hidden characters are escaped."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    return ESCAPED.sub(lambda match: "\n" if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class QuietConsole(Console):
        """A console that leaves a closed pipe to the command."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return QuietConsole(stderr=stderr, markup=False, highlight=False, emoji=False)


def _silence() -> None:
    """Discard the rest of standard output, including its buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_streams() -> None:
    """Let standard output and error print any text: characters outside their encoding are spelled in ASCII."""
    codecs.register_error("lading", _in_ascii)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends, as they always are
        else:
            stream.reconfigure(errors="lading")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end
