#!/usr/bin/env python3
"""Pictures of what lading prints: real commands on the data that ships with the package → `docs/img/*.svg`.

    python docs/make_captures.py

The commands run in a temporary folder, so paths are the same each time; sizes and speeds are those of this machine.
"""

from __future__ import annotations

import io
import os
import shlex
import tempfile
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text
from typer.testing import CliRunner

from lading._core.cli.main import app

WIDTH = 100
HERE = Path(__file__).parent / "img"
CAPTURES = {
    "demo": ["lading demo"],
    "info": ["lading info docs"],
    "head": ["lading head docs -n 2"],
    "stats": ["lading stats docs --limit 8"],
    "convert": ["lading convert docs out --to parquet --verify", "lading diff docs out"],
    "error": ["lading convert broken.tar out --to parquet", "lading convert docs out --to parquet"],
}
"""Name of the picture, and the commands on it."""


def prepare(folder: str) -> None:
    """The shipped shards in `docs/`, and one that was cut."""
    os.mkdir("docs")
    for file in resources.files("lading._core.data").iterdir():
        if file.name.endswith(".tar"):
            Path("docs", file.name).write_bytes(file.read_bytes())
    whole = Path("docs/docs-00000.tar").read_bytes()
    Path(folder, "broken.tar").write_bytes(whole[: len(whole) // 2])


def capture(name: str, commands: list[str]) -> None:
    """Run the commands and draw what they print, both streams, in colour."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command in commands:
        console.print(Text.assemble(("$ ", "dim"), command))
        environment = {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "NO_COLOR": None, "TERM": "xterm-256color"}
        printed = CliRunner(env=environment).invoke(app, shlex.split(command)[1:], prog_name="lading", color=True)
        console.print(Text.from_ansi(printed.output.rstrip("\n") + "\n"))
    console.save_svg(str(HERE / f"{name}.svg"), title="lading", theme=DIMMED_MONOKAI, unique_id=name)


def main() -> None:
    """Draw them all."""
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare(folder)
        for name, commands in CAPTURES.items():
            capture(name, commands)


if __name__ == "__main__":
    main()
