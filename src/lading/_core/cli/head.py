"""`lading head`: look at samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import CHOOSING, READING, Debug, Json, OptionGroup, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.source import open_chosen
from lading.options import cli

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["head"]

_PANEL = "Options"


@dataclass(frozen=True, slots=True)
class _Showing:
    """How samples are shown.

    Attributes:
        full: Show whole texts and all items; with --json also bytes, in base64.
        images: Show images in the terminal, below their lines.
        image_protocol: Show images by this protocol (kitty, iterm, sixel), or as coloured half blocks (blocks). By
            default the terminal decides.
    """

    full: bool = field(default=False, metadata=cli("--full", panel=_PANEL))
    images: bool = field(default=False, metadata=cli("--images", panel=_PANEL))
    image_protocol: str | None = field(
        default=None,
        metadata=cli("--image-protocol", "WORD", panel=_PANEL, choices=("kitty", "iterm", "sixel", "blocks")),
    )

    def pictures(self, screen: Console) -> str | None:
        """The protocol by which images are shown; None for no images."""
        from lading._core.cli.pictures import protocol_of

        if self.image_protocol is None and not (self.images and screen.is_terminal):
            return None
        protocol = self.image_protocol or protocol_of()
        return None if protocol == "blocks" and screen.color_system is None else protocol


@takes(OptionGroup("showing", (_Showing,)), CHOOSING, READING)
def head(
    *,
    sources: Sources,
    number: Annotated[int, typer.Option("-n", "--number", min=0, metavar="N", help="Samples to show.")] = 5,
    start: Annotated[
        int,
        typer.Option(
            "--at", min=0, metavar="N", help="Number of the first sample, from 0. Builds an index if there is none."
        ),
    ] = 0,
    as_json: Json = False,
    debug: Debug = False,
    showing: Values,
    choosing: Steps,
    reading: Values,
) -> None:
    """Show samples: fields, sizes, pictures, the beginning of texts.

    Items of interleaved documents are shown in order. With --json each sample is
    a line, and media are described by size and type.

    Example: lading head docs/docs-00000.tar -n 2
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.cli.samples import as_json as sample_json
        from lading._core.cli.samples import as_text, read_samples

        how = _Showing(**showing())
        pictures = how.pictures(out.out)
        if how.images and pictures is None and not as_json:
            out.note("no pictures: the output is not a terminal with colours. --image-protocol blocks shows them.")
        steps = choosing()
        with open_chosen(sources, reading(), steps) as dataset:
            if "select" in steps:
                _ = dataset.schema  # refuses a column that no shard has: the first samples may lack any
            shown = 0
            for sample in read_samples(dataset, number, start):
                value = sample_json(sample, full=how.full) if as_json else None
                out.show(value, as_text(sample, full=how.full, pictures=pictures), indent=None)
                shown += 1
            if not shown:
                out.print(["no sample there"])
