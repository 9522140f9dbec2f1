"""`lading demo`: a small real dataset in every format, with the digest of each."""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import Debug, Json
from lading._core.cli.output import Output
from lading._core.cli.text import count, visible
from lading._core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from lading._core.jobs.dataset.demo import DemoStep

__all__ = ["demo"]


def demo(
    folder: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="New folder that keeps the datasets. By default a temporary folder."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Convert a small real dataset to every format, and compare digests.

    13 pages of documentation with their images go from tar through every format
    that holds them. Each step prints the content digest. The exit status is 1 if
    a digest differs. With --to, the folder also gets photos, 100 pictures with
    captions, and broken, tars to repair: the documentation uses them.

    Example: lading demo
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.dataset import demo as job

        with tempfile.TemporaryDirectory(prefix="lading-demo-") if folder is None else nullcontext(folder) as place:
            steps: list[DemoStep] = []
            out.print(_opening())
            for step in job.demo(place, shown="" if folder is None else None):
                steps.append(step)
                out.print(_step(step))
            if folder is not None:
                job.write_trial_data(folder)
            same = all(step.same for step in steps)
            out.status = 0 if same else 1
            out.show({"same": same, "steps": [asdict(step) for step in steps]}, _closing(steps, folder, same=same))


def _opening() -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text("13 pages of documentation, texts and images, in every format that holds them.")
    yield Text("Equal content digests show that nothing is lost.\n")


def _step(step: DemoStep) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text.assemble(("$ ", "dim"), (visible(step.command), "bold"))
    size = f"{count(step.shards, 'shard')}, {count(step.samples, 'document')}, {format_bytes(step.size_bytes)}"
    took = f", {step.seconds:.2f} s" if step.seconds else ""
    verdict = Text("  same", "bold green") if step.same else Text("  DIFFERENT", "bold red")
    yield Text.assemble("  ", size, took)
    yield Text.assemble("  digest ", step.digest, verdict if step.seconds else "")


def _closing(steps: Sequence[DemoStep], folder: str | None, *, same: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    from lading._core.api.opening import open_dataset
    from lading._core.cli.samples import as_text, read_samples
    from lading._core.jobs.dataset.demo import lading_command

    last = steps[-1]
    name = last.path if folder is not None else os.path.basename(last.path)
    yield Text.assemble(("\n$ ", "dim"), (visible(lading_command("head", name, "-n", "1")), "bold"))
    with open_dataset(last.path) as dataset:
        for sample in read_samples(dataset, 1):
            yield from as_text(sample)
    if not same:
        yield Text("The digests differ, so data were lost. This is a bug of lading; please report it.", "bold red")
        return
    texts, images = (count(last.items.get(kind, 0), kind) for kind in ("text", "image"))
    yield Text.assemble(
        ("Nothing changed", "bold green"),
        f": {count(last.samples, 'document')}, {texts} and {images} are the same",
        f" after {count(len(steps) - 1, 'conversion')}.",
    )
    yield from _what_next(steps, folder)


def _what_next(steps: Sequence[DemoStep], folder: str | None) -> Iterator[RenderableType]:
    from rich.text import Text

    from lading._core.jobs.dataset.demo import lading_command

    if folder is None:
        commands = ["lading demo --to demo", "lading info demo/docs", "lading diff demo/docs demo/docs-tar"]
    else:
        yield Text("Also written: photos, 100 pictures with captions; broken, the pages with one tar cut.")
        diff = lading_command("diff", os.path.basename(steps[0].path), os.path.basename(steps[-1].path))
        commands = [shlex.join(["cd", folder]), diff, "lading head photos -n 3 --images", "lading stats photos"]
        commands.append("lading salvage broken saved")
    yield Text("\nWhat to try next:", "dim")
    for command in [*commands, "lading convert YOUR-DATA out --to parquet --verify"]:
        yield Text(f"  {visible(command)}")
