"""`lading plan`: what training with a dataset will cost, and how well it is shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lading._core.cli.options import CHOOSING, READING, WRITING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen
from lading._core.cli.text import count, facts
from lading._core.units import format_bytes, format_seconds
from lading.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading._core.cli.steps import TypedSteps
    from lading._core.jobs.convert.estimate import Estimate
    from lading._core.train.plan import Plan

__all__ = ["plan"]

_STEPS = replace(CHOOSING, without=("shuffle", "seed"))
_WRITING = replace(WRITING, only=("format", "options", "shard_size", "workers", "max_batch_bytes"), optional=True)


_OF_TRAINING = {"world_size": "--world-size", "batch_size": "--batch-size", "batch_tokens": "--batch-tokens",
                "batch_pixels": "--batch-pixels", "bucket_by": "--bucket-by", "length": "--length",
                "max_padding": "--max-padding", "too_large": "--too-large", "shuffle": "--shuffle", "lanes": "--lanes",
                "seed": "--seed", "epoch_size": "--epoch-size", "weights": "--weights",
                "ahead": "--ahead-bytes"}  # fmt: skip
_OF_JOBS = {"rate": "--rate", "total_bytes": "--total-bytes"}


_BY_SIZE: Final = "Batches by size"


class _TooLarge(StrEnum):
    """What is done with samples above the bound of a batch."""

    ERROR = "error"
    SKIP = "skip"
    ALONE = "alone"


class _Shuffling(StrEnum):
    """Kinds of shuffle, as the command line spells them."""

    AUTO = "auto"
    GLOBAL = "global"
    BLOCK = "block"
    NONE = "none"


@takes(_WRITING, _STEPS, READING)
def plan(  # noqa: PLR0913 - one argument an option
    *,
    sources: Sources,
    world_size: Annotated[int, typer.Option("--world-size", min=1, metavar="N", help="Ranks of the job.")] = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            min=1,
            metavar="N",
            help="Samples a batch of a rank; by default 1, or as many as a batch by size holds.",
            show_default=False,
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            "--batch-tokens",
            min=1,
            metavar="N",
            help="Padded tokens of a batch, at most; needs --bucket-by or --length.",
            show_default=False,
            rich_help_panel=_BY_SIZE,
        ),
    ] = None,
    batch_pixels: Annotated[
        int | None,
        typer.Option(
            "--batch-pixels",
            min=1,
            metavar="N",
            help="Padded pixels of a batch of images, at most.",
            show_default=False,
            rich_help_panel=_BY_SIZE,
        ),
    ] = None,
    bucket_by: Annotated[
        str | None,
        typer.Option(
            "--bucket-by",
            metavar="SIZE",
            help="Size by which samples are put together, such as len(txt) or jpg.aspect_ratio.",
            show_default=False,
            rich_help_panel=_BY_SIZE,
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            "--length",
            metavar="SIZE",
            help="Tokens of a sample, such as json.num_tokens.",
            show_default=False,
            rich_help_panel=_BY_SIZE,
        ),
    ] = None,
    max_padding: Annotated[
        float | None,
        typer.Option(
            "--max-padding",
            metavar="SHARE",
            help="Share of a batch that is padding, at most; by default 0.1, and 0.2 for the last batches.",
            show_default=False,
            rich_help_panel=_BY_SIZE,
        ),
    ] = None,
    too_large: Annotated[
        _TooLarge,
        typer.Option(
            "--too-large",
            metavar="WAY",
            help="For samples above the bound: error, skip, or alone (a batch of its own).",
            rich_help_panel=_BY_SIZE,
        ),
    ] = _TooLarge.ERROR,
    shuffle: Annotated[
        _Shuffling,
        typer.Option(
            "--shuffle",
            metavar="KIND",
            help="How the loader shuffles: auto, global, block or none, as in lading.loader.",
        ),
    ] = _Shuffling.AUTO,
    lanes: Annotated[
        int | None,
        typer.Option(
            "--lanes",
            min=1,
            metavar="N",
            help="Lanes of a block shuffle: as many ranks read blocks of their own.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the loader's shuffle.")] = 0,
    epoch_size: Annotated[
        int | None,
        typer.Option(
            "--epoch-size",
            min=1,
            metavar="N",
            help="Samples of an epoch, of all ranks. By default those of the dataset.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="COLUMN",
            help="Draw samples with replacement by the weights in this column, such as json.score.",
            show_default=False,
        ),
    ] = None,
    ahead: Annotated[
        str, typer.Option("--ahead-bytes", metavar="SIZE", help="What the loader reads ahead, at most.")
    ] = "256MB",
    job: Annotated[
        bool, typer.Option("--job", metavar="", help="Show what a conversion will take instead; needs --to.")
    ] = False,
    rate: Annotated[
        str,
        typer.Option("--rate", metavar="SIZE", help="Source bytes that a worker of the job converts in a second."),
    ] = "100MB",
    total_bytes: Annotated[
        str | None,
        typer.Option(
            "--total-bytes", metavar="SIZE", help="Plan the job for so many bytes of such data.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
    writing: Values,
    choosing: Steps,
    reading: Values,
    typed: Sequence[str],
) -> None:
    """Show what training will read, keep in memory and shuffle.

    Computed from the order of the loader and from the layout of the data. Reads
    headers and footers, no payload; for batches by size what says the sizes of
    samples. Says what to type where a choice is bad.
    With --job: the tasks, shards, requests and hours of a conversion.

    Example: lading plan docs --world-size 64 --batch-size 32
    """
    with Output(as_json=as_json, debug=debug) as out:
        _refuse_ignored(typed, job=job)
        if job:
            _show_job(out, sources, writing(), choosing(), reading(), {"rate": rate, "total_bytes": total_bytes})
            return
        from lading._core.dataset.opened import opened
        from lading._core.train import plan as planning
        from lading._core.train.feed import resolved

        kinds: dict[str, Any] = {"auto": True, "none": False}
        kind = kinds.get(shuffle.value, shuffle.value)
        with open_chosen(sources, reading(), choosing()) as dataset, watching(out, "looking"):
            if lanes is not None:
                found = resolved(kind, opened(dataset).layout)
                if found.kind != "block":
                    raise UsageError("only a block shuffle has lanes", found=f"--lanes {lanes} with {found.kind}",
                                     advice="Add --shuffle block, or leave --lanes out.")  # fmt: skip
                kind = replace(found, lanes=lanes)
            made = planning.plan(
                dataset, batch_size, batch_tokens=batch_tokens, batch_pixels=batch_pixels, bucket_by=bucket_by,
                length=length, max_padding=max_padding, too_large=too_large.value, world_size=world_size, shuffle=kind,
                seed=seed, epoch_size=epoch_size, weights=weights, ahead_bytes=ahead,
            )  # fmt: skip
        out.show(made.to_dict(), _text(made))


def _refuse_ignored(typed: Sequence[str], *, job: bool) -> None:
    """Raise UsageError for options of training with `--job`, and for those of a job without it."""
    of_jobs = {**{name: spelled.flag for name, _, _, spelled in _WRITING.options()}, **_OF_JOBS}
    for name in typed:
        if job and name in _OF_TRAINING:
            raise UsageError("a job has no such option", found=f"{_OF_TRAINING[name]} with --job",
                             advice=f"Leave out {_OF_TRAINING[name]}: it is of training. Or leave out --job.",
                             )  # fmt: skip
        if not job and name in of_jobs:
            raise UsageError("only a job has this option", found=f"{of_jobs[name]} without --job",
                             advice="Add --job --to FORMAT, such as --job --to parquet.")  # fmt: skip


def _show_job(
    out: Output,
    sources: list[str],
    writing: dict[str, Any],
    choosing: TypedSteps,
    reading: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    """Show what a conversion will take."""
    from lading._core.jobs.convert.estimate import plan_job

    if not writing.get("format"):
        raise UsageError("a job is planned for a format", found="--job without --to", advice="Add --to parquet.")
    writing = {"write_options": writing.pop("options", None), **writing}
    with open_chosen(sources, reading, choosing) as dataset, watching(out, "looking"):
        made = plan_job(dataset, **writing, **asked)
    out.show(made.to_dict(), _job_text(made))


def _job_text(made: Estimate) -> Iterator[RenderableType]:
    from rich.text import Text

    speed, planner = f"at {format_bytes(made.rate_bytes)}/s each (--rate)", format_bytes(made.planner_bytes)
    rows = [
        *(("first", f"{step} reads all samples before the tasks: that time is not planned") for step in made.first),
        ("source", f"{count(made.source_shards, 'shard')} of {made.source_format}, {format_bytes(made.source_bytes)}"),
        ("tasks", f"{made.tasks:,}, of {format_bytes(made.task_bytes)} at most"),
        ("writes", f"{count(made.shards, 'shard')} of {made.format}, about {format_bytes(made.size_bytes)}"),
        ("takes", f"{format_seconds(made.seconds)} with {count(made.workers, 'worker')} {speed}"),
        *(("", f"without the time of {step}: convert a part with --limit 1000 to see it") for step in made.functions),
        ("memory", f"{format_bytes(made.memory_bytes)} a process, at most; to plan {planner} more"),
        ("room", f"{format_bytes(made.size_bytes)}, in a hidden folder at the destination until the job ends"),
        *([("functions", "slow ones are called before the tasks, by all workers")] if made.calls_first else []),
        *_kept_row(made),
        ("from a store", f"{count(made.lists, 'request')} that list, about {made.gets:,} that read"),
        ("on a store", f"{made.puts:,} requests that write, {made.copies:,} that copy"),
        ("if it dies", f"--resume does {format_seconds(made.redone_seconds)} of each worker's work again, at most"),
    ]
    yield facts((name, Text(value)) for name, value in rows)


def _kept_row(made: Estimate) -> list[tuple[str, str]]:
    """Return what is said of the results of functions that are kept."""
    if made.spool_bytes == 0:
        return []
    size = "an unknown size" if made.spool_bytes is None else f"about {format_bytes(made.spool_bytes)}"
    return [("functions", f"{size} of results are kept until the job ends (--temp-dir)")]


def _text(made: Plan) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    yield facts((name, Text(value)) for name, value in made.facts())
    heads, *rows = made.bucket_rows()
    if rows:
        found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in heads:
            found.add_column(name, justify="left" if name == heads[0] else "right")
        for row in rows:
            found.add_row(*row)
        yield ""
        yield found
