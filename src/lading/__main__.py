"""`python -m lading`: the command."""

from __future__ import annotations

from lading.cli import run

if __name__ == "__main__":
    run()
