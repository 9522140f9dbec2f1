"""`lading push`: a dataset into a repository on Hugging Face's Hub."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Annotated

import typer

from lading._core.cli.convert import chosen
from lading._core.cli.options import CHOOSING, READING, WRITING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.text import by_outcome, count, facts, visible
from lading._core.units import format_bytes

__all__ = ["push"]

_WRITING = replace(
    WRITING, only=("format", "options", "shard_size", "on_error", "overwrite", "max_batch_bytes", "temp_dir"),
    optional=True,
)  # fmt: skip


@takes(_WRITING, CHOOSING, READING)
def push(  # noqa: PLR0913 - one argument an option
    *,
    sources: Sources,
    destination: Annotated[
        str,
        typer.Argument(
            metavar="REPO",
            show_default=False,
            help="hf://datasets/ORG/NAME, perhaps with @BRANCH; a folder behind it is the config.",
        ),
    ],
    private: Annotated[bool, typer.Option("--private", metavar="", help="Make a new repository private.")] = False,
    license: Annotated[  # noqa: A002 - the word of cards
        str | None, typer.Option("--license", metavar="ID", help="Licence for the data card, such as cc-by-4.0.")
    ] = None,
    message: Annotated[str | None, typer.Option("--message", metavar="TEXT", help="Title of the commit.")] = None,
    as_json: Json = False,
    debug: Debug = False,
    writing: Values,
    choosing: Steps,
    reading: Values,
) -> None:
    """Write a dataset into a repository on Hugging Face's Hub.

    Examples:
      lading push photos hf://datasets/me/photos --private --license mit
      lading push photos hf://datasets/me/photos/small --limit 1000 --to webdataset

    Writes Parquet that datasets loads, and a data card, in one commit.
    After a failure, the same push again uploads only what is missing.
    """
    with Output(as_json=as_json, debug=debug, interrupted="the repository is as it was") as out:
        from lading._core.jobs.push.push import push as job

        read = reading()
        write = {name: value for name, value in writing().items() if value is not None}
        out.done = f"{destination} is written."
        with watching(out, "pushing") as report, ExitStack() as held:
            asked = {"ledger": None, "on_error": write.get("on_error", "error")}
            source = chosen(sources, read, choosing(), held, destination, asked)
            done = job(
                source, destination, write.pop("format", "parquet"), private=private, license=license, message=message,
                on_progress=report, storage_options=read.get("storage_options"), **write,
            )  # fmt: skip
        splits = ", ".join(f"{visible(name)} {samples:,}" for name, samples in done.splits.items())
        rows = [
            ("pushed", f"{count(done.samples, 'sample')}: {splits}"),
            ("wrote", f"{count(done.files, 'file')}, {format_bytes(done.size_bytes)}"),
            *([("replaced", count(done.replaced, "file"))] if done.replaced else []),
            ("page", visible(done.page)),
            ("open", visible(done.destination)),
            ("took", f"{done.seconds:.1f} s"),
        ]
        for label, lines in by_outcome(done.counts).items():
            rows += [(label if i == 0 else "", visible(line)) for i, line in enumerate(lines)]
        out.show(asdict(done), [facts(rows)])
