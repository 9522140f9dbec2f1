"""Which samples of a dataset are shown, and in which order: the part of the page's URL that decides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lading._core.content.conditions import parse_where
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.filter_steps import Where
from lading._core.dataset.steps.order_steps import Sample, Shuffle, Sort
from lading._core.units import parse_sample, whole_number
from lading._core.view.marks import Marked, SampleMarks
from lading._core.view.shell import shell_word
from lading.errors import UsageError

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples are shown: those for which a condition holds, some of them, in an order.

    Attributes:
        where: a condition, as of `--where`; empty for all samples.
        sample: a number of samples or a percentage, as of `--sample`; empty for all.
        sort: a column, or a field inside one, as of `--sort`: `json.score:desc` puts the largest value first. Empty for
            the order of the source.
        shuffle: whether the order is random.
        seed: of `sample` and `shuffle`.
        marked: those with a mark, as `Marked.parse` takes it; empty for all.
    """

    where: str = ""
    sample: str = ""
    sort: str = ""
    shuffle: bool = False
    seed: int = 0
    marked: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Selection:
        """Return the selection of a URL's query. Raises UsageError for a value that is none."""
        seed, shuffle = query.get("seed", "0"), query.get("shuffle", "")
        number = whole_number(seed)
        if number is None:
            raise UsageError("a seed is a whole number, 0 or more", found=f"seed={seed[:80]!r}")
        if shuffle not in ("", "1"):
            raise UsageError("shuffle is 1, or is left out", found=f"shuffle={shuffle!r}")
        where, sample, sort = (query.get(name, "").strip() for name in ("where", "sample", "sort"))
        if sort and shuffle:
            raise UsageError("samples are sorted or shuffled", found=f"sort={sort}, shuffle=1",
                             advice="Leave one of them out.")  # fmt: skip
        made = cls(where, sample, sort, bool(shuffle), number, query.get("marked", ""))
        _ = made._mark, [*made._choosing()], [*made._ordering()]
        return made

    @property
    def _mark(self) -> Marked | None:
        return Marked.parse(self.marked) if self.marked else None

    def _choosing(self) -> Iterator[Step]:
        if self.where:
            parse_where(self.where)
            yield Where(self.where)
        if self.sample:
            yield Sample(parse_sample(self.sample), self.seed)

    def _ordering(self) -> Iterator[Step]:
        if self.sort:
            yield Sort.of(*self._sort)
        if self.shuffle:
            yield Shuffle(self.seed)

    @property
    def _sort(self) -> tuple[str, bool]:
        column, _, way = self.sort.rpartition(":")
        return (column, way == "desc") if column and way in ("asc", "desc") else (self.sort, False)

    def applied(self, data: OpenDataset, marks: SampleMarks | None = None) -> OpenDataset:
        """Return the dataset with these samples alone, in this order.

        Args:
            data: the dataset.
            marks: of its samples; by default those that the user's file keeps.
        """
        chosen = _with(data, *self._choosing())
        if self._mark is not None:
            chosen = chosen.with_steps((marks or SampleMarks(data)).step(self._mark, chosen.fitting))
        return _with(chosen, *self._ordering())

    def in_any_order(self) -> Selection:
        """Return the selection of the same samples in the order of the source."""
        return replace(self, sort="", shuffle=False, seed=self.seed if self.sample else 0)

    @property
    def is_random(self) -> bool:
        """Whether the seed counts."""
        return bool(self.sample) or self.shuffle

    @property
    def has_name(self) -> bool:
        """Whether the command line and Python can choose the same samples.

        They take marked samples from a file that the page saves, and before any other step.
        """
        return self._mark is None or (self._mark.mark != "none" and not self.sample)

    def words(self, *, with_seed: bool = True) -> str:
        """Return the options of the command line that choose the same samples.

        Args:
            with_seed: name the seed, if it is not 0.
        """
        words = ["--take", f"{self._mark.file}.txt"] if self._mark is not None else []
        words += ["--where", shell_word(self.where)] if self.where else []
        words += ["--sample", shell_word(self.sample)] if self.sample else []
        words += ["--sort", shell_word(self.sort)] if self.sort else []
        words += ["--shuffle"] if self.shuffle else []
        words += ["--seed", str(self.seed)] if with_seed and self.seed and self.is_random else []
        return " ".join(words)

    def calls(self) -> str:
        """Return the calls in Python that choose the same samples."""
        seed = f", seed={self.seed}" if self.seed else ""
        calls = [f".take_keys({f'{self._mark.file}.txt'!r})"] if self._mark is not None else []
        calls += [f".where({self.where!r})"] if self.where else []
        calls += [f".sample({parse_sample(self.sample)!r}{seed})"] if self.sample else []
        if self.sort:
            column, descending = self._sort
            calls += [f".sort({column!r}{', descending=True' if descending else ''})"]
        calls += [f".shuffle({seed.removeprefix(', ')})"] if self.shuffle else []
        return "".join(calls)


def _with(data: OpenDataset, *steps: Step) -> OpenDataset:
    return data.with_steps(*steps) if steps else data
