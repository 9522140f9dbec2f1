"""Pack documents of tokens into sequences of one length: `lading.pack`.

Two methods:

- `split`: all documents, one after the other, are cut every `length` tokens. No token is padding, but for the last
  sequence of an epoch.
- `best-fit`: a document that fits a sequence is kept whole. Documents are placed a window at a time, the longest first,
  each into the fullest sequence that has room for it. What stays empty is padding.

Each rank packs all documents, in one order, and gives every n-th sequence. So sequences do not depend on the number of
ranks, all ranks have as many batches, and a state is the same on each.

Tokens alone decide about the sequences. So a rank reads those of all documents, and columns that are kept beside them
for its own sequences alone (`Loader.separate_columns` says where that can be).

Python handles documents; numpy handles tokens.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.train.collate import Columns, collated, columns_of
from lading._core.train.columns import ColumnMaker, Recipe
from lading._core.train.loader import Loader
from lading._core.train.reading import PADDING
from lading.errors import DataError, FunctionError, UsageError

__all__ = ["Method", "Packer", "pack"]

Method: TypeAlias = Literal["split", "best-fit"]

_Ids: TypeAlias = NDArray[np.int64]

_VERSION: Final = 2
_OF_EACH_RANK: Final = 1
"""Version of states that each rank had by itself: those of a single rank are as today."""
_TEXTS: Final = ("text", "txt")
_TOKENS: Final = ("input_ids", "tokens")
_WINDOW: Final = 128
_MADE: Final = ("input_ids", "position_ids", "segment_ids")


@dataclass(frozen=True, slots=True)
class _Settings:
    """What decides about the sequences, but for the documents.

    Attributes:
        method: how documents are packed.
        length: tokens of a sequence.
        end: the token behind every document, or None.
        window: sequences' worth of tokens that are placed at once.
    """

    method: Method
    length: int
    end: int | None
    window: int


class _Origin(NamedTuple):
    """A place in the documents, from which reading can begin again.

    Attributes:
        loader: state of the loader before a batch.
        documents: of this batch before the place.
        given: what sequences have taken from there on: tokens of `split`, whole sequences of `best-fit`.
    """

    loader: dict[str, Any]
    documents: int
    given: int = 0


class _Document(NamedTuple):
    """A document with tokens.

    Attributes:
        ids: the tokens.
        kept: its values of the columns that are kept; or its position in the epoch, where they are read later.
        origin: where it begins.
        after: where the next one begins.
    """

    ids: _Ids
    kept: Any
    origin: _Origin
    after: _Origin


_Sequence: TypeAlias = tuple[list[_Ids], list[Any], _Origin]
"""The pieces of documents in a sequence, the kept values of each, and where the next sequence begins."""

_Step: TypeAlias = tuple[list[_Sequence], list[bool], _Origin]
"""The sequences of this rank in a step, which of them come again, and where the next step begins."""


@public("lading.pack")
def pack(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    loader: Loader,
    length: int,
    *,
    tokenizer: Any = None,
    column: str | None = None,
    method: Method = "split",
    end: int | None = None,
    pad: int = 0,
    batch_size: int = 1,
    window: int | None = None,
    keep: Sequence[str] = (),
) -> Packer:
    """Pack the documents of a loader into sequences of exactly `length` tokens, by the batch.

    Example:
        loader = lading.loader("texts/*.parquet", 256, shuffle=True, seed=7, collate="torch")
        packed = lading.pack(loader, 2048, tokenizer=tokenizer, end=tokenizer.eos_token_id, batch_size=8)
        for batch in packed:
            batch["input_ids"], batch["position_ids"], batch["segment_ids"]    # each (8, 2048), int64

    `segment_ids` number the documents of a sequence from 1; 0 is padding. `position_ids` begin again at 0 with each
    document, and with each sequence. All are arrays, or tensors where the loader's `collate` is `torch`. The last
    sequence of an epoch is filled up with padding, and the last batch may have fewer sequences. Memory: 8 bytes a token
    of a batch of the loader, of `window` sequences, and of a batch.

    A step takes the next `batch_size` sequences for each rank, so sequences do not depend on the number of ranks. All
    ranks have as many batches, and a state goes on with any number. To that end each rank reads and tokenizes all
    documents. It reads and decodes columns of `keep` for its own sequences alone, unless the loader has functions of
    yours or skips samples. Where the last step has a sequence for some ranks alone, others have one of them again: the
    column `__padding__` says so, as in batches of the loader. With `last="drop"` in the loader the step is left out.

    Documents with images become token ids, with ids that stand for images, in the loader's `transform`. `keep` gives
    the images of the documents in each sequence.

    Args:
        loader: gives texts, or lists of token ids.
        length: tokens of a sequence.
        tokenizer: a function of a text that returns its token ids; or a tokenizer of `tokenizers`, `tiktoken` or
            `transformers`, which is given a batch of texts at once. None where the column has token ids.
        column: column of the texts or ids; by default `text` or `txt`, without a tokenizer `input_ids` or `tokens`.
        method: `split` cuts all documents, one after the other, every `length` tokens. `best-fit` keeps documents
            whole, cuts only those that are longer than a sequence, and marks what stays empty.
        end: id of the token that ends a document, put behind each; None for none.
        pad: id of padding.
        batch_size: sequences a batch.
        window: of `best-fit`: documents are placed when they make up so many sequences. By default 128.
        keep: of `best-fit`: columns of the loader that a batch has too, such as images or keys: for each sequence the
            list of the values of its documents, in the order of their segments. A document that is longer than a
            sequence is an error then.

    Raises:
        UsageError: an argument is wrong, or a batch of the loader lacks the column.
    """
    if not isinstance(loader, Loader):
        raise UsageError("pack takes a loader of lading's", expected="lading.loader(…)", found=type(loader).__name__)
    if method not in ("split", "best-fit"):
        raise UsageError("no such way to pack", expected="split or best-fit", found=repr(method))
    placed = _WINDOW if window is None else window
    for name, size in (("length", length), ("batch_size", batch_size), ("window", placed)):
        if type(size) is not int or size < 1:
            raise UsageError(f"{name} must be a whole number of at least 1", found=repr(size))
    if isinstance(keep, str) or {*keep} & {*_MADE}:
        raise UsageError("keep is a list of other columns than those that are made", found=repr(keep))
    if keep and method == "split":
        raise UsageError("columns are kept of whole documents", expected='method="best-fit"', found='method="split"')
    if window is not None and method == "split":
        raise UsageError("only best-fit has a window", found=f'window={window} with method="split"',
                         advice='Leave window out, or use method="best-fit".')  # fmt: skip
    texts = _Texts(tokenizer, column, end, keep)
    if loader.collate == "torch" or "torch" in sys.modules:
        from torch.utils.data import IterableDataset

        IterableDataset.register(Packer)  # so that DataLoader takes it as such
    return Packer(loader, _Settings(method, length, end, placed), texts, pad, batch_size)


class Packer:
    """Gives batches of packed sequences; made by `lading.pack`. A `for` loop is one epoch of the loader.

    A loop that ends early (`break`) leaves its epoch: the next loop gives the next one.

    Attributes:
        counts: what was reported so far, by a short phrase.
    """

    def __init__(self, loader: Loader, settings: _Settings, texts: _Texts, pad: int, batch_size: int) -> None:
        self._share, self._settings, self._texts = loader.share_of(loader.epoch), settings, texts
        self._refuse_other_ranks = loader.refuse_other_ranks
        loader.refuse_reports("lading.pack")
        columns = texts.columns_among(loader.separate_columns)
        self._keeps_later = bool(columns and texts.keep) and self._share.world_size > 1
        self._loader = loader.alone(columns[:1], 2) if self._keeps_later else loader.alone(columns)
        self._pad, self._batch_size = pad, batch_size
        self._torch = loader.collate == "torch"
        self._origin: _Origin | None = None
        self._resumed: _Origin | None = None
        self._looping: int | None = None
        self.counts: Counter[str] = Counter()

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next loop gives."""
        return self._loader.epoch if self._looping is None else self._looping

    def set_epoch(self, epoch: int) -> None:
        """Make the next loop give this epoch from its begin, or from where `load_state_dict` has it go on."""
        if self._resumed is None or epoch != self.epoch:
            self._loader.set_epoch(epoch)
            self._origin = self._resumed = self._looping = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        torch = sys.modules.get("torch.utils.data")
        if torch is not None and torch.get_worker_info() is not None:
            raise UsageError("sequences are packed in the process of the loop", expected="DataLoader(…, num_workers=0)",
                             advice="Let processes make the texts: lading.loader(…, workers=2).")  # fmt: skip
        self._refuse_other_ranks()
        begin, self._resumed = self._resumed, None
        if begin is None and self._looping is not None:  # the loop before ended early
            self._loader.set_epoch(self._looping + (self._origin is not None))
            self._origin = None
        self._looping = self._loader.epoch
        begin = begin or _Origin(self._loader.state_dict(), 0)
        settings, documents = self._settings, self._documents(begin.documents)
        if settings.method == "split":
            sequences = _split(documents, settings.length, begin.given)
        else:
            sequences = _fitted(documents, settings, begin.given, whole=bool(self._texts.keep))
        steps = self._steps(sequences)
        for rows, again, origin in self._with_kept(steps) if self._keeps_later else steps:
            self._origin = origin
            yield self._made(rows, again)
        self._origin = self._looping = None

    def __len__(self) -> int:
        """Raise TypeError: nothing knows how many sequences there are before the last document is tokenized."""
        raise TypeError(
            "packed sequences have no length: their number is known when the last document is packed. Count steps, "
            "which are as many on all ranks"
        )

    def __bool__(self) -> bool:
        return True

    def _steps(self, sequences: Iterator[_Sequence]) -> Iterator[_Step]:
        ranks, each = self._share.world_size, self._batch_size
        while step := [*islice(sequences, ranks * each)]:
            if self._share.last == "drop" and len(step) < ranks * each:
                return
            yield *self._of_rank(step), step[-1][2]

    def _with_kept(self, steps: Iterator[_Step]) -> Iterator[_Step]:
        """The steps with the kept values instead of positions: read ahead, for sequences of this rank alone."""
        ahead = deque[_Step]()

        def positions() -> Iterator[NDArray[np.int64]]:
            for step in steps:
                ahead.append(step)
                yield np.array([position for _, kept, _ in step[0] for position in kept], np.int64)

        assert self._looping is not None, "the loop has begun"
        step_bytes = 8 * self._batch_size * self._settings.length
        for batch in self._loader.batches_at(self._looping, self._texts.keep, positions(), step_bytes):
            rows, again, origin = ahead.popleft()
            values = self._texts.kept_in(_columns_in(batch))
            yield [(pieces, [next(values) for _ in kept], after) for pieces, kept, after in rows], again, origin

    def _of_rank(self, step: list[_Sequence]) -> tuple[list[_Sequence], list[bool]]:
        """The sequences of this rank in a step, and which of them come again."""
        share = self._share
        places = [*range(share.rank, len(step), share.world_size)]
        wanted = self._batch_size if share.last == "pad" else 1  # no rank may lack the step
        again = [i % len(step) for i in range(share.rank, share.rank + wanted - len(places))]
        return [step[i] for i in places + again], [False] * len(places) + [True] * len(again)

    def state_dict(self) -> dict[str, Any]:
        """Where the next sequence begins: a small dict of what JSON has, and no tokens. The same on every rank.

        It holds the state of the loader before the first document that is not yet packed as a whole. Inside of a loop,
        the batch that the loop was given last counts as used.
        """
        origin = self._origin or self._resumed or _Origin(self._loader.state_dict(), 0)
        return {
            **self._fixed_state(),
            "documents": origin.documents,
            "given": origin.given,
            "loader": origin.loader,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next loop go on where `state_dict` was made, with any number of ranks and any batch size.

        The tokenizer must be the same.

        Raises:
            UsageError: it is no state, or one of other settings, of other data or of another order; the error names
                what differs.
        """
        mine = self.state_dict()
        if isinstance(state, Mapping) and (state.get("version"), state.get("world_size")) == (_OF_EACH_RANK, 1):
            state = {**state, "version": _VERSION}
        missing = [name for name in mine if name not in state] if isinstance(state, Mapping) else [*mine]
        if missing:
            raise UsageError("this is no state of packed sequences", expected=f"a dict with {', '.join(mine)}",
                             found=f"{', '.join(missing[:3])} missing")  # fmt: skip
        for name, value in self._fixed_state().items():
            if state[name] != value:
                raise UsageError(
                    f"the state belongs to other sequences: {name} differs", expected=repr(value),
                    found=repr(state[name]),
                    advice="Pack with the same settings.",
                )  # fmt: skip
        for name in ("documents", "given"):
            if type(state[name]) is not int or state[name] < 0:
                raise UsageError(f"the {name} of the state are no such number", found=repr(state[name]))
        self._loader.load_state_dict(state["loader"])
        self._resumed = _Origin(dict(state["loader"]), state["documents"], state["given"])
        self._origin = self._looping = None

    def _fixed_state(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "version": _VERSION,
            "method": settings.method,
            "length": settings.length,
            "end": settings.end,
            "window": settings.window if settings.method == "best-fit" else None,
        }

    def _documents(self, skipped: int) -> Iterator[_Document]:
        """The documents of the loader that have tokens, without the first ones."""
        batches = iter(self._loader)
        after = self._loader.state_dict()
        for batch in batches:
            before, after = after, self._loader.state_dict()
            first = before["position"] if self._keeps_later else None
            found = self._texts.documents(batch, self.counts, first)
            places = [i for i in range(skipped, len(found)) if len(found[i][0])]
            skipped = max(skipped - len(found), 0)
            origins = [*(_Origin(before, i) for i in places), _Origin(after, 0)]
            for i, origin, next_one in zip(places, origins, origins[1:], strict=False):
                yield _Document(*found[i], origin, next_one)

    def _made(self, batch: list[_Sequence], again: list[bool]) -> dict[str, Any]:
        """The columns of a batch, and which of its sequences come again, where some may."""
        shape = (len(batch), self._settings.length)
        tokens, positions, segments = np.full(shape, self._pad), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, (pieces, _, _) in enumerate(batch):
            sizes = np.array([len(ids) for ids in pieces])
            end = int(sizes.sum())
            tokens[row, :end] = np.concatenate(pieces)
            positions[row, :end] = np.arange(end) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            segments[row, :end] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        made = [*zip(_MADE, (tokens, positions, segments), strict=True)]
        if self._share.pads:
            made.append((PADDING, np.array(again)))
        kept = {name: [[each[i] for each in row[1]] for row in batch] for i, name in enumerate(self._texts.keep)}
        return {name: collated(values, torch=self._torch) for name, values in made} | kept

    def __repr__(self) -> str:
        ranks = f"rank {self._share.rank} of {self._share.world_size}, " if self._share.world_size > 1 else ""
        return f"Packer({self._settings.method}, length {self._settings.length:,}, {ranks}of {self._loader!r})"


def _split(documents: Iterator[_Document], length: int, used: int) -> Iterator[_Sequence]:
    """Cut documents, one after the other, into sequences; the first tokens were used before."""
    pieces, room = list[_Ids](), length
    for document in documents:
        ids, begin = document.ids, min(used, len(document.ids))
        used -= begin
        while begin < len(ids):
            pieces.append(ids[begin : begin + room])
            begin += len(pieces[-1])
            room -= len(pieces[-1])
            if not room:
                yield pieces, [], document.after if begin == len(ids) else document.origin._replace(given=begin)
                pieces, room = [], length
    if pieces:
        yield pieces, [], document.after


def _fitted(documents: Iterator[_Document], settings: _Settings, given: int, *, whole: bool) -> Iterator[_Sequence]:
    """Place documents into sequences, a window at a time; the first sequences were given before.

    Raises:
        DataError: a document is longer than a sequence, and must stay whole.
    """
    length, most = settings.length, settings.window * settings.length
    while held := [*_window(documents, most)]:
        longest = max(len(each.ids) for each in held)
        if whole and longest > length:
            raise DataError(
                "a document is longer than a sequence, and its kept values cannot be cut",
                expected=f"at most {length:,} tokens", found=f"{longest:,}",
                advice="Cut the document in the loader's transform=, or pack longer sequences.",
            )  # fmt: skip
        pieces = [(each, begin) for each in held for begin in range(0, len(each.ids), length)]
        rows = _placed([min(len(each.ids) - begin, length) for each, begin in pieces], length)
        for number, row in enumerate(rows[given:], given + 1):
            after = held[-1].after if number == len(rows) else held[0].origin._replace(given=number)
            mine = [pieces[i] for i in row]
            yield [each.ids[begin : begin + length] for each, begin in mine], [each.kept for each, _ in mine], after
        given = 0


def _window(documents: Iterator[_Document], most: int) -> Iterator[_Document]:
    """The next documents, until they have so many tokens."""
    while most > 0 and (document := next(documents, None)) is not None:
        yield document
        most -= len(document.ids)


def _placed(sizes: Sequence[int], length: int) -> list[list[int]]:
    """The pieces of each sequence, by number; sequences in the order of their first pieces.

    Pieces are placed from the longest to the shortest, each into the sequence with the least room that is enough.

    Source: H. Ding et al., "Fewer Truncations Improve Language Modeling" (2024).
    """
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []
    for piece in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        place = bisect_left(rooms, (sizes[piece], -1))
        if place == len(rooms):
            room, row = length, len(rows)
            rows.append([])
        else:
            room, row = rooms.pop(place)
        rows[row].append(piece)
        if room > sizes[piece]:
            insort(rooms, (room - sizes[piece], row))
    return sorted(map(sorted, rows))


class _Texts:
    """Gives the token ids of the documents of a batch.

    Args:
        tokenizer: as `pack` takes it.
        column: of the texts or ids; None for one of the usual names.
        end: put behind every document.
        keep: columns whose values go with the ids.
    """

    def __init__(self, tokenizer: Any, column: str | None, end: int | None, keep: Sequence[str]) -> None:
        self._tokenizer, self._column, self.keep = tokenizer, column, tuple(keep)
        self._end = np.array([] if end is None else [end], np.int64)
        self._tokenized = None if tokenizer is None else _by_batch(tokenizer)

    def columns_among(self, known: Sequence[str]) -> list[str]:
        """The column of texts or ids, and those that are kept; none where that is not sure."""
        usual = [self._column] if self._column is not None else _TOKENS if self._tokenizer is None else _TEXTS
        found = [name for name in usual if name in known]
        return [*found, *self.keep] if len(found) == 1 and {*self.keep} <= {*known} else []

    def kept_in(self, columns: Columns) -> Iterator[tuple[Any, ...]]:
        """The kept values of each document of a batch."""
        self._refuse_unknown(columns)
        return zip(*(columns[name] for name in self.keep), strict=True)

    def documents(self, batch: Any, counts: Counter[str], first: int | None) -> list[tuple[_Ids, Any]]:
        """The tokens and kept values of each document, without padding of the loader; nulls are counted.

        Args:
            batch: of the loader.
            counts: takes what is left out.
            first: position of the first document; positions then come instead of kept values. None gives the values.
        """
        columns = _columns_in(batch)
        if first is None:
            self._refuse_unknown(columns)
        name = self._name([*columns])
        values = columns[name]
        real = range(len(values)) if PADDING not in columns else np.flatnonzero(~np.array(columns[PADDING])).tolist()
        places = [i for i in real if values[i] is not None]
        if len(places) < len(real):
            counts[f"samples without {name}, left out"] += len(real) - len(places)
        found: Sequence[Any] = [values[i] for i in places]
        if self._tokenized is not None:
            wrong = next((value for value in found if not isinstance(value, str)), None)
            if wrong is not None:
                raise UsageError(f"the column {name!r} has no texts", expected="str", found=type(wrong).__name__,
                                 advice="Name the column of texts: column=…; or leave the tokenizer out.")  # fmt: skip
            try:
                found = self._tokenized([*found])
            except Exception as error:
                raise FunctionError("the tokenizer raised an error", column=name,
                                    found=f"{type(error).__name__}: {error}") from error  # fmt: skip
        kept = [tuple(columns[each][i] for each in self.keep) if first is None else first + i for i in places]
        ends = len(self._end) > 0
        made = (np.concatenate([ids, self._end]) if ends else ids for ids in (_as_ids(each, name) for each in found))
        return [*zip(made, kept, strict=True)]

    def _refuse_unknown(self, columns: Columns) -> None:
        for each in self.keep:
            if each not in columns:
                raise UsageError("no such column to keep", expected=", ".join(columns), found=repr(each))

    def _name(self, columns: Sequence[str]) -> str:
        """The column of texts or ids."""
        usual = _TOKENS if self._tokenizer is None else _TEXTS
        if self._column is not None and self._column in columns:
            return self._column
        found = [name for name in usual if name in columns]
        if self._column is None and len(found) == 1:
            return found[0]
        what = "of token ids" if self._tokenizer is None else "of texts"
        advice = 'Name the column: lading.pack(…, column="…").'
        if len(found) > 1:
            advice += f" Or give it one name in all datasets: ds.rename({{{found[1]!r}: {found[0]!r}}})."
        elif "items" in columns:
            advice = "Make one column of the items of a document: lading.loader(…, transform=…)."
        raise UsageError(
            f"several columns {what} to pack" if len(found) > 1 else f"no column {what} to pack",
            expected=" or ".join(usual) if self._column is None else repr(self._column),
            found=", ".join(columns), advice=advice,
        )  # fmt: skip


def _columns_in(batch: Any) -> Columns:
    """The columns of a batch of a loader, however it collates."""
    if isinstance(batch, dict):
        return batch
    if isinstance(batch, list) and all(isinstance(sample, dict) for sample in batch):
        return columns_of(batch)
    if isinstance(batch, pa.Table):
        columns, failed = ColumnMaker(Recipe(decode=False)).decoded(batch, batch.num_rows)
        for error in failed.values():
            raise error
        return columns
    raise UsageError("a batch of the loader has no columns", found=type(batch).__name__,
                     advice='Use collate="numpy", "torch", "list" or "arrow".')  # fmt: skip


def _as_ids(values: Any, name: str) -> _Ids:
    """Token ids as an array. Raises DataError."""
    try:
        ids = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError("token ids must be a list of whole numbers", column=name, found=str(error)[:80]) from error
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise DataError("token ids must be a list of whole numbers", column=name, found=repr(values)[:80])
    return ids.astype(np.int64, copy=False)


def _by_batch(tokenizer: Any) -> Callable[[list[str]], Sequence[Any]]:
    """The function that gives the token ids of each of several texts."""
    if hasattr(tokenizer, "encode_batch"):  # tokenizers, tiktoken
        return lambda texts: [getattr(each, "ids", each) for each in tokenizer.encode_batch(texts)] if texts else []
    if not callable(tokenizer):
        raise UsageError("this is no tokenizer", expected="a function of a text, or an object with encode_batch",
                         found=type(tokenizer).__name__)  # fmt: skip
    if hasattr(tokenizer, "model_input_names"):  # transformers
        return lambda texts: list(tokenizer(texts)["input_ids"]) if texts else []
    return lambda texts: [tokenizer(text) for text in texts]
