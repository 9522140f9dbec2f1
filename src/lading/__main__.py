"""`python -m lading`: the command."""

from __future__ import annotations

from lading._core.cli import run

if __name__ == "__main__":
    run()
