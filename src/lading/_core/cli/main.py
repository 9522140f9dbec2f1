"""The `lading` command."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lading._core.cli.help_page import help_page
from lading._core.cli.options import CHOOSING, TYPED, WORDS, Quiet, flag_aliases
from lading._core.cli.other_words import OTHER_OPTIONS, OTHER_VERBS, other_verb
from lading._core.cli.output import MISUSE, Output, about_order, command_line, prepare_streams, quiet
from lading._core.cli.plain_values import with_plain_values

__all__ = ["app", "run"]


_GROUPS = {
    "Look": ("demo", "info", "head", "view", "stats", "sql", "plan", "formats", "skill"),
    "Write": ("convert", "push", "export", "merge", "finish"),
    "Check": ("verify", "doctor", "digest", "diff"),
    "Keep": ("repair", "salvage", "index", "cache", "clean"),
}
"""The verbs, in the order of `lading --help`: a function of the same name in a module of its own each."""
_VERBS = tuple(verb for verbs in _GROUPS.values() for verb in verbs)


class _Commands(Mapping[str, Any]):
    """The command of each verb, made when it is asked for: one verb need not wait for the options of all others."""

    def __iter__(self) -> Iterator[str]:
        return iter(_VERBS)

    def __len__(self) -> int:
        return len(_VERBS)

    def __getitem__(self, name: str) -> Any:
        if name not in _VERBS:
            raise KeyError(name)
        return _command(name)


class _Verbs(TyperGroup):
    """The verbs. With `--json` an error of the command line is JSON too."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment] # nobody adds to it

    def get_params(self, ctx: Any) -> Any:
        """Return the options, with `--help`."""
        return with_plain_values(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - rich prints the page
        """Print the verbs in groups, and the options of `lading` itself."""
        texts = {title: {verb: _first_line(verb) for verb in verbs} for title, verbs in _GROUPS.items()}
        out = Output(as_json=False, debug=False)
        out.print(help_page(self, ctx, out.out.width, texts))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb and its words; of a word that people try, say what to type."""
        if args[0] in OTHER_VERBS:
            with Output(as_json=ctx.meta[__name__], debug=False):
                raise other_verb(args)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options of `lading` itself."""
        options = args[: args.index("--")] if "--" in args else args
        ctx.meta[__name__] = "--json" in options
        with command_line(as_json=ctx.meta[__name__]):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Take the options of the verb, and run it."""
        with command_line(as_json=ctx.meta[__name__]):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


_CONVERTED = "lading convert SRC DST {option} … && lading {verb} DST"
_WITHOUT_STEPS = {
    "verify": _CONVERTED,
    "doctor": _CONVERTED,
    "index": _CONVERTED,
    "salvage": "lading salvage SRC WHOLE && lading convert WHOLE DST {option} …",
    "repair": "lading repair DIR && lading convert DIR DST {option} …",
    "merge": "lading merge FOLDER && lading convert FOLDER DST {option} …",
}
"""The verbs that take whole files, and the commands that choose samples or columns for them."""


def _first_line(verb: str) -> str:
    return str(_command(verb).help).splitlines()[0]


class _Verb(TyperCommand):
    """A verb."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options, with `--help`."""
        return with_plain_values(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the arguments and options; where one argument of two is given, the second one is missing."""
        try:
            _, _, typed = self.make_parser(ctx).parse_args(list(args))
            ctx.meta[TYPED], ctx.meta[WORDS] = [param.name for param in typed], list(args)
            return super().parse_args(ctx, list(args))
        except MISUSE as error:
            self._advise(error)
            if not isinstance(error, typer.BadParameter):
                raise
            arguments = [each for each in self.params if each.param_type_name == "argument"]
            if len(arguments) > 1 and error.param is arguments[0]:
                given, *_ = self.make_parser(ctx).parse_args(list(args))
                if given.get(str(arguments[-1].name)):
                    error.param = arguments[-1]  # type: ignore[assignment] # a parameter of typer's, says click
            raise

    def _advise(self, error: Any) -> None:
        """Let the error of an unknown option name the option that is meant, or the verb that has it."""
        typed = getattr(error, "option_name", None)  # of the error of an unknown option
        option, commands = OTHER_OPTIONS.get(str(typed), typed), _WITHOUT_STEPS.get(str(self.name))
        if option != typed and any(option in param.opts for param in self.params):
            error.possibilities = [option]
        if commands is not None and option in {spelled.flag for *_, spelled in CHOOSING.options()}:
            command = commands.format(option=option, verb=self.name)
            error.message = f"No such option: {typed}. {self.name} takes whole files: {command}"
            error.possibilities = None

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - rich prints the page
        """Print the help of the verb."""
        out = Output(as_json=False, debug=False)
        out.print(help_page(self, ctx, out.out.width))

    def invoke(self, ctx: Any) -> Any:
        """Prepare the process, if it is lading's own, and run the verb; help needs no preparation."""
        if ctx.obj is not None:
            ctx.obj()
        return super().invoke(ctx)


@cache
def _command(name: str) -> Any:
    """Return the command of a verb. Its options may be called by their aliases, and with underscores as in Python."""
    verb = getattr(import_module(f"lading._core.cli.{name}"), name)
    aliases = flag_aliases(verb)

    def shown(name: str) -> str:
        spelled = name.replace("_", "-")
        return aliases.get(spelled, spelled)

    alone = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
    settings = {"token_normalize_func": shown, "help_option_names": ["--help", "-h"]}
    alone.command(cls=_Verb, context_settings=settings)(_with_quiet(verb))
    return get_command(alone)


def _with_quiet(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb with the option `--quiet` behind its own options."""

    @wraps(verb)
    def run(**given: Any) -> None:
        tokens = quiet.set(given.pop("quiet")), about_order.set("")
        try:
            verb(**given)
        finally:
            quiet.reset(tokens[0])
            about_order.reset(tokens[1])

    signature = inspect.signature(verb, eval_str=True)
    own = [each.replace(kind=each.KEYWORD_ONLY) for each in signature.parameters.values()]
    more = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Quiet)
    run.__signature__ = signature.replace(parameters=[*own, more])  # type: ignore[attr-defined] # as of `takes`
    return run


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lading {version('lading')}")
        raise typer.Exit


@app.callback()
def lading(
    _version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Look at, convert and verify training data in shards.

    Exit status: 0 success; 1 bad data, a difference or a layout problem;
    2 a wrong call; 3 a failure of the machine, a store or lading;
    130 interrupted (143 by SIGTERM, 129 by SIGHUP).
    """


def _prepare() -> None:
    from lading._core.processes.child_process import leave_pandas_out

    leave_pandas_out()
    gc.freeze()
    gc.enable()


def run() -> None:
    """Run the command when everything is loaded; `_core.cli.run` calls this."""
    prepare_streams()
    app(prog_name="lading", obj=_prepare)
