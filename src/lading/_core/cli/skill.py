"""`lading skill`: what agents and scripts should know of lading."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import Debug, Json
from lading._core.cli.output import Output
from lading.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

__all__ = ["skill"]


def skill(
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="VERB", help="Print the JSON Schema of VERB --json, or of error."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print how agents and scripts use lading, as a SKILL.md file.

    Agents read such a file from a folder named lading among their skills:
    lading skill > skills/lading/SKILL.md

    Example: lading skill --schema verify
    """
    with Output(as_json=as_json, debug=debug) as out:
        if schema is not None:
            found = _schema(schema)
            out.show(found, _lines(json.dumps(found, indent=2)))
            return
        text = resources.files("lading._core.data").joinpath("SKILL.md").read_text("utf-8")
        out.show({"text": text}, _lines(text))


def _schema(name: str) -> dict[str, object]:
    from lading._core.cli.json_schemas import schema_of, schemas
    from lading._core.content.nested import close_to

    if name not in schemas():
        raise UsageError("no such verb", expected=", ".join(schemas()), found=f"--schema {name}",
                         advice=close_to(name, [*schemas()]))  # fmt: skip
    return schema_of(name)


def _lines(text: str) -> Iterator[RenderableType]:
    from rich.text import Text

    yield from (Text(line, no_wrap=True) for line in text.splitlines())
