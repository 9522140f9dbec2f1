"""How a user names the samples that are shown elsewhere: a command, and a line of Python."""

from __future__ import annotations

from dataclasses import dataclass

from lading._core.view.selection import Selection

__all__ = ["Naming"]


@dataclass(frozen=True, slots=True)
class Naming:
    """How a user names the dataset that is shown.

    Attributes:
        title: for people.
        words: the sources and options on the command line; empty where only Python knows the dataset.
        python: the expression in Python; None where only the command line knows the dataset.
        sorts: options `--sort` that come behind all other steps. A further `--sort` is typed before these, since
            neighbouring ones are one sort, the first the most important.
        seed: of steps on the command line; None if they have none.
    """

    title: str
    words: str
    python: str | None
    sorts: str = ""
    seed: int | None = None

    def command(self, selection: Selection) -> str | None:
        """Return the command that shows the same samples; None if there is none, such as one with two seeds."""
        if not (self.words and selection.has_name) or (selection.is_random and self.seed not in (None, selection.seed)):
            return None
        options = selection.words(with_seed=self.seed is None)
        steps = (options, self.sorts) if options.startswith("--sort ") else (self.sorts, options)
        return " ".join(filter(None, ("lading head", self.words, *steps)))

    def expression(self, selection: Selection) -> str | None:
        """Return the expression in Python that gives the same samples; None if there is none."""
        return None if self.python is None or not selection.has_name else self.python + selection.calls()
